"""The registry of a run's changes: requests, answers of workers, losses of hosts, and outcomes.

``change_steps`` takes the steps in between. A guard that fires (see ``guards``) adds the rollback of its change here.
It is decided at once, before all queued changes, and without a preparation, since workers keep their earlier
configuration.

The decided changes that a restart defers, since rows of before them are still inside a loop.

A restored worker usually starts with all decided changes, as if their markers had arrived right after that of the
checkpoint. That is right where the checkpoint holds no row. The frames that a loop's head has *logged*, however, have
met the old functions in earlier rounds. So if a change that is not in the checkpoint touches such a loop,

    it is deferred, with all later ones      changes take effect in the order in which they were decided
    all deferred ones share one drain        of the components of a plan for all of their targets that hold such loops;
                                             operators of other components start with the changes
    these components start old, and closed   no row enters, so that what the changes have mended does not fail again
    they are drained, switched, and opened   before any other change or checkpoint; see ``LoopDrain``
    a crash in between                       begins again from the checkpoint, perhaps a later one

A fix that went aside is not deferred, since rows stand before it, nor is the rollback of a guard; unless an earlier
change of one of their operators is deferred.

A change that is decided row by row is not deferred for what is logged: the identity of each row says what it has met.
But a change of another kind that came later is, if logged rows are old for it, wherever it is: rows that are new for
the first one may have been committed without having met the second one. Both are planned together then, and when the
loop is empty the first one is over.

>>> from fries_nb.protocol.checkpoints import Checkpoint, CommittedChange
>>> from fries_nb.dataflow.graph import Edge, Kind, Operator
>>> from fries_nb.dataflow.graph import ROOT
>>> flow = Graph("loop", (
...     Operator("S", kind=Kind.SOURCE), Operator("L", kind=Kind.LOOP, within=ROOT.nest("L")),
...     Operator("B", within=ROOT.nest("L")), Operator("Z", kind=Kind.SINK),
... ), (Edge("S", "L"), Edge("L", "B"), Edge("B", "L", feedback=True), Edge("B", "Z", branch=1)))
>>> decided = CommittedChange("u1", "fries", (("L", "B"),), {"B": b"code"})
>>> for logged in ((), ("L",)):
...     restored = with_deferred(flow, Restoration(Checkpoint("a1", 3, 1, {}, logged=logged), (decided,)))
...     restored.deferred, restored.closed
((), ())
(('u1',), ('B', 'L'))
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence

from msgspec.structs import replace

from fries_nb.controller.commits import Checkpoints, Recovery
from fries_nb.controller.coordinator import Coordinator, Taken
from fries_nb.controller.cuts import Cuts
from fries_nb.controller.events import (
    ChangeCancelled,
    ChangeRequested,
    GuardEnded,
    GuardFired,
    Instruction,
    Journal,
    Journaled,
    Resolved,
    Tell,
)
from fries_nb.controller.failed_rows import PausedOperators
from fries_nb.controller.guards import Guards, Watch
from fries_nb.controller.loop_attempts import Loop, LoopDrain
from fries_nb.controller.markers import MarkerCoordinator
from fries_nb.controller.membership import Workers
from fries_nb.controller.reshaping import Reshaping
from fries_nb.controller.states import ChangeState
from fries_nb.controller.transactions import Transaction, names, refuse_incomplete
from fries_nb.dataflow.graph import Graph
from fries_nb.errors import ProtocolError
from fries_nb.planning.covering import Component
from fries_nb.planning.schedulers import Send, schedule
from fries_nb.protocol.checkpoints import Checkpoint, CommittedChange, Restoration
from fries_nb.protocol.messages import (
    Abort,
    Action,
    ApplyDeferred,
    Attempt,
    CloseCuts,
    Commit,
    Done,
    Freeze,
    Hold,
    Prepared,
    Reconfigure,
    Rehearsed,
    Release,
    Report,
    Settled,
    Unguard,
    WorkerId,
)
from fries_nb.protocol.rollout import is_inside


def with_deferred(graph: Graph, restoration: Restoration) -> Restoration:
    """The state from which an incarnation starts, with the changes that it defers."""
    checkpoint = restoration.checkpoint
    if checkpoint is None or not checkpoint.logged:
        return replace(restoration, deferred=(), closed=())
    deferred = _deferred(restoration.decided, checkpoint)
    parts = _drained(graph, deferred, restoration.decided, checkpoint)
    closed = frozenset().union(*(part.operators for part in parts))
    return replace(restoration, deferred=deferred if closed else (), closed=tuple(sorted(closed)))


def _targets(decided: Iterable[CommittedChange]) -> dict[str, frozenset[str]]:
    """Change to the operators that it changes; a rollback changes those of the change that it undoes."""
    targets: dict[str, frozenset[str]] = {}
    for change in decided:
        targets[change.change] = targets.get(change.undoes, frozenset()) | frozenset(change.payloads)
    return targets


def _deferred(decided: Sequence[CommittedChange], checkpoint: Checkpoint) -> tuple[str, ...]:
    deferred: list[str] = []
    changed: set[str] = set()
    targets, old = _targets(decided), _old_inside(decided, checkpoint)
    for place, change in enumerate(decided):
        if change.change in checkpoint.decided:
            continue
        goes_aside = change.aside or bool(change.undoes)
        touched = {name for part in change.components for name in part}
        is_late = any(one.change in old for one in decided[:place]) or not touched.isdisjoint(checkpoint.logged)
        is_first = is_late and not (goes_aside or change.steps or change.requeued)
        if is_first or (deferred and not (goes_aside and changed.isdisjoint(targets[change.change]))):
            deferred.append(change.change)
            changed |= targets[change.change]
    return tuple(deferred)


def _old_inside(decided: Iterable[CommittedChange], checkpoint: Checkpoint) -> set[str]:
    """The changes that are decided row by row, and for which logged rows are old."""
    return {one.change for one in decided if one.steps and is_inside(one.steps, checkpoint.reach)}


def _drained(
    graph: Graph, deferred: Sequence[str], decided: Sequence[CommittedChange], checkpoint: Checkpoint
) -> list[Component]:
    """The components of a plan for all operators of deferred changes that hold a loop with logged frames."""
    operators, heads = _switching(deferred, decided, checkpoint), frozenset(checkpoint.logged)
    parts = schedule("fries", graph, operators).covering.components if operators else ()
    return [part for part in parts if not heads.isdisjoint(part.operators)]


def _switching(
    deferred: Sequence[str], decided: Sequence[CommittedChange], checkpoint: Checkpoint
) -> frozenset[str]:
    """The operators of these changes; and those that have two functions until the loop is empty, for what is logged."""
    both = _old_inside(decided, checkpoint) if deferred else ()
    targets = _targets(decided)
    return frozenset(name for change in (*deferred, *both) for name in targets[change])


class DeferredChanges:
    """The changes that an incarnation was started without, from its start to their switch.

    Args:
        restored: the state from which it was started.

    Attributes:
        changes: ids of the changes, in order.
        ended: the workers that have ended before the switch.
    """

    def __init__(self, restored: Restoration, workers: Workers, lane: MarkerCoordinator) -> None:
        self.changes = restored.deferred
        self.ended: set[WorkerId] = set()
        self._targets = {
            change: targets.intersection(restored.closed)
            for change, targets in _targets(restored.decided).items()
            if change in restored.deferred
        }
        self._switched: set[WorkerId] = set()
        self._has_switched = False
        self._lane = lane
        assert restored.checkpoint is not None, "only what is logged in one defers changes"
        parts = _drained(workers.graph, self.changes, restored.decided, restored.checkpoint)
        switching = _switching(self.changes, restored.decided, restored.checkpoint)
        self._operators = switching.intersection(restored.closed)
        self._drain = LoopDrain(", ".join(self.changes), parts, workers, lane, is_closed=True)

    @property
    def asked(self) -> dict[str, Loop]:
        """The loops that are drained; see ``LoopDrain.asked``."""
        return self._drain.asked

    def acknowledged(self, worker: WorkerId, done: Done | None) -> None:
        """Record an acknowledgement of an attempt; see ``Loop.acknowledged``."""
        self._drain.acknowledged(worker, done)

    def settled(self, answer: Settled) -> None:
        """Record that a worker that was busy in an attempt holds no tuples now."""
        self._drain.settled(answer)

    def switched(self, worker: WorkerId, done: Done | None) -> None:
        """Record that a worker has applied the changes; ``done`` is ``None`` if it has ended instead."""
        self._switched.add(worker)
        if done is None or done.ended:
            self.ended.add(worker)

    def first_of(self, operator: str) -> str:
        """The first deferred change of an operator that is closed; empty if there is none."""
        return next((change for change in self.changes if operator in self._targets[change]), "")

    def have_switched(self, workers: Iterable[WorkerId]) -> bool:
        """Whether all these workers have applied the changes."""
        return self._switched.issuperset(workers)

    def advance(self) -> list[Tell] | None:
        """Take the next step; ``None`` if none is possible now, and an empty list when all targets have switched."""
        if self._has_switched:
            return None if self._lane.busy else []
        steps = self._drain.advance()
        if steps or self._lane.busy or not self._drain.is_empty:
            return steps or None
        self._has_switched = True
        sends = [Send(name, frozenset((name,))) for name in sorted(self._operators)]
        return self._lane.start(sends, ApplyDeferred(self.changes))

    def open(self) -> list[Tell]:
        """Let rows enter the operators."""
        return self._drain.open()


CHANGES_KEPT = 1_000
"""Number of changes that are remembered for answers that come late; older ones that have ended are forgotten."""


class KnownChanges(Coordinator):
    """Every requested change by id, and those under way.

    Attributes:
        known: id to every requested change and every rollback by a guard; see ``CHANGES_KEPT``.
        in_flight: the change under way, if any.
        fix: the fix of a paused operator that is under way beside it, if any.
        cuts: the changes that are decided row by row, as long as old rows may come.
        restarting: id of a decided change that is carried out by a restart of all hosts; ``None`` if there is none.
    """

    takes = (ChangeRequested, ChangeCancelled, Journaled, Prepared, Rehearsed, Settled)
    actions = (Reconfigure, Freeze, CloseCuts, Hold, Release, Attempt, ApplyDeferred, Commit)

    def __init__(
        self,
        workers: Workers,
        lane: MarkerCoordinator,
        checkpoints: Checkpoints,
        recovery: Recovery,
        paused: PausedOperators,
        guards: Guards,
        reshaping: Reshaping,
        reports: Mapping[WorkerId, Report],
    ) -> None:
        self.known: dict[str, Transaction] = {}
        self.in_flight: Transaction | None = None
        self.fix: Transaction | None = None
        self.restarting: str | None = None
        self._queue: deque[Transaction] = deque()
        self._drain: LoopDrain | None = None
        self._deferred: DeferredChanges | None = None
        self._decided: list[Transaction] = []  # deferred changes without an outcome
        self.reshaping, self.cuts = reshaping, Cuts(workers, lane, recovery)
        self._workers, self._lane = workers, lane
        self._checkpoints = checkpoints
        self._recovery = recovery
        self._paused = paused
        self._guards = guards
        self._reports = reports
        self._awaited_epoch: int | None = None
        self._is_early = True  # until the first hosts have joined, or are lost
        self.awaits_quiet: Callable[[], bool] = lambda: False  # whether a rescale waits until no change is under way

    def take(self, event: Taken, now_ns: int) -> list[Instruction]:
        """Process a request, the end of a write to the journal, or a worker's answer."""
        match event:
            case ChangeRequested():
                self.request(event, now_ns)
            case ChangeCancelled():
                return self.cancel(event.change, now_ns)
            case Journaled() if event.change in self.known:  # a requeue is decided as well
                self.known[event.change].journaled(event.at_ns)
            case Prepared():
                return self.prepared(event, now_ns)
            case Rehearsed():
                return self.rehearsed(event, now_ns)
            case Settled():
                self._asked(event, event.worker)
        return []

    def acknowledged(self, action: Action, worker: WorkerId, done: Done | None, now_ns: int) -> list[Instruction]:
        """Process a worker's acknowledgement of a marker of a change, or of the drain before it."""
        match action:
            case Freeze():
                self.known[action.change].frozen(worker, done)
            case Attempt():
                self._asked(done, worker)
            case ApplyDeferred():
                if self._deferred is not None:
                    self._deferred.switched(worker, done)
            case Commit() | CloseCuts():
                return [*self.cuts.passed(action, worker, done)]
            case Reconfigure() | Hold() | Release():
                change = self.known[action.change]
                if change.state is ChangeState.COMMITTING:  # else it has ended: the marker passes the rest of its scope
                    change.acknowledged(worker, done, now_ns)
                    return self._end_if_over(change, now_ns)
        return []

    def request(self, request: ChangeRequested, now_ns: int) -> None:
        """Append a change to the queue.

        One that is requested before the first hosts have joined waits until tuples flow, so that it can be rehearsed,
        and its delay is counted from then.
        """
        if request.change in self.known:
            raise ProtocolError(f"change {request.change!r} was requested before; every change needs an id of its own")
        refuse_incomplete(request)
        self._queue.append(self._known(request, now_ns, self._is_early))

    def cancel(self, change: str, now_ns: int) -> list[Instruction]:
        """Abort a change, unless it is decided or has ended; the message may have crossed its outcome."""
        transaction = self.known.get(change)
        if transaction is None or transaction.state not in (ChangeState.REQUESTED, ChangeState.PREPARING):
            return []
        return self._abort(transaction, now_ns, "it was cancelled; nothing changed")

    def _known(self, request: ChangeRequested, now_ns: int, early: bool = False) -> Transaction:
        others = () if request.shape is None else request.shape.after
        declared = list(dict.fromkeys((*self._workers.graph, *others)))
        components = tuple(
            tuple(sorted(component.operators, key=declared.index)) for component in request.plan.covering.components
        )
        known = [name for name in request.switching if name in self._workers.graph]  # a rollback has others as well
        transaction = Transaction(request, self._workers.of(known), components, now_ns, early)
        self.known[request.change] = transaction
        self._forget()
        return transaction

    def _forget(self) -> None:
        """Forget the oldest changes that have ended and are under no guard, if there are more than ``CHANGES_KEPT``."""
        guarded = self._guards.all()
        for change in [*self.known][:-CHANGES_KEPT]:
            if not self.known[change].open and change not in guarded:
                del self.known[change]

    def prepared(self, answer: Prepared, now_ns: int) -> list[Instruction]:
        """Process the answer of a target worker; an error aborts the change."""
        transaction = self._requested(answer, "prepared")
        if transaction.prepared(answer, now_ns) and answer.error:
            return self._abort(transaction, now_ns, answer.error, answer.details)
        return []

    def rehearsed(self, answer: Rehearsed, now_ns: int) -> list[Instruction]:
        """Process the result of a rehearsal; an error aborts the change, and so does a doubt unless it is forced."""
        transaction = self._requested(answer, "rehearsed")
        if not transaction.has_rehearsed(answer, now_ns):
            return []
        if answer.error:
            return self._abort(transaction, now_ns, answer.error, answer.details)
        if transaction.doubt:
            words = f"{transaction.doubt}; nothing changed, and force=True makes the change all the same"
            return self._abort(transaction, now_ns, words)
        return []

    def _requested(self, answer: Prepared | Rehearsed, did: str) -> Transaction:
        if answer.change not in self.known:
            raise ProtocolError(f"{answer.worker} {did} change {answer.change!r}, which was never requested")
        return self.known[answer.change]

    def roll_back(self, watch: Watch, error: str, details: str, now_ns: int) -> list[Instruction]:
        """Fire a guard: decide the rollback of its change, queue it first, and abort undecided changes."""
        watch.error, watch.details = error, details
        back = self._known(ChangeRequested(watch.back, watch.guard.plan, {}, shape=watch.guard.shape), now_ns)
        back.undoes = watch.change
        back.decide_unprepared(now_ns)
        fired: list[Instruction] = [self._journal(back), GuardFired(watch.change, error)]
        words = f"change {watch.change!r} is being rolled back by its guard; nothing changed"
        for change in (self.fix, self.in_flight):
            if change is not None and change.state is ChangeState.PREPARING:
                fired += self._abort(change, now_ns, words)
        self._queue.appendleft(back)
        if self._lane.attempts:  # its marker may wait behind the tuple that failed
            return [*fired, *self._lane.cancel()]
        return fired + (self._checkpoints.cancel(now_ns) if self._lane.commits else [])

    def has_met(self, change: str, worker: WorkerId | None) -> bool:
        """Whether the worker may have processed tuples of the change: it, or some target upstream, has switched."""
        transaction = self.known[change]
        if transaction.request.shape is not None and worker is not None and worker not in transaction.targets:
            return transaction.state in (ChangeState.COMMITTING, ChangeState.DONE)  # it was added, or is below
        if self._deferred is not None and change in self._deferred.changes:
            return False
        if worker is None or worker not in transaction.targets:
            return transaction.switched
        return transaction.has_switched(worker)

    def replaced(self, operator: str, worker: WorkerId | None) -> Transaction | None:
        """The change being committed that replaces the guarded change to blame, and has not reached the worker yet."""
        for change in (self.fix, self.in_flight):
            if change is None or change.state is not ChangeState.COMMITTING or (worker and change.has_switched(worker)):
                continue
            if any(operator in watch.covered and self.has_met(watch.change, worker) for watch in change.replaces):
                return change
        return None

    def let_go(self, change: str, reason: str) -> list[Instruction]:
        """End the guard of this change, if it is active; failures then follow the operators' error policies."""
        watch = self._guards.end(change)
        if watch is None:
            return []
        ends = [Tell(worker, Unguard(change)) for worker in self._workers.of(watch.guard.plan.targets)]
        return [*ends, GuardEnded(change, reason)]

    def _rolled_back(self, change: str) -> list[Instruction]:
        watch = self._guards.end(change)
        if watch is None:
            return []
        reason = "the new configuration failed, and the old one runs again"
        return [GuardEnded(change, reason, True, watch.error, watch.details)]

    def lost(self, why: str, now_ns: int) -> list[Instruction]:
        """Abort undecided changes without messages to workers, since all hosts are lost."""
        resolved: list[Instruction] = []
        self.restarting = self._awaited_epoch = self._drain = self._deferred = None
        self._is_early = False
        for change in self._under_way():
            if change.state is ChangeState.PREPARING:
                words = f"{why} before the change was decided; nothing changed"
                resolved.append(Resolved(change.resolve(ChangeState.ABORTED, now_ns, words)))
                self._release(change)
            change.pending_acks = set()
        return resolved

    def defer(self, restored: Restoration) -> None:
        """Record the changes that the workers of a new incarnation are started without."""
        self.cuts.start_again(bool(restored.deferred))
        self._deferred = DeferredChanges(restored, self._workers, self._lane) if restored.deferred else None

    def started(self, now_ns: int) -> list[Instruction]:
        """End the decided changes, which all workers have applied at their restart; deferred ones still wait."""
        resolved: list[Instruction] = []
        self._is_early = False
        for change in self._under_way():
            if self._deferred is not None and change.request.change in self._deferred.changes:
                self._release(change)
                self._decided.append(change)
                continue
            change.started_again(filter(self._checkpoints.had_ended, change.targets), now_ns)
            resolved += self._finish(change, now_ns)
        return resolved

    def _end_deferred(self, deferred: DeferredChanges, now_ns: int) -> list[Instruction]:
        """Let rows enter again, and end the deferred changes that have no outcome yet."""
        self._deferred = None
        over: list[Instruction] = [*deferred.open()]
        for change in [*self._decided]:
            ended = deferred.ended
            gone = (each for each in change.targets if each in ended or self._checkpoints.had_ended(each))
            change.started_again(gone, now_ns)
            over += self._finish(change, now_ns)
        return over

    def close(self, why: str, now_ns: int, error: str = "", details: str = "") -> list[Instruction]:
        """End every open change and guard, since the run has ended."""
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

    def refuse(self, event: Taken, state: str, now_ns: int) -> list[Instruction]:
        """Abort a change that was requested after the end of the run."""
        if not isinstance(event, ChangeRequested):
            return []
        self.request(event, now_ns)
        return self.close(f"the run was over ({state})", now_ns)

    def _journal(self, change: Transaction) -> Journal:
        request = change.request
        if request.step_of:
            return Journal(self._recovery.decide_step(request.change, request.step_of, change.steps))
        return Journal(
            self._recovery.decide(
                request.change,
                request.plan.scheduler,
                change.components,
                request.payloads,
                change.before,
                change.undoes,
                change is self.fix,
                b"" if request.shape is None else request.shape.fingerprint,
                self._rerouted(change),
                self._given(change),
                change.steps,
                inherits=request.inherits,
            )
        )

    def _given(self, change: Transaction) -> dict[str, bytes]:
        """What operators begin with that a change adds, if with nothing; not those that a rollback brings back."""
        shape = change.request.shape
        if shape is None or shape.returns or change.undoes:
            return {}
        return {name: shape.given.get(name, b"") for name in self.reshaping.added}

    def _rerouted(self, change: Transaction) -> frozenset[str]:
        """The operators that a change adds, and those of which it replaces the out-edges only."""
        shape = change.request.shape
        if shape is None or not change.undoes:
            return change.request.rerouted | self.reshaping.added
        # By a restart, at which removed operators return.
        undone = self.known[change.undoes].request.shape
        gone = frozenset[str]() if undone is None else frozenset(shape.after) - undone.after.by_name.keys()
        rerouted = next((each.rerouted for each in self._recovery.decided if each.change == change.undoes), ())
        return gone.union(rerouted).intersection(shape.after)

    def _end_if_over(self, change: Transaction, now_ns: int) -> list[Instruction]:
        return [] if change.pending_acks or change.stages_left else self._finish(change, now_ns)

    def _finish(self, change: Transaction, now_ns: int) -> list[Instruction]:
        """End a change that every live target worker has applied; revoke it if all of them ended before it."""
        opened = self._open_entries(change)
        self._release(change)
        if change.undoes:
            change.resolve(ChangeState.DONE, now_ns)
            return [*opened, *self._rolled_back(change.undoes)]
        if change.request.shape is not None:
            self.reshaping.done()
        if change.request.step_of and change.request.share in (0.0, 1.0):
            opened += self.let_go(change.request.step_of, f"change {change.request.change!r} has ended the canary")
        if change.switched or change.request.shape is not None or change.request.step_of:
            self._guards.counting(change.request.change, now_ns, self._reports)
            return [*opened, Resolved(change.resolve(ChangeState.DONE, now_ns))]
        words = f"all workers of {names(change.request.plan.targets)} ended before the change reached them"
        outcome = change.resolve(ChangeState.FAILED, now_ns, words)
        over = self.let_go(outcome.change, "nothing of the change is in place")
        back = Journal(self._recovery.take_back(outcome.change))
        self.cuts.close([outcome.change])
        return [*opened, back, *_forgotten(change), Resolved(outcome), *over]

    def _abort(self, change: Transaction, now_ns: int, error: str, details: str = "") -> list[Instruction]:
        begun = change.state is ChangeState.PREPARING
        if begun and change.request.shape is not None:
            self.reshaping.withdraw()
        outcome = change.resolve(ChangeState.ABORTED, now_ns, error, details)
        opened = self._open_entries(change)
        self._release(change)
        return [*opened, *(_forgotten(change) if begun else ()), Resolved(outcome)]

    def _tried(self, change: Transaction, now_ns: int) -> list[Instruction]:
        """End a trial that would have been decided."""
        self._release(change)
        forgotten = _forgotten(change)
        return [*forgotten, Resolved(change.resolve(ChangeState.REHEARSED, now_ns))]

    def _open_entries(self, change: Transaction) -> list[Instruction]:
        """Let rows enter again where the change has drained loops."""
        drain = self._drain if change is self.in_flight else None
        self._drain = None if drain is not None else self._drain
        return [] if drain is None else [*drain.open()]

    @property
    def is_draining(self) -> bool:
        """Whether rows may not enter some operators, from the first block until they may again."""
        return self._drain is not None or self._deferred is not None

    @property
    def drained(self) -> dict[str, Loop]:
        """The loops that a change drains, each with the attempts of the change."""
        drain = self._drain or self._deferred
        return {} if drain is None else drain.asked

    def _asked(self, answer: Settled | Done | None, worker: WorkerId) -> None:
        """Process a worker's answer to an attempt to find loops empty; ``None`` if it has ended."""
        drain = self._drain or self._deferred
        if drain is not None and isinstance(answer, Settled):
            drain.settled(answer)
        elif drain is not None and not isinstance(answer, Settled):
            drain.acknowledged(worker, answer)

    def _under_way(self) -> list[Transaction]:
        begun = (ChangeState.PREPARING, ChangeState.COMMITTING)
        candidates = (self.in_flight, self.fix, *self._decided, *self._queue)
        return [change for change in candidates if change is not None and change.state in begun]

    def _release(self, change: Transaction) -> None:
        if change is self.fix:
            self.fix = None
        elif change is self.in_flight:
            self.in_flight, self._awaited_epoch = None, None
        elif change in self._decided:
            self._decided.remove(change)
        else:
            self._queue.remove(change)


def _forgotten(change: Transaction) -> list[Tell]:
    """``Abort`` for every target worker, including those that have ended: discard what was prepared."""
    return [Tell(worker, Abort(change.request.change)) for worker in change.targets]
