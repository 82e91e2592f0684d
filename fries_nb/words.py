"""Durations and counts as text: one form for views, reports, errors and the words of magics.

>>> [duration(seconds) for seconds in (0.0, 0.00004, 0.0123, 0.1698, 0.3, 0.99996, 20.5431, 119.96, 754.0, 7_325.0)]
['0 ms', '< 0.1 ms', '12.3 ms', '169.8 ms', '300 ms', '1 s', '20.5 s', '2 min 0 s', '12 min 34 s', '2 h 2 min']
>>> duration(float("inf"))
'no end'
>>> counted(1, "tuple"), counted(2_000, "tuple")
('1 tuple', '2,000 tuples')
>>> milliseconds(3.14159), milliseconds(4213.2), milliseconds(None)
('3.1 ms', '4.2 s', '-')
"""

from __future__ import annotations

import math

NONE = "-"
"""What stands for a value that is not there."""


def duration(seconds: float) -> str:
    """A duration in the largest unit that leaves its digits few."""
    if math.isinf(seconds):
        return "no end"
    if seconds < 0.00005:
        return "< 0.1 ms" if seconds > 0 else "0 ms"
    if seconds < 0.99995:
        return f"{round(seconds * 1_000, 1):g} ms"
    if seconds < 119.95:
        return f"{round(seconds, 1):g} s"
    whole = round(seconds)
    if whole < 3_600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3_600:,} h {whole % 3_600 // 60} min"


def counted(number: int, noun: str) -> str:
    """A count with its noun: ``1 tuple``, ``2,000 tuples``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def milliseconds(value: float | None) -> str:
    """A duration that is known in milliseconds, or a dash."""
    return NONE if value is None else duration(value / 1_000)
