"""Random graphs with loops in loops and in sequence, and what a plan over them means: loops unrolled to rounds."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace
from itertools import product

import networkx as nx
from hypothesis import strategies as st

from fries_nb.dataflow import Edge, Emits, Graph, Kind, Operator
from fries_nb.dataflow.graph import ROOT, StreamScope

ROUNDS = 2


class _Growing:
    """A graph that is drawn scope by scope; the streams of a scope are the names of their operators."""

    def __init__(self, draw: st.DrawFn, most: int) -> None:
        self._draw, self._left = draw, most
        self.operators: dict[str, Operator] = {"S": Operator("S")}
        self.edges: dict[tuple[str, str], Edge] = {}

    def scope(self, scope: StreamScope, streams: list[str], quiet: bool) -> list[str]:
        """Operators and loops after these streams; returns the streams that were added."""
        added: list[str] = []
        while not added or (self._left > 0 and self._draw(st.integers(0, 3))):
            if self._left > 1 and scope.level < 2 and not self._draw(st.integers(0, 2)):
                added.append(self._loop(scope, streams + added, quiet))
            else:
                added.append(self._operator(scope, streams + added, quiet))
        return added

    def _operator(self, scope: StreamScope, streams: list[str], quiet: bool) -> str:
        self._left -= 1
        name = f"n{len(self.operators)}"
        emits = Emits.ONE_TO_ONE if quiet else self._draw(st.sampled_from([*Emits, Emits.ONE_TO_ONE]))
        edgewise, unique = (not quiet and not self._draw(st.integers(0, 3)) for _ in range(2))
        self.operators[name] = Operator(name, emits, edgewise, unique, within=scope)
        self._connect(streams, name)
        return name

    def _loop(self, scope: StreamScope, streams: list[str], quiet: bool) -> str:
        name = f"L{len(self.operators)}"
        one_to_one = quiet or not self._draw(st.integers(0, 2))
        emits = Emits.ONE_TO_ONE if one_to_one else Emits.ONE_TO_MANY
        inside = scope.nest(name)
        self.operators[name] = Operator(name, emits, kind=Kind.LOOP, within=inside)
        self._connect(streams, name)
        body = self.scope(inside, [name], one_to_one)
        self._connect(body, name, feedback=True)
        return self._draw(st.sampled_from(body))

    def _connect(self, streams: list[str], to: str, feedback: bool = False) -> None:
        for name in self._draw(st.lists(st.sampled_from(streams), min_size=1, max_size=2, unique=True)):
            self.edges[name, to] = Edge(name, to, feedback=feedback)


@st.composite
def loop_graphs(draw: st.DrawFn, most: int = 6) -> Graph:
    """Up to ``most`` operators besides heads, in up to two levels of loops; all is fed by one source.

    A loop that is declared one-to-one has one-to-one operators only, so that the declaration is true.
    """
    growing = _Growing(draw, most)
    growing.scope(ROOT, ["S"], quiet=False)
    return Graph("random", tuple(growing.operators.values()), tuple(growing.edges.values()))


@st.composite
def loop_changes(draw: st.DrawFn, most: int = 6) -> tuple[Graph, frozenset[str]]:
    """A graph with a loop, and some of its operators that are neither sources nor heads."""
    graph = draw(loop_graphs(most).filter(lambda one: any(operator.kind is Kind.LOOP for operator in one.operators)))
    options = [one.name for one in graph.operators if graph.in_edges(one.name) and one.kind is not Kind.LOOP]
    return graph, draw(st.frozensets(st.sampled_from(options), min_size=1, max_size=3))


def unrolled(graph: Graph) -> tuple[Graph, dict[str, str]]:
    """A graph without loops in which an operator has a copy for each round of its loops; and copy to operator."""
    level = {one.name: one.within.level for one in graph.operators}
    copies = {one.name: list(product(range(ROUNDS), repeat=level[one.name])) for one in graph.operators}
    names = {(name, rounds): f"{name}{list(rounds)}" for name, all_rounds in copies.items() for rounds in all_rounds}
    edges = [
        Edge(names[edge.source, rounds], names[edge.to, after], edge.partitioning)
        for edge in graph.edges for rounds in copies[edge.source]
        for after in _after(rounds, level[edge.to], edge.feedback)
    ]  # fmt: skip
    operators = [
        Operator(names[one.name, rounds], _own_emits(one), one.edgewise_one_to_one, one.unique_per_transaction)
        for one in graph.operators for rounds in copies[one.name]
    ]  # fmt: skip
    reached = nx.descendants(nx.DiGraph([(edge.source, edge.to) for edge in edges]), names["S", ()]) | {names["S", ()]}
    shown = Graph(
        graph.name,
        tuple(one for one in operators if one.name in reached),
        tuple(edge for edge in edges if edge.source in reached),
    )
    return shown, {copy: name for (name, _), copy in names.items() if copy in reached}


def _own_emits(operator: Operator) -> Emits:
    return Emits.ONE_TO_ONE if operator.kind is Kind.LOOP else operator.emits


def _after(rounds: tuple[int, ...], level: int, feedback: bool) -> Iterator[tuple[int, ...]]:
    """The rounds in which what left an operator in ``rounds`` arrives at one that is in this number of loops."""
    if not feedback:
        yield (*rounds[:level], *(0,) * (level - len(rounds)))
    elif rounds[level - 1] + 1 < ROUNDS:
        yield (*rounds[: level - 1], rounds[level - 1] + 1)


def copies_of(parts: Collection[Collection[str]], originals: dict[str, str]) -> list[set[str]]:
    """The copies of the operators of each part."""
    return [{copy for copy, name in originals.items() if name in part} for part in parts]


def loops_as_operators(graph: Graph) -> tuple[Graph, dict[str, str]]:
    """Each outermost loop as one operator; and operator to the one that stands for it. By networkx's own quotient."""
    stands = {one.name: (one.within.loops or (one.name,))[0] for one in graph.operators}
    groups: dict[str, set[str]] = {}
    for name, node in stands.items():
        groups.setdefault(node, set()).add(name)
    quotient = nx.quotient_graph(graph.digraph, list(groups.values()))
    node_of = {frozenset(names): node for node, names in groups.items()}
    operators = (replace(graph.operator(node), within=ROOT, kind=Kind.MAP) for node in groups)
    edges = (Edge(node_of[tail], node_of[head]) for tail, head in quotient.edges)
    return Graph(graph.name, tuple(operators), tuple(edges)), stands


def closure(graph: Graph, members: Collection[str]) -> set[str]:
    """The least set with these members, all paths between two of its operators, and whole loops or none of them."""
    found = set(members)
    while True:
        loops = {graph.operator(name).within.loops[0] for name in found if graph.operator(name).within.level}
        whole = {one.name for one in graph.operators if one.within.loops[:1] and one.within.loops[0] in loops}
        below = found.union(*(nx.descendants(graph.digraph, name) for name in found))
        above = found.union(*(nx.ancestors(graph.digraph, name) for name in found))
        if found == (grown := found | whole | (below & above)):
            return found
        found = grown
