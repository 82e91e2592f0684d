"""Structured Streaming numbering the rows of accounts (``workloads.accounts``), restarted with another parallelism.

The query is stopped between two micro-batches, and started again from its checkpoint after
``spark.sql.shuffle.partitions`` was doubled. Spark keeps the number of partitions that the checkpoint was made with, so
``partitions`` is what came of it.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from fries_nb.experiments.measuring import pause
from fries_nb.experiments.rivals.streaming_w1 import first_seen, scratch_directory, shuffled_in, stop_between_batches

OUT, STATE = "value long, nth long", "count long, kept string"


@dataclass(frozen=True)
class Restart:
    """What came out: (value, number in its account, time in nanoseconds), in order; and how many partitions it had."""

    rows: tuple[tuple[int, int, int], ...]
    requested_ns: int
    partitions: int


def restarted(spark: SparkSession, rate: int, accounts: int, state_bytes: int, seconds: float) -> Restart:
    """Run the query with one partition, and again with two.

    Args:
        spark: the session.
        rate: rows per second.
        accounts: number of accounts.
        state_bytes: size of the state of each.
        seconds: duration before, and after, from the first result on.

    Raises:
        RunError: the query has failed, or gives nothing.
    """
    batches: dict[int, list[tuple[int, int, int]]] = {}
    over = threading.Event()

    def given_out(batch: DataFrame, number: int) -> None:
        if over.is_set() or number in batches:  # one that was cut short is repeated after the restart
            return
        found = [(row["value"], row["nth"]) for row in batch.collect()]
        now_ns = time.time_ns()
        batches[number] = [(value, nth, now_ns) for value, nth in found]

    def count() -> int:
        return sum(map(len, batches.values()))

    with scratch_directory() as directory:
        place = Path(directory, "checkpoint")

        def during(workers: int, since: int) -> int:
            """Run it with so many partitions; returns the time of the request to end it."""
            with shuffled_in(spark, workers):
                booked = _booked(spark, rate, accounts, state_bytes)
                query = booked.writeStream.option("checkpointLocation", str(place)).foreachBatch(given_out).start()
                try:
                    first_seen("a row", query, lambda: count() - since or None)
                    pause(seconds)
                finally:
                    requested_ns = time.time_ns()
                    if since:
                        over.set()
                    stop_between_batches(query)
            return requested_ns

        requested_ns = during(1, 0)
        during(2, count())
        return Restart(tuple(row for rows in batches.values() for row in rows), requested_ns, _partitions(place))


def _booked(spark: SparkSession, rate: int, accounts: int, state_bytes: int) -> DataFrame:
    def book(key: Any, frames: Iterable[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
        count, kept = state.get if state.exists else (0, "0" * state_bytes)
        values = sorted(int(value) for frame in frames for value in frame["value"])
        state.update((count + len(values), kept))
        yield pd.DataFrame({"value": values, "nth": [count + n + 1 for n in range(len(values))]})

    rows = spark.readStream.format("rate").option("rowsPerSecond", rate).load()
    keyed = rows.select("value", (f.col("value") % accounts).alias("account")).groupBy("account")
    return keyed.applyInPandasWithState(book, OUT, STATE, "append", "NoTimeout")


def _partitions(checkpoint: Path) -> int:
    """The number of partitions of the last micro-batch, as its checkpoint has it."""
    last = max((path for path in (checkpoint / "offsets").iterdir() if path.name.isdigit()), key=lambda p: int(p.name))
    return int(json.loads(last.read_text().splitlines()[1])["conf"]["spark.sql.shuffle.partitions"])
