"""Conversion of values between Python and Arrow, as columns and one by one.

>>> to_arrow([1, None, 3], None).type, to_python(pa.array(["a", None]))
(DataType(int64), ['a', None])
>>> tags = ["a", ["b"]]
>>> copy = copied(tags)
>>> tags[1].append("c")
>>> copy
['a', ['b']]

The value that an operator receives for what another one has written, whether they share a worker or not.

A column gives each value back in one form: a set comes back as a list, a time with a zone in the zone of its column. An
operator of the same chain must see just that, or what a function computes would depend on how operators are divided
among workers. So what a function returns is brought into this form when it leaves the function, and what has no form
that a column could hold is refused there:

- Numbers, text and bytes of other types, numpy's and subclasses (members of an ``IntEnum`` among them), become those of
  Python. Which of int, float and Decimal stands for a number, and with how many digits, is the column's affair.
- Tuples, sets and arrays become lists; subclasses of dict become dicts, at every depth.
- A time with a zone is an instant. It is shown in the zone of the column that it replaces, or in that of the stream's
  event times, else in UTC.
- pandas' and numpy's times and durations become those of Python, unless they have nanoseconds; NaT and NA are nulls.

>>> from datetime import timezone
>>> canonical({"at": datetime(2024, 7, 1, 12, tzinfo=timezone(timedelta(hours=2))), "of": ((np.int8(1),), {2})})
{'at': datetime.datetime(2024, 7, 1, 10, 0, tzinfo=zoneinfo.ZoneInfo(key='UTC')), 'of': [[1], [2]]}
>>> canonical(1j)
Traceback (most recent call last):
TypeError: no column type holds complex; convert it
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from decimal import Decimal
from enum import Enum
from functools import lru_cache
from itertools import accumulate, chain
from operator import itemgetter
from types import NoneType
from typing import Any

import numpy as np
import pyarrow as pa

from fries_nb.dataflow.columns import AWARE, NAIVE, SCALARS, are_apart, families_of, family_of, two_apart

MOST_NESTED = 60
"""Maximum depth of a value, of lists and dicts in each other; Arrow's messages have little more."""
PLAIN = (SCALARS - {time}) | {type(None)}
"""Python types of which every value is canonical."""
ATOMS = PLAIN | {datetime, time}
"""Python types of immutable values, which are never copied."""

are_plain = PLAIN.issuperset
"""Whether values of these types are all canonical."""
are_atoms = ATOMS.issuperset
"""Whether values of these types are all immutable."""


class ColumnForm:
    """The form of the values of one column: the type of what came, if it was there, and the zone of its times."""

    __slots__ = ("_inner", "fields", "is_map", "kind", "tz", "zone")

    def __init__(self, kind: pa.DataType | None = None, zone: str = "UTC") -> None:
        # ``zone``: the name of the zone for times in columns without one
        # ``kind``: the column's type; ``None`` if there was no such column
        self.kind, self.zone = kind, zone
        has_zone = kind is not None and pa.types.is_timestamp(kind) and kind.tz is not None
        self.tz: tzinfo = pa.lib.string_to_tzinfo(kind.tz if has_zone else zone)  # type: ignore[union-attr]
        self.is_map = kind is not None and bool(pa.types.is_map(kind))
        self.fields = kind is not None and bool(pa.types.is_struct(kind))
        self._inner: dict[Any, ColumnForm] = {}

    def inner(self, name: Any = None) -> ColumnForm:
        """The form of an element of a list, or of the values of a map (``None``), or of a field of a struct."""
        if self.kind is None or not self.kind.num_fields:
            return self
        found = self._inner.get(name)
        if found is None:
            found = self._inner[name] = ColumnForm(self._type_of(name), self.zone)
        return found

    def _type_of(self, name: Any) -> pa.DataType | None:
        kind = self.kind
        assert kind is not None
        if self.is_map:
            return kind.item_type
        if not self.fields:
            return kind.field(0).type
        at = kind.get_field_index(name) if isinstance(name, str) else -1
        return kind.field(at).type if at >= 0 else None


@lru_cache(maxsize=1024)
def form_of(kind: pa.DataType | None, zone: str) -> ColumnForm:
    """The form of the values of a column of this type, in a stream with this zone."""
    return ColumnForm(kind, zone)


IN_UTC = form_of(None, "UTC")
"""The form of the values of a new column."""


def canonical(value: Any, form: ColumnForm = IN_UTC, depth: int = 0) -> Any:
    """A value as a column of this form gives it back; no mutable part of it is shared."""
    kind = type(value)
    if kind in PLAIN:
        return value
    if depth >= MOST_NESTED:
        raise TypeError(f"it is nested more than {MOST_NESTED} deep; flatten it")
    convert = _CONVERSIONS.get(kind) or _conversion_of(kind)  # type: ignore[arg-type]
    if convert is None:
        remedy = "give its name or its value" if issubclass(kind, Enum) else "convert it"
        raise TypeError(f"no column type holds {kind.__name__}; {remedy}")
    return convert(value, form, depth)


def _time(value: datetime, form: ColumnForm, depth: int) -> datetime:
    if value.tzinfo is None:
        return value.replace(fold=0) if value.fold else value
    try:
        return value.astimezone(UTC).astimezone(form.tz)  # by UTC, since a time in its own zone stays as it is
    except OverflowError as error:
        raise TypeError(f"the time in {form.tz} is outside the years 1 to 9999") from error


def _datetime(value: Any, form: ColumnForm, depth: int) -> Any:
    if getattr(value, "nanosecond", 0):  # pandas' own; no other type holds it
        return value if value.tzinfo is None else value.tz_convert(form.tz)
    day, moment = (value.year, value.month, value.day), (value.hour, value.minute, value.second, value.microsecond)
    return _time(datetime(*day, *moment, value.tzinfo, fold=value.fold), form, depth)


def _time_of_day(value: time, form: ColumnForm, depth: int) -> time:
    if value.tzinfo is not None:
        raise TypeError("a column of times of day has no zone; give the time of a day, or without the zone")
    return time(value.hour, value.minute, value.second, value.microsecond)


def _duration(value: Any, form: ColumnForm, depth: int) -> Any:
    if getattr(value, "nanoseconds", 0):
        return value
    return timedelta(value.days, value.seconds, value.microseconds)


def _numpy_time(value: Any, form: ColumnForm, depth: int) -> Any:
    """A datetime64 or a timedelta64."""
    if np.isnat(value):
        return None
    unit, step = np.datetime_data(value.dtype)
    is_duration = isinstance(value, np.timedelta64)
    finer = {"ns": 1_000, "ps": 1_000_000, "fs": 10**9, "as": 10**12}.get(unit, 1)
    if unit == "ns" and int(value.astype(np.int64)) * step % finer:
        import pandas as pd  # slow to import, and only its types have nanoseconds

        return pd.Timedelta(value) if is_duration else pd.Timestamp(value)
    if int(value.astype(np.int64)) * step % finer or (is_duration and unit in ("Y", "M", "generic")):
        raise TypeError(f"no column type holds {type(value).__name__} of {unit}")
    found = value.astype(f"{'m' if is_duration else 'M'}8[us]").item() if unit not in ("Y", "M", "W", "D") else None
    found = found if found is not None else (value.astype("m8[us]") if is_duration else value.astype("M8[D]")).item()
    if not isinstance(found, (date, timedelta)):
        raise TypeError(f"the {type(value).__name__} is outside the years 1 to 9999")
    return found


def _number(value: Any, form: ColumnForm, depth: int) -> Any:
    """A number of numpy."""
    found = value.item()
    if type(found) not in PLAIN:
        raise TypeError(f"no column type holds {type(value).__name__}; convert it")
    return found


def _map(pairs: Any, form: ColumnForm, depth: int) -> Any:
    """A dict of these pairs; the pairs, if keys are not hashable."""
    try:
        return _dict(dict(pairs), form, depth)
    except TypeError:
        keys, items = form_of(form.kind.key_type, form.zone), form.inner()  # type: ignore[union-attr]
        return [(canonical(key, keys, depth + 1), canonical(item, items, depth + 1)) for key, item in pairs]


def _list(value: Any, form: ColumnForm, depth: int) -> Any:
    if form.is_map and all(isinstance(pair, (tuple, list)) and len(pair) == 2 for pair in value):
        return _map(value, form, depth)
    found = list(value)
    if not are_plain(map(type, found)):
        inner = form.inner()
        found = [canonical(item, inner, depth + 1) for item in found]
    kinds = set(map(type, found))
    if (len(kinds) > 1 or not are_plain(kinds)) and (pair := two_apart(families_of(found, kinds))):
        raise TypeError(f"a list cannot hold {pair[0]} beside {pair[1]}; convert its elements to one type")
    return found


def _dict(value: Mapping[Any, Any], form: ColumnForm, depth: int) -> dict[Any, Any]:
    found = {}
    for name, inner in dict.items(value) if type(value) is dict else value.items():
        if form.is_map:
            name = canonical(name, form_of(form.kind.key_type, form.zone), depth + 1)  # type: ignore[union-attr]
        elif type(name) is not str:
            name = _name(name)
        found[name] = inner if type(inner) in PLAIN else canonical(inner, form.inner(name), depth + 1)
    return found


def _name(name: Any) -> str:
    """The name of a field of a struct, which is a subclass of text, or none."""
    if not isinstance(name, str):
        raise TypeError(f"Expected dict key of type str, got {type(name).__name__!r}; only map columns have others")
    return str.__str__(name)


def _array(value: np.ndarray[Any, Any], form: ColumnForm, depth: int) -> Any:
    if not value.ndim:
        return None if value is np.ma.masked else canonical(value[()], form, depth)
    return _list(value.tolist() if value.dtype.kind in "biufU" and value.dtype.itemsize <= 8 else value, form, depth)


_Conversion = Callable[[Any, ColumnForm, int], Any]
_CONVERSIONS: dict[type, _Conversion] = {
    datetime: _time, time: _time_of_day, list: _list, tuple: _list, set: _list, frozenset: _list, dict: _dict,
    type({}.values()): _list, type({}.keys()): _list,
    bytearray: lambda value, form, depth: bytes(value), memoryview: lambda value, form, depth: value.tobytes(),
    np.datetime64: _numpy_time, np.timedelta64: _numpy_time, np.generic: _number, np.ndarray: _array,
    pa.Scalar: lambda value, form, depth: canonical(value.as_py(), form, depth),
}  # fmt: skip
_SUBCLASSES: dict[type, _Conversion] = {
    **_CONVERSIONS, datetime: _datetime, timedelta: _duration,
    date: lambda value, form, depth: date(value.year, value.month, value.day),
    str: lambda value, form, depth: str.__str__(value), int: lambda value, form, depth: int.__int__(value),
    float: lambda value, form, depth: float.__float__(value),
    bytes: lambda value, form, depth: bytes(memoryview(value)), Decimal: lambda value, form, depth: Decimal(value),
}  # fmt: skip


@lru_cache(maxsize=256)
def _conversion_of(kind: type) -> _Conversion | None:
    """The conversion of values of a type that has none of its own; ``None`` if no column holds them."""
    if kind.__name__ in ("NaTType", "NAType") and kind.__module__.startswith("pandas."):
        return lambda value, form, depth: None
    if issubclass(kind, np.longdouble) and np.longdouble is not np.float64:
        return None
    return next((_SUBCLASSES[base] for base in kind.__mro__ if base in _SUBCLASSES), None)


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
    """A column as Python values; long columns of strings, or of numbers without nulls, take a fast path."""
    # Maps are dicts, unless their keys are mutable.
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
    """Python values as a column: of the earlier type if that loses nothing, else of the type that they need."""
    # Arrow would truncate 1.5 to 1 in a column of integers, and convert "ab" to ["a", "b"] in one of lists; this does
    # not. Nor does it convert True to 1.0 among floats, bytes to text, or a time without a zone to one with, which are
    # other families, wherever the batch is cut and at any depth.
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
