"""The changes of a run: one in flight at a time, the others in the order in which they were requested.

Each turn of ``advance`` takes the one step that is possible now:

    nothing in flight, one waits                 tell its target workers to prepare
    all have prepared, it no longer fits         abort it
    all have prepared, the lane is free          journal the decision, send the FCMs of its first stage
    all have prepared, a commit is on its way    journal the decision, cancel the commit, send the FCMs
    a stage is over, its marker has retired      send the FCMs of the next stage

A change ends when its last stage is over. Its marker may be on its way for longer; the next change prepares meanwhile.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

from fries_nb.checkpoints import Decided
from fries_nb.controller.commits import Epochs
from fries_nb.controller.events import ChangeRequested, Instruction, Journal, Resolved, Tell
from fries_nb.controller.markers import Lane
from fries_nb.controller.schemas import misfit
from fries_nb.controller.transactions import State, Transaction
from fries_nb.controller.workers import Workers
from fries_nb.errors import ProtocolError
from fries_nb.messages import Abort, Done, Prepare, Prepared, Reconfigure, Report, WorkerId


class Changes:
    """All changes of a run, by id, and the one in flight."""

    def __init__(self, workers: Workers, lane: Lane, epochs: Epochs, incarnation: int) -> None:
        self.known: dict[str, Transaction] = {}
        self.in_flight: Transaction | None = None
        self._queue: deque[Transaction] = deque()
        self._workers = workers
        self._lane = lane
        self._epochs = epochs
        self._incarnation = incarnation

    @property
    def committing(self) -> bool:
        """A change is between its decision and its end."""
        return self.in_flight is not None and self.in_flight.state is State.COMMITTING

    def request(self, request: ChangeRequested, now_ns: int) -> None:
        """Put a change at the end of the queue.

        Raises:
            ProtocolError: its id is not new, or its plan or payloads cannot be carried out.
        """
        if request.change in self.known:
            raise ProtocolError(f"change {request.change!r} was requested before; every change needs an id of its own")
        _refuse_incomplete(request)
        declared = list(self._workers.graph.by_name)
        components = tuple(
            tuple(sorted(component.operators, key=declared.index)) for component in request.plan.covering.components
        )
        transaction = Transaction(request, self._workers.of(request.plan.targets), components, now_ns)
        self.known[request.change] = transaction
        self._queue.append(transaction)

    def prepared(self, answer: Prepared, now_ns: int) -> list[Instruction]:
        """A target worker is ready, or says why not; one that is not aborts the change.

        Raises:
            ProtocolError: the change is unknown, or does not concern the worker.
        """
        if answer.change not in self.known:
            raise ProtocolError(f"{answer.worker} prepared change {answer.change!r}, which was never requested")
        transaction = self.known[answer.change]
        if transaction.prepared(answer, now_ns) and answer.error:
            return self._abort(transaction, now_ns, answer.error, answer.details)
        return []

    def journaled(self, now_ns: int) -> None:
        """The decision of the change in flight is on disk."""
        if self.in_flight is not None and self.committing:
            self.in_flight.journaled(now_ns)

    def ended(self, worker: WorkerId, now_ns: int) -> None:
        """A worker has ended: it prepares for nothing."""
        if self.in_flight is not None:
            self.in_flight.ended(worker, now_ns)

    def acknowledged(self, worker: WorkerId, done: Done | None, now_ns: int) -> list[Instruction]:
        """A worker has applied the marker that reconfigures, or (``None``) has ended instead."""
        if self.in_flight is None or self.in_flight.state is not State.COMMITTING:
            return []  # the change has ended before its marker, which goes on through the rest of its scope
        self.in_flight.acknowledged(worker, done, now_ns)
        return self._end_if_over(self.in_flight, now_ns)

    def advance(self, reports: Mapping[WorkerId, Report], now_ns: int) -> list[Instruction]:
        """Take all steps that are possible now."""
        taken: list[Instruction] = []
        while (step := self._step(reports, now_ns)) is not None:
            taken += step
        return taken

    def close(self, why: str, now_ns: int, error: str = "", details: str = "") -> list[Instruction]:
        """The run is over because of ``why``: end every open change. ``error`` is a failure in its own words."""
        closed: list[Instruction] = []
        if self.in_flight is not None and self.committing:
            words = f"{why} while the change was being committed" + (f": {error}" if error else "")
            closed.append(Resolved(self.in_flight.resolve(State.FAILED, now_ns, words, details)))
            self.in_flight = None
        elif self.in_flight is not None:
            words = error or f"{why} before the change was decided; nothing changed"
            closed += self._abort(self.in_flight, now_ns, words, details)
        for waiting in self._queue:
            words = f"{why} before the change was begun; nothing changed"
            closed.append(Resolved(waiting.resolve(State.ABORTED, now_ns, words)))
        self._queue.clear()
        return closed

    def _step(self, reports: Mapping[WorkerId, Report], now_ns: int) -> list[Instruction] | None:
        change = self.in_flight
        if change is None:
            return self._begin(now_ns) if self._queue else None
        if change.owing or (change.state is State.COMMITTING and self._lane.busy):
            return None
        if change.state is State.COMMITTING:
            return self._next_stage(change, now_ns)
        unfit = self._unfit(change, reports)
        if unfit:
            return self._abort(change, now_ns, unfit)
        return None if self._lane.busy and not self._lane.commits else self._decide(change, now_ns)

    def _begin(self, now_ns: int) -> list[Instruction]:
        change = self.in_flight = self._queue.popleft()
        live = [worker for worker in change.targets if worker not in self._workers.ended]
        change.prepare(live, now_ns)
        first: dict[str, WorkerId] = {}
        for worker in live:
            first.setdefault(worker.operator, worker)
        request = change.request
        return [
            Tell(worker, Prepare(request.change, request.payloads[worker.operator], rehearse))
            for worker in live
            for rehearse in [worker.operator in request.rehearse and first[worker.operator] == worker]
        ]

    def _unfit(self, change: Transaction, reports: Mapping[WorkerId, Report]) -> str:
        plan = change.request.plan
        if not self._workers.live(plan.targets):
            return f"all workers of {_names(plan.targets)} have ended; there is nothing left to change"
        sends = plan.stages[0].sends
        if not self._lane.reaches_someone(sends):
            starts = _names({send.operator for send in sends})
            return f"{plan.scheduler} starts its marker at {starts}, whose workers have all ended; nothing changed"
        return misfit(self._workers.graph, plan.targets, change.writes, reports)

    def _decide(self, change: Transaction, now_ns: int) -> list[Instruction]:
        plan = change.request.plan
        request = change.request
        decided = Decided(
            request.change, plan.scheduler, change.components, dict(request.payloads), self._incarnation
        )
        steps: list[Instruction] = [Journal(decided)]
        if self._lane.commits:
            steps += self._lane.cancel()
            self._epochs.cancel(now_ns)
        return steps + self._next_stage(change, now_ns)

    def _next_stage(self, change: Transaction, now_ns: int) -> list[Instruction]:
        plan = change.request.plan
        stage = plan.stages[change.stage + 1]
        change.next_stage(self._workers.live(stage.awaits), now_ns)
        for worker in change.targets:
            if worker in self._workers.ended:
                change.acknowledged(worker, None, now_ns)
        tells = self._lane.start(stage.sends, Reconfigure(change.request.change, plan.targets))
        return [*tells, *self._end_if_over(change, now_ns)]

    def _end_if_over(self, change: Transaction, now_ns: int) -> list[Instruction]:
        if change.owing or change.stages_left:
            return []
        self.in_flight = None
        if change.switched:
            return [Resolved(change.resolve(State.DONE, now_ns))]
        words = f"all workers of {_names(change.request.plan.targets)} ended before the change reached them"
        return [Resolved(change.resolve(State.FAILED, now_ns, words))]

    def _abort(self, change: Transaction, now_ns: int, error: str, details: str = "") -> list[Instruction]:
        told = [worker for worker in change.targets if worker not in self._workers.ended]
        outcome = change.resolve(State.ABORTED, now_ns, error, details)
        self.in_flight = None
        return [*(Tell(worker, Abort(outcome.change)) for worker in told), Resolved(outcome)]


def _refuse_incomplete(request: ChangeRequested) -> None:
    plan = request.plan
    if not plan.targets or not plan.stages:
        raise ProtocolError(f"change {request.change!r} has no targets or no stages; a scheduler plans both")
    if set(request.payloads) != plan.targets:
        raise ProtocolError(
            f"change {request.change!r} ships functions for {_names(request.payloads)}; its targets are "
            f"{_names(plan.targets)}"
        )
    for stage in plan.stages:
        beyond = stage.awaits.difference(*(send.scope for send in stage.sends))
        if beyond:
            raise ProtocolError(f"a stage of {plan.scheduler} awaits {_names(beyond)}, which no marker of it reaches")
        scopes = {send.scope for send in stage.sends}
        if sum(map(len, scopes)) > len(frozenset().union(*scopes)):
            raise ProtocolError(f"scopes of a stage of {plan.scheduler} overlap; their markers could cross")


def _names(operators: Mapping[str, bytes] | frozenset[str] | set[str]) -> str:
    return ", ".join(sorted(operators)) or "none"
