"""Reads the committed rows of a target into Spark, whatever schemas its parts have.

A Delta table is read by the files that its log lists, so Spark needs no additional jar.
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
    """The committed rows of a target, of all runs or of one; columns that a row lacks are null.

    Args:
        spark: the session.
        path: the target.
        run: name of the run; ``None`` for all runs.
        written: the columns that were written, which the frame has if nothing is committed.

    Returns:
        A Spark DataFrame.

    Raises:
        SessionError: the session has been stopped.
        SinkError: two sink workers wrote a column in incompatible types (names it), a file is missing, or a Delta table
            was rewritten by others.
    """
    if spark.sparkContext._jsc is None:
        raise SessionError(f"the SparkSession of this run has been stopped; what was committed lies in {path}")
    recover(path)
    files = sorted(committed(path, run), key=_columns)
    see_unchanged(path, run)  # after the files were listed, so that a rewrite before the listing is detected too
    if not files:
        return spark.createDataFrame([], _as_spark_reads(spark, path, written))
    groups = [list(group) for _, group in groupby(files, _columns)]
    schemas = [_schema(group[0]) for group in groups]
    whole = reduce(unified, schemas)
    frames = [_read(spark, group, schema, whole) for group, schema in zip(groups, schemas, strict=True)]
    rows = reduce(lambda left, right: left.unionByName(right, allowMissingColumns=True), frames)
    return rows.select(*(rows[f"`{name.replace('`', '``')}`"] for name in whole.names if name in rows.columns))


def _as_spark_reads(spark: SparkSession, path: str, schema: pa.Schema) -> StructType:
    """The schema as Spark will read it from committed parts, determined with a temporary part without rows."""
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
    """Files of one schema. Columns of only nulls, which Spark would read as integers, are omitted."""
    nulls = [field.name for field in schema if field.type == pa.null() and whole.field(field.name).type != pa.null()]
    return spark.read.parquet(*map(read_by_spark, files)).drop(*nulls)


def _columns(file: str) -> str:
    return PartName.read(file).columns


def _schema(file: str) -> pa.Schema:
    filesystem, path = locate(file)
    return pq.read_schema(path, filesystem=filesystem)
