"""The tracker: from the counts of all pointstamps to the frontier of every operator that listens.

Not every operator asks what can still arrive; those that do are the *listeners*: operators with notifications, sinks,
the dashboard. For each of them the tracker has one counted antichain of the times that the outstanding pointstamps
can result in, so a change of counts costs one update for each listener below it, whatever the number of operators.

Figure 2 of the text on timestamp tokens: operator A receives a message of time 4, sends with its token, keeps it for
the time 6, and so decides alone when B's frontier advances.

>>> from fries_nb.progress.progress_graph import FlowEdge
>>> flow = ProgressGraph({"Src": (), "A": (), "B": ()}, (FlowEdge("Src", "A"), FlowEdge("A", "B")))
>>> source, token = GraphLocation("Src"), GraphLocation("A")
>>> to_a, to_b = (edge.location for edge in flow.edges)
>>> tracker = Tracker(flow, ["B"], [CountChange(source, (0, 3), 1), CountChange(to_a, (0, 4), 1)])
>>> tracker.frontier("B").elements
((0, 3),)
>>> tracker.update([CountChange(source, (0, 3), -1)])["B"].elements         # the source has ended
((0, 4),)
>>> tracker.update([CountChange(to_a, (0, 4), -1), CountChange(to_b, (0, 4), 1), CountChange(token, (0, 6), 1)])
{}
>>> tracker.update([CountChange(to_b, (0, 4), -1)])["B"].elements           # B has used its input of time 4
((0, 6),)
>>> tracker.holders("B")
(FrontierHolder(operator='A', time=(0, 6), count=1, to=''),)
>>> tracker.update([CountChange(token, (0, 6), -1)])["B"].elements
()

The dataflow may get further operators and edges, and listeners. What was removed from it stays, since other hosts may
still tell of it:

>>> tracker.update([CountChange(token, (0, 9), 1)])["B"].elements
((0, 9),)
>>> tracker.extend(ProgressGraph({"A": (), "C": ()}, (FlowEdge("A", "C"),)), ["C"])["C"].elements
((0, 9),)

Counts may be negative, since the batches of two workers come in any order; only positive ones count for a frontier.
A frontier never goes back, and never passes what is outstanding, as long as batches are whole (see ``exchange``).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from fries_nb.errors import ProtocolError
from fries_nb.progress.progress_graph import (
    ChangeBatch,
    CountChange,
    CountChanges,
    GraphLocation,
    ProgressGraph,
    moving,
)
from fries_nb.progress.times import Antichain, CountedAntichain, PathSummary, Time, apart_from_moment, identity


class FrontierHolder(NamedTuple):
    """What keeps a frontier from advancing."""

    operator: str  # the operator that has tokens; for messages, the one that has sent them
    time: Time  # their time
    # how many there are
    count: int  # type: ignore[assignment]  # hides tuple.count
    to: str = ""  # the receiver of the messages; empty for tokens


_Way = tuple[str, PathSummary | None]
"""A minimal summary of the paths from a location to a listener; None if it leaves times as they are, as most do."""


class Tracker:
    """One host's view of the outstanding pointstamps.

    Raises:
        ProtocolError: a location leads to no listener, or a count does not fit the graph.
        DataflowError: there is no such operator.
    """

    def __init__(self, graph: ProgressGraph, listeners: Iterable[str], counts: Iterable[CountChange] = ()) -> None:
        self._view = ChangeBatch()
        self._begin(graph, listeners, counts)

    def _begin(self, graph: ProgressGraph, listeners: Iterable[str], counts: Iterable[CountChange]) -> None:
        self.graph = graph
        self._antichains: dict[str, CountedAntichain] = {}
        self._below: dict[GraphLocation, list[_Way]] = {location: [] for location in graph.locations}
        self._below.update((moving(name), self._below[GraphLocation(name)]) for name in graph.loops)
        # ``listeners``: names of the operators whose frontiers are tracked; each location must lead to one
        for listener in listeners:
            self.listen(listener)
        for edge in graph.edges:
            if not self._below[edge.location]:
                raise ProtocolError(
                    f"edge {edge.location} leads to no listener, so its messages would be counted for ever; "
                    f"expected one below it, such as {edge.to!r}"
                )
        # ``counts``: the first counts; see ``first_counts``
        self.update(counts)

    def extend(
        self, graph: ProgressGraph, listeners: Iterable[str], counts: Iterable[CountChange] = ()
    ) -> dict[str, Antichain]:
        """Go on with the operators, edges and listeners of another graph as well; returns the frontiers of new ones.

        No location that was there may lead to a listener to which it has not led, and the first counts of what is new
        may lead to new ones only: a frontier would go back.
        """
        before, present, self._view = set(self._antichains), self._view, ChangeBatch()
        self._begin(self.graph.joined(graph), dict.fromkeys((*self._antichains, *listeners)), (*present, *counts))
        return {listener: self.frontier(listener) for listener in self._antichains if listener not in before}

    @property
    def listeners(self) -> tuple[str, ...]:
        """The operators whose frontiers are tracked."""
        return tuple(self._antichains)

    @property
    def counts(self) -> CountChanges:
        """All counts that are not 0, in no particular order."""
        return tuple(self._view)

    def least_counts(self) -> CountChanges:
        """The counts that frontiers depend on: at each location, of each version and rounds, that of the least ``t``.

        An operator with calls at a million times is at one location, so these are few.
        """
        least: dict[tuple[GraphLocation, tuple[int, ...]], CountChange] = {}
        for one in self._view:
            place = one.location, apart_from_moment(one.time)
            if one.delta > 0 and (place not in least or one.time < least[place].time):
                least[place] = one
        return tuple(least.values())

    def count(self, location: GraphLocation, time: Time) -> int:
        """The count of one pointstamp."""
        return self._view.get(location, time)

    def listen(self, listener: str) -> None:
        """Track the frontier of one more operator; idempotent. All hosts have the same listeners (see ``exchange``)."""
        if listener in self._antichains:
            return
        antichain = self._antichains[listener] = CountedAntichain()
        for location, summaries in self.graph.summaries_to(listener).items():
            same = identity(self.graph.length_at(location))
            self._below[location] += [(listener, None if summary == same else summary) for summary in summaries]
        for location, time, count in self._view:
            if count > 0:
                for image in self._images_at(listener, location, time):
                    antichain.update(image, 1)

    def update(self, changes: Iterable[CountChange]) -> dict[str, Antichain]:
        """Apply whole batches of changes; returns the new frontiers of those listeners whose frontier has changed."""
        # Tokens of an operator without out-edges hold nothing back, and are not counted.
        before: dict[str, Antichain] = {}
        for location, time, delta in changes:
            self._check(location, time)
            if not self.graph.leads_on(location):
                continue
            count = self._view.update(location, time, delta)
            if (count > 0) != (count - delta > 0):
                for listener, image in self.images(location, time):
                    antichain = self._antichains[listener]
                    before.setdefault(listener, antichain.frontier)
                    antichain.update(image, 1 if delta > 0 else -1)
        after = ((listener, self._antichains[listener].frontier) for listener in before)
        return {listener: frontier for listener, frontier in after if frontier != before[listener]}

    def _check(self, location: GraphLocation, time: Time) -> None:
        if location not in self._below:
            raise ProtocolError(f"a count came for {location}, which is not in this dataflow")
        if len(time) != self.graph.length_at(location):
            expected = self.graph.length_at(location)
            raise ProtocolError(f"time {time} came for {location}; expected {expected} components, one for each loop")

    def images(self, location: GraphLocation, time: Time) -> list[tuple[str, Time]]:
        """The least times that a pointstamp can result in, with the listener at whose input it does."""
        below = self._below[location]
        return [(listener, time if summary is None else summary.apply(time)) for listener, summary in below]

    def _images_at(self, listener: str, location: GraphLocation, time: Time) -> list[Time]:
        return [image for name, image in self.images(location, time) if name == listener]

    def is_minimal(self, location: GraphLocation, time: Time) -> bool:
        """Whether the pointstamp is outstanding, and on its own can hold back the frontier of a listener."""
        if self._view.get(location, time) <= 0:
            return False
        images = self.images(location, time)
        return any(image in self._antichains[listener].frontier.elements for listener, image in images)

    def frontier(self, listener: str) -> Antichain:
        """The lower bound of what can still arrive at the input of an operator."""
        if listener not in self._antichains:
            listeners = ", ".join(sorted(self._antichains)) or "none"
            raise ProtocolError(f"{listener} is not a listener, so its frontier is unknown; listeners are {listeners}")
        return self._antichains[listener].frontier

    def holders(self, listener: str) -> tuple[FrontierHolder, ...]:
        """What keeps a listener's frontier from advancing, the earliest first."""
        frontier = self.frontier(listener).elements
        found = [
            FrontierHolder(location.operator, time, count, location.to)
            for location, time, count in self._view
            if count > 0 and any(image in frontier for image in self._images_at(listener, location, time))
        ]
        return tuple(sorted(found, key=lambda holder: (holder.time, holder.operator, holder.to)))
