"""The logical dataflow graph: operators and edges as immutable values.

Planning depends on the operator types only (``emits`` and so on); the runtime also uses ``kind`` (see ``traits``) and
``function``. A graph read from JSON has types but no functions, so it can be planned but not run (``check_runnable``).

>>> graph = Graph("w1", (Operator("Src"), Operator("FD", workers=2), Operator("Sink")),
...               (Edge("Src", "FD", Partitioning.HASH, ("CUSTOMER_ID",)), Edge("FD", "Sink")))
>>> [edge.to for edge in graph.out_edges("Src")]
['FD']
>>> graph.sources, graph.sinks
(('Src',), ('Sink',))

Scopes: the loops around an operator. A loop's head and body are inside of its scope.

>>> outer = ROOT.nest("L")
>>> inner = outer.nest("M")
>>> inner.level, str(inner), inner.unnest() == outer, inner.is_inner_of(outer), outer.is_outer_of(outer)
(2, 'L/M', True, True, False)

The scopes of a program are a tree, whose root is outside of all loops. Two loops in sequence have the same level, and
different scopes:

>>> ROOT.nest("A") == ROOT.nest("B")
False

The laws of loops in a graph, however it was made: by the builder, or from JSON.

Rows enter a loop at its head and come back to it by feedback edges; they may leave it anywhere. With these laws a loop
can be treated as one operator (see ``dataflow.loops``): a cycle without feedback edges stays one.

>>> from fries_nb.dataflow.graph import Edge, Graph, Kind, Operator
>>> from fries_nb.dataflow.graph import ROOT
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

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from heapq import heappop, heappush
from typing import Any

import networkx as nx

from fries_nb.dataflow.awaiting import Awaiting
from fries_nb.dataflow.traits import TRAITS, Emits, Holds, Kind, OperatorTraits
from fries_nb.dataflow.windowing import EventTime
from fries_nb.errors import DataflowError, unknown


@dataclass(frozen=True, slots=True)
class StreamScope:
    """The loops around a place in a dataflow, by name, outermost first (FLIP-15)."""

    loops: tuple[str, ...] = ()

    @property
    def level(self) -> int:
        """Number of loops."""
        return len(self.loops)

    def nest(self, loop: str) -> StreamScope:
        """The scope of a loop at this place."""
        return StreamScope((*self.loops, loop))

    def unnest(self) -> StreamScope:
        """The scope around the innermost loop."""
        if not self.loops:
            raise DataflowError("the root scope is in no loop, so nothing can be left from it")
        return StreamScope(self.loops[:-1])

    def is_inner_of(self, other: StreamScope) -> bool:
        """Whether it lies inside of another scope, from which it differs."""
        return self.level > other.level and self.loops[: other.level] == other.loops

    def is_outer_of(self, other: StreamScope) -> bool:
        """Whether another scope lies inside of it."""
        return other.is_inner_of(self)

    @property
    def described(self) -> str:
        """The scope in words, for messages.

        >>> ROOT.nest("L").nest("M").described, ROOT.described
        ("loop 'L/M'", 'the root scope')
        """
        return f"loop {str(self)!r}" if self.loops else str(self)

    def __str__(self) -> str:
        return "/".join(self.loops) or "the root scope"


ROOT = StreamScope()
"""Outside of all loops."""


__all__ = [
    "Edge", "Emits", "Graph", "Kind", "Operator", "Partitioning", "UnionGraph", "check_runnable", "ends_of", "union_of",
]  # fmt: skip


class Partitioning(StrEnum):
    """How the tuples of an edge are partitioned among the receiver's workers.

    ``FORWARD`` means worker i to worker i; between unequal numbers of workers it is the same as ``REBALANCE``.
    """

    FORWARD = "forward"
    HASH = "hash"
    REBALANCE = "rebalance"
    BROADCAST = "broadcast"


LEFT_OUT = "leave out"
"""The error policy of operators of a shadow: a row on which one fails is left out there, and counted."""


@dataclass(frozen=True, slots=True)
class ShadowRole:
    """The part of an operator in a shadow: operators that process the rows of others beside them.

    Attributes:
        of: the operator of which it is a copy; empty for the comparison of the outputs.
        bytes: the number of bytes of rows that may wait on each channel into the shadow; further rows are left out.
        share: the share of cohorts whose rows the shadow gets.
    """

    of: str = ""
    bytes: int = 1 << 20
    share: float = 1.0


@dataclass(frozen=True, slots=True)
class Operator:
    """A node of the graph."""

    name: str  # unique in the graph
    emits: Emits = Emits.ONE_TO_ONE  # one-to-one, or one-to-many; for the head of a loop, that of the loop as a whole
    # whether it may emit on several out-edges for one input tuple, but at most one tuple on each (a Replicate);
    # planning counts it as one-to-many
    edgewise_one_to_one: bool = False
    # whether it emits at most one tuple for each data transaction (a self-join on the source tuple's identity); a fact
    # about this operator in this dataflow, which the planner trusts
    unique_per_transaction: bool = False
    blocking: bool = False  # whether it needs all of its input before it emits (an aggregate, a sort)
    workers: int = 1  # number of parallel instances, at least 1
    kind: Kind = Kind.MAP  # how the runtime executes it
    # what it executes: the user's callable or object, or the description of a source or a sink; ``None`` in a graph
    # read from JSON, or if the kind needs none
    function: Any = field(default=None, compare=False, repr=False)
    key: tuple[str, ...] = ()  # names of the columns of its key, empty for none
    # number of outputs that it routes between; more than 1 only for a split, and for a loop's head that tells rows that
    # come back from those that enter (see ``dataflow.loops``)
    branches: int = 1
    # the error policy: ``fail``, ``pause``, ``LEFT_OUT``, or the description of a sink for dead letters
    on_error: Any = field(default="fail", compare=False)
    chain: bool = True  # whether it may share a worker with its neighbours
    awaiting: Awaiting | None = None  # how its calls overlap, if its function is a coroutine; ``None`` for others
    time: EventTime | None = None  # the event time of a source, if its rows have one
    # the column by which a source's rows are divided into cohorts, empty for their identities; ``None`` if no source of
    # the dataflow names one
    cohort: str | None = None
    within: StreamScope = ROOT  # the loops around it
    # whether every row of its first output begins a new transaction (a window without early rows); planning cuts these
    # edges
    begins_transactions: bool = False
    shadow: ShadowRole | None = None  # its part in a shadow, on whose rows nothing depends; ``None`` for others

    @property
    def traits(self) -> OperatorTraits:
        """The traits of its kind."""
        return TRAITS[self.kind]


@dataclass(frozen=True, slots=True)
class Edge:
    """A directed edge. ``key`` names the columns of a hash edge (empty in a graph read from JSON).

    ``branch`` is the index of the output, for edges that leave a split; ``feedback`` is true for an edge that closes a
    loop, at whose head it ends.
    """

    source: str
    to: str
    partitioning: Partitioning = Partitioning.FORWARD
    key: tuple[str, ...] = ()
    branch: int = 0
    feedback: bool = False


@dataclass(frozen=True)
class Graph:
    """A dataflow graph, with operators and edges in order of declaration; acyclic apart from loops' feedback edges."""

    name: str
    operators: tuple[Operator, ...]
    edges: tuple[Edge, ...]

    def __post_init__(self) -> None:
        _refuse_bad_operators(self.operators)
        _refuse_bad_edges(self.edges, self.by_name)
        check_loops(self.by_name, self.edges)
        self._refuse_cycle()

    def _refuse_cycle(self) -> None:
        if len(self.order) < len(self.operators):
            cycle = nx.find_cycle(nx.DiGraph([(edge.source, edge.to) for edge in self.edges if not edge.feedback]))
            path = " -> ".join([edge[0] for edge in cycle] + [cycle[0][0]])
            raise DataflowError(f"dataflow {self.name!r} has a cycle {path}; a cycle belongs inside a loop scope")

    @cached_property
    def by_name(self) -> dict[str, Operator]:
        """Operators by name."""
        return {operator.name: operator for operator in self.operators}

    @cached_property
    def order(self) -> tuple[str, ...]:
        """Operator names in topological order without feedback edges (Kahn's algorithm; without names on a cycle)."""
        waiting = {name: sum(not edge.feedback for edge in edges) for name, edges in self._in.items()}
        ready = [name for name, count in waiting.items() if count == 0]
        for name in ready:
            for edge in self._out[name]:
                if edge.feedback:
                    continue
                waiting[edge.to] -= 1
                if waiting[edge.to] == 0:
                    ready.append(edge.to)
        return tuple(ready)

    @cached_property
    def on_cycles(self) -> frozenset[str]:
        """The operators that are on a cycle, apart from loops: none, unless it is a ``UnionGraph``."""
        return frozenset()

    @cached_property
    def digraph(self) -> nx.DiGraph[str]:
        """The graph for networkx; nodes are operator names."""
        digraph: nx.DiGraph[str] = nx.DiGraph()
        digraph.add_nodes_from(operator.name for operator in self.operators)
        digraph.add_edges_from((edge.source, edge.to) for edge in self.edges)
        return digraph

    @cached_property
    def _out(self) -> dict[str, tuple[Edge, ...]]:
        return _grouped(self.by_name, self.edges, "source")

    @cached_property
    def _in(self) -> dict[str, tuple[Edge, ...]]:
        return _grouped(self.by_name, self.edges, "to")

    @property
    def sizes(self) -> dict[str, int]:
        """Operator to its number of workers."""
        return {operator.name: operator.workers for operator in self.operators}

    def operator(self, name: str) -> Operator:
        """The operator of that name."""
        if name not in self:
            raise DataflowError(unknown("operator", name, self.by_name))
        return self.by_name[name]

    def out_edges(self, name: str) -> tuple[Edge, ...]:
        """Edges that leave the operator."""
        return self._out[name]

    def in_edges(self, name: str) -> tuple[Edge, ...]:
        """Edges that enter the operator."""
        return self._in[name]

    def __iter__(self) -> Iterator[str]:
        """Operator names, in the order of declaration."""
        return iter(self.by_name)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name in self.by_name

    def successors(self, name: str) -> list[str]:
        """Names of the operators that this one feeds; compatible with networkx."""
        return [edge.to for edge in self._out[name]]

    def predecessors(self, name: str) -> list[str]:
        """Names of the operators that feed this one; compatible with networkx."""
        return [edge.source for edge in self._in[name]]

    @cached_property
    def sources(self) -> tuple[str, ...]:
        """Names of the operators without in-edges."""
        return tuple(operator.name for operator in self.operators if not self._in[operator.name])

    @cached_property
    def keyed(self) -> tuple[str, ...]:
        """Names of the operators that get rows by key, in order of their names."""
        return tuple(sorted({edge.to for edge in self.edges if edge.partitioning is Partitioning.HASH}))

    @cached_property
    def heads(self) -> tuple[str, ...]:
        """Names of the heads of loops: the operators at which feedback edges end."""
        return tuple(dict.fromkeys(edge.to for edge in self.edges if edge.feedback))

    @cached_property
    def sinks(self) -> tuple[str, ...]:
        """Names of the operators without out-edges."""
        return tuple(operator.name for operator in self.operators if not self._out[operator.name])


def ends_of(graph: Graph) -> set[tuple[str, str]]:
    """The edges as (from, to)."""
    return {(edge.source, edge.to) for edge in graph.edges}


def resized(graph: Graph, sizes: Mapping[str, int]) -> Graph:
    """The graph with these numbers of workers, and its own for operators that are not named."""
    if all(sizes.get(one.name, one.workers) == one.workers for one in graph.operators):
        return graph  # with what was derived from it
    operators = (replace(one, workers=sizes.get(one.name, one.workers)) for one in graph.operators)
    return replace(graph, operators=tuple(operators))


class UnionGraph(Graph):
    """All operators and edges of two dataflows, which has a cycle where operators change places.

    >>> operators = tuple(map(Operator, "SABZ"))
    >>> union = union_of(*(Graph("g", operators, tuple(map(Edge, way, way[1:]))) for way in ("SABZ", "SBAZ")))
    >>> union.order, sorted(union.on_cycles)
    (('S', 'A', 'B', 'Z'), ['A', 'B'])
    """

    def _refuse_cycle(self) -> None:
        """No row goes around: each takes edges of one of the two dataflows only."""

    @cached_property
    def on_cycles(self) -> frozenset[str]:
        """The operators that are on a cycle, since they change places with others."""
        if len(self._sorted) == len(self.by_name):
            return frozenset()
        parts = nx.strongly_connected_components(self._forward)
        return frozenset(name for part in parts if len(part) > 1 for name in part)

    @cached_property
    def order(self) -> tuple[str, ...]:
        """Operator names in topological order; those on a cycle next to each other, as in the dataflow before."""
        if len(self._sorted) == len(self.by_name):
            return self._sorted
        parts = nx.condensation(self._forward)
        place = {name: number for number, name in enumerate(self.by_name)}
        inside = {part: sorted(data["members"], key=place.__getitem__) for part, data in parts.nodes(data=True)}
        ordered = nx.lexicographical_topological_sort(parts, key=lambda part: place[inside[part][0]])
        return tuple(name for part in ordered for name in inside[part])

    @cached_property
    def _forward(self) -> nx.DiGraph[str]:
        """The graph for networkx, without feedback edges."""
        forward: nx.DiGraph[str] = nx.DiGraph()
        forward.add_nodes_from(self.by_name)
        forward.add_edges_from((edge.source, edge.to) for edge in self.edges if not edge.feedback)
        return forward

    @cached_property
    def _sorted(self) -> tuple[str, ...]:
        """The operators in topological order, the first declared first; without those on a cycle or below one."""
        place = {name: number for number, name in enumerate(self.by_name)}
        names, waiting, found = list(place), {name: self._forward.in_degree(name) for name in place}, list[str]()
        ready = [place[name] for name, count in waiting.items() if not count]
        while ready:
            found.append(names[heappop(ready)])
            for to in self._forward.successors(found[-1]):
                waiting[to] -= 1
                if not waiting[to]:
                    heappush(ready, place[to])
        return tuple(found)


def without_shadows(graph: Graph) -> Graph:
    """The graph without the operators of shadows, on which nothing depends."""
    gone = {one.name for one in graph.operators if one.shadow is not None}
    if not gone:
        return graph
    edges = (edge for edge in graph.edges if edge.to not in gone)  # what leaves a shadow is inside of it
    return replace(
        graph, operators=tuple(one for one in graph.operators if one.name not in gone), edges=tuple(edges)
    )


def union_of(before: Graph, after: Graph) -> UnionGraph:
    """All operators and edges of both graphs; those of both are as in the later one."""
    names = dict.fromkeys((*before.order, *after.order))
    operators = tuple((after if name in after else before).operator(name) for name in names)
    edges = {(edge.source, edge.to): edge for edge in (*before.edges, *after.edges)}
    return UnionGraph(after.name, operators, tuple(edges.values()))


def _grouped(names: Iterable[str], edges: tuple[Edge, ...], end: str) -> dict[str, tuple[Edge, ...]]:
    groups: dict[str, list[Edge]] = {name: [] for name in names}
    for edge in edges:
        groups[getattr(edge, end)].append(edge)
    return {name: tuple(group) for name, group in groups.items()}


def _refuse_bad_operators(operators: tuple[Operator, ...]) -> None:
    seen: set[str] = set()
    for operator in operators:
        if not isinstance(operator.name, str) or not operator.name:
            raise DataflowError(f"an operator's name is a non-empty string; got {operator.name!r}")
        if operator.name in seen:
            raise DataflowError(f"two operators are named {operator.name!r}; names are unique within a dataflow")
        if not isinstance(operator.workers, int) or isinstance(operator.workers, bool) or operator.workers < 1:
            raise DataflowError(f"operator {operator.name!r} has workers={operator.workers!r}; expected 1 or more")
        seen.add(operator.name)


def _refuse_bad_edges(edges: tuple[Edge, ...], operators: dict[str, Operator]) -> None:
    seen: set[tuple[str, str]] = set()
    for edge in edges:
        for end in (edge.source, edge.to):
            if end not in operators:
                raise DataflowError(f"edge {edge.source} -> {edge.to}: {unknown('operator', end, operators)}")
        if (edge.source, edge.to) in seen:
            raise DataflowError(f"two edges {edge.source} -> {edge.to}; put an operator on one of them")
        seen.add((edge.source, edge.to))


def check_runnable(graph: Graph) -> None:
    """Refuse a graph that cannot be run."""
    traits = [operator.traits for operator in graph.operators]
    for end, found, call in (
        ("source", any(trait.is_source for trait in traits), "flow.source(name, replay(...))"),
        ("sink", any(trait.is_sink for trait in traits), "stream.sink(name, memory())"),
    ):
        if not found:
            raise DataflowError(f"dataflow {graph.name!r} has no {end}; expected at least one, from {call}")
    for operator in graph.operators:
        if operator.function is None and operator.traits.holds is not Holds.NOTHING:
            raise DataflowError(
                f"operator {operator.name!r} has no function to run; a graph read from JSON can be planned but not run"
            )
        _check_fed(graph, operator)
        _check_consumed(graph, operator)


def _check_fed(graph: Graph, operator: Operator) -> None:
    if not operator.traits.is_source and not graph.in_edges(operator.name):
        raise DataflowError(f"operator {operator.name!r} has no input; expected it to follow a source")


def _check_consumed(graph: Graph, operator: Operator) -> None:
    if operator.traits.is_sink or operator.shadow is not None:
        return
    consumed = {edge.branch for edge in graph.out_edges(operator.name)}
    for branch in range(operator.branches):
        if branch not in consumed:
            stream = f"{operator.name}[{branch}]" if operator.branches > 1 else operator.name
            inside = f"; expected loop {operator.within.loops[-1]!r} to use it" if operator.within.level else ""
            raise DataflowError(
                f"nothing consumes {stream!r}, and its rows would be lost" + (inside or "; expected a sink behind it")
            )


def check_loops(operators: Mapping[str, Operator], edges: Collection[Edge]) -> None:
    """Refuse a graph whose loops are not closed in themselves."""
    inside = [operator for operator in operators.values() if operator.within.level or operator.traits.heads_loop]
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
        heads = [operator.name for operator in operators.values() if operator.traits.heads_loop]
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
