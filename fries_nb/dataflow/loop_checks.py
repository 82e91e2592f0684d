"""The laws of loops in a graph, however it was made: by the builder, or from JSON.

Rows enter a loop at its head and come back to it by feedback edges; they may leave it anywhere. With these laws a loop
can be treated as one operator (see ``dataflow.loops``): a cycle without feedback edges stays one.

>>> from fries_nb.dataflow.graph import Edge, Graph, Kind, Operator
>>> from fries_nb.dataflow.scopes import ROOT
>>> loop = ROOT.nest("L")
>>> operators = Operator("S"), Operator("L", kind=Kind.LOOP, within=loop), Operator("B", within=loop)
>>> edges = Edge("S", "L"), Edge("L", "B"), Edge("B", "L", feedback=True)
>>> Graph("round", operators, edges).order
('S', 'L', 'B')
>>> Graph("round", operators, (*edges[:2], Edge("B", "L")))
Traceback (most recent call last):
fries_nb.errors.DataflowError: edge B -> L comes back to the head of loop 'L'; expected it as a feedback edge
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from fries_nb.errors import DataflowError, unknown

if TYPE_CHECKING:
    from fries_nb.dataflow.graph import Edge, Operator


def check_loops(operators: Mapping[str, Operator], edges: Collection[Edge]) -> None:
    """Refuse a graph whose loops are not closed in themselves.

    Args:
        operators: operators by name.
        edges: edges between them.

    Raises:
        DataflowError: an operator is in a loop that does not exist, blocks there, or has no input there; a head is not
            in its own loop; a feedback edge does not end at the head of a loop around it; or another edge enters a loop
            elsewhere than at its head.
    """
    inside = [one for one in operators.values() if one.within.level or one.traits.heads_loop]
    if not inside and not any(edge.feedback for edge in edges):
        return
    for operator in inside:
        _check_operator(operator, operators)
    for edge in edges:
        _check_edge(edge, operators[edge.source], operators[edge.to])
    fed = {edge.to for edge in edges}
    for operator in inside:
        if not operator.traits.heads_loop and operator.name not in fed:
            raise DataflowError(
                f"operator {operator.name!r} is in {operator.within.described}, and has no input there; expected rows "
                "to come from the loop's head"
            )


def _check_operator(operator: Operator, operators: Mapping[str, Operator]) -> None:
    within = operator.within
    if operator.traits.heads_loop:
        if within.loops[-1:] != (operator.name,):
            raise DataflowError(f"loop {operator.name!r} is in {within.described}; expected its head inside of itself")
        within = within.unnest()
    if within.level:
        loop = within.loops[-1]
        heads = [one.name for one in operators.values() if one.traits.heads_loop]
        if loop not in heads:
            raise DataflowError(f"operator {operator.name!r}: {unknown('loop', loop, heads)}")
        if operators[loop].within != within:
            raise DataflowError(
                f"operator {operator.name!r} is in {within.described}, but loop {loop!r} is "
                f"{operators[loop].within.described}; expected the same loops around both"
            )
    if operator.blocking:
        raise DataflowError(
            f"operator {operator.name!r} is blocking, in {operator.within.described}; it needs all of its input first, "
            "and more comes back; expected it behind the loop"
        )


def _check_edge(edge: Edge, source: Operator, to: Operator) -> None:
    shown = f"edge {edge.source} -> {edge.to}"
    is_head = to.traits.heads_loop
    is_around = to.within == source.within or to.within.is_outer_of(source.within)
    if edge.feedback:
        if not is_head or not is_around:
            raise DataflowError(
                f"feedback {shown} starts in {source.within.described}; expected it to end at the head of a loop around"
                f" {edge.source}"
            )
        return
    if is_head and is_around:
        raise DataflowError(f"{shown} comes back to the head of {to.within.described}; expected it as a feedback edge")
    entered = to.within.unnest() if is_head else to.within
    if entered != source.within and not entered.is_outer_of(source.within):
        raise DataflowError(
            f"{shown} goes from {source.within.described} into {entered.described}; expected rows to enter a loop at "
            "its head only"
        )
