"""Types of Delta tables: the types that they support, and values that fit an existing column.

A table has no unsigned integers, durations or times of day, and a column keeps its type: it takes narrower numbers, and
no null if it is declared NOT NULL. Columns of a table are marked, so that operators above a sink can check them.

>>> str(storable(pa.schema({"a": pa.uint8(), "b": pa.list_(pa.uint64())})).field("b").type)
'list<item: decimal128(20, 0)>'
>>> taken(pa.field("a", pa.float64()), pa.array([1, None]), "the table").type
DataType(double)
>>> taken(pa.field("a", pa.float64()), pa.array([2**60]), "the table")
Traceback (most recent call last):
ValueError: is double in the table and a value does not fit: Integer value 1152921504606846976 not in range: ...
"""

from __future__ import annotations

import pyarrow as pa

from fries_nb.dataflow.columns import MOST_DIGITS, clash

_MARK = {b"fries.fixed": b"yes"}
_WIDER = {
    pa.uint8(): pa.int16(), pa.uint16(): pa.int32(), pa.uint32(): pa.int64(), pa.uint64(): pa.decimal128(20, 0),
    pa.large_string(): pa.string(), pa.string_view(): pa.string(), pa.large_binary(): pa.binary(),
    pa.binary_view(): pa.binary(), pa.date64(): pa.date32(),
}  # fmt: skip
_HELD = frozenset({
    pa.null(), pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.string(),
    pa.binary(), pa.date32(),
})  # fmt: skip


def fixed(schema: pa.Schema) -> pa.Schema:
    """The columns, marked as those of a table: operators must keep their types, and NOT NULL."""
    return pa.schema([field.with_metadata(_MARK) for field in schema])


def is_fixed(column: pa.Field) -> bool:
    """Whether a column is marked as one of a table."""
    return bool(column.metadata == _MARK)


def storable(schema: pa.Schema) -> pa.Schema:
    """The columns in types that Delta supports, each the narrowest that holds all values of the given type.

    Raises:
        KeyError: there is none for a column; names the column.
    """
    columns = []
    for field in schema:
        kind = _storable(field.type)
        if kind is None:
            raise KeyError(field.name)
        columns.append(field.with_type(kind))
    return pa.schema(columns)


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
    kind = _storable(values.type)
    if kind is None:
        raise ValueError(f"is {values.type}, a type that no Delta table has; convert it")
    if clash(pa.schema([column]), pa.schema([(column.name, kind)]), fixed=True):
        raise ValueError(
            f"is {column.type} in {table} and now {values.type}; a column keeps its type, so convert it"
        )
    wanted = kind if pa.types.is_null(column.type) else column.type
    if values.type == wanted:
        return values
    try:
        return values.cast(wanted)
    except (pa.ArrowException, TypeError) as error:
        words = str(error).splitlines()[0]
        raise ValueError(
            f"is {column.type} in {table} and a value does not fit: {words}; a column keeps its type, so convert it"
        ) from error


def _storable(kind: pa.DataType) -> pa.DataType | None:
    """The supported type for values of this type, ``None`` if there is none."""
    if pa.types.is_nested(kind):
        return _nested(kind)
    if kind in _HELD:
        return kind
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", "UTC" if kind.tz else None)
    if pa.types.is_decimal(kind):
        fits = kind.precision <= MOST_DIGITS and 0 <= kind.scale <= kind.precision
        return pa.decimal128(kind.precision, kind.scale) if fits else None
    if pa.types.is_dictionary(kind):
        return _storable(kind.value_type)
    return pa.binary() if pa.types.is_fixed_size_binary(kind) else _WIDER.get(kind)


def _nested(kind: pa.DataType) -> pa.DataType | None:
    inner = [kind.field(number) for number in range(kind.num_fields)]
    kinds = [_storable(field.type) for field in inner]
    if None in kinds:
        return None
    fields = [field.with_type(one) for field, one in zip(inner, kinds, strict=True)]
    if pa.types.is_struct(kind):
        return pa.struct(fields)
    if pa.types.is_map(kind):
        return pa.map_(kinds[0], fields[1])
    return None if pa.types.is_union(kind) or pa.types.is_list_view(kind) else pa.list_(fields[0])
