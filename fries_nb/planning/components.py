"""The connected components of a minimal covering sub-DAG; each is synchronised by markers from its heads.

Fries, section 5.3. The heads of a component are its operators without an in-edge inside it; they receive the FCM. A
component that holds an operator of a loop holds the whole loop, and feedback edges do not count as in-edges.

>>> from fries_nb.dataflow.graph import Edge, Operator
>>> graph = Graph("chain", tuple(map(Operator, ("J", "SP", "FMX"))), (Edge("J", "SP"), Edge("SP", "FMX")))
>>> [part] = components(graph, {"J", "SP", "FMX"}, {"FMX"})
>>> sorted(part.heads), sorted(part.targets), part.edges, part.longest_path
(['J'], ['FMX'], (('J', 'SP'), ('SP', 'FMX')), 2)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass

from fries_nb.dataflow.graph import Graph
from fries_nb.planning.mcs import reached


@dataclass(frozen=True)
class Component:
    """A connected component of an MCS.

    Attributes:
        operators: its operators.
        heads: its operators without an in-edge inside the component, apart from feedback edges.
        targets: its operators that are changed.
        edges: its edges as (from, to), in topological order of their tails.
        longest_path: number of edges on its longest path without feedback edges; 0 for a single operator.
        loops: the outermost loops that it holds, which have to be empty when its operators switch.
    """

    operators: frozenset[str]
    heads: frozenset[str]
    targets: frozenset[str]
    edges: tuple[tuple[str, str], ...]
    longest_path: int
    loops: tuple[str, ...] = ()


def components(graph: Graph, covering: Set[str], targets: Set[str]) -> tuple[Component, ...]:
    """The components of an MCS, ordered by their first operators, in O(V + E).

    Args:
        graph: the dataflow.
        covering: the operators of the MCS, with all operators of a loop or none.
        targets: the operators to change.
    """

    def neighbours(name: str) -> list[str]:
        return graph.successors(name) + graph.predecessors(name)

    part_of: dict[str, int] = {}
    parts: list[list[str]] = []
    for name in graph.order:
        if name in covering:
            if name not in part_of:
                part_of.update(dict.fromkeys(reached([name], neighbours, within=covering), len(parts)))
                parts.append([])
            parts[part_of[name]].append(name)
    return tuple(_component(graph, operators, covering, targets) for operators in parts)


def _component(graph: Graph, operators: Sequence[str], covering: Set[str], targets: Set[str]) -> Component:
    """The component of these operators, given in topological order."""
    edges = [edge for name in operators for edge in graph.out_edges(name) if edge.to in covering]
    depths = _depths(operators, [(edge.source, edge.to) for edge in edges if not edge.feedback])
    outermost = (one.name for one in map(graph.operator, operators) if one.traits.heads_loop and one.within.level == 1)
    return Component(
        operators=frozenset(operators),
        heads=frozenset(name for name, depth in depths.items() if depth == 0),
        targets=frozenset(name for name in operators if name in targets),
        edges=tuple((edge.source, edge.to) for edge in edges),
        longest_path=max(depths.values()),
        loops=tuple(outermost),
    )


def _depths(operators: Sequence[str], edges: Sequence[tuple[str, str]]) -> Mapping[str, int]:
    """For each operator, the number of edges on the longest path to it; edges are in topological order."""
    depths = dict.fromkeys(operators, 0)
    for name, to in edges:
        if depths[to] <= depths[name]:
            depths[to] = depths[name] + 1
    return depths
