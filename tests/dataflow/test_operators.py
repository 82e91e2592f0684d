"""Joins, dedups, blocking operators and policies on errors, as they are declared; their bad input."""

from __future__ import annotations

import pickle
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fries_nb.dataflow import (
    Aggregation,
    DataflowBuilder,
    Edge,
    Emits,
    JoinTable,
    Kind,
    Ordering,
    Partitioning,
    Stream,
    Update,
    as_updates,
    check_runnable,
    check_updates,
    delta,
    graph_from_json,
    graph_to_json,
    memory,
    new_table,
    parquet,
    rate,
)
from fries_nb.errors import DataflowError, DeclarationError, FriesError, PlanError, SinkError

SHOPS = pa.table({"shop": [1, 2], "city": ["Rome", "Oslo"]})
TWICE = pa.table({"shop": [1, 2, 1, 1, 2], "city": ["a", "b", "c", "d", "e"]})


@pytest.fixture
def sales() -> Stream:
    """The stream of a source whose rows an ID tells apart."""
    return DataflowBuilder("shops").source("sales", rate(1_000), identity="ID")


def test_a_join_with_a_table_is_one_to_one_and_stays_where_its_rows_are(sales: Stream) -> None:
    """Unless it is told to partition them; the identity goes through a one-to-one join and ends at a one-to-many."""
    one = sales.join("J1", SHOPS, "shop")
    two = one.join("J2", SHOPS, {"city": "city"}, how="left", suffix="_2", key=True, one_to_many=True)
    two.join("J3", SHOPS, ["shop", "city"], key="ID", workers=3).sink("out", memory())
    graph = sales.flow.graph()
    assert graph.edges[:3] == (
        Edge("sales", "J1"),
        Edge("J1", "J2", Partitioning.HASH, ("city",)),
        Edge("J2", "J3", Partitioning.HASH, ("ID",)),
    )
    assert [graph.operator(f"J{n}").emits for n in (1, 2, 3)] == [
        Emits.ONE_TO_ONE, Emits.ONE_TO_MANY, Emits.ONE_TO_ONE
    ]  # fmt: skip
    assert (one.identity, two.identity) == (sales.identity, None)
    check_runnable(graph)


def test_a_dedup_is_unique_on_the_identity_unless_that_was_multiplied(sales: Stream) -> None:
    """Below a flat_map the children may have identities of their own; the analyst may know better."""
    sales.dedup("D1", "ID").flat_map("F", lambda row: [row]).dedup("D2", "ID").dedup("D3", "ID", unique=True)
    sales.dedup("D4", ["ID", "shop"])
    graph = sales.flow.graph()
    assert [graph.operator(f"D{n}").unique_per_transaction for n in (1, 2, 3, 4)] == [True, False, True, False]
    assert graph.in_edges("D4")[0].key == ("ID", "shop")


def test_blocking_operators_are_sql(sales: Stream) -> None:
    """They block, and say what Spark is to compute."""
    sales.aggregate("A", ["shop", "day"], {"total": "sum(x)"}).sort("S", "total", descending=True).sink("o", memory())
    graph = sales.flow.graph()
    assert [graph.operator(name).blocking for name in ("sales", "A", "S")] == [False, True, True]
    assert graph.operator("A").function == Aggregation(("shop", "day"), (("total", "sum(x)"),))
    assert graph.operator("S").function == Ordering((("total", True),))
    assert Aggregation((), (("n", "count(*)"),)).sql("a`b") == "SELECT count(*) AS `n` FROM `a``b`"


def test_a_policy_is_kept_and_travels_as_json(sales: Stream) -> None:
    """Old JSON has none, which means fail; of a sink, JSON says only that there is one."""
    plain = sales.map("M", dict).filter("F", bool, on_error="pause").unnest("U", "xs", on_error=parquet("bad"))
    plain.split("S", bool, on_error=memory())[0].join("J", SHOPS, "shop", on_error=delta("bad")).flat_map(
        "FM", list, on_error="fail"
    )
    graph = sales.flow.graph()
    written = graph_to_json(graph)
    found = {item["name"]: item.get("on_error") for item in written["operators"]}
    assert found == {
        "sales": None, "M": None, "F": "pause", "U": "dead_letters", "S": "dead_letters", "J": "dead_letters",
        "FM": None,
    }  # fmt: skip
    again = graph_from_json(written)
    assert graph_to_json(again) == written
    assert (again.operator("F").on_error, again.operator("M").on_error) == ("pause", "fail")


BAD: dict[str, tuple[Any, str]] = {
    "policy": (lambda s: s.map("A", dict, on_error="pass"), "on_error='pass'; expected 'fail'.*did you mean"),
    "policy of no kind": (lambda s: s.unnest("A", "x", on_error=5), "'A' has on_error=5; expected 'fail', 'pau"),
    "policy, a source": (lambda s: s.split("A", bool, on_error=rate(5)), r"expected 'fail', 'pause', or where"),
    "table": (lambda s: s.join("A", 5, "shop"), "join 'A' got a int as its table; expected a Spark DataFrame"),
    "empty path": (lambda s: s.join("A", "", "shop"), "join 'A' got a str as its table"),
    "column": (lambda s: s.join("A", SHOPS, "shp"), "join 'A': no column 'shp'.*did you mean 'shop'"),
    "mapped": (lambda s: s.join("A", SHOPS, {"shop": "s"}), "the table of join 'A': no column 's'"),
    "no column": (lambda s: s.join("A", SHOPS, []), r"join 'A' has on=\[\]; expected a column"),
    "number": (lambda s: s.join("A", SHOPS, 7), "join 'A' has on=7; expected a column"),
    "twice": (lambda s: s.join("A", SHOPS, {"a": "shop", "b": "shop"}), "once each"),
    "how": (lambda s: s.join("A", SHOPS, "shop", how="outer"), "how='outer'; expected 'inner' or 'left'"),
    "many": (lambda s: s.join("A", SHOPS, "shop", one_to_many="yes"), "one_to_many='yes'; expected True"),
    "suffix": (lambda s: s.join("A", SHOPS, "shop", suffix=""), "join 'A' has suffix=''"),
    "key": (lambda s: s.join("A", SHOPS, "shop", key=3), "'A' has the key 3"),
    "dedup on nothing": (lambda s: s.dedup("A", None), "dedup 'A' needs the columns to dedup on; got on=None"),
    "dedup on no columns": (lambda s: s.dedup("A", []), "'A' has the key"),
    "aggregate": (lambda s: s.aggregate("A", "shop", {}), "aggregate 'A' got {}; expected"),
    "expression": (lambda s: s.aggregate("A", "shop", {"n": 5}), "expected a name and a SQL expression"),
    "grouped twice": (lambda s: s.aggregate("A", "n", {"n": "sum(n)"}), "'n' twice"),
    "sort": (lambda s: s.sort("A", None), "sort 'A' needs the columns"),
    "descending": (lambda s: s.sort("A", "n", descending="x"), "descending='x'; expected True or False"),
    "sink": (lambda s: s.sink("A", "path"), r"sink .A. got .path.; expected a sink: memory\(\)"),
}


@pytest.mark.parametrize("case", BAD)
def test_mistakes_are_refused_where_they_are_made(sales: Stream, case: str) -> None:
    """And nothing is declared by them."""
    mistake, said = BAD[case]
    with pytest.raises(DataflowError, match=said):
        mistake(sales)
    assert list(sales.flow.graph()) == ["sales"]


def test_delta_takes_a_path() -> None:
    """Like parquet."""
    with pytest.raises(SinkError, match="delta takes the path of a directory; got 5"):
        delta(5)  # type: ignore[arg-type]


# ---- tables


def opened(data: Any, on: dict[str, str], **more: Any) -> JoinTable:
    """A table as a host has it: pickled, unpickled and open."""
    table: JoinTable = pickle.loads(pickle.dumps(JoinTable("J1", data, on, **more)))
    table.open()
    return table


def test_rows_are_found_by_key_without_the_keys_columns() -> None:
    """Equal numbers are equal whatever their type; what is found may be changed."""
    table = opened(SHOPS, {"SHOP": "shop"})
    table.find(1)[0]["city"] = "x"
    assert table.find(Decimal(1)) == table.find(1.0) == [{"city": "Rome"}]
    assert (table.find(3), table.schema.names, table.key) == ([], ["city"], ("SHOP",))


def test_null_equals_nothing_and_nan_equals_nan() -> None:
    """As in Spark's joins."""
    nan = float("nan")
    table = opened(pa.table({"a": [nan, None, 1.5], "n": [1, 2, 3]}), {"a": "a"})
    assert (table.find(float("nan")), table.find(None), table.find(1.5)) == ([{"n": 1}], [], [{"n": 3}])
    two = opened(pa.table({"a": [nan, 1.0], "b": [1, None], "n": [1, 2]}), {"x": "a", "y": "b"})
    assert (two.find((float("nan"), 1)), two.find((1.0, None))) == ([{"n": 1}], [])


def test_keys_that_come_twice_are_refused_or_declared() -> None:
    """One-to-one wants one row a key, and says which key has more."""
    assert [row["city"] for row in opened(TWICE, {"shop": "shop"}, one_to_many=True).find(1)] == ["a", "c", "d"]
    with pytest.raises(DeclarationError, match=r"2 keys come more than once in the table of J1, e.g. 1; expected one"):
        opened(TWICE, {"shop": "shop"})


@pytest.mark.parametrize(
    ("key", "said"),
    [("1", "'1' is a string, and in the table it is a number"), (b"1", "bytes, and in the table it is a number")],
)
def test_a_key_that_can_equal_none_is_an_error_not_a_miss(key: Any, said: str) -> None:
    """A join of strings with numbers would find nothing, for ever."""
    with pytest.raises(TypeError, match=said):
        opened(SHOPS, {"shop": "shop"}).find(key)


def test_a_table_is_read_from_a_path(tmp_path: Any) -> None:
    """Its columns are checked when it is read."""
    pq.write_table(SHOPS, tmp_path / "shops.parquet")
    assert opened(str(tmp_path), {"s": "shop"}).find(2) == [{"city": "Oslo"}]
    with pytest.raises(DataflowError, match="the table of join 'J1': no column 'store'"):
        opened(tmp_path / "shops.parquet", {"store": "store"})


def test_a_table_that_was_not_opened_says_so() -> None:
    """Instead of finding nothing."""
    with pytest.raises(DeclarationError, match="the table of J1 was not opened"):
        JoinTable("J1", SHOPS, {"shop": "shop"}).find(1)


# ---- changes


def test_a_join_is_changed_to_another_table(sales: Stream) -> None:
    """Looked into as the old one was."""
    sales.join("J1", SHOPS, {"s": "shop"}, how="left", suffix="_r")
    graph = sales.flow.graph()
    updates = as_updates({"J1": TWICE})
    check_updates(graph, updates)
    table = new_table(graph.operator("J1"), updates["J1"])
    assert (table.on, table.how, table.suffix, table.data) == ({"s": "shop"}, "left", "_r", TWICE)
    check_updates(graph, as_updates({"J1": "some/path"}))


@pytest.mark.parametrize(
    ("change", "error", "said"),
    [
        (lambda: {"J1": dict}, DataflowError, "join 'J1' got a type as its table"),
        (lambda: {"J1": pa.table({"x": [1]})}, DataflowError, "no column 'shop'"),
        (lambda: {"J1": Update(SHOPS, state=list)}, PlanError, "'J1' is a join and keeps no state"),
        (lambda: {"J1": JoinTable("J1", SHOPS, {"shop": "shop"}, one_to_many=True)}, PlanError, "one row at most"),
        (lambda: {"M": SHOPS}, DataflowError, "'M': got a Table, which cannot be called"),
        (lambda: {"D": dict}, PlanError, r"'D' \(dedup\) runs no function"),
    ],
)
def test_changes_that_cannot_be_are_refused(sales: Stream, change: Any, error: type[FriesError], said: str) -> None:
    """A table for what is no join, and the like."""
    sales.join("J1", SHOPS, "shop").map("M", dict).dedup("D", "ID").sink("out", memory())
    graph = sales.flow.graph()
    with pytest.raises(error, match=said):
        check_updates(graph, as_updates(change()))
    assert graph.operator("J1").kind is Kind.JOIN
