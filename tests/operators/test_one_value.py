"""The contract of an edge: an operator gets one value for what another has written, chained with it or apart.

Every kind of operator passes every family of values, once in a chain with the operators around it, once each for itself
with Arrow batches in between. What comes out is equal, to its types; or both refuse it and name the column.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from operator_setting import execution, instance
from value_families import BERLIN, HELD, LATE, NOON, WEST, described

from fries_nb.dataflow.columns import DUE
from fries_nb.dataflow.operators import batched
from fries_nb.dataflow.tables import JoinTable
from fries_nb.dataflow.traits import Kind
from fries_nb.errors import OperatorError
from fries_nb.operators.instance import Instance

Row = dict[str, Any]
@dataclasses.dataclass
class Point:
    a: int = 1


class Color(enum.Enum):
    RED = 1


def _deep(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


REFUSED: dict[str, Any] = {
    "an enum": Color.RED, "a dataclass": Point(), "an object": object(), "a complex": 1j, "of numpy": np.complex64(1),
    "a time of day with a zone": dt.time(1, tzinfo=dt.UTC), "families in a list": [1, True],
    "naive beside aware in a list": [NOON, NOON.replace(tzinfo=dt.UTC)], "text beside bytes": ["a", b"b"],
    "a key that is no text": {1: 2}, "a key that is null": {None: 1}, "deep": _deep(100), "very deep": _deep(5000),
    "a range": range(3), "before the first year": dt.datetime(1, 1, 1, tzinfo=dt.timezone(dt.timedelta(hours=2))),
    "months": np.timedelta64(1, "M"), "an object in a dict": {"a": [object()]},
}  # fmt: skip


class Keeps:
    """Counts the tuples of a key."""

    def process(self, row: Row, state: Row) -> Row:
        state["n"] = state.get("n", 0) + 1
        return row | {"count": state["n"]}


def shown(row: Row) -> Row:
    """What an operator sees of a value: its type, itself, and what it says."""
    return row | {"seen": described(row["v"])}


@batched
def same_batch(rows: pa.RecordBatch) -> pa.RecordBatch:
    """A vectorised function in the midst."""
    return rows



def joined() -> JoinTable:
    """A table of which each row has a partner."""
    table = JoinTable("B", pa.table({"n": [0, 1, 2], "of_table": ["x", "y", "z"]}), {"n": "n"})
    table.open()
    return table


BETWEEN: dict[str, Callable[[], list[Instance]]] = {
    "nothing": list,
    "map": lambda: [instance("B", Kind.MAP, lambda row: row | {"w": row["v"]})],
    "a whole row": lambda: [instance("B", Kind.MAP, lambda row: dict(row))],
    "filter": lambda: [instance("B", Kind.FILTER, lambda row: row["n"] >= 0)],
    "flat_map": lambda: [instance("B", Kind.FLAT_MAP, lambda row: [row, row])],
    "generator": lambda: [instance("B", Kind.FLAT_MAP, lambda row: ({"n": row["n"], "v": row["v"]} for _ in "ab"))],
    "unnest": lambda: [instance("B", Kind.UNNEST, "of")],
    "dedup": lambda: [instance("B", Kind.DEDUP, None, key=("n",))],
    "split": lambda: [instance("B", Kind.SPLIT, lambda row: 0)],
    "join": lambda: [instance("B", Kind.JOIN, joined())],
    "batched": lambda: [instance("B", Kind.MAP, same_batch)],
    "state": lambda: [instance("B", Kind.MAP, Keeps(), key=("n",))],
    "guarded": lambda: [instance("B", Kind.MAP, lambda row: row | {"w": row["v"]}, on_error="pause")],
}  # fmt: skip


def made(values: list[Any], policy: str = "fail") -> Instance:
    """The operator that writes the values."""

    def write(row: Row) -> Row:
        return {"n": row["n"], "of": [row["n"]], "v": values[row["n"]]}

    return instance("A", Kind.MAP, write, on_error=policy)


def passed(chains: list[list[Instance]], count: int = 3) -> list[Row]:
    """What comes out of these chains, one behind the other with batches in between."""
    batches = [pa.RecordBatch.from_pydict({"n": list(range(count)), DUE: list(range(count))})]
    for chain in chains:
        running, out = execution(*chain), []
        for batch in batches:
            running.load("L", batch)
            while running.remaining:
                running.advance(100)
            out += [batch for _, batch in running.results()]
        batches = out
    return [row for batch in batches for row in batch.to_pylist()]


def both(values: list[Any], between: str, count: int = 3) -> tuple[list[Row], list[Row]]:
    """What comes out of one chain of the operators, and of the operators one by one."""
    chain = [made(values), *BETWEEN[between](), instance("C", Kind.MAP, shown)]
    apart = [made(values), *BETWEEN[between](), instance("C", Kind.MAP, shown)]
    return passed([chain], count), passed([[one] for one in apart], count)


@pytest.mark.parametrize("between", BETWEEN)
@pytest.mark.parametrize("family", HELD)
def test_chained_and_apart_an_operator_sees_one_value(family: str, between: str) -> None:
    """Also what it passes on is equal, and the columns are of equal types."""
    chained, apart = both(HELD[family], between)
    assert chained == apart
    assert chained


@pytest.mark.parametrize("family", HELD)
def test_many_rows_see_what_few_rows_see(family: str) -> None:
    """The inner loop, which takes over after some rows, gives the same values."""
    values = HELD[family] * 60
    chained, apart = both(values, "map", len(values))
    assert [row["seen"] for row in chained] == [row["seen"] for row in apart]


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("policy", ["fail", "pause"])
def test_what_no_column_holds_is_refused_by_name_chained_and_apart(name: str, policy: str) -> None:
    """By the operator that wrote it, on that tuple, even if the next one does not look at it."""
    values = [None, REFUSED[name], None]
    for chains in ([[0, 1]], [[0], [1]]):
        pair = [made(values, policy), instance("C", Kind.MAP, lambda row: {"n": row["n"]})]
        with pytest.raises(OperatorError, match=r"^A failed on a tuple: column 'v' cannot hold ") as caught:
            passed([[pair[at] for at in chain] for chain in chains])
        assert caught.value.operator == "A"


@pytest.mark.parametrize("policy", ["fail", "pause"])
@pytest.mark.parametrize("nested", [lambda at: at, lambda at: [at], lambda at: {"a": at}, lambda at: [{"a": (at,)}]])
def test_times_with_and_without_a_zone_are_two_families(nested: Callable[[Any], Any], policy: str) -> None:
    """In the rows of one batch, at any depth, by name; from batch to batch, too, if each tuple may be set aside."""
    values = [nested(NOON), nested(NOON.replace(tzinfo=WEST))]
    for order in (values, values[::-1]):
        with pytest.raises(OperatorError, match=r"^A failed on a tuple: column 'v' cannot hold "):
            passed([[made(order, policy)]], 2)


def test_a_column_keeps_the_zone_that_came() -> None:
    """What replaces it is shown in that zone, chained and apart, also beside rows that keep what came."""
    came = pa.array([at.replace(tzinfo=dt.UTC) for at in (NOON, NOON, LATE)], pa.timestamp("us", BERLIN))
    batch = pa.RecordBatch.from_arrays([pa.array([0, 1, 2]), came, pa.array([0, 1, 2])], names=["n", "v", DUE])

    def later(row: Row) -> Row:
        return row if row["n"] == 1 else row | {"v": (row["v"] + dt.timedelta(hours=1)).astimezone(WEST)}

    found = []
    for chains in ([[later, shown]], [[later], [shown]]):
        batches = [batch]
        for chain in chains:
            running = execution(*[instance(f"O{at}", Kind.MAP, one) for at, one in enumerate(chain)])
            running.load("L", batches[0])
            running.advance(10)
            batches = [out for _, out in running.results()]
        found.append(batches[0].column("seen").to_pylist())
        assert batches[0].schema.field("v").type == came.type
    assert found[0] == found[1]
    assert [text[-14:] for text in found[0]] == ["15:00:00+02:00", "14:00:00+02:00", "03:30:00+01:00"]


@pytest.mark.parametrize("whole", [True, False])
def test_a_column_that_only_some_rows_have_is_null_in_later_ones(whole: bool) -> None:
    """From the first row on that has it: chained, apart, and in later batches."""

    def sparse(row: Row) -> Row:
        out = {"n": row["n"]} if whole else row
        return out | {"b": row["n"]} if row["n"] % 2 == 0 else out

    def all_of(row: Row) -> Row:
        return {"n": row["n"], "b": row["b"], "names": ",".join(sorted(row)), "there": "b" in row}

    found = []
    for chains in ([[sparse, all_of]], [[sparse], [all_of]]):
        rows = passed([[instance(f"O{at}", Kind.MAP, one) for at, one in enumerate(chain)] for chain in chains], 5)
        found.append(rows)
    assert found[0] == found[1]
    assert [row["b"] for row in found[0]] == [0, None, 2, None, 4]
    assert {row["names"] for row in found[0]} == {"b,n"}


def test_a_column_that_some_rows_have_is_there_in_later_batches() -> None:
    """Nothing depends on where batches are cut; a new function begins anew."""
    running = execution(instance("A", Kind.MAP, lambda row: row | {"b": 1} if row["n"] == 0 else row))
    found = []
    for number in (1, 0, 1, 2):
        running.load("L", pa.RecordBatch.from_pydict({"n": [number], DUE: [0]}))
        running.advance(1)
        found += [batch.schema.names for _, batch in running.results()]
    assert found == [["n", DUE], *[["n", "b", DUE]] * 3]
    running.rebuild()
    running.load("L", pa.RecordBatch.from_pydict({"n": [1], DUE: [0]}))
    running.advance(1)
    assert running.results()[0][1].schema.names == ["n", DUE]


MAP = pa.map_(pa.string(), pa.int64())


@pytest.mark.parametrize(
    ("kind", "value", "change", "expected"),
    [
        (MAP, [("a", 1)], lambda m: m | {"b": 2}, [("a", 1), ("b", 2)]),
        (MAP, [("a", 1)], lambda m: m, [("a", 1)]),
        (MAP, [("a", 1)], lambda m: {"a": m["a"] + 0.5}, [("a", 1.5)]),
        (MAP, [("a", 1)], lambda m: {}, []),
        (pa.map_(pa.int64(), pa.string()), [(1, "x")], lambda m: m | {2: "y"}, [(1, "x"), (2, "y")]),
        (pa.map_(pa.string(), MAP), [("a", [("b", 1)])], lambda m: {"c": m["a"] | {"d": 2}},
            [("c", [("b", 1), ("d", 2)])]),
        (pa.list_(MAP), [[("a", 1)]], lambda m: [*m, {"b": m[0]["a"]}], [[("a", 1)], [("b", 1)]]),
        (pa.struct([("m", MAP)]), {"m": [("a", 1)]}, lambda m: {"m": m["m"] | {"b": 0}}, {"m": [("a", 1), ("b", 0)]}),
    ],
)  # fmt: skip
def test_maps_are_dicts_and_stay_maps(kind: pa.DataType, value: Any, change: Any, expected: Any) -> None:
    """At any depth, also if they are changed; a null stays one."""
    batch = pa.RecordBatch.from_arrays([pa.array([value, None], kind), pa.array([0, 1])], names=["m", DUE])

    def changed(row: Row) -> Row:
        return row | {"m": change(row["m"])} if row["m"] is not None else row

    running = execution(instance("A", Kind.MAP, changed), instance("B", Kind.MAP, lambda row: {**row, "x": 1}))
    running.load("L", batch)
    running.advance(10)
    [(_, out)] = running.results()
    assert out.column("m").to_pylist() == [expected, None]
    assert str(out.schema.field("m").type).startswith(str(kind)[:6])


def test_a_map_with_one_key_twice_is_refused_by_name() -> None:
    """A dict would have lost one of its values."""
    batch = pa.RecordBatch.from_arrays([pa.array([[("a", 1), ("a", 2)]], MAP), pa.array([0])], names=["m", DUE])
    running = execution(instance("A", Kind.MAP, lambda row: row | {"x": row["m"]["a"]}))
    running.load("L", batch)
    with pytest.raises(OperatorError, match=r"A failed on a tuple: ValueError: column 'm': a map has one key twice"):
        running.advance(1)


@pytest.mark.parametrize("name", [None, 3, ("a",), "", "\ud800", 1.5, b"x"])
@pytest.mark.parametrize("policy", ["fail", "pause"])
@pytest.mark.parametrize("chained", [True, False])
@pytest.mark.parametrize("whole", [True, False])
def test_a_column_that_has_no_name_is_refused(name: Any, policy: str, chained: bool, whole: bool) -> None:
    """Whatever the next operator makes of it."""

    def named(row: Row) -> Row:
        return {**row, name: 2} if whole else row | {name: 2}

    chain = [instance("A", Kind.MAP, named, on_error=policy)]
    if chained:
        chain.append(instance("C", Kind.MAP, lambda row: {"n": row["n"]}))
    with pytest.raises(OperatorError, match=r"^A failed on a tuple: .*column"):
        passed([chain])


class Forgets:
    """Loses the key in one of the ways there are."""

    def __init__(self, way: str) -> None:
        self.way = way

    def __call__(self, row: Row) -> Any:
        if row["n"] == 1:
            if self.way == "del":
                del row["k"]
            elif self.way == "pop":
                row.pop("k")
            else:
                return {"n": row["n"]} if self.way == "dict" else {"n": row["n"]} | {"x": 1}
        return row


WAYS = "dict", "or", "del", "pop"


@pytest.mark.parametrize(
    ("way", "kind"),
    [*product(WAYS, [Kind.MAP, Kind.FLAT_MAP]), ("del", Kind.FILTER), ("pop", Kind.FILTER)],  # a filter returns no row
)
@pytest.mark.parametrize("chained", [True, False])
@pytest.mark.parametrize("policy", ["fail", "pause"])
def test_a_row_without_the_key_of_its_receiver_fails_alone(way: str, kind: Kind, chained: bool, policy: str) -> None:
    """Whatever other rows of the batch have, at the operator that lost it; null is a key."""
    forgets = Forgets(way)
    function: Any = forgets if kind is Kind.MAP else (lambda row: [forgets(row)])
    one = instance("A", kind, function, on_error=policy)
    one.written.needed = ({"k": "K"},)
    running = execution(one, *([instance("K", Kind.MAP, Keeps(), key=("k",))] if chained else []))
    running.load("L", pa.RecordBatch.from_pydict({"n": [0, 1, 2], "k": [None, "a", "b"], DUE: [0, 1, 2]}))
    with pytest.raises(OperatorError, match=r"^A failed on a tuple: its row has n(, x)?, and K is keyed by k$"):
        running.advance(10)
    assert [row["k"] for _, batch in running.results() for row in batch.to_pylist()] == [None]


def test_a_batch_without_the_key_of_its_receiver_fails() -> None:
    """Of a vectorised function."""
    one = instance("A", Kind.MAP, batched(lambda rows: rows.drop_columns(["k"])))
    one.written.needed = ({"k": "K"},)
    running = execution(one)
    running.load("L", pa.RecordBatch.from_pydict({"n": [0], "k": ["a"], DUE: [0]}))
    with pytest.raises(OperatorError, match=r"^A failed on a tuple: its row has n, and K is keyed by k$"):
        running.advance(10)
