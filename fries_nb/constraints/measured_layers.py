"""What is measured of the tasks of one operator, and of the channels of one edge, of an allocation.

Arrays have an entry for each task or channel. When the size of a channel's buffer changes, samples of the earlier size
no longer tell its latency, and are forgotten: those of the buffer up to the change, those of the channel up to the end
of the first whole interval after it. So the next look at a buffer comes after an interval, and not after a window.

>>> from fries_nb.messages import ChannelId, WorkerId
>>> channel = ChannelId(WorkerId("A", 0), WorkerId("B", 0))
>>> layer = ChannelLayer((1,), window_ns=1_000, interval_ns=100, crossing=np.zeros(1, dtype=np.bool_))
>>> layer.add_latencies(100, [0], [ChannelMeasured(channel, 300.0, 1)], clock_error_ms=0.0)
>>> layer.add_buffers(100, [0], [BufferMeasured(channel, 250.0, 40, 32_768, 0)])
>>> layer.latencies(100).tolist(), layer.buffers.values.tolist()
([300.0], [250.0])
>>> layer.add_buffers(200, [0], [BufferMeasured(channel, 90.0, 40, 11_933, 1)])
>>> layer.latencies(200).tolist(), layer.buffers.values.tolist()
([nan], [90.0])
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from fries_nb.constraints.buffers import Sizes
from fries_nb.constraints.sequences import STALLED_MS, Flags
from fries_nb.constraints.windows import Floats, Positions, RunningMeans, WindowedSums
from fries_nb.measurements import BufferMeasured, ChannelMeasured, QueueMeasured, TaskMeasured

Times = npt.NDArray[np.int64]
LONG_AGO = -(1 << 62)
"""A time before all others, in nanoseconds."""


class TaskLayer:
    """The tasks of one operator.

    Args:
        size: number of tasks.
        window_ns: window of the constraint in nanoseconds.

    Attributes:
        latency: latencies of the tasks.
        processor: shares of a core that they used.
        row: times for each row that they took in.
    """

    def __init__(self, size: int, window_ns: int) -> None:
        self.latency = RunningMeans(size, window_ns)
        self.processor = RunningMeans(size, window_ns)
        self.row = RunningMeans(size, window_ns)

    def add(self, time_ns: int, positions: Sequence[int], measured: Sequence[TaskMeasured]) -> None:
        """Add measurements of an interval.

        Args:
            time_ns: end of the interval.
            positions: positions of the tasks.
            measured: a measurement for each.
        """
        self.latency.add(time_ns, positions, [one.latency_ms for one in measured], [one.samples for one in measured])
        # Every interval counts alike, whatever the number of rows: the processor is shared out over time.
        self.processor.add(time_ns, positions, [one.processor for one in measured], [1] * len(measured))
        self.row.add(time_ns, positions, [one.row_ms for one in measured], [one.rows for one in measured])

    def evict(self, now_ns: int) -> None:
        """Remove what the window has passed."""
        self.latency.evict(now_ns)
        self.processor.evict(now_ns)
        self.row.evict(now_ns)


class ChannelLayer:
    """The channels of one edge.

    Args:
        shape: number of channels of a one-to-one edge, else numbers of senders and receivers.
        window_ns: window of the constraint in nanoseconds.
        interval_ns: interval of measurements in nanoseconds.
        crossing: whether each channel leads to another host, so that the error of clocks counts.

    Attributes:
        buffers: waiting times in output buffers, of the present size only; weights are rows.
        rows: rows that left the buffers within the window, whatever the size.
        sizes, versions: the size of each buffer and its version, as last reported; versions are -1 before.
    """

    def __init__(self, shape: tuple[int, ...], window_ns: int, interval_ns: int, crossing: Flags) -> None:
        size = int(np.prod(shape))
        self.shape = shape
        self.buffers = RunningMeans(size, window_ns)
        self.rows = WindowedSums(size, window_ns)
        self.sizes: Sizes = np.zeros(size, dtype=np.int64)
        self.versions: npt.NDArray[np.int64] = np.full(size, -1, dtype=np.int64)
        self._latency = RunningMeans(size, window_ns)
        self._window, self._interval = window_ns, interval_ns
        self._crossing = crossing
        self._clock_errors: list[tuple[int, float]] = []
        self._queue_ms: Floats = np.zeros(size)
        self._queued_at: Times = np.full(size, LONG_AGO, dtype=np.int64)
        self._sampled_at: Times = np.full(size, LONG_AGO, dtype=np.int64)
        self._asked_at: Times = np.full(size, LONG_AGO, dtype=np.int64)
        self._asked_version: npt.NDArray[np.int64] = np.full(size, -1, dtype=np.int64)
        self._shrunk: Flags = np.zeros(size, dtype=np.bool_)

    def add_latencies(
        self, time_ns: int, positions: Sequence[int], measured: Sequence[ChannelMeasured], clock_error_ms: float
    ) -> None:
        """Add latencies of channels.

        Args:
            time_ns: end of the interval.
            positions: positions of the channels.
            measured: a measurement for each.
            clock_error_ms: bound of the error for channels from other hosts.
        """
        places = np.asarray(positions, dtype=np.intp)
        self._latency.add(time_ns, places, [one.latency_ms for one in measured], [one.samples for one in measured])
        self._sampled_at[places] = np.maximum(self._sampled_at[places], time_ns)
        if clock_error_ms > 0 and self._crossing[places].any():
            self._clock_errors.append((time_ns, clock_error_ms))

    def add_queues(self, time_ns: int, positions: Sequence[int], measured: Sequence[QueueMeasured]) -> None:
        """Add queues, whose waiting time is their length over the rate at which rows are taken (Little's law).

        Args:
            time_ns: end of the interval.
            positions: positions of the channels.
            measured: a measurement for each.
        """
        for place, one in zip(positions, measured, strict=True):
            if one.rows > 0 and time_ns > self._queued_at[place]:
                self._queued_at[place] = time_ns
                self._queue_ms[place] = min(STALLED_MS, one.rows / one.rate * 1e3) if one.rate > 0 else STALLED_MS

    def add_buffers(self, time_ns: int, positions: Sequence[int], measured: Sequence[BufferMeasured]) -> None:
        """Add waiting times in buffers; where the size has changed, forget samples of the earlier one.

        Args:
            time_ns: end of the interval.
            positions: positions of the channels.
            measured: a measurement for each.
        """
        places = np.asarray(positions, dtype=np.intp)
        waits, rows, sizes, versions = (
            np.array([getattr(one, name) for one in measured]) for name in ("buffer_ms", "rows", "size", "version")
        )
        self.rows.add(time_ns, places, rows)
        present = versions >= self.versions[places]
        changed = places[(versions > self.versions[places]) & (self.versions[places] >= 0)]
        if changed.size:
            self.buffers.forget(changed, time_ns)
            self._latency.forget(changed, time_ns + self._interval)
        self.versions[places[present]], self.sizes[places[present]] = versions[present], sizes[present]
        self.buffers.add(time_ns, places[present], waits[present], rows[present])

    def ask(self, now_ns: int, positions: Positions, shrunk: Flags) -> None:
        """Remember that new sizes were asked for.

        Args:
            now_ns: the current time.
            positions: positions of the channels.
            shrunk: whether each new size is smaller.
        """
        self._asked_at[positions] = now_ns
        self._asked_version[positions] = self.versions[positions]
        self._shrunk[positions] = shrunk

    def asked(self, now_ns: int) -> Flags:
        """The channels for which a new size was asked and has not been reported; at most for a window.

        Args:
            now_ns: the current time.
        """
        recent: Flags = self._asked_at > now_ns - self._window
        return recent & (self.versions <= self._asked_version)

    def settling(self, now_ns: int) -> Flags:
        """The channels whose buffer was shrunk and whose latency has not been measured since; at most for a window.

        Args:
            now_ns: the current time.
        """
        recent: Flags = self._asked_at > now_ns - self._window
        unknown: Flags = (self.versions <= self._asked_version) | (self._latency.weights == 0)
        return recent & self._shrunk & unknown

    def queued(self, now_ns: int) -> Flags:
        """The channels of which the newest measurement is a queue.

        Args:
            now_ns: the current time.
        """
        recent: Flags = self._queued_at > now_ns - self._window
        return recent & (self._queued_at > self._sampled_at)

    def latencies(self, now_ns: int) -> Floats:
        """Mean latencies, or waiting times of queues where they are newer and longer; NaN where neither is known.

        Args:
            now_ns: the current time.
        """
        means = self._latency.values
        return np.where(self.queued(now_ns), np.fmax(means, self._queue_ms), means)

    def clock_error_ms(self) -> float:
        """Largest error of clocks in the window."""
        return max((error for _, error in self._clock_errors), default=0.0)

    def evict(self, now_ns: int) -> None:
        """Remove what the window has passed."""
        for kept in (self.buffers, self.rows, self._latency):
            kept.evict(now_ns)
        self._clock_errors = [one for one in self._clock_errors if one[0] > now_ns - self._window]
