"""Columns that come and go while a run goes on, at every kind of sink, with lost hosts: each row is output once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from deltalake import DeltaTable
from file_setting import write_rows
from patience import PATIENCE_S
from pyspark.sql import DataFrame, SparkSession
from recovery_setting import trial
from run_setting import ended_runs, until

import fries_nb as fn
from fries_nb.spark.catalog import output

COLUMNS = ["value", "key", "tax"]


def row(number: int) -> dict[str, Any]:
    """A row of twenty keys."""
    return {"value": number, "key": number % 20}


def taxed(number: int) -> dict[str, Any]:
    """One with a further column."""
    return row(number) | {"tax": number / 2}


def passed(row: dict[str, Any]) -> dict[str, Any]:
    """All that a row has."""
    return dict(row)


def summed(row: dict[str, Any]) -> dict[str, Any]:
    """Also what is derived from a column that the first files lack."""
    return {**row, "sum": row["value"] + (row.get("tax") or 0)}


def add(place: Path, first: int, row_of: Callable[[int], dict[str, Any]], count: int = 1_000) -> None:
    """Files of a hundred rows each, in this order."""
    for start in range(first, first + count, 100):
        write_rows(place / f"{start:05}.parquet", [row_of(number) for number in range(start, start + 100)])


def in_order(frame: DataFrame) -> list[list[str]]:
    """The rows, sorted, as text: a missing number equals another one."""
    return sorted(frame.select(COLUMNS).toPandas().astype(str).values.tolist())


def test_a_column_comes_and_another_goes(spark: SparkSession, tmp_path: Path) -> None:
    """A replaced function uses it, both hosts are lost, and sinks have what Spark reads with ``mergeSchema``.

    Hosts are lost when rows with the column have been written, maybe in the part of those without, and before they
    are committed, too.
    """
    place, out, table = tmp_path / "in", str(tmp_path / "out"), str(tmp_path / "table")
    place.mkdir()
    add(place, 0, row)
    flow = fn.Dataflow("growing")
    rows = flow.source("numbers", fn.files(place, "parquet", until="_END"), workers=2)
    rows = rows.map("A", passed, workers=2)
    for name, sink in (("out", fn.parquet(out)), ("table", fn.delta(table)), ("held", fn.memory())):
        rows.sink(name, sink, workers=2)
    with trial(flow.graph(2), spark, str(tmp_path / "c")) as run:
        run.wait_for("out", 900)
        add(place, 1_000, taxed)
        run.wait_for("out", 1_100)
        run.kill(0)
        run.watch.until_said("recovered")
        outcome = run.outcome(run.change({"A": summed}))
        assert (outcome.outcome, outcome.error) == ("done", "")
        run.kill(0, 1)
        add(place, 2_000, lambda number: {"value": number, "tax": number / 2})
        run.watch.until_said("recovered", 2)
        (place / "_END").touch()
        assert run.end(drain=False) == ("finished", "")
        held = output(spark, run.launched.sinks["held"], run.launched.run)
        merged = spark.read.option("mergeSchema", "true")
        wanted, found = merged.parquet(str(place)), merged.parquet(out)
        delta = spark.createDataFrame(DeltaTable(table).to_pyarrow_table())
        assert [held.schema[name].dataType for name in COLUMNS] == [wanted.schema[name].dataType for name in COLUMNS]
        assert [found.schema[name].dataType for name in COLUMNS] == [wanted.schema[name].dataType for name in COLUMNS]
        assert [str(field.type) for field in DeltaTable(table).to_pyarrow_table().schema] == [
            "int64", "int64", "double", "double",
        ]  # fmt: skip
        for frame in (found, delta, held):
            assert in_order(frame) == in_order(wanted)
        sums = {line["value"]: line["sum"] for line in held.where("sum is not null").collect()}
    assert set(range(2_000, 3_000)) <= sums.keys()
    assert all(sums[value] == value * 1.5 for value in range(2_000, 3_000))


def test_a_table_without_the_column_refuses_it_and_takes_it_when_it_has_it(
    spark: SparkSession, tmp_path: Path
) -> None:
    """The run fails by the column's name, with all of what is committed whole; resumed, nothing is lost or double."""
    place, kept = tmp_path / "in", tmp_path / "c"
    place.mkdir()
    add(place, 0, row, 300)
    spark.sql("CREATE DATABASE IF NOT EXISTS fries_grown")
    spark.sql(f"CREATE TABLE fries_grown.t (value BIGINT, key BIGINT) USING parquet LOCATION '{tmp_path / 't'}'")
    try:
        flow = fn.Dataflow("closed")
        rows = flow.source("numbers", fn.files(place, "parquet", until="_END"))
        rows.map("A", passed).sink("out", fn.table("fries_grown.t"))
        with ended_runs() as runs:
            runs.append(run := flow.run(spark, hosts=1, workers=2, checkpoint=kept, commit_interval_s=0.2))
            until(lambda: spark.table("fries_grown.t").count() == 300, run)
            add(place, 300, taxed, 300)
            assert run.wait(PATIENCE_S) == "failed"
            assert "column 'tax' is not in the table fries_grown.t, which has value, key; add it to the" in run.error
            assert spark.table("fries_grown.t").count() == 300
            spark.sql("ALTER TABLE fries_grown.t ADD COLUMNS (tax DOUBLE)")
            (place / "_END").touch()
            runs.append(again := flow.resume(kept, spark, hosts=1))
            assert again.wait(PATIENCE_S) == "finished", again.error
            whole = spark.read.option("mergeSchema", "true").parquet(str(place))
            assert in_order(spark.table("fries_grown.t")) == in_order(whole)
    finally:
        spark.sql("DROP DATABASE fries_grown CASCADE")
