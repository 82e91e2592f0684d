"""The graph over which times travel, derived from a dataflow.

>>> from fries_nb.dataflow.windowing import EventTime
>>> from fries_nb.dataflow.graph import Edge, Graph, Kind, Operator
>>> source = Operator("Src", kind=Kind.SOURCE, time=EventTime("at"))
>>> graph = Graph("one", (source, Operator("Out", kind=Kind.SINK)), (Edge("Src", "Out"),))
>>> is_tracked(graph), [str(location) for location in progress_graph(graph).locations]
(True, ['Src', 'Out', 'Src->Out'])
>>> listeners(graph), audience(graph)
(('Out',), {})
"""

from __future__ import annotations

import networkx as nx

from fries_nb.dataflow.graph import Graph
from fries_nb.dataflow.operators import is_timed
from fries_nb.progress.progress_graph import FlowEdge, GrownGraph, ProgressGraph


def is_tracked(graph: Graph) -> bool:
    """Whether progress is tracked: a source has times, or there is a loop. Other dataflows do not pay for it."""
    return any(operator.time is not None or operator.within.level for operator in graph.operators)


def progress_of(graph: Graph) -> ProgressGraph | None:
    """How workers learn what can still arrive; ``None`` if nothing in the dataflow needs it."""
    return progress_graph(graph) if is_tracked(graph) else None


def progress_graph(graph: Graph) -> ProgressGraph:
    """The operators with the loops around them, and the edges."""
    loops = {operator.name: operator.within.loops for operator in graph.operators}
    edges = (FlowEdge(edge.source, edge.to, edge.branch, edge.feedback) for edge in graph.edges)
    return (GrownGraph if graph.on_cycles else ProgressGraph)(loops, tuple(edges))


def listeners(graph: Graph) -> tuple[str, ...]:
    """The operators whose frontiers are tracked: sinks, since each location leads to one, and timed operators."""
    return tuple(operator.name for operator in graph.operators if operator.traits.is_sink or is_timed(operator))


def audience(graph: Graph) -> dict[str, tuple[str, ...]]:
    """Listener to the operators that are notified: a timed operator itself, and sources that wait for sinks.

    A source with ``ahead`` waits for the sinks that it leads to.
    """
    told: dict[str, list[str]] = {}
    for operator in graph.operators:
        if is_timed(operator):
            told.setdefault(operator.name, []).append(operator.name)
        if operator.time is not None and operator.time.ahead is not None:
            for sink in sorted(nx.descendants(graph.digraph, operator.name) & set(graph.sinks)):
                told.setdefault(sink, []).append(operator.name)
    return {listener: tuple(names) for listener, names in told.items()}
