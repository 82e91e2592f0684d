"""The consequences of failures: the run fails, unless a change that may be the cause can be undone.

>>> from fries_nb.dataflow.graph import Edge, Graph, Kind, Operator
>>> flow = Graph("pair", (Operator("src", kind=Kind.SOURCE), Operator("out", kind=Kind.SINK)), (Edge("src", "out"),))
>>> life = Lifecycle(flow, hosts=1, incarnation=1, commit_interval_ns=None)
>>> rules = FailureRules(life, Agreement(flow, True, {}))
>>> rules.take(Failed(WorkerId("out", 0), "no space left on device"), now_ns=0)[-1].error
'no space left on device'

What keeps a run from committing: reported at the first failure, and when nothing was committed for too long.

A run whose checkpoints fail, or never complete, reads and processes tuples, and none of them reaches its output. The
reason is found in the phase of the attempt (see ``commits``):

    failed     why the last attempt was aborted; reported at once, until an attempt succeeds
    MARKING    the first workers that the marker has not passed, and what waits in front of them
    SAVING     the workers whose snapshots are being written
    KEEPING    its record is being written
    IDLE       what excludes an attempt: paused operators, a change, a rescale, a loop's attempt; or no source is left
"""

from __future__ import annotations

from collections.abc import Sequence

from fries_nb.controller.coordinator import Coordinator, Taken
from fries_nb.controller.events import ColumnRefused, CommitsHeld, Instruction, Tell
from fries_nb.controller.lifecycle import Lifecycle
from fries_nb.controller.markers import ACTIONS
from fries_nb.controller.schema_checks import Agreement, with_columns
from fries_nb.controller.states import CommitPhase
from fries_nb.protocol.messages import Failed, Move, Paused, Reconfigure, Report, Unguard, WorkerId

LATE_NS = 60_000_000_000
"""Nanoseconds without a commit after which the reason is reported."""
LATE_INTERVALS = 3
"""Number of commit intervals that must have passed as well."""
LOOK_NS = 1_000_000_000
"""Nanoseconds between two looks for the reason of a delay."""
NAMED = 3
"""Number of workers that are named."""


class CommitDelays:
    """Observes the commits of a run.

    Args:
        interval_ns: nanoseconds between two commits; ``None`` if only requested ones and the last one are made.
    """

    def __init__(self, life: Lifecycle, interval_ns: int | None) -> None:
        self._life = life
        self._reports = life.reports
        self._late_ns = None if interval_ns is None else max(LATE_NS, LATE_INTERVALS * interval_ns)
        self._held = CommitsHeld()
        self._last_ns = self._completed_ns = 0  # the marker of the last commit, and when it was seen to be complete
        self._next_look_ns = 0

    def observe(self, now_ns: int) -> list[CommitsHeld]:
        """Report what keeps the run from committing, if that has changed; called while tuples flow."""
        commits = self._life.checkpoints
        failed, since_ns = commits.failure, commits.committed_ns
        if since_ns != self._last_ns:
            self._last_ns, self._completed_ns = since_ns, now_ns
        late = self._late_ns is not None and now_ns - self._completed_ns >= self._late_ns
        if failed:
            held = CommitsHeld(failed, since_ns, failed=True)
        elif not late:
            held = CommitsHeld()
        elif now_ns < self._next_look_ns:
            return []
        else:
            self._next_look_ns = now_ns + LOOK_NS
            held = CommitsHeld(self._reason(), since_ns)
        if held == self._held:
            return []
        self._held = held
        return [held]

    def _reason(self) -> str:
        life, epoch = self._life, self._life.checkpoints.epoch
        match life.checkpoints.phase:
            case CommitPhase.MARKING:
                return f"the marker of commit {epoch} {self._in_front_of(life.lane.awaited)}"
            case CommitPhase.SAVING:
                return f"checkpoint {epoch} waits until the state of {_named(life.checkpoints.owing)} is written"
            case CommitPhase.KEEPING:
                return f"the record of checkpoint {epoch} is being written"
            case _:
                return self._excluded()

    def _excluded(self) -> str:
        """Why no attempt can begin."""
        life, action = self._life, self._life.lane.action
        if paused := life.paused.workers:
            return f"{_named(paused)} {_is(paused)} paused on a tuple on which {_it(paused)} failed"
        if life.changes.is_draining:
            return "a change waits until its loops are empty"
        if life.rewiring.under_way:
            return ACTIONS[Move].delays_by
        if life.lane.busy:  # with a fix that bypasses, perhaps, and no other action
            traits = ACTIONS[type(action) if action is not None else Reconfigure]
            behind = f" {self._in_front_of(life.lane.awaited)}" if traits.names_awaited else ""
            return f"{traits.delays_by}{behind}"
        if not life.workers.live((*life.workers.graph.sources, *life.workers.graph.heads)):
            left = life.workers.live()
            return f"its sources have ended, and the rest is committed at the end; {self._with_queue(left)}"
        return "another step of the run comes first each time"

    def _in_front_of(self, awaited: Sequence[WorkerId]) -> str:
        """Which workers a marker waits for: the first ones of the dataflow that it has not passed."""
        graph, behind = self._life.workers.graph, {worker.operator for worker in awaited}
        paused = [worker for worker in self._life.paused.workers if worker in awaited]
        if paused:
            return f"waits behind {_named(paused)}, which {_is(paused)} paused on a tuple on which {_it(paused)} failed"
        first = [
            worker for worker in awaited if not any(edge.source in behind for edge in graph.in_edges(worker.operator))
        ]
        return f"has not passed {self._with_queue(first or awaited)}"

    def _with_queue(self, workers: Sequence[WorkerId]) -> str:
        waiting = [report.queued_tuples for worker in workers if (report := self._reports.get(worker)) is not None]
        many = f" ({sum(waiting):,} tuples wait there)" if sum(waiting) else ""
        return f"{_named(workers)}, which {_is(workers)} still at work{many}"


def _named(workers: Sequence[WorkerId]) -> str:
    """Some workers by name, and the number of the others.

    >>> _named([WorkerId("A", index) for index in range(5)])
    'A[0], A[1], A[2] and 2 more'
    """
    names = ", ".join(map(str, workers[:NAMED]))
    return f"{names} and {len(workers) - NAMED} more" if len(workers) > NAMED else names


def _is(workers: Sequence[WorkerId]) -> str:
    return "is" if len(workers) == 1 else "are"


def _it(workers: Sequence[WorkerId]) -> str:
    return "it" if len(workers) == 1 else "they"


class FailureRules(Coordinator):
    """Processes reports of workers, and failures that workers and sinks report."""

    takes = (Report, Failed, Paused, ColumnRefused)

    def __init__(self, life: Lifecycle, agreement: Agreement) -> None:
        self._life = life
        self._agreement = agreement

    def take(self, event: Taken, now_ns: int) -> list[Instruction]:
        """Process a report or a failure."""
        match event:
            case Report():
                return self._reported(event, now_ns)
            case Failed() if event.column:
                self._agreement.written(event.worker.operator, event.columns)
                return self.disagreed(event.worker.operator, event.column, event.error, now_ns)
            case Failed():
                return self._failed(event, now_ns)
            case Paused():
                return self._paused(event, now_ns)
            case ColumnRefused():
                self._agreement.know(event.sink, event.columns)
                return self.disagreed(event.sink, event.column, event.error, now_ns)
        return []

    def _reported(self, report: Report, now_ns: int) -> list[Instruction]:
        self._life.reports[report.worker] = with_columns(report, self._life.reports.get(report.worker))
        sink = report.worker.operator
        if column := self._agreement.written(sink, report.columns):
            # Its tuples are not counted: the run is recovered, which reads them again, or fails.
            return self.disagreed(sink, column, f"column {column!r} comes to {sink} in two types", now_ns)
        self._life.checkpoints.intake.report(report)
        return []

    def _paused(self, paused: Paused, now_ns: int) -> list[Instruction]:
        """Record that an operator is paused on a tuple, or roll back the guarded change that failed on it."""
        if paused.change:
            return self._failed_under_guard(paused, now_ns)
        # A guard comes before the policy of an operator below, whose function is not to blame.
        if undone := self._undone_by_guard(paused.worker.operator, paused.error, paused.details, now_ns, paused.worker):
            return undone
        aborted = self._life.changes.pause(paused.worker.operator, paused.error, now_ns)
        return [self._life.paused.pause(paused), *aborted]

    def disagreed(self, sink: str, column: str, error: str, now_ns: int) -> list[Instruction]:
        """Resolve a column with two types.

        In order of preference: roll back the guarded change that caused it; impose the first type on the operator and
        restart, so that other values fail there; fail the run.
        """
        if undone := self._undone(sink, f"column {column!r} has two types: {error}", "", now_ns):
            return undone
        words, is_imposed = self._agreement.settle(sink, column, error, self._life.reports, self._life.recovers)
        if is_imposed:
            return self._life.recover(words, now_ns)
        return self._life.end("failed", "the run failed", now_ns, words)

    def _failed_under_guard(self, paused: Paused, now_ns: int) -> list[Instruction]:
        """Retry the tuple of a paused worker with the old configuration, or end its guard if that is impossible."""
        watch = self._life.guards.of(paused.change)
        if watch is None:
            return []  # the guard has ended, and ``Unguard`` was sent
        if watch.in_place(paused.chain):
            undo = self._life.changes.roll_back  # a no-op if the rollback is under way
            return [] if watch.fired else undo(watch, paused.error, paused.details, now_ns)
        if self._life.can_undo(watch):
            return self._life.undo(watch, paused.error, paused.details, now_ns)
        targets = watch.guard.plan.targets.intersection(paused.chain)
        workers = [worker for worker in self._life.workers.of(targets) if worker.index == paused.worker.index]
        return [Tell(worker, Unguard(paused.change, keeps=True)) for worker in workers]

    def _failed(self, failed: Failed, now_ns: int) -> list[Instruction]:
        """Fail the run, unless the failure is attributed to a guarded change that can be undone."""
        undone = self._undone(failed.worker.operator, failed.error, failed.details, now_ns, failed.worker)
        return undone or self._life.end("failed", "the run failed", now_ns, failed.error, failed.details)

    def _undone(
        self, operator: str, error: str, details: str, now_ns: int, worker: WorkerId | None = None
    ) -> list[Instruction]:
        """Restart from a checkpoint without the guarded change that caused a failure; empty if that is impossible."""
        later = self._life.changes.replaced(operator, worker)
        if later is not None and self._life.recovers:
            words = f"change {later.request.change!r} replaces the function that failed ({error})"
            return self._life.recover(words, now_ns)
        return self._undone_by_guard(operator, error, details, now_ns, worker)

    def _undone_by_guard(
        self, operator: str, error: str, details: str, now_ns: int, worker: WorkerId | None
    ) -> list[Instruction]:
        for watch in self._life.guards.covering(operator):
            if self._life.changes.has_met(watch.change, worker) and self._life.can_undo(watch):
                return self._life.undo(watch, error, details, now_ns)
        return []
