"""Frontiers in seeded runs: safe over all rows, monotone, empty at the end, through changes and failures."""

from __future__ import annotations

import pytest
from timed_draws import play_timed


@pytest.mark.parametrize("first", range(0, 40, 10))
def test_no_frontier_passes_a_row(first: int) -> None:
    """Whatever the interleaving, the changes and the failures; some seeds have each of them."""
    laws = [play_timed(seed) for seed in range(first, first + 10)]
    assert sum(law.checked for law in laws) > 1_000
    assert any(law.cluster.recoveries for law in laws)
    assert any(outcome.outcome == "done" for law in laws for outcome in law.cluster.outcomes.values())
