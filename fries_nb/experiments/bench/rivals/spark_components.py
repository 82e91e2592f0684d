"""Connected components without fries_nb: a driver loop over Spark DataFrames, and arrays in one process as the floor.

Both propagate the least label until no label changes. The driver loop checkpoints the labels of each round locally, so
that the plan does not grow with the rounds.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pyarrow as pa

from fries_nb.workloads.graphs import SOURCE, TARGET


def driver_loop(spark: Any, path: str, partitions: int) -> tuple[float, dict[int, int]]:
    """Seconds of the driver loop, and the label of each vertex."""
    from pyspark.sql import functions as sql

    before = spark.conf.get("spark.sql.shuffle.partitions")
    spark.conf.set("spark.sql.shuffle.partitions", partitions)
    try:
        started = time.perf_counter()
        one_way = spark.read.parquet(path)
        other_way = one_way.select(sql.col(TARGET).alias(SOURCE), sql.col(SOURCE).alias(TARGET))
        edges = one_way.select(SOURCE, TARGET).union(other_way).distinct().localCheckpoint()
        labels = edges.select(sql.col(SOURCE).alias("vertex")).distinct()
        labels = labels.withColumn("label", sql.col("vertex")).localCheckpoint()
        changed = True
        while changed:
            sent = edges.join(labels, edges[SOURCE] == labels["vertex"])
            told = sent.groupBy(TARGET).agg(sql.min("label").alias("told"))
            joined = labels.join(told, labels["vertex"] == told[TARGET], "left")
            least = sql.least("label", sql.coalesce("told", "label"))
            found = joined.select("vertex", least.alias("label"), (least < sql.col("label")).alias("changed"))
            found = found.localCheckpoint()
            changed = not found.where("changed").isEmpty()
            labels = found.select("vertex", "label")
        rows = labels.collect()
        return time.perf_counter() - started, {row.vertex: row.label for row in rows}
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", before)


def in_arrays(edges: pa.Table) -> tuple[float, dict[int, int]]:
    """Seconds of a loop over NumPy arrays in this process, and the label of each vertex."""
    started = time.perf_counter()
    vertices, ends = np.unique(np.concatenate([edges[SOURCE], edges[TARGET]]), return_inverse=True)
    source, target = np.split(ends, 2)
    labels = np.arange(len(vertices))
    while True:
        before = labels.copy()
        np.minimum.at(labels, target, labels[source])
        np.minimum.at(labels, source, labels[target])
        if np.array_equal(before, labels):
            break
    found = dict(zip(vertices.tolist(), vertices[labels].tolist(), strict=True))
    return time.perf_counter() - started, found
