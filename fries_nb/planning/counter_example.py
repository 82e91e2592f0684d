"""A counter-example to naive FCM: an order of events, allowed by the plan, after which a tuple has mixed versions.

Naive FCM sends one message to each target, and a message reaches a target at any moment. So wherever a transaction can
meet two target operations, one message may come after the first of them and the other before the second. There are two
shapes: a tuple meets two targets on its way (or one target in two rounds of a loop); or an operator makes two tuples of
one, and both meet targets. One source tuple suffices in both. The trace of these events is not serializable, by the
audit's own judgement: the tuple precedes the change at one target and follows it at another.

>>> from fries_nb.dataflow.graph import Edge, Operator
>>> graph = Graph("fraud", tuple(map(Operator, ("S", "FM", "MC"))), (Edge("S", "FM"), Edge("FM", "MC")))
>>> example = counter_example(graph, ["FM", "MC"])
>>> for step in example.steps:
...     print(step.operator, step.kind)
S passed
FM old
FM switched
MC switched
MC new
>>> example.cycle, example.cycle_at
(('t1', 'u1'), ('FM', 'MC'))
>>> counter_example(graph, ["FM"]) is None
True

The ways of tuples through a graph, found by searches in O(V + E): the witnesses of a plan's decisions.

A way is a sequence of operators along edges. Whether naive FCM is safe shows in two of them at most (see
``planning.pruning``): one tuple that meets two targets on its way, or two tuples that one operator has made of one.

>>> from fries_nb.dataflow.graph import Edge, Emits, Operator
>>> from fries_nb.planning.covering import prune
>>> names = (Operator("S"), Operator("RE", Emits.ONE_TO_MANY), *map(Operator, "CDX"))
>>> ends = ("S", "RE"), ("RE", "C"), ("RE", "D"), ("C", "X"), ("D", "X")
>>> graph = Graph("diamond", names, tuple(Edge(*each) for each in ends))
>>> way_past(graph, {"X"}), way_past(graph, {"C", "X"})
(None, (('S', 'RE', 'C', 'X'), 2))
>>> two_ways(graph, "RE", {"X"})
(('RE', 'C', 'X'), ('RE', 'C', 'X'))
>>> [witness.in_words for witness in witnesses(graph, {"X"}, prune(graph, {"X"})).values()]
['two tuples of one may both go RE → C → X']
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar

import networkx as nx

from fries_nb.dataflow.graph import Edge, Emits, Graph
from fries_nb.dataflow.loops import Contraction, contracted
from fries_nb.planning.covering import (
    PruningDecision,
    Rule,
    carries_several,
    leading_edges,
    multiplying,
    passes_one,
    prune,
    within_transactions,
)
from fries_nb.protocol.trace import Ran, Record, Updated

Way = tuple[str, ...]
Spot = TypeVar("Spot", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Witness:
    """The ways that show why a one-to-many operator was kept or pruned.

    Attributes:
        ways: from the operator to targets, with each loop as one operator: those of two tuples of a transaction if it
            was kept, else one that is an example of all, which share the edge or the operator that the rule names.
    """

    ways: tuple[Way, ...]

    @property
    def in_words(self) -> str:
        """The ways with arrows, and whose they are."""
        shown = list(dict.fromkeys(" → ".join(way) for way in self.ways))
        if len(self.ways) == 1:
            return f"as on {shown[0]}"
        return f"two tuples of one may {'both ' if len(shown) == 1 else ''}go {' and '.join(shown)}"


def witnesses(graph: Graph, targets: Iterable[str], decisions: Iterable[PruningDecision]) -> dict[str, Witness]:
    """The witness of each of these decisions, by its operator; each is searched for in O(V + E).

    There is none where pruning was off, nor for an operator that only a region of the dataflow has.
    """
    contraction = contracted(within_transactions(graph))
    flat, nodes = contraction.graph, frozenset(map(contraction.node, targets))
    found: dict[str, Witness] = {}
    for decision in decisions:
        name = decision.operator
        if decision.rule is Rule.OFF or name not in flat:
            continue
        two = None if decision.pruned else two_ways(flat, name, nodes)
        if two is not None:
            found[name] = Witness(two)
        elif (rest := shortest(flat.successors(name), flat.successors, nodes.__contains__)) is not None:
            found[name] = Witness(((name, *rest),))
    return found


def shortest(
    starts: Iterable[Spot], after: Callable[[Spot], Iterable[Spot]], is_end: Callable[[Spot], bool]
) -> tuple[Spot, ...] | None:
    """A shortest way from one of ``starts`` to an end, by breadth-first search; ``None`` if there is none."""
    before: dict[Spot, Spot | None] = dict.fromkeys(starts)
    todo = list(before)
    for spot in todo:
        if is_end(spot):
            way, last = [spot], before[spot]
            while last is not None:
                way.append(last)
                last = before[last]
            return tuple(reversed(way))
        for one in after(spot):
            if one not in before:
                before[one] = spot
                todo.append(one)
    return None


def way_past(graph: Graph, targets: Set[str]) -> tuple[Way, int] | None:
    """A shortest way from a source past a first target to a second one, and the place of the first.

    With feedback edges the second may be the first again, in another round. No other target is on the way.
    """

    def after(spot: tuple[str, int]) -> Iterable[tuple[str, int]]:
        return ((name, spot[1] + (name in targets)) for name in graph.successors(spot[0]))

    # The number of targets that were met is a part of the spot.
    way = shortest([(name, int(name in targets)) for name in graph.sources], after, lambda spot: spot[1] == 2)
    return None if way is None else (tuple(name for name, _ in way), [met for _, met in way].index(1))


def two_ways(graph: Graph, operator: str, targets: Set[str]) -> tuple[Way, Way] | None:
    """The ways to targets of two tuples that an operator may make of one; ``None`` if its type excludes them.

    They exist if two units flow from the operator to the targets where each edge or operator that passes one tuple of
    a transaction passes one unit (Menger's theorem).
    """
    leading = leading_edges(graph, targets)
    for group in multiplying(graph, operator, leading.get(operator, [])):
        network = _network(graph, group, targets, leading)
        value, flow = nx.maximum_flow(network, _START, _END, flow_func=nx.algorithms.flow.edmonds_karp, cutoff=2)
        if value >= 2:
            return (operator, *_taken(flow)), (operator, *_taken(flow))
    return None


_START, _END = ("", "start"), ("", "end")
_Port = tuple[str, str]


def _network(
    graph: Graph, group: list[Edge], targets: Set[str], leading: Mapping[str, list[Edge]]
) -> nx.DiGraph[_Port]:
    """The operators behind these edges up to targets, each with an entry and an exit, and how many tuples pass."""
    network: nx.DiGraph[_Port] = nx.DiGraph()
    for edge in group:
        network.add_edge(_START, (edge.to, "in"), capacity=2 if carries_several(graph, edge) else 1)
    todo = list(dict.fromkeys(edge.to for edge in group))
    found = set(todo)
    for name in todo:
        if name in targets:
            network.add_edge((name, "in"), _END, capacity=2)
            continue
        passed = 1 if passes_one(graph, name) else 2
        network.add_edge((name, "in"), (name, "out"), capacity=passed)
        for edge in leading[name]:
            network.add_edge((name, "out"), (edge.to, "in"), capacity=2)
            if edge.to not in found:
                found.add(edge.to)
                todo.append(edge.to)
    return network


def _taken(flow: dict[_Port, dict[_Port, int]]) -> Way:
    """The way of one unit, which is taken out of the flow."""
    way, port = [], _START
    while port != _END:
        after = next(one for one, units in flow[port].items() if units > 0)
        flow[port][after] -= 1
        if after[1] == "in":
            way.append(after[0])
        port = after
    return tuple(way)


TUPLE, CHANGE = "t1", "u1"
"""The source tuple and the change of every counter-example."""


class StepKind(StrEnum):
    """The event of a step."""

    PASSED = "passed"
    """An operator that is not changed processes the tuple."""
    OLD = "old"
    """A target processes it with its old function."""
    SWITCHED = "switched"
    """The message reaches a target, which switches."""
    NEW = "new"
    """A target processes it with its new function."""


@dataclass(frozen=True, slots=True)
class ExampleStep:
    """An event of a counter-example.

    Attributes:
        operator: where it happens.
        kind: what happens.
        copy: the tuple: 0 for the source tuple, 1 and 2 for those that were made of it.
    """

    operator: str
    kind: StepKind
    copy: int = 0


@dataclass(frozen=True, slots=True)
class CounterExample:
    """An order of events by which naive FCM mixes versions.

    Attributes:
        ways: the way of the tuple from its source; or, if it becomes two, the ways of both.
        parts_at: the operator that makes two tuples of it; empty if it stays one.
        steps: the events in order.
    """

    ways: tuple[Way, ...]
    parts_at: str
    steps: tuple[ExampleStep, ...]

    @property
    def cycle(self) -> tuple[str, str]:
        """The tuple and the change, each of which must precede the other."""
        return TUPLE, CHANGE

    @property
    def cycle_at(self) -> tuple[str, str]:
        """The target at which the tuple precedes the change, and the one at which it follows."""
        [old] = (step.operator for step in self.steps if step.kind is StepKind.OLD)
        [new] = (step.operator for step in self.steps if step.kind is StepKind.NEW)
        return old, new

    def records(self) -> list[Record]:
        """The events as a trace."""
        return [
            Updated(CHANGE, step.operator) if step.kind is StepKind.SWITCHED else Ran(TUPLE, step.operator)
            for step in self.steps
        ]


def counter_example(graph: Graph, targets: Iterable[str]) -> CounterExample | None:
    """A counter-example to naive FCM.

    Without loops one exists exactly if ``Covering.naive_safe`` is false. A loop is planned as a whole, so the plan may
    be more cautious than necessary there, and then there is none.

    Returns:
        The events, or ``None`` if the types of the operators exclude any.
    """
    chosen, inside = frozenset(targets), within_transactions(graph)
    found = way_past(inside, chosen)
    if found is not None:
        way, first = found
        before, after = way[: first + 1], way[first + 1 :]
        return CounterExample((way,), "", tuple(_steps(before, after, 0, 0)))
    found_two = _parting(inside, chosen)
    if found_two is None:
        return None
    shared, (one, other) = found_two
    steps = (*_passed(shared, 0), *_steps(one, other, 1, 2))
    return CounterExample((shared + one, shared + other), shared[-1], steps)


def _steps(before: Way, after: Way, copy: int, other: int) -> Iterator[ExampleStep]:
    """Two ways to targets, one after the other; the message reaches the targets in between."""
    yield from _passed(before[:-1], copy)
    yield ExampleStep(before[-1], StepKind.OLD, copy)
    for target in dict.fromkeys((before[-1], after[-1])):
        yield ExampleStep(target, StepKind.SWITCHED)
    yield from _passed(after[:-1], other)
    yield ExampleStep(after[-1], StepKind.NEW, other)


def _passed(way: Way, copy: int) -> Iterator[ExampleStep]:
    return (ExampleStep(name, StepKind.PASSED, copy) for name in way)


def _parting(graph: Graph, targets: frozenset[str]) -> tuple[Way, tuple[Way, Way]] | None:
    """The way of a tuple to an operator that makes two of it, and the ways of these to targets."""
    contraction = contracted(graph)
    flat, nodes = contraction.graph, frozenset(map(contraction.node, targets))
    for decision in prune(flat, nodes):
        two = None if decision.pruned else two_ways(flat, decision.operator, nodes)
        if two is not None:
            break
    else:
        # A loop may let several tuples out for one, and a target among its exits meets them.
        many = (name for name in contraction.loops(nodes) if flat.by_name[name].emits is Emits.ONE_TO_MANY)
        loop = next(many, None)
        if loop is None:
            return None
        two = (loop,), (loop,)
    start = two[0][0]
    shared = shortest(graph.sources, graph.successors, lambda name: name == start)
    one, other = (_expanded(graph, contraction, way, targets) for way in two)
    return None if shared is None or one is None or other is None else (shared, (one[1:], other[1:]))


def _expanded(graph: Graph, contraction: Contraction, way: Way, ends: Collection[str]) -> Way | None:
    """The way through the operators of its loops, to one of ``ends``; it enters a loop at its head."""

    def after(spot: tuple[str, int]) -> Iterator[tuple[str, int]]:
        for name in graph.successors(spot[0]):
            for place in (spot[1], spot[1] + 1):
                if place < len(way) and contraction.node(name) == way[place]:
                    yield name, place

    found = shortest([(way[0], 0)], after, lambda spot: spot[1] == len(way) - 1 and spot[0] in ends)
    return None if found is None else tuple(name for name, _ in found)
