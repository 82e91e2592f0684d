"""The history of a run over time, for plots and reports.

>>> from fries_nb.protocol.messages import WorkerId
>>> history = History()
>>> history.add(Report(WorkerId("out", 0), 2, 0, latency=((4.0, 2),)), at_s=100.0)
>>> history.add(Report(WorkerId("out", 0), 6, 0, latency=((8.0, 4),)), at_s=100.5)
>>> [(point.at_s, round(point.p50_ms), point.rate) for point in history.points()]
[(100.5, 8, 12.0)]
>>> history.mark("u1", "request", "FM by fries", at_s=100.6); history.marks()[0].kind
'request'

It keeps the whole run: the points of the last ten minutes as they were measured, and of what is older coarser ones,
each of which spans a six-hundredth of its age at most. So a point of an hour ago is one of 6 s; an hour has 4,100
points, 24 hours 6,700, and each further doubling of the time adds 600.

>>> as_one([Point(10.0, 4.0, 9.0, 300.0), Point(20.0, 8.0, 99.0, 100.0)], since_s=0.0)  # of 3,000 and 1,000 tuples
Point(at_s=20.0, p50_ms=5.0, p99_ms=99.0, rate=200.0)

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
>>> history.waiting()[-1]
WaitingPoint(at_s=3599.0, queued=3599)
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from ddsketch import DDSketch

from fries_nb.protocol.messages import Report
from fries_nb.telemetry.metrics import OperatorMetrics

INTERVAL_S = 0.25
IDLE_S = 2.0
"""Seconds without output from which on a history says so; of a slower source each tuple stands alone."""
FINE_S = 600.0
"""Seconds for which points are kept as they were measured."""
SHARE = 1 / 600
"""Share of its age that a coarser point spans at most."""
_MORE = 240  # points from one merge of old ones to the next
MARKS_KEPT = 2_000
"""Number of marks kept; those of checkpoints go first, which a run may take every second."""

MarkKind = Literal["request", "done", "aborted", "failed", "rolled_back", "checkpoint", "recovery"]


@dataclass(frozen=True, slots=True)
class Point:
    """The tuples that reached the sinks in one interval; without output it has no latencies (NaN), and the rate 0.

    A coarser point stands for several measured intervals. Quantiles cannot be merged, so its latencies are not those of
    all its tuples: see ``p50_ms`` and ``p99_ms``.

    Attributes:
        at_s: end of the interval, in seconds since the Unix epoch; it begins at the end of the one before.
        p50_ms: median of their end-to-end latencies in milliseconds; of a coarser point the mean of the medians, each
            weighted by its number of tuples.
        p99_ms: the 99th percentile of their latencies in milliseconds; of a coarser point the highest of its intervals,
            so that no peak is lost with age.
        rate: tuples per second; also exact for a coarser point.
    """

    at_s: float
    p50_ms: float
    p99_ms: float
    rate: float

    @property
    def is_idle(self) -> bool:
        """Whether no tuple reached a sink."""
        return math.isnan(self.p50_ms)


def as_one(points: Sequence[Point], since_s: float) -> Point:
    """Points that follow each other as one, whose interval begins then; see ``Point``. Times without output count."""
    known = [point for point in points if not point.is_idle]
    tuples = seconds = weighted = 0.0
    for point in points:
        held_s = max(point.at_s - since_s, 0.0)  # less if the clock was set back
        count = point.rate * held_s
        tuples, seconds, since_s = tuples + count, seconds + held_s, point.at_s
        if not point.is_idle:
            weighted += count * point.p50_ms
    if not known:
        return Point(since_s, math.nan, math.nan, 0.0)
    p50_ms = weighted / tuples if tuples else sum([point.p50_ms for point in known]) / len(known)
    rate = tuples / seconds if seconds else points[-1].rate
    return Point(since_s, p50_ms, max([point.p99_ms for point in known]), rate)


def coarser(points: Sequence[Point], end_s: float, share: float, fine_s: float = 0.0) -> list[Point]:
    """Points of which those older than ``fine_s`` at ``end_s`` are merged, to span at most this share of their age.

    The first point stays, since a plot counts from it. A time without output becomes part of a point with output only
    if it is that short.

    >>> points = [Point(second, 4.0, 9.0, 2.0) for second in range(3_600)]
    >>> few = coarser(points, end_s=3_600.0, share=1 / 60, fine_s=60.0)
    >>> len(few), [round(few[n + 1].at_s - few[n].at_s) for n in (0, 20, 100, -3)]
    (341, [59, 42, 11, 1])
    """
    middle = bisect_left(points, end_s - fine_s, key=lambda point: point.at_s)
    few, group = list(points[: min(1, middle)]), list[Point]()
    since_s = few[0].at_s if few else 0.0
    for point in points[1:middle]:
        if group and point.at_s - since_s > share * (end_s - point.at_s):
            few.append(group[0] if len(group) == 1 else as_one(group, since_s))
            since_s, group = group[-1].at_s, []
        group.append(point)
    if group:
        few.append(as_one(group, since_s))
    return [*few, *points[middle:]]


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
        self._points: list[Point] = []
        self._enough = _MORE  # number of points from which on old ones are merged
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
        self._thin()
        self._sketch = DDSketch()
        self._since_s = at_s

    def _idle(self, since_s: float, until_s: float) -> None:
        """Record that nothing came out in this time: two points, however long it lasts."""
        if self._points[-1].is_idle:
            since_s = self._points[-2].at_s
            del self._points[-2:]
        self._points += [Point(at_s, math.nan, math.nan, 0.0) for at_s in (since_s, until_s)]

    def _thin(self) -> None:
        """Merge old points, from time to time, so that the cost of a point does not depend on their number."""
        if len(self._points) > self._enough:
            self._points = coarser(self._points, self._points[-1].at_s, SHARE, FINE_S)
            self._enough = len(self._points) + _MORE

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


@dataclass(frozen=True, slots=True)
class WaitingPoint:
    """The tuples in the input queues of all operators in one interval.

    Attributes:
        at_s: end of the interval, in seconds since the Unix epoch.
        queued: number of tuples; the largest one of an interval that was merged.
    """

    at_s: float
    queued: int


@dataclass(frozen=True, slots=True)
class _Sample:
    """The operators at a time, and all of them together, whose peaks need not be at the same time as theirs."""

    all: WaitingPoint
    by_name: Mapping[str, QueuePoint]

    def merged(self, later: _Sample) -> _Sample:
        known = self.by_name
        both = {name: known[name].merged(one) if name in known else one for name, one in later.by_name.items()}
        return _Sample(WaitingPoint(later.all.at_s, max(self.all.queued, later.all.queued)), both)


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
        self._levels[0].append(_Sample(WaitingPoint(at_s, sum(one.queued for one in points.values())), points))
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
            self._levels[number + 1].append(first.merged(second))

    def points(self) -> tuple[QueuePoint, ...]:
        """The points so far, oldest first; those of one sample are in the order of the operators."""
        return tuple(point for level in reversed(self._levels) for one in level for point in one.by_name.values())

    def waiting(self) -> tuple[WaitingPoint, ...]:
        """All queues together, oldest first."""
        return tuple(one.all for level in reversed(self._levels) for one in level)


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
