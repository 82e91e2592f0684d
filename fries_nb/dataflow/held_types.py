"""The table of column types: in which type each family of them is held by a sink, and which a sink refuses.

A sink looks a schema up when it first meets it, and so does the rehearsal of a change. A column is held in a type that
keeps each of its values; or a value does not fit this type and is refused; or there is no such type and the column is
refused. Sinks that read Parquet with Spark (``memory``, ``parquet``, ``table``) share a column of the table, a Delta
table has one, and so have the JSON messages of Kafka. A sink of the user's own gets every type as it is.

>>> str(held(pa.duration("s"), HeldBy.FILES)), str(held(pa.list_(pa.uint64()), HeldBy.DELTA))
('duration[us]', 'list<item: decimal128(20, 0)>')
>>> held_columns(pa.schema({"at": pa.time64("us")}), HeldBy.FILES)
Traceback (most recent call last):
fries_nb.dataflow.held_types.NotHeldError: 'at' as time64[us], a type that Spark does not read; convert it to text
>>> converted(pa.array([1, 2], pa.duration("s")), pa.duration("us")).cast(pa.int64()).to_pylist()
[1000000, 2000000]
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum

import pyarrow as pa
import pyarrow.compute as pc

from fries_nb.dataflow.columns import MOST_DIGITS, alike

Choice = Callable[[pa.DataType, "HeldBy"], "pa.DataType | None"]
"""From a type to the one in which it is held; ``None`` if there is none."""


class HeldBy(Enum):
    """What holds columns; the value ends the sentence that refuses one."""

    FILES = "a type that Spark does not read"
    DELTA = "a type that no Delta table has"
    MESSAGES = "a type that JSON has no form for"


class NotHeldError(Exception):
    """A column, or a value of it, is not held.

    Attributes:
        column: name of the column; empty if a type alone was looked up.
        words: what is not held, and why.
        remedy: what to do with it, as the end of a sentence.
        reason: why a value does not fit the type in which it would be held, if its own type is held.
    """

    def __init__(self, words: str, remedy: str, column: str = "", reason: str = "") -> None:
        super().__init__(f"{words}{reason and f', and a value does not fit: {reason}'}; {remedy}")
        self.reason = reason
        self.column = column
        self.words = words
        self.remedy = remedy


def _same(kind: pa.DataType, by: HeldBy) -> pa.DataType:
    return kind


def _none(kind: pa.DataType, by: HeldBy) -> None:
    return None


def _as(wanted: pa.DataType) -> Choice:
    return lambda kind, by: wanted


def _in_messages(kind: pa.DataType, by: HeldBy) -> pa.DataType | None:
    return kind if by is HeldBy.MESSAGES else None


def _unsigned(kind: pa.DataType, by: HeldBy) -> pa.DataType:
    return _SIGNED[kind] if by is HeldBy.DELTA else kind


def _binary(kind: pa.DataType, by: HeldBy) -> pa.DataType:
    return pa.binary() if by is HeldBy.DELTA or pa.types.is_binary_view(kind) else kind


def _text(kind: pa.DataType, by: HeldBy) -> pa.DataType:
    return pa.string() if by is HeldBy.DELTA or pa.types.is_string_view(kind) else kind


def _instant(kind: pa.DataType, by: HeldBy) -> pa.DataType:
    if by is HeldBy.MESSAGES:  # as text, with nanoseconds if it has them
        return kind
    return pa.timestamp("us", "UTC" if kind.tz and by is HeldBy.DELTA else kind.tz)


def _duration(kind: pa.DataType, by: HeldBy) -> pa.DataType | None:
    return None if by is HeldBy.DELTA else pa.duration("us")


def _decimal(kind: pa.DataType, by: HeldBy) -> pa.DataType | None:
    scale = max(0, kind.scale)
    digits = max(kind.precision - min(0, kind.scale), scale)
    return pa.decimal128(digits, scale) if digits <= MOST_DIGITS else None


def _values(kind: pa.DataType, by: HeldBy) -> pa.DataType:
    return held(kind.value_type, by)


def _list(kind: pa.DataType, by: HeldBy) -> pa.DataType:
    item = kind.value_field.with_type(held(kind.value_type, by))
    if pa.types.is_large_list(kind) and by is not HeldBy.DELTA:
        return pa.large_list(item)
    if pa.types.is_fixed_size_list(kind) and by is not HeldBy.DELTA:
        return pa.list_(item, kind.list_size)
    return pa.list_(item)


def _struct(kind: pa.DataType, by: HeldBy) -> pa.DataType | None:
    fields = [kind.field(number) for number in range(kind.num_fields)]
    if not fields or (by is not HeldBy.MESSAGES and alike([field.name for field in fields])):
        return None
    return pa.struct([field.with_type(held(field.type, by)) for field in fields])


def _map(kind: pa.DataType, by: HeldBy) -> pa.DataType:
    return pa.map_(held(kind.key_type, by), kind.item_field.with_type(held(kind.item_type, by)))


_SIGNED = {
    pa.uint8(): pa.int16(), pa.uint16(): pa.int32(), pa.uint32(): pa.int64(), pa.uint64(): pa.decimal128(20, 0),
}  # fmt: skip


@dataclass(frozen=True)
class Family:
    """One line of the table.

    Attributes:
        includes: whether a type belongs to it.
        choice: the type in which it is held.
        remedy: what to do with a column that is refused, as the end of a sentence.
    """

    includes: Callable[[pa.DataType], bool]
    choice: Choice
    remedy: str = "convert it"


TABLE = (
    Family(lambda kind: kind in (pa.null(), pa.bool_(), pa.float32(), pa.float64(), pa.date32()), _same),
    Family(pa.types.is_signed_integer, _same),
    Family(pa.types.is_unsigned_integer, _unsigned),
    Family(pa.types.is_float16, _as(pa.float32())),
    Family(lambda kind: _is_text(kind), _text),
    Family(lambda kind: _is_binary(kind), _binary),
    Family(pa.types.is_date64, _as(pa.date32())),
    Family(pa.types.is_timestamp, _instant),
    Family(pa.types.is_time, _in_messages, "convert it to text"),
    Family(pa.types.is_duration, _duration, "convert it to a number of seconds"),
    Family(pa.types.is_decimal, _decimal, f"expected at most {MOST_DIGITS} digits; round it, or convert it to text"),
    Family(pa.types.is_dictionary, _values),
    Family(pa.types.is_run_end_encoded, _values),
    Family(lambda kind: _is_list(kind), _list),
    Family(pa.types.is_struct, _struct, "expected fields whose names differ not only in case, at least one"),
    Family(pa.types.is_map, _map),
    Family(lambda kind: kind == pa.uuid(), _in_messages, "convert it to text"),
    Family(lambda kind: True, _none, "convert it to text or to numbers"),
)
"""All types: the first family that includes a type counts. The last includes intervals, unions and extension types."""


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _is_binary(kind: pa.DataType) -> bool:
    of = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_fixed_size_binary, pa.types.is_binary_view)
    return any(is_one(kind) for is_one in of)


def _is_list(kind: pa.DataType) -> bool:
    lists = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
    return any(is_one(kind) for is_one in lists) or _is_view(kind)


def _is_view(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list_view(kind) or pa.types.is_large_list_view(kind))


def held(kind: pa.DataType, by: HeldBy) -> pa.DataType:
    """The type in which a column of this type is held.

    Raises:
        NotHeldError: there is none.
    """
    family = next(family for family in TABLE if family.includes(kind))
    found = family.choice(kind, by)
    if found is None:
        raise NotHeldError(f"{kind}, {by.value}", family.remedy)
    return found


def held_columns(schema: pa.Schema, by: HeldBy) -> pa.Schema:
    """The types in which columns are held; the same schema if that is each column's own type.

    Raises:
        NotHeldError: a column is not; names it.
    """
    if by is not HeldBy.MESSAGES:
        refuse_twins(schema.names)
    fields = []
    for field in schema:
        try:
            fields.append(field.with_type(held(field.type, by)))
        except NotHeldError as error:
            words = f"{field.name!r} as {field.type}, {by.value}"
            raise NotHeldError(words, error.remedy, field.name) from None
    found = pa.schema(fields, schema.metadata)
    return schema if found == schema else found


def refuse_twins(names: Sequence[str]) -> None:
    """Refuse columns whose names differ only in case.

    Raises:
        NotHeldError: names the first two.
    """
    if twins := alike(names):
        words = f"{twins[0]!r} beside {twins[1]!r}, which Spark does not tell apart"
        raise NotHeldError(words, "rename one", twins[1])


def converted(values: pa.Array, wanted: pa.DataType) -> pa.Array:
    """The values in the type in which they are held.

    Raises:
        NotHeldError: a value does not fit, as a time with nanoseconds.
    """
    kind = values.type
    if kind == wanted:
        return values
    if pa.types.is_run_end_encoded(kind):
        return converted(pc.run_end_decode(values), wanted)
    try:
        if _has_view(kind):  # pyarrow 26 casts list views to empty lists
            return pa.array(values.to_pylist(), wanted)
        return values.cast(wanted)
    except (pa.ArrowException, OverflowError, ValueError, TypeError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise NotHeldError(f"{kind}, held as {wanted}", "convert it", reason=reason) from None


def _has_view(kind: pa.DataType) -> bool:
    return _is_view(kind) or any(_has_view(kind.field(number).type) for number in range(kind.num_fields))


def converted_batch(batch: pa.RecordBatch, wanted: pa.Schema) -> pa.RecordBatch:
    """The rows with their columns in the types in which they are held.

    Raises:
        NotHeldError: a value does not fit; names its column.
    """
    arrays = []
    for field, values in zip(wanted, batch.columns, strict=True):
        try:
            arrays.append(converted(values, field.type))
        except NotHeldError as error:
            if "lose data" in error.reason:  # a unit of nanoseconds becomes one of microseconds
                words = f"values of {field.name!r} with nanoseconds, which would be cut"
                raise NotHeldError(words, "round them to microseconds", field.name) from None
            words = f"{field.name!r} as {error.words}"
            raise NotHeldError(words, error.remedy, field.name, error.reason) from None
    return pa.RecordBatch.from_arrays(arrays, schema=wanted)
