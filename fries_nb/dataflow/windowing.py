"""Windows over the time of rows, or over their number, and the function of an operator that has them.

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

With an offset, windows start at multiples of ``every`` plus that. With a timezone, windows of whole days follow the
local calendar, as those of months do. A session has no fixed length: it is a time in which a key is never silent for
longer than a gap. Windows by count are over rows in the order in which they come, whatever their times.

>>> tumbling(60, offset=15), session(600)
(ShiftedWindowing(size=60, every=60, offset=15), SessionWindowing(gap=600, longest=None))
>>> tumbling(86_400, timezone="Europe/Berlin")
DayWindowing(size=86400, every=86400, offset=0, timezone='Europe/Berlin')

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
from typing import Any, ClassVar, Self, TypeGuard

from fries_nb.dataflow.calendars import zone_of
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


def is_positive(value: object) -> TypeGuard[float]:
    """Whether a value is a duration of at least a nanosecond."""
    return is_duration(value) and value * NS_PER_S >= 1


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


@dataclass(frozen=True, slots=True)
class ShiftedWindowing(Windowing):
    """Windows whose starts are multiples of ``every`` plus an offset; made by ``tumbling`` or ``sliding``."""

    offset: float  # in the unit of ``size``

    def shift(self, is_timestamp: bool) -> int:
        """The offset in the unit of times."""
        return ticks(self.offset, is_timestamp)


@dataclass(frozen=True, slots=True)
class DayWindowing:
    """Windows of whole days of a timezone; made by ``tumbling`` or ``sliding``."""

    size: float  # in seconds, of which a day counts 86,400, however long it is
    every: float
    offset: float  # seconds of local time by which a window starts later than a day
    timezone: str


@dataclass(frozen=True, slots=True)
class MonthWindowing:
    """Windows of whole months; made by ``months``."""

    size: int  # number of months
    timezone: str | None  # ``None`` for UTC, or for times without a time zone their own clock


@dataclass(frozen=True, slots=True)
class SessionWindowing:
    """Windows that rows extend; made by ``session``."""

    gap: float  # the longest silence within a session
    longest: float | None  # sessions end at its multiples

    def extent(self, t: int, gap: int, longest: int) -> tuple[int, int]:
        """Of a row alone: first moment of its session, and the first one after it.

        >>> session(10).extent(25, 10, 0), session(10, longest=30).extent(25, 10, 30)
        ((25, 36), (25, 30))
        """
        end = t + gap + 1  # a row that comes exactly a gap later is in the session still, as in Spark and Flink
        return t, min(end, (t // longest + 1) * longest) if longest else end


@dataclass(frozen=True, slots=True)
class CountWindowing:
    """Windows of a number of rows; made by ``count``."""

    rows: int  # number of rows of a window
    every: int  # number of rows between the first ones of two windows


AnyWindowing = Windowing | DayWindowing | MonthWindowing | SessionWindowing | CountWindowing
"""What ``window`` and ``Update`` take."""

MOST_WINDOWS = 100_000
"""Maximum number of windows that a row may be in; each has a state of its own."""

DAY_S = 86_400
MOST_DAYS, MOST_MONTHS = 36_525, 1_200
"""The longest windows of a calendar: a hundred years."""

EACH_TIME = Windowing(0, 0)
"""A window for each single time, as a reduce has them."""


def tumbling(size: float, offset: float = 0, timezone: str | None = None) -> AnyWindowing:
    """Windows that follow each other, so each row is in one.

    Args:
        size: length of a window: seconds if the source's times are timestamps, otherwise units of its integers.
        offset: by how much windows start later than at multiples of ``size``; earlier if it is negative.
        timezone: the name of a timezone, such as ``"Europe/Berlin"``, whose calendar windows of whole days follow, from
            midnight to midnight there. So some have 23 hours or 25; with ``offset`` they start that much later by
            the local clock. Days are counted from 1970-01-01. Windows that are no multiple of 86,400 seconds
            are refused: a timezone would not change where they start, but ``offset`` does.

    Returns:
        A description for ``window`` and ``Update``.
    """
    return sliding(size, size, offset, timezone)


def sliding(size: float, every: float, offset: float = 0, timezone: str | None = None) -> AnyWindowing:
    """Windows that overlap, so each row is in ``size / every`` of them.

    Args:
        size: length of a window; see ``tumbling``.
        every: distance between two windows, whose starts are multiples of it; at most ``size``.
        offset: see ``tumbling``.
        timezone: see ``tumbling``; ``every`` is a number of whole days as well.

    Returns:
        A description for ``window`` and ``Update``.
    """
    if timezone is not None:
        return DayWindowing(size, every, offset, timezone)
    return Windowing(size, every) if offset == 0 else ShiftedWindowing(size, every, offset)


def months(n: int = 1, timezone: str | None = None) -> AnyWindowing:
    """Windows of calendar months: of a quarter with ``n=3``, of a year with ``n=12``. Times must be timestamps.

    Args:
        n: number of months of a window, counted from January 1970.
        timezone: the timezone in which months begin; ``None`` for UTC, or for times without a time zone their own
            clock.

    Returns:
        A description for ``window`` and ``Update``.
    """
    return MonthWindowing(n, timezone)


def session(gap: float, longest: float | None = None) -> AnyWindowing:
    """Windows in which a key is never silent for longer than a gap: each begins and ends with a row of its key.

    A row that comes within ``gap`` after the last one, or before the first, is in the same session, also at exactly
    ``gap``; one that comes between two sessions makes them one, for which the window's function has a method
    ``merge(state, other)``. The end of a session is its last row's time and ``gap``; it is closed when no row up to
    there can still arrive.

    Args:
        gap: the longest silence: seconds if the source's times are timestamps, otherwise units of its integers.
        longest: sessions end at multiples of it as well, so none is longer; ``None`` for no limit. Where a session
            is cut depends on times alone, so that the order in which rows come changes nothing.

    Returns:
        A description for ``window`` and ``Update``.
    """
    return SessionWindowing(gap, longest)


def count(n: int, every: int | None = None) -> AnyWindowing:
    """Windows of ``n`` rows of a key, in the order in which they come to the operator, whatever their times.

    Rows of one sender come in its order; those of several, as of a source with two workers, in any. A window makes its
    rows when it is full, in the transaction of the row that has filled it. One that is not full when the stream
    ends makes none.

    Args:
        n: number of rows of a window.
        every: number of rows after which the next window begins, at most ``n``; ``None`` for ``n``.

    Returns:
        A description for ``window`` and ``Update``.
    """
    return CountWindowing(n, n if every is None else every)


def ends_of(t: int, size: int, every: int) -> range:
    """The ends of the windows that a time is in, ascending."""
    first = ((t - size) // every + 1) * every  # the least start after t - size
    return range(first + size, t + size + 1, every)


@dataclass(frozen=True)
class ConfiguredFunction:
    """A user's function with a setting of its operator, as one value, so that a change replaces both."""

    SETTING: ClassVar[str]  # the name of the field with the setting; ``None`` there keeps that of the function before

    function: Any  # the user's object, with ``process``

    @property
    def process(self) -> Any:
        """The user's ``process(row, state)``."""
        return self.function.process

    @property
    def open(self) -> Any:
        """The user's ``open()``, if there is one."""
        return self.function.open

    @property
    def setting(self) -> Any:
        """What a change may replace beside the function."""
        return getattr(self, self.SETTING)

    def with_setting(self, setting: Any) -> Self:
        """The same with another setting."""
        return replace(self, **{self.SETTING: setting})


@dataclass(frozen=True)
class WindowFunction(ConfiguredFunction):
    """What a window or reduce runs: a function, with ``process`` and ``close``, and its windows."""

    SETTING = "windowing"

    windowing: AnyWindowing | None  # the windows; ``None`` in a change that keeps those of the function before
    lateness: float = 0  # how long after its end a window takes further rows, and is corrected once
    early: bool = False  # whether ``process`` returns rows, which leave before the window is closed


def following(before: Any, function: Any) -> Any:
    """A function with the setting of the one before it, such as its windows, if it has none of its own."""
    if isinstance(function, ConfiguredFunction) and function.setting is None:
        return function.with_setting(before.setting)
    return function


def checked_windowing(name: str, windowing: object) -> AnyWindowing:
    """The validated windows of an operator.

    Raises:
        DataflowError: they are not windows, are empty, leave gaps between them, or each row would be in very many; a
            gap of sessions is no positive duration; there is no such timezone; names the operator.
    """
    match windowing:
        case Windowing():
            _check_lengths(name, windowing.size, windowing.every)
            if isinstance(windowing, ShiftedWindowing):
                _check_offset(name, windowing.offset, windowing.every)
        case DayWindowing():
            _check_days(name, windowing)
        case MonthWindowing():
            _check_months(name, windowing)
        case SessionWindowing():
            _check_session(name, windowing)
        case CountWindowing():
            _check_count(name, windowing)
        case _:
            raise DataflowError(
                f"window {name!r} has {windowing!r} as its windows; expected fn.tumbling or fn.sliding, fn.session, "
                "fn.months or fn.count"
            )
    return windowing


def _check_lengths(name: str, size: float, every: float) -> None:
    for what, value in (("windows of", size), ("a window every", every)):
        if not is_positive(value):
            raise DataflowError(f"window {name!r} has {what} {value!r}; expected a number above 0, {UNIT}")
    if every > size:
        raise DataflowError(
            f"window {name!r} slides by {every!r}, more than its windows of {size!r}, so rows "
            "would be in none; expected every=... of at most the size"
        )
    if size > MOST_WINDOWS * every:
        raise DataflowError(
            f"window {name!r} has windows of {size!r} every {every!r}, so each row would be in "
            f"{size / every:,.0f}, which have a state each; expected {MOST_WINDOWS:,} at most"
        )




def _check_offset(name: str, offset: object, every: float) -> None:
    is_number = isinstance(offset, int | float) and not isinstance(offset, bool)
    if not is_number or not is_duration(abs(offset)) or abs(offset) >= every:  # type: ignore[arg-type]
        raise DataflowError(
            f"window {name!r} has offset={offset!r}; expected a number between -{every!r} and {every!r}, the distance "
            f"of its windows, {UNIT}"
        )


def _check_days(name: str, windowing: DayWindowing) -> None:
    _check_lengths(name, windowing.size, windowing.every)
    _check_timezone(name, windowing.timezone)
    for what, value in (("windows of", windowing.size), ("a window every", windowing.every)):
        if value % DAY_S or value > MOST_DAYS * DAY_S:
            raise DataflowError(
                f"window {name!r} has {what} {value!r} seconds in a timezone; expected whole days, multiples of 86400 "
                f"and {MOST_DAYS:,} days at most, or offset= in place of timezone="
            )
    _check_offset(name, windowing.offset, DAY_S)


def _check_months(name: str, windowing: MonthWindowing) -> None:
    _check_number(name, "months of", windowing.size, MOST_MONTHS)
    _check_timezone(name, windowing.timezone)


def _check_timezone(name: str, timezone: object) -> None:
    if timezone is not None and (not isinstance(timezone, str) or zone_of(timezone) is None):
        raise DataflowError(
            f"window {name!r} has timezone={timezone!r}; expected the name of a timezone, such as 'Europe/Berlin'"
        )


def _check_session(name: str, windowing: SessionWindowing) -> None:
    gap, longest = windowing.gap, windowing.longest
    if not is_positive(gap):
        raise DataflowError(f"window {name!r} has sessions with a gap of {gap!r}; expected a number above 0, {UNIT}")
    if longest is not None and (not is_positive(longest) or longest < gap):
        raise DataflowError(
            f"window {name!r} has sessions with longest={longest!r}; expected a number of at least the gap, {gap!r}"
        )


def _check_count(name: str, windowing: CountWindowing) -> None:
    _check_number(name, "windows by a count of", windowing.rows)
    _check_number(name, "a window by count every", windowing.every)
    if windowing.every > windowing.rows:
        raise DataflowError(
            f"window {name!r} begins every {windowing.every:,} rows and has {windowing.rows:,}, so rows would be in "
            "none; expected every=... of at most the number of rows"
        )
    if windowing.rows > MOST_WINDOWS * windowing.every:
        raise DataflowError(
            f"window {name!r} has {windowing.rows:,} rows and begins every {windowing.every:,}, so each row would be "
            f"in {windowing.rows // windowing.every:,}, which have a state each; expected {MOST_WINDOWS:,} at most"
        )


def _check_number(name: str, what: str, value: object, most: int = 2**62) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
        limit = "a whole number of 1 or more" if most == 2**62 else f"a whole number from 1 to {most:,}"
        raise DataflowError(f"window {name!r} has {what} {value!r}; expected {limit}")


def check_merging(name: str, function: object) -> None:
    """Refuse a function of sessions that cannot make one state of two, where it has sessions.

    Raises:
        DataflowError: it has no method ``merge``; names the operator.
    """
    if not isinstance(function, WindowFunction) or not isinstance(function.windowing, SessionWindowing):
        return
    if not callable(getattr(function.function, "merge", None)):
        raise DataflowError(
            f"window {name!r} has sessions, and a {type(function.function).__name__} has no merge(), which makes one "
            "state of those of two sessions that a row has joined; expected merge(state, other)"
        )


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
