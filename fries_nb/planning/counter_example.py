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
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from fries_nb.dataflow.graph import Emits, Graph
from fries_nb.dataflow.loops import Contraction, contracted
from fries_nb.planning.covering import prune, within_transactions
from fries_nb.planning.tuple_ways import Way, shortest, two_ways, way_past
from fries_nb.protocol.trace import Ran, Record, Updated

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
