"""States that can change in place: the state of a key is what its function changes, so a number can be none.

``process(row, state)`` returns a row, not a state. What it assigns to its parameter is lost when it returns.

>>> why_unchangeable({"count": 0}), why_unchangeable(([], 0))
('', '')
>>> why_unchangeable((0, "a"))
"(0, 'a') (tuple), which cannot change in place, so nothing is kept of a key; expected a dict, a list or an object, ..."
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from datetime import date, time, timedelta
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from types import NoneType
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa

from fries_nb.errors import OperatorError

_CHANGEABLE = frozenset({dict, list})
_PLAIN = frozenset({NoneType, bool, int, float, complex, str, bytes, range, Fraction})
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
    """A new state for a key of this function.

    Raises:
        OperatorError: its ``initial_state()`` returned ``None``, or a state that cannot change in place.
        Exception: it failed.
    """
    make: Callable[[], Any] = getattr(function, "initial_state", dict)
    state = make()
    if state is None:
        raise OperatorError(f"initial_state() of {operator} returned None; it must return a state")
    if why := why_unchangeable(state):
        raise OperatorError(f"initial_state() of {operator} returned {why}")
    return state


def _is_fixed(value: Any) -> bool:
    if type(value) in _PLAIN or isinstance(value, _FIXED):
        return True
    if isinstance(value, (tuple, frozenset)):
        return not hasattr(value, "__dict__") and all(map(_is_fixed, value))
    if dataclasses.is_dataclass(value) and getattr(value, "__dataclass_params__").frozen:  # noqa: B009 (not known to types)
        return all(_is_fixed(getattr(value, field.name, None)) for field in dataclasses.fields(value))
    return False
