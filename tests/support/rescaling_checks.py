"""What must hold of every run that is rescaled: the laws of all interleavings, and the order of rows by key."""

from __future__ import annotations

from collections import defaultdict

from interleaving_checks import LAWS, keeps_order, try_seed

from fries_nb.dataflow.columns import TRANSACTION
from fries_nb.protocol.trace import ROW_BITS
from fries_nb.simulation.rescaling_cluster import RescalingCluster
from fries_nb.simulation.scenarios import draw_rescaled
from fries_nb.simulation.stamp_functions import stamps


def keeps_the_order_of_keys(played):
    """Rows of one split and key are processed in the split's order by every keyed operator, however far downstream."""
    places = defaultdict(list)
    for row in played.cluster.rows("out"):
        for stamp in stamps(row["trail"]):
            if stamp.place:
                key = stamp.operator, row["customer"], row[TRANSACTION] >> ROW_BITS
                places[key].append((row["number"], stamp.place))
    for key, found in places.items():
        counts = [place for _, place in sorted(found)]
        assert counts == sorted(counts), f"{key} lost its order: {sorted(found)}"


OVER = ("ended", "finished", "stopped")


def has_moved_all(played):
    """Rescales end, and leave no bin and no split behind unless a worker has ended."""
    for moved in (*played.cluster.moved, *played.cluster.dealt):
        assert not moved.reason or any(word in moved.reason for word in OVER), moved.reason
    assert all(worker._transfer is None for worker in played.cluster.workers.values()), "a move is not over"


RESCALED = (*(law for law in LAWS if law is not keeps_order), keeps_the_order_of_keys, has_moved_all)


def try_rescaled(seed, draw=draw_rescaled, cluster=RescalingCluster):
    """Play the scenario of a seed, rescaled at random, and check it."""
    return try_seed(seed, draw, cluster, RESCALED)


def answers_each_request(played):
    """A rescale that is done has led to the requested number of hosts, or of workers; the others say why not."""
    cluster = played.cluster
    for end in cluster.rescaled:
        assert (end.outcome == "done") is not bool(end.error), end
        if end.outcome == "done":
            asked, sizes = cluster.requested[end.request], cluster.led_to[end.request]
            assert asked.hosts in (None, end.hosts), end
            assert asked.workers.items() <= sizes.items(), f"{end}: {sizes}; expected {asked.workers}"
    assert len({end.request for end in cluster.rescaled}) == len(cluster.rescaled) == len(cluster.requested)


def ends_with_its_bins_dealt(played):
    """Each bin is owned by a worker that gets rows."""
    status = played.cluster.controller.topology
    for name, table in status.tables.items():
        assert table.width <= status.routed[name], f"bins of {name} are at idle workers"


JOINED = (
    *(law for law in LAWS if law is not keeps_order), keeps_the_order_of_keys, answers_each_request,
    ends_with_its_bins_dealt,
)  # fmt: skip
