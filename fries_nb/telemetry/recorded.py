"""What a run has recorded, in order: a tuple of values that is also a DataFrame.

>>> from fries_nb.telemetry.history import Point
>>> latency = Recorded.of(Point, [Point(0.25, 4.0, 9.0, 2_000.0)])
>>> latency[0].p99_ms, len(latency)
(9.0, 1)
>>> latency.to_pandas().reset_index().to_dict("records")
[{'at': Timestamp('1970-01-01 00:00:00.250000+0000', tz='UTC'), 'p50_ms': 4.0, 'p99_ms': 9.0, 'rate': 2000.0}]
>>> Recorded.of(Point, []).to_pandas().columns.tolist()
['p50_ms', 'p99_ms', 'rate']
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from typing import Any, TypeVar

T = TypeVar("T")

Row = Mapping[str, Any]
"""Column to value."""


class Recorded(tuple[T, ...]):
    """Values in order, the oldest first: a tuple, with ``to_pandas()`` for the same as a DataFrame."""

    _columns: Mapping[str, str | None]
    _rows: Callable[[T], Iterable[Row]]

    def __new__(
        cls, values: Iterable[T], columns: Mapping[str, str | None], rows: Callable[[T], Iterable[Row]]
    ) -> Recorded[T]:
        """Values whose frame has these columns, with their pandas types where these differ, and these rows for each."""
        recorded = super().__new__(cls, values)
        recorded._columns, recorded._rows = columns, rows
        return recorded

    def __getnewargs__(self) -> tuple[Any, ...]:
        """What a copy is made of."""
        return tuple(self), self._columns, self._rows

    @staticmethod
    def of(kind: type[T], values: Iterable[T]) -> Recorded[T]:
        """Values of a dataclass, a row each; its frame has the fields that its ``repr`` shows."""
        shown = [field for field in fields(kind) if field.repr]  # type: ignore[arg-type]
        types = {field.name: "Int64" if field.type == "int | None" else None for field in shown}
        return Recorded(values, types, _one_row)

    def to_pandas(self) -> Any:
        """The values as a pandas DataFrame: by ``at`` in UTC if they have times, otherwise numbered."""
        from pandas import DataFrame, to_datetime  # takes longer to import than all of fries_nb's own modules

        frame = DataFrame([row for value in self for row in self._rows(value)], columns=[*self._columns])
        frame = frame.astype({name: kind for name, kind in self._columns.items() if kind is not None})
        if "at_s" not in self._columns:
            return frame
        at = to_datetime(frame.pop("at_s"), unit="s", utc=True).rename("at")
        return frame.set_index(at)


def _one_row(value: Any) -> Iterable[Row]:
    return [{field.name: getattr(value, field.name) for field in fields(value) if field.repr}]
