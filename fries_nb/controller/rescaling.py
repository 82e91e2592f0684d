"""Rescaling of keyed operators: bins move to other workers, some in each step, while rows flow.

    phase     requested   nothing else in flight   installed at all new owners   no bins left, or impossible   lost
    IDLE      WAITING     -                        -                             -                             -
    WAITING   error       MOVING                   -                             IDLE                          IDLE
    MOVING    error       -                        WAITING                       -                             IDLE

A step is one marker (see ``worker.bin_transfer``) of one operator. Its scope:

    senders     the operators that send to it by key; they get the FCMs
    it          where the marker blocks no channel
    receivers   operators downstream of it, up to the first ones that rows reach from several of its workers

The receivers align the marker, so the order of a key's rows holds downstream too: what the old owner made precedes what
the new one makes.

A step excludes changes, commits and changes of the topology, from its FCMs until the state is installed; but the whole
rescale does not: what waits comes between two steps. The marker of an operator that is paused on a tuple waits for the
operator's fix. The next step also waits for the ends of guards, since a rollback must find states where the change left
them.

If hosts are lost, the next incarnation starts with the requested tables, and so completes the rescale. An operator of
which a worker has ended keeps its bins: the worker could not ship them.

>>> from fries_nb.dataflow.graph import Edge, Graph, Operator
>>> from fries_nb.messages import Installed
>>> edges = Edge("S", "K", Partitioning.HASH, ("k",)), Edge("K", "Z")
>>> workers = Workers(Graph("keyed", (Operator("S"), Operator("K", key=("k",), workers=2), Operator("Z")), edges))
>>> lane = MarkerCoordinator(workers)
>>> rescaling = Rescaling(workers, lane)
>>> rescaling.request(BinsRequested({"K": RoutingTable.even(1)}, at_once=300))
>>> [fcm] = rescaling.advance(is_free=True)
>>> str(fcm.worker), sorted(fcm.control.marker.scope), len(fcm.control.marker.action.bins)
('S[0]', ['K', 'S', 'Z'], 300)
>>> for worker in workers.live():
...     _ = lane.acknowledge(1, worker)
>>> lane.busy, lane.installed(Installed(1, WorkerId("K", 0))), lane.busy
(True, None, False)
>>> [[fcm]] = [rescaling.advance(is_free=True)]
>>> len(fcm.control.marker.action.bins)
212
"""

from __future__ import annotations

from collections.abc import Mapping

from fries_nb.controller.events import BinsMoved, BinsRequested, Instruction
from fries_nb.controller.markers import MarkerCoordinator
from fries_nb.controller.membership import Workers
from fries_nb.controller.states import RESCALE_MOVES, RescalePhase
from fries_nb.dataflow.graph import Graph, Partitioning
from fries_nb.errors import DataflowError, ProtocolError
from fries_nb.messages import Move, WorkerId
from fries_nb.scheduling.stages import Send
from fries_nb.topology.progress_locations import is_tracked
from fries_nb.topology.routing_table import Moves, RoutingTable
from fries_nb.transitions import moved


class Rescaling:
    """The rescale that is requested or under way, if any.

    Args:
        workers: the workers of the run, with their routing tables.
        lane: the markers in flight.

    Attributes:
        phase: see the table.
    """

    def __init__(self, workers: Workers, lane: MarkerCoordinator) -> None:
        self.phase = RescalePhase.IDLE
        self._workers = workers
        self._lane = lane
        self._targets: dict[str, RoutingTable] = {}
        self._at_once = 0
        self._why_not = ""

    @property
    def under_way(self) -> bool:
        """Whether a rescale is requested and not over."""
        return self.phase is not RescalePhase.IDLE

    def request(self, request: BinsRequested) -> None:
        """Request a rescale; its first step begins as soon as nothing else is in flight.

        Raises:
            DataflowError: the dataflow, or one of the tables, does not allow it.
            ProtocolError: another rescale is under way.
        """
        if self.under_way:
            raise ProtocolError(f"a rescale was requested while another one is {self.phase}; expected it to be over")
        for operator, table in request.targets.items():
            self._check(operator, table)
        self._move(RescalePhase.WAITING)
        self._targets, self._at_once, self._why_not = dict(request.targets), request.at_once, ""

    def _check(self, operator: str, table: RoutingTable) -> None:
        graph, routed = self._workers.graph, self._workers.routed
        if operator not in routed or not senders_of(graph, operator):
            raise DataflowError(f"{operator} gets no rows by key, so it has no bins; expected a keyed operator")
        if is_tracked(graph):
            raise DataflowError(
                f"bins of {operator} cannot be moved: the dataflow has times or a loop; not supported yet"
            )
        if table.width > routed[operator]:
            owner, last = WorkerId(operator, table.width - 1), routed[operator] - 1
            raise DataflowError(f"bins were to be moved to {owner}; expected a worker up to {operator}[{last}]")

    def advance(self, is_free: bool) -> list[Instruction]:
        """Begin the next step, or end the rescale, if that is possible now.

        Args:
            is_free: whether nothing that excludes a step is in flight, or due before it.
        """
        if self.phase is RescalePhase.MOVING and not isinstance(self._lane.action, Move):
            self._move(RescalePhase.WAITING)
        if self.phase is not RescalePhase.WAITING:
            return []
        self._leave_ended()
        operator, bins = next(((name, left) for name in self._targets if (left := self._left(name))), ("", {}))
        if not operator:
            return self._over(self._why_not)
        return self._begin(operator, bins) if is_free else []

    def lost(self) -> list[Instruction]:
        """End the rescale, since the hosts are lost; the next incarnation starts with the requested tables."""
        if not self.under_way:
            return []
        self._workers.tables.update(self._targets)
        return self._over("")

    def close(self, why: str) -> list[Instruction]:
        """End the rescale, since the run has ended."""
        return self._over(why) if self.under_way else []

    def _leave_ended(self) -> None:
        """Leave the bins of operators of which a worker has ended where they are."""
        for operator in [name for name in self._targets if self._left(name)]:
            if ended := self._workers.ended.intersection(self._workers.of({operator})):
                self._why_not = f"{min(ended)} has ended, so {operator} keeps its bins"
                del self._targets[operator]

    def _left(self, operator: str) -> Moves:
        return self._workers.table(operator).moves_to(self._targets[operator])

    def _begin(self, operator: str, left: Moves) -> list[Instruction]:
        self._move(RescalePhase.MOVING)
        graph, workers = self._workers.graph, self._workers
        bins = dict(list(left.items())[: self._at_once or None])
        workers.tables[operator] = workers.table(operator).moved(bins)
        scope = scope_of(graph, operator)
        sends = [Send(sender, scope) for sender in senders_of(graph, operator)]
        owners = {WorkerId(operator, after) for _, after in bins.values()}
        return [*self._lane.start(sends, Move(operator, bins), owners)]

    def _over(self, reason: str) -> list[Instruction]:
        self._move(RescalePhase.IDLE)
        self._targets = {}
        tables: Mapping[str, RoutingTable] = dict(self._workers.tables)
        return [BinsMoved(tables, reason)]

    def _move(self, to: RescalePhase) -> None:
        self.phase = moved(RESCALE_MOVES, self.phase, to, "the rescale")


def senders_of(graph: Graph, operator: str) -> tuple[str, ...]:
    """The operators that send to an operator by key, in order of its in-edges."""
    keyed = [edge.source for edge in graph.in_edges(operator) if edge.partitioning is Partitioning.HASH]
    return tuple(dict.fromkeys(keyed))


def scope_of(graph: Graph, operator: str) -> frozenset[str]:
    """The scope of a move's marker; see the module."""
    scope, ahead = {operator, *senders_of(graph, operator)}, [operator]
    while ahead:
        for edge in graph.out_edges(ahead.pop()):
            if edge.partitioning is Partitioning.FORWARD and edge.to not in scope:
                ahead.append(edge.to)
            scope.add(edge.to)
    return frozenset(scope)
