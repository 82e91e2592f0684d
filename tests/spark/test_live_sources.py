"""Live sources on real Spark, under a hot replacement and a killed host: each row once, by one configuration wholly."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from feed_setting import serving
from file_setting import write_rows
from pyspark.sql import SparkSession
from recovery_setting import KEYS, Count, Mark, check_counted, trial

import fries_nb as fn
from fries_nb.dataflow.graph import Graph
from fries_nb.workloads.connector_examples import FeedSource, SqliteSink

ROWS = 6_000


def row(number: int) -> dict[str, int]:
    """A row of twenty keys."""
    return {"value": number, "key": number % KEYS}


def counted(source: Any, sink: Any, workers: int = 1) -> Graph:
    """Rows of a source, marked by A and numbered within each key by C; the graph that ``check_counted`` judges."""
    flow = fn.Dataflow("counting")
    rows = flow.source("numbers", source, workers=workers)
    rows.map("A", Mark()).map("C", Count(), key="key").sink("out", sink)
    graph: Graph = flow.graph(2)
    return graph


def test_a_feed_of_ones_own_and_a_table_of_ones_own(spark: SparkSession, tmp_path: Path) -> None:
    """The host of the feed's reader is killed, too: the peer repeats rows, and none is twice in the table."""
    table = SqliteSink(str(tmp_path / "out.db"), "counted", ("value", "key", "seen", "marked_by", "counted_by"))
    with serving(row, ROWS) as peer:
        peer.publish(1_000)
        with trial(counted(FeedSource(peer.feed), table), spark, str(tmp_path / "c")) as run:
            run.wait_for("out", 500)
            run.watch.until_said("checkpoint")
            peer.publish(3_000)
            outcome = run.outcome(run.change({"A": Mark(2), "C": Count(2)}))
            assert (outcome.outcome, outcome.error) == ("done", "")
            peer.publish(4_000)
            run.kill(0, 1)
            run.watch.until_said("recovered")
            peer.publish(ROWS)
            assert run.end(drain=False) == ("finished", "")
            assert run.audit().serializable
    rows = table.rows()
    check_counted(rows, ROWS)
    assert {row["marked_by"] for row in rows} == {1, 2}
    assert all(number is not None for number in replace(table, run=run.launched.run).parts().values())
    assert len(peer.asked) == 2
    assert 0 < peer.asked[1] < ROWS


@pytest.mark.parametrize(("format", "workers"), [("parquet", 2), ("csv", 1)])
def test_a_directory_that_grows(format: str, workers: int, spark: SparkSession, tmp_path: Path) -> None:
    """Empty at first; files come before and after a change and the loss of both hosts; one is renamed."""
    place = tmp_path / "in"
    place.mkdir()

    def add(first: int, last: int) -> None:
        for start in range(first, last, 100):
            write_rows(place / f"{start:05}.{format}", [row(number) for number in range(start, start + 100)])

    graph = counted(fn.files(place, format, until="_END"), fn.memory(), workers)
    with trial(graph, spark, str(tmp_path / "c")) as run:
        run.watch.until_said("report", 4)  # of workers that run, and have nothing to read
        add(0, 1_500)
        run.wait_for("out", 1_000)
        run.watch.until_said("checkpoint", len(run.watch.heard_of("checkpoint")) + 2)  # begun after these rows
        if workers == 1:
            (place / f"00000.{format}").rename(place / f"renamed.{format}")
        add(1_500, 3_000)
        outcome = run.outcome(run.change({"A": Mark(2), "C": Count(2)}))
        assert (outcome.outcome, outcome.error) == ("done", "")
        add(3_000, 4_500)
        run.kill(0, 1)
        add(4_500, ROWS)
        run.watch.until_said("recovered")
        (place / "_END").touch()
        assert run.end(drain=False) == ("finished", "")
        rows = run.rows()
        check_counted(rows, ROWS)
        assert {row["marked_by"] for row in rows} == {1, 2}
        assert run.audit().serializable
