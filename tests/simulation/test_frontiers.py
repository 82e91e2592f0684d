"""Frontiers in seeded runs: safe over all rows, monotone, empty at the end, through changes and failures."""

from __future__ import annotations

import pytest
from progress_laws import Outstanding
from soak import SOAK
from timed_draws import draw_cluster, play_timed


def test_no_frontier_passes_a_row() -> None:
    """Whatever the interleaving, the changes and the failures; some seeds have each of them."""
    laws = [play_timed(seed) for seed in range(10 * SOAK)]
    assert sum(law.checked for law in laws) > 1_000
    assert any(law.cluster.recoveries for law in laws)
    assert any(outcome.outcome == "done" for law in laws for outcome in law.cluster.outcomes.values())


@pytest.mark.parametrize("part", ["_batches", "_frames", "_at", "_sent"])
def test_each_part_of_the_scan_finds_rows_that_no_other_finds(part: str) -> None:
    """Without it the law would miss rows that wait at a source, on a channel, at a worker or in its output."""
    _, cluster, _ = draw_cluster(seed=1)
    blind = type("Blind", (Outstanding,), {part: lambda *_: None})(cluster)
    whole = Outstanding(cluster)
    while whole.rows() == blind.rows():
        assert cluster.state == "running"
        assert cluster.step()
