"""Progress of a host: its workers' counts, exchanged with the other hosts over the links.

Workers hand over their steps from their threads; frames of other hosts arrive in the control thread. A lock makes one
sequence of both, in which frames are broadcast: the links keep the order of what is posted to a host.

    message     an old host                                   a new host
    Extend      admits new hosts, and says so to all;         -
                goes on with both dataflows of a change of
                the shape
    TakePart    -                                             keeps frames until it has a view
                host 0, when all have said so: gives its view
    HostsLeft   sends no more frames to these, and awaits     -
                their last ones; see ``check``
    Leave       says what is left, in its last frame
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping

from fries_nb.dataflow.graph import Graph
from fries_nb.errors import LinkError
from fries_nb.host.environment import Environment
from fries_nb.progress.exchange import HostProgress, ProgressFrame, ProgressState
from fries_nb.progress.progress_graph import CountChange, CountChanges, GraphLocation, ProgressGraph
from fries_nb.progress.times import start_time
from fries_nb.protocol.messages import WorkerId
from fries_nb.protocol.progress_locations import listeners, progress_graph
from fries_nb.protocol.topology import Topology
from fries_nb.transport.envelopes import Begin
from fries_nb.worker.events import Event, FrontierAdvanced

PARTING_NS = 30_000_000_000
"""Time in which the last frame of a host that leaves has to come; it died before it was sent otherwise."""
SPARING = 100
"""The view is not looked through again before so many times the duration of the last time have passed."""


def first_view(host: int, members: Collection[int], graph: Graph, tracked: ProgressGraph | None) -> HostProgress | None:
    """What a host knows of all counts when it begins; ``None`` if progress is not tracked.

    Args:
        host: index of the host.
        members: the hosts that begin together; any other one joins them.
        graph: the dataflow with functions, which say whether operators work by time.
        tracked: the dataflow as progress sees it.
    """
    if tracked is None:
        return None
    if host in members:
        return HostProgress(host, tracked, listeners(graph), members)
    return HostProgress.joining(host, tracked, listeners(graph))


class ProgressLink:
    """The progress of one host. Does nothing if progress is not tracked.

    Args:
        environment: its lock and its clock.
        view: see ``first_view``.
        others: the hosts that begin together with this one.
        audience: each operator whose frontier is tracked, with the operators that are notified of it.
        send: posts a frame, or the view, to another host.
        post: posts an event to a worker of this host.
    """

    def __init__(
        self,
        environment: Environment,
        view: HostProgress | None,
        others: Iterable[int],
        audience: Mapping[str, tuple[str, ...]],
        send: Callable[[int, ProgressFrame | ProgressState], None],
        post: Callable[[WorkerId, Event], None],
    ) -> None:
        self._lock = environment.lock()
        self._now_ns = environment.now_ns
        self._view = view
        self._others = set(others) if view is None else set(others) - {view.host}
        self._new: set[int] = set()
        self._parting: dict[int, int] = {}
        self._send = send
        self._post = post
        self._audience = dict(audience)
        self._workers: Mapping[str, tuple[WorkerId, ...]] = {}
        self._again_ns = self._now_ns()

    def place(self, topology: Topology) -> None:
        """Notify the workers that this host has in a topology."""
        if self._view is not None:
            here = topology.workers_on({self._view.host})
            self._workers = {
                listener: tuple(sorted(worker for worker in here if worker.operator in operators))
                for listener, operators in self._audience.items()
            }

    def begin(self, counts: Iterable[CountChange]) -> None:
        """Begin with the first counts of this host's workers, before they run; those of a new host have none.

        The counts are taken only if progress is tracked.
        """
        if self._view is not None and self._view.host in self._view.missing:
            first = list(counts)
            with self._lock:
                self._broadcast(self._view.begin(first))
                self._announce(self._view)

    def record(self, changes: CountChanges) -> None:
        """A worker of this host hands over a step; called from any thread, in order for each worker."""
        if self._view is not None:
            with self._lock:
                self._broadcast(self._view.record(changes))
                self._announce(self._view)

    def receive(self, frame: ProgressFrame | ProgressState) -> None:
        """A frame of another host has arrived, or the view that this one begins with."""
        if self._view is not None:
            with self._lock:
                if isinstance(frame, ProgressState):
                    self._broadcast(self._view.take_view(frame))
                else:
                    self._broadcast(self._view.receive(frame))
                self._announce(self._view)
                self._serve(self._view)

    # ---- shapes

    def extend(self, graph: Graph, added: Begin) -> None:
        """Go on with the operators and edges of a change of the shape, on which nothing is sent yet.

        Args:
            graph: the dataflows before and after the change together.
            added: tells whose frontiers are tracked, which operators are notified of them, and which sources start.
        """
        if self._view is not None:
            with self._lock:
                for listener, operators in added.audience.items():
                    self._audience[listener] = tuple(dict.fromkeys((*self._audience.get(listener, ()), *operators)))
                self._broadcast(self._view.extend(progress_graph(graph), added.listeners, added.starters))
                self._announce(self._view)

    def start_nothing(self, workers: Iterable[WorkerId]) -> None:
        """These workers of added sources could not be made; their first tokens, which all hosts count, are dropped."""
        if self._view is not None and (gone := Counter(worker.operator for worker in workers)):
            self.record(tuple(CountChange(GraphLocation(name), start_time(), -count) for name, count in gone.items()))

    # ---- hosts that come and go

    def admit(self, hosts: Iterable[int]) -> None:
        """Other hosts have joined, if they are new: send them frames from now on."""
        if self._view is not None and (new := set(hosts) - self._others - {self._view.host}):
            with self._lock:
                self._new |= new
                self._others |= new
                self._broadcast(self._view.admit(sorted(new)))
                self._serve(self._view)

    def join(self, hosts: Iterable[int], topology: Topology) -> None:
        """This host, a new one, takes part with these others, in this topology."""
        if self._view is not None:
            self._others = set(hosts) - {self._view.host}
            self.place(topology)

    def settle(self) -> None:
        """All new hosts take part from now on, so that they leave with a last frame."""
        self._new.clear()

    def notify(self, topology: Topology) -> None:
        """Notify the new workers of this host, too; of the frontiers of now, and of later ones when they advance."""
        if self._view is None:
            return
        with self._lock:
            before = self._workers
            self.place(topology)
            for listener, workers in self._workers.items() if self._view.is_open else ():
                event = FrontierAdvanced(listener, self._view.frontier(listener))
                for worker in sorted(set(workers).difference(before.get(listener, ()))):
                    self._post(worker, event)

    def part(self, hosts: Iterable[int]) -> None:
        """Send no more frames to these hosts, which leave, or never took part."""
        if self._view is not None:
            with self._lock:
                self._others.difference_update(hosts)
                for host in self._new.intersection(hosts):
                    self._view.dismiss(host)
                self._parting.update(dict.fromkeys(set(hosts) - self._new, self._now_ns()))
                self._new.difference_update(hosts)
                self._serve(self._view)

    def check(self) -> None:
        """Check that no frame of a host that has left is missing: frontiers would wait for it for ever.

        Raises:
            LinkError: its last frame has not come in time; the run is to be recovered.
        """
        for host, since_ns in self.awaited().items():
            if self._now_ns() - since_ns > PARTING_NS:
                late = f"its last counts have not come within {PARTING_NS / 1e9:g} s"
                raise LinkError(f"host {host} left, and {late}")

    def awaited(self) -> Mapping[int, int]:
        """The hosts that have left whose last frame has not come, each with the time at which that was known."""
        if self._parting and self._view is not None:
            with self._lock:
                self._parting = {host: since for host, since in self._parting.items() if self._view.awaits(host)}
        return self._parting

    def leave(self, hosts: Iterable[int]) -> None:
        """Pass on all that the workers of this host have done, since it leaves together with these hosts."""
        if self._view is not None:
            with self._lock:
                self._others.difference_update(hosts)
                self._broadcast(self._view.leave())

    def _serve(self, view: HostProgress) -> None:
        """Host 0, which never leaves, gives new hosts its view when all others have admitted them."""
        for host in view.welcomed():
            if view.host == 0:
                self._send(host, view.state())

    def counts(self) -> CountChanges | None:
        """What frontiers depend on in this host's view; ``None`` before it is open, and when it was asked for too soon.

        The view may be long, so it is looked through in a small part of the time only.
        """
        if self._view is None or not self._view.is_open or self._now_ns() < self._again_ns:
            return None
        with self._lock:
            began_ns = self._now_ns()  # not the wait for the lock, which on a busy machine would silence it for seconds
            counts = self._view.least_counts()
            ended_ns = self._now_ns()
        self._again_ns = ended_ns + SPARING * (ended_ns - began_ns)
        return counts

    def _broadcast(self, frame: ProgressFrame | None) -> None:
        if frame is not None:
            for host in self._others:
                self._send(host, frame)

    def _announce(self, view: HostProgress) -> None:
        for listener, frontier in view.advanced().items():
            event = FrontierAdvanced(listener, frontier)
            for worker in self._workers.get(listener, ()):
                self._post(worker, event)
