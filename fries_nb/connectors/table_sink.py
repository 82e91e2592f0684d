"""A sink that appends to a table of Spark's catalogue whose files are Parquet.

Committed parts are moved into the table's directory, as by ``ParquetSink``; then Spark is told to look at it again. The
catalogue has the table's columns, so rows must fit them: a column that the table lacks is refused.

>>> columns = ClosedColumns("the table t", pa.schema({"n": pa.int64(), "name": pa.string()}))
>>> columns.fit(pa.record_batch({"n": pa.array([1], pa.int32())})).schema.types
[DataType(int64)]
>>> columns.fit(pa.record_batch({"m": [1]}))
Traceback (most recent call last):
fries_nb.errors.ColumnError: column 'm' is not in the table t, which has n, name; drop it in an operator, or add it ...
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import pyarrow as pa

from fries_nb.connectors.parquet_sink import ParquetSink
from fries_nb.connectors.part_writer import PartWriter
from fries_nb.messages import WorkerId
from fries_nb.storage import manifest
from fries_nb.storage.delta_columns import TableColumns


class ClosedColumns(TableColumns):
    """The columns of a table to which none can be added.

    Args:
        table: description of the table.
        columns: its columns.
    """

    def joined(self, schema: pa.Schema) -> pa.Schema:
        """These columns with their types in the table.

        Raises:
            ColumnError: the table lacks a column, or one does not fit.
        """
        for name in schema.names:
            if name not in self.columns.names:
                there = ", ".join(self.columns.names)
                problem = f"is not in {self.table}, which has {there}; drop it in an operator, or add it to the table"
                raise self.refused(name, problem)
        return super().joined(schema)


class CatalogEntry(Protocol):
    """A table as the catalogue of the driver's session has it."""

    def check(self) -> None:
        """Raise a ``SinkError`` if the table was dropped."""

    def refresh(self) -> None:
        """Make committed files visible in the table; raises a ``SinkError`` if it was dropped."""


class TableSink(ParquetSink):
    """Appends to a table of Parquet files.

    Args:
        name: name of the table.
        path: its directory.
        columns: its columns.
        entry: its entry in the catalogue; used on the driver only.
    """

    def __init__(self, name: str, path: str, columns: pa.Schema, entry: CatalogEntry) -> None:
        super().__init__(path)
        self._name = name
        self._table = columns
        self._entry: CatalogEntry | None = entry

    def __getstate__(self) -> dict[str, Any]:
        """For a host, which has no session."""
        return self.__dict__ | {"_entry": None}

    def claim(self, flow: str, run: str) -> None:
        """Make the table a target of this flow; what it holds already stays. See ``Sink``."""
        self._run = run
        manifest.claim(self.path, flow, beside_others=True)

    def open(self, worker: WorkerId, incarnation: int, epoch: int = 1) -> PartWriter:
        """Open a writer of files with the table's columns; see ``Sink``."""
        fit = ClosedColumns(f"the table {self._name}", self._table).fit
        return PartWriter(self.path, worker, incarnation, self._run, epoch, fit=fit)

    def prepare(self, parts: Sequence[str]) -> None:
        """See ``ParquetSink``; raises a SinkError as well if the table was dropped."""
        self._catalogued.check()
        super().prepare(parts)

    def commit(self, number: int, parts: Sequence[str]) -> None:
        """Make parts rows of the table; see ``Sink``."""
        super().commit(number, parts)
        self._catalogued.refresh()

    def recover(self, number: int, parts: Sequence[str]) -> None:
        """Take back rows of later commits; see ``Sink``."""
        super().recover(number, parts)
        self._catalogued.refresh()

    @property
    def _catalogued(self) -> CatalogEntry:
        assert self._entry is not None, "hosts do not commit"
        return self._entry
