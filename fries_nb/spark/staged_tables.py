"""Distribution of join tables: the driver stores their rows where every host can read them; a host reads each once.

Spark writes a DataFrame, the driver an Arrow table; a path is read in place. Only the location is sent to the hosts.
There the workers of one process share the index, by location and key; when the last worker has switched to another
table, its memory is released.
"""

from __future__ import annotations

import threading
import uuid
from dataclasses import replace
from weakref import WeakValueDictionary

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from fries_nb.dataflow.catalog_endpoints import CatalogTable, Query
from fries_nb.dataflow.graph import Operator
from fries_nb.dataflow.tables import Index, JoinTable
from fries_nb.dataflow.traits import Holds
from fries_nb.dataflow.updates import Update, new_table
from fries_nb.errors import SourceError
from fries_nb.spark.catalog import frame_of
from fries_nb.spark.staging import reason, write_frame, write_table
from fries_nb.storage.delta import refuse_delta
from fries_nb.storage.locations import absolute, encoded, join, locate

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
        table: the table. A path, or a table that is staged already (as for a rollback), is used in place.
        spark: computes and writes a DataFrame.
        scratch: a directory that all hosts reach; a DataFrame or Arrow table is written there.

    Raises:
        SourceError: the path cannot be read, or Spark cannot compute or write the DataFrame.
        DataflowError: the table lacks the columns to join on.
    """
    if isinstance(table, StagedTable):
        return table
    place = absolute(table.data) if isinstance(table.data, str) else _written(table, spark, scratch)
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


def _written(table: JoinTable, spark: SparkSession, scratch: str) -> str:
    place = join(scratch, "tables", f"{encoded(table.operator)}-{uuid.uuid4().hex[:8]}")
    if isinstance(table.data, pa.Table):
        filesystem, path = locate(place)
        filesystem.create_dir(path, recursive=True)
        write_table(table.data, f"{path}/rows.parquet", filesystem, f"the table of {table.operator!r}")
        return place
    data = table.data
    try:
        if isinstance(data, CatalogTable | Query):
            data = frame_of(data, spark, f"the table of join {table.operator!r}")
        write_frame(data, place, f"the table of {table.operator!r}")
    except PySparkException as error:
        raise SourceError(f"Spark cannot read the table of {table.operator!r}: {reason(error)}") from error
    return place


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
