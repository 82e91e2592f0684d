"""Progress in the seeded cluster: the counts of the workers, exchanged by their hosts in any interleaving.

>>> import random
>>> from fries_nb.dataflow.graph import Graph, Operator
>>> from fries_nb.testing.draws import Draws
>>> untracked = Graph("none", (Operator("A"),), ())
>>> SeededProgress(untracked, 2, SeededNetwork(Draws(random.Random(0))), print).graph is None
True
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from fries_nb.dataflow.graph import Graph
from fries_nb.progress.antichain import Antichain
from fries_nb.progress.change_batch import CountChange, CountChanges
from fries_nb.progress.exchange import HostProgress, ProgressFrame
from fries_nb.testing.network import SeededNetwork
from fries_nb.testing.progress_lanes import ProgressLanes
from fries_nb.topology.progress_locations import audience, is_tracked, listeners, progress_graph
from fries_nb.worker.events import FrontierAdvanced

Notify = Callable[[int, str, FrontierAdvanced], None]
"""Delivers an event to the workers of an operator on a host."""


class SeededProgress:
    """The progress of the hosts of one incarnation.

    Args:
        graph: the dataflow.
        hosts: number of hosts.
        network: carries the frames of the hosts.
        notify: delivers events to workers.

    Attributes:
        graph: the dataflow as progress sees it; ``None`` if progress is not tracked.
        announced: (host, listener) to the frontiers that were announced, in order.
    """

    def __init__(self, graph: Graph, hosts: int, network: SeededNetwork, notify: Notify) -> None:
        self.graph = progress_graph(graph) if is_tracked(graph) else None
        self.announced: dict[tuple[int, str], list[Antichain]] = {}
        self._notify = notify
        self._audience: Mapping[str, tuple[str, ...]] = audience(graph)
        self._lanes = ProgressLanes(network)
        if self.graph is not None:
            for host in range(hosts):
                self._lanes.join(HostProgress(host, self.graph, listeners(graph), members=range(hosts)))

    @property
    def hosts(self) -> Mapping[int, HostProgress]:
        """Index of each host to its progress; empty if progress is not tracked."""
        return self._lanes.hosts

    def begin(self, first: Mapping[int, Iterable[CountChange]]) -> None:
        """Begin with the first counts of each host that is alive."""
        if self.graph is not None:
            for host, counts in first.items():
                self._lanes.begin(host, counts)
                self._announce(host)

    def record(self, host: int, changes: CountChanges) -> None:
        """A worker of this host hands over a step."""
        self._lanes.record(host, changes)
        self._announce(host)

    def receive(self, host: int, frame: ProgressFrame) -> None:
        """A frame has arrived at this host."""
        self._lanes.receive(host, frame)
        self._announce(host)

    def _announce(self, host: int) -> None:
        for listener, frontier in self._lanes.hosts[host].advanced().items():
            self.announced.setdefault((host, listener), []).append(frontier)
            for operator in self._audience.get(listener, ()):
                self._notify(host, operator, FrontierAdvanced(listener, frontier))
