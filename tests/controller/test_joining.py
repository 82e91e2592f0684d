"""Hosts join a running dataflow and leave it: what the controller instructs, and what a loss at each step leads to."""

from __future__ import annotations

import pytest
from controller_setting import only, told
from controller_station import GRAPH, NEW, OLD, Station

from fries_nb.controller.coordinator import alone
from fries_nb.controller.events import (
    Answered,
    ChangeTopology,
    DrainRequested,
    HostJoined,
    HostLost,
    RefuseHost,
    ReleaseHosts,
    RescaleCancelled,
    RescaleEnded,
    RescaleRequested,
    RunEnded,
    StartHosts,
    StopRequested,
    Tick,
    TopologyChanged,
)
from fries_nb.controller.intake import Sources
from fries_nb.controller.joining import JOIN_S, Joining
from fries_nb.controller.markers import MarkerCoordinator
from fries_nb.controller.membership import Membership, Rewiring, Workers
from fries_nb.controller.moves import BinMoves, SplitMoves
from fries_nb.controller.states import RescalePhase
from fries_nb.errors import ProtocolError
from fries_nb.protocol.messages import (
    AdoptTopology,
    Commit,
    Done,
    Ended,
    Failed,
    Fcm,
    WorkerId,
)  # fmt: skip
from fries_nb.protocol.partitioning import RoutingTable
from fries_nb.protocol.topology import Topology


def test_a_host_joins_with_idle_workers_and_then_gets_rows() -> None:
    """Two changes of the topology: the first makes its host a member, the second routes rows to it; then bins move."""
    desk = Station()
    assert desk.rescale(3) == [StartHosts((2,))]
    assert desk.hear(Tick()) == []
    change, *asked = desk.hello(2)
    assert isinstance(change, ChangeTopology)
    assert [change.topology.host_of(worker) for worker in NEW] == [2, 2, 2]
    assert [change.topology.routed(name) for name in "SAKZ"] == [1, 2, 2, 2]
    assert told(asked, AdoptTopology) == [str(worker) for worker in OLD]
    assert desk.adopt(2, OLD) == []
    went, widened, *asked = desk.adopt(2, NEW)
    assert isinstance(went, TopologyChanged)
    assert isinstance(widened, ChangeTopology)
    assert [widened.topology.routed(name) for name in "SAKZ"] == [1, 3, 3, 3]
    assert widened.topology.table("K") == RoutingTable.even(2)  # the keyed operator's bins stay
    assert len(told(asked, AdoptTopology)) == len(OLD + NEW)
    desk.adopt(3, OLD + NEW)
    assert desk.phase is RescalePhase.BALANCING
    moved, end = desk.move()
    assert moved.tables == {"K": RoutingTable.even(3)}
    assert end == RescaleEnded("r1", "done", 3)
    assert desk.controller._life.membership.hosts == (0, 1, 2)


def test_nothing_else_begins_while_workers_adopt_a_topology_and_it_waits_for_what_is_under_way() -> None:
    """A commit in flight goes first; a change requested meanwhile waits for the end."""
    desk = Station(commit_ms=10)
    desk.rescale(3)
    desk.hear(Tick(), after_ms=11)
    [marker] = {tell.control.marker.id for tell in desk.said if isinstance(getattr(tell, "control", None), Fcm)}
    assert desk.hello(2) == []
    begun = desk.done(marker, "S", "A", "K", "Z")
    assert desk.topologies[-1].issued == marker
    assert begun[-1].control == AdoptTopology(2)
    assert desk.hear(Tick(), after_ms=20) == []
    desk.adopt(2, OLD + NEW)
    desk.adopt(3, OLD + NEW)
    assert desk.hear(Tick()) == []  # a commit is due, but the last action was one: it is the turn of the moves
    desk.move()
    commit = desk.hear(Tick())[0].control.marker
    assert isinstance(commit.action, Commit)  # it goes before the second step
    for worker in OLD + NEW:
        desk.answer(Done(commit.id, worker))
    desk.move()
    assert desk.ends["r1"].outcome == "done"


@pytest.mark.parametrize("joined", [False, True])
def test_a_host_that_is_lost_before_the_others_have_heard_of_it_has_no_effect(joined: bool) -> None:
    """It was started, or has said hello while a commit was under way; its number is not used again."""
    desk = Station(commit_ms=10)
    desk.rescale(4)
    desk.hear(Tick(), after_ms=11)  # a commit begins
    if joined:
        assert desk.hello(2) + desk.hello(3) == []
    released, end = desk.hear(HostLost(3, "its process died"))
    assert (released, desk.phase) == (ReleaseHosts((2, 3), end.error), RescalePhase.IDLE)
    assert (end.outcome, end.hosts) == ("aborted", 2)
    assert end.error == "host 3 was lost (its process died) before it took part; nothing changed"
    assert desk.topologies == []
    assert desk.hear(HostLost(2, "its process died")) == []
    [refused] = desk.hello(2)
    assert isinstance(refused, RefuseHost)
    assert "no host 2 in this run" in refused.reason
    assert desk.rescale(3, "r2") == [StartHosts((4,))]


def test_hosts_that_do_not_come_within_a_minute_are_cancelled() -> None:
    """By the controller's clock."""
    desk = Station()
    desk.rescale(4)
    desk.hello(3)
    assert desk.hear(Tick(), after_ms=JOIN_S * 1000 - 1) == []
    released, end = desk.hear(Tick(), after_ms=1)
    assert released.hosts == (2, 3)
    assert (end.outcome, end.error) == ("aborted", "host 2 has not joined within 60 s; nothing changed")
    assert end.delay_ms == JOIN_S * 1000


@pytest.mark.parametrize("cause", [HostLost(2, "gone"), Answered(Failed(NEW[1], "K failed in open()"))])
def test_a_new_host_that_fails_while_the_others_adopt_is_taken_back(cause: HostLost | Answered) -> None:
    """The others, which have channels to it or will have, lose them again, and go on as before."""
    desk = Station()
    desk.rescale(3)
    desk.hello(2)
    desk.adopt(2, OLD[:4])
    [released] = desk.hear(cause)
    assert (released.hosts, desk.phase) == ((2,), RescalePhase.RETRACTING)
    assert desk.hear(HostLost(2, "it left")) == []
    _, removed, *asked = desk.adopt(2, OLD[4:])
    assert set(removed.lost) == set(NEW)
    assert set(removed.topology.channels()) == set(Topology.dealt(GRAPH, hosts=2).channels())
    assert told(asked, AdoptTopology) == [str(worker) for worker in OLD]
    end = desk.adopt(3, OLD)[-1]
    assert (end.outcome, end.hosts, desk.phase) == ("aborted", 2, RescalePhase.IDLE)
    assert desk.controller._life.workers.routed == {"S": 1, "A": 2, "K": 2, "Z": 2}
    assert ("gone" if isinstance(cause, HostLost) else "K failed in open()") in end.error
    for worker in NEW:
        assert desk.answer(Ended(worker)) == []  # late


def test_a_new_host_that_is_taken_back_leaves_no_trace_although_the_sources_have_ended() -> None:
    """Its channels would never end otherwise, and neither would the run."""
    desk = Station()
    desk.rescale(3)
    desk.hello(2)
    desk.adopt(2, OLD)
    desk.ended("S")
    _, *rest = desk.hear(HostLost(2, "gone"))
    assert len(only(rest, ChangeTopology)) == 1
    assert desk.adopt(3, OLD)[-1].outcome == "aborted"
    desk.ended("A", "K", "Z")
    assert only(desk.said, RunEnded)[-1].state == "finished"


def test_a_host_that_has_joined_is_lost_like_any_other() -> None:
    """With checkpoints the run goes on with as many hosts; the workers are dealt to them anew."""
    desk = Station(checkpoints=True)
    desk.rescale(3)
    desk.hello(2)
    desk.adopt(2, OLD + NEW)
    *_, end, recover = desk.hear(HostLost(2, "its process died"))
    assert (end.outcome, end.hosts) == ("done", 3)
    assert (recover.incarnation, recover.hosts) == (4, 3)
    desk.hosts = 3
    desk.join(4)
    assert desk.controller.state == "running"
    assert desk.controller._life.joining.topology.host_of(WorkerId("A", 2)) == 2
    desk.rescale(2, "r2")
    assert desk.phase is RescalePhase.CLEARING


def test_an_old_host_that_is_lost_before_the_new_one_has_joined_ends_the_request() -> None:
    """The run goes on with the old number of hosts."""
    for adopted in (False, True):
        desk = Station(checkpoints=True)
        desk.rescale(3)
        if adopted:
            desk.hello(2)
            desk.adopt(2, OLD)
        *_, end, recover = desk.hear(HostLost(0, "its process died"))
        assert (end.outcome, recover.hosts, desk.phase) == ("aborted", 2, RescalePhase.IDLE)
        assert end.error == "host 0 was lost (its process died); the run goes on with 2 hosts"


def test_without_checkpoints_the_loss_of_a_member_fails_the_run() -> None:
    """And the request with it."""
    desk = Station()
    desk.rescale(3)
    desk.hello(2)
    desk.adopt(2, OLD + NEW)
    desk.hear(HostLost(2, "its process died"))
    assert desk.controller.state == "failed"
    assert desk.ends["r1"].outcome == "failed"
    assert "host 2 was lost" in desk.ends["r1"].error


def test_a_host_leaves_when_no_row_is_routed_to_it_and_its_workers_have_ended() -> None:
    """The others go on; it can be replaced by another one."""
    desk = Station()
    desk.grow()
    desk.rescale(2, "r2")
    assert desk.phase is RescalePhase.CLEARING
    moved, narrowed, *asked = desk.move()
    assert moved.tables == {"K": RoutingTable.even(2)}
    assert isinstance(narrowed, ChangeTopology)
    assert [narrowed.topology.routed(name) for name in "SAKZ"] == [1, 2, 2, 2]
    assert len(told(asked, AdoptTopology)) == len(OLD + NEW)
    went, removed, *asked = desk.adopt(4, OLD + NEW)
    assert isinstance(went, TopologyChanged)
    assert isinstance(removed, ChangeTopology)
    assert told(asked, AdoptTopology) == [str(worker) for worker in OLD]
    desk.adopt(5, OLD)
    for worker in NEW[:-1]:
        assert desk.answer(Ended(worker)) == []
    *_, released, end = desk.answer(Ended(NEW[-1]))
    assert (released.hosts, end.outcome, end.hosts) == ((2,), "done", 2)
    assert desk.rescale(3, "r3") == [StartHosts((3,))]
    desk.hello(3)
    channels = [channel for channel in desk.topologies[-1].topology.channels() if channel.receiver == NEW[0]]
    assert {channel.epoch for channel in channels} == {6}  # not those of the first worker of this index


def test_requests_are_carried_out_in_order_and_can_be_cancelled() -> None:
    """One that waits, one whose hosts have not joined, one that the others have begun to adopt; not later."""
    desk = Station()
    desk.rescale(3)
    assert desk.rescale(4, "r2") + desk.rescale(2, "r3") == []
    [cancelled] = desk.hear(RescaleCancelled("r2"))
    assert cancelled == RescaleEnded("r2", "aborted", 2, "it was cancelled; nothing changed")
    desk.hello(2)
    desk.adopt(2, OLD + NEW)
    assert desk.hear(RescaleCancelled("r1")) == []
    desk.adopt(3, OLD + NEW)
    desk.move()
    assert desk.ends["r1"].outcome == "done"
    assert desk.phase is RescalePhase.CLEARING  # r3 has begun
    assert only(desk.hear(RescaleCancelled("r3")), RescaleEnded) == []
    assert only(desk.hear(RescaleCancelled("r1")), RescaleEnded) == []  # it has ended
    desk = Station()
    desk.rescale(3)
    released, end = desk.hear(RescaleCancelled("r1"))
    assert (released.hosts, end.outcome, desk.phase) == ((2,), "aborted", RescalePhase.IDLE)
    desk.rescale(3, "r2")
    desk.hello(3)
    [released] = desk.hear(RescaleCancelled("r2"))
    assert (released.hosts, desk.phase) == ((3,), RescalePhase.RETRACTING)
    desk = Station(joined=False)
    desk.rescale(3)
    assert desk.hear(RescaleCancelled("r1"))[0].error == "it was cancelled; nothing changed"


def test_what_cannot_be_is_refused_in_words() -> None:
    """A share of an operator that is not there, a source that has ended, a run that is over."""
    desk = Station()
    assert desk.rescale(2, "r2") == [RescaleEnded("r2", "done", 2)]
    desk.hear(RescaleRequested("r3", 3, {"K": 1}))
    assert "K cannot get another worker without Z" in desk.hello(2)[-1].error
    desk.rescale(3, "r4")
    desk.ended("S")
    assert desk.hello(3)[-1].error == "S[0] has ended; nothing changed"
    desk.rescale(3, "r5")
    desk.rescale(4, "r7")
    desk.hear(StopRequested())
    assert desk.ends["r7"].error == "the run was stopped before the rescale began"
    assert (desk.ends["r5"].outcome, desk.ends["r5"].error) == (
        "aborted", "the run was stopped before the rescale was complete",
    )  # fmt: skip
    assert desk.rescale(3, "r6")[0].error.startswith("the run was over (stopped)")


def test_a_request_waits_until_tuples_flow() -> None:
    """It is timed from there."""
    desk = Station(joined=False)
    assert desk.rescale(3) == []
    desk.hear(Tick(), after_ms=500)
    assert desk.join(3)[-1] == StartHosts((2,))
    desk.hello(2)
    desk.adopt(2, OLD + NEW)
    desk.adopt(3, OLD + NEW)
    assert desk.move()[-1].delay_ms == 0


def test_a_draining_run_takes_part_until_it_ends() -> None:
    """A rescale that comes too late ends with the run."""
    desk = Station()
    desk.hear(DrainRequested())
    desk.rescale(3)
    desk.ended("S")
    desk.hello(2)
    assert desk.ends["r1"].error == "S[0] has ended; nothing changed"
    desk.ended("A", "K", "Z")
    assert desk.controller.state == "finished"


def test_steps_out_of_turn_are_errors() -> None:
    """A host is admitted that is not there; one is dismissed twice; the phases are taken in order."""
    membership = Membership(2, 1)
    membership.expect(1)
    with pytest.raises(ProtocolError, match="host 2 was admitted before it has joined"):
        membership.admit()
    membership.dismiss([2])
    with pytest.raises(ProtocolError, match="no host 2 in this run; expected 0 to 1"):
        membership.dismiss([2])
    with pytest.raises(ProtocolError, match="no host 2 in this run"):
        membership.join(HostJoined(2, "tcp://late", 1))
    workers = Workers(GRAPH)
    lane = MarkerCoordinator(workers)
    moves = BinMoves(workers, lane, alone), SplitMoves(workers, lane, Sources(workers), alone)
    topology, rewiring = Topology.dealt(GRAPH, 2), Rewiring(workers)
    joining = Joining(topology, workers, membership, rewiring, *moves, lambda now_ns, goes_on: [])
    with pytest.raises(ProtocolError, match="the rescale is idle and cannot be joining; next is requested"):
        joining._move(RescalePhase.JOINING)
    desk = Station()
    desk.rescale(3)
    with pytest.raises(ProtocolError, match=r"an answer from A\[2\]; this run has no such worker"):
        desk.adopt(2, NEW)
    desk.hello(2)
    with pytest.raises(ProtocolError, match=r"A\[2\] adopted epoch 3 of the topology, which was not requested of it"):
        desk.adopt(3, NEW)
    with pytest.raises(ProtocolError, match="this run has no such worker"):
        desk.answer(Done(1, WorkerId("A", 9)))
