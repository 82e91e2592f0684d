"""How long a change is under guard: so many seconds, or tuples.

>>> checked_limit(5), checked_limit(tuples(1_000)), checked_limit(None)
(5.0, Tuples(count=1000), None)
>>> checked_limit(-1)
Traceback (most recent call last):
...
fries_nb.errors.PlanError: guard=-1: expected seconds, more than 0, or fn.tuples(number)
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Any

from fries_nb.errors import PlanError


@dataclass(frozen=True)
class Tuples:
    """A number of tuples, as a limit."""

    count: int


Limit = float | Tuples


def tuples(count: int) -> Tuples:
    """So many tuples, for ``run.reconfigure(..., guard=fn.tuples(1_000))``: each target operator's, as workers report.

    Raises:
        PlanError: not a whole number, 1 or more.
    """
    if not isinstance(count, int) or isinstance(count, bool) or count < 1:
        raise PlanError(f"fn.tuples({count!r}): expected a whole number of tuples, 1 or more")
    return Tuples(count)


def checked_limit(guard: Any) -> Limit | None:
    """What was given as ``guard=``; ``None`` is no guard.

    Raises:
        PlanError: it is no limit.
    """
    if guard is None or isinstance(guard, Tuples):
        return guard
    if isinstance(guard, (int, float)) and not isinstance(guard, bool) and 0 < guard < inf:
        return float(guard)
    raise PlanError(f"guard={guard!r}: expected seconds, more than 0, or fn.tuples(number)")


def shown_limit(limit: Limit) -> str:
    """In a sentence: ``5 s``, ``1,000 tuples``."""
    return f"{limit.count:,} tuples" if isinstance(limit, Tuples) else f"{limit:g} s"
