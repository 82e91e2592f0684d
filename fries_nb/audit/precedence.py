"""The precedence graph: who comes before whom in any serial order that the schedule is equivalent to.

A schedule is conflict-serializable exactly if this graph has no cycle (the classic theorem; Fries, definitions 4.6 to
4.9, gives the conflicts). Nodes are updates, and groups of transactions that met the same versions; transactions do
not conflict with each other, so a group stands for its members, and every cycle passes through an update.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

import networkx as nx

from fries_nb.audit.versions import Id, Version


class Update(NamedTuple):
    """The node of an update."""

    id: Id


class Group(NamedTuple):
    """The node of all transactions that met these versions."""

    versions: frozenset[Version]


Node = Update | Group


def old_and_new(
    versions: Iterable[Version], update: Id, updates: Mapping[str, Collection[Id]]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The operators at which these versions are from before the update, and those at which they are from after it.

    >>> met = (Version("FM", frozenset()), Version("MC", frozenset({"u1"})), Version("FC", frozenset()))
    >>> old_and_new(met, "u1", {"FM": {"u1"}, "MC": {"u1"}})
    (('FM',), ('MC',))
    """
    touched = [version for version in versions if update in updates.get(version.operator, ())]
    old = {version.operator for version in touched if update not in version.applied}
    new = {version.operator for version in touched if update in version.applied}
    return tuple(sorted(old)), tuple(sorted(new))


def precedence_graph(
    groups: Iterable[frozenset[Version]], updates: Mapping[str, Collection[Id]], orders: Iterable[tuple[Id, Id, str]]
) -> nx.DiGraph[Node]:
    """The graph of what ``Sightings`` gathered. Edge attribute ``at``: an operator where the two conflict so."""
    graph: nx.DiGraph[Node] = nx.DiGraph()
    graph.add_nodes_from(Update(update) for targets in updates.values() for update in targets)
    for versions in groups:
        for operator, applied in versions:
            for update in updates.get(operator, ()):
                edge = (Update(update), Group(versions)) if update in applied else (Group(versions), Update(update))
                graph.add_edge(*edge, at=operator)
    for earlier, later, operator in orders:
        graph.add_edge(Update(earlier), Update(later), at=operator)
    return graph


def shortest_cycle(graph: nx.DiGraph[Node]) -> list[Node]:
    """A shortest cycle, from a group on if it has one; empty if there is no cycle."""
    best: list[Node] = []
    for update in (node for node in graph if isinstance(node, Update)):
        paths = nx.single_source_shortest_path(graph, update)
        loops = [paths[last] for last in graph.predecessors(update) if last in paths]
        best = min([*loops, *([best] if best else [])], key=len, default=[])
    first = next((place for place, node in enumerate(best) if isinstance(node, Group)), 0)
    return best[first:] + best[:first]
