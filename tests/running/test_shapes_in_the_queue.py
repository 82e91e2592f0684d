"""Changes of the shape in a run's queue: they begin alone, are undone with what they removed, and by their guards."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from queue_setting import Desk, first, function

from fries_nb.changes.change import Change
from fries_nb.controller.events import GuardEnded, GuardFired, ShapeChange
from fries_nb.dataflow.graph import Edge, Graph, Kind, Operator
from fries_nb.dataflow.regions import regions
from fries_nb.errors import PlanError
from fries_nb.planning.shape import shape_plan


def chain(*names: str) -> Graph:
    """Operators one behind the other, between a source and a sink."""
    ends = {"S": Kind.SOURCE, "Out": Kind.SINK}
    whole = ("S", *names, "Out")
    operators = tuple(Operator(name, kind=ends.get(name, Kind.MAP), function=first) for name in whole)
    return Graph("desk", operators, tuple(map(Edge, whole, whole[1:])))


class ShapeDesk(Desk):
    """A queue for a dataflow of one region, which recovers from a checkpoint."""

    recovers = True

    def __init__(self, *names: str) -> None:
        super().__init__()
        self.graph = chain(*names)
        self.queue = type(self.queue)(self.graph, regions(self.graph), self, self, clock=lambda: self.now_s)
        self.queue.started(0, self.queue.starting(0))
        self.shown: list[tuple[str, ...]] = []

    def go_on(self, graph: Graph) -> None:
        """Note the dataflow."""
        self.graph = graph
        self.shown.append(tuple(graph.by_name))

    def reshape(self, *names: str, done: bool = True, **how: Any) -> Change:
        """Make the dataflow another chain."""
        after = chain(*names)
        ran = {name: copied() for name, copied in self.queue._copies({}).items()}
        before = Graph(
            self.graph.name,
            tuple(replace(one, function=ran.get(one.name, one.function)) for one in self.graph.operators),
            self.graph.edges,
        )  # fmt: skip
        plan = shape_plan(self.graph, after).plan
        change = self.queue.reshape(ShapeChange(after, back=b"back"), plan, {}, {}, before, **how)
        if done:
            self.end(0, change.id)
        return change


def test_a_shape_is_undone_with_what_its_operators_ran() -> None:
    """Also if that was changed before; and then the earlier change may be undone in turn."""
    desk = ShapeDesk("A", "B")
    desk.ask(B=function("b1"))
    desk.end(0, "u1")
    desk.reshape("A")
    assert desk.queue.running_functions().keys() == {"A"}
    words = "B, which change u1 has changed, was removed since; roll back the change that removed it first"
    assert desk.queue.blocked_by("u1") == words
    back = desk.queue.roll_back()
    assert desk.last is not None
    assert desk.last.shape is not None
    assert desk.last.shape.returns
    assert desk.last.shape.after.operator("B").function.__name__ == "b1"
    desk.end(0, back.id)
    assert (back.origin, desk.shown[-1]) == ("rollback of u2", ("S", "A", "B", "Out"))
    again = desk.queue.roll_back()
    assert {name: update.function for name, update in again.updates.items()} == {"B": first}


def test_only_the_last_shape_is_undone() -> None:
    """What an earlier one removed is kept no more; nothing is undone below a later change."""
    desk = ShapeDesk("A", "B", "C")
    desk.reshape("A", "B")
    desk.reshape("A")
    assert desk.queue.blocked_by("u1") == "change u2 came after change u1 of the shape; roll that back first"
    desk.ask(A=function("a"))
    desk.end(0, "u3")
    assert desk.queue.blocked_by("u2") == "change u3 came after change u2 of the shape; roll that back first"
    for _ in range(2):
        desk.end(0, desk.queue.roll_back().id)
    with pytest.raises(PlanError, match=r"change u1 is not the last one of the shape; expected run.apply\(\) of the"):
        desk.queue.roll_back()


def test_a_shape_begins_alone() -> None:
    """Neither is another change taken meanwhile, nor a rollback."""
    desk = ShapeDesk("A", "B")
    desk.ask(A=function("a"))
    with pytest.raises(PlanError, match="change u1 is under way, and a change of the shape begins alone"):
        desk.reshape("A")
    desk.end(0, "u1")
    desk.reshape("A", done=False)
    for do in (desk.queue.roll_back, lambda: desk.ask(A=function("b"))):
        with pytest.raises(PlanError, match="change u2 of the shape is under way; expected its end"):
            do()


def test_a_paused_operator_gets_its_fix_while_a_shape_waits_for_it() -> None:
    """The shape cannot begin before, and would wait for ever."""
    desk = ShapeDesk("A", "B")
    desk.pause("A", True)
    shape = desk.reshape("A", done=False)
    with pytest.raises(PlanError, match="change u1 of the shape is under way"):
        desk.ask(B=function("b"))
    fix, orders = desk.ask(A=function("a"))
    assert orders == [f"0:{fix.id}"]
    desk.end(0, fix.id)
    desk.pause("A", False)
    desk.end(0, shape.id)
    assert desk.queue.running_functions()["A"].function == "a"


def test_a_guard_undoes_a_shape_with_its_functions() -> None:
    """The queue goes on with the dataflow before, and takes changes of its operators."""
    desk = ShapeDesk("A", "B")
    change = desk.reshape("A", "C", limit=5.0)
    assert change.guard == "for 5 s, by going back to the last checkpoint"
    assert desk.last is not None
    assert desk.last.guard is not None
    assert desk.last.guard.shape == ShapeChange(desk.last.guard.shape.after, fingerprint=b"back")  # type: ignore[union-attr]
    desk.queue.guard_fired(0, GuardFired(change.id, "it failed"))
    with pytest.raises(PlanError, match="which is being rolled back by its guard"):
        desk.queue.roll_back()
    desk.queue.guard_ended(0, GuardEnded(change.id, "the new one failed", True, "it failed"))
    assert change.settled(0).outcome == "rolled_back"
    assert desk.shown == [("S", "A", "C", "Out"), ("S", "A", "B", "Out")]
    asked, orders = desk.ask(B=function("b"))
    assert orders == [f"0:{asked.id}"]
    desk.end(0, asked.id)
    assert desk.queue.running_functions()["B"].function == "b"


def test_without_a_checkpoint_there_is_no_guard() -> None:
    """And the change says so."""
    desk = ShapeDesk("A")
    desk.recovers = False
    assert desk.reshape("A", "B", limit=5.0).guard == "not at all: the run keeps no checkpoint to go back to"
