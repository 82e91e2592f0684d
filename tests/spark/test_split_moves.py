"""Source workers come and go on real Spark: every row comes out once, whoever reads it.

Kills at any step of it are drawn in memory (``tests/simulation/test_split_moves.py``).
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

from pyspark.sql import SparkSession
from recovery_setting import KEYS, Count, Trial, check_counted, trial

import fries_nb as fn
from fries_nb.controller import events
from fries_nb.dataflow.graph import Graph

COUNT, SPLITS = 20_000, 32
RATE = 200
"""Rows a second at first: the source must not end before its workers have come and gone."""


def reading(workers: int, count: int = COUNT) -> Graph:
    """Rows of twenty keys from a source with so many workers, numbered within each key."""
    flow = fn.Dataflow("reading")
    source = fn.rate(RATE, count=count, row=lambda value: {"key": value % KEYS})
    rows = flow.source("numbers", source, workers=None)
    counted = rows.map("C", Count(), key="key")
    counted.map("A", lambda row: {**row, "marked_by": row["counted_by"]}).sink("out", fn.memory())
    graph: Graph = flow.graph(workers)
    return graph


def rescale(run: Trial, hosts: int) -> events.RescaleEnded:
    """Ask for so many hosts, and wait for the end of the request."""
    number = len(run.watch.heard_of("rescaled")) + 1
    shares = dict.fromkeys(run.graph.by_name, 1)
    run.launched.driver.post(events.RescaleRequested(f"r{number}", hosts, shares))
    ended: events.RescaleEnded = run.watch.until_said("rescaled", number)
    return ended


def finish(run: Trial) -> None:
    """Read the rest at once, and compare what came out with the plain reference, tuple by tuple."""
    run.hurry()
    assert run.end(drain=False) == ("finished", "")
    rows = sorted(run.rows(), key=lambda row: int(row["value"]))
    check_counted(rows, COUNT)
    assert [(row["value"], row["key"]) for row in rows] == [(value, value % KEYS) for value in range(COUNT)]
    in_order: defaultdict[tuple[int, int], list[int]] = defaultdict(list)
    for row in rows:
        in_order[row["value"] % SPLITS, row["key"]].append(row["seen"])
    assert all(seen == sorted(seen) for seen in in_order.values()), "the rows of a split came in another order"
    assert run.audit().serializable


def wait_for(run: Trial, worker: str, tuples: int) -> None:
    """Until one worker has reported so many tuples."""
    run.watch.until(lambda: run.watch.processed.get(worker, 0) >= tuples, f"{tuples} tuples at {worker}")


def test_a_source_goes_to_one_host_and_back_under_load(spark: SparkSession, tmp_path: Path) -> None:
    """Amid checkpoints; the splits are read on where they were given up."""
    with trial(reading(2), spark, str(tmp_path / "c"), hosts=2) as run:
        wait_for(run, "numbers[1]", 50)
        ended = rescale(run, 1)
        assert (ended.outcome, ended.hosts, ended.error) == ("done", 1, "")
        wait_for(run, "numbers[0]", run.watch.processed["numbers[0]"] + 50)
        run.watch.processed.pop("numbers[1]")
        ended = rescale(run, 2)
        assert (ended.outcome, ended.hosts, ended.error) == ("done", 2, "")
        wait_for(run, "numbers[1]", 50)
        finish(run)
