"""The handle of a change, which answers what users ask about it."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Protocol

from fries_nb.changes.canary_gates import CanaryStatus
from fries_nb.changes.change_effect import ChangeEffect
from fries_nb.changes.change_examples import Examples
from fries_nb.changes.change_replay import ChangeReplay
from fries_nb.controller.event_log import Timeline
from fries_nb.controller.events import Outcome
from fries_nb.controller.states import ChangeProgress
from fries_nb.dataflow.updates import Update, returning
from fries_nb.errors import PlanError
from fries_nb.planning.schedulers import Plan
from fries_nb.protocol.messages import EXAMPLES
from fries_nb.telemetry.metrics import Recorded

FunctionPairs = Mapping[str, tuple[Any, Any]]
"""Operator to the function that it ran before a change, and its new one."""


class ChangesOfRun(Protocol):
    """What the handle of a change asks about it; see the methods of ``Change``."""

    def cancel(self, change: str) -> None:
        """Cancel the change."""

    def step(self, change: str, share: float) -> Change:
        """Go on to another share."""

    def share(self, change: str) -> float:
        """The share of rows that are new."""

    def roll_back(self, scheduler: str = "fries", change: str = "") -> Change:
        """Undo the change."""

    def functions(self, change: str) -> FunctionPairs:
        """The functions before and after it."""

    def progress(self, change: str) -> ChangeProgress | None:
        """How far it is."""

    def story(self, change: str) -> Timeline:
        """What has happened to it."""

    def examples(self, change: Change, most: int, timeout: float) -> Examples:
        """What it makes of recent rows."""

    def effect(self, change: Change, window: float, timeout: float) -> ChangeEffect:
        """What it has altered."""

    def compare(self, change: Change, by: str | None, timeout: float) -> Any:
        """What both versions have done."""

    def sample(self, change: Change, timeout: float) -> Any:
        """Rows that both versions have made."""

    def canary(self, change: str) -> CanaryStatus | None:
        """How far a canary is."""

    def replay(self, change: Change, traced: bool) -> ChangeReplay:
        """Its steps."""

    def blocked_by(self, change: str) -> str | None:
        """What keeps it from being rolled back."""


class Change:
    """The handle of a requested change.

    Under guard, a change that is done is rolled back automatically if a changed operator fails, or an operator below
    one fails so that the run would end; the outcome is then ``rolled_back``, and ``error`` gives the reason. Keyed
    state that the new function has written is kept, unless the change transforms it: then ``Update(..., back=...)`` is
    applied to it. The guard ends early when a later change is decided whose marker passes an operator of this one.
    Under guard the state of each tuple's key is copied before the tuple is processed, which costs throughput.

    Attributes:
        id: the id of the change, unique in its run.
        plan: the scheduler's plan.
        updates: target to its new function and state transformation. Once later changes have replaced this one, the
            updates are read from disk, and omit those that another part of a merged change overrides.
        requested_s: time of the request, in seconds since the Unix epoch.
        guard: description of the failures that roll the change back, and for how long; empty without a guard.
        guard_end: why the guard has ended, as in "change 'u2' came after it"; empty without one, and until it has.
        constraint: the sequence of the latency constraint by whose policy it was requested; empty if by the user.
        undoes: id of the change that it rolls back; empty if it is no rollback.
        step_of: the share and the canary of which it is a further step, as in "25% of u3"; empty if it is none.
        compared: what ``compare`` has answered last, by the user or a gate; ``None`` if it was not called.
    """

    def __init__(
        self,
        change: str,
        plan: Plan,
        updates: Mapping[str, Update],
        plan_ms: float,
        *,
        run: ChangesOfRun,
        requested_s: float = 0.0,
        guard: str = "",
        constraint: str = "",
        undoes: str = "",
        step_of: str = "",
    ) -> None:
        self._run = run
        self.compared: Any = None
        self.id = change
        self.plan = plan
        self.updates: Mapping[str, Update] = dict(updates)
        self.requested_s = requested_s
        self.constraint = constraint
        self.undoes, self.step_of = undoes, step_of
        self._plan_ms = plan_ms
        self._outcome: Outcome | None = None
        self._over = threading.Event()
        self.guard = guard
        self.guard_end = ""
        self._guard_over = threading.Event()

    def __repr__(self) -> str:
        state = self._outcome.outcome if self._outcome else "under way"
        return f"Change({', '.join(sorted(self.plan.targets))} by {self.plan.scheduler}: {state})"

    @property
    def label(self) -> str:
        """The change's label in plots: its targets, the scheduler, and whether a constraint's policy requested it."""
        origin = ", by constraint" if self.constraint else ""
        return f"{', '.join(sorted(self.plan.targets))} by {self.plan.scheduler}{origin}"

    @property
    def origin(self) -> str:
        """What requested the change: ``user``, ``constraint FC -> FM``, ``rollback of u3`` or ``25% of u3``.

        A guard rolls its own change back, without another one: the outcome of that change is then ``rolled_back``.
        """
        parts = [f"constraint {self.constraint}"] if self.constraint else []
        parts += [f"rollback of {self.undoes}"] if self.undoes else []
        parts += [self.step_of] if self.step_of else []
        return ", ".join(parts) or "user"

    def functions(self) -> FunctionPairs:
        """The functions that the change replaces, and its new ones. Superseded functions are read from disk.

        Returns:
            Operator to the function that it ran when the change was begun, and the new one, whether or not it was
            installed. A change that was merged has the functions of all that it was merged with. Empty if it was
            withdrawn before it was begun.
        """
        return self._run.functions(self.id)

    def progress(self) -> ChangeProgress | None:
        """How far the change is: how many of its workers have prepared it, and how many have switched.

        Returns:
            The progress in the first region in which it has not ended; that of all changes with which it was merged.
            ``None`` if no controller has it: it waits for another change or for its region, or has ended.
        """
        return self._run.progress(self.id)

    def examples(self, n: int = EXAMPLES, *, timeout: float = 10.0) -> Examples:
        """What the change makes of recent rows, beside what is made of them without it: from its rehearsal.

        They are there a moment after the rehearsal, which does not wait for them, and also if the change is refused
        then. For a change that is only planned there is ``Run.examples``. A keyed function is given the state of one
        key on both sides, as it is after these rows; so values that depend on states are not those of the rows' own
        keys. Of a change of the shape the rows are those that the operators in front have made, and what added
        operators give is ``added``.

        Args:
            n: the number of rows at most that came to an operator; of a change that is made, 10 are kept.
            timeout: seconds to wait until it is rehearsed.

        Returns:
            The rows side by side: ``.table`` is a pandas DataFrame with the columns of the row that came, ``p
            (before)`` and ``p (after)`` for each column that is not merely passed on, ``_result`` (``same``,
            ``differs``, ``dropped``, ``added``, ``failed`` and so on), ``_differs`` (the columns that differ),
            ``_error``, ``_operator`` and ``_worker``. ``.words`` counts them. A notebook shows a table in which what
            differs is marked.

        Raises:
            PlanError: it has none, since it was not rehearsed or is an old one; or ``n`` is not a
                number from 1 to 50.
            RunError: the rehearsal took long, or a value cannot be shown here.
            TimeoutError: it has not been rehearsed in time, as one that waits for another change.
        """
        return self._run.examples(self, n, timeout)

    def effect(self, window: float = 10.0, *, timeout: float = 30.0) -> ChangeEffect:
        """What the change has altered so far, at each changed operator and at the sinks below: before and after.

        Rows a second, failures (dead letters) and selectivity (rows given for each that is taken) are of two windows of
        the same length: before the change began, and now. Columns are of the newest rows, at most 100 of each worker:
        those that operators gave before they switched and have given now, and those that sinks had taken when the
        change began, and now, where only rows count that were due after the switch. Waits until four seconds have
        passed since. Of a change of the shape, the operators are those that it changes or reroutes; what it adds has
        figures after it only, and a sink or source that it removes before it.

        Args:
            window: seconds of each window, at most 60; shorter if less was seen before or since.
            timeout: seconds to wait for the workers of each operator.

        Returns:
            The figures: ``.table`` is a pandas DataFrame with ``operator``, ``column``, ``measure``, ``before`` and
            ``after``; the measures of a column are ``nulls`` (a share of rows; NaN counts), ``mean``, ``p10``, ``p50``
            and ``p90`` of numbers, ``top values`` of others. ``.words`` says of which windows and how many rows.

        Raises:
            PlanError: it is under way, was not made, or nothing was seen when it began: that is kept of the last 16
                changes that were begun while rows flowed.
            RunError: the rows cannot be copied.
            TimeoutError: a worker has not answered in time.
        """
        return self._run.effect(self, window, timeout)

    def replay(self, traced: bool = True) -> ChangeReplay:
        """The change step by step, after its end: messages, switches, and the way of its marker.

        Args:
            traced: whether the trace is read, of a run that keeps one; for a long trace that takes seconds.

        Returns:
            The steps, in words and pictures; with ``audit=True`` also the operations in the trace before and after each
            switch, except for changes that were merged into a later one. A notebook shows pictures to step through.

        Raises:
            PlanError: it has not ended yet.
        """
        if not self.done:
            raise PlanError(f"change {self.id} is still under way; expected one that has ended; its result() waits")
        return self._run.replay(self, traced)

    def story(self) -> Timeline:
        """What has happened to the change so far: its request, what workers were told and answered, its decision.

        Returns:
            The entries that are left of it, of the last 1,000 of changes; shown as text with the time since the
            request, ``.entries`` are values.
        """
        return self._run.story(self.id)

    def blocked_by(self) -> str | None:
        """What keeps ``Run.rollback`` from undoing the change now.

        Returns:
            The reason in words, which names the later change and the operator if there is one; ``None`` if the change
            can be undone.
        """
        return self._run.blocked_by(self.id)

    @property
    def done(self) -> bool:
        """Whether the change has ended, with any outcome."""
        return self._over.is_set()

    @property
    def decided(self) -> bool:
        """Whether the change took effect, completely or, if the run failed meanwhile, partially."""
        return self._outcome is not None and self._outcome.outcome != "aborted"

    def cancel(self) -> None:
        """Cancel the change, for example while it waits for a loop to empty; returns at once.

        It is then ``aborted``, and nothing has changed, unless it was decided before: see ``result``. Changes that were
        merged with it are cancelled as well.
        """
        self._run.cancel(self.id)

    @property
    def share(self) -> float:
        """The share of rows that its new functions process: less than 1 in a canary, as last requested."""
        return self._run.share(self.id)

    @property
    def canary(self) -> CanaryStatus | None:
        """How far a canary is: its share, since when, the rows of both versions, and what its next step waits for.

        ``None`` if the change is no canary, was not made, or is one of a run that was resumed since.
        """
        return self._run.canary(self.id)

    def compare(self, by: str | None = None, *, timeout: float = 30.0) -> Any:
        """What both versions of a canary have done since it began, side by side.

        Rows, failures and times are counted; all else is of a sample of the rows that each version has made: at most
        1,000 at each worker, of which every source tuple has been one with the same chance. They are those that leave
        the chain which the operator is in, so also what unchanged operators in it have made of them. An operator that
        pauses on failures, as they do in notebooks unless told otherwise, is in a chain of its own. After its end a
        canary has the figures of its end, until another one begins, or the run restarts from a checkpoint.

        Args:
            by: a column of the sampled rows whose values divide them: a row of the table for each value and arm, of
                the sample only.
            timeout: seconds to wait for the workers of each operator.

        Returns:
            A pandas DataFrame with a row for each arm, ``old`` and ``new``: ``rows``, ``failures`` (dead letters),
            ``ms`` (the median for a row, at the operator and those chained behind it), ``p50_ms`` and ``p99_ms`` (from
            when rows were due until they left the last changed operator), and of each output column ``<column> nulls``
            (a share), ``mean``, ``p10``, ``p50`` and ``p90`` of numbers, ``top values`` of others; with ``<operator>:
            `` in front if rows of several were sampled. So ``arms.failures.new`` is a number.

        Raises:
            PlanError: it is no canary, or is not done, nothing is left of it, or ``by`` is no column of single values.
            RunError: the run has ended without it, or the rows cannot be copied.
            TimeoutError: a worker has not answered in time.
        """
        self.compared = found = self._run.compare(self, by, timeout)
        return found

    def sample(self, *, timeout: float = 30.0) -> Any:
        """The sampled rows of both versions, of which ``compare`` tells, for figures of one's own.

        Args:
            timeout: seconds to wait for the workers of each operator.

        Returns:
            A pandas DataFrame with the columns of the rows, and ``_arm`` (``old`` or ``new``), ``_operator`` (that has
            made the row) and ``_latency_ms``. A version of which most rows are has no more of them than the other one.

        Raises:
            PlanError, RunError, TimeoutError: see ``compare``.
        """
        return self._run.sample(self, timeout)

    def ramp(self, share: float) -> Change:
        """Let the new functions of a canary process a larger share of the rows; returns at once.

        Rows above the cut of this step are concerned, those of the same cohorts as before and further ones: none that
        would have been new by the share before is old now. All that a source tuple becomes is of one version.

        Args:
            share: the share of cohorts, above the present one; 1 promotes the canary, and 0 rolls it back.

        Returns:
            The handle of the step, which is a change of its own.

        Raises:
            PlanError: it is no canary, is not done, was promoted or rolled back, or the share is no such number.
            RunError: the run has ended.
        """
        return self.rollback() if share == 0 and self.share < 1 else self._run.step(self.id, share)

    def promote(self) -> Change:
        """Let the new functions of a canary process all rows from now on; see ``ramp``.

        Returns:
            The handle of the step.
        """
        return self._run.step(self.id, 1.0)

    def rollback(self) -> Change:
        """Undo the change; see ``Run.rollback``. In a canary the old functions process all later rows; see ``ramp``.

        Returns:
            The handle of the rollback.
        """
        return self._run.roll_back(change=self.id)

    def result(self, timeout: float | None = None) -> Outcome:
        """Wait until the change has ended.

        A guarded change that is done may still be rolled back, after which this returns another result; ``settled``
        waits for that as well.

        Args:
            timeout: seconds to wait; ``None`` waits indefinitely.

        Returns:
            The outcome, with times and the reason of a failure.

        Raises:
            TimeoutError: the change has not ended in time; it continues.
        """
        if not self._over.wait(timeout) or self._outcome is None:
            raise TimeoutError(f"change {self.id} of {', '.join(sorted(self.plan.targets))} is still under way")
        return self._outcome

    def settled(self, timeout: float | None = None) -> Outcome:
        """Wait until the change and its guard have ended; without a guard this is ``result``.

        Args:
            timeout: seconds to wait; ``None`` waits indefinitely.

        Returns:
            The final outcome.

        Raises:
            TimeoutError: the change or its guard has not ended in time; it continues.
        """
        if not self._guard_over.wait(timeout):
            raise TimeoutError(f"change {self.id} of {', '.join(sorted(self.plan.targets))} is not settled yet")
        return self.result(timeout)

    def ended_s(self, outcome: Outcome, heard_s: float) -> float:
        """The time at which the change ended, in seconds since the Unix epoch; called by the run.

        Args:
            outcome: how it ended.
            heard_s: when the driver received the outcome; used unless the change is done, in which case the result is
                the time of the last worker's switch.

        Returns:
            Seconds since the Unix epoch.
        """
        passed_ms = self._plan_ms + outcome.waited_ms + outcome.delay_ms
        return self.requested_s + passed_ms / 1000 if outcome.outcome == "done" else heard_s

    def _as_requested(self, outcome: Outcome) -> Outcome:
        """The outcome with the time of planning, and the guard.

        Planning time is part of the wait if tuples did not flow yet, and of the delay otherwise. Invariant: if the
        change is done, both add up to the time from the request to the last switch.
        """
        waited_ms = outcome.waited_ms + self._plan_ms if outcome.waited_ms else 0.0
        delay_ms = 0.0
        if outcome.outcome == "done":
            delay_ms = outcome.delay_ms + (0.0 if waited_ms else self._plan_ms)
        return replace(outcome, delay_ms=delay_ms, waited_ms=waited_ms, plan_ms=self._plan_ms, guard=self.guard)

    def resolve(self, outcome: Outcome) -> None:
        """Record the outcome and wake waiting threads; called by the run.

        Args:
            outcome: how the change ended.
        """
        self._outcome = self._as_requested(outcome)
        self._over.set()
        if not self.guard or outcome.outcome != "done":
            self._guard_over.set()

    def end_guard(self) -> None:
        """Record that the guard has ended; called by the run."""
        self._guard_over.set()


def undone(updates: Mapping[str, Update], before: Mapping[str, Any]) -> dict[str, Update]:
    """The updates that undo a change.

    Args:
        updates: the updates of the change; each that transforms state has an inverse, ``back``.
        before: target to the function that it ran before; for a window, with its windows.

    Returns:
        Target to its earlier function, with ``back`` as the state transformation.
    """
    return {
        name: returning(before[name], state=update.back, back=update.state if update.back else None)
        for name, update in updates.items()
    }


_RESULT = ("outcome", "delay_ms", "plan_ms", "prepare_ms", "commit_ms", "old_tuples", "error")


def all_recorded(changes: Iterable[Change]) -> Recorded[Change]:
    """Changes as a run records them; in the frame those under way have no result."""
    columns = dict.fromkeys(("change", "targets", "scheduler", "origin", *_RESULT))
    return Recorded(changes, columns, _rows_of)


def _rows_of(change: Change) -> list[dict[str, Any]]:
    plan = change.plan
    targets = ", ".join(sorted(plan.targets))
    row = {"change": change.id, "targets": targets, "scheduler": plan.scheduler, "origin": change.origin}
    if not change.done:
        return [row | {"outcome": "under way"}]
    result = change.result(0)
    return [row | {name: getattr(result, name) for name in _RESULT}]
