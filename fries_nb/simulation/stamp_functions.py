"""Functions that append their name and version to every row, so that a row shows which versions processed it.

Rows have these columns: ``id``, unique in a stream; ``number``, used by predicates; ``customer``, a key; ``items``, a
list to unnest; and ``trail``, to which operators append stamps:

    M3@0;           operator M3 with its first version
    K4@2#5,31;      keyed operator K4 with version 2, fifth tuple of its key, with checksum 31
    (..|..)         the result of a self-join

A function may be poisoned by the numbers of some rows: it then raises, after half of its work.

The effect on a row depends on the row and on ``salt`` only, never on the version, so a reference knows everything about
rows except versions. A keyed function includes its version in the state of the key, tuple by tuple.

Fixed dataflows of the paper's figures, made of functions that append their version to every row.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from copy import copy as copied
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pyarrow as pa

from fries_nb.dataflow.builder import DataflowBuilder
from fries_nb.dataflow.endpoints import memory, rate
from fries_nb.dataflow.operators import batched
from fries_nb.dataflow.streams import Stream
from fries_nb.dataflow.tables import JoinTable
from fries_nb.simulation.seeded_calls import Pause


def source(flow: DataflowBuilder, name: str = "S0") -> Stream:
    """The source of each dataflow."""
    return flow.source(name, rate(None, count=1), identity="id")


def mark(stream: Stream, name: str) -> Stream:
    """A map that stamps rows."""
    return stream.map(name, Mark(name))


def running_example(flow: DataflowBuilder) -> None:
    """FC -> FM -> MC (Fries, figure 1)."""
    mark(mark(mark(source(flow), "FC"), "FM"), "MC").sink("out", memory())


def figure_8(flow: DataflowBuilder) -> None:
    """FC -> J, one-to-many -> SP -> {FMX, FMY} -> U."""
    x, y = mark(source(flow), "FC").flat_map("J", Many("J")).split("SP", Router("SP"))
    mark(x, "FMX").union("U", mark(y, "FMY")).sink("out", memory())


def figure_9_ii(flow: DataflowBuilder) -> None:
    """RE -> C -> E; RE -> D -> F."""
    left, right = source(flow).replicate("RE")
    mark(mark(left, "C"), "E").sink("left", memory())
    mark(mark(right, "D"), "F").sink("right", memory())


def figure_9_iii(flow: DataflowBuilder) -> None:
    """RE -> {C, D} -> X; X processes both replicas of a tuple."""
    left, right = source(flow).replicate("RE")
    both = mark(left, "C").union("U", mark(right, "D"))
    mark(both, "X").sink("out", memory())


def figure_10(flow: DataflowBuilder) -> None:
    """RE -> {C, D} -> SJ -> E; the self-join emits one tuple for each transaction."""
    left, right = source(flow).replicate("RE")
    mark(mark(left, "C").self_join("SJ", mark(right, "D"), on="id"), "E").sink("out", memory())


def unnested(flow: DataflowBuilder) -> None:
    """F1 -> U2 (unnest) -> {FD1, FD2} -> F2 (workload W4)."""
    rows = mark(source(flow), "F1").unnest("U2", "items").map("L", Relabel("L"))
    one, two = rows.split("SP", Router("SP"))
    mark(mark(one, "FD1").union("FU", mark(two, "FD2")), "F2").sink("out", memory())


Figure = Callable[[DataflowBuilder], None]


STAMP = re.compile(r"(\w+)@(\d+)(?:#(\d+),(\d+))?;")
MODULUS = 1_000_003

Row = dict[str, Any]


class Stamp(NamedTuple):
    """The stamp of an operator; ``place`` and ``checksum`` are 0 unless it is keyed."""

    operator: str
    version: int
    place: int
    checksum: int


def stamps(trail: str) -> list[Stamp]:
    """The stamps of a trail, in order.

    >>> stamps("M3@0;K4@2#5,31;")[1]
    Stamp(operator='K4', version=2, place=5, checksum=31)
    """
    return [Stamp(name, int(v), int(n or 0), int(c or 0)) for name, v, n, c in STAMP.findall(trail)]


def without_versions(trail: str) -> str:
    """The operators that a row passed.

    >>> without_versions("(M3@0;|K4@2#5,31;)F5@1;")
    '(M3;|K4;)F5;'
    """
    return STAMP.sub(r"\1;", trail)


def passes(number: int, salt: int) -> bool:
    """Whether filters keep a row: three of four."""
    return (number * 7 + salt) % 4 != 0


def branch_of(number: int, salt: int, into: int) -> int:
    """The branch of a split for a row."""
    return (number // 3 + salt) % into


CUSTOMER_STEP = 7
"""Step between the numbers of customers; customers 0 and 7 belong to different workers of two or of three."""


def copies_of(number: int, salt: int) -> int:
    """The number of rows that a flat_map makes of one: none, one or two."""
    return (number + salt) % 3


def elements_of(number: int) -> list[int]:
    """The value of a list column, with distinct elements; never empty, since an empty list has no type."""
    return [number % 5, number % 5 + 1][: 1 + number % 2]


@dataclass
class _Versioned:
    name: str
    salt: int = 0
    version: int = 0
    poison: frozenset[int] = frozenset()

    def stamp(self) -> str:
        return f"{self.name}@{self.version};"

    def taste(self, row: Row) -> None:
        if row["number"] in self.poison:
            if isinstance(row["items"], list):
                row["items"].append(-1)
            raise ZeroDivisionError(f"{self.name} cannot digest {row['number']}")


class Mark(_Versioned):
    """map: stamps the row in place."""

    def __call__(self, row: Row) -> Row:
        row["trail"] = row["trail"] + self.stamp()
        self.taste(row)
        return row


class Sieve(_Versioned):
    """map: stamps a copy of the row, or drops it."""

    def __call__(self, row: Row) -> Row | None:
        self.taste(row)
        return row | {"trail": row["trail"] + self.stamp()} if passes(row["number"], self.salt) else None


class Keep(_Versioned):
    """filter."""

    def __call__(self, row: Row) -> bool:
        self.taste(row)
        return passes(row["number"], self.salt)


class Many(_Versioned):
    """flat_map: none, one or two copies, each with an id of its own."""

    def __call__(self, row: Row) -> Iterator[Row]:
        for copy in range(copies_of(row["number"], self.salt)):
            yield row | {"id": f"{row['id']}.{copy}", "trail": row["trail"] + self.stamp()}
        self.taste(row)


class Echo(_Versioned):
    """flat_map: duplicates the row, with the same id."""

    def __call__(self, row: Row) -> Iterator[Row]:
        made = row | {"trail": row["trail"] + self.stamp()}
        yield made
        self.taste(row)
        yield dict(made)


class Relabel(_Versioned):
    """map below an unnest: includes the element in the id, and creates a new list."""

    def __call__(self, row: Row) -> Row:
        row["id"] = f"{row['id']}/{row['items']}"
        self.taste(row)
        row["items"] = elements_of(row["number"])
        row["trail"] = row["trail"] + self.stamp()
        return row


class Label(_Versioned):
    """map below a join: includes the table's columns in the id and in the trail."""

    def __call__(self, row: Row) -> Row:
        self.taste(row)
        trail = f"{row['trail']}{row['stamp']}{self.stamp()}"
        made = {name: row[name] for name in ("number", "customer", "items")}
        return made | {"id": f"{row['id']}.{row['copy']}", "trail": trail}


class Table(JoinTable):
    """The table of a join, with its version."""

    version = 0


def table_of(name: str, salt: int, version: int, customers: int = 4) -> pa.Table:
    """A table for a join: no row for some customers, two for others, each with the join's stamp.

    Args:
        name: name of the join.
        salt: distinguishes operators.
        version: version of the table, part of the stamps.
        customers: number of customers.
    """
    rows = [
        {"who": customer, "copy": copy, "stamp": f"{name}@{version};"}
        for customer in range(0, customers * CUSTOMER_STEP, CUSTOMER_STEP)
        for copy in range(copies_of(customer, salt))
    ]
    schema = pa.schema({"who": pa.int64(), "copy": pa.int64(), "stamp": pa.string()})
    return pa.Table.from_pylist(rows, schema=schema)


class Fold(_Versioned):
    """map below a self-join: merges the two rows."""

    def __call__(self, row: Row) -> Row:
        trail = f"({row['trail']}|{row['trail_right']}){self.stamp()}"
        self.taste(row)
        return {name: row[name] for name in ("id", "number", "customer", "items")} | {"trail": trail}


@dataclass
class Router(_Versioned):
    """split."""

    into: int = field(default=2, kw_only=True)

    def __call__(self, row: Row) -> int:
        self.taste(row)
        return branch_of(row["number"], self.salt, self.into)


@batched
class Slices(_Versioned):
    """map by batches."""

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        for row in batch.select(["number"]).to_pylist():
            self.taste(row)
        place = batch.schema.get_field_index("trail")
        trail = pa.array([value + self.stamp() for value in batch.column(place).to_pylist()], pa.string())
        return batch.set_column(place, "trail", trail)


@dataclass
class Counter(_Versioned):
    """keyed map: counts the tuples of its key, logs the version of each, and keeps a checksum of them.

    ``form`` is the version to which the state must have been transformed, ``None`` for any. ``in_turns``: others may
    run beside it, with which it may share a form that it does not know, so that it begins states of form ``None`` then.
    """

    form: int | None = field(default=None, kw_only=True)
    in_turns: bool = field(default=False, kw_only=True)

    def initial_state(self) -> dict[str, Any]:
        is_shared = self.in_turns and self.form is None and self.version
        return {"form": None if is_shared else self.version, "before": [], "checksum": 0, "log": []}

    def process(self, row: Row, state: dict[str, Any]) -> Row:
        if self.form is not None and state["form"] not in (self.form, None):
            raise ValueError(f"{self.name} version {self.version} found a state of form {state['form']}")
        state["log"].append((row["id"], self.version))
        self.taste(row)
        state["checksum"] = counted(state["checksum"], self.version)
        row["trail"] = row["trail"] + f"{self.name}@{self.version}#{len(state['log'])},{state['checksum']};"
        return row


class Unopenable(_Versioned):
    """A function that cannot be prepared: its ``open()`` raises."""

    def open(self) -> None:
        raise OSError("no such model")

    def __call__(self, row: Row) -> Row:
        return row


class Unloadable(Unopenable):
    """A function that can be pickled, but not unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return (_refuse, (self.name,))


def _refuse(name: str) -> None:
    raise ImportError(f"no module for {name} here")


class Poison(_Versioned):
    """A function that can be prepared, and raises on every row."""

    def __call__(self, row: Row) -> Row:
        raise ZeroDivisionError(f"{self.name} is poison")


class Spoil(_Versioned):
    """map that accepts all rows, and makes the next operator fail on some."""

    def __call__(self, row: Row) -> Row:
        row["trail"] = None if row["number"] in self.poison else row["trail"] + self.stamp()
        return row


def counted(checksum: int, version: int) -> int:
    """The checksum after another tuple."""
    return (checksum * 3 + version + 1) % MODULUS


def converted(checksum: int, version: int) -> int:
    """The checksum after the state was transformed to this version."""
    return (checksum * 5 + 100 * version) % MODULUS


def reverted(checksum: int, version: int) -> int:
    """The checksum before the state was transformed to this version."""
    return (checksum - 100 * version) * pow(5, -1, MODULUS) % MODULUS


@dataclass
class Convert:
    """A state transformation: converts the state of :class:`Counter` to a version."""

    version: int

    def __call__(self, state: Mapping[str, Any]) -> dict[str, Any]:
        checksum, before = converted(state["checksum"], self.version), [*state["before"], state["form"]]
        return {"form": self.version, "before": before, "checksum": checksum, "log": list(state["log"])}


@dataclass
class Revert:
    """The inverse of ``Convert``; raises for a state that has not been converted to this version last."""

    version: int

    def __call__(self, state: Mapping[str, Any]) -> dict[str, Any]:
        if state["form"] not in (self.version, None):
            raise ValueError(f"a state of form {state['form']} was to go back from version {self.version}")
        checksum, before = reverted(state["checksum"], self.version), list(state["before"])
        return {"form": before.pop() if before else None, "before": before, "checksum": checksum, "log": state["log"]}


class AwaitedMark(Mark):
    """The same as a coroutine, which waits before and after its work, as those that follow."""

    async def __call__(self, row: Row) -> Row:  # type: ignore[override]
        await Pause()
        made = super().__call__(row)
        await Pause()
        return made


class AwaitedSieve(Sieve):
    """See ``AwaitedMark``."""

    async def __call__(self, row: Row) -> Row | None:  # type: ignore[override]
        await Pause()
        made = super().__call__(row)
        await Pause()
        return made


class AwaitedKeep(Keep):
    """See ``AwaitedMark``."""

    async def __call__(self, row: Row) -> bool:  # type: ignore[override]
        await Pause()
        return super().__call__(row)


class AwaitedMany(Many):
    """See ``AwaitedMark``."""

    async def __call__(self, row: Row) -> list[Row]:  # type: ignore[override]
        await Pause()
        return list(super().__call__(row))


class AwaitedCounter(Counter):
    """See ``AwaitedMark``; its state is changed while it waits."""

    async def process(self, row: Row, state: dict[str, Any]) -> Row:  # type: ignore[override]
        await Pause()
        made = super().process(row, state)
        await Pause()
        return made


AWAITED: Mapping[type, type] = {
    Mark: AwaitedMark, Sieve: AwaitedSieve, Keep: AwaitedKeep, Many: AwaitedMany, Counter: AwaitedCounter,
}  # fmt: skip


def as_coroutine(function: Any) -> Any:
    """A copy of a function of ``AWAITED`` that is a coroutine; others as they are."""
    made = copied(function)
    if type(function) in AWAITED:
        made.__class__ = AWAITED[type(function)]
    return made
