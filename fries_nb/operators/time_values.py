"""Times as users see them, and as numbers: a ``datetime`` for timestamps, otherwise an integer.

In batches a time is an int64 or a ``timestamp[ns]`` (see ``dataflow.hidden_columns``), in frames and agendas always an
integer. A ``datetime`` is exact to the microsecond; nanoseconds are cut off when a time is shown, and only then.

>>> values = TimeValues(pa.timestamp("ns", "UTC"))
>>> str(values.shown(60_000_000_000))
'1970-01-01 00:01:00+00:00'
>>> values.ticks_of(values.shown(60_000_000_000))
60000000000
>>> TimeValues(pa.int64()).ticks_of("noon")
Traceback (most recent call last):
fries_nb.errors.TokenError: got the time 'noon' (str); expected an integer, as in the source's column of times
"""

from __future__ import annotations

import re
from datetime import date, datetime, time, timedelta
from functools import lru_cache
from operator import index
from typing import Any

import pyarrow as pa

from fries_nb.errors import TokenError

_EPOCH = datetime(1970, 1, 1)
_NS_PER_US = 1_000
_TIMESTAMP = re.compile(r"timestamp\[\w+(?:, tz=([^]]+))?]|date(?:32|64)\[")


class TimeValues:
    """Conversion of the times of one type of column.

    Args:
        kind: the type of the hidden column of times.

    Attributes:
        is_timestamp: whether times are timestamps, in nanoseconds.
    """

    def __init__(self, kind: pa.DataType) -> None:
        self.is_timestamp = bool(pa.types.is_timestamp(kind))
        self._shown = pa.timestamp("us", kind.tz) if self.is_timestamp else kind
        self._zone = kind.tz if self.is_timestamp else None
        self._last: tuple[int, Any] = (0, None)

    def shown(self, ticks: int) -> Any:
        """A time as functions get it; the last one is remembered, since many windows have the same end."""
        if not self.is_timestamp:
            return ticks
        known, value = self._last
        if known != ticks or value is None:
            value = pa.scalar(ticks // _NS_PER_US, self._shown).as_py()
            self._last = ticks, value
        return value

    def ticks_of(self, value: Any) -> int:
        """The number of a time that a function gives.

        Raises:
            TokenError: it is not a time as in the source's column.
        """
        if not self.is_timestamp:
            if isinstance(value, bool) or not hasattr(value, "__index__"):
                raise self._refused(value, "an integer")
            return index(value)
        if isinstance(value, date) and not isinstance(value, datetime):
            value = datetime.combine(value, time())
        if not isinstance(value, datetime) or (value.tzinfo is None) is not (self._zone is None):
            raise self._refused(value, "a datetime with a time zone" if self._zone else "a datetime without time zone")
        since = value.replace(tzinfo=None) - (value.utcoffset() or timedelta()) - _EPOCH
        return (since // timedelta(microseconds=1)) * _NS_PER_US + int(getattr(value, "nanosecond", 0))

    def ticks_from(self, value: Any, earliest: int) -> int:
        """The number of a time that a function gives; if it is shown like ``earliest``, it is not before that.

        >>> TimeValues(pa.timestamp("ns")).ticks_from(datetime(1970, 1, 1), earliest=123)
        123

        Raises:
            TokenError: see ``ticks_of``.
        """
        ticks = self.ticks_of(value)
        is_same = self.is_timestamp and ticks // _NS_PER_US == earliest // _NS_PER_US
        return max(ticks, earliest) if is_same else ticks

    def _refused(self, value: Any, expected: str) -> TokenError:
        return TokenError(
            f"got the time {value!r} ({type(value).__name__}); expected {expected}, as in the source's column of times"
        )


@lru_cache(maxsize=16)
def time_values(kind: pa.DataType) -> TimeValues:
    """The conversion for this type of column."""
    return TimeValues(kind)


def values_named(column: str) -> TimeValues:
    """The conversion for a source's column of times, by the name of its Arrow type.

    >>> values_named("timestamp[us, tz=UTC]").shown(0).tzinfo is None, values_named("date32[day]").is_timestamp
    (False, True)
    >>> str(values_named("dictionary<values=timestamp[s], indices=int32, ordered=0>").shown(0))
    '1970-01-01 00:00:00'
    >>> values_named("int8").shown(7)
    7
    """
    found = _TIMESTAMP.search(column)
    return time_values(pa.timestamp("ns", found[1]) if found else pa.int64())
