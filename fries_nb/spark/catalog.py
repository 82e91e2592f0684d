"""Spark's catalogue: the rows of tables and queries as DataFrames, and the files that are behind a table.

Reads the committed rows of a target into Spark, whatever schemas its parts have.

A Delta table is read by the files that its log lists, so Spark needs no additional jar.
"""

from __future__ import annotations

import posixpath
import uuid
from dataclasses import dataclass
from functools import reduce
from itertools import groupby

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.errors import AnalysisException, ParseException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from fries_nb.connectors.parquet_sink import DeltaSink, ParquetSink, TableSink, part_writer
from fries_nb.dataflow.endpoints import CatalogTable, Query
from fries_nb.errors import SessionError, SinkError, SourceError, close_match
from fries_nb.storage.durable import join, locate, read_by_spark
from fries_nb.storage.manifest import committed, recover, see_unchanged
from fries_nb.storage.part_files import PartName, unified


@dataclass(frozen=True)
class TableFiles:
    """What the catalogue says of a table's files.

    Attributes:
        provider: their format, as ``parquet`` or ``delta``.
        location: the URI of their directory; empty for a view.
        partitions: the columns by which they are partitioned.
    """

    provider: str
    location: str
    partitions: tuple[str, ...]


@dataclass(frozen=True)
class SessionTable:
    """The entry of a table in a session's catalogue; see ``CatalogEntry``.

    Attributes:
        spark: the session.
        name: name of the table.
    """

    spark: SparkSession
    name: str

    def check(self) -> None:
        """See ``CatalogEntry``."""
        if not self.spark.catalog.tableExists(self.name):
            raise SinkError(f"the table {self.name} was dropped while rows were written to it")

    def refresh(self) -> None:
        """See ``CatalogEntry``."""
        try:
            self.spark.catalog.refreshTable(self.name)
        except AnalysisException as error:
            raise SinkError(f"the table {self.name} was dropped while rows were written to it") from error


def frame_of(given: CatalogTable | Query, spark: SparkSession, what: str) -> DataFrame:
    """The rows of a table or query.

    Args:
        given: the table or query.
        spark: the session with the catalogue.
        what: where it was given, as ``source 'pay'``, the beginning of the message of an error.

    Raises:
        SourceError: there is no such table, or the query is not valid; names tables with similar names.
    """
    try:
        if isinstance(given, CatalogTable):
            return spark.table(given.name)
        frame = spark.sql(given.text)
    except ParseException as error:
        raise SourceError(f"{what}: Spark cannot parse {given}: {_first_line(error)}") from error
    except AnalysisException as error:
        likely = _similar(spark, given.name) if isinstance(given, CatalogTable) else ""
        raise SourceError(f"{what}: {_first_line(error)}{likely}") from error
    if not frame.columns:
        raise SourceError(f"{what}: {given} returns no columns; expected a query, as SELECT * FROM payments")
    return frame


def sink_of(given: CatalogTable, spark: SparkSession) -> ParquetSink:
    """The sink that appends to a table.

    Raises:
        SinkError: there is no such table, or it is a view, partitioned and not of Delta Lake, or of another format.
    """
    name = given.name
    if given.rate is not None:
        raise SinkError(f"the sink {given} has a rate; only a source has one")
    try:
        files, columns = _files(spark, name), _columns(spark, name)
    except PySparkException as error:
        raise SinkError(
            f"{_first_line(error)}{_similar(spark, name)}; a sink appends to a table that exists: "
            f"CREATE TABLE {name} (...) USING parquet"
        ) from error
    if not files.location:
        raise SinkError(f"{name} is a view; expected a table of Parquet files or a Delta Lake table")
    if files.provider == "delta":
        return DeltaSink(files.location, files.partitions)
    if files.partitions:
        raise SinkError(
            f"the table {name} is partitioned by {', '.join(files.partitions)}; expected one that is not, or a Delta "
            "Lake table"
        )
    if files.provider != "parquet":
        raise SinkError(f"the table {name} has the format {files.provider}; expected parquet or delta")
    return TableSink(name, files.location, columns, SessionTable(spark, name))


def _files(spark: SparkSession, name: str) -> TableFiles:
    spark.table(name)  # whose error is the better one
    rows = [(row[0], row[1]) for row in spark.sql(f"DESCRIBE TABLE EXTENDED {name}").collect()]
    names = [column for column, _ in rows]
    partitions = []
    if "# Partition Information" in names:
        behind = rows[names.index("# Partition Information") + 2 :]
        partitions = [column for column, _ in behind[: [column for column, _ in behind].index("")]]
    facts = dict(rows)
    return TableFiles((facts.get("Provider") or "").lower(), facts.get("Location") or "", tuple(partitions))


def _columns(spark: SparkSession, name: str) -> pa.Schema:
    schema: pa.Schema = to_arrow_schema(spark.table(name).schema, timezone="UTC")
    return schema


def _similar(spark: SparkSession, name: str) -> str:
    """A table with a similar name, for the message of an error."""
    database, _, table = name.rpartition(".")
    try:
        known = [one.name for one in (spark.catalog.listTables(database) if database else spark.catalog.listTables())]
    except PySparkException:  # there is no such database, which the message says already
        return ""
    return close_match(table, known)


def _first_line(error: PySparkException) -> str:
    return str(error).strip().splitlines()[0]


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
    files = sorted(committed(path, run), key=_output_columns)
    see_unchanged(path, run)  # after the files were listed, so that a rewrite before the listing is detected too
    if not files:
        return spark.createDataFrame([], _as_spark_reads(spark, path, written))
    groups = [list(group) for _, group in groupby(files, _output_columns)]
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
    filesystem.create_dir(posixpath.dirname(file), recursive=True)  # dead letters of a region that has not begun
    part_writer(file, schema, filesystem).close()
    try:
        return spark.read.parquet(read_by_spark(part)).schema
    finally:
        filesystem.delete_file(file)


def _read(spark: SparkSession, files: list[str], schema: pa.Schema, whole: pa.Schema) -> DataFrame:
    """Files of one schema. Columns of only nulls, which Spark would read as integers, are omitted."""
    nulls = [field.name for field in schema if field.type == pa.null() and whole.field(field.name).type != pa.null()]
    return spark.read.parquet(*map(read_by_spark, files)).drop(*nulls)


def _output_columns(file: str) -> str:
    return PartName.read(file).columns


def _schema(file: str) -> pa.Schema:
    filesystem, path = locate(file)
    return pq.read_schema(path, filesystem=filesystem)
