"""The events and instructions of changes of the topology, and of hosts that join or leave while the run goes on.

    event               instructions
    TopologyRequested   ChangeTopology; TopologyChanged, or TopologyRefused
    HostsRequested      StartHosts, then the same; ReleaseHosts of hosts that leave, or did not join; RescaleEnded

All names can be imported from ``events``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from fries_nb.checkpoints import CommittedChange
from fries_nb.messages import WorkerId
from fries_nb.topology.topology import Topology


@dataclass(frozen=True, slots=True)
class TopologyRequested:
    """Change to this topology, of the next epoch, as soon as no change, commit or marker is under way."""

    topology: Topology


@dataclass(frozen=True, slots=True)
class HostsRequested:
    """The user requests another number of hosts; ``RescaleEnded`` answers with the id ``request``.

    Attributes:
        request: id of the request.
        hosts: number of hosts.
        shares: operator to the number of workers that each new host brings; operators without an entry stay.
    """

    request: str
    hosts: int
    shares: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class StartHosts:
    """Start new hosts with these indices, of the current incarnation; each one says hello."""

    hosts: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ReleaseHosts:
    """Let these hosts end, for a ``reason``; nothing that they say is heard any more."""

    hosts: tuple[int, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class RescaleEnded:
    """A request for another number of hosts has ended; issued once for each.

    Attributes:
        request: id of the request.
        outcome: ``done``; ``aborted``, without any effect; or ``failed`` with the run.
        hosts: the number of hosts now.
        error: the reason in one sentence; empty if done.
        delay_ms: milliseconds from the request, or from when tuples flow, to the end.
    """

    request: str
    outcome: Literal["done", "aborted", "failed"]
    hosts: int
    error: str = ""
    delay_ms: float = 0.0


@dataclass(frozen=True, slots=True)
class ChangeTopology:
    """Make the added workers, idle, and let every other worker adopt the topology on ``AdoptTopology``.

    Attributes:
        topology: the topology.
        issued: id of the last marker; added workers treat markers up to it as applied.
        lost: removed workers whose hosts are gone, so that the hosts of their receivers end their channels.
        decided: all changes in effect, in order, for added workers.
    """

    topology: Topology
    issued: int
    lost: frozenset[WorkerId] = frozenset()
    decided: tuple[CommittedChange, ...] = ()


@dataclass(frozen=True, slots=True)
class TopologyChanged:
    """All workers have adopted the topology: start the added workers; those that left have ended."""

    topology: Topology


@dataclass(frozen=True, slots=True)
class TopologyRefused:
    """The run keeps its topology, for a ``reason``; ``epoch`` is that of the refused one."""

    epoch: int
    reason: str
