"""What a worker measures of itself and of its output buffers.

What a worker measures of itself: latencies at a sink, in geometric buckets of one percent, and its turns.

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

The output buffer of a measured channel: its size in bytes, and how long rows wait in it.

The waiting time is exact: every row counts from the moment at which it was added to the moment at which its buffer was
framed. Once an interval a frame is *tagged* with the time at which its median row was added; the receiver computes the
channel's latency when it comes to that row (Nephele Streaming, section 3.3).

The size changes by compare and set: a change names the version that it is based on, so of two changes from the same
measurements the first takes effect, and the other one none.

>>> now = [0]
>>> meter = BufferMeter(lambda: now[0])
>>> meter.added(1, 80)
>>> now[0] = 4_000_000
>>> meter.added(3, 240)
>>> now[0] = 6_000_000
>>> meter.framed()                        # the row with this offset was added at this time
Tag(row=2, time_ns=4000000)
>>> meter.mean_ms(), meter.rows           # (1 * 6 + 3 * 2) / 4
(3.0, 4)
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np

from fries_nb.protocol.messages import BufferMeasured, ChannelId, Tag

_GAMMA = 1.02
_FLOOR_MS = 1e-3
_LEAST_BUCKET = math.ceil(math.log(_FLOOR_MS) / math.log(_GAMMA))


class LatencyMeter:
    """Counts latencies in geometric buckets, whole columns at a time; the buckets are merged into a DDSketch."""

    def __init__(self) -> None:
        self._counts: Counter[int] = Counter()

    def add(self, latencies_ms: Sequence[float] | np.ndarray[tuple[int], np.dtype[np.float64]]) -> None:
        """Count latencies in milliseconds; values below a microsecond count as one."""
        values = np.asarray(latencies_ms, dtype=np.float64)
        # Rows that were read together were due together, so there are far fewer runs of equal values than rows; and the
        # buckets of the others are so few that counting takes less time than sorting.
        starts = np.flatnonzero(np.concatenate(([True], values[1:] != values[:-1])))[: values.size]
        clipped = np.maximum(values[starts], _FLOOR_MS)
        buckets = np.ceil(np.log(clipped) / math.log(_GAMMA)).astype(np.int64) - _LEAST_BUCKET
        counts = np.bincount(buckets, np.diff(starts, append=values.size))
        for bucket in np.flatnonzero(counts).tolist():
            self._counts[bucket + _LEAST_BUCKET] += int(counts[bucket])

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


class BufferMeter:
    """Measures the output buffer of one channel.

    Args:
        clock: returns nanoseconds since the Unix epoch.
        size: the size at first.
        version: the version at first.

    Attributes:
        size: number of bytes at which the buffer is framed; 0 for no limit.
        bytes: number of bytes in the buffer, of rows that were added under a limit: to compute it takes time.
        version: raised by one with each change of the size.
        rows: number of rows that were framed since the last ``take``.
    """

    __slots__ = ("_added", "_clock", "_row_ns", "_tagged", "bytes", "rows", "size", "version")

    def __init__(self, clock: Callable[[], int], size: int = 0, version: int = 0) -> None:
        self.size, self.version = size, version
        self.rows = self.bytes = 0
        self._clock = clock
        self._added: list[tuple[int, int]] = []
        self._row_ns = 0
        self._tagged = False

    @property
    def is_full(self) -> bool:
        """Whether the buffer has reached its size."""
        return 0 < self.size <= self.bytes

    def added(self, rows: int, size: int) -> None:
        """Record that rows were added to the buffer."""
        self._added.append((rows, self._clock()))
        self.bytes += size

    def framed(self) -> Tag | None:
        """Record that the buffer was framed; returns the tag of the frame, the first of an interval."""
        now_ns = self._clock()
        rows = sum([count for count, _ in self._added])
        self._row_ns += sum([count * (now_ns - since_ns) for count, since_ns in self._added])
        self.rows += rows
        tag = None if self._tagged else self._median(rows // 2)
        self._tagged = True
        self.bytes = 0
        self._added.clear()
        return tag

    def _median(self, median: int) -> Tag:
        first = 0
        for count, since_ns in self._added:
            if first + count > median:
                return Tag(median, since_ns)
            first += count
        return Tag(0, self._clock())

    def resize(self, size: int, version: int) -> bool:
        """Change the size; idempotent.

        Returns:
            Whether it took effect: it has none if the size has changed since that version.
        """
        if version != self.version:
            return False
        self.size, self.version = size, version + 1
        self._row_ns = self.rows = 0  # the next measurements are of the new size
        return True

    def mean_ms(self) -> float:
        """Mean time for which rows waited since the last ``take``, in milliseconds."""
        return self._row_ns / self.rows / 1e6 if self.rows else 0.0

    def take(self, channel: ChannelId) -> BufferMeasured | None:
        """The measurement of the interval, if rows were framed; the next frame is tagged."""
        self._tagged = False
        if not self.rows:
            return None
        measured = BufferMeasured(channel, self.mean_ms(), self.rows, self.size, self.version)
        self._row_ns = self.rows = 0
        return measured
