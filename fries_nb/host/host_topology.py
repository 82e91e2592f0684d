"""Changes of the topology at one host: links, routes, and the workers of a host that joins a running dataflow.

    message     an old host                                   a new host
    Extend      opens links and routes to new hosts           -
    TakePart    -                                             joins the others, and makes its workers
    Go          -                                             starts its workers
    HostsLeft   closes the links to these hosts               -

All methods are called from the thread that polls the links, which therefore delivers no frame in between.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable

from fries_nb.host.frame_router import FrameRouter
from fries_nb.host.host_workers import HostWorkers, add_workers, configuration_of
from fries_nb.host.hosted_worker import HostedWorker
from fries_nb.host.region_spec import RegionSpec
from fries_nb.protocol.messages import AdoptTopology, Answer, End, TopologyAdopted, WorkerId
from fries_nb.protocol.topology import Topology, wire
from fries_nb.transport.envelopes import Configured, Extend, TakePart
from fries_nb.transport.links import HostLinks
from fries_nb.worker.events import Arrived, Instruction, Rewired


class HostTopology:
    """The topology as one host knows it.

    Args:
        region: the specification of the region.
        host: index of the host.
        built: the workers that the host has made so far; those of a new host are added.
        links: the links to the driver and to other hosts.
        router: delivers frames.

    Attributes:
        current: the topology, with the host's own copies of functions.
    """

    def __init__(
        self, region: RegionSpec, host: int, built: HostWorkers, links: HostLinks, router: FrameRouter
    ) -> None:
        self.current = built.topology
        self._region = region
        self._host = host
        self._built = built
        self._links = links
        self._router = router

    def extend(self, order: Extend) -> None:
        """Open links and routes of the next epoch, and end the channels of lost workers."""
        before, self.current = self.current, self._loaded(order)[-1]
        self._links.extend(tuple(self.current.channels()), order.peers)
        self._router.place(self.current.placement)
        lost = set(order.lost)
        for channel in before.channels() if lost else ():
            if channel.sender in lost and channel.receiver in self._built.workers:
                self._router.post(channel.receiver, Arrived(channel, End()))
        if order.asks:
            workers = dict.fromkeys(self._built.workers.values())
            found = {name: one for each in workers for name, one in configuration_of(each.worker).items()}
            self._links.say(Configured(found))

    def take_part(self, order: TakePart, carry_out: Callable[[Instruction], None]) -> tuple[Answer, ...]:
        """Join the others in the last epoch, and make the workers of this host; returns what they answer.

        Args:
            order: the order.
            carry_out: carries out instructions of the workers.
        """
        first, *later = topologies = self._loaded(order.extend)
        self._links.join(self._region.incarnation, order.extend.peers, tuple(first.channels()))
        for topology in later:
            self._links.extend(tuple(topology.channels()))
        self.current = topologies[-1]
        self._router.place(self.current.placement)
        if not self._built.failures:
            add_workers(self._built, self._region, self.current, self._host, order, carry_out)
        return tuple(self._built.failures) or tuple(
            TopologyAdopted(self.current.epoch, worker) for worker in self._built.workers
        )

    def rewired(self, hosted: HostedWorker, worker: WorkerId, order: AdoptTopology) -> Rewired:
        """The event by which a worker adopts the current topology, with the chain that it runs now."""
        chain = tuple(operator.name for operator in hosted.worker.wiring.chain)
        return Rewired(order.epoch, wire(self.current, chain, worker.index), worker)

    def _loaded(self, order: Extend) -> list[Topology]:
        topologies: list[Topology] = pickle.loads(order.topologies)
        return [topology.resized(self._built.topology.graph) for topology in topologies]
