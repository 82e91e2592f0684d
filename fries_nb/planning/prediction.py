"""How long a marker will take from the heads of its scope to the targets, from the queues that it meets on its way.

A fast control message goes past what waits in front of a head: there it waits for no more than the tuple in hand. From
the head on a marker travels with the data, behind all that waits in front of each operator below. So a target's delay
is that of the longest way from a head to it, and a component's that of its last target (Fries, sections 3.2 and 5.3).

What waits divided by what is taken in a second is how long the last tuple, or a marker, has to wait (Little's law). A
rate is measured where a cost is not, and it has in it the workers, what a tuple costs and whether those below let it
go on.

FM has 400 tuples waiting and takes 200 a second by two workers, MC has 50. A change of both starts at FM and passes
what waits there; markers from the source would not:

>>> from fries_nb.dataflow.graph import Edge, Operator
>>> graph = Graph("fraud", (Operator("payments"), Operator("FM", workers=2), Operator("MC", workers=2)), (
...     Edge("payments", "FM"), Edge("FM", "MC")))
>>> queues = {"payments": Queue(0, 200.0), "FM": Queue(400, 200.0), "MC": Queue(50, 200.0)}
>>> targets = frozenset({"FM", "MC"})
>>> ways(graph, {targets: {"FM"}}, targets, queues)
(CriticalPath(operators=('FM', 'MC'), delay_ms=260.0, unmeasured=()),)
>>> ways(graph, {frozenset(graph): {"payments"}}, targets, queues)
(CriticalPath(operators=('payments', 'FM', 'MC'), delay_ms=2250.0, unmeasured=()),)

The marker is taken to find each queue as long as it is now: what the operators above work off meanwhile comes in at the
rate at which tuples go out. A queue that is growing takes longer than said here, and one that shrinks not so long. An
operator counts with all its workers, so that a worker with more than its share takes longer, too; and where an operator
is not busy all the time its rate is that of what comes, so that a few waiting tuples seem to take long. Getting the new
functions ready is not part of it, nor are changes that have to come to their end before.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass

from fries_nb.dataflow.graph import Graph
from fries_nb.planning.mcs import reached


@dataclass(frozen=True, slots=True)
class Queue:
    """What was measured of an operator, all its workers together.

    Attributes:
        waiting: tuples in front of it.
        rate: tuples that it takes in a second, lately.
    """

    waiting: int
    rate: float


@dataclass(frozen=True, slots=True)
class CriticalPath:
    """The way that decides how long a marker takes.

    Attributes:
        operators: from a head to the target that is reached last; empty if that is unknown.
        delay_ms: first message sent to last target switched; ``None`` if that is unknown.
        unmeasured: operators on a way to a target whose pace is not known: they have taken no tuple in yet, or take
            none in now though some wait.
    """

    operators: tuple[str, ...]
    delay_ms: float | None
    unmeasured: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Prediction:
    """How long a change would take from its first message on, were it requested now.

    Attributes:
        ways: for each marker, hence with Fries for each component, the way that decides. None for a scheduler that
            waits for more than markers.
        epoch_ms: what markers from all sources would take, for comparison; ``None`` if that is unknown.
    """

    ways: tuple[CriticalPath, ...]
    epoch_ms: float | None

    @property
    def delay_ms(self) -> float | None:
        """Of the marker that takes longest, since all travel at once; ``None`` if that of any is unknown."""
        return longest(self.ways)


def longest(ways: Iterable[CriticalPath]) -> float | None:
    """The delay of ways that are gone at once, in milliseconds; ``None`` if there are none, or any is unknown."""
    delays = [way.delay_ms for way in ways]
    known = [delay for delay in delays if delay is not None]
    return max(known) if known and len(known) == len(delays) else None


def ways(
    graph: Graph, markers: Mapping[frozenset[str], Set[str]], targets: Set[str], queues: Mapping[str, Queue]
) -> tuple[CriticalPath, ...]:
    """The critical path of each marker, in O(V + E) apart from sorting.

    Args:
        graph: the dataflow.
        markers: the heads of each scope. Scopes are disjoint, and a head has no in-edge inside its scope.
        targets: the operators to change; each scope has at least one.
        queues: measured queues by operator; operators without measurements are left out. Sources need none.

    Returns:
        One path per scope, in the order of ``markers``.
    """
    place = {name: number for number, name in enumerate(graph.order)}
    found = []
    for scope, heads in markers.items():
        above = sorted(reached(targets & scope, graph.predecessors, within=scope), key=place.__getitem__)
        found.append(_way(graph, above, heads, targets, queues))
    return tuple(found)


def _way(
    graph: Graph, above: list[str], heads: Set[str], targets: Set[str], queues: Mapping[str, Queue]
) -> CriticalPath:
    """The way that decides among these operators, which lie on ways to targets and come in topological order."""
    unmeasured = tuple(name for name in above if graph.in_edges(name) and not _has_pace(queues.get(name)))
    if unmeasured:
        return CriticalPath((), None, unmeasured)
    passed_s: dict[str, float] = {}
    before: dict[str, str] = {}
    for name in above:
        tails = [tail for tail in graph.predecessors(name) if tail in passed_s]
        if tails:
            before[name] = max(tails, key=passed_s.__getitem__)
        arrives_s = passed_s[before[name]] if tails else 0.0
        ahead = _ahead(graph, name, name in heads, queues)
        passed_s[name] = arrives_s + (ahead / queues[name].rate if ahead else 0.0)
    last = max((name for name in reversed(above) if name in targets), key=passed_s.__getitem__)
    operators = [last]
    while operators[-1] in before:
        operators.append(before[operators[-1]])
    return CriticalPath(tuple(reversed(operators)), passed_s[last] * 1000)


def _has_pace(queue: Queue | None) -> bool:
    return queue is not None and (queue.rate > 0 or not queue.waiting)


def _ahead(graph: Graph, name: str, is_head: bool, queues: Mapping[str, Queue]) -> int:
    """Tuples that a marker waits for: in front of a head one a worker, in hand, which takes as long as one that waits.

    What a source has read ahead a message passes, and it is not worked on.
    """
    if not graph.in_edges(name):
        return 0
    return min(queues[name].waiting, graph.by_name[name].workers) if is_head else queues[name].waiting
