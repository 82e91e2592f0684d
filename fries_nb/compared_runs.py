"""Compare schedulers: the same dataflow, load and change by each of them, one run after another.

In each run rows first arrive at the declared rates, then at those of a *surge*, so that queues build up. In the middle
of the surge the change is requested; how long it takes, how many tuples the old functions still process, and whether
a tuple meets both configurations is what schedulers differ in.
"""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fries_nb.audit import Verdict
from fries_nb.controller.events import Outcome
from fries_nb.dataflow.endpoints import Memory
from fries_nb.dataflow.graph import Graph, check_runnable
from fries_nb.dataflow.updates import as_updates, check_updates
from fries_nb.displays import progress_of
from fries_nb.errors import DataflowError, RunError, unknown
from fries_nb.planning.schedulers import SCHEDULERS, schedule
from fries_nb.report.comparison import SETTLED_MS, Comparison, ComparisonRow, SchedulerTrial
from fries_nb.run import BUFFER_BUDGET_BYTES, Dataflow, Run
from fries_nb.running.results import Place
from fries_nb.telemetry.metrics import MetricsSnapshot
from fries_nb.words import duration

PATIENCE_S = 120.0
"""Seconds to wait for a change and for the hosts of a run."""
LOOK_S = 0.1


@dataclass(frozen=True)
class SurgeLoad:
    """The load of each run.

    Attributes:
        surge: source to rows per second in the surge; sources that are not named keep their rate.
        after: the same from the request on; those of the surge go on if it is empty.
        calm_s, surge_s: seconds at the declared rates, and in the surge before the request.
        settle_s: seconds to wait at most, after the change, until the latency has settled.
    """

    surge: Mapping[str, float]
    after: Mapping[str, float]
    calm_s: float
    surge_s: float
    settle_s: float


def compare(
    flow: Dataflow,
    change: Mapping[str, Any],
    schedulers: Sequence[str] = ("fries", "epoch", "naive"),
    *,
    surge: Mapping[str, float],
    after: Mapping[str, float] | None = None,
    calm_s: float = 2.0,
    surge_s: float = 3.0,
    settle_s: float = 20.0,
    hosts: int = 2,
    workers: int = 2,
    chaining: bool = True,
    buffer_budget_bytes: int = BUFFER_BUDGET_BYTES,
    spark: Any = None,
    say: Callable[[str], object] = lambda text: None,
) -> Comparison:
    """Run a dataflow once for each scheduler, and make the same change in the middle of the same surge.

    Args:
        flow: the dataflow. Its sinks must be ``fn.memory()``, since each run writes its output anew.
        change: operator to new function, as for ``run.reconfigure``.
        schedulers: names of schedulers, each once.
        surge: source to rows per second in the surge.
        after: source to rows per second from the request on; by default the surge goes on.
        calm_s: seconds at the declared rates.
        surge_s: seconds in the surge before the change is requested.
        settle_s: seconds to wait at most, after the change, until p99 is below 250 ms.
        hosts: see ``Dataflow.run``.
        workers: see ``Dataflow.run``.
        chaining: see ``Dataflow.run``.
        buffer_budget_bytes: see ``Dataflow.run``; a large one lets long queues build up.
        spark: see ``Dataflow.run``.
        say: called with a line of progress for each step.

    Returns:
        The comparison: a figure and a table in a notebook; ``to_pandas()`` and ``report(path)`` give it as a DataFrame
        and as a page.

    Raises:
        DataflowError: a sink writes elsewhere, or a source or a scheduler is unknown.
        PlanError: the change is not one of this dataflow, or a scheduler cannot make it.
        RunError: a run has failed; see ``Dataflow.run`` for what is raised if it cannot be started.
    """
    graph = flow.graph(workers)
    load = SurgeLoad(surge, after or {}, calm_s, surge_s, settle_s)
    _check(graph, schedulers, load)
    updates = as_updates(change)
    check_updates(graph, updates)
    plans = [schedule(name, graph, updates) for name in schedulers]
    place = Place(time.time(), hosts, buffer_budget_bytes)
    trials = []
    with progress_of(f"comparing {', '.join(schedulers)} in {graph.name!r}") as show:
        for name in schedulers:
            show(f"[{name}] starting")
            with tempfile.TemporaryDirectory(prefix="fries-compare-") as directory:
                run = flow.run(
                    spark, hosts, workers, audit=True, chaining=chaining, buffer_budget_bytes=buffer_budget_bytes,
                    checkpoint=directory if name == "restart" else "",
                )  # fmt: skip
                trials.append(_trial(run, change, name, load, lambda text: (show(text), say(text))))
    title = f"{graph.name}: one change under load, by {len(trials)} schedulers"
    return Comparison(title, _setting(graph, change, load), place, graph, plans[0], trials)


def _check(graph: Graph, schedulers: Sequence[str], load: SurgeLoad) -> None:
    check_runnable(graph)
    for name in schedulers:
        if name not in SCHEDULERS:
            raise DataflowError(unknown("scheduler", name, SCHEDULERS))
    if not schedulers or len({*schedulers}) < len(schedulers):
        raise DataflowError(f"schedulers {list(schedulers)}; expected one or more names, each once")
    for source in (*load.surge, *load.after):
        if source not in graph.sources:
            raise DataflowError(unknown("source", source, graph.sources))
    for name in graph.sinks:
        if not isinstance(graph.operator(name).function, Memory):
            raise DataflowError(
                f"sink {name!r} is written by each of the runs that are compared; expected fn.memory() in its place"
            )


def _setting(graph: Graph, change: Mapping[str, Any], load: SurgeLoad) -> str:
    """The dataflow, the load and the change in words."""
    rates = ", ".join(f"{rate:,.0f} rows a second from {name}" for name, rate in load.surge.items())
    later = ", ".join(f"{rate:,.0f} from {name}" for name, rate in load.after.items())
    return (
        f"The dataflow {graph.name} runs at its declared rates for {load.calm_s:g} s, then with {rates or 'no surge'}. "
        f"{load.surge_s:g} s later {', '.join(change)} are replaced in one change"
        f"{f', and the rates fall to {later}' if later else ''}. Each scheduler was measured once, in a run of its own."
    )


def _trial(
    run: Run, change: Mapping[str, Any], scheduler: str, load: SurgeLoad, say: Callable[[str], object]
) -> SchedulerTrial:
    """Change a run in the middle of a surge, and stop it."""
    try:
        run.wait_flowing(PATIENCE_S)
        _let_pass(load.calm_s)
        _set_rates(run, load.surge)
        _let_pass(load.surge_s)
        before = run.metrics()
        say(f"[{scheduler}] surge: {_waiting(before, change):,} tuples wait in front of {', '.join(change)}; changing")
        requested = run.reconfigure(change, scheduler=scheduler)
        _set_rates(run, load.after)
        result = requested.result(PATIENCE_S)
        _until_settled(run, load.settle_s)
        after = run.metrics()
    finally:
        run.cancel()
    if run.state == "failed":
        raise RunError(f"the run by {scheduler} has failed: {run.error}")
    verdict = run.audit()
    ended = f": {result.error}" if result.error else f" after {duration(result.delay_ms / 1_000)}"
    say(f"[{scheduler}] {result.outcome}{ended}; {len(verdict.mixed):,} source tuples met both configurations")
    row = _row(result, _waiting(before, change), before, after, verdict)
    steps = requested.replay()
    return SchedulerTrial(row, result.error, run.history.latency, run.history.marks, verdict, result, steps)


def _row(
    result: Outcome, waiting: int, before: MetricsSnapshot, after: MetricsSnapshot, verdict: Verdict
) -> ComparisonRow:
    return ComparisonRow(
        scheduler=result.scheduler,
        outcome=result.outcome,
        delay_ms=round(result.delay_ms, 1),
        prepare_ms=round(result.prepare_ms, 1),
        commit_ms=round(result.commit_ms, 1),
        waiting=waiting,
        old_tuples=result.old_tuples,
        p99_before_ms=round(before.latency.p99_ms, 1),
        p99_after_ms=round(after.latency.p99_ms, 1),
        serializable=verdict.serializable,
        mixed=len(verdict.mixed),
        tuples=verdict.transactions,
    )


def _waiting(metrics: MetricsSnapshot, operators: Mapping[str, Any]) -> int:
    return sum(metrics.operators[name].queued for name in operators)


def _set_rates(run: Run, rates: Mapping[str, float]) -> None:
    for source, rate in rates.items():
        run.set_rate(source, rate)


def _until_settled(run: Run, settle_s: float) -> None:
    """Wait until the queues of the surge are worked off, or the run is over."""
    until_s = time.monotonic() + settle_s
    while run.state == "running" and run.metrics().latency.p99_ms > SETTLED_MS and time.monotonic() < until_s:
        _let_pass(LOOK_S)


def _let_pass(seconds: float) -> None:
    """Wait; an interrupt ends the comparison."""
    threading.Event().wait(seconds)
