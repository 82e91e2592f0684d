"""Dataflows with loops, drawn from a seed: nested, in sequence, side by side; and what must come out of them.

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
"""

from __future__ import annotations

import random
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fries_nb.dataflow.endpoints import memory, rate
from fries_nb.dataflow.graph import ROOT, Edge, Emits, Graph, Kind, Operator, Partitioning, StreamScope
from fries_nb.dataflow.hidden_columns import HIDDEN

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
        heads: the heads of its loops.
        keyed: the operators that count rows.
    """

    operators: list[Operator] = field(default_factory=list)
    edges: list[Edge] = field(default_factory=list)
    heads: tuple[str, ...] = ()
    keyed: tuple[str, ...] = ()

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
