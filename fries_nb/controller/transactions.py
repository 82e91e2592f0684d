"""A change as a transaction: requested, prepared, decided, done; or aborted or failed (see ``states.CHANGE_MOVES``).

Before the decision a change can be aborted without any effect. After it, the first fast control message may have
switched a worker, so the change ends as done or failed. It is decided when all target workers have prepared and the
rehearsal, if there is one, has succeeded. It is done when the workers awaited by its last stage have acknowledged, or,
if hosts are lost meanwhile, when all workers have been restarted with it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from itertools import chain, zip_longest

import networkx as nx

from fries_nb.controller.events import ChangeRequested, Guard, Outcome, ShapeChange, WorkerOutcome
from fries_nb.controller.guards import Watch
from fries_nb.controller.states import CHANGE_MOVES, ChangeProgress, ChangeState
from fries_nb.dataflow.arguments import Limit, Tuples
from fries_nb.dataflow.graph import Graph
from fries_nb.dataflow.updates import Update
from fries_nb.errors import ProtocolError
from fries_nb.planning.schedulers import Plan, Stage, StageAction, schedule
from fries_nb.protocol.messages import EXAMPLES, Done, Prepared, Rehearse, Rehearsed, WorkerId
from fries_nb.protocol.rollout import RolloutStep
from fries_nb.transitions import moved

NS_PER_MS = 1_000_000


class Transaction:
    """One change, with its state; times are nanoseconds of the caller's clock.

    Args:
        components: the operators of each component of the plan.
        early: whether tuples do not flow yet.

    Attributes:
        request: the request.
        targets: all workers of the target operators.
        components: the operators of each component of the plan, for the outcome.
        stages: the plan's stages, or the single stage of a fix (see ``change_steps``).
        state: see ``states.CHANGE_MOVES``.
        early: whether it was requested before tuples flowed; its delay is then counted from its preparation.
        samples: worker to the recent tuples that it returned.
        rehearsed: the result of the rehearsal; ``None`` before it, and without one.
        before: for a fix, the change that is ordered after it; empty for none.
        guard: the guard for which its workers keep their current configuration; ``None`` without one, and for a fix.
        replaces: the guards that its decision has ended and all of whose targets it changes.
        undoes: id of the guarded change that this automatic rollback undoes; otherwise empty.
        begun: of a change that is decided row by row, how far its frozen workers have begun; ``None`` before that.
        steps: its steps, if it is decided row by row, once they are decided.
        is_wired: of a change of the shape, whether all workers know the channels of both shapes.
        stage: index of the stage under way; -1 before the decision.
        pending_acks: while preparing, the workers whose ``Prepared`` or ``Rehearsed`` is awaited, ended or not; while
            committing, those whose ``Done`` ends the stage.
    """

    def __init__(
        self,
        request: ChangeRequested,
        targets: Iterable[WorkerId],
        components: tuple[tuple[str, ...], ...],
        now_ns: int,
        early: bool = False,
    ) -> None:
        self.request = request
        self.targets = tuple(targets)
        self.components = components
        self.stages: tuple[Stage, ...] = request.plan.stages
        self.state = ChangeState.REQUESTED
        self.samples: dict[WorkerId, tuple[bytes, ...]] = {}
        self.rehearsed: Rehearsed | None = None
        self.before = ""
        self.guard: Guard | None = None
        self.replaces: tuple[Watch, ...] = ()
        self.undoes = ""
        self.begun: list[Mapping[int, int]] | None = None
        self.steps: tuple[RolloutStep, ...] = ()
        self.is_wired = False
        self.stage = -1
        self.pending_acks: set[WorkerId] = set()
        self.early = early
        self._entered_ns = self._requested_ns = now_ns
        self._preparing_ns = self._prepared_ns = self._sent_ns = self._last_ns = now_ns
        self._per_worker: dict[WorkerId, WorkerOutcome] = {}
        self._answered: set[WorkerId] = set()  # those that have prepared it

    @property
    def open(self) -> bool:
        """Whether the change has not ended."""
        return bool(CHANGE_MOVES[self.state])

    @property
    def progress(self) -> ChangeProgress:
        """How far it is; may be called from any thread."""
        prepared, all_of = len(self._answered), len(self.targets)
        rehearses = self.state is ChangeState.PREPARING and prepared == all_of and bool(self.pending_acks)
        return ChangeProgress(self.state, all_of, prepared, rehearses, len(self._per_worker))

    @property
    def doubt(self) -> str | None:
        """Why it is not made unless it is forced, according to its rehearsal; ``None`` if there is no reason."""
        return None if self.rehearsed is None or self.request.force else self.rehearsed.doubt or None

    @property
    def stages_left(self) -> bool:
        """Whether a stage follows the one under way."""
        return self.stage + 1 < len(self.stages)

    @property
    def switched(self) -> bool:
        """Whether a target worker has switched."""
        return any(not outcome.ended for outcome in self._per_worker.values())

    def has_switched(self, worker: WorkerId) -> bool:
        """Whether this target worker has acknowledged that it switched, or had ended before."""
        return worker in self._per_worker

    @property
    def switches_now(self) -> frozenset[str]:
        """The operators that switch by an FCM of the stage under way."""
        stages = self.stages[self.stage : self.stage + 1] if self.stage >= 0 else ()
        return frozenset(send.operator for stage in stages if stage.does is StageAction.SWITCH for send in stage.sends)

    def move(self, to: ChangeState) -> None:
        """Go to another state."""
        self.state = moved(CHANGE_MOVES, self.state, to, f"change {self.request.change!r}")

    def prepare(self, now_ns: int) -> None:
        """Start the preparation: an answer of every target worker is awaited."""
        self.move(ChangeState.PREPARING)
        # Of a change of the shape, others switch as well, which have nothing to prepare; some give recent tuples.
        asked = self.request.payloads.keys() | self.request.rehearse
        self.pending_acks = {worker for worker in self.targets if worker.operator in asked}
        if self.early:
            self._requested_ns = now_ns
        self._preparing_ns = self._prepared_ns = now_ns

    def prepared(self, answer: Prepared, now_ns: int) -> bool:
        """Record a target worker's answer.

        Returns:
            Whether it counts; false if the change was aborted before.
        """
        if answer.worker not in self.targets:
            raise ProtocolError(f"{answer.worker} prepared change {self.request.change!r}, which does not concern it")
        if answer.worker in self._answered:
            raise ProtocolError(f"{answer.worker} prepared change {self.request.change!r} for the second time")
        self._answered.add(answer.worker)
        if self.state is not ChangeState.PREPARING:
            return False
        self.pending_acks.discard(answer.worker)
        self._prepared_ns = now_ns
        if answer.samples:
            self.samples[answer.worker] = answer.samples
        return True

    def rehearse(self, added: frozenset[str] = frozenset()) -> tuple[WorkerId, Rehearse] | None:
        """Start the rehearsal, if there is one; called when all targets have prepared.

        Args:
            added: the operators that it adds, if it changes the shape.

        Returns:
            The message and the worker whose host rehearses (the host of a first worker has one of every operator);
            ``None`` if there are no recent tuples, or the rehearsal has ended.
        """
        if not self.samples or self.rehearsed is not None:
            return None
        first = WorkerId(min(worker.operator for worker in self.samples), 0)
        self.pending_acks = {first}
        request, of_shape = self.request, self.request.shape is not None
        samples = chosen(self.samples, max(MOST_TUPLES, request.examples))
        compares = not request.force
        return first, Rehearse(
            request.change, samples, compares, added if of_shape else None, request.examples, request.is_trial
        )

    def has_rehearsed(self, answer: Rehearsed, now_ns: int) -> bool:
        """Record the result of the rehearsal.

        Returns:
            Whether it counts; false if the change was aborted before.
        """
        if self.state is not ChangeState.PREPARING:
            return False
        if self.pending_acks != {answer.worker} or self.rehearsed is not None:
            raise ProtocolError(f"{answer.worker} rehearsed change {self.request.change!r}, which it was not asked to")
        self.pending_acks, self.rehearsed, self._prepared_ns = set(), answer, now_ns
        return True

    def decide_unprepared(self, now_ns: int) -> None:
        """Decide an automatic rollback, whose workers kept their earlier configuration; no FCM is sent yet."""
        self.prepare(now_ns)
        self.pending_acks = set()
        self.move(ChangeState.COMMITTING)
        self._sent_ns = now_ns

    @property
    def freezes(self) -> bool:
        """Whether its workers have to be frozen before it can be decided."""
        return self.begun is None and self.stages[0].does is StageAction.FREEZE

    def freeze(self, awaited: Iterable[WorkerId]) -> None:
        """Begin to freeze its workers; their answers are awaited, before the decision."""
        self.begun, self.pending_acks, self.stages = [], set(awaited), self.stages[1:]

    def frozen(self, worker: WorkerId, done: Done | None) -> None:
        """Record the answer of a frozen worker; ``None`` if it has ended instead."""
        if self.begun is not None and self.state is ChangeState.PREPARING:
            self.pending_acks.discard(worker)
            self.begun += [] if done is None else [done.begun]

    def alone(self) -> str:
        """The only target operator, which it may fix; empty if there are several, or the shape changes with it."""
        targets = self.request.plan.targets
        return next(iter(targets)) if len(targets) == 1 and self.request.shape is None else ""

    def next_stage(self, awaited: Iterable[WorkerId], now_ns: int) -> None:
        """Begin the next stage, which ends when the workers ``awaited`` have acknowledged."""
        if self.state is ChangeState.PREPARING:
            self.move(ChangeState.COMMITTING)
            self._sent_ns = self._last_ns = now_ns
            if self.request.shape is not None:  # to make workers and channels is to prepare
                self._prepared_ns = now_ns
        self.stage += 1
        self.pending_acks = set(awaited)

    def journaled(self, at_ns: int) -> None:
        """Record when the decision was on disk, so that the write does not count as commit time."""
        if self.state is ChangeState.COMMITTING and not self.stage:
            self._sent_ns = at_ns

    def acknowledged(self, worker: WorkerId, done: Done | None, now_ns: int) -> None:
        """Record that a worker has applied the stage's marker; ``done`` is ``None`` if it has ended instead."""
        self.pending_acks.discard(worker)
        if worker not in self.targets or self.stages[self.stage].does in (StageAction.HOLD, StageAction.RELEASE):
            return
        self._last_ns = now_ns
        delay_ms = (now_ns - self._requested_ns) / NS_PER_MS
        if done is not None and not done.ended:
            self._per_worker[worker] = WorkerOutcome(delay_ms, done.old_tuples)
        else:
            self._per_worker.setdefault(worker, WorkerOutcome(delay_ms, ended=True))

    def started_again(self, ended: Iterable[WorkerId], now_ns: int) -> None:
        """Record that all workers were restarted with this change, except those ``ended`` before the checkpoint."""
        self._last_ns = now_ns
        delay_ms = (now_ns - self._requested_ns) / NS_PER_MS
        gone = set(ended)
        for worker in self.targets:
            before = self._per_worker.get(worker, WorkerOutcome(delay_ms))
            self._per_worker[worker] = WorkerOutcome(delay_ms, before.old_tuples, ended=worker in gone)

    def resolve(self, state: ChangeState, now_ns: int, error: str = "", details: str = "") -> Outcome:
        """End the change, and release its functions."""
        if self.state is ChangeState.PREPARING and self.pending_acks:
            self._prepared_ns = now_ns
        self.move(state)
        self.pending_acks = set()
        done, doubted = state is ChangeState.DONE, bool(self.doubt)
        has_examples = self.rehearsed is not None and bool(self.request.examples)
        plan = self.request.plan
        self.request = ChangeRequested(
            self.request.change, plan, {}, self.request.rehearse, self.request.transforms,
            shape=self.request.shape and ShapeChange(self.request.shape.after, returns=self.request.shape.returns),
        )  # fmt: skip
        rehearsal = in_words(self.rehearsed, plan.targets) if self.request.rehearse else _unrehearsed(self.request)
        return Outcome(
            change=self.request.change,
            scheduler=plan.scheduler,
            outcome=state.value,  # type: ignore[arg-type]  # the table ends in these three only
            error=error,
            details=details,
            prepare_ms=(self._prepared_ns - self._preparing_ns) / NS_PER_MS,
            commit_ms=(self._last_ns - self._sent_ns) / NS_PER_MS if done else 0.0,
            delay_ms=(self._last_ns - self._requested_ns) / NS_PER_MS if done else 0.0,
            waited_ms=(self._requested_ns - self._entered_ns) / NS_PER_MS,
            components=self.components,
            per_worker=dict(self._per_worker),
            before=self.before,
            rehearsal=rehearsal if done or state is ChangeState.REHEARSED else "",
            needs_force=state is ChangeState.ABORTED and doubted,
            has_examples=has_examples,
        )


def _unrehearsed(request: ChangeRequested) -> str:
    if request.shape is None:
        return "not rehearsed, as requested"
    return f"not rehearsed, since it {'goes back' if request.shape.returns else 'only begins further sources'}"


# ---- requests


def change_requested(
    graph: Graph,
    change: str,
    plan: Plan,
    updates: Mapping[str, Update],
    payloads: Mapping[str, bytes],
    limit: Limit | None = None,
    rehearse: bool = True,
    undoes: str = "",
    timeout_s: float | None = None,
    force: bool = False,
    examples: int = EXAMPLES,
    is_trial: bool = False,
) -> ChangeRequested:
    """Create the request of a change."""
    targets = plan.targets
    fair = {name for name in targets if not targets & nx.ancestors(graph.digraph, name)} if rehearse else set()
    transforms = frozenset(name for name in targets if updates[name].state is not None)
    guard = guard_of(graph, targets, updates, limit) if limit is not None else None
    return ChangeRequested(
        change, plan, payloads, frozenset(fair), transforms, guard, undoes, timeout_s, force, examples=examples,
        is_trial=is_trial,
    )  # fmt: skip


def guard_of(graph: Graph, targets: Iterable[str], updates: Mapping[str, Update], limit: Limit) -> Guard:
    """The guard of a change; the rollback is scheduled by Fries, which has the lowest delay."""
    back = all(updates[name].state is None or updates[name].back is not None for name in targets)
    seconds, count = (None, limit.count) if isinstance(limit, Tuples) else (limit, None)
    seconds = None if seconds == math.inf else seconds
    return Guard(schedule("fries", graph, targets), back, seconds, count)


def refuse_incomplete(request: ChangeRequested) -> None:
    """Raise a ProtocolError for an invalid plan: no targets or stages, an endless wait, or markers that may cross."""
    plan = request.plan
    if not (plan.targets or request.shape) or not plan.stages:
        raise ProtocolError(f"change {request.change!r} has no targets or no stages; a scheduler plans both")
    shipped = set(request.payloads)
    if shipped != plan.targets and not request.step_of and (request.shape is None or not shipped <= plan.targets):
        raise ProtocolError(
            f"change {request.change!r} ships functions for {names(request.payloads)}; its targets are "
            f"{names(plan.targets)}"
        )
    if len(plan.stages) > 1 and any(stage.does is StageAction.RESTART for stage in plan.stages):
        raise ProtocolError(f"{plan.scheduler} has stages beside a restart, which is a whole plan")
    for stage in plan.stages:
        beyond = stage.awaits.difference(*(send.scope for send in stage.sends))
        if beyond:
            raise ProtocolError(f"a stage of {plan.scheduler} awaits {names(beyond)}, which no marker of it reaches")
        scopes = {send.scope for send in stage.sends}
        if sum(map(len, scopes)) > len(frozenset().union(*scopes)):
            raise ProtocolError(f"scopes of a stage of {plan.scheduler} overlap; their markers could cross")


def keeps_state(operator: str, before: str) -> str:
    """The error of a fix that transforms state and is ordered before ``before``, prepared for the current state."""
    return (
        f"{operator} is paused on a tuple from before change {before!r}, which was prepared for the current state; "
        "expected a fix without a state transformation"
    )


def names(operators: Iterable[str]) -> str:
    """Names of operators, sorted and separated by commas, for messages; ``none`` if there are none."""
    return ", ".join(sorted(operators)) or "none"


# ---- rehearsal


MOST_TUPLES = 32
"""Maximum number of tuples of one operator in a rehearsal."""
MOST_BYTES = 1 << 20
"""Maximum size in bytes of the tuples of one operator in a rehearsal; the first tuple may exceed it."""


def chosen(samples: Mapping[WorkerId, tuple[bytes, ...]], most: int = MOST_TUPLES) -> dict[str, tuple[bytes, ...]]:
    """Operator to the tuples of its rehearsal: taken from its workers in turn, but no more than so many.

    >>> chosen({WorkerId("FM", 0): (b"1", b"2"), WorkerId("FM", 1): (b"3",)})
    {'FM': (b'1', b'3', b'2')}
    """
    by_operator: dict[str, list[tuple[bytes, ...]]] = {}
    for worker in sorted(samples):
        by_operator.setdefault(worker.operator, []).append(samples[worker])
    return {operator: _few(of_workers, most) for operator, of_workers in by_operator.items()}


def _few(of_workers: list[tuple[bytes, ...]], most: int) -> tuple[bytes, ...]:
    samples = chain.from_iterable(zip_longest(*of_workers))
    in_turn = [sample for sample in samples if sample is not None][:most]
    few, total = in_turn[:1], len(in_turn[0])
    for sample in in_turn[1:]:
        total += len(sample)
        if total <= MOST_BYTES:
            few.append(sample)
    return tuple(few)


def in_words(rehearsed: Rehearsed | None, targets: Iterable[str]) -> str:
    """Describe a rehearsal, for ``Outcome.rehearsal``.

    >>> in_words(Rehearsed("u1", WorkerId("FM", 0), tuples=3, tried=frozenset({"FM"}), unreached=frozenset({"J"})), [])
    'rehearsed on 3 recent tuples through FM; only types were checked for J, which no tuple reached'
    """
    if rehearsed is None or not rehearsed.tuples:
        return f"not rehearsed, since there was no recent tuple that {names(targets)} processed without an error"
    count = "a recent tuple" if rehearsed.tuples == 1 else f"{rehearsed.tuples} recent tuples"
    words = f"rehearsed on {count} through {names({*rehearsed.tried, *rehearsed.arriving})}"
    if rehearsed.spared:
        words += f"; {names(rehearsed.spared)} did not run, since the types of the input are unchanged"
    if rehearsed.unreached:
        words += f"; only types were checked for {names(rehearsed.unreached)}, which no tuple reached"
    return words
