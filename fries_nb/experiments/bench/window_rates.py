"""Windows: rows per second beside bytewax, and the latency of a result, ours and in Spark.

``windows`` counts the payments of each terminal and minute, most of which are alone in theirs: so most rows open a
window and have it closed. ``window_latency`` takes windows of a second of a source that keeps its rate. A result can
be made when the first row behind the window has come from every worker of the source.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

import fries_nb as fn
from fries_nb.dataflow.windowing import NS_PER_S
from fries_nb.experiments.bench.apart import bytewax_windows
from fries_nb.experiments.bench.ours import (
    CREDIT_BYTES,
    HOSTS,
    flow_seconds,
    job,
    payments_file,
    spark_session,
)
from fries_nb.experiments.bench.pairs import BenchError, BenchReport, Side, Target, pairs

ROWS = 100_000
FEWER = 20_000
"""Number of rows for windows that come with bytewax, which slow down with the number of keys."""
MINUTE_S = 60
RATE, KEYS = 1_000, 100
SETTLE_S, MEASURED_S = 3.0, 8.0


class TerminalMinute:
    """The number and the sum of a terminal's payments in a window."""

    def initial_state(self) -> list[float]:
        """Nothing yet."""
        return [0, 0.0]

    def process(self, row: dict[str, Any], state: list[float]) -> None:
        """Add a payment."""
        state[0] += 1
        state[1] += row["TX_AMOUNT"]

    def close(self, key: int, time: datetime, state: list[float]) -> dict[str, Any]:
        """Terminal, end of the window, number and sum."""
        return {"TERMINAL_ID": key, "TIME": time, "COUNT": state[0], "AMOUNT": state[1]}


def minutes(source: Path, target: str) -> fn.Dataflow:
    """Payments of each terminal and minute."""
    flow = fn.Dataflow("minutes")
    payments = flow.source("Src", fn.replay(str(source)), time="TX_DATETIME", workers=None)
    payments.window("W", TerminalMinute(), fn.tumbling(MINUTE_S), key="TERMINAL_ID").sink("Sink", fn.parquet(target))
    return flow


def windows(scale: float, runs: int) -> BenchReport:
    """Compare the rates of windows with bytewax in both forms. Start-up time counts on neither side."""
    rows, fewer = int(ROWS * scale), int(FEWER * scale)
    with spark_session(HOSTS) as spark:

        def ours(hosts: int, count: int) -> Side:
            once = job(lambda source: flow_seconds(minutes, spark, source, hosts=hosts), count)
            return Side(f"fries_nb, {hosts} hosts, {count:,} rows", once.flowing_rate)

        def theirs(processes: int, count: int, form: str) -> Side:
            path = payments_file(count)
            name = f"bytewax, {processes} processes, windows {form}"
            return Side(name, lambda: bytewax_windows(path, count, processes, form))

        results = (
            pairs(ours(1, fewer), theirs(1, fewer, "own"), runs, unit="rows/s"),
            pairs(ours(1, rows), theirs(1, rows, "by-hand"), runs, unit="rows/s"),
            pairs(ours(HOSTS, rows), theirs(HOSTS, rows, "by-hand"), runs, unit="rows/s"),
        )
    whats = ("bytewax's own windows", "windows by hand in bytewax", "windows by hand in bytewax, two processes")
    targets = tuple(
        Target(f"rows/s, of {what}", one.ratio_median, 1.0, unit="times")
        for what, one in zip(whats, results, strict=True)
    )
    return BenchReport("windows", scale, results, targets, {"rows": rows}, CREDIT_BYTES)


class ResultLatency:
    """A row for each window, with the time from its end to its result in milliseconds."""

    def process(self, row: dict[str, Any], state: dict[str, Any]) -> None:
        """Take a row."""

    def close(self, key: int, time: int, state: dict[str, Any]) -> dict[str, Any]:
        """The latency of this window, and when it was made."""
        return {"ms": (now_ns() - time) / 1e6}


def now_ns() -> int:
    """Nanoseconds since the Unix epoch; ``close`` has an argument of the module's name."""
    return time.time_ns()


def _key_of(value: int) -> dict[str, int]:
    return {"key": value % KEYS}


def seconds_flow() -> fn.Dataflow:
    """Windows of a second of a source that keeps its rate, whose rows are due at the time that they have."""
    flow = fn.Dataflow("seconds")
    count = int(RATE * (SETTLE_S + MEASURED_S))
    rows = flow.source("Src", fn.rate(RATE, count=count, row=_key_of), time="timestamp", late=0, workers=None)
    rows.window("W", ResultLatency(), fn.tumbling(NS_PER_S), key="key", late=fn.memory()).sink("Sink", fn.memory())
    return flow


def p99_ms(spark: Any) -> float:
    """The 99th percentile of a run's latencies, without those of the start and of the end."""
    run = seconds_flow().run(spark=spark, hosts=HOSTS, workers=HOSTS, checkpoint="", commit_interval_s=None)
    state = run.wait(60 + SETTLE_S + MEASURED_S)
    if state != "finished":
        raise BenchError(f"the flow of a benchmark has {state}: {run.error}")
    found = [row["ms"] for row in run.output("Sink").collect()]
    return float(np.percentile(found[int(KEYS * SETTLE_S) : -2 * KEYS], 99))


def window_latency(scale: float, runs: int) -> BenchReport:
    """Compare the latencies of results with those of Structured Streaming."""
    with spark_session(HOSTS) as spark:
        ours = Side("fries_nb", lambda: p99_ms(spark))
        peers = pairs(ours, Side("Structured Streaming", _of_spark(spark)), max(1, runs // 3), unit="ms, p99")
    targets = (Target("p99 of a result, of that in Structured Streaming", peers.ratio_median, 0.1, False, "times"),)
    facts = {"rows/s": RATE, "results/s": KEYS, "hosts": HOSTS}
    return BenchReport("window-latency", scale, (peers,), targets, facts, CREDIT_BYTES)


def _of_spark(spark: Any) -> Callable[[], float]:
    from fries_nb.experiments.bench.rivals.streaming_windows import window_latencies

    return lambda: float(np.percentile(window_latencies(spark, RATE, KEYS, HOSTS, 2 * MEASURED_S), 99))
