"""The due times of a source's tuples.

At rate r, tuple i is due at ``start + i / r``, even if its reader is late; latency is measured from the due time. A
change of rate takes effect at once; tuples that are due already keep their times. The elapsed fraction of the current
interval is kept when the rate changes, so many small changes do not delay a source.

>>> pace = RateSchedule(1_000, now_ns=0)
>>> pace.take(2_500_000, limit=10).tolist(), pace.next_due(2_500_000)
([0, 1000000, 2000000], 3000000)
>>> pace.set_rate(100, now_ns=2_500_000)  # half a tuple has passed, the other half takes 5 ms
>>> pace.next_due(2_500_000)
7500000
"""

from __future__ import annotations

import math
import sys
from collections import deque
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fries_nb.errors import SourceError

Times = npt.NDArray[np.int64]


@dataclass
class _Stretch:
    """An interval of constant rate: its tuple number i is due at ``start + i / rate``; ``taken`` of them are taken."""

    start: int
    rate: float
    taken: int = 0

    def due(self, number: int) -> int:
        return self.start + math.ceil(number * 1e9 / self.rate)

    def due_by(self, now_ns: int) -> int:
        """Number of tuples of the stretch that are due by now, taken ones included."""
        if now_ns < self.start:
            return 0
        count = int((now_ns - self.start) * self.rate / 1e9) + 1
        while self.due(count) <= now_ns:
            count += 1
        while self.due(count - 1) > now_ns:
            count -= 1
        return count

    def times(self, count: int) -> Times:
        """Take ``count`` tuples; returns their due times."""
        if count == 1:
            times = np.array([self.due(self.taken)], np.int64)
        else:
            numbers = np.arange(self.taken, self.taken + count)
            times = np.ceil(numbers * 1e9 / self.rate).astype(np.int64) + self.start
        self.taken += count
        return times


class RateSchedule:
    """Assigns due times, in nanoseconds.

    Args:
        rate: tuples per second; 0 pauses the source, infinity makes every tuple due at once.
        now_ns: the current time in nanoseconds.

    Raises:
        SourceError: the rate is negative or NaN.
    """

    def __init__(self, rate: float, now_ns: int) -> None:
        self._rate = checked(rate)
        self._missing = 0.0  # remaining fraction of the interval to the next tuple; kept while the source is paused
        self._waiting: deque[tuple[_Stretch, int]] = deque()  # ended stretches, and how many of their tuples were due
        self._stretch = self._begin(now_ns)

    def set_rate(self, rate: float, now_ns: int) -> None:
        """Change the rate from now on; see the class."""
        rate = checked(rate)
        if self._stretch is not None:
            count = self._stretch.due_by(now_ns)
            if count > self._stretch.taken:
                self._waiting.append((self._stretch, count))
            self._missing = max(0.0, (self._stretch.due(max(count, self._stretch.taken)) - now_ns) * self._rate / 1e9)
        elif self._rate == math.inf:
            self._missing = 0.0
        self._rate = rate
        self._stretch = self._begin(now_ns)

    def ready(self, now_ns: int, limit: int) -> int:
        """Number of tuples that ``take`` would return.

        >>> RateSchedule(1_000, now_ns=0).ready(2_500_000, limit=10)
        3
        """
        if self._rate == math.inf:
            return limit
        waiting = sum(count - stretch.taken for stretch, count in self._waiting)
        if self._stretch is not None:
            waiting += max(0, self._stretch.due_by(now_ns) - self._stretch.taken)
        return min(waiting, limit)

    def overdue(self, now_ns: int) -> tuple[int, int]:
        """Number of tuples that are due and not taken, and the nanoseconds since the first of them was due.

        >>> RateSchedule(1_000, now_ns=0).overdue(2_500_000)
        (3, 2500000)
        """
        count = self.ready(now_ns, sys.maxsize) if self._rate != math.inf else 0
        oldest = self._waiting[0][0] if self._waiting else self._stretch
        return (count, now_ns - oldest.due(oldest.taken)) if count and oldest is not None else (0, 0)

    def take(self, now_ns: int, limit: int) -> Times:
        """Take at most ``limit`` tuples that are due by now; returns their due times in order."""
        parts = []
        while self._waiting and limit:
            stretch, count = self._waiting[0]
            parts.append(stretch.times(min(count - stretch.taken, limit)))
            limit -= len(parts[-1])
            if stretch.taken == count:
                self._waiting.popleft()
        if self._rate == math.inf:
            parts.append(np.full(limit, now_ns, np.int64))
        elif self._stretch is not None:
            ready = min(self._stretch.due_by(now_ns) - self._stretch.taken, limit)
            if ready > 0:
                parts.append(self._stretch.times(ready))
        if len(parts) == 1:
            return parts[0]
        return np.concatenate(parts) if parts else np.empty(0, np.int64)

    def next_due(self, now_ns: int) -> int | None:
        """The due time of the next tuple; ``None`` if it is due already, or the source is paused."""
        if self._waiting or self._stretch is None:
            return None
        due = self._stretch.due(self._stretch.taken)
        return due if due > now_ns else None

    def _begin(self, now_ns: int) -> _Stretch | None:
        if self._rate in (0, math.inf):
            return None
        return _Stretch(now_ns + math.ceil(self._missing * 1e9 / self._rate), self._rate)


def checked(rate: float) -> float:
    """Return the rate; raises a SourceError if it is negative or NaN."""
    if isinstance(rate, bool) or not isinstance(rate, (int, float)) or math.isnan(rate) or rate < 0:
        raise SourceError(f"rate={rate!r}; expected tuples a second: a number from 0 (pause) up")
    return rate
