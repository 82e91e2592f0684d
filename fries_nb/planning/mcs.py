"""The minimal covering sub-DAG (MCS): the part of a graph to synchronise so that a set of operators changes as one.

It contains the members, and every operator and edge on a path between two of them. An operator belongs to it exactly if
it is a member or below one ("red"), and a member or above one ("blue").

Fries, definition 5.4 and algorithm 1. Algorithm 1 colours operators in topological order; a search along the edges
colours the same operators without an order, and never visits the rest of the graph.

>>> figure_7 = nx.DiGraph(["AC", "CD", "CE", "DF", "EF", "FH", "BG", "GH"])
>>> covering = minimal_covering_subdag(figure_7, {"C", "F", "G"})
>>> sorted(covering.nodes), sorted("".join(edge) for edge in covering.edges)
(['C', 'D', 'E', 'F', 'G'], ['CD', 'CE', 'DF', 'EF'])
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Protocol

import networkx as nx


class Digraph(Protocol):
    """The interface of a graph that algorithm 1 needs; networkx's ``DiGraph`` and ``dataflow.Graph`` implement it."""

    def __iter__(self) -> Iterator[str]: ...

    def __contains__(self, name: object, /) -> bool: ...

    def successors(self, n: str, /) -> Iterable[str]:
        """The operators that this one feeds."""
        ...

    def predecessors(self, n: str, /) -> Iterable[str]:
        """The operators that feed this one."""
        ...


def minimal_covering_subdag(digraph: Digraph, members: Collection[str]) -> nx.DiGraph[str]:
    """The MCS of ``members`` in O(V + E), with nodes and edges in the order of ``digraph`` (Fries, algorithm 1).

    Raises:
        networkx.NodeNotFound: a member is not in the graph.
    """
    for member in members:
        if member not in digraph:
            raise nx.NodeNotFound(f"operator {member!r} is not in the graph")
    inside = covered(digraph, members)
    covering: nx.DiGraph[str] = nx.DiGraph()
    covering.add_nodes_from(name for name in digraph if name in inside)
    covering.add_edges_from((name, to) for name in list(covering) for to in digraph.successors(name) if to in inside)
    return covering


def covered(digraph: Digraph, members: Collection[str]) -> set[str]:
    """The operators of the MCS; its edges are the graph's edges between them."""
    blue = reached(members, digraph.predecessors)
    return reached(members, digraph.successors, within=blue)


def reached(
    starts: Iterable[str], neighbours: Callable[[str], Iterable[str]], within: Collection[str] | None = None
) -> set[str]:
    """The operators reachable from ``starts``.

    Args:
        starts: the operators at which the search begins; included in the result.
        neighbours: the edges to follow, such as ``graph.predecessors``.
        within: if given, the search does not leave these operators. Within the blue operators a search from the members
            finds all operators that are red as well, since every operator on a path between two members is blue.
    """
    found = set(starts)
    todo = list(found)
    while todo:
        for name in neighbours(todo.pop()):
            if name not in found and (within is None or name in within):
                found.add(name)
                todo.append(name)
    return found
