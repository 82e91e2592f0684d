"""Unification of schemas that differ between batches: columns may be added, removed and widened, but not change kind.

>>> import pyarrow as pa
>>> merged = unified(pa.schema({"a": pa.int64(), "b": pa.null()}), pa.schema({"a": pa.float64(), "c": pa.string()}))
>>> merged.names, str(merged.field("a").type)
(['a', 'b', 'c'], 'double')
>>> unified(pa.schema({"a": pa.float64()}), pa.schema({"a": pa.string()}))
Traceback (most recent call last):
fries_nb.errors.ColumnError: column 'a' was double and is now string; a column keeps its type, ...
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable

import pyarrow as pa

from fries_nb.dataflow.columns import clash, united
from fries_nb.errors import ColumnError, SinkError


def unified(old: pa.Schema, new: pa.Schema) -> pa.Schema:
    """The narrowest schema that holds rows of both: the old columns in their order, then the new ones.

    Integers and floats widen; a column of nulls takes any type.

    Raises:
        ColumnError: a column's new type does not hold values of the old one; names the column and both types.
    """
    try:
        return united(old.remove_metadata(), new.remove_metadata())
    except (pa.ArrowTypeError, pa.ArrowInvalid):
        refused = clash(old, new)
        if refused is None:
            raise
        column, was, now = refused
        raise ColumnError(
            f"column {column!r} was {was} and is now {now}; a column keeps its type, so convert it in the operator",
            column,
            old.serialize().to_pybytes(),
        ) from None


def first_come(schemas: Iterable[pa.Schema]) -> pa.Schema:
    """The columns of all schemas, each with a type that holds all values, or with its first type if there is none.

    >>> str(first_come([pa.schema({"a": pa.int64()}), pa.schema({"a": pa.string()})]).field("a").type)
    'int64'
    """
    known = pa.schema([])
    for field in (field for schema in schemas for field in schema):
        with contextlib.suppress(pa.ArrowTypeError, pa.ArrowInvalid):
            known = united(known, pa.schema([field]))
    return known


def fitted(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The batch's rows under a schema that holds them; missing columns are null.

    Raises:
        SinkError: a value does not fit the wider type (an integer above 2**53 in a column of floats).
    """
    columns = []
    for field in schema:
        index = batch.schema.get_field_index(field.name)
        if index < 0:
            columns.append(pa.nulls(batch.num_rows, field.type))
            continue
        try:
            columns.append(batch.column(index).cast(field.type))
        except pa.ArrowInvalid as error:
            raise SinkError(f"column {field.name!r} is {field.type} and a value does not fit: {error}") from None
    return pa.RecordBatch.from_arrays(columns, schema=schema)
