"""Every kind of operator, as X in a small dataflow, and what must come out of it, computed one row after another.

    S -> P -> X -> Q -> out        (some with a second source T, or with operators between P and X)

P, X and Q write their version into the rows that pass them. The references share no code with the runtime.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

import fries_nb as fn
from fries_nb.dataflow.operators import batched
from fries_nb.dataflow.streams import Stream
from fries_nb.dataflow.tables import JoinTable

Row = dict[str, Any]
Shown = Counter[tuple[Any, ...]]

KEYS = 11
LETTER = 5
"""Rows whose number leaves this rest by ``LETTERS`` are those on which a function with letters fails."""
LETTERS = 16
ARMED: set[tuple[str, int]] = set()
"""The functions, by operator and version, that fail on the next row that they meet."""


def rows_of(source: str, count: int) -> list[Row]:
    """Rows of a source, in the order of their times."""
    return [
        {"id": f"{source}{n}", "n": n, "k": n * n % KEYS, "d": n // 2, "at": n, "items": [n % 3, n % 5][: 1 + n % 2]}
        for n in range(count)
    ]


def is_letter(row: Row) -> bool:
    """Whether a function with letters fails on the row."""
    return bool(row["n"] % LETTERS == LETTER)


@dataclass
class Versioned:
    """A function of an operator: writes its version, and fails where it is told to."""

    name: str
    version: int = 0
    letters: bool = False

    def taste(self, row: Row) -> None:
        """Fail, if this row or this function is to."""
        if (self.letters and is_letter(row)) or (self.name, self.version) in ARMED:
            raise ZeroDivisionError(f"{self.name} fails on {row['n']}")

    def mark(self, row: Row) -> Row:
        """The row with the version."""
        return row | {self.name: self.version}


class Mark(Versioned):
    """map."""

    def __call__(self, row: Row) -> Row:
        """The row with the version."""
        self.taste(row)
        return self.mark(row)


class Keep(Versioned):
    """filter."""

    def __call__(self, row: Row) -> bool:
        """Two of three."""
        self.taste(row)
        return bool(row["n"] % 3)


class Many(Versioned):
    """flat_map, as a generator: none, one or two rows."""

    def __call__(self, row: Row) -> Iterator[Row]:
        """The rows."""
        for copy in range(row["n"] % 3):
            yield self.mark(row) | {"copy": copy}
        self.taste(row)


class Count(Versioned):
    """keyed map: the place of the row among those of its key."""

    def initial_state(self) -> Row:
        """Nothing yet."""
        return {"seen": 0}

    def process(self, row: Row, state: Row) -> Row:
        """Count it, then fail if it must."""
        state["seen"] += 1
        self.taste(row)
        return self.mark(row) | {"seen": state["seen"]}


class CountMany(Count):
    """keyed flat_map: each second row of a key, twice."""

    def process(self, row: Row, state: Row) -> Iterator[Row]:  # type: ignore[override]
        """The rows."""
        state["seen"] += 1
        if state["seen"] % 2:
            yield self.mark(row) | {"seen": state["seen"]}
        self.taste(row)
        if state["seen"] % 2:
            yield self.mark(row) | {"seen": -state["seen"]}


@batched
class Slices(Versioned):
    """map by batches."""

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch with the version."""
        for row in batch.select(["n"]).to_pylist():
            self.taste(row)
        return batch.append_column(self.name, pa.array([self.version] * batch.num_rows, pa.int64()))


class Route(Versioned):
    """split."""

    def __call__(self, row: Row) -> int:
        """The branch."""
        self.taste(row)
        return int(row["n"] // 2 % 2)


class Close(Versioned):
    """Number and sum of a key's rows in a window or of a time."""

    def initial_state(self) -> Row:
        """Nothing yet."""
        return {"rows": 0, "sum": 0}

    def process(self, row: Row, state: Row) -> None:
        """Add a row."""
        state["rows"] += 1
        state["sum"] += row["n"]
        self.taste(row)

    def close(self, key: int, time: int, state: Row) -> Row:
        """The result."""
        return {"k": key, "time": time, "rows": state["rows"], "sum": state["sum"], "X": self.version}


class Remind(Versioned):
    """A timed function: reminds of a key ten after each time at which it had rows."""

    def initial_state(self) -> Row:
        """Nothing."""
        return {}

    def process(self, row: Row, state: Row, at: Any) -> None:
        """Ask for the reminder."""
        at.call(at.time + 10)
        self.taste(row)

    def due(self, key: int, time: int, state: Row) -> Row:
        """The reminder."""
        return {"k": key, "time": time, "X": self.version}


class Again(Versioned):
    """split at the end of a loop: 0 sends a row back, until it has made as many rounds as its number says."""

    def __call__(self, row: Row) -> int:
        """The branch."""
        return int(row["round"] > row["n"] % 3)


def table_of(version: int) -> pa.Table:
    """A table with two rows of some keys and none of others."""
    names = [{"k": key, "name": f"{key}.{copy}", "X": version} for key in range(KEYS) for copy in range(key % 3)]
    return pa.Table.from_pylist(names)


def _joined(version: int, letters: bool) -> JoinTable:
    return JoinTable("X", table_of(version), {"k": "k"}, one_to_many=True)


Make = Callable[[int], Any]
Declare = Callable[[fn.Dataflow, Stream, "Setting"], Stream]


@dataclass(frozen=True)
class Setting:
    """How X is declared: its error policy, if it runs code; whether it fails on some rows; the number of workers."""

    x: dict[str, Any]
    letters: bool
    workers: Callable[[], int]


@dataclass(frozen=True)
class Kind:
    """A kind of operator.

    Attributes:
        declare: declares X behind a stream, with what else it needs; returns what leaves it.
        expected: what leaves X, of these rows of S, and those of T.
        shown: what is compared of a row.
        make: X's function by version; ``None`` if it has none, or cannot be changed.
        keyed: the operators whose bins can move.
        sources: the sources.
        time: the column with the times of rows, if the kind needs them.
        has_loop: whether X is a loop.
    """

    declare: Declare
    expected: Callable[[list[Row], list[Row]], Iterable[tuple[Any, ...]]]
    shown: Callable[[Row], tuple[Any, ...]] = lambda row: (row["id"],)
    make: Callable[[int, bool], Any] | None = None
    keyed: tuple[str, ...] = ()
    sources: tuple[str, ...] = ("S",)
    time: str | None = None
    has_loop: bool = False

    @property
    def refuses(self) -> dict[str, str]:
        """Action to words of the error by which it is always refused."""
        if self.has_loop:
            looped = "a dataflow with a loop cannot be rescaled yet"
            return {
                "bins": "the dataflow has a loop", "splits": "has times or a loop", "host joins": looped,
                "host leaves": looped,
            }  # fmt: skip
        refused = {} if self.keyed else {"bins": "gets no rows by key, so it has no bins; expected a keyed operator"}
        return refused | ({"splits": "cannot be moved: the dataflow has times or a loop"} if self.time else {})

    @property
    def may_refuse(self) -> tuple[str, ...]:
        """Words of errors by which some actions are refused, as by the layout, or by what a change touches."""
        leaves = ("cannot leave: splits of S cannot be moved: the dataflow has times or a loop",) if self.time else ()
        loops = ("touches loop X, ",) if self.has_loop else ()
        return leaves + loops

    @property
    def runs_code(self) -> bool:
        """Whether X runs a function that can fail."""
        return self.make is not None and self.make(0, False).__class__ in CODE


CODE = (Mark, Keep, Many, Count, CountMany, Slices, Route, Close, Remind)


def _maker(made: type[Versioned]) -> Callable[[int, bool], Any]:
    return lambda version, letters: made("X", version, letters)


def _function(method: str, made: type[Versioned], key: str | None = None) -> Declare:
    more = {"key": key} if key else {}

    def declare(flow: fn.Dataflow, before: Stream, setting: Setting) -> Stream:
        return getattr(before, method)(  # type: ignore[no-any-return]
            "X", made("X", 0, setting.letters), workers=setting.workers(), **more, **setting.x
        )

    return declare


def _counted(rows: list[Row]) -> list[tuple[Any, ...]]:
    """The key of each row with its place in it."""
    seen, shown = Counter[int](), list[tuple[Any, ...]]()
    for row in rows:
        seen[row["k"]] += 1
        shown.append((row["k"], seen[row["k"]]))
    return shown


def _dedup(flow: fn.Dataflow, before: Stream, setting: Setting) -> Stream:
    return before.map("D", lambda row: {"d": row["d"]}, workers=setting.workers()).dedup(
        "X", on="d", workers=setting.workers()
    )


def _self_join(flow: fn.Dataflow, before: Stream, setting: Setting) -> Stream:
    left, right = before.replicate("R", workers=setting.workers())
    left = left.map("L", lambda row: row | {"left": 1}, workers=setting.workers())
    right = right.map("M", lambda row: {"id": row["id"], "right": row["P"]}, workers=setting.workers())
    return left.self_join("X", right, on="id", workers=setting.workers())


def _self_join_of_two(flow: fn.Dataflow, before: Stream, setting: Setting) -> Stream:
    other = flow.source("T", fn.rate(None), workers=setting.workers())
    right = other.map("M", lambda row: {"n": row["n"], "right": 1}, workers=setting.workers())
    return before.self_join("X", right, on="n", unique=True, workers=setting.workers())


def _table(keyed: bool) -> Declare:
    def declare(flow: fn.Dataflow, before: Stream, setting: Setting) -> Stream:
        return before.join("X", table_of(0), on="k", one_to_many=True, key=keyed, workers=setting.workers())

    return declare


def _split(flow: fn.Dataflow, before: Stream, setting: Setting) -> Stream:
    one, other = before.split("X", Route("X", 0, setting.letters), workers=setting.workers(), **setting.x)
    one = one.map("A", lambda row: row | {"branch": 0}, workers=setting.workers())
    other = other.map("B", lambda row: row | {"branch": 1}, workers=setting.workers())
    return one.union("U", other, workers=setting.workers())


def _union(flow: fn.Dataflow, before: Stream, setting: Setting) -> Stream:
    other = flow.source("T", fn.rate(None), workers=setting.workers())
    return before.union("X", other, workers=setting.workers())


def _replicate(flow: fn.Dataflow, before: Stream, setting: Setting) -> Stream:
    one, other = before.replicate("X", workers=setting.workers())
    one = one.map("A", lambda row: row | {"copy": 0}, workers=setting.workers())
    return one.union("U", other.map("B", lambda row: row | {"copy": 1}, workers=setting.workers()))


def _window(made: Callable[[], Any]) -> Declare:
    def declare(flow: fn.Dataflow, before: Stream, setting: Setting) -> Stream:
        function = Close("X", 0, setting.letters)
        return before.window("X", function, made(), key="k", workers=setting.workers(), **setting.x)

    return declare


def _closed(size: int, every: int) -> Callable[[list[Row], list[Row]], Iterable[tuple[Any, ...]]]:
    """Key, end, rows and sum of all windows that have rows; each begins at a multiple of ``every``."""

    def expected(rows: list[Row], others: list[Row]) -> list[tuple[Any, ...]]:
        found: defaultdict[tuple[int, int], list[int]] = defaultdict(list)
        for row in rows:
            first = row["at"] // every * every
            for start in range(first, first - size, -every):
                found[row["k"], start + size].append(row["n"])
        return [(key, end, len(numbers), sum(numbers)) for (key, end), numbers in found.items()]

    return expected


def _loop(flow: fn.Dataflow, before: Stream, setting: Setting) -> Stream:
    def body(rows: Stream) -> tuple[Stream, Stream]:
        rows = rows.map("B", lambda row: row | {"round": row["round"] + 1}, workers=setting.workers())
        rows = rows.map("C", Count("C"), key="k", workers=setting.workers())
        again, done = rows.split("E", Again("E"), workers=setting.workers())
        return again, done

    entered = before.map("A", lambda row: row | {"round": 0, "C": 0, "seen": 0}, workers=setting.workers())
    return entered.iterate("X", body, workers=setting.workers())


def _sinks(flow: fn.Dataflow, before: Stream, setting: Setting) -> Stream:
    one, other = before.replicate("R", workers=setting.workers())
    other.sink("X", fn.memory(), workers=setting.workers())
    return one


def _same(rows: list[Row], others: list[Row]) -> list[tuple[Any, ...]]:
    return [(row["id"],) for row in rows]


WINDOW: dict[str, Any] = {
    "make": _maker(Close), "keyed": ("X",), "time": "at",
    "shown": lambda row: (row["k"], row["time"], row["rows"], row["sum"]),
}  # fmt: skip

KINDS: dict[str, Kind] = {
    "map": Kind(_function("map", Mark), _same, make=_maker(Mark)),
    "keyed map": Kind(
        _function("map", Count, "k"), lambda rows, _: _counted(rows), lambda row: (row["k"], row["seen"]),
        _maker(Count), ("X",),
    ),
    "filter": Kind(
        _function("filter", Keep), lambda rows, _: [(row["id"],) for row in rows if row["n"] % 3], make=_maker(Keep)
    ),
    "flat_map": Kind(
        _function("flat_map", Many), lambda rows, _: [(row["id"], n) for row in rows for n in range(row["n"] % 3)],
        lambda row: (row["id"], row["copy"]), _maker(Many),
    ),
    "keyed flat_map": Kind(
        _function("flat_map", CountMany, "k"),
        lambda rows, _: [(k, sign * seen) for k, seen in _counted(rows) if seen % 2 for sign in (1, -1)],
        lambda row: (row["k"], row["seen"]), _maker(CountMany), ("X",),
    ),
    "batched map": Kind(_function("map", Slices), _same, make=_maker(Slices)),
    "dedup": Kind(_dedup, lambda rows, _: {(row["d"],) for row in rows}, lambda row: (row["d"],), keyed=("X",)),
    "self_join": Kind(_self_join, _same, keyed=("X",)),
    "self_join of two": Kind(
        _self_join_of_two,
        lambda rows, others: [(row["n"],) for row in rows if row["n"] in {one["n"] for one in others}],
        lambda row: (row["n"],), keyed=("X",), sources=("S", "T"),
    ),
    "join": Kind(
        _table(False), lambda rows, _: [(row["id"], f"{row['k']}.{n}") for row in rows for n in range(row["k"] % 3)],
        lambda row: (row["id"], row["name"]), _joined,
    ),
    "keyed join": Kind(
        _table(True), lambda rows, _: [(row["id"], f"{row['k']}.{n}") for row in rows for n in range(row["k"] % 3)],
        lambda row: (row["id"], row["name"]), _joined, ("X",),
    ),
    "split": Kind(
        _split, lambda rows, _: [(row["id"], row["n"] // 2 % 2) for row in rows],
        lambda row: (row["id"], row["branch"]), _maker(Route),
    ),
    "union": Kind(
        _union, lambda rows, others: [(row["id"],) for row in rows + others], sources=("S", "T")
    ),
    "replicate": Kind(
        _replicate, lambda rows, _: [(row["id"], n) for row in rows for n in range(2)],
        lambda row: (row["id"], row["copy"]),
    ),
    "unnest": Kind(
        lambda flow, before, setting: before.unnest("X", "items", workers=setting.workers()),
        lambda rows, _: [(row["id"], item) for row in rows for item in row["items"]],
        lambda row: (row["id"], row["items"]),
    ),
    "tumbling window": Kind(_window(lambda: fn.tumbling(7)), _closed(7, 7), **WINDOW),
    "sliding window": Kind(_window(lambda: fn.sliding(12, every=4)), _closed(12, 4), **WINDOW),
    "reduce": Kind(
        _function("reduce", Close, "k"), lambda rows, _: [(row["k"], row["at"], 1, row["n"]) for row in rows], **WINDOW
    ),
    "timed function": Kind(
        _function("map", Remind, "k"), lambda rows, _: {(row["k"], row["at"] + 10) for row in rows},
        lambda row: (row["k"], row["time"]), _maker(Remind), ("X",), time="at",
    ),
    "loop": Kind(
        _loop, lambda rows, _: [(row["id"], row["n"] % 3 + 1) for row in rows],
        lambda row: (row["id"], row["round"]), keyed=("C",), has_loop=True,
    ),
    "source": Kind(lambda flow, before, setting: before, _same),
    "sink": Kind(_sinks, _same),
}  # fmt: skip
