"""The decided changes that a restart defers, since rows of before them are still inside a loop.

A restored worker usually starts with all decided changes, as if their markers had arrived right after that of the
checkpoint. That is right where the checkpoint holds no row. The frames that a loop's head has *logged*, however, have
met the old functions in earlier rounds. So if a change that is not in the checkpoint touches such a loop,

    it is deferred, with all later ones      changes take effect in the order in which they were decided
    all deferred ones share one drain        of the components of a plan for all of their targets that hold such loops;
                                             operators of other components start with the changes
    these components start old, and closed   no row enters, so that what the changes have mended does not fail again
    they are drained, switched, and opened   before any other change or checkpoint; see ``loop_drain``
    a crash in between                       begins again from the checkpoint, perhaps a later one

A fix that went aside is not deferred, since rows stand before it, nor is the rollback of a guard; unless an earlier
change of one of their operators is deferred.

>>> from fries_nb.checkpoints import Checkpoint, CommittedChange
>>> from fries_nb.dataflow.graph import Edge, Kind, Operator
>>> from fries_nb.dataflow.scopes import ROOT
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

from collections.abc import Iterable, Mapping, Sequence

from msgspec.structs import replace

from fries_nb.checkpoints import CommittedChange, Restoration
from fries_nb.controller.events import Tell
from fries_nb.controller.loop_attempts import Loop
from fries_nb.controller.loop_drain import LoopDrain
from fries_nb.controller.markers import MarkerCoordinator
from fries_nb.controller.membership import Workers
from fries_nb.dataflow.graph import Graph
from fries_nb.messages import ApplyDeferred, Done, Settled, WorkerId
from fries_nb.planning.components import Component
from fries_nb.scheduling.fries import schedule
from fries_nb.scheduling.stages import Send


def with_deferred(graph: Graph, restoration: Restoration) -> Restoration:
    """The state from which an incarnation starts, with the changes that it defers.

    Args:
        graph: the dataflow.
        restoration: the checkpoint and all decided changes.
    """
    checkpoint = restoration.checkpoint
    if checkpoint is None or not checkpoint.logged:
        return replace(restoration, deferred=(), closed=())
    since = [one for one in restoration.decided if one.change not in checkpoint.decided]
    targets = _targets(restoration.decided)
    deferred = _deferred(since, targets, frozenset(checkpoint.logged))
    parts = _drained(graph, (name for change in deferred for name in targets[change]), checkpoint.logged)
    closed = frozenset().union(*(part.operators for part in parts))
    return replace(restoration, deferred=deferred if closed else (), closed=tuple(sorted(closed)))


def _targets(decided: Iterable[CommittedChange]) -> dict[str, frozenset[str]]:
    """Change to the operators that it changes; a rollback changes those of the change that it undoes."""
    targets: dict[str, frozenset[str]] = {}
    for change in decided:
        targets[change.change] = targets.get(change.undoes, frozenset()) | frozenset(change.payloads)
    return targets


def _deferred(
    since: Sequence[CommittedChange], targets: Mapping[str, frozenset[str]], logged: frozenset[str]
) -> tuple[str, ...]:
    deferred: list[str] = []
    changed: set[str] = set()
    for change in since:
        goes_aside = change.aside or bool(change.undoes)
        is_first = not goes_aside and not logged.isdisjoint(name for part in change.components for name in part)
        if is_first or (deferred and not (goes_aside and changed.isdisjoint(targets[change.change]))):
            deferred.append(change.change)
            changed |= targets[change.change]
    return tuple(deferred)


def _drained(graph: Graph, targets: Iterable[str], logged: Iterable[str]) -> list[Component]:
    """The components of a plan for these operators that hold a loop with logged frames."""
    operators, heads = frozenset(targets), frozenset(logged)
    parts = schedule(graph, operators).covering.components if operators else ()
    return [part for part in parts if not heads.isdisjoint(part.operators)]


class DeferredChanges:
    """The changes that an incarnation was started without, from its start to their switch.

    Args:
        restored: the state from which it was started.
        workers: the workers of the run.
        lane: the markers in flight.

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
        every = [name for change in self.changes for name in self._targets[change]]
        logged = restored.checkpoint.logged if restored.checkpoint is not None else ()
        parts = _drained(workers.graph, every, logged)
        self._operators = frozenset(every)
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
