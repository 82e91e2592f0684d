"""The live plot of latency and throughput: Bokeh in a widget, updated from any thread.

Each update carries the whole window as one value, so a view that opens late, a reloaded page and a lost message all
converge to the same picture. BokehJS is sent from the installed wheel, once per kernel.
"""

from __future__ import annotations

import json
import math
import threading
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
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
    Scale,
    bands_of,
    finite_values,
    laid_out,
    latency_svg,
    names_of,
    outline,
    runs_of,
    thinned,
)
from fries_nb.report.markup import BLUE, GREEN, PURPLE, VERMILION
from fries_nb.telemetry.history import PlotMark, Point

WINDOW_S = 180.0
"""Length of the plotted window in seconds; longer if the last change was requested before."""
_BEFORE_S = 10.0  # shown before a request that is older than that
_MOST_POINTS, _MOST_OLDER = 400, 200
_LANES = 3
LABEL_WIDTHS = (180, 270, 380, 540, 760, 1100)
"""Widths of plots in pixels, axes apart, for which labels are laid out; the page takes the widest that fits."""
_MARGIN = 0.01  # of the window, at each end
_STEPS_MS = [round(step * 10.0**decade, 1) for decade in range(-1, 10) for step in (1, 2, 5)][:-2]
_LEAST_STEPS, _MOST_TICKS = 3, 10
_LEAST_MS = 0.1  # a logarithmic axis has no zero
_DASHES = {
    "request": "dashed", "done": "solid", "aborted": "dotted", "rolled_back": "dotted", "failed": "dotted",
    "recovery": "solid", "checkpoint": "dotted",
}  # fmt: skip
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
    """p50 and p99 latency in ms, throughput in tuples per second, and a line for each request and end of a change.

    Constrained sequences are bands from their mean to their worst latency, with a line at the limit.
    """

    _esm = (_HERE / "latency.js").read_text("utf8")
    _css = (_HERE / "latency.css").read_text("utf8")
    item = traitlets.Unicode().tag(sync=True)
    version = traitlets.Unicode(bokeh.__version__).tag(sync=True)
    loader = traitlets.Unicode().tag(sync=True)
    window = traitlets.Dict().tag(sync=True, to_json=as_json)

    def __init__(self) -> None:
        self._one_at_a_time = threading.Lock()
        self._points: Sequence[Point] = ()
        self._marks: Sequence[PlotMark] = ()
        self._judged: Sequence[ConstraintPoint] = ()
        self._began: float | None = None
        super().__init__(item=_item(), loader=_loader().model_id, window=window([], [], 0.0))
        # Without a width of its own it would shrink to nothing beside another widget.
        self.layout.flex = "1 1 320px"

    def show(self, points: Sequence[Point], marks: Sequence[PlotMark], judged: Sequence[ConstraintPoint] = ()) -> None:
        """Show the run so far; may be called from any thread."""
        with self._one_at_a_time:
            self._points, self._marks, self._judged = points, marks, judged
            if self._began is None:
                self._began = min(_times(points[:1], marks[:1]), default=None)
            self.window = window(points, marks, self._began or 0.0, judged)

    def __repr__(self) -> str:
        return f"LatencyPlot({len(self._points):,} points, {len(self._marks):,} marks)"

    def _repr_mimebundle_(self, **asked: Any) -> Any:
        """The widget and, for front ends without a kernel, a static picture of the whole run."""
        bundle = super()._repr_mimebundle_(**asked)
        data, metadata = bundle if isinstance(bundle, tuple) else (bundle or {}, {})
        picture = latency_svg(self._points, self._marks, bands_of(self._judged))
        still = {"image/svg+xml": picture, "text/plain": repr(self)}
        return {**data, **still}, metadata


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
        points, marks, judged = moment.run.history.latency, moment.run.history.marks, moment.run.history.constraints
        last_s = points[-1].at_s if points else 0.0
        step_s = 0.0 if moment.over or not points else min(WINDOW_S, last_s - points[0].at_s) / _MOST_POINTS
        others = (len(marks), judged[-1].at_s if judged else 0.0)
        if others != self._others or (last_s != self._shown_s and last_s - self._shown_s >= step_s):
            self._shown_s, self._others = last_s, others
            self.plot.show(points, marks, judged)


def window(
    points: Sequence[Point], marks: Sequence[PlotMark], began: float, judged: Sequence[ConstraintPoint] = ()
) -> dict[str, Any]:
    """The columns of the plot, in seconds since ``began``, its range, its latency axis, and its labels by width.

    The window is the last three minutes or, if that is more, all since the last request: the plot is where its outcome
    is read. What is older than three minutes is coarser.

    >>> shown = window([Point(5.0, 2.0, 9.0, 100.0)], [PlotMark(5.5, "u1", "request", "FM by fries")], began=4.0)
    >>> shown["points"], shown["labels"]["760"]["words"]
    ({'at': [1.0], 'p50': [2.0], 'p99': [9.0], 'rate': [100.0], 'dot': [4.0]}, ['FM by fries'])
    """
    end = max(_times(points[-1:], marks[-1:]), default=began)
    requested = next((mark.at_s for mark in reversed(marks) if mark.kind == "request"), end)
    since = min(end - WINDOW_S, requested - _BEFORE_S)
    middle = bisect_left(points, end - WINDOW_S, key=_at)
    older = thinned(points[bisect_left(points, since, key=_at) : middle], _MOST_OLDER)
    kept = older + thinned(points[middle:], _MOST_POINTS)
    recent = [mark for mark in marks if mark.at_s >= since]
    first = min(_times(kept[:1], recent[:1]), default=began)
    low, high = first - began, max(end, first + 1.0) - began
    margin = _MARGIN * (high - low)
    bands = bands_of(judged[bisect_left(judged, since, key=lambda point: point.at_s) :])
    shown = _columns_of_points(kept, began)
    known = [ms for ms in (*shown["p50"], *shown["p99"]) if ms is not None]
    ticks = ticks_ms([*known, *finite_values(bands)])
    return {
        "points": shown,
        "marks": {
            "at": [round(mark.at_s - began, 3) for mark in recent],
            "colour": [MARK_COLOURS[mark.kind] for mark in recent],
            "dash": [_DASHES[mark.kind] for mark in recent],
        },
        "labels": {
            str(width): _labels(recent, began, Scale.of_time(low - margin, high + margin, 0.0, float(width)))
            for width in LABEL_WIDTHS
        },
        "ticks": {"at": ticks},
        "across": {"at": [round(low - margin, 3), round(high + margin, 3)]},
        **_columns_of(bands, began, max(first - began, 0.0), ticks[-1]),
    }


def _labels(marks: Sequence[PlotMark], began: float, across: Scale) -> dict[str, list[Any]]:
    """The columns of the labels of a plot of this width."""
    labels = laid_out(marks, began, across, _LANES)
    return {
        "at": [round(label.at_s, 3) for label in labels],
        "lane": [label.lane for label in labels],
        "words": [label.words for label in labels],
        "align": ["right" if label.ends else "left" for label in labels],
        "offset": [-3 if label.ends else 3 for label in labels],
        "foot": [-0.4] * len(labels),
    }


def _at(point: Point) -> float:
    return point.at_s


def _columns_of_points(points: Sequence[Point], began: float) -> dict[str, list[float | None]]:
    """The columns of points; no latencies where nothing came out, and a dot for a point that stands alone."""
    alone = [len(piece) == 1 and not idle for idle, piece in runs_of(points) for _ in piece]
    rows = np.array([(point.at_s - began, point.p50_ms, point.p99_ms, point.rate) for point in points]).reshape(-1, 4)
    at, p50, p99, rate = rows.T
    return {
        "at": np.round(at, 3).tolist(),
        "p50": _latencies(p50),
        "p99": _latencies(p99),
        "rate": np.round(rate, 1).tolist(),
        "dot": [4.0 * ms for ms in alone],
    }


def _latencies(values: np.ndarray[Any, Any]) -> list[float | None]:
    """Latencies for a logarithmic axis; as JSON, which has no NaN."""
    return [None if math.isnan(ms) else ms for ms in np.round(np.maximum(values, _LEAST_MS), 3).tolist()]


def _columns_of(
    bands: Sequence[LatencyBand], began: float, first: float, top_ms: float
) -> dict[str, dict[str, list[Any]]]:
    """The columns of bands, their means and their limits; latencies are drawn at ``top_ms`` at most."""

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
            "at": [round(first, 3)] * len(bands),
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


def _times(points: Sequence[Point], marks: Sequence[PlotMark]) -> list[float]:
    return [point.at_s for point in points] + [mark.at_s for mark in marks]


@cache
def _item() -> str:
    """The figures without data, as JSON for BokehJS."""
    return json.dumps(json_item(_figures()))


def _figures() -> LayoutDOM:
    empty = window([], [], 0.0)
    empty["labels"] = empty["labels"][str(LABEL_WIDTHS[0])]
    sources = {name: ColumnDataSource(empty[name], name=name) for name in empty if name not in ("ticks", "across")}
    start, end = empty["across"]["at"]
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
    rate = _rate(sources["points"], across)
    for plot in (latency, rate):
        plot.vspan(x="at", source=sources["marks"], line_color="colour", line_dash="dash", line_width=1.8)
    return column([words, latency, rate], sizing_mode="stretch_width", spacing=0)


def _latency(sources: Mapping[str, ColumnDataSource], across: Range1d) -> figure:
    ticks = ticks_ms([])
    plot = _figure(across, 240, y_axis_type="log", y_range=Range1d(start=ticks[0], end=ticks[-1], name="latency"),
                   y_axis_label="latency, ms", toolbar_location="right",
                   tools="xpan,xbox_zoom,xwheel_zoom,reset", active_drag=None, active_scroll=None)  # fmt: skip
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
    told = [("second", "@at{0.0}"), ("p50", "@p50{0,0.0} ms"), ("p99", "@p99{0,0.0} ms"), ("rate", "@rate{0,0}/s")]
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


def _rate(points: ColumnDataSource, across: Range1d) -> figure:
    """The throughput as steps: a rate holds for the interval before its point."""
    plot = _figure(across, 130, y_axis_label="tuples/s", x_axis_label="seconds", toolbar_location=None, tools="")
    line = plot.step("at", "rate", source=points, mode="before", color=GREEN, line_width=2)
    plot.y_range = DataRange1d(start=0, renderers=[line], default_span=1.0)
    plot.yaxis.formatter = NumeralTickFormatter(format="0,0")
    plot.yaxis.ticker = BasicTicker(desired_num_ticks=4)
    return plot


def _figure(across: Range1d, height: int, **options: Any) -> figure:
    plot = figure(x_range=across, height=height, sizing_mode="stretch_width", min_border_left=72, **options)
    plot.update(background_fill_alpha=0, border_fill_alpha=0, outline_line_alpha=0, min_border_right=14)
    plot.axis.axis_label_text_font_style = "normal"
    plot.axis.minor_tick_line_alpha = 0
    return plot
