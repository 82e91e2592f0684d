"""Spark's catalogue: the rows of tables and queries as DataFrames, and the files that are behind a table."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
from pyspark.errors import AnalysisException, ParseException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema

from fries_nb.connectors.parquet_sink import DeltaSink, ParquetSink
from fries_nb.connectors.table_sink import TableSink
from fries_nb.dataflow.catalog_endpoints import CatalogTable, Query
from fries_nb.errors import SinkError, SourceError, close_match


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
