"""The times of rows: when each is due by the rate of its source, and what times those not read yet may have.

At rate r, tuple i is due at ``start + i / r``, even if its reader is late; latency is measured from the due time. A
change of rate takes effect at once; tuples that are due already keep their times. The elapsed fraction of the current
interval is kept when the rate changes, so many small changes do not delay a source.

>>> pace = RateSchedule(1_000, now_ns=0)
>>> pace.take(2_500_000, limit=10).tolist(), pace.next_due(2_500_000)
([0, 1000000, 2000000], 3000000)
>>> pace.set_rate(100, now_ns=2_500_000)  # half a tuple has passed, the other half takes 5 ms
>>> pace.next_due(2_500_000)
7500000

There is a lower bound of the times of the rows not read yet for each split. A source that knows its rows gives exact
bounds. For any other source a row may be as early as the latest row so far, less ``late`` (0 if it is not given: times
do not decrease); the latest row is that of its split, or of the worker if splits have an order, since rows are then
read in that order. An earlier row is a late row, not an error. Such bounds cannot be computed from positions, so a
reader that goes on from a checkpoint is given those of the checkpoint.

>>> bounds = LatestBounds([Split(0), Split(1)], late=2, saved={1: 7})
>>> bounds.by_split == {0: EARLIEST, 1: 7}
True
>>> bounds.advance({0: Position(2)}, pa.array([10, 9]))
>>> bounds.by_split
{0: 8, 1: 7}
"""

from __future__ import annotations

import math
import sys
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from fries_nb.connectors.source import (
    Foresight,
    Position,
    RuntimeSource,
    Split,
    TimeColumn,
    as_ticks,
)
from fries_nb.dataflow.columns import TIME
from fries_nb.dataflow.windowing import EventTime, ticks
from fries_nb.errors import SourceError
from fries_nb.progress.times import EARLIEST

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

    Raises:
        SourceError: the rate is negative or NaN.
    """

    def __init__(self, rate: float, now_ns: int) -> None:
        self._rate = checked(rate)
        self._missing = 0.0  # remaining fraction of the interval to the next tuple; kept while the source is paused
        self._waiting: deque[tuple[_Stretch, int]] = deque()  # ended stretches, and how many of their tuples were due
        # ``now_ns``: the current time in nanoseconds
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
        self._rate = rate  # tuples per second; 0 pauses the source, infinity makes every tuple due at once
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


Moved = Mapping[int, Position | None]


class TimeBounds(Protocol):
    """The bounds of one worker's splits."""

    by_split: dict[int, int]  # split to its bound; a split that has ended is missing. Never changed, only replaced.
    least: int | None  # the least time of the rows that were read last, if the bounds before them do not tell it

    @property
    def type(self) -> pa.DataType | None:
        """The type of the times, once it is known."""

    def advance(self, moved: Moved, times: pa.Array | None) -> None:
        """Note that rows were read."""


class ForeseenBounds:
    """Exact bounds; see ``TimeBounds``."""

    least: int | None = None

    def __init__(self, foresight: Foresight, rows: Mapping[int, int]) -> None:
        self._foresight = foresight
        # ``rows``: split to the number of its next row
        self.by_split = {split: foresight.least(split, row) for split, row in rows.items()}

    @property
    def type(self) -> pa.DataType | None:
        """The type of the times, known from the beginning."""
        return self._foresight.type

    def advance(self, moved: Moved, times: pa.Array | None) -> None:
        """See ``TimeBounds``."""
        bounds = without_ended(self.by_split, moved)
        for split, position in moved.items():
            if position is not None:
                bounds[split] = self._foresight.least(split, position.row)
        self.by_split = bounds


class LatestBounds:
    """Bounds that follow the latest row; see ``TimeBounds``."""

    def __init__(self, splits: Sequence[Split], late: float, saved: Mapping[int, int]) -> None:
        self._late = late  # how much earlier than the latest row a row may be
        # ``splits``: the splits that the worker has not read to their end
        self._ordered = any(split.step for split in splits)
        self.by_split = {split.number: saved.get(split.number, EARLIEST) for split in splits}
        self.type: pa.DataType | None = None
        self.least: int | None = None

    def advance(self, moved: Moved, times: pa.Array | None) -> None:
        """See ``TimeBounds``."""
        bounds = without_ended(self.by_split, moved)
        if times is not None:
            self.type, self.least = times.type, int(as_ticks(times).min())
            bound = int(as_ticks(times).max()) - ticks(self._late, pa.types.is_timestamp(times.type))
            for split in bounds if self._ordered else bounds.keys() & moved.keys():
                bounds[split] = max(bounds[split], bound)
        self.by_split = bounds


@dataclass(frozen=True, slots=True)
class SourceTime:
    """Where the rows of a source have their times, and where their bounds start."""

    source: str  # name of the source
    time: EventTime  # its event time
    saved: Mapping[int, int]  # split to its bound in the checkpoint


class RowTimes:
    """The times of one worker's rows: the hidden column of those that were read, the bounds of the others.

    Raises:
        SourceError: the source knows the times of its rows but cannot read them.
    """

    def __init__(self, source: RuntimeSource, unread: Sequence[tuple[Split, int]], time: SourceTime) -> None:
        # ``time``: where the rows have their times
        self._column = TimeColumn(time.source, time.time.column)
        self._ahead = time.time.ahead
        self._carried = time.time.carried
        self._read: pa.Array | None = None
        self._bounds: TimeBounds
        # ``unread``: the splits of the worker that have rows left, each with the number of its next row
        bounds = source.outline(unread) if not self._carried and self._ahead is None else None
        foresight = source.foresee(unread, self._column) if bounds is None else bounds
        if foresight is not None:
            self._bounds = ForeseenBounds(foresight, {split.number: row for split, row in unread})
        else:
            self._bounds = LatestBounds([split for split, _ in unread], time.time.late or 0, time.saved)

    @property
    def bounds(self) -> dict[int, int]:
        """See ``WorkerReader.bounds``."""
        return self._bounds.by_split

    @property
    def is_limited(self) -> bool:
        """See ``WorkerReader.is_limited``."""
        return self._ahead is not None

    @property
    def least(self) -> int | None:
        """See ``WorkerReader.least``."""
        return self._bounds.least

    @property
    def ahead_ticks(self) -> int | None:
        """See ``WorkerReader.ahead_ticks``."""
        kind = self._bounds.type
        return None if self._ahead is None or kind is None else ticks(self._ahead, pa.types.is_timestamp(kind))

    def stamped(self, batch: pa.RecordBatch, row: Callable[[int], str]) -> pa.RecordBatch:
        """The rows with the hidden column of their times, if an operator reads it; see ``TimeColumn.times``."""
        if isinstance(self._bounds, ForeseenBounds) and not self._carried:
            return batch
        times, before = self._column.times(batch, row), self._bounds.type
        if before is not None and times.type != before:
            raise SourceError(
                f"source {self._column.source!r} has time={self._column.name!r}, which makes times of type "
                f"{times.type} in some rows and {before} in others; expected one type"
            )
        self._read = times
        return batch.append_column(TIME, times) if self._carried else batch

    def advance(self, moved: Moved) -> None:
        """Note that rows were read, those stamped last."""
        times, self._read = self._read, None
        self._bounds.advance(moved, times)


def without_ended(bounds: Mapping[int, int], moved: Moved) -> dict[int, int]:
    """A copy of the bounds without the splits that have ended."""
    return {split: bound for split, bound in bounds.items() if moved.get(split, moved) is not None}
