"""What a change of the shape waits for at the controller, and whom it tells."""

from __future__ import annotations

from fries_nb.controller import events
from fries_nb.controller.controller import Controller
from fries_nb.controller.events import Answered, ChangeRequested, ChangeTopology, HostJoined, Instruction, Tell
from fries_nb.dataflow.graph import Edge, Graph, Kind, Operator, Partitioning
from fries_nb.host.region_spec import Additions
from fries_nb.planning.shape import shape_plan
from fries_nb.protocol.messages import (
    AdoptTopology,
    Cancel,
    Chained,
    Commit,
    Ended,
    Fcm,
    Paused,
    Prepare,
    Resumed,
    SetChain,
    TopologyAdopted,
    WorkerId,
)  # fmt: skip

NAMES = ("S", "A", "B", "out")
KINDS = {"S": Kind.SOURCE, "out": Kind.SINK, "new": Kind.SINK}


def graph(*edges: tuple[str, str]) -> Graph:
    """Operators on rebalancing edges, except for A and B, which are a chain."""
    names = dict.fromkeys(name for edge in edges for name in edge)
    operators = tuple(Operator(name, kind=KINDS.get(name, Kind.MAP)) for name in names)
    chained = {("A", "B"): Partitioning.FORWARD}
    return Graph("g", operators, tuple(Edge(*edge, chained.get(edge, Partitioning.REBALANCE)) for edge in edges))


BEFORE = graph(("S", "A"), ("A", "B"), ("B", "out"))
AFTER = graph(("S", "A"), ("A", "B"), ("B", "out"), ("B", "new"))


def requested(controller: Controller) -> list[Instruction]:
    """Request the branch, and let B leave its chain; returns what follows."""
    shape = events.ShapeChange(AFTER, Additions({}, {}, {}, b""), b"shape")
    plan = shape_plan(BEFORE, AFTER).plan
    told = controller.handle(ChangeRequested("u1", plan, {}, shape=shape), now_ns=20)
    asked = [one.worker for one in told if isinstance(one, Tell) and isinstance(one.control, SetChain)]
    assert asked == [WorkerId("B", 0)]
    return controller.handle(Answered(Chained(asked[0], ("B",))), now_ns=30)


def started(commit_interval_ns: int | None = None) -> Controller:
    """The controller of a run on one host."""
    controller = Controller(BEFORE, hosts=1, incarnation=1, commit_interval_ns=commit_interval_ns)
    controller.handle(HostJoined(0, "tcp://here:1", incarnation=1), now_ns=0)
    return controller


def test_a_change_of_the_shape_waits_for_no_commit_whose_marker_is_in_queues() -> None:
    """It cancels it as a change of functions does, and begins at once; the commit is repeated."""
    controller = started(commit_interval_ns=10)
    begun = controller.handle(events.Tick(), now_ns=15)
    assert [type(one.control.marker.action) for one in begun if isinstance(one.control, Fcm)] == [Commit]
    followed = requested(controller)
    kinds = [type(one.control if isinstance(one, Tell) else one) for one in followed]
    assert kinds[: kinds.index(ChangeTopology) + 1] == [Cancel] * 4 + [ChangeTopology]


def test_a_commit_is_put_off_until_a_change_of_the_shape_may_be_decided() -> None:
    """One that began at once would be cancelled by the decision."""
    controller = started(commit_interval_ns=10)
    controller.handle(events.Tick(), now_ns=15)
    requested(controller)  # at 30
    assert [controller._life.epochs.due(now_ns) for now_ns in (30, 39, 40)] == [False, False, True]


def test_targets_prepare_while_workers_learn_of_the_channels() -> None:
    """Both take a tuple in hand and a round trip, so the message to prepare is among the first."""
    shape = events.ShapeChange(AFTER, Additions({}, {}, {}, b""), b"shape")
    plan = shape_plan(BEFORE, AFTER).plan
    told = started().handle(ChangeRequested("u1", plan, {}, frozenset("B"), shape=shape), now_ns=20)
    assert [(one.worker, type(one.control)) for one in told if isinstance(one, Tell)] == [
        (WorkerId("B", 0), SetChain), (WorkerId("B", 0), Prepare)
    ]  # fmt: skip


def test_where_no_host_could_have_made_a_chain_workers_learn_of_the_channels_at_once() -> None:
    """And no commit that is asked for meanwhile gets between: its marker would be on channels of both."""
    controller = started()
    controller.handle(Answered(Paused(WorkerId("A", 0), "ValueError: no", "")), now_ns=10)
    shape = events.ShapeChange(graph(("S", "A"), ("A", "B"), ("B", "out"), ("S", "new")), Additions({}, {}, {}, b""))
    controller.handle(ChangeRequested("u1", shape_plan(BEFORE, shape.after).plan, {}, shape=shape), now_ns=20)
    controller.handle(events.CheckpointRequested("r1"), now_ns=20)
    told = controller.handle(Answered(Resumed(WorkerId("A", 0))), now_ns=30)
    kinds = [type(one.control if isinstance(one, Tell) else one) for one in told]
    assert kinds == [events.OperatorPaused, ChangeTopology, AdoptTopology]


def test_no_worker_learns_of_a_shape_that_has_become_impossible() -> None:
    """A worker that ends in its chain stays there, so it would not know the channels that are its operator's."""
    controller = started()
    shape = events.ShapeChange(AFTER, Additions({}, {}, {}, b""), b"shape")
    controller.handle(ChangeRequested("u1", shape_plan(BEFORE, AFTER).plan, {}, shape=shape), now_ns=20)
    left = controller.handle(Answered(Ended(WorkerId("B", 0))), now_ns=25)
    left += controller.handle(Answered(Chained(WorkerId("B", 0), ("A", "B"), "B[0] has ended")), now_ns=30)
    assert [one.outcome.outcome for one in left if isinstance(one, events.Resolved)] == ["aborted"]
    assert not any(isinstance(one, ChangeTopology) for one in left)


def test_only_those_that_it_concerns_are_told_of_the_channels() -> None:
    """The others are wired as before, and do not switch."""
    followed = requested(started())
    told = [one.worker.operator for one in followed if isinstance(one, Tell) and isinstance(one.control, AdoptTopology)]
    assert told == ["B"]


def test_a_change_of_the_shape_fixes_no_paused_operator() -> None:
    """It waits until B goes on, also where the edges of B alone change: that is no other function of B."""
    controller = started()
    controller.handle(Answered(Paused(WorkerId("B", 0), "ValueError: no", "")), now_ns=10)
    shape = events.ShapeChange(AFTER, Additions({}, {}, {}, b""), b"shape")
    request = ChangeRequested("u1", shape_plan(BEFORE, AFTER).plan, {}, shape=shape)
    assert request.plan.targets == {"B"}
    assert controller.handle(request, now_ns=20) == []
    told = controller.handle(Answered(Resumed(WorkerId("B", 0))), now_ns=30)
    assert Tell(WorkerId("B", 0), SetChain(("B",))) in told


def test_a_rescale_waits_for_the_end_of_a_change_of_the_shape() -> None:
    """Each would wait for the other: its moves for the topology, and the topology for them."""
    controller = started()
    told = requested(controller)
    asked = controller.handle(events.RescaleRequested("r1", 2, {"A": 1, "B": 1}), now_ns=40)
    assert [one for one in asked if isinstance(one, events.StartHosts | events.Resolved)] == []
    adopting = [one.worker for one in told if isinstance(one, Tell) and isinstance(one.control, AdoptTopology)]
    for worker in (*adopting, WorkerId("new", 0)):
        said = controller.handle(Answered(TopologyAdopted(2, worker)), now_ns=50)
        assert [one for one in said if isinstance(one, events.Resolved)] == []  # nor does it refuse the change
    begun = started().handle(events.RescaleRequested("r1", 2, {"A": 1, "B": 1}), now_ns=40)
    assert [type(one) for one in begun] == [events.StartHosts]
