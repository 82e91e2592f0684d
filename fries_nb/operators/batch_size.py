"""How many tuples a slice of work takes: as many as fill about two milliseconds, learnt as work goes on.

Between slices a worker looks at its events and its output buffers, so a slice must be short. What a slice costs besides
its tuples, to cut and to assemble columns or to call a vectorised function, does not become less with fewer tuples: it
is told apart by the line through what slices of several sizes took, and the tuples may take as long as it does. So not
much more than half of the time is lost to it, however wide the rows are. One slice far off that line tells nothing, as
other threads may have had the processor meanwhile; two in a row are another function or other input.

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
"""What the tuples of a slice aim to take."""
MOST_PER_SLICE = 16_384
_KEPT = 0.8
"""With what weight, at each slice, the earlier ones still count."""
_SPREAD = 0.01
"""Sizes that vary less, as their variance to the square of their mean, do not tell the two costs apart."""


class AdaptiveBatchSize:
    """The quota of the next slice, in tuples."""

    __slots__ = ("_fixed", "_odd", "_sums", "_tuple", "quota")

    def __init__(self) -> None:
        self.quota = 64
        self._sums = (0.0, 0.0, 0.0, 0.0, 0.0)
        self._fixed = self._tuple = 0.0
        self._odd: tuple[int, int] | None = None

    def learn(self, took_ns: int, taken: int) -> None:
        """A slice that took so many tuples took so long."""
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
        """Fit what a slice costs, and what a tuple does, to the slices so far; whether their sizes tell these apart."""
        expected = self._fixed + self._tuple * taken
        before, self._odd = self._odd, None
        if not expected / 4 - SLICE_NS < took_ns < expected * 4 + SLICE_NS:
            self._odd = (took_ns, taken)
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
