"""The output of ``%fries_status`` and of other magics that only query, and the status line of a run."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from urllib.parse import quote

from fries_nb.commands.audit import in_words
from fries_nb.constraints.judgements import ConstraintState
from fries_nb.controller.states import ChangeProgress, ChangeState
from fries_nb.controller.topology_status import TopologyStatus
from fries_nb.dataflow.constraints import LatencyConstraint
from fries_nb.dataflow.graph import Graph
from fries_nb.notebook.known import OVER, Registry
from fries_nb.notebook.options import shortened
from fries_nb.notebook.summaries import Summary, quoted
from fries_nb.protocol.messages import Paused
from fries_nb.report.constraint_bars import constraint_svg, latency_text
from fries_nb.report.host_rows import (
    FRONTIER_COLUMNS,
    LOOP_COLUMNS,
    before_now,
    frontier_row,
    hosts_svg,
    loop_row,
    phrase_of,
)
from fries_nb.report.markup import part
from fries_nb.run import Run
from fries_nb.running.results import RunVerdict
from fries_nb.telemetry.frontiers import LoopState, OperatorFrontier, TimeHolder, time_text
from fries_nb.telemetry.metrics import MetricsSnapshot
from fries_nb.telemetry.run_states import lag
from fries_nb.words import counted, milliseconds

_COLUMNS = ("dataflow", "state", "tuples/s", "p50", "p99", "changes")
_HOST_COLUMNS = ("host", "workers", "tuples/s")
LATE_S = 1.0
"""Seconds from which on it is told that a source is behind."""
_CONSTRAINT_COLUMNS = ("sequence", "status", "mean", "worst", "limit", "window", "on violation")


def of_all(known: Registry, ended: Sequence[str]) -> Summary:
    """The table of all dataflows, runs and starts, and lines on what was cleaned up."""
    runs = known.runs()
    rows = [_run_row(run) for run in runs]
    rows += [_start_row(start.flow, start.error) for start in known.starts()]
    taken = {row[0] for row in rows}
    rows += [(name, "declared", *[""] * 4) for name in known.flows() if name not in taken]
    errors = [f"{run.graph.name}: {why_failed(run, known.variable(run))}" for run in runs if run.error]
    errors += [f"{start.flow}: {start.error}" for start in known.starts() if start.error is not None]
    errors += [f"{run.graph.name}: {run.uncommitted.facts}" for run in runs if run.uncommitted is not None]
    lines = [*errors, *(f"{run.graph.name}: {line}" for run in runs for line in lags(run) + troubles(run)), *ended]
    if not rows:
        return Summary("\n".join(["no dataflow is declared or running", *lines]), "a cell %%fries_dataflow NAME")
    text = "\n".join([*_aligned([_COLUMNS, *rows], range(2, 5)), *lines])
    return Summary(text, _then(known), {"text/html": part("rows", _COLUMNS, rows, lines)})


def why_failed(run: Run, variable: str) -> str:
    """A run's error and, if user code raised it, where its traceback is."""
    return run.error + (f" (traceback: print({variable}.details))" if run.details else "")


def of_verdict(flow: str, verdict: RunVerdict) -> Summary:
    """The verdict on a run so far; with its pictures if it is negative."""
    rich = {} if verdict.serializable else verdict._repr_mimebundle_()
    return Summary(f"{flow!r} is {in_words(verdict)}".replace(" (all of them: --json)", ""), rich={
        kind: shown for kind, shown in rich.items() if kind != "text/plain"
    })  # fmt: skip


def of_report(flow: str, path: str) -> Summary:
    """The path of a report."""
    return Summary(f"report of {flow!r} written to {path}", rich={"text/html": part("link", flow, quote(path), path)})


def of_constraint(constraint: LatencyConstraint, flow: str, then: str) -> Summary:
    """The summary of a constraint that was declared, on a dataflow or, if ``flow`` is empty, on a run."""
    since = f"in each run of {flow!r} from now on" if flow else "in this run"
    return Summary(f"{constraint}, {since}; if it cannot be kept: {constraint.on_violation}", then)


def of_constraints(flow: str, states: Sequence[ConstraintState], then: str) -> Summary:
    """The table of all constraints of a dataflow, and drawings of those that were measured."""
    if not states:
        return Summary(f"{flow!r} has no latency constraints", "%fries_constrain OPERATOR OPERATOR --latency MS")
    rows = [_constraint_row(state) for state in states]
    reasons = [
        f"{state.constraint.sequence}: {'; '.join(filter(None, [state.reason, state.remedy]))}" for state in states
    ]
    drawings = "".join(map(constraint_svg, states))  # with the reasons
    rich = {"text/html": f"{part('rows', _CONSTRAINT_COLUMNS, rows, ())}{drawings}"}
    return Summary("\n".join([*_aligned([_CONSTRAINT_COLUMNS, *rows], range(2, 6)), *reasons]), then, rich)


def _constraint_row(state: ConstraintState) -> tuple[str, ...]:
    constraint = state.constraint
    latencies = (latency_text(state.mean_ms), latency_text(state.worst_ms), f"{constraint.latency_ms:,g} ms")
    window = f"{constraint.window_s:g} s"
    return (constraint.sequence, str(state.status), *latencies, window, str(constraint.on_violation))


def of_frontiers(graph: Graph, frontiers: Sequence[OperatorFrontier]) -> Summary:
    """The table of frontiers; there are none without times, or before the first row."""
    if not frontiers:
        timed = any(operator.time is not None for operator in graph.operators)
        why = "no row was read yet" if timed else "its sources have no time=<column>"
        return Summary(f"times of {graph.name!r} are not known: {why}", "%fries_status")
    last = next((frontier for frontier in reversed(frontiers) if frontier.holders), None)
    then = f"%fries_frontier {quoted(last.operator)}" if last is not None else ""
    return _table([column.name for column in FRONTIER_COLUMNS], [*map(frontier_row, frontiers)], (), then)


def of_holders(operator: str, holders: Sequence[TimeHolder], then: str) -> Summary:
    """What keeps an operator's frontier from advancing."""
    if not holders:
        return Summary(f"nothing can arrive at {operator} any more")
    columns = ("held back by", "on its way to", "count", "time", "rounds")
    rows = [
        (holder.operator, holder.to, f"{holder.count:,}", time_text(holder.time), ", ".join(map(str, holder.rounds)))
        for holder in holders
    ]
    return _table(columns, rows, (2,), then)


def of_loops(flow: str, loops: Sequence[LoopState], then: str) -> Summary:
    """The table of loops."""
    if not loops:
        return Summary(f"{flow!r} has no loops", "a stream's iterate(NAME, BODY) declares one")
    columns = [column.name for column in LOOP_COLUMNS]
    return _table(columns, [*map(loop_row, loops)], range(2, len(columns)), then)


def of_hosts(run: Run, then: str) -> Summary:
    """The table of a run's hosts and of the shares of bins, and their drawing."""
    status, rates = run.topology(), run.host_rates()
    rows = [_host_row(status, host, rates) for host in status.hosts_now]
    shares = [_bins_line(status, name) for name in status.tables]
    text = "\n".join([phrase_of(status), *_aligned([_HOST_COLUMNS, *rows], (2,)), *shares])
    rich = {"text/html": hosts_svg(status, rates, before_now(run.history.hosts))}
    return Summary(text, then, rich)


def _host_row(status: TopologyStatus, host: int, rates: Mapping[int, float]) -> tuple[str, ...]:
    placed = {name: hosts.count(host) for name, hosts in status.workers.items()}
    workers = ", ".join(f"{name} {count}" for name, count in placed.items() if count)
    return str(host), workers or "none yet", f"{rates.get(host, 0.0):,.0f}"


def _bins_line(status: TopologyStatus, operator: str) -> str:
    owned = [f"{len(bins)} at host {status.workers[operator][owner]}" for owner, bins in status.bins(operator).items()]
    return f"bins of {operator}: {', '.join(owned)}"


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]], right: Collection[int], then: str) -> Summary:
    text = "\n".join(_aligned([columns, *rows], right))
    return Summary(text, then, {"text/html": part("rows", columns, rows, ())})


def sink_rate(graph: Graph, snapshot: MetricsSnapshot) -> float:
    """Tuples per second that reach the sinks, as last measured."""
    sinks = [operator.name for operator in graph.operators if operator.traits.is_sink]
    return sum(snapshot.operators[name].rate for name in sinks if name in snapshot.operators)


def status_line(run: Run, snapshot: MetricsSnapshot) -> str:
    """The status of a run in one line."""
    facts = [f"{run.graph.name}: {run.state}"]
    if run.state not in OVER:
        facts.append(f"{sink_rate(run.graph, snapshot):,.0f} tuples/s")
    if run.state == "draining":
        facts.append(f"{sum(operator.queued for operator in snapshot.operators.values()):,} tuples wait")
    latency = snapshot.total if run.state in OVER else snapshot.latency
    if latency.count:
        facts.append(f"p50 {milliseconds(latency.p50_ms)}, p99 {milliseconds(latency.p99_ms)}")
    if run.changes:
        facts.append(f"changes: {changes_of(run)}")
    return " · ".join([*facts, *lags(run), *troubles(run), *_ends(run)])


def _ends(run: Run) -> list[str]:
    """Why a run has failed, and which tuples its output lacks."""
    return [run.error] * bool(run.error) + ([run.uncommitted.facts] if run.uncommitted is not None else [])


def lags(run: Run) -> list[str]:
    """The sources that are behind by ``LATE_S`` seconds or more, each with how far."""
    if run.state in OVER:
        return []
    return list(filter(None, (lag(state, LATE_S) for state in run.explain().sources)))


def troubles(run: Run) -> list[str]:
    """Conditions that block a run: hosts that are being restarted, and operators that are paused on a tuple."""
    if run.state in OVER:
        return []
    last = run.recoveries[-1:]
    lost = [f"hosts are started again: {recovery.reason}" for recovery in last if recovery.seconds is None]
    return lost + [_paused(name, paused) for name, paused in run.paused.items()]


def in_the_way(run: Run, change: Collection[str]) -> dict[str, str]:
    """The paused operators that block a change, with error and fix; none if it is itself the fix of one of them."""
    paused = run.paused
    mends = len(change) == 1 and set(change) <= set(paused)
    return {} if mends else {name: _paused(name, workers) for name, workers in paused.items()}


def _paused(operator: str, paused: Sequence[Paused]) -> str:
    why = shortened(paused[0].error.partition("\n")[0])
    return f"{operator} is paused: {why}; fix it alone, with %fries_reconfigure {quoted(operator)}=..."


def progress_text(progress: ChangeProgress) -> str:
    """How far a change that was begun is, in words.

    >>> progress_text(ChangeProgress(ChangeState.PREPARING, workers=8, prepared=3))
    'prepared 3 of 8 workers'
    >>> progress_text(ChangeProgress(ChangeState.COMMITTING, workers=8, prepared=8, switched=2))
    'its markers are on their way: 2 of 8 workers have switched'
    """
    workers = counted(progress.workers, "worker")
    if progress.state is ChangeState.COMMITTING:
        have = "has" if progress.workers == 1 else "have"
        return f"its markers are on their way: {progress.switched} of {workers} {have} switched"
    prepared = f"prepared {progress.prepared} of {workers}"
    if progress.rehearses:
        return f"{prepared}, and it is being rehearsed on recent tuples"
    return prepared if progress.prepared < progress.workers else f"{prepared}, and its markers are to leave next"


def changes_of(run: Run) -> str:
    """The number of changes by outcome, in words, and how far the one is that is being made."""
    ended = [change.result(0).outcome if change.done else "under way" for change in run.changes]
    kinds = ("done", "rolled_back", "aborted", "failed", "under way")
    counts = [f"{ended.count(kind)} {kind.replace('_', ' ')}" for kind in kinds if kind in ended]
    parts = [change.progress() for change in run.changes if not change.done]
    begun = [f" ({progress_text(progress)})" for progress in parts if progress is not None and progress.begun]
    return ", ".join(counts) + "".join(begun[:1])


def _run_row(run: Run) -> tuple[str, ...]:
    snapshot = run.metrics()
    rate = "" if run.state in OVER else f"{sink_rate(run.graph, snapshot):,.0f}"
    latency = snapshot.total if run.state in OVER else snapshot.latency
    quantiles = (milliseconds(latency.p50_ms), milliseconds(latency.p99_ms)) if latency.count else ("", "")
    return (run.graph.name, run.state, rate, *quantiles, changes_of(run))


def _start_row(flow: str, error: Exception | None) -> tuple[str, ...]:
    return (flow, "starting" if error is None else "failed", *[""] * 4)


def _then(known: Registry) -> str:
    live = known.live()
    if live:
        return f"%fries_reconfigure, %fries_plan, %fries_stop --of {quoted(live[-1].graph.name)}"
    return f"%fries_run {quoted(next(iter(known.flows()), 'NAME'))}"


def _aligned(rows: Sequence[Sequence[str]], right: Collection[int]) -> Iterable[str]:
    """A table, headings first, as lines of text; columns of the indices ``right`` are aligned to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = [
            cell.rjust(width) if place in right else cell.ljust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        yield "  ".join(cells).rstrip()
