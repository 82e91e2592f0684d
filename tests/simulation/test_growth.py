"""Idle workers come and go while a seeded cluster runs: nothing is lost, and whatever else happens holds as before."""

from __future__ import annotations

from collections import Counter
from functools import partial
from itertools import pairwise

import pyarrow as pa
import pytest
from interleaving_checks import lacking, try_seed
from soak import caught, first_tried

from fries_nb.audit import judge
from fries_nb.controller.lifecycle import Lifecycle
from fries_nb.controller.membership import Rewiring
from fries_nb.controller.states import TopologyPhase
from fries_nb.dataflow.builder import DataflowBuilder
from fries_nb.dataflow.endpoints import memory
from fries_nb.dataflow.graph import Partitioning
from fries_nb.errors import ProtocolError
from fries_nb.protocol.messages import AdoptTopology, ChannelId, Commit, End, Marker, TopologyAdopted, WorkerId
from fries_nb.protocol.topology import OutEdge
from fries_nb.protocol.trace import Updated, Wrote
from fries_nb.simulation import stamp_functions as fns
from fries_nb.simulation.drawn_flows import source_rows
from fries_nb.simulation.rescaling_cluster import GrowingCluster
from fries_nb.simulation.scenarios import draw_focused, draw_scenario, draw_troubled
from fries_nb.worker.alignment import Alignment
from fries_nb.worker.bin_transfer import TopologyAdoption
from fries_nb.worker.inbox import Inbox
from fries_nb.worker.outbox import Outbox

DRAWS = {"changed": draw_scenario, "killed": draw_troubled, "keyed": draw_focused}


def try_grown(seed, draw=draw_scenario):
    """Play the scenario of a seed, with idle workers that come and go, and check it."""
    return try_seed(seed, draw, GrowingCluster)


def _met(seed, draw):
    """What a seed has met, with all laws checked."""
    met, cluster = Counter[str](), try_grown(seed, draw).cluster
    met["grown"] += sum(bool(topology.added) for topology in cluster.adopted)
    met["shrunk"] += sum(not topology.added for topology in cluster.adopted)
    met["widened"] += sum(len(topology.idle) < len(topology.added) for topology in cluster.adopted)
    pairs = list(pairwise(cluster.adopted))
    met["narrowed"] += sum(old.added == new.added and old.idle < new.idle for old, new in pairs)
    met["refused"] += len(cluster.refused)
    added = set(cluster.hosts.topology.added)
    met["changed afterwards"] += any(added & outcome.per_worker.keys() for outcome in cluster.outcomes.values())
    return met


@pytest.mark.parametrize("draw", DRAWS.values(), ids=DRAWS)
def test_every_promise_holds_while_workers_come_and_go(draw):
    """With changes by any scheduler, checkpoints, and kills: the same laws as without."""
    wanted = ("grown", "shrunk", "widened", "narrowed", "refused", "changed afterwards")
    wanted = wanted if draw is draw_scenario else ()
    assert lacking(5, wanted, partial(_met, draw=draw), least=3, most=120, shown=(117, 46, 9, 5, 8)) == {}


def cluster_of(rows: int = 60, seed: int = 1) -> GrowingCluster:
    """A held source, an operator by key, a sink."""
    flow = DataflowBuilder("line")
    fns.mark(fns.source(flow), "A").map("K", lambda row: row, key="customer").sink("out", memory())
    cluster = GrowingCluster(flow.graph(), {"S0": source_rows("S0", rows)}, seed=seed, hosts=2, commit_interval_ns=None)
    cluster.often = 0.0
    cluster.hold([WorkerId("S0", 0)])
    return cluster


def test_an_idle_worker_is_added_gets_markers_but_no_rows_and_is_taken_away():
    """Under a name that is not used again for its channels."""
    cluster = cluster_of()
    cluster.steps(50)
    cluster.grow("K", 1)
    cluster.until(lambda: len(cluster.adopted) == 1)
    newcomer = WorkerId("K", 2)
    assert cluster.hosts.host_of(newcomer) == 1
    change = cluster.request({"K": lambda row: row | {"version": 2}}, "epoch")
    cluster.until(lambda: change in cluster.outcomes)
    assert newcomer in cluster.outcomes[change].per_worker
    assert not cluster.outcomes[change].per_worker[newcomer].ended
    channels = set(cluster.hosts.topology.channels())
    assert cluster.worker("K", 2).instances[0].processed == 0
    cluster.shrink("K")
    cluster.until(lambda: len(cluster.adopted) == 2)
    assert newcomer not in cluster.workers
    assert WorkerId("out", 2) not in cluster.workers
    cluster.grow("K", 0)
    cluster.until(lambda: len(cluster.adopted) == 3)
    assert not {channel for channel in channels & set(cluster.hosts.topology.channels()) if channel.epoch > 1}
    cluster.release()
    cluster.run()
    assert cluster.state == "finished"
    assert sorted(row["id"] for row in cluster.rows("out")) == sorted(row["id"] for row in source_rows("S0", 60))


def test_a_worker_continues_the_records_of_earlier_ones_of_its_index():
    """It says once that it has switched to what had been changed before, and the audit finds all records."""
    cluster = cluster_of()
    change = cluster.request({"K": lambda row: row | {"version": 2}}, "epoch")
    cluster.until(lambda: change in cluster.outcomes)
    steps = lambda: cluster.grow("K", 1), lambda: cluster.shrink("K"), lambda: cluster.grow("K", 0)
    for count, step in enumerate(steps):
        step()
        cluster.until(lambda count=count: len(cluster.adopted) == count + 1)
    cluster.release()
    cluster.run()
    records = cluster.records()
    told = [one for one in records if getattr(one, "operator", "") == "K" and getattr(one, "worker", 0) == 2]
    assert [one.id for one in told if isinstance(one, Updated)] == [change]
    assert max(one.updated for one in told if isinstance(one, Wrote)) == 1
    assert judge(records).serializable


@pytest.mark.parametrize("seed", range(8))
def test_a_worker_that_is_added_has_made_the_switches_that_are_forgotten(seed):
    """Checkpoints keep the decisions of the last two changes only; the audit knows of its switches all the same."""
    flow = DataflowBuilder("line")
    fns.mark(fns.source(flow), "A").map("K", lambda row: row, key="customer").sink("out", memory())
    rows = {"S0": source_rows("S0", 60)}
    cluster = GrowingCluster(flow.graph(), rows, seed=seed, hosts=2, checkpoints=True, commit_interval_ns=10_000_000)
    cluster.often = 0.0
    cluster.hold([WorkerId("S0", 0)])
    made = []
    for version in range(5):
        made.append(cluster.request({"K": lambda row, version=version: row | {"version": version}}, "epoch"))
        cluster.until(lambda: made[-1] in cluster.outcomes)
        complete = len(cluster.ended)
        cluster.until(lambda complete=complete: len(cluster.ended) > complete + 1)
    cluster.grow("K", 1)
    cluster.until(lambda: len(cluster.adopted) == 1)
    cluster.release()
    cluster.run()
    records = cluster.records()
    told = [one.id for one in records if isinstance(one, Updated) and (one.operator, one.worker) == ("K", 2)]
    assert told == made
    assert judge(records).serializable


def test_what_cannot_be_is_refused():
    """A second wish, one of another epoch, an answer that nobody waits for; and one that comes too late."""
    cluster = cluster_of()
    cluster.steps(50)
    later = cluster.hosts.topology.grown("K", 0).grown("K", 0)
    rewiring = Rewiring(cluster.controller._workers)
    with pytest.raises(ProtocolError, match="epoch 3 of the topology was requested in epoch 1"):
        rewiring.request(later)
    rewiring.request(cluster.hosts.topology.grown("K", 0))
    with pytest.raises(ProtocolError, match="the change of topology is awaited and cannot be awaited"):
        rewiring.request(cluster.hosts.topology.grown("K", 0))
    with pytest.raises(ProtocolError, match=r"K\[0\] adopted epoch 2 of the topology, which was not requested of it"):
        rewiring.adopted(TopologyAdopted(2, WorkerId("K", 0)))
    assert rewiring.step(is_free=False, issued=0) == []
    assert [tell.control for tell in rewiring.step(is_free=True, issued=0)[1:]] == [AdoptTopology(2)] * 7
    rewiring.lost("", 0)
    assert (rewiring.phase, rewiring.under_way) == (TopologyPhase.IDLE, False)
    cluster.release()
    cluster.until(lambda: bool(cluster.controller._workers.ended))
    cluster.grow("K", 0)
    cluster.run()
    assert "has ended" in cluster.refused[0]


def test_what_was_granted_on_a_channel_that_is_gone_is_not_credit_on_the_next():
    """An outbox tells them apart by their epochs."""
    sender = WorkerId("A", 0)
    stays, old, new = (ChannelId(sender, WorkerId("B", index), epoch) for index, epoch in ((0, 1), (1, 2), (1, 4)))

    def edge(*channels):
        return OutEdge("B", Partitioning.REBALANCE, (), 0, channels, routed=1)

    outbox = Outbox([edge(stays)])
    outbox.credit(stays, 100)
    outbox.rewire([edge(stays, old)])
    outbox.rewire([edge(stays)])
    assert [(send.channels, send.frame) for send in outbox.sends()] == [((old,), End())]
    outbox.rewire([edge(stays, new)])
    outbox.credit(old, 100)
    outbox.credit(new, 50)
    with pytest.raises(ProtocolError, match="credit of 1 bytes came for"):
        outbox.credit(new, 1)
    outbox.rewire([edge(stays)], ended=True)
    outbox.rewire([edge(stays, new)], ended=True)
    assert [send.channels for send in outbox.sends()] == [(new,)]


def test_rows_go_to_the_workers_that_they_are_routed_to_and_are_not_taken_away():
    """By key, in turn, or to all."""
    batch = pa.record_batch({"k": list(range(50))})
    channels = tuple(ChannelId(WorkerId("A", 0), WorkerId("B", index)) for index in range(3))
    for partitioning in (Partitioning.HASH, Partitioning.REBALANCE, Partitioning.BROADCAST):
        key = ("k",) if partitioning is Partitioning.HASH else ()
        outbox = Outbox([OutEdge("B", partitioning, key, 0, channels, routed=2)])
        outbox.add(0, batch)
        outbox.flush()
        outbox.rewire([OutEdge("B", partitioning, key, 0, channels[1:], routed=2)])
        assert outbox.sends() == []
        outbox.credit(channels[0], 10_000)  # an End follows the rows that have waited
        frames = [send.frame for send in outbox.sends() if send.channels == channels[:1]]
        assert (len(frames), frames[-1]) == (2, End())
        outbox = Outbox([OutEdge("B", partitioning, key, 0, channels, routed=2)])
        for channel in channels:
            outbox.credit(channel, 10_000)
        outbox.add(0, batch)
        outbox.flush()
        assert {channel for send in outbox.sends() for channel in send.channels} == set(channels[:2])


def test_a_channel_that_gets_no_more_rows_is_given_up_when_what_waits_on_it_has_been_sent():
    """An outbox frames what was buffered for it, and waits for credit; the rows of other channels may wait on."""
    sender = WorkerId("A", 0)
    channels = tuple(ChannelId(sender, WorkerId("B", index)) for index in range(2))

    def edge(routed):
        return OutEdge("B", Partitioning.REBALANCE, (), 0, channels, routed=routed)

    outbox = Outbox([edge(2)])
    outbox.add(0, pa.record_batch({"k": list(range(50))}))
    assert not outbox.drains
    outbox.rewire([edge(1)])
    assert outbox.drains
    outbox.credit(channels[1], 10_000)
    assert not outbox.drains
    assert [send.channels for send in outbox.sends()] == [channels[1:]]
    outbox.add(0, pa.record_batch({"k": list(range(50))}))
    outbox.rewire([OutEdge("B", Partitioning.REBALANCE, (), 0, channels[:1], routed=1)])
    assert (outbox.sends()[0].channels, outbox.drains) == (channels[1:], False)


def test_a_newcomer_takes_markers_of_before_for_passed():
    """They may have been cancelled before it was there to hear of that."""
    channel = ChannelId(WorkerId("A", 0), WorkerId("B", 2), 2)
    alignment, scope = Alignment([channel], issued=7), frozenset("AB")
    assert alignment.arrived(Marker(7, scope, Commit(1)), channel) is None
    assert not alignment.blocked
    assert alignment.arrived(Marker(8, scope, Commit(2)), channel) is not None
    inbox = Inbox([channel])
    inbox.put(channel, End())
    with pytest.raises(ProtocolError, match="was taken away while frames wait on it"):
        inbox.drop(channel)


def _grow_at_once(life, now_ns, goes_on):
    return life.rewiring.step(True, life.lane.issued)


def _await_no_end(adoption, present, adopted=TopologyAdoption.adopted):
    open_, adoption._open = adoption._open, set()
    try:
        return adopted(adoption, present)
    finally:
        adoption._open = open_


def _end_nothing(outbox, edges, ended=False):
    before = outbox._channels
    outbox._connect(edges)
    outbox._left.update({name: out for name, out in before.items() if name not in outbox._channels})


def _silence_the_ended(outbox, edges, ended=False, rewire=Outbox.rewire):
    rewire(outbox, edges, ended)
    if ended:
        outbox._sends.clear()


BROKEN = {
    "something else is under way": (Lifecycle, "_rewire", _grow_at_once),
    "a channel goes before its end": (TopologyAdoption, "adopted", _await_no_end),
    "channels that are gone are not ended": (Outbox, "rewire", _end_nothing),
    "a worker that has ended does not end its new channels": (Outbox, "rewire", _silence_the_ended),
}


SHOWN = {
    "something else is under way": 5,
    "a channel goes before its end": 9,
    "channels that are gone are not ended": 9,
    "a worker that has ended does not end its new channels": 80,
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_change_of_topology_is_caught(monkeypatch, name):
    """Without this rule, some run breaks a promise, or comes to no end."""
    monkeypatch.setattr(*BROKEN[name])
    assert caught(first_tried(SHOWN.get(name, 0), 200), try_grown) is not None
