"""Where the workers and bins of a run are: a value for people, views and tables.

>>> from fries_nb.dataflow.graph import Edge, Graph, Operator, Partitioning
>>> edge = Edge("S", "K", Partitioning.HASH, ("k",))
>>> topology = Topology.dealt(Graph("pair", (Operator("S"), Operator("K", key=("k",), workers=2)), (edge,)), hosts=2)
>>> status = TopologyStatus.of(topology, (0, 1))
>>> status.workers["K"], [(owner, len(bins)) for owner, bins in status.bins("K").items()]
((0, 1), [(0, 512), (1, 512)])
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from fries_nb.controller.states import RescalePhase
from fries_nb.protocol.partitioning import RoutingTable
from fries_nb.protocol.topology import Topology


@dataclass(frozen=True)
class TopologyStatus:
    """Hosts, workers and bins at one moment.

    Attributes:
        hosts: indices of the hosts that take part.
        wanted: the number of hosts after the rescale that is under way, or now.
        phase: what that rescale does; ``idle`` without one.
        workers: operator to the host of each of its workers, in order of their indices.
        routed: operator to the number of its workers to which rows are routed: the first ones.
        tables: keyed operator to the owner of each of its bins.
        bins_left: number of bins that are still to be moved.
        epoch: epoch of the topology.
        moved_bytes: size in bytes of the state that the rescale under way, or the last one, has moved so far.
        request: id of the rescale that is under way; empty without one.
    """

    hosts: tuple[int, ...]
    wanted: int
    phase: str
    workers: Mapping[str, tuple[int, ...]]
    routed: Mapping[str, int]
    tables: Mapping[str, RoutingTable]
    bins_left: int = 0
    epoch: int = 1
    moved_bytes: int = 0
    request: str = ""

    @classmethod
    def of(
        cls,
        topology: Topology,
        hosts: tuple[int, ...],
        phase: RescalePhase = RescalePhase.IDLE,
        wanted: int = 0,
        bins_left: int = 0,
        moved_bytes: int = 0,
        tables: Mapping[str, RoutingTable] | None = None,
        request: str = "",
    ) -> TopologyStatus:
        """The status of a topology."""
        known, routed = topology.tables if tables is None else tables, topology.routed_counts
        return cls(
            hosts,
            wanted or len(hosts),
            phase.value,
            topology.hosts_of_workers,
            routed,
            {name: known.get(name) or RoutingTable.even(routed[name]) for name in topology.graph.keyed},
            bins_left,
            topology.epoch,
            moved_bytes,
            request,
        )

    @property
    def is_idle(self) -> bool:
        """Whether no rescale is under way."""
        return self.phase == RescalePhase.IDLE.value

    @cached_property
    def worker_counts(self) -> Mapping[int, int]:
        """Host to the number of its workers, for hosts that have any."""
        return Counter(host for placed in self.workers.values() for host in placed)

    @cached_property
    def hosts_now(self) -> tuple[int, ...]:
        """The hosts that take part, and those that join and have workers already."""
        return tuple(sorted({*self.worker_counts, *self.hosts}))

    def bins(self, operator: str) -> dict[int, tuple[int, ...]]:
        """The bins of a keyed operator by the index of the worker that owns them."""
        owned: dict[int, list[int]] = {}
        for bin_, owner in enumerate(self.tables[operator].owners.tolist()):
            owned.setdefault(owner, []).append(bin_)
        return {owner: tuple(bins) for owner, bins in sorted(owned.items())}


@dataclass(frozen=True)
class HostCount:
    """The number of hosts from a time on.

    Attributes:
        at_s: the time, in seconds since the Unix epoch.
        hosts: number of hosts.
        workers: number of their workers.
        moved_bytes: size in bytes of the state that the rescale has moved.
        topology: where the workers were.
    """

    at_s: float
    hosts: int
    workers: int
    moved_bytes: int
    topology: TopologyStatus = field(repr=False)

    @classmethod
    def of(cls, at_s: float, status: TopologyStatus) -> HostCount:
        """The number of hosts by a status at this time."""
        workers = sum(map(len, status.workers.values()))
        return cls(at_s, len(status.hosts), workers, status.moved_bytes, status)
