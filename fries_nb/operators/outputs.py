"""The outputs of a chain, one for each branch: rows, and the batches that earlier rows were packed into.

Rows become batches with the written columns as new ones, and all others as they arrived. Column names must be distinct,
for rows and for Spark.

>>> from fries_nb.operators.rows import Reads
>>> columns = Columns(pa.RecordBatch.from_pydict({"amount": [3, 4], "shop": ["a", "b"]}), Reads())
>>> rows = [row | {"double": 2 * row["amount"]} for row in columns.rows()]
>>> assemble(rows[1:], columns, {}).to_pydict()
{'amount': [4], 'shop': ['b'], 'double': [8]}
>>> check_names(("A", "a"), came=())
Traceback (most recent call last):
ValueError: Spark does not tell the columns 'A' and 'a' apart; rename one

Rows of the inner loop (see ``inner_loop``) arrive as captured columns: the values written, without row objects.

Python rows take much memory. If one tuple may become many, only a bounded number of rows is kept. The rows and batches
of a tuple that may have to be undone are kept separate from earlier ones (like a database savepoint): they are appended
as a whole, or dropped together with the column types that were learned from them.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from itertools import chain
from operator import attrgetter, itemgetter
from typing import Any, ParamSpec, TypeVar

import msgspec
import pyarrow as pa

from fries_nb.dataflow.columns import alike
from fries_nb.dataflow.hidden_columns import HIDDEN
from fries_nb.operators.conversion import to_arrow
from fries_nb.operators.rows import NOTHING, Columns, Row, WholeRow
from fries_nb.operators.values import refuse_as_name

MOST_ROWS = 4096
"""Maximum number of Python rows kept for one tuple before they are packed, which takes a tenth of their memory."""

_Asked = ParamSpec("_Asked")
_Told = TypeVar("_Told")
Types = dict[str, pa.DataType]
Results = list[tuple[int, pa.RecordBatch]]
"""Batches that a chain produced, each with the index of its branch."""


class Captured(msgspec.Struct, frozen=True):
    """Rows of one batch, as columns of what was written to them.

    Attributes:
        columns: the batch.
        indices: the indices of the rows.
        values: for each written column its values, one for each row.
    """

    columns: Columns
    indices: Sequence[int]
    values: dict[str, list[Any]]

    def column(self, name: str) -> list[Any]:
        """The values of a column, as of rows: what was written, else what came in, else nulls."""
        if name in self.values:
            return self.values[name]
        if name not in self.columns.names:
            return [None] * len(self.indices)
        came = self.columns[name]
        return [came[index] for index in self.indices]

    def rows(self) -> Iterator[Row]:
        """The same rows as objects."""
        for index, *written in zip(self.indices, *self.values.values(), strict=True):
            row = Row({**NOTHING, **dict(zip(self.values, written, strict=True))})
            row.columns, row.index = self.columns, index
            yield row


Part = Sequence[Row] | Captured
CapturedParts = Sequence[tuple[int, Captured]]
"""Captured rows, each part with the number of row objects before it."""


def weakly(method: Callable[_Asked, _Told]) -> Callable[_Asked, _Told]:
    """The method by a weak reference, for callbacks held by its own object: a cycle would keep old functions alive."""
    found = weakref.WeakMethod(method)

    def call(*args: _Asked.args, **named: _Asked.kwargs) -> _Told:
        alive = found()
        assert alive is not None, "what it holds has outlived it"
        return alive(*args, **named)

    return call


class Output(list[Row]):
    """The rows that have not been packed into a batch.

    Args:
        assembled: makes a batch of rows, and learns the types of the columns.
        learn: receives the types of each batch; raises an ``OperatorError`` if the batch must not be emitted.

    Attributes:
        batches: the batches of earlier rows.
        types: the types of the columns written so far.
        captured: rows that arrived as columns, each part with the number of row objects before it.
        is_known: whether columns have begun to settle in it (see ``values``).
        emitted: the columns that were written to earlier rows, and are null in later ones that lack them.
    """

    is_known = False

    def __init__(self, assembled: Callable[[Output, Types], pa.RecordBatch], learn: Callable[[Types], None]):
        super().__init__()
        self.batches: list[pa.RecordBatch] = []
        self.types: Types = {}
        self.captured: list[tuple[int, Captured]] = []
        self.emitted: dict[str, None] = {}
        self.assembled = assembled
        self.learn = learn

    def pack(self) -> None:
        """Pack the rows into a batch.

        Raises:
            DeclarationError: they cannot become columns; they are kept.
        """
        if self or self.captured:
            batch = self.assembled(self, self.types)
            self.learn(self.types)
            self.batches.append(batch)
            self.captured.clear()
            self.clear()

    def capture(self, part: Captured) -> None:
        """Append rows that are columns already."""
        if part.indices:
            self.captured.append((len(self), part))

    def rows(self) -> list[Row]:
        """All rows as objects, in order."""
        return _objects(self, self.captured)

    def take(self) -> list[pa.RecordBatch]:
        """The batches; removes them."""
        taken, self.batches = self.batches, []
        return taken


class ManyOutputs(Output):
    """The output of a chain in which one tuple may become many."""

    def append(self, row: Row) -> None:
        """Append a row, and pack all rows when there are too many, or the earlier ones are of another batch."""
        if self and self[-1].columns is not row.columns:
            self.pack()
        list.append(self, row)
        if len(self) >= MOST_ROWS:
            self.pack()


class Apart(ManyOutputs):
    """The output of one tuple, until it has succeeded or failed."""

    def __init__(self, front: Output) -> None:
        super().__init__(front.assembled, lambda types: None)
        self.emitted = front.emitted
        self._front = front

    @property
    def is_known(self) -> bool:  # type: ignore[override]
        """Whether columns have begun to settle in the output that it precedes."""
        return self._front.is_known

    def begin(self) -> None:
        """Begin the next tuple; earlier rows are packed if there are many."""
        self.drop()
        if len(self._front) >= MOST_ROWS:
            self._front.pack()

    def pack(self) -> None:
        """Pack the rows; earlier rows are packed first, with their own types."""
        if not self.batches:
            self._front.pack()
            self.types = dict(self._front.types)
        super().pack()

    def join(self) -> None:
        """Append the tuple's output to the earlier one, since it has succeeded."""
        if self.batches:
            self._front.learn(self.types)
            self._front.types = self.types
            self._front.batches += self.take()
        if self and self._front and self._front[-1].columns is not self[0].columns:
            self._front.pack()
        self._front.extend(self)
        self.clear()

    def drop(self) -> None:
        """Discard the tuple's output, since it has failed."""
        self.batches.clear()
        self.clear()


def assemble(
    rows: Sequence[Row],
    columns: Columns,
    types: dict[str, pa.DataType],
    captured: CapturedParts = (),
    emitted: dict[str, None] | None = None,
) -> pa.RecordBatch:
    """Make one batch of rows, with the hidden columns.

    Args:
        rows: the row objects.
        columns: the input columns that the rows derive from.
        types: the types of written columns; updated. Kept across batches so that a column that starts with nulls or
            integers does not change its type needlessly.
        captured: rows that are columns already, each part with the number of row objects before it. There is at least
            one row in all.
        emitted: columns that earlier rows had, which are null in those that lack them; extended.

    Raises:
        ValueError: a column has no Arrow type, or an invalid name.
        TypeError: as ValueError.
        OverflowError: as ValueError.
        pyarrow.ArrowException: as ValueError.
    """
    whole = WholeRow in set(map(type, rows))
    if whole and captured:
        rows, captured = _objects(rows, captured), ()
    origin = _origin(_indices(rows, captured), columns.batch)
    if not whole and not columns.written and not emitted:
        return origin
    values = _all_values(rows) if whole else {name: _column(rows, captured, name) for name in columns.written}
    for name in values.keys() - set(columns.names):
        refuse_as_name(name)
    if emitted is not None:
        there = values.keys() | (set() if whole else set(columns.names))
        values |= {name: [None] * origin.num_rows for name in emitted if name not in there}
        emitted.update(dict.fromkeys(name for name in values if name not in HIDDEN))
    names = [name for name in (values if whole else dict.fromkeys((*columns.names, *values))) if name not in HIDDEN]
    arrays: list[pa.Array] = []
    for name in names:
        if name not in values:
            arrays.append(origin.column(name))
        else:
            known = types.get(name) or (columns.batch.schema.field(name).type if name in columns.names else None)
            arrays.append(to_arrow(values[name], known, columns.zone))
            types[name] = arrays[-1].type
    arrays.extend([origin.column(name) for name in columns.hidden])
    return pa.RecordBatch.from_arrays(arrays, names=[*names, *columns.hidden])


def _parts(rows: Sequence[Row], captured: CapturedParts) -> Iterator[Part]:
    """Row objects and captured rows, in order."""
    taken = 0
    for before, part in captured:
        if before > taken:
            yield rows[taken:before]
        yield part
        taken = before
    if taken < len(rows):
        yield rows[taken:] if taken else rows


def _objects(rows: Sequence[Row], captured: CapturedParts) -> list[Row]:
    """All rows as objects."""
    return [row for part in _parts(rows, captured) for row in (part.rows() if isinstance(part, Captured) else part)]


def _column(rows: Sequence[Row], captured: CapturedParts, name: str) -> list[Any]:
    """The values of a column in all rows."""
    if not captured:
        return _values(rows, name)
    found: list[Any] = []
    for part in _parts(rows, captured):
        found += part.column(name) if isinstance(part, Captured) else _values(part, name)
    return found


def _indices(rows: Sequence[Row], captured: CapturedParts) -> Sequence[int]:
    """The indices of all rows; of captured ones a ``range`` if each follows the one before."""
    if not captured:
        return list(map(attrgetter("index"), rows))
    found: Sequence[int] = range(0)
    for part in _parts(rows, captured):
        indices = part.indices if isinstance(part, Captured) else _indices(part, ())
        if not found:
            found = indices
        elif isinstance(indices, range) and found[-1] + 1 == indices.start and found[0] + len(found) == indices.start:
            found = range(found[0], indices.stop)
        else:
            found = [*found, *indices]
    return found


def _origin(indices: Sequence[int], batch: pa.RecordBatch) -> pa.RecordBatch:
    """The input rows of these indices: a slice if none was dropped or multiplied."""
    first, count = indices[0], len(indices)
    if indices[-1] - first + 1 == count and (
        isinstance(indices, range) or indices == list(range(first, first + count))
    ):
        return batch if count == batch.num_rows else batch.slice(first, count)
    return batch.take(pa.array(indices, type=pa.int64()))


def _all_values(rows: Sequence[Row]) -> dict[str, list[Any]]:
    """The values of all columns; rows may have different columns.

    The fast path is that all rows have the columns of the first one.
    """
    try:
        found = {name: list(map(itemgetter(name), rows)) for name in rows[0]}
    except KeyError:
        found = {}
    if sum(map(len, rows)) == len(found) * len(rows):
        return found
    return {name: _values(rows, name) for name in dict.fromkeys(chain.from_iterable(rows))}


def _values(rows: Sequence[Row], name: str) -> list[Any]:
    """The values of a column; null in rows that lack it."""
    try:
        return list(map(itemgetter(name), rows))
    except KeyError:
        return [row.get(name) for row in rows]


@lru_cache(maxsize=256)
def check_names(names: tuple[str, ...], came: tuple[str, ...]) -> None:
    """Check that column names are distinct, for rows and for Spark, and not reserved.

    Args:
        names: the names.
        came: the names of the input; if some of these differ only in case, output names may as well.

    Raises:
        ValueError: they are not; the message names the columns.
    """
    if taken := [name for name in names if name in HIDDEN]:
        raise ValueError(f"the column name {taken[0]!r} is for the runtime's own use")
    first, second = alike(names) or ("", "")
    if first and first == second:
        raise ValueError(f"it has the column {first!r} more than once")
    if first and not alike(came):
        raise ValueError(f"Spark does not tell the columns {first!r} and {second!r} apart; rename one")
