"""A dataflow with a sink of one's own, a Delta Lake table and a table of Spark's catalogue.

Run as a program, with a directory: a driver of it that dies in front of the third transaction of the Delta table.
"""

from __future__ import annotations

import sys
from pathlib import Path

from dying_driver import die_at
from pyspark.sql import SparkSession
from recovery_setting import KEYS, Count, Mark

import fries_nb as fn
from fries_nb.run import Run
from fries_nb.spark.session import start_or_find
from fries_nb.storage import delta
from fries_nb.workloads.connector_examples import SqliteSink

TABLE = "fries_deaths"
TYPES = {"value": "BIGINT", "key": "BIGINT", "marked_by": "BIGINT", "seen": "BIGINT", "counted_by": "BIGINT"}


def own_sink(place: Path) -> SqliteSink:
    """The sink of one's own."""
    return SqliteSink(str(place / "own.db"), "counted", tuple(TYPES))


def to_three_sinks(place: Path) -> fn.Dataflow:
    """Endless rows of twenty keys, numbered within each key."""
    flow = fn.Dataflow("three sinks")
    rows = flow.source("numbers", fn.rate(2_000, row=lambda value: {"key": value % KEYS}))
    counted = rows.map("A", Mark()).map("C", Count(), key="key")
    counted = counted.map("B", lambda row: {name: row[name] for name in TYPES})
    counted.sink("own", own_sink(place))
    counted.sink("delta", fn.delta(place / "delta", partition_by=["key"]))
    counted.sink("table", fn.table(TABLE))
    return flow


def run_in(spark: SparkSession, place: Path) -> Run:
    """Start the dataflow, or resume it if it was started before, in a session that gets to know the table."""
    columns = ", ".join(f"{name} {kind}" for name, kind in TYPES.items())
    spark.sql(f"CREATE TABLE IF NOT EXISTS {TABLE} ({columns}) USING parquet LOCATION '{place / 'table'}'")
    flow, checkpoints = to_three_sinks(place), place / "checkpoints"
    if checkpoints.exists():
        return flow.resume(checkpoints, spark, hosts=1, commit_interval_s=0.2)
    return flow.run(spark, hosts=1, workers=2, checkpoint=checkpoints, commit_interval_s=0.2)


if __name__ == "__main__":
    die_at(delta, "add", 3)
    run_in(start_or_find(hosts=1).spark, Path(sys.argv[1])).wait()
