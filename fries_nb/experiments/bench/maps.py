"""Three vectorised functions in a chain, and two with an exchange between them, against the same in plain PySpark."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import fries_nb as fn
from fries_nb.experiments.bench.apart import spark_jobs
from fries_nb.experiments.bench.functions import by_hour, by_risk, in_euros
from fries_nb.experiments.bench.ours import CREDIT_BYTES, Job, flow_seconds, job, spark_session
from fries_nb.experiments.bench.pairs import PairedResult, Side, pairs
from fries_nb.experiments.bench.results import BenchReport, Target

ROWS = 1_000_000


def three(source: Path, target: str) -> fn.Dataflow:
    """The three functions in a chain; forward edges, so they share a thread."""
    flow = fn.Dataflow("three")
    stream = flow.source("payments", fn.replay(str(source)), workers=2)
    for name, function in (("euros", in_euros), ("hour", by_hour), ("risk", by_risk)):
        stream = stream.map(name, function)
    stream.sink("out", fn.parquet(target))
    return flow


def two_apart(source: Path, target: str) -> fn.Dataflow:
    """Two functions with a hash exchange by customer between them."""
    flow = fn.Dataflow("exchange")
    euros = flow.source("payments", fn.replay(str(source)), workers=2).map("euros", in_euros)
    euros.map("hour", by_hour, key="CUSTOMER_ID").sink("out", fn.parquet(target))
    return flow


def chain(scale: float, runs: int) -> BenchReport:
    """Our chain against three ``mapInArrow``, and against one that calls all three functions; complete jobs."""
    rows = int(ROWS * scale)
    with spark_session() as spark, spark_jobs() as rival:
        ours = job(lambda path: flow_seconds(three, spark, path), rows)
        many, one = job(partial(rival, "chain"), rows), job(partial(rival, "one"), rows)
        against_many = _compared(ours, many, "chain of mapInArrow", runs)
        against_one = _compared(ours, one, "one mapInArrow", runs)
    targets = (
        Target("rows/s, against a chain of three mapInArrow", against_many.ratio_median, 1.5, unit="times"),
        Target("rows/s, against one mapInArrow", against_one.ratio_median, 0.9, unit="times"),
    )
    facts = _starts(rows, ours=ours, chain=many, one=one)
    return BenchReport("chain", scale, (against_many, against_one), targets, facts, CREDIT_BYTES)


def exchange(scale: float, runs: int) -> BenchReport:
    """Our exchange on two hosts against Spark's ``repartition`` by key into two; complete jobs."""
    rows = int(ROWS * scale)
    with spark_session() as spark, spark_jobs() as rival:
        ours = job(lambda path: flow_seconds(two_apart, spark, path), rows)
        theirs = job(partial(rival, "exchange"), rows)
        result = _compared(ours, theirs, "repartition by key", runs)
    targets = (Target("rows/s, against Spark's repartition", result.ratio_median, 1.0, unit="times"),)
    return BenchReport("exchange", scale, (result,), targets, _starts(rows, ours=ours, theirs=theirs), CREDIT_BYTES)


def _compared(ours: Job, theirs: Job, name: str, runs: int) -> PairedResult:
    return pairs(Side("fries_nb", ours.rate), Side(name, theirs.rate), runs, unit="rows/s")


def _starts(rows: int, **jobs: Job) -> dict[str, float | int]:
    return {"rows": rows} | {f"seconds with one row, {name}": one.start for name, one in jobs.items()}
