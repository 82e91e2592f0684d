"""Queries q0 to q8 of Nexmark on two cores, beside bytewax and Structured Streaming: events a second while rows flow.

All read the same Parquet files, whose rows are up to two seconds of event time out of order, and write Parquet. Before
a query is measured, its rows are compared with those of bytewax, in which it is written by hand. The peers do less, see
there: ``rivals.bytewax_nexmark`` gives out windows and ended auctions at the end of the input, and
``rivals.streaming_nexmark`` reads all in one micro-batch.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import pyarrow.parquet as pq

import fries_nb as fn
from fries_nb.experiments.bench.apart import bytewax_query, streamed_queries
from fries_nb.experiments.bench.ours import CREDIT_BYTES, HOSTS, ROW_GROUP, Job, flow_seconds, spark_session
from fries_nb.experiments.bench.pairs import DIRECTORY, BenchError, BenchReport, PairedResult, Side, Target, pairs
from fries_nb.workloads.nexmark import PROPORTIONS, ROUND, Nexmark
from fries_nb.workloads.nexmark_queries import House
from fries_nb.workloads.nexmark_sql import QUERIES, result

EVENTS = 1_000_000
RATE, DISORDER_S = 10_000.0, 2.0
COMPARED = tuple(f"q{number}" for number in range(9))
NOT_IN_SPARK = ("q4", "q6")
"""Queries that Structured Streaming refuses."""


def nexmark(scale: float, runs: int) -> BenchReport:
    """Compare each of q0 to q8 with bytewax with as many processes as hosts, and with Structured Streaming."""
    count = int(EVENTS * scale) // ROUND * ROUND
    events, few = events_of(count), events_of(ROUND)
    results: list[PairedResult] = []
    with spark_session(HOSTS) as spark, streamed_queries() as streamed:
        for name in COMPARED:
            check_rows(name, spark, events)
            ours = _job(partial(flow_seconds, partial(query_flow, name), spark), count, events, few)
            side = Side(f"{name} by fries_nb, {HOSTS} hosts", ours.flowing_rate)
            by_hand = Side(f"bytewax, {HOSTS} processes", partial(_bytewax_rate, name, events, count))
            results.append(pairs(side, by_hand, runs, unit="events/s"))
            if name not in NOT_IN_SPARK:
                theirs = _job(partial(streamed, name), count, events, few)
                results.append(pairs(side, Side("Structured Streaming", theirs.flowing_rate), runs, unit="events/s"))
    targets = tuple(Target(f"{one.a}, of {one.b}", one.ratio_median, 1.0, unit="times") for one in results)
    facts = {"events": count, "out of order, s": DISORDER_S}
    return BenchReport("nexmark", scale, tuple(results), targets, facts, CREDIT_BYTES)


def events_of(count: int, directory: Path = DIRECTORY / "data") -> Path:
    """A directory with a file of each kind, ``bid.parquet``, and a link to it in ``bid/``; created once and kept."""
    place, events = directory / f"nexmark-{count}", Nexmark(1, RATE, DISORDER_S)
    for kind, share in PROPORTIONS.items():
        file = place / f"{kind}.parquet"
        if not file.exists():
            (place / kind).mkdir(parents=True, exist_ok=True)
            unfinished = place / f"{kind}.unfinished"
            pq.write_table(events.table(kind, 0, count * share // ROUND), unfinished, row_group_size=ROW_GROUP)
            (place / kind / file.name).unlink(missing_ok=True)
            (place / kind / file.name).hardlink_to(unfinished)
            unfinished.rename(file)
    return place


def query_flow(name: str, events: Path, target: str) -> fn.Dataflow:
    """A query over these events."""
    flow = fn.Dataflow(name)

    def source(kind: str) -> fn.Stream:
        rows = fn.replay(str(events / f"{kind}.parquet"))
        declared: fn.Stream = flow.source(kind, rows, time="dateTime", workers=None)
        return declared

    QUERIES[name].declare(House(source)).sink("out", fn.parquet(target))
    return flow


def check_rows(name: str, spark: Any, events: Path) -> None:
    """Check that both sides of a comparison have the same result.

    Raises:
        BenchError: they have not.
    """
    with tempfile.TemporaryDirectory(prefix="fries-bench-") as ours, tempfile.TemporaryDirectory() as theirs:
        query_flow(name, events, ours).run(spark=spark, hosts=HOSTS, workers=HOSTS, commit_interval_s=None).wait()
        bytewax_query(name, events, Path(theirs), HOSTS)
        found, peers = (_result(name, Path(place)) for place in (ours, theirs))
    if found != peers:
        lacks, more = (found - peers).total(), (peers - found).total()
        raise BenchError(f"{name}: of {found.total():,} rows bytewax lacks {lacks:,}, and it has {more:,} others")


def _result(name: str, directory: Path) -> Counter[tuple[Any, ...]]:
    """The result in files that have rows; a peer's file may be empty."""
    rows = [row for file in directory.glob("*.parquet") for row in pq.read_table(file).to_pylist()]
    return result(QUERIES[name], rows)


def _job(seconds: Callable[[Path], float], count: int, events: Path, few: Path) -> Job:
    """A job after a warm-up; what it takes with a few events is its start."""
    seconds(events)
    return Job(count, lambda: seconds(events), median(seconds(few) for _ in range(3)))


def _bytewax_rate(name: str, events: Path, count: int) -> float:
    with tempfile.TemporaryDirectory(prefix="fries-rival-") as target:
        return count / bytewax_query(name, events, Path(target), HOSTS)
