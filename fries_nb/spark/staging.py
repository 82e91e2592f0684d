"""Staging of sources: data that is given to ``replay`` is written as Parquet that every host can read.

Spark writes a DataFrame once, before the run. So any query or connector can be the source of a dataflow, and the
positions of rows do not change when the run is restored.

Distribution of join tables: the driver stores their rows where every host can read them; a host reads each once.

Spark writes a DataFrame, the driver an Arrow table, and what is at a path is copied: so a path that was written again
is another table, and a rollback and a recovery find the rows of before. Only the location of the copy is sent to the
hosts. There the workers of one process share the index, by location and key; when the last worker has switched to
another table, its memory is released.
"""

from __future__ import annotations

import os
import tempfile
import threading
import uuid
from collections.abc import Mapping
from dataclasses import replace
from weakref import WeakValueDictionary

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs
from pyspark.errors import PySparkException, PythonException
from pyspark.sql import DataFrame, SparkSession

from fries_nb.connectors.file_columns import misread
from fries_nb.connectors.files import FilesSource
from fries_nb.connectors.kafka_source import KafkaCluster, KafkaSource, KafkaTopic
from fries_nb.connectors.own_connectors import OwnSourceCopy
from fries_nb.connectors.rate import RateSource
from fries_nb.connectors.replay import ReplaySource
from fries_nb.connectors.source import RuntimeSource, Split
from fries_nb.connectors.worker_reader import SourcePlan, planned
from fries_nb.dataflow.endpoints import CatalogTable, OwnSource, Query, Rate, Replay, rate_of
from fries_nb.dataflow.endpoints import Source as Description
from fries_nb.dataflow.graph import Operator
from fries_nb.dataflow.starts import SourceStart
from fries_nb.dataflow.stream_endpoints import GrowingFiles, Kafka
from fries_nb.dataflow.tables import Index, JoinTable
from fries_nb.dataflow.traits import Holds
from fries_nb.dataflow.updates import Update, new_table
from fries_nb.dataflow.windowing import EventTime
from fries_nb.errors import SessionError, SourceError
from fries_nb.spark.catalog import frame_of
from fries_nb.spark.shipping import pickled
from fries_nb.storage.delta import refuse_delta
from fries_nb.storage.durable import absolute, encoded, for_spark, join, locate, make_directory

Splits = tuple[Split, ...]

ROW_GROUP = 32_768
"""Number of rows of a row group of a staged table with times: so few that row groups are dealt to workers whole."""

SCRATCH = "FRIES_SCRATCH"
"""Environment variable: a directory, or URI of one, that the driver and all hosts can read and write."""


def make_scratch(spark: SparkSession, run: str, environment: Mapping[str, str] = os.environ) -> str:
    """Create a directory for the files of one run, visible to all hosts.

    Raises:
        SessionError: hosts are on other machines and no shared directory is configured.
    """
    shared = environment.get(SCRATCH)
    if not shared:
        if (spark.sparkContext.master or "").startswith("local["):
            return tempfile.mkdtemp(prefix=f"fries-{run}-")
        default = spark.sparkContext._jsc.hadoopConfiguration().get("fs.defaultFS", "file:///") or "file:///"
        if default.startswith("file:"):
            raise SessionError(
                f"hosts on {spark.sparkContext.master} share no disk with the driver: "
                f"set {SCRATCH} to a directory or URI that all of them reach"
            )
        shared = join(default, "tmp", "fries_nb")
    place = join(shared, f"fries-{run}")
    make_directory(*locate(place))
    return place


def remove_scratch(scratch: str) -> None:
    """Delete the directory with its contents, if it exists."""
    filesystem, path = locate(scratch)
    if filesystem.get_file_info(path).type == fs.FileType.Directory:
        filesystem.delete_dir(path)


def plan_source(
    description: Description,
    spark: SparkSession,
    scratch: str,
    name: str,
    workers: int,
    kept: Splits | None = None,
    time: EventTime | None = None,
    start: SourceStart | None = None,
) -> SourcePlan:
    """The plan from which a source's workers open their readers; a DataFrame or Arrow table is staged.

    Args:
        description: the declaration of the source.
        spark: computes and writes a DataFrame.
        scratch: a directory that all hosts reach.
        name: name of the source.
        workers: number of its workers.
        kept: its splits from the beginning of the run, if the run is resumed.
        time: its event time.
        start: where a new run begins to read it; ``None`` for its beginning.

    Raises:
        SourceError: the source cannot be read, has no such times, or no such start; or Spark cannot compute or write
            the DataFrame.
        DataflowError: the user's own source cannot be pickled.
    """
    if isinstance(description, Kafka) and start is not None and start.time is not None:
        description, start = description.starting(start.time), None
    plan = _plan(description, spark, scratch, name, workers, kept, time)
    return plan if start is None or kept is not None else plan.beginning_at(start, name)


def _plan(
    description: Description, spark: SparkSession, scratch: str, name: str, workers: int, kept: Splits | None,
    time: EventTime | None,
) -> SourcePlan:  # fmt: skip
    """The plan of a source that is read from its beginning, or as it was planned; see ``plan_source``."""
    rate = rate_of(description)
    if isinstance(description, CatalogTable | Query):
        frame = None if kept is not None else frame_of(description, spark, f"source {name!r}")
        description = Replay(frame, rate, may_be_empty=True)
    if not isinstance(description, Replay):
        rows = _unstaged(description, name, None if time is None else workers)
        if kept is None:
            return planned(rows, workers, rate, time, name)
        if isinstance(rows, KafkaSource):
            rows.check()
        return SourcePlan(rows, kept, rate, time)
    if kept is not None:
        return SourcePlan(ReplaySource(), kept, rate, time)
    place = stage_replay(description, spark, scratch, name, None if time is None else ROW_GROUP)
    try:
        return planned(ReplaySource(place, description.may_be_empty), workers, rate, time, name)
    except SourceError as error:
        if place == description.data:
            raise
        raise SourceError(f"the data of {name!r}: {str(error).removeprefix(place).strip()}") from error


def _unstaged(
    description: Rate | GrowingFiles | Kafka | OwnSource, name: str, most_splits: int | None
) -> RuntimeSource:
    """The source of a description that hosts read as it is; with few splits if one without files would hold time."""
    if isinstance(description, Rate):
        return RateSource(description.count, description.row)
    if isinstance(description, GrowingFiles):
        place, schema = absolute(description.path), description.schema
        order, until, quiet_s = description.order, description.until, description.quiet_s
        bad_rows = description.bad_rows if isinstance(description.bad_rows, str) else "letters"
        return FilesSource(
            name, place, description.format, schema, order, until, quiet_s, most_splits, description.csv,
            description.encoding, bad_rows, description.new_columns == "add",
        )  # fmt: skip
    if isinstance(description, Kafka):
        cluster = KafkaCluster(description.servers, description.config)
        return KafkaSource(
            KafkaTopic(
                cluster, description.topic, description.start, description.until == "latest", description.schema,
                description.decode, description.metadata, letters=description.on_error != "fail",
                adds_columns=description.new_columns == "add",
            )
        )  # fmt: skip
    return OwnSourceCopy(name, pickled(name, description, "source"))


def stage_replay(
    source: Replay, spark: SparkSession, scratch: str, name: str, row_group: int | None = None
) -> str:
    """Write a DataFrame or Arrow table to Parquet files that hosts can read.

    Args:
        source: the declaration of the source.
        spark: computes and writes a DataFrame.
        scratch: a directory that all hosts reach.
        name: name of the source.
        row_group: number of rows of a row group of an Arrow table; ``None`` for Arrow's default.

    Returns:
        The directory of the files; if the user gave a path, that path.

    Raises:
        SourceError: Spark cannot compute or write the DataFrame, or Parquet does not support a column.
    """
    if isinstance(source.data, str):
        return source.data
    place = join(scratch, encoded(name))
    if isinstance(source.data, pa.Table):
        filesystem, path = locate(place)
        filesystem.create_dir(path, recursive=True)
        write_table(source.data, f"{path}/rows.parquet", filesystem, f"the data of {name!r}", row_group)
    else:
        write_frame(source.data, place, f"the DataFrame of {name!r}")
    return place


def write_frame(frame: DataFrame, place: str, what: str) -> None:
    """Let Spark write a DataFrame as Parquet files.

    Args:
        frame: the DataFrame.
        place: the directory.
        what: description of the DataFrame, for the message of an error.

    Raises:
        SourceError: it has a column that Arrow would read as something else, or Spark cannot compute or write it.
    """
    try:
        if refused := misread(frame.schema.json()):
            raise SourceError(f"{what}: {refused} in Spark")
        frame.write.parquet(for_spark(place))
    except PySparkException as error:
        raise SourceError(f"Spark cannot write {what}: {reason(error)}") from error


def write_table(
    table: pa.Table, file: str, filesystem: fs.FileSystem, what: str, row_group: int | None = None
) -> None:
    """Write a user's Arrow table as one Parquet file.

    Args:
        table: the table.
        file: path of the file.
        filesystem: the file system of the path.
        what: description of the table, for the message of an error.
        row_group: number of rows of a row group; ``None`` for Arrow's default.

    Raises:
        SourceError: Parquet does not support the type of a column.
    """
    try:
        pq.write_table(table, file, row_group_size=row_group, filesystem=filesystem)
    except (pa.ArrowException, OSError, OverflowError) as error:
        column, said = _unwritten(table), _first_line(error)
        if column is None:
            raise SourceError(f"{what} cannot be written to {file}: {said}") from error
        raise SourceError(f"{what} has a column that Parquet does not hold, {column!r}: {said}") from error


def _unwritten(table: pa.Table) -> str | None:
    """The first column that Parquet does not hold."""
    for name in table.column_names:
        try:
            pq.write_table(table.select([name]), pa.BufferOutputStream())
        except (pa.ArrowException, OSError, OverflowError):
            return str(name)
    return None


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def reason(error: PySparkException) -> str:
    """The line of an exception with the cause: Spark's first one, or the last one of a user function's traceback."""
    lines = [line for line in str(error).splitlines() if line.strip(" \n") and not line.lstrip().startswith("SQLSTATE")]
    return lines[-1 if isinstance(error, PythonException) else 0]


_SHARED: WeakValueDictionary[tuple[str, tuple[str, ...]], Index] = WeakValueDictionary()
_READING = threading.Lock()


class StagedTable(JoinTable):
    """A join table in a location that all hosts reach; each process reads its rows once."""

    def load(self) -> Index:
        """The index, from this process's cache if a worker has it."""
        place = self.data, tuple(self.on.values())
        with _READING:
            index = _SHARED.get(place)
            if index is None:
                filesystem, path = locate(self.data)
                table = pq.read_table(path, filesystem=filesystem)
                self.check_columns(table.column_names)
                index = _SHARED[place] = Index(table, place[1])
        return index


def stage_table(table: JoinTable, spark: SparkSession, scratch: str) -> StagedTable:
    """Store a join's table where hosts can read it.

    Args:
        table: the table. One that is staged already (as for a rollback) is used in place.
        spark: computes and writes a DataFrame.
        scratch: a directory that all hosts reach; the table is written there.

    Raises:
        SourceError: the path cannot be read, or Spark cannot compute or write the DataFrame.
        DataflowError: the table lacks the columns to join on.
    """
    if isinstance(table, StagedTable):
        return table
    if isinstance(table.data, str):
        table.check_columns(_columns(table.operator, absolute(table.data)))
    place = join(scratch, "tables", f"{encoded(table.operator)}-{uuid.uuid4().hex[:8]}")
    _write(table, spark, place)
    staged = StagedTable(table.operator, place, table.on, table.how, table.one_to_many, table.suffix)
    staged.check_columns(_columns(table.operator, place))
    return staged


def stage_update(operator: Operator, update: Update, spark: SparkSession, scratch: str) -> Update:
    """The update in a form that can be sent to hosts: a join's new table is staged, see ``stage_table``.

    Args:
        operator: the operator to change.
        update: its update.
        spark: computes and writes a DataFrame.
        scratch: a directory that all hosts reach.

    Raises:
        PlanError: the update does not fit the join (see ``new_table``).
        SourceError: see ``stage_table``.
        DataflowError: see ``stage_table``.
    """
    if operator.traits.holds is not Holds.TABLE:
        return update
    return replace(update, function=stage_table(new_table(operator, update), spark, scratch))


def _write(table: JoinTable, spark: SparkSession, place: str) -> None:
    data = table.data
    if isinstance(data, str | pa.Table):
        filesystem, path = locate(place)
        filesystem.create_dir(path, recursive=True)
        if isinstance(data, str):
            _copy(table.operator, absolute(data), path, filesystem)
        else:
            write_table(data, f"{path}/rows.parquet", filesystem, f"the table of {table.operator!r}")
        return
    try:
        if isinstance(data, CatalogTable | Query):
            data = frame_of(data, spark, f"the table of join {table.operator!r}")
        write_frame(data, place, f"the table of {table.operator!r}")
    except PySparkException as error:
        raise SourceError(f"Spark cannot read the table of {table.operator!r}: {reason(error)}") from error


def _copy(operator: str, given: str, target: str, filesystem: fs.FileSystem) -> None:
    """Copy a Parquet file into a directory, or the files of a directory."""
    source, path = locate(given)
    try:
        is_file = source.get_file_info(path).is_file
        fs.copy_files(path, f"{target}/rows.parquet" if is_file else target, source, filesystem)
    except OSError as error:
        raise SourceError(f"cannot copy the table of join {operator!r} at {given}: {error}") from error


def _columns(operator: str, place: str) -> list[str]:
    """The columns of a Parquet file or directory.

    Raises:
        SourceError: it does not exist, is not Parquet, or is a Delta table.
    """
    try:
        refuse_delta(place, "deltalake.DeltaTable(path).to_pyarrow_table(), which a join takes as well")
        filesystem, path = locate(place)
        return list(pq.ParquetDataset(path, filesystem=filesystem).schema.names)
    except (OSError, ValueError, pa.ArrowException) as error:
        said = str(error).splitlines()[0]
        raise SourceError(f"cannot read the table of join {operator!r} at {place}: {said}") from error
