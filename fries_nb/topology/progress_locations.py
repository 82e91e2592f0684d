"""The graph over which times travel, derived from a dataflow.

>>> from fries_nb.dataflow.event_time import EventTime
>>> from fries_nb.dataflow.graph import Edge, Graph, Kind, Operator
>>> source = Operator("Src", kind=Kind.SOURCE, time=EventTime("at"))
>>> graph = Graph("one", (source, Operator("Out", kind=Kind.SINK)), (Edge("Src", "Out"),))
>>> is_tracked(graph), [str(location) for location in progress_graph(graph).locations]
(True, ['Src', 'Out', 'Src->Out'])
"""

from __future__ import annotations

from fries_nb.dataflow.graph import Graph
from fries_nb.progress.progress_graph import FlowEdge, ProgressGraph


def is_tracked(graph: Graph) -> bool:
    """Whether progress is tracked: a source has times, or there is a loop. Other dataflows do not pay for it."""
    return any(operator.time is not None or operator.within.level for operator in graph.operators)


def progress_graph(graph: Graph) -> ProgressGraph:
    """The operators with the loops around them, and the edges."""
    loops = {operator.name: operator.within.loops for operator in graph.operators}
    edges = (FlowEdge(edge.source, edge.to, edge.branch, edge.feedback) for edge in graph.edges)
    return ProgressGraph(loops, tuple(edges))
