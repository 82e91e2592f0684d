"""The coordination of markers: one action in flight at a time.

Two workers could apply two concurrent markers in opposite orders. So an action excludes others from its first FCM until
its markers *retire*: every worker of every operator in their scopes has acknowledged or ended (the end of a stream
counts as every later marker), or the action was cancelled.

A move of bins retires when, in addition, the new owners have installed the state. An owner that has ended needs none.

An action has one marker for each scope. The scopes are disjoint, so its markers never meet. Their ids differ, since a
chain of operators may be in several scopes and must process each marker.

FCMs are also sent to workers that have ended. They put the marker after the end of their channels, for receivers that
are kept alive by a sender outside the scope.

A single-operator marker may *bypass* the one in flight, since no channel carries it. The fix of an operator that is
paused on a tuple is sent this way.

>>> from fries_nb.dataflow.graph import Edge, Graph, Operator
>>> lane = MarkerCoordinator(Workers(Graph("pair", (Operator("A"), Operator("B")), (Edge("A", "B"),))))
>>> lane.start([Send("A", frozenset("AB"))], Commit(1))
[Tell(worker=WorkerId(operator='A', index=0),
      control=Fcm(marker=Marker(id=1, scope=frozenset({...}), action=Commit(epoch=1, checkpoint=False, beyond=-1))))]
>>> lane.acknowledge(1, WorkerId("A", 0)), lane.busy
(Commit(epoch=1, checkpoint=False, beyond=-1), True)
>>> lane.acknowledge(1, WorkerId("B", 0)), lane.busy
(Commit(epoch=1, checkpoint=False, beyond=-1), False)
>>> lane.acknowledge(1, WorkerId("B", 0)) is None
True
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from fries_nb.controller.coordinator import Coordinator, Taken
from fries_nb.controller.events import (
    ChangeRequested,
    CheckpointRequested,
    HostJoined,
    Instruction,
    RequeueRequested,
    RescaleRequested,
    Tell,
    Tick,
)
from fries_nb.controller.membership import Workers
from fries_nb.controller.states import BinPhase, ChangeState, CommitPhase, LoopPhase, SplitPhase
from fries_nb.errors import ProtocolError
from fries_nb.planning.schedulers import Send, Stage, StageAction
from fries_nb.protocol.messages import (
    Action,
    ApplyDeferred,
    Attempt,
    BlockEntries,
    Cancel,
    CloseCuts,
    Commit,
    Fcm,
    Freeze,
    Hold,
    InputEnded,
    Installed,
    Marker,
    Move,
    MoveSplits,
    Reconfigure,
    Release,
    ReturnRows,
    WorkerId,
)
from fries_nb.protocol.rollout import RolloutStep


@dataclass(frozen=True)
class ActionTraits:
    """What triggers the markers of an action, and what they mean for others.

    Attributes:
        events: the events that lead to them; what else must hold is up to its coordinator.
        state: the state of its coordinator's machine in which they are sent; ``None`` if it has none of its own.
        is_tentative: whether the action may be cancelled on its way; the others may have switched some workers.
        delays_by: what a commit waits for meanwhile, for a message.
        names_awaited: whether the message goes on with the workers that the markers have not passed.
    """

    events: tuple[type, ...]
    state: StrEnum | None
    is_tentative: bool = False
    delays_by: str = "the marker of a change"
    names_awaited: bool = True


_RESCALE = "the number of hosts or workers is being changed"
_SEARCH = "the search for the end of a loop"
ACTIONS: Mapping[type[Action], ActionTraits] = {
    Reconfigure: ActionTraits((ChangeRequested,), ChangeState.COMMITTING),
    CloseCuts: ActionTraits((ChangeRequested,), None, delays_by="the search for old rows of a change by the cut"),
    Freeze: ActionTraits((ChangeRequested,), ChangeState.PREPARING),
    Hold: ActionTraits((ChangeRequested,), ChangeState.COMMITTING),
    Release: ActionTraits((ChangeRequested,), ChangeState.COMMITTING),
    BlockEntries: ActionTraits((ChangeRequested,), ChangeState.PREPARING, is_tentative=True),
    ApplyDeferred: ActionTraits((HostJoined,), None),  # its changes were decided before the restart
    Commit: ActionTraits((Tick, CheckpointRequested, ChangeRequested), CommitPhase.MARKING, is_tentative=True),
    Attempt: ActionTraits((InputEnded, ChangeRequested), LoopPhase.ASKING, is_tentative=True, delays_by=_SEARCH),
    ReturnRows: ActionTraits((RequeueRequested,), None, delays_by="rows of dead letters that go back"),
    MoveSplits: ActionTraits((RescaleRequested,), SplitPhase.YIELDING, delays_by=_RESCALE, names_awaited=False),
    Move: ActionTraits((RescaleRequested,), BinPhase.MOVING, delays_by=_RESCALE, names_awaited=False),
}
"""Every action of markers; ``Coordinator.actions`` says which part of the controller sends and awaits them."""


@dataclass(eq=False)
class _Journey:
    """An action in flight: its markers, and the workers that have neither acknowledged, or installed, nor ended."""

    action: Action
    markers: dict[int, Marker]
    pending_acks: set[WorkerId]
    installing: set[WorkerId]


class MarkerCoordinator(Coordinator):
    """The pending acknowledgements of markers in flight. Marker ids are 1, 2, 3, ...

    Attributes:
        issued: the last marker id, 0 before the first.
        committed_last: whether the action that was started last is a commit.
        installed_bytes: size of the state that moves of bins have installed so far.
        installed_ns: nanoseconds in which the state of the last move was pickled and unpickled, at the slowest owner.
    """

    takes = (Installed,)

    def __init__(self, workers: Workers) -> None:
        self.issued = self.installed_bytes = self.installed_ns = 0
        self.committed_last = False
        self._workers = workers
        self._journey: _Journey | None = None
        self._bypass: _Journey | None = None

    @property
    def busy(self) -> bool:
        """Whether an action is in flight."""
        return bool(self._journeys())

    @property
    def action(self) -> Action | None:
        """The action in flight, if any, except one that bypasses it."""
        return self._journey.action if self._journey else None

    @property
    def commits(self) -> bool:
        """Whether the action in flight is a commit, which may be cancelled."""
        return isinstance(self.action, Commit)

    @property
    def attempts(self) -> bool:
        """Whether the action in flight is an attempt to find a loop empty, or prepares one; it may be cancelled."""
        return isinstance(self.action, Attempt | BlockEntries)

    @property
    def tags(self) -> bool:
        """Whether a multi-version change is in flight, so that tuples of both versions may arrive at workers."""
        return isinstance(self.action, Reconfigure) and self.action.tagged

    @property
    def on_the_way(self) -> tuple[int, ...]:
        """The ids of the markers in flight."""
        if self._journey is None and self._bypass is None:
            return ()
        return tuple(marker for journey in self._journeys() for marker in journey.markers)

    @property
    def awaited(self) -> list[WorkerId]:
        """The workers that the markers in flight have not passed, sorted."""
        return sorted({worker for journey in self._journeys() for worker in journey.pending_acks})

    def reaches_someone(self, sends: Iterable[Send]) -> bool:
        """Whether a live worker can still apply such a marker.

        If all recipients of the FCMs have ended, the marker follows the end of their channels, so only workers with an
        additional input from outside the scope can apply it.
        """
        graph = self._workers.graph
        entries = {send.operator for send in sends}
        entries |= {
            name
            for send in sends
            for name in send.scope
            if any(edge.source not in send.scope for edge in graph.in_edges(name))
        }
        return bool(self._workers.live(entries))

    def start(self, sends: Sequence[Send], action: Action, installing: Collection[WorkerId] = ()) -> list[Tell]:
        """Start an action; returns the FCMs to all workers of the heads."""
        if self.busy:
            raise ProtocolError(f"{self.action} is on its way; the next marker has to wait until it has retired")
        self._journey, fcms = self._set_out(sends, action)
        self._journey.installing.update(installing)
        self.installed_ns = 0
        self.committed_last = isinstance(action, Commit)
        self._retire()
        return fcms

    def start_bypass(self, operator: str, action: Action) -> list[Tell]:
        """Start an action at the workers of one operator only, beside the one in flight; returns the FCMs."""
        if self._bypass is not None:
            raise ProtocolError(f"{self._bypass.action} bypasses already; one at a time")
        self._bypass, fcms = self._set_out((Send(operator, frozenset((operator,))),), action)
        self._retire()
        return fcms

    def acknowledge(self, marker: int, worker: WorkerId) -> Action | None:
        """Record a worker's ``Done``.

        Returns:
            The action of the marker; ``None`` if the marker is not in flight (the worker answered before it received
            the cancellation) or the worker's end was counted as its acknowledgement.
        """
        if not 1 <= marker <= self.issued:
            raise ProtocolError(f"{worker} is done with marker {marker}, which was never issued (last: {self.issued})")
        journey = next((journey for journey in self._journeys() if marker in journey.markers), None)
        if journey is None:
            return None
        if worker.operator not in journey.markers[marker].scope:
            raise ProtocolError(f"{worker} is done with marker {marker}, whose scope it is not in")
        if worker not in journey.pending_acks:
            if worker in self._workers.ended:
                return None
            raise ProtocolError(f"{worker} is done with marker {marker} for the second time")
        journey.pending_acks.discard(worker)
        self._retire()
        return journey.action

    def take(self, event: Taken, now_ns: int) -> list[Instruction]:
        """See ``installed``."""
        if isinstance(event, Installed):
            self.installed(event)
        return []

    def lost(self, why: str, now_ns: int) -> list[Instruction]:
        """See ``clear``."""
        self.clear()
        return []

    def installed(self, answer: Installed) -> None:
        """Record that a worker has installed the state of the bins that the marker in flight moves to it."""
        journey = self._journey
        if journey is None or answer.marker not in journey.markers or answer.worker not in journey.installing:
            raise ProtocolError(f"{answer.worker} installed what marker {answer.marker} moves; this was not awaited")
        journey.installing.discard(answer.worker)
        self.installed_bytes += answer.size
        self.installed_ns = max(self.installed_ns, answer.took_ns)
        self._retire()

    def end(self, worker: WorkerId) -> list[Action]:
        """Record the end of a worker; returns the actions in flight for which it counts as an acknowledgement."""
        for journey in self._journeys():
            journey.installing.discard(worker)
        owed = [journey for journey in self._journeys() if worker in journey.pending_acks]
        for journey in owed:
            journey.pending_acks.discard(worker)
        self._retire()
        return [journey.action for journey in owed]

    def cancel(self) -> list[Tell]:
        """Cancel the commit or attempt in flight; returns the ``Cancel`` for every worker."""
        if self._journey is None or not ACTIONS[type(self._journey.action)].is_tentative:
            raise ProtocolError(f"only a commit or an attempt can be cancelled on its way; on its way is {self.action}")
        markers, self._journey = self._journey.markers, None
        everyone = self._workers.of(self._workers.graph.by_name)
        return [Tell(worker, Cancel(marker)) for marker in markers for worker in everyone]

    def clear(self) -> None:
        """Discard all actions in flight, since the workers are lost; marker ids are not reused."""
        self._journey = self._bypass = None

    def _journeys(self) -> list[_Journey]:
        return [journey for journey in (self._journey, self._bypass) if journey is not None]

    def _set_out(self, sends: Iterable[Send], action: Action) -> tuple[_Journey, list[Tell]]:
        by_scope: dict[frozenset[str], Marker] = {}
        for send in sends:
            if send.scope not in by_scope:
                self.issued += 1
                by_scope[send.scope] = Marker(self.issued, send.scope, action)
        pending_acks = set(self._workers.live(name for scope in by_scope for name in scope))
        fcms = [
            Tell(worker, Fcm(by_scope[send.scope])) for send in sends for worker in self._workers.of({send.operator})
        ]
        return _Journey(action, {marker.id: marker for marker in by_scope.values()}, pending_acks, set()), fcms

    def _retire(self) -> None:
        if self._journey is not None and not self._journey.pending_acks and not self._journey.installing:
            self._journey = None
        if self._bypass is not None and not self._bypass.pending_acks:
            self._bypass = None


def tags(stages: Iterable[Stage]) -> bool:
    """Whether the stages are those of a multi-version change, which tags tuples; two of them must not overlap."""
    return any(stage.does is StageAction.TAG for stage in stages)


def action_of(
    stage: Stage, change: str, targets: frozenset[str], before: str, epoch: int = 0,
    rerouted: frozenset[str] = frozenset(), steps: tuple[RolloutStep, ...] = (), step_of: str = "",
    inherits: Mapping[str, str] | None = None,
) -> Action:  # fmt: skip
    """The action of a stage's markers; for what only some changes have see ``Reconfigure``."""
    match stage.does:
        case StageAction.SWITCH:
            return Reconfigure(
                change, targets, before=before, epoch=epoch, rerouted=rerouted, steps=steps, step_of=step_of,
                inherits=tuple(sorted((inherits or {}).items())),
            )  # fmt: skip
        case StageAction.FREEZE:
            return Freeze(change)
        case StageAction.TAG:
            return Reconfigure(change, targets, tagged=True)
        case StageAction.HOLD:
            return Hold(change)
        case StageAction.RELEASE:
            return Release(change)
        case _:
            raise ProtocolError(f"a stage that does {stage.does} has no marker")
