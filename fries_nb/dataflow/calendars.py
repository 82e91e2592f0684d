"""Calendars: the days and months of a timezone, as numbers, and the instants at which they begin.

A day begins when its date begins there, so it has 23 or 25 hours where clocks are changed on it. Days are counted from
1970-01-01, months from January 1970; earlier ones have negative numbers.

>>> days = Calendar(DAYS, "Europe/Berlin")
>>> hour = 3_600 * 10**9
>>> day = days.number(days.begin(19_813) + 5 * hour)             # 2024-03-31, on which an hour is left out
>>> day, (days.begin(day + 1) - days.begin(day)) // hour
(19813, 23)
>>> (days.begin(20_024) - days.begin(20_023)) // hour            # 2024-10-27
25
>>> months = Calendar(MONTHS, None)
>>> months.number(-1), months.begin(1) // (24 * hour)
(-1, 31)
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, tzinfo
from enum import StrEnum
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

NS_PER_US = 1_000
_ORIGIN = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST_DAY = _ORIGIN.toordinal()
_US = timedelta(microseconds=1)


class CalendarUnit(StrEnum):
    """What a calendar counts."""

    DAYS = "days"
    MONTHS = "months"


DAYS, MONTHS = CalendarUnit.DAYS, CalendarUnit.MONTHS


def zone_of(timezone: str | None) -> tzinfo | None:
    """The timezone of a name such as ``Europe/Berlin``, UTC for ``None``; ``None`` if there is no such timezone."""
    try:
        return UTC if timezone is None else ZoneInfo(timezone)
    except (ZoneInfoNotFoundError, ValueError, OSError):  # also a directory of zones, or a path
        return None


class Calendar:
    """The days or months of a timezone.

    Attributes:
        unit: what is counted.
    """

    def __init__(self, unit: CalendarUnit, timezone: str | None, offset_s: float = 0) -> None:
        # ``offset_s``: by how much of local time each unit begins later, such as six hours for days from 06:00 on
        zone = zone_of(timezone)
        assert zone is not None, "the timezone was checked when the windows were declared"
        self.unit, self._zone, self._offset = unit, zone, timedelta(seconds=offset_s)

    def number(self, t: int) -> int:
        """The number of the day or month of an instant, in nanoseconds since 1970."""
        local = (_ORIGIN + (t // NS_PER_US) * _US).astimezone(self._zone).replace(tzinfo=None) - self._offset
        found = local.toordinal() - _FIRST_DAY if self.unit is DAYS else (local.year - 1970) * 12 + local.month - 1
        # Local time goes back where clocks are put back, and with it the date less the offset; instants do not.
        while self.begin(found) > t:
            found -= 1
        while self.begin(found + 1) <= t:
            found += 1
        return found

    def begin(self, number: int) -> int:
        """The instant at which a day or month begins, in nanoseconds since 1970."""
        if self.unit is DAYS:
            local = datetime.fromordinal(_FIRST_DAY + number)
        else:
            local = datetime(1970 + number // 12, number % 12 + 1, 1)
        # A moment that clocks leave out stands for the one at which they are changed, one that they show twice for the
        # first of both (PEP 495, fold 0): the date begins there in either case.
        return ((local + self._offset).replace(tzinfo=self._zone) - _ORIGIN) // _US * NS_PER_US
