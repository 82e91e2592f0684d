"""Plain PySpark: three ``mapInArrow`` in a chain, one that calls all three, and ``repartition`` by key between two.

Each reads a Parquet file of payments, applies the functions and writes the rows as Parquet (``sink="parquet"``) or
drops them in the JVM (``sink="noop"``). A time is that of the whole job.
"""

from __future__ import annotations

import argparse
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

from fries_nb.experiments.bench.functions import THREE, by_hour, by_risk, in_euros

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


def seconds(spark: SparkSession, job: str, path: Path, sink: str = "parquet") -> float:
    """Runs the job named ``job`` once and returns how long it took, in seconds."""
    target = tempfile.mkdtemp(prefix="fries-rival-")
    try:
        started = time.perf_counter()
        JOBS[job](spark.read.parquet(str(path))).write.mode("overwrite").format(sink).save(target)
        return time.perf_counter() - started
    finally:
        shutil.rmtree(target)


def main() -> None:
    """Measures one job ``--runs`` times, after one run to warm up, and prints JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("job", choices=JOBS)
    parser.add_argument("path", type=Path)
    parser.add_argument("rows", type=int)
    parser.add_argument("--sink", choices=["parquet", "noop"], default="parquet")
    parser.add_argument("--runs", type=int, default=3)
    given = parser.parse_args()
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    rates = [given.rows / seconds(spark, given.job, given.path, given.sink) for _ in range(given.runs + 1)]
    print(json.dumps({"job": given.job, "sink": given.sink, "rows_per_second": rates[1:]}))
    spark.stop()


if __name__ == "__main__":
    main()
