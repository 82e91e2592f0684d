"""Progress of a host: its workers' counts, exchanged with the other hosts over the links.

Workers hand over their steps from their threads; frames of other hosts arrive in the control thread. A lock makes one
sequence of both, in which frames are broadcast: the links keep the order of what is posted to a host.

    message     an old host                                   a new host
    Extend      admits new hosts, and says so to all          -
    TakePart    -                                             keeps frames until it has a view
                host 0, when all have said so: gives its view
    HostsLeft   sends no more frames to these, and awaits     -
                their last ones; see ``check``
    Leave       says what is left, in its last frame
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping

from fries_nb.dataflow.graph import Graph
from fries_nb.errors import LinkError
from fries_nb.host.hosted_worker import HostedWorker
from fries_nb.host.region_spec import RegionSpec
from fries_nb.progress.change_batch import CountChange, CountChanges
from fries_nb.progress.exchange import HostProgress, ProgressFrame, ProgressState
from fries_nb.progress.progress_graph import ProgressGraph
from fries_nb.protocol.messages import WorkerId
from fries_nb.protocol.progress_locations import audience, listeners
from fries_nb.protocol.topology import Topology
from fries_nb.worker.events import Event, FrontierAdvanced

PARTING_S = 30.0
"""Time in which the last frame of a host that leaves has to come; it died before it was sent otherwise."""
SPARING = 100
"""The view is not looked through again before so many times the duration of the last time have passed."""


class ProgressLink:
    """The progress of one host. Does nothing if progress is not tracked by tokens.

    Args:
        region: the specification of the region.
        graph: its dataflow with functions, which say whether operators work by time.
        host: index of the host.
        send: posts a frame, or the view, to another host.
        post: posts an event to a worker of this host.
    """

    def __init__(
        self,
        region: RegionSpec,
        graph: Graph,
        host: int,
        send: Callable[[int, ProgressFrame | ProgressState], None],
        post: Callable[[WorkerId, Event], None],
    ) -> None:
        self._lock = threading.Lock()
        self._host = host
        self._graph = graph
        self._others = set(range(region.options.hosts)) - {host}
        self._new: set[int] = set()
        self._parting: dict[int, float] = {}
        self._send = send
        self._post = post
        self._audience: Mapping[str, tuple[WorkerId, ...]] = {}
        self._progress: HostProgress | None = None
        self._again_s = 0.0
        self._is_newcomer = host >= region.options.hosts
        if isinstance(progress := region.progress, ProgressGraph):
            told = listeners(graph)
            if self._is_newcomer:
                self._progress = HostProgress.joining(host, progress, told)
            else:
                self._progress = HostProgress(host, progress, told, range(region.options.hosts))
                self._place(region.topology)

    def _place(self, topology: Topology) -> None:
        here = [worker for worker, home in topology.placement.items() if home == self._host]
        self._audience = {
            listener: tuple(worker for worker in here if worker.operator in operators)
            for listener, operators in audience(self._graph).items()
        }

    def begin(self, workers: Iterable[HostedWorker]) -> None:
        """Begin with the first counts of this host's workers, before they run; those of a new host have none."""
        if self._progress is not None and not self._is_newcomer:
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

    def receive(self, frame: ProgressFrame | ProgressState) -> None:
        """A frame of another host has arrived, or the view that this one begins with."""
        if self._progress is not None:
            with self._lock:
                if isinstance(frame, ProgressState):
                    self._broadcast(self._progress.take_view(frame))
                else:
                    self._broadcast(self._progress.receive(frame))
                self._announce(self._progress)
                self._serve(self._progress)

    # ---- hosts that come and go

    def admit(self, hosts: Iterable[int]) -> None:
        """Other hosts have joined, if they are new: send them frames from now on."""
        new = set(hosts) - self._others - {self._host}
        if self._progress is not None and new:
            with self._lock:
                self._new |= new
                self._others |= new
                self._broadcast(self._progress.admit(sorted(new)))
                self._serve(self._progress)

    def join(self, hosts: Iterable[int], topology: Topology) -> None:
        """This host, a new one, takes part with these others, in this topology."""
        if self._progress is not None:
            self._others = set(hosts) - {self._host}
            self._place(topology)

    def settle(self) -> None:
        """All new hosts take part from now on, so that they leave with a last frame."""
        self._new.clear()

    def part(self, hosts: Iterable[int]) -> None:
        """Send no more frames to these hosts, which leave, or never took part."""
        if self._progress is not None:
            with self._lock:
                self._others.difference_update(hosts)
                for host in self._new.intersection(hosts):
                    self._progress.dismiss(host)
                self._parting.update(dict.fromkeys(set(hosts) - self._new, time.monotonic()))
                self._new.difference_update(hosts)
                self._serve(self._progress)

    def check(self) -> None:
        """Check that no frame of a host that has left is missing: frontiers would wait for it for ever.

        Raises:
            LinkError: its last frame has not come in time; the run is to be recovered.
        """
        if not self._parting or self._progress is None:
            return
        with self._lock:
            self._parting = {host: since for host, since in self._parting.items() if self._progress.awaits(host)}
        for host, since in self._parting.items():
            if time.monotonic() - since > PARTING_S:
                raise LinkError(f"host {host} left, and its last counts have not come within {PARTING_S:g} s")

    def leave(self, hosts: Iterable[int]) -> None:
        """Pass on all that the workers of this host have done, since it leaves together with these hosts."""
        if self._progress is not None:
            with self._lock:
                self._others.difference_update(hosts)
                self._broadcast(self._progress.leave())

    def _serve(self, progress: HostProgress) -> None:
        """Host 0, which never leaves, gives new hosts its view when all others have admitted them."""
        for host in progress.welcomed():
            if self._host == 0:
                self._send(host, progress.state())

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
