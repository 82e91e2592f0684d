"""How a change ended that several regions had a part in, and what operators run after those of an earlier run."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from fries_nb.checkpoints import CommittedChange
from fries_nb.controller.events import Outcome, WorkerOutcome
from fries_nb.dataflow.graph import Graph
from fries_nb.messages import WorkerId
from fries_nb.scheduling import Plan


def functions_of(decided: Iterable[CommittedChange]) -> dict[str, Any]:
    """What operators run after these changes, as far as they run what a change has shipped."""
    functions: dict[str, Any] = {}
    before: dict[str, dict[str, Any]] = {}
    for one in decided:
        before[one.change] = {name: functions.get(name) for name in one.payloads}
        functions |= {name: pickle.loads(payload).function for name, payload in one.payloads.items()}
        functions |= before.get(one.undoes, {})
    return {name: function for name, function in functions.items() if function is not None}


def at_start(graph: Graph, change: str, plan: Plan) -> Outcome:
    """How a change ended with which its region has begun: at once, at all workers of its targets."""
    workers = {
        WorkerId(name, index): WorkerOutcome(0.0)
        for name in sorted(plan.targets)
        for index in range(graph.operator(name).workers)
    }
    return Outcome(change, plan.scheduler, "done", per_worker=workers)


def combined(change: str, parts: list[Outcome]) -> Outcome:
    """How a change ended of which each region had a part: done if all are, aborted if nothing changed anywhere."""
    kinds = {part.outcome for part in parts}
    worst = min(kinds, key=("failed", "rolled_back", "aborted", "done").index)
    whole = next(part for part in parts if part.outcome == worst)
    error = whole.error
    if len(kinds) > 1 and whole.outcome == "aborted":
        done = ", ".join(sorted({str(worker.operator) for part in parts for worker in part.per_worker}))
        error = f"{whole.error} (but {done} changed, in another region)"
    per_worker: Mapping[WorkerId, WorkerOutcome] = {
        worker: outcome for part in parts for worker, outcome in part.per_worker.items()
    }
    return replace(
        whole,
        change=change,
        outcome=whole.outcome if len(kinds) == 1 else "failed",
        error=error,
        prepare_ms=sum(part.prepare_ms for part in parts),
        commit_ms=sum(part.commit_ms for part in parts),
        delay_ms=(delay_ms := max(part.delay_ms for part in parts)),
        waited_ms=max(part.waited_ms + part.delay_ms for part in parts) - delay_ms,
        components=tuple(component for part in parts for component in part.components),
        per_worker=dict(per_worker),
    )


def later(outcome: Outcome, waited_ms: float, delayed_ms: float) -> Outcome:
    """The outcome as timed from the request: first it waited for tuples to flow, then it was delayed by others."""
    if outcome.outcome != "done":
        return outcome
    workers = {worker: replace(one, delay_ms=one.delay_ms + delayed_ms) for worker, one in outcome.per_worker.items()}
    return replace(
        outcome,
        delay_ms=outcome.delay_ms + delayed_ms,
        waited_ms=outcome.waited_ms + waited_ms,
        per_worker=workers,
    )
