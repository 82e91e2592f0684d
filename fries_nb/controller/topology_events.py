"""Events and instructions of a change of the topology; see ``rewiring``."""

from __future__ import annotations

from dataclasses import dataclass

from fries_nb.topology.topology import Topology


@dataclass(frozen=True, slots=True)
class TopologyRequested:
    """The run shall have this topology, of the next epoch, as soon as nothing else is under way."""

    topology: Topology


@dataclass(frozen=True, slots=True)
class ChangeTopology:
    """Make the workers that are added, at rest, and let each of the others adopt the topology when it is told to.

    ``issued`` is the id of the last marker, which workers that are added take for passed.
    """

    topology: Topology
    issued: int


@dataclass(frozen=True, slots=True)
class TopologyChanged:
    """All workers have adopted it: those that were added begin, those that have left are no more."""

    topology: Topology


@dataclass(frozen=True, slots=True)
class TopologyRefused:
    """The run keeps its topology; why."""

    epoch: int
    reason: str
