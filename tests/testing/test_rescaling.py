"""Seeded runs that are rescaled at random, with changes, checkpoints and kills: nothing is lost, order holds by key."""

from __future__ import annotations

from collections import Counter, defaultdict

import pytest
from interleaving_checks import LAWS, SOAK, caught, keeps_order, lacking

from fries_nb.dataflow.hidden_columns import TRANSACTION
from fries_nb.errors import FriesError
from fries_nb.testing.drawn_rescales import draw_rescaled
from fries_nb.testing.rescaling_cluster import RescalingCluster
from fries_nb.testing.scenarios import play
from fries_nb.testing.stamp_functions import stamps
from fries_nb.topology.partitioning import bins_of_keys
from fries_nb.topology.routing_table import RoutingTable
from fries_nb.trace import ROW_BITS

RUNS = 120
CHUNKS = 6


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


def keeps_state_at_its_owner(played):
    """Every key is at the worker that the routing table says."""
    cluster = played.cluster
    topology = cluster.hosts.topology
    for name in played.scenario.flow.keyed:
        table = RoutingTable.even(topology.routed(name)) if name not in cluster.tables else cluster.tables[name]
        for instance in cluster.instances(name):
            keys = instance.state.keys()
            owners = table.owners[bins_of_keys(keys)].tolist() if keys else []
            assert set(owners) <= {instance.worker.index}, f"{instance.worker} has keys of {set(owners)}"


def has_moved_all(played):
    """Rescales end, and leave no bin behind unless a worker has ended."""
    for moved in played.cluster.moved:
        assert not moved.reason or "ended" in moved.reason or "finished" in moved.reason, moved.reason
    assert all(worker._transfer is None for worker in played.cluster.workers.values()), "a move is not over"


RESCALED = (*(law for law in LAWS if law is not keeps_order), keeps_the_order_of_keys, has_moved_all)


def try_rescaled(seed, draw=draw_rescaled):
    """Play the scenario of a seed, rescaled at random, and check it."""
    try:
        played = play(draw(seed), RescalingCluster)
        for law in RESCALED:
            law(played)
    except (AssertionError, FriesError) as error:
        raise AssertionError(f"seed {seed}: {error}\n(replay: try_rescaled({seed}))") from error
    return played


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_every_promise_holds_while_bins_move(chunk):
    """With growth and shrinking, changes by any scheduler, checkpoints, and kills: the same laws, and order by key."""
    size = RUNS * SOAK // CHUNKS
    for seed in range(chunk * size, (chunk + 1) * size):
        try_rescaled(seed)
