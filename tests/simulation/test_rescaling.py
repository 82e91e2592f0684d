"""Seeded runs that are rescaled at random, with changes, checkpoints and kills: nothing is lost, order holds by key."""

from __future__ import annotations

from collections import Counter, defaultdict

import pyarrow as pa
import pytest
from interleaving_checks import lacking
from rescaling_checks import try_rescaled
from soak import caught, first_tried

from fries_nb.controller import events
from fries_nb.dataflow.builder import DataflowBuilder
from fries_nb.dataflow.endpoints import memory, rate
from fries_nb.errors import DataflowError, ProtocolError
from fries_nb.operators import state
from fries_nb.protocol.frames import deliveries
from fries_nb.protocol.messages import End, Move, WorkerId
from fries_nb.protocol.partitioning import BINS, RoutingTable, bins_of_keys
from fries_nb.protocol.topology import wire
from fries_nb.simulation.drawn_flows import source_rows
from fries_nb.simulation.rescaling_cluster import RescalingCluster
from fries_nb.simulation.stamp_functions import Counter as KeyCounter
from fries_nb.simulation.stamp_functions import Mark
from fries_nb.worker.alignment import Alignment
from fries_nb.worker.bin_transfer import BinTransfer
from fries_nb.worker.inbox import Inbox
from fries_nb.worker.outbox import Outbox
from fries_nb.worker.worker import Worker


def check_owners(cluster, name):
    """Every key is at the worker that the routing table says."""
    table = cluster.controller._workers.table(name)
    for instance in cluster.instances(name):
        keys = instance.state.keys()
        owners = table.owners[bins_of_keys(keys)].tolist() if keys else []
        assert set(owners) <= {instance.worker.index}, f"{instance.worker} has keys of {set(owners)}"


def _met(seed):
    """What a seed has met, with all laws checked."""
    met, cluster = Counter[str](), try_rescaled(seed).cluster
    met["moved"] += sum(not moved.reason for moved in cluster.moved)
    met["kept"] += sum(bool(moved.reason) for moved in cluster.moved)
    met["adopted"] += len(cluster.adopted)
    met["recovered"] += bool(cluster.recoveries and cluster.moved)
    met["changed"] += any(one.outcome == "done" for one in cluster.outcomes.values())
    return met


def test_every_promise_holds_while_bins_move():
    """With growth and shrinking, changes by any scheduler, checkpoints, and kills: the same laws, and order by key."""
    wanted = ("moved", "adopted", "recovered", "changed")
    assert lacking(12, wanted, _met, least=3, most=84) == {}


def joined(workers, key=None) -> RescalingCluster:
    """A held source, an operator with this many workers, a sink; rows 0, 1, 2, ..."""
    flow = DataflowBuilder("joined")
    stream = flow.source("S", rate(None, count=1), workers=1, identity="id")
    stream.map("K", KeyCounter("K") if key else Mark("K"), key=key, workers=workers).sink("out", memory(), workers=1)
    cluster = RescalingCluster(flow.graph(), {"S": source_rows("S", 60, 12)}, seed=5)
    cluster.often = 0.0
    cluster.hold([WorkerId("S", 0)])
    return cluster


def test_with_a_third_worker_row_8_goes_to_worker_2():
    """Two workers see evens and odds; a third joins after six rows; from then on rows go to three in turn."""
    batch = pa.record_batch({"number": list(range(6))})
    topology = joined(2).hosts.topology
    topologies = topology, topology.grown("K", 0).widened()
    outbox = Outbox(wire(topologies[0], ("S",), 0).edges)
    shown: dict[int, list[int]] = defaultdict(list)
    for at, edges in ((0, None), (6, wire(topologies[1], ("S",), 0).edges)):
        if edges is not None:
            outbox.rewire(edges)
        for channel in [name for name, out in outbox._channels.items() if not out.window]:
            outbox.credit(channel, 1 << 20)
        outbox.add(0, pa.record_batch({"number": [at + number for number in batch.column(0).to_pylist()]}))
        outbox.flush()
        for channel, frame in (each for send in outbox.sends() for each in deliveries(send.channels, send.frame)):
            shown[channel.receiver.index] += frame.batch.column("number").to_pylist()
    assert dict(shown) == {0: [0, 2, 4, 6, 9], 1: [1, 3, 5, 7, 10], 2: [8, 11]}


def test_a_joiner_is_idle_until_bins_move_and_counts_stay_exact():
    """Then its keys are at it, and all of them go back before it leaves."""
    cluster = joined(2, "customer")
    cluster.steps(200)
    for step in (lambda: cluster.grow("K", 0), lambda: cluster.widen()):
        step()
        cluster.until_settled()
    assert len(cluster.instances("K")[2].state) == 0
    cluster.move({"K": RoutingTable.even(3)}, at_once=100)
    cluster.until_settled()
    check_owners(cluster, "K")
    assert len(cluster.instances("K")[2].state) > 0
    assert sum(isinstance(one, events.BinsMoved) and not one.reason for one in cluster.moved) == 1
    cluster.move({"K": RoutingTable.even(2)})
    cluster.until_settled()
    check_owners(cluster, "K")
    for step in (lambda: cluster.narrow("K"), lambda: cluster.shrink("K")):
        step()
        cluster.until_settled()
    assert [instance.worker.index for instance in cluster.instances("K")] == [0, 1]
    cluster.release()
    cluster.run()
    logged = [id_ for one in cluster.instances("K") for state in one.state.live.values() for id_, _ in state["log"]]
    assert sorted(logged) == sorted(row["id"] for row in source_rows("S", 60, 12))


def test_what_cannot_move_is_refused():
    """An operator without bins, an owner that is not there, a second rescale."""
    cluster = joined(2, "customer")
    with pytest.raises(DataflowError, match="out gets no rows by key, so it has no bins; expected a keyed operator"):
        cluster.move({"out": RoutingTable.even(1)})
    with pytest.raises(DataflowError, match=r"moved to K\[2\]; expected a worker up to K\[1\]"):
        cluster.move({"K": RoutingTable.even(3)})
    cluster.move({"K": RoutingTable.even(1)})
    with pytest.raises(ProtocolError, match="moves of bins were requested while others are"):
        cluster.move({"K": RoutingTable.even(1)})


def _swap_before_the_flush(worker, marker, start, apply=Worker._apply):
    if isinstance(marker.action, Move):
        worker.outbox.reassign(marker.action.operator, marker.action.bins)
    apply(worker, marker, start)


def _ship_at_the_first_marker(transfer, marker, channel, passed_by=BinTransfer.passed_by):
    first = transfer._marker is None
    passed_by(transfer, marker, channel)
    if first and transfer._leaving:
        BinTransfer.align(transfer)
        transfer.is_aligned = False


def _align_only(transfer):
    transfer.is_aligned = True


def _release_behind(inbox, channel, frames):
    for frame in frames:
        inbox.put(channel, frame)


def _let_ends_pass(transfer, channel, frame, admitted=BinTransfer.admitted):
    return frame if isinstance(frame, End) else admitted(transfer, channel, frame)


def _hash_otherwise(keys, bins=state.bins_of_keys):
    return (bins(keys) + 1) % BINS


def _await_no_new_channel(alignment, channels):
    pass


def _release_before_all_markers(transfer):
    return not transfer._is_released and transfer._marker is not None and transfer._got >= transfer._arriving


BROKEN = {
    "the table is swapped before the flush": [(Worker, "_apply", _swap_before_the_flush)],
    "state is shipped at the first marker": [
        (BinTransfer, "passed_by", _ship_at_the_first_marker), (BinTransfer, "align", _align_only)
    ],
    "rows are released behind later ones": [(Inbox, "put_back", _release_behind)],
    "an End passes rows that are held": [(BinTransfer, "admitted", _let_ends_pass)],
    "state is hashed otherwise than rows": [(state, "bins_of_keys", _hash_otherwise)],
    "a new channel is not awaited": [(Alignment, "extend", _await_no_new_channel)],
    "rows are released before all markers": [(BinTransfer, "is_installed", property(_release_before_all_markers))],
}  # fmt: skip


SHOWN = {
    "the table is swapped before the flush": 78, "rows are released behind later ones": 34,
    "an End passes rows that are held": 7, "state is hashed otherwise than rows": 11,
    "a new channel is not awaited": 276, "rows are released before all markers": 7,
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_move_is_caught(monkeypatch, name):
    """Without this rule, some run breaks a promise, or comes to no end."""
    for rule in BROKEN[name]:
        monkeypatch.setattr(*rule)
    assert caught(first_tried(SHOWN.get(name, 0), 400), try_rescaled) is not None
