"""W1 as a Structured Streaming query, and two ways to change its model, since Spark has none of its own.

``by_restart`` stops the query and restarts it with the new model from its checkpoint. ``by_rereading`` reads the model
from a file at the start of every micro-batch, in ``foreachBatch``, and keeps the last amounts itself, because the
function of a stateful operator is fixed. Both measure the time from the request until the first payment is scored with
the new model; the current micro-batch has to end, or is lost, before that.
"""

from __future__ import annotations

import json
import os
import pickle
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery

from fries_nb.errors import RunError
from fries_nb.spark.stage import failure_of

CUSTOMERS = 500
WINDOW = 10
SCORED = "value long, CUSTOMER_ID long, at double, version int, score double, kept array<double>"
LOOK_S = 0.1
"""Seconds between two checks; the payments themselves record when they were scored."""
PATIENCE_S = 600.0


@dataclass(frozen=True)
class Model:
    """Scores a payment against the customer's last ten, after a wait; returns its version and the time."""

    version: int
    cost_ms: float

    def rows(self, frame: pd.DataFrame, kept: list[float]) -> pd.DataFrame:
        """The payments of one customer, scored in order; ``kept`` is the state."""
        found = []
        for value, customer, amount in zip(frame["value"], frame["CUSTOMER_ID"], frame["amount"], strict=True):
            time.sleep(self.cost_ms / 1000)
            kept = [amount, *kept][:WINDOW]
            found.append((value, customer, time.time(), self.version, amount * len(kept) / sum(kept), kept))
        return pd.DataFrame(found, columns=["value", "CUSTOMER_ID", "at", "version", "score", "kept"])


def replace_model(place: Path, model: Model) -> None:
    """Replace the file of the model in one step: a micro-batch that begins meanwhile reads a whole one."""
    new = place.with_suffix(".new")
    new.write_bytes(pickle.dumps(model))
    os.replace(new, place)


def first_seen(what: str, query: StreamingQuery, look: Callable[[], float | None]) -> float:
    """The first figure that ``look`` finds; for payments the time at which one was scored, since the Unix epoch.

    Args:
        what: what is waited for, for the error.
        query: the query that is to put it out.
        look: returns the figure, or ``None`` if there is none yet.

    Raises:
        RunError: the query has ended, or takes too long.
    """
    deadline = time.monotonic() + PATIENCE_S
    while (found := look()) is None:
        if (error := query.exception()) is not None or time.monotonic() > deadline:
            reason = failure_of(str(error)).reason if error else f"waited for {PATIENCE_S:g} s"
            raise RunError(f"{what} did not come: {reason}")
        threading.Event().wait(LOOK_S)
    return found


def by_restart(spark: SparkSession, rate: float, workers: int, old_ms: float, new_ms: float, seconds: float) -> float:
    """Restart the query with the new model.

    Args:
        spark: the session.
        rate: payments per second.
        workers: number of shuffle partitions.
        old_ms: cost of the old model in milliseconds.
        new_ms: cost of the new model in milliseconds.
        seconds: time before the request in seconds.

    Returns:
        Seconds from the request to the first payment scored with the new model.
    """
    with shuffled_in(spark, workers), scratch_directory() as directory:
        scored_in, batches_read = str(Path(directory, "scored")), 0

        def started(model: Model) -> StreamingQuery:
            def score(key: Any, frames: Iterable[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
                kept = json.loads(state.get[0]) if state.exists else []
                scored = model.rows(pd.concat(list(frames)).sort_values("value"), kept)
                state.update((json.dumps(scored["kept"].iloc[-1]),))
                yield scored

            scored = (
                _payments(spark, rate)
                .groupBy("CUSTOMER_ID")
                .applyInPandasWithState(score, SCORED, "kept string", "append", "NoTimeout")
            )
            place = str(Path(directory, "checkpoint"))
            return scored.writeStream.option("checkpointLocation", place).format("parquet").start(scored_in)

        def first(version: int) -> float | None:
            nonlocal batches_read
            seen, batches_read = batches_read, len(list(Path(scored_in, "_spark_metadata").glob("[0-9]*")))
            if seen == batches_read:
                return None  # a query for each look would slow down the rival
            rows = spark.read.schema(SCORED).parquet(scored_in).where(f.col("version") == version)
            found: float | None = rows.agg(f.min("at")).collect()[0][0]
            return found

        query = started(Model(0, old_ms))
        first_seen("a payment scored by version 0", query, lambda: first(0))
        threading.Event().wait(seconds)
        requested = time.time()
        query.stop()
        query = started(Model(1, new_ms))
        try:
            return first_seen("a payment scored by version 1", query, lambda: first(1)) - requested
        finally:
            query.stop()


def by_rereading(spark: SparkSession, rate: float, workers: int, old_ms: float, new_ms: float, seconds: float) -> float:
    """The same with a model that is read again for each micro-batch."""
    first: dict[int, float] = {}
    remembered: dict[int, list[float]] = {}
    over = threading.Event()
    with shuffled_in(spark, workers), scratch_directory() as directory:
        place = Path(directory, "model.pickle")
        replace_model(place, Model(0, old_ms))

        def batch_scored(batch: DataFrame, _: int) -> None:
            if over.is_set():
                return  # a batch that is cut short fills the screen with Spark's complaints
            model, before = pickle.loads(place.read_bytes()), dict(remembered)

            def score(key: tuple[int, ...], frame: pd.DataFrame) -> pd.DataFrame:
                scored: pd.DataFrame = model.rows(frame.sort_values("value"), before.get(int(key[0]), []))
                return scored

            scored = batch.groupBy("CUSTOMER_ID").applyInPandas(score, SCORED).persist()
            last = scored.groupBy("CUSTOMER_ID").agg(f.max_by("kept", "value").alias("kept"), f.min("at").alias("at"))
            for row in (rows := last.collect()):
                remembered[row["CUSTOMER_ID"]] = list(row["kept"])
            if rows:
                first.setdefault(model.version, min(row["at"] for row in rows))
            scored.unpersist()

        writer = _payments(spark, rate).writeStream.option("checkpointLocation", str(Path(directory, "checkpoint")))
        query = writer.foreachBatch(batch_scored).start()
        first_seen("a payment scored by version 0", query, lambda: first.get(0))
        threading.Event().wait(seconds)
        requested = time.time()
        replace_model(place, Model(1, new_ms))
        try:
            return first_seen("a payment scored by version 1", query, lambda: first.get(1)) - requested
        finally:
            over.set()
            stop_between_batches(query)


def _payments(spark: SparkSession, rate: float) -> DataFrame:
    """Payments generated by Spark's rate source, which keeps its rate."""
    made = spark.readStream.format("rate").option("rowsPerSecond", max(1, round(rate))).load()
    return made.select(
        "value", (f.col("value") % CUSTOMERS).alias("CUSTOMER_ID"), (f.col("value") % 97 + 1.0).alias("amount")
    )


def stop_between_batches(query: StreamingQuery) -> None:
    """Stop a query, between two of its micro-batches if possible."""
    deadline = time.monotonic() + PATIENCE_S / 10
    while query.isActive and query.status["isTriggerActive"] and time.monotonic() < deadline:
        threading.Event().wait(LOOK_S)
    query.stop()


@contextmanager
def scratch_directory() -> Iterator[str]:
    """A directory for a query's files, removed afterwards.

    ``StreamingQuery.stop`` returns while cancelled tasks still run, and Spark closes state stores in a thread of its
    own, so files may still be created while the directory is removed: removal is repeated until it succeeds.
    """
    directory = tempfile.mkdtemp(prefix="fries-rival-")
    try:
        yield directory
    finally:
        deadline = time.monotonic() + PATIENCE_S / 10
        while Path(directory).exists():
            try:
                shutil.rmtree(directory)
            except OSError:
                if time.monotonic() > deadline:
                    raise
                threading.Event().wait(LOOK_S)


@contextmanager
def shuffled_in(spark: SparkSession, workers: int) -> Iterator[None]:
    """Within the block, as many shuffle partitions as FD has workers, since Spark's default of 200 would be unfair."""
    name = "spark.sql.shuffle.partitions"
    before = spark.conf.get(name)
    spark.conf.set(name, workers)
    try:
        yield
    finally:
        spark.conf.set(name, before or "200")
