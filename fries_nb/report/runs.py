"""The report of one run, written by ``Run.report``.

Plans, verdicts and replays as a notebook shows them, in words and pictures; see ``fries_nb.displays``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import singledispatch
from os import PathLike

from fries_nb.changes import Change, ChangeResult
from fries_nb.constraints.judgements import ConstraintState, LatencyParts
from fries_nb.dataflow.graph import Graph
from fries_nb.errors import TraceError
from fries_nb.planning.counter_example import counter_example
from fries_nb.report.audit_section import cycle, example_lines, sentence, verdict_parts, verdict_svgs
from fries_nb.report.change_rows import change_parts, replay_frames
from fries_nb.report.constraint_bars import CAUSES, buffers_svg, bytes_text, constraint_svg, latency_text
from fries_nb.report.host_rows import FRONTIER_COLUMNS, LOOP_COLUMNS, before_now, frontier_row, hosts_svg, loop_row
from fries_nb.report.latency import bands_of, latency_svg
from fries_nb.report.markup import Column, Html, figure, joined, section, stacked, table, tag
from fries_nb.report.page import JUDGE, page, schedulers, setting_words, terms, write_page
from fries_nb.report.plan_section import dag_parts, in_words, plan_drawing, plan_parts
from fries_nb.running.change_replay import ChangeReplay
from fries_nb.running.results import DataflowPlan, RunVerdict, Story, naive_targets
from fries_nb.telemetry.metrics import MetricsSnapshot
from fries_nb.words import NONE, counted, milliseconds

_CHANGE_COLUMNS = (
    Column("Change"),
    Column("Operators"),
    Column("Scheduler"),
    Column("Requested by"),
    Column("Outcome"),
    Column("Delay", number=True),
    Column("Prepare", number=True),
    Column("Commit", number=True),
    Column("Old tuples", number=True),
)
_OPERATOR_COLUMNS = (
    Column("Operator"),
    Column("Kind"),
    Column("Workers", number=True),
    Column("Processed", number=True),
    Column("Rate", number=True),
    Column("Queued", number=True),
    Column("Queued bytes", number=True),
)
_ELEMENT_COLUMNS = (
    Column("Element"),
    *(Column(words.capitalize(), number=True) for words in CAUSES.values()),
    Column("Mean", number=True),
    Column("Worst", number=True),
    Column("Buffer size", number=True),
)
_BARS = (
    "Each bar begins where the one before it ends; the last one sums up the causes. The diamond marks the slowest "
    "sequence of workers."
)
_BUFFERS = (
    "Sizes of the output buffers between operators. A band spans the smallest and the largest of an edge; a line ends "
    "where its operators are chained, since no buffer is left between them."
)

_TIMES = "The least time of the rows that could still arrive, and what kept it from advancing, as last reported"
_LOOPS = (
    "Rounds that rows went, rows that came back to the head and waited there, bytes moved to disk, and attempts to end "
    "the loop, as last reported"
)

_BINS = "Hosts and their workers, and the owner of each of the 1,024 bins of the keys of a keyed operator."
_BEFORE = "The strips above are those before the first rescale, and after each one."


def run_page(story: Story) -> str:
    """The report as an HTML document."""
    last = story.changes[-1].plan if story.changes else None
    return page(
        f"Dataflow {story.graph.name}: a run",
        [
            tag("p", setting_words(story.place), class_="place"),
            _outcome(story),
            section("The dataflow", dag_parts(story.graph, last)),
            section("Latency", _latency(story)),
            section("Latency constraints", _constraints(story)),
            *_progress(story),
            *_hosts(story),
            section("Changes", _changes(story.changes, story.replays)),
            section("Operators", _operators(story.graph, story.snapshot)),
            section("Audit", _audit(story)),
        ],
    )


def write_run(path: str | PathLike[str], story: Story) -> str:
    """Write the report to a file and return its path.

    Raises:
        RunError: the file cannot be written.
    """
    return write_page(path, run_page(story))


def _outcome(story: Story) -> Html:
    total = story.snapshot.total
    numbers = (
        f" {counted(total.count, 'tuple')} reached the sinks; half of them within {milliseconds(total.p50_ms)}, "
        f"99 of 100 within {milliseconds(total.p99_ms)}."
        if total.count
        else " No tuple has reached a sink yet."
    )
    lead = tag("p", f"The run {_STATES.get(story.state, f'is {story.state}')}.{numbers}", class_="lead")
    failed = [tag("p", story.error, class_="bad"), *_traceback(story.details)] if story.error else []
    return joined([lead, *failed])


_STATES = {"finished": "has finished", "stopped": "was stopped", "failed": "has failed"}


def _latency(story: Story) -> Html:
    if not story.points:
        return tag("p", "No tuple has reached a sink yet, so there is nothing to draw.")
    drawing = latency_svg(story.points, story.marks, bands_of(story.judged))
    lines = "; vertical lines show when a change was requested and when it came to its end" if story.marks else ""
    bands = "; bands span mean and worst of constrained sequences, dashed lines are limits" if story.judged else ""
    return figure(drawing, f"End-to-end latency of the tuples that reached the sinks, over time{lines}{bands}.")


def _progress(story: Story) -> Iterator[Html]:
    """The sections on times and loops, where there are some."""
    columns = [Column(one.name.capitalize(), one.number) for one in FRONTIER_COLUMNS]
    if story.frontiers:
        yield section("Times", table(_TIMES, columns, map(frontier_row, story.frontiers)))
    columns = [Column(one.name.capitalize(), one.number) for one in LOOP_COLUMNS]
    if story.loops:
        yield section("Loops", table(_LOOPS, columns, map(loop_row, story.loops)))


def _hosts(story: Story) -> Iterator[Html]:
    """The section on hosts and the owners of bins."""
    if story.topology is not None:
        before = before_now(story.topologies)
        words = f"{_BINS} {_BEFORE}" if before else _BINS if story.topology.tables else "Hosts and their workers."
        yield section("Hosts", figure(hosts_svg(story.topology, {}, before), words))


def _constraints(story: Story) -> Html:
    if not story.constraints:
        return tag("p", "No latency constraint was declared.")
    return joined([*map(_constraint, story.constraints), *_buffers(story)])


def _buffers(story: Story) -> Iterator[Html]:
    if story.sizes and story.judged:
        drawing = buffers_svg(story.sizes, story.chains, story.judged[0].at_s, story.judged[-1].at_s)
        yield figure(drawing, _BUFFERS)


def _constraint(state: ConstraintState) -> Html:
    sequence = state.constraint.sequence
    if not state.elements:
        return figure(constraint_svg(state), f"{sequence} was not measured.")
    drawing = figure(constraint_svg(state), f"Mean latency of {sequence} over the window. {_BARS}")
    elements = [_element_row(state, parts) for parts in state.parts]
    rows = table(f"Latency of {sequence} in figures", _ELEMENT_COLUMNS, elements)
    return joined([drawing, tag("details", tag("summary", f"{sequence} in figures"), rows)])


def _element_row(state: ConstraintState, parts: LatencyParts) -> tuple[str, ...]:
    """The figures of an element; a cause that it cannot have is left empty."""
    causes = (parts.task_ms, parts.buffer_ms, parts.transport_ms)
    figures = [latency_text(value) if value else "" for value in causes]
    has_size = parts.element not in state.constraint.tasks and (parts.largest_bytes or parts.chain)
    size = bytes_text(parts.smallest_bytes, parts.largest_bytes) if has_size else ""
    return (parts.element, *figures, latency_text(parts.mean_ms), latency_text(parts.worst_ms), size)


def _changes(changes: Sequence[Change], replays: Sequence[ChangeReplay]) -> Html:
    if not changes:
        return tag("p", "Nothing was changed.")
    rows, failures = [], []
    for change in changes:
        result = change.result(timeout=0) if change.done else None
        rows.append(_change_row(change, result))
        if result is not None and result.error:
            why = tag("p", tag("b", f"{change.id} {result.outcome}: "), result.error, class_="bad")
            failures.append(joined([why, *_traceback(result.details)]))
    by_id = {change.id: change for change in changes}
    used = tuple(dict.fromkeys(change.plan.scheduler for change in changes))
    return joined([
        table("All changes of the run, in order of request", _CHANGE_COLUMNS, rows),
        *failures,
        *(change_parts(by_id[replay.change], replay, replay is replays[-1]) for replay in replays),
        terms(("delay", "prepare", "commit", "old tuples")),
        schedulers(used),
    ])  # fmt: skip


def _change_row(change: Change, result: ChangeResult | None) -> tuple[str, ...]:
    head = (change.id, ", ".join(sorted(change.plan.targets)), change.plan.scheduler, change.origin)
    if result is None:
        return (*head, "under way", NONE, NONE, NONE, NONE)
    if result.outcome != "done":
        return (*head, result.outcome, NONE, milliseconds(result.prepare_ms), NONE, NONE)
    times = map(milliseconds, (result.delay_ms, result.prepare_ms, result.commit_ms))
    return (*head, result.outcome, *times, f"{result.old_tuples:,}")


def _operators(graph: Graph, snapshot: MetricsSnapshot) -> Html:
    rows = []
    for name in graph.order:
        operator, seen = graph.by_name[name], snapshot.operators[name]
        queued = (f"{seen.queued:,}", f"{seen.queued_bytes / 1024:,.0f} KiB")
        kind = operator.kind.replace("_", " ")
        rows.append((name, kind, f"{operator.workers:,}", f"{seen.processed:,}", f"{seen.rate:,.0f}/s", *queued))
    return table(
        "Tuples taken in since the start, tuples a second lately, and what waits in front", _OPERATOR_COLUMNS, rows
    )


def _audit(story: Story) -> Html:
    if story.verdict is None:
        return tag("p", "This run kept no trace; start it with audit=True to have it judged.")
    if isinstance(story.verdict, TraceError):
        return tag("p", f"Not judged: {story.verdict}.")
    labels = {change.id: change.label for change in story.changes}
    return joined([tag("p", JUDGE), verdict_parts(story.verdict, labels, story.graph, naive_targets(story.changes))])


def _traceback(details: str) -> list[Html]:
    return [tag("details", tag("summary", "Traceback"), tag("pre", details))] if details else []


@singledispatch
def display(value: object) -> dict[str, str]:
    """What a notebook shows of a value that a run answers, by media type."""
    raise TypeError(f"nothing shows a {type(value).__name__}; expected a plan, a replay or a verdict")


@display.register
def _(plan: DataflowPlan) -> dict[str, str]:
    example = counter_example(plan.graph, plan.targets)
    steps = [] if example is None else example_lines(example)
    return {
        "text/plain": "\n".join([*in_words(plan.graph, plan), *steps]),
        "text/html": tag("div", plan_parts(plan.graph, plan)),
        "image/svg+xml": plan_drawing(plan.graph, plan),
    }


@display.register
def _(verdict: RunVerdict) -> dict[str, str]:
    words = [sentence(verdict), *([f"Cycle: {cycle(verdict)}"] if verdict.cycle else [])]
    parts = tag("div", verdict_parts(verdict, verdict.labels, verdict.graph, verdict.naive))
    bundle: dict[str, str] = {"text/plain": "\n".join(words), "text/html": parts}
    if verdict.cycle:
        drawings = verdict_svgs(verdict, verdict.labels, verdict.graph)
        bundle["image/svg+xml"] = stacked(*(drawing for drawing, _ in drawings))
    return bundle


@display.register
def _(replay: ChangeReplay) -> dict[str, str]:
    return {"text/plain": repr(replay), "text/html": tag("div", replay_frames(replay))}
