"""Joins of two streams in time on real Spark: what Spark SQL finds in the finished input, and live sources."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pyarrow as pa
import pytest
from patience import PATIENCE_S
from pyspark.sql import SparkSession
from run_setting import until

import fries_nb as fn
from fries_nb.run import Run

NOON = datetime(2026, 2, 1, 12, tzinfo=UTC)


@pytest.fixture
def started(started: Callable[..., Run]) -> Callable[..., Run]:
    """Starts flows on two hosts."""
    return partial(started, hosts=2, workers=2, audit=True)


def side(count: int, step: int, **more: Any) -> pa.Table:
    """Rows out of order, of five keys and null, with times in steps of seconds; several have one time."""
    numbers = [number * 7919 % count for number in range(count)]
    return pa.table({
        "k": [None if n % 11 == 0 else n * n % 5 for n in numbers],
        "at": pa.array([NOON + timedelta(seconds=n // 2 * step) for n in numbers], pa.timestamp("us", "UTC")),
        "n": numbers,
        **{name: [make(n) for n in numbers] for name, make in more.items()},
    })  # fmt: skip


LEFT = side(400, 3, flag=lambda n: n % 2 == 0)
RIGHT = side(250, 5, name=str, tags=lambda n: [n, n])
BOTH = "coalesce(l.k, r.k) k, l.at at_x, l.n n_x, l.flag, r.at at_y, r.n n_y, r.name, r.tags"
WITHIN = f"""
    SELECT {BOTH} FROM l FULL OUTER JOIN r
    ON l.k = r.k AND r.at BETWEEN l.at - INTERVAL 20 SECONDS AND l.at + INTERVAL 4 SECONDS
"""
LATEST = f"""
    SELECT {BOTH} FROM l LEFT JOIN (
        SELECT l.n of, max_by(struct(r.*), struct(r.at, r.n)) r FROM l JOIN r ON l.k = r.k AND r.at <= l.at GROUP BY l.n
    ) ON l.n = of AND r.at >= l.at - INTERVAL 15 SECONDS
"""
WINDOW = f"""
    SELECT {BOTH} FROM (SELECT *, window(at, '60 seconds', '30 seconds') w FROM l) l
    RIGHT JOIN (SELECT *, window(at, '60 seconds', '30 seconds') w FROM r) r ON l.k = r.k AND l.w = r.w
"""


def test_joins_find_what_spark_finds_in_the_same_rows(spark: SparkSession, started: Callable[..., Run]) -> None:
    """With the same names and types; nulls equal nothing, and whole numbers stay what they are."""
    flow = fn.Dataflow("joined")
    left = flow.source("L", fn.replay(LEFT), time="at", workers=2)
    right = flow.source("R", fn.replay(RIGHT), time="at")
    left.join_within("J", right, on="k", before=20, after=4, how="full").sink("within", fn.memory())
    left.join_latest("E", right, on="k", tolerance=15, how="left").sink("latest", fn.memory())
    left.join_window("W", right, on="k", windows=fn.sliding(60, every=30), how="right").sink("window", fn.memory())
    run = started(flow)
    assert run.wait(PATIENCE_S) == "finished", run.error
    for name, table in (("l", LEFT), ("r", RIGHT)):
        spark.createDataFrame(table).createOrReplaceTempView(name)
    for sink, query in (("within", WITHIN), ("latest", LATEST), ("window", WINDOW)):
        found, expected = run.output(sink), spark.sql(query)
        assert dict(found.dtypes) == dict(expected.dtypes), sink
        assert Counter(map(repr, found.select(expected.columns).collect())) == Counter(map(repr, expected.collect()))
    assert run.audit().serializable


class Both:
    """Numbers of both rows, and by which version of the function they were put together."""

    def __init__(self, version: int) -> None:
        self.version = version

    def __call__(self, left: Any, right: Any) -> dict[str, Any]:
        """A row of a pair, or of one row."""
        return {"l": left and left["value"], "r": right and right["value"], "version": self.version}


def test_rows_of_live_sources_are_in_pairs_alone_or_late(started: Callable[..., Run]) -> None:
    """Sources may be late in different ways; bounds and function change meanwhile, and what waits is bounded."""
    count = 3_000

    def row(value: int) -> dict[str, int]:
        return {"key": value % 5, "at": value - (200 if value % 50 == 49 else value % 3)}

    flow = fn.Dataflow("live")
    left = flow.source("L", fn.rate(1_000, count=count, row=row), time="at", late=20)
    right = flow.source("R", fn.rate(1_000, count=count, row=row), time="at", late=300)
    joined = left.join_within("J", right, on="key", before=4, after=0, how="full", function=Both(1), late=fn.memory())
    joined.sink("out", fn.memory())
    run = started(flow)
    until(lambda: run.metrics().operators["out"].processed > 100, run)
    change = run.reconfigure({"J": fn.Update(Both(2), windows=fn.within(before=0, after=0))})
    assert change.result(PATIENCE_S).outcome == "done"
    states = run.state("J")
    assert {"_side", "key", "value", "_start", "_end"} <= {*states.columns}
    assert run.wait(PATIENCE_S) == "finished", run.error
    rows, late = run.output("out").collect(), run.output("J.late").collect()
    assert {one["version"] for one in rows} == {1, 2}
    for name in ("l", "r"):
        assert {one[name] for one in rows if one[name] is not None} <= {*range(count)}
    numbers = Counter(one["value"] for one in late)
    numbers.update({one["l"] for one in rows if one["l"] is not None})
    numbers.update({one["r"] for one in rows if one["r"] is not None})
    assert numbers == dict.fromkeys(range(count), 2)
    assert {one["value"] % 50 for one in late} == {49}
    pairs = [(one["l"], one["r"]) for one in rows if None not in (one["l"], one["r"])]
    assert {row(one)["at"] - row(other)["at"] for one, other in pairs} <= {*range(5)}
    assert run.audit().serializable
