"""One change carried out by several schedulers, each in a separate run: what a cell shows of it, and the report."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from os import PathLike
from typing import Any

import pandas as pd

from fries_nb.audit import Verdict
from fries_nb.changes import ChangeResult
from fries_nb.controller.history import PlotMark, Point
from fries_nb.dataflow.graph import Graph
from fries_nb.durations import duration
from fries_nb.report.audit_section import verdict_parts
from fries_nb.report.change_replay import ChangeReplay
from fries_nb.report.change_rows import step_parts, time_parts
from fries_nb.report.latency import latency_svg
from fries_nb.report.markup import Column, Html, figure, joined, milliseconds, section, table, tag
from fries_nb.report.overlay import OverlaidCurve, overlay_svg
from fries_nb.report.page import JUDGE, Place, page, schedulers, terms, write_page
from fries_nb.report.plan_section import dag_parts
from fries_nb.scheduling import Plan

SETTLED_MS = 250.0
"""The p99 latency in milliseconds below which a surge counts as over."""
_COLUMNS = (
    Column("Scheduler"),
    Column("Delay", number=True),
    Column("of it commit", number=True),
    Column("Waiting before", number=True),
    Column("Old tuples", number=True),
    Column("p99 before", number=True),
    Column("p99 after", number=True),
    Column("Audit"),
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
    """One run: its row of the comparison, and the data behind it.

    Attributes:
        result: the result of the change; ``None`` if it is not kept.
        replay: the steps of the change; ``None`` if they are not kept.
    """

    row: ComparisonRow
    error: str
    points: Sequence[Point]
    marks: Sequence[PlotMark]
    verdict: Verdict
    result: ChangeResult | None = None
    replay: ChangeReplay | None = None


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
    trials = comparison.trials
    return tag("div", tag("p", in_short(trials)), _overlay(trials), _table(trials))


def _overlay(trials: Sequence[SchedulerTrial]) -> Html:
    curves = [OverlaidCurve.of(trial.row.scheduler, trial.points, trial.marks) for trial in trials]
    caption = "99th percentile of the end-to-end latency. The dashed line is the request, a dot the end of the change."
    return figure(overlay_svg(curves), caption)


def comparison_page(comparison: Comparison) -> str:
    """The report as an HTML document."""
    trials = comparison.trials
    names = tuple(trial.row.scheduler for trial in trials)
    return page(
        comparison.title,
        [
            tag("p", comparison.place.in_words(), class_="place"),
            tag("p", in_short(trials), class_="lead"),
            section("What was done", tag("p", comparison.setting), schedulers(names)),
            section("The schedulers side by side", _overlay(trials), _table(trials)),
            section("The dataflow and the change", dag_parts(comparison.graph, comparison.plan)),
            *_steps(trials),
            section("Latency before and after the change", *map(_latency, trials)),
            section("Audit", tag("p", JUDGE), *(_audit(comparison, trial) for trial in trials)),
        ],
    )


def _steps(trials: Sequence[SchedulerTrial]) -> Iterator[Html]:
    """The section on the steps of each change, if any are kept."""
    parts: list[Html] = []
    for trial in trials:
        if trial.result is not None and trial.replay is not None:
            parts += [tag("h3", _name(trial)), time_parts(trial.result), step_parts(trial.replay)]
    if parts:
        yield section("The change, step by step", *parts)


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


def _table(trials: Sequence[SchedulerTrial]) -> Html:
    rows = [_cells(trial.row) for trial in trials]
    caption = "One change, each time in a new run; times from the request on, p99 in windows of three seconds"
    errors = [tag("p", f"{_name(trial)}: {trial.error}", class_="bad") for trial in trials if trial.error]
    explained = terms(("delay", "commit", "waiting before", "old tuples", "p99"))
    return joined([table(caption, _COLUMNS, rows), *errors, explained])


def _cells(row: ComparisonRow) -> tuple[str, ...]:
    serializable = tag("span", "serializable", class_="good")
    audit = serializable if row.serializable else tag("span", f"{row.mixed:,} of {row.tuples:,} mixed", class_="bad")
    done = row.outcome == "done"
    return (
        row.scheduler.capitalize(),
        milliseconds(row.delay_ms) if done else row.outcome,
        milliseconds(row.commit_ms if done else None),
        f"{row.waiting:,}",
        f"{row.old_tuples:,}",
        milliseconds(row.p99_before_ms),
        milliseconds(row.p99_after_ms),
        audit,
    )


def _latency(trial: SchedulerTrial) -> Html:
    caption = f"{_name(trial)}: end-to-end latency at the sink; vertical lines show the change's request and its end."
    settled_s = settled_after_s(trial.points, trial.marks)
    if settled_s is not None:
        caption += f" The 99th percentile is below {SETTLED_MS:g} ms for good {duration(settled_s)} after the request."
    return joined([tag("h3", _name(trial)), figure(latency_svg(trial.points, trial.marks), caption)])


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


def _audit(comparison: Comparison, trial: SchedulerTrial) -> Html:
    labels = {mark.change: mark.label for mark in trial.marks}
    naive = dict.fromkeys(labels, comparison.plan.targets) if trial.row.scheduler == "naive" else {}
    return joined([tag("h3", _name(trial)), verdict_parts(trial.verdict, labels, comparison.graph, naive)])


def _name(trial: SchedulerTrial) -> str:
    return trial.row.scheduler.capitalize()


def _done(trial: SchedulerTrial) -> bool:
    return trial.row.outcome == "done"
