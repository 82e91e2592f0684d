"""The events and instructions of rescales: changes of the topology, and moves of bins.

To add a worker to an operator, its topology is grown, then widened, and bins are moved to the worker; to remove it,
bins are moved off, then the topology is narrowed and shrunk. Every step is requested when the one before is over.

>>> from fries_nb.dataflow.graph import Edge, Graph, Operator, Partitioning
>>> edge = Edge("A", "K", Partitioning.HASH, ("k",))
>>> topology = Topology.dealt(Graph("pair", (Operator("A"), Operator("K", key=("k",))), (edge,)), hosts=2)
>>> grown = topology.grown("K", host=1)
>>> steps = TopologyRequested(grown), TopologyRequested(grown.widened("K"))
>>> moves = BinsRequested({"K": RoutingTable.even(2)}, at_once=16)
>>> [step.topology.routed("K") for step in steps]
[1, 2]
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fries_nb.topology.routing_table import RoutingTable
from fries_nb.topology.topology import Topology

# ---- events


@dataclass(frozen=True, slots=True)
class TopologyRequested:
    """Change to this topology, of the next epoch, as soon as no change, commit or marker is under way."""

    topology: Topology


@dataclass(frozen=True, slots=True)
class BinsRequested:
    """Move the bins of keyed operators until they are routed by these tables; ``BinsMoved`` is the answer.

    Attributes:
        targets: keyed operator to its routing table in the end.
        at_once: maximum number of bins that one step moves; 0 moves all bins of an operator in one step.
    """

    targets: Mapping[str, RoutingTable]
    at_once: int = 0


# ---- instructions


@dataclass(frozen=True, slots=True)
class ChangeTopology:
    """Make the added workers, idle, and let every other worker adopt the topology on ``AdoptTopology``.

    ``issued`` is the id of the last marker; added workers treat markers up to it as applied.
    """

    topology: Topology
    issued: int


@dataclass(frozen=True, slots=True)
class TopologyChanged:
    """All workers have adopted the topology: start the added workers; those that left have ended."""

    topology: Topology


@dataclass(frozen=True, slots=True)
class TopologyRefused:
    """The run keeps its topology, for a ``reason``; ``epoch`` is that of the refused one."""

    epoch: int
    reason: str


@dataclass(frozen=True, slots=True)
class BinsMoved:
    """The requested moves are over: all have been made, or, for a ``reason``, not all.

    Attributes:
        tables: keyed operator to its routing table now.
        reason: why bins were left where they are; empty if none were.
    """

    tables: Mapping[str, RoutingTable]
    reason: str = ""
