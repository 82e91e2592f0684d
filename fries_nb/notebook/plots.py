"""The live plot of latency, throughput and queues over the whole run: Bokeh in a widget, updated from any thread.

Each update carries the whole window as one value, and what is older another one, so a view that opens late, a reloaded
page and a lost message all converge to the same picture. BokehJS is sent from the installed wheel, once per kernel.
"""

from __future__ import annotations

import json
import math
import threading
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import anywidget
import bokeh
import numpy as np
import traitlets
from bokeh.embed import json_item
from bokeh.layouts import column
from bokeh.models import (
    AdaptiveTicker,
    BasicTicker,
    ColumnDataSource,
    DataRange1d,
    FixedTicker,
    HoverTool,
    LayoutDOM,
    NumeralTickFormatter,
    Range1d,
)
from bokeh.models.annotations import Legend, LegendItem
from bokeh.plotting import figure

from fries_nb.constraints.judgements import ConstraintPoint
from fries_nb.notebook.panels import RunMoment
from fries_nb.notebook.widgets import as_json
from fries_nb.report.latency import (
    MARK_COLOURS,
    LatencyBand,
    bands_of,
    finite_values,
    latency_svg,
    names_of,
    outline,
    runs_of,
    sayings,
    thinned,
)
from fries_nb.report.markup import BLUE, GREEN, ORANGE, PURPLE, VERMILION
from fries_nb.telemetry.history import PlotMark, Point, WaitingPoint, coarser

WINDOW_S = 180.0
"""Seconds that the plot shows, and follows; more if the last change was requested before."""
_BEFORE_S = 10.0  # shown before a request that is older than that
_MOST_POINTS, _MOST_CHECKPOINTS = 400, 200
_EVERY_S = 20.0  # from one turn at which older points become coarser to the next
SHARE = 1 / 100
"""Share of its age that a point older than the window spans at most: an hour has about 320 of them, a day 660."""
_LANES = 3
_MARGIN = 0.01  # of the window, at each end
_STEPS_MS = [round(step * 10.0**decade, 1) for decade in range(-1, 10) for step in (1, 2, 5)][:-2]
_LEAST_STEPS, _MOST_TICKS = 3, 10
_LEAST_MS = 0.1  # a logarithmic axis has no zero
_DASHES = {
    "request": "dashed", "done": "solid", "aborted": "dotted", "rolled_back": "dotted", "failed": "dotted",
    "recovery": "solid", "checkpoint": "dotted",
}  # fmt: skip
_LABELS = ("at", "lane", "words", "align", "offset", "foot")
_HERE = Path(__file__).parent


class _BokehJS(anywidget.AnyWidget):
    """Carries BokehJS to the browser."""

    _esm = "export default { render() {} }"
    code = traitlets.Unicode().tag(sync=True)


_loading = threading.Lock()
_loaders: list[_BokehJS] = []


def _loader() -> _BokehJS:
    """The kernel's BokehJS widget; created again if all widgets were closed."""
    with _loading:
        if not _loaders or _loaders[0].comm is None:
            script = Path(bokeh.__file__).parent / "server" / "static" / "js" / "bokeh.min.js"
            _loaders[:] = [_BokehJS(code=script.read_text("utf8"))]
        return _loaders[0]


class LatencyPlot(anywidget.AnyWidget):
    """p50 and p99 latency in ms, tuples per second, tuples that wait, and a line for each request and end of a change.

    Constrained sequences are bands from their mean to their worst latency, with a line at the limit. The page has the
    whole run, and shows the end of it until its reader zooms or pans; ``Follow`` goes back.
    """

    _esm = (_HERE / "latency.js").read_text("utf8")
    _css = (_HERE / "latency.css").read_text("utf8")
    item = traitlets.Unicode().tag(sync=True)
    version = traitlets.Unicode(bokeh.__version__).tag(sync=True)
    loader = traitlets.Unicode().tag(sync=True)
    # What is older is sent when it becomes coarser, and marks when there is another one: so what each update costs does
    # not grow with the run.
    window = traitlets.Dict().tag(sync=True, to_json=as_json)
    older = traitlets.Dict().tag(sync=True, to_json=as_json)
    marks = traitlets.Dict().tag(sync=True, to_json=as_json)

    def __init__(self) -> None:
        self._one_at_a_time = threading.Lock()
        self._shown, self._began = Course(), 0.0
        self._older_until = -math.inf
        sent = {"window": window(self._shown, 0.0), "older": older(Course(), 0.0), "marks": marks_of((), 0.0)}
        super().__init__(item=_item(), loader=_loader().model_id, **sent)
        # Without a width of its own it would shrink to nothing beside another widget.
        self.layout.flex = "1 1 320px"

    def show(self, run: Course) -> None:
        """Show the run so far; may be called from any thread."""
        with self._one_at_a_time, self.hold_sync():
            if not (self._shown.points or self._shown.marks):
                self._began = run.began
            if (until_s := _older_until(run)) != self._older_until:
                self._older_until, self.older = until_s, older(run, self._began)
            if run.marks != self._shown.marks:
                self.marks = marks_of(run.marks, self._began)
            self._shown, self.window = run, window(run, self._began, self.older)

    def __repr__(self) -> str:
        return f"LatencyPlot({len(self._shown.points):,} points, {len(self._shown.marks):,} marks)"

    def _repr_mimebundle_(self, **asked: Any) -> Any:
        """The widget and, for front ends without a kernel, a static picture of the whole run."""
        bundle = super()._repr_mimebundle_(**asked)
        data, metadata = bundle if isinstance(bundle, tuple) else (bundle or {}, {})
        picture = latency_svg(self._shown.points, self._shown.marks, bands_of(self._shown.judged))
        still = {"image/svg+xml": picture, "text/plain": repr(self)}
        return {**data, **still}, metadata


@dataclass(frozen=True)
class Course:
    """The course of a run, each part in order of time."""

    points: Sequence[Point] = ()
    marks: Sequence[PlotMark] = ()
    judged: Sequence[ConstraintPoint] = ()
    waiting: Sequence[WaitingPoint] = ()

    @property
    def began(self) -> float:
        """The first time, in seconds since the Unix epoch."""
        return min((part[0].at_s for part in (self.points, self.marks) if part), default=0.0)

    def end(self, began: float) -> float:
        """The last time; ``began`` without any."""
        return max((part[-1].at_s for part in (self.points, self.marks) if part), default=began)

    def since(self, at_s: float) -> Course:
        """What is not older."""
        return self._cut(lambda part: slice(_place(part, at_s), None))

    def before(self, at_s: float) -> Course:
        """What is older."""
        return self._cut(lambda part: slice(_place(part, at_s)))

    def _cut(self, of: Callable[[Sequence[Any]], slice]) -> Course:
        points, marks, judged, waiting = self.points, self.marks, self.judged, self.waiting
        return Course(points[of(points)], marks[of(marks)], judged[of(judged)], waiting[of(waiting)])


def _place(part: Sequence[Any], at_s: float) -> int:
    return bisect_left(part, at_s, key=lambda one: one.at_s)


class LatencyPanel:
    """Shows moments of a run in a plot, which is sent to the page only when there is something new to be seen.

    A plotted point stands for several measured ones once the window has more of them than the plot; fewer are waited
    for then.
    """

    def __init__(self) -> None:
        self.plot = LatencyPlot()
        self._shown_s = -math.inf
        self._others: tuple[int, float] | None = None

    def update(self, moment: RunMoment) -> None:
        """Show a moment of the run."""
        history = moment.run.history
        run = Course(history.latency, history.marks, history.constraints, history.waiting)
        last_s = max((part[-1].at_s for part in (run.points, run.waiting) if part), default=0.0)
        step_s = 0.0 if moment.over or not run.points else min(WINDOW_S, last_s - run.began) / _MOST_POINTS
        others = (len(run.marks), run.judged[-1].at_s if run.judged else 0.0)
        if others != self._others or (last_s != self._shown_s and last_s - self._shown_s >= step_s):
            self._shown_s, self._others = last_s, others
            self.plot.show(run)


def _older_until(run: Course) -> float:
    """The time up to which points are coarser; it goes on in steps."""
    return math.floor((run.end(0.0) - WINDOW_S) / _EVERY_S) * _EVERY_S


def older(run: Course, began: float) -> dict[str, Any]:
    """The columns of what is older than the window, in seconds since ``began``: the older, the coarser."""
    until_s = _older_until(run)
    past = run.before(until_s)
    few = coarser(past.points, run.end(began), SHARE)
    bands = bands_of(past.judged)
    return {
        "points": _columns_of_points(few, began, began),
        "queues": _columns_of_queues(past.waiting, began),
        **_columns_of(bands, began, _STEPS_MS[-1]),
        "finite": finite_values(bands),
    }


def window(run: Course, began: float, past: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The columns of the newest part of the plot, in seconds since ``began``, and the ranges and ticks of its axes.

    The range that follows the run is the last three minutes or, if that is more, all since the last request: the plot
    is where its outcome is read. ``past`` is what ``older`` gave.

    >>> shown = window(Course([Point(5.0, 2.0, 9.0, 100.0)]), began=4.0)
    >>> shown["points"]
    {'at': [1.0], 'p50': [2.0], 'p99': [9.0], 'rate': [100.0], 'dot': [4.0], 'span': [1.0]}
    """
    end = run.end(began)
    requested = next((mark.at_s for mark in reversed(run.marks) if mark.kind == "request"), end)
    since = min(end - WINDOW_S, requested - _BEFORE_S)
    first = run.began if run.points or run.marks else began
    low, high = max(since, first) - began, max(end, first + 1.0) - began
    middle = _place(run.points, _older_until(run))
    before = run.points[middle - 1].at_s if middle else began
    recent = run.since(_older_until(run))
    bands = bands_of(recent.judged)
    shown = _columns_of_points(thinned(recent.points, _MOST_POINTS), began, before)
    new = [*_known(shown, 0.0), *finite_values(bands)]
    ticks = ticks_ms([*new, *(_known(past["points"], low) if past else ())])
    whole = ticks_ms([*new, *(_known(past["points"], 0.0) + past["finite"] if past else ())])
    return {
        "points": shown,
        "queues": _columns_of_queues(recent.waiting, began),
        "ticks": {"at": ticks, "whole": whole},
        "across": {"at": _with_margin(low, high), "whole": _with_margin(first - began, high)},
        **_columns_of(bands, began, whole[-1]),
    }


def marks_of(marks: Sequence[PlotMark], began: float) -> dict[str, Any]:
    """The columns of the lines at marks, and what can be said at them; the page lays it out for the range it shows.

    Of checkpoints, which a run may take every second, the newest have lines.

    >>> marks = [PlotMark(5.5, "u1", "request", "FM by fries"), PlotMark(5.75, "u1", "done", "FM by fries")]
    >>> marks_of(marks, began=4.0)["said"]
    [[1.5, 'FM by fries', 1.75, '250 ms: FM by fries'], [1.75, '250 ms: FM by fries', 1.5, '']]
    """
    checkpoints = [mark for mark in marks if mark.kind == "checkpoint"]
    least_s = checkpoints[-_MOST_CHECKPOINTS].at_s if len(checkpoints) > _MOST_CHECKPOINTS else -math.inf
    lines = [mark for mark in marks if mark.kind != "checkpoint" or mark.at_s >= least_s]
    return {
        "lines": {
            "at": [round(mark.at_s - began, 3) for mark in lines],
            "colour": [MARK_COLOURS[mark.kind] for mark in lines],
            "dash": [_DASHES[mark.kind] for mark in lines],
        },
        "said": [
            [round(one.at_s - began, 3), one.words, one.partner_s and round(one.partner_s - began, 3), one.joined]
            for one in sayings(marks)
        ],
    }


def _with_margin(low: float, high: float) -> list[float]:
    margin = _MARGIN * (high - low)
    return [round(low - margin, 3), round(high + margin, 3)]


def _known(columns: Mapping[str, Sequence[Any]], low: float) -> list[float]:
    """The latencies of columns of points from a time on."""
    start = bisect_left(columns["at"], low)
    return [ms for ms in (*columns["p50"][start:], *columns["p99"][start:]) if ms is not None]


def _columns_of_queues(waiting: Sequence[WaitingPoint], began: float) -> dict[str, list[float]]:
    return {"at": [round(one.at_s - began, 3) for one in waiting], "queued": [float(one.queued) for one in waiting]}


def _columns_of_points(points: Sequence[Point], began: float, since_s: float) -> dict[str, list[float | None]]:
    """The columns of points, the first of which spans the time since then.

    There are no latencies where nothing came out, and a dot for a point that stands alone.
    """
    alone = [len(piece) == 1 and not idle for idle, piece in runs_of(points) for _ in piece]
    rows = np.array([(point.at_s - began, point.p50_ms, point.p99_ms, point.rate) for point in points]).reshape(-1, 4)
    at, p50, p99, rate = rows.T
    return {
        "at": np.round(at, 3).tolist(),
        "p50": _latencies(p50),
        "p99": _latencies(p99),
        "rate": np.round(rate, 1).tolist(),
        "dot": [4.0 * ms for ms in alone],
        "span": np.round(np.diff(at, prepend=since_s - began), 3).tolist(),
    }


def _latencies(values: np.ndarray[Any, Any]) -> list[float | None]:
    """Latencies for a logarithmic axis; as JSON, which has no NaN."""
    return [None if math.isnan(ms) else ms for ms in np.round(np.maximum(values, _LEAST_MS), 3).tolist()]


def _columns_of(bands: Sequence[LatencyBand], began: float, top_ms: float) -> dict[str, dict[str, list[Any]]]:
    """The columns of bands, their means and their limits; latencies are drawn at ``top_ms`` at most.

    The page puts the labels of limits at the beginning of what it shows.
    """

    def columns(lines: Sequence[Sequence[tuple[float, float]]]) -> dict[str, list[Any]]:
        return {
            "xs": [[round(at_s - began, 3) for at_s, _ in line] for line in lines],
            "ys": [[round(min(max(value, _LEAST_MS), top_ms), 3) for _, value in line] for line in lines],
        }

    pieces, names = [piece for band in bands for piece in band.pieces], names_of(bands)
    return {
        "bands": columns([outline(piece) for piece in pieces]),
        "means": columns([[(at_s, mean) for at_s, mean, _ in piece] for piece in pieces]),
        "limits": {
            "at": [0.0] * len(bands),
            "limit": [band.limit_ms for band in bands],
            "words": [band.label for band in bands],
        },
        "names": {
            "at": [round(at_s - began, 3) for at_s, _, _ in names],
            "mean": [round(min(max(mean, _LEAST_MS), top_ms), 3) for _, mean, _ in names],
            "words": [name for _, _, name in names],
        },
    }


def ticks_ms(values: Sequence[float]) -> list[float]:
    """Ticks of a logarithmic axis for these latencies in milliseconds. The axis spans the ticks, so it seldom changes.

    >>> ticks_ms([12.0, 49.0]), ticks_ms([21.0, 23.0]), ticks_ms([0.4, 9_000.0])
    ([5.0, 10.0, 20.0, 50.0], [10.0, 20.0, 50.0, 100.0], [0.1, 1.0, 10.0, 100.0, 1000.0, 10000.0])
    """
    least, top = max(min(values, default=1.0), _LEAST_MS), max(values, default=10.0)
    last = len(_STEPS_MS) - 1
    first = min(bisect_right(_STEPS_MS, least) - 1, last - _LEAST_STEPS)
    high = min(bisect_left(_STEPS_MS, top), last)
    if high - first < _LEAST_STEPS:
        first = max(first - 1, 0)
        high = first + _LEAST_STEPS
    if high - first < _MOST_TICKS:
        return _STEPS_MS[first : high + 1]
    return _STEPS_MS[first - first % 3 : high + -high % 3 + 1 : 3]  # decades only


@cache
def _item() -> str:
    """The figures without data, as JSON for BokehJS."""
    return json.dumps(json_item(_figures()))


def _figures() -> LayoutDOM:
    shown = window(Course(), 0.0)
    columns = {name: shown[name] for name in shown if name not in ("ticks", "across")}
    columns |= {"lines": marks_of((), 0.0)["lines"], "labels": {name: [] for name in _LABELS}}
    sources = {name: ColumnDataSource(one, name=name) for name, one in columns.items()}
    start, end = shown["across"]["at"]
    across = Range1d(start=start, end=end, name="across")
    words = _figure(across, 17 * _LANES, y_range=Range1d(start=-0.4, end=_LANES - 0.4), toolbar_location=None, tools="")
    words.update(min_border_top=0, min_border_bottom=0)  # or letters would be cut
    words.axis.visible = False
    words.grid.visible = False
    leads: dict[str, Any] = {"line_color": "#8a939e", "line_width": 1}
    words.segment("at", "foot", "at", "lane", source=sources["labels"], **leads)
    words.text("at", "lane", "words", source=sources["labels"], text_font_size="11px", text_baseline="middle",
              text_align="align", x_offset="offset")  # fmt: skip
    latency = _latency(sources, across)
    rate = _steps(sources["points"], "rate", across, 74, "tuples/s", GREEN)
    queues = _steps(sources["queues"], "queued", across, 104, "waiting", ORANGE)
    rate.xaxis.visible = False
    queues.xaxis.axis_label = "seconds"
    for plot in (latency, rate, queues):
        plot.vspan(x="at", source=sources["lines"], line_color="colour", line_dash="dash", line_width=1.8)
    return column([words, latency, rate, queues], sizing_mode="stretch_width", spacing=0)


def _latency(sources: Mapping[str, ColumnDataSource], across: Range1d) -> figure:
    ticks = ticks_ms([])
    plot = _figure(across, 176, y_axis_type="log", y_range=Range1d(start=ticks[0], end=ticks[-1], name="latency"),
                   y_axis_label="latency, ms", toolbar_location="right",
                   tools="xpan,xbox_zoom,xwheel_zoom,reset", active_drag="xbox_zoom", active_scroll=None)  # fmt: skip
    _draw_bands(plot, sources)
    points = sources["points"]
    p99 = plot.line("at", "p99", source=points, color=VERMILION, line_width=2, legend_label="p99")
    p50 = plot.line("at", "p50", source=points, color=BLUE, line_width=2, legend_label="p50")
    for line, colour in ((p99, VERMILION), (p50, BLUE)):
        plot.scatter("at", line.glyph.y, size="dot", source=points, color=colour, line_color=None)
    plot.yaxis.formatter = NumeralTickFormatter(format="0,0[.]0")
    plot.yaxis.ticker = FixedTicker(ticks=ticks, name="latency")  # Bokeh's own leaves one decade without any
    plot.xaxis.visible = False
    style: dict[str, Any] = {"text_font_size": "11px", "background_fill_alpha": 0.75, "padding": 1}
    plot.text("at", "limit", "words", source=sources["limits"], y_offset=-3, **style)
    plot.text("at", "mean", "words", source=sources["names"], text_align="right", x_offset=-3,
              text_baseline="top", y_offset=3, **style)  # fmt: skip
    told = [("time", "@at{0:00:00}"), ("p50", "@p50{0,0.0} ms"), ("p99", "@p99{0,0.0} ms"), ("rate", "@rate{0,0}/s"),
            ("in", "@span{0,0.0} s: mean p50, highest p99")]  # fmt: skip
    plot.add_tools(HoverTool(renderers=[p99], mode="vline", tooltips=told))
    plot.toolbar.logo = None
    plot.toolbar.autohide = True
    plot.legend.orientation = "horizontal"
    plot.add_layout(plot.legend[0], "above")
    plot.legend.update(margin=0, padding=0)
    plot.legend.background_fill_alpha = plot.legend.border_line_alpha = 0
    plot.legend.label_text_font_size = "11px"
    return plot


def _draw_bands(plot: figure, sources: Mapping[str, ColumnDataSource]) -> None:
    """Constrained sequences behind the latencies; their item of the legend is shown only if there are any."""
    bands: Any = plot.patches("xs", "ys", source=sources["bands"], color=PURPLE, fill_alpha=0.28, line_alpha=0.5)
    item = LegendItem(label="constrained: mean to worst", renderers=[bands], name="bands", visible=False)
    plot.add_layout(Legend(items=[item]))
    plot.multi_line("xs", "ys", source=sources["means"], color=PURPLE, line_width=1.8)
    plot.hspan(y="limit", source=sources["limits"], line_color=PURPLE, line_dash="dashed", line_width=2)


def _steps(source: ColumnDataSource, name: str, across: Range1d, height: int, label: str, colour: str) -> figure:
    """Steps: a value holds for the interval before its point. The axis fits what is in the range that is shown."""
    plot = _figure(across, height, y_axis_label=label, toolbar_location=None, tools="xbox_zoom", window_axis="x")
    line = plot.step("at", name, source=source, mode="before", color=colour, line_width=1.6)
    plot.y_range = DataRange1d(start=0, renderers=[line], default_span=1.0)
    plot.yaxis.formatter = NumeralTickFormatter(format="0,0")
    plot.yaxis.ticker = BasicTicker(desired_num_ticks=3)
    plot.xaxis.formatter = NumeralTickFormatter(format="0,0.[00]", name="time")
    return plot


def _figure(across: Range1d, height: int, **options: Any) -> figure:
    plot = figure(x_range=across, height=height, sizing_mode="stretch_width", min_border_left=72, **options)
    plot.update(background_fill_alpha=0, border_fill_alpha=0, outline_line_alpha=0, min_border_right=14)
    plot.axis.axis_label_text_font_style = "normal"
    plot.axis.minor_tick_line_alpha = 0
    plot.xaxis.ticker = AdaptiveTicker(base=60, mantissas=[1, 2, 5, 10, 15, 30])  # the lines of all grids are one
    return plot
