"""The marker lane: at most one marker is on its way through the dataflow at a time.

Two markers that cross would let one worker apply them in one order and its neighbour in the other. So a marker has
the lane to itself from its first FCM until it *retires*: every worker of every operator in its scopes has
acknowledged, or has ended (the end of a stream counts as every later marker), or the marker was cancelled.

A marker may have several scopes, disjoint, one for each component of a change; its id is the same in all.

A worker is *stranded* when every sender from which the marker could come has ended without putting it into a channel,
while another sender, from outside the scope, keeps the worker alive: it would neither hear of the marker nor end. It
is told by an FCM of its own. (The worker still aligns: it applies the marker behind the ends of those senders.)

>>> from fries_nb.dataflow.graph import Edge, Operator
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
from fries_nb.dataflow.graph import Graph
from fries_nb.errors import ProtocolError
from fries_nb.messages import Action, Cancel, Commit, Fcm, Marker, WorkerId
from fries_nb.scheduling.plan import Send


class Lane:
    """Who still owes an acknowledgement to the marker on its way. Marker ids are 1, 2, 3, ...

    Attributes:
        issued: the last id given to a marker, 0 before the first.
        action: what the marker on its way does; ``None`` when the lane is free.
        owing: workers that have not acknowledged it yet.
        passed: workers that ended without applying it, hence without putting it into any channel.
    """

    def __init__(self, workers: Workers) -> None:
        self.issued = 0
        self.action: Action | None = None
        self.owing: set[WorkerId] = set()
        self.passed: set[WorkerId] = set()
        self._workers = workers
        self._markers: list[Marker] = []
        self._told: set[WorkerId] = set()

    @property
    def busy(self) -> bool:
        """A marker is on its way."""
        return self.action is not None

    @property
    def commits(self) -> bool:
        """The marker on its way is a commit, hence one that may be cancelled."""
        return isinstance(self.action, Commit)

    def can_enter(self, sends: Iterable[Send]) -> bool:
        """Some worker is left from which the marker could start, or one that may yet be stranded."""
        graph = self._workers.graph
        entries = {send.operator for send in sends}
        entries |= {name for send in sends for name in send.scope if _fed_from_outside(graph, name, send.scope)}
        return bool(self._workers.live(entries))

    def start(self, sends: Sequence[Send], action: Action) -> list[Tell]:
        """Put a marker on its way: the FCMs to every live worker of the operators to send to.

        Raises:
            ProtocolError: another one is on its way.
        """
        if self.busy:
            raise ProtocolError(f"marker {self.issued} is on its way; the next one has to wait until it has retired")
        self.issued += 1
        members = self._workers.of({name for send in sends for name in send.scope})
        self.action = action
        self.passed = self._workers.ended.intersection(members)
        self.owing = set(members) - self.passed
        self._markers = [Marker(self.issued, scope, action) for scope in dict.fromkeys(send.scope for send in sends)]
        tells = [
            Tell(worker, Fcm(Marker(self.issued, send.scope, action)))
            for send in sends
            for worker in self._workers.live({send.operator})
        ]
        self._told = {tell.worker for tell in tells}
        self._retire_if_through()
        return tells + self.stranded()

    def acknowledge(self, marker: int, worker: WorkerId, ended: bool = False) -> bool:
        """Count the worker's ``Done``; false if it counts for nothing.

        That is so for a marker no longer on its way: its worker had answered before it heard of the cancellation, or
        it had ended, and that counted before it answered the FCM which had crossed its end.

        Raises:
            ProtocolError: no such marker was issued, or it does not concern the worker, or the worker repeats itself.
        """
        if not 1 <= marker <= self.issued:
            raise ProtocolError(f"{worker} is done with marker {marker}, which was never issued (last: {self.issued})")
        if not self.busy or marker != self.issued:
            return False
        if not any(worker.operator in issued.scope for issued in self._markers):
            raise ProtocolError(f"{worker} is done with marker {marker}, whose scope it is not in")
        if worker not in self.owing:
            if worker in self._workers.ended:
                return False
            raise ProtocolError(f"{worker} is done with marker {marker} for the second time")
        self.owing.discard(worker)
        if ended:
            self.passed.add(worker)
        self._retire_if_through()
        return True

    def end(self, worker: WorkerId) -> bool:
        """The worker has ended; true if that counted as its acknowledgement of the marker on its way."""
        return worker in self.owing and self.acknowledge(self.issued, worker, ended=True)

    def stranded(self) -> list[Tell]:
        """FCMs to the workers that have been stranded since the last call."""
        if not self.passed:
            return []
        found = [(marker, worker) for marker in self._markers for worker in self._stranded_in(marker.scope)]
        self._told.update(worker for _, worker in found)
        return [Tell(worker, Fcm(marker)) for marker, worker in found]

    def cancel(self) -> list[Tell]:
        """Take the commit marker off the lane; every worker has to forget it.

        Raises:
            ProtocolError: there is none; a marker that reconfigures is never cancelled, since some have switched.
        """
        if not self.commits:
            raise ProtocolError(f"only a commit marker on its way can be cancelled; on its way is {self.action}")
        self._free()
        return [Tell(worker, Cancel(self.issued)) for worker in self._workers.live()]

    def _stranded_in(self, scope: frozenset[str]) -> list[WorkerId]:
        graph, found = self._workers.graph, []
        for worker in self._workers.live(name for name in scope if _fed_from_outside(graph, name, scope)):
            if worker in self.owing and worker not in self._told:
                inside = [edge for edge in graph.in_edges(worker.operator) if edge.source in scope]
                if self._workers.senders(worker, inside) <= self.passed:
                    found.append(worker)
        return found

    def _retire_if_through(self) -> None:
        if not self.owing:
            self._free()

    def _free(self) -> None:
        self.action, self.owing, self.passed = None, set(), set()
        self._markers, self._told = [], set()


def _fed_from_outside(graph: Graph, operator: str, scope: frozenset[str]) -> bool:
    return any(edge.source not in scope for edge in graph.in_edges(operator))
