"""Outputs are values: a row leaves an operator as it was when its function returned (or yielded it), in canonical form.

A function may include a reference to its state in a row, ``row | {"last": state["last"]}``, and change the state with
the next tuple before the row has become part of a column; and the next operator of the chain may change, or keep, what
it gets. So mutable values are copied between two operators and at the end of the chain. Between two operators all
values get the form that a column would give them (see ``canonical``); at the end of a chain the columns do.

Converting every row would cost a row function a tenth of its time. At the end of a chain rows are checked until the
written columns have *settled*: their Arrow types hold only immutable values, and a column keeps its type.
``Columns.plain`` tells whether a batch has reached that state, or whether nothing in it was written at all.

>>> from fries_nb.operators.rows import Columns, Reads
>>> import pyarrow as pa
>>> came = next(Columns(pa.RecordBatch.from_pydict({"n": [1]}), Reads()).rows())
>>> last = [1]
>>> out = as_value(came | {"p": 0.5, "last": last}, "FM")
>>> last.append(2)
>>> out
{'n': 1, 'p': 0.5, 'last': [1]}
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from fries_nb.dataflow.hidden_columns import HIDDEN
from fries_nb.errors import DeclarationError
from fries_nb.operators.conversion import PLAIN, are_plain, canonical
from fries_nb.operators.rows import UNREAD, NestedRow, Row

_LONGEST = 80
"""Maximum length of a value in a message."""

_values = dict.values
_IMMUTABLE = frozenset(
    kind.id for kind in (
        pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64(),
        pa.float16(), pa.float32(), pa.float64(), pa.bool_(), pa.string(), pa.large_string(),
        pa.date32(), pa.date64(), pa.time32("s"), pa.time64("us"), pa.timestamp("us"), pa.duration("us"),
        pa.decimal128(1), pa.decimal256(1),
    )
)  # fmt: skip
"""Ids of the column types whose Python values are immutable."""


def as_value(row: Row, operator: str) -> Row:
    """Bring the values of a row that an operator emits into canonical form, none shared; returns the row."""
    if type(row) is NestedRow:
        row.drop_unchanged()
    if are_plain(map(type, _values(row))):
        return row
    columns = row.columns
    for name, value in list(dict.items(row)):
        if type(value) not in PLAIN and name not in HIDDEN:
            try:
                dict.__setitem__(row, name, canonical(value, columns.form(name)))
            except Exception as error:  # by the value's own methods, too
                raise cannot_hold(operator, name, value, error) from error
    return row


class EmittedColumns:
    """The columns that an operator's rows have had, which are null in later rows that lack them, as in a column."""

    __slots__ = ("_names", "_operator", "keys")

    def __init__(self, names: dict[str, None], operator: str) -> None:
        # ``names``: the columns; shared by all compilations of the chain
        self._names, self._operator = names, operator
        # what the last row held that was completed; a row that holds the same has all columns
        self.keys: frozenset[object] = frozenset()

    def complete(self, row: Row) -> None:
        """Add to a row, as nulls, the columns that it lacks."""
        names = self._names
        held: dict[Any, Any] = row
        for name in dict.keys(held):
            if name not in names and name is not UNREAD and name not in HIDDEN:
                self._add(name)
        for name in names:
            if name not in row:
                row[name] = None
        self.keys = frozenset(dict.keys(held))

    def _add(self, name: Any) -> None:
        try:
            refuse_as_name(name)
        except ValueError as error:
            raise DeclarationError(f"{self._operator} failed on a tuple: {error}", self._operator) from error
        self._names[name] = None


def refuse_as_name(name: Any) -> None:
    """Refuse a column of this name."""
    if not isinstance(name, str):
        raise ValueError(f"a column's name is text; got {name!r} ({type(name).__name__})")
    if not name:
        raise ValueError("a column's name is text of at least one character; got ''")
    try:
        name.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"the column's name {name!r} is no text that can be written: {error.reason}") from error


def cannot_hold(operator: str, name: object, value: object, error: Exception) -> DeclarationError:
    """The error for a value that a column cannot hold; ``error`` says why, at its end."""
    what = f"{shown(value)} ({type(value).__name__})"
    text = f"{operator} failed on a tuple: column {name!r} cannot hold {what}: {reason(error)}"
    return DeclarationError(text, operator, text)


def reason(error: Exception) -> str:
    """Why a value was refused; of Arrow's messages the end, since the value is shown already."""
    text = (str(error).splitlines() or [type(error).__name__])[0]
    return text if type(error) in (ValueError, TypeError) else text.rpartition(": ")[2]


def shown(value: Any) -> str:
    """A value on one line; the ``repr`` of an object may fail."""
    try:
        text = " ".join(repr(value).split())
    except Exception as error:  # noqa: BLE001 (the user's code; the value is refused, and its message says why)
        text = f"<its repr fails with {type(error).__name__}>"
    return text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."


class SettledColumns:
    """The columns that have settled in each output of a chain that has had rows.

    The first rows of another output are checked in any case (see ``kinds``).
    """

    def __init__(self) -> None:
        # index of each output that has had rows to the columns that have settled there
        self.of_output: dict[int, frozenset[str]] = {}
        self.names: frozenset[str] = frozenset()  # the columns

    def forget(self) -> None:
        """Forget all columns, since others may come or be written."""
        self.of_output.clear()
        self.names = frozenset()

    def learn(self, output: int, written: Iterable[str], types: Mapping[str, pa.DataType], operator: str) -> None:
        """Learn from a batch that was emitted."""
        names, before = list(written), self.of_output.get(output, frozenset())
        plain = frozenset(name for name in names if name in types and types[name].id in _IMMUTABLE)
        if lost := [name for name in names if name in before & self.names and name not in plain]:
            raise DeclarationError(
                f"{operator} wrote {types[lost[0]]} values to the column {lost[0]!r}, which took others before; "
                "a column keeps its type until the operator is changed",
                operator,
            )
        self.of_output[output] = before.difference(names) | plain
        self.names = frozenset.intersection(*self.of_output.values())
