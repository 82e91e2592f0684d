"""Latency and throughput of a run over time as SVG, with a line at each request and end of a change.

Constrained sequences are shown as bands from their mean to their worst latency, and their limits as lines.

>>> points = [Point(100.0 + second, 4.0, 9.0, 2_000.0) for second in range(60)]
>>> marks = [PlotMark(130.0, "u1", "request", "FM by fries"), PlotMark(130.012, "u1", "done", "FM by fries")]
>>> svg = latency_svg(points, marks)
>>> "12 ms: FM by fries" in svg, "latency, ms" in svg, svg.count("<polyline")
(True, True, 3)

Axes: the mapping from values to pixels, and ticks.

>>> Scale.of([4.0, 9_000.0], 0.0, 100.0).ticks
((1.0, '1'), (10.0, '10'), (100.0, '100'), (1000.0, '1,000'), (10000.0, '10,000'))
>>> Scale.of([20.0, 31.0], 0.0, 100.0).ticks
((0.0, '0'), (10.0, '10'), (20.0, '20'), (30.0, '30'), (40.0, '40'))

Latency constraints over time, for plots of latency: the limit, and a band from mean to worst of the sequence.

>>> from fries_nb.constraints.reactions import ConstraintStatus
>>> values = [(100.0, 40.0, 60.0), (101.0, None, None), (102.0, 50.0, 90.0), (103.0, 50.0, math.inf)]
>>> judged = [ConstraintPoint(at_s, "FC -> FM", 80.0, ConstraintStatus.MET, *known) for at_s, *known in values]
>>> bands_of(judged)[0].pieces
(((100.0, 40.0, 60.0),), ((102.0, 50.0, 90.0), (103.0, 50.0, inf)))
>>> outline(bands_of(judged)[0].pieces[1])
[(102.0, 50.0), (103.0, 50.0), (103.0, inf), (102.0, 90.0)]
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from statistics import fmean

from fries_nb.constraints.judgements import ConstraintPoint
from fries_nb.report import markup
from fries_nb.report.markup import escaped, fitted, number, text_width, themed
from fries_nb.telemetry.history import MarkKind, PlotMark, Point, as_one
from fries_nb.words import duration

_WIDE = 30.0
"""Values that span a larger factor are shown on a logarithmic axis."""
_LEAST = 0.1
"""Lower bound of a logarithmic axis."""
_SECONDS = (0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 43200, 86400)


@dataclass(frozen=True)
class Scale:
    """Maps values from ``low`` to ``high`` to pixels from ``start`` to ``end``; ticks are (value, text) pairs."""

    low: float
    high: float
    start: float
    end: float
    logarithmic: bool
    ticks: tuple[tuple[float, str], ...]

    @staticmethod
    def of(values: Sequence[float], start: float, end: float, logarithmic: bool | None = None) -> Scale:
        """A scale for these values: linear from zero or, if they span a wide range, logarithmic."""
        top = max(values, default=0.0)
        least = max(min((value for value in values if value > 0), default=top), _LEAST)
        if (top > _WIDE * least) if logarithmic is None else logarithmic:
            return _decades(least, top, start, end)
        if top <= 0:
            return Scale(0.0, 1.0, start, end, False, ((0.0, "0"),))
        step = _step(top / 4)
        count = max(1, math.ceil(top / step - 1e-9))
        ticks = tuple((index * step, _text(index * step)) for index in range(count + 1))
        return Scale(0.0, count * step, start, end, False, ticks)

    @staticmethod
    def of_time(low: float, high: float, start: float, end: float) -> Scale:
        """A scale for times in seconds, with about one tick in 90 pixels."""
        high = max(high, low + 1.0)
        most = max(2.0, abs(end - start) / 90)
        step = next((step for step in _SECONDS if (high - low) / step <= most), _SECONDS[-1])
        first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
        while last - first > 2 * most:
            step, first, last = 2 * step, -(-first // 2), last // 2
        ticks = tuple((index * step, clock(index * step)) for index in range(first, last + 1))
        return Scale(low, high, start, end, False, ticks)

    def at(self, value: float) -> float:
        """The pixel of a value; values outside the scale are clamped."""
        value = min(max(value, self.low), self.high)
        if self.logarithmic:
            part = math.log(value / self.low) / math.log(self.high / self.low)
        else:
            part = (value - self.low) / (self.high - self.low)
        return self.start + part * (self.end - self.start)


def clock(seconds: float) -> str:
    """A time in seconds as a tick's text.

    >>> clock(45), clock(0.5), clock(150), clock(7260)
    ('45', '0.5', '2:30', '2:01:00')
    """
    if abs(seconds) < 120:
        return f"{seconds:g}"
    whole = abs(round(seconds))
    sign = "-" if seconds < 0 else ""
    minutes = f"{whole // 60 % 60:02}:{whole % 60:02}"
    return f"{sign}{whole // 3600}:{minutes}" if whole >= 3600 else f"{sign}{minutes.removeprefix('0')}"


def _decades(least: float, top: float, start: float, end: float) -> Scale:
    low, high = math.floor(math.log10(least) + 1e-9), math.ceil(math.log10(top) - 1e-9)
    high = max(high, low + 1)
    ticks = tuple((10.0**power, _text(10.0**power)) for power in range(low, high + 1))
    return Scale(10.0**low, 10.0**high, start, end, True, ticks)


def _step(rough: float) -> float:
    power = 10.0 ** math.floor(math.log10(rough))
    return next(part * power for part in (1.0, 2.0, 2.5, 5.0, 10.0) if part * power >= rough * (1 - 1e-9))


def _text(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.4g}"


MOST_BANDS = 3
"""Maximum number of constraints in one plot; those with the lowest limits are shown."""
_MOST_BAND_POINTS = 200
Spot = tuple[float, float, float]
"""Time in seconds since the Unix epoch, mean and worst latency in milliseconds."""


@dataclass(frozen=True, slots=True)
class LatencyBand:
    """A constrained sequence over time: a piece for each time in which its latency was known without interruption."""

    sequence: str
    limit_ms: float
    pieces: tuple[tuple[Spot, ...], ...]

    @property
    def name(self) -> str:
        """The sequence for display."""
        return self.sequence.replace(" -> ", " → ")

    @property
    def label(self) -> str:
        """The limit as text."""
        return f"{self.name} ≤ {self.limit_ms:,g} ms"

    @property
    def spots(self) -> Iterator[Spot]:
        """The spots of all pieces, in order of time."""
        return (spot for piece in self.pieces for spot in piece)


def bands_of(points: Iterable[ConstraintPoint]) -> tuple[LatencyBand, ...]:
    """The bands of a plot, lowest limit first: at most ``MOST_BANDS``, with few enough spots to be drawn."""
    by_sequence: dict[tuple[float, str], list[ConstraintPoint]] = {}
    for point in points:
        by_sequence.setdefault((point.limit_ms, point.sequence), []).append(point)
    return tuple(
        LatencyBand(sequence, limit_ms, tuple(_pieces(by_sequence[limit_ms, sequence])))
        for limit_ms, sequence in sorted(by_sequence)[:MOST_BANDS]
    )


def names_of(bands: Sequence[LatencyBand]) -> list[tuple[float, float, str]]:
    """The names of several bands, to tell them apart: time and mean latency of their last spot, and the name."""
    ends = [(next(iter(reversed(list(band.spots))), None), band.name) for band in bands if len(bands) > 1]
    return [(end[0], end[1], name) for end, name in ends if end is not None]


def finite_values(bands: Iterable[LatencyBand]) -> list[float]:
    """The limits, and all latencies that are finite, for the range of an axis."""
    values: list[float] = []
    for band in bands:
        values += [band.limit_ms, *(value for _, *latencies in band.spots for value in latencies)]
    return [value for value in values if math.isfinite(value)]


def outline(piece: Sequence[Spot]) -> list[tuple[float, float]]:
    """The corners of a piece: along the means, and back along the worst latencies."""
    return [(at_s, mean) for at_s, mean, _ in piece] + [(at_s, worst) for at_s, _, worst in reversed(piece)]


def bands_svg(bands: Sequence[LatencyBand], began: float, across: Scale, up: Scale) -> tuple[str, str]:
    """The bands and limits as SVG elements with their labels; infinite latencies are at the axis's upper end."""
    drawn, labels = [], []
    for band in bands:
        for piece in band.pieces:
            spots = [(at_s, min(mean, up.high), min(worst, up.high)) for at_s, mean, worst in piece]
            drawn.append(_path("band", [(across.at(at_s - began), up.at(value)) for at_s, value in outline(spots)]))
            drawn.append(_path("sequence", [(across.at(at_s - began), up.at(mean)) for at_s, mean, _ in spots]))
        y = up.at(band.limit_ms)
        ends = f'x1="{number(across.start)}" x2="{number(across.end)}" y1="{number(y)}" y2="{number(y)}"'
        drawn.append(f'<line class="limit" {ends}/>')
        labels.append(_label(across.start + 6, y - 5, band.label))
    for at_s, mean, name in names_of(bands):
        labels.append(_label(across.at(at_s - began) - 4, up.at(min(mean, up.high)) + 13, name, "end"))
    return "".join(drawn), "".join(labels)


def _label(x: float, y: float, words: str, anchor: str = "start") -> str:
    return f'<text class="said" x="{number(x)}" y="{number(y)}" text-anchor="{anchor}">{escaped(words)}</text>'


def _path(kind: str, corners: Sequence[tuple[float, float]]) -> str:
    return f'<path class="{kind}" d="M{" L".join(f"{number(x)} {number(y)}" for x, y in corners)}"/>'


def _pieces(points: Sequence[ConstraintPoint]) -> Iterator[tuple[Spot, ...]]:
    size = math.ceil(len(points) / _MOST_BAND_POINTS)
    for is_known, piece in groupby(points, lambda point: point.mean_ms is not None and point.worst_ms is not None):
        if is_known:
            spots = [(point.at_s, point.mean_ms or 0.0, point.worst_ms or 0.0) for point in piece]
            yield tuple(_thinned(spots[start : start + size]) for start in range(0, len(spots), size))


def _thinned(spots: Sequence[Spot]) -> Spot:
    """Several spots as one: the last time, the mean of the means, and the worst of all."""
    return spots[-1][0], fmean(mean for _, mean, _ in spots), max(worst for *_, worst in spots)


_MOST_POINTS = 400
_LEFT, _RIGHT, _LANE, _LANES = 64.0, 18.0, 17.0, 5
_UPPER, _LOWER, _BETWEEN, _BELOW = 190.0, 84.0, 22.0, 42.0
_SAID_SIZE, _LONGEST = 11.5, 400.0
"""Font size of the words at a mark, and their longest line, in pixels."""
_NEAR, _BESIDE, _GAP = 60.0, 14.0, 3.0
"""Pixels up to which a request and its end share a label, between two labels, and between a label and its line."""
MARK_COLOURS: dict[MarkKind, str] = {
    "request": markup.ORANGE, "done": markup.GREEN, "aborted": markup.VERMILION, "rolled_back": markup.VERMILION,
    "failed": markup.VERMILION, "recovery": markup.VERMILION, "checkpoint": markup.GREY,
}  # fmt: skip

_LIGHT = {
    ".paper": f"fill: {markup.PAPER}",
    "text": f"{markup.FONT}; font-size: 11px; fill: {markup.SOFT}",
    ".axis": f"font-size: 11.5px; fill: {markup.INK}",
    ".key": f"font-size: 11.5px; fill: {markup.INK}; font-weight: 600",
    ".grid": f"stroke: {markup.LINE}; stroke-width: 1px",
    ".p50, .p99, .rate": "fill: none; stroke-width: 1.8px; stroke-linejoin: round",
    ".p50": f"stroke: {markup.BLUE}",
    ".p99": f"stroke: {markup.VERMILION}",
    ".rate": f"stroke: {markup.GREEN}",
    ".band": f"fill: {markup.PURPLE}; fill-opacity: 0.28; stroke: {markup.PURPLE}; stroke-opacity: 0.5",
    ".sequence": f"fill: none; stroke: {markup.PURPLE}; stroke-width: 1.8px",
    ".limit": f"stroke: {markup.PURPLE}; stroke-width: 2px; stroke-dasharray: 8 4",
    ".dot": "stroke-width: 6px; stroke-linecap: round",
    ".mark": "stroke-width: 1.6px",
    ".request": f"stroke: {markup.ORANGE}; stroke-dasharray: 5 3",
    ".done": f"stroke: {markup.GREEN}",
    ".aborted, .failed, .rolled_back": f"stroke: {markup.VERMILION}; stroke-dasharray: 2 3",
    ".recovery": f"stroke: {markup.VERMILION}",
    ".checkpoint": f"stroke: {markup.GREY}; stroke-dasharray: 1 3",
    ".said": f"font-size: {_SAID_SIZE:g}px; fill: {markup.INK}; paint-order: stroke; stroke: {markup.PAPER}; "
    "stroke-width: 3px",
    ".lead": "stroke-width: 1px",
    ".empty": "font-size: 13px; text-anchor: middle",
}
_DARK = {
    ".paper": f"fill: {markup.NIGHT_PAPER}",
    "text": f"fill: {markup.NIGHT_SOFT}",
    ".axis": f"fill: {markup.NIGHT_INK}",
    ".key": f"fill: {markup.NIGHT_INK}",
    ".said": f"fill: {markup.NIGHT_INK}; stroke: {markup.NIGHT_PAPER}",
    ".grid": f"stroke: {markup.NIGHT_LINE}",
    ".p50": f"stroke: {markup.SKY}",
    ".p99": "stroke: #ff8a3d",
    ".rate": "stroke: #2fc79a",
    ".done": "stroke: #2fc79a",
}
_CSS = themed(".fries-latency-svg", _LIGHT, _DARK)


@dataclass(frozen=True)
class AxisLabel:
    """A mark's label: the time of the mark in seconds, its text, its lane, and whether it ends at the mark's line."""

    at_s: float
    words: str
    lane: int
    ends: bool


def latency_svg(
    points: Sequence[Point], marks: Sequence[PlotMark], bands: Sequence[LatencyBand] = (), width: float = 760.0
) -> str:
    """Draw p50 and p99 in milliseconds and, below them, throughput in tuples per second, as an SVG element."""
    # The latency axis is logarithmic if the values span more than a factor of thirty. Points are thinned to the
    # resolution: of each interval the highest p99 is shown, so that no peak is lost.
    points = thinned([point for point in points if _is_finite(point)], _MOST_POINTS)
    times = [point.at_s for point in points] + [mark.at_s for mark in marks]
    times += [at_s for band in bands for at_s, *_ in band.spots]
    began = min(times, default=0.0)
    across = Scale.of_time(0.0, max(times, default=began) - began, _LEFT, width - _RIGHT)
    labels = laid_out(marks, began, across)
    top = 30.0 + _LANE * (1 + max((label.lane for label in labels), default=-1))
    bottom = top + _UPPER + _BETWEEN + _LOWER
    panels = _latency(points, bands, began, across, top) + _rate(points, began, across, bottom)
    lines = "".join(_mark(mark, across.at(mark.at_s - began), top, bottom) for mark in marks)
    texts = "".join(_lead(label, across, top) for label in labels)
    texts += "".join(_said(label, across, top) for label in labels)
    if not points:
        middle = f'x="{number((_LEFT + width - _RIGHT) / 2)}" y="{number(top + _UPPER / 2)}"'
        texts += f'<text class="empty" {middle}>no tuples have reached a sink yet</text>'
    height = bottom + _BELOW
    key, axis = _key(bool(bands)), time_axis(across, bottom)
    return markup.picture("latency", (width, height), _alt_text(points, marks), _CSS, key, panels, axis, lines, texts)


def thinned(points: Sequence[Point], most: int) -> list[Point]:
    """Reduce to about ``most`` points; see ``Point`` on what a coarser one has."""
    # Gaps stay as they are, unless there are as many as points.
    if len(points) <= most:
        return list(points)
    size = math.ceil(len(points) / most)
    few: list[Point] = []
    for is_idle, piece in runs_of(points):
        few += piece if is_idle else _by(size, piece, few[-1].at_s if few else piece[0].at_s)
    return few if len(few) <= 2 * most else _by(size, points, points[0].at_s)


def _by(size: int, points: Sequence[Point], since_s: float) -> list[Point]:
    """So many points as one; the first of them begin then."""
    starts = range(0, len(points), size)
    return [as_one(points[at : at + size], points[at - 1].at_s if at else since_s) for at in starts]


def runs_of(points: Iterable[Point]) -> list[tuple[bool, list[Point]]]:
    """The points of each time without output and with it; a line that joined them would tell what never was.

    >>> nothing = math.nan, math.nan, 0.0
    >>> gap = [Point(0.0, 1.0, 2.0, 9.0), Point(1.0, *nothing), Point(9.0, *nothing), Point(9.5, 3.0, 4.0, 9.0)]
    >>> [(is_idle, [point.at_s for point in run]) for is_idle, run in runs_of(gap)]
    [(False, [0.0]), (True, [1.0, 9.0]), (False, [9.5])]
    """
    return [(is_idle, list(run)) for is_idle, run in groupby(points, lambda point: point.is_idle)]


@dataclass(frozen=True, slots=True)
class Saying:
    """What can stand at a mark, at a time in seconds since the Unix epoch.

    ``partner_s`` is the time of the other mark of the change; where both are close, ``joined`` stands here for both of
    them, or nothing if it is empty, since it stands at the other.
    """

    at_s: float
    words: str
    partner_s: float | None = None
    joined: str = ""


def sayings(marks: Sequence[PlotMark]) -> list[Saying]:
    """What can stand at each of the marks.

    The number goes first, so that it is what is read if a label is cut. Checkpoints, which are frequent, have no label;
    the reason of a recovery is shortened.
    """
    requests = {mark.change: mark for mark in marks if mark.kind == "request"}
    ends = {mark.change: mark for mark in marks if mark.kind != "request"}
    found = []
    for mark in marks:
        request, end = requests.get(mark.change), ends.get(mark.change)
        if mark.kind == "checkpoint":
            continue
        if mark.kind == "recovery":
            found.append(Saying(mark.at_s, f"recovery: {mark.label.partition(' (')[0]}"))
        elif mark.kind != "request":
            found.append(Saying(mark.at_s, _ended(request, mark), request.at_s if request else None))
        elif end is not None:
            found.append(Saying(mark.at_s, mark.label, end.at_s, _ended(mark, end)))
        else:
            found.append(Saying(mark.at_s, mark.label))
    return found


def said_of(marks: Sequence[PlotMark], near_s: float) -> list[tuple[float, str]]:
    """The labels of marks and their times: one for a request and its end if they are close, else one each.

    >>> marks = [PlotMark(1.0, "u1", "request", "FM"), PlotMark(4.5, "u1", "done", "FM")]
    >>> marks.append(PlotMark(9.0, "u2", "request", "MC"))
    >>> said_of([PlotMark(1.0, "r1", "recovery", "host 1 was lost (its process is gone)")], near_s=1.0)
    [(1.0, 'recovery: host 1 was lost')]
    >>> said_of(marks, near_s=5.0), said_of(marks, near_s=1.0)[1]
    ([(1.0, '3.5 s: FM'), (9.0, 'MC')], (4.5, '3.5 s: FM'))
    >>> said_of([marks[0], PlotMark(1.2, "u1", "aborted", "FM")], near_s=5.0)
    [(1.0, '200 ms, aborted: FM')]
    """
    found = [
        (one.at_s, one.words if one.partner_s is None or abs(one.partner_s - one.at_s) > near_s else one.joined)
        for one in sayings(marks)
    ]
    return [(at_s, words) for at_s, words in found if words]


def _ended(request: PlotMark | None, end: PlotMark) -> str:
    """What is said of a change that has ended."""
    kind = end.kind.replace("_", " ")
    if request is None:  # it is not among the marks that are shown
        return f"{kind}: {end.label}"
    after = duration(max(0.0, end.at_s - request.at_s))
    return f"{after}: {end.label}" if end.kind == "done" else f"{after}, {kind}: {end.label}"


def laid_out(marks: Sequence[PlotMark], began: float, across: Scale) -> list[AxisLabel]:
    """Assign labels to lanes so that none overlap, newest first; labels without room are left out."""
    # A label begins at its mark's line, or ends there if it would not fit before the end of the axis. What is too long
    # for both sides is cut at its end; its number stands at its beginning.
    per_second = (across.end - across.start) / (across.high - across.low)
    free = [math.inf] * _LANES
    labels = []
    for at_s, words in sorted(said_of(marks, _NEAR / per_second), reverse=True):
        x = across.at(at_s - began)
        room = across.end - x - _GAP, x - across.start - _GAP
        ends = text_width(words, _SAID_SIZE) > room[0] and room[1] > room[0]
        words = fitted(words, min(_LONGEST, room[ends]), _SAID_SIZE)
        wide = text_width(words, _SAID_SIZE)
        left, right = (x - wide, x) if ends else (x, x + wide)
        lane = next((lane for lane in range(_LANES) if right + _BESIDE <= free[lane]), None)
        if lane is not None:
            free[lane] = left
            labels.append(AxisLabel(at_s - began, words, lane, ends))
    return labels


def _lead(label: AxisLabel, across: Scale, top: float) -> str:
    """The line from a label down to its mark."""
    x = number(across.at(label.at_s))
    ends = f'y1="{number(top - 4)}" y2="{number(top - 8 - _LANE * label.lane)}"'
    return f'<line class="grid lead" x1="{x}" x2="{x}" {ends}/>'


def _said(label: AxisLabel, across: Scale, top: float) -> str:
    x = across.at(label.at_s) + (-_GAP if label.ends else _GAP)
    y, anchor = top - 6 - _LANE * label.lane, "end" if label.ends else "start"
    return f'<text class="said" x="{number(x)}" y="{number(y)}" text-anchor="{anchor}">{escaped(label.words)}</text>'


def _mark(mark: PlotMark, x: float, top: float, bottom: float) -> str:
    return (
        f'<g><title>{escaped(f"{mark.label}: {mark.kind}")}</title><line class="mark {mark.kind}" x1="{number(x)}" '
        f'x2="{number(x)}" y1="{number(top - 4)}" y2="{number(bottom)}"/></g>'
    )


def _latency(points: Sequence[Point], bands: Sequence[LatencyBand], began: float, across: Scale, top: float) -> str:
    values = [value for point in points if not point.is_idle for value in (point.p50_ms, point.p99_ms)]
    up = Scale.of(values + finite_values(bands), top + _UPPER, top)
    lines, labels = bands_svg(bands, began, across, up)
    for piece in (run for is_idle, run in runs_of(points) if not is_idle):
        lines += _line("p99", [(across.at(point.at_s - began), up.at(point.p99_ms)) for point in piece])
        lines += _line("p50", [(across.at(point.at_s - began), up.at(point.p50_ms)) for point in piece])
    return grid(up, across, "latency, ms", top + _UPPER / 2) + lines + labels


def _rate(points: Sequence[Point], began: float, across: Scale, bottom: float) -> str:
    """The throughput as steps: a rate holds for the interval before its point."""
    up = Scale.of([point.rate for point in points], bottom, bottom - _LOWER, logarithmic=False)
    corners: list[tuple[float, float]] = []
    for point in points:
        x, y = across.at(point.at_s - began), up.at(point.rate)
        corners += [(corners[-1][0], y), (x, y)] if corners else [(x, y)]
    return grid(up, across, "tuples/s", bottom - _LOWER / 2) + _line("rate", corners)


def _line(name: str, spots: Sequence[tuple[float, float]]) -> str:
    dot = " dot" if len(spots) == 1 else ""
    doubled = list(spots) * 2 if dot else spots
    return f'<polyline class="{name}{dot}" points="{" ".join(f"{number(x)},{number(y)}" for x, y in doubled)}"/>'


def grid(up: Scale, across: Scale, title: str, middle: float) -> str:
    """The horizontal lines of a panel with their values, and its title at the height ``middle``."""
    lines = "".join(
        f'<line class="grid" x1="{number(across.start)}" x2="{number(across.end)}" y1="{number(up.at(value))}" '
        f'y2="{number(up.at(value))}"/><text x="{number(across.start - 7)}" y="{number(up.at(value) + 4)}" '
        f'text-anchor="end">{text}</text>'
        for value, text in up.ticks
    )
    turned = f'<text class="axis" transform="translate(13 {number(middle)}) rotate(-90)" text-anchor="middle">'
    return f"{lines}{turned}{title}</text>"


def time_axis(across: Scale, bottom: float, since: str = "") -> str:
    """The ticks of a time axis, with its unit and since when it counts."""
    ticks = "".join(
        f'<text x="{number(across.at(value))}" y="{number(bottom + 16)}" text-anchor="middle">{text}</text>'
        for value, text in across.ticks
    )
    middle = number((across.start + across.end) / 2)
    unit = "seconds" if across.high < 120 else "minutes:seconds"
    words = f'<text class="axis" x="{middle}" y="{number(bottom + 34)}" text-anchor="middle">{unit}{since}</text>'
    return ticks + words


def _key(has_bands: bool) -> str:
    x, drawn = _LEFT, []
    for name, words in (("p50", "p50 latency"), ("p99", "p99 latency"), ("rate", "throughput")):
        drawn.append(
            f'<line class="{name}" x1="{number(x)}" x2="{number(x + 20)}" y1="14" y2="14"/>'
            f'<text class="key" x="{number(x + 26)}" y="18">{words}</text>'
        )
        x += 122
    if has_bands:
        drawn.append(
            f'<rect class="band" x="{number(x)}" y="8" width="20" height="12"/>'
            f'<text class="key" x="{number(x + 26)}" y="18">constrained sequence: mean to worst</text>'
        )
    return "".join(drawn)


def _alt_text(points: Sequence[Point], marks: Iterable[PlotMark]) -> str:
    if not points:
        return "Latency over time: no tuples yet"
    last = next((point for point in reversed(points) if not point.is_idle), points[-1])
    changes = "; ".join(words for _, words in said_of(list(marks), math.inf))
    figures = f"p50 {duration(last.p50_ms / 1_000)}, p99 {duration(last.p99_ms / 1_000)}, {last.rate:,.0f} tuples/s"
    summary = f"Latency over time; at the end {figures}"
    return f"{summary}; changes: {changes}" if changes else summary


def _is_finite(point: Point) -> bool:
    return math.isfinite(point.at_s) and (
        point.is_idle or all(map(math.isfinite, (point.p50_ms, point.p99_ms, point.rate)))
    )
