"""Loops as one operator each: the graph without cycles on which planning and regions work.

Each outermost loop is contracted to one operator with the name of its head; loops inside of it disappear with it. Rows
go round a loop any number of times, and a row that enters may leave as several, so the operator is one-to-many, unless
the loop is declared ``one_to_one``. Rows enter a loop at its head only and derive from it there, so the result has no
cycle.

>>> from fries_nb.dataflow.graph import Edge, Graph, Kind, Operator
>>> from fries_nb.dataflow.graph import ROOT
>>> loop = ROOT.nest("L")
>>> graph = Graph("round", (Operator("S"), Operator("L", Emits.ONE_TO_MANY, kind=Kind.LOOP, within=loop),
...     Operator("B", within=loop), Operator("Out")),
...     (Edge("S", "L"), Edge("L", "B"), Edge("B", "L", feedback=True), Edge("B", "Out")))
>>> contraction = contracted(graph)
>>> [(edge.source, edge.to) for edge in contraction.graph.edges], contraction.node("B")
([('S', 'L'), ('L', 'Out')], 'L')
>>> sorted(contraction.expanded({"L", "Out"}))
['B', 'L', 'Out']
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, replace

from fries_nb.dataflow.graph import Edge, Emits, Graph, Operator, Partitioning


@dataclass(frozen=True)
class Contraction:
    """A graph with each outermost loop as one operator."""

    graph: Graph  # the contracted graph, without cycles
    members: Mapping[str, tuple[str, ...]]  # loop to all operators inside of it, in order of declaration
    _nodes: Mapping[str, str]

    def node(self, operator: str) -> str:
        """The operator's loop, the outermost one; the operator itself if it is in none."""
        return self._nodes.get(operator, operator)

    def expanded(self, nodes: Iterable[str]) -> set[str]:
        """The operators of these nodes: a loop stands for all of its operators."""
        return {name for node in nodes for name in self.members.get(node, (node,))}

    def loops(self, nodes: Set[str]) -> tuple[str, ...]:
        """The loops among these nodes, in order of declaration."""
        return tuple(loop for loop in self.members if loop in nodes)


def contracted(graph: Graph) -> Contraction:
    """Contract each outermost loop to one operator, in O(V + E); a graph without loops stays as it is."""
    nodes = {operator.name: operator.within.loops[0] for operator in graph.operators if operator.within.level}
    if not nodes:
        return Contraction(graph, {}, {})
    inside: dict[str, list[str]] = {}
    for name, loop in nodes.items():
        inside.setdefault(loop, []).append(name)
    members = {loop: tuple(names) for loop, names in inside.items()}
    copying = {nodes[name] for name in nodes if _copies_outside(graph, nodes, name)}
    operators = tuple(
        _as_operator(one, one.name in copying) for one in graph.operators if nodes.get(one.name, one.name) == one.name
    )
    return Contraction(replace(graph, operators=operators, edges=tuple(_edges(graph, nodes))), members, nodes)


def loops_in(graph: Graph, scope: frozenset[str]) -> tuple[str, ...]:
    """The outermost loops of which all operators are among these, in order of declaration."""
    return tuple(loop for loop, members in contracted(graph).members.items() if scope.issuperset(members))


def _copies_outside(graph: Graph, nodes: Mapping[str, str], name: str) -> bool:
    """Whether an operator copies a row to several operators outside of its loop."""
    leaving = [edge for edge in graph.out_edges(name) if nodes.get(edge.to) != nodes[name]]
    return len(leaving) > 1 and graph.by_name[name].edgewise_one_to_one


def _as_operator(operator: Operator, is_copying: bool) -> Operator:
    """A loop's head in place of the loop; any other operator as it is."""
    # A loop that gives one row for each has copied it if several operators outside get it, as a Replicate would.
    if not operator.traits.heads_loop:
        return operator
    if is_copying and operator.emits is Emits.ONE_TO_ONE:
        return replace(operator, branches=1, emits=Emits.ONE_TO_MANY, edgewise_one_to_one=True)
    return replace(operator, branches=1)


def _edges(graph: Graph, nodes: Mapping[str, str]) -> Iterator[Edge]:
    """The edges between different nodes, one for each pair; a broadcast among several edges prevails."""
    found: dict[tuple[str, str], Edge] = {}
    for edge in graph.edges:
        ends = nodes.get(edge.source, edge.source), nodes.get(edge.to, edge.to)
        if ends[0] == ends[1]:
            continue
        if ends not in found or edge.partitioning is Partitioning.BROADCAST:
            found[ends] = Edge(*ends, edge.partitioning, edge.key)
    yield from found.values()
