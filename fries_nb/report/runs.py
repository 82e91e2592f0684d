"""The report of one run, written by ``Run.report``.

Plans, verdicts and replays as a notebook shows them, in words and pictures; see ``fries_nb.displays``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import singledispatch

from markupsafe import Markup

from fries_nb.changes.change import Change
from fries_nb.changes.change_effect import ChangeEffect
from fries_nb.changes.change_examples import Examples
from fries_nb.changes.change_replay import ChangeReplay
from fries_nb.constraints.judgements import ConstraintState, LatencyParts
from fries_nb.controller.events import Outcome
from fries_nb.dataflow.graph import Graph
from fries_nb.errors import TraceError
from fries_nb.planning.counter_example import counter_example
from fries_nb.planning.difference import Difference
from fries_nb.report.audit_section import cycle, example_lines, sentence, verdict_parts, verdict_svgs
from fries_nb.report.change_rows import (
    effect_parts,
    example_parts,
    function_parts,
    replay_frames,
    rollout_parts,
    rollout_svgs,
    time_parts,
)
from fries_nb.report.constraint_bars import CAUSES, buffers_svg, bytes_text, constraint_svg, latency_text
from fries_nb.report.dag import dag_svg
from fries_nb.report.host_rows import (
    FRONTIER_COLUMNS,
    LOOP_COLUMNS,
    before_now,
    frontier_row,
    hosts_svg,
    loop_row,
    progress_svgs,
)
from fries_nb.report.latency import bands_of, latency_svg
from fries_nb.report.markup import TextColumn, inline, rendered, setting_words, stacked
from fries_nb.report.plan_section import (
    Shown,
    dag_parts,
    difference_parts,
    difference_svg,
    in_words,
    plan_drawing,
    plan_parts,
)
from fries_nb.run import Run
from fries_nb.running.results import DataflowPlan, RunVerdict, Story, naive_targets
from fries_nb.running.shadows import Shadow
from fries_nb.telemetry.metrics import MetricsSnapshot
from fries_nb.words import NONE, milliseconds


def _columns(names: Iterable[str], numbers: Iterable[str] = ()) -> tuple[TextColumn, ...]:
    """Columns of text, and of numbers to their right."""
    return (*(TextColumn(name) for name in names), *(TextColumn(name, number=True) for name in numbers))


_CHANGES = _columns(
    ("Change", "Operators", "Scheduler", "Requested by", "Outcome"), ("Delay", "Prepare", "Commit", "Old tuples")
)
_OPERATORS = _columns(("Operator", "Kind"), ("Workers", "Processed", "Rate", "Queued", "Queued bytes"))
_ELEMENTS = _columns(("Element",), (*(words.capitalize() for words in CAUSES.values()), "Mean", "Worst", "Buffer size"))
_FRONTIERS, _LOOPS = (
    [TextColumn(column.name.capitalize(), column.number) for column in columns]
    for columns in (FRONTIER_COLUMNS, LOOP_COLUMNS)
)
_STATES = {"finished": "has finished", "stopped": "was stopped", "failed": "has failed"}


def run_page(story: Story) -> str:
    """The report as an HTML document."""
    last = story.changes[-1].plan if story.changes else None
    return rendered(
        "run.jinja",
        title=f"Dataflow {story.graph.name}: a run",
        story=story,
        setting=setting_words(story.place),
        state=_STATES.get(story.state, f"is {story.state}"),
        total=story.snapshot.total,
        dataflow=dag_parts(story.graph, last),
        latency=latency_svg(story.points, story.marks, bands_of(story.judged)) if story.points else "",
        **_constraints(story),
        **_progress(story),
        **_changes(story.changes, story.replays, story.examples, story.shadows),
        operators=_operators(story.graph, story.snapshot),
        operator_columns=_OPERATORS,
        verdict=_audit(story),
    )


def _constraints(story: Story) -> dict[str, object]:
    """The constraints with their pictures and figures, and the buffers that were adapted for them."""
    found = [
        (state.constraint.sequence, constraint_svg(state), [_element_row(state, parts) for parts in state.parts])
        for state in story.constraints
    ]
    buffers = ""
    if story.sizes and story.judged:
        buffers = buffers_svg(story.sizes, story.chains, story.judged[0].at_s, story.judged[-1].at_s)
    return {"constraints": found, "element_columns": _ELEMENTS, "buffers": buffers}


def _progress(story: Story) -> dict[str, object]:
    """Times and loops, hosts and the owners of bins, where there are some."""
    before = before_now(story.topologies)
    return {
        "frontiers": [*map(frontier_row, story.frontiers)],
        "frontier_columns": _FRONTIERS,
        "loops": [*map(loop_row, story.loops)],
        "loop_columns": _LOOPS,
        "hosts": "" if story.topology is None else hosts_svg(story.topology, {}, before),
        "rescaled": bool(before),
    }


def _element_row(state: ConstraintState, parts: LatencyParts) -> tuple[str, ...]:
    """The figures of an element; a cause that it cannot have is left empty."""
    causes = (parts.task_ms, parts.buffer_ms, parts.transport_ms)
    figures = [latency_text(value) if value else "" for value in causes]
    has_size = parts.element not in state.constraint.tasks and (parts.largest_bytes or parts.chain)
    size = bytes_text(parts.smallest_bytes, parts.largest_bytes) if has_size else ""
    return (parts.element, *figures, latency_text(parts.mean_ms), latency_text(parts.worst_ms), size)


def _changes(
    changes: Sequence[Change], replays: Sequence[ChangeReplay], examples: Mapping[str, Examples],
    shadows: Sequence[Shadow],
) -> dict[str, object]:  # fmt: skip
    """A row for each change, what went wrong, and details of the newest that have ended."""
    results = [change.result(timeout=0) if change.done else None for change in changes]
    by_id = {change.id: change for change in changes}
    by_change = {shadow.change.id: shadow for shadow in shadows}
    return {
        "changes": [*map(_change_row, changes, results)],
        "change_columns": _CHANGES,
        "failures": [result for result in results if result is not None and result.error],
        "details": [
            _details(by_id[replay.change], replay, examples.get(replay.change), by_change.get(replay.change))
            for replay in replays
        ],
        "schedulers": tuple(dict.fromkeys(change.plan.scheduler for change in changes)),
    }


def _details(
    change: Change, replay: ChangeReplay, examples: Examples | None, shadow: Shadow | None
) -> tuple[Change, Markup, Markup, Markup, Markup]:  # fmt: skip
    """Where the time of a change went, how far it is rolled out, its functions, what they made of rows, its steps."""
    functions = function_parts(change, replay.graph.order)
    shown = Markup("") if examples is None else example_parts(examples)
    told = rollout_parts(change, shadow)
    return change, time_parts(change.result(0)), told + functions, shown, replay_frames(replay)


def _change_row(change: Change, result: Outcome | None) -> tuple[str, ...]:
    head = (change.id, ", ".join(sorted(change.plan.targets)), change.plan.scheduler, change.origin)
    if result is None:
        return (*head, "under way", NONE, NONE, NONE, NONE)
    if result.outcome != "done":
        return (*head, result.outcome, NONE, milliseconds(result.prepare_ms), NONE, NONE)
    times = map(milliseconds, (result.delay_ms, result.prepare_ms, result.commit_ms))
    return (*head, result.outcome, *times, f"{result.old_tuples:,}")


def _operators(graph: Graph, snapshot: MetricsSnapshot) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    for name in graph.order:
        operator, seen = graph.by_name[name], snapshot.operators[name]
        queued = (f"{seen.queued:,}", f"{seen.queued_bytes / 1024:,.0f} KiB")
        kind = operator.kind.replace("_", " ")
        rows.append((name, kind, f"{operator.workers:,}", f"{seen.processed:,}", f"{seen.rate:,.0f}/s", *queued))
    return rows


def _audit(story: Story) -> str:
    """The verdict, if there is one."""
    if story.verdict is None or isinstance(story.verdict, TraceError):
        return ""
    labels = {change.id: change.label for change in story.changes}
    return verdict_parts(story.verdict, labels, story.graph, naive_targets(story.changes))


def run_svg(run: Run) -> str:
    """The dataflow with the last change, latency, the last canary or shadow, progress, constraints, buffers, hosts."""
    loops = run.loops()
    rounds = {loop.name: loop.rounds for loop in loops}
    shown = last_change(run)
    states = shown.states if run.failed_at not in run.graph else {**shown.states, run.failed_at: "failed"}
    marked = shown.marked if shown.states else None
    dataflow = dag_svg(run.graph, states, titles=shown.titles, marked=marked, rounds=rounds)
    progress = progress_svgs(run.frontiers(), loops)
    latency = latency_svg(run.history.latency, run.history.marks, bands_of(run.history.constraints))
    sizes, judged = run.history.buffers, run.history.constraints
    buffers = [buffers_svg(sizes, run.history.chains, judged[0].at_s, judged[-1].at_s)] if sizes else []
    hosts = hosts_svg(run.topology(), {}, before_now(run.history.hosts))
    by_change = {shadow.change.id: shadow for shadow in run.shadows}
    told = [rollout_svgs(change, by_change.get(change.id)) for change in run.changes]
    rolled_out = next(filter(None, reversed(told)), [])
    return stacked(dataflow, latency, *rolled_out, *progress, *map(constraint_svg, run.constraints()), *buffers, hosts)


def last_change(run: Run) -> Shown:
    """The roles in the last change, if it is under way or done; one that had no effect is not shown."""
    if not run.changes:
        return Shown()
    last = run.changes[-1]
    outcome = last.result(0).outcome if last.done else ""
    return Shown() if outcome not in ("", "done") else Shown.of(run.graph, last.plan, done=bool(outcome))


@singledispatch
def display(value: object) -> dict[str, str]:
    """What a notebook shows of a value that a run answers, by media type."""
    raise TypeError(f"nothing shows a {type(value).__name__}; expected a plan, a difference, a replay or a verdict")


@display.register
def _(plan: DataflowPlan) -> dict[str, str]:
    example = counter_example(plan.graph, plan.targets)
    steps = [] if example is None else example_lines(example)
    return {
        "text/plain": "\n".join([*in_words(plan.graph, plan), *steps]),
        "text/html": f"<div>{plan_parts(plan.graph, plan)}</div>",
        "image/svg+xml": plan_drawing(plan.graph, plan),
    }


@display.register
def _(difference: Difference) -> dict[str, str]:
    words = {"text/plain": repr(difference), "text/html": f"<div>{difference_parts(difference)}</div>"}
    return words | {"image/svg+xml": difference_svg(difference)}


@display.register
def _(examples: Examples) -> dict[str, str]:
    return {"text/plain": repr(examples), "text/html": f"<div>{example_parts(examples)}</div>"}


@display.register
def _(effect: ChangeEffect) -> dict[str, str]:
    return {"text/plain": repr(effect), "text/html": f"<div>{effect_parts(effect)}</div>"}


@display.register
def _(verdict: RunVerdict) -> dict[str, str]:
    words = [sentence(verdict), *([f"Cycle: {cycle(verdict)}"] if verdict.cycle else [])]
    parts = f"<div>{verdict_parts(verdict, verdict.labels, verdict.graph, verdict.naive)}</div>"
    bundle: dict[str, str] = {"text/plain": "\n".join(words), "text/html": parts}
    if verdict.cycle:
        drawings = verdict_svgs(verdict, verdict.labels, verdict.graph)
        bundle["image/svg+xml"] = stacked(*(drawing for drawing, _ in drawings))
    return bundle


@display.register
def _(replay: ChangeReplay) -> dict[str, str]:
    return {"text/plain": repr(replay), "text/html": f"<div>{replay_frames(replay)}</div>"}


@display.register
def _(run: Run) -> dict[str, str]:
    """Where no extension shows it live: as it is now."""
    return {"text/plain": repr(run), "text/html": f"<div>{inline(run_svg(run))}</div>"}
