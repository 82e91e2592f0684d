"""Pointstamps: the locations of a dataflow, the changes of their counts, and what a path does to a time.

Change batches: the net effect of an atomic step on the counts of pointstamps.

A pointstamp is a time at a location of the dataflow, which is the output of an operator (where tokens are held) or an
edge (where messages wait). A step counts messages that it sent and tokens that it made, +1 each, and messages that it
has used up and tokens that it dropped, -1 each. Only the sum of a whole step means anything: a reader of counts that
saw the -1 of a message without the +1 of what was made of it would believe that nothing can follow.

>>> src, edge = GraphLocation("Src"), GraphLocation("Src", "FM")
>>> batch = ChangeBatch([
...     CountChange(src, (0, 4), +1),   # a token is downgraded from t=3 to t=4,
...     CountChange(src, (0, 3), -1),
...     CountChange(edge, (0, 3), +1),  # after a message was sent with it
...     CountChange(edge, (0, 4), +1),  # a second message
... ])
>>> batch.update(edge, (0, 4), -1)      # has no net effect: it is used up within the step
0
>>> for change in batch.take():
...     print(*change)
Src (0, 4) 1
Src (0, 3) -1
Src->FM (0, 3) 1
>>> bool(batch)
False

Batches commute: their sum does not depend on their order, nor on how steps are grouped.

The dataflow as progress sees it: operators with the loops around them, edges, and what a path does to a time.

>>> edges = FlowEdge("Src", "L"), FlowEdge("L", "B"), FlowEdge("B", "L", feedback=True), FlowEdge("B", "Out")
>>> flow = ProgressGraph({"Src": (), "L": ("L",), "B": ("L",), "Out": ()}, edges)
>>> [flow.summary(edge.location).apply((0, 7, 4)[: flow.length(edge.source)]) for edge in flow.edges]
[(0, 7, 0), (0, 7, 4), (0, 7, 5), (0, 7)]

A message on an edge already has the time that it has at the receiver. What a pointstamp can result in at an operator's
input is given by the minimal summaries of all paths to it, computed once for each operator that listens:

>>> for location, summaries in flow.summaries_to("L").items():
...     print(location, [summary.apply((0, 7, 4)[: flow.length_at(location)]) for summary in summaries])
Src->L [(0, 7, 4)]
B->L [(0, 7, 4)]
Src [(0, 7, 0)]
B [(0, 7, 5)]
L->B [(0, 7, 5)]
L [(0, 7, 5)]

A cycle that advances no time is refused: nothing could be said to come before anything else on it.

>>> ProgressGraph({"A": (), "B": ()}, (FlowEdge("A", "B"), FlowEdge("B", "A")))
Traceback (most recent call last):
fries_nb.errors.DataflowError: the cycle A -> B -> A advances no time; expected a feedback edge of a loop around it
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from fries_nb.errors import DataflowError, unknown
from fries_nb.progress.times import PathSummary, Time, feeding_back, identity, leaving, minimal


class GraphLocation(NamedTuple):
    """A location of the dataflow, summed over workers, so that neither parallelism nor chains change it."""

    operator: str  # the operator that holds the token, or sent the message
    to: str = ""  # the receiver of the message; empty for an operator's output, and for what moves between its workers
    branch: int = 0  # index of the output, for edges that leave a split

    def __str__(self) -> str:
        if not self.to:
            return f"{self.operator} moving" if self.branch == _MOVING else self.operator
        return f"{self.operator}->{self.to}" + (f"#{self.branch}" if self.branch else "")


_MOVING = -1
Pointstamp = tuple[GraphLocation, Time]


def moving(operator: str) -> GraphLocation:
    """Where tokens are counted that are on their way from one worker of an operator to another, as messages are."""
    # They can result in the same as at the operator's output. If they stayed counted there, and went to another host,
    # the others might hear of their end there before they hear of what was sent with them here.
    return GraphLocation(operator, branch=_MOVING)


class CountChange(NamedTuple):
    """A net change of the count of one pointstamp."""

    location: GraphLocation
    time: Time
    delta: int


CountChanges = tuple[CountChange, ...]
"""The changes of one or more whole steps, one for each pointstamp, none of them 0."""


class ChangeBatch:
    """Accumulates changes; those that cancel each other vanish."""

    def __init__(self, changes: Iterable[CountChange] = ()) -> None:
        self._deltas: dict[Pointstamp, int] = {}
        self.extend(changes)

    def __bool__(self) -> bool:
        return bool(self._deltas)

    def __len__(self) -> int:
        return len(self._deltas)

    def __iter__(self) -> Iterator[CountChange]:
        return (CountChange(location, time, delta) for (location, time), delta in self._deltas.items())

    def update(self, location: GraphLocation, time: Time, delta: int) -> int:
        """Add ``delta`` to the change of one pointstamp; returns its net change."""
        stamp = (location, time)
        net = self._deltas.get(stamp, 0) + delta
        if net:
            self._deltas[stamp] = net
        else:
            self._deltas.pop(stamp, None)
        return net

    def extend(self, changes: Iterable[CountChange]) -> None:
        """Add the changes of another step."""
        for location, time, delta in changes:
            self.update(location, time, delta)

    def get(self, location: GraphLocation, time: Time) -> int:
        """The net change of one pointstamp."""
        return self._deltas.get((location, time), 0)

    def take(self) -> CountChanges:
        """All changes, whole; the batch is empty afterwards."""
        taken = tuple(self)
        self._deltas.clear()
        return taken


FLAT = 2
"""Number of components of a time outside of loops: version and ``t``."""


@dataclass(frozen=True, slots=True)
class FlowEdge:
    """An edge; ``feedback`` if it closes a loop, at whose head it ends. ``branch`` is as in ``GraphLocation``."""

    source: str
    to: str
    branch: int = 0
    feedback: bool = False

    @property
    def location(self) -> GraphLocation:
        """Where its messages are counted."""
        return GraphLocation(self.source, self.to, self.branch)


@dataclass(frozen=True)
class ProgressGraph:
    """The graph over which times travel.

    Raises:
        DataflowError: an edge of an unknown operator, a feedback edge between different loops or outside of any, or a
            cycle that advances no time.
    """

    # operator to the names of the loops around it, outermost first; a loop's head is inside of it
    loops: Mapping[str, tuple[str, ...]]
    edges: tuple[FlowEdge, ...]

    def __post_init__(self) -> None:
        for edge in self.edges:
            for name in (edge.source, edge.to):
                if name not in self.loops:
                    raise DataflowError(unknown("operator", name, self.loops))
            inner, outer = self.loops[edge.source], self.loops[edge.to]
            if edge.feedback and (not outer or inner[: len(outer)] != outer):
                raise DataflowError(
                    f"feedback edge {edge.location} goes from {_within(inner)} to {_within(outer)}; expected both "
                    "ends in the same loop, or its start in a loop inside of it"
                )
        self._refuse_standstill()

    def joined(self, other: ProgressGraph) -> GrownGraph:
        """All operators and edges of two graphs, which agree on the loops of what both have."""
        return GrownGraph({**self.loops, **other.loops}, tuple(dict.fromkeys((*self.edges, *other.edges))))

    def length(self, operator: str) -> int:
        """Number of components of the times at an operator."""
        return FLAT + len(self.loops[operator])

    def length_at(self, location: GraphLocation) -> int:
        """Number of components of the times at a location: on an edge, those of its receiver."""
        return self.length(location.to or location.operator)

    def leads_on(self, location: GraphLocation) -> bool:
        """Whether anything can follow from a location: not from the output of an operator without out-edges."""
        return bool(location.to) or location.operator in self._senders

    @cached_property
    def _senders(self) -> frozenset[str]:
        return frozenset(edge.source for edge in self.edges)

    @cached_property
    def locations(self) -> tuple[GraphLocation, ...]:
        """All locations: the outputs of the operators, then the edges."""
        return (*map(GraphLocation, self.loops), *(edge.location for edge in self.edges))

    @cached_property
    def _summaries(self) -> dict[GraphLocation, PathSummary]:
        return {edge.location: self._summary_of(edge) for edge in self.edges}

    def summary(self, edge: GraphLocation) -> PathSummary:
        """What an edge does to the time of a message."""
        found = self._summaries.get(edge)
        if found is None:
            raise DataflowError(unknown("edge", str(edge), map(str, self._summaries)))
        return found

    def _summary_of(self, edge: FlowEdge) -> PathSummary:
        if edge.feedback:
            return feeding_back(self.length(edge.to))
        inner, outer = self.loops[edge.source], self.loops[edge.to]
        common = next((n for n, pair in enumerate(zip(inner, outer, strict=False)) if pair[0] != pair[1]), None)
        shared = min(len(inner), len(outer)) if common is None else common
        return PathSummary(leaving(FLAT + shared).add, (0,) * (len(outer) - shared))

    def summaries_to(self, operator: str) -> dict[GraphLocation, tuple[PathSummary, ...]]:
        """The minimal summaries of the paths from each location to an operator's input, where there are any."""
        if operator not in self.loops:
            raise DataflowError(unknown("operator", operator, self.loops))
        found: dict[GraphLocation, tuple[PathSummary, ...]] = {}
        new = deque((edge.location, identity(self.length(operator))) for edge in self.edges if edge.to == operator)
        while new:
            location, summary = new.popleft()
            known = found.get(location, ())
            if any(other.precedes(summary) for other in known):
                continue
            found[location] = minimal((*known, summary))
            new.extend((above, step.then(summary)) for above, step in self._steps_to(location))
        return found

    def _steps_to(self, location: GraphLocation) -> Iterator[tuple[GraphLocation, PathSummary]]:
        """The locations directly in front of one, and what the step from them does to a time."""
        if location.to:
            yield GraphLocation(location.operator), self.summary(location)
        else:
            same = identity(self.length(location.operator))
            yield from ((edge, same) for edge in self._edges_into.get(location.operator, ()))

    @cached_property
    def _edges_into(self) -> dict[str, list[GraphLocation]]:
        into: dict[str, list[GraphLocation]] = {}
        for edge in self.edges:
            into.setdefault(edge.to, []).append(edge.location)
        return into

    # ---- cycles

    def _refuse_standstill(self) -> None:
        """Every cycle has an operator from which once around it is not earlier than, nor equal to, its beginning."""
        for operator in self._on_cycles():
            around = self.summaries_to(operator).get(GraphLocation(operator), ())
            if any(summary.precedes(identity(self.length(operator))) for summary in around):
                path = " -> ".join(self._way_round(operator))
                raise DataflowError(f"the cycle {path} advances no time; expected a feedback edge of a loop around it")

    def _on_cycles(self) -> list[str]:
        """The operators that are not above or below all cycles (Kahn's algorithm, from both ends)."""
        left = set(self.loops)
        while True:
            sources = {edge.source for edge in self.edges if edge.source in left and edge.to in left}
            receivers = {edge.to for edge in self.edges if edge.source in left and edge.to in left}
            if left == sources & receivers:
                return [name for name in self.loops if name in left]
            left = sources & receivers

    def _way_round(self, operator: str) -> list[str]:
        """The operators of a shortest cycle through this one that advances no time, for an error message."""
        start = (operator, identity(self.length(operator)))
        ways: deque[list[tuple[str, PathSummary]]] = deque([[start]])
        while True:
            way = ways.popleft()
            for edge in self.edges:
                if edge.source == way[-1][0]:
                    reached = way[-1][1].then(self.summary(edge.location))
                    if edge.to == operator and reached.precedes(start[1]):
                        return [*(name for name, _ in way), operator]
                    if (edge.to, reached) not in way:
                        ways.append([*way, (edge.to, reached)])


class GrownGraph(ProgressGraph):
    """All operators and edges that a dataflow has had, which may have cycles where operators have changed places.

    No message goes around, since those of an edge that was removed come to an end. An operator that listens, and has
    tokens, must not be on such a cycle: it would wait for itself.
    """

    def _refuse_standstill(self) -> None:
        """No message goes around."""


def _within(loops: tuple[str, ...]) -> str:
    return f"loop {loops[-1]!r}" if loops else "outside of any loop"
