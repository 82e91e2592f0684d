"""Compatibility of schemas: whether rows of one schema can follow rows of another one.

>>> import pyarrow as pa
>>> taken, new = pa.schema({"a": pa.int64(), "b": pa.null()}), pa.schema({"a": pa.float64(), "b": pa.string()})
>>> clash(taken, new) is None, str(clash(taken, new, fixed=True))
(True, "('a', DataType(int64), DataType(double))")
>>> str(clash(taken, pa.schema({"a": pa.string()})))
"('a', DataType(int64), DataType(string))"
>>> str(united(pa.schema({"at": pa.timestamp("us", "+02:00")}), pa.schema({"at": pa.timestamp("us", "UTC")})))
'at: timestamp[us, tz=UTC]'
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, NamedTuple
from uuid import UUID

import pyarrow as pa

MOST_DIGITS = 38
"""Maximum precision of Spark's decimals."""


class ValueFamily(NamedTuple):
    """Values of one kind: a column has values of one family, and those of two are never united.

    Attributes:
        name: what its values are, in the plural.
        holds: whether a column type is one of the family.
        python: the types of its values in a row.
    """

    name: str
    holds: Callable[[pa.DataType], bool]
    python: tuple[type, ...] = ()


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
    """The families of values in a row, each with a Python type of such a value; not of nulls.

    Args:
        values: the values.
        kinds: their Python types.
    """
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
    pairs = ((one, other) for at, one in enumerate(names) for other in names[at + 1 :])
    return next((pair for pair in pairs if set(pair) not in _UNITE), None)


def united(one: pa.Schema, other: pa.Schema) -> pa.Schema:
    """The narrowest schema that holds rows of both: the columns of the first in their order, then the others.

    Numbers widen, integers to floats too, and a column of nulls takes any type. Text does not become bytes, nor
    decimals floats, since values that were written already would be read differently. Times with a zone are instants:
    those of two zones are united in UTC. Times without one are not united with them.

    Raises:
        pyarrow.ArrowTypeError: a column has two types that no one type holds.
        pyarrow.ArrowInvalid: as ArrowTypeError.
    """
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
    """The first incompatible column: its name, its type so far, and the new one; ``None`` if all are compatible.

    Columns may be added and removed and, unless ``fixed``, widen (integers to floats); one of only nulls takes any
    type.

    Args:
        taken: the columns so far.
        new: the columns of the next rows.
        fixed: whether a column that has a type keeps it and takes narrower values only, as in a Delta table.
    """
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
