"""Bounds in time of joins of two streams, and what such a join runs.

Each row is open for rows of the other side whose times lie in its *spans*, which follow from its time and the bounds.
A span is ``(first, last)``, both included. When no row of its last moment can come any more, the row is gone.

>>> of_left, of_right = spans_by(Within(before=60, after=5), is_timestamp=False)
>>> of_left(100), of_right(40), of_right(105)
([(40, 105)], [(35, 100)], [(100, 165)])
>>> of_left, of_right = spans_by(Latest(10), is_timestamp=False)
>>> of_left(100), of_right(95)
([(90, 100)], [(95, 105)])
>>> of_left, _ = spans_by(Windowing(60, 30), is_timestamp=False)
>>> of_left(100)
[(60, 119), (90, 149)]

Columns of both sides are named as pandas' ``merge`` does it: those of the key once, and those that both sides have with
a suffix.

>>> names_of_both("J", ("k", "a", "b"), ("b", "k", "c"), on=("k",), suffixes=("_x", "_y"))
(('k', 'a', 'b_x'), ('b_y', 'k', 'c'))
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import pyarrow as pa

from fries_nb.dataflow.windowing import (
    UNIT,
    ShiftedWindowing,
    WindowFunction,
    Windowing,
    checked_windowing,
    ends_of,
    is_duration,
    ticks,
)
from fries_nb.errors import DataflowError

HOWS = ("inner", "left", "right", "full")
_FIRST, _LAST = -(2**63), 2**63 - 1
"""The least and the greatest time."""


@dataclass(frozen=True, slots=True)
class Within:
    """The times of rows of the right side: from ``before`` a left row's time to ``after`` it, both included."""

    before: float = 0
    after: float = 0


@dataclass(frozen=True, slots=True)
class Latest:
    """The newest row of the right side that is not later than a left row, and at most so much older."""

    tolerance: float | None = None  # ``None`` for any age


Bounds = Within | Latest | Windowing
Span = tuple[int, int]
Spans = Callable[[int], list[Span]]
"""The spans of a row, given its time."""


def within(before: float = 0, after: float = 0) -> Within:
    """New bounds of a ``join_within``, for ``fn.Update(function, windows=fn.within(before=120))``.

    Args:
        before: see ``join_within``.
        after: see ``join_within``.

    Returns:
        A description for ``Update``.
    """
    return Within(before, after)


def latest(tolerance: float | None = None) -> Latest:
    """The new tolerance of a ``join_latest``, for ``fn.Update(function, windows=fn.latest(tolerance=60))``.

    Args:
        tolerance: see ``join_latest``.

    Returns:
        A description for ``Update``.
    """
    return Latest(tolerance)


@dataclass(frozen=True)
class StreamJoin(WindowFunction):
    """What a join of two streams runs: its bounds, and what it makes of a pair.

    ``function`` is the user's, of the two rows of a pair, or ``None`` to merge both; ``windowing`` are the bounds, or
    ``None`` in a change that keeps those before.
    """

    windowing: Any = None
    how: str = "inner"
    suffixes: tuple[str, str] = ("_x", "_y")
    left: pa.Schema | None = None  # the columns of the left side if they are known; the type null stands for any
    right: pa.Schema | None = None

    def __call__(self, left: dict[str, Any] | None, right: dict[str, Any] | None) -> Any:
        """What the user's function makes of a pair."""
        return self.function(left, right)

    def keeps(self, is_left: bool) -> bool:
        """Whether rows of this side leave without a partner, if they have found none."""
        return self.how in ("full", "left" if is_left else "right")

    def told(self, is_left: bool) -> pa.Schema | None:
        """The columns of this side, if they were known when it was declared."""
        return self.left if is_left else self.right


def spans_by(bounds: Bounds, is_timestamp: bool) -> tuple[Spans, Spans]:
    """The spans of rows of the left side, and those of the right side, in the unit of times."""
    if isinstance(bounds, Windowing):
        size, every = bounds.bounds(is_timestamp)
        shift = bounds.shift(is_timestamp) if isinstance(bounds, ShiftedWindowing) else 0

        def windows(t: int) -> list[Span]:
            return [(shift + end - size, shift + end - 1) for end in ends_of(t - shift, size, every)]

        return windows, windows
    if isinstance(bounds, Latest):
        if bounds.tolerance is None:
            return (lambda t: [(_FIRST, t)]), (lambda t: [(t, _LAST)])
        back, ahead = _ticks(bounds.tolerance, is_timestamp), 0
    else:
        back, ahead = _ticks(bounds.before, is_timestamp), _ticks(bounds.after, is_timestamp)
    return (lambda t: [(t - back, min(t + ahead, _LAST))]), (lambda t: [(t - ahead, min(t + back, _LAST))])


def _ticks(duration: float, is_timestamp: bool) -> int:
    """A bound in the unit of times; of integers those that are not beyond it."""
    return ticks(duration, True) if is_timestamp else math.floor(duration)


def described(bounds: Bounds) -> str:
    """The bounds in words.

    >>> described(Within(60)), described(Latest()), described(Latest(5))
    ('within(before=60, after=0)', 'latest(tolerance=None)', 'latest(tolerance=5)')
    """
    if isinstance(bounds, Within):
        return f"within(before={bounds.before!r}, after={bounds.after!r})"
    if isinstance(bounds, Latest):
        return f"latest(tolerance={bounds.tolerance!r})"
    return repr(bounds)


def checked_bounds(name: str, bounds: object, expected: type[Bounds]) -> Bounds:
    """The validated bounds of a join of two streams, which are of the type that it was declared with.

    Raises:
        DataflowError: they are others, or negative, infinite or no numbers; names the operator.
    """
    if issubclass(expected, Windowing):
        found = checked_windowing(name, bounds)
        if not isinstance(found, Windowing):
            raise DataflowError(
                f"join {name!r} has {found!r} as its windows; expected fn.tumbling or fn.sliding without a timezone, "
                "whose windows have one length and are those of both sides"
            )
        return found
    if not isinstance(bounds, expected):
        one = "fn.within(before=..., after=...)" if expected is Within else "fn.latest(tolerance=...)"
        raise DataflowError(f"join {name!r} has {bounds!r} as its bounds; expected {one}")
    assert isinstance(bounds, Within | Latest), "windows are checked above"
    given: dict[str, Any] = {"tolerance": bounds.tolerance} if isinstance(bounds, Latest) else {
        "before": bounds.before, "after": bounds.after
    }  # fmt: skip
    for what, value in given.items():
        if what == "tolerance" and value is None:
            continue
        if not is_duration(value) or not math.isfinite(value):
            more = ", or None for no limit" if what == "tolerance" else ""
            raise DataflowError(
                f"join {name!r} has {what}={value!r}; expected a finite number of 0 or more, {UNIT}{more}"
            )
    return bounds


def checked_how(name: str, how: object, among: Sequence[str] = HOWS) -> str:
    """The validated ``how`` of a join.

    Raises:
        DataflowError: it is none of these.
    """
    if how not in among:
        raise DataflowError(f"join {name!r} has how={how!r}; expected {', '.join(map(repr, among))}")
    return str(how)


def checked_suffixes(name: str, suffixes: object) -> tuple[str, str]:
    """The validated suffixes of a join.

    Raises:
        DataflowError: they are not two strings, or are alike, so that columns of both sides would have one name.
    """
    pair = tuple(suffixes) if isinstance(suffixes, tuple | list) else ()
    if len(pair) != 2 or not all(isinstance(one, str) for one in pair):
        raise DataflowError(f"join {name!r} has suffixes={suffixes!r}; expected two strings, as in ('_x', '_y')")
    if pair[0] == pair[1]:
        raise DataflowError(
            f"join {name!r} has suffixes={suffixes!r}, with which columns of both sides would have one name; expected "
            "two that differ, as in ('_x', '_y')"
        )
    return pair


@lru_cache(maxsize=256)
def names_of_both(
    name: str, left: tuple[str, ...], right: tuple[str, ...], on: tuple[str, ...], suffixes: tuple[str, str]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What the columns of both sides are called behind a join, in their order; those of the key have their own name.

    Raises:
        DataflowError: two columns would have one name.
    """
    both = set(left) & set(right) - set(on)
    named = [
        tuple(column + suffix if column in both else column for column in columns)
        for columns, suffix in zip((left, right), suffixes, strict=True)
    ]
    made = [*named[0], *(column for column in named[1] if column not in on)]
    if twice := sorted({column for column in made if made.count(column) > 1}):
        raise DataflowError(
            f"join {name!r} would have two columns {twice[0]!r} with suffixes={suffixes!r}; expected others, or "
            "another name for a column in front of it"
        )
    return named[0], named[1]


def check_sides(name: str, join: StreamJoin, left: pa.Schema, right: pa.Schema, on: tuple[str, ...]) -> None:
    """Refuse two sides whose keys are of different types, or whose columns cannot be named.

    Args:
        name: name of the join.
        join: the join.
        left: the columns of the left side, as far as known; the type null stands for any.
        right: those of the right side.
        on: the columns of the key.

    Raises:
        DataflowError: the types of a column of the key differ; two columns would have one name; or rows that find no
            partner could not be named, since columns that both sides have are known from rows only.
    """
    for column in on:
        one, other = (side.field(column).type for side in (left, right))
        if pa.null() not in (one, other) and _family(one) != _family(other):
            raise DataflowError(
                f"join {name!r}: column {column!r} is {one} on the left side and {other} on the right; expected one "
                "type, since rows are joined by equal values"
            )
    if join.function is not None:
        return
    names_of_both(name, tuple(left.names), tuple(right.names), on, join.suffixes)
    both = [column for column in left.names if column in right.names and column not in on]
    unknown = [side for side, is_left in (("left", True), ("right", False))
               if join.keeps(not is_left) and join.told(is_left) is None]  # fmt: skip
    if both and unknown:
        raise DataflowError(
            f"join {name!r} with how={join.how!r} has the column {both[0]!r} on both sides, and a row without partner "
            f"would get its name before the columns of the {' and the '.join(unknown)} side are known; expected "
            "another name for it in front of the join, function=..., or sources of tables without maps in between"
        )


def _family(kind: pa.DataType) -> str:
    """Types of equal families have equal values: integers of any width, texts, instants."""
    while pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
        kind = kind.value_type
    if pa.types.is_timestamp(kind):
        return "timestamp" if kind.tz is None else "timestamp with a time zone"
    for family, belongs in _FAMILIES.items():
        if belongs(kind):
            return family
    return str(kind)


_FAMILIES: dict[str, Callable[[pa.DataType], bool]] = {
    "integer": pa.types.is_integer,
    "text": lambda kind: pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind),
    "bytes": lambda kind: (
        pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind)
        or pa.types.is_fixed_size_binary(kind)
    ),
    "date": pa.types.is_date,
}  # fmt: skip
