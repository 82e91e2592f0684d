"""Validation and normalisation of arguments of declarations.

The duration of a change's guard, in seconds or in tuples; and how long it may wait for loops.

>>> checked_limit(5), checked_limit(tuples(1_000)), checked_limit(None)
(5.0, Tuples(count=1000), None)
>>> checked_limit(-1)
Traceback (most recent call last):
...
fries_nb.errors.PlanError: guard=-1: expected seconds, more than 0 and at most a year, or fn.tuples(number)
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fries_nb.errors import DataflowError, PlanError, SourceError

Columns = str | Sequence[str]
MOST_WORKERS = 1_024
"""Maximum number of workers of an operator, as many as there are bins of keys: further ones would get no row."""


@dataclass(frozen=True)
class Identity:
    """A column that identifies the tuples of one source, on a stream with at most one row for each of them."""

    source: str
    column: str


def check_workers(operator: str, workers: object) -> None:
    """Check the number of workers of an operator."""
    if not isinstance(workers, int) or isinstance(workers, bool) or workers < 1:
        raise DataflowError(f"operator {operator!r} has workers={workers!r}; expected 1 or more")
    if workers > MOST_WORKERS:
        most = f"expected {MOST_WORKERS:,} at most, as many as there are bins of keys"
        raise DataflowError(f"operator {operator!r} has workers={workers!r}; {most}")


def is_identity(key: tuple[str, ...], *sides: Identity | None) -> bool:
    """Whether the key is the identity of all these streams, so that the rows of each have distinct keys."""
    first = sides[0]
    return first is not None and set(sides) == {first} and key == (first.column,)


def columns_of(name: str, given: Columns | None) -> tuple[str, ...]:
    """A key as a tuple of column names, empty for none."""
    if given is None:
        return ()
    columns = (given,) if isinstance(given, str) else tuple(given) if isinstance(given, Sequence) else (given,)
    for column in columns:
        if not isinstance(column, str) or not column:
            raise DataflowError(f"operator {name!r} has the key {given!r}; expected a column name, or several")
    if not columns or len(set(columns)) < len(columns):
        raise DataflowError(f"operator {name!r} has the key {given!r}; expected column names, each once")
    return columns


def needed_columns(kind: str, name: str, on: Columns) -> tuple[str, ...]:
    """The key of a join or a dedup, which must not be empty."""
    key = columns_of(name, on)
    if not key:
        does = "join" if "join" in kind else kind
        raise DataflowError(f"{kind} {name!r} needs the columns to {does} on; got on={on!r}")
    return key


def number_of(what: str, name: str, argument: str, given: object) -> int:
    """The validated number of streams or copies."""
    if not isinstance(given, int) or isinstance(given, bool) or given < 2:
        raise DataflowError(f"{what} {name!r} has {argument}={given!r}; expected {_EXPECTED[argument]}, 2 or more")
    return given


_EXPECTED = {"into": "a number of streams", "n": "a number of copies"}


def checked_suffix(kind: str, name: str, suffix: object) -> str:
    """The validated suffix for columns that both sides of a join have."""
    if not isinstance(suffix, str) or not suffix:
        raise DataflowError(f"{kind} {name!r} has suffix={suffix!r}; expected a non-empty string")
    return suffix


def checked_rate(rate: object) -> float | None:
    """The rate of a source, in rows per second; ``None`` for no limit."""
    if rate is None:
        return None
    if isinstance(rate, bool) or not isinstance(rate, (int, float)) or not 0 < rate <= sys.float_info.max:
        raise SourceError(f"rate is a number of rows a second above 0, or None for flat out; got {rate!r}")
    return float(rate)


def at_rate(rate: float | None) -> str:
    """The rate of a source, for its description; empty without one."""
    if rate is None:
        return ""
    return f", {rate:,.0f} a second" if rate >= 10 else f", {rate:g} a second"


YEAR_S = 366 * 86_400


@dataclass(frozen=True)
class Tuples:
    """A duration measured in tuples."""

    count: int  # tuples processed by each target operator


Limit = float | Tuples


def tuples(count: int) -> Tuples:
    """A guard's duration in tuples, as in ``run.reconfigure(..., guard=fn.tuples(1_000))``.

    Args:
        count: number of tuples that each target operator processes under guard, counted as its workers report them.

    Returns:
        The value for ``guard=``.

    Raises:
        PlanError: ``count`` is not a whole number of at least 1.
    """
    if not isinstance(count, int) or isinstance(count, bool) or count < 1:
        raise PlanError(f"fn.tuples({count!r}): expected a whole number of tuples, 1 or more")
    return Tuples(count)


def is_duration(seconds: object) -> bool:
    """Whether it is a number of seconds, more than 0 and at most a year.

    >>> [is_duration(one) for one in (0.5, 10**400, 0, True, "5")]
    [True, False, False, False, False]
    """
    return isinstance(seconds, (int, float)) and not isinstance(seconds, bool) and 0 < seconds <= YEAR_S


def checked_limit(guard: Any) -> Limit | None:
    """The validated value of ``guard=``; ``None`` means no guard."""
    if guard is None or isinstance(guard, Tuples):
        return guard
    if is_duration(guard):
        return float(guard)
    raise PlanError(f"guard={guard!r}: expected seconds, more than 0 and at most a year, or fn.tuples(number)")


def checked_canary(share: Any, merge: bool, scheduler: str) -> float:
    """The validated value of ``canary=``, which is made by the cut; ``fries`` is the default of all changes."""
    if isinstance(share, bool) or not isinstance(share, int | float) or not 0 < share < 1:
        raise PlanError(f"canary={share!r}: expected the share of rows that are new, more than 0 and less than 1")
    if merge:
        raise PlanError("a canary is a change of its own; expected merge=False")
    if scheduler not in ("fries", "auto", "cut"):
        raise PlanError(f"got a canary with scheduler={scheduler!r}; one is decided row by row, by scheduler='cut'")
    return float(share)


def checked_timeout(timeout: Any) -> float | None:
    """The validated value of ``timeout=`` of a change; ``None`` means no limit."""
    if timeout is None:
        return None
    if is_duration(timeout):
        return float(timeout)
    raise PlanError(f"timeout={timeout!r}: expected seconds, more than 0 and at most a year, or None for no limit")


def checked_seconds(name: str, seconds: Any) -> float:
    """The validated value of an argument that says how long something may take."""
    if not is_duration(seconds):
        raise PlanError(f"{name}={seconds!r}; expected a number above 0, of seconds, and at most a year")
    return float(seconds)


def shown_limit(limit: Limit) -> str:
    """The limit as text for a sentence: ``5 s``, ``1,000 tuples``."""
    return f"{limit.count:,} tuples" if isinstance(limit, Tuples) else f"{limit:g} s"
