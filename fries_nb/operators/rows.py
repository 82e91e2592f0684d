"""Lazy rows: only columns that a function reads are converted.

A row function gets a ``dict``. Converting every column of every Arrow batch to Python and back would cost more than
most functions do, so a :class:`Row` is a dict that refers to its batch: a column is converted when it is first read,
and a column that is not written is emitted as the Arrow column of the input. Lists and structs are copied for each row
on access (``NestedRow``), so rows share no mutable values. A row that a function keeps becomes an independent dict (see
``detach``).

>>> import pyarrow as pa
>>> columns = Columns(pa.RecordBatch.from_pydict({"amount": [3, 4], "shop": ["a", "b"]}), Reads())
>>> rows = list(columns.rows())
>>> rows[0]["amount"], dict(rows[1])
(3, {'amount': 4, 'shop': 'b'})
>>> for row in rows:
...     row["double"] = 2 * row["amount"]
>>> rows[1]
{'amount': 4, 'shop': 'b', 'double': 8}

The result of a function determines the output: the same row (or ``row | {...}``) keeps all columns; a plain dict, or a
row that lost a column (``del``, ``pop``), is the whole new row. A column that only some rows have is null in others.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from sys import getrefcount
from typing import Any

import pyarrow as pa

from fries_nb.dataflow.hidden_columns import HIDDEN, TIME, TRANSACTION
from fries_nb.operators.canonical import ColumnForm, form_of
from fries_nb.operators.conversion import copied, is_mutable, to_python, unchanged

UNKNOWN, SETTLED, UNWRITTEN = range(3)
"""How much is known of a batch's rows having no mutable values (see ``Columns.plain``)."""

UNREAD: Any = object()
NOTHING: dict[str, Any] = {UNREAD: None}
"""Placeholder in the dict of a row that was not loaded: C code (json) would take an empty dict for an empty row."""


Layout = tuple[tuple[str, ...], tuple[str, ...], frozenset[str]]


class Reads:
    """The columns that the functions of a chain have read so far, and the forms of those that they write.

    Attributes:
        names: the columns, in order of first access.
        joined: the types of the columns that the chain's joins add.
        forms: the form of each column that was asked for.
        zone: the zone of the stream's event times, else UTC.
    """

    __slots__ = ("_layout", "_schema", "forms", "joined", "names", "zone")

    def __init__(self) -> None:
        self.names: tuple[str, ...] = ()
        self.joined: dict[str, pa.DataType] = {}
        self.forms: dict[str, ColumnForm] = {}
        self.zone = "UTC"
        self._schema: pa.Schema | None = None
        self._layout: Layout = (), (), frozenset()

    def add(self, name: str) -> None:
        """Record an access; idempotent."""
        if name not in self.names:
            self.names = (*self.names, name)

    def forget(self) -> None:
        """Discard the record, since other functions run now."""
        self.names = ()

    def layout(self, schema: pa.Schema) -> Layout:
        """The user's columns, the hidden ones, and those of the user's with mutable values; cached across batches."""
        if schema != self._schema:
            names = tuple([name for name in schema.names if name not in HIDDEN])
            nested = frozenset([field.name for field in schema if field.name in names and is_mutable(field.type)])
            self._layout = names, tuple([name for name in HIDDEN if name in schema.names]), nested
            self._schema = schema
            self.forms.clear()
            time = schema.field(TIME).type if TIME in schema.names else pa.null()
            self.zone = (time.tz if pa.types.is_timestamp(time) else None) or "UTC"
        return self._layout

    def form(self, name: str) -> ColumnForm:
        """The form of the values that are written to a column."""
        found = self.forms.get(name)
        if found is None:
            schema = self._schema
            kind = self.joined.get(name) if schema is None or name not in schema.names else schema.field(name).type
            found = self.forms[name] = form_of(kind, self.zone)
        return found


class Columns(dict[str, list[Any]]):
    """The user's columns of one batch as Python lists, each converted on first access.

    Attributes:
        batch: the Arrow batch, hidden columns included.
        names: the user's columns; ``hidden``: the others; ``nested``: those of lists and structs.
        written: columns that were written in any row of the batch, in order of first writing (an ordered set: the
            values have no meaning).
        settled: columns that may be written without checking their values (see ``values``).
        plain: whether rows are known to have only immutable values: ``UNWRITTEN`` everywhere, ``SETTLED`` at the end
            of the chain, ``UNKNOWN`` nowhere.
        form: the form of the values that are written to a column (see ``canonical``).
        zone: the zone of times in new columns.
        unlaid: columns that functions have read from laid rows that lack them (see ``laid_rows``).
    """

    __slots__ = (
        "_reads", "_times", "_transactions", "batch", "form",
        "hidden", "names", "nested", "plain", "settled", "unlaid", "written", "zone",
    )  # fmt: skip

    def __init__(self, batch: pa.RecordBatch, reads: Reads) -> None:
        self.batch = batch
        self.names, self.hidden, self.nested = reads.layout(batch.schema)
        self.written: dict[str, Any] = {}
        self.settled: frozenset[str] | None = frozenset()
        self.plain = UNWRITTEN
        self.unlaid: set[str] = set()
        self._reads = reads
        self.form = reads.form
        self.zone = reads.zone
        self._transactions: list[int] = []
        self._times: list[int] = []

    def __missing__(self, name: str) -> list[Any]:
        if name not in self.names:
            raise KeyError(f"no column {name!r}; this row has {', '.join(self.names) or 'none'}")
        self._reads.add(name)
        try:
            self[name] = values = to_python(self.batch.column(name))
        except ValueError as error:
            raise ValueError(f"column {name!r}: {error}") from error
        return values

    def settle(self, names: frozenset[str]) -> None:
        """Allow these columns to be written without checks, unless whole rows were made of the batch."""
        if self.settled is not None:
            self.settled = names
            self.wrote()

    def write(self, names: Iterable[str]) -> None:
        """Record that these columns are written to some row."""
        self.written.update(dict.fromkeys(names))
        self.wrote()

    def wrote(self) -> None:
        """Record that another column was written."""
        if self.settled is not None and self.written:
            self.plain = SETTLED if self.written.keys() <= self.settled else UNKNOWN

    def unsettle(self) -> None:
        """Record that some row of the batch has values that are not recorded as written, or mutable."""
        self.settled = None
        self.plain = UNKNOWN

    def transactions(self) -> list[int]:
        """Identity of each row's source tuple (only under audit)."""
        if not self._transactions:
            self._transactions = to_python(self.batch.column(TRANSACTION))
        return self._transactions

    def times(self) -> list[int]:
        """Time of each row, in the unit of its column (only below a source with times)."""
        if not self._times:
            self._times = self.batch.column(TIME).cast(pa.int64()).to_pylist()
        return self._times

    def rows(self, start: int = 0) -> Iterator[Row]:
        """The rows from index ``start`` on, in order."""
        nested = bool(self.nested)
        for index in range(start, self.batch.num_rows):
            row = Row(NOTHING)
            if nested:
                row.__class__ = NestedRow
            row.columns = self
            row.index = index
            yield row


class Row(dict[str, Any]):
    """One tuple as a dict, which holds the values written to this row; others are looked up in the columns.

    Methods that show the whole row first call ``_load``, which fills the dict.
    """

    __slots__ = ("columns", "index")
    columns: Columns
    index: int

    def __missing__(self, name: str) -> Any:
        return self.columns[name][self.index]

    def __setitem__(self, name: str, value: Any) -> None:
        columns = self.columns
        if name not in columns.written:
            columns.written[name] = None
            columns.wrote()
        dict.__setitem__(self, name, value)

    def __or__(self, other: Any) -> Row:  # type: ignore[override]
        if not isinstance(other, dict):
            return NotImplemented
        columns = self.columns
        written = columns.written
        for name in other:
            if name not in written:
                columns.write(other)
                break
        untouched = dict.__len__(self) == 1 and dict.__contains__(self, UNREAD)
        row = Row(NOTHING if untouched else dict.items(self))
        dict.update(row, other)
        row.columns = columns
        row.index = self.index
        return row

    def copy(self) -> Row:
        untouched = dict.__len__(self) == 1 and dict.__contains__(self, UNREAD)
        row = type(self)(NOTHING if untouched else dict.items(self))
        row.columns = self.columns
        row.index = self.index
        return row

    def _load(self) -> Row:
        """Fetch every column; afterwards the underlying dict is complete, in the batch's order of columns."""
        if dict.__contains__(self, UNREAD):
            written = dict(dict.items(self))
            dict.clear(self)
            for name in self.columns.names:
                dict.__setitem__(self, name, self.columns[name][self.index])
            dict.update(self, written)
            dict.__delitem__(self, UNREAD)
        return self

    def _whole(self) -> Row:
        self._load()
        self.columns.unsettle()
        self.__class__ = WholeRow
        return self

    def __contains__(self, name: object) -> bool:
        return dict.__contains__(self, name) or name in self.columns.names

    def __len__(self) -> int:
        return dict.__len__(self._load())

    def __bool__(self) -> bool:
        return bool(self.columns.names) or len(self) > 0

    def __iter__(self) -> Iterator[str]:
        return dict.__iter__(self._load())

    def __reversed__(self) -> Iterator[str]:
        return dict.__reversed__(self._load())

    def keys(self) -> Any:
        return dict.keys(self._load())

    def values(self) -> Any:
        return dict.values(self._load())

    def items(self) -> Any:
        return dict.items(self._load())

    def get(self, name: str, default: Any = None) -> Any:
        return self[name] if name in self else default

    def setdefault(self, name: str, default: Any = None) -> Any:
        if name not in self:
            self[name] = default
        return self[name]

    def update(self, other: Any = (), /, **named: Any) -> None:
        new = other if isinstance(other, dict) and not named else dict(other, **named)
        columns = self.columns
        for name in new:
            if name not in columns.written:
                columns.write(new)
                break
        dict.update(self, new)

    def __ior__(self, other: Any) -> Row:  # type: ignore[override]
        self.update(other)
        return self

    def __delitem__(self, name: str) -> None:
        dict.__delitem__(self._whole(), name)

    def pop(self, name: str, *default: Any) -> Any:
        return dict.pop(self._whole(), name, *default)

    def popitem(self) -> tuple[str, Any]:
        return dict.popitem(self._whole())

    def clear(self) -> None:
        dict.clear(self._whole())

    def __eq__(self, other: object) -> bool:
        return dict.__eq__(self._load(), other._load() if isinstance(other, Row) else other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = None

    def __repr__(self) -> str:
        return dict.__repr__(self._load())

    def __reduce_ex__(self, protocol: Any) -> Any:
        return (dict, (dict(self),))


class NestedRow(Row):
    """A row of a batch with lists or structs; it returns its own copy of them, the same one on each access."""

    __slots__ = ()

    def __missing__(self, name: str) -> Any:
        value = self.columns[name][self.index]
        if name in self.columns.nested:
            value = copied(value)
            dict.__setitem__(self, name, value)
            self.columns.unsettle()
        return value

    def __or__(self, other: Any) -> Row:  # type: ignore[override]
        row = Row.__or__(self, other)
        if isinstance(row, Row):
            row.__class__ = NestedRow
        return row

    def _load(self) -> Row:
        if dict.__contains__(self, UNREAD):
            Row._load(self)
            for name in self.columns.nested:
                if (value := dict.__getitem__(self, name)) is self.columns[name][self.index]:
                    dict.__setitem__(self, name, copied(value))
            self.columns.unsettle()
        return self

    def drop_unchanged(self) -> None:
        """Discard copies of lists that were only read; one that was changed in place counts as written."""
        columns, loaded = self.columns, not dict.__contains__(self, UNREAD)
        for name in columns.nested:
            if dict.__contains__(self, name):
                came = columns[name][self.index]
                if not unchanged(dict.__getitem__(self, name), came):
                    columns.written[name] = None
                elif loaded:
                    dict.__setitem__(self, name, copied(came))
                else:
                    dict.__delitem__(self, name)


class WholeRow(Row):
    """A row that owns all of its columns: a plain dict that refers to the input row from which it derives."""

    __slots__ = ()

    def __missing__(self, name: str) -> Any:
        raise KeyError(f"no column {name!r}; this row has {', '.join(map(str, dict.keys(self))) or 'none'}")

    def _load(self) -> Row:
        return self

    def _whole(self) -> Row:
        return self

    def __bool__(self) -> bool:
        return dict.__len__(self) > 0

    __setitem__ = dict.__setitem__
    __contains__ = dict.__contains__
    __len__ = dict.__len__
    __iter__ = dict.__iter__
    get = dict.get  # type: ignore[assignment]
    update = dict.update  # type: ignore[assignment]

    def __or__(self, other: Any) -> Row:  # type: ignore[override]
        return derived(dict.__or__(self, other), self) if isinstance(other, dict) else NotImplemented


def derived(values: dict[str, Any], parent: Row) -> WholeRow:
    """A whole row with these values that derives from ``parent`` (same source tuple, same due time)."""
    row = WholeRow(values)
    row.columns = columns = parent.columns
    row.index = parent.index
    if columns.settled is not None:
        columns.unsettle()
    return row


def _count_alone() -> int:
    row = Row()
    return getrefcount(row)


ALONE = _count_alone()
"""The ``getrefcount`` of a new row that a single local variable refers to."""

_NO_BATCH = Columns(pa.RecordBatch.from_pydict({}), Reads())


def detach(row: Row) -> Row:
    """Separate a row that a function has kept from its batch; returns the row that leaves in its place.

    The kept row is an independent dict from then on: it has no effect on the output, and keeps no batch alive.
    """
    leaving = row.copy()
    row._load()
    row.__class__ = WholeRow
    row.columns = _NO_BATCH
    return leaving
