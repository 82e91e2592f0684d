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
from fries_nb.progress.exchange import HostProgress, ProgressFrame, ProgressState
from fries_nb.simulation.draws import Draws
from fries_nb.simulation.network import Lane, LaneKind, SeededNetwork

__all__ = ["Draws", "ProgressLanes"]


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
