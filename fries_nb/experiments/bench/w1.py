"""W1 flat out: keyed by customer, ten amounts of state, a trivial score, Parquet in and out, against what others do."""

from __future__ import annotations

from pathlib import Path

import fries_nb as fn
from fries_nb.experiments.bench.apart import bytewax, plain_loop
from fries_nb.experiments.bench.data import payments_file
from fries_nb.experiments.bench.functions import LastTen
from fries_nb.experiments.bench.ours import CREDIT_BYTES, flow_seconds, job, spark_session
from fries_nb.experiments.bench.pairs import Side, pairs
from fries_nb.experiments.bench.results import BenchReport, Target

ROWS = 1_000_000
PROCESSES = 2


def scored(source: Path, target: str) -> fn.Dataflow:
    """Payments, scored by customer."""
    flow = fn.Dataflow("W1")
    payments = flow.source("Src", fn.replay(str(source)))
    payments.map("FD", LastTen(), key="CUSTOMER_ID").sink("Sink", fn.parquet(target))
    return flow


def w1(scale: float, runs: int) -> BenchReport:
    """One host against the plain loop in both its forms, two hosts against bytewax with two processes.

    Starting up counts for nobody: the loop's figure and bytewax's are without it, and so is ours.
    """
    rows = int(ROWS * scale)
    path = payments_file(rows)
    with spark_session(PROCESSES) as spark:
        alone = job(lambda source: flow_seconds(scored, spark, source, hosts=1), rows)
        together = job(lambda source: flow_seconds(scored, spark, source, hosts=PROCESSES), rows)
        one, two = Side("fries_nb, 1 host", alone.flowing_rate), Side("fries_nb, 2 hosts", together.flowing_rate)
        every = Side("plain loop, rows of all columns", lambda: plain_loop(path, "all"))
        used = Side("plain loop, rows of the used columns", lambda: plain_loop(path, "used"))
        wax = Side(f"bytewax, {PROCESSES} processes", lambda: bytewax(path, rows, PROCESSES))
        wax_alone = Side("bytewax, 1 process", lambda: bytewax(path, rows, 1))
        sides = ((one, every), (one, used), (two, wax), (one, wax_alone))
        results = tuple(pairs(ours, theirs, runs, unit="rows/s") for ours, theirs in sides)
    targets = (
        Target("rows/s a host, against a plain loop", results[0].ratio_median, 0.5, unit="times"),
        Target("rows/s, against bytewax with as many processes", results[2].ratio_median, 1.0, unit="times"),
    )
    facts = {"rows": rows, "seconds with one row, 1 host": alone.start, "2 hosts": together.start}
    return BenchReport("w1", scale, results, targets, facts, CREDIT_BYTES)
