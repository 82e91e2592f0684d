"""The value that an operator receives for what another one has written, whether they share a worker or not.

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

from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from decimal import Decimal
from enum import Enum
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa

from fries_nb.dataflow.columns import SCALARS, families_of, two_apart

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
    """The form of the values of one column: the type of what came, if it was there, and the zone of its times.

    Args:
        kind: the column's type; ``None`` if there was no such column.
        zone: the name of the zone for times in columns without one.
    """

    __slots__ = ("_inner", "fields", "is_map", "kind", "tz", "zone")

    def __init__(self, kind: pa.DataType | None = None, zone: str = "UTC") -> None:
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
    """A value as a column of this form gives it back; no mutable part of it is shared.

    Args:
        value: the value.
        form: the form of its column.
        depth: in how many lists and dicts it is.

    Raises:
        TypeError: no column can hold it.
        Exception: whatever the methods of the value raise.
    """
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
        found = [canonical(one, inner, depth + 1) for one in found]
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
