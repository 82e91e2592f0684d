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

from collections.abc import Collection, Sequence
from datetime import time
from decimal import Decimal
from itertools import accumulate, chain
from operator import itemgetter
from types import NoneType
from typing import Any

import numpy as np
import pyarrow as pa

from fries_nb.dataflow.columns import AWARE, NAIVE, are_apart, families_of, family_of, two_apart
from fries_nb.operators.canonical import are_atoms, canonical, form_of

FEW = 16
"""Number of values up to which Arrow's own conversion is faster than that through numpy."""

NOT_ARROW = (pa.ArrowException, TypeError, ValueError, OverflowError)
"""Exceptions that Arrow raises for values that it cannot convert."""

_TIMES = frozenset({AWARE, NAIVE})
_OTHERS = (bool, np.timedelta64)
"""Subclasses of ``int`` and ``np.integer`` whose values are no numbers."""
_TEXT, _WHOLE = (str,), (int, np.integer)
_EXACT: dict[int, tuple[type, ...]] = {
    pa.string().id: _TEXT, pa.large_string().id: _TEXT,
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
    """A deep copy of the mutable parts of a value that came in a column."""
    if type(value) is list:
        return value[:] if are_atoms(map(type, value)) else [copied(inner) for inner in value]
    if type(value) is dict:
        return {name: copied(inner) for name, inner in value.items()}
    return tuple(map(copied, value)) if type(value) is tuple else value


def unchanged(value: Any, original: Any) -> bool:
    """Whether a copy of ``original`` makes the same column; immutable parts of the copy are shared, NaN among them."""
    return bool(np.array_equal(value, original) if isinstance(original, np.ndarray) else value == original)


def to_python(column: pa.Array) -> list[Any]:
    """A column as Python values; long columns of strings, or of numbers without nulls, take a fast path.

    Maps are dicts, unless their keys are mutable.

    Raises:
        ValueError: a map has a key twice.
    """
    kind = column.type
    if len(column) > FEW and (
        pa.types.is_string(kind) or pa.types.is_large_string(kind) or (column.null_count == 0 and _is_number(kind))
    ):
        return column.to_numpy(zero_copy_only=False).tolist()  # type: ignore[no-any-return]
    if not pa.types.is_nested(kind):
        return column.to_pylist()  # type: ignore[no-any-return]
    try:
        return column.to_pylist(maps_as_pydicts="strict")  # type: ignore[no-any-return]
    except TypeError:  # such keys are not hashable
        return column.to_pylist()  # type: ignore[no-any-return]
    except KeyError as error:
        raise ValueError(f"a map has one key twice, which a dict cannot hold: {error.args[0]}") from error


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind))


def to_arrow(values: Sequence[Any], known: pa.DataType | None, zone: str = "UTC") -> pa.Array:
    """Python values as a column: of the earlier type if that loses nothing, else of the type that they need.

    Arrow would truncate 1.5 to 1 in a column of integers, and convert "ab" to ["a", "b"] in one of lists; this does
    not. Nor does it convert True to 1.0 among floats, bytes to text, or a time without a zone to one with, which are
    other families, wherever the batch is cut and at any depth.

    Args:
        values: the values; brought into the form of ``canonical`` first.
        known: the earlier type, or ``None``.
        zone: the zone of times with a zone, if the earlier type says none.

    Raises:
        ValueError: the values have no common Arrow type.
        TypeError: as ValueError.
        OverflowError: as ValueError.
        pyarrow.ArrowException: as ValueError.
    """
    kinds = set(map(type, values))
    exact = None if known is None else _EXACT.get(known.id)
    if exact is not None and _are_all(exact, kinds):
        try:
            return pa.array(values, type=known)
        except NOT_ARROW:
            return pa.array(values)
    if not are_atoms(kinds) or time in kinds:
        form = form_of(known, zone)
        values = [canonical(value, form) for value in values]
    return _column(values, known, zone)


def _column(values: Sequence[Any], known: pa.DataType | None, zone: str) -> pa.Array:
    """A column of canonical values."""
    kinds = set(map(type, values))
    families = families_of(values, kinds)
    if apart := two_apart(families):
        one, other = sorted(kind.__name__ for kind in (families[name] for name in apart))
        names = f"{one} beside {other}" if one != other else " beside ".join(apart)
        raise TypeError(f"a column cannot hold {names}; convert the values to one type")
    if dict in kinds or list in kinds:
        array = _nested(values, known, zone)
    elif _TIMES.intersection(families):
        like = known if known is not None and family_of(known) in families else pa.timestamp("us", zone)
        array = _times(values, like.unit, like.tz if AWARE in families else None)
    elif "durations" in families:
        array = pa.array(values, type=pa.duration(_unit(values, "nanoseconds")))
    else:
        array = _inferred(values, kinds)
    if known is None or array.type == known or not _is_cast(array.type, known):
        return array
    try:
        return array.cast(known)
    except (pa.ArrowException, ValueError):
        return array


def _is_cast(kind: pa.DataType, known: pa.DataType) -> bool:
    """Whether a column is cast to its earlier type, if that loses nothing; Arrow would drop fields of structs."""
    if pa.types.is_nested(kind):
        return family_of(kind) == family_of(known) and _fields(kind) == _fields(known) and not are_apart(kind, known)
    return pa.types.is_null(kind) or (kind.id == known.id and not are_apart(kind, known))


def _fields(kind: pa.DataType) -> list[Any]:
    """The names of all fields of structs, at all depths."""
    named = pa.types.is_struct(kind)
    inner = [kind.field(at) for at in range(kind.num_fields)]
    return [(field.name if named else "", _fields(field.type)) for field in inner]


def _times(values: Sequence[Any], unit: str, zone: str | None) -> pa.Array:
    """Times, in nanoseconds if ``unit`` or a value asks for them."""
    needed = _unit(values, "nanosecond")
    try:
        return pa.array(values, type=pa.timestamp("ns" if unit == "ns" else needed, zone))
    except pa.ArrowException:
        return pa.array(values, type=pa.timestamp(needed, zone))  # outside the years that nanoseconds reach


def _unit(values: Sequence[Any], part: str) -> str:
    """The unit that these times or durations need; the types that have this part have nanoseconds."""
    return "ns" if any(getattr(value, part, 0) for value in values) else "us"


def _nested(values: Sequence[Any], known: pa.DataType | None, zone: str) -> pa.Array:
    """A column of lists, structs or maps, of the columns of what is in them."""
    there = [value for value in values if value is not None]
    mask = pa.array([value is None for value in values]) if len(there) < len(values) else None
    like = pa.null() if known is None else known
    family = family_of(like)
    if family == "maps" and all(type(value) is dict or _are_pairs(value) for value in there):
        pairs = [list(value.items()) if type(value) is dict else value for value in there]
        keys, items = [list(map(itemgetter(at), chain.from_iterable(pairs))) for at in (0, 1)]
        entries = to_arrow(keys, like.key_type, zone), to_arrow(items, like.item_type, zone)
        return pa.MapArray.from_arrays(_offsets(values), *entries, mask=mask)
    if type(there[0]) is list:
        items = list(chain.from_iterable(there))
        return pa.ListArray.from_arrays(
            _offsets(values), to_arrow(items, like.value_type if family == "lists" else None, zone), mask=mask
        )
    fields = [like.field(at) for at in range(like.num_fields)] if family == "structs" else []
    types = {field.name: field.type for field in fields}
    names = list(dict.fromkeys(chain(types, chain.from_iterable(there))))
    if not names:
        return pa.array(values, type=pa.struct([]))
    columns = [
        to_arrow([None if row is None else row.get(name) for row in values], types.get(name), zone) for name in names
    ]
    return pa.StructArray.from_arrays(columns, names, mask=mask)


def _are_pairs(value: Any) -> bool:
    """Whether a value is a list of pairs, as a map with mutable keys is given."""
    return type(value) is list and all(type(pair) is tuple and len(pair) == 2 for pair in value)


def _offsets(values: Sequence[Any]) -> pa.Array:
    """Where the elements of each list, or map, begin among those of all."""
    return pa.array([0, *accumulate(0 if value is None else len(value) for value in values)], pa.int32())


def _inferred(values: Sequence[Any], kinds: Collection[type]) -> pa.Array:
    """The column that Arrow infers from values that are neither nested nor times."""
    try:
        return pa.array(values)
    except pa.ArrowInvalid:
        if Decimal not in kinds:
            raise
        return pa.array([Decimal(value) if type(value) is int else value for value in values])  # 10 and 1.5: 10.0, 1.5


def _are_all(types: tuple[type, ...], kinds: Collection[type]) -> bool:
    """Whether values of these kinds, except nulls, are of these types, of which Arrow would take others as well."""
    return all(
        kind is types[0] or kind is NoneType or (issubclass(kind, types) and not issubclass(kind, _OTHERS))
        for kind in kinds
    )
