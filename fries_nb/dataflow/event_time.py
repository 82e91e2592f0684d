"""The time of a source's rows: the column that has it, and how far the source may deviate from its order.

Durations are in seconds if the column has timestamps, otherwise in units of the column.

>>> EventTime("TX_DATETIME", ahead=3600).column
'TX_DATETIME'
>>> ticks(1.5, is_timestamp=True), ticks(60, is_timestamp=False)
(1500000000, 60)
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypeGuard

from fries_nb.errors import DataflowError

NS_PER_S = 1_000_000_000
UNIT = "in seconds or, if times are integers, in units of the column"
"""The unit of durations, for errors."""


@dataclass(frozen=True, slots=True)
class EventTime:
    """The event time of a source.

    Attributes:
        column: the column with the time of each row: timestamps, dates or integers.
        ahead: how far the source may read ahead of the sinks; ``None`` for no limit.
        late: how much earlier than the latest row so far a row may be; ``None`` if the source knows its future (a
            replay).
        carried: whether rows carry their times, since an operator below reads them; frames carry bounds in any case.
    """

    column: str
    ahead: float | None = None
    late: float | None = None
    carried: bool = True


def checked_time(source: str, column: object, ahead: object, late: object) -> EventTime | None:
    """The validated event time of a source; ``None`` without a column.

    Raises:
        DataflowError: ``column`` is not a column name, or ``ahead`` or ``late`` is no duration, or has no column.
    """
    if column is None:
        for name, value in (("ahead", ahead), ("late", late)):
            if value is not None:
                raise DataflowError(f"source {source!r} has {name}={value!r} without time=; expected time=<column>")
        return None
    if not isinstance(column, str) or not column:
        raise DataflowError(f"source {source!r} has time={column!r}; expected the name of one column")
    return EventTime(column, _duration(source, "ahead", ahead), _duration(source, "late", late))


def _duration(source: str, name: str, value: object) -> float | None:
    if value is None:
        return None
    if not is_duration(value):
        raise DataflowError(f"source {source!r} has {name}={value!r}; expected a number of 0 or more, {UNIT}")
    return value


def is_duration(value: object) -> TypeGuard[float]:
    """Whether a value is a duration: a number from 0 to what fits between two times.

    >>> [is_duration(value) for value in (0, 1.5, -1, float("nan"), 2**63, True, "60")]
    [True, True, False, False, False, False, False]
    """
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 2**63


def ticks(duration: float, is_timestamp: bool) -> int:
    """A duration in the unit of times: nanoseconds for timestamps, otherwise the integers of the column."""
    return round(duration * NS_PER_S) if is_timestamp else math.ceil(duration)
