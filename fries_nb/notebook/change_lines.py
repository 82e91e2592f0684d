"""What the panel of changes says in words: a row for each change, and why a change has not taken effect yet."""

from __future__ import annotations

from collections.abc import Sequence

from fries_nb.changes import Change
from fries_nb.notebook.operator_panel import clock_time
from fries_nb.notebook.run_moment import RunMoment
from fries_nb.notebook.statuses import in_the_way, progress_text
from fries_nb.report.markup import milliseconds

COLUMNS = (
    "change", "operators", "scheduler", "requested", "outcome", "#delay", "#plan", "#prepare", "#commit", "by"
)  # fmt: skip


def change_row(change: Change) -> Sequence[str]:
    """The cells of a change's row, by ``COLUMNS``."""
    plan = change.plan
    head = (change.id, ", ".join(sorted(plan.targets)), plan.scheduler, clock_time(change.requested_s))
    if not change.done:
        return (*head, "under way", "", "", "", "", change.origin)
    result = change.result(0)
    parts = (result.plan_ms, result.prepare_ms, result.commit_ms)
    # A change that did not take effect has no delay.
    times = [milliseconds(one) if result.outcome == "done" else "" for one in (result.delay_ms, *parts)]
    return (*head, result.outcome.replace("_", " "), *times, change.origin)


def why_waits(moment: RunMoment, change: Change) -> str:
    """Why a change has not taken effect yet.

    Args:
        moment: the run.
        change: a change that is under way.

    Returns:
        The first reason that is known, in words.
    """
    run, targets = moment.run, sorted(change.plan.targets)
    if run.state != "running":
        return f"the run is {run.state}"
    if blocked := in_the_way(run, targets):
        return f"it waits, since {next(iter(blocked.values()))}"
    for loop in moment.loops:
        if loop.change == change.id:
            return f"it waits until the loop {loop.name} is empty: {loop.waiting:,} rows wait there, {loop.phase}"
    progress = run.change_progress(change)
    if progress is not None and progress.begun and (progress.prepared < progress.workers or moment.topology.is_idle):
        return progress_text(progress)
    for earlier in moment.changes:
        if earlier is change:
            break
        if not earlier.done:
            return f"it waits for change {earlier.id} of {', '.join(sorted(earlier.plan.targets))}, which is under way"
    if not moment.topology.is_idle:
        return "it waits for the rescale that is under way"
    if not any(one.processed for one in moment.last.operators.values()):
        return "it waits for the first tuples, on which it is rehearsed"
    return "it is about to be prepared"
