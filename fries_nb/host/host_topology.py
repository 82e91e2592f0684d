"""Changes of the topology at one host: links, routes, and the workers of a host that joins a running dataflow.

    message     an old host                                   a new host
    Extend      opens links and routes to new hosts,          -
                and admits them to the exchange of counts;
                makes the workers of added operators
    AddWorkers  makes further workers of operators            -
    TakePart    -                                             joins the others, and makes its workers
    Go          takes new hosts for members                   starts its workers
    HostsLeft   closes the links to these hosts               -

All methods are called from the thread that polls the links, which therefore delivers no frame in between.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Protocol

from fries_nb.host.host_core import HostCore
from fries_nb.host.host_progress import ProgressLink
from fries_nb.host.host_workers import HostWorkers, configuration_of
from fries_nb.host.region_spec import Additions
from fries_nb.protocol.messages import ChannelId, End, TopologyAdopted, WorkerId
from fries_nb.protocol.topology import Topology
from fries_nb.transport.envelopes import AddWorkers, Begin, Configured, Extend, HostMessage, Said, TakePart
from fries_nb.worker.events import Arrived

NO_PEERS: Mapping[int, str] = MappingProxyType({})


class TopologyLinks(Protocol):
    """The links of a host as far as the topology changes them; see ``transport.links.HostLinks``."""

    def join(self, incarnation: int, peers: dict[int, str], channels: Sequence[ChannelId]) -> None:
        """Join the others, in their first topology."""

    def extend(self, channels: Sequence[ChannelId], peers: Mapping[int, str] = NO_PEERS) -> None:
        """Begin the next topology, perhaps with further hosts."""

    def part(self, hosts: Iterable[int]) -> None:
        """Close the links to hosts that have left, or never took part."""

    def say(self, message: HostMessage) -> None:
        """Send a message to the driver."""


class HostTopology:
    """The topology as one host knows it.

    Args:
        incarnation: the incarnation that the host was started for.
        built: the workers that the host has made so far.
        links: the links to the driver and to other hosts.
        core: the host, which has the topology of now.
        progress: the host's part in the exchange of counts.
        add: makes the workers that an epoch adds to operators.
        make: makes the workers of the operators that an epoch adds.
    """

    def __init__(
        self,
        incarnation: int,
        built: HostWorkers,
        links: TopologyLinks,
        core: HostCore,
        progress: ProgressLink,
        add: Callable[[Topology, AddWorkers], HostWorkers],
        make: Callable[[Topology, Additions, Begin], HostWorkers],
    ) -> None:
        self._incarnation = incarnation
        self._built = built
        self._links = links
        self._core = core
        self._progress = progress
        self._add = add
        self._make = make
        self._unmade: list[WorkerId] = []  # workers of added sources that could not be made in the last epoch

    def extend(self, order: Extend) -> None:
        """Open links and routes of the next epoch, have made what it adds, and end the channels of lost workers."""
        before = self._core.topology
        topology = self._loaded(order)[-1]
        self._links.extend(tuple(topology.channels()), order.peers)
        self._core.adopt(topology)
        if (added := order.added) is not None:
            self._progress.extend(topology.graph, added)
            self._core.apart(
                lambda: self._made(topology, self._make(topology, pickle.loads(added.additions), added))
            )
        lost = set(order.lost)
        for channel in before.channels() if lost else ():
            if channel.sender in lost and channel.receiver in self._core.hosted:
                self._core.router.post(channel.receiver, Arrived(channel, End()))
        if order.asks:
            # Of the workers of now, since chains may have been fused and split after they were made.
            found = {name: one for each in self._core.workers for name, one in configuration_of(each.worker).items()}
            self._links.say(Configured(found))
        # Behind the links: what is sent to new hosts from now on needs one to each of them.
        self._progress.admit(order.peers)

    def add_workers(self, order: AddWorkers) -> None:
        """Have made what this epoch adds to operators."""
        topology = self._core.topology
        self._core.apart(lambda: self._made(topology, self._add(topology, order)))

    def _made(self, topology: Topology, made: HostWorkers) -> Callable[[], None]:
        """What is to be done with workers that were made apart, by the thread that polls the links."""

        def enlist() -> None:
            self._built.workers.update(made.workers)
            # Nothing is sent to them before they have answered, so they need not have been known until now.
            self._core.adopt(topology.with_functions(self._built.functions))
            self._core.router.leave_out(failed.worker for failed in made.failures)
            sources = topology.graph.sources
            self._unmade = [failed.worker for failed in made.failures if failed.worker.operator in sources]
            self._core.enlist(made.workers)
            adopted = (TopologyAdopted(topology.epoch, worker) for worker in made.workers)
            self._links.say(Said((*made.failures, *adopted)))

        return enlist

    def take_part(self, order: TakePart) -> None:
        """Join the others in the last epoch, and make the workers of this host, which answer that they are there."""
        first, *later = topologies = self._loaded(order.extend)
        self._links.join(self._incarnation, order.extend.peers, tuple(first.channels()))
        for topology in later:
            self._links.extend(tuple(topology.channels()))
        topology = topologies[-1]
        if not self._built.failures:
            made = self._add(topology, order.add)
            self._built.workers.update(made.workers)
            self._built.failures += made.failures
        self._core.admit(topology, self._built.workers)
        adopted = tuple(TopologyAdopted(topology.epoch, worker) for worker in self._built.workers)
        self._links.say(Said(tuple(self._built.failures) or adopted))
        self._progress.join(order.extend.peers, topology)

    def settle(self) -> None:
        """All workers have adopted the topology, so that new hosts are members from now on."""
        self._progress.settle()
        self._progress.start_nothing(self._unmade)  # all hosts know the graph by now
        self._unmade = []
        self._progress.notify(self._core.topology)
        self._core.connect()
        if self._core.topology.after is None:
            self._core.retire()

    def part(self, hosts: Iterable[int]) -> None:
        """Close the links to these hosts, and await the last counts of those that have taken part."""
        self._links.part(hosts)
        self._progress.part(hosts)

    def _loaded(self, order: Extend) -> list[Topology]:
        topologies: list[Topology] = pickle.loads(order.topologies)
        return [topology.with_functions(self._built.functions) for topology in topologies]
