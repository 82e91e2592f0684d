"""Loops in the seeded cluster: nested, in sequence, side by side, over parallel heads and small windows.

Whatever the order of events, something can happen or the run has ended; and every row comes out as the reference in
plain Python says, with the rounds that it made.
"""

from __future__ import annotations

import os

import pytest
from loops_played import try_killed, try_loops

SOAK = int(os.environ.get("FRIES_SOAK", "1"))


@pytest.mark.parametrize("first", range(0, 40 * SOAK, 10))
def test_loops_end_by_themselves_with_every_row(first):
    """Ten seeds each."""
    for seed in range(first, first + 10):
        try_loops(seed)


@pytest.mark.parametrize("first", range(0, 40 * SOAK, 10))
def test_kills_at_any_step_lose_nothing_and_double_nothing(first):
    """Ten seeds each, with rows on feedback channels at checkpoints."""
    for seed in range(first, first + 10):
        try_killed(seed)
