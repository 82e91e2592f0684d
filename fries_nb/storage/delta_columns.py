"""Conversion of rows to the column types of a Delta table; columns that cannot be converted are refused.

Sinks convert incoming rows, to the columns that the table had when they began; the driver checks again before it writes
the checkpoint's record, against the table's current columns (see ``delta``).

>>> fit = TableColumns("the Delta table t", pa.schema([pa.field("n", pa.float64(), nullable=False)])).fit
>>> fit(pa.record_batch({"n": [1], "u": pa.array([200], pa.uint8())})).schema.types
[DataType(double), DataType(int16)]
>>> fit(pa.record_batch({"n": [None]}))
Traceback (most recent call last):
fries_nb.errors.ColumnError: column 'n' is NOT NULL in the Delta table t and a row has no value for it; give it one ...
"""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from fries_nb.dataflow.columns import alike
from fries_nb.dataflow.held_types import HeldBy, NotHeldError, held
from fries_nb.dataflow.table_columns import fixed, taken
from fries_nb.errors import ColumnError


class TableColumns:
    """The columns of one table.

    Args:
        table: description of the table.
        columns: its columns; empty if the table is to be created.

    Attributes:
        table: the description.
        columns: the columns.
    """

    def __init__(self, table: str, columns: pa.Schema) -> None:
        self.table = table
        self.columns = fixed(columns)
        self._required = [field.name for field in columns if not field.nullable]
        self._came: pa.Schema | None = None
        self._goal = self.columns

    def fit(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch in the types of the table's columns; new columns in types that Delta supports.

        Raises:
            ColumnError: a column, or a value in it, does not fit.
        """
        if batch.schema is not self._came and batch.schema != self._came:
            self._goal = self.joined(batch.schema)
            self._came = batch.schema
        as_it_is = self._goal == batch.schema
        if as_it_is and not self._required:
            return batch
        arrays = [self._taken(field, values) for field, values in zip(self._goal, batch.columns, strict=True)]
        return batch if as_it_is else pa.RecordBatch.from_arrays(arrays, schema=self._goal)

    def joined(self, schema: pa.Schema) -> pa.Schema:
        """These columns with their types in the table; new ones with the types that they would get.

        Raises:
            ColumnError: a column does not fit, whatever its values.
        """
        new = [name for name in schema.names if name not in self.columns.names]
        if twins := alike([*self.columns.names, *new]):
            known, name = twins
            problem = f"differs from {known!r} in {self.table} only in case, which the table ignores; rename it"
            raise self.refused(name, problem)
        for name in self._required:
            if name not in schema.names:
                self._taken(self.columns.field(name), pa.nulls(1))
        return pa.schema([self._as_table(field) for field in schema])

    def _as_table(self, field: pa.Field) -> pa.Field:
        column = self.columns.field(field.name) if field.name in self.columns.names else None
        if column is not None:
            self._taken(column, pa.array([], field.type))
            return pa.field(field.name, column.type)
        try:
            return field.with_type(held(field.type, HeldBy.DELTA))
        except NotHeldError as error:
            words = f"is {field.type}, {HeldBy.DELTA.value}; {error.remedy}"
            raise self.refused(field.name, words, [pa.field(field.name, pa.null())]) from None

    def _taken(self, field: pa.Field, values: pa.Array) -> pa.Array:
        column = self.columns.field(field.name) if field.name in self.columns.names else field
        try:
            return taken(column, values, self.table)
        except ValueError as error:
            raise self.refused(field.name, str(error)) from error

    def refused(self, column: str, words: str, open_: Iterable[pa.Field] = ()) -> ColumnError:
        """The error, with the table's columns, and the other columns with unrestricted types.

        Args:
            column: name of the column that does not fit.
            words: why, as the end of a sentence.
            open_: other columns.
        """
        before = fixed(pa.schema([*self.columns, *open_])).serialize().to_pybytes()
        return ColumnError(f"column {column!r} {words} in the operator", column, before)
