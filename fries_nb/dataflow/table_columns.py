"""The columns of Delta tables, and values that fit an existing column.

A column keeps its type: it takes narrower numbers, and no null if it is declared NOT NULL. Columns of a table are
marked, so that operators above a sink can check them.

>>> taken(pa.field("a", pa.float64()), pa.array([1, None]), "the table").type
DataType(double)
>>> taken(pa.field("a", pa.float64()), pa.array([2**60]), "the table")
Traceback (most recent call last):
ValueError: is double in the table and a value does not fit: Integer value 1152921504606846976 not in range: ...
"""

from __future__ import annotations

import pyarrow as pa

from fries_nb.dataflow.columns import clash
from fries_nb.dataflow.held_types import HeldBy, NotHeldError, converted, held

_MARK = {b"fries.fixed": b"yes"}


def fixed(schema: pa.Schema) -> pa.Schema:
    """The columns, marked as those of a table: operators must keep their types, and NOT NULL."""
    return pa.schema([field.with_metadata(_MARK) for field in schema])


def is_fixed(column: pa.Field) -> bool:
    """Whether a column is marked as one of a table."""
    return bool(column.metadata == _MARK)


def taken(column: pa.Field, values: pa.Array, table: str) -> pa.Array:
    """Convert values to the type of a table's column, or to a supported type if the column has none yet (null).

    Args:
        column: the column of the table.
        values: the values.
        table: description of the table, for messages.

    Raises:
        ValueError: the column cannot hold them; the message is the end of a sentence, with the remedy.
    """
    if values.null_count and not column.nullable:
        raise ValueError(f"is NOT NULL in {table} and a row has no value for it; give it one")
    try:
        kind = held(values.type, HeldBy.DELTA)
    except NotHeldError as error:
        raise ValueError(f"is {values.type}, {HeldBy.DELTA.value}; {error.remedy}") from error
    if clash(pa.schema([column]), pa.schema([(column.name, kind)]), fixed=True):
        raise ValueError(
            f"is {column.type} in {table} and now {values.type}; a column keeps its type, so convert it"
        )
    wanted = kind if pa.types.is_null(column.type) else column.type
    if values.type == wanted:
        return values
    try:
        return converted(values, wanted)
    except NotHeldError as error:
        raise ValueError(
            f"is {column.type} in {table} and a value does not fit: {error.reason}; a column keeps its type, so "
            "convert it"
        ) from error
