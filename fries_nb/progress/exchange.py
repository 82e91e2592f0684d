"""The exchange of counts between hosts: each broadcasts whole steps, in order, and keeps a view of all counts.

A host sums the batches of its workers' steps and broadcasts them as numbered frames. Channels are FIFO for each sender,
and nothing else is assumed: frames of two senders, and data, overtake each other as they like. It is safe since a step
is never divided: each of its +1 is justified by something earlier that the same step, or a later one of the same
sender, takes away. So a view that lacks steps still counts what justifies them (Abadi et al. 2013).

A batch waits, and grows, unless it takes away something that is minimal in the host's own view: nothing else can make a
frontier advance. It is examined again whenever the view changes.

A message that its receiver takes away is safe, since the sender's step that counts it justifies it by a token that this
sender holds. A token itself may go to another host only when *all* hosts have received what was done with it: otherwise
they may hear of its end first, and a frontier passes what was sent with it.

No host knows all first counts: each begins with those of its own workers, in its frame 1, and is *open* when frame 1 of
every member has come. Until then it neither announces a frontier nor broadcasts what its workers have done since, for a
view that lacks a first count lacks what justifies all that follows from it.

>>> flow = ProgressGraph({"Src": (), "W": ()}, (FlowEdge("Src", "W"),))
>>> source, edge = GraphLocation("Src"), GraphLocation("Src", "W")
>>> a, b = (HostProgress(host, flow, ["W"], members=[0, 1]) for host in (0, 1))
>>> of_a, of_b = (host.begin(first_counts(flow, {"Src": 1})) for host in (a, b))
>>> a.missing, a.advanced()
(frozenset({1}), {})
>>> a.receive(of_b), b.receive(of_a)
(None, None)
>>> t0 = start_time()
>>> a.is_open, a.advanced()["W"].elements == (t0,)
(True, True)

Host 0 reads up to 5 and sends a message of time 3 to host 1. The other source could still read anything:

>>> frame = a.record([CountChange(source, (0, 5), 1), CountChange(source, t0, -1), CountChange(edge, (0, 3), 1)])
>>> frame.number, a.frontier("W").elements == (t0,)
(2, True)

Host 1 uses up the message before it learns of it. That is not minimal in its view, so it says nothing yet; the end of
its own source is:

>>> b.record([CountChange(edge, (0, 3), -1)]) is None
True
>>> other = b.record([CountChange(source, t0, -1)])
>>> sorted(change.time == t0 for change in other.changes)
[False, True]
>>> b.receive(frame), a.receive(other)
(None, None)
>>> a.frontier("W").elements, b.frontier("W").elements
(((0, 5),), ((0, 5),))

A frame that comes twice has no effect; a gap in the numbers is an error.

>>> b.receive(frame)
>>> b.receive(ProgressFrame(0, 7, ()))
Traceback (most recent call last):
fries_nb.errors.ProtocolError: progress frame 7 of host 0 came after frame 2; expected 3: one was lost or overtaken
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import chain
from types import MappingProxyType

import msgspec

from fries_nb.errors import ProtocolError
from fries_nb.progress.antichain import Antichain
from fries_nb.progress.change_batch import ChangeBatch, CountChange, CountChanges, GraphLocation, Pointstamp
from fries_nb.progress.progress_graph import FlowEdge, ProgressGraph
from fries_nb.progress.times import Time, start_time
from fries_nb.progress.tracker import FrontierHolder, Tracker

NO_CHANGE: Mapping[str, Antichain] = MappingProxyType({})

__all__ = ["FlowEdge", "HostProgress", "ProgressFrame", "ProgressState", "first_counts"]


class ProgressFrame(msgspec.Struct, frozen=True, tag=True):
    """The changes of one or more whole steps of one host. ``number`` counts the host's frames from 1."""

    sender: int
    number: int
    changes: CountChanges


class ProgressState(msgspec.Struct, frozen=True):
    """A view as a value, with which a new host starts.

    Attributes:
        counts: all counts that are not 0.
        numbers: host to the number of its last frame that is included; the hosts are the members.
        missing: the hosts whose first counts are not included.
    """

    counts: CountChanges
    numbers: dict[int, int]
    missing: tuple[int, ...] = ()


def first_counts(graph: ProgressGraph, starters: Mapping[str, int]) -> CountChanges:
    """The counts of a run that starts anew: one token of the least time for each part of a starting operator.

    Args:
        graph: the dataflow.
        starters: operator that begins with tokens (a source, or one with ``start``) to how many it begins with: one for
            each split of a source, so that they do not depend on the number of workers.
    """
    return tuple(
        CountChange(GraphLocation(operator), start_time(len(graph.loops[operator])), count)
        for operator, count in starters.items()
    )


class _Waiting:
    """The changes that a host has not broadcast yet, and what each of them could release."""

    def __init__(self, tracker: Tracker) -> None:
        self._tracker = tracker
        self._batch = ChangeBatch()
        self._releases: dict[tuple[str, Time], set[Pointstamp]] = {}

    def __len__(self) -> int:
        return len(self._batch)

    def extend(self, changes: Iterable[CountChange]) -> list[Pointstamp]:
        """Add a step; returns what it takes away that was not taken away before."""
        released: list[Pointstamp] = []
        for location, time, delta in changes:
            if not self._tracker.graph.leads_on(location):
                continue
            net = self._batch.update(location, time, delta)
            if (net < 0) != (net - delta < 0):
                self._index((location, time), net < 0)
                if net < 0:
                    released.append((location, time))
        return released

    def _index(self, stamp: Pointstamp, is_release: bool) -> None:
        for image in self._tracker.images(*stamp):
            stamps = self._releases.setdefault(image, set())
            if is_release:
                stamps.add(stamp)
            else:
                stamps.discard(stamp)
                if not stamps:
                    del self._releases[image]

    def is_due(self, stamps: Iterable[Pointstamp], frontiers: Mapping[str, Antichain]) -> bool:
        """Whether something minimal in the view is taken away: one of these, or what these frontiers wait for.

        Args:
            stamps: what has come to wait, or whose count in the view has changed.
            frontiers: those that have changed.
        """
        if any(self._batch.get(*stamp) < 0 and self._tracker.is_minimal(*stamp) for stamp in stamps):
            return True
        elements = chain.from_iterable(((listener, time) for time in new) for listener, new in frontiers.items())
        waiting = chain.from_iterable(self._releases.get(element, ()) for element in elements)
        return any(self._tracker.count(*stamp) > 0 for stamp in waiting)

    def take(self) -> CountChanges:
        self._releases.clear()
        return self._batch.take()


class HostProgress:
    """The progress of one host: what its workers have done, and what it knows of all others.

    Args:
        host: its index.
        graph: the dataflow.
        listeners: operators whose frontiers are needed; the same at all hosts, for a host keeps to itself what advances
            none of them.
        members: indices of all hosts.

    Raises:
        ProtocolError: see ``Tracker``.
    """

    def __init__(self, host: int, graph: ProgressGraph, listeners: Iterable[str], members: Iterable[int]) -> None:
        self.host = host
        self._graph = graph
        self._tracker = Tracker(graph, listeners)
        self._numbers = dict.fromkeys(members, 0)
        self._missing = set(self._numbers)
        self._waiting = _Waiting(self._tracker)
        self._advanced: dict[str, Antichain] = {}

    @classmethod
    def joining(cls, host: int, graph: ProgressGraph, listeners: Iterable[str], state: ProgressState) -> HostProgress:
        """A host that starts with another's view; frames that the view includes already have no effect on it.

        It has no first counts, and does not begin.
        """
        joined = cls(host, graph, listeners, state.numbers)
        joined._numbers.update(state.numbers)
        joined._tracker.update(state.counts)
        joined._missing = set(state.missing) - {host}
        joined.admit(host)
        joined._announce_all()
        return joined

    # ---- opening

    def begin(self, counts: Iterable[CountChange]) -> ProgressFrame:
        """Begin with the first counts of this host's workers, none perhaps; returns frame 1, which is broadcast anyway.

        Raises:
            ProtocolError: it has begun already.
        """
        if self.host not in self._missing:
            raise ProtocolError(f"host {self.host} began a second time; its first counts are broadcast once")
        self._missing.discard(self.host)
        self._waiting.extend(counts)
        frame = self._broadcast()
        self._announce_all()
        return frame

    @property
    def missing(self) -> frozenset[int]:
        """The hosts whose first counts have not come."""
        return frozenset(self._missing)

    @property
    def is_open(self) -> bool:
        """Whether the first counts of all hosts are known, so that frontiers are announced."""
        return not self._missing

    def _announce_all(self) -> dict[str, Antichain]:
        """The start frontiers if the host is open now, otherwise none."""
        if self.is_open:
            self._advanced = {listener: self._tracker.frontier(listener) for listener in self._tracker.listeners}
        return self._advanced

    # ---- the workers of this host

    def record(self, changes: Iterable[CountChange]) -> ProgressFrame | None:
        """Add a whole step of one worker; returns the frame to broadcast now, if any.

        The steps of one worker must come in its order; of two workers, in any.
        """
        return self._released(self._waiting.extend(changes))

    def flush(self) -> ProgressFrame | None:
        """The frame of all that waits, whether it can advance a frontier or not; for a host that leaves.

        Raises:
            ProtocolError: it has not begun.
        """
        if self.host in self._missing:
            raise ProtocolError(f"host {self.host} leaves before it has begun, so its first counts would be missing")
        return self._broadcast() if self._waiting else None

    @property
    def waiting(self) -> int:
        """Number of pointstamps whose change has not been broadcast."""
        return len(self._waiting)

    # ---- other hosts

    def receive(self, frame: ProgressFrame) -> ProgressFrame | None:
        """Take in a frame of another host; returns the frame that is to be broadcast in consequence, if any.

        Raises:
            ProtocolError: the sender is not a member, or one of its frames is missing.
        """
        last = self._numbers.get(frame.sender)
        if last is None:
            raise ProtocolError(f"a progress frame came from host {frame.sender}; members are {sorted(self._numbers)}")
        if frame.number <= last:
            return None
        if frame.number > last + 1:
            raise ProtocolError(
                f"progress frame {frame.number} of host {frame.sender} came after frame {last}; "
                f"expected {last + 1}: one was lost or overtaken"
            )
        self._numbers[frame.sender] = frame.number
        advanced = self._apply(frame.changes)
        if frame.sender in self._missing:
            self._missing.discard(frame.sender)
            advanced = self._announce_all()
        return self._released([(change.location, change.time) for change in frame.changes], advanced)

    def admit(self, host: int) -> None:
        """Accept the frames of a new host, from number 1; idempotent."""
        self._numbers.setdefault(host, 0)

    def dismiss(self, host: int) -> None:
        """Accept no more frames of a host, which has flushed what it had.

        Raises:
            ProtocolError: its first counts have not come.
        """
        if host in self._missing:
            raise ProtocolError(f"host {host} was dismissed, but its first counts have not come; expected its frame 1")
        self._numbers.pop(host, None)

    def least_counts(self) -> CountChanges:
        """The counts that frontiers depend on; see ``Tracker.least_counts``."""
        return self._tracker.least_counts()

    def state(self) -> ProgressState:
        """The view, for a host that joins."""
        return ProgressState(self._tracker.counts, dict(self._numbers), tuple(sorted(self._missing)))

    # ---- frontiers

    @property
    def listeners(self) -> tuple[str, ...]:
        """The operators whose frontiers are known."""
        return self._tracker.listeners

    def frontier(self, listener: str) -> Antichain:
        """The lower bound of what can still arrive at a listener; until this host is open, the least time of all."""
        known = self._tracker.frontier(listener)
        return known if self.is_open else Antichain((start_time(len(self._graph.loops[listener])),))

    def holders(self, listener: str) -> tuple[FrontierHolder, ...]:
        """What keeps a listener's frontier from advancing; see ``Tracker.holders``."""
        return self._tracker.holders(listener)

    def listen(self, listener: str) -> ProgressFrame | None:
        """Track one more operator, at all hosts alike; returns the frame to broadcast in consequence, if any."""
        if listener in self._tracker.listeners:
            return None
        self._tracker.listen(listener)
        self._waiting_again()
        if self.is_open:
            self._advanced[listener] = self._tracker.frontier(listener)
        return self._released((), {listener: self._tracker.frontier(listener)})

    def advanced(self) -> dict[str, Antichain]:
        """The frontiers that have changed since the last call, by listener; on opening all, before that none."""
        taken, self._advanced = self._advanced, {}
        return taken

    # ---- broadcasting

    def _apply(self, changes: CountChanges) -> dict[str, Antichain]:
        advanced = self._tracker.update(changes)
        if self.is_open:
            self._advanced.update(advanced)
        return advanced

    def _released(
        self, stamps: Iterable[Pointstamp], frontiers: Mapping[str, Antichain] = NO_CHANGE
    ) -> ProgressFrame | None:
        is_due = self.is_open and self._waiting.is_due(stamps, frontiers)
        return self._broadcast() if is_due else None

    def _broadcast(self) -> ProgressFrame:
        self._numbers[self.host] += 1
        frame = ProgressFrame(self.host, self._numbers[self.host], self._waiting.take())
        self._apply(frame.changes)
        return frame

    def _waiting_again(self) -> None:
        """Index what waits anew, since each pointstamp has one listener more."""
        changes = self._waiting.take()
        self._waiting = _Waiting(self._tracker)
        self._waiting.extend(changes)
