"""The exchange of counts between hosts: each broadcasts whole steps, in order, and keeps a view of all counts.

A host sums the batches of its workers' steps and broadcasts them as numbered frames. Channels are FIFO for each sender,
and nothing else is assumed: frames of two senders, and data, overtake each other as they like. It is safe since a step
is never divided: each of its +1 is justified by something earlier that the same step, or a later one of the same
sender, takes away. So a view that lacks steps still counts what justifies them (Abadi et al. 2013).

A batch waits, and grows, unless it takes away something that is minimal in the host's own view: nothing else can make a
frontier advance. It is examined again whenever the view changes.

A message that its receiver takes away is safe, since the sender's step that counts it justifies it by a token that this
sender holds. For a token itself that goes to another host it is not: others might hear of its end before they hear of
what was sent with it. So it is counted as a message while it is on its way (see ``progress_graph.moving``).

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

A host that joins begins with the view of a member, the *server*, at a moment at which every other member has said, in
a frame of its own, that its frames go to the newcomer too. As frames of one sender stay in order, that view and the
frames together lack nothing; those that the view includes already are recognised by their numbers. The server goes on
with its work meanwhile, and no host records or requests anything. The newcomer's view consists of a prefix of the
frames of each member, as any other, so it is as safe. Frames that come before the view are kept.

>>> c = HostProgress.joining(2, flow, ["W"])
>>> greetings = a.admit([2]), b.admit([2])
>>> a.welcomed()                                                  # a is the server, and has not heard of b's
()
>>> c.receive(greetings[1]), a.receive(greetings[1]), a.welcomed()
(None, None, (2,))
>>> c.take_view(a.state()), c.frontier("W").elements
(None, ((0, 5),))

One that leaves says so in its last frame. A frame that comes twice has no effect; a gap in the numbers is an error.

>>> b.receive(frame)
>>> b.receive(ProgressFrame(0, 7, ()))
Traceback (most recent call last):
fries_nb.errors.ProtocolError: progress frame 7 of host 0 came after frame 2; expected 3: one was lost or overtaken

What a host has not broadcast yet: it waits, and grows, until it can let a frontier advance somewhere.

>>> from fries_nb.progress.progress_graph import FlowEdge, ProgressGraph
>>> flow = ProgressGraph({"S": (), "O": ()}, (FlowEdge("S", "O"),))
>>> source = GraphLocation("S")
>>> waiting = WaitingChanges(Tracker(flow, ["O"], [CountChange(source, (0, 3), 1), CountChange(source, (0, 5), 1)]))
>>> waiting.is_due(waiting.extend([CountChange(source, (0, 5), -1)]), {})    # 3 holds O back, not 5
False
>>> waiting.is_due(waiting.extend([CountChange(source, (0, 3), -1)]), {})
True
>>> len(waiting), len(waiting.take()), len(waiting)
(2, 2, 0)

What one worker counts: the frames that it has received, those that it fills, and the tokens of its operators.

A message is counted on its edge from the moment its sender's output buffer gets the first batch of it, so before the
frame is sent, until its receiver has *used up* the frame: not when it takes it, for what is made of its rows has not
been counted then. Everything that happens in a slice is handed over at its end, whole.

>>> flow = ProgressGraph({"Src": (), "FM": (), "Out": ()}, (FlowEdge("Src", "FM"), FlowEdge("FM", "Out")))
>>> counts = WorkerCounts(flow)
>>> arrived, leaves = (edge.location for edge in flow.edges)
>>> counts.append("FM[0]->Out[0]", leaves, (0, 5))        # rows made of a frame of time 5
>>> counts.append("FM[0]->Out[0]", leaves, (0, 4))        # and of one of time 4, that lower the stamp of the buffer
>>> counts.cut("FM[0]->Out[0]")                           # which is sent
(0, 4)
>>> counts.used_up(arrived, (0, 5))
>>> [(str(change.location), change.time, change.delta) for change in counts.hand_over()]
[('FM->Out', (0, 4), 1), ('Src->FM', (0, 5), -1)]

Rows of another version or round need a frame of their own:

>>> counts.append("FM[0]->Out[0]", leaves, (0, 6))
>>> counts.fits("FM[0]->Out[0]", leaves, (1, 6))
False
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from itertools import chain
from types import MappingProxyType

import msgspec

from fries_nb.errors import ProtocolError
from fries_nb.progress.progress_graph import (
    ChangeBatch,
    CountChange,
    CountChanges,
    FlowEdge,
    GraphLocation,
    Pointstamp,
    ProgressGraph,
)
from fries_nb.progress.times import Antichain, Time, earlier, share_frame, start_time
from fries_nb.progress.tracker import FrontierHolder, Tracker

NO_CHANGE: Mapping[str, Antichain] = MappingProxyType({})


class WaitingChanges:
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
        """Whether something minimal in the view is taken away: one of these, or what these frontiers wait for."""
        if any(self._batch.get(*stamp) < 0 and self._tracker.is_minimal(*stamp) for stamp in stamps):
            return True
        elements = chain.from_iterable(((listener, time) for time in new) for listener, new in frontiers.items())
        waiting = chain.from_iterable(self._releases.get(element, ()) for element in elements)
        return any(self._tracker.count(*stamp) > 0 for stamp in waiting)

    @property
    def stamps(self) -> list[Pointstamp]:
        """What has changed."""
        return [(location, time) for location, time, _ in self._batch]

    def take(self) -> CountChanges:
        """All changes, whole; none is left."""
        self._releases.clear()
        return self._batch.take()


__all__ = ["FlowEdge", "HostProgress", "ProgressFrame", "ProgressState", "WorkerCounts", "first_counts"]


class ProgressFrame(msgspec.Struct, frozen=True, tag=True):
    """The changes of one or more whole steps of one host."""

    sender: int  # the host
    number: int  # counts the host's frames from 1
    changes: CountChanges
    admits: tuple[int, ...] = ()  # new hosts to which this frame of the sender is the first one to go
    is_last: bool = False  # whether the sender leaves


class ProgressState(msgspec.Struct, frozen=True, tag=True):
    """A view as a value, with which a new host starts."""

    counts: CountChanges  # all counts that are not 0
    numbers: dict[int, int]  # host to the number of its last frame that is included; the hosts are the members
    graph: ProgressGraph  # that of the view, which still has what was removed from the dataflow
    listeners: tuple[str, ...]


NONE_START: Mapping[str, int] = MappingProxyType({})


def first_counts(graph: ProgressGraph, starters: Mapping[str, int]) -> CountChanges:
    """The counts of a run that starts anew: one token of the least time for each part of a starting operator."""
    return tuple(
        CountChange(GraphLocation(operator), start_time(len(graph.loops[operator])), count)
        for operator, count in starters.items()
    )


class HostProgress:
    """The progress of one host: what its workers have done, and what it knows of all others.

    Raises:
        ProtocolError: see ``Tracker``.
    """

    def __init__(self, host: int, graph: ProgressGraph, listeners: Iterable[str], members: Iterable[int]) -> None:
        self.host = host
        self._graph = graph
        # ``listeners``: operators whose frontiers are needed; the same at all hosts, for a host keeps to itself what
        # advances none of them
        self._tracker = Tracker(graph, listeners)
        self._numbers = dict.fromkeys(members, 0)
        self._missing = set(self._numbers)
        self._waiting = WaitingChanges(self._tracker)
        self._advanced: dict[str, Antichain] = {}
        self._has_view = True
        self._early: list[ProgressFrame] = []  # frames that came before the view that a new host begins with
        self._silent: dict[int, set[int]] = {}  # new host to the members that have not admitted it
        self._admitted: dict[int, set[int]] = {}  # new host to those that have, before this one

    @classmethod
    def joining(cls, host: int, graph: ProgressGraph, listeners: Iterable[str]) -> HostProgress:
        """A host that joins the others; it opens with ``take_view``. It has no first counts, and does not begin."""
        joined = cls(host, graph, listeners, [host])
        joined._missing.clear()
        joined._has_view = False
        return joined

    # ---- opening

    def begin(self, counts: Iterable[CountChange]) -> ProgressFrame:
        """Begin with the first counts of this host's workers, perhaps none; returns frame 1, which is broadcast."""
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
        return not self._missing and self._has_view

    def _announce_all(self) -> dict[str, Antichain]:
        """The start frontiers if the host is open now, otherwise none."""
        if self.is_open:
            self._advanced = {listener: self._tracker.frontier(listener) for listener in self._tracker.listeners}
        return self._advanced

    # ---- the workers of this host

    def record(self, changes: Iterable[CountChange]) -> ProgressFrame | None:
        """Add a whole step of one worker; returns the frame to broadcast now, if any."""
        # The steps of one worker must come in its order; of two workers, in any.
        return self._released(self._waiting.extend(changes))

    def leave(self) -> ProgressFrame:
        """The last frame of this host, whose workers have all ended: all that waits, perhaps nothing."""
        if self.host in self._missing:
            raise ProtocolError(f"host {self.host} leaves before it has begun, so its first counts would be missing")
        return msgspec.structs.replace(self._broadcast(), is_last=True)

    @property
    def waiting(self) -> int:
        """Number of pointstamps whose change has not been broadcast."""
        return len(self._waiting)

    # ---- other hosts

    def receive(self, frame: ProgressFrame) -> ProgressFrame | None:
        """Take in a frame of another host; returns the frame that is to be broadcast in consequence, if any."""
        if not self._has_view:
            self._early.append(frame)
            return None
        return self._released(*self._taken(frame))

    def _taken(self, frame: ProgressFrame) -> tuple[list[Pointstamp], Mapping[str, Antichain]]:
        """Take in a frame; returns the pointstamps and the frontiers that have changed."""
        last = self._numbers.get(frame.sender)
        if last is None:
            raise ProtocolError(f"a progress frame came from host {frame.sender}; members are {sorted(self._numbers)}")
        if frame.number <= last:
            return [], NO_CHANGE
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
        self._note_members(frame)
        return [(change.location, change.time) for change in frame.changes], advanced

    def _note_members(self, frame: ProgressFrame) -> None:
        """Note whom the sender of a frame has admitted, and whether it leaves."""
        for host in frame.admits:
            if host in self._silent:
                self._silent[host].discard(frame.sender)
            else:
                self._admitted.setdefault(host, set()).add(frame.sender)
        if frame.is_last:
            self._forget(frame.sender)

    def _forget(self, host: int) -> None:
        self._numbers.pop(host, None)
        for silent in self._silent.values():
            silent.discard(host)

    def awaits(self, host: int) -> bool:
        """Whether frames of another host are still to come: it has not said that it leaves."""
        return host in self._numbers

    # ---- hosts that join

    def admit(self, hosts: Iterable[int]) -> ProgressFrame:
        """Accept the frames of new hosts; returns a frame to be broadcast to all, these included, as all later ones."""
        new = tuple(hosts)
        if self.host in self._missing:
            raise ProtocolError(f"hosts {new} were admitted by host {self.host}, which has not begun")
        members = self._numbers.keys() - {self.host, *new}
        self._numbers.update(dict.fromkeys(new, 0))
        self._silent.update((host, members - self._admitted.pop(host, set())) for host in new)
        self._numbers[self.host] += 1
        return ProgressFrame(self.host, self._numbers[self.host], (), admits=new)

    def welcomed(self) -> tuple[int, ...]:
        """The new hosts that all members have admitted since the last call; this host's view is what they begin with.

        One member, the same for all, gives it to them.
        """
        complete = tuple(host for host, silent in self._silent.items() if not silent) if self.is_open else ()
        for host in complete:
            del self._silent[host]
        return complete

    def state(self) -> ProgressState:
        """The view, for a host that joins."""
        tracker = self._tracker
        return ProgressState(tracker.counts, dict(self._numbers), tracker.graph, tracker.listeners)

    def take_view(self, view: ProgressState) -> ProgressFrame | None:
        """Begin with the view of a member, and open; returns the frame to broadcast in consequence, if any."""
        if self._has_view:
            raise ProtocolError(f"a view came to host {self.host}, which has one; expected it once, when it joins")
        self._numbers = {**self._numbers, **view.numbers, self.host: self._numbers[self.host]}
        self.extend(view.graph, view.listeners)
        self._apply(view.counts)
        for frame in self._early:
            self._taken(frame)
        self._early, self._has_view = [], True
        return self._released(self._waiting.stamps, self._announce_all())

    def dismiss(self, host: int) -> None:
        """Forget a new host that does not take part after all; idempotent."""
        self._forget(host)
        self._silent.pop(host, None)
        self._admitted.pop(host, None)

    def least_counts(self) -> CountChanges:
        """The counts that frontiers depend on; see ``Tracker.least_counts``."""
        return self._tracker.least_counts()

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

    def extend(
        self, graph: ProgressGraph, listeners: Iterable[str], starters: Mapping[str, int] = NONE_START
    ) -> ProgressFrame | None:
        """Go on with the operators, edges and listeners of another graph as well, at all hosts alike.

        No worker counts anything there before all hosts have. So the first tokens of operators that start there are
        counted by every host itself, and none is broadcast: no frontier below them is ever announced without them.
        Returns the frame to broadcast in consequence, if any.
        """
        found = self._tracker.extend(graph, listeners, first_counts(graph, starters))
        self._graph = self._tracker.graph
        self._waiting_again()
        if self.is_open:
            self._advanced.update(found)
        return self._released((), found)

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
        self._waiting = WaitingChanges(self._tracker)
        self._waiting.extend(changes)


class WorkerCounts:
    """The counts of one worker."""

    def __init__(self, graph: ProgressGraph) -> None:
        # what has changed since the last ``hand_over``; tokens and agendas of the worker's operators change it as well
        self.changes = ChangeBatch()
        self._graph = graph
        self._buffers: dict[Hashable, tuple[GraphLocation, Time]] = {}

    def extend(self, graph: ProgressGraph) -> None:
        """Go on with the edges of another graph as well."""
        self._graph = self._graph.joined(graph)

    def fits(self, channel: Hashable, edge: GraphLocation, time: Time) -> bool:
        """Whether rows of this time can join the buffer of a channel; otherwise ``cut`` it first."""
        buffer = self._buffers.get(channel)
        return buffer is None or share_frame(buffer[1], self._graph.summary(edge).apply(time))

    def append(self, channel: Hashable, edge: GraphLocation, time: Time) -> None:
        """Count rows that are appended to the buffer of a channel."""
        # The worker must have an input frame in hand, or a token, of this time or an earlier one.
        arrival = self._graph.summary(edge).apply(time)
        buffer = self._buffers.get(channel)
        if buffer is None:
            self._count(channel, edge, arrival)
        elif not share_frame(buffer[1], arrival):
            raise ProtocolError(f"rows of {arrival} came into a frame of {buffer[1]}; expected the frame to be cut")
        elif (stamp := earlier(buffer[1], arrival)) != buffer[1]:
            self.changes.update(edge, buffer[1], -1)
            self._count(channel, edge, stamp)

    def _count(self, channel: Hashable, edge: GraphLocation, stamp: Time) -> None:
        self.changes.update(edge, stamp, +1)
        self._buffers[channel] = (edge, stamp)

    def cut(self, channel: Hashable, rest: bool = False) -> Time:
        """The buffer of a channel becomes a frame; returns its stamp."""
        if channel not in self._buffers:
            raise ProtocolError(f"a frame of {channel} was cut from an empty buffer")
        edge, stamp = self._buffers.pop(channel)
        if rest:
            self._count(channel, edge, stamp)
        return stamp

    def used_up(self, edge: GraphLocation, stamp: Time) -> None:
        """Count an input frame whose rows have all been processed, and whose output was appended or dropped."""
        self.changes.update(edge, stamp, -1)

    def hand_over(self) -> CountChanges:
        """The changes of the slice, whole, for ``HostProgress.record``; once a slice, in order."""
        return self.changes.take()
