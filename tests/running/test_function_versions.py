"""What a run says that its operators run: the function of the change that was done last, and since when."""

from __future__ import annotations

import dataclasses
import time
from typing import Any

import cloudpickle
import pyarrow as pa
import pytest
from queue_setting import Desk, first, function

import fries_nb as fn
from fries_nb.changes.change_queue import ChangeQueue
from fries_nb.changes.function_versions import TEXT_LENGTH, function_text
from fries_nb.changes.rollbacks import Rollbacks
from fries_nb.controller.events import GuardEnded
from fries_nb.dataflow.regions import regions
from fries_nb.dataflow.tables import JoinTable
from fries_nb.dataflow.updates import Update
from fries_nb.dataflow.windowing import WindowFunction
from fries_nb.protocol.checkpoints import CommittedChange


def runs(desk: Desk, operator: str) -> tuple[str, str]:
    """The function and the version of an operator; what it is compared with in a difference is the same."""
    one = desk.queue.running_functions()[operator]
    assert one.operator == operator
    assert function_text(desk.queue.functions_now({})[operator]) == one.function
    return one.function, one.version


def test_aborted_and_rolled_back_changes_are_not_what_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """A change counts when it is done; a rollback is a change, and a guard returns to the one before, from then on."""
    now_s = 1_000.0
    monkeypatch.setattr(time, "time", lambda: now_s)
    desk = Desk()
    assert list(desk.queue.running_functions()) == ["A", "B", "C"]
    assert (runs(desk, "A"), desk.queue.running_functions()["A"].since_s) == (("first", ""), 1_000.0)
    desk.ask(A=function("bad"))
    desk.end(0, "u1", "aborted")
    assert runs(desk, "A") == ("first", "")
    now_s = 1_010.0
    change, _ = desk.ask(A=function("good"), B=function("b"))
    assert runs(desk, "A") == ("first", "")
    desk.end(0, "u2", delay_ms=250.0)
    now_s = 1_011.0
    assert (runs(desk, "A"), runs(desk, "B")) == (("good", "u2"), ("b", "u2"))
    result = change.result(0)
    since_s = change.requested_s + (result.waited_ms + result.delay_ms) / 1_000
    assert desk.queue.running_functions()["B"].since_s == pytest.approx(since_s) == pytest.approx(1_010.25, abs=0.1)
    desk.ask(A=function("guarded"), guard=60.0)
    desk.end(0, "u3")
    assert runs(desk, "A") == ("guarded", "u3")
    now_s = 1_030.0
    desk.queue.guard_ended(0, GuardEnded("u3", "a bad tuple", rolled_back=True))
    assert (runs(desk, "A"), desk.queue.running_functions()["A"].since_s) == (("good", "u2"), 1_030.0)
    desk.roll_back()
    assert runs(desk, "B") == ("b", "u2")
    desk.end(0, "u4")
    assert (runs(desk, "A"), runs(desk, "B"), runs(desk, "C")) == (("first", "u4"), ("first", "u4"), ("first", ""))


def test_a_change_over_regions_counts_in_each_when_it_is_done_there() -> None:
    """The first region runs it for as long as the second has not begun."""
    desk = Desk()
    change, _ = desk.ask(A=function("a"), C=function("c"))
    desk.end(0, "u1")
    assert not change.done
    assert (runs(desk, "A"), runs(desk, "C")) == (("a", "u1"), ("first", ""))
    desk.now_s = 20.0
    desk.start_second()
    assert runs(desk, "C") == ("c", "u1")
    assert desk.queue.running_functions()["C"].since_s == pytest.approx(change.requested_s + 20.0, abs=0.1)


def test_a_resumed_run_begins_with_the_changes_of_the_one_before() -> None:
    """Also where a guard has rolled one back there; the time is that at which it was resumed."""
    desk = Desk()

    def decided(change: str, undoes: str = "", **functions: Any) -> CommittedChange:
        payloads = {name: cloudpickle.dumps(Update(one)) for name, one in functions.items()}
        return CommittedChange(change, "fries", (), payloads, undoes=undoes)

    before = [decided("u1", A=function("a"), B=function("b")), decided("u2", A=function("bad"))]
    began_s = time.time()
    desk.queue = ChangeQueue(desk.graph, regions(desk.graph), desk, desk, before=before)
    assert runs(desk, "A") == ("bad", "u2")
    before.append(decided("u2.back", undoes="u2"))
    desk.queue = ChangeQueue(desk.graph, regions(desk.graph), desk, desk, before=before)
    assert (runs(desk, "A"), runs(desk, "B"), runs(desk, "C")) == (("a", "u1"), ("b", "u1"), ("first", ""))
    assert began_s <= desk.queue.running_functions()["A"].since_s <= time.time()


@dataclasses.dataclass
class Model:
    """Its arguments are its fields."""

    window: int
    weights: Any = None

    def __call__(self, row: Any) -> Any:
        return row


class Scorer:
    """It keeps some of its arguments."""

    def __init__(self, limit: float, model: object, *, path: str = "") -> None:
        self.limit, self.model, self.secret = limit, model, path


class Shown(Scorer):
    """It says itself what it is."""

    def __repr__(self) -> str:
        if not self.secret:
            raise ValueError("no path")
        return f"Shown\n  at {self.secret}"


class Wrapper:
    """It hands on all attributes that it has not, and fails on unknown ones, as wrappers of models do."""

    def __repr__(self) -> str:
        return "anything"

    def __getattr__(self, name: str) -> Any:
        raise KeyError(name)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (first, "first"),
        (fn.batched(first), "first"),
        (Model(5), "Model(window=5, weights=None)"),
        (Model(5, [0.5] * 100), "Model(window=5, weights=[0.5, 0.5, 0.5, 0.5, 0.5, 0.5, ...])"),
        (Model(5, object()), "Model(window=5, weights=...)"),
        (WindowFunction(Model(5), fn.tumbling(60)), "Model(window=5, weights=None)"),
        (Scorer(0.5, object(), path="p"), "Scorer(limit=0.5, model=...)"),
        (Shown(0.5, None, path="x" * 100), f"Shown at {'x' * 100}"[: TEXT_LENGTH - 3] + "..."),
        (Shown(0.5, None), "Shown"),
        (JoinTable("J", "/data/t.parquet", {"k": "k"}), "/data/t.parquet"),
        (JoinTable("J", fn.table("shops"), {"k": "k"}), "the table shops"),
        (JoinTable("J", pa.table({"k": [1]}), {"k": "k"}), "Table"),
    ],
)
def test_a_function_is_told_as_its_user_knows_it(given: Any, text: str) -> None:
    """By its name, or its class with arguments; never long, and never by an error of the user's own text."""
    assert function_text(given) == text
    assert len(function_text(given)) <= TEXT_LENGTH


def test_an_object_whose_attributes_raise_is_its_class() -> None:
    """A run of it must start."""
    assert function_text(Wrapper()) == "Wrapper"


def test_what_runs_is_a_copy_as_it_was_shipped() -> None:
    """So an object that the user has changed in place since is told from it: at the start, and by a change."""
    desk, model = Desk(), Model(5)
    shipped = {"A": cloudpickle.dumps(model)}
    model.window = 6
    assert desk.queue.functions_now(shipped)["A"] == Model(5)
    desk.ask(A=model)
    desk.end(0, "u1")
    model.window = 7
    assert desk.queue.functions_now(shipped)["A"] == Model(6)
    desk.roll_back()
    desk.end(0, "u2")
    assert desk.queue.functions_now(shipped)["A"] == Model(5)


def test_a_table_that_runs_is_told_as_it_was_declared() -> None:
    """Hosts have the path of a file in its place, which would differ from every table."""
    joined = JoinTable("J", pa.table({"key": [1], "name": ["a"]}), {"key": "key"})
    rollbacks = Rollbacks([], {"J": 0}, [], {"J": joined})
    assert rollbacks.running({"J": cloudpickle.dumps("a path")})["J"]() is joined
