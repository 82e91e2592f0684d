"""Tables and queries of Spark's catalogue as sources, as sinks, and as the tables of joins."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from patience import PATIENCE_S
from pyspark.sql import SparkSession
from run_setting import ended_runs, until

import fries_nb as fn
from fries_nb.errors import SinkError, SourceError
from fries_nb.run import Run
from fries_nb.spark import catalog
from fries_nb.spark.catalog import TableFiles

SHOPS = 7


@pytest.fixture
def started(started: Callable[..., Run]) -> Callable[..., Run]:
    """Starts flows on one host, with two workers an operator."""
    return partial(started, hosts=1, workers=2)


@pytest.fixture
def catalogue(spark: SparkSession, tmp_path: Path) -> Iterator[SparkSession]:
    """A database with payments, shops, and a target that has a row already."""
    spark.sql("CREATE DATABASE IF NOT EXISTS fries_test")
    for name, query in (
        ("payments", "SELECT id, id % 7 AS shop, CAST(id AS DOUBLE) / 4 AS amount FROM range(4000)"),
        ("shops", "SELECT id AS shop, concat('shop ', id) AS city FROM range(7)"),
    ):
        where = f"LOCATION '{tmp_path / name}'"
        spark.sql(f"CREATE TABLE fries_test.{name} USING parquet {where} AS {query}")
    columns = "id BIGINT, city STRING, amount DOUBLE, version BIGINT"
    spark.sql(f"CREATE TABLE fries_test.scored ({columns}) USING parquet LOCATION '{tmp_path / 'scored'}'")
    spark.sql("INSERT INTO fries_test.scored VALUES (-1, 'before', 0.5, 0)")
    yield spark
    spark.sql("DROP DATABASE fries_test CASCADE")


class Scored:
    """Says by which version."""

    def __init__(self, version: int) -> None:
        self.version = version

    def process(self, row: dict[str, Any]) -> dict[str, Any]:
        """The row, without its shop."""
        return {"id": row["id"], "city": row["city"], "amount": row["amount"], "version": self.version}


def scoring(source: Any, target: Any) -> fn.Dataflow:
    """Payments joined with their shops."""
    flow = fn.Dataflow("scoring")
    shops = fn.sql("SELECT shop, city FROM fries_test.shops")
    flow.source("pay", source).join("J", shops, on="shop").map("S", Scored(1)).sink("out", target)
    return flow


def test_a_table_is_read_joined_and_appended_to(
    catalogue: SparkSession, started: Callable[..., Run], tmp_path: Path
) -> None:
    """Rows of commits are in the table while the run goes on, with a change; those of before stay."""
    payments = fn.table("fries_test.payments", rate=20)  # so it lasts for minutes, until the rate is raised
    flow = scoring(payments, fn.table("fries_test.scored"))
    run = started(flow, audit=True, checkpoint=str(tmp_path / "c"), commit_interval_s=0.3)
    until(lambda: catalogue.table("fries_test.scored").count() > 5, run)
    assert run.explain().sources[0].reads == "the table fries_test.payments, 20 a second"
    assert run.reconfigure({"S": Scored(2)}).result(PATIENCE_S).outcome == "done"
    run.set_rate("pay", 100_000)
    assert run.wait(PATIENCE_S) == "finished", run.error
    rows = catalogue.table("fries_test.scored").collect()
    assert sorted(row["id"] for row in rows) == list(range(-1, 4_000))
    ours = [row for row in rows if row["id"] >= 0]
    assert all(row["city"] == f"shop {row['id'] % SHOPS}" and row["amount"] == row["id"] / 4 for row in ours)
    assert {row["version"] for row in rows} == {0, 1, 2}
    assert run.output().count() == 4_000
    assert run.audit().serializable


def test_a_partitioned_delta_table_is_appended_to(
    catalogue: SparkSession, started: Callable[..., Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By its partitions. What the catalogue says of it is given by hand: the Spark of the tests has no Delta Lake."""
    place = str(tmp_path / "by_city")
    before = pa.table({"id": [-1], "city": ["before"], "amount": [0.5], "version": [0]})
    write_deltalake(place, before, partition_by=["city"])
    monkeypatch.setattr(catalog, "_files", lambda spark, name: TableFiles("delta", place, ("city",)))
    monkeypatch.setattr(catalog, "_columns", lambda spark, name: before.schema)
    run = started(scoring(fn.table("fries_test.payments"), fn.table("fries_test.by_city")))
    assert run.wait(PATIENCE_S) == "finished", run.error
    assert DeltaTable(place).metadata().partition_columns == ["city"]
    rows = DeltaTable(place).to_pyarrow_table().to_pylist()
    assert len(rows) == 4_001
    assert {row["id"]: row["city"] for row in rows} == {-1: "before"} | {n: f"shop {n % SHOPS}" for n in range(4_000)}


def test_a_query_is_a_source_and_a_view_is_one(catalogue: SparkSession, started: Callable[..., Run]) -> None:
    """Its rows are those of the moment at which the run starts."""
    catalogue.sql("CREATE OR REPLACE TEMPORARY VIEW large AS SELECT * FROM fries_test.payments WHERE amount >= 900")
    flow = fn.Dataflow("large")
    left = flow.source("left", fn.table("large"))
    right = flow.source("right", fn.sql("SELECT * FROM large WHERE shop = 3"))
    left.union("both", right).sink("out", fn.memory())
    run = started(flow)
    assert run.wait(PATIENCE_S) == "finished", run.error
    assert run.output().count() == 400 + catalogue.sql("SELECT * FROM large WHERE shop = 3").count()
    catalogue.sql("DROP VIEW large")


def refusal(spark: SparkSession, source: Any, target: Any) -> str:
    """What is said of a flow that cannot start."""
    with pytest.raises((SourceError, SinkError)) as caught:
        scoring(source, target).run(spark, hosts=1, workers=1)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_what_cannot_be_read_or_written_is_refused(catalogue: SparkSession, tmp_path: Path) -> None:
    """In one sentence, before anything starts."""
    pay, out = fn.table("fries_test.payments"), fn.memory()
    assert "did you mean 'payments'" in refusal(catalogue, fn.table("fries_test.payment"), out)
    assert "source 'pay'" in refusal(catalogue, fn.sql("SELECT nothing FROM fries_test.payments"), out)
    assert "cannot parse" in refusal(catalogue, fn.sql("SELEKT 1"), out)
    assert "CREATE TABLE fries_test.score (...) USING parquet" in refusal(catalogue, pay, fn.table("fries_test.score"))
    assert "has a rate" in refusal(catalogue, pay, fn.table("fries_test.scored", rate=5))
    catalogue.sql("CREATE VIEW fries_test.seen AS SELECT * FROM fries_test.payments")
    assert "is a view" in refusal(catalogue, pay, fn.table("fries_test.seen"))
    for clause, words in (
        ("USING csv", "has the format csv; expected parquet or delta"),
        ("USING parquet PARTITIONED BY (city)", "is partitioned by city"),
    ):
        columns = "id BIGINT, city STRING, amount DOUBLE, version BIGINT"
        catalogue.sql(f"CREATE TABLE fries_test.other ({columns}) {clause}")
        assert words in refusal(catalogue, pay, fn.table("fries_test.other"))
        catalogue.sql("DROP TABLE fries_test.other")


@pytest.mark.parametrize(("trouble", "words"), [("dropped", "was dropped"), ("narrow", "column 'version' is not in")])
def test_a_table_that_does_not_take_the_rows_ends_the_run(
    catalogue: SparkSession, started: Callable[..., Run], tmp_path: Path, trouble: str, words: str
) -> None:
    """Dropped meanwhile, or without a column; the sentence names it."""
    if trouble == "narrow":
        columns = "id BIGINT, city STRING, amount DOUBLE"
        catalogue.sql(f"CREATE TABLE fries_test.narrow ({columns}) USING parquet LOCATION '{tmp_path / 'narrow'}'")
    target = "fries_test.narrow" if trouble == "narrow" else "fries_test.scored"
    run = started(scoring(fn.table("fries_test.payments", rate=20), fn.table(target)), commit_interval_s=0.2)
    if trouble == "dropped":
        until(lambda: run.metrics().operators["out"].processed > 10, run)
        catalogue.sql("DROP TABLE fries_test.scored")
    assert run.wait(PATIENCE_S) == "failed"
    assert words in run.error


def test_the_session_need_not_be_given(catalogue: SparkSession) -> None:
    """The one that is active is taken, by the sink as well."""
    with ended_runs() as runs:
        runs.append(scoring(fn.table("fries_test.payments"), fn.table("fries_test.scored")).run(hosts=1, workers=1))
        assert runs[0].wait(PATIENCE_S) == "finished", runs[0].error
    assert catalogue.table("fries_test.scored").count() == 4_001
