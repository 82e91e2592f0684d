"""Three vectorised functions, and two with an exchange between them, against plain PySpark doing the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import fries_nb as fn
from fries_nb.experiments.bench.functions import by_hour, by_risk, in_euros
from fries_nb.experiments.bench.ours import CREDIT_BYTES, Job, flow_seconds, job, spark_session
from fries_nb.experiments.bench.pairs import PairedResult, Side, pairs
from fries_nb.experiments.bench.results import Report, Target

ROWS = 1_000_000


def three(source: Path, target: str) -> fn.Dataflow:
    """The three functions in a row; forward edges, so they share a thread."""
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


def chain(scale: float, runs: int) -> Report:
    """Ours against a chain of three ``mapInArrow``, and against one that calls all three."""
    rows = int(ROWS * scale)
    with spark_session() as spark:
        ours = job(lambda path: flow_seconds(three, spark, path), rows)
        many, one = (_rival(spark, name, rows) for name in ("chain", "one"))
        results = [*_compared(ours, many, "chain of mapInArrow", runs), *_compared(ours, one, "one mapInArrow", runs)]
    targets = (
        Target("rows/s, against a chain of three mapInArrow", results[1].ratio_median, 1.5, unit="times"),
        Target("rows/s, against one mapInArrow", results[3].ratio_median, 0.9, unit="times"),
    )
    facts = _starts(rows, ours=ours, chain=many, one=one)
    return Report("chain", scale, tuple(results), targets, facts, CREDIT_BYTES)


def exchange(scale: float, runs: int) -> Report:
    """Ours on two hosts against Spark's ``repartition`` by key into two."""
    rows = int(ROWS * scale)
    with spark_session() as spark:
        ours = job(lambda path: flow_seconds(two_apart, spark, path), rows)
        theirs = _rival(spark, "exchange", rows)
        results = _compared(ours, theirs, "repartition by key", runs)
    targets = (Target("rows/s, against Spark's repartition", results[1].ratio_median, 1.0, unit="times"),)
    return Report("exchange", scale, results, targets, _starts(rows, ours=ours, theirs=theirs), CREDIT_BYTES)


def _rival(spark: Any, name: str, rows: int) -> Job:
    from fries_nb.experiments.bench.rivals.spark_maps import seconds

    return job(lambda path: seconds(spark, name, path), rows)


def _compared(ours: Job, theirs: Job, name: str, runs: int) -> tuple[PairedResult, PairedResult]:
    """Over the whole job, and while rows flow."""
    whole = pairs(Side("fries_nb", ours.rate), Side(name, theirs.rate), runs, unit="rows/s, whole job")
    flowing = pairs(
        Side("fries_nb", ours.flowing_rate), Side(name, theirs.flowing_rate), runs, unit="rows/s, rows flowing"
    )
    return whole, flowing


def _starts(rows: int, **jobs: Job) -> dict[str, float | int]:
    return {"rows": rows} | {f"seconds with one row, {name}": one.start for name, one in jobs.items()}
