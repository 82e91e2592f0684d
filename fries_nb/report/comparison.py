"""One change carried out by several schedulers, each in a separate run: what a cell shows of it, and the report.

The latency of several runs in one picture, aligned at the request of the same change.

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
from dataclasses import asdict, dataclass
from itertools import groupby
from os import PathLike
from typing import Any

import pandas as pd
from markupsafe import Markup

from fries_nb.audit import Verdict
from fries_nb.changes.change_replay import ChangeReplay
from fries_nb.controller.events import Outcome
from fries_nb.dataflow.graph import Graph
from fries_nb.planning.schedulers import Plan
from fries_nb.report import markup
from fries_nb.report.audit_section import verdict_parts
from fries_nb.report.change_rows import replay_frames, time_parts
from fries_nb.report.latency import Scale, grid, latency_svg, thinned, time_axis
from fries_nb.report.markup import TextColumn, escaped, number, part, rendered, setting_words, themed, write_page
from fries_nb.report.plan_section import dag_parts
from fries_nb.running.results import Place
from fries_nb.telemetry.history import PlotMark, Point
from fries_nb.words import duration, milliseconds

_WIDTH, _LEFT, _RIGHT, _TOP, _UPPER, _BELOW = 760.0, 64.0, 18.0, 52.0, 230.0, 42.0
_MOST_POINTS = 300
_KEY_WIDTH, _KEYS = 226.0, 3
_PENS = (
    (markup.BLUE, markup.SKY, ""), (markup.VERMILION, "#ff8a3d", "7 3"), (markup.GREEN, "#2fc79a", "2 3"),
    (markup.PURPLE, markup.PURPLE, "9 3 2 3"), (markup.ORANGE, markup.ORANGE, "4 4"), (markup.GREY, markup.GREY, "1 3"),
    (markup.INK, markup.NIGHT_INK, "12 3"),
)  # fmt: skip
"""For each line its colour on light and on dark pages, and its dashes: as many as there are schedulers."""

_LIGHT = {
    ".paper": f"fill: {markup.PAPER}",
    "text": f"{markup.FONT}; font-size: 11px; fill: {markup.SOFT}",
    ".axis, .key": f"font-size: 11.5px; fill: {markup.INK}",
    ".grid": f"stroke: {markup.LINE}; stroke-width: 1px",
    ".request": f"stroke: {markup.SOFT}; stroke-width: 1.4px; stroke-dasharray: 5 3",
    "polyline, .pen": "fill: none; stroke-width: 2px; stroke-linejoin: round",
    **{f".line{at}": f"stroke: {pen[0]}; stroke-dasharray: {pen[2] or 'none'}" for at, pen in enumerate(_PENS)},
    **{f"circle.line{at}": f"fill: {light}; stroke: {markup.PAPER}" for at, (light, _, _) in enumerate(_PENS)},
}
_DARK = {
    ".paper": f"fill: {markup.NIGHT_PAPER}",
    "text": f"fill: {markup.NIGHT_SOFT}",
    ".axis, .key": f"fill: {markup.NIGHT_INK}",
    ".grid": f"stroke: {markup.NIGHT_LINE}",
    **{f".line{at}": f"stroke: {dark}" for at, (_, dark, _) in enumerate(_PENS)},
    **{f"circle.line{at}": f"fill: {dark}; stroke: {markup.NIGHT_PAPER}" for at, (_, dark, _) in enumerate(_PENS)},
}
_CSS = themed(".fries-overlay-svg", _LIGHT, _DARK)


@dataclass(frozen=True)
class OverlaidCurve:
    """The 99th percentile of a run's latency, NaN where nothing came out, and when its change was done, if it was.

    Times are in seconds from the request, latencies in milliseconds.
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


def overlay_svg(curves: Sequence[OverlaidCurve]) -> str:
    """Draw at most six curves; the latency axis is logarithmic if the values span a wide range."""
    times = [at_s for curve in curves for at_s, _ in curve.points] + [0.0]
    across = Scale.of_time(min(times), max(times), _LEFT, _WIDTH - _RIGHT)
    bottom = _TOP + _UPPER
    up = Scale.of([value for curve in curves for _, value in curve.points if not math.isnan(value)], bottom, _TOP)
    drawn = "".join(_curve(index, curve, across, up) for index, curve in enumerate(curves))
    key = "".join(_key(index, curve) for index, curve in enumerate(curves))
    zero = number(across.at(0.0))
    request = f'<line class="request" x1="{zero}" x2="{zero}" y1="{number(_TOP)}" y2="{number(bottom)}"/>'
    axes = grid(up, across, "p99 latency, ms", _TOP + _UPPER / 2) + time_axis(across, bottom, " from the request")
    spoken = f"p99 latency around the change; {'; '.join(map(_in_words, curves))}"
    return markup.picture("overlay", (_WIDTH, bottom + _BELOW), spoken, _CSS, key, axes, request, drawn)


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
    label = escaped(_in_words(curve))
    return f'{line}<g><title>{label}</title><circle class="line{index}" cx="{number(x)}" cy="{number(y)}" r="5"/></g>'


def _key(index: int, curve: OverlaidCurve) -> str:
    x, y = _LEFT + (index % _KEYS) * _KEY_WIDTH, 16 + 18 * (index // _KEYS)
    return (
        f'<line class="pen line{index}" x1="{number(x)}" x2="{number(x + 24)}" y1="{y}" y2="{y}"/>'
        f'<text class="key" x="{number(x + 30)}" y="{y + 4}">{escaped(_in_words(curve))}</text>'
    )


SETTLED_MS = 250.0
"""The p99 latency in milliseconds below which a surge counts as over."""
_COLUMNS = (
    TextColumn("Scheduler"),
    *(TextColumn(name, number=True) for name in ("Delay", "of it commit", "Waiting before", "Old tuples")),
    *(TextColumn(name, number=True) for name in ("p99 before", "p99 after")),
    TextColumn("Audit"),
)


@dataclass(frozen=True)
class ComparisonRow:
    """The measurements of one scheduler. Times are in milliseconds.

    Attributes:
        delay_ms: from the request to the switch of the last worker; ``prepare_ms`` and ``commit_ms`` are parts of it.
        waiting: tuples queued in front of the operators that are changed, at the time of the request.
        old_tuples: tuples that the targets still processed with the old configuration after the change was prepared.
        p99_before_ms: 99th percentile of the end-to-end latency in the surge, before the change.
        p99_after_ms: the same after the change, once the queues are worked off or the waiting time is over.
        serializable: the audit's verdict on all tuples; ``mixed`` counts those that met both configurations.
        tuples: number of source tuples.
    """

    scheduler: str
    outcome: str
    delay_ms: float
    prepare_ms: float
    commit_ms: float
    waiting: int
    old_tuples: int
    p99_before_ms: float
    p99_after_ms: float
    serializable: bool
    mixed: int
    tuples: int


@dataclass(frozen=True)
class SchedulerTrial:
    """One run: its row of the comparison, and the data behind it."""

    row: ComparisonRow
    error: str
    points: Sequence[Point]
    marks: Sequence[PlotMark]
    verdict: Verdict
    result: Outcome | None = None  # the result of the change; ``None`` if it is not kept
    replay: ChangeReplay | None = None  # the steps of the change; ``None`` if they are not kept


@dataclass(frozen=True)
class Comparison:
    """One change of one dataflow under one load, by several schedulers.

    Attributes:
        setting: description of the dataflow, the load and the change.
        plan: the change's plan by the first scheduler.
    """

    title: str
    setting: str
    place: Place
    graph: Graph
    plan: Plan
    trials: Sequence[SchedulerTrial]

    def __repr__(self) -> str:
        return comparison_text(self.trials)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        return {"text/plain": repr(self), "text/html": comparison_html(self)}

    def to_pandas(self) -> pd.DataFrame:
        """A row for each scheduler with its measurements; see ``ComparisonRow``."""
        return pd.DataFrame([asdict(trial.row) for trial in self.trials])

    def report(self, path: str | PathLike[str]) -> str:
        """Write the comparison to an HTML page that needs no network; returns its absolute path.

        Raises:
            RunError: the page cannot be written.
        """
        return write_page(path, comparison_page(self))


def comparison_text(trials: Sequence[SchedulerTrial]) -> str:
    """The measurements as a table of text."""
    heads = f"{'delay':>12} {'of it commit':>13} {'old tuples':>11} {'p99 before':>11} {'p99 after':>10}  audit"
    lines = [f"{'scheduler':<12} {heads}"]
    for row in (trial.row for trial in trials):
        verdict = "serializable" if row.serializable else f"NOT serializable: {row.mixed:,} of {row.tuples:,} mixed"
        ended = verdict if row.outcome == "done" else f"{row.outcome}; {verdict}"
        lines.append(
            f"{row.scheduler:<12} {milliseconds(row.delay_ms):>12} {milliseconds(row.commit_ms):>13} "
            f"{row.old_tuples:>11,} {milliseconds(row.p99_before_ms):>11} {milliseconds(row.p99_after_ms):>10}  {ended}"
        )
    lines.append("old tuples: tuples that the changed operators still processed by the old configuration")
    return "\n".join(lines)


def comparison_html(comparison: Comparison) -> str:
    """The figure and the table, for the output of a cell."""
    return part("compared", in_short(comparison.trials), _side_by_side(comparison.trials))


def _side_by_side(trials: Sequence[SchedulerTrial]) -> Markup:
    curves = [OverlaidCurve.of(trial.row.scheduler, trial.points, trial.marks) for trial in trials]
    errors = [f"{_name(trial)}: {trial.error}" for trial in trials if trial.error]
    return part("side_by_side", overlay_svg(curves), _COLUMNS, [_cells(trial.row) for trial in trials], errors)


def comparison_page(comparison: Comparison) -> str:
    """The report as an HTML document."""
    trials = comparison.trials
    return rendered(
        "comparison.jinja",
        title=comparison.title,
        setting=setting_words(comparison.place),
        lead=in_short(trials),
        done=comparison.setting,
        schedulers=tuple(trial.row.scheduler for trial in trials),
        side_by_side=_side_by_side(trials),
        dataflow=dag_parts(comparison.graph, comparison.plan),
        steps=[
            (_name(trial), time_parts(trial.result), replay_frames(trial.replay))
            for trial in trials
            if trial.result is not None and trial.replay is not None
        ],
        latencies=[(_name(trial), latency_svg(trial.points, trial.marks), _latency(trial)) for trial in trials],
        verdicts=[(_name(trial), _audit(comparison, trial)) for trial in trials],
    )


def in_short(trials: Sequence[SchedulerTrial]) -> str:
    """The result in one or two sentences."""
    times = [f"{_name(trial)} took {milliseconds(trial.row.delay_ms)}" for trial in trials if _done(trial)]
    failed = [f"{_name(trial)} was {trial.row.outcome}" for trial in trials if not _done(trial)]
    mixed = [
        f"With {_name(trial)}, {trial.row.mixed:,} of {trial.row.tuples:,} source tuples met old and new at once."
        for trial in trials
        if not trial.row.serializable
    ]
    ending = " ".join(mixed) or "No source tuple met old and new at once."
    return f"The same change under the same load: {', '.join(times + failed)}. {ending}"


def _cells(row: ComparisonRow) -> tuple[str, ...]:
    done = row.outcome == "done"
    return (
        row.scheduler.capitalize(),
        milliseconds(row.delay_ms) if done else row.outcome,
        milliseconds(row.commit_ms if done else None),
        f"{row.waiting:,}",
        f"{row.old_tuples:,}",
        milliseconds(row.p99_before_ms),
        milliseconds(row.p99_after_ms),
        part("audit_cell", row),
    )


def _latency(trial: SchedulerTrial) -> str:
    """What the picture of a trial's latency shows."""
    caption = f"{_name(trial)}: end-to-end latency at the sink; vertical lines show the change's request and its end."
    settled_s = settled_after_s(trial.points, trial.marks)
    if settled_s is not None:
        caption += f" The 99th percentile is below {SETTLED_MS:g} ms for good {duration(settled_s)} after the request."
    return caption


def settled_after_s(points: Sequence[Point], marks: Sequence[PlotMark]) -> float | None:
    """Seconds from the request until p99 stayed below ``SETTLED_MS``; ``None`` if it did not by the end of the run.

    >>> points = [Point(at_s, 1.0, p99_ms, 9.0) for at_s, p99_ms in enumerate((1.0, 900.0, 40.0, 800.0, 9.0))]
    >>> settled_after_s(points, [PlotMark(1.5, "u1", "request", "FM by fries")])
    2.5
    """
    requested = [mark.at_s for mark in marks if mark.kind == "request"]
    later = [point for point in points if requested and point.at_s > requested[0] and not point.is_idle]
    if not later or later[-1].p99_ms >= SETTLED_MS:
        return None
    slow = [index for index, point in enumerate(later) if point.p99_ms >= SETTLED_MS]
    return later[slow[-1] + 1 if slow else 0].at_s - requested[0]


def _audit(comparison: Comparison, trial: SchedulerTrial) -> Markup:
    labels = {mark.change: mark.label for mark in trial.marks}
    naive = dict.fromkeys(labels, comparison.plan.targets) if trial.row.scheduler == "naive" else {}
    return verdict_parts(trial.verdict, labels, comparison.graph, naive)


def _name(trial: SchedulerTrial) -> str:
    return trial.row.scheduler.capitalize()


def _done(trial: SchedulerTrial) -> bool:
    return trial.row.outcome == "done"
