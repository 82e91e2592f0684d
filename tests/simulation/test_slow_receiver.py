"""One receiver of two stands still in a seeded cluster: the other's tuples go on, and what waits is bounded.

Frames are cut, delayed and granted as the seed draws; nothing here looks at a clock.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from soak import SOAK

from fries_nb.dataflow.graph import Edge, Graph, Kind, Operator, Partitioning
from fries_nb.protocol.partitioning import bins_of_values, routing_table
from fries_nb.simulation.cluster import Cluster

WINDOW = 2_000
ROW_BYTES = 24
"""A row's number and its two hidden columns, eight bytes each; what a small frame takes besides is more."""
MOST_WAITING = 4 * WINDOW // ROW_BYTES + 60
"""Rows in front of two receivers and for them at their sender, a window each, and those in its buffers."""
KEYED = 180
SEEDS = range(2 * SOAK)


def same(row: dict[str, Any]) -> dict[str, Any]:
    """The row as it is."""
    return row


def with_one_still(how: Partitioning, rows: int, seed: int) -> Cluster:
    """S -> A -> B[0], B[1] -> Z, where B[1] takes no tuple."""
    key = ("n",) if how is Partitioning.HASH else ()
    operators = (
        Operator("S", kind=Kind.SOURCE),
        Operator("A", function=same),
        Operator("B", function=same, workers=2),
        Operator("Z", kind=Kind.SINK),
    )
    edges = (Edge("S", "A"), Edge("A", "B", how, key), Edge("B", "Z", Partitioning.REBALANCE))
    inputs = {"S": [{"n": number} for number in range(rows)]}
    cluster = Cluster(Graph("g", operators, edges), inputs, seed=seed, window=WINDOW, chaining=False)
    cluster.worker("B", 1).interrupt.set()
    return cluster


def processed(cluster: Cluster) -> tuple[int, int, int]:
    """Tuples that A, B[0] and B[1] have processed."""
    (sender,), (first, second) = cluster.instances("A"), cluster.instances("B")
    return sender.processed, first.processed, second.processed


def goes_on(cluster: Cluster) -> None:
    """The receiver that stood still goes on: every row comes out once."""
    cluster.worker("B", 1).interrupt.clear()
    cluster.run()
    assert cluster.state == "finished"
    numbers = sorted(row["n"] for row in cluster.rows("Z"))
    assert numbers == list(range(cluster.supply.total))


@pytest.mark.parametrize("seed", SEEDS)
def test_of_rows_in_turn_the_other_receiver_gets_all_but_what_waits(seed: int) -> None:
    """A receiver without credit is passed over, however long it stands still."""
    cluster = with_one_still(Partitioning.REBALANCE, 1_000, seed)
    cluster.until(lambda: processed(cluster)[1] >= 1_000 - MOST_WAITING // 2)
    assert processed(cluster)[2] == 0
    goes_on(cluster)


@pytest.mark.parametrize("seed", SEEDS)
def test_of_rows_by_key_the_other_receiver_gets_its_own_while_a_window_waits(seed: int) -> None:
    """Of what their sender has taken, all rows for the receiver at work pass; those for the other fill its window."""
    cluster = with_one_still(Partitioning.HASH, KEYED, seed)
    owners = routing_table(2)[bins_of_values([pa.array(range(KEYED))])].tolist()
    cluster.steps(8_000)
    taken, first, second = processed(cluster)
    assert (first, second) == (owners[:taken].count(0), 0)
    assert cluster.worker("A", 0).outbox.blocked
    assert taken >= KEYED // 4
    goes_on(cluster)
    assert processed(cluster) == (KEYED, owners.count(0), owners.count(1))


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("how", [Partitioning.REBALANCE, Partitioning.HASH])
def test_what_waits_is_bounded(how: Partitioning, seed: int) -> None:
    """At every step, what the sender has taken and the receiver at work has not is within two windows each."""
    cluster = with_one_still(how, 1_000, seed)
    for _ in range(6_000):
        cluster.steps(1)
        sender, first, _ = processed(cluster)
        assert sender - first <= MOST_WAITING
    if how is Partitioning.HASH:
        assert processed(cluster)[0] <= 2 * MOST_WAITING
    goes_on(cluster)
