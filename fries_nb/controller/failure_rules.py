"""The consequences of failures: the run fails, unless a change that may be the cause can be undone.

>>> from fries_nb.dataflow.graph import Edge, Graph, Kind, Operator
>>> flow = Graph("pair", (Operator("src", kind=Kind.SOURCE), Operator("out", kind=Kind.SINK)), (Edge("src", "out"),))
>>> life = Lifecycle(flow, hosts=1, incarnation=1, commit_interval_ns=None)
>>> rules = FailureRules(life, Agreement(flow, True, {}), {})
>>> rules.failed(Failed(WorkerId("out", 0), "no space left on device"), now_ns=0)[-1].error
'no space left on device'
"""

from __future__ import annotations

from collections.abc import Mapping

from fries_nb.controller.agreement import Agreement
from fries_nb.controller.events import Instruction, Tell
from fries_nb.controller.lifecycle import Lifecycle
from fries_nb.messages import Failed, Paused, Report, Unguard, WorkerId


class FailureRules:
    """Processes failures that workers and sinks report.

    Args:
        life: the parts of the run's controller.
        agreement: types of columns at sinks.
        metrics: the last report of each worker.
    """

    def __init__(self, life: Lifecycle, agreement: Agreement, metrics: Mapping[WorkerId, Report]) -> None:
        self._life = life
        self._agreement = agreement
        self._metrics = metrics

    def paused(self, paused: Paused, now_ns: int) -> list[Instruction]:
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
        words, told = self._agreement.settle(sink, column, error, self._metrics, self._life.recovers)
        if told:
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

    def failed(self, failed: Failed, now_ns: int) -> list[Instruction]:
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
