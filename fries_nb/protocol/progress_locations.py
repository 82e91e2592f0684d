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

from dataclasses import dataclass

import networkx as nx

from fries_nb.dataflow.graph import Graph
from fries_nb.dataflow.operators import is_timed
from fries_nb.errors import DataflowError
from fries_nb.progress.progress_graph import FlowEdge, ProgressGraph


def is_tracked(graph: Graph) -> bool:
    """Whether progress is tracked: a source has times, or there is a loop. Other dataflows do not pay for it."""
    return any(operator.time is not None or operator.within.level for operator in graph.operators)


@dataclass(frozen=True)
class Watermarks:
    """Times travel in-band instead of being tracked by tokens; only comparisons do so. See ``worker.watermarks``.

    Attributes:
        interval_ns: least time between two watermarks of a source's worker in nanoseconds; 0 for one for each batch.
    """

    interval_ns: int = 0


def progress_of(graph: Graph, watermarks: Watermarks | None = None) -> ProgressGraph | Watermarks | None:
    """How workers learn what can still arrive; ``None`` if nothing in the dataflow needs it.

    Args:
        graph: the dataflow.
        watermarks: how watermarks are made, if times travel in-band.

    Raises:
        DataflowError: watermarks cannot do what the dataflow asks for.
    """
    if not is_tracked(graph):
        return None
    if watermarks is None:
        return progress_graph(graph)
    for operator in graph.operators:
        if operator.within.level:
            raise DataflowError(f"{operator.name} is in a loop, and watermarks have no rounds; expected tokens")
        if operator.time is not None and operator.time.ahead is not None:
            raise DataflowError(f"{operator.name} has ahead=, and watermarks do not tell it how far the sinks are")
    return watermarks


def progress_graph(graph: Graph) -> ProgressGraph:
    """The operators with the loops around them, and the edges."""
    loops = {operator.name: operator.within.loops for operator in graph.operators}
    edges = (FlowEdge(edge.source, edge.to, edge.branch, edge.feedback) for edge in graph.edges)
    return ProgressGraph(loops, tuple(edges))


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
