"""What a worker measures of itself: latencies at a sink, in geometric buckets of one percent, and its turns.

>>> meter = LatencyMeter()
>>> meter.add([1.005, 1.006, 251.0])
>>> [(round(ms, -1) or round(ms), count) for ms, count in meter.take()], meter.take()
([(1, 2), (250.0, 1)], ())

A turn includes what a function waits for. A worker that is inside a call for a minute is busy for that minute, although
it cannot say so itself before the call returns.

>>> now = iter([100, 130, 150])
>>> time = TurnTime(lambda: next(now))
>>> time.begin(); time.take()        # asked at 130, inside the turn
30
>>> time.end(); time.take(), time.take()    # it ended at 150
(20, 0)
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np

_GAMMA = 1.02
_FLOOR_MS = 1e-3


class LatencyMeter:
    """Counts latencies in geometric buckets, whole columns at a time; the buckets are merged into a DDSketch."""

    def __init__(self) -> None:
        self._counts: Counter[int] = Counter()

    def add(self, latencies_ms: Sequence[float] | np.ndarray[tuple[int], np.dtype[np.float64]]) -> None:
        """Count latencies in milliseconds; values below a microsecond count as one."""
        clipped = np.maximum(np.asarray(latencies_ms, dtype=np.float64), _FLOOR_MS)
        buckets, counts = np.unique(np.ceil(np.log(clipped) / math.log(_GAMMA)).astype(np.int64), return_counts=True)
        for bucket, count in zip(buckets.tolist(), counts.tolist(), strict=True):
            self._counts[bucket] += count

    def take(self) -> tuple[tuple[float, int], ...]:
        """(milliseconds, count) of each non-empty bucket in ascending order; resets the counts."""
        taken = tuple((2 * _GAMMA**bucket / (_GAMMA + 1), count) for bucket, count in sorted(self._counts.items()))
        self._counts.clear()
        return taken


class TurnTime:
    """The time that a worker has spent in its turns, also in one that has not ended.

    Args:
        clock: returns nanoseconds.
    """

    __slots__ = ("_clock", "_spent", "_taken_ns")

    def __init__(self, clock: Callable[[], int]) -> None:
        self._clock = clock
        # In turns that have ended, and when this one began: one value, since another thread may read it.
        self._spent: tuple[int, int | None] = (0, None)
        self._taken_ns = 0

    def begin(self) -> None:
        """A turn begins; called by the thread that runs the worker."""
        self._spent = (self._spent[0], self._clock())

    def end(self) -> None:
        """The turn has ended."""
        ended_ns, began_ns = self._spent
        if began_ns is not None:
            self._spent = (ended_ns + max(0, self._clock() - began_ns), None)

    def take(self) -> int:
        """Nanoseconds in turns since this was last called; by any thread, but by one at a time."""
        ended_ns, began_ns = self._spent
        spent_ns = ended_ns + (0 if began_ns is None else max(0, self._clock() - began_ns))
        taken_ns, self._taken_ns = max(0, spent_ns - self._taken_ns), max(spent_ns, self._taken_ns)
        return taken_ns

    @property
    def current_ns(self) -> int:
        """Nanoseconds since the turn began; 0 between turns."""
        began_ns = self._spent[1]
        return 0 if began_ns is None else max(0, self._clock() - began_ns)
