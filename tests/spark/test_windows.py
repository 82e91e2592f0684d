"""Windows on real Spark: the rows of Spark SQL's own windows, whatever is changed or killed meanwhile."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from patience import PATIENCE_S
from pyspark.sql import SparkSession, Window
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


class Visits(Total):
    """Counts the rows of a user, in sessions too."""

    def process(self, row: dict[str, Any], state: list[int]) -> None:
        """Count a row."""
        state[0] += 1
        state[1] += row["n"]

    def merge(self, state: list[int], other: list[int]) -> None:
        """The counts of both."""
        state[0] += other[0]
        state[1] += other[1]


BERLIN, DAY_S = "Europe/Berlin", 24 * HOUR_S


def visits() -> pa.Table:
    """Rows of 20 users over the weeks around both changes of the clocks, out of order."""
    chance = random.Random(41)
    begins = [int(datetime(2024, *day, tzinfo=UTC).timestamp()) for day in ((3, 20), (10, 20))]
    at = sorted(chance.choice(begins) + chance.randrange(15 * DAY_S // 600) * 600 for _ in range(6_000))
    at = [one for first in range(0, len(at), 100) for one in chance.sample(at[first : first + 100], 100)]
    users, numbers = [chance.randrange(20) for _ in at], list(range(len(at)))
    times = pa.array([one * 10**6 for one in at], pa.timestamp("us", "UTC"))
    return pa.table({"user": users, "n": numbers, "p": [n % 97 for n in numbers], "at": times})


def test_sessions_days_and_best_rows_are_those_of_spark_sql(spark, started, tmp_path):
    """Over two hosts, with rows out of order, while the functions are replaced; days have 23 and 25 hours."""
    path = str(tmp_path / "visits.parquet")
    pq.write_table(visits(), path, row_group_size=500)
    flow = fn.Dataflow("visits")
    rows = flow.source("S", fn.replay(path, rate=2_000), time="at", workers=2)
    rows.window("W", Visits(), fn.session(6 * HOUR_S), key="user").sink("sessions", fn.memory())
    rows.window("D", Visits(), fn.tumbling(DAY_S, timezone=BERLIN), key="user").sink("days", fn.memory())
    rows.top("T", 2, by="p", key="user", windows=fn.months(timezone=BERLIN), rank="r").sink("best", fn.memory())
    run = started(flow, hosts=2, workers=2, audit=True)
    until(lambda: run.metrics().operators["W"].processed > 500, run)
    again = fn.Update(Visits(2), windows=fn.session(6 * HOUR_S))
    change = run.reconfigure({"W": again, "D": Visits(2), "T": fn.top(2, "p", rank="r")})
    assert change.result(PATIENCE_S).outcome == "done"
    run.set_rate("S", 1_000_000)
    assert run.wait(PATIENCE_S) == "finished", run.error
    given, day = spark.read.parquet(path), sql.window(sql.from_utc_timestamp("at", BERLIN), "1 day")
    for name, window, end in (
        ("sessions", sql.session_window("at", "6 hours"), sql.col("w.end")),
        ("days", day, sql.to_utc_timestamp("w.end", BERLIN)),
    ):
        counted = given.groupBy("user", window.alias("w")).agg(sql.count("*").alias("count"), sql.sum("n").alias("sum"))
        counted = counted.select("user", end.cast("long"), "count", "sum")
        columns = run.output(name).select("terminal", sql.col("end").cast("long"), "count", "cents")
        assert Counter(map(tuple, columns.collect())) == Counter(map(tuple, counted.collect())), name
    month = sql.date_trunc("month", sql.from_utc_timestamp("at", BERLIN))
    place = sql.row_number().over(Window.partitionBy("user", month).orderBy(sql.desc("p"), sql.asc("at"), sql.asc("n")))
    best = given.withColumn("r", place).where("r <= 2").select("user", "n", "r")
    found = run.output("best").select("user", "n", "r")
    assert Counter(map(tuple, found.collect())) == Counter(map(tuple, best.collect()))
    assert run.audit().serializable


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
