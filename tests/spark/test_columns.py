"""Columns in two types, on Spark: found in front of a checkpoint's record, and the failure of the operator at fault."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from patience import PATIENCE_S
from pyspark.sql import SparkSession
from run_setting import until

import fries_nb as fn
from fries_nb.run import Run

COUNT = 400


def odd(row: dict[str, Any]) -> dict[str, Any]:
    """One of two workers gets the odd values, and writes text."""
    return {"n": row["value"], "x": "odd" if row["value"] % 2 else 0}


def mended(row: dict[str, Any]) -> dict[str, Any]:
    """Numbers."""
    return {"n": row["value"], "x": row["value"] % 2}


def flow_of(function: Any, sink: Any, on_error: Any = "fail", rate: float = 400) -> fn.Dataflow:
    """Numbers to two workers of FM, the even ones to the first, and from there to one sink worker or two."""
    flow = fn.Dataflow("columns")
    numbers = flow.source("S", fn.rate(rate, count=COUNT), workers=2)
    numbers.map("FM", function, workers=2, on_error=on_error).sink("out", sink, workers=2)
    return flow


def rows_of(run: Run) -> list[tuple[int, Any]]:
    """Each row once, in order."""
    return sorted((row["n"], row["x"]) for row in run.output().collect())


def test_workers_that_disagree_fail_the_run_by_name_and_it_goes_on_when_mended(
    spark: SparkSession, kept: Callable[[Run], Run], tmp_path: Path
) -> None:
    """Nothing of it is output; the checkpoint before it is there, and another function goes on from it."""
    place, out = tmp_path / "place", tmp_path / "out"
    run = kept(flow_of(odd, fn.parquet(out)).run(spark, checkpoint=place, commit_interval_s=0.2))
    assert run.wait(PATIENCE_S) == "failed"
    assert "a column keeps its type, so convert it in FM" in run.error
    run.output().collect()
    again = kept(flow_of(mended, fn.parquet(out)).resume(place, spark))
    assert again.wait(PATIENCE_S) == "finished", again.error
    assert [n for n, _ in rows_of(again)] == list(range(COUNT))


def test_what_one_of_the_workers_writes_in_another_type_is_set_aside(
    spark: SparkSession, kept: Callable[[Run], Run], tmp_path: Path
) -> None:
    """As if it had been known from the beginning: each row is output or a dead letter, once."""
    flow = flow_of(odd, fn.memory(), on_error=fn.memory())
    run = kept(flow.run(spark, checkpoint=tmp_path / "place", commit_interval_s=0.2))
    assert run.wait(PATIENCE_S) == "finished", (run.error, run.recoveries)
    assert len(run.recoveries) == 1
    assert "a column keeps its type, so convert it in FM" in run.recoveries[0].reason
    rows, letters = rows_of(run), run.dead_letters("FM").collect()
    assert len({x for _, x in rows}) == 1
    assert len(rows) == len(letters) == COUNT // 2
    assert all("column 'x' cannot hold" in letter["error"] for letter in letters)


def test_a_delta_clash_is_found_in_front_of_the_record_and_can_be_mended(
    spark: SparkSession, kept: Callable[[Run], Run], tmp_path: Path
) -> None:
    """A table that has text where the flow writes numbers: the run fails, and goes on with what fits the table."""
    place, table = tmp_path / "place", tmp_path / "table"
    write_deltalake(str(table), pa.table({"n": [-1], "x": ["text"]}))
    run = kept(flow_of(mended, fn.delta(table)).run(spark, checkpoint=place, commit_interval_s=0.2))
    assert run.wait(PATIENCE_S) == "failed"
    assert "column 'x' is string in the Delta table" in run.error
    flow = flow_of(lambda row: {"n": row["value"], "x": "text"}, fn.delta(table))
    again = kept(flow.resume(place, spark))
    until(lambda: again.state != "joining", again)
    assert again.wait(PATIENCE_S) == "finished", again.error
    assert sorted(DeltaTable(str(table)).to_pyarrow_table()["n"].to_pylist()) == list(range(-1, COUNT))


def test_values_that_a_delta_table_does_not_take_fail_at_their_operator(
    spark: SparkSession, kept: Callable[[Run], Run], tmp_path: Path
) -> None:
    """Fractions for a column of whole numbers, and a number too large for one of floats; the others are output."""
    table = tmp_path / "table"
    write_deltalake(str(table), pa.table({"n": [-1], "x": [0], "big": [0.5]}))

    def late(row: dict[str, Any]) -> dict[str, Any]:
        n = row["value"]
        return {"n": n, "x": n if n < COUNT // 2 else n + 0.5, "big": 2**60 if n == COUNT // 4 else n}

    flow = flow_of(late, fn.delta(table), on_error=fn.memory())
    run = kept(flow.run(spark, checkpoint=tmp_path / "place", commit_interval_s=0.1))
    assert run.wait(PATIENCE_S) == "finished", (run.error, run.recoveries)
    said = {letter["error"].partition(" a column")[0] for letter in run.dead_letters("FM").collect()}
    assert sum("'big' cannot hold 1152921504606846976 (int): it is double in the table" in words for words in said) == 1
    assert sum("'x' cannot hold" in words and "it is int64 in the table and now double" in words for words in said)
    rows = DeltaTable(str(table)).to_pyarrow_table().to_pylist()
    assert {row["n"] for row in rows} == set(range(-1, COUNT // 2)) - {COUNT // 4}
