"""Three vectorised functions in a chain, and with an exchange between them, against the same in plain PySpark.

Both sides call the same functions, so that only the runtimes differ.

The hardest rival is a single-threaded loop over Arrow batches, which exchanges nothing. It is measured over more rows,
and start-up time counts on neither side there. Most of its time is that of writing Parquet, so it comes in two forms.
"""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

import fries_nb as fn
from fries_nb.dataflow.operators import batched
from fries_nb.experiments.bench.apart import arrow_loop, spark_jobs
from fries_nb.experiments.bench.ours import CREDIT_BYTES, Declare, Job, flow_seconds, job, payments_file, spark_session
from fries_nb.experiments.bench.pairs import BenchReport, PairedResult, Side, Target, pairs

WINDOW = 10


@batched
def in_euros(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Adds the amount in euros."""
    return batch.append_column("EUROS", pc.multiply(batch["TX_AMOUNT"], 0.92))


@batched
def by_hour(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Adds the hour of the day, 0 to 23."""
    seconds = batch["TX_TIME_SECONDS"]
    days = pc.multiply(pc.divide(seconds, 86_400), 86_400)
    return batch.append_column("HOUR", pc.divide(pc.subtract(seconds, days), 3_600))


@batched
def by_risk(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Adds a risk: euros over the hour of the day, a synthetic figure."""
    return batch.append_column("RISK", pc.divide(batch["EUROS"], pc.add(pc.cast(batch["HOUR"], pa.float64()), 1.0)))


THREE = (in_euros, by_hour, by_risk)


def score_of(amount: float, state: list[float]) -> float:
    """The score of ``LastTen``, for rivals that make no dict of a row; appends the amount to ``state``.

    >>> state, same = [], []
    >>> all(score_of(x, state) == LastTen().process({"TX_AMOUNT": x}, same)["SCORE"] for x in map(float, range(20)))
    True
    """
    state.append(amount)
    if len(state) > WINDOW:
        del state[0]
    return amount * len(state) / (sum(state) or 1.0)


class LastTen:
    """W1's FD with a trivial score: a customer's last ten amounts, and the ratio of this one to their mean."""

    def initial_state(self) -> list[float]:
        """An empty list."""
        return []

    def process(self, row: dict[str, Any], state: list[float]) -> dict[str, Any]:
        """Adds ``SCORE``, the amount over the mean of the last ten, this one included."""
        amount = row["TX_AMOUNT"]
        state.append(amount)
        if len(state) > WINDOW:
            del state[0]
        row["SCORE"] = amount * len(state) / (sum(state) or 1.0)
        return row


SPIN_S = 0.025


def is_hundredth(row: dict[str, Any]) -> bool:
    """Whether this is one of the hundredth part of all payments that ``spinning`` gets."""
    return bool(row["TRANSACTION_ID"] % 100 == 0)


def spinning(row: dict[str, Any]) -> dict[str, Any]:
    """Keeps the interpreter busy for 25 ms."""
    until = time.monotonic() + SPIN_S
    while time.monotonic() < until:
        pass
    return row


ROWS = 1_000_000
LOOP_ROWS = 4_000_000


def three(source: Path, target: str) -> fn.Dataflow:
    """The three functions in a chain; forward edges, so they share a thread."""
    flow = fn.Dataflow("three")
    stream = flow.source("payments", fn.replay(str(source)), workers=2)
    for name, function in (("euros", in_euros), ("hour", by_hour), ("risk", by_risk)):
        stream = stream.map(name, function)
    stream.sink("out", fn.parquet(target))
    return flow


def three_apart(source: Path, target: str) -> fn.Dataflow:
    """The same with a hash exchange by customer in front of the second one."""
    flow = fn.Dataflow("exchange")
    euros = flow.source("payments", fn.replay(str(source)), workers=2).map("euros", in_euros)
    hours = euros.map("hour", by_hour, key="CUSTOMER_ID")
    hours.map("risk", by_risk).sink("out", fn.parquet(target))
    return flow


def chain(scale: float, runs: int) -> BenchReport:
    """Our chain against a loop over Arrow batches, three ``mapInArrow``, and one that calls all three functions."""
    rows = int(ROWS * scale)
    with spark_session() as spark, spark_jobs() as rival:
        ours = job(lambda path: flow_seconds(three, spark, path), rows)
        many, one = job(partial(rival, "chain"), rows), job(partial(rival, "one"), rows)
        against_many = _compared(ours, many, "chain of mapInArrow", runs)
        against_one = _compared(ours, one, "one mapInArrow", runs)
        limits = _against_loops(three, spark, int(LOOP_ROWS * scale), runs)
    targets = (
        *_limit_targets(limits, 1.7),
        Target("rows/s, against a chain of three mapInArrow", against_many.ratio_median, 1.5, unit="times"),
        Target("rows/s, against one mapInArrow", against_one.ratio_median, 0.9, unit="times"),
    )
    facts = _starts(rows, ours=ours, chain=many, one=one)
    return BenchReport("chain", scale, (*limits, against_many, against_one), targets, facts, CREDIT_BYTES)


def exchange(scale: float, runs: int) -> BenchReport:
    """Our exchange on two hosts against a loop over Arrow batches, and Spark's ``repartition`` by key into two."""
    rows = int(ROWS * scale)
    with spark_session() as spark, spark_jobs() as rival:
        ours = job(lambda path: flow_seconds(three_apart, spark, path), rows)
        theirs = job(partial(rival, "exchange"), rows)
        result = _compared(ours, theirs, "repartition by key", runs)
        limits = _against_loops(three_apart, spark, int(LOOP_ROWS * scale), runs)
    targets = (
        *_limit_targets(limits, 1.4),
        Target("rows/s, against Spark's repartition", result.ratio_median, 1.0, unit="times"),
    )
    facts = _starts(rows, ours=ours, theirs=theirs)
    return BenchReport("exchange", scale, (*limits, result), targets, facts, CREDIT_BYTES)


def _against_loops(declare: Declare, spark: Any, rows: int, runs: int) -> tuple[PairedResult, ...]:
    """Our flow on one host and on two, while rows flow, against a single-threaded loop with the same functions."""
    path, small = payments_file(rows), "--small-dictionaries"
    loop = Side("a single-threaded loop over Arrow batches", lambda: arrow_loop(path))
    hardest = Side("the loop that writes as our sink does", lambda: arrow_loop(path, small))

    def compared(hosts: int, *loops: Side) -> list[PairedResult]:
        ours = job(lambda source: flow_seconds(declare, spark, source, hosts=hosts), rows)
        name = f"fries_nb while rows flow, {hosts} host{'s' if hosts > 1 else ''}"
        return [pairs(Side(name, ours.flowing_rate), one, runs, unit="rows/s") for one in loops]

    return (*compared(1, loop), *compared(2, loop, hardest))


def _limit_targets(limits: tuple[PairedResult, ...], two_hosts: float) -> tuple[Target, ...]:
    one, two, _ = limits
    return (
        Target("rows/s of one host, of a loop over Arrow batches", one.ratio_median, 1.0, unit="times"),
        Target("rows/s of two hosts, of a loop over Arrow batches", two.ratio_median, two_hosts, unit="times"),
    )


def _compared(ours: Job, theirs: Job, name: str, runs: int) -> PairedResult:
    return pairs(Side("fries_nb", ours.rate), Side(name, theirs.rate), runs, unit="rows/s")


def _starts(rows: int, **jobs: Job) -> dict[str, float | int]:
    return {"rows": rows} | {f"seconds with one row, {name}": one.start for name, one in jobs.items()}
