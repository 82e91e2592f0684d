"""A guarded change whose state transformation fails is rolled back whole, whatever earlier changes a key has missed."""

from __future__ import annotations

from typing import Any

import pytest
from soak import SOAK

import fries_nb as fn
from fries_nb.simulation import Cluster

SEEDS = range(5 * SOAK)


class Counts:
    """Counts the rows of a key."""

    def initial_state(self) -> list[int]:
        return [0]

    def process(self, row: dict[str, Any], state: list[int]) -> dict[str, Any]:
        state[0] += 1
        return row | {"count": state[0]}


def not_five(state: list[int]) -> list[int]:
    """A state transformation that fails on a count of five."""
    if state[0] == 5:
        raise ValueError("it cannot be 5")
    return state


EARLY = 8
ROWS = [
    *({"k": key, "n": -1} for key in (0, 1, 2)),
    *({"k": 9, "n": n} for n in range(5)),
    *({"k": n % 3, "n": n} for n in range(5, 120)),
    {"k": 9, "n": 120},
    *({"k": 1, "n": n} for n in range(121, 130)),
]
"""Key 9 has its five rows early, and one late; the others have theirs all along, which no sample of states shows."""


@pytest.mark.parametrize("earlier", [0, 1, 2])
def test_a_key_that_earlier_changes_have_not_reached_is_processed_after_the_rollback(earlier: int) -> None:
    """By the counts of one run without any change; the failed transformation is never asked again."""
    fired = 0
    for seed in SEEDS:
        flow = fn.Dataflow("counts")
        flow.source("S", fn.rate(None, count=1)).map("A", Counts(), key="k", workers=1).sink("out", fn.memory())
        cluster = Cluster(flow.graph(), {"S": ROWS}, seed=seed, window=200)
        cluster.until(lambda cluster=cluster: _taken(cluster) > EARLY)
        for _ in range(earlier):
            asked = cluster.request({"A": fn.Update(Counts(), state=list)})
            cluster.until(lambda cluster=cluster, asked=asked: asked in cluster.outcomes)
        bad = cluster.request({"A": fn.Update(Counts(), state=not_five, back=list)}, guard=1_000.0)
        cluster.run()
        assert cluster.state == "finished", f"seed {seed}: {cluster.error}"
        found = sorted((row["k"], row["count"]) for row in cluster.rows("out"))
        assert found == sorted(_counted()), f"seed {seed}"
        fired += bad in cluster.guards and cluster.guards[bad].rolled_back
    assert fired >= len(SEEDS) // 3, "hardly any change failed, so that little was shown"


def _taken(cluster: Cluster) -> int:
    return sum(one.processed for one in cluster.instances("A")) if cluster.workers else 0


def _counted() -> list[tuple[int, int]]:
    counts: dict[int, int] = {}
    found = []
    for row in ROWS:
        counts[row["k"]] = counts.get(row["k"], 0) + 1
        found.append((row["k"], counts[row["k"]]))
    return found
