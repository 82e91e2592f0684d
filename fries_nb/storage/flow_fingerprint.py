"""The fingerprint of a dataflow in a checkpoint, and the differences of another dataflow from it, in words.

State belongs to operators by name and to their workers by the hash of a key. So a dataflow *conflicts* with a
checkpoint if an operator that both have is of another kind, has another key, or is a sink with another target, or if an
operator that keeps a state without a key has another number of workers. Functions, and other numbers of workers, may
differ. So may the *shape*, which is what operators and edges there are: see ``other_shape``.

>>> from fries_nb.dataflow.graph import Edge, Graph, Kind, Operator
>>> graph = Graph("w1", (Operator("Src"), Operator("FD", workers=2)), (Edge("Src", "FD"),))
>>> flow = flow_of(graph, run="a1")
>>> difference(flow, Graph("w1", (Operator("Src"), Operator("FD", key=("c",))), (Edge("Src", "FD"),)))
"of flow 'w1' with operator FD: map; this one has FD: map by c"
>>> difference(flow, Graph("w1", (Operator("Src"), Operator("FD", workers=3)), (Edge("Src", "FD"),)))
''
>>> longer = Graph("w1", (*graph.operators, Operator("Rule")), (*graph.edges, Edge("FD", "Rule")))
>>> conflict(flow, longer), difference(flow, longer)
('', "of flow 'w1' with operator Rule: nothing; this one has Rule: map")
>>> shape_of(flow, longer).added
('Rule',)
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import msgspec

from fries_nb.dataflow.endpoints import CatalogTable, DeltaTable, Memory, OwnSink, OwnSource, ParquetFiles, described
from fries_nb.dataflow.graph import Edge, Graph, Operator
from fries_nb.dataflow.stream_endpoints import Kafka
from fries_nb.operators.state import keeps_state
from fries_nb.storage.durable import absolute

FORMAT = 4
"""Version of the format of all files of a checkpoint; other versions cannot be read."""


class FlowFingerprint(msgspec.Struct, frozen=True):
    """The shape of a dataflow.

    Attributes:
        since: operator that was added by a resume to the number of the last decision before; those up to it concern
            an earlier operator of its name, if any.
        removed: those of ``operators`` that the dataflow has not any more, and of which a checkpoint may hold a
            state.
    """

    format: int  # version of the file format
    flow: str  # name of the dataflow
    run: str  # id of the run, unchanged when it is resumed
    operators: dict[str, str]  # name to kind, key and target, as text
    edges: tuple[str, ...]  # the edges as text, in order of declaration
    workers: dict[str, int]  # operator to its number of workers
    since: dict[str, int] = {}
    removed: tuple[str, ...] = ()


@dataclass(frozen=True)
class ShapeDifference:
    """How the shape of a dataflow differs from that of a fingerprint.

    Attributes:
        edges_added: edges that only the dataflow has, as (from, to); another partitioning makes another edge.
    """

    added: tuple[str, ...]  # operators that only the dataflow has
    removed: tuple[str, ...]  # operators that only the fingerprint has
    edges_added: tuple[tuple[str, str], ...]
    edges_removed: tuple[tuple[str, str], ...]  # edges that only the fingerprint has

    def __bool__(self) -> bool:
        """Whether they differ at all."""
        return bool(self.added or self.removed or self.edges_added or self.edges_removed)


def shape_of(flow: FlowFingerprint, graph: Graph) -> ShapeDifference:
    """How the shape of a graph differs from that of a fingerprint."""
    own = flow_of(graph, flow.run)
    return ShapeDifference(
        tuple(name for name in own.operators if name not in flow.operators),
        tuple(name for name in flow.operators if name not in own.operators),
        tuple(_ends(edge, own.operators) for edge in own.edges if edge not in flow.edges),
        tuple(_ends(edge, flow.operators) for edge in flow.edges if edge not in own.edges),
    )


def edges_of(flow: FlowFingerprint) -> tuple[tuple[str, str], ...]:
    """The edges of a fingerprint, as (from, to)."""
    return tuple(_ends(edge, flow.operators) for edge in flow.edges)


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


def conflict(flow: FlowFingerprint, graph: Graph) -> str:
    """Why a graph does not fit the fingerprint even in another shape, as the end of a sentence; empty if it fits."""
    if flow.flow != graph.name:
        return f"of flow {flow.flow!r}; expected {graph.name!r}"
    own = flow_of(graph, flow.run)
    for name, theirs in flow.operators.items():
        if name in own.operators and theirs != (ours := own.operators[name]):
            return _other_operator(flow, name, theirs, ours)
    for operator in graph.operators:
        then = flow.workers.get(operator.name, operator.workers)
        if operator.workers != then and (why := _why_fixed(operator)):
            theirs = f"{then} workers of {operator.name}, {why}"
            return f"of flow {flow.flow!r} with {theirs}; this one has {operator.workers}"
    return ""


def difference(flow: FlowFingerprint, graph: Graph) -> str:
    """The difference of a graph from the fingerprint, as the end of a sentence; empty if there is none.

    Functions do not count, nor numbers of workers that may differ.
    """
    if other := conflict(flow, graph):
        return other
    own = flow_of(graph, flow.run)
    for name in {**flow.operators, **own.operators}:
        theirs, ours = flow.operators.get(name, "nothing"), own.operators.get(name, "nothing")
        if theirs != ours:
            return _other_operator(flow, name, theirs, ours)
    for edge in [*flow.edges, *own.edges]:
        if (edge in flow.edges) != (edge in own.edges):
            whose = "which this one has not" if edge in flow.edges else "which was not there"
            return f"of flow {flow.flow!r}, but for the edge {edge}, {whose}"
    return ""


def _other_operator(flow: FlowFingerprint, name: str, theirs: str, ours: str) -> str:
    return f"of flow {flow.flow!r} with operator {name}: {theirs}; this one has {name}: {ours}"


def _ends(edge: str, operators: Iterable[str]) -> tuple[str, str]:
    """The ends of an edge that ``_edge`` has made, between two of these operators, whose names may hold an arrow."""
    return next((a, b) for a in operators for b in operators if edge.startswith(f"{a} -> {b} ("))


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
