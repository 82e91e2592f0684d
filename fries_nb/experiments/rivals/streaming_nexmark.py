"""Queries of Nexmark in Structured Streaming, as its own users would write them; all of q0 to q8 but q4 and q6.

Those two take the winning bid of each auction, by ``ROW_NUMBER`` in SQL, which Spark refuses over streams.

A program with a plain Spark session of its own, as ``spark_jobs`` is. A query reads what there is in one micro-batch,
which is its best rate, and writes Parquet: so no result is there before all rows are read. Windows are given out when
the watermark has passed their end, so the last of them are never written; q7 gives out one of several bids with the
highest price.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from fries_nb.experiments.rivals.spark_jobs import serve
from fries_nb.experiments.rivals.streaming_jobs import scratch_directory

LATE = "2 seconds"
"""How much earlier than the newest row a row may be."""
Read = Callable[[str], DataFrame]


def q0(read: Read) -> DataFrame:
    """Pass on each bid."""
    return read("bid").select("auction", "bidder", "price", "dateTime", "extra")


def q1(read: Read) -> DataFrame:
    """Prices in euros."""
    return read("bid").select("auction", "bidder", f.expr("0.908 * price AS price"), "dateTime", "extra")


def q2(read: Read) -> DataFrame:
    """Bids for some auctions."""
    return read("bid").where("auction % 123 = 0").select("auction", "price")


def q3(read: Read) -> DataFrame:
    """People of three states with auctions in a category."""
    people = read("person").where("state IN ('OR', 'ID', 'CA')").select(f.col("id").alias("seller"), *WHERE)
    auctions = read("auction").where("category = 10").select("seller", "id")
    return auctions.join(people, "seller").select(*WHERE, "id")


WHERE = ("name", "city", "state")


def q5(read: Read) -> DataFrame:
    """The auctions with the most bids in each ten seconds, every two seconds."""
    bids = read("bid").withWatermark("dateTime", LATE)
    counts = bids.groupBy(f.window("dateTime", "10 seconds", "2 seconds"), "auction").agg(f.count("*").alias("num"))
    by_end = counts.groupBy(f.window(f.window_time("window"), "2 seconds"))
    found = by_end.agg(f.max("num").alias("most"), f.collect_list(f.struct("auction", "num")).alias("all"))
    hottest = found.select("window.end", f.explode(f.expr("filter(all, one -> one.num = most)")).alias("one"))
    return hottest.select("one.auction", "one.num", "end")


def q7(read: Read) -> DataFrame:
    """A highest bid of each ten seconds."""
    bids = read("bid").withWatermark("dateTime", LATE)
    highest = f.max(f.struct("price", "auction", "bidder", "dateTime", "extra")).alias("bid")
    return bids.groupBy(f.window("dateTime", "10 seconds")).agg(highest).select("bid.*")


def q8(read: Read) -> DataFrame:
    """People that opened an auction within the ten seconds in which they came."""
    span = f.window("dateTime", "10 seconds").alias("span")
    people = read("person").withWatermark("dateTime", LATE).select(f.col("id").alias("seller"), "name", span)
    sellers = read("auction").withWatermark("dateTime", LATE).select("seller", span)
    return people.join(sellers, ["seller", "span"]).dropDuplicates(["seller", "span"]).select("seller", "name")


QUERIES_OF_SPARK = {"q0": q0, "q1": q1, "q2": q2, "q3": q3, "q5": q5, "q7": q7, "q8": q8}


def streamed_seconds(spark: SparkSession, query: str, events: Path) -> float:
    """Run a query over what there is in a directory for each kind of events; returns how long it took, in seconds."""

    def read(kind: str) -> DataFrame:
        place = str(events / kind)
        return spark.readStream.schema(spark.read.parquet(place).schema).parquet(place)

    with scratch_directory() as directory:
        found = QUERIES_OF_SPARK[query](read)
        started = time.perf_counter()
        writer = found.writeStream.option("checkpointLocation", f"{directory}/checkpoint").trigger(availableNow=True)
        writer.format("parquet").start(f"{directory}/out").awaitTermination()
        return time.perf_counter() - started


SETTINGS = {
    "spark.sql.shuffle.partitions": "2", "spark.sql.session.timeZone": "UTC",
    "spark.sql.parquet.inferTimestampNTZ.enabled": "false",  # a time without a zone is no event time
}  # fmt: skip

if __name__ == "__main__":
    serve(SETTINGS, streamed_seconds)
