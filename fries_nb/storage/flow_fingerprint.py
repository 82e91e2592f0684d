"""The fingerprint of a dataflow in a checkpoint, and the differences of another dataflow from it, in words.

State belongs to operators by name and to their workers by the hash of a key. So a dataflow fits a checkpoint if its
operators, their keys, its edges, and the targets of its sinks are the same. Functions may differ, and so may numbers of
workers, except where an operator keeps a state without a key.

>>> from fries_nb.dataflow.graph import Edge, Graph, Kind, Operator
>>> graph = Graph("w1", (Operator("Src"), Operator("FD", workers=2)), (Edge("Src", "FD"),))
>>> flow = flow_of(graph, run="a1")
>>> difference(flow, Graph("w1", (Operator("Src"), Operator("FD", key=("c",))), (Edge("Src", "FD"),)))
"of flow 'w1' with operator FD: map; this one has FD: map by c"
>>> difference(flow, Graph("w1", (Operator("Src"), Operator("FD", workers=3)), (Edge("Src", "FD"),)))
''
>>> difference(flow, graph)
''
"""

from __future__ import annotations

import msgspec

from fries_nb.dataflow.endpoints import CatalogTable, DeltaTable, Memory, OwnSink, OwnSource, ParquetFiles, described
from fries_nb.dataflow.graph import Edge, Graph, Operator
from fries_nb.dataflow.stream_endpoints import Kafka
from fries_nb.operators.state import keeps_state
from fries_nb.storage.locations import absolute

FORMAT = 4
"""Version of the format of all files of a checkpoint; other versions cannot be read."""


class FlowFingerprint(msgspec.Struct, frozen=True):
    """The shape of a dataflow.

    Attributes:
        format: version of the file format.
        flow: name of the dataflow.
        run: id of the run, unchanged when it is resumed.
        operators: name to kind, key and target, as text.
        edges: the edges as text, in order of declaration.
        workers: operator to its number of workers.
    """

    format: int
    flow: str
    run: str
    operators: dict[str, str]
    edges: tuple[str, ...]
    workers: dict[str, int]


def flow_of(graph: Graph, run: str) -> FlowFingerprint:
    """The fingerprint of a graph."""
    return FlowFingerprint(
        FORMAT,
        graph.name,
        run,
        {operator.name: _operator(operator) for operator in graph.operators},
        tuple(map(_edge, graph.edges)),
        {operator.name: operator.workers for operator in graph.operators},
    )


def difference(flow: FlowFingerprint, graph: Graph) -> str:
    """The difference of a graph from the fingerprint, as the end of a sentence; empty if it fits."""
    if flow.flow != graph.name:
        return f"of flow {flow.flow!r}; expected {graph.name!r}"
    own = flow_of(graph, flow.run)
    for name in {**flow.operators, **own.operators}:
        theirs, ours = flow.operators.get(name, "nothing"), own.operators.get(name, "nothing")
        if theirs != ours:
            return f"of flow {flow.flow!r} with operator {name}: {theirs}; this one has {name}: {ours}"
    for operator in graph.operators:
        then = flow.workers[operator.name]
        if operator.workers != then and (why := _why_fixed(operator)):
            theirs = f"{then} workers of {operator.name}, {why}"
            return f"of flow {flow.flow!r} with {theirs}; this one has {operator.workers}"
    for edge in [*flow.edges, *own.edges]:
        if (edge in flow.edges) != (edge in own.edges):
            whose = "which this one has not" if edge in flow.edges else "which was not there"
            return f"of flow {flow.flow!r}, but for the edge {edge}, {whose}"
    return ""


def _operator(operator: Operator) -> str:
    by = f" by {', '.join(operator.key)}" if operator.key else ""
    is_end = operator.traits.is_source or operator.traits.is_sink
    return f"{operator.kind}{by}{_endpoint(operator.function, operator.traits.is_sink) if is_end else ''}"


def _why_fixed(operator: Operator) -> str:
    """Why an operator cannot be resumed with another number of workers; empty if it can."""
    if not operator.key and operator.function is not None and keeps_state(operator, operator.function):
        return "which keeps a state without a key, one a worker"
    return ""


def _endpoint(function: object, is_sink: bool) -> str:
    """The target of a sink as text; it must not change, since committed output stays in the old one.

    Of a topic the name, of the user's own source the class: the checkpoint has its splits. Other arguments may change.
    """
    match function:
        case Memory():
            return " into memory"
        case ParquetFiles():
            return f" into {absolute(function.path)}"
        case DeltaTable():
            by = f" partitioned by {', '.join(function.partition_by)}" if function.partition_by else ""
            return f" into {absolute(function.path)}{by}"
        case CatalogTable() if is_sink:
            return f" into {function}"
        case Kafka():
            return f" with topic {function.topic}"
        case OwnSink():
            return f" into {described(function)}"
        case OwnSource():
            return f" by {type(function).__qualname__}"
    return ""


def _edge(edge: Edge) -> str:
    by = f" by {', '.join(edge.key)}" if edge.key else ""
    branch = f", branch {edge.branch}" if edge.branch else ""
    return f"{edge.source} -> {edge.to} ({edge.partitioning}{by}{branch})"
