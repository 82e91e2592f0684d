"""The drain of the loops that a change touches: a loop is empty when its operators switch.

Rows go round a loop behind any marker, so a marker alone cannot separate old rows from new ones there. Every component
of the change that holds a loop is therefore

    1. blocked: on all channels that enter it, also at operators that are not its heads,
    2. asked by attempts until it is empty (see ``loop_attempts``),
    3. switched, all targets at once; this is the decision, and before it nothing has changed,
    4. opened.

Blocking the loop alone would not do: old rows between the heads of the component and the loop would enter it later.

>>> from fries_nb.dataflow.graph import Edge, Graph, Kind, Operator
>>> from fries_nb.dataflow.scopes import ROOT
>>> from fries_nb.scheduling.fries import schedule
>>> flow = Graph("loop", (
...     Operator("S", kind=Kind.SOURCE), Operator("L", kind=Kind.LOOP, within=ROOT.nest("L")),
...     Operator("B", within=ROOT.nest("L")), Operator("Z", kind=Kind.SINK),
... ), (Edge("S", "L"), Edge("L", "B"), Edge("B", "L", feedback=True), Edge("B", "Z", branch=1)))
>>> workers = Workers(flow)
>>> lane = MarkerCoordinator(workers)
>>> drain = LoopDrain("u1", schedule(flow, {"B"}).covering.components, workers, lane)
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

from collections.abc import Iterable

from fries_nb.controller.events import Tell
from fries_nb.controller.loop_attempts import Loop
from fries_nb.controller.markers import MarkerCoordinator
from fries_nb.controller.membership import Workers
from fries_nb.controller.states import LoopPhase
from fries_nb.messages import BlockEntries, Done, OpenEntries, Settled, WorkerId
from fries_nb.planning.components import Component
from fries_nb.scheduling.stages import Send, Stage


class LoopDrain:
    """The drain of one change.

    Args:
        change: id of the change.
        components: all components of its plan.
        workers: the workers of the run.
        lane: the markers in flight.
        is_closed: whether the workers were started with their entries blocked.
        deadline_ns: time by which the loops must be empty; ``None`` for no limit.

    Attributes:
        is_empty: whether the components with loops have been found empty.
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
        self._has_begun, self.is_empty = is_closed, False
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
