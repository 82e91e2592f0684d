"""The steps of a plan: messages leave the controller, operators take them, and markers pass along edges.

An operator is reached by a marker when it has come on all of its inputs inside the marker's scope, except those of
feedback edges, on which a loop's head does not wait for it. Among the operators that can be reached next, the one with
the earliest known time is first; an operator without a time comes as early as its inputs allow.

>>> from fries_nb.dataflow.graph import Edge, Operator
>>> from fries_nb.planning.schedulers import schedule
>>> edges = (Edge("S", "A"), Edge("S", "B"), Edge("A", "J"), Edge("B", "J"))
>>> graph = Graph("diamond", tuple(map(Operator, "SABJ")), edges)
>>> for step in marker_steps(graph, schedule("fries", graph, ["A", "B", "J"]), {"A": 9.0, "B": 2.0, "J": 9.5}):
...     print(step.kind, " ".join(step.operators), step.edges)
sent A B ()
reached B ()
reached A ()
reached J (('A', 'J'), ('B', 'J'))
completed A B J ()
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import partial

from fries_nb.dataflow.graph import Edge, Graph
from fries_nb.planning.schedulers import Plan, Stage, StageAction

Ends = tuple[str, str]


class MarkerStepKind(StrEnum):
    """What happens in a step."""

    SENT = "sent"
    """Messages leave the controller for these operators."""
    REACHED = "reached"
    """The message (if there are no edges) or the marker has reached the operator."""
    RETURNED = "returned"
    """The marker comes back to the head of a loop, which it has passed before."""
    COMPLETED = "completed"
    """The stage has ended."""


@dataclass(frozen=True, slots=True)
class MarkerStep:
    """A step of a plan.

    Attributes:
        kind: what happens.
        does: the action of the stage.
        operators: where it happens.
        edges: the edges that the marker travels in this step.
    """

    kind: MarkerStepKind
    does: StageAction
    operators: tuple[str, ...]
    edges: tuple[Ends, ...] = ()


def marker_steps(graph: Graph, plan: Plan, times: Mapping[str, float]) -> Iterator[MarkerStep]:
    """The steps of a plan, stage by stage; each edge inside a marker's scope is travelled once.

    Returns:
        The steps, in an order in which they can have happened.
    """
    for stage in plan.stages:
        heads = tuple(dict.fromkeys(send.operator for send in stage.sends if send.operator in graph))
        yield MarkerStep(MarkerStepKind.SENT, stage.does, heads)
        is_timed = stage.does in (StageAction.SWITCH, StageAction.TAG)
        yield from _reached(graph, stage, times if is_timed else {})
        awaited = tuple(name for name in graph.order if name in stage.awaits)
        yield MarkerStep(MarkerStepKind.COMPLETED, stage.does, awaited)


def _reached(graph: Graph, stage: Stage, times: Mapping[str, float]) -> Iterator[MarkerStep]:
    """The operators in the scopes of a stage, in the order in which its markers reach them."""
    places = {name: place for place, name in enumerate(graph.order)}
    scopes = list(dict.fromkeys(send.scope for send in stage.sends))
    waits: dict[tuple[int, str], int] = {}
    ready: list[tuple[float, int, int, str]] = []
    inputs = partial(_inputs, graph, stage)
    for number, scope in enumerate(scopes):
        for name in (name for name in graph.order if name in scope):
            waits[number, name] = len(inputs(name, scope))
            if not waits[number, name]:
                heapq.heappush(ready, (times.get(name, 0.0), places[name], number, name))
    while ready:
        at, _, number, name = heapq.heappop(ready)
        scope = scopes[number]
        yield MarkerStep(MarkerStepKind.REACHED, stage.does, (name,), inputs(name, scope))
        for edge in graph.out_edges(name):
            if edge.to not in scope or not _is_along(stage, edge):
                continue
            if edge.feedback:
                yield MarkerStep(MarkerStepKind.RETURNED, stage.does, (edge.to,), ((name, edge.to),))
                continue
            waits[number, edge.to] -= 1
            if not waits[number, edge.to]:
                heapq.heappush(ready, (times.get(edge.to, at), places[edge.to], number, edge.to))


def _inputs(graph: Graph, stage: Stage, name: str, scope: frozenset[str]) -> tuple[Ends, ...]:
    """The forward edges into an operator on which markers come from inside a scope."""
    inside = (edge for edge in graph.in_edges(name) if edge.source in scope and not edge.feedback)
    return tuple((edge.source, name) for edge in inside if _is_along(stage, edge))


def _is_along(stage: Stage, edge: Edge) -> bool:
    return stage.along is None or (edge.source, edge.to) in stage.along
