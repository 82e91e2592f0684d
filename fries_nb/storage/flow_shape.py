"""The shape of a dataflow in a checkpoint: its fingerprint, and a dataflow of another shape that resumes it.

The fingerprint of a dataflow in a checkpoint, and the differences of another dataflow from it, in words.

State belongs to operators by name and to their workers by the hash of a key. So a dataflow *conflicts* with a
checkpoint if an operator that both have is of another kind, has another key, or is a sink with another target, or if an
operator that keeps a state without a key has another number of workers. Functions, and other numbers of workers, may
differ. So may the *shape*, which is what operators and edges there are: see below.

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

What a checkpoint holds for a dataflow of another shape: a run is resumed with operators or edges more, or less.

State belongs to operators by name, and a checkpoint holds no row that is on its way between two of them. So operators
that both shapes have go on with their states, added ones start empty, whatever the edges are. Refused is only what
could not be meant, or not be done:

    a removed operator that has a state       it would be lost, so it has to be named in ``drop``
    a new input into an ended operator        its state was not kept, since it was to get no more rows
    other edges at a loop in which rows were  these rows are in the checkpoint, and belong on an edge of the loop

Of the changes that were decided, those of removed operators count no more. If a later run has an operator of such a
name again, it is another one, to which earlier decisions do not apply (``FlowFingerprint.since``).

>>> from fries_nb.dataflow.graph import Edge, Graph, Operator
>>> from fries_nb.storage.flow_shape import flow_of
>>> def chain(*names):
...     return Graph("w1", tuple(map(Operator, names)), tuple(map(Edge, names, names[1:])))
>>> flow, record = flow_of(chain("S", "Old", "out"), "r1"), Checkpoint("r1", 1, 1, {}, ended=("S[0]",))
>>> refused(flow, chain("S", "New", "out"), record, ["Old"], [])
"its operator Old, which this one has not, has a state that would be lost; expected drop=['Old'], if that is meant"
>>> refused(flow, chain("S", "New", "out"), record, ["Old"], ["Old"])
>>> refused(flow, Graph("w1", chain("T", "S").operators, (Edge("T", "S"),)), record, [], [])
'S has ended in it, so it can get no new input from T; expected another name for an operator that begins anew'
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Mapping
from dataclasses import dataclass

import msgspec
import networkx as nx
from msgspec.structs import replace

from fries_nb.dataflow.endpoints import CatalogTable, DeltaTable, Memory, OwnSink, OwnSource, ParquetFiles, described
from fries_nb.dataflow.expiring import Expiring
from fries_nb.dataflow.graph import Edge, Graph, Operator
from fries_nb.dataflow.stream_endpoints import Kafka
from fries_nb.errors import CheckpointError, PlanError
from fries_nb.operators.state import has_state, keeps_state
from fries_nb.protocol.checkpoints import Checkpoint, CommittedChange
from fries_nb.storage.durable import absolute

FORMAT = 6
"""Version of the format of all files of a checkpoint; other versions cannot be read."""


class FlowFingerprint(msgspec.Struct, frozen=True):
    """The shape of a dataflow."""

    format: int  # version of the file format
    flow: str  # name of the dataflow
    run: str  # id of the run, unchanged when it is resumed
    operators: dict[str, str]  # name to kind, key and target, as text
    edges: tuple[str, ...]  # the edges as text, in order of declaration
    workers: dict[str, int]  # operator to its number of workers
    # operator that was added since the run began to the number of the last decision before; those up to it concern an
    # earlier operator of its name, if any
    since: dict[str, int] = {}
    # those of ``operators`` that the dataflow has not any more, and of which a checkpoint may hold a state
    removed: tuple[str, ...] = ()
    keys: dict[str, tuple[str, ...]] = {}  # operator to the columns of its key, if it has one
    with_state: tuple[str, ...] = ()  # the operators that kept a state when the run began, even if it was empty
    plans: dict[str, str] = {}  # source that a change has added to the file with its splits


@dataclass(frozen=True)
class ShapeDifference:
    """How the shape of a dataflow differs from that of a fingerprint."""

    added: tuple[str, ...]  # operators that only the dataflow has
    removed: tuple[str, ...]  # operators that only the fingerprint has
    # edges that only the dataflow has, as (from, to); another partitioning makes another edge
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
        keys={operator.name: operator.key for operator in graph.operators if operator.key},
        with_state=tuple(operator.name for operator in graph.operators if has_state(operator, operator.function)),
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
    """The difference of a graph from the fingerprint, as the end of a sentence; empty if there is none."""
    # Functions do not count, nor numbers of workers that may differ.
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
    ttl = " with ttl" if isinstance(operator.function, Expiring) else ""  # without, the times of keys are not known
    return f"{operator.kind}{by}{ttl}{_endpoint(operator.function, operator.traits.is_sink) if is_end else ''}"


def _why_fixed(operator: Operator) -> str:
    """Why an operator cannot be resumed with another number of workers; empty if it can."""
    if not operator.key and operator.function is not None and keeps_state(operator, operator.function):
        return "which keeps a state without a key, one a worker"
    return ""


def _endpoint(function: object, is_sink: bool) -> str:
    """The target of a sink as text; it must not change, since committed output stays in the old one."""
    # Of a topic the name, of the user's own source the class: the checkpoint has its splits. Other arguments may
    # change.
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


def refuse_other_targets(graph: Graph, removed: Iterable[Operator]) -> None:
    """Check that no operator has the name of one that a run has removed, and writes elsewhere.

    What the removed one has written since the last commit is committed by its name.

    Raises:
        PlanError: one does.
    """
    for gone in removed:
        if gone.name not in graph:
            continue
        before, after = (_target(one) for one in (gone, graph.operator(gone.name)))
        if before and after and before != after:
            words = f"wrote{before}, where the rest of its rows is still committed"
            raise PlanError(f"{gone.name} was removed from this run, and {words}; expected another name for a new one")


def _target(operator: Operator) -> str:
    """Where rows or dead letters of an operator are written, as text; empty if nowhere."""
    target = operator.function if operator.traits.is_sink else operator.on_error
    return "" if isinstance(target, str) else _endpoint(target, is_sink=True)


def check_drop(drop: object, graph: Graph) -> tuple[str, ...]:
    """The names in ``drop=``, none of which the dataflow has.

    Raises:
        CheckpointError: not a list of names, or the dataflow has one of them.
    """
    if isinstance(drop, str) or not isinstance(drop, Iterable):
        example = [drop] if isinstance(drop, str) else ["FM"]
        raise CheckpointError(f"drop={drop!r}; expected the names of operators in a list, as in drop={example!r}")
    names = tuple(drop)
    for name in names:
        if name in graph:
            words = "which this dataflow has, so it keeps its state; expected names of operators that it lacks"
            raise CheckpointError(f"drop={list(names)!r} names {name}, {words}")
    return names


def refused(
    flow: FlowFingerprint, graph: Graph, checkpoint: Checkpoint | None, with_state: Collection[str],
    drop: Collection[str],
) -> str | None:  # fmt: skip
    """Why a dataflow of another shape cannot go on from a checkpoint, as the end of a sentence; ``None`` if it can.

    Args:
        flow: the fingerprint of the dataflow that wrote it.
        graph: the dataflow that is to go on.
        checkpoint: the checkpoint; ``None`` if there was none yet.
        with_state: the removed operators that have a state in it.
        drop: those whose state may be lost.
    """
    shape = shape_of(flow, graph)
    if not shape or checkpoint is None:
        return None
    if lost := [name for name in shape.removed if name in with_state and name not in drop]:
        listed = ", ".join(lost)
        what = f"operator {listed}, which this one has not, has" if len(lost) == 1 else f"operators {listed} have"
        named = [*drop, *lost]
        return f"its {what} a state that would be lost; expected drop={named!r}, if that is meant"
    for source, to in shape.edges_added:
        if to in flow.operators and any(_had_ended(checkpoint, to)) and not all(_had_ended(checkpoint, source)):
            fresh = "expected another name for an operator that begins anew"
            return f"{to} has ended in it, so it can get no new input from {source}; {fresh}"
    for head in checkpoint.logged:
        around = _circle(edges_of(flow), head) | _circle(edges_of(flow_of(graph, flow.run)), head)
        if changed := sorted({name for ends in (*shape.edges_added, *shape.edges_removed) for name in ends} & around):
            return f"rows were going round its loop {head}; expected the same edges at {', '.join(changed)}"
    return None


def _had_ended(checkpoint: Checkpoint, operator: str) -> list[bool]:
    """Of each worker of an operator whether it had ended."""
    return [f"{operator}[{index}]" in checkpoint.ended for index in range(checkpoint.workers.get(operator, 1))]


def _circle(edges: Iterable[tuple[str, str]], head: str) -> set[str]:
    """The operators on circles through a loop's head."""
    digraph: nx.DiGraph[str] = nx.DiGraph(edges)
    if head not in digraph:
        return {head}
    below: set[str] = nx.descendants(digraph, head)
    return {head} | below.intersection(nx.ancestors(digraph, head))


def known(flow: FlowFingerprint, checkpoint: Checkpoint | None) -> FlowFingerprint:
    """The fingerprint without removed operators of which the checkpoint, if there is one, holds nothing any more."""
    held = {} if checkpoint is None else checkpoint.workers
    gone = {name for name in flow.removed if name not in held}
    return replace(
        flow,
        operators={name: text for name, text in flow.operators.items() if name not in gone},
        workers={name: count for name, count in flow.workers.items() if name not in gone},
        since={name: number for name, number in flow.since.items() if name not in gone},
        removed=tuple(name for name in flow.removed if name in held),
        keys={name: columns for name, columns in flow.keys.items() if name not in gone},
        with_state=tuple(name for name in flow.with_state if name not in gone),
        plans={name: file for name, file in flow.plans.items() if name not in gone},
    )


def next_flow(
    flow: FlowFingerprint, graph: Graph, checkpoint: Checkpoint | None, decisions: int
) -> FlowFingerprint:  # fmt: skip
    """The fingerprint of the dataflow that goes on from a checkpoint, after so many decisions."""
    return known(followed_by(flow, flow_of(graph, flow.run), decisions), checkpoint)


def followed_by(flow: FlowFingerprint, later: FlowFingerprint, decisions: int) -> FlowFingerprint:
    """The fingerprint of a dataflow that follows another one, after so many decisions.

    It has the removed operators, of which a checkpoint may hold a state. So as long as there is no newer checkpoint
    they may come back with it, and another attempt of the same dataflow has to name them again.
    """
    removed = tuple(name for name in flow.operators if name not in later.operators)
    fresh = {name: later.since.get(name, decisions) for name in later.operators if name not in flow.operators}
    since = flow.since | fresh | later.since
    return replace(
        later,
        operators=later.operators | {name: flow.operators[name] for name in removed},
        workers=later.workers | {name: flow.workers[name] for name in removed},
        since={name: since[name] for name in (*later.operators, *removed) if since.get(name)},
        removed=removed,
        keys=later.keys | {name: flow.keys[name] for name in removed if name in flow.keys},
        with_state=(*later.with_state, *(name for name in removed if name in flow.with_state)),
        plans=flow.plans | later.plans,
    )


def concerning(
    decided: Iterable[CommittedChange], operators: Container[str], since: Mapping[str, int]
) -> tuple[CommittedChange, ...]:
    """What of decided changes in effect concerns these operators; changes that concern none are left out.

    >>> first = CommittedChange("u1", "fries", (), {"FM": b"1", "Old": b"1"}, number=1)
    >>> back = CommittedChange("u1.back", "fries", (), {}, undoes="u1", number=2)
    >>> [change.change for change in concerning([first, back], ["FM"], {})]
    ['u1', 'u1.back']
    >>> concerning([first, back], ["FM"], {"FM": 2})
    ()
    """
    kept: dict[str, CommittedChange] = {}
    for change in decided:
        concerned = (*change.targets, *change.given)
        names = {name for name in concerned if name in operators and change.number > since.get(name, -1)}
        requeues = change.requeued and change.components[0][0] in operators
        if names or change.undoes in kept or change.shape or requeues:
            payloads = {name: payload for name, payload in change.payloads.items() if name in names}
            superseded = tuple(name for name in change.superseded if name in names)
            given = {name: states for name, states in change.given.items() if name in names}
            kept[change.change] = replace(change, payloads=payloads, superseded=superseded, given=given)
    return tuple(kept.values())
