"""Laid rows: rows that hold the values of the columns that a function reads, for the inner loop (see ``inner_loop``).

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

from typing import Any

import pyarrow as pa

from fries_nb.operators.rows import NOTHING, UNREAD, Columns, Row

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
    """A laid row for functions of which ``row_uses.is_by_name`` is true, with the assignment of ``dict``."""

    __slots__ = ()

    __setitem__ = dict.__setitem__
    __delitem__ = dict.__delitem__


def laid_row(columns: Columns, kind: type[LaidRow] = LaidRow) -> LaidRow:
    """A row of these columns that holds nothing yet."""
    row = kind(NOTHING)
    row.columns = columns
    row.index = 0
    return row
