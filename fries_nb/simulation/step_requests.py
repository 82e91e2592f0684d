"""Requests of single steps, which a rescale makes in a real run, and of chains, which hosts choose there.

A simulation draws them in any order, and so tries more than a rescale does. The controller of a real run takes none of
them as an event: the coordinator that does is added here.

>>> from fries_nb.controller.controller import Controller
>>> from fries_nb.controller.events import HostJoined
>>> from fries_nb.dataflow.graph import Edge, Graph, Kind, Operator, Partitioning
>>> operators = Operator("S", kind=Kind.SOURCE), Operator("A")
>>> graph = Graph("pair", operators, (Edge("S", "A", Partitioning.REBALANCE),))
>>> controller = Controller(graph, hosts=1, incarnation=1, commit_interval_ns=None)
>>> controller.coordinators.append(StepRequests(controller.coordinators))
>>> controller.handle(TopologyRequested(Topology.dealt(graph, hosts=1).grown("A", host=0)), now_ns=0)
[]
>>> [type(instruction).__name__ for instruction in controller.handle(HostJoined(0, "tcp://here:1", 1), now_ns=1)]
['Admit', 'ChangeTopology', 'Tell', 'Tell']
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from fries_nb.controller.coordinator import Coordinator, Taken
from fries_nb.controller.events import BinsRequested, Instruction, SplitsRequested, StepRequest, Tell
from fries_nb.controller.membership import Rewiring
from fries_nb.controller.moves import BinMoves, SplitMoves
from fries_nb.protocol.messages import SetChain, WorkerId
from fries_nb.protocol.topology import Topology


@dataclass(frozen=True, slots=True)
class TopologyRequested(StepRequest):
    """Change to this topology, of the next epoch, as soon as no change, commit or marker is under way."""

    topology: Topology


@dataclass(frozen=True, slots=True)
class ChainRequested(StepRequest):
    """Run these operators as one chain from this worker on; ``messages.Chained`` is the host's answer."""

    worker: WorkerId
    operators: tuple[str, ...]


class StepRequests(Coordinator):
    """Passes each request to the coordinator that carries it out; ``listed`` are those of the controller."""

    takes = (TopologyRequested, BinsRequested, SplitsRequested, ChainRequested)

    def __init__(self, listed: Iterable[Coordinator]) -> None:
        by_type = {type(coordinator): coordinator for coordinator in listed}
        rewiring, bin_moves, split_moves = by_type[Rewiring], by_type[BinMoves], by_type[SplitMoves]
        assert isinstance(rewiring, Rewiring), "by its type"
        assert isinstance(bin_moves, BinMoves), "by its type"
        assert isinstance(split_moves, SplitMoves), "by its type"
        self._rewiring, self._bin_moves, self._split_moves = rewiring, bin_moves, split_moves
        self._flows = False

    def started(self, now_ns: int) -> list[Instruction]:
        """Chains are formed from now on."""
        self._flows = True
        return []

    def lost(self, why: str, now_ns: int) -> list[Instruction]:
        """No worker can form a chain until the next start."""
        self._flows = False
        return []

    def take(self, event: Taken, now_ns: int) -> list[Instruction]:
        """Begin what is requested, as soon as it is possible."""
        match event:
            case TopologyRequested():
                self._rewiring.request(event.topology)
            case BinsRequested():
                self._bin_moves.request(event)
            case SplitsRequested():
                self._split_moves.request(event)
            case ChainRequested() if self._flows:
                return [Tell(event.worker, SetChain(event.operators))]
        return []
