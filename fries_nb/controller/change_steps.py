"""The changes of a run: one in flight at a time, in order of request.

``advance`` repeats the step that is possible now:

    none in flight, one is queued                send ``Prepare`` to its target workers (early ones: once tuples flow)
    all prepared, with recent tuples             request a rehearsal on one host
    all prepared, columns incompatible           abort
    all prepared, it is a trial                  it ends as ``rehearsed``
    all prepared, no marker in flight            journal the decision, send the FCMs of the first stage
    all prepared, a commit marker in flight      journal the decision, cancel the commit, send the FCMs
    all prepared, a loop is touched              drain it (see ``LoopDrain``), then the same; or abort, if it is late
    ... and the shape changes                    when it is empty take a checkpoint; if kept: the same; otherwise: abort
    a stage is complete, its marker has retired  send the FCMs of the next stage
    all prepared for a restart                   take a checkpoint; if kept: journal, restart; otherwise: abort

Workers that have ended prepare too: they do not switch, but if the run restarts from a checkpoint taken before their
end they are restored with the new function, which must have been tried. If all target workers have ended, the change is
aborted without a preparation.

A change ends with its last stage. Its marker may stay in flight for longer, while the next change prepares.

While an operator is *paused* on a tuple (see ``failed_rows``), only a *fix* proceeds: a change of that operator alone.
It precedes the queue, and also a change whose marker is blocked behind the operator. Its marker is sent to the
operator's workers only, regardless of its scheduler's plan. If the blocked change includes the operator, the fix is
ordered before it.

If hosts are lost, an undecided change is aborted; a decided one is applied when the workers are restored, or later
(see ``DeferredChanges``), before any other.
"""

from __future__ import annotations

from fries_nb.controller.events import GuardEnded, Instruction, ShapeChange, Tell
from fries_nb.controller.guards import rollback_of
from fries_nb.controller.known_changes import DeferredChanges, KnownChanges
from fries_nb.controller.loop_attempts import LoopDrain
from fries_nb.controller.markers import action_of, tags
from fries_nb.controller.schema_checks import misfit
from fries_nb.controller.states import ChangeState
from fries_nb.controller.transactions import Transaction, keeps_state, names
from fries_nb.planning.schedulers import Send, Stage, StageAction
from fries_nb.protocol.messages import Freeze, Prepare, WorkerId


class Changes(KnownChanges):
    """The steps of a run's changes."""

    @property
    def holds(self) -> bool:
        """Whether a decided change restarts the run, so that nothing else is begun on its hosts."""
        return self.restarting is not None

    def pause(self, operator: str, error: str, now_ns: int) -> list[Instruction]:
        """Abort the undecided change in flight, since an operator is paused for an error, unless it is its fix."""
        change = self.in_flight
        if change is None or change.state is not ChangeState.PREPARING:
            return []
        if change.alone() == operator and self.fix is None:
            self._release(change)
            self.fix = change
            return []
        return self._abort(
            change, now_ns, f"{operator} is paused on a tuple that it fails on ({error}); nothing changed"
        )

    def _guarded(self, change: Transaction) -> list[Instruction]:
        """Begin the guard of a change that is decided, and end the guards whose rollback would meet its markers.

        The returned instructions must follow the FCMs of the change: a head that is paused under such a guard then
        retries its tuple with the new function, and not with the one that failed.
        """
        request = change.request
        passed = request.plan.scope if change is not self.fix else request.plan.targets
        reason = f"change {request.change!r} came after it"
        met = self._guards.meeting(passed)
        change.replaces = tuple(watch for watch in met if watch.guard.plan.targets <= request.plan.targets)
        ended = [instruction for watch in met for instruction in self.let_go(watch.change, reason)]
        if change.guard is not None:
            self._guards.begin(request.change, change.guard, request.transforms)
        elif request.guard is not None:
            ended.append(GuardEnded(request.change, "it was prepared as a fix, which is under no guard"))
        return ended

    @property
    def quiet(self) -> bool:
        """Whether no change is queued, under way, or under guard."""
        under_way = self.in_flight is not None or self.fix is not None or self._deferred is not None
        return not (under_way or self._queue or self._guards.all() or self.cuts.open)

    @property
    def is_settled(self) -> bool:
        """Whether no change is decided and not complete, or under guard, or drains a loop; some may be prepared."""
        free = not self.is_committing and not self._guards.all() and not self.is_draining and not self.restarting
        return free and not self.cuts.open

    @property
    def is_committing(self) -> bool:
        """Whether a change is decided and not complete."""
        begun = [change for change in (self.in_flight, self.fix) if change is not None]
        return any(change.state is ChangeState.COMMITTING for change in begun)

    def advance(self, now_ns: int, is_tick: bool) -> list[Instruction]:
        """Take all steps that are possible now."""
        taken: list[Instruction] = []
        for change in self._guards.expired(now_ns, self._reports):
            taken += self.let_go(change, "the new configuration has not failed")
        if self.in_flight is not None and self._drain is not None and self._drain.is_late(now_ns):
            waited = f"{names(self._drain.asked)} did not empty within {self.in_flight.request.timeout_s:g} s"
            taken += self._abort(self.in_flight, now_ns, f"{waited}; nothing changed")
        while not self.restarting and (step := self._step(now_ns)) is not None:
            taken += step
        return taken

    def _step(self, now_ns: int) -> list[Instruction] | None:
        step = self._fix_step(now_ns)  # first, since the change in flight may wait behind the paused worker
        return self._main_step(now_ns) if step is None else step

    def _fix_step(self, now_ns: int) -> list[Instruction] | None:
        if self.fix is None:
            self.fix = self._next_fix()
            return None if self.fix is None else self._begin(self.fix, now_ns)
        if self.fix.state is ChangeState.COMMITTING:
            return None
        if self.fix.alone() not in self._paused.operators:  # it has resumed without the fix: an ordinary change
            self.fix.before = ""
            self._queue.appendleft(self.fix)
            self.fix = None
            return []
        if self.fix.pending_acks:
            return None
        if (asked := self.fix.rehearse()) is not None:
            return [Tell(*asked)]
        operator = self.fix.alone()
        scope = frozenset((operator,))
        self.fix.stages = (Stage((Send(operator, scope),), scope),)
        over = self._undecided(self.fix, now_ns)
        return self._decide(self.fix, now_ns) if over is None else over

    def _next_fix(self) -> Transaction | None:
        for waiting in self._queue:
            operator = "" if waiting.undoes else waiting.alone()  # a rollback is decided without a preparation
            if operator in self._paused.operators and (before := self._later(operator)) is not None:
                self._queue.remove(waiting)
                waiting.before = before
                return waiting
        return None

    def _later(self, operator: str) -> str | None:
        """The decided change before which a fix of a paused operator is ordered; empty for none, ``None`` to wait."""
        if self._deferred is not None and (first := self._deferred.first_of(operator)):
            return None if self._deferred.have_switched(self._paused_of(operator)) else first
        change = self.in_flight
        if (open_before := self._paused.before(operator, self.cuts.open)) or change is None:
            return open_before
        if operator not in change.request.plan.targets:
            return ""
        return change.request.change if self._is_paused_before(operator) else None

    def _paused_of(self, operator: str) -> list[WorkerId]:
        return [worker for worker in self._paused.workers if worker.operator == operator]

    def _is_paused_before(self, operator: str) -> bool:
        """Whether the marker of the change being committed is blocked behind a paused worker of this operator.

        A head of that change is not blocked: its FCM precedes the tuple, which belongs to the new version.
        """
        change = self.in_flight
        if change is None or change.state is not ChangeState.COMMITTING or operator in change.switches_now:
            return False
        return not all(map(change.has_switched, self._paused_of(operator)))

    def _main_step(self, now_ns: int) -> list[Instruction] | None:
        change = self.in_flight
        if change is None and self._queue and self._queue[0].undoes:
            change = self.in_flight = self._queue.popleft()
        if change is None and self._deferred is not None:
            return self._deferred_step(self._deferred, now_ns)
        if change is None:
            return self._begin_next(now_ns)
        if change.state is ChangeState.PREPARING and (no_target := self._no_live_target(change)):
            return self._abort(change, now_ns, no_target)
        if change.request.shape is not None and not change.is_wired:
            return self._wired(change, change.request.shape, now_ns)
        if change.pending_acks or (change.state is ChangeState.COMMITTING and self._lane.busy):
            return None
        if change.state is ChangeState.COMMITTING:
            return self._next_stage(change, now_ns)
        if (asked := change.rehearse(self.reshaping.added)) is not None:
            return [Tell(*asked)]
        if self._awaited_epoch is not None:
            return self._go_on_or_not(change, self._awaited_epoch, now_ns)
        if (over := self._undecided(change, now_ns)) is not None:
            return over
        if self._paused.operators:
            return None
        if change.stages[0].does is StageAction.RESTART:
            return self._checkpoint_first(now_ns)
        if self._lane.busy and not self._lane.commits and self._drain is None:
            return None
        if change.freezes:
            return self._freeze(change, now_ns)
        if change.begun is None and change.request.plan.covering.loops and not self._is_drained(change):
            return self._drain_loops(change, now_ns)
        return self._decide(change, now_ns)

    def _begin_next(self, now_ns: int) -> list[Instruction] | None:
        """Begin the first change of the queue, or what has to precede it."""
        if not self._queue and self.cuts.open and not self.cuts.canary and self.awaits_quiet():
            return self._end_cuts(now_ns)
        if not self._queue or self._paused.operators or (self._lane.tags and tags(self._queue[0].stages)):
            return None
        if not self.reshaping.is_idle:
            return None
        first = self._queue[0]
        if canary := self.cuts.canary:  # the others wait until one version is left
            steps = [waiting for waiting in self._queue if waiting.request.step_of == canary]
            if not steps:
                return None
            first = steps[0]
        elif first.request.step_of:
            return self._abort(first, now_ns, f"change {first.request.step_of!r} has ended; nothing changed")
        if not first.freezes and self.cuts.open:
            limit_s = first.request.timeout_s
            if self.cuts.waits_too_long(first.request.change, limit_s, now_ns):
                words = f"rows that are old for {', '.join(self.cuts.open)} were still there after {limit_s:g} s"
                return self._abort(first, now_ns, f"{words}; nothing changed")
            return self._end_cuts(now_ns, first.request.change)
        if first.early and not self._checkpoints.intake.flows(first.request.plan.targets):
            return None
        self._queue.remove(first)
        self.in_flight = first
        return self._begin(first, now_ns)

    def _freeze(self, change: Transaction, now_ns: int) -> list[Instruction]:
        """Let the targets of a change say how far they have begun; the change can still be aborted."""
        cancelled = self._checkpoints.cancel(now_ns) if self._lane.commits else []
        sends = change.stages[0].sends
        change.freeze(self._workers.live(change.request.plan.targets))
        return [*cancelled, *self._lane.start(sends, Freeze(change.request.change))]

    def _end_cuts(self, now_ns: int, waiting: str = "") -> list[Instruction] | None:
        """Look for old rows of changes that are decided row by row, so that others can follow when there are none."""
        cancelled = self._checkpoints.cancel(now_ns) if self._lane.commits else []
        looks = None if self._lane.busy else self.cuts.look(now_ns, waiting)
        return [*cancelled, *looks] if looks is not None else cancelled or None

    def _deferred_step(self, deferred: DeferredChanges, now_ns: int) -> list[Instruction] | None:
        """Take a step of the changes that the last restart has deferred; nothing else is begun before they are done."""
        if self._paused.operators:
            return None
        steps = deferred.advance()
        return self._end_deferred(deferred, now_ns) if steps == [] else [*steps] if steps else None

    def _is_drained(self, change: Transaction) -> bool:
        """Whether the loops of a change are empty, and in the last checkpoint as well if the shape changes."""
        if self._drain is None or not self._drain.is_empty:
            return False
        return self._drain.is_kept or change.request.shape is None or not self._recovery.recovers

    def _drain_loops(self, change: Transaction, now_ns: int) -> list[Instruction] | None:
        """Take a step of the drain of the loops that the change touches; the change is decided when they are empty."""
        cancelled: list[Instruction] = []
        if self._drain is not None and self._drain.is_empty:
            return self._keep_empty(change, now_ns)
        if self._drain is None:
            cancelled = self._checkpoints.cancel(now_ns) if self._lane.commits else []
            parts = change.request.plan.covering.components
            limit_s = change.request.timeout_s
            deadline_ns = None if limit_s is None else now_ns + limit_s * 1e9
            self._drain = LoopDrain(change.request.change, parts, self._workers, self._lane, deadline_ns=deadline_ns)
            change.stages = change.stages if change.request.shape else (self._drain.stage(),)
        steps: list[Instruction] = [*cancelled, *self._drain.advance()]
        return steps if steps or self._drain.is_empty else None

    def _begin(self, change: Transaction, now_ns: int) -> list[Instruction]:
        if change.state is ChangeState.PREPARING:
            return []  # it was begun as a fix, and returned to the queue
        if pointless := self._undone_already(change) or self._no_live_target(change) or self._unfit_for_loops(change):
            return self._abort(change, now_ns, pointless)
        if change.before and change.request.transforms:
            return self._abort(change, now_ns, keeps_state(change.alone(), change.before))
        if change.request.shape is not None:
            return self._wire(change, change.request.shape, now_ns)
        change.targets = tuple(self._workers.of(change.request.plan.targets))  # may have grown since the request
        return self._prepare(change, now_ns)

    def _prepare(self, change: Transaction, now_ns: int) -> list[Instruction]:
        change.prepare(now_ns)
        change.guard = change.request.guard if change is not self.fix else None
        request, tagged = change.request, tags(change.stages) and not self._lane.tags
        offers = self._workers.live(request.rehearse)  # the tuples of an ended worker are not recent
        of, back = request.payloads, rollback_of(request.change) if change.guard and not change.freezes else ""
        how = (tagged, change.before, back, request.examples if request.is_trial else 0)
        return [
            Tell(worker, Prepare(request.change, of[worker.operator], worker in offers, *how))
            for worker in change.targets
            if worker.operator in of
        ]

    def _wire(self, change: Transaction, shape: ShapeChange, now_ns: int) -> list[Instruction]:
        """Begin a change of the shape: its targets prepare while workers learn of the channels of both shapes.

        Both take a tuple in hand and a round trip, and neither needs the other.
        """
        if why := self.reshaping.refusal(shape.after) or self.reshaping.unkept(shape):
            return self._abort(change, now_ns, f"{why}; nothing changed")
        change.targets = tuple(self._workers.of(change.request.switching))
        change.guard = change.request.guard
        change.prepare(now_ns)
        members = {name for part in change.request.plan.covering.components for name in part.operators}
        return [*self.reshaping.begin(change.request.change, shape, members, now_ns), *self._ask(change)]

    def _ask(self, change: Transaction) -> list[Instruction]:
        """Let the targets of a change of the shape prepare, whether they have left their chains or not."""
        request, offers = change.request, self._workers.live(change.request.rehearse)
        return [
            Tell(worker, Prepare(request.change, request.payloads.get(worker.operator, b""), worker in offers))
            for worker in change.targets
            if worker in change.pending_acks
        ]

    def _wired(self, change: Transaction, shape: ShapeChange, now_ns: int) -> list[Instruction] | None:
        """Go on with a change of the shape when all workers know the channels; or abort it."""
        if self.reshaping.is_wired and self.reshaping.failure is not None:
            error, details = self.reshaping.failure
            return self._abort(change, now_ns, f"{error}; nothing changed", details)
        if why := self.reshaping.refusal(shape.after):
            return self._abort(change, now_ns, f"{why}; nothing changed")
        change.is_wired = self.reshaping.is_wired
        return [] if change.is_wired else None

    def _undone_already(self, change: Transaction) -> str | None:
        """The reason if the change that this one rolls back was already rolled back by its guard."""
        undone = change.request.undoes
        back = self.known.get(rollback_of(undone))
        if back is None:
            return None
        how = "is being rolled back by its guard" if back.open else "was rolled back by its guard already"
        return f"change {undone!r} {how}; nothing changed"

    def _unfit_for_loops(self, change: Transaction) -> str | None:
        """Why a change that touches loops cannot be carried out as requested, as a message."""
        request = change.request
        loops = names(request.plan.covering.loops)
        if not request.plan.covering.loops or change is self.fix or change.freezes:
            return None
        if request.plan.scheduler != "fries":
            return f"the change touches loop {loops}, which fries drains; {request.plan.scheduler} does not"
        if request.guard is not None:
            return f"the change touches loop {loops}, and is under guard; expected a change without guard there"
        return None

    def _no_live_target(self, change: Transaction) -> str | None:
        """Why no target worker can still switch, as a message; ``None`` if one can."""
        targets = change.request.plan.targets
        if self._workers.live(targets) or change.request.shape is not None:
            return None
        return f"all workers of {names(targets)} have ended; there is nothing left to change"

    def _undecided(self, change: Transaction, now_ns: int) -> list[Instruction] | None:
        """End a prepared change that cannot be decided, or is not to be; ``None`` if it is."""
        if unfit := self._unfit(change):
            return self._abort(change, now_ns, unfit)
        return self._tried(change, now_ns) if change.request.is_trial else None

    def _unfit(self, change: Transaction) -> str | None:
        """Why the prepared change cannot be decided, as a message; ``None`` if it can."""
        plan, shape = change.request.plan, change.request.shape
        if shape is not None:  # every member is told
            return misfit(shape.after, plan.targets | self.reshaping.added, change.rehearsed, self._reports)
        sends = change.stages[0].sends
        is_drained = plan.covering.loops and not change.freezes
        if not is_drained and not self._lane.reaches_someone(sends):  # those are switched one by one
            starts = names({send.operator for send in sends})
            return f"{plan.scheduler} starts its marker at {starts}, whose workers have all ended; nothing changed"
        return misfit(self._workers.graph, plan.targets, change.rehearsed, self._reports)

    def _keep_empty(self, change: Transaction, now_ns: int) -> list[Instruction] | None:
        """Take a checkpoint while the loops of a change of the shape are empty.

        From an earlier one, in which rows were inside, a restart would let these leave by the edges of after.
        """
        settled = self._workers.settled
        if not self._workers.live((*settled.sources, *settled.heads)):  # no checkpoint can begin
            return self._abort(change, now_ns, "all sources and loops have ended; nothing changed")
        return self._checkpoint_first(now_ns)

    def _checkpoint_first(self, now_ns: int) -> list[Instruction] | None:
        if not self._checkpoints.may_begin:
            return None
        taken = self._checkpoints.begin(now_ns, checkpoint=True)
        self._awaited_epoch = self._checkpoints.epoch
        return taken

    def _go_on_or_not(self, change: Transaction, epoch: int, now_ns: int) -> list[Instruction] | None:
        """Go on with a change once its checkpoint is kept: a restart is decided; abort it if that was aborted."""
        kept = self._recovery.checkpoint
        if kept is not None and kept.epoch == epoch:
            self._awaited_epoch = None
            if self._drain is not None:
                self._drain.is_kept = True
                return []
            self.restarting = change.request.change
            change.next_stage((), now_ns)
            return [self._journal(change), *self._guarded(change)]
        if self._checkpoints.working_on(epoch):
            return None
        what = "for the restart" if self._drain is None else "of the empty loops"
        why = f"the checkpoint {what} was aborted ({self._checkpoints.why_not}); nothing changed"
        return self._abort(change, now_ns, why)

    def _decide(self, change: Transaction, now_ns: int) -> list[Instruction]:
        if change.begun is not None:
            request = change.request
            of = request.step_of or request.change
            change.steps = self.cuts.decide(of, request.plan.targets, change.begun, request.share)
        steps: list[Instruction] = [self._journal(change)]
        if change.request.shape is not None:
            steps += self.reshaping.decide()
        over = self._guarded(change) if not change.request.step_of else []
        cancelled = self._checkpoints.cancel(now_ns) if self._lane.commits else []
        return [*steps, *cancelled, *self._next_stage(change, now_ns), *over]  # FCMs precede the ends of guards

    def _next_stage(self, change: Transaction, now_ns: int) -> list[Instruction]:
        stage = change.stages[change.stage + 1]
        change.next_stage(self._workers.live(stage.awaits), now_ns)
        for worker in change.targets:
            if worker in self._workers.ended:
                change.acknowledged(worker, None, now_ns)
        request, targets, epoch = change.request, change.request.plan.targets, 0
        further = request.rerouted, change.steps, request.step_of, request.inherits
        if request.shape is not None:
            targets, epoch = frozenset(request.payloads), self.reshaping.epoch
        action = action_of(stage, request.change, targets, change.before, epoch, *further)
        if change is self.fix:
            fcms = self._lane.start_bypass(change.alone(), action)
        else:
            fcms = self._lane.start(stage.sends, action)
        return [*fcms, *self._end_if_over(change, now_ns)]
