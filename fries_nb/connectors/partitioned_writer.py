"""Writer of the parts of a partitioned table: a part has rows of one partition, which its partition columns tell.

>>> rows = pa.record_batch({"day": ["mon", "tue", "mon"], "n": [1, 2, 3]})
>>> [(values, part["n"].to_pylist()) for values, part in divided(rows, ["day"])]
[(('mon',), [1, 3]), (('tue',), [2])]
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from fries_nb.connectors.part_writer import GROUP_ROWS, PartWriter, RowBuffer
from fries_nb.connectors.sink import WrittenColumns, of_user
from fries_nb.errors import SinkError
from fries_nb.storage.schemas import fitted

HELD_ROWS = 4 * GROUP_ROWS
"""Number of rows that are divided at a time, which is the maximum that a sink holds in memory."""
MOST_OPEN = 100
"""Maximum number of parts that are open at a time; if there are rows of more partitions, parts are closed early."""
_KINDS = (
    pa.types.is_null, pa.types.is_string, pa.types.is_integer, pa.types.is_boolean, pa.types.is_date,
    pa.types.is_timestamp,
)  # fmt: skip
"""Types of partition columns; deltalake 1.6 reads a decimal of -0.01 as ``0.-1``."""


class PartitionedWriter:
    """Writes the rows of one sink worker, a part for each partition; see ``SinkWriter``.

    A row without a partition column, or with null in it, is in the partition of null. Rows are divided when there are
    many, or at a commit, since batches may have a row or two of each partition.

    Args:
        table: description of the table, for the messages of errors.
        by: the partition columns.
        fit: converts each batch to the types of the table's columns, or raises a ``SinkError``.
        open_part: makes the writer of one partition.
    """

    def __init__(
        self,
        table: str,
        by: Sequence[str],
        fit: Callable[[pa.RecordBatch], pa.RecordBatch],
        open_part: Callable[[], PartWriter],
    ) -> None:
        self._table = table
        self._by = by
        self._fit = fit
        self._open_part = open_part
        self._columns = WrittenColumns()
        self._rows = RowBuffer()
        self._writers: dict[tuple[Any, ...], PartWriter] = {}
        self._closed: list[str] = []

    @property
    def columns(self) -> pa.Schema:
        """All columns written so far."""
        return self._columns.schema

    def write(self, batch: pa.RecordBatch) -> None:
        """Add rows to the parts of their partitions.

        Raises:
            SinkError: a partition column has a type or a value that no partition can have; or see ``PartWriter``.
        """
        if not batch.num_rows:
            return
        batch, before = self._fit(of_user(batch)), self.columns
        self._columns.note(batch.schema)
        self._check_kinds(batch.schema)
        if self.columns is not before:
            self._divide()
        self._rows.add(batch if batch.schema == self.columns else fitted(batch, self.columns))
        if self._rows.count >= HELD_ROWS:
            self._divide()

    def close_part(self) -> tuple[str, ...]:
        """Close the parts of all partitions."""
        self._divide()
        self._close()
        closed, self._closed = tuple(self._closed), []
        return closed

    def _divide(self) -> None:
        """Write the rows that are in memory to the parts of their partitions."""
        if self._rows.count:
            for values, rows in divided(self._rows.take(), self._by):
                writer = self._writer(values)
                writer.write(rows)
                writer.write_group()

    def _close(self) -> None:
        for writer in self._writers.values():
            self._closed += writer.close_part()
        self._writers = {}

    def _writer(self, values: tuple[Any, ...]) -> PartWriter:
        if values in self._writers:
            return self._writers[values]
        if "" in values:
            raise SinkError(
                f"a row has '' in the column {self._by[values.index('')]!r}, by which {self._table} is partitioned and "
                "which would be read as null; write None or another text in an operator"
            )
        if len(self._writers) == MOST_OPEN:
            self._close()
        self._writers[values] = self._open_part()
        return self._writers[values]

    def _check_kinds(self, schema: pa.Schema) -> None:
        for name in self._by:
            if name in schema.names and not any(is_kind(schema.field(name).type) for is_kind in _KINDS):
                raise SinkError(
                    f"the column {name!r}, by which {self._table} is partitioned, is {schema.field(name).type}; "
                    "expected text, integers, booleans, dates or times; convert it in an operator"
                )


def divided(batch: pa.RecordBatch, by: Sequence[str]) -> Iterator[tuple[tuple[Any, ...], pa.RecordBatch]]:
    """The rows of each partition in their order, with the values of its columns; ``None`` for a column that lacks.

    Args:
        batch: rows, at least one.
        by: the partition columns.
    """
    codes = np.zeros(batch.num_rows, np.int64)
    for name in by:
        if name in batch.schema.names:
            column = batch.column(name).dictionary_encode("encode")
            codes = codes * len(column.dictionary) + column.indices.to_numpy()
            codes = np.unique(codes, return_inverse=True)[1]  # so that they stay small
    order = np.argsort(codes, kind="stable")
    ends = np.flatnonzero(np.diff(codes[order])) + 1
    for first, last in pairwise([0, *ends.tolist(), batch.num_rows]):
        rows = batch.take(pa.array(order[first:last])) if len(ends) else batch
        yield tuple(rows[name][0].as_py() if name in batch.schema.names else None for name in by), rows
