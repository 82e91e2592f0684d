"""How many tuples a slice of work takes: as many as fill about two milliseconds, learnt as work goes on.

Between slices a worker looks at its events and its output buffers, so a slice must be short; what a slice costs besides
its tuples must not count, so it must not be shorter than that.

>>> slices = Slices()
>>> slices.learn(100_000, 64), slices.quota       # fast: twice as many next time
(None, 128)
>>> slices.learn(9_000_000, 128), slices.quota    # slow: half as many
(None, 64)
"""

from __future__ import annotations

SLICE_NS = 2_000_000
"""What a slice aims to take."""
MOST_PER_SLICE = 16_384


class Slices:
    """The quota of the next slice, in tuples."""

    __slots__ = ("quota",)

    def __init__(self) -> None:
        self.quota = 64

    def learn(self, took_ns: int, taken: int) -> None:
        """A slice that took so many tuples took so long."""
        if took_ns < SLICE_NS // 2 and taken == self.quota:
            self.quota = min(self.quota * 2, MOST_PER_SLICE)
        elif took_ns > 2 * SLICE_NS:
            self.quota = max(self.quota // 2, 1)
