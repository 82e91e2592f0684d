"""The flush deadline on a manual clock: it follows the cost of frames, and latency constraints limit it."""

from __future__ import annotations

import random

import pytest

from fries_nb.worker.rota import FRAME_NS, INTERVAL_NS, LONGEST_NS, SHORTEST_NS, FlushDeadline

MANY = INTERVAL_NS // FRAME_NS
"""Frames that cost as much as an interval has time."""


def settled(frames: int, waited_ns: int = 0, longest_ns: int = LONGEST_NS) -> int:
    """The deadline after many intervals with so many frames each."""
    deadline, now_ns = FlushDeadline(0), 0
    deadline.longest_ns = longest_ns
    for _ in range(20):
        deadline.flushed(frames)
        deadline.waited(waited_ns)
        now_ns += INTERVAL_NS
        deadline.adjusted(now_ns)
    return deadline.adjusted(now_ns)


def test_it_is_long_only_where_frames_cost_much_and_nothing_waits() -> None:
    """A host whose tuples take long makes few frames, however small, and need not wait for more of them."""
    assert settled(MANY) == LONGEST_NS
    assert settled(MANY // 10) == SHORTEST_NS
    assert settled(MANY, waited_ns=INTERVAL_NS // 2) == SHORTEST_NS


@pytest.mark.parametrize("longest_ms", [1, 40, 300])
def test_a_constraint_limits_it(longest_ms: int) -> None:
    """But not below the shortest one."""
    assert settled(MANY, longest_ns=longest_ms * 1_000_000) == max(longest_ms * 1_000_000, SHORTEST_NS)


@pytest.mark.parametrize("seed", range(20))
def test_it_stays_within_its_bounds(seed: int) -> None:
    """Whatever happens."""
    draws, deadline, now_ns = random.Random(seed), FlushDeadline(0), 0
    for _ in range(100):
        deadline.flushed(draws.randrange(2 * MANY))
        deadline.waited(draws.randrange(INTERVAL_NS))
        now_ns += draws.randrange(2 * INTERVAL_NS)
        assert SHORTEST_NS <= deadline.adjusted(now_ns) <= LONGEST_NS
