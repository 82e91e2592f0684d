"""The ways of tuples through a dataflow as pictures, operator by operator with the version that they meet.

An old version is blue with a dotted frame, a new one orange with a thick frame; both at one operator are purple with a
dashed frame. The line below an operator's name says the same.

>>> from fries_nb.dataflow.graph import Edge, Graph, Operator
>>> graph = Graph("f", tuple(map(Operator, ("S", "FM", "MC"))), (Edge("S", "FM"), Edge("FM", "MC")))
>>> met = (Met("S", (), ()), Met("FM", ("u1",), ()), Met("MC", (), ("u1",)))
>>> svg = met_svg(graph, met, {"u1"})
>>> 'data-operator="FM" data-state="old"' in svg, ">u1: new<" in svg
(True, True)
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import pairwise

from fries_nb.audit import Met
from fries_nb.dataflow.graph import Graph
from fries_nb.planning.counter_example import CounterExample, ExampleStep, StepKind
from fries_nb.report.dag import STATES, Ends, draw
from fries_nb.report.layout import layout

COPIES = ("t1", "t1.1", "t1.2")
"""Names of the source tuple of a counter-example, and of the two tuples that were made of it."""
_FACT = 14  # letters below an operator's name
_WIDTH = 900.0


def met_svg(graph: Graph, met: Iterable[Met], changes: Collection[str]) -> str:
    """The dataflow with the versions of operators that a transaction met.

    Args:
        graph: the dataflow.
        met: the operators that processed tuples of the transaction, with their versions.
        changes: the changes to consider.

    Returns:
        An ``<svg>`` element.
    """
    passed: dict[str, dict[str, list[str]]] = {}
    for one in met:
        versions = passed.setdefault(one.operator, {})
        for version, ids in (("old", one.before), ("new", one.after)):
            for change in (change for change in ids if change in changes):
                versions.setdefault(change, []).append(version)
    titles = {
        name: ", ".join(f"{change}: {', '.join(dict.fromkeys(seen))}" for change, seen in versions.items())
        for name, versions in passed.items()
    }
    found = {name: {version for seen in versions.values() for version in seen} for name, versions in passed.items()}
    states = {name: "both" if len(seen) > 1 else "".join(seen) for name, seen in found.items() if name in graph}
    facts = {name: _shortened(title) for name, title in titles.items()}
    ends = [(edge.source, edge.to) for edge in graph.edges if {edge.source, edge.to} <= passed.keys()]
    return _drawn(graph, states, titles, ends, facts)


def example_svg(graph: Graph, example: CounterExample, number: int) -> str:
    """The operators on the ways of a counter-example after a number of steps; the last one is marked."""
    steps = example.steps[:number]
    versions = dict.fromkeys(example.cycle_at, "old")
    versions |= {step.operator: "new" for step in steps if step.kind is StepKind.SWITCHED}
    states, facts = dict(versions), dict(versions)
    here = steps[-1]
    states[here.operator] = f"{versions.get(here.operator, '')} here".strip()
    if here.kind is not StepKind.SWITCHED:
        facts[here.operator] = " · ".join([COPIES[here.copy], *filter(None, [versions.get(here.operator)])])
    return _drawn(_part(graph, example), states, {}, taken(steps, example.parts_at), facts)


def example_met_svg(graph: Graph, example: CounterExample) -> str:
    """The operators on the ways of a counter-example, with the versions that the tuple has met in the end."""
    _, change = example.cycle
    met = [
        Met(
            step.operator,
            (change,) if step.kind is StepKind.OLD else (),
            (change,) if step.kind is StepKind.NEW else (),
        )
        for step in example.steps
        if step.kind is not StepKind.SWITCHED
    ]
    return met_svg(_part(graph, example), met, {change})


def taken(steps: Sequence[ExampleStep], parts_at: str) -> list[Ends]:
    """The edges that tuples have taken in these steps."""
    ends: list[Ends] = []
    for copy in range(len(COPIES)):
        names = [step.operator for step in steps if step.copy == copy and step.kind is not StepKind.SWITCHED]
        ends += pairwise([parts_at, *names] if copy and names else names)
    return ends


def _part(graph: Graph, example: CounterExample) -> Graph:
    """The operators and edges on the ways of a counter-example."""
    ends = {pair for way in example.ways for pair in pairwise(way)}
    names = {name for way in example.ways for name in way}
    operators = tuple(one for one in graph.operators if one.name in names)
    return Graph(graph.name, operators, tuple(edge for edge in graph.edges if (edge.source, edge.to) in ends))


def _drawn(
    graph: Graph, states: Mapping[str, str], titles: Mapping[str, str], ends: Collection[Ends], facts: Mapping[str, str]
) -> str:
    found = {word for words in states.values() for word in words.split()}
    legend = {state: words for state, words in STATES.items() if state in found}
    return draw(graph, layout(graph, _WIDTH), states, {}, titles, ends, legend, {}, facts)


def _shortened(text: str) -> str:
    return text if len(text) <= _FACT else text[: _FACT - 1] + "…"
