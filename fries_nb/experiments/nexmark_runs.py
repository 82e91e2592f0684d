"""The queries of Nexmark: how fast each is, how late its rows, and a value of each replaced while it runs.

Each query runs once, of sources whose rows are up to two seconds of event time out of order:

    steady    ``RATE`` events a second: the 99th percentile of the time from a row's due time to the sink
    change    its value is replaced, by Fries
    flat out  the rest of the events, as fast as they are taken: rows of its own sources a second

Its rows are those of Spark SQL over the finished input, by the value before or the one after; the number of those that
are not is in the table, and the audit's verdict. Event time passes 20 times as fast as the sources' clock.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import fries_nb as fn
from fries_nb.experiments.measuring import PATIENCE_S, ExperimentScale, Result, Row, changed, running, session, until
from fries_nb.run import Run
from fries_nb.workloads.nexmark import PROPORTIONS, ROUND, Nexmark
from fries_nb.workloads.nexmark_queries import House
from fries_nb.workloads.nexmark_sql import QUERIES, NexmarkQuery, result, wrong_rows

EVENTS, FEWEST = 1_000_000, 2_000
RATE, EVENT_RATE, DISORDER_S = 2_000.0, 100.0, 2.0
STEADY_S, SHORTEST_S, UNBOUNDED = 10.0, 0.5, 1e9
SETTINGS = {
    "spark.sql.session.timeZone": "UTC", "spark.sql.shuffle.partitions": "2",
    "spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}  # fmt: skip
"""Of Spark SQL: most of the time of a small query is that of compiling it, and of empty partitions."""


def nexmark(scale: ExperimentScale, queries: Iterable[str] = tuple(QUERIES)) -> Result:
    """Nexmark: rows a second, latency and a change of each query, its result checked against Spark SQL."""
    seconds = scale.seconds(STEADY_S, SHORTEST_S)
    count = max(FEWEST, int(EVENTS * scale.of_paper), int(3 * seconds * RATE)) // ROUND * ROUND
    events, rows = Nexmark(1, EVENT_RATE, DISORDER_S), list[Row]()
    with session() as spark, views(spark, events, count):
        for name in queries:
            rows.append({"query": name, **_measured(spark, name, events, count, seconds), "asks": QUERIES[name].title})
    parameters = {"events": count, "steady events/s": RATE, "disorder s": DISORDER_S, "chaining": True}
    return Result("nexmark", "auctions, people and bids", scale.of_paper, parameters, tuple(rows))


@contextmanager
def views(spark: Any, events: Nexmark, count: int) -> Iterator[None]:
    """The views ``person``, ``auction`` and ``bid`` of so many events, and settings for small queries in the block."""
    before = {name: spark.conf.get(name) for name in SETTINGS}
    for name, value in SETTINGS.items():
        spark.conf.set(name, value)
    try:
        for kind, share in PROPORTIONS.items():
            spark.createDataFrame(events.table(kind, 0, count * share // ROUND)).createOrReplaceTempView(kind)
        yield
    finally:
        for name, value in before.items():
            spark.conf.set(name, value)


def _measured(spark: Any, name: str, events: Nexmark, count: int, seconds: float) -> Row:
    query, flow = QUERIES[name], fn.Dataflow(f"nexmark {name}")
    query.declare(House.generated(flow, events, count, RATE)).sink("out", fn.memory())
    with running(flow, spark, chaining=True, audit=True) as run:
        sources = run.graph.sources
        steady = min(count / 3, seconds * RATE) * sum(PROPORTIONS[kind] for kind in sources) / ROUND
        until(run, lambda: _read(run, sources) >= steady, "rows at a steady rate", PATIENCE_S)
        latency = run.metrics().latency
        change = {query.operator: query.function(query.changed)}
        made = changed(run, change, "fries", rehearse=False)  # some drop most rows, which a rehearsal doubts
        left, began_s = _of(sources, count) - _read(run, sources), time.monotonic()
        for source in sources:
            run.set_rate(source, UNBOUNDED)
        run.wait(PATIENCE_S)
        taken_s = time.monotonic() - began_s
        found = run.output("out").toArrow().to_pylist()
        wrong, count = wrong_rows(query, found, *by_sql(spark, query)), result(query, found).total()
        return {
            "rows/s": left / taken_s, "p99 ms": latency.p99_ms if latency.count else None, "change ms": made.delay_ms,
            "rows": count, "wrong": wrong.total(), "serializable": run.audit().serializable,
        }  # fmt: skip


def _of(sources: Iterable[str], count: int) -> int:
    return sum(count * PROPORTIONS[kind] // ROUND for kind in sources)


def _read(run: Run, sources: Iterable[str]) -> int:
    operators = run.metrics().operators
    return sum(operators[source].processed for source in sources if source in operators)


def by_sql(spark: Any, query: NexmarkQuery) -> list[list[dict[str, Any]]]:
    """The rows of Spark SQL by the value before and by the one after, planned as one query.

    Args:
        spark: a session with the views ``person``, ``auction`` and ``bid``.
        query: one of ``QUERIES``.
    """
    values = (query.value, query.changed)
    both = [f"SELECT {number} AS _of, * FROM ({query.sql.format(value=value)})" for number, value in enumerate(values)]
    found: list[list[dict[str, Any]]] = [[], []]
    for row in spark.sql(" UNION ALL ".join(both)).toArrow().to_pylist():
        found[row.pop("_of")].append(row)
    return found
