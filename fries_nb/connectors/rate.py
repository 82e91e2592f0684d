"""A source that generates rows: ``value`` 0, 1, 2, ..., ``timestamp``, and the columns that a function adds.

>>> source = RateSource(count=5)
>>> reader = source.open(source.splits(2)[1], Position())
>>> reader.read(10, 0).to_pydict(), reader.position
({'value': [1, 3]}, None)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa

from fries_nb.connectors.source import DueTimes, Position, RuntimeReader, RuntimeSource, Split
from fries_nb.dataflow.columns import HIDDEN
from fries_nb.errors import SourceError
from fries_nb.operators.conversion import NOT_ARROW, to_arrow


class RateSource(RuntimeSource):
    """Rows with ascending values from 0; split s of n has the values s, s + n, ..."""

    def __init__(self, count: int | None = None, row: Callable[[int], Mapping[str, Any]] | None = None) -> None:
        self._count = count  # number of rows; ``None`` for an unbounded source
        self._row = row  # returns further columns for a value; a column is null in rows that lack it
        self._types: dict[str, pa.DataType] = {}

    def splits(self, count: int) -> list[Split]:
        """Divide the values among splits, round robin; see ``Source``."""
        return [Split(number, None, number, count) for number in range(count)]

    def open(self, split: Split, position: Position) -> RateReader:
        """Open a reader that generates the values of one split; see ``Source``."""
        return RateReader(split.first, split.step, self.rows_of(split), position)

    def rows_of(self, split: Split) -> float:
        """The number of rows of a split; infinite for an unbounded source."""
        return math.inf if self._count is None else max(0, math.ceil((self._count - split.first) / split.step))

    def row_at(self, split: Split, number: int) -> dict[str, Any]:
        """The row of a value, but for its due time."""
        value = split.place(number)
        return {"value": value} | (dict(_made(self._row, value)) if self._row is not None else {})

    def with_due_times(self, batch: pa.RecordBatch, due: DueTimes) -> pa.RecordBatch:
        """Add the due times as ``timestamp``, then the columns of ``row``."""
        values = batch.column("value")
        return pa.record_batch({"value": values, "timestamp": due} | self._further(values))

    def _further(self, values: pa.Array) -> dict[str, pa.Array]:
        if self._row is None:
            return {}
        rows = [_made(self._row, value) for value in values.to_pylist()]
        columns: dict[str, pa.Array] = {}
        for name in dict.fromkeys(chain.from_iterable(rows)):
            if name in HIDDEN:
                raise SourceError(f"row= of rate gave the column {name!r}, a name for the runtime's own use; rename it")
            try:
                columns[name] = to_arrow([row.get(name) for row in rows], self._types.get(name))
            except NOT_ARROW as error:
                why = str(error).splitlines()[0]
                raise SourceError(f"row= of rate gave values that make no column {name!r}: {why}") from error
        self._types = self._types | {name: column.type for name, column in columns.items()}
        return columns


def _made(row: Callable[[int], Mapping[str, Any]], value: int) -> Mapping[str, Any]:
    columns = row(value)
    if not isinstance(columns, Mapping):
        got = type(columns).__name__
        raise SourceError(f"row= of rate returned a {got} for the value {value:,}; expected a dict of further columns")
    return columns


class RateReader(RuntimeReader):
    """Generates the values of one split: row r is ``first + r * step``."""

    def __init__(self, first: int, step: int, rows: float, position: Position) -> None:
        self._first = first  # value of row 0
        self._step = step
        self._rows = rows  # number of rows of the split
        # position of the first row to read
        self.position = position if position.row < self._rows else None  # position of the next row; see ``SplitReader``

    def read(self, limit: int, now_ns: int) -> pa.RecordBatch:
        """The next values; see ``SplitReader``."""
        assert self.position is not None, "a split is not read at its end"
        first = self.position.row
        last = int(min(first + limit, self._rows))
        values = np.arange(first, last, dtype=np.int64) * self._step + self._first
        self.position = Position(last) if last < self._rows else None
        return pa.record_batch({"value": values})
