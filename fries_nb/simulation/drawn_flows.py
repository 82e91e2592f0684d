"""Random dataflows, declared through the public API, each with a plain description for the reference.

>>> flow = draw_flow(random.Random(3))
>>> flow.dataflow.graph().sources, sorted(flow.inputs(4))
(('S0',), ['S0'])
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import networkx as nx

from fries_nb.dataflow.builder import DataflowBuilder
from fries_nb.dataflow.endpoints import memory, rate
from fries_nb.dataflow.graph import Edge, Graph, Partitioning
from fries_nb.dataflow.streams import Stream
from fries_nb.simulation import stamp_functions as fns
from fries_nb.simulation.stamp_functions import elements_of

Inputs = Mapping[str, list[dict[str, Any]]]

MOST_OPEN = 5
"""Maximum number of open streams; further ones are united before the sinks."""


@dataclass(frozen=True)
class Node:
    """An operator: its kind, and the (operator, branch) pairs that it reads."""

    name: str
    does: str
    inputs: tuple[tuple[str, int], ...]
    salt: int = 0
    into: int = 1


@dataclass
class DrawnFlow:
    """A dataflow and its description.

    Attributes:
        nodes: operators in order of declaration, which is topological.
        changeable: for each operator that can be changed, its function by version.
        keyed: the operators that count by key.
        tasting: the operators whose functions can be made to fail on some rows.
    """

    dataflow: DataflowBuilder
    nodes: list[Node] = field(default_factory=list)
    changeable: dict[str, Callable[[int], Any]] = field(default_factory=dict)
    keyed: set[str] = field(default_factory=set)
    tasting: list[str] = field(default_factory=list)

    def inputs(self, count: int, customers: int = 4) -> dict[str, list[dict[str, Any]]]:
        """This number of rows for each source."""
        return {node.name: source_rows(node.name, count, customers) for node in self.nodes if node.does == "source"}


def repartitioned(graph: Graph, chance: random.Random) -> Graph:
    """The graph with some of its forward edges turned into rebalance or broadcast edges.

    There is no broadcast upstream of a self-join or a dedup, which could not distinguish copies of a row; nor to an
    operator with several inputs, so that ``copies`` can be a mapping from operators.
    """
    joins = {operator.name for operator in graph.operators if operator.traits.keeps_state}

    def changed(edge: Edge) -> Edge:
        if edge.partitioning is not Partitioning.FORWARD or chance.random() > 0.25:
            return edge
        alone = len(graph.in_edges(edge.to)) == 1 and not graph.operator(edge.to).traits.copies
        below = {edge.to} | nx.descendants(graph.digraph, edge.to)
        to_all = alone and not joins & below and chance.random() < 0.4
        return replace(edge, partitioning=Partitioning.BROADCAST if to_all else Partitioning.REBALANCE)

    return Graph(graph.name, graph.operators, tuple(map(changed, graph.edges)))


def copies(graph: Graph) -> dict[str, int]:
    """The number of workers that receive each row, for operators with a broadcast input."""
    return {
        edge.to: graph.operator(edge.to).workers for edge in graph.edges if edge.partitioning is Partitioning.BROADCAST
    }


def source_rows(source: str, count: int, customers: int = 4) -> list[dict[str, Any]]:
    """Rows in the form that the functions of this package expect."""
    return [
        {
            "id": f"{source}:{number}",
            "number": number,
            "customer": number * number % customers * fns.CUSTOMER_STEP,
            "items": elements_of(number),
            "trail": "",
        }
        for number in range(count)
    ]


@dataclass(frozen=True)
class _Open:
    """A stream that can be extended; ``roots`` are its sources, ``distinct`` whether ids are unique."""

    stream: Stream
    roots: frozenset[str]
    distinct: bool = True

    @property
    def place(self) -> tuple[str, int]:
        return (self.stream.operator, self.stream.branch)


def draw_flow(chance: random.Random) -> DrawnFlow:
    """A dataflow of one or two sources, some operators of any kind, and as many sinks as needed."""
    return _Growth(chance).grow()


def counting_flow(chance: random.Random) -> DrawnFlow:
    """S0 -> Mark1 -> Counter2 -> Counter3 -> out, with one to three workers each."""
    flow = DrawnFlow(DataflowBuilder("counting"))
    stream = flow.dataflow.source("S0", rate(None, count=1), chance.randint(1, 3), identity="id")
    flow.nodes.append(Node("S0", "source", ()))
    makers: dict[str, Callable[..., Any]] = {"Mark1": fns.Mark, "Counter2": fns.Counter, "Counter3": fns.Counter}
    for name, make in makers.items():
        build, before = partial(make, name, 0), (stream.operator, 0)
        keyed = "customer" if make is fns.Counter else None
        stream = stream.map(name, build(0), key=keyed, workers=chance.randint(1, 3))
        flow.nodes.append(Node(name, make.__name__.lower(), (before,)))
        flow.changeable[name] = build
        flow.tasting.append(name)
        if keyed:
            flow.keyed.add(name)
    stream.sink("out", memory(), workers=chance.randint(1, 2))
    flow.nodes.append(Node("out", "sink", ((stream.operator, 0),)))
    return flow


def chained_flow(chance: random.Random) -> DrawnFlow:
    """S0 -> Counter1 -> Many2 -> Mark3 -> out: with equal numbers of workers, so that hosts chain the three."""
    flow, workers = DrawnFlow(DataflowBuilder("chained")), chance.randint(1, 2)
    stream = flow.dataflow.source("S0", rate(None, count=1), chance.randint(1, 2), identity="id")
    flow.nodes.append(Node("S0", "source", ()))
    makers: dict[str, Callable[..., Any]] = {"Counter1": fns.Counter, "Many2": fns.Many, "Mark3": fns.Mark}
    for name, make in makers.items():
        build, before = partial(make, name, 0), (stream.operator, 0)
        add = stream.flat_map if make is fns.Many else stream.map
        stream = add(name, build(0), key="customer" if make is fns.Counter else None, workers=workers)
        flow.nodes.append(Node(name, make.__name__.lower(), (before,)))
        flow.changeable[name] = build
        flow.tasting.append(name)
    flow.keyed.add("Counter1")
    stream.sink("out", memory(), workers=workers)
    flow.nodes.append(Node("out", "sink", ((stream.operator, 0),)))
    return flow


class _Growth:
    """A dataflow under construction, extended by one operator or one diamond at a time."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._flow = DrawnFlow(DataflowBuilder("random"))
        self._open: list[_Open] = []

    def grow(self) -> DrawnFlow:
        for number in range(self._chance.choice((1, 1, 2))):
            name = f"S{number}"
            source = self._flow.dataflow.source(name, rate(None, count=1), self._workers(), identity="id")
            self._declare(Node(name, "source", ()))
            self._open.append(_Open(source, frozenset({name})))
        extend = (
            self._one_to_one, self._one_to_one, self._multiply, self._split, self._diamond, self._unite, self._look_up,
            self._echo,
        )  # fmt: skip
        for _ in range(self._chance.randint(1, 6)):
            self._chance.choice(extend)()
        while len(self._open) > MOST_OPEN:
            self._unite()
        for open_ in self._open:
            name = self._name("out")
            open_.stream.sink(name, memory(), workers=self._workers())
            self._declare(Node(name, "sink", (open_.place,)))
        return self._flow

    # ---- steps of growth

    def _one_to_one(self) -> None:
        self._open.append(self._behind(self._pick()))

    def _multiply(self) -> None:
        before = self._pick()
        if self._chance.random() < 0.5:
            self._open.append(self._function(before, "flat_map", "Many", fns.Many))
            return
        name = self._name("Unnest")
        stream = before.stream.unnest(name, "items", workers=self._workers())
        self._declare(Node(name, "unnest", (before.place,)))
        unnested = _Open(stream, before.roots, before.distinct)
        self._open.append(self._function(unnested, "map", "Relabel", fns.Relabel))

    def _look_up(self) -> None:
        """A join with a table, and a map that includes its columns in the row."""
        before, name, salt = self._pick(), self._name("Join"), self._chance.randrange(9)

        def table(version: int) -> fns.Table:
            made = fns.Table(name, fns.table_of(name, salt, version), {"customer": "who"}, one_to_many=True)
            made.version = version
            return made

        keyed = self._chance.random() < 0.5
        stream = before.stream.join(
            name, fns.table_of(name, salt, 0), {"customer": "who"}, one_to_many=True, workers=self._workers(), key=keyed
        )
        self._declare(Node(name, "join", (before.place,), salt), table)
        self._open.append(self._function(_Open(stream, before.roots, before.distinct), "map", "Label", fns.Label))

    def _echo(self) -> None:
        """Duplicates each row, and removes the duplicate some operators downstream."""
        if not (before := self._pick()).distinct:
            self._open.append(before)
            return
        stream = self._function(before, "flat_map", "Echo", fns.Echo)
        if self._chance.random() < 0.5:
            stream = self._behind(stream)
        name = self._name("Dedup")
        made = stream.stream.dedup(name, on="id", workers=self._workers())
        self._declare(Node(name, "dedup", (stream.place,)))
        self._open.append(_Open(made, before.roots))

    def _split(self) -> None:
        before = self._pick()
        name, salt, into = self._name("Split"), self._chance.randrange(9), self._chance.choice((2, 2, 3))
        make = partial(fns.Router, name, salt, into=into)
        streams = before.stream.split(name, make(0), into, workers=self._workers())
        self._declare(Node(name, "split", (before.place,), salt, into), make)
        self._flow.tasting.append(name)
        self._open += [_Open(stream, before.roots, before.distinct) for stream in streams]

    def _diamond(self) -> None:
        """Two paths of the same rows that meet again: in a self-join if ids are unique, or else in a union."""
        before = self._pick()
        left, right = before, self._behind(before)
        for _ in range(self._chance.randint(0, 2)):
            left = self._behind(left)
        if self._chance.random() < 0.3:
            right = self._behind(right)
        if before.distinct and self._chance.random() < 0.7:
            self._join(left, right)
        else:
            self._open.append(self._union(left, right))

    def _unite(self) -> None:
        if len(self._open) > 1:
            left, right = self._take(), self._take()
            if left.stream.operator == right.stream.operator:
                left = self._behind(left)
            self._open.append(self._union(left, right))

    # ---- operators

    def _behind(self, before: _Open) -> _Open:
        """An operator that makes at most one row of each."""
        does, word, make = self._chance.choice(
            (
                ("map", "Mark", fns.Mark),
                ("map", "Slices", fns.Slices),
                ("map", "Sieve", fns.Sieve),
                ("filter", "Keep", fns.Keep),
                ("keyed", "Counter", fns.Counter),
                ("keyed", "Counter", fns.Counter),
            )
        )
        return self._function(before, does, word, make)

    def _function(self, before: _Open, does: str, word: str, make: Callable[..., Any]) -> _Open:
        name, salt, workers = self._name(word), self._chance.randrange(9), self._workers()
        build = partial(make, name, salt)
        stream, function = before.stream, build(0)
        if does == "keyed":
            made = stream.map(name, function, key="customer", workers=workers)
            self._flow.keyed.add(name)
        elif does == "filter":
            made = stream.filter(name, function, workers=workers)
        else:
            made = (stream.flat_map if does == "flat_map" else stream.map)(name, function, workers=workers)
        self._declare(Node(name, word.lower(), (before.place,), salt), build)
        self._flow.tasting.append(name)
        return _Open(made, before.roots, before.distinct)

    def _join(self, left: _Open, right: _Open) -> None:
        name = self._name("Join")
        stream = left.stream.self_join(name, right.stream, on="id", workers=self._workers())
        self._declare(Node(name, "self_join", (left.place, right.place)))
        joined = _Open(stream, left.roots)
        self._open.append(self._function(joined, "map", "Fold", fns.Fold))

    def _union(self, left: _Open, right: _Open) -> _Open:
        name = self._name("Union")
        stream = left.stream.union(name, right.stream, workers=self._workers())
        self._declare(Node(name, "union", (left.place, right.place)))
        apart = not left.roots & right.roots
        return _Open(stream, left.roots | right.roots, apart and left.distinct and right.distinct)

    # ---- bookkeeping

    def _declare(self, node: Node, make: Callable[[int], Any] | None = None) -> None:
        self._flow.nodes.append(node)
        if make is not None:
            self._flow.changeable[node.name] = make

    def _name(self, word: str) -> str:
        return f"{word}{len(self._flow.nodes)}"

    def _workers(self) -> int:
        return self._chance.choice((1, 1, 2, 2, 3))

    def _pick(self) -> _Open:
        """A stream to extend; sometimes it stays open, and so gets a second consumer."""
        return self._chance.choice(self._open) if self._chance.random() < 0.2 else self._take()

    def _take(self) -> _Open:
        return self._open.pop(self._chance.randrange(len(self._open)))
