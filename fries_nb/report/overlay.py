"""The latency of several runs in one picture, aligned at the request of the same change.

Lines differ in colour and in dash, and each has its name in the legend. A dot shows where the change took effect.

>>> points = [Point(second, 4.0, 9.0 if second < 103 else 900.0, 2_000.0) for second in range(100, 110)]
>>> marks = [PlotMark(105.0, "u1", "request", "FM by fries"), PlotMark(105.5, "u1", "done", "FM by fries")]
>>> curve = OverlaidCurve.of("fries", points, marks)
>>> curve.points[0], curve.done_s
((-5.0, 9.0), 0.5)
>>> svg = overlay_svg([curve, OverlaidCurve("epoch", ((-5.0, 9.0), (4.0, 2_000.0)), None)])
>>> svg.count("<polyline"), svg.count("<circle"), "seconds from the request" in svg, "done after 500 ms" in svg
(2, 1, True, True)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from fries_nb.controller.history import PlotMark, Point
from fries_nb.durations import duration
from fries_nb.report import theme
from fries_nb.report.latency import grid, thinned, time_axis
from fries_nb.report.scales import Scale
from fries_nb.report.theme import BLUE, FONT, GREEN, GREY, ORANGE, PURPLE, SKY, VERMILION, escaped, number, themed

_LEFT, _RIGHT, _TOP, _UPPER, _BELOW = 64.0, 18.0, 52.0, 230.0, 42.0
_MOST_POINTS = 300
_KEY_WIDTH, _KEYS = 226.0, 3
_PENS = (
    (BLUE, SKY, ""), (VERMILION, "#ff8a3d", "7 3"), (GREEN, "#2fc79a", "2 3"), (PURPLE, PURPLE, "9 3 2 3"),
    (ORANGE, ORANGE, "4 4"), (GREY, GREY, "1 3"),
)  # fmt: skip
"""For each line its colour on light and on dark pages, and its dashes: as many as there are schedulers."""

_LIGHT = {
    ".paper": f"fill: {theme.PAPER}",
    "text": f"{FONT}; font-size: 11px; fill: {theme.SOFT}",
    ".axis, .key": f"font-size: 11.5px; fill: {theme.INK}",
    ".grid": f"stroke: {theme.LINE}; stroke-width: 1px",
    ".request": f"stroke: {theme.SOFT}; stroke-width: 1.4px; stroke-dasharray: 5 3",
    "polyline, .pen": "fill: none; stroke-width: 2px; stroke-linejoin: round",
    **{f".line{at}": f"stroke: {pen[0]}; stroke-dasharray: {pen[2] or 'none'}" for at, pen in enumerate(_PENS)},
    **{f"circle.line{at}": f"fill: {light}; stroke: {theme.PAPER}" for at, (light, _, _) in enumerate(_PENS)},
}
_DARK = {
    ".paper": f"fill: {theme.NIGHT_PAPER}",
    "text": f"fill: {theme.NIGHT_SOFT}",
    ".axis, .key": f"fill: {theme.NIGHT_INK}",
    ".grid": f"stroke: {theme.NIGHT_LINE}",
    **{f".line{at}": f"stroke: {dark}" for at, (_, dark, _) in enumerate(_PENS)},
    **{f"circle.line{at}": f"fill: {dark}; stroke: {theme.NIGHT_PAPER}" for at, (_, dark, _) in enumerate(_PENS)},
}
_CSS = themed(".fries-overlay-svg", _LIGHT, _DARK)


@dataclass(frozen=True)
class OverlaidCurve:
    """The 99th percentile of the latency of one run.

    Attributes:
        name: its name in the legend.
        points: seconds from the request, and milliseconds, which are NaN where nothing came out.
        done_s: seconds from the request until the change was done; ``None`` if it was not.
    """

    name: str
    points: tuple[tuple[float, float], ...]
    done_s: float | None

    @classmethod
    def of(cls, name: str, points: Sequence[Point], marks: Sequence[PlotMark]) -> OverlaidCurve:
        """The curve of a run's history around its first change."""
        requested = next((mark.at_s for mark in marks if mark.kind == "request"), points[0].at_s if points else 0.0)
        done = next((mark.at_s - requested for mark in marks if mark.kind == "done"), None)
        shown = thinned([point for point in points if not math.isinf(point.p99_ms)], _MOST_POINTS)
        return cls(name, tuple((point.at_s - requested, point.p99_ms) for point in shown), done)


def overlay_svg(curves: Sequence[OverlaidCurve], width: float = 760.0) -> str:
    """Draw the curves as an SVG element; the latency axis is logarithmic if the values span a wide range.

    Args:
        curves: the curves, at most six.
        width: width in pixels.
    """
    times = [at_s for curve in curves for at_s, _ in curve.points] + [0.0]
    across = Scale.of_time(min(times), max(times), _LEFT, width - _RIGHT)
    bottom = _TOP + _UPPER
    up = Scale.of([value for curve in curves for _, value in curve.points if not math.isnan(value)], bottom, _TOP)
    drawn = "".join(_curve(index, curve, across, up) for index, curve in enumerate(curves))
    key = "".join(_key(index, curve) for index, curve in enumerate(curves))
    zero = number(across.at(0.0))
    request = f'<line class="request" x1="{zero}" x2="{zero}" y1="{number(_TOP)}" y2="{number(bottom)}"/>'
    axes = grid(up, across, "p99 latency, ms", _TOP + _UPPER / 2) + time_axis(across, bottom, " from the request")
    spoken = f"p99 latency around the change; {'; '.join(map(_in_words, curves))}"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="fries-overlay-svg" viewBox="0 0 {number(width)} '
        f'{number(bottom + _BELOW)}" width="{number(width)}" height="{number(bottom + _BELOW)}" role="img" '
        f'aria-label="{escaped(spoken)}"><style>{_CSS}</style><rect class="paper" width="100%" height="100%" rx="6"/>'
        f"{key}{axes}{request}{drawn}</svg>"
    )


def _in_words(curve: OverlaidCurve) -> str:
    return f"{curve.name}: not done" if curve.done_s is None else f"{curve.name}: done after {duration(curve.done_s)}"


def _curve(index: int, curve: OverlaidCurve, across: Scale, up: Scale) -> str:
    line = ""
    for is_gap, piece in groupby(curve.points, lambda point: math.isnan(point[1])):
        if not is_gap:
            spots = " ".join(f"{number(across.at(at_s))},{number(up.at(value))}" for at_s, value in piece)
            line += f'<polyline class="line{index}" points="{spots}"/>'
    before = [value for at_s, value in curve.points if at_s <= (curve.done_s or 0.0) and not math.isnan(value)]
    if curve.done_s is None or not before:
        return line
    x, y = across.at(curve.done_s), up.at(before[-1])
    said = escaped(_in_words(curve))
    return f'{line}<g><title>{said}</title><circle class="line{index}" cx="{number(x)}" cy="{number(y)}" r="5"/></g>'


def _key(index: int, curve: OverlaidCurve) -> str:
    x, y = _LEFT + (index % _KEYS) * _KEY_WIDTH, 16 + 18 * (index // _KEYS)
    return (
        f'<line class="pen line{index}" x1="{number(x)}" x2="{number(x + 24)}" y1="{y}" y2="{y}"/>'
        f'<text class="key" x="{number(x + 30)}" y="{y + 4}">{escaped(_in_words(curve))}</text>'
    )
