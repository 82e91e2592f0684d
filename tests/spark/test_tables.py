"""Joins with tables, dead letters and Delta sinks in real runs on Spark; joins give what Spark SQL gives."""

from __future__ import annotations

import gc
import json
import pickle
import re
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from patience import PATIENCE_S, until
from pyspark.sql import DataFrame, SparkSession

import fries_nb as fn
from fries_nb.dataflow import JoinTable, Update
from fries_nb.dataflow.graph import Kind, Operator
from fries_nb.errors import DataflowError, PlanError, SourceError
from fries_nb.spark import staging
from fries_nb.spark.staging import stage_table, stage_update


def sales() -> pa.Table:
    """Rows with a key that has one partner, several, or none; nulls too."""
    keys = [None if n % 10 == 9 else n % 8 for n in range(400)]
    return pa.table({"ID": range(400), "shop": pa.array(keys, pa.int64()), "name": [f"sale {n}" for n in range(400)]})


def shops(several: bool) -> pa.Table:
    """A row for each of six shops, or several for some; a null, which finds nobody."""
    keys = [0, 1, 2, 3, 4, 5, None] + ([1, 3, 3] if several else [])
    names = [f"shop {number}" for number in range(len(keys))]
    return pa.table({"key": pa.array(keys, pa.int64()), "name": names, "size": pa.array(range(len(keys)), pa.int32())})


def in_order(frame: DataFrame) -> list[tuple[Any, ...]]:
    """The rows of a DataFrame, sorted; columns by name."""
    rows = [tuple(row[name] for name in sorted(frame.columns)) for row in frame.collect()]
    return sorted(rows, key=str)


@pytest.mark.parametrize(("how", "several"), [("inner", False), ("left", True)])
def test_a_join_gives_what_sparks_own_join_gives(spark: SparkSession, runs: list[Any], how: str, several: bool) -> None:
    """With a DataFrame as its table, partitioned by key or not."""
    pandas = shops(several).to_pandas().astype({"key": "Int64"})
    table = spark.createDataFrame(pandas, "key long, name string, size int")
    flow = fn.Dataflow(f"joined-{how}-{several}")
    flow.source("sales", fn.replay(sales())).join(
        "J1", table, {"shop": "key"}, how=how, one_to_many=several, key=several
    ).sink("out", fn.memory())
    runs.append(run := flow.run(spark, hosts=2, workers=2))
    run.wait(timeout=PATIENCE_S)
    left = spark.createDataFrame(sales().to_pandas().astype({"shop": "Int64"}), "ID long, shop long, name string")
    right = table.withColumnRenamed("name", "name_right")
    expected = left.join(right, left["shop"] == right["key"], how).drop("key")
    assert run.output().columns == ["ID", "shop", "name", "name_right", "size"]
    assert dict(run.output().dtypes)["size"] == "int"
    assert in_order(run.output()) == in_order(expected)


def test_a_joins_table_is_changed_while_it_runs(spark: SparkSession, runs: list[Any], tmp_path: Path) -> None:
    """To a path and to a DataFrame; one that will not do is refused, and nothing has changed."""
    pq.write_table(pa.table({"key": [0], "name": ["second"]}), tmp_path / "second.parquet")
    flow = fn.Dataflow("tables")
    flow.source("n", fn.rate(2_000, row=lambda value: {"key": 0})).join(
        "J1", pa.table({"key": [0], "name": ["first"]}), "key"
    ).sink("out", fn.memory())
    runs.append(run := flow.run(spark, hosts=2, workers=2, commit_interval_s=0.2))
    assert run.reconfigure({"J1": str(tmp_path / "second.parquet")}).result(timeout=PATIENCE_S).outcome == "done"
    third = spark.createDataFrame([(0, "third")], "key long, name string")
    assert run.reconfigure({"J1": third}).result(timeout=PATIENCE_S).outcome == "done"
    assert run.rollback().result(timeout=PATIENCE_S).outcome == "done"
    assert run.reconfigure({"J1": third}).result(timeout=PATIENCE_S).outcome == "done"
    twice = pa.table({"key": [0, 0], "name": ["a", "b"]})
    refused = run.reconfigure({"J1": twice}).result(timeout=PATIENCE_S)
    assert refused.outcome == "aborted"
    assert "1 key comes more than once in the table of J1, e.g. 0" in refused.error
    with pytest.raises(DataflowError, match="no column 'key'"):
        run.reconfigure({"J1": pa.table({"x": [1]})})
    run.stop()
    names = {row["name"] for row in run.output().collect()}
    assert {"third"} <= names <= {"first", "second", "third"}


@pytest.mark.parametrize("name", ["table.parquet", "table"])
def test_a_path_is_the_table_that_was_there_when_it_was_given(
    spark: SparkSession, runs: list[Any], tmp_path: Path, name: str
) -> None:
    """A file or a directory that is written again is another table, and rollbacks are to the earlier ones."""
    place = tmp_path / name

    def write(town: str) -> str:
        if place.suffix:
            pq.write_table(pa.table({"key": [0], "town": [town]}), place)
        else:
            shutil.rmtree(place, ignore_errors=True)
            pq.write_to_dataset(pa.table({"key": [0], "town": [town], "part": ["a"]}), place, partition_cols=["part"])
        return str(place)

    flow = fn.Dataflow(f"again-{place.stem}{place.suffix}")
    rows = flow.source("n", fn.rate(500, row=lambda value: {"key": 0}))
    rows.join("J1", write("first"), "key").sink("out", fn.memory())
    runs.append(run := flow.run(spark, hosts=1, workers=1))
    run.wait_flowing(PATIENCE_S)
    assert run.reconfigure({"J1": write("second")}).result(timeout=PATIENCE_S).outcome == "done"
    until(lambda: set(run.rows("out", n=1)["town"]) == {"second"}, "rows of the second table")
    assert run.reconfigure({"J1": write("third")}).result(timeout=PATIENCE_S).outcome == "done"
    for town in ("second", "first"):
        assert run.rollback().result(timeout=PATIENCE_S).outcome == "done"
        until(lambda town=town: set(run.rows("out", n=1)["town"]) == {town}, town)  # type: ignore[misc]


def test_dead_letters_are_read_back(spark: SparkSession, runs: list[Any]) -> None:
    """From a row function with state and from a vectorised one; the others go their way."""

    class Counts:
        def process(self, row: dict[str, Any], state: dict[str, int]) -> dict[str, Any]:
            state["seen"] = state.get("seen", 0) + 1
            if row["value"] % 5 == 0:
                raise ValueError(f"poison {row['value']}")
            return row | {"seen": state["seen"]}

    @fn.batched
    def checked(rows: pa.RecordBatch) -> pa.RecordBatch:
        if 7 in rows["value"].to_pylist():
            raise ValueError("a seven")
        return rows

    flow = fn.Dataflow("poisoned")
    source = flow.source("n", fn.rate(None, count=100, row=lambda value: {"key": 1}))
    counted = source.map("FM", Counts(), key="key", on_error=fn.memory())
    counted.map("V", checked, on_error=fn.memory()).sink("out", fn.memory())
    runs.append(run := flow.run(spark, hosts=2, workers=2))
    run.wait(timeout=PATIENCE_S)
    rows = run.output().collect()
    assert sorted(row["value"] for row in rows) == [n for n in range(100) if n % 5 and n != 7]
    assert max(row["seen"] for row in rows) == 80
    letters = run.dead_letters("FM").collect()
    assert sorted(json.loads(letter["tuple"])["value"] for letter in letters) == list(range(0, 100, 5))
    assert all("poison" in letter["error"] and "process" in letter["traceback"] for letter in letters)
    [seven] = run.dead_letters("V").collect()
    assert (seven["operator"], json.loads(seven["tuple"])["value"]) == ("V", 7)
    with pytest.raises(DataflowError, match="operator 'n' keeps no dead letters"):
        run.dead_letters("n")


def test_a_value_that_no_column_holds_is_a_dead_letter(spark: SparkSession, runs: list[Any]) -> None:
    """A set of two kinds, and text in a column of numbers, whatever frame they come in; state does not count them."""

    class Shares:
        def process(self, row: dict[str, Any], state: dict[str, int]) -> dict[str, Any]:
            state["seen"] = state.get("seen", 0) + 1
            bad = {7: {1, "a"}, 8: "n/a"}.get(row["value"])
            return row | {"share": row["value"] / 2 if bad is None else bad, "seen": state["seen"]}

    flow = fn.Dataflow("unspeakable")
    source = flow.source("n", fn.rate(None, count=100, row=lambda value: {"key": 1}))
    source.map("FM", Shares(), key="key", on_error=fn.memory()).sink("out", fn.memory())
    runs.append(run := flow.run(spark, hosts=2, workers=2))
    assert run.wait(timeout=PATIENCE_S) == "finished", run.error
    rows = run.output().collect()
    assert {row["value"]: row["share"] for row in rows} == {n: n / 2 for n in range(100) if n not in (7, 8)}
    assert max(row["seen"] for row in rows) == len(rows) == 98
    letters = {json.loads(letter["tuple"])["value"]: letter["error"] for letter in run.dead_letters("FM").collect()}
    assert sorted(letters) == [7, 8]
    assert re.search(r"column 'share' cannot hold \{.*\} \(set\): ", letters[7])
    assert "column 'share' cannot hold 'n/a' (str): it was double before, and a column keeps its type" in letters[8]


def test_a_delta_sink_is_read_by_spark_and_by_deltalake(spark: SparkSession, runs: list[Any], tmp_path: Path) -> None:
    """Several commits, several runs; each run reads its own rows."""
    for first in (0, 1_000):
        flow = fn.Dataflow("to delta")
        flow.source("n", fn.rate(2_000, count=600, row=lambda value, first=first: {"n": first + value})).sink(
            "out", fn.delta(tmp_path / "table")
        )
        runs.append(run := flow.run(spark, hosts=2, workers=2, commit_interval_s=0.1))
        run.wait(timeout=PATIENCE_S)
        assert sorted(row["n"] for row in run.output().collect()) == list(range(first, first + 600))
    table = DeltaTable(str(tmp_path / "table"))
    assert sorted(table.to_pyarrow_table()["n"].to_pylist()) == [*range(600), *range(1_000, 1_600)]
    assert table.version() >= 2


# ---- staging


def joining(data: Any, **more: Any) -> JoinTable:
    """A declared join."""
    return JoinTable("J1", data, {"key": "key"}, **more)


def test_a_table_that_cannot_be_read_is_one_line(spark: SparkSession, tmp_path: Path) -> None:
    """No such path, no Parquet, no column, a query that fails."""
    (tmp_path / "text.parquet").write_text("no Parquet")
    pq.write_table(pa.table({"x": [1]}), tmp_path / "other.parquet")
    failing = spark.range(1).selectExpr("id AS key", "CAST(raise_error('bad row') AS STRING) AS name")
    for data, error, said in (
        (str(tmp_path / "none"), SourceError, "cannot read the table of join 'J1' at .*none"),
        (str(tmp_path / "text.parquet"), SourceError, "cannot read the table of join 'J1' at .*text.parquet"),
        (str(tmp_path / "other.parquet"), DataflowError, "the table of join 'J1': no column 'key'; expected one of x"),
        (failing, SourceError, "Spark cannot write the table of 'J1': .*bad row"),
    ):
        with pytest.raises(error, match=said) as caught:
            stage_table(joining(data), spark, str(tmp_path / "scratch"))
        assert "\n" not in str(caught.value)


def test_workers_of_one_process_share_a_table_as_long_as_one_runs_it(spark: SparkSession, tmp_path: Path) -> None:
    """The memory is free when the last one has switched."""
    staged = stage_table(joining(pa.table({"key": [1, 2]})), spark, str(tmp_path))
    one, two = (pickle.loads(pickle.dumps(staged)) for _ in range(2))
    one.open()
    two.open()
    assert one._index is two._index
    del one, two
    gc.collect()
    assert not [place for place in staging._SHARED if place[0] == staged.data]


def test_an_update_of_a_join_is_staged_and_others_are_not(spark: SparkSession, tmp_path: Path) -> None:
    """A table that is staged already stays where it is."""
    operator = Operator("J1", kind=Kind.JOIN, function=joining(pa.table({"key": [1]}), how="left"))
    update = stage_update(operator, Update(pa.table({"key": [2]})), spark, str(tmp_path))
    assert (update.function.how, Path(update.function.data).parent.name) == ("left", "tables")
    assert stage_update(operator, update, spark, str(tmp_path)) == update
    plain = Update(str.upper)
    assert stage_update(Operator("M"), plain, spark, str(tmp_path)) is plain
    with pytest.raises(PlanError, match="keeps no state"):
        stage_update(operator, Update(pa.table({"key": [2]}), state=list), spark, str(tmp_path))


def test_a_run_whose_join_has_a_key_twice_fails_in_words(spark: SparkSession, runs: list[Any]) -> None:
    """At its beginning, by the operator's name."""
    flow = fn.Dataflow("twice")
    flow.source("sales", fn.replay(sales())).join("J1", shops(True), {"shop": "key"}).sink("out", fn.memory())
    runs.append(run := flow.run(spark, hosts=2))
    run.wait(timeout=PATIENCE_S)
    assert run.state == "failed"
    assert "2 keys come more than once in the table of J1" in str(run.error)
