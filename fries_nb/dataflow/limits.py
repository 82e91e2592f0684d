"""The duration of a change's guard, in seconds or in tuples; and how long it may wait for loops.

>>> checked_limit(5), checked_limit(tuples(1_000)), checked_limit(None)
(5.0, Tuples(count=1000), None)
>>> checked_limit(-1)
Traceback (most recent call last):
...
fries_nb.errors.PlanError: guard=-1: expected seconds, more than 0 and at most a year, or fn.tuples(number)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fries_nb.errors import PlanError

YEAR_S = 366 * 86_400


@dataclass(frozen=True)
class Tuples:
    """A duration measured in tuples.

    Attributes:
        count: tuples processed by each target operator.
    """

    count: int


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
    """The validated value of ``guard=``; ``None`` means no guard.

    Raises:
        PlanError: the value is neither a positive number of seconds nor ``fn.tuples(number)``.
    """
    if guard is None or isinstance(guard, Tuples):
        return guard
    if is_duration(guard):
        return float(guard)
    raise PlanError(f"guard={guard!r}: expected seconds, more than 0 and at most a year, or fn.tuples(number)")


def checked_timeout(timeout: Any) -> float | None:
    """The validated value of ``timeout=`` of a change; ``None`` means no limit.

    Raises:
        PlanError: the value is not a positive number of seconds.
    """
    if timeout is None:
        return None
    if is_duration(timeout):
        return float(timeout)
    raise PlanError(f"timeout={timeout!r}: expected seconds, more than 0 and at most a year, or None for no limit")


def shown_limit(limit: Limit) -> str:
    """The limit as text for a sentence: ``5 s``, ``1,000 tuples``."""
    return f"{limit.count:,} tuples" if isinstance(limit, Tuples) else f"{limit:g} s"
