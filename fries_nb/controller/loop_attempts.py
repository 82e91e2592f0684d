"""The ends of loops: attempts, judged for all heads inside a loop at once.

A loop may end when no row can enter it and none is inside. Rows can no longer enter when each worker of its head has
taken the end of every forward channel (``InputEnded``). Whether rows are inside is found out by *attempts*: a marker
goes from the head through the body, inner loops included, and around each of these loops. The loop is empty if in one
attempt

- no worker of any head inside took a frame from a feedback channel between passing the marker on and its return there,
- no worker inside held tuples when it applied the marker.

Only both together at all workers are a consistent cut without tuples, so the controller judges, and no head by itself.

    phase     input has ended   marker starts   empty     frames were taken   workers were busy only   all settled
    FED       READY             -               -         -                   -                        -
    READY     -                 ASKING          -         -                   -                        -
    ASKING    -                 -               ENDING    READY               WAITING                  -
    WAITING   -                 -               -         -                   -                        READY

The pace needs no clock: each further attempt is paid for by a frame that was taken in the last one, or by a worker that
was busy and has *settled* since. An attempt has the lane of markers only if nothing else needs it.

>>> from fries_nb.dataflow.graph import Edge, Graph, Kind, Operator
>>> from fries_nb.dataflow.graph import ROOT
>>> flow = Graph("loop", (
...     Operator("S", kind=Kind.SOURCE), Operator("L", kind=Kind.LOOP, within=ROOT.nest("L")),
...     Operator("B", within=ROOT.nest("L")), Operator("Z", kind=Kind.SINK),
... ), (Edge("S", "L"), Edge("L", "B"), Edge("B", "L", feedback=True), Edge("B", "Z", branch=1)))
>>> workers = Workers(flow)
>>> lane = MarkerCoordinator(workers)
>>> loops = LoopAttempts(workers, lane, yields=lambda now_ns: False)
>>> loops.take(InputEnded(WorkerId("L", 0)), now_ns=0)
[]
>>> for observed in (2, 0):
...     [fcm] = loops.advance(now_ns=1, is_tick=False)
...     for worker in (WorkerId("L", 0), WorkerId("B", 0)):
...         done, action = Done(fcm.control.marker.id, worker, observed=observed), fcm.control.marker.action
...         _ = lane.acknowledge(done.marker, worker), loops.acknowledged(action, worker, done, now_ns=2)
>>> loops.advance(now_ns=3, is_tick=False)
[Tell(worker=WorkerId(operator='L', index=0), control=EndLoop())]

The drain of the loops that a change touches: a loop is empty when its operators switch.

Rows go round a loop behind any marker, so a marker alone cannot separate old rows from new ones there. Every component
of the change that holds a loop is therefore

    1. blocked: on all channels that enter it, also at operators that are not its heads,
    2. asked by attempts until it is empty (see ``loop_attempts``),
    3. switched, all targets at once; this is the decision, and before it nothing has changed,
    4. opened.

Blocking the loop alone would not do: old rows between the heads of the component and the loop would enter it later.

>>> from fries_nb.dataflow.graph import Edge, Graph, Kind, Operator
>>> from fries_nb.dataflow.graph import ROOT
>>> from fries_nb.planning.schedulers import schedule
>>> flow = Graph("loop", (
...     Operator("S", kind=Kind.SOURCE), Operator("L", kind=Kind.LOOP, within=ROOT.nest("L")),
...     Operator("B", within=ROOT.nest("L")), Operator("Z", kind=Kind.SINK),
... ), (Edge("S", "L"), Edge("L", "B"), Edge("B", "L", feedback=True), Edge("B", "Z", branch=1)))
>>> workers = Workers(flow)
>>> lane = MarkerCoordinator(workers)
>>> drain = LoopDrain("u1", schedule("fries", flow, {"B"}).covering.components, workers, lane)
>>> [(str(tell.worker), type(tell.control.marker.action).__name__) for tell in drain.advance()]
[('L[0]', 'BlockEntries'), ('B[0]', 'BlockEntries')]
>>> for marker, worker in enumerate(workers.of({"L", "B"}), 1):
...     _ = lane.acknowledge(marker, worker)
>>> [(str(tell.worker), tell.control.marker.action) for tell in drain.advance()]
[('L[0]', Attempt(subject='u1', number=1))]
>>> drain.advance(), drain.is_empty
([], False)
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from fries_nb.controller.coordinator import Coordinator, MayBegin, Taken
from fries_nb.controller.events import Instruction, Tell
from fries_nb.controller.markers import MarkerCoordinator
from fries_nb.controller.membership import Workers
from fries_nb.controller.states import LOOP_MOVES, LoopPhase
from fries_nb.errors import ProtocolError
from fries_nb.planning.covering import Component
from fries_nb.planning.schedulers import Send, Stage
from fries_nb.protocol.messages import (
    Action,
    Attempt,
    BlockEntries,
    Done,
    EndLoop,
    InputEnded,
    OpenEntries,
    Settled,
    WorkerId,
)
from fries_nb.transitions import moved


@dataclass
class Loop:
    """A loop; or all that a change with loops has to find empty (see ``LoopDrain``).

    Attributes:
        name: the operator at its head; or the id of the change.
        sends: the receivers of an attempt's markers, and their scopes.
        phase: see the module.
        attempts: number of attempts begun.
        fed: the workers of the head that have not taken the end of their forward channels.
        owed: the workers that have not acknowledged the marker of the last attempt.
        observed: number of frames that were taken in the last attempt.
        was_busy: whether any worker was busy in it.
        busy: those that have not settled since.
    """

    name: str
    sends: tuple[Send, ...] = ()
    phase: LoopPhase = LoopPhase.FED
    attempts: int = 0
    fed: set[WorkerId] = field(default_factory=set)
    owed: set[WorkerId] = field(default_factory=set)
    observed: int = 0
    was_busy: bool = False
    busy: set[WorkerId] = field(default_factory=set)

    def move(self, to: LoopPhase) -> None:
        """Go to another phase."""
        self.phase = moved(LOOP_MOVES, self.phase, to, f"loop {self.name}")

    def start(self, workers: Workers, lane: MarkerCoordinator) -> list[Tell]:
        """Start an attempt; no marker may be in flight."""
        self.move(LoopPhase.ASKING)
        self.attempts += 1
        self.owed = set(workers.live(frozenset().union(*(send.scope for send in self.sends))))
        self.observed, self.was_busy, self.busy = 0, False, set()
        return lane.start(self.sends, Attempt(self.name, self.attempts))

    def acknowledged(self, worker: WorkerId, done: Done | None) -> None:
        """Record an acknowledgement of the attempt in flight; ``done`` is ``None`` if the worker has ended instead."""
        if self.phase is LoopPhase.ASKING:
            self.owed.discard(worker)
            self.observed += done.observed if done is not None else 0
            if done is not None and done.busy:
                self.was_busy = True
                self.busy.add(worker)

    def judge(self, lane: MarkerCoordinator) -> bool:
        """Judge the attempt, if its marker has retired; returns whether the loop was found empty."""
        is_empty = False
        if self.phase is LoopPhase.ASKING and not lane.attempts:
            verdict = self.verdict()
            self.move(verdict)
            is_empty = verdict is LoopPhase.ENDING
        if self.phase is LoopPhase.WAITING and not self.busy:
            self.move(LoopPhase.READY)
        return is_empty

    def verdict(self) -> LoopPhase:
        """The next phase, by the last attempt."""
        if self.observed or self.owed:  # some have not acknowledged it if it was cancelled
            return LoopPhase.READY
        return LoopPhase.WAITING if self.was_busy else LoopPhase.ENDING


class LoopAttempts(Coordinator):
    """The loops of a run, and the attempt in flight.

    Args:
        workers, lane: the workers, and the markers in flight.
        yields: whether a commit comes before the next attempt.

    Attributes:
        loops: head to its loop.
    """

    takes = (InputEnded, Settled)
    actions = (Attempt, BlockEntries)

    def __init__(self, workers: Workers, lane: MarkerCoordinator, yields: MayBegin) -> None:
        self._workers = workers
        self._lane = lane
        self._yields = yields
        self.loops = {name: Loop(name) for name in workers.graph.heads}
        self._turns = deque(self.loops)
        self._begin_anew()

    def _inside(self, head: str) -> frozenset[str]:
        operators = self._workers.graph.by_name
        scope = operators[head].within
        inside = (inner for inner in operators.values() if inner.within == scope or inner.within.is_inner_of(scope))
        return frozenset(operator.name for operator in inside)

    def lost(self, why: str, now_ns: int) -> list[Instruction]:
        """Start again with the workers of another incarnation."""
        self._begin_anew()
        return []

    def _begin_anew(self) -> None:
        for loop in self.loops.values():
            loop.fed = set(self._workers.of({loop.name}))
            loop.busy = set()
            if loop.phase is not LoopPhase.FED:
                loop.move(LoopPhase.FED)

    @property
    def without_input(self) -> frozenset[str]:
        """The loops of which a worker of the head has taken the end of every forward channel."""
        heads = ((name, len(self._workers.of({name}))) for name in self.loops)
        return frozenset(name for name, count in heads if len(self.loops[name].fed) < count)

    # ---- answers

    def take(self, event: Taken, now_ns: int) -> list[Instruction]:
        """See ``answered``."""
        if isinstance(event, InputEnded | Settled):
            self.answered(event)
        return []

    def answered(self, answer: InputEnded | Settled) -> None:
        """Record that a worker of a head has taken all forward input, or that a busy worker holds no tuples now."""
        worker = answer.worker
        if isinstance(answer, Settled):
            for loop in self.loops.values():
                loop.busy.discard(worker)
        elif worker.operator not in self.loops or worker not in self.loops[worker.operator].fed:
            raise ProtocolError(f"{worker} has no more forward input; expected it once, of each worker of a head")
        else:
            loop = self.loops[worker.operator]
            loop.fed.discard(worker)
            if not loop.fed:
                loop.move(LoopPhase.READY)

    def acknowledged(self, action: Action, worker: WorkerId, done: Done | None, now_ns: int) -> list[Instruction]:
        """Record that a worker has acknowledged the marker of the attempt in flight."""
        for loop in self.loops.values() if isinstance(action, Attempt) else ():
            loop.acknowledged(worker, done)
        return []

    # ---- steps

    def advance(self, now_ns: int, is_tick: bool) -> list[Instruction]:
        """Judge the attempt that has retired, and start the next one if no marker is in flight."""
        judged = self._judge()
        return [*judged] if self._yields(now_ns) else [*judged, *self._start()]

    def _judge(self) -> list[Tell]:
        empty = [name for name, loop in self.loops.items() if loop.judge(self._lane)]
        return [Tell(worker, EndLoop()) for worker in self._workers.live(empty)]

    def _start(self) -> list[Tell]:
        if self._lane.busy:
            return []
        for _ in self.loops:
            self._turns.rotate(-1)  # none waits for another one that takes many attempts
            loop = self.loops[self._turns[0]]
            if loop.phase is LoopPhase.READY:
                loop.sends = (Send(loop.name, self._inside(loop.name)),)  # what copies rows that leave comes and goes
                return loop.start(self._workers, self._lane)
        return []


class LoopDrain:
    """The drain of one change.

    Args:
        is_closed: whether the workers were started with their entries blocked.
        deadline_ns: time by which the loops must be empty; ``None`` for no limit.

    Attributes:
        is_empty: whether the components with loops have been found empty.
        is_kept: whether a checkpoint has been kept since.
    """

    def __init__(
        self,
        change: str,
        components: Iterable[Component],
        workers: Workers,
        lane: MarkerCoordinator,
        is_closed: bool = False,
        deadline_ns: float | None = None,
    ) -> None:
        self._deadline_ns = deadline_ns
        self._parts = tuple(components)
        self._workers = workers
        self._lane = lane
        self._has_begun, self.is_empty, self.is_kept = is_closed, False, False
        looped = [part for part in self._parts if part.loops]
        self._operators = frozenset().union(*(part.operators for part in looped))
        self._loop = Loop(change, tuple(Send(head, part.operators) for part in looped for head in sorted(part.heads)))

    @property
    def asked(self) -> dict[str, Loop]:
        """The loops that are drained, each with the attempts of the change."""
        return {name: self._loop for part in self._parts for name in part.loops}

    def is_late(self, now_ns: int) -> bool:
        """Whether the loops were to be empty by now, and are not."""
        return self._deadline_ns is not None and now_ns > self._deadline_ns and not self.is_empty

    def stage(self) -> Stage:
        """The stage that switches: each target by itself where there is a loop, by a marker elsewhere."""
        sends: list[Send] = []
        for part in self._parts:
            if part.loops:
                sends += [Send(name, frozenset((name,))) for name in sorted(part.targets)]
            else:
                sends += [Send(head, part.operators) for head in sorted(part.heads)]
        return Stage(tuple(sends), frozenset().union(*(part.targets for part in self._parts)))

    def acknowledged(self, worker: WorkerId, done: Done | None) -> None:
        """Record an acknowledgement of an attempt; see ``Loop.acknowledged``."""
        self._loop.acknowledged(worker, done)

    def settled(self, answer: Settled) -> None:
        """Record that a worker that was busy in an attempt holds no tuples now."""
        self._loop.busy.discard(answer.worker)

    def advance(self) -> list[Tell]:
        """Take the next step, if it is possible now."""
        loop = self._loop
        self.is_empty = self.is_empty or loop.judge(self._lane)
        if self._lane.busy or self.is_empty:
            return []
        if not self._has_begun:
            self._has_begun = True
            sends = [Send(name, frozenset((name,))) for name in self._workers.graph if name in self._operators]
            return self._lane.start(sends, BlockEntries(self._operators))
        if loop.phase is LoopPhase.FED:
            loop.move(LoopPhase.READY)
        return loop.start(self._workers, self._lane) if loop.phase is LoopPhase.READY else []

    def open(self) -> list[Tell]:
        """Let rows enter again, at the end of the change or if it is aborted."""
        cancelled = self._lane.cancel() if self._lane.attempts and not self.is_empty else []
        opened = self._workers.of(self._operators) if self._has_begun else []
        return [*cancelled, *(Tell(worker, OpenEntries()) for worker in opened)]
