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

from fries_nb.host.environment import Environment
from fries_nb.host.host_core import HostCore
from fries_nb.host.host_workers import HostWorkers, add_workers, configuration_of
from fries_nb.host.region_spec import RegionSpec
from fries_nb.protocol.messages import Answer, End, TopologyAdopted
from fries_nb.protocol.topology import Topology
from fries_nb.transport.envelopes import Configured, Extend, TakePart
from fries_nb.transport.links import HostLinks
from fries_nb.worker.events import Arrived


class HostTopology:
    """The topology as one host knows it.

    Args:
        region: the specification of the region.
        host: index of the host.
        built: the workers that the host has made so far; those of a new host are added.
        links: the links to the driver and to other hosts.
        core: the host, which has the topology of now.
    """

    def __init__(self, region: RegionSpec, host: int, built: HostWorkers, links: HostLinks, core: HostCore) -> None:
        self._region = region
        self._host = host
        self._built = built
        self._links = links
        self._core = core

    def extend(self, order: Extend) -> None:
        """Open links and routes of the next epoch, and end the channels of lost workers."""
        before, topology = self._core.topology, self._loaded(order)[-1]
        self._links.extend(tuple(topology.channels()), order.peers)
        self._core.adopt(topology)
        lost = set(order.lost)
        for channel in before.channels() if lost else ():
            if channel.sender in lost and channel.receiver in self._built.workers:
                self._core.router.post(channel.receiver, Arrived(channel, End()))
        if order.asks:
            workers = dict.fromkeys(self._built.workers.values())
            found = {name: one for each in workers for name, one in configuration_of(each.worker).items()}
            self._links.say(Configured(found))

    def take_part(self, order: TakePart, environment: Environment) -> tuple[Answer, ...]:
        """Join the others in the last epoch, and make the workers of this host; returns what they answer.

        Args:
            order: the order.
            environment: the locks and clocks of the workers.
        """
        first, *later = topologies = self._loaded(order.extend)
        self._links.join(self._region.incarnation, order.extend.peers, tuple(first.channels()))
        for topology in later:
            self._links.extend(tuple(topology.channels()))
        topology = topologies[-1]
        if not self._built.failures:
            add_workers(self._built, self._region, topology, self._host, order, environment, self._core.carry_out)
        self._core.admit(topology, self._built.workers)
        return tuple(self._built.failures) or tuple(
            TopologyAdopted(topology.epoch, worker) for worker in self._built.workers
        )

    def _loaded(self, order: Extend) -> list[Topology]:
        topologies: list[Topology] = pickle.loads(order.topologies)
        return [topology.resized(self._built.topology.graph) for topology in topologies]
