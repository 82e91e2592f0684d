"""The connected parts of a minimal covering sub-DAG: each is synchronised on its own, by markers from its heads.

Fries, section 5.3. A component's heads are its operators without an in-edge inside it; they get the FCM.

>>> [part] = components(nx.DiGraph([("J", "SP"), ("SP", "FMX")]), frozenset({"FMX"}))
>>> sorted(part.heads), sorted(part.targets), part.edges, part.longest_path
(['J'], ['FMX'], (('J', 'SP'), ('SP', 'FMX')), 2)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass

import networkx as nx

from fries_nb.planning.mcs import reached


@dataclass(frozen=True)
class Component:
    """A connected part of an MCS.

    Attributes:
        operators: its operators.
        heads: those without an in-edge inside the component.
        targets: those that are changed.
        edges: its edges as (from, to), in the order of declaration.
        longest_path: edges on its longest path; 0 for a single operator.
    """

    operators: frozenset[str]
    heads: frozenset[str]
    targets: frozenset[str]
    edges: tuple[tuple[str, str], ...]
    longest_path: int


def components(covering: nx.DiGraph[str], targets: Set[str]) -> tuple[Component, ...]:
    """The components of an MCS, in the order of their first operators, in O(V + E)."""
    neighbours = {name: [*covering.pred[name], *covering.succ[name]] for name in covering}
    part_of: dict[str, int] = {}
    parts: list[list[str]] = []
    for first in covering:
        if first not in part_of:
            part_of.update(dict.fromkeys(reached([first], neighbours), len(parts)))
            parts.append([])
        parts[part_of[first]].append(first)
    depths = _depths(covering)
    return tuple(_component(covering, operators, targets, depths) for operators in parts)


def _component(
    covering: nx.DiGraph[str], operators: Sequence[str], targets: Set[str], depths: Mapping[str, int]
) -> Component:
    return Component(
        operators=frozenset(operators),
        heads=frozenset(name for name in operators if not covering.pred[name]),
        targets=frozenset(name for name in operators if name in targets),
        edges=tuple((name, to) for name in operators for to in covering.succ[name]),
        longest_path=max(depths[name] for name in operators),
    )


def _depths(covering: nx.DiGraph[str]) -> dict[str, int]:
    """For each operator, the number of edges on the longest path that ends in it."""
    depths: dict[str, int] = {}
    for name in nx.topological_sort(covering):
        depths[name] = max((depths[before] + 1 for before in covering.pred[name]), default=0)
    return depths
