"""A change as its requester sees it: under way, then come to its end one way or another."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fries_nb.controller.events import Outcome, WorkerOutcome
from fries_nb.dataflow.updates import Update
from fries_nb.errors import PlanError
from fries_nb.messages import WorkerId
from fries_nb.scheduling import Plan


@dataclass(frozen=True)
class ChangeResult:
    """How a change ended.

    Attributes:
        outcome: ``done``; ``aborted``, and nothing changed anywhere; ``failed`` after the decision; or ``rolled_back``:
            it was done, then its new configuration failed within its guard (``error``), and the old one runs again.
        error: one sentence, empty when done; ``details`` is the traceback from the user's frame on, if there is one.
        plan_ms: making the plan and pickling the functions.
        prepare_ms: shipping, ``open()``, dry run of the state transformation, rehearsal.
        commit_ms: first FCM sent to last target worker switched.
        delay_ms: request to last target worker switched; of a change requested before tuples flowed, counted from then.
        waited_ms: from the request until tuples flowed, 0 if they did.
        components: operators of each component of the covering.
        rehearsal: on what the change was rehearsed and how far that reached, or why it was not, in words.
        per_worker: for each target worker its delay and the tuples it still processed by the old function.
        guard: how the change is guarded, in words; empty if it is not.
    """

    change: str
    scheduler: str
    outcome: str
    error: str
    details: str
    plan_ms: float
    prepare_ms: float
    commit_ms: float
    delay_ms: float
    waited_ms: float
    components: tuple[tuple[str, ...], ...]
    per_worker: Mapping[WorkerId, WorkerOutcome] = field(repr=False)
    rehearsal: str = ""
    guard: str = ""

    @property
    def old_tuples(self) -> int:
        """Tuples that all targets together still processed by the old functions, after they were told to prepare."""
        return sum(worker.old_tuples for worker in self.per_worker.values())


class Change:
    """A change under way.

    One under guard may be rolled back by itself after it was done. Its outcome is then ``rolled_back``, and ``error``
    says why. A failure counts if a changed operator fails, or one below it that would end the run. Keyed state that the
    new function has written stays as it is, unless the change transforms it: then ``Update(..., back=...)`` brings it
    back. A guard ends before its time when a later change is decided whose marker passes an operator of this one. While
    it lasts the state of each tuple's key is copied beforehand, which costs throughput.

    Attributes:
        id: unique in its run.
        plan: what the scheduler made of it.
        updates: the new function of each target, and what becomes of its state; read from disk, and what others of a
            merged change have overridden left out, once later changes have replaced it.
        requested_s: when it was requested, seconds since the Unix epoch.
        guard: for how long failures of the new configuration roll it back, and which ones, in words; empty without one.
    """

    def __init__(
        self,
        change: str,
        plan: Plan,
        updates: Mapping[str, Update],
        plan_ms: float,
        requested_s: float = 0.0,
        guard: str = "",
    ) -> None:
        self.id = change
        self.plan = plan
        self.updates: Mapping[str, Update] = dict(updates)
        self.requested_s = requested_s
        self._plan_ms = plan_ms
        self._outcome: Outcome | None = None
        self._over = threading.Event()
        self.guard = guard
        self._guard_over = threading.Event()

    def __repr__(self) -> str:
        state = self._outcome.outcome if self._outcome else "under way"
        return f"Change({', '.join(sorted(self.plan.targets))} by {self.plan.scheduler}: {state})"

    @property
    def label(self) -> str:
        """What a plot calls it."""
        return f"{', '.join(sorted(self.plan.targets))} by {self.plan.scheduler}"

    @property
    def done(self) -> bool:
        """Whether it has come to its end, whichever."""
        return self._over.is_set()

    @property
    def decided(self) -> bool:
        """Whether it has changed something, wholly or (if the run failed meanwhile) in part."""
        return self._outcome is not None and self._outcome.outcome != "aborted"

    def result(self, timeout: float | None = None) -> ChangeResult:
        """Wait for its end.

        One that is done may still be rolled back by its guard; then the result is another one (see ``settled``).

        Args:
            timeout: seconds; ``None`` waits as long as it takes.

        Raises:
            TimeoutError: it is still under way; it goes on.
        """
        if not self._over.wait(timeout) or self._outcome is None:
            raise TimeoutError(f"change {self.id} of {', '.join(sorted(self.plan.targets))} is still under way")
        outcome = self._outcome
        return ChangeResult(
            outcome.change,
            outcome.scheduler,
            outcome.outcome,
            outcome.error,
            outcome.details,
            self._plan_ms,
            outcome.prepare_ms,
            outcome.commit_ms,
            *self._times_ms(outcome),
            outcome.components,
            outcome.per_worker,
            outcome.rehearsal,
            self.guard,
        )

    def settled(self, timeout: float | None = None) -> ChangeResult:
        """Wait for its end and, if it is under guard, for the end of that; without one this is ``result``.

        Raises:
            TimeoutError: its guard lasts, or it is still under way; it goes on.
        """
        if not self._guard_over.wait(timeout):
            raise TimeoutError(f"change {self.id} of {', '.join(sorted(self.plan.targets))} is not settled yet")
        return self.result(timeout)

    def ended_s(self, outcome: Outcome, heard_s: float) -> float:
        """When it came to this end: if done, when the last worker switched, and not when that was heard of."""
        passed_ms = self._plan_ms + outcome.waited_ms + outcome.delay_ms
        return self.requested_s + passed_ms / 1000 if outcome.outcome == "done" else heard_s

    def _times_ms(self, outcome: Outcome) -> tuple[float, float]:
        """Delay and wait; the making of the plan is part of the wait if tuples flowed only after it, or of the delay.

        Law: of a change that was done they add up to the time from its request to its last switch.
        """
        waited_ms = outcome.waited_ms + self._plan_ms if outcome.waited_ms else 0.0
        if outcome.outcome != "done":
            return 0.0, waited_ms
        return outcome.delay_ms + (0.0 if waited_ms else self._plan_ms), waited_ms

    def resolve(self, outcome: Outcome) -> None:
        """It has come to its end; called by the run."""
        self._outcome = outcome
        self._over.set()
        if not self.guard or outcome.outcome != "done":
            self._guard_over.set()

    def end_guard(self) -> None:
        """Nothing rolls it back any more but a request; called by the run."""
        self._guard_over.set()


def undone(change: str, updates: Mapping[str, Update], before: Mapping[str, Any]) -> dict[str, Update]:
    """The updates back: each target's function from ``before``, its state by the update's ``back``.

    Raises:
        PlanError: a target's state was transformed, and nobody has said how to transform it back.
    """
    for name, update in updates.items():
        if update.state is not None and update.back is None:
            raise PlanError(
                f"the state of {name} was transformed by change {change}, which says no way back; "
                "expected Update(..., state=..., back=...) there"
            )
    return {
        name: Update(before[name], state=update.back, back=update.state if update.back else None)
        for name, update in updates.items()
    }
