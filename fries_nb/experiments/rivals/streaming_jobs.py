"""What fries_nb is compared with in Structured Streaming: four queries as its own users would write them.

**Accounts**: numbering the rows of accounts (``workloads.accounts``), restarted with another parallelism.

The query is stopped between two micro-batches, and started again from its checkpoint after
``spark.sql.shuffle.partitions`` was doubled. Spark keeps the number of partitions that the checkpoint was made with, so
``partitions`` is the number that it has then.

**Video**: the pipeline as one query, without a pause between its micro-batches.

Written for low latency: the tasks of a group run in one stateful function behind one shuffle, so pictures never leave
the interpreter in which they are decoded. A packet is due at the time that the rate of the streams gives it, whichever
micro-batch reads it; a latency is from the first of four packets that are merged to the start of the Server.

**W1**, and two ways to change its model, since Spark has none of its own.

``by_restart`` stops the query and restarts it with the new model from its checkpoint. ``by_rereading`` reads the model
from a file at the start of every micro-batch, in ``foreachBatch``, and keeps the last amounts itself, because the
function of a stateful operator is fixed. Both measure the time from the request until the first payment is scored with
the new model; the current micro-batch has to end, or is lost, before that.

**Windows** of a second, without a pause between micro-batches. A micro-batch gives out the windows that the watermark
of the one before it has passed, so a result waits for two of them. A latency is from the end of a window to the time at
which its batch is in the notebook.
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
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.query import StreamingQuery

from fries_nb.errors import RunError
from fries_nb.experiments.measuring import pause
from fries_nb.spark.stage import failure_of
from fries_nb.workloads.video import GROUP, Decoder, Encoder, Merger, Overlay, Server, VideoFeed

NUMBERED, COUNTED = "value long, nth long", "count long, kept string"


@dataclass(frozen=True)
class Restart:
    """What came out: (value, number in its account, time in nanoseconds), in order; and how many partitions it had."""

    rows: tuple[tuple[int, int, int], ...]
    requested_ns: int
    partitions: int


def restarted(spark: SparkSession, rate: int, accounts: int, state_bytes: int, seconds: float) -> Restart:
    """Run the query with one partition, and again with two."""
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
    return keyed.applyInPandasWithState(book, NUMBERED, COUNTED, "append", "NoTimeout")


def _partitions(checkpoint: Path) -> int:
    """The number of partitions of the last micro-batch, as its checkpoint has it."""
    last = max((path for path in (checkpoint / "offsets").iterdir() if path.name.isdigit()), key=lambda p: int(p.name))
    return int(json.loads(last.read_text().splitlines()[1])["conf"]["spark.sql.shuffle.partitions"])


PACKETS = "stream int, number long, packet binary, due double"
SERVED = "group int, number long, size int, checksum long, due double, at double"
STATE = "pickled binary"
TABLE = "served_frames"


class PacketSource(DataSource):
    """The packets of ``streams`` streams, ``rate`` a second in all, from the time ``since`` on."""

    @classmethod
    def name(cls) -> str:
        """The name for ``format``."""
        return "packets"

    def schema(self) -> str:
        """The columns."""
        return PACKETS

    def streamReader(self, schema: Any) -> DataSourceStreamReader:
        """The reader."""
        return PacketReader(int(self.options["streams"]), float(self.options["rate"]), float(self.options["since"]))


class PacketReader(DataSourceStreamReader):
    """Reads all packets that are due; see ``PacketSource``."""

    def __init__(self, streams: int, rate: float, since: float) -> None:
        self._feed, self._rate, self._since = VideoFeed(streams), rate, since

    def initialOffset(self) -> dict[str, int]:
        """The first packet."""
        return {"value": 0}

    def latestOffset(self, *_: Any) -> dict[str, int]:
        """The first packet that is not due."""
        return {"value": max(0, int((time.time() - self._since) * self._rate) + 1)}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        """One, as our source has one worker."""
        return [InputPartition((start["value"], end["value"]))]

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        """The packets between two offsets."""
        for value in range(*partition.value):
            row = self._feed(value)
            yield row["stream"], row["number"], row["packet"], self._since + value / self._rate


def served(_: tuple[int, ...], frames: Iterable[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
    """Decode, merge, overlay, encode and serve the packets of one group; a function of ``applyInPandasWithState``."""
    decoded, waiting, dues = pickle.loads(state.get[0]) if state.exists else ({}, {}, {})
    decoder, merger, overlay, encoder, server = Decoder(), Merger(), Overlay(), Encoder(), Server()
    made = []
    for packet in pd.concat(list(frames)).sort_values(["number", "stream"]).to_dict("records"):
        dues.setdefault(packet["number"], packet["due"])
        merged = merger.process(decoder.process(packet, decoded), waiting)
        if merged is not None:
            row = encoder(overlay(merged))
            made.append(server(row) | {"due": dues.pop(packet["number"]), "at": time.time()})
    state.update((pickle.dumps((decoded, waiting, dues)),))
    yield pd.DataFrame(made, columns=["group", "number", "size", "checksum", "due", "at"])


def latencies(spark: SparkSession, streams: int, frames_per_s: float, workers: int, seconds: float) -> pd.DataFrame:
    """Run the pipeline; returns ``group`` and ``ms`` of the merged frames that were served in the second half."""
    spark.dataSource.register(PacketSource)
    with shuffled_in(spark, workers), scratch_directory() as directory:
        options = {"streams": streams, "rate": streams * frames_per_s, "since": time.time()}
        packets = spark.readStream.format("packets").options(**options).load()
        grouped = packets.withColumn("group", (f.col("stream") / GROUP).cast("int"))
        frames = grouped.groupBy("group").applyInPandasWithState(served, SERVED, STATE, "append", "NoTimeout")
        place = str(Path(directory, "checkpoint"))
        query = frames.writeStream.option("checkpointLocation", place).format("memory").queryName(TABLE).start()
        try:
            first_seen("a merged frame", query, lambda: spark.table(TABLE).count() or None)
            pause(seconds)
            since = time.time() - seconds / 2
            found = spark.table(TABLE).where(f.col("at") >= since)
            first_seen("a merged frame of the second half", query, lambda: found.count() or None)
            return found.select("group", ((f.col("at") - f.col("due")) * 1000).alias("ms")).toPandas()
        finally:
            query.stop()


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
    """The first figure that ``look`` finds; for payments the time at which one was scored, since the Unix epoch."""
    deadline = time.monotonic() + PATIENCE_S
    while (found := look()) is None:
        if (error := query.exception()) is not None or time.monotonic() > deadline:
            reason = failure_of(str(error)).reason if error else f"waited for {PATIENCE_S:g} s"
            raise RunError(f"{what} did not come: {reason}")
        threading.Event().wait(LOOK_S)
    return found


def by_restart(spark: SparkSession, rate: float, workers: int, old_ms: float, new_ms: float, seconds: float) -> float:
    """Seconds from the request to the first payment scored with the new model, by a restart of the query."""
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
    """A directory for a query's files, removed afterwards."""
    # ``StreamingQuery.stop`` returns while cancelled tasks still run, and Spark closes state stores in a thread of its
    # own, so files may still be created while the directory is removed: removal is repeated until it succeeds.
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


def window_latencies(spark: SparkSession, rate: int, keys: int, workers: int, seconds: float) -> list[float]:
    """Run the query; returns the latency of each result of the second half, in milliseconds."""
    found: list[tuple[float, float]] = []
    over = threading.Event()

    def given_out(batch: DataFrame, _: int) -> None:
        if over.is_set():
            return  # a batch that is cut short fills the screen with Spark's complaints
        ends = [row["end"] for row in batch.select(f.col("window.end").cast("double").alias("end")).collect()]
        now = time.time()
        found.extend((now, (now - end) * 1000) for end in ends)

    with shuffled_in(spark, workers), scratch_directory() as directory:
        rows = spark.readStream.format("rate").option("rowsPerSecond", rate).load()
        keyed = rows.withColumn("key", f.col("value") % keys).withWatermark("timestamp", "0 seconds")
        counts = keyed.groupBy(f.window("timestamp", "1 second"), "key").count()
        place = str(Path(directory, "checkpoint"))
        query = counts.writeStream.outputMode("append").option("checkpointLocation", place).foreachBatch(given_out)
        running = query.start()
        try:
            first_seen("a window", running, lambda: len(found) or None)
            pause(seconds)
        finally:
            over.set()
            stop_between_batches(running)
    since = time.time() - seconds / 2
    return [latency for at, latency in found if at >= since]
