"""The dataflow with a shadow: copies of operators that get the same rows as these, and a comparison of both outputs.

The component of a change, its targets and what lies between them, is copied. What feeds it from outside feeds the
copies as well, by edges on which rows may be left out; what leaves it comes to a comparison, from the operator and from
its copy, and goes nowhere from there. So nothing depends on a shadow.

>>> names = ("S", "FM", "MC", "out")
>>> flow = Graph("fraud", tuple(map(Operator, names)), tuple(map(Edge, names, names[1:])))
>>> after = with_shadow(flow, {"FM": None, "MC": None}, ShadowRole())
>>> [f"{edge.source}->{edge.to}" for edge in after.edges[3:]]
['S->FM~shadow', 'FM~shadow->MC~shadow', 'MC->MC~comparison', 'MC~shadow->MC~comparison']
>>> without(after, ["FM"]) == without_shadows(after) == flow
True
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any

from fries_nb.dataflow.graph import LEFT_OUT, Edge, Graph, Operator, Partitioning, ShadowRole, without_shadows
from fries_nb.dataflow.traits import Holds, Kind
from fries_nb.errors import PlanError
from fries_nb.planning.covering import covered
from fries_nb.protocol.progress_locations import is_tracked


def copy_of(operator: str) -> str:
    """The name of the copy of an operator."""
    return f"{operator}~shadow"


def comparison_of(operator: str) -> str:
    """The name of the comparison of the outputs of an operator and its copy."""
    return f"{operator}~comparison"


def component_of(graph: Graph, targets: Collection[str]) -> list[str]:
    """The operators that a shadow of these copies, in order."""
    inside = covered(without_shadows(graph), frozenset(targets))
    return [name for name in graph.order if name in inside]


def with_shadow(graph: Graph, functions: Mapping[str, Any], role: ShadowRole) -> Graph:
    """The dataflow with a shadow of these operators.

    Args:
        graph: the dataflow.
        functions: target to the function of its copy; what others of the component run.
        role: the share and the budget of the shadow.
    """
    inside = component_of(graph, functions)
    copies = {name: copy_of(name) for name in inside}
    operators = [_copied(graph.operator(name), functions, role) for name in inside]
    edges = [
        replace(edge, source=copies.get(edge.source, edge.source), to=copies[edge.to])
        for edge in graph.edges
        if edge.to in copies
    ]
    for tail in _tails(graph, inside):
        to = comparison_of(tail)
        operators.append(Operator(to, kind=Kind.COMPARISON, shadow=replace(role, of=""), chain=False))
        edges += [Edge(source, to, Partitioning.REBALANCE) for source in (tail, copies[tail])]
    return replace(graph, operators=(*graph.operators, *operators), edges=(*graph.edges, *edges))


def _copied(operator: Operator, functions: Mapping[str, Any], role: ShadowRole) -> Operator:
    name = operator.name
    function = functions.get(name, operator.function)
    role = replace(role, of=name)
    return replace(operator, name=copy_of(name), function=function, on_error=LEFT_OUT, chain=False, shadow=role)


def _tails(graph: Graph, inside: Collection[str]) -> list[str]:
    """The operators of a component from which rows leave it."""
    known = without_shadows(graph)
    return [name for name in inside if any(edge.to not in inside for edge in known.out_edges(name))]


def without(graph: Graph, inside: Iterable[str]) -> Graph:
    """The dataflow without the shadow of the component that has these operators, and the comparisons behind it."""
    gone = {copy_of(name) for name in component_around(graph, inside)}
    gone |= {edge.to for edge in graph.edges if edge.source in gone}
    operators = tuple(one for one in graph.operators if one.name not in gone)
    return replace(graph, operators=operators, edges=tuple(edge for edge in graph.edges if edge.to not in gone))


def component_around(graph: Graph, inside: Iterable[str]) -> set[str]:
    """The operators of which the shadow of some of them has copies."""
    found, ahead = set[str](), [copy_of(name) for name in inside]
    while ahead:
        name = ahead.pop()
        role = graph.operator(name).shadow
        if role is not None and role.of and role.of not in found:
            found.add(role.of)
            ahead += [*graph.successors(name), *graph.predecessors(name)]
    return found


def refuse_shadow(graph: Graph, targets: Collection[str]) -> None:
    """Check that these operators can have a shadow.

    Raises:
        PlanError: one is a source or a sink, is in a loop, joins a table, awaits, or has a shadow; the dataflow has
            times; or one from which rows leave routes them to several streams.
        DataflowError: no such operator.
    """
    if is_tracked(graph):
        raise PlanError("a dataflow with times, or with a loop, has no shadows in this version")
    for name in targets:
        if (operator := graph.operator(name)).shadow is not None:
            raise PlanError(f"{name} is part of a shadow; expected an operator that has none yet")
        if not operator.traits.runs_user_code:
            raise PlanError(f"{name} ({operator.kind}) has no shadow; expected operators that run a function of yours")
    inside = component_of(graph, targets)
    for name in inside:
        operator = graph.operator(name)
        if copy_of(name) in graph:
            raise PlanError(f"{name} has a shadow already; expected its promote() or drop() before another one")
        if operator.blocking or operator.traits.holds is Holds.TABLE:
            raise PlanError(f"{name} ({operator.kind}) is between the operators; a shadow of it is not made yet")
        if operator.awaiting is not None:
            words = "its service would be asked twice for each row; a shadow of coroutines is not made yet"
            raise PlanError(f"{name} awaits a service, and {words}")
    for name in _tails(graph, inside):
        if graph.operator(name).branches > 1:
            words = "expected what follows it among the operators of the shadow"
            raise PlanError(f"{name} routes rows to several streams, whose rows are not compared; {words}")
