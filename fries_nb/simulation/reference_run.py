"""The expected output of a random dataflow, computed in plain Python from its description (a ``DrawnFlow``).

It shares no code with the runtime. Rows record the operators that they passed, without versions, since those depend on
the interleaving.

>>> node = [Node("S", "source", ()), Node("M", "mark", (("S", 0),)), Node("out", "sink", (("M", 0),))]
>>> evaluate(node, {"S": [{"id": "S:0", "number": 0, "customer": 0, "items": [], "trail": ""}]}).at["out"][0]["trail"]
'M;'
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from fries_nb.simulation.drawn_flows import Node
from fries_nb.simulation.stamp_functions import branch_of, copies_of, elements_of, passes

Rows = list[dict[str, Any]]


NO_COPIES: Mapping[str, int] = {}
NO_POISON: Mapping[str, frozenset[int]] = {}


@dataclass(frozen=True)
class Reference:
    """The rows that each operator processes: ``at`` for all operators; and those that it fails on, ``poison``."""

    at: dict[str, Rows]
    poison: dict[str, Rows]


def evaluate(
    nodes: Iterable[Node],
    inputs: Mapping[str, Rows],
    copies: Mapping[str, int] = NO_COPIES,
    poison: Mapping[str, frozenset[int]] = NO_POISON,
) -> Reference:
    """Compute the rows that arrive at every operator.

    Args:
        nodes: the operators in topological order.
        inputs: source to its rows.
        copies: operator with a broadcast input to the number of copies that it receives of each row.
        poison: operator to the numbers of the rows on which it fails, and which it sets aside.
    """
    out: dict[tuple[str, int], Rows] = {}
    at: dict[str, Rows] = {}
    aside: dict[str, Rows] = {}
    for node in nodes:
        if node.does == "source":
            out[node.name, 0] = inputs[node.name]
            continue
        given = [out[place] * copies.get(node.name, 1) for place in node.inputs]
        if node.name in poison:
            bad = poison[node.name]
            aside[node.name] = [row for rows in given for row in rows if row["number"] in bad]
            given = [[row for row in rows if row["number"] not in bad] for rows in given]
        at[node.name] = [row for rows in given for row in rows]
        if node.does == "split":
            for branch in range(node.into):
                out[node.name, branch] = [
                    row for row in given[0] if branch_of(row["number"], node.salt, node.into) == branch
                ]
        else:
            out[node.name, 0] = _DOES[node.does](node, given)
    return Reference(at, aside)


def _stamped(node: Node, row: dict[str, Any], **columns: Any) -> dict[str, Any]:
    return row | {"trail": row["trail"] + node.name + ";"} | columns


def _mark(node: Node, given: list[Rows]) -> Rows:
    return [_stamped(node, row) for row in given[0]]


def _sieve(node: Node, given: list[Rows]) -> Rows:
    return [_stamped(node, row) for row in given[0] if passes(row["number"], node.salt)]


def _keep(node: Node, given: list[Rows]) -> Rows:
    return [row for row in given[0] if passes(row["number"], node.salt)]


def _many(node: Node, given: list[Rows]) -> Rows:
    return [
        _stamped(node, row, id=f"{row['id']}.{copy}")
        for row in given[0]
        for copy in range(copies_of(row["number"], node.salt))
    ]


def _unnest(node: Node, given: list[Rows]) -> Rows:
    return [row | {"items": element} for row in given[0] for element in row["items"]]


def _relabel(node: Node, given: list[Rows]) -> Rows:
    return [_stamped(node, row, id=f"{row['id']}/{row['items']}", items=elements_of(row["number"])) for row in given[0]]


def _self_join(node: Node, given: list[Rows]) -> Rows:
    right = {row["id"]: row for row in given[1]}
    return [row | {"trail_right": right[row["id"]]["trail"]} for row in given[0] if row["id"] in right]


def _join(node: Node, given: list[Rows]) -> Rows:
    return [_stamped(node, row, copy=copy) for row in given[0] for copy in range(copies_of(row["customer"], node.salt))]


def _label(node: Node, given: list[Rows]) -> Rows:
    return [_stamped(node, row, id=f"{row['id']}.{row['copy']}") for row in given[0]]


def _echo(node: Node, given: list[Rows]) -> Rows:
    return [_stamped(node, row) for row in given[0] for _ in range(2)]


def _dedup(node: Node, given: list[Rows]) -> Rows:
    return list({row["id"]: row for row in given[0]}.values())


def _fold(node: Node, given: list[Rows]) -> Rows:
    return [_stamped(node, row, trail=f"({row['trail']}|{row['trail_right']}){node.name};") for row in given[0]]


def _union(node: Node, given: list[Rows]) -> Rows:
    return [row for rows in given for row in rows]


_DOES: dict[str, Callable[[Node, list[Rows]], Rows]] = {
    "mark": _mark,
    "slices": _mark,
    "counter": _mark,
    "sieve": _sieve,
    "keep": _keep,
    "many": _many,
    "unnest": _unnest,
    "relabel": _relabel,
    "self_join": _self_join,
    "fold": _fold,
    "join": _join,
    "label": _label,
    "echo": _echo,
    "dedup": _dedup,
    "union": _union,
    "sink": _union,
}
