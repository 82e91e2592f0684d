"""What planning promises, spelled out by enumerating ways: slow, and shares no code with the planner.

A data transaction is a tree of tuples. Whether it can meet two target operations that nothing orders shows in two of
its tuples at most: one way through the graph, or two ways that share a beginning and part at an operator.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace
from itertools import combinations_with_replacement, pairwise

from fries_nb.dataflow import Edge, Emits, Graph, Operator, Partitioning

Way = tuple[str, ...]


def ways(graph: Graph, start: str, ends: Collection[str]) -> Iterator[Way]:
    """Every path from ``start`` to one of ``ends``."""
    if start in ends:
        yield (start,)
    for edge in graph.out_edges(start):
        for rest in ways(graph, edge.to, ends):
            yield (start, *rest)


def covering_by_definition(graph: Graph, members: Collection[str]) -> tuple[set[str], set[tuple[str, str]]]:
    """Definition 5.4: the members, and all operators and edges on a path between two of them."""
    found = [way for start in members for way in ways(graph, start, members)]
    edges = {edge for way in found for edge in pairwise(way)}
    return set(members) | {name for way in found for name in way}, edges


def is_unique(graph: Graph, name: str) -> bool:
    """Whether it emits one tuple of a transaction: it says so, and not each of its workers gets all tuples."""
    fed = any(edge.partitioning is Partitioning.BROADCAST for edge in graph.in_edges(name))
    return graph.operator(name).unique_per_transaction and not fed


def may_part(graph: Graph, parting: str, first: str, second: str) -> bool:
    """Whether one tuple at ``parting`` may cause a tuple to ``first`` and another one to ``second``."""
    operator = graph.operator(parting)
    many = multiplies(operator)
    if first != second:
        return many
    [edge] = [edge for edge in graph.out_edges(parting) if edge.to == first]
    is_copied = edge.partitioning is Partitioning.BROADCAST
    return is_copied or (many and not operator.edgewise_one_to_one and not is_unique(graph, parting))


def partings(graph: Graph, targets: Collection[str]) -> Iterator[tuple[Way, Way, int]]:
    """Pairs of ways to targets that two tuples of one transaction may take, and where they part."""
    found = [way for source in graph.sources for way in ways(graph, source, targets)]
    for one, other in combinations_with_replacement(found, 2):
        for place in range(min(len(one), len(other)) - 1):
            if one[: place + 1] != other[: place + 1]:
                break
            emitting = set(one[place + 1 : -1]) & set(other[place + 1 : -1])
            if may_part(graph, one[place], one[place + 1], other[place + 1]) and not any(
                is_unique(graph, name) for name in emitting
            ):
                yield one, other, place


def is_synchronised(graph: Graph, targets: Collection[str], parts: Collection[Collection[str]]) -> bool:
    """Whether markers inside these parts, each from its heads, order every pair of target operations.

    A tuple is before or after the change from the moment it enters a part, and markers keep what derives from it on
    the same side while it stays inside. So each way must stay in its part from its entry on; and two tuples that part
    before they enter any are not ordered.
    """
    part_of = {name: number for number, part in enumerate(parts) for name in part}

    def entry(way: Way) -> int:
        return next(place for place, name in enumerate(way) if name in part_of)

    for way in (way for source in graph.sources for way in ways(graph, source, targets)):
        if len({part_of.get(name) for name in way[entry(way) :]}) > 1:
            return False
    return all(entry(one) <= place for one, _, place in partings(graph, targets))


def with_copies_shown(graph: Graph) -> tuple[Graph, dict[str, str]]:
    """The graph with a one-to-many operator on each broadcast edge (section 7.2), and the tail behind each of them."""
    operators = [replace(one, unique_per_transaction=is_unique(graph, one.name)) for one in graph.operators]
    edges, tails = [], {}
    for edge in graph.edges:
        if edge.partitioning is Partitioning.BROADCAST:
            copy = f"copy({edge.source}>{edge.to})"
            tails[copy] = edge.source
            operators.append(Operator(copy, Emits.ONE_TO_MANY))
            edges += [Edge(edge.source, copy), Edge(copy, edge.to)]
        else:
            edges.append(edge)
    return Graph(graph.name, tuple(operators), tuple(edges)), tails


def multiplies(operator: Operator) -> bool:
    """Whether its type lets it emit several tuples for one."""
    return operator.emits is Emits.ONE_TO_MANY or operator.edgewise_one_to_one


def rule_1(graph: Graph, operator: str, targets: Collection[str]) -> bool:
    """Edge-wise: at most one tuple on an out-edge, and one out-edge that leads to targets."""
    leading = [edge for edge in graph.out_edges(operator) if [*ways(graph, edge.to, targets)]]
    kind = graph.operator(operator)
    return (kind.edgewise_one_to_one or is_unique(graph, operator)) and len(leading) == 1


def rule_2(graph: Graph, operator: str, targets: Collection[str]) -> bool:
    """Corrected uniqueness: one same unique operator strictly inside every way to every target."""
    inside = [set(way[1:-1]) for way in ways(graph, operator, targets) if len(way) > 1]
    common = set.intersection(*inside) - set(targets)
    return any(is_unique(graph, name) for name in common)


def printed_rule_2(graph: Graph, operator: str, target: str) -> bool:
    """Uniqueness as printed: on each way to this target, some unique operator."""
    return all(
        any(is_unique(graph, name) for name in way[1:-1])
        for way in ways(graph, operator, {target})
    )


def members_by_target(graph: Graph, targets: Collection[str], pruning: bool = True) -> set[str]:
    """Algorithm 4, literally: a copy of the ancestor set for each target, pruned; its earliest; the union of all."""
    shown, tails = with_copies_shown(graph)
    members = set(targets)
    for target in targets:
        above = {name for name in shown if name != target and [*ways(shown, name, {target})]}
        kept = {name for name in above if multiplies(shown.operator(name))}
        if pruning:
            kept = {name for name in kept if not rule_1(shown, name, targets) and not rule_2(shown, name, targets)}
        members |= {name for name in kept if not any(any(ways(shown, other, {name})) for other in kept - {name})}
    return {tails.get(name, name) for name in members}
