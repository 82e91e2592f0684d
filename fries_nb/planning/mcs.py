"""The minimal covering sub-DAG: what must be synchronised so that a set of operators changes as one.

It holds the members, and every operator and edge on a path between two of them. An operator is in it exactly if it is
a member or below one ("red"), and a member or above one ("blue").

Fries, definition 5.4 and algorithm 1. Algorithm 1 colours in topological order; a search along the edges colours the
same operators, needs no order, and never looks at the part of the graph that is neither above nor below a member.

>>> figure_7 = nx.DiGraph(["AC", "CD", "CE", "DF", "EF", "FH", "BG", "GH"])
>>> covering = minimal_covering_subdag(figure_7, {"C", "F", "G"})
>>> sorted(covering.nodes), sorted("".join(edge) for edge in covering.edges)
(['C', 'D', 'E', 'F', 'G'], ['CD', 'CE', 'DF', 'EF'])
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

import networkx as nx


def minimal_covering_subdag(digraph: nx.DiGraph[str], members: Collection[str]) -> nx.DiGraph[str]:
    """The MCS of ``members`` in O(V + E), nodes and edges in the order of ``digraph`` (Fries, algorithm 1).

    Raises:
        networkx.NodeNotFound: a member is not in the graph.
    """
    for member in members:
        if member not in digraph:
            raise nx.NodeNotFound(f"operator {member!r} is not in the graph")
    blue = reached(members, digraph.pred)
    red = reached(members, digraph.succ, within=blue)
    covering: nx.DiGraph[str] = nx.DiGraph()
    inside = [name for name in digraph if name in red]
    covering.add_nodes_from(inside)
    covering.add_edges_from((name, to) for name in inside for to in digraph.succ[name] if to in red)
    return covering


def reached(
    starts: Iterable[str], neighbours: Mapping[str, Iterable[str]], within: Collection[str] | None = None
) -> set[str]:
    """The starts, and all that is reached from them along ``neighbours``, staying ``within`` if given.

    Staying within the blue operators finds every operator that is red as well: whatever lies on a path between two
    members is blue.
    """
    found = set(starts)
    todo = list(found)
    while todo:
        for name in neighbours[todo.pop()]:
            if name not in found and (within is None or name in within):
                found.add(name)
                todo.append(name)
    return found
