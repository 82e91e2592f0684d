"""Progress in the seeded cluster: the counts of the workers, exchanged by their hosts in any interleaving.

    a worker hands over a step          record, of its host
    a frame of another host arrives     receive
    a frontier advances                 FrontierAdvanced, to the workers of that host that wait for it

As on Spark, where ``host.host_progress`` has the same three.

The progress of several hosts, whose frames travel on the seeded network's lanes in any interleaving.

>>> import random
>>> from fries_nb.progress.change_batch import CountChange, GraphLocation
>>> from fries_nb.progress.exchange import first_counts
>>> from fries_nb.progress.progress_graph import FlowEdge, ProgressGraph
>>> from fries_nb.progress.times import start_time
>>> from fries_nb.simulation.network import Draws
>>> flow = ProgressGraph({"Src": (), "W": ()}, (FlowEdge("Src", "W"),))
>>> draws = Draws(random.Random(1))
>>> lanes = ProgressLanes(SeededNetwork(draws))
>>> for host in range(3):
...     lanes.join(HostProgress(host, flow, ["W"], members=range(3)))
>>> for host in range(3):
...     lanes.begin(host, first_counts(flow, {"Src": 1} if host == 0 else {}))
>>> lanes.record(0, [CountChange(GraphLocation("Src"), start_time(), -1)])
>>> [bool(lanes.hosts[host].frontier("W")) for host in range(3)]
[True, True, True]
>>> while draws:
...     lanes.deliver(draws.draw())
>>> [bool(lanes.hosts[host].frontier("W")) for host in range(3)]
[False, False, False]
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fries_nb.progress.change_batch import CountChange, CountChanges
from fries_nb.progress.exchange import HostProgress, ProgressFrame, ProgressState
from fries_nb.progress.progress_graph import ProgressGraph
from fries_nb.progress.times import Antichain
from fries_nb.protocol.messages import WorkerId
from fries_nb.protocol.progress_locations import audience, listeners
from fries_nb.protocol.topology import Topology
from fries_nb.simulation.network import Lane, LaneKind, SeededNetwork
from fries_nb.worker.events import FrontierAdvanced
from fries_nb.worker.worker import Worker

if TYPE_CHECKING:
    from fries_nb.simulation.faults import Deployment
    from fries_nb.simulation.hosts import Hosts
    from fries_nb.simulation.readers import Supply


class ProgressLanes:
    """The hosts' progress, and the lanes between each two of them.

    Attributes:
        hosts: index to the host's progress.
        serving: each host that joins to the one that gives it its view, until it does.
    """

    def __init__(self, network: SeededNetwork) -> None:
        self.hosts: dict[int, HostProgress] = {}
        self.serving: dict[int, int] = {}
        self._peers: dict[int, set[int]] = {}
        self._network = network

    def join(self, progress: HostProgress) -> None:
        """Add one of the first hosts."""
        for other in self.hosts:
            self._peers[other].add(progress.host)
        self._add(progress)

    def _add(self, progress: HostProgress) -> None:
        self._peers[progress.host] = set(self.hosts)
        self.hosts[progress.host] = progress

    def grow(self, progress: HostProgress, server: int) -> None:
        """Add a host that joins the others, which are to ``admit`` it one by one; ``server`` gives it its view."""
        self._add(progress)
        self.serving[progress.host] = server

    def meet(self, new: Iterable[int]) -> None:
        """Hosts that join together know of each other from the start."""
        together = set(new)
        for host in together:
            self._peers[host] |= together - {host}

    def admit(self, host: int, *new: int) -> None:
        """A host admits new ones, which frames that it broadcasts from now on reach as well."""
        self._peers[host].update(new)
        self._broadcast(self.hosts[host].admit(new))
        self._serve(host)

    def leave(self, host: int) -> None:
        """A host broadcasts all that it has, and is gone."""
        self._broadcast(self.hosts[host].leave())
        self.remove(host)

    def remove(self, host: int) -> None:
        """A host is gone."""
        del self.hosts[host]
        self.serving.pop(host, None)

    def begin(self, host: int, counts: Iterable[CountChange]) -> None:
        """A host begins with the first counts of its workers."""
        self._broadcast(self.hosts[host].begin(counts))

    def listen(self, host: int, listener: str) -> None:
        """A host has one more listener, as all others do sooner or later."""
        self._broadcast(self.hosts[host].listen(listener))

    def record(self, host: int, changes: Iterable[CountChange]) -> None:
        """A worker of this host hands over a step."""
        self._broadcast(self.hosts[host].record(changes))

    def deliver(self, lane: Lane) -> None:
        """Deliver the first frame of a lane of kind ``PROGRESS``."""
        pair: Any = lane[1]
        self.receive(pair[1], self._network.take(lane))

    def receive(self, host: int, frame: ProgressFrame | ProgressState) -> None:
        """A frame, or its view, has arrived at this host; nothing happens if it has left."""
        if host in self.hosts:
            progress = self.hosts[host]
            if isinstance(frame, ProgressState):
                self._broadcast(progress.take_view(frame))
            else:
                self._broadcast(progress.receive(frame))
            self._serve(host)

    def _serve(self, host: int) -> None:
        """Give new hosts the view of this one, if it is their server and all have admitted them."""
        for new in self.hosts[host].welcomed():
            if self.serving.get(new) == host:
                del self.serving[new]
                self._network.put((LaneKind.PROGRESS, (host, new)), self.hosts[host].state())

    def _broadcast(self, frame: ProgressFrame | None) -> None:
        if frame is not None:
            others = (host for host in sorted(self._peers[frame.sender]) if host in self.hosts)
            self._network.put_all(LaneKind.PROGRESS, (((frame.sender, host), frame) for host in others))


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
