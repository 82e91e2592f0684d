"""Progress in the seeded cluster: the counts of the workers, exchanged by their hosts in any interleaving.

    a worker hands over a step          record, of its host
    a frame of another host arrives     receive
    a frontier advances                 FrontierAdvanced, to the workers of that host that wait for it

As on Spark, where ``host.host_progress`` has the same three.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fries_nb.progress.antichain import Antichain
from fries_nb.progress.change_batch import CountChange, CountChanges
from fries_nb.progress.exchange import HostProgress, ProgressFrame, ProgressState
from fries_nb.progress.progress_graph import ProgressGraph
from fries_nb.protocol.messages import WorkerId
from fries_nb.protocol.progress_locations import audience, listeners
from fries_nb.protocol.topology import Topology
from fries_nb.simulation.network import LaneKind
from fries_nb.simulation.progress_lanes import ProgressLanes
from fries_nb.worker.events import FrontierAdvanced
from fries_nb.worker.worker import Worker

if TYPE_CHECKING:
    from fries_nb.simulation.deployment import Deployment
    from fries_nb.simulation.hosts import Hosts
    from fries_nb.simulation.readers import Supply


@dataclass(frozen=True)
class Admits:
    """A host is told of new ones, before its workers adopt the topology, or that one does not take part after all."""

    hosts: tuple[int, ...]
    takes_part: bool = True


class SeededProgress:
    """The progress of the hosts of one incarnation. Does nothing if progress is not tracked by tokens.

    Args:
        plan: the settings of the cluster.
        hosts: the hosts, which deliver events to their workers.

    Attributes:
        announced: (host, listener) to the frontiers that were announced, in order.
        left: the hosts that have left, whose last frames arrive.
    """

    def __init__(self, plan: Deployment, hosts: Hosts) -> None:
        self.announced: dict[tuple[int, str], list[Antichain]] = {}
        self.left: set[int] = set()
        self._hosts = hosts
        self._members = set(range(plan.hosts))
        self._audience: Mapping[str, tuple[str, ...]] = {}
        self._lanes = ProgressLanes(hosts.network)
        self._graph = plan.progress
        self._listeners = listeners(plan.graph)
        if isinstance(self._graph, ProgressGraph):
            self._audience, members = audience(plan.graph), range(plan.hosts)
            for host in members:
                self._lanes.join(HostProgress(host, self._graph, self._listeners, members))

    @property
    def hosts(self) -> Mapping[int, HostProgress]:
        """Index of each host to its progress; empty if progress is not tracked."""
        return self._lanes.hosts

    def begin(self, workers: Mapping[WorkerId, Worker], supply: Supply) -> None:
        """Begin with the first counts of the workers of each host that is alive."""
        first: dict[int, list[CountChange]] = {host: [] for host in self.hosts if host not in self._hosts.dead}
        for id_, worker in workers.items():
            counts = worker.introduce(supply.bounds.get(id_, {}), supply.ahead_ticks.get(id_))
            if (host := self._hosts.host_of(id_)) in first:
                first[host] += counts
        for host, each in first.items():
            self._lanes.begin(host, each)
            self._announce(host)

    def record(self, host: int, changes: CountChanges) -> None:
        """A worker of a host hands over a step."""
        if host in self.hosts:
            self._lanes.record(host, changes)
            self._announce(host)

    def receive(self, host: int, frame: ProgressFrame | ProgressState) -> None:
        """A frame, or its view, has arrived at this host."""
        if host in self.hosts and host not in self._hosts.dead:
            self._lanes.receive(host, frame)
            self._announce(host)

    def extend(self, topology: Topology) -> None:
        """New hosts join, and the others are told of them; host 0 gives them its view."""
        if not isinstance(self._graph, ProgressGraph):
            return
        fresh = sorted(set(topology.placement.values()) - self.hosts.keys() - self._hosts.dead)
        if fresh:
            self._tell(Admits(tuple(fresh)))
        for new in fresh:
            self._lanes.grow(HostProgress.joining(new, self._graph, self._listeners), server=0)
        self._lanes.meet(fresh)

    def _tell(self, order: Admits) -> None:
        for host in self.hosts:
            self._hosts.network.put((LaneKind.CONTROL, host), (host, order))

    def admit(self, host: int, order: Admits) -> None:
        """A host is told of a new one."""
        if host not in self.hosts or host in self._hosts.dead:
            return
        if not order.takes_part:
            self.hosts[host].dismiss(*order.hosts)
        elif present := [one for one in order.hosts if one in self.hosts]:
            self._lanes.admit(host, *present)

    def release(self, hosts: Iterable[int]) -> None:
        """Hosts leave, or do not take part after all."""
        for host in [one for one in hosts if one in self.hosts]:
            if host in self._members:
                self.left.add(host)
                self._lanes.leave(host)
            else:
                self._lanes.remove(host)
                self._tell(Admits((host,), takes_part=False))

    def greet(self, worker: WorkerId) -> None:
        """Notify a worker that was added of the frontiers that it waits for."""
        host = self._hosts.host_of(worker)
        self._members.add(host)
        for listener, operators in self._audience.items():
            if worker.operator in operators and (known := self.announced.get((host, listener))):
                self._hosts.give(worker, FrontierAdvanced(listener, known[-1]))

    def _announce(self, host: int) -> None:
        for listener, frontier in self.hosts[host].advanced().items():
            self.announced.setdefault((host, listener), []).append(frontier)
            for worker in self._hosts.topology.workers:
                if worker.operator in self._audience.get(listener, ()) and self._hosts.host_of(worker) == host:
                    self._hosts.give(worker, FrontierAdvanced(listener, frontier))
