"""Progress in a seeded cluster: the links of all hosts (``host.host_progress``), whose frames travel on seeded lanes.

The progress of several hosts, whose frames arrive in any interleaving:

>>> import random
>>> from fries_nb.progress.progress_graph import CountChange, GraphLocation
>>> from fries_nb.progress.exchange import first_counts
>>> from fries_nb.progress.progress_graph import FlowEdge, ProgressGraph
>>> from fries_nb.progress.times import start_time
>>> from fries_nb.simulation.cluster import ManualClock
>>> from fries_nb.simulation.network import Draws
>>> from fries_nb.simulation.virtual_threads import VirtualEnvironment, VirtualThreads
>>> flow = ProgressGraph({"Src": (), "W": ()}, (FlowEdge("Src", "W"),))
>>> draws, chance, clock = Draws(random.Random(1)), random.Random(1), ManualClock()
>>> environment = VirtualEnvironment(VirtualThreads(draws, clock), clock, chance)
>>> lanes = ProgressLinks(SeededNetwork(draws), environment)
>>> for host in range(3):
...     link = lanes.add(HostProgress(host, flow, ["W"], members=range(3)), range(3))
>>> for host in range(3):
...     lanes.links[host].begin(first_counts(flow, {"Src": 1} if host == 0 else {}))
>>> lanes.links[0].record([CountChange(GraphLocation("Src"), start_time(), -1)])
>>> [bool(lanes.views[host].frontier("W")) for host in range(3)]
[True, True, True]
>>> while draws:
...     lanes.deliver(draws.draw())
>>> [bool(lanes.views[host].frontier("W")) for host in range(3)]
[False, False, False]
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from fries_nb.errors import LinkError
from fries_nb.host.environment import Environment
from fries_nb.host.host_progress import ProgressLink, first_view
from fries_nb.progress.exchange import HostProgress, ProgressFrame, ProgressState
from fries_nb.progress.progress_graph import CountChange, CountChanges
from fries_nb.progress.times import Antichain
from fries_nb.protocol.messages import WorkerId
from fries_nb.protocol.progress_locations import audience
from fries_nb.protocol.topology import Topology
from fries_nb.simulation.network import Lane, LaneKind, SeededNetwork
from fries_nb.transport.envelopes import Extend, Go, HostsLeft, Leave, TakePart
from fries_nb.worker.events import Event, FrontierAdvanced
from fries_nb.worker.worker import Worker

if TYPE_CHECKING:
    from fries_nb.simulation.faults import Deployment
    from fries_nb.simulation.hosts import Hosts
    from fries_nb.simulation.readers import Supply

NONE_NOTIFIED: Mapping[str, tuple[str, ...]] = {}


def _unheard(worker: WorkerId, event: Event) -> None:
    """No worker waits for it."""


def _unsent(host: int, frame: ProgressFrame | ProgressState) -> None:
    """Nothing is exchanged."""


class ProgressLinks:
    """The links of several hosts, and the lanes between each two of them."""

    def __init__(self, network: SeededNetwork, environment: Environment) -> None:
        self.links: dict[int, ProgressLink] = {}  # host to its link
        self.views: dict[int, HostProgress] = {}  # host to what it knows of all counts
        self._network = network
        self._environment = environment

    def add(
        self,
        view: HostProgress,
        others: Iterable[int] = (),
        notified: Mapping[str, tuple[str, ...]] = NONE_NOTIFIED,
        post: Callable[[WorkerId, Event], None] = _unheard,
    ) -> ProgressLink:
        """Add a host; see ``ProgressLink``."""
        host = view.host

        def send(to: int, frame: ProgressFrame | ProgressState) -> None:
            self._network.put((LaneKind.PROGRESS, (host, to)), frame)

        self.views[host] = view
        self.links[host] = ProgressLink(self._environment, view, others, notified, send, post)
        return self.links[host]

    def remove(self, host: int) -> None:
        """A host is gone."""
        del self.views[host], self.links[host]

    def deliver(self, lane: Lane) -> None:
        """Deliver the first frame of a lane of kind ``PROGRESS``, unless its receiver is gone."""
        pair: Any = lane[1]
        frame = self._network.take(lane)
        if pair[1] in self.links:
            self.links[pair[1]].receive(frame)


class SeededProgress:
    """The progress of the hosts of one incarnation. Does nothing if progress is not tracked."""

    def __init__(self, plan: Deployment, hosts: Hosts) -> None:
        # (host, listener) to the frontiers that the host has known since it is open, in order
        self.announced: dict[tuple[int, str], list[Antichain]] = {}
        self.left: set[int] = set()  # the hosts that have left, whose last frames arrive
        self._plan = plan  # the settings of the cluster
        self._hosts = hosts  # the hosts, which deliver events to their workers
        self._members = set(range(plan.hosts))
        self._early: dict[int, list[ProgressFrame | ProgressState]] = {}
        self._audience = audience(plan.graph)
        self._first = hosts.topology
        self._posted: deque[tuple[WorkerId, Event]] = deque()
        self._lanes = ProgressLinks(hosts.network, hosts.environment)
        for host in range(plan.hosts):
            self._add(host, range(plan.hosts), hosts.topology)

    def _add(self, host: int, members: range, topology: Topology) -> None:
        view = first_view(host, members, self._plan.graph, self._plan.progress)
        if view is not None:
            self._lanes.add(view, members, self._audience, self._post).place(topology)

    def _post(self, worker: WorkerId, event: Event) -> None:
        """Post an event to a worker: it is processed when the link has released its lock, as in a worker's turn."""
        self._posted.append((worker, event))

    @property
    def hosts(self) -> Mapping[int, HostProgress]:
        """Index of each host to its progress; empty if progress is not tracked."""
        return self._lanes.views

    def _link(self, host: int) -> ProgressLink | None:
        return None if host in self._hosts.dead else self._lanes.links.get(host)

    def begin(self, workers: Mapping[WorkerId, Worker], supply: Supply) -> None:
        """Begin with the first counts of the workers of each host that is alive."""
        for host in list(self.hosts):
            if (link := self._link(host)) is not None:
                link.begin(self._first_counts(host, workers, supply))
                self.carry_on(host)

    def _first_counts(self, host: int, workers: Mapping[WorkerId, Worker], supply: Supply) -> Iterator[CountChange]:
        for id_, worker in workers.items():
            if self._hosts.host_of(id_) == host:
                yield from worker.introduce(supply.bounds.get(id_, {}), supply.ahead_ticks.get(id_))

    def record(self, host: int, changes: CountChanges) -> None:
        """A worker of a host hands over a step."""
        if host in self._lanes.links:
            self._lanes.links[host].record(changes)
            self.carry_on(host)

    def receive(self, host: int, frame: ProgressFrame | ProgressState) -> None:
        """A frame, or its view, has arrived at this host."""
        if host in self._early:
            self._early[host].append(frame)
        elif (link := self._link(host)) is not None:
            link.receive(frame)
            self.carry_on(host)

    def carry_on(self, host: int) -> None:
        """Note what a host knows now, and let its workers hear of it."""
        view = self.hosts[host]
        for listener in view.listeners if view.is_open else ():
            known, frontier = self.announced.setdefault((host, listener), []), view.frontier(listener)
            if not known or (known[-1] is not frontier and known[-1] != frontier):
                known.append(frontier)
        while self._posted:
            self._hosts.give(*self._posted.popleft())

    # ---- hosts that come and go

    def extend(self, topology: Topology) -> None:
        """Hosts are to join in the next topology; what comes there before they do is kept, as links do."""
        if self._plan.progress is not None:
            self._audience = audience(topology.graph)  # not that of the first dataflow, if its shape has changed
            for host in sorted(set(topology.placement.values()) - self.hosts.keys() - self._hosts.dead):
                self._early[host] = []
                self._add(host, range(0), self._first)  # in which it has no workers

    def joined(self, host: int) -> None:
        """A new host has joined the others, and takes in what has come for it before."""
        for frame in self._early.pop(host, ()):
            self.receive(host, frame)

    def link(self, host: int) -> ProgressLink:
        """The link of a host; one that does nothing if progress is not tracked."""
        return self._lanes.links.get(host) or ProgressLink(self._hosts.environment, None, (), {}, _unsent, _unheard)

    def takes_part(self, host: int) -> bool:
        """Whether a host takes part in the exchange, so that it has something to say before it leaves."""
        return host in self._members & self.hosts.keys()

    def settle(self, topology: Topology, added: Iterable[WorkerId]) -> None:
        """All workers have adopted a topology, and those that were added begin."""
        for worker in added:
            host = self._hosts.host_of(worker)
            if host in self._members & self.hosts.keys():
                self._lanes.links[host].place(topology)
                self._greet(worker, host)
        self._members.update(set(topology.placement.values()) & self.hosts.keys())

    def _greet(self, worker: WorkerId, host: int) -> None:
        for listener, operators in self._audience.items():
            known = self.announced.get((host, listener))
            if worker.operator in operators and known:
                self._hosts.give(worker, FrontierAdvanced(listener, known[-1]))

    def hear(self, host: int, order: Extend | TakePart | Go | HostsLeft | Leave) -> None:
        """The driver tells a host what the others do, or that it joins or leaves."""
        if (link := self._link(host)) is None:
            return
        match order:
            case TakePart():
                link.join(order.extend.peers, self._hosts.topology)
                self.joined(host)
            case Extend():
                link.admit(order.peers)
            case Go():
                link.settle()
                link.notify(self._hosts.topology)
            case HostsLeft():
                link.part(order.hosts)
            case Leave():
                self.leave(host, order.leaving)
        if host in self.hosts:
            self.carry_on(host)

    def leave(self, host: int, hosts: Iterable[int]) -> None:
        """A host says what is left, and is gone, together with these hosts."""
        if host in self.hosts:
            self._lanes.links[host].leave(hosts)
            self.left.add(host)
            self._lanes.remove(host)

    @property
    def awaits_last_frames(self) -> bool:
        """Whether the last frame of a host that has left is still to come somewhere."""
        return any(link.awaited() for link in self._lanes.links.values())

    def unfit(self) -> list[tuple[int, str]]:
        """The hosts that have missed a last frame for too long, each with its error."""
        found = []
        for host, link in self._lanes.links.items():
            try:
                if host not in self._hosts.dead:
                    link.check()
            except LinkError as error:
                found.append((host, str(error)))
        return found
