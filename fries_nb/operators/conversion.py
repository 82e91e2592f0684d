"""Conversion of values between Python and Arrow, as columns and one by one.

>>> to_arrow([1, None, 3], None).type, to_python(pa.array(["a", None]))
(DataType(int64), ['a', None])
>>> tags = ["a", ["b"]]
>>> copy = copied(tags)
>>> tags[1].append("c")
>>> copy
['a', ['b']]
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from types import NoneType
from typing import Any

import numpy as np
import pyarrow as pa

FEW = 16
"""Number of values up to which Arrow's own conversion is faster than that through numpy."""

NOT_ARROW = (pa.ArrowException, TypeError, ValueError, OverflowError)
"""Exceptions that Arrow raises for values that it cannot convert."""

_NO_TIMES = frozenset({bool, int, float, Decimal, date})
"""Python types of values that Arrow would convert to times if the column has a time type."""
ATOMS = frozenset({type(None), bool, int, float, str, bytes, Decimal, date, datetime, time, timedelta})
"""Python types of immutable values, which are never copied."""

_FAMILIES: tuple[tuple[type, ...], ...] = (
    (bool, np.bool_),
    (timedelta, np.timedelta64),  # first, since np.timedelta64 is a subclass of np.integer
    (int, float, Decimal, np.integer, np.floating),
    (str,),
    (bytes, bytearray, memoryview),
    (datetime,),  # first, since it is a subclass of date
    (date,),
    (time,),
)
"""Families of Python types: a column has values of one family. Arrow itself would convert ``1.5, True`` to 1.5, 1.0."""

_UNMIXED = frozenset({pa.null().id, pa.string().id, pa.bool_().id})
"""Types that Arrow infers only from values of one family."""
_MICROSECONDS = frozenset({datetime, NoneType})
_TEXT, _WHOLE, _BOOL = (str,), (int, np.integer), (bool, np.bool_)
_EXACT: dict[int, tuple[type, ...]] = {
    pa.string().id: _TEXT, pa.large_string().id: _TEXT, pa.bool_().id: _BOOL,
    pa.float64().id: (float, int, np.floating, np.integer),
    pa.int8().id: _WHOLE, pa.int16().id: _WHOLE, pa.int32().id: _WHOLE, pa.int64().id: _WHOLE,
    pa.uint8().id: _WHOLE, pa.uint16().id: _WHOLE, pa.uint32().id: _WHOLE, pa.uint64().id: _WHOLE,
}  # fmt: skip
"""Column type to the Python types whose values Arrow converts to it without loss, or refuses."""


def is_mutable(kind: pa.DataType) -> bool:
    """Whether values of this type are mutable Python objects."""
    if pa.types.is_dictionary(kind):
        return is_mutable(kind.value_type)
    return bool(pa.types.is_nested(kind)) or isinstance(kind, pa.BaseExtensionType)


def copied(value: Any) -> Any:
    """A deep copy of the mutable parts of a value; rows in it become dicts.

    Raises:
        Exception: whatever copying the value raises, or a RecursionError if it contains itself.
    """
    kind = type(value)
    if kind in ATOMS:
        return value
    if kind is list:
        return value[:] if ATOMS.issuperset(map(type, value)) else [copied(inner) for inner in value]
    if kind is tuple:
        return value if ATOMS.issuperset(map(type, value)) else tuple([copied(inner) for inner in value])
    if isinstance(value, dict):
        return {name: copied(inner) for name, inner in value.items()}
    return value.tobytes() if kind is memoryview else copy.deepcopy(value)


def unchanged(value: Any, original: Any) -> bool:
    """Whether a copy of ``original`` makes the same column; immutable parts of the copy are shared, NaN among them."""
    return bool(np.array_equal(value, original) if isinstance(original, np.ndarray) else value == original)


def to_python(column: pa.Array) -> list[Any]:
    """A column as Python values; long columns of strings, or of numbers without nulls, take a fast path."""
    kind = column.type
    if len(column) > FEW and (
        pa.types.is_string(kind) or pa.types.is_large_string(kind) or (column.null_count == 0 and _is_number(kind))
    ):
        return column.to_numpy(zero_copy_only=False).tolist()  # type: ignore[no-any-return]
    return column.to_pylist()  # type: ignore[no-any-return]


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind))


def to_arrow(values: Sequence[Any], known: pa.DataType | None) -> pa.Array:
    """Python values as a column: of the earlier type if that loses nothing, else of the type that Arrow infers.

    Arrow would truncate 1.5 to 1 in a column of integers, and convert "ab" to ["a", "b"] in one of lists; this does
    not. Nor does it convert True to 1.0 among floats, or bytes to text, which are other types, wherever the batch is
    cut.

    Raises:
        ValueError: the values have no common Arrow type.
        TypeError: as ValueError.
        OverflowError: as ValueError.
        pyarrow.ArrowException: as ValueError.
    """
    exact = None if known is None else _EXACT.get(known.id)
    if exact is not None and _are_all(exact, set(map(type, values))):
        try:
            return pa.array(values, type=known)
        except NOT_ARROW:
            return pa.array(values)
    if known is not None and _is_as_given(known) and _NO_TIMES.isdisjoint(map(type, values)):
        try:
            return pa.array(values, type=known)
        except NOT_ARROW:
            pass  # the inferred type is returned; the caller widens the column or refuses it
    array = _inferred(values)
    if known is None or array.type == known or not (array.type.id == known.id or pa.types.is_null(array.type)):
        return array
    try:
        return array.cast(_with_fields_of(known, array.type) if pa.types.is_nested(known) else known)
    except pa.ArrowException:
        return array


def _is_as_given(kind: pa.DataType) -> bool:
    """Types that Arrow would not infer from their values: maps look like lists, times are cut to microseconds."""
    return bool(pa.types.is_map(kind)) or (pa.types.is_temporal(kind) and getattr(kind, "unit", "") == "ns")


def _inferred(values: Sequence[Any]) -> pa.Array:
    """The column that Arrow infers from the values; rows in them count as dicts."""
    try:
        array = pa.array(values)
    except pa.ArrowTypeError:
        return pa.array([_plain(value) for value in values])
    except pa.ArrowInvalid:
        if Decimal not in map(type, values):
            raise
        return pa.array([Decimal(value) if type(value) is int else value for value in values])  # 10 and 1.5: 10.0, 1.5
    kind = array.type
    if kind.id in _UNMIXED or pa.types.is_nested(kind):
        return array
    kinds = set(map(type, values))
    _refuse_mixed(kinds)
    if pa.types.is_timestamp(kind) and kinds - _MICROSECONDS and any(getattr(one, "nanosecond", 0) for one in values):
        return pa.array(values, type=pa.timestamp("ns", kind.tz))
    return array


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(inner) for name, inner in value.items()}
    return [_plain(inner) for inner in value] if isinstance(value, (list, tuple)) else value


def _with_fields_of(known: pa.DataType, new: pa.DataType) -> pa.DataType:
    """The known type with additional fields of new values, which a cast to the known type would drop.

    Raises:
        pyarrow.ArrowException: no type holds both.
    """
    schemas = [pa.schema([("x", kind)]) for kind in (known, new)]
    wider = pa.unify_schemas(schemas, promote_options="permissive").field("x").type
    return known if _fields(wider) == _fields(known) else wider


def _fields(kind: pa.DataType) -> list[Any]:
    """The names of all fields, at all depths."""
    if not pa.types.is_nested(kind):
        return []
    return [(kind.field(index).name, _fields(kind.field(index).type)) for index in range(kind.num_fields)]


def _are_all(types: tuple[type, ...], kinds: Collection[type]) -> bool:
    """Whether values of these kinds, except nulls, are of these types, and of the family of the first."""
    return all(
        kind is types[0] or kind is NoneType or (issubclass(kind, types) and _family(kind) is _family(types[0]))
        for kind in kinds
    )


def _family(kind: type) -> tuple[type, ...] | None:
    return next((family for family in _FAMILIES if issubclass(kind, family)), None)


def _refuse_mixed(kinds: Collection[type]) -> None:
    """Refuse a column with values of two families.

    Raises:
        TypeError: values of these kinds are of two.
    """
    families = {_family(kind): kind for kind in kinds}
    families.pop(None, None)
    if len(families) > 1:
        one, other = sorted(kind.__name__ for kind in families.values())[:2]
        raise TypeError(f"a column cannot hold {one} beside {other}; convert the values to one type")
