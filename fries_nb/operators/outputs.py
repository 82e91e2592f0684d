"""What leaves a chain by one branch: rows, and the batches that rows in front of them have become.

Rows become a batch again: what was written as new columns, all else as the columns that came. The names of columns can
be told apart, by a row and by Spark.

>>> from fries_nb.operators.rows import Reads
>>> columns = Columns(pa.RecordBatch.from_pydict({"amount": [3, 4], "shop": ["a", "b"]}), Reads())
>>> rows = [row | {"double": 2 * row["amount"]} for row in columns.rows()]
>>> assemble(rows[1:], columns, {}).to_pydict()
{'amount': [4], 'shop': ['b'], 'double': [8]}
>>> check_names(("A", "a"), came=())
Traceback (most recent call last):
ValueError: Spark does not tell the columns 'A' and 'a' apart; rename one

Python rows are heavy. Where one tuple may become many, so many of them at most are kept, whatever the tuple becomes.
A tuple that may have to leave nothing behind has its rows and batches apart from those in front of it (a savepoint, to
a database): they join them as a whole, or are dropped, with the types of columns that were learnt of them.

>>> columns = Columns(pa.RecordBatch.from_pydict({"n": [1, 2]}), Reads())
>>> output = Output(lambda rows, types: assemble(rows, columns, types), lambda types: None)
>>> apart = Apart(output)
>>> for row in columns.rows():
...     apart.append(row | {"half": row["n"] / 2})
...     apart.join() if row["n"] == 1 else apart.drop()
>>> output.pack()
>>> [batch.to_pydict() for batch in output.take()]
[{'n': [1], 'half': [0.5]}]
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import chain
from operator import attrgetter, itemgetter
from typing import Any

import pyarrow as pa

from fries_nb.dataflow.columns import alike
from fries_nb.messages import HIDDEN
from fries_nb.operators.conversion import to_arrow
from fries_nb.operators.rows import Columns, Row, WholeRow

MOST_ROWS = 4096
"""So many Python rows that one tuple has become are kept, before they become a batch, which takes a tenth."""

Types = dict[str, pa.DataType]
Results = list[tuple[int, pa.RecordBatch]]
"""Batches that a chain produced, each with the number of the branch that it leaves by."""


class Output(list[Row]):
    """The rows that no batch was made of yet.

    Args:
        assembled: makes a batch of rows, and notes the types of the columns.
        learn: told the types when a batch has been made that will leave; raises an ``OperatorError`` if it must not.

    Attributes:
        batches: made of the rows in front of these.
        types: of the columns that were written to these batches, and before.
    """

    def __init__(self, assembled: Callable[[Sequence[Row], Types], pa.RecordBatch], learn: Callable[[Types], None]):
        super().__init__()
        self.batches: list[pa.RecordBatch] = []
        self.types: Types = {}
        self.assembled = assembled
        self.learn = learn

    def pack(self) -> None:
        """Make a batch of the rows.

        Raises:
            DeclarationError: they make no columns; they stay.
        """
        if self:
            batch = self.assembled(self, self.types)
            self.learn(self.types)
            self.batches.append(batch)
            self.clear()

    def take(self) -> list[pa.RecordBatch]:
        """The batches; from now on there are none."""
        taken, self.batches = self.batches, []
        return taken


class ManyOutputs(Output):
    """The output of a chain in which one tuple may become many."""

    def append(self, row: Row) -> None:
        """Add a row, and pack all of them when there are too many."""
        list.append(self, row)
        if len(self) >= MOST_ROWS:
            self.pack()


class Apart(ManyOutputs):
    """What one tuple becomes, until it is known whether it has failed."""

    def __init__(self, front: Output) -> None:
        super().__init__(front.assembled, lambda types: None)
        self._front = front

    def begin(self) -> None:
        """The next tuple comes; those in front of it may be many enough."""
        self.drop()
        if len(self._front) >= MOST_ROWS:
            self._front.pack()

    def pack(self) -> None:
        """Likewise; what is in front becomes a batch of its own first, with the types that it has by itself."""
        if not self.batches:
            self._front.pack()
            self.types = dict(self._front.types)
        super().pack()

    def join(self) -> None:
        """The tuple has not failed: all of it is behind what is in front."""
        if self.batches:
            self._front.learn(self.types)
            self._front.types = self.types
            self._front.batches += self.take()
        self._front.extend(self)
        self.clear()

    def drop(self) -> None:
        """The tuple has failed, and has left nothing."""
        self.batches.clear()
        self.clear()


def assemble(rows: Sequence[Row], columns: Columns, types: dict[str, pa.DataType]) -> pa.RecordBatch:
    """The rows (at least one) that a chain produced from ``columns`` as one batch, hidden columns carried along.

    ``types`` remembers the types of written columns from batch to batch, so that a column that starts with nulls or
    whole numbers does not change its type without need.

    Raises:
        ValueError, TypeError, OverflowError, pyarrow.ArrowException: a column has no Arrow type, or no proper name.
    """
    origin = _origin(rows, columns.batch)
    whole = WholeRow in set(map(type, rows))
    if not whole and not columns.written:
        return origin
    values = _all_values(rows) if whole else {name: _values(rows, name) for name in columns.written}
    names = [name for name in (values if whole else dict.fromkeys((*columns.names, *values))) if name not in HIDDEN]
    arrays: list[pa.Array] = []
    for name in names:
        if name not in values:
            arrays.append(origin.column(name))
        else:
            known = types.get(name) or (columns.batch.schema.field(name).type if name in columns.names else None)
            arrays.append(to_arrow(values[name], known))
            types[name] = arrays[-1].type
    arrays.extend([origin.column(name) for name in columns.hidden])
    return pa.RecordBatch.from_arrays(arrays, names=[*names, *columns.hidden])


def _origin(rows: Sequence[Row], batch: pa.RecordBatch) -> pa.RecordBatch:
    """The input rows that these rows come from: a slice where none was dropped or multiplied."""
    indices = list(map(attrgetter("index"), rows))
    first, count = indices[0], len(indices)
    if indices[-1] - first + 1 == count and indices == list(range(first, first + count)):
        return batch if count == batch.num_rows else batch.slice(first, count)
    return batch.take(pa.array(indices, type=pa.int64()))


def _all_values(rows: Sequence[Row]) -> dict[str, list[Any]]:
    """All columns' values, where some row may have a column that others do not.

    Mostly none has: then all have those of the first one, and no more in number.
    """
    try:
        found = {name: list(map(itemgetter(name), rows)) for name in rows[0]}
    except KeyError:
        found = {}
    if sum(map(len, rows)) == len(found) * len(rows):
        return found
    return {name: _values(rows, name) for name in dict.fromkeys(chain.from_iterable(rows))}


def _values(rows: Sequence[Row], name: str) -> list[Any]:
    """A column's values; null in the rows that do not have it."""
    try:
        return list(map(itemgetter(name), rows))
    except KeyError:
        return [row.get(name) for row in rows]


@lru_cache(maxsize=256)
def check_names(names: tuple[str, ...], came: tuple[str, ...]) -> None:
    """See that these columns can be told apart, by a row and by Spark, and none is for the runtime's own use.

    Names that differ in the case of their letters only are let pass if some of those that ``came`` in do, too.

    Raises:
        ValueError: they cannot; names the columns.
    """
    if taken := [name for name in names if name in HIDDEN]:
        raise ValueError(f"the column name {taken[0]!r} is for the runtime's own use")
    first, second = alike(names) or ("", "")
    if first and first == second:
        raise ValueError(f"it has the column {first!r} more than once")
    if first and not alike(came):
        raise ValueError(f"Spark does not tell the columns {first!r} and {second!r} apart; rename one")
