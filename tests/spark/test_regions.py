"""Dataflows that Spark SQL cuts into regions: what they compute, and how they are changed."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import pyarrow as pa
import pytest
from patience import PATIENCE_S
from pyspark.sql import SparkSession
from run_setting import until

import fries_nb as fn
from fries_nb.errors import DataflowError, PlanError
from fries_nb.protocol.trace import Updated
from fries_nb.run import Run

BATCH = "spark.sql.parquet.columnarReaderBatchSize"


@pytest.fixture
def started(started: Callable[..., Run]) -> Callable[..., Run]:
    """Starts flows on one host, with one worker an operator."""
    return partial(started, hosts=1, workers=1)


def doubled(row: dict[str, Any]) -> dict[str, Any]:
    """Before the aggregate."""
    return {"shop": row["value"] % 7, "amount": row["value"] * 2}


class Numbered:
    """Numbers the rows in the order in which they come."""

    def open(self) -> None:
        """Begin at 0."""
        self.number = -1

    def process(self, row: dict[str, Any]) -> dict[str, Any]:
        """The row with its number."""
        self.number += 1
        return row | {"number": self.number}


class Stamped:
    """Says which version has seen a row."""

    def __init__(self, version: int) -> None:
        self.version = version

    def process(self, row: dict[str, Any]) -> dict[str, Any]:
        """The row with the version."""
        return row | {"version": self.version}


def test_an_aggregate_and_a_sort_give_what_spark_sql_gives(spark: SparkSession, started: Callable[..., Run]) -> None:
    """Three regions: rows are doubled, summed by shop, marked, sorted, numbered; the sort's order is kept."""
    table = pa.table({"value": list(range(500))})
    flow = fn.Dataflow("shops")
    sums = (
        flow.source("S", fn.replay(table))
        .map("D", doubled)
        .aggregate("G", "shop", {"total": "sum(amount)", "rows": "count(*)"})
    )
    sums.map("M", lambda row: row | {"even": row["total"] % 4 == 0}).sort("O", "total").map("N", Numbered()).sink(
        "out", fn.memory()
    )
    run = started(flow, audit=True)
    assert run.wait(PATIENCE_S) == "finished", run.error
    got = sorted((row.asDict() for row in run.output().collect()), key=lambda row: row["number"])
    frame = spark.range(500).selectExpr("id % 7 AS shop", "id * 2 AS amount").groupBy("shop")
    wanted = frame.agg({"amount": "sum", "*": "count"}).orderBy("sum(amount)").collect()
    assert [(row["shop"], row["total"], row["rows"]) for row in got] == [
        (row["shop"], row["sum(amount)"], row["count(1)"]) for row in wanted
    ]
    assert [row["number"] for row in got] == list(range(7))
    assert run.audit().serializable
    assert [one.rate for name, one in run.metrics().operators.items() if name in "SDGMO"] == [0.0] * 5
    assert {name: set(run.rows(name)["_side"]) for name in "GO"} == {"G": {"in"}, "O": {"in"}}, "what comes to Spark"
    counted = {name: one.processed for name, one in run.metrics().operators.items()}
    assert counted == {"S": 500, "D": 500, "G": 500, "M": 7, "O": 7, "N": 7, "out": 7}


def two_regions() -> fn.Dataflow:
    """A slow source and its sum; behind it the sum meets a source that never ends."""
    flow = fn.Dataflow("two")
    total = (
        flow.source("S", fn.rate(1, count=60))
        .map("A", Stamped(1))
        .aggregate("G", None, {"value": "sum(value)", "newest": "max(version)"})
    )
    ticks = flow.source("T", fn.rate(50)).map("E", lambda row: {"value": -1, "newest": 0})
    total.union("U", ticks).map("C", Stamped(1)).sink("out", fn.memory())
    return flow


def test_changes_find_their_region(started: Callable[..., Run]) -> None:
    """One of a region to come applies when it begins, one over both is done then; a finished region is refused."""
    run = started(two_regions(), audit=True, commit_interval_s=0.2)
    until(lambda: run.metrics().operators["A"].processed > 0, run)
    both = run.plan({"A": Stamped(2), "C": Stamped(3)})
    assert both.targets == {"A", "C"}
    assert [sorted(part.operators) for part in both.covering.components] == [["A"], ["C"]]
    later = run.reconfigure({"C": Stamped(2)})
    over_both = run.reconfigure({"A": Stamped(2), "C": Stamped(3)})
    until(lambda: any(isinstance(record, Updated) and record.operator == "A" for record in run.records()), run)
    assert not later.done
    assert not over_both.done
    run.set_rate("S", 5_000)
    for change in (later, over_both):
        result = change.result(PATIENCE_S)
        assert result.outcome == "done", result.error
    assert {str(worker) for worker in over_both.result(0).per_worker} == {"A[0]", "C[0]"}
    with pytest.raises(PlanError, match=r"^A ran in region 1 of 2, which has finished"):
        run.reconfigure({"A": Stamped(9)})
    until(lambda: run.metrics().operators["C"].processed > 20, run)
    assert run.reconfigure({"C": Stamped(4)}).result(PATIENCE_S).outcome == "done"
    until(lambda: any(row["version"] == 4 for row in run.output().collect()), run)
    assert run.rollback().result(PATIENCE_S).outcome == "done"
    with pytest.raises(PlanError, match="which has finished"):
        run.rollback()
    run.stop()
    rows = run.output().collect()
    [total] = [row for row in rows if row["value"] >= 0]
    assert total["value"] == sum(range(60))
    assert total["newest"] == 2
    assert total["version"] == 3
    assert {row["version"] for row in rows} == {3, 4}
    assert run.audit().serializable


def test_a_drain_ends_the_sources_of_regions_behind(started: Callable[..., Run]) -> None:
    """An endless one, too: it has read nothing yet; what the first region has read comes out whole."""
    run = started(two_regions())
    until(lambda: run.metrics().operators["A"].processed > 0, run)
    run.stop(timeout=PATIENCE_S)
    assert run.state == "finished"
    rows = run.output().collect()
    [total] = [row for row in rows if row["value"] >= 0]
    assert total["value"] == sum(range(run.metrics().operators["A"].processed))
    assert len(rows) == 1 + run.metrics().operators["T"].processed


def test_a_join_of_a_later_region_begins_with_its_new_table(started: Callable[..., Run]) -> None:
    """A table waits for its region as a function does."""
    flow = fn.Dataflow("joined")
    numbers = flow.source("S", fn.rate(1, count=20)).map("A", lambda row: {"shop": 1})
    sums = numbers.aggregate("G", "shop", {"rows": "count(*)"})
    sums.join("J", pa.table({"shop": [1], "name": ["old"]}), "shop").sink("out", fn.memory())
    run = started(flow)
    until(lambda: run.metrics().operators["A"].processed > 0, run)
    change = run.reconfigure({"J": pa.table({"shop": [1], "name": ["new"]})})
    run.set_rate("S", 1_000)
    assert change.result(PATIENCE_S).outcome == "done"
    assert run.wait(PATIENCE_S) == "finished", run.error
    assert [(row["name"], row["rows"]) for row in run.output().collect()] == [("new", 20)]


def test_no_rows_give_no_rows(started: Callable[..., Run]) -> None:
    """Where nothing comes to the aggregate, the region behind it ends at once."""
    flow = fn.Dataflow("none")
    kept = flow.source("S", fn.rate(None, count=50)).filter("F", lambda row: False)
    kept.aggregate("G", "value", {"rows": "count(*)"}).map("M", Stamped(1)).sink("out", fn.memory())
    run = started(flow)
    assert run.wait(PATIENCE_S) == "finished", run.error
    assert run.output().count() == 0


def test_sql_that_cannot_be_is_refused_in_words(started: Callable[..., Run]) -> None:
    """What Spark cannot parse before anything starts; a column that is not there when its region begins."""

    def flow(expression: str) -> fn.Dataflow:
        flow = fn.Dataflow("wrong")
        numbers = flow.source("S", fn.rate(None, count=5)).map("A", Stamped(1))
        numbers.aggregate("G", None, {"total": expression}).sink("out", fn.memory())
        return flow

    with pytest.raises(DataflowError, match=r"^Spark cannot compute 'G': .*PARSE_SYNTAX_ERROR"):
        started(flow("sum(value"))
    run = started(flow("sum(amount)"))
    assert run.wait(PATIENCE_S) == "failed"
    assert "Spark cannot compute 'G' over the columns value, timestamp, version: " in run.error
    assert "amount" in run.error


def test_a_run_stops_in_any_region(started: Callable[..., Run]) -> None:
    """In the first one nothing of the second begins; a change that waits for it says so."""
    run = started(two_regions())
    until(lambda: run.metrics().operators["A"].processed > 0, run)
    waiting = run.reconfigure({"C": Stamped(2)})
    run.cancel()
    assert run.state == "stopped"
    assert waiting.result(0).outcome == "aborted"
    assert waiting.result(0).error == "the run has been stopped before the change was begun; nothing changed"
    assert run.output().count() == 0


@pytest.mark.parametrize("has_begun", [True, False], ids=["with a job", "before its job"])
def test_a_run_stops_while_spark_computes(spark: SparkSession, started: Callable[..., Run], has_begun: bool) -> None:
    """What Spark SQL is at, or about to begin, between two regions is cancelled; it would take minutes."""
    flow = fn.Dataflow("slow")
    before = spark.conf.get(BATCH)
    spark.conf.set(BATCH, 1)  # a task that is killed ends behind its batch
    slow = "max(aggregate(sequence(1, 5000000 + value), 0L, (sum, each) -> sum + each % 7))"
    numbers = flow.source("S", fn.rate(None, count=500)).map("A", Stamped(1))
    numbers.aggregate("G", None, {"most": slow}).sink("out", fn.memory())
    run = started(flow)
    until(lambda: any(thread.name == "fries-regions" for thread in threading.enumerate()), run)
    jobs = spark.sparkContext.statusTracker()
    until(lambda: not has_begun or bool(jobs.getActiveJobsIds()), run)
    assert run.state == "joining"
    run.cancel()
    spark.conf.set(BATCH, before)
    assert run.state == "stopped"
    assert run.error == ""


def test_an_aggregate_without_rows_lets_the_next_region_end(started: Callable[..., Run]) -> None:
    """There are columns, and no rows: nothing is replayed, and the run finishes."""
    flow = fn.Dataflow("none left")
    sums = flow.source("S", fn.replay(pa.table({"value": list(range(50))}))).map("D", doubled)
    below = sums.aggregate("G", "shop", {"below": "explode(filter(collect_list(amount), x -> x < 0))"})
    below.map("M", Stamped(1)).sink("out", fn.memory())
    run = started(flow)
    assert run.wait(PATIENCE_S) == "finished", run.error
    assert run.output().count() == 0
