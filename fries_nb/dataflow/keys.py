"""Canonical keys: of equal values of a key one value stands for all, in state, dedup, joins, windows and routing.

Two keys are one if their columns' values are equal, whatever types hold them: 1, 1.0, Decimal("1.00") and True; -0.0
and 0.0; all NaNs; null and null. Times with a zone are instants: two are equal if they are the same moment, in whatever
zones they are shown, and not if a clock that was put back shows the same for both. Times without a zone are no
instants, and equal only each other. A list, a struct or a map is no key.

>>> from datetime import datetime
>>> from zoneinfo import ZoneInfo
>>> first = datetime(2024, 10, 27, 2, 30, tzinfo=ZoneInfo("Europe/Berlin"))
>>> second = first.replace(fold=1)
>>> first == second, canonical_key(first) == canonical_key(second)
(True, False)
>>> canonical_key((7, second))
(7, datetime.datetime(2024, 10, 27, 1, 30, tzinfo=datetime.timezone.utc))
>>> canonical_key([1])
Traceback (most recent call last):
fries_nb.errors.KeyTypeError: [1] (list) cannot be a key; expected numbers, text, bytes, times or UUIDs, such as ...

A dict with canonical keys finds no wrong key: a value that is equal to one of them, with an equal hash, has it as its
canonical key. (A time that a clock shows twice is equal to none of another zone, PEP 495, and those are in UTC.) So a
value may be looked up as it is, and only if nothing is found by its canonical key.

States that can change in place: the state of a key is what its function changes, so a number can be none.

``process(row, state)`` returns a row, not a state. What it assigns to its parameter is lost when it returns.

>>> why_unchangeable({"count": 0}), why_unchangeable(([], 0))
('', '')
>>> why_unchangeable((0, "a"))
"(0, 'a') (tuple), which cannot change in place, so nothing is kept of a key; expected a dict, a list or an object, ..."
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from types import NoneType
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa

from fries_nb.errors import KeyTypeError, OperatorError

_PLAIN = frozenset({type(None), bool, int, str, bytes, date, timedelta, UUID})
"""Python types of which each value is canonical."""
_are_plain = _PLAIN.issuperset
_NAN = float("nan")
"""The canonical NaN: a dict treats any other as another key."""
_NOT_ARROW = (pa.ArrowException, TypeError, ValueError, OverflowError)
_EXPECTED = (
    "expected numbers, text, bytes, times or UUIDs, such as its parts in columns of their own, or json.dumps of it"
)


def canonical_key(key: Any) -> Any:
    """The value that stands for all that are equal to this key, a value or a tuple of values of several columns."""
    if type(key) is tuple:
        return key if _are_plain(map(type, key)) else tuple(map(_canonical, key))
    return key if type(key) in _PLAIN else _canonical(key)


def _canonical(value: Any) -> Any:
    kind = type(value)
    if kind in _PLAIN:
        return value
    if kind is float or kind is Decimal:
        is_nan = value.is_nan() if kind is Decimal else value != value
        return _NAN if is_nan else value
    if kind is datetime:
        return _instant(value) if value.tzinfo is not None else value
    if kind is time and value.tzinfo is None:
        return value
    if kind.__name__ in ("NaTType", "NAType") and kind.__module__.startswith("pandas."):
        return None
    if isinstance(value, datetime):
        return _of_subclass(value)
    if isinstance(value, timedelta) and getattr(value, "nanoseconds", None):  # of pandas' own type, as below
        return value
    return _from_arrow(value)


def _of_subclass(value: Any) -> Any:
    """The canonical key of a time of a subclass of ``datetime``, such as pandas', which stands for no other one."""
    if getattr(value, "nanosecond", 0):
        return value if value.tzinfo is None else value.tz_convert(UTC)
    day, moment = (value.year, value.month, value.day), (value.hour, value.minute, value.second, value.microsecond)
    return _canonical(datetime(*day, *moment, value.tzinfo, fold=value.fold))


def _instant(value: datetime) -> datetime:
    try:
        return value.astimezone(UTC)
    except OverflowError as error:
        raise KeyTypeError(f"{value!r} cannot be a key: in UTC it is outside the years 1 to 9999") from error


def _from_arrow(value: Any) -> Any:
    """The canonical key of a value of any other type, as a column gives it back."""
    kind = type(value).__name__
    try:
        (found,) = pa.array([value]).to_pylist()
    except _NOT_ARROW as error:
        raise _refused(kind, value) from error
    if isinstance(value, time) or not isinstance(found, (*_PLAIN, float, Decimal)):
        raise _refused(kind, value)
    return _canonical(found)


def _refused(kind: str, value: Any) -> KeyTypeError:
    try:
        text = repr(value)
    except Exception as error:  # noqa: BLE001 (the user's code; the value is refused all the same)
        text = f"<its repr fails with {type(error).__name__}>"
    return KeyTypeError(f"{text[:80]} ({kind}) cannot be a key; {_EXPECTED}")


def refuse_as_key(columns: Iterable[tuple[str, pa.Array | pa.Field]]) -> None:
    """Refuse columns whose type cannot be that of a key."""
    for name, column in columns:
        if not is_key_type(column.type):
            raise KeyTypeError(f"column {name!r} is {column.type}, which cannot be a key; {_EXPECTED}")


def is_key_type(kind: pa.DataType) -> bool:
    """Whether values of this type of column can be those of a key.

    >>> is_key_type(pa.dictionary(pa.int8(), pa.string())), is_key_type(pa.list_(pa.int8()))
    (True, False)
    """
    if kind.id in _KEY_TYPES or pa.types.is_decimal(kind) or is_uuid(kind):
        return True
    is_encoded = pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind)
    return bool(is_encoded) and is_key_type(kind.value_type)


def is_uuid(kind: pa.DataType) -> bool:
    """Whether it is the type of a column of UUIDs."""
    return isinstance(kind, pa.BaseExtensionType) and kind.extension_name == "arrow.uuid"


_KEY_TYPES = frozenset(
    kind.id for kind in (
        pa.null(), pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64(),
        pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64(), pa.float16(), pa.float32(), pa.float64(),
        pa.string(), pa.large_string(), pa.string_view(), pa.binary(), pa.large_binary(), pa.binary_view(),
        pa.binary(1), pa.date32(), pa.date64(), pa.time32("s"), pa.time64("us"), pa.timestamp("us"), pa.duration("us"),
    )
)  # fmt: skip
"""Ids of the column types whose values can be keys, besides decimals, UUIDs, and dictionaries of them."""


_CHANGEABLE = frozenset({dict, list})
_IMMUTABLE = frozenset({NoneType, bool, int, float, complex, str, bytes, range, Fraction})
"""Types without an attribute that could be set; their subclasses may have some."""
_FIXED = (
    Enum, Decimal, date, time, timedelta, UUID, np.generic,
    pa.Scalar, pa.Array, pa.ChunkedArray, pa.RecordBatch, pa.Table,
)  # fmt: skip


def why_unchangeable(state: Any) -> str:
    """What is wrong with a state that cannot change in place; empty if it can, itself or anything in it."""
    if type(state) in _CHANGEABLE or not _is_fixed(state):
        return ""
    return (
        f"{' '.join(repr(state).split())[:60]} ({type(state).__name__}), which cannot change in place, so nothing is "
        "kept of a key; expected a dict, a list or an object, such as {'count': 0} instead of 0"
    )


def initial_state(operator: str, function: Any) -> Any:
    """A new state for a key of this function."""
    make: Callable[[], Any] = getattr(function, "initial_state", dict)
    state = make()
    if state is None:
        raise OperatorError(f"initial_state() of {operator} returned None; it must return a state")
    if why := why_unchangeable(state):
        raise OperatorError(f"initial_state() of {operator} returned {why}")
    return state


def _is_fixed(value: Any) -> bool:
    if type(value) in _IMMUTABLE or isinstance(value, _FIXED):
        return True
    if isinstance(value, (tuple, frozenset)):
        return not hasattr(value, "__dict__") and all(map(_is_fixed, value))
    if dataclasses.is_dataclass(value) and getattr(value, "__dataclass_params__").frozen:  # noqa: B009 (not known to types)
        return all(_is_fixed(getattr(value, field.name, None)) for field in dataclasses.fields(value))
    return False
