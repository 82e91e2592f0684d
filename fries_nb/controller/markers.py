"""The marker lane: what is on its way through the dataflow, one action at a time.

Two markers that cross would let one worker apply them in one order and its neighbour in the other. So an action has
the lane to itself from its first FCM until its markers *retire*: every worker of every operator in their scopes has
acknowledged, or has ended (the end of a stream counts as every later marker), or the action was cancelled.

An action has one marker for each scope. The scopes are disjoint, so its markers never meet; their ids differ, since
one chain of operators may be in several scopes and must take each of them.

FCMs go to workers that have ended, too: they put the marker behind the end of their channels, where a receiver finds
it that another sender, from outside the scope, keeps alive. Without that it would neither hear of the marker nor end.

>>> from fries_nb.dataflow.graph import Edge, Graph, Operator
>>> lane = Lane(Workers(Graph("pair", (Operator("A"), Operator("B")), (Edge("A", "B"),))))
>>> lane.start([Send("A", frozenset("AB"))], Commit(1))
[Tell(worker=WorkerId(operator='A', index=0),
      control=Fcm(marker=Marker(id=1, scope=frozenset({...}), action=Commit(epoch=1))))]
>>> lane.acknowledge(1, WorkerId("A", 0)), lane.busy
(True, True)
>>> lane.acknowledge(1, WorkerId("B", 0)), lane.busy
(True, False)
>>> lane.acknowledge(1, WorkerId("B", 0))
False
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fries_nb.controller.events import Tell
from fries_nb.controller.workers import Workers
from fries_nb.errors import ProtocolError
from fries_nb.messages import Action, Cancel, Commit, Fcm, Marker, WorkerId
from fries_nb.scheduling.plan import Send


class Lane:
    """Who still owes an acknowledgement to what is on its way. Marker ids are 1, 2, 3, ...

    Attributes:
        issued: the last id given to a marker, 0 before the first.
        action: what the markers on their way do; ``None`` when the lane is free.
        owing: workers in scope that have neither acknowledged nor ended.
    """

    def __init__(self, workers: Workers) -> None:
        self.issued = 0
        self.action: Action | None = None
        self.owing: set[WorkerId] = set()
        self._workers = workers
        self._markers: dict[int, Marker] = {}

    @property
    def busy(self) -> bool:
        """Something is on its way."""
        return self.action is not None

    @property
    def commits(self) -> bool:
        """What is on its way is a commit, hence may be cancelled."""
        return isinstance(self.action, Commit)

    @property
    def on_the_way(self) -> tuple[int, ...]:
        """The ids of the markers on their way."""
        return tuple(self._markers)

    def reaches_someone(self, sends: Iterable[Send]) -> bool:
        """Whether a worker is left that could apply such a marker before it ends.

        If all workers to send to have ended, the marker runs behind the ends of their channels, so that only those
        can apply it which are fed from outside the scope as well.
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

    def start(self, sends: Sequence[Send], action: Action) -> list[Tell]:
        """Put an action on its way: the FCMs to every worker of the operators to send to.

        Raises:
            ProtocolError: another one is on its way.
        """
        if self.busy:
            raise ProtocolError(f"{self.action} is on its way; the next marker has to wait until it has retired")
        self.action = action
        by_scope: dict[frozenset[str], Marker] = {}
        for send in sends:
            if send.scope not in by_scope:
                self.issued += 1
                by_scope[send.scope] = Marker(self.issued, send.scope, action)
        self._markers = {marker.id: marker for marker in by_scope.values()}
        self.owing = set(self._workers.live(name for scope in by_scope for name in scope))
        self._retire_if_through()
        return [
            Tell(worker, Fcm(by_scope[send.scope])) for send in sends for worker in self._workers.of({send.operator})
        ]

    def acknowledge(self, marker: int, worker: WorkerId) -> bool:
        """Count the worker's ``Done``; false if it counts for nothing.

        That is so for a marker no longer on its way: its worker had answered before it heard of the cancellation, or
        it had ended, which counted before it met the marker behind the end.

        Raises:
            ProtocolError: no such marker was issued, or it does not concern the worker, or the worker repeats itself.
        """
        if not 1 <= marker <= self.issued:
            raise ProtocolError(f"{worker} is done with marker {marker}, which was never issued (last: {self.issued})")
        if marker not in self._markers:
            return False
        if worker.operator not in self._markers[marker].scope:
            raise ProtocolError(f"{worker} is done with marker {marker}, whose scope it is not in")
        if worker not in self.owing:
            if worker in self._workers.ended:
                return False
            raise ProtocolError(f"{worker} is done with marker {marker} for the second time")
        self.owing.discard(worker)
        self._retire_if_through()
        return True

    def end(self, worker: WorkerId) -> bool:
        """The worker has ended; true if that counted as its acknowledgement of what is on its way."""
        owed = worker in self.owing
        if owed:
            self.owing.discard(worker)
            self._retire_if_through()
        return owed

    def cancel(self) -> list[Tell]:
        """Take the commit off the lane; every worker has to forget its marker.

        Raises:
            ProtocolError: there is none; what reconfigures is never cancelled, since some have switched.
        """
        if not self.commits:
            raise ProtocolError(f"only a commit on its way can be cancelled; on its way is {self.action}")
        marker = self.issued
        self._free()
        return [Tell(worker, Cancel(marker)) for worker in self._workers.of(self._workers.graph.by_name)]

    def _retire_if_through(self) -> None:
        if not self.owing:
            self._free()

    def _free(self) -> None:
        self.action, self.owing, self._markers = None, set(), {}
