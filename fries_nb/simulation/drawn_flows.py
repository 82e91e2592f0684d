"""Random dataflows, declared through the public API, each with a plain description for the reference.

>>> flow = draw_flow(random.Random(3))
>>> flow.dataflow.graph().sources, sorted(flow.inputs(4))
(('S0',), ['S0'])

Dataflows with loops, drawn from a seed: nested, in sequence, side by side; and what must come out of them.

Every loop L has in front of it an operator ``EL``, which sets a row's round to 0, and inside, after its head ``L``:

    BL   adds 1 to the round
    AL   (in some) turns one row into two, for some rounds
    ...  (in some) inner loops
    KL   (in some) counts the rows of a key
    RL   sends a row back until it has made its rounds, of which some rows make none, and then out

Some heads have two outputs, for rows that come in and for those that come back. How many rounds a row makes depends on
its values alone, not on the interleaving, so ``reference`` computes the result without the runtime.

>>> flow = draw_loop_flow(random.Random(4))
>>> flow.heads, sorted(reference(flow, {"S": [{"id": 1, "path": "1", "k": 0}]}))[:3]
(('L1', 'L2', 'L3', 'L4'), ['B3', 'B4', 'E3'])

The expected output of a random dataflow, computed in plain Python from its description (a ``DrawnFlow``).

It shares no code with the runtime. Rows record the operators that they passed, without versions, since those depend on
the interleaving.

>>> node = [Node("S", "source", ()), Node("M", "mark", (("S", 0),)), Node("out", "sink", (("M", 0),))]
>>> evaluate(node, {"S": [{"id": "S:0", "number": 0, "customer": 0, "items": [], "trail": ""}]}).at["out"][0]["trail"]
'M;'
"""

from __future__ import annotations

import random
import zlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import networkx as nx

from fries_nb.dataflow.builder import DataflowBuilder
from fries_nb.dataflow.columns import HIDDEN
from fries_nb.dataflow.endpoints import memory, rate
from fries_nb.dataflow.graph import ROOT, Edge, Emits, Graph, Kind, Operator, Partitioning, StreamScope
from fries_nb.dataflow.streams import Stream
from fries_nb.simulation import stamp_functions as fns
from fries_nb.simulation.stamp_functions import branch_of, copies_of, elements_of, passes

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
    """A dataflow and its description."""

    dataflow: DataflowBuilder
    nodes: list[Node] = field(default_factory=list)  # operators in order of declaration, which is topological
    # for each operator that can be changed, its function by version
    changeable: dict[str, Callable[[int], Any]] = field(default_factory=dict)
    keyed: set[str] = field(default_factory=set)  # the operators that count by key
    tasting: list[str] = field(default_factory=list)  # the operators whose functions can be made to fail on some rows

    def inputs(self, count: int, customers: int = 4) -> dict[str, list[dict[str, Any]]]:
        """This number of rows for each source."""
        return {node.name: source_rows(node.name, count, customers) for node in self.nodes if node.does == "source"}


def repartitioned(graph: Graph, chance: random.Random) -> Graph:
    """The graph with some of its forward edges turned into rebalance or broadcast edges."""
    # There is no broadcast upstream of a self-join or a dedup, which could not distinguish copies of a row; nor to an
    # operator with several inputs, so that ``copies`` can be a mapping from operators.
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


Row = dict[str, Any]

MOST_ROUNDS = (4, 2, 2)
"""Maximum number of further rounds of a row, by the number of loops around it."""
MOST_COPIES = 2
"""Round up to which a row may become two."""
LONGEST_PATH = 5
"""Length of the path from which on a row stays one."""


def _lot(row: Row, what: str, of: int) -> int:
    """A number below ``of`` that depends on the row."""
    return zlib.crc32(f"{row['path']} {what}".encode()) % of


@dataclass
class Enter:
    """Sets a row's round of a loop to 0."""

    loop: str

    def __call__(self, row: Row) -> Row:
        """The row, in round 0."""
        return row | {self.loop: 0}


@dataclass
class Advance:
    """Adds 1 to a row's round."""

    loop: str

    def __call__(self, row: Row) -> Row:
        """The row, in its next round."""
        return row | {self.loop: row[self.loop] + 1}


@dataclass
class Amplify:
    """Turns some rows into two, in early rounds."""

    loop: str

    def __call__(self, row: Row) -> Iterator[Row]:
        """The row, or two rows with other paths."""
        few = row[self.loop] <= MOST_COPIES and len(row["path"]) < LONGEST_PATH
        if few and _lot(row, f"amplify {self.loop}", 3) == 0:
            yield row | {"path": row["path"] + "a"}
            yield row | {"path": row["path"] + "b"}
        else:
            yield row


@dataclass
class Route:
    """Sends a row back until it has made its rounds, ``most`` at most in addition to the first."""

    loop: str
    most: int

    def __call__(self, row: Row) -> int:
        """0 to send it back, 1 to send it out."""
        return int(row[self.loop] > _lot({"path": str(row["id"])}, self.loop, self.most + 1))


@dataclass
class CountRows:
    """Counts each row of a key that it meets, by path and rounds."""

    name: str

    def initial_state(self) -> Counter[str]:
        """Of a key without rows."""
        return Counter()

    def process(self, row: Row, state: Counter[str]) -> Row:
        """The row, unchanged."""
        state[name_of(row)] += 1
        return row


@dataclass
class Pick:
    """Sends a row to one of two branches."""

    name: str

    def __call__(self, row: Row) -> int:
        """The branch."""
        return _lot(row, self.name, 2)


def name_of(row: Row) -> str:
    """The values of a row, without hidden columns, as text."""
    return " ".join(f"{name}={row[name]}" for name in sorted(row) if name not in HIDDEN)


@dataclass
class LoopFlow:
    """A dataflow with loops.

    Attributes:
        operators, edges: those of the graph.
    """

    operators: list[Operator] = field(default_factory=list)
    edges: list[Edge] = field(default_factory=list)
    heads: tuple[str, ...] = ()  # the heads of its loops
    keyed: tuple[str, ...] = ()  # the operators that count rows

    def graph(self) -> Graph:
        """The graph."""
        return Graph("loops", tuple(self.operators), tuple(self.edges))


End = tuple[str, int]
"""An operator and the branch by which rows leave it."""


class _Draw:
    """Builds a dataflow, operator by operator; a small one has one loop or two, and few operators."""

    def __init__(self, chance: random.Random, small: bool) -> None:
        self.flow = LoopFlow()
        self._chance = chance
        self._small = small
        self._most = 2 if small else chance.choice((1, 2, 3))
        self._count = 0
        self._levels = chance.choice((1, 1, 1, 2) if small else (1, 1, 2, 2, 3))
        self._apart = small and chance.random() < 0.6  # workers meet on feedback channels only

    def add(self, name: str, kind: Kind, ends: Sequence[End], within: StreamScope = ROOT, **more: Any) -> str:
        """Add an operator behind these ends; returns its name."""
        workers = self._most if self._small else self._chance.randint(1, self._most)
        self.flow.operators.append(Operator(name, kind=kind, workers=workers, within=within, **more))
        for source, branch in ends:
            self.connect((source, branch), name, more.get("key", ()))
        return name

    def connect(self, end: End, to: str, key: tuple[str, ...] = (), feedback: bool = False) -> None:
        """Add an edge, keyed if its receiver is, and sometimes if it is not."""
        forward, rebalance, hashed = Partitioning.FORWARD, Partitioning.REBALANCE, Partitioning.HASH
        how = hashed if key else self._chance.choice((forward, forward, rebalance, hashed))
        if self._apart and not key:
            how = hashed if feedback else forward
        key = key or (("k",) if how is hashed else ())
        self.flow.edges.append(Edge(end[0], to, how, key, end[1], feedback))

    def loop(self, end: End, within: StreamScope) -> End:
        """Add a loop behind this end; returns the end of the rows that leave it."""
        chance = self._chance
        self._count += 1
        number = self._count
        name = f"L{number}"
        inside = within.nest(name)
        self.flow.heads = (*self.flow.heads, name)
        entered = self.add(f"E{number}", Kind.MAP, [end], within, function=Enter(name))
        two = chance.random() < (0.0 if self._small else 0.3)
        emits = Emits.ONE_TO_ONE if self._small else Emits.ONE_TO_MANY  # no row of a small one becomes two
        head = self.add(name, Kind.LOOP, [(entered, 0)], inside, branches=1 + two, emits=emits)
        ends: list[End] = [(head, 0)]
        if two:
            sides = [self.add(f"{side}{number}", Kind.MAP, [(head, branch)], inside, function=dict)
                     for branch, side in enumerate("IJ")]  # fmt: skip
            ends = [(self.add(f"U{number}", Kind.UNION, [(side, 0) for side in sides], inside), 0)]
        last: End = (self.add(f"B{number}", Kind.MAP, ends, inside, function=Advance(name)), 0)
        if chance.random() < (0.0 if self._small else 0.4):
            last = self.add(f"A{number}", Kind.FLAT_MAP, [last], inside, function=Amplify(name),
                            emits=Emits.ONE_TO_MANY), 0  # fmt: skip
        if inside.level < self._levels:
            for _ in range(1 if self._small else chance.choice((1, 1, 2))):
                last = self.loop(last, inside)
        if chance.random() < (0.2 if self._small else 0.5):
            counts = f"K{number}"
            last = self.add(counts, Kind.MAP, [last], inside, function=CountRows(counts), key=("k",)), 0
            self.flow.keyed = (*self.flow.keyed, counts)
        rounds = Route(name, MOST_ROUNDS[within.level])
        route = self.add(f"R{number}", Kind.SPLIT, [last], inside, function=rounds, branches=2)
        self.connect((route, 0), name, feedback=True)
        return route, 1

    def whole(self) -> LoopFlow:
        """Draw a whole dataflow."""
        end: End = (self.add("S", Kind.SOURCE, [], function=rate(None)), 0)
        shape = "one" if self._small else self._chance.choice(("one", "sequence", "side by side"))
        if shape == "side by side":
            split = self.add("P", Kind.SPLIT, [end], function=Pick("P"), branches=2)
            out = [self.loop((split, branch), ROOT) for branch in range(2)]
            end = (self.add("M", Kind.UNION, out), 0)
        else:
            for _ in range(1 + (shape == "sequence")):
                end = self.loop(end, ROOT)
        self.add("Z", Kind.SINK, [end], function=memory())
        return self.flow


def draw_loop_flow(chance: random.Random, small: bool = False) -> LoopFlow:
    """Draw a dataflow with loops; a small one runs quickly, and its workers are often apart by some rows."""
    return _Draw(chance, small).whole()


def draw_rows(chance: random.Random, flow: LoopFlow, count: int, most: int = 300) -> dict[str, list[Row]]:
    """Rows of the source, few of which share a key.

    Args:
        chance: draws them.
        flow: the dataflow.
        count: maximum number of rows.
        most: maximum number of rows that all operators take, by which others are left out.
    """
    rows: list[Row] = []
    for number in range(count):
        row = {"id": number, "path": str(number), "k": chance.randrange(7)}
        most -= sum(taken.total() for taken in reference(flow, {"S": [row]}, most + 1).values())
        if most < 0 and rows:
            break
        rows.append(row)
    return {"S": rows}


def reference(flow: LoopFlow, inputs: Mapping[str, Sequence[Row]], most: int = 10**6) -> dict[str, Counter[str]]:
    """The rows that every operator takes, by operator; stops after ``most`` of them."""
    graph = flow.graph()
    taken: defaultdict[str, Counter[str]] = defaultdict(Counter)
    todo = [("S", "", row) for row in inputs["S"]]
    for _ in range(most):
        if not todo:
            break
        name, sender, row = todo.pop()
        taken[name][name_of(row)] += 1
        for branch, made in _results(graph, graph.operator(name), sender, row):
            todo += [(edge.to, name, made) for edge in graph.out_edges(name) if edge.branch == branch]
    return dict(taken)


def _results(graph: Graph, operator: Operator, sender: str, row: Row) -> list[tuple[int, Row]]:
    function = operator.function
    match operator.kind:
        case Kind.SPLIT:
            return [(function(row), row)]
        case Kind.FLAT_MAP:
            return [(0, made) for made in function(row)]
        case Kind.MAP if not isinstance(function, CountRows):
            return [(0, function(row))]
        case Kind.LOOP if operator.branches > 1:
            return [(int(any(edge.feedback for edge in graph.out_edges(sender))), row)]
        case _:
            return [(0, row)]


Rows = list[dict[str, Any]]


NO_COPIES: Mapping[str, int] = {}
NO_POISON: Mapping[str, frozenset[int]] = {}


@dataclass(frozen=True)
class Reference:
    """The rows that each operator processes: ``at`` for all operators; and those that it fails on, ``poison``."""

    at: dict[str, Rows]
    poison: dict[str, Rows]


def evaluate(
    nodes: Iterable[Node],
    inputs: Mapping[str, Rows],
    copies: Mapping[str, int] = NO_COPIES,
    poison: Mapping[str, frozenset[int]] = NO_POISON,
) -> Reference:
    """Compute the rows that arrive at every operator.

    Args:
        nodes: the operators in topological order.
        inputs: source to its rows.
        copies: operator with a broadcast input to the number of copies that it receives of each row.
        poison: operator to the numbers of the rows on which it fails, and which it sets aside.
    """
    out: dict[tuple[str, int], Rows] = {}
    at: dict[str, Rows] = {}
    aside: dict[str, Rows] = {}
    for node in nodes:
        if node.does == "source":
            out[node.name, 0] = inputs[node.name]
            continue
        given = [out[place] * copies.get(node.name, 1) for place in node.inputs]
        if node.name in poison:
            bad = poison[node.name]
            aside[node.name] = [row for rows in given for row in rows if row["number"] in bad]
            given = [[row for row in rows if row["number"] not in bad] for rows in given]
        at[node.name] = [row for rows in given for row in rows]
        if node.does == "split":
            for branch in range(node.into):
                out[node.name, branch] = [
                    row for row in given[0] if branch_of(row["number"], node.salt, node.into) == branch
                ]
        else:
            out[node.name, 0] = _DOES[node.does](node, given)
    return Reference(at, aside)


def _stamped(node: Node, row: dict[str, Any], **columns: Any) -> dict[str, Any]:
    return row | {"trail": row["trail"] + node.name + ";"} | columns


def _mark(node: Node, given: list[Rows]) -> Rows:
    return [_stamped(node, row) for row in given[0]]


def _sieve(node: Node, given: list[Rows]) -> Rows:
    return [_stamped(node, row) for row in given[0] if passes(row["number"], node.salt)]


def _keep(node: Node, given: list[Rows]) -> Rows:
    return [row for row in given[0] if passes(row["number"], node.salt)]


def _many(node: Node, given: list[Rows]) -> Rows:
    return [
        _stamped(node, row, id=f"{row['id']}.{copy}")
        for row in given[0]
        for copy in range(copies_of(row["number"], node.salt))
    ]


def _unnest(node: Node, given: list[Rows]) -> Rows:
    return [row | {"items": element} for row in given[0] for element in row["items"]]


def _relabel(node: Node, given: list[Rows]) -> Rows:
    return [_stamped(node, row, id=f"{row['id']}/{row['items']}", items=elements_of(row["number"])) for row in given[0]]


def _self_join(node: Node, given: list[Rows]) -> Rows:
    right = {row["id"]: row for row in given[1]}
    return [row | {"trail_right": right[row["id"]]["trail"]} for row in given[0] if row["id"] in right]


def _join(node: Node, given: list[Rows]) -> Rows:
    return [_stamped(node, row, copy=copy) for row in given[0] for copy in range(copies_of(row["customer"], node.salt))]


def _label(node: Node, given: list[Rows]) -> Rows:
    return [_stamped(node, row, id=f"{row['id']}.{row['copy']}") for row in given[0]]


def _echo(node: Node, given: list[Rows]) -> Rows:
    return [_stamped(node, row) for row in given[0] for _ in range(2)]


def _dedup(node: Node, given: list[Rows]) -> Rows:
    return list({row["id"]: row for row in given[0]}.values())


def _fold(node: Node, given: list[Rows]) -> Rows:
    return [_stamped(node, row, trail=f"({row['trail']}|{row['trail_right']}){node.name};") for row in given[0]]


def _union(node: Node, given: list[Rows]) -> Rows:
    return [row for rows in given for row in rows]


_DOES: dict[str, Callable[[Node, list[Rows]], Rows]] = {
    "mark": _mark,
    "slices": _mark,
    "counter": _mark,
    "sieve": _sieve,
    "keep": _keep,
    "many": _many,
    "unnest": _unnest,
    "relabel": _relabel,
    "self_join": _self_join,
    "fold": _fold,
    "join": _join,
    "label": _label,
    "echo": _echo,
    "dedup": _dedup,
    "union": _union,
    "sink": _union,
}
