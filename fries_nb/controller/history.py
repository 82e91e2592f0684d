"""The history of a run over time, for plots and reports.

>>> from fries_nb.messages import WorkerId
>>> history = History()
>>> history.add(Report(WorkerId("out", 0), 2, 0, latency=((4.0, 2),)), at_s=100.0)
>>> history.add(Report(WorkerId("out", 0), 6, 0, latency=((8.0, 4),)), at_s=100.5)
>>> [(point.at_s, round(point.p50_ms), point.rate) for point in history.points()]
[(100.5, 8, 12.0)]
>>> history.mark("u1", "request", "FM by fries", at_s=100.6); history.marks()[0].kind
'request'
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from typing import Literal

from ddsketch import DDSketch

from fries_nb.messages import Report

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
    """The tuples that reached the sinks in one interval; without output it has no latencies (NaN), and the rate 0.

    Attributes:
        at_s: end of the interval, in seconds since the Unix epoch.
        p50_ms: median of their end-to-end latencies in milliseconds.
        p99_ms: the 99th percentile of their latencies in milliseconds.
        rate: tuples per second.
    """

    at_s: float
    p50_ms: float
    p99_ms: float
    rate: float

    @property
    def is_idle(self) -> bool:
        """Whether no tuple reached a sink."""
        return math.isnan(self.p50_ms)


@dataclass(frozen=True, slots=True)
class PlotMark:
    """An event of a run: a change or a rescale was requested or ended, a checkpoint was kept, hosts were lost.

    Attributes:
        at_s: time of the event, in seconds since the Unix epoch.
        change: id of the change, the checkpoint (``c1``), the recovery (``r1``) or the rescale (``rescale r1``).
        kind: the event.
        label: text for plots.
    """

    at_s: float
    change: str
    kind: MarkKind
    label: str


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
            del self._marks[next((n for n, one in enumerate(self._marks) if one.kind == "checkpoint"), 0)]

    def points(self) -> tuple[Point, ...]:
        """The points so far."""
        return tuple(self._points)

    def marks(self) -> tuple[PlotMark, ...]:
        """The marks so far."""
        return tuple(self._marks)
