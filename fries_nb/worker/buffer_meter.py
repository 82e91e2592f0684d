"""The output buffer of a measured channel: its size in bytes, and how long rows wait in it.

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

from collections.abc import Callable

from fries_nb.measurements import BufferMeasured
from fries_nb.messages import ChannelId, Tag


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
        """Record that rows were added to the buffer.

        Args:
            rows: number of rows.
            size: their size in bytes; 0 if there is no limit.
        """
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

        Args:
            size: the new size in bytes.
            version: the version that the change is based on.

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
        """The measurement of the interval, if rows were framed; the next frame is tagged.

        Args:
            channel: the channel of the buffer.
        """
        self._tagged = False
        if not self.rows:
            return None
        measured = BufferMeasured(channel, self.mean_ms(), self.rows, self.size, self.version)
        self._row_ns = self.rows = 0
        return measured
