"""Operators get other numbers of workers on the hosts of now: what the controller instructs, and what is taken back."""

from __future__ import annotations

from controller_setting import only, told
from controller_station import GRAPH, OLD, Station

from fries_nb.controller.coordinator import alone
from fries_nb.controller.events import (
    ChangeTopology,
    HostLost,
    Instruction,
    Recover,
    ReleaseHosts,
    RescaleCancelled,
    RescaleEnded,
    RescaleRequested,
    TopologyChanged,
)
from fries_nb.controller.intake import Sources
from fries_nb.controller.joining import Joining
from fries_nb.controller.markers import MarkerCoordinator
from fries_nb.controller.membership import Membership, Rewiring, Workers
from fries_nb.controller.moves import BinMoves, SplitMoves
from fries_nb.controller.states import RescalePhase
from fries_nb.protocol.messages import AdoptTopology, Drain, Ended, Failed, WorkerId
from fries_nb.protocol.partitioning import RoutingTable
from fries_nb.protocol.topology import Topology

FRESH = [WorkerId("K", 2), WorkerId("Z", 2)]


def scale(desk: Station, request: str = "r1", **workers: int) -> list[Instruction]:
    """Ask for these numbers of workers."""
    return desk.hear(RescaleRequested(request, None, workers=workers))


def leave(desk: Station, operators: str, *indices: int) -> None:
    """These workers have ended."""
    for worker in (WorkerId(name, index) for name in operators for index in indices):
        desk.answer(Ended(worker))


def grown(desk: Station, **workers: int) -> list[WorkerId]:
    """Operators grow; returns all workers behind it."""
    scale(desk, "r0", **workers)
    wired = desk.topologies[-1].topology
    fresh, old = sorted(wired.fresh), sorted(set(wired.workers) - wired.fresh)
    desk.adopt(wired.epoch, [*fresh, *old])
    desk.adopt(wired.epoch + 1, [*fresh, *old])
    desk.move()
    assert desk.ends["r0"].outcome == "done"
    return [*old, *fresh]


def test_new_workers_are_made_before_any_other_worker_hears_of_them() -> None:
    """One that ended in between would send its end to a worker that is not there; then rows are routed, and bins move.

    The sink grows along, since it is on a forward edge.
    """
    desk = Station()
    [change] = scale(desk, K=3)
    assert isinstance(change, ChangeTopology)
    assert sorted(change.topology.fresh) == FRESH
    assert desk.adopt(2, FRESH[:1]) == []
    assert told(desk.adopt(2, FRESH[1:]), AdoptTopology) == [str(worker) for worker in OLD]
    went, widened, *asked = desk.adopt(2, OLD)
    assert (type(went), type(widened)) == (TopologyChanged, ChangeTopology)
    assert [widened.topology.routed(name) for name in "SAKZ"] == [1, 2, 3, 3]
    assert len(told(asked, AdoptTopology)) == len(OLD + FRESH)
    desk.adopt(3, OLD + FRESH)
    assert desk.phase is RescalePhase.BALANCING
    assert desk.controller.topology.request == "r1"
    moved, end = desk.move()
    assert moved.tables == {"K": RoutingTable.even(3)}
    assert end == RescaleEnded("r1", "done", 2)
    assert [len(hosts) for hosts in desk.controller.topology.workers.values()] == [1, 2, 3, 3]
    assert scale(desk, "r2", K=3, A=2) == [RescaleEnded("r2", "done", 2)]


def test_workers_that_cannot_be_made_are_taken_back_with_those_that_were() -> None:
    """All answers are awaited; then the others adopt a topology without them, and those that were made end."""
    desk = Station()
    scale(desk, K=3)
    assert desk.answer(Failed(FRESH[0], "K failed in open(): no model", "")) == []
    desk.adopt(2, FRESH[1:])
    went, back, *_ = desk.adopt(2, OLD)
    assert (type(went), desk.phase) == (TopologyChanged, RescalePhase.RETRACTING)
    assert isinstance(back, ChangeTopology)
    assert (set(back.topology.workers), back.lost) == (set(OLD), frozenset(FRESH[:1]))
    assert desk.adopt(3, OLD) == []
    leave(desk, "Z", 2)
    assert desk.ends["r1"].outcome == "aborted"
    assert desk.ends["r1"].error == "K[2] cannot run (K failed in open(): no model); nothing changed"
    assert desk.controller.topology.workers["K"] == (0, 1)
    scale(desk, "r2", K=3)
    channels = [one for one in desk.topologies[-1].topology.channels() if one.receiver == FRESH[0]]
    assert {channel.epoch for channel in channels} == {4}


def test_a_request_is_cancelled_until_rows_are_routed_to_new_workers() -> None:
    """They are taken back once all workers have heard of them."""
    desk = Station()
    scale(desk, K=3)
    assert desk.hear(RescaleCancelled("r1")) == []
    desk.adopt(2, [*FRESH, *OLD])
    assert desk.phase is RescalePhase.RETRACTING
    desk.adopt(3, OLD)
    leave(desk, "KZ", 2)
    assert desk.ends["r1"].error == "it was cancelled; nothing changed"
    assert only(desk.said, ReleaseHosts) == []


def test_the_last_workers_leave_when_their_bins_have_moved() -> None:
    """Rows are routed to the others first, then their senders end their channels."""
    desk = Station()
    assert told(scale(desk, K=1), AdoptTopology) == []
    assert desk.phase is RescalePhase.CLEARING
    desk.move()
    narrowed = desk.topologies[-1].topology
    assert [narrowed.routed(name) for name in "SAKZ"] == [1, 2, 1, 1]
    desk.adopt(2, OLD)
    desk.adopt(3, [one for one in OLD if (one.operator, one.index) not in (("K", 1), ("Z", 1))])
    leave(desk, "KZ", 1)
    assert desk.ends["r1"] == RescaleEnded("r1", "done", 2)
    assert only(desk.said, ReleaseHosts) == []


def test_some_shrink_and_then_others_grow_in_one_request() -> None:
    """A draw that grows is not cancelled any more when others have left; it is taken back where it stands."""
    desk = Station()
    scale(desk, K=1, A=3)
    desk.move()
    desk.adopt(2, OLD)
    stay = [one for one in OLD if (one.operator, one.index) not in (("K", 1), ("Z", 1))]
    desk.adopt(3, stay)
    leave(desk, "KZ", 1)
    assert sorted(desk.topologies[-1].topology.fresh) == [WorkerId("A", 2)]
    desk.hear(RescaleCancelled("r1"))
    desk.adopt(4, [WorkerId("A", 2), *stay])
    desk.adopt(5, stay)
    leave(desk, "A", 2)
    assert desk.ends["r1"].error == "it was cancelled; those that were to leave have left"


def test_a_host_that_leaves_takes_later_workers_along_which_join_again_on_the_others() -> None:
    """Worker 2 of K is on the host that stays; it is numbered anew, so that K has as many there as before."""
    desk = Station()
    workers = grown(desk, K=4)
    assert desk.controller.topology.workers["K"] == (0, 1, 0, 1)
    desk.hear(RescaleRequested("r1", 1, {"A": 1, "K": 1, "Z": 1}))
    desk.move()
    desk.adopt(4, workers)
    stay = [one for one in workers if one.index == 0]
    desk.adopt(5, stay)
    leave(desk, "A", 1)
    leave(desk, "KZ", 1, 2, 3)
    assert only(desk.said, ReleaseHosts) == [ReleaseHosts((1,), "the run goes on with fewer hosts")]
    fresh = [WorkerId("K", 1), WorkerId("Z", 1)]
    assert sorted(desk.topologies[-1].topology.fresh) == fresh
    desk.adopt(6, [*fresh, *stay])
    desk.adopt(7, [*fresh, *stay])
    desk.move()
    assert desk.ends["r1"] == RescaleEnded("r1", "done", 1)
    assert desk.controller.topology.workers["K"] == (0, 0)


def test_a_loss_while_workers_are_added_ends_the_request() -> None:
    """Before rows are routed to them the next incarnation has the numbers of before, later those asked for."""
    for adopted, numbers in ((0, [1, 2, 2, 2]), (1, [1, 2, 3, 3])):
        desk = Station(checkpoints=True)
        scale(desk, K=3)
        if adopted:
            desk.adopt(2, [*FRESH, *OLD])
        said = desk.hear(HostLost(1, "its process died"))
        assert only(said, Recover)
        assert desk.ends["r1"].outcome == ("done" if adopted else "aborted")
        assert [len(hosts) for hosts in desk.controller.topology.workers.values()] == numbers


def test_what_cannot_be_is_refused_in_words() -> None:
    """Operators on forward edges that are to differ, and one that has ended."""
    desk = Station()
    [end] = scale(desk, K=1, Z=3)
    assert end.error.startswith("1 for K and 3 for Z; expected one number")
    desk.ended("S")
    scale(desk, "r2", K=3)
    assert desk.ends["r2"].error == "S[0] has ended; nothing changed"


def test_workers_that_are_gone_are_told_nothing() -> None:
    """A drain comes between the loss of a new host and the topology without its workers: they count as ended."""
    workers = Workers(GRAPH)
    rewiring, topology = Rewiring(workers), Topology.dealt(GRAPH, hosts=2)
    joined = topology.joined([2], {"S": 1})
    workers.become(joined)
    rewiring.epoch = joined.epoch
    gone = frozenset({WorkerId("S", 1)})
    rewiring.request(joined.without(gone), lost=gone)
    told_of = rewiring.step(is_free=True, issued=0)
    assert str(WorkerId("S", 1)) not in told(told_of, AdoptTopology)
    sources = Sources(workers)
    sources.started(0)
    sources.drain(frozenset())
    assert told(sources.end(), Drain) == ["S[0]"]


def test_a_request_that_waits_is_not_ended_by_a_topology_of_a_change_of_the_shape() -> None:
    """It has not begun; the change has topologies of its own."""
    workers, membership = Workers(GRAPH), Membership(2, 1)
    lane, rewiring = MarkerCoordinator(workers), Rewiring(workers)
    moves = BinMoves(workers, lane, alone), SplitMoves(workers, lane, Sources(workers), alone)
    topology = Topology.dealt(GRAPH, 2)
    steps: list[list[Instruction]] = [[TopologyChanged(topology.widened())], []]
    joining = Joining(topology, workers, membership, rewiring, *moves, lambda now_ns, goes_on: steps.pop(0))
    joining.is_held = lambda: True
    joining.request(RescaleRequested("r1", None, workers={"K": 1}), now_ns=0)
    assert only(joining.advance(now_ns=0, is_tick=False), RescaleEnded) == []
    assert joining.phase is RescalePhase.REQUESTED
