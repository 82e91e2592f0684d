"""Progress in the seeded cluster: the counts of the workers, exchanged by their hosts in any interleaving.

    a worker hands over a step          record, of its host
    a frame of another host arrives     receive
    a frontier advances                 FrontierAdvanced, to the workers of that host that wait for it

As on Spark, where ``spark.host_progress`` has the same three.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from fries_nb.messages import WorkerId
from fries_nb.progress.antichain import Antichain
from fries_nb.progress.change_batch import CountChange, CountChanges
from fries_nb.progress.exchange import HostProgress, ProgressFrame
from fries_nb.progress.progress_graph import ProgressGraph
from fries_nb.testing.progress_lanes import ProgressLanes
from fries_nb.topology.progress_locations import audience, listeners, progress_of
from fries_nb.worker.events import FrontierAdvanced
from fries_nb.worker.worker import Worker

if TYPE_CHECKING:
    from fries_nb.testing.deployment import Deployment
    from fries_nb.testing.hosts import Hosts
    from fries_nb.testing.readers import Supply


class SeededProgress:
    """The progress of the hosts of one incarnation. Does nothing if progress is not tracked by tokens.

    Args:
        plan: the settings of the cluster.
        hosts: the hosts, which deliver events to their workers.

    Attributes:
        announced: (host, listener) to the frontiers that were announced, in order.
    """

    def __init__(self, plan: Deployment, hosts: Hosts) -> None:
        self.announced: dict[tuple[int, str], list[Antichain]] = {}
        self._hosts = hosts
        self._audience: Mapping[str, tuple[str, ...]] = {}
        self._lanes = ProgressLanes(hosts.network)
        graph = progress_of(plan.graph, plan.watermarks)
        if isinstance(graph, ProgressGraph):
            self._audience, members = audience(plan.graph), range(plan.hosts)
            for host in members:
                self._lanes.join(HostProgress(host, graph, listeners(plan.graph), members))

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

    def record(self, worker: Worker, changes: CountChanges) -> None:
        """A worker hands over a step."""
        host = self._hosts.host_of(worker.wiring.id)
        if host in self.hosts:
            self._lanes.record(host, changes)
            self._announce(host)

    def receive(self, host: int, frame: ProgressFrame) -> None:
        """A frame has arrived at this host."""
        if host not in self._hosts.dead:
            self._lanes.receive(host, frame)
            self._announce(host)

    def greet(self, worker: WorkerId) -> None:
        """Notify a worker that was added of the frontiers that it waits for."""
        host = self._hosts.host_of(worker)
        for listener, operators in self._audience.items():
            if worker.operator in operators and (known := self.announced.get((host, listener))):
                self._hosts.give(worker, FrontierAdvanced(listener, known[-1]))

    def _announce(self, host: int) -> None:
        for listener, frontier in self.hosts[host].advanced().items():
            self.announced.setdefault((host, listener), []).append(frontier)
            for worker in self._hosts.topology.workers:
                if worker.operator in self._audience.get(listener, ()) and self._hosts.host_of(worker) == host:
                    self._hosts.give(worker, FrontierAdvanced(listener, frontier))
