"""Plain PySpark: three ``mapInArrow`` in a chain, one that calls all three, and ``repartition`` by key between two.

Each reads a Parquet file of payments, applies the functions and writes the rows as Parquet. The process keeps its Spark
from one job to the next, with the JVM as Spark sets it up by itself: the one that we start is tuned to be small.
"""

from __future__ import annotations

import functools
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from fries_nb.experiments.bench.maps import THREE, by_hour, by_risk, in_euros

Function = Callable[[pa.RecordBatch], pa.RecordBatch]
EUROS, HOUR, RISK = "EUROS double", "HOUR bigint", "RISK double"


def chain_of_three(payments: DataFrame) -> DataFrame:
    """A ``mapInArrow`` for each of the three functions."""
    return over(over(over(payments, [in_euros], EUROS), [by_hour], HOUR), [by_risk], RISK)


def all_in_one(payments: DataFrame) -> DataFrame:
    """One ``mapInArrow`` that calls the three functions in turn."""
    return over(payments, THREE, f"{EUROS}, {HOUR}, {RISK}")


def exchange(payments: DataFrame) -> DataFrame:
    """Spark's own ``repartition`` by customer, into two, between two ``mapInArrow``."""
    return over(over(payments, [in_euros], EUROS).repartition(2, "CUSTOMER_ID"), [by_hour], HOUR)


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


def main() -> None:
    """Serves: for each line ``{"job", "path"}`` on standard input, runs the job and prints ``{"seconds"}``."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    for line in sys.stdin:
        asked = json.loads(line)
        print(json.dumps({"seconds": seconds(spark, asked["job"], Path(asked["path"]))}), flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
