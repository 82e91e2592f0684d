"""State that ends: a keyed function whose state of a key is forgotten when the key was silent for a while.

Time is that of the rows. ``expiring`` makes a timed function of a keyed one: each row calls for the end of its key, and
the last of these ends counts. So the ends of keys are entries of the operator's agenda, and are in checkpoints and move
with their keys as those of any timed function.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from math import isfinite
from typing import Any

from fries_nb.dataflow.keys import why_unchangeable
from fries_nb.dataflow.operators import is_awaited, is_generator, takes_state, takes_time
from fries_nb.errors import DataflowError


@dataclass(frozen=True)
class Expiring:
    """A keyed function, and how long it keeps the state of a key without a row; made by ``expiring``.

    The state of a key is a dict of ``state``, that of the function, and ``until``, the time at which it is forgotten.
    """

    function: Any
    ttl: float

    def open(self) -> None:
        """Open the function, if it has something to open."""
        opened = getattr(self.function, "open", None)
        if opened is not None:
            opened()

    def initial_state(self) -> dict[str, Any]:
        """The function's state of a key that has no row yet."""
        made = getattr(self.function, "initial_state", dict)
        return {"state": made(), "until": None}

    def process(self, row: Any, state: dict[str, Any], at: Any) -> Any:
        """Process a row, which renews its key."""
        result = self.function.process(row, state["state"])
        until = at.time + (timedelta(seconds=self.ttl) if isinstance(at.time, datetime) else self.ttl)
        at.call(until)
        if state["until"] is None or state["until"] < until:
            state["until"] = until
        return result

    def due(self, key: Any, time: Any, state: dict[str, Any]) -> Any:
        """What the function makes of a key that ends; nothing if a newer row has renewed it."""
        ended = getattr(self.function, "on_expire", None)
        if ended is None or state["until"] is None or not self.is_over(time, state):
            return None
        return ended(key, state["state"])

    def is_over(self, time: Any, state: dict[str, Any]) -> bool:
        """Whether the state is to be forgotten, when no row of this time can come any more."""
        return state["until"] is None or state["until"] <= time


def expiring(function: Any, ttl: float) -> Expiring:
    """A keyed function that forgets a key for which no row has come for a while, by the time of rows.

    A key whose newest row is of the time T is forgotten when no row of ``T + ttl`` can come any more; a row that comes
    later begins it anew. If the function has ``on_expire(key, state)``, that is called first, and makes a row, rows, or
    ``None``, as ``due`` of timed functions does. A replaced ``ttl`` holds for a key from its next row on, and never
    shortens the time that its earlier rows were given.

    Args:
        function: an object with ``process(row, state)``, for ``map`` or ``flat_map`` with ``key=`` behind sources with
            ``time=``. State by processing time is not built yet.
        ttl: seconds if the sources' times are timestamps, otherwise units of their integers; more than 0.

    Returns:
        The function to give to the operator, or to ``run.reconfigure``.

    Raises:
        DataflowError: ``ttl`` is no number above 0, or the function keeps no state, yields or awaits its rows, is timed
            itself, or has a state that cannot change in place.
    """
    is_number = isinstance(ttl, int | float) and not isinstance(ttl, bool)
    if not is_number or not isfinite(ttl) or ttl <= 0:
        raise DataflowError(
            f"expiring() has ttl={ttl!r}; expected a finite number above 0, in seconds or units of the source's "
            "integer times"
        )
    if isinstance(function, Expiring) or not takes_state(function):
        raise DataflowError(
            f"expiring() got {type(function).__name__}, which keeps no state that could end; expected an object with "
            "process(row, state)"
        )
    if takes_time(function):
        raise DataflowError(
            "expiring() got a timed function, with process(row, state, at); expected process(row, state)"
        )
    if is_awaited(function) or is_generator(function):
        what = "awaits" if is_awaited(function) else "yields"
        raise DataflowError(f"expiring() got a function that {what} its rows; expected one that returns them")
    ended = getattr(function, "on_expire", None)
    if ended is not None and not callable(ended):
        raise DataflowError(f"expiring() got on_expire={ended!r}; expected a method on_expire(key, state)")
    made = Expiring(function, ttl)
    if why := why_unchangeable(made.initial_state()["state"]):
        raise DataflowError(f"expiring(): initial_state() returns {why}")
    return made
