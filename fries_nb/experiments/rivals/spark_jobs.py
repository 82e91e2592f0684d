"""What is compared in plain PySpark: jobs of vectorised functions, connected components, and a flag that is polled.

**Maps**, the jobs of this program: three ``mapInArrow`` in a chain, one that calls all three, and ``repartition`` by
key behind the first. Each reads a Parquet file of payments, applies the functions and writes the rows as Parquet. The
process keeps its Spark from one job to the next, with the JVM as Spark sets it up by itself: the one that we start is
tuned to be small.

**Connected components**: a driver loop over Spark DataFrames, and arrays in one process as the floor. Both propagate
the least label until no label changes. The driver loop checkpoints the labels of each round locally, so that the plan
does not grow with the rounds.

**A polled flag**, the rival to keep in mind: a function in a ``mapInArrow`` that looks at a flag before every tuple. It
does W1, two partitions side by side, fed without end. The flag is a byte of a memory-mapped file. When a task sees a
new value it writes the time into its own slot of that file; the delay is the time of the last task minus that of
setting the flag. No state is carried over, nothing is shipped, and nothing keeps two operators apart.
"""

from __future__ import annotations

import functools
import json
import mmap
import os
import random
import shutil
import struct
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession

from fries_nb.experiments.bench.maps import THREE, LastTen, by_hour, by_risk, in_euros
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
            least_sent = sent.groupBy(TARGET).agg(sql.min("label").alias("told"))
            joined = labels.join(least_sent, labels["vertex"] == least_sent[TARGET], "left")
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


TASKS = 2
ROWS = 10_000
STOP = 255
# Byte 0 is the flag; from byte 8 on, one slot for each task: the flag last seen, and when (monotonic, ns).
SLOT, SLOT_BYTES = "<qq", 16


def opened(path: str) -> mmap.mmap:
    """The flag's file, mapped."""
    with open(path, "r+b") as file:
        return mmap.mmap(file.fileno(), 0)


def poll_and_score(path: str, seconds_a_tuple: float) -> Iterator[pa.RecordBatch]:
    """W1 on made-up payments until the flag says stop; notes each change of the flag as soon as it is seen."""
    task = TaskContext.get()
    if task is None:
        raise RuntimeError("poll_and_score: got no task, expected to run inside one")
    flag, model, states, seen = opened(path), LastTen(), dict[int, list[float]](), -1
    amounts = [float(n % 97 + 1) for n in range(ROWS)]
    while seen != STOP:
        scores = []
        for number, amount in enumerate(amounts):
            if flag[0] != seen:
                seen = flag[0]
                struct.pack_into(SLOT, flag, 8 + SLOT_BYTES * task.partitionId(), seen, time.monotonic_ns())
            row = {"CUSTOMER_ID": number % 500, "TX_AMOUNT": amount}
            scores.append(model.process(row, states.setdefault(number % 500, []))["SCORE"])
            if seconds_a_tuple:
                time.sleep(seconds_a_tuple)
        yield pa.RecordBatch.from_pydict({"SCORE": scores})


def wait_for(flag: mmap.mmap, value: int) -> int:
    """Waits until every task has seen ``value`` and returns the time of the last, in nanoseconds."""
    while True:
        slots = [struct.unpack_from(SLOT, flag, 8 + SLOT_BYTES * task) for task in range(TASKS)]
        if all(seen == value for seen, _ in slots):
            return max(int(when) for _, when in slots)
        time.sleep(0.005)


def delays_ms(spark: SparkSession, changes: int, seconds_a_tuple: float = 0.0) -> list[float]:
    """Changes the flag ``changes`` times under load; for each, milliseconds until the last task had seen it."""
    with tempfile.NamedTemporaryFile(prefix="fries-flag-") as file:
        file.write(bytes(8) + struct.pack(SLOT, -1, 0) * TASKS)
        file.flush()
        path = file.name
        tasks = spark.range(0, TASKS, 1, TASKS)
        frame = tasks.mapInArrow(lambda _: poll_and_score(path, seconds_a_tuple), "SCORE double")
        job = threading.Thread(target=lambda: frame.write.mode("overwrite").format("noop").save())
        job.start()
        flag, found = opened(path), []
        wait_for(flag, 0)
        for change in range(1, changes + 1):
            time.sleep(0.3 + random.random() / 10)
            asked, flag[0] = time.monotonic_ns(), change
            found.append((wait_for(flag, change) - asked) / 1e6)
        flag[0] = STOP
        job.join()
    return found


Function = Callable[[pa.RecordBatch], pa.RecordBatch]
EUROS, HOUR, RISK = "EUROS double", "HOUR bigint", "RISK double"


def chain_of_three(payments: DataFrame) -> DataFrame:
    """A ``mapInArrow`` for each of the three functions."""
    return over(over(over(payments, [in_euros], EUROS), [by_hour], HOUR), [by_risk], RISK)


def all_in_one(payments: DataFrame) -> DataFrame:
    """One ``mapInArrow`` that calls the three functions in turn."""
    return over(payments, THREE, f"{EUROS}, {HOUR}, {RISK}")


def exchange(payments: DataFrame) -> DataFrame:
    """Spark's own ``repartition`` by customer, into two, between the first function and the others."""
    return over(over(payments, [in_euros], EUROS).repartition(2, "CUSTOMER_ID"), [by_hour, by_risk], f"{HOUR}, {RISK}")


JOBS = {"chain": chain_of_three, "one": all_in_one, "exchange": exchange}


def over(frame: DataFrame, functions: Iterable[Function], added: str) -> DataFrame:
    """``frame`` through one ``mapInArrow`` that calls the functions, which add the columns ``added``."""
    columns = ", ".join(f"`{field.name}` {field.dataType.simpleString()}" for field in frame.schema)
    steps = list(functions)

    def apply(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield functools.reduce(lambda done, step: step(done), steps, batch)

    return frame.mapInArrow(apply, f"{columns}, {added}")


def seconds(spark: SparkSession, job: str, path: Path) -> float:
    """Runs the job named ``job`` once and returns how long it took, in seconds."""
    target = tempfile.mkdtemp(prefix="fries-rival-")
    try:
        started = time.perf_counter()
        JOBS[job](spark.read.parquet(str(path))).write.mode("overwrite").parquet(target)
        return time.perf_counter() - started
    finally:
        shutil.rmtree(target)


def serve(settings: Mapping[str, Any], seconds: Callable[[SparkSession, str, Path], float]) -> None:
    """Serve: for each line ``{"job", "path"}`` on standard input, run the job and print ``{"seconds"}``."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = SparkSession.builder.master("local[2]").config(map={"spark.ui.enabled": "false", **settings}).getOrCreate()
    for line in sys.stdin:
        asked = json.loads(line)
        print(json.dumps({"seconds": seconds(spark, asked["job"], Path(asked["path"]))}), flush=True)
    spark.stop()


if __name__ == "__main__":
    serve({}, seconds)
