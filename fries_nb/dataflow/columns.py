"""Compatibility of schemas: whether rows of one schema can follow rows of another one.

>>> import pyarrow as pa
>>> old, new = pa.schema({"a": pa.int64(), "b": pa.null()}), pa.schema({"a": pa.float64(), "b": pa.string()})
>>> clash(old, new) is None, str(clash(old, new, fixed=True))
(True, "('a', DataType(int64), DataType(double))")
>>> str(clash(old, pa.schema({"a": pa.string()})))
"('a', DataType(int64), DataType(string))"
>>> str(united(pa.schema({"at": pa.timestamp("us", "+02:00")}), pa.schema({"at": pa.timestamp("us", "UTC")})))
'at: timestamp[us, tz=UTC]'

The table of column types: in which type each family of them is held by a sink, and which a sink refuses.

A sink looks a schema up when it first meets it, and so does the rehearsal of a change. A column is held in a type that
keeps each of its values; or a value does not fit this type and is refused; or there is no such type and the column is
refused. Sinks that read Parquet with Spark (``memory``, ``parquet``, ``table``) share a column of the table, a Delta
table has one, and so have the JSON messages of Kafka. A sink of the user's own gets every type as it is.

>>> str(held(pa.duration("s"), HeldBy.FILES)), str(held(pa.list_(pa.uint64()), HeldBy.DELTA))
('duration[us]', 'list<item: decimal128(20, 0)>')
>>> held_columns(pa.schema({"at": pa.time64("us")}), HeldBy.FILES)
Traceback (most recent call last):
fries_nb.dataflow.columns.NotHeldError: 'at' as time64[us], a type that Spark does not read; convert it to text
>>> converted(pa.array([1, 2], pa.duration("s")), pa.duration("us")).cast(pa.int64()).to_pylist()
[1000000, 2000000]

The columns of Delta tables, and values that fit an existing column.

A column keeps its type: it takes narrower numbers, and no null if it is declared NOT NULL. Columns of a table are
marked, so that operators above a sink can check them.

>>> taken(pa.field("a", pa.float64()), pa.array([1, None]), "the table").type
DataType(double)
>>> taken(pa.field("a", pa.float64()), pa.array([2**60]), "the table")
Traceback (most recent call last):
ValueError: is double in the table and a value does not fit: Integer value 1152921504606846976 not in range: ...

The hidden columns of every batch, beside the user's.

>>> HIDDEN
('_fries_due', '_fries_transaction', '_fries_cohort', '_fries_time')
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any, NamedTuple
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc

DUE = "_fries_due"
"""Hidden int64 column: the time at which the source tuple was due, in nanoseconds since the Unix epoch."""
TRANSACTION = "_fries_transaction"
"""Hidden int64 column, present in runs with identities: the identity of the source tuple."""
COHORT = "_fries_cohort"
"""Hidden uint16 column, present beside identities where a source names the column of its cohorts: the row's cohort."""
TIME = "_fries_time"
"""Hidden column, present below a source with ``time=``: the row's own time. int64 for a column of integers; for one of
timestamps ``timestamp[ns]``, in the time zone of the column."""
HIDDEN = (DUE, TRANSACTION, COHORT, TIME)
"""All hidden columns."""


MOST_DIGITS = 38
"""Maximum precision of Spark's decimals."""

Choice = Callable[[pa.DataType, "HeldBy"], "pa.DataType | None"]
"""From a type to the one in which it is held; ``None`` if there is none."""


class HeldBy(Enum):
    """What holds columns; the value ends the sentence that refuses one."""

    FILES = "a type that Spark does not read"
    DELTA = "a type that no Delta table has"
    MESSAGES = "a type that JSON has no form for"


class NotHeldError(Exception):
    """A column, or a value of it, is not held."""

    def __init__(self, words: str, remedy: str, column: str = "", reason: str = "") -> None:
        super().__init__(f"{words}{reason and f', and a value does not fit: {reason}'}; {remedy}")
        self.reason = reason  # why a value does not fit the type in which it would be held, if its own type is held
        self.column = column  # name of the column; empty if a type alone was looked up
        self.words = words  # what is not held, and why
        self.remedy = remedy  # what to do with it, as the end of a sentence


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
    """One line of the table."""

    includes: Callable[[pa.DataType], bool]  # whether a type belongs to it
    choice: Choice  # the type in which it is held
    remedy: str = "convert it"  # what to do with a column that is refused, as the end of a sentence


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
    """The type in which a column of this type is held."""
    family = next(family for family in TABLE if family.includes(kind))
    found = family.choice(kind, by)
    if found is None:
        raise NotHeldError(f"{kind}, {by.value}", family.remedy)
    return found


def held_columns(schema: pa.Schema, by: HeldBy) -> pa.Schema:
    """The types in which columns are held; the same schema if that is each column's own type."""
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
    """Refuse columns whose names differ only in case."""
    if twins := alike(names):
        words = f"{twins[0]!r} beside {twins[1]!r}, which Spark does not tell apart"
        raise NotHeldError(words, "rename one", twins[1])


def converted(values: pa.Array, wanted: pa.DataType) -> pa.Array:
    """The values in the type in which they are held."""
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
    """The rows with their columns in the types in which they are held."""
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


class ValueFamily(NamedTuple):
    """Values of one kind: a column has values of one family, and those of two are never united."""

    name: str  # what its values are, in the plural
    holds: Callable[[pa.DataType], bool]  # whether a column type is one of the family
    python: tuple[type, ...] = ()  # the types of its values in a row


def _any_of(*predicates: Callable[[pa.DataType], Any]) -> Callable[[pa.DataType], bool]:
    return lambda kind: any(holds(kind) for holds in predicates)


AWARE, NAIVE = "times with a zone", "times without a zone"
FAMILIES = (
    ValueFamily("booleans", pa.types.is_boolean, (bool,)),
    ValueFamily("integers", pa.types.is_integer, (int,)),
    ValueFamily("floats", pa.types.is_floating, (float,)),
    ValueFamily("decimals", pa.types.is_decimal, (Decimal,)),
    ValueFamily("text", _any_of(pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view), (str,)),
    ValueFamily("bytes", _any_of(
        pa.types.is_binary, pa.types.is_large_binary, pa.types.is_fixed_size_binary, pa.types.is_binary_view,
    ), (bytes,)),
    ValueFamily("dates", pa.types.is_date, (date,)),
    ValueFamily("times of day", pa.types.is_time, (time,)),
    ValueFamily("durations", pa.types.is_duration, (timedelta,)),
    ValueFamily(AWARE, lambda kind: pa.types.is_timestamp(kind) and kind.tz is not None),
    ValueFamily(NAIVE, lambda kind: pa.types.is_timestamp(kind) and kind.tz is None),
    ValueFamily("UUIDs", lambda kind: isinstance(kind, pa.UuidType), (UUID,)),
    ValueFamily("lists", _any_of(
        pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list, pa.types.is_list_view,
        pa.types.is_large_list_view,
    ), (list,)),
    ValueFamily("structs", pa.types.is_struct, (dict,)),
    ValueFamily("maps", pa.types.is_map),
)  # fmt: skip
"""The families of columns. Whether a ``datetime`` has a zone is asked of the value, not of its type."""
_UNITE = ({"integers", "floats"}, {"integers", "decimals"})
"""Families whose values one column holds unchanged; of integers and floats as far as each value allows it."""
SCALARS = frozenset(kind for family in FAMILIES for kind in family.python) - {list, dict}
"""The Python types of values that are immutable, whatever their column; of a ``datetime`` see above."""
_OF_TYPE = {kind: family.name for family in FAMILIES for kind in family.python}


def family_of(kind: pa.DataType) -> str:
    """The family of a column type; empty for nulls, and for types that are in none."""
    if pa.types.is_dictionary(kind):
        return family_of(kind.value_type)
    return next((family.name for family in FAMILIES if family.holds(kind)), "")


def families_of(values: Sequence[Any], kinds: Iterable[type]) -> dict[str, type]:
    """The families of values in a row, each with a Python type of such a value; not of nulls."""
    times = [kind for kind in kinds if issubclass(kind, datetime)]
    of = {kind: next((base for base in kind.__mro__ if base in _OF_TYPE), None) for kind in kinds if kind not in times}
    found = {_OF_TYPE[base]: kind for kind, base in of.items() if base is not None}
    if times:
        zones = {value.tzinfo is not None for value in values if isinstance(value, datetime)}
        found |= {AWARE if has_zone else NAIVE: times[0] for has_zone in zones}
    return found


def two_apart(families: Iterable[str]) -> tuple[str, str] | None:
    """Two of these families that no one column holds, if there are two.

    >>> two_apart(["integers", "floats"]), two_apart([NAIVE, AWARE])
    (None, ('times with a zone', 'times without a zone'))
    """
    names = sorted(families)
    pairs = ((name, other) for at, name in enumerate(names) for other in names[at + 1 :])
    return next((pair for pair in pairs if set(pair) not in _UNITE), None)


def united(one: pa.Schema, other: pa.Schema) -> pa.Schema:
    """The narrowest schema that holds rows of both: the columns of the first in their order, then the others."""
    # Numbers widen, integers to floats too, and a column of nulls takes any type. Text does not become bytes, nor
    # decimals floats, since values that were written already would be read differently. Times with a zone are instants:
    # those of two zones are united in UTC. Times without one are not united with them.
    shared = [name for name in one.names if name in set(other.names)]
    for name in shared:
        before, after = one.field(name).type, other.field(name).type
        if are_apart(before, after):
            raise pa.ArrowTypeError(f"column {name!r} is {before} and {after}")
    if any(zones_in(one.field(name).type) != zones_in(other.field(name).type) for name in shared):
        one, other = (pa.schema([_in_utc(field) for field in schema], schema.metadata) for schema in (one, other))
    whole = pa.unify_schemas([one, other], promote_options="permissive")
    for name in shared:
        before, after = one.field(name).type, other.field(name).type
        if _digits(whole.field(name).type) > MOST_DIGITS >= max(_digits(before), _digits(after)):
            raise pa.ArrowTypeError(f"column {name!r} is {before} and {after}, which together have too many digits")
    return whole


def are_apart(one: pa.DataType, other: pa.DataType) -> bool:
    """Whether no column type holds the values of both unchanged, at any depth, although Arrow may unite them."""
    families = {family_of(one), family_of(other)} - {""}
    if two_apart(families):
        return True
    return len(families) == 1 and any(are_apart(*pair) for pair in _pairs(one, other))


def _pairs(one: pa.DataType, other: pa.DataType) -> list[tuple[pa.DataType, pa.DataType]]:
    """The types of what both types have at one place."""
    if not pa.types.is_struct(one):
        return [(one.field(at).type, other.field(at).type) for at in range(min(one.num_fields, other.num_fields))]
    names = {one.field(at).name for at in range(one.num_fields)}
    inner = [other.field(at) for at in range(other.num_fields)]
    return [(one.field(field.name).type, field.type) for field in inner if field.name in names]


def zones_in(kind: pa.DataType) -> frozenset[str]:
    """The zones of all times in a column of this type, at any depth."""
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        return frozenset([kind.tz])
    return frozenset[str]().union(*[zones_in(kind.field(at).type) for at in range(kind.num_fields)])


def _in_utc(field: pa.Field) -> pa.Field:
    """The same column with all its times in UTC."""
    kind = field.type
    if not zones_in(kind):
        return field
    if pa.types.is_timestamp(kind):
        return field.with_type(pa.timestamp(kind.unit, "UTC"))
    inner = [_in_utc(kind.field(at)) for at in range(kind.num_fields)]
    if pa.types.is_struct(kind):
        return field.with_type(pa.struct(inner))
    if pa.types.is_map(kind):
        return field.with_type(pa.map_(inner[0], inner[1]))
    return field.with_type(pa.large_list(inner[0]) if pa.types.is_large_list(kind) else pa.list_(inner[0]))


def _digits(kind: pa.DataType) -> int:
    return kind.precision if pa.types.is_decimal(kind) else 0


def alike(names: Iterable[str]) -> tuple[str, str] | None:
    """The first two names that differ only in case, if there are two.

    >>> alike(["A", "b", "a"])
    ('A', 'a')
    """
    seen: dict[str, str] = {}
    for name in names:
        if (low := name.lower()) in seen:
            return seen[low], name
        seen[low] = name
    return None


def clash(taken: pa.Schema, new: pa.Schema, fixed: bool = False) -> tuple[str, pa.DataType, pa.DataType] | None:
    """The first incompatible column: its name, its type so far, and the new one; ``None`` if all are compatible."""
    # Columns may be added and removed and, unless ``fixed``, widen (integers to floats); one of only nulls takes any
    # type.
    for field in new:
        if field.name not in taken.names:
            continue
        before = taken.field(field.name).type
        try:
            whole = _both(before, field.type)
        except pa.ArrowException:
            return field.name, before, field.type
        if fixed and not pa.types.is_null(before) and whole != before and str(whole) != str(before):
            return field.name, before, field.type
    return None


def _both(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    return united(pa.schema([("x", one)]), pa.schema([("x", other)])).field("x").type


_MARK = {b"fries.fixed": b"yes"}


def fixed(schema: pa.Schema) -> pa.Schema:
    """The columns, marked as those of a table: operators must keep their types, and NOT NULL."""
    return pa.schema([field.with_metadata(_MARK) for field in schema])


def is_fixed(column: pa.Field) -> bool:
    """Whether a column is marked as one of a table."""
    return bool(column.metadata == _MARK)


def taken(column: pa.Field, values: pa.Array, table: str) -> pa.Array:
    """Convert values to the type of a table's column, or to a supported type if the column has none yet (null)."""
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
