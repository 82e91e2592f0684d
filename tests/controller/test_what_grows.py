"""A run that goes on for years: what its controller and its queue of changes hold does not grow with what it has done.

Objects are counted, from the controller on. The numbers of changes that are kept are made small.
"""

from __future__ import annotations

import gc
import pickle
import types
from typing import Any

import pytest
from controller_setting import FM_ALONE, FRAUD, Desk

from fries_nb.changes import change_queue, function_versions
from fries_nb.controller import known_changes
from fries_nb.controller.events import CheckpointKept, CheckpointRequested, Outcome, Resolved, Tick
from fries_nb.dataflow.graph import Edge, Graph, Kind, Operator
from fries_nb.dataflow.updates import Update
from fries_nb.errors import PlanError
from fries_nb.protocol.messages import Done, WorkerId
from fries_nb.simulation.seeded_changes import SeededChanges

EVERYTHING = tuple(FRAUD.by_name)
KEPT = 20
NOT_HELD = (type, types.ModuleType, types.FunctionType, types.BuiltinFunctionType, types.CodeType)


def held(root: Any, *without: Any) -> int:
    """The number of objects that can be reached, but not by way of some."""
    seen, open_ones = {id(root), *map(id, without)}, [root]
    while open_ones:
        for one in gc.get_referents(open_ones.pop()):
            if id(one) not in seen and not isinstance(one, NOT_HELD):
                seen.add(id(one))
                open_ones.append(one)
    return len(seen)


@pytest.fixture(autouse=True)
def few(monkeypatch):
    """Twenty changes are kept."""
    monkeypatch.setattr(known_changes, "CHANGES_KEPT", KEPT)
    monkeypatch.setattr(change_queue, "CHANGES_KEPT", KEPT)
    monkeypatch.setattr(function_versions, "VERSIONS_KEPT", KEPT)


@pytest.mark.parametrize("checkpoints", [True, False])
def test_a_controller_does_not_grow_with_changes_and_commits(checkpoints):
    """Changes, checkpoints with files, and requests for them: after a thousand as after a hundred."""
    desk = Desk(commit_ms=100, checkpoints=checkpoints, run="r7")
    sizes, marker = [], 0
    for number in range(1_000):
        desk.request(FM_ALONE, f"u{number}")
        desk.prepared("FM", change=f"u{number}")
        marker += 1
        desk.done(marker, "FM")
        desk.hear(CheckpointRequested(f"k{number}"))
        desk.hear(Tick(), after_ms=100)
        marker += 1
        for worker in desk.workers(*EVERYTHING):
            files = (f"part-{number}",) if worker == WorkerId("scored", 0) else ()
            desk.answer(Done(marker, worker, files=files))
        desk.saved(marker // 2, *EVERYTHING)
        desk.hear(CheckpointKept(marker // 2))
        desk.said.clear()
        if number in (99, 999):
            sizes.append(held(desk.controller))
    assert desk.controller.changes["u999"] == "done"
    assert len(desk.controller.changes) <= KEPT + 1
    assert sizes[1] <= 1.02 * sizes[0], sizes


def queue():
    """A queue of changes of one operator."""
    operators = (Operator("S", kind=Kind.SOURCE), Operator("FM", function=len), Operator("Out", kind=Kind.SINK))
    return SeededChanges(Graph("kernel", operators, (Edge("S", "FM"), Edge("FM", "Out"))), chaining=True)


def carried_out(changes, change, outcome="done"):
    """The change ends."""
    [request] = changes.posted()
    changes.take(Resolved(Outcome(change, "fries", outcome)))
    return request


def test_the_queue_of_changes_does_not_grow_with_them():
    """Nor the files of their functions, which are closed when none of theirs is kept."""
    changes, sizes = queue(), []
    for number in range(1_000):
        carried_out(changes, changes.request({"FM": Update(str if number % 2 else repr)}))
        if number % 10 == 5:
            carried_out(changes, changes.roll_back())
        if number in (99, 999):
            sizes.append(held(changes._queue, changes))
    assert len(changes._queue.changes) == KEPT
    assert changes._queue.changes[-1].id == "u1100"
    assert sizes[1] <= 1.1 * sizes[0], sizes


def test_a_rollback_to_what_a_forgotten_change_installed_brings_it_back():
    """Changes are undone down to the oldest that is kept; what ran before that one runs then, and no further."""
    changes = queue()
    functions = [str, repr, len, abs, hash, bin, hex, oct, ascii, float]
    for number in range(KEPT + 7):
        carried_out(changes, changes.request({"FM": Update(functions[number % 10])}))
    oldest = changes._queue.changes[0].id
    assert oldest == "u8"
    for _ in range(KEPT // 2):  # rollbacks are changes, too, and are kept in place of older ones
        last = carried_out(changes, changes.roll_back())
    with pytest.raises(PlanError, match="no change is in effect that could be rolled back"):
        changes.roll_back()
    restored = KEPT + 7 - KEPT // 2 - 1
    assert pickle.loads(last.payloads["FM"]).function is functions[restored % 10]


def test_open_changes_and_those_that_rollbacks_return_to_are_kept():
    """However many came since."""
    changes = queue()
    first = changes.request({"FM": Update(str)})
    for _ in range(3 * KEPT):
        changes.request({"FM": Update(repr)})
    assert changes._queue.changes[0].id == first
    changes.take(Resolved(Outcome(first, "fries", "done")))
    assert len(changes._queue.changes) == 3 * KEPT
