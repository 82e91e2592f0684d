"""All queries of Nexmark at once on real Spark: the results of Spark SQL, a host killed, and all of them changed."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from patience import PATIENCE_S
from pyspark.sql import SparkSession
from run_setting import until

import fries_nb as fn
from fries_nb.experiments.nexmark_runs import by_sql, views
from fries_nb.run import Run
from fries_nb.workloads.nexmark import PROPORTIONS, Nexmark
from fries_nb.workloads.nexmark_queries import House
from fries_nb.workloads.nexmark_sql import QUERIES, result, wrong_rows

EVENTS = 3_000
RATE = 200.0
pytestmark = pytest.mark.timeout(600)


def out_of_order(seed: int) -> Nexmark:
    """Events of 15 seconds, each up to two seconds earlier than its place."""
    return Nexmark(seed=seed, rate=200, disorder_s=2.0)


@pytest.fixture
def house(spark: SparkSession, request: pytest.FixtureRequest) -> Iterator[Nexmark]:
    """The events of a seed, as views."""
    events = out_of_order(request.param)
    with views(spark, events, EVENTS):
        yield events


@pytest.mark.parametrize("house", [1, 2, 3], indirect=True)
def test_every_query_has_the_rows_of_spark_sql(
    spark: SparkSession, house: Nexmark, started: Callable[..., Run], tmp_path: Path
) -> None:
    """Of sources that do not know their future; a host dies, then one transaction changes a value of each query."""
    flow = fn.Dataflow("nexmark")
    streams = House.generated(flow, house, EVENTS, RATE)
    for name, query in QUERIES.items():
        query.declare(streams).sink(f"{name} out", fn.memory())
    run = started(flow, hosts=2, workers=2, audit=True, checkpoint=str(tmp_path / "checkpoint"))
    until(lambda: run.metrics().operators["bid"].processed > 300, run)
    run.checkpoint()
    os.kill(run.host_processes[0], signal.SIGKILL)
    changed = {query.operator: query.function(query.changed) for query in QUERIES.values()}
    until(lambda: bool(run.recoveries) and run.recoveries[0].seconds is not None, run)
    change = run.reconfigure(changed, force=True).result(PATIENCE_S)  # few of the recent rows may be of a value
    assert change.outcome == "done", change.error
    for kind in PROPORTIONS:
        run.set_rate(kind, 1_000_000)
    assert run.wait(PATIENCE_S) == "finished", run.error
    assert run.audit().serializable
    for name, query in QUERIES.items():
        found, (before, after) = run.output(f"{name} out").toArrow().to_pylist(), by_sql(spark, query)
        assert wrong_rows(query, found, before, after) == Counter(), name
        if name in ("q0", "q22"):  # of which there are old and new rows
            assert result(query, before) != result(query, found) != result(query, after)
    late = [sink for sink in run.graph.sinks if sink.endswith(".late")]
    assert late
    assert not any(run.metrics().operators[sink].processed for sink in late)
