"""State that ends: a map or flat_map with ``ttl=`` forgets a key for which no row has come for so long.

Time is that of the rows. Each row puts off the end of its key, which is an entry of the operator's agenda (see
``progress.agenda.EndAgenda``). So the user's state is kept as it is, and ends are in checkpoints and move with their
keys as all entries do. A key is never forgotten too early; it lasts longer where rows run ahead of the frontier, since
a row that comes before its key has ended finds it as it is.

>>> class Counter:
...     def process(self, row, state):
...         state["n"] = state.get("n", 0) + 1
...         return row | state
...
...     def on_expire(self, key, state):
...         return {"k": key, "n": state["n"]}
>>> from fries_nb.dataflow.windowing import following
>>> one, other = Expiring(Counter(), 3600), Expiring(Counter(), None)  # that of a change which keeps the ttl
>>> one.lasts(is_timestamp=True), following(one, other).ttl
(3600000000000, 3600)
>>> checked_ttl("C", "1h")
Traceback (most recent call last):
fries_nb.errors.DataflowError: operator 'C' has ttl='1h'; expected a number above 0, in seconds or, if times are ...
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fries_nb.dataflow.windowing import UNIT, ConfiguredFunction, is_positive, ticks
from fries_nb.errors import DataflowError


@dataclass(frozen=True)
class Expiring(ConfiguredFunction):
    """What a map or flat_map with ``ttl=`` runs: a keyed function, and how long a key lasts without a row."""

    SETTING = "ttl"

    ttl: float | None  # seconds or units of integer times; ``None`` in a change that keeps that before

    @property
    def initial_state(self) -> Any:
        """What makes the state of a key that has no row yet, if the function has it."""
        return self.function.initial_state

    def lasts(self, is_timestamp: bool) -> int:
        """How long a key lasts, in the unit of times."""
        assert self.ttl is not None, "it was taken over when the function was installed"
        return ticks(self.ttl, is_timestamp)


def checked_ttl(operator: str, ttl: object) -> float:
    """The validated duration of ``ttl=``.

    Raises:
        DataflowError: it is no number above 0; names the operator.
    """
    if not is_positive(ttl):
        raise DataflowError(f"operator {operator!r} has ttl={ttl!r}; expected a number above 0, {UNIT}")
    return ttl
