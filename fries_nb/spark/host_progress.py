"""Progress of a host: its workers' counts, exchanged with the other hosts over the links.

Workers hand over their steps from their threads; frames of other hosts arrive in the control thread. A lock makes one
sequence of both, in which frames are broadcast: the links keep the order of what is posted to a host.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping

from fries_nb.dataflow.graph import Graph
from fries_nb.messages import WorkerId
from fries_nb.progress.change_batch import CountChange, CountChanges
from fries_nb.progress.exchange import HostProgress, ProgressFrame
from fries_nb.progress.progress_graph import ProgressGraph
from fries_nb.spark.hosted_worker import HostedWorker
from fries_nb.spark.region_spec import RegionSpec
from fries_nb.topology.progress_locations import audience, listeners
from fries_nb.worker.events import Event, FrontierAdvanced

SPARING = 100
"""The view is not looked through again before so many times the duration of the last time have passed."""


class ProgressLink:
    """The progress of one host. Does nothing if progress is not tracked by tokens.

    Args:
        region: the specification of the region.
        graph: its dataflow with functions, which say whether operators work by time.
        host: index of the host.
        send: posts a frame to another host.
        post: posts an event to a worker of this host.
    """

    def __init__(
        self,
        region: RegionSpec,
        graph: Graph,
        host: int,
        send: Callable[[int, ProgressFrame], None],
        post: Callable[[WorkerId, Event], None],
    ) -> None:
        self._lock = threading.Lock()
        self._others = [other for other in range(region.options.hosts) if other != host]
        self._send = send
        self._post = post
        self._audience: Mapping[str, tuple[WorkerId, ...]] = {}
        self._progress: HostProgress | None = None
        self._again_s = 0.0
        if isinstance(progress := region.progress, ProgressGraph):
            self._progress = HostProgress(host, progress, listeners(graph), range(region.options.hosts))
            here = [worker for worker, home in region.topology.placement.items() if home == host]
            self._audience = {
                listener: tuple(worker for worker in here if worker.operator in operators)
                for listener, operators in audience(graph).items()
            }

    def begin(self, workers: Iterable[HostedWorker]) -> None:
        """Begin with the first counts of this host's workers, before they run."""
        if self._progress is not None:
            counts: list[CountChange] = [count for one in workers for count in one.introduce()]
            with self._lock:
                self._broadcast(self._progress.begin(counts))
                self._announce(self._progress)

    def record(self, changes: CountChanges) -> None:
        """A worker of this host hands over a step; called from any thread, in order for each worker."""
        if self._progress is not None:
            with self._lock:
                self._broadcast(self._progress.record(changes))
                self._announce(self._progress)

    def receive(self, frame: ProgressFrame) -> None:
        """A frame of another host has arrived."""
        if self._progress is not None:
            with self._lock:
                self._broadcast(self._progress.receive(frame))
                self._announce(self._progress)

    def counts(self) -> CountChanges | None:
        """What frontiers depend on in this host's view; ``None`` before it is open, and when it was asked for too soon.

        The view may be long, so it is looked through in a small part of the time only.
        """
        began_s = time.monotonic()
        if self._progress is None or not self._progress.is_open or began_s < self._again_s:
            return None
        with self._lock:
            counts = self._progress.least_counts()
        ended_s = time.monotonic()
        self._again_s = ended_s + SPARING * (ended_s - began_s)
        return counts

    def _broadcast(self, frame: ProgressFrame | None) -> None:
        if frame is not None:
            for host in self._others:
                self._send(host, frame)

    def _announce(self, progress: HostProgress) -> None:
        for listener, frontier in progress.advanced().items():
            event = FrontierAdvanced(listener, frontier)
            for worker in self._audience.get(listener, ()):
                self._post(worker, event)
