"""Adaptive batch size: the number of tuples that a worker processes in about two milliseconds.

Between slices a worker checks its events and its output buffers, so a slice must be short. The fixed cost of a slice,
of cutting and assembling columns or of calling a vectorised function, does not shrink with the number of tuples. A
linear regression over slices of several sizes separates it from the cost of a tuple, and the tuples are given at least
as much time as it takes, so that little more than half of the time is overhead, however wide the rows are. A single
outlier is ignored, since other threads may have used the processor; two in a row indicate another function or other
input.

>>> slices = AdaptiveBatchSize()
>>> slices.learn(100_000, 64), slices.quota       # fast: twice as many next time
(None, 128)
>>> slices.learn(9_000_000, 128), slices.quota    # slow: half as many
(None, 64)
>>> slices.learn(8_900_000, 64), slices.quota     # that was no faster: the slice costs, not its tuples
(None, 128)
"""

from __future__ import annotations

SLICE_NS = 2_000_000
"""Target duration of a slice's tuples in nanoseconds."""
MOST_PER_SLICE = 16_384
_KEPT = 0.8
"""Weight of earlier slices, reduced at each slice."""
_SPREAD = 0.01
"""Minimum variance of sizes, relative to the square of their mean, at which the costs can be separated."""


class AdaptiveBatchSize:
    """The size of the next slice, in tuples."""

    __slots__ = ("_fixed", "_outlier", "_sums", "_tuple", "quota")

    def __init__(self) -> None:
        self.quota = 64
        self._sums = (0.0, 0.0, 0.0, 0.0, 0.0)
        self._fixed = self._tuple = 0.0
        self._outlier: tuple[int, int] | None = None

    def learn(self, took_ns: int, taken: int) -> None:
        """Update the size of the next slice from the duration of this one.

        Args:
            took_ns: duration in nanoseconds.
            taken: number of tuples.
        """
        if not taken:
            return
        if not self._fit(took_ns, taken):  # another size will tell
            shorter, longer = took_ns > 2 * SLICE_NS, took_ns <= 2 * SLICE_NS
        else:
            aim, spent = max(SLICE_NS, self._fixed), self._tuple * taken
            shorter, longer = spent > 2 * aim, spent < aim / 2
        if shorter:
            self.quota = max(self.quota // 2, 1)
        elif longer and taken == self.quota:
            self.quota = min(self.quota * 2, MOST_PER_SLICE)

    def _fit(self, took_ns: int, taken: int) -> bool:
        """Fit the costs of a slice and of a tuple; returns whether the sizes vary enough to separate them."""
        expected = self._fixed + self._tuple * taken
        before, self._outlier = self._outlier, None
        if not expected / 4 - SLICE_NS < took_ns < expected * 4 + SLICE_NS:
            self._outlier = (took_ns, taken)
            if before is None:
                return False
            self._sums = (0.0, 0.0, 0.0, 0.0, 0.0)
            self._add(*before)
        self._add(took_ns, taken)
        weight, x, y, xx, xy = self._sums
        mean = x / weight
        variance = xx / weight - mean * mean
        told_apart = variance >= _SPREAD * mean * mean
        if told_apart:
            self._tuple = min(max((xy / weight - mean * y / weight) / variance, 0.0), y / x)
            self._fixed = y / weight - self._tuple * mean
        else:
            self._tuple, self._fixed = y / x, 0.0
        return told_apart

    def _add(self, took_ns: int, taken: int) -> None:
        weight, x, y, xx, xy = (_KEPT * kept for kept in self._sums)
        self._sums = (weight + 1, x + taken, y + took_ns, xx + taken * taken, xy + taken * took_ns)
