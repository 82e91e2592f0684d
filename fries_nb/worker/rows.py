"""Rows that cost only what is looked at.

A row function sees a ``dict``. Converting every column of every Arrow batch to Python and back would cost more than
most functions do, so a :class:`Row` is a dict that fetches a column when it is first asked for, and remembers which
columns a chain reads so that the next batch brings them along at once. A column that nobody writes goes out as the
Arrow column that came in.

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
whole new row. A row that lost a column (``del``, ``pop``) is whole from then on, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from fries_nb.messages import DUE, HIDDEN, TRANSACTION


class Reads:
    """The columns that the functions of one chain have looked at so far, in order of first look; only grows."""

    __slots__ = ("names",)

    def __init__(self) -> None:
        self.names: tuple[str, ...] = ()

    def add(self, name: str) -> None:
        """Remember a look at a column; idempotent."""
        if name not in self.names:
            self.names = (*self.names, name)


class Columns:
    """The columns of one batch, each converted to a Python list when first looked at.

    Attributes:
        batch: the Arrow batch, hidden columns included.
        names: the user's columns.
        written: names of columns that some row of the batch was given a value for.
    """

    __slots__ = ("_lists", "_reads", "batch", "names", "written")

    def __init__(self, batch: pa.RecordBatch, reads: Reads) -> None:
        self.batch = batch
        self.names: tuple[str, ...] = tuple(name for name in batch.schema.names if name not in HIDDEN)
        self.written: set[str] = set()
        self._reads = reads
        self._lists: dict[str, list[Any]] = {}

    def values(self, name: str) -> list[Any]:
        """One column as Python values.

        Raises:
            KeyError: there is no such column; names those that are there.
        """
        found = self._lists.get(name)
        if found is None:
            if name not in self.names:
                raise KeyError(f"no column {name!r}; this row has {', '.join(self.names) or 'none'}")
            self._reads.add(name)
            found = self._lists[name] = to_python(self.batch.column(name))
        return found

    def transactions(self) -> list[int]:
        """Identity of each row's source tuple (only under audit)."""
        found = self._lists.get(TRANSACTION)
        if found is None:
            found = self._lists[TRANSACTION] = to_python(self.batch.column(TRANSACTION))
        return found

    def rows(self) -> Iterator[Row]:
        """All rows in order, with the columns that the chain is known to read already in them."""
        names = tuple(name for name in self._reads.names if name in self.names)
        make = Row
        if not names:
            for index in range(self.batch.num_rows):
                row = make()
                row.columns = self
                row.index = index
                yield row
            return
        for index, values in enumerate(zip(*[self.values(name) for name in names], strict=True)):
            row = make(zip(names, values, strict=True))
            row.columns = self
            row.index = index
            yield row


class Row(dict[str, Any]):
    """One tuple as a dict whose columns are fetched when first asked for; see the module's idea."""

    __slots__ = ("columns", "index")
    columns: Columns
    index: int

    def __missing__(self, name: str) -> Any:
        value = self.columns.values(name)[self.index]
        dict.__setitem__(self, name, value)
        return value

    def __setitem__(self, name: str, value: Any) -> None:
        self.columns.written.add(name)
        dict.__setitem__(self, name, value)

    def _load(self) -> Row:
        """Fetch every column; afterwards the underlying dict is complete (in the batch's order of columns)."""
        have = dict.copy(self)
        dict.clear(self)
        for name in self.columns.names:
            dict.__setitem__(self, name, have.pop(name) if name in have else self.columns.values(name)[self.index])
        dict.update(self, have)
        return self

    def _whole(self) -> Row:
        self._load()
        self.__class__ = WholeRow
        return self

    def __contains__(self, name: object) -> bool:
        return dict.__contains__(self, name) or name in self.columns.names

    def __len__(self) -> int:
        return len(self.columns.names) + sum(1 for name in dict.keys(self) if name not in self.columns.names)

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

    def update(self, *others: Any, **named: Any) -> None:
        for name, value in dict(*others, **named).items():
            self[name] = value

    def __or__(self, other: Mapping[str, Any]) -> Row:  # type: ignore[override]
        copy = self.copy()
        copy.update(other)
        return copy

    def __ior__(self, other: Any) -> Row:  # type: ignore[override,misc]
        self.update(other)
        return self

    def copy(self) -> Row:
        return derived(dict.copy(self), self, type(self))

    def __delitem__(self, name: str) -> None:
        dict.__delitem__(self._whole(), name)

    def pop(self, name: str, *default: Any) -> Any:
        return dict.pop(self._whole(), name, *default)

    def popitem(self) -> tuple[str, Any]:
        return dict.popitem(self._whole())

    def clear(self) -> None:
        dict.clear(self._whole())

    def __eq__(self, other: object) -> bool:
        return dict.__eq__(self._load(), dict(other) if isinstance(other, Row) else other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return dict.__repr__(self._load())

    def __reduce__(self) -> Any:
        return (dict, (dict.copy(self._load()),))


class WholeRow(Row):
    """A row that owns all its columns: a plain dict that remembers which input row it came from."""

    __slots__ = ()

    def __missing__(self, name: str) -> Any:
        raise KeyError(f"no column {name!r}; this row has {', '.join(dict.keys(self)) or 'none'}")

    def _load(self) -> Row:
        return self

    def _whole(self) -> Row:
        return self

    def __contains__(self, name: object) -> bool:
        return dict.__contains__(self, name)

    def __len__(self) -> int:
        return dict.__len__(self)

    __setitem__ = dict.__setitem__
    __iter__ = dict.__iter__


def derived(values: dict[str, Any], parent: Row, kind: type[Row]) -> Row:
    """A row with these values that descends from ``parent`` (same source tuple, same due time)."""
    row = kind(values)
    row.columns = parent.columns
    row.index = parent.index
    return row


def to_python(column: pa.Array) -> list[Any]:
    """A column as Python values; numbers without nulls and strings take the fast way."""
    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return column.to_numpy(zero_copy_only=False).tolist()  # type: ignore[no-any-return]
    numeric = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)
    if numeric and column.null_count == 0:
        return column.to_numpy(zero_copy_only=False).tolist()  # type: ignore[no-any-return]
    return column.to_pylist()  # type: ignore[no-any-return]


def to_arrow(values: Sequence[Any], known: pa.DataType | None) -> pa.Array:
    """Python values as a column: of the type seen before where they fit it, else of the type that Arrow infers.

    Raises:
        pyarrow.ArrowException: the values have no common Arrow type.
    """
    if known is not None and not pa.types.is_null(known):
        try:
            return pa.array(values, type=known)
        except (pa.ArrowInvalid, pa.ArrowTypeError):
            return pa.array(values)
    return pa.array(values)


def assemble(rows: Sequence[Row], columns: Columns, types: dict[str, pa.DataType]) -> pa.RecordBatch:
    """The rows (at least one) that a chain produced from ``columns`` as one batch, hidden columns carried along.

    ``types`` remembers the types of written columns from batch to batch, so that a column that starts with nulls or
    whole numbers does not change its type without need.
    """
    batch = columns.batch
    indices = [row.index for row in rows]
    first, count = indices[0], len(indices)
    in_a_row = indices[-1] - first + 1 == count and indices == list(range(first, first + count))
    origin = batch.slice(first, count) if in_a_row else batch.take(pa.array(indices, type=pa.int64()))
    whole = any(type(row) is WholeRow for row in rows)
    if not whole and not columns.written:
        return origin
    names = _names_of(rows, columns) if whole else (*columns.names, *sorted(columns.written - set(columns.names)))
    arrays: list[pa.Array] = []
    for name in names:
        if not whole and name not in columns.written:
            arrays.append(origin.column(name))
        else:
            known = types.get(name) or (batch.schema.field(name).type if name in columns.names else None)
            arrays.append(to_arrow([row.get(name) for row in rows], known))
            types[name] = arrays[-1].type
    hidden = [name for name in HIDDEN if name in batch.schema.names]
    arrays.extend(origin.column(name) for name in hidden)
    return pa.RecordBatch.from_arrays(arrays, names=[*names, *hidden])


def _names_of(rows: Iterable[Row], columns: Columns) -> tuple[str, ...]:
    names: dict[str, None] = {}
    for row in rows:
        if type(row) is not WholeRow:
            names.update(dict.fromkeys(columns.names))
        names.update(dict.fromkeys(row))
    return tuple(name for name in names if name not in (DUE, TRANSACTION))
