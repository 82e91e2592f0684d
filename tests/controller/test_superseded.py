"""Functions that later changes have replaced are let go of, but for what a rollback and a recovery need.

Objects are counted, with Python's search for cycles switched off: a host searches rarely, and a kernel's is not ours.
"""

from __future__ import annotations

import gc
import pickle
import weakref

import pytest

import fries_nb as fn
from fries_nb.controller.events import Outcome, Resolved
from fries_nb.dataflow.graph import Edge, Graph, Kind, Operator
from fries_nb.dataflow.updates import Update
from fries_nb.protocol.checkpoints import CommittedChange, without_superseded
from fries_nb.protocol.messages import WorkerId
from fries_nb.simulation import Cluster
from fries_nb.simulation.seeded_changes import SeededChanges

CHANGES = 30
SIZE = 10_000
alive: weakref.WeakSet = weakref.WeakSet()


class Model:
    """A function with something large in it; each copy of it is counted."""

    def __init__(self, version):
        self.version = version
        self.weights = bytes(SIZE)
        alive.add(self)

    def __setstate__(self, state):
        self.__dict__.update(state)
        alive.add(self)

    def process(self, row, state):
        state["count"] = state.get("count", 0) + 1
        return row | {"version": self.version}


class Stateless(Model):
    """Likewise, without a state per key."""

    def process(self, row):
        return row | {"version": self.version}


@pytest.fixture
def uncollected():
    """No search for cycles while the test runs."""
    gc.collect()
    alive.clear()
    gc.disable()
    yield
    gc.enable()


def changed(checkpoints, scheduler="fries", model=Model):
    """A cluster that has made thirty changes of one operator and goes on, and what controllers were told."""
    flow = fn.Dataflow("models")
    rows = flow.source("S", fn.rate(None, count=4)).map("before", lambda row: row)
    rows.map("FM", model(0), key="value").sink("out", fn.memory())
    cluster = Cluster(
        flow.graph(workers=2), {"S": [{"value": n % 7} for n in range(2_000)]}, hosts=2, checkpoints=checkpoints
    )
    cluster.hold([WorkerId("S", 0), WorkerId("S", 1)])
    for version in range(1, CHANGES + 1):
        read = min(cluster.supply.read + 10, 1_900)
        cluster.until(lambda read=read: cluster.supply.read >= read)
        change = cluster.request({"FM": model(version)}, scheduler, rehearse=True)
        cluster.until(lambda change=change: change in cluster.outcomes)
        assert cluster.outcomes[change].outcome == "done", cluster.outcomes[change].error
        if checkpoints:
            asked = cluster.checkpoint()
            cluster.until(lambda asked=asked: cluster.asked[asked] is not None)
            assert cluster.asked[asked] == ""
    return cluster


@pytest.mark.parametrize(("scheduler", "model"), [("fries", Model), ("multiversion", Stateless)])
def test_hosts_hold_the_present_function_only(uncollected, scheduler, model):
    """Two workers, thirty changes: at each worker the present copy, and perhaps one that it was tried with."""
    cluster = changed(checkpoints=False, scheduler=scheduler, model=model)
    declared = 1
    assert len(alive) - declared <= 2 * 2, sorted(model.version for model in alive)
    assert all(instance.function.version == CHANGES for instance in cluster.instances("FM"))


@pytest.mark.parametrize("checkpoints", [False, True])
def test_the_controller_holds_what_a_recovery_needs(checkpoints):
    """Not the payloads of changes that a checkpoint has behind it and later ones have replaced."""
    cluster = changed(checkpoints)
    held = [payload for one in cluster.controller._life.recovery.decided for payload in one.payloads.values()]
    assert len(held) <= 3
    known = [one.change for one in cluster.controller._life.recovery.decided]
    assert known == [f"u{number}" for number in range(CHANGES + 1 - len(known), CHANGES + 1)]
    assert len(known) <= 3
    if checkpoints:
        cluster.kill(0)
        cluster.until(lambda: cluster.recoveries and all(i.function.version for i in cluster.instances("FM")))
        assert {instance.function.version for instance in cluster.instances("FM")} == {CHANGES}


def test_what_a_rollback_brings_back_stays_when_a_fix_came_in_between():
    """A fix that is ordered ahead of a rollback is behind it; the next rollback brings back what ran before both."""
    fm = {"FM": b"code"}
    changes = [CommittedChange(name, "fries", (), fm) for name in ("u1", "u2", "u3")]
    changes += [CommittedChange("fix", "fries", (), fm, before="u3.back")]
    changes += [CommittedChange("u3.back", "fries", (), {}, undoes="u3")]
    changes += [CommittedChange("u4", "fries", (), fm)]
    kept = without_superseded(changes, {change.change for change in changes})
    assert [change.change for change in kept if change.payloads] == ["u2", "u4"]


def test_the_kernel_holds_what_runs_and_what_ran_before_it(uncollected):
    """Of thirty changes two in memory, functions and payloads; rollbacks of any depth find the others on disk."""
    operators = (Operator("S", kind=Kind.SOURCE), Operator("FM", function=len), Operator("Out", kind=Kind.SINK))
    graph = Graph("kernel", operators, (Edge("S", "FM"), Edge("FM", "Out")))
    changes = SeededChanges(graph, chaining=True)

    def carried_out(change):
        """The function that the controller was handed; the change is done."""
        [request] = changes.posted()
        changes.take(Resolved(Outcome(change, "fries", "done")))
        return pickle.loads(request.payloads["FM"]).function.version

    for version in range(CHANGES):
        assert carried_out(changes.request({"FM": Update(Model(version))})) == version
    assert sorted(model.version for model in alive) == [CHANGES - 2, CHANGES - 1]
    queue = changes._queue
    held = [payload for request in queue._known.requests for payload in request.payloads.values()]
    assert len(held) == 2
    for version in range(CHANGES - 2, CHANGES - 8, -1):
        assert carried_out(changes.roll_back()) == version
        assert len(alive) <= 4
    assert [change.updates["FM"].function.version for change in queue.changes][:3] == [0, 1, 2]
