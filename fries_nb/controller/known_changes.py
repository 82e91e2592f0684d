"""All changes of a run, from request to outcome: events on them, losses, and their ends.

``changes`` takes the steps in between. A guard that fires (see ``guards``) adds the rollback of its change here:
decided at once, ahead of all that wait, and without a preparation, since workers have kept their earlier configuration.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping

from fries_nb.controller.commit_attempts import Checkpoints
from fries_nb.controller.events import ChangeRequested, GuardEnded, GuardFired, Instruction, Journal, Resolved, Tell
from fries_nb.controller.guards import Guards, Watch
from fries_nb.controller.markers import MarkerCoordinator
from fries_nb.controller.membership import Workers
from fries_nb.controller.pauses import PausedOperators
from fries_nb.controller.restore_point import Recovery
from fries_nb.controller.states import ChangeState
from fries_nb.controller.transactions import Transaction, names, refuse_incomplete
from fries_nb.errors import ProtocolError
from fries_nb.messages import (
    Abort,
    Done,
    Prepared,
    Rehearsed,
    Report,
    Unguard,
    WorkerId,
)


class KnownChanges:
    """Every requested change by id, and those under way.

    Attributes:
        known: every requested change, and every rollback by a guard.
        in_flight: the change under way, if any; ``fix``: the one that goes ahead of it to a paused operator.
        restarting: the id of a decided change that is carried out by restarting all hosts; or empty.
    """

    def __init__(
        self,
        workers: Workers,
        lane: MarkerCoordinator,
        checkpoints: Checkpoints,
        recovery: Recovery,
        paused: PausedOperators,
        guards: Guards,
    ) -> None:
        self.known: dict[str, Transaction] = {}
        self.in_flight: Transaction | None = None
        self.fix: Transaction | None = None
        self.restarting = ""
        self._queue: deque[Transaction] = deque()
        self._workers = workers
        self._lane = lane
        self._checkpoints = checkpoints
        self._recovery = recovery
        self._paused = paused
        self._guards = guards
        self._reports: Mapping[WorkerId, Report] = {}
        self._awaited_epoch: int | None = None

    def request(self, request: ChangeRequested, now_ns: int, early: bool = False) -> None:
        """Append a change to the queue.

        Args:
            request: the change.
            now_ns: the current time.
            early: whether hosts are still joining: it waits for tuples, for its rehearsal, and its delay counts from
                then.

        Raises:
            ProtocolError: its id is not new, or its plan or payloads cannot be carried out.
        """
        if request.change in self.known:
            raise ProtocolError(f"change {request.change!r} was requested before; every change needs an id of its own")
        refuse_incomplete(request)
        self._queue.append(self._known(request, now_ns, early))

    def _known(self, request: ChangeRequested, now_ns: int, early: bool = False) -> Transaction:
        declared = list(self._workers.graph.by_name)
        components = tuple(
            tuple(sorted(component.operators, key=declared.index)) for component in request.plan.covering.components
        )
        transaction = Transaction(request, self._workers.of(request.plan.targets), components, now_ns, early)
        self.known[request.change] = transaction
        return transaction

    def prepared(self, answer: Prepared, now_ns: int) -> list[Instruction]:
        """Process the answer of a target worker; an error aborts the change.

        Raises:
            ProtocolError: the change is unknown, or does not concern the worker.
        """
        transaction = self._requested(answer, "prepared")
        if transaction.prepared(answer, now_ns) and answer.error:
            return self._abort(transaction, now_ns, answer.error, answer.details)
        return []

    def rehearsed(self, answer: Rehearsed, now_ns: int) -> list[Instruction]:
        """Process the result of a rehearsal; an error aborts the change.

        Raises:
            ProtocolError: the change is unknown, or no rehearsal was requested.
        """
        transaction = self._requested(answer, "rehearsed")
        if transaction.heard(answer, now_ns) and answer.error:
            return self._abort(transaction, now_ns, answer.error, answer.details)
        return []

    def _requested(self, answer: Prepared | Rehearsed, did: str) -> Transaction:
        if answer.change not in self.known:
            raise ProtocolError(f"{answer.worker} {did} change {answer.change!r}, which was never requested")
        return self.known[answer.change]

    def journaled(self, change: str, at_ns: int) -> None:
        """The decision on this change is on disk, since then."""
        self.known[change].journaled(at_ns)

    def acknowledged(self, change: str, worker: WorkerId, done: Done | None, now_ns: int) -> list[Instruction]:
        """Process a worker's acknowledgement of a marker of this change, or (``None``) its end."""
        transaction = self.known[change]
        if transaction.state is not ChangeState.COMMITTING:
            return []  # the change has ended before its marker, which goes on through the rest of its scope
        transaction.acknowledged(worker, done, now_ns)
        return self._end_if_over(transaction, now_ns)

    def roll_back(self, watch: Watch, error: str, details: str, now_ns: int) -> list[Instruction]:
        """The guard fires: its change is rolled back, next; what is not decided is aborted, as ever."""
        watch.error, watch.details = error, details
        back = self._known(ChangeRequested(watch.back, watch.guard.plan, {}), now_ns)
        back.undoes = watch.change
        back.decide_unprepared(now_ns)
        said: list[Instruction] = [self._journal(back), GuardFired(watch.change, error)]
        words = f"change {watch.change!r} is being rolled back by its guard; nothing changed"
        for change in (self.fix, self.in_flight):
            if change is not None and change.state is ChangeState.PREPARING:
                said += self._abort(change, now_ns, words)
        self._queue.appendleft(back)
        return said + (self._checkpoints.cancel(now_ns) if self._lane.commits else [])

    def has_met(self, change: str, worker: WorkerId | None) -> bool:
        """Whether the worker may have met the new configuration: it has switched, or others above it have."""
        transaction = self.known[change]
        if worker is None or worker not in transaction.targets:
            return transaction.switched
        return transaction.has_switched(worker)

    def replaced(self, operator: str, worker: WorkerId | None) -> Transaction | None:
        """The change being committed that replaces what may have failed here, and has not come here yet."""
        for change in (self.fix, self.in_flight):
            if change is None or change.state is not ChangeState.COMMITTING or (worker and change.has_switched(worker)):
                continue
            if any(operator in one.covered and self.has_met(one.change, worker) for one in change.replaces):
                return change
        return None

    def let_go(self, change: str, reason: str) -> list[Instruction]:
        """End the guard of this change, if it is active: its workers follow their operators' error policies."""
        watch = self._guards.end(change)
        if watch is None:
            return []
        told = [Tell(worker, Unguard(change)) for worker in self._workers.of(watch.guard.plan.targets)]
        return [*told, GuardEnded(change, reason)]

    def _rolled_back(self, change: str) -> list[Instruction]:
        watch = self._guards.end(change)
        if watch is None:
            return []
        reason = "the new configuration failed, and the old one runs again"
        return [GuardEnded(change, reason, True, watch.error, watch.details)]

    def lost(self, why: str, now_ns: int) -> list[Instruction]:
        """All hosts are gone: undecided changes are aborted, without messages to workers."""
        resolved: list[Instruction] = []
        self.restarting, self._awaited_epoch = "", None
        for change in self._under_way():
            if change.state is ChangeState.PREPARING:
                words = f"{why} before the change was decided; nothing changed"
                resolved.append(Resolved(change.resolve(ChangeState.ABORTED, now_ns, words)))
                self._release(change)
            change.pending_acks = set()
        return resolved

    def started_again(self, ended: Callable[[WorkerId], bool], now_ns: int) -> list[Instruction]:
        """All workers run again, with every decided change in place; ``ended`` tells whom the checkpoint names so."""
        resolved: list[Instruction] = []
        for change in self._under_way():
            change.started_again(filter(ended, change.targets), now_ns)
            resolved += self._finish(change, now_ns)
        return resolved

    def close(self, why: str, now_ns: int, error: str = "", details: str = "") -> list[Instruction]:
        """The run is over because of ``why``: end every open change. ``error`` is a failure in its own words."""
        closed: list[Instruction] = []
        for change in self._under_way():
            if change.state is ChangeState.COMMITTING:
                words = f"{why} while the change was being committed" + (f": {error}" if error else "")
                outcome = change.resolve(ChangeState.FAILED, now_ns, words, details)
                closed += [] if change.undoes else [Resolved(outcome)]
                self._release(change)
            else:
                words = error or f"{why} before the change was decided; nothing changed"
                closed += self._abort(change, now_ns, words, details)
        for waiting in self._queue:
            words = f"{why} before the change was begun; nothing changed"
            closed.append(Resolved(waiting.resolve(ChangeState.ABORTED, now_ns, words)))
        self._queue.clear()
        guards = [self._guards.end(change) for change in self._guards.all()]
        return [*closed, *(GuardEnded(watch.change, why) for watch in guards if watch is not None)]

    def _journal(self, change: Transaction) -> Journal:
        request = change.request
        return Journal(
            self._recovery.decide(
                request.change,
                request.plan.scheduler,
                change.components,
                request.payloads,
                change.before,
                change.undoes,
            )
        )

    def _end_if_over(self, change: Transaction, now_ns: int) -> list[Instruction]:
        return [] if change.pending_acks or change.stages_left else self._finish(change, now_ns)

    def _finish(self, change: Transaction, now_ns: int) -> list[Instruction]:
        """It is at every worker that has not ended; if that is none, it was for nothing and is taken back."""
        self._release(change)
        if change.undoes:
            change.resolve(ChangeState.DONE, now_ns)
            return self._rolled_back(change.undoes)
        if change.switched:
            self._guards.counting(change.request.change, now_ns, self._reports)
            return [Resolved(change.resolve(ChangeState.DONE, now_ns))]
        words = f"all workers of {names(change.request.plan.targets)} ended before the change reached them"
        outcome = change.resolve(ChangeState.FAILED, now_ns, words)
        over = self.let_go(outcome.change, "nothing of the change is in place")
        return [Journal(self._recovery.take_back(outcome.change)), *_forgotten(change), Resolved(outcome), *over]

    def _abort(self, change: Transaction, now_ns: int, error: str, details: str = "") -> list[Instruction]:
        begun = change.state is ChangeState.PREPARING
        outcome = change.resolve(ChangeState.ABORTED, now_ns, error, details)
        self._release(change)
        return [*(_forgotten(change) if begun else ()), Resolved(outcome)]

    def _under_way(self) -> list[Transaction]:
        begun = (ChangeState.PREPARING, ChangeState.COMMITTING)
        candidates = (self.in_flight, self.fix, *self._queue)
        return [change for change in candidates if change is not None and change.state in begun]

    def _release(self, change: Transaction) -> None:
        if change is self.fix:
            self.fix = None
        elif change is self.in_flight:
            self.in_flight, self._awaited_epoch = None, None
        else:
            self._queue.remove(change)


def _forgotten(change: Transaction) -> list[Tell]:
    """Every target worker is to forget what it prepared, those that have ended as well."""
    return [Tell(worker, Abort(change.request.change)) for worker in change.targets]
