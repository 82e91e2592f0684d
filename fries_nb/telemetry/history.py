"""The history of a run over time, for plots and reports.

>>> from fries_nb.protocol.messages import WorkerId
>>> history = History()
>>> history.add(Report(WorkerId("out", 0), 2, 0, latency=((4.0, 2),)), at_s=100.0)
>>> history.add(Report(WorkerId("out", 0), 6, 0, latency=((8.0, 4),)), at_s=100.5)
>>> [(point.at_s, round(point.p50_ms), point.rate) for point in history.points()]
[(100.5, 8, 12.0)]
>>> history.mark("u1", "request", "FM by fries", at_s=100.6); history.marks()[0].kind
'request'

The queues and rates of a run's operators over time, in memory that hardly grows with the length of the run.

A sample is taken every ``INTERVAL_S``, and the newest minute is kept as it was sampled. Of what is older, the two
oldest samples of a resolution are merged into one of the next, which is half as fine. So the interval of a sample is at
most a sixtieth of its age, 24 hours are less than 1,000 samples, and each doubling of the time adds 60.

>>> history = QueueHistory()
>>> for second in range(3600):
...     history.add({"FM": OperatorMetrics(queued=second, rate=8.0)}, at_s=float(second))
>>> points = history.points()
>>> len(points), [points[n + 1].at_s - points[n].at_s for n in (-2, 300, 100, 0)]
(530, [1.0, 1.0, 16.0, 32.0])
>>> points[-1]
QueuePoint(at_s=3599.0, operator='FM', queued=3599, queued_bytes=0, rate=8.0)
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Literal

from ddsketch import DDSketch

from fries_nb.protocol.messages import Report
from fries_nb.telemetry.metrics import OperatorMetrics

INTERVAL_S = 0.25
IDLE_S = 2.0
"""Seconds without output from which on a history says so; of a slower source each tuple stands alone."""
KEPT = 20_000
"""Number of points kept: more than an hour."""
MARKS_KEPT = 2_000
"""Number of marks kept; those of checkpoints go first, which a run may take every second."""

MarkKind = Literal["request", "done", "aborted", "failed", "rolled_back", "checkpoint", "recovery"]


@dataclass(frozen=True, slots=True)
class Point:
    """The tuples that reached the sinks in one interval; without output it has no latencies (NaN), and the rate 0."""

    at_s: float  # end of the interval, in seconds since the Unix epoch
    p50_ms: float  # median of their end-to-end latencies in milliseconds
    p99_ms: float  # the 99th percentile of their latencies in milliseconds
    rate: float  # tuples per second

    @property
    def is_idle(self) -> bool:
        """Whether no tuple reached a sink."""
        return math.isnan(self.p50_ms)


@dataclass(frozen=True, slots=True)
class PlotMark:
    """An event of a run: a change or a rescale was requested or ended, a checkpoint was kept, hosts were lost."""

    at_s: float  # time of the event, in seconds since the Unix epoch
    change: str  # id of the change, the checkpoint (``c1``), the recovery (``r1``) or the rescale (``rescale r1``)
    kind: MarkKind  # the event
    label: str  # text for plots


class History:
    """Points and marks of one run, in order of time."""

    def __init__(self) -> None:
        self._points: deque[Point] = deque(maxlen=KEPT)
        self._marks: list[PlotMark] = []
        self._sketch = DDSketch()
        self._since_s: float | None = None
        self._heard_s = 0.0

    def add(self, report: Report, at_s: float) -> None:
        """Process a report that arrived at this time; ends the interval if it has lasted long enough."""
        if self._since_s is None:
            self._since_s = self._heard_s = at_s
        if self._sketch.count and at_s - self._heard_s >= IDLE_S:  # nothing was heard of any worker
            self._end_interval(self._since_s, self._heard_s)
        if self._points and not self._sketch.count and at_s - self._since_s >= IDLE_S:
            self._idle(self._since_s, at_s)
            self._since_s = at_s
        self._heard_s = at_s
        for milliseconds, count in report.latency:
            self._sketch.add(milliseconds, float(count))
        if self._sketch.count and at_s - self._since_s >= INTERVAL_S:
            self._end_interval(self._since_s, at_s)

    def _end_interval(self, since_s: float, at_s: float) -> None:
        """Make the tuples since then a point."""
        p50, p99 = (float(self._sketch.get_quantile_value(q) or 0.0) for q in (0.5, 0.99))
        rate = float(self._sketch.count) / max(at_s - since_s, INTERVAL_S)
        self._points.append(Point(at_s, p50, p99, rate))
        self._sketch = DDSketch()
        self._since_s = at_s

    def _idle(self, since_s: float, until_s: float) -> None:
        """Record that nothing came out in this time: two points, however long it lasts."""
        if self._points[-1].is_idle:
            since_s = self._points[-2].at_s
            self._points.pop()
            self._points.pop()
        self._points += [Point(at_s, math.nan, math.nan, 0.0) for at_s in (since_s, until_s)]

    def mark(self, change: str, kind: MarkKind, label: str, at_s: float) -> None:
        """Append a mark; see ``PlotMark``."""
        self._marks.append(PlotMark(at_s, change, kind, label))
        if len(self._marks) > MARKS_KEPT:
            del self._marks[next((n for n, mark in enumerate(self._marks) if mark.kind == "checkpoint"), 0)]

    def points(self) -> tuple[Point, ...]:
        """The points so far."""
        return tuple(self._points)

    def marks(self) -> tuple[PlotMark, ...]:
        """The marks so far."""
        return tuple(self._marks)


NEWEST = 240
"""Number of samples that are kept as they were taken: those of one minute."""
COARSER = 60
"""Number of samples of each coarser resolution."""


@dataclass(frozen=True, slots=True)
class QueuePoint:
    """The input queues and the rate of one operator in one interval, over all of its workers.

    Attributes:
        at_s: end of the interval, in seconds since the Unix epoch.
        operator: name of the operator.
        queued: number of tuples in its input queues; the largest one of an interval that was merged.
        queued_bytes: size of these tuples in bytes; also the largest one.
        rate: tuples per second that it takes in; the mean of an interval that was merged.
    """

    at_s: float
    operator: str
    queued: int
    queued_bytes: int
    rate: float

    def merged(self, later: QueuePoint) -> QueuePoint:
        """The point of an interval that consists of this one and an equally long one after it."""
        return QueuePoint(
            later.at_s,
            self.operator,
            max(self.queued, later.queued),
            max(self.queued_bytes, later.queued_bytes),
            (self.rate + later.rate) / 2,
        )


_Sample = dict[str, QueuePoint]


class QueueHistory:
    """The queues and rates of one run's operators, in order of time."""

    def __init__(self) -> None:
        self._levels: list[list[_Sample]] = [[]]  # the finest first
        self._last_s: float | None = None

    def is_due(self, at_s: float) -> bool:
        """Whether the next sample is to be added at this time, in seconds since the Unix epoch."""
        if self._last_s is None:
            self._last_s = at_s  # the first report is that of one worker; the others follow
        return not 0 <= at_s - self._last_s < INTERVAL_S  # also if the clock was set back

    def add(self, operators: Mapping[str, OperatorMetrics], at_s: float) -> None:
        """Add a sample."""
        self._last_s = at_s
        points = {name: QueuePoint(at_s, name, operator.queued, operator.queued_bytes, operator.rate)
                  for name, operator in operators.items()}  # fmt: skip
        self._levels[0].append(points)
        self._thin()

    def _thin(self) -> None:
        """Merge the two oldest samples of each resolution that has too many."""
        for number, level in enumerate(self._levels):
            if len(level) <= (COARSER if number else NEWEST) + 1:
                return
            if number + 1 == len(self._levels):
                self._levels.append([])
            first, second = level[:2]
            del level[:2]
            both = {name: first[name].merged(point) if name in first else point for name, point in second.items()}
            self._levels[number + 1].append(both)

    def points(self) -> tuple[QueuePoint, ...]:
        """The points so far, oldest first; those of one sample are in the order of the operators."""
        return tuple(point for level in reversed(self._levels) for one in level for point in one.values())


COUNTED_S = 0.5
"""Seconds between two samples of the counts."""
COUNTS_KEPT = 121
"""Number of samples of the counts that are kept: those of one minute."""


@dataclass(frozen=True, slots=True)
class CountSample:
    """What operators had done until a moment.

    Attributes:
        at_s: the moment, in seconds since the Unix epoch.
        of: operator to the numbers of tuples that it had processed, of those that had become dead letters, and of rows
            that it had given.
    """

    at_s: float
    of: Mapping[str, tuple[int, int, int]]


class CountHistory:
    """What one run's operators have processed in the course of the last minute."""

    def __init__(self) -> None:
        self._samples: deque[CountSample] = deque(maxlen=COUNTS_KEPT)

    def add(self, operators: Mapping[str, OperatorMetrics], at_s: float) -> None:
        """Add a sample, unless the last one is a new one."""
        if not self._samples or not 0 <= at_s - self._samples[-1].at_s < COUNTED_S:
            counts = {name: (one.processed, one.failed, one.given) for name, one in operators.items()}
            self._samples.append(CountSample(at_s, counts))

    def samples(self, operators: Collection[str]) -> tuple[CountSample, ...]:
        """The samples of these operators, the oldest first."""
        return tuple(
            CountSample(one.at_s, {name: count for name, count in one.of.items() if name in operators})
            for one in self._samples
        )
