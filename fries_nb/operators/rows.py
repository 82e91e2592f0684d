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

Whether a function uses its row by the names of columns only: ``row[name]``, ``row[name] = value``, ``return row``.

Such a function cannot remove a column, and does not pass its row to other code that might. Python has one slot for
assigning and deleting items, so only a row from which nothing is removed can have the fast assignment of ``dict`` (see
``laid_rows``). The answer is found in the function's instructions; what is not recognised counts as another use.

>>> def scored(row):
...     row["p"] = row["amount"] * 2
...     return row
>>> def renamed(row):
...     row["p"] = row.pop("amount")
...     return row
>>> item_use(scored), item_use(renamed), item_use(dict)
(ItemUse(reads=frozenset({'amount'}), stores=frozenset({'p'}), are_all=True), None, None)

Laid rows: rows that hold the values of the columns that a function reads, for the inner loop (see ``inner_loop``).

A row looks up in its batch what it does not hold, and records each write at once; both are calls of Python functions. A
:class:`LaidRow` holds what is read from the beginning, and what is written to it is determined when its function has
returned: what it holds that is not the column's value. One row serves many tuples, unless a function keeps it.

Whatever else a function does with a laid row makes a common row of it first: it shows the whole row, copies it, derives
another from it, removes a column. The inner loop leaves such rows to the common path.

>>> from fries_nb.operators.rows import Reads
>>> columns = Columns(pa.RecordBatch.from_pydict({"amount": [3, 4], "shop": ["a", "b"]}), Reads())
>>> row = laid_row(columns)
>>> row.index = 1
>>> dict.update(row, {"amount": columns["amount"][1]})
>>> row["double"] = 2 * row["amount"]
>>> columns.written, row["shop"], columns.unlaid
({}, 'b', {'shop'})
>>> row
{'amount': 4, 'shop': 'b', 'double': 8}
>>> columns.written, type(row).__name__
({'double': None}, 'Row')
"""

from __future__ import annotations

import dis
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from sys import getrefcount
from types import CodeType, FunctionType, MethodType
from typing import Any

import pyarrow as pa

from fries_nb.dataflow.columns import HIDDEN, TIME, TRANSACTION
from fries_nb.operators.conversion import ColumnForm, copied, form_of, is_mutable, to_python, unchanged

_LOADS = frozenset({"LOAD_FAST", "LOAD_FAST_CHECK", "LOAD_FAST_BORROW"})
_PAIRS = frozenset({"LOAD_FAST_LOAD_FAST", "LOAD_FAST_BORROW_LOAD_FAST_BORROW"})
_NAMES = _LOADS | {"LOAD_CONST", "LOAD_SMALL_INT", "LOAD_GLOBAL", "LOAD_DEREF"}
"""Instructions that load a column's name."""
_ITEM = frozenset({"BINARY_SUBSCR", "STORE_SUBSCR", "BINARY_OP []"})
_SHOWS_VARIABLES = frozenset({"locals", "vars", "eval", "exec", "_getframe", "currentframe"})
"""Names of functions that may return, or use, the caller's variables."""

_Instruction = tuple[str, Any]


@dataclass(frozen=True, slots=True)
class ItemUse:
    """How a function uses its row, of which it uses nothing but items by name."""

    reads: frozenset[str]  # the columns that it may read
    stores: frozenset[str]  # those that it may write
    are_all: bool  # whether these are all: some name may be in a variable


def item_use(function: Any) -> ItemUse | None:
    """How a function uses its row, the first argument; ``None`` unless it uses it by the names of columns only."""
    position = 0
    if isinstance(function, MethodType):
        function, position = function.__func__, 1
    if not isinstance(function, FunctionType):
        return None
    code = function.__code__
    if code.co_argcount <= position or not _SHOWS_VARIABLES.isdisjoint(code.co_names):
        return None
    row = code.co_varnames[position]
    instructions = [*_instructions(code), ("", None), ("", None)]
    used = [
        instructions[at : at + 3] for at, (name, argument) in enumerate(instructions[:-2])
        if argument == row and name != "LOAD_CONST"
    ]  # fmt: skip
    if not all(load[0] in _LOADS and _is_item_or_result(first, second) for load, first, second in used):
        return None
    items = [(first, second[0]) for _, first, second in used if first[0] != "RETURN_VALUE"]
    stored = frozenset([name for (_, name), what in items if what == "STORE_SUBSCR"])
    read = frozenset([name for (_, name), what in items if what != "STORE_SUBSCR"])
    return ItemUse(read, stored, all(first[0] == "LOAD_CONST" for first, _ in items))


def _is_item_or_result(first: _Instruction, second: _Instruction) -> bool:
    """Whether these two instructions, after the row was loaded, use an item of it, or return it."""
    return first[0] == "RETURN_VALUE" or (first[0] in _NAMES and second[0] in _ITEM)


def _instructions(code: CodeType) -> Iterator[_Instruction]:
    """The names of the instructions with their arguments; those that load two variables count as two."""
    for one in dis.get_instructions(code):
        if one.opname in _PAIRS:
            yield from (("LOAD_FAST", name) for name in one.argval)
        elif isinstance(one.argval, tuple):
            yield from ((one.opname, name) for name in one.argval)
        elif one.opname != "EXTENDED_ARG":
            yield one.opname if one.opname != "BINARY_OP" else f"BINARY_OP {one.argrepr}", one.argval


UNKNOWN, SETTLED, UNWRITTEN = range(3)
"""How much is known of a batch's rows having no mutable values (see ``Columns.plain``)."""

UNREAD: Any = object()
NOTHING: dict[str, Any] = {UNREAD: None}
"""Placeholder in the dict of a row that was not loaded: C code (json) would take an empty dict for an empty row."""


Layout = tuple[tuple[str, ...], tuple[str, ...], frozenset[str]]


class Reads:
    """The columns that the functions of a chain have read so far, and the forms of those that they write."""

    __slots__ = ("_layout", "_schema", "forms", "joined", "names", "zone")

    def __init__(self) -> None:
        self.names: tuple[str, ...] = ()  # the columns, in order of first access
        self.joined: dict[str, pa.DataType] = {}  # the types of the columns that the chain's joins add
        self.forms: dict[str, ColumnForm] = {}  # the form of each column that was asked for
        self.zone = "UTC"  # the zone of the stream's event times, else UTC
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
    """The user's columns of one batch as Python lists, each converted on first access."""

    __slots__ = (
        "_reads", "_times", "_transactions", "batch", "form",
        "hidden", "names", "nested", "plain", "settled", "unlaid", "written", "zone",
    )  # fmt: skip

    def __init__(self, batch: pa.RecordBatch, reads: Reads) -> None:
        self.batch = batch  # the Arrow batch, hidden columns included
        # ``names``: the user's columns; ``hidden``: the others; ``nested``: those of lists and structs
        self.names, self.hidden, self.nested = reads.layout(batch.schema)
        # columns that were written in any row of the batch, in order of first writing (an ordered set: the values have
        # no meaning)
        self.written: dict[str, Any] = {}
        # columns that may be written without checking their values (see ``column_types``)
        self.settled: frozenset[str] | None = frozenset()
        # whether rows are known to have only immutable values: ``UNWRITTEN`` everywhere, ``SETTLED`` at the end of the
        # chain, ``UNKNOWN`` nowhere
        self.plain = UNWRITTEN
        # columns that functions have read from laid rows that lack them (see ``LaidRow``)
        self.unlaid: set[str] = set()
        self._reads = reads
        self.form = reads.form  # the form of the values that are written to a column (see ``canonical``)
        self.zone = reads.zone  # the zone of times in new columns
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
        """Identity of each row's source tuple (only in a run with identities)."""
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
    """Separate a row that a function has kept from its batch; returns the row that leaves in its place."""
    # The kept row is an independent dict from then on: it has no effect on the output, and keeps no batch alive.
    leaving = row.copy()
    row._load()
    row.__class__ = WholeRow
    row.columns = _NO_BATCH
    return leaving


_LAID = frozenset(
    kind.id for kind in (
        pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64(),
        pa.float64(), pa.bool_(), pa.string(), pa.large_string(), pa.date32(), pa.timestamp("us"),
    )
)  # fmt: skip
"""Ids of the types of columns that are laid: a column of the same values would get the same type.

Only then it makes no difference whether a function writes to a column the value that it has.
"""


def can_be_laid(kind: pa.DataType) -> bool:
    """Whether columns of this type can be laid."""
    return kind.id in _LAID


class LaidRow(Row):
    """A row without record of what is written to it. Only the batch's types of ``can_be_laid`` are held from it."""

    __slots__ = ()

    __setitem__ = dict.__setitem__

    def __missing__(self, name: str) -> Any:
        value = self.columns[name][self.index]
        self.columns.unlaid.add(name)
        return value

    def common(self) -> Row:
        """Make a common row of it, and record in its columns what was written; returns the row."""
        columns, index = self.columns, self.index
        schema = columns.batch.schema
        written = {
            name: value
            for name, value in dict.items(self)
            if name is not UNREAD
            and (
                name not in columns
                or name in columns.written
                or columns[name][index] is not value
                or not can_be_laid(schema.field(name).type)
            )
        }
        self.__class__ = Row  # type: ignore[assignment]
        dict.clear(self)
        dict.update(self, NOTHING)
        dict.update(self, written)
        if not written.keys() <= columns.written.keys():
            columns.write(written)
        return self

    def update(self, other: Any = (), /, **named: Any) -> None:
        """As of ``dict``: nothing is written if the argument is invalid."""
        dict.update(self, other if isinstance(other, dict) and not named else dict(other, **named))

    def __or__(self, other: Any) -> Row:  # type: ignore[override]
        return Row.__or__(self.common(), other)

    def copy(self) -> Row:
        """A common row with the same values."""
        return Row.copy(self.common())

    def _load(self) -> Row:
        return Row._load(self.common())


class ItemRow(LaidRow):
    """A laid row for functions that have an ``item_use``, with the assignment of ``dict``."""

    __slots__ = ()

    __setitem__ = dict.__setitem__
    __delitem__ = dict.__delitem__


def laid_row(columns: Columns, kind: type[LaidRow] = LaidRow) -> LaidRow:
    """A row of these columns that holds nothing yet."""
    row = kind(NOTHING)
    row.columns = columns
    row.index = 0
    return row
