"""Windows on real Spark: the rows of Spark SQL's own windows, whatever is changed or killed meanwhile."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from patience import PATIENCE_S
from pyspark.sql import SparkSession
from pyspark.sql import functions as sql
from run_setting import until

import fries_nb as fn
from fries_nb.run import Run
from fries_nb.workloads.payments import payments

ROWS = 20_000
HOUR_S = 3_600


class Total:
    """The number of a terminal's payments and their sum in cents, with the version of the function."""

    def __init__(self, version: int = 1) -> None:
        self.version = version

    def initial_state(self) -> list[int]:
        """Nothing yet."""
        return [0, 0]

    def process(self, row: dict[str, Any], state: list[int]) -> None:
        """Add a payment."""
        state[0] += 1
        state[1] += round(row["TX_AMOUNT"] * 100)

    def close(self, key: int, time: Any, state: list[int]) -> dict[str, Any]:
        """The result of a window."""
        return {"terminal": key, "end": time, "count": state[0], "cents": state[1], "version": self.version}


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Payments in the order of their time, in several row groups."""
    place = tmp_path_factory.mktemp("payments") / "payments.parquet"
    table = payments(ROWS)
    at = table.column("TX_DATETIME").cast(pa.timestamp("us"))
    table = table.set_column(table.schema.names.index("TX_DATETIME"), "TX_DATETIME", at)
    pq.write_table(table, place, row_group_size=3_000)
    return str(place)


def windows_flow(path: str, windowing: Any, rate: float | None = None) -> fn.Dataflow:
    """Payments by terminal."""
    flow = fn.Dataflow("windows")
    rows = flow.source("pay", fn.replay(path, rate=rate), time="TX_DATETIME", workers=2)
    rows.window("W", Total(), windowing, key="TERMINAL_ID").sink("out", fn.memory())
    return flow


def sql_windows(spark: SparkSession, path: str, size_s: int, every_s: int) -> Counter[tuple[Any, ...]]:
    """The same by Spark SQL."""
    rows = spark.read.parquet(path)
    window = sql.window("TX_DATETIME", f"{size_s} seconds", f"{every_s} seconds").alias("window")
    cents = sql.sum(sql.round(sql.col("TX_AMOUNT") * 100).cast("long")).alias("cents")
    found = rows.groupBy("TERMINAL_ID", window).agg(sql.count("*").alias("count"), cents)
    return Counter((row.TERMINAL_ID, row.window.end, row["count"], row.cents) for row in found.collect())


def found_by(run: Run) -> Counter[tuple[Any, ...]]:
    """What the sink of a run has."""
    return Counter((row.terminal, row.end, row["count"], row.cents) for row in run.output().collect())


def test_a_change_while_windows_are_open_keeps_their_rows(spark, started, path):
    """Sliding windows over two hosts: each is closed by one version of the function, and none is lost or twice."""
    every_s = 2 * HOUR_S // 3
    windows = fn.sliding(HOUR_S, every=every_s)  # aligned by their starts
    run = started(windows_flow(path, windows, rate=1_000), hosts=2, workers=2, audit=True)
    until(lambda: run.metrics().operators["W"].processed > 2_000, run)
    assert run.reconfigure({"W": Total(2)}).result(PATIENCE_S).outcome == "done"
    run.set_rate("pay", 1_000_000)
    assert run.wait(PATIENCE_S) == "finished", run.error
    assert found_by(run) == sql_windows(spark, path, HOUR_S, every_s)
    assert {row.version for row in run.output().select("version").distinct().collect()} == {1, 2}
    assert run.audit().serializable
    assert run.metrics().frontier["W"] is None  # nothing can arrive any more


def test_results_of_each_round_wait_for_all_of_its_rows(started: Callable[..., Run]) -> None:
    """A reduce inside a loop: nested times over two hosts, and an end that waits for what is held for a later time."""

    def body(rows: fn.Stream) -> tuple[fn.Stream, fn.Stream]:
        sums = rows.reduce("R", Sum(), key="key")
        again, enough = sums.map("D", lambda row: row | {"n": 2 * row["n"]}).split("SP", lambda row: row["n"] >= 500)
        return again, enough

    flow = fn.Dataflow("sums")
    rows = pa.table({"key": [n % 5 for n in range(1_000)], "n": [1] * 1_000, "at": [n // 100 for n in range(1_000)]})
    flow.source("S", fn.replay(rows), time="at", workers=2).iterate("L", body).sink("out", fn.memory())
    run = started(flow, hosts=2, workers=2, audit=True)
    assert run.wait(PATIENCE_S) == "finished", run.error
    found = sorted((row.key, row.at, row.n) for row in run.output().collect())
    assert found == [(key, at, 640) for key in range(5) for at in range(10)]
    assert run.audit().serializable


class Sum:
    """Sums the numbers of a key, time and round."""

    def initial_state(self) -> dict[str, int]:
        """Nothing yet."""
        return {"n": 0}

    def process(self, row: dict[str, Any], state: dict[str, int]) -> None:
        """Add a row."""
        state["n"] += row["n"]

    def close(self, key: int, time: int, state: dict[str, int]) -> dict[str, Any]:
        """The sum."""
        return {"key": key, "at": time, "n": state["n"]}
