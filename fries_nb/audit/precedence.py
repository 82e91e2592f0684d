"""The precedence graph: the order of transactions and updates that every equivalent serial schedule must keep.

A schedule is conflict-serializable if and only if this graph has no cycle (Bernstein, Hadzilacos and Goodman, 1987; the
conflicts are those of Fries, definitions 4.6 to 4.9). Transactions do not conflict with each other, so one node
represents all transactions that are before the same updates and after the same updates. Every cycle contains an update.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from typing import NamedTuple

import networkx as nx

from fries_nb.audit.version_check import Id, Version

Updates = Mapping[str, Set[Id]]


class UpdateStep(NamedTuple):
    """The node of an update."""

    id: Id


class Alike(NamedTuple):
    """The node of all transactions that must precede, and follow, these updates."""

    before: frozenset[Id]
    after: frozenset[Id]


Node = UpdateStep | Alike


def alike(versions: Iterable[Version], updates: Updates) -> Alike:
    """The node of a transaction that met these versions.

    Args:
        versions: the versions.
        updates: operator to the updates that change it.

    >>> alike([Version("FM", frozenset({"u1"}))], {"FM": {"u1", "u2"}})
    Alike(before=frozenset({'u2'}), after=frozenset({'u1'}))
    """
    before: set[Id] = set()
    after: set[Id] = set()
    for operator, applied in versions:
        before |= updates.get(operator, frozenset()) - applied
        after |= applied
    return Alike(frozenset(before), frozenset(after))


def old_and_new(versions: Iterable[Version], update: Id, updates: Updates) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The operators whose version is from before the update, and those whose version is from after it.

    >>> met = (Version("FM", frozenset()), Version("MC", frozenset({"u1"})), Version("FC", frozenset()))
    >>> old_and_new(met, "u1", {"FM": {"u1"}, "MC": {"u1"}})
    (('FM',), ('MC',))
    """
    old: set[str] = set()
    new: set[str] = set()
    for operator, applied in versions:
        if update in applied:
            new.add(operator)
        elif update in updates.get(operator, ()):
            old.add(operator)
    return tuple(sorted(old)), tuple(sorted(new))


def precedence_graph(
    transactions: Iterable[Alike], updates: Updates, orders: Iterable[tuple[Id, Id]]
) -> nx.DiGraph[Node]:
    """The graph of these transactions and updates; ``orders`` holds pairs of updates that follow each other."""
    graph: nx.DiGraph[Node] = nx.DiGraph()
    # Sorted, so that a trace always gives the same cycle: the order of a set of strings differs between processes.
    graph.add_nodes_from(UpdateStep(update) for update in sorted(set().union(*updates.values()), key=str))
    for node in transactions:
        graph.add_edges_from((node, UpdateStep(update)) for update in sorted(node.before, key=str))
        graph.add_edges_from((UpdateStep(update), node) for update in sorted(node.after, key=str))
    graph.add_edges_from((UpdateStep(earlier), UpdateStep(later)) for earlier, later in orders)
    return graph


def shortest_cycle(graph: nx.DiGraph[Node]) -> list[Node]:
    """A shortest cycle, starting at a transaction if it contains one; empty if there is no cycle."""
    best: list[Node] = []
    for update in (node for node in graph if isinstance(node, UpdateStep)):
        paths = nx.single_source_shortest_path(graph, update)
        loops = [paths[last] for last in graph.predecessors(update) if last in paths]
        best = min([*loops, *([best] if best else [])], key=len, default=[])
    first = next((place for place, node in enumerate(best) if isinstance(node, Alike)), 0)
    return best[first:] + best[:first]
