"""Reads what is committed in a target back into Spark, whatever schemas its parts have.

A Delta table is read by the files that its log names, so Spark needs no jar for it.
"""

from __future__ import annotations

import uuid
from functools import reduce
from itertools import groupby

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from fries_nb.connectors.part_writer import part_writer
from fries_nb.errors import SessionError
from fries_nb.storage.locations import join, locate, read_by_spark
from fries_nb.storage.manifest import committed, recover, see_unchanged
from fries_nb.storage.part_files import PartName
from fries_nb.storage.schemas import unified

NOTHING = pa.schema([])


def output(spark: SparkSession, path: str, run: str | None = None, written: pa.Schema = NOTHING) -> DataFrame:
    """What is committed in a target, of all runs or of one; columns that a row had not are null.

    Args:
        spark: the session.
        path: the target.
        run: whose rows; of all runs if left out.
        written: the columns of what was written there, which the frame has if nothing is committed.

    Raises:
        SessionError: the session has been stopped.
        SinkError: two sink workers wrote a column in types that no one type holds; names it. Or a file has gone, or a
            Delta table has been rewritten by others.
    """
    if spark.sparkContext._jsc is None:
        raise SessionError(f"the SparkSession of this run has been stopped; what was committed lies in {path}")
    recover(path)
    files = sorted(committed(path, run), key=_columns)
    see_unchanged(path, run)  # behind the list: what others took out of the table in front of it is still missed
    if not files:
        return spark.createDataFrame([], _as_spark_reads(spark, path, written))
    groups = [list(group) for _, group in groupby(files, _columns)]
    schemas = [_schema(group[0]) for group in groups]
    whole = reduce(unified, schemas)
    frames = [_read(spark, group, schema, whole) for group, schema in zip(groups, schemas, strict=True)]
    rows = reduce(lambda left, right: left.unionByName(right, allowMissingColumns=True), frames)
    return rows.select(*(rows[f"`{name.replace('`', '``')}`"] for name in whole.names if name in rows.columns))


def _as_spark_reads(spark: SparkSession, path: str, schema: pa.Schema) -> StructType:
    """The columns as they will be once parts with them are committed: Spark is shown such a part, without rows."""
    if not schema.names:
        return StructType([])
    part = join(path, "_fries", f"columns-{uuid.uuid4().hex[:8]}.parquet")
    filesystem, file = locate(part)
    part_writer(file, schema, filesystem).close()
    try:
        return spark.read.parquet(read_by_spark(part)).schema
    finally:
        filesystem.delete_file(file)


def _read(spark: SparkSession, files: list[str], schema: pa.Schema, whole: pa.Schema) -> DataFrame:
    """Files of one schema. A column of nothing but nulls, which Spark would read as integers, is left to the others."""
    nulls = [field.name for field in schema if field.type == pa.null() and whole.field(field.name).type != pa.null()]
    return spark.read.parquet(*map(read_by_spark, files)).drop(*nulls)


def _columns(file: str) -> str:
    return PartName.read(file).columns


def _schema(file: str) -> pa.Schema:
    filesystem, path = locate(file)
    return pq.read_schema(path, filesystem=filesystem)
