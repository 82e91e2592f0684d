"""The video pipeline as a Structured Streaming query, without a pause between its micro-batches.

Written for low latency: the tasks of a group run in one stateful function behind one shuffle, so pictures never leave
the interpreter in which they are decoded. A packet is due at the time that the rate of the streams gives it, whichever
micro-batch reads it; a latency is from the first of four packets that are merged to the start of the Server.
"""

from __future__ import annotations

import pickle
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
from pyspark.sql import SparkSession
from pyspark.sql import functions as f
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from fries_nb.experiments.measuring import pause
from fries_nb.experiments.rivals.streaming_w1 import first_seen, scratch_directory, shuffled_in
from fries_nb.workloads.video import GROUP, Decoder, Encoder, Merger, Overlay, Server, VideoFeed

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
    """Run the pipeline.

    Args:
        spark: the session.
        streams: number of streams.
        frames_per_s: frames per second of each.
        workers: number of shuffle partitions.
        seconds: duration from the first merged frame on; that before is for the start.

    Returns:
        ``group`` and ``ms`` of the merged frames that were served in the second half.

    Raises:
        RunError: the query has failed, or serves nothing.
    """
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
