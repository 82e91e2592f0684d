"""Windows over the time of rows, and the function of an operator that has them.

A window is a span of time ``[start, start + size)`` with a start that is a multiple of ``every``, for times below zero
as well; so do Spark and Flink align theirs. A row belongs to all windows that its time is in: one if they tumble,
several if they slide.

>>> list(ends_of(59, size=60, every=60)), list(ends_of(60, size=60, every=60)), list(ends_of(-1, size=60, every=60))
([60], [120], [0])
>>> list(ends_of(25, size=60, every=20))
[40, 60, 80]
>>> [(end - 10, end) for end in ends_of(25, size=10, every=4)]
[(16, 26), (20, 30), (24, 34)]
>>> tumbling(60).bounds(is_timestamp=True), sliding(60, every=10).bounds(is_timestamp=False)
((60000000000, 60000000000), (60, 10))

The time of a source's rows: the column that has it, and how far the source may deviate from its order.

Durations are in seconds if the column has timestamps, otherwise in units of the column.

>>> EventTime("TX_DATETIME", ahead=3600).column
'TX_DATETIME'
>>> ticks(1.5, is_timestamp=True), ticks(60, is_timestamp=False)
(1500000000, 60)
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, TypeGuard

from fries_nb.errors import DataflowError

NS_PER_S = 1_000_000_000
UNIT = "in seconds or, if times are integers, in units of the column"
"""The unit of durations, for errors."""


@dataclass(frozen=True, slots=True)
class EventTime:
    """The event time of a source.

    Attributes:
        late: how much earlier than the latest row so far a row may be; ``None`` if the source knows its future (a
            replay).
        carried: whether rows carry their times, since an operator below reads them; frames carry bounds in any
            case.
    """

    column: str  # the column with the time of each row: timestamps, dates or integers
    ahead: float | None = None  # how far the source may read ahead of the sinks; ``None`` for no limit
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


@dataclass(frozen=True, slots=True)
class Windowing:
    """How time is divided into windows; made by ``tumbling`` or ``sliding``."""

    size: float  # length of a window, in seconds for timestamps, otherwise in the unit of the integers
    every: float  # distance between the starts of two windows

    def bounds(self, is_timestamp: bool) -> tuple[int, int]:
        """``size`` and ``every`` in the unit of times, each at least 1."""
        return max(1, ticks(self.size, is_timestamp)), max(1, ticks(self.every, is_timestamp))


MOST_WINDOWS = 100_000
"""Maximum number of windows that a row may be in; each has a state of its own."""

EACH_TIME = Windowing(0, 0)
"""A window for each single time, as a reduce has them."""


def tumbling(size: float) -> Windowing:
    """Windows that follow each other, so each row is in one.

    Args:
        size: length of a window: seconds if the source's times are timestamps, otherwise units of its integers.

    Returns:
        A description for ``window`` and ``Update``.
    """
    return Windowing(size, size)


def sliding(size: float, every: float) -> Windowing:
    """Windows that overlap, so each row is in ``size / every`` of them.

    Args:
        size: length of a window; see ``tumbling``.
        every: distance between two windows, whose starts are multiples of it; at most ``size``.

    Returns:
        A description for ``window`` and ``Update``.
    """
    return Windowing(size, every)


def ends_of(t: int, size: int, every: int) -> range:
    """The ends of the windows that a time is in, ascending."""
    first = ((t - size) // every + 1) * every  # the least start after t - size
    return range(first + size, t + size + 1, every)


@dataclass(frozen=True)
class WindowFunction:
    """What a window or reduce runs: a function and its windows, as one value, so that a change replaces both."""

    function: Any  # the user's object, with ``process`` and ``close``
    windowing: Windowing | None  # the windows; ``None`` in a change that keeps those of the function before
    lateness: float = 0  # how long after its end a window takes further rows, and is corrected once
    early: bool = False  # whether ``process`` returns rows, which leave before the window is closed

    @property
    def process(self) -> Any:
        """The user's ``process(row, state)``."""
        return self.function.process

    @property
    def open(self) -> Any:
        """The user's ``open()``, if there is one."""
        return self.function.open


def following(before: Any, function: Any) -> Any:
    """A function with the windows of the one before it, if it has none of its own."""
    if isinstance(function, WindowFunction) and function.windowing is None:
        return replace(function, windowing=before.windowing)
    return function


def checked_windowing(name: str, windowing: object) -> Windowing:
    """The validated windows of an operator.

    Raises:
        DataflowError: they are not windows, are empty, leave gaps between them, or each row would be in very many;
            names the operator.
    """
    if not isinstance(windowing, Windowing):
        raise DataflowError(f"window {name!r} has {windowing!r} as its windows; expected fn.tumbling or fn.sliding")
    for what, value in (("windows of", windowing.size), ("a window every", windowing.every)):
        if not is_duration(value) or value * NS_PER_S < 1:
            raise DataflowError(f"window {name!r} has {what} {value!r}; expected a number above 0, {UNIT}")
    if windowing.every > windowing.size:
        raise DataflowError(
            f"window {name!r} slides by {windowing.every!r}, more than its windows of {windowing.size!r}, so rows "
            "would be in none; expected every=... of at most the size"
        )
    if windowing.size > MOST_WINDOWS * windowing.every:
        count = windowing.size / windowing.every
        raise DataflowError(
            f"window {name!r} has windows of {windowing.size!r} every {windowing.every!r}, so each row would be in "
            f"{count:,.0f}, which have a state each; expected {MOST_WINDOWS:,} at most"
        )
    return windowing


def checked_lateness(name: str, lateness: object, late: object) -> float:
    """The validated lateness of a window.

    Raises:
        DataflowError: it is no duration, or there is no place for rows that come later still; names the operator.
    """
    if not is_duration(lateness):
        raise DataflowError(f"window {name!r} has lateness={lateness!r}; expected a number of 0 or more, {UNIT}")
    if lateness and late is None:
        raise DataflowError(
            f"window {name!r} has lateness={lateness!r} and no place for rows that are later; expected late=<sink>, "
            "such as late=fn.memory()"
        )
    return lateness
