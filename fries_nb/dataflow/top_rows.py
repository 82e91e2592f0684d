"""The best rows of each window: the function of ``Stream.top``.

>>> best = top(2, by="price")
>>> state = best.initial_state()
>>> for price, bidder in [(5, "b"), (9, "c"), (5, "a"), (None, "d")]:
...     best.process({"price": price, "bidder": bidder}, state)
>>> best.close(("auction",), 60, state)
[{'price': 9, 'bidder': 'c'}, {'price': 5, 'bidder': 'a'}]
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Mapping
from dataclasses import dataclass
from functools import total_ordering
from typing import Any

from fries_nb.dataflow.arguments import Columns, columns_of
from fries_nb.errors import DataflowError, OperatorError


@total_ordering
class _Descending:
    """A value in the opposite order."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Descending) and bool(self.value == other.value)

    def __lt__(self, other: _Descending) -> bool:
        return bool(other.value < self.value)

    __hash__ = None  # type: ignore[assignment]  # it orders rows, and is no key


@dataclass(frozen=True)
class TopRows:
    """Keeps the best rows of a window; made by ``top``.

    A window keeps ``n``, ``by`` and the direction with which it was opened: a change to more rows could not bring back
    those that it has let go.
    """

    n: int
    by: tuple[str, ...]
    smallest: bool = False
    rank: str | None = None
    end: str | None = None

    def initial_state(self) -> dict[str, Any]:
        """No rows, and what decides which are kept."""
        return {"n": self.n, "by": self.by, "smallest": self.smallest, "rows": []}

    def process(self, row: Mapping[str, Any], state: dict[str, Any]) -> None:
        """Keep a row if it is one of the best."""
        _keep(dict(row), state)

    def merge(self, state: dict[str, Any], other: dict[str, Any]) -> None:
        """Keep the best rows of two sessions, as the earlier of both was opened."""
        for row in other["rows"]:
            _keep(row, state)

    def close(self, key: Any, time: Any, state: dict[str, Any]) -> list[dict[str, Any]]:
        """The rows, the best first."""
        found = []
        for rank, row in enumerate(state["rows"], 1):
            more = {name: value for name, value in ((self.rank, rank), (self.end, time)) if name is not None}
            if clash := sorted(more.keys() & row.keys()):
                raise OperatorError(f"the rows have a column {clash[0]!r}; expected new names as rank= and end=")
            found.append({**row, **more})
        return found


def _keep(row: dict[str, Any], state: dict[str, Any]) -> None:
    by, smallest, rows = state["by"], state["smallest"], state["rows"]

    def place(one: dict[str, Any]) -> tuple[Any, ...]:
        return (*(_ordered(one, name, smallest) for name in by), *(_text(one, name) for name in sorted(one)))

    try:
        if len(rows) == state["n"] and not place(row) < place(rows[-1]):
            return
        insort(rows, row, key=place)
    except TypeError as error:
        expected = "expected numbers, text or times"
        raise OperatorError(f"rows cannot be ordered by {', '.join(by)}: {error}; {expected}") from None
    del rows[state["n"] :]


def _ordered(row: dict[str, Any], name: str, smallest: bool) -> tuple[bool, Any]:
    """A value of ``by``; null and NaN are worse than all others."""
    if name not in row:
        has = ", ".join(sorted(row))
        raise OperatorError(f"a row has no column {name!r}, by which the best are found; it has {has}")
    value = row[name]
    if value is None or value != value:
        return (True, 0)
    return (False, value if smallest else _Descending(value))


def _text(row: dict[str, Any], name: str) -> tuple[bool, str, Any]:
    """A value by which rows that are equally good are ordered: numbers as such, all others as text; null is last."""
    value = row[name]
    if isinstance(value, int | float) and value == value:
        return (False, "", value)
    return (value is None, type(value).__name__, str(value))


def top(n: int, by: Columns, smallest: bool = False, rank: str | None = None, end: str | None = None) -> TopRows:
    """The function of ``stream.top``, by which it is changed: ``run.reconfigure({"T": fn.top(5, by="price")})``.

    Windows that are open keep the number and the order with which they were opened.

    Args:
        n: number of rows that are kept.
        by: column or columns; see ``Stream.top``.
        smallest: see ``Stream.top``.
        rank: see ``Stream.top``.
        end: see ``Stream.top``.

    Returns:
        A function for ``window`` and ``Update``.

    Raises:
        DataflowError: ``n`` is no number of 1 or more; ``by`` names no column; a name is no text, or given twice.
    """
    if isinstance(n, bool) or not isinstance(n, int) or n < 1:
        raise DataflowError(f"top keeps n={n!r} rows; expected a whole number of 1 or more")
    columns = columns_of("top", by)
    if not columns:
        raise DataflowError("top has no by=, which says which rows are best; expected by=<column>")
    if not isinstance(smallest, bool):
        raise DataflowError(f"top has smallest={smallest!r}; expected True or False")
    for name, value in (("rank", rank), ("end", end)):
        if value is not None and (not isinstance(value, str) or not value):
            raise DataflowError(f"top has {name}={value!r}; expected the name of a new column")
    if rank is not None and rank == end:
        raise DataflowError(f"top has rank={rank!r} and end={end!r}; expected two names")
    return TopRows(n, columns, smallest, rank, end)
