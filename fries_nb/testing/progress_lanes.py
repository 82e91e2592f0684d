"""The progress of several hosts, whose frames travel on the seeded network's lanes in any interleaving.

>>> import random
>>> from fries_nb.progress.change_batch import CountChange, GraphLocation
>>> from fries_nb.progress.exchange import first_counts
>>> from fries_nb.progress.progress_graph import FlowEdge, ProgressGraph
>>> from fries_nb.progress.times import start_time
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

from collections.abc import Iterable
from typing import Any

from fries_nb.progress.change_batch import CountChange
from fries_nb.progress.exchange import HostProgress, ProgressFrame
from fries_nb.testing.draws import Draws
from fries_nb.testing.network import Lane, LaneKind, SeededNetwork

__all__ = ["Draws", "ProgressLanes"]


class ProgressLanes:
    """The hosts' progress, and the lanes between each two of them.

    Attributes:
        hosts: index to the host's progress.
    """

    def __init__(self, network: SeededNetwork) -> None:
        self.hosts: dict[int, HostProgress] = {}
        self._network = network

    def join(self, progress: HostProgress) -> None:
        """Add a host; frames that are broadcast from now on reach it as well."""
        self.hosts[progress.host] = progress
        for other in self.hosts.values():
            other.admit(progress.host)

    def leave(self, host: int) -> None:
        """A host broadcasts all that it has. When its frames have been delivered, ``dismiss`` it."""
        self._broadcast(self.hosts[host].flush())

    def dismiss(self, host: int) -> None:
        """The others forget a host that has left."""
        del self.hosts[host]
        for other in self.hosts.values():
            other.dismiss(host)

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

    def receive(self, host: int, frame: ProgressFrame) -> None:
        """A frame has arrived at this host."""
        self._broadcast(self.hosts[host].receive(frame))

    def _broadcast(self, frame: ProgressFrame | None) -> None:
        if frame is not None:
            others = (host for host in self.hosts if host != frame.sender)
            self._network.put_all(LaneKind.PROGRESS, (((frame.sender, host), frame) for host in others))
