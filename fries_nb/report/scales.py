"""Axes: the mapping from values to pixels, and ticks.

>>> Scale.of([4.0, 9_000.0], 0.0, 100.0).ticks
((1.0, '1'), (10.0, '10'), (100.0, '100'), (1000.0, '1,000'), (10000.0, '10,000'))
>>> Scale.of([20.0, 31.0], 0.0, 100.0).ticks
((0.0, '0'), (10.0, '10'), (20.0, '20'), (30.0, '30'), (40.0, '40'))
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

_WIDE = 30.0
"""Values that span a larger factor are shown on a logarithmic axis."""
_LEAST = 0.1
"""Lower bound of a logarithmic axis."""
_SECONDS = (0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 43200, 86400)


@dataclass(frozen=True)
class Scale:
    """Maps values from ``low`` to ``high`` to pixels from ``start`` to ``end``; ticks are (value, text) pairs."""

    low: float
    high: float
    start: float
    end: float
    logarithmic: bool
    ticks: tuple[tuple[float, str], ...]

    @staticmethod
    def of(values: Sequence[float], start: float, end: float, logarithmic: bool | None = None) -> Scale:
        """A scale for these values: linear from zero or, if they span a wide range, logarithmic."""
        top = max(values, default=0.0)
        least = max(min((value for value in values if value > 0), default=top), _LEAST)
        if (top > _WIDE * least) if logarithmic is None else logarithmic:
            return _decades(least, top, start, end)
        if top <= 0:
            return Scale(0.0, 1.0, start, end, False, ((0.0, "0"),))
        step = _step(top / 4)
        count = max(1, math.ceil(top / step - 1e-9))
        ticks = tuple((index * step, _text(index * step)) for index in range(count + 1))
        return Scale(0.0, count * step, start, end, False, ticks)

    @staticmethod
    def of_time(low: float, high: float, start: float, end: float) -> Scale:
        """A scale for times in seconds, with about one tick in 90 pixels."""
        high = max(high, low + 1.0)
        most = max(2.0, abs(end - start) / 90)
        step = next((step for step in _SECONDS if (high - low) / step <= most), _SECONDS[-1])
        first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
        while last - first > 2 * most:
            step, first, last = 2 * step, -(-first // 2), last // 2
        ticks = tuple((index * step, clock(index * step)) for index in range(first, last + 1))
        return Scale(low, high, start, end, False, ticks)

    def at(self, value: float) -> float:
        """The pixel of a value; values outside the scale are clamped."""
        value = min(max(value, self.low), self.high)
        if self.logarithmic:
            part = math.log(value / self.low) / math.log(self.high / self.low)
        else:
            part = (value - self.low) / (self.high - self.low)
        return self.start + part * (self.end - self.start)


def clock(seconds: float) -> str:
    """A time in seconds as a tick's text.

    >>> clock(45), clock(0.5), clock(150), clock(7260)
    ('45', '0.5', '2:30', '2:01:00')
    """
    if abs(seconds) < 120:
        return f"{seconds:g}"
    whole = abs(round(seconds))
    sign = "-" if seconds < 0 else ""
    minutes = f"{whole // 60 % 60:02}:{whole % 60:02}"
    return f"{sign}{whole // 3600}:{minutes}" if whole >= 3600 else f"{sign}{minutes.removeprefix('0')}"


def _decades(least: float, top: float, start: float, end: float) -> Scale:
    low, high = math.floor(math.log10(least) + 1e-9), math.ceil(math.log10(top) - 1e-9)
    high = max(high, low + 1)
    ticks = tuple((10.0**power, _text(10.0**power)) for power in range(low, high + 1))
    return Scale(10.0**low, 10.0**high, start, end, True, ticks)


def _step(rough: float) -> float:
    power = 10.0 ** math.floor(math.log10(rough))
    return next(part * power for part in (1.0, 2.0, 2.5, 5.0, 10.0) if part * power >= rough * (1 - 1e-9))


def _text(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.4g}"
