"""The cost of progress: where nothing listens, and with many operators that rows do not reach."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import fries_nb as fn
from fries_nb.experiments.bench.functions import LastTen
from fries_nb.experiments.bench.idle_operators import HOSTS, KEYS, counted, idle_flow
from fries_nb.experiments.bench.ours import CREDIT_BYTES, flow_seconds, job, spark_session, timed_seconds
from fries_nb.experiments.bench.pairs import PairedResult, Side, pairs
from fries_nb.experiments.bench.results import BenchReport, Target
from fries_nb.experiments.bench.w1_throughput import scored
from fries_nb.topology.progress_locations import Watermarks

ROWS = 4_000_000
OPERATORS = (1, 16, 256)
FEW, MANY = 100, 10_000
MOST_RATIO = 0.1


def timed_w1(source: Path, target: str) -> fn.Dataflow:
    """W1 of payments with times, of which no operator makes use."""
    flow = fn.Dataflow("W1")
    payments = flow.source("Src", fn.replay(str(source)), time="TX_DATETIME")
    payments.map("FD", LastTen(), key="CUSTOMER_ID").sink("Sink", fn.parquet(target))
    return flow


def times(scale: float, runs: int) -> BenchReport:
    """W1 at full speed with and without times."""
    rows = int(ROWS * scale)
    with spark_session() as spark:
        timed = job(lambda path: flow_seconds(timed_w1, spark, path), rows)
        plain = job(lambda path: flow_seconds(scored, spark, path), rows)
        sides = Side("with time=", timed.flowing_rate), Side("without", plain.flowing_rate)
        result = pairs(*sides, n=runs, unit="rows/s, rows flowing")
    target = Target("throughput with times to which no operator listens, of that without", result.ratio_median, 0.97)
    return BenchReport("times", scale, (result,), (target,), {"rows": rows, "hosts": HOSTS}, CREDIT_BYTES)


def idle(scale: float, runs: int) -> BenchReport:
    """Messages that only coordinate, in memory: progress frames between hosts over watermarks on channels.

    The runs are seeded, so the figures are exact, and the same whenever they are counted.
    """
    found = {(n, t): coordination(n, t, runs) for t in (FEW, int(MANY * scale)) for n in OPERATORS}
    targets = tuple(
        Target(f"messages at {n} idle operators and {t:,} times", one.ratio_median, MOST_RATIO, False, "times")
        for (n, t), (one, _) in found.items()
        if n == max(OPERATORS)
    )
    facts = {
        f"over watermarks between hosts alone, {n} operators, {t:,} times": remote.ratio_median
        for (n, t), (_, remote) in found.items()
    }
    return BenchReport("idle", scale, tuple(one for one, _ in found.values()), targets, facts)


def coordination(operators: int, times: int, runs: int) -> tuple[PairedResult, PairedResult]:
    """Count messages of tokens over all watermarks, and over those between hosts alone.

    Args:
        operators: number of idle operators.
        times: number of distinct times.
        runs: number of seeds; the largest dataflows are run once.
    """
    what = f"{operators} idle operators, {times:,} times"
    seeds = range(1 if operators * times > MANY else runs)
    tokens = [counted(operators, times, seed, None).progress for seed in seeds]
    marks = [counted(operators, times, seed, Watermarks()) for seed in seeds]

    def against(name: str, figures: list[int]) -> PairedResult:
        ours, theirs = tuple(map(float, tokens)), tuple(map(float, figures))
        return PairedResult(f"tokens, {what}:", name, "messages", ours, theirs)

    every, remote = [one.watermarks for one in marks], [one.remote for one in marks]
    return against("watermarks", every), against("watermarks between hosts", remote)


def idling(scale: float, runs: int) -> BenchReport:
    """The same dataflow on Spark: the time from its start to its end, one row group of the replay for each time."""
    results = []
    with spark_session() as spark, tempfile.TemporaryDirectory(prefix="fries-bench-") as place:
        for count in (FEW, int(MANY * scale)):
            path = _times_file(Path(place, f"{count}.parquet"), count)
            for operators in (min(OPERATORS), max(OPERATORS)):
                flow: Callable[[], fn.Dataflow] = partial(idle_flow, fn.replay(str(path)), operators)
                results.append(_seconds(spark, flow, f"{operators} idle operators, {count:,} times", runs))
    what = "seconds with tokens, of those with watermarks, most operators and times"
    target = Target(what, results[-1].ratio_median, 1.0, False)
    return BenchReport("idling", scale, tuple(results), (target,), {"hosts": HOSTS}, CREDIT_BYTES)


def _seconds(spark: Any, flow: Callable[[], fn.Dataflow], what: str, runs: int) -> PairedResult:
    timed_seconds(flow(), spark, None)  # to warm up
    tokens = Side(f"tokens, {what}:", lambda: timed_seconds(flow(), spark, None))
    return pairs(tokens, Side("watermarks", lambda: timed_seconds(flow(), spark, Watermarks())), runs, unit="s")


def _times_file(path: Path, count: int) -> Path:
    """A file with a row of each time, in a row group of its own."""
    with pq.ParquetWriter(path, pa.schema([("key", pa.int64()), ("at", pa.int64())])) as writer:
        for time in range(count):
            writer.write_batch(pa.RecordBatch.from_pydict({"key": [time % KEYS], "at": [time]}))
    return path
