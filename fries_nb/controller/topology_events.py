"""The events and instructions of changes of the topology, and of hosts that join or leave while the run goes on.

    event               instructions
    TopologyRequested   ChangeTopology; TopologyChanged, or TopologyRefused
    BinsRequested       markers, some bins each; BinsMoved
    SplitsRequested     a marker and AdoptSplits for each source; SplitsMoved
    HostsRequested      StartHosts, then the same; ReleaseHosts of hosts that leave, or did not join; RescaleEnded

All names can be imported from ``events``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from fries_nb.checkpoints import CommittedChange
from fries_nb.messages import WorkerId
from fries_nb.topology.routing_table import RoutingTable
from fries_nb.topology.topology import Topology

STEP_MS = 25
"""Milliseconds in which the state of a step is to be pickled and unpickled."""


@dataclass(frozen=True, slots=True)
class TopologyRequested:
    """Change to this topology, of the next epoch, as soon as no change, commit or marker is under way."""

    topology: Topology


@dataclass(frozen=True, slots=True)
class BinsRequested:
    """Move the bins of keyed operators until they are routed by these tables; ``BinsMoved`` is the answer.

    Attributes:
        targets: keyed operator to its routing table in the end.
        at_once: maximum number of bins that one step moves; 0 adapts it by ``STEP_MS``.
    """

    targets: Mapping[str, RoutingTable]
    at_once: int = 0


@dataclass(frozen=True, slots=True)
class BinsMoved:
    """The requested moves are over: all have been made, or, for a ``reason``, not all.

    Attributes:
        tables: keyed operator to its routing table now.
        reason: why bins were left where they are; empty if none were.
    """

    tables: Mapping[str, RoutingTable]
    reason: str = ""


@dataclass(frozen=True, slots=True)
class SplitsRequested:
    """Deal the splits of sources to their first workers; ``SplitsMoved`` is the answer.

    Attributes:
        targets: source to the number of these workers.
    """

    targets: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class SplitsMoved:
    """The requested moves of splits are over: all have been made, or, for a ``reason``, not all."""

    reason: str = ""


@dataclass(frozen=True, slots=True)
class HostsRequested:
    """The user requests another number of hosts; ``RescaleEnded`` answers with the id ``request``.

    Attributes:
        request: id of the request.
        hosts: number of hosts.
        shares: operator to the number of workers that each new host brings; operators without an entry stay.
        at_once: maximum number of bins that one step moves; 0 adapts it by ``STEP_MS``.
    """

    request: str
    hosts: int
    shares: Mapping[str, int]
    at_once: int = 0


@dataclass(frozen=True, slots=True)
class RescaleCancelled:
    """The user cancels a request, if rows are not routed to new hosts yet and no state has moved."""

    request: str


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
