"""Rows that cost only what is looked at.

A row function sees a ``dict``. Converting every column of every Arrow batch to Python and back would cost more than
most functions do, so a :class:`Row` is a dict that knows its batch: a column is converted when some row is first asked
for it, and a column that nobody writes goes out as the Arrow column that came in. (Hence a list or a dict that was
changed in place, as in ``row["tags"].append(1)``, leaves only if it is assigned: ``row["tags"] = tags``.)

>>> import pyarrow as pa
>>> columns = Columns(pa.RecordBatch.from_pydict({"amount": [3, 4], "shop": ["a", "b"]}), Reads())
>>> rows = list(columns.rows())
>>> rows[0]["amount"], dict(rows[1])
(3, {'amount': 4, 'shop': 'b'})
>>> for row in rows:
...     row["double"] = 2 * row["amount"]
>>> assemble(rows[1:], columns, {}).to_pydict()
{'amount': [4], 'shop': ['b'], 'double': [8]}

What a function returns decides what leaves: the same row (or ``row | {...}``) keeps all columns; a plain dict is the
whole new row. A row that lost a column (``del``, ``pop``) is whole from then on, too. A column that only some rows of
a batch have is null in the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from decimal import Decimal
from itertools import chain
from operator import attrgetter, itemgetter
from typing import Any

import numpy as np
import pyarrow as pa

from fries_nb.messages import HIDDEN, TRANSACTION

FEW = 16
"""Up to so many values Arrow's own conversion is faster than the way over numpy."""

NOT_ARROW = (pa.ArrowException, TypeError, ValueError, OverflowError)
"""What Arrow raises for values that it cannot take."""

_UNREAD: Any = object()
_NOTHING: dict[str, Any] = {_UNREAD: None}
"""What lies under a row that was not loaded: C code (json) takes a dict that is empty underneath for an empty one."""


class Reads:
    """The columns that the functions of one chain have looked at so far, in order of first look."""

    __slots__ = ("names",)

    def __init__(self) -> None:
        self.names: tuple[str, ...] = ()

    def add(self, name: str) -> None:
        """Remember a look at a column; idempotent."""
        if name not in self.names:
            self.names = (*self.names, name)

    def forget(self) -> None:
        """Other functions run now; what they look at is to be learnt anew."""
        self.names = ()


class Columns(dict[str, list[Any]]):
    """The user's columns of one batch as Python lists, each converted when first looked at.

    Attributes:
        batch: the Arrow batch, hidden columns included.
        names: the user's columns; ``hidden``: the others.
        written: columns that some row of the batch was given a value for, in order of first writing (only the keys
            count).
    """

    __slots__ = ("_reads", "_transactions", "batch", "hidden", "names", "written")

    def __init__(self, batch: pa.RecordBatch, reads: Reads) -> None:
        self.batch = batch
        names = batch.schema.names
        self.names: tuple[str, ...] = tuple([name for name in names if name not in HIDDEN])
        self.hidden: tuple[str, ...] = tuple([name for name in HIDDEN if name in names])
        self.written: dict[str, Any] = {}
        self._reads = reads
        self._transactions: list[int] = []

    def __missing__(self, name: str) -> list[Any]:
        if name not in self.names:
            raise KeyError(f"no column {name!r}; this row has {', '.join(self.names) or 'none'}")
        self._reads.add(name)
        self[name] = values = to_python(self.batch.column(name))
        return values

    def transactions(self) -> list[int]:
        """Identity of each row's source tuple (only under audit)."""
        if not self._transactions:
            self._transactions = to_python(self.batch.column(TRANSACTION))
        return self._transactions

    def rows(self) -> Iterator[Row]:
        """All rows in order."""
        for index in range(self.batch.num_rows):
            row = Row(_NOTHING)
            row.columns = self
            row.index = index
            yield row


class Row(dict[str, Any]):
    """One tuple as a dict; see the module's idea.

    The dict underneath holds what was written to this row; all else is looked up in the columns. ``_load`` puts
    everything into it, which the methods that show a row as a whole begin with. A row keeps its whole batch alive:
    state that outlives a tuple keeps ``dict(row)``.
    """

    __slots__ = ("columns", "index")
    columns: Columns
    index: int

    def __missing__(self, name: str) -> Any:
        return self.columns[name][self.index]

    def __setitem__(self, name: str, value: Any) -> None:
        self.columns.written[name] = None
        dict.__setitem__(self, name, value)

    def __or__(self, other: Any) -> Row:  # type: ignore[override]
        if not isinstance(other, dict):
            return NotImplemented
        columns = self.columns
        columns.written |= other
        untouched = dict.__len__(self) == 1 and dict.__contains__(self, _UNREAD)
        row = Row(_NOTHING if untouched else dict.items(self))
        dict.update(row, other)
        row.columns = columns
        row.index = self.index
        return row

    def copy(self) -> Row:
        return self | {}

    def _load(self) -> Row:
        """Fetch every column; afterwards the underlying dict is complete, in the batch's order of columns."""
        if dict.__contains__(self, _UNREAD):
            written = dict(dict.items(self))
            dict.clear(self)
            for name in self.columns.names:
                dict.__setitem__(self, name, self.columns[name][self.index])
            dict.update(self, written)
            dict.__delitem__(self, _UNREAD)
        return self

    def _whole(self) -> Row:
        self._load()
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
        self.columns.written |= new
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


class WholeRow(Row):
    """A row that owns all its columns: a plain dict that remembers which input row it came from."""

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


def key_reader(key: Sequence[str]) -> Callable[[Row], Any]:
    """The function that reads a row's key: a value, a tuple of values, or ``None`` without any column."""
    return itemgetter(*key) if key else _no_key


def _no_key(row: Row) -> None:
    return None


def derived(values: dict[str, Any], parent: Row) -> WholeRow:
    """A whole row with these values that descends from ``parent`` (same source tuple, same due time)."""
    row = WholeRow(values)
    row.columns = parent.columns
    row.index = parent.index
    return row


def to_python(column: pa.Array) -> list[Any]:
    """A column as Python values; long ones of strings, or of numbers without nulls, take the fast way."""
    kind = column.type
    if len(column) > FEW and (
        pa.types.is_string(kind) or pa.types.is_large_string(kind) or (column.null_count == 0 and _is_number(kind))
    ):
        return column.to_numpy(zero_copy_only=False).tolist()  # type: ignore[no-any-return]
    return column.to_pylist()  # type: ignore[no-any-return]


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind))


def to_arrow(values: Sequence[Any], known: pa.DataType | None) -> pa.Array:
    """Python values as a column: of the type seen before where that loses nothing, else of the type Arrow infers.

    Arrow would cut 1.5 to 1 for a column of whole numbers, and "ab" to ["a", "b"] for one of lists; this does not.

    Raises:
        ValueError, TypeError, OverflowError, pyarrow.ArrowException: the values have no common Arrow type.
    """
    if known is not None and (_is_exact(known) or (pa.types.is_integer(known) and _are_whole(values))):
        try:
            return pa.array(values, type=known)
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            return pa.array(values)
    array = _inferred(values)
    if known is None or array.type == known or not (array.type.id == known.id or pa.types.is_null(array.type)):
        return array
    try:
        return array.cast(_with_fields_of(known, array.type) if pa.types.is_nested(known) else known)
    except pa.ArrowException:
        return array


def _inferred(values: Sequence[Any]) -> pa.Array:
    """The column that Arrow makes of the values; rows among them, or inside of them, count as the dicts they are."""
    try:
        return pa.array(values)
    except pa.ArrowTypeError:
        return pa.array([_plain(value) for value in values])
    except pa.ArrowInvalid:
        if Decimal not in map(type, values):
            raise
        return pa.array([Decimal(value) if type(value) is int else value for value in values])  # 10 and 1.5: 10.0, 1.5


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(inner) for name, inner in value.items()}
    return [_plain(inner) for inner in value] if isinstance(value, (list, tuple)) else value


def _with_fields_of(known: pa.DataType, new: pa.DataType) -> pa.DataType:
    """The known type, with the fields that new values have besides: a cast to the known one would drop them.

    Raises:
        pyarrow.ArrowException: there is no type that holds both.
    """
    schemas = [pa.schema([("x", kind)]) for kind in (known, new)]
    wider = pa.unify_schemas(schemas, promote_options="permissive").field("x").type
    return known if _fields(wider) == _fields(known) else wider


def _fields(kind: pa.DataType) -> list[Any]:
    """The names of all fields, at all depths."""
    if not pa.types.is_nested(kind):
        return []
    return [(kind.field(index).name, _fields(kind.field(index).type)) for index in range(kind.num_fields)]


def _is_exact(kind: pa.DataType) -> bool:
    """Types that Arrow fills from Python values without loss, or refuses to."""
    strings = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    return bool(strings or pa.types.is_float64(kind) or pa.types.is_boolean(kind))


def _are_whole(values: Sequence[Any]) -> bool:
    """Arrow would cut any other number (a float, a Decimal) to a whole one."""
    return all(issubclass(kind, (int, np.integer, type(None))) for kind in set(map(type, values)))


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
    written: Iterable[str] = chain.from_iterable(rows) if whole else columns.written
    names = [name for name in dict.fromkeys(written if whole else chain(columns.names, written)) if name not in HIDDEN]
    arrays: list[pa.Array] = []
    for name in names:
        if not whole and name not in columns.written:
            arrays.append(origin.column(name))
        else:
            known = types.get(name) or (columns.batch.schema.field(name).type if name in columns.names else None)
            arrays.append(to_arrow(_values(rows, name), known))
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


def _values(rows: Sequence[Row], name: str) -> list[Any]:
    """A column's values; null in the rows that do not have it."""
    try:
        return list(map(itemgetter(name), rows))
    except KeyError:
        return [row.get(name) for row in rows]
