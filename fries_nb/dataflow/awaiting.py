"""Operators whose function is a coroutine: how their calls overlap.

Most of the time of such a call is spent on waiting for a service, so a worker has many of them *in flight*. Rows of one
key are called one after the other, whatever the rest does. A change lets the calls end that have begun, and begins none
by the old function behind it; with ``on_change="retry"`` it cancels them instead, and the new function is called with
their rows.

>>> async def scored(row):
...     return row | {"score": 1}
>>> awaiting_of("FM", scored, CallOptions(concurrency=8))
Awaiting(concurrency=8, timeout_s=None, ordered=True, on_change='finish')
>>> awaiting_of("FM", lambda row: row, CallOptions(concurrency=8))
Traceback (most recent call last):
...
fries_nb.errors.DataflowError: operator 'FM' has concurrency=8 and a plain function, whose calls do not overlap; ...
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from fries_nb.dataflow.arguments import YEAR_S, is_duration
from fries_nb.dataflow.operators import is_awaited
from fries_nb.errors import DataflowError

CONCURRENCY = 64
"""Number of rows in flight at a worker, unless another one is declared."""
MOST_CONCURRENT = 10_000
"""Maximum number of rows in flight: each is a task of one event loop, and in memory."""

OnChange = Literal["finish", "retry"]


@dataclass(frozen=True, slots=True)
class Awaiting:
    """How the calls of a coroutine function overlap at each worker of an operator."""

    concurrency: int = CONCURRENCY  # most rows that have begun and have not left
    timeout_s: float | None = None  # seconds after which a call counts as failed; ``None`` for no limit
    ordered: bool = True  # whether rows leave in the order in which they came, else as calls end
    on_change: OnChange = "finish"  # whether a change lets calls in flight end, or cancels them and calls again

    def __str__(self) -> str:
        """The arguments, as they are declared."""
        limit = "" if self.timeout_s is None else f", timeout={self.timeout_s:g}"
        return f"concurrency={self.concurrency}{limit}, ordered={self.ordered}, on_change={self.on_change!r}"


@dataclass(frozen=True, slots=True)
class CallOptions:
    """The arguments of a declaration that are of coroutines only, as they were given."""

    concurrency: object = None
    timeout: object = None
    ordered: object = True
    on_change: object = "finish"

    @property
    def first_given(self) -> str:
        """One that differs from its default, for a message; empty if none does."""
        given = ((name, getattr(self, name)) for name in ("concurrency", "timeout", "ordered", "on_change"))
        return next((f"{name}={value!r}" for name, value in given if value != getattr(DEFAULTS, name)), "")


DEFAULTS = CallOptions()
"""Those of a declaration that gives none."""


def awaiting_of(name: str, function: object, options: CallOptions) -> Awaiting | None:
    """How the calls of an operator overlap; ``None`` for a plain function.

    Args:
        name: name of the operator.
        function: its function, which the operator can run.
        options: the arguments of its declaration.

    Raises:
        DataflowError: the function is plain and an argument is of coroutines only, or an argument is invalid.
    """
    if not is_awaited(function):
        if options.first_given:
            raise DataflowError(
                f"operator {name!r} has {options.first_given} and a plain function, whose calls do not overlap; "
                "expected a coroutine, as in async def process(self, row)"
            )
        return None
    count = CONCURRENCY if options.concurrency is None else options.concurrency
    if not isinstance(count, int) or isinstance(count, bool) or not 1 <= count <= MOST_CONCURRENT:
        raise DataflowError(
            f"operator {name!r} has concurrency={options.concurrency!r}; expected a whole number of rows in flight at "
            f"a worker, 1 to {MOST_CONCURRENT:,}"
        )
    timeout = options.timeout
    if timeout is not None and not is_duration(timeout):
        raise DataflowError(
            f"operator {name!r} has timeout={timeout!r}; expected seconds, more than 0 and at most {YEAR_S:,}, or None "
            "for no limit"
        )
    if not isinstance(options.ordered, bool):
        raise DataflowError(f"operator {name!r} has ordered={options.ordered!r}; expected True or False")
    if options.on_change not in ("finish", "retry"):
        raise DataflowError(
            f"operator {name!r} has on_change={options.on_change!r}; expected 'finish', which lets calls in flight "
            "end, or 'retry', which cancels them and calls the new function with their rows"
        )
    limit = float(timeout) if isinstance(timeout, (int, float)) else None
    return Awaiting(count, limit, options.ordered, "retry" if options.on_change == "retry" else "finish")
