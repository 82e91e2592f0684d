"""The column with the times of a source's rows, and the hidden column that is made of it.

Integers become int64; timestamps and dates become nanoseconds, in the time zone of the column.

>>> column = TimeColumn("payments", "at")
>>> column.times(pa.record_batch({"at": pa.array([1, 2], pa.timestamp("s"))}), str).type
TimestampType(timestamp[ns])
>>> column.type_in(pa.schema({"At": pa.int64()}))
Traceback (most recent call last):
    ...
fries_nb.errors.SourceError: source 'payments' has time='at', but no such column; expected one of At; did you mean 'At'?
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from fries_nb.errors import SourceError, unknown

Ticks = npt.NDArray[np.int64]
"""Times as numbers."""


@dataclass(frozen=True, slots=True)
class TimeColumn:
    """The column with the times of a source's rows.

    Attributes:
        source: name of the source.
        name: name of the column.
    """

    source: str
    name: str

    def type_in(self, schema: pa.Schema) -> pa.DataType:
        """The type of the times of rows with these columns.

        Raises:
            SourceError: there is no such column, or it has neither integers nor timestamps nor dates.
        """
        if self.name not in schema.names:
            known = unknown("column", self.name, schema.names).partition("; ")[2]
            raise SourceError(f"{self._said}, but no such column; {known}")
        kind = schema.field(self.name).type
        if pa.types.is_dictionary(kind):
            kind = kind.value_type
        if pa.types.is_integer(kind):
            return pa.int64()
        if pa.types.is_timestamp(kind):
            return pa.timestamp("ns", kind.tz)
        if pa.types.is_date(kind):
            return pa.timestamp("ns")
        raise SourceError(f"{self._said}, a column of {kind}; expected timestamps, dates or integers")

    def times(self, batch: pa.RecordBatch, row: Callable[[int], str]) -> pa.Array:
        """The times of some rows.

        Args:
            batch: the rows.
            row: describes a row, by its index in the batch, for the message of an error.

        Raises:
            SourceError: a time is null or out of range, or the column is missing or of another type.
        """
        kind = self.type_in(batch.schema)
        column = batch.column(self.name)
        if column.null_count:
            first = pc.index(pc.is_null(column), True).as_py()
            raise SourceError(f"{self._said}, which is null in {row(first)}; expected a time in every row")
        try:
            return column.cast(kind)
        except pa.ArrowInvalid as error:
            most = "integers below 2**63" if pa.types.is_integer(kind) else "nanoseconds, from 1678 to 2261"
            raise SourceError(f"{self._said}, a time of which is out of range ({error}); expected {most}") from None

    @property
    def _said(self) -> str:
        return f"source {self.source!r} has time={self.name!r}"


def as_ticks(times: pa.Array) -> Ticks:
    """The times as int64 numbers: nanoseconds, or the integers of the column.

    >>> as_ticks(pa.array([5], pa.timestamp("ns"))).tolist()
    [5]
    """
    numbers: Ticks = times.view(pa.int64()).to_numpy()
    return numbers
