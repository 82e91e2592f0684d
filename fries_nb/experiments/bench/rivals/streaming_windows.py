"""Windows of a second as a Structured Streaming query, without a pause between its micro-batches.

A micro-batch gives out the windows that the watermark of the one before it has passed, so a result waits for two of
them. A latency is from the end of a window to the time at which its batch is in the notebook.
"""

from __future__ import annotations

import threading
import time
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from fries_nb.experiments.measuring import pause
from fries_nb.experiments.rivals.streaming_jobs import first_seen, scratch_directory, shuffled_in, stop_between_batches


def window_latencies(spark: SparkSession, rate: int, keys: int, workers: int, seconds: float) -> list[float]:
    """Run the query.

    Returns:
        The latency of each result of the second half, in milliseconds.
    """
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
