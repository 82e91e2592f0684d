"""Whether what a function wrote can leave as columns, asked tuple by tuple.

Rows become Arrow columns a whole batch at a time, at the end of a chain (see ``rows``). There it is too late to set one
tuple aside: those behind it have met the state that it left, and other operators have seen its rows. So an operator
that sets tuples aside, or pauses, asks about each row that it emits. A value of a type that its column has taken before
costs a look into a dict; about all else Arrow is asked. Operators that fail the run ask only when a batch has failed.

A column keeps its type, from batch to batch too, or a sink could not write it; whole numbers may become floats, and
nulls anything. The first value decides. It may change when the operator's input does, as after a change upstream.

>>> from fries_nb.operators.rows import Reads
>>> came = next(Columns(pa.RecordBatch.from_pydict({"n": [1]}), Reads()).rows())
>>> written = ColumnTypes("FM")
>>> written.check(came | {"x": 1}, came), written.check(came | {"x": 0.5}, came)
(None, None)
>>> written.check(came | {"x": "n/a"}, came)
Traceback (most recent call last):
fries_nb.errors.DeclarationError: FM failed on a tuple: column 'x' cannot hold 'n/a' (str): it was double before, ...
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import pyarrow as pa

from fries_nb.dataflow.columns import are_apart, united
from fries_nb.dataflow.table_columns import is_fixed, taken
from fries_nb.errors import DeclarationError
from fries_nb.messages import HIDDEN
from fries_nb.operators.conversion import NOT_ARROW, to_arrow
from fries_nb.operators.rows import Columns, Row, WholeRow, derived

_EXACT = 2**53
"""Whole numbers up to this one fit a column of floats, too."""
_LONGEST = 80
"""Characters of a value that a message shows."""
_ABSENT: Any = object()


class TypesMark(NamedTuple):
    """What a ``ColumnTypes`` knew at some moment."""

    columns: Columns | None
    input: pa.Schema | None
    types: dict[str, pa.DataType]
    examples: dict[str, dict[type, Any]]
    kinds: dict[Any, set[type]]


class ColumnTypes:
    """The types of the columns that one operator at one worker has written since it runs its present function.

    Attributes:
        needed: columns that each row must have, with the operator that is keyed by it.
        agreed: columns that other workers of the operator have written, or that a table has: this one has to keep
            their types, and to what a table demands besides.
    """

    __slots__ = ("_columns", "_examples", "_fixed", "_input", "_kinds", "_operator", "_types", "agreed", "needed")

    def __init__(self, operator: str) -> None:
        self._operator = operator
        self.needed: Mapping[str, str] = {}
        self.agreed = pa.schema([])
        self.forget()

    def forget(self) -> None:
        """Other functions run now; what they write is to be learnt anew."""
        self._columns: Columns | None = None
        self._input: pa.Schema | None = None
        self._forget_types()

    def _forget_types(self) -> None:
        self._types: dict[str, pa.DataType] = {field.name: field.type for field in self.agreed}
        self._fixed = [field for field in self.agreed if is_fixed(field)]
        self._examples: dict[str, dict[type, Any]] = {}  # one for each of its Python types
        self._kinds: dict[Any, set[type]] = {}

    def mark(self) -> TypesMark:
        """What it knows by now, for ``rewind``."""
        examples = {name: dict(values) for name, values in self._examples.items()}
        kinds = {name: set(sure) for name, sure in self._kinds.items()}
        return TypesMark(self._columns, self._input, dict(self._types), examples, kinds)

    def rewind(self, mark: TypesMark) -> None:
        """What was learnt since is forgotten."""
        self._columns, self._input, self._types, self._examples, self._kinds = mark

    def check(self, out: Row, came: Row) -> None:
        """Take note of a row that the operator made of the row that came to it.

        Raises:
            DeclarationError: it has written a value that no column can hold, or none that holds the earlier ones; or
                the row lacks a key.
        """
        for name in self.needed:
            if name not in out:
                raise self._lacks(name, [str(each) for each in out])
        columns = out.columns
        if columns is not self._columns:
            self._columns = columns
            self._follow(columns.batch.schema)
        if self._fixed:
            self._check_fixed(out, came)
        kinds = self._kinds
        for name in dict.keys(out) if type(out) is WholeRow else columns.written:
            value, sure = dict.get(out, name), kinds.get(name)
            if sure is not None:
                kind = type(value)
                if value is None or (
                    kind in sure
                    and (kind is not int or -_EXACT <= value <= _EXACT)
                    and (kind is not str or value.isascii())  # not half a surrogate
                ):
                    continue
            self._ask(name, value, came)

    def check_batch(self, out: pa.RecordBatch, came: pa.RecordBatch) -> None:
        """Likewise for a batch that a vectorised function made; nothing of one that is refused is noted.

        Raises:
            DeclarationError: a column has another type than before, or rows lack a key.
        """
        for name in self.needed if out.num_rows else ():
            if name not in out.schema.names:
                raise self._lacks(name, [each for each in out.schema.names if each not in HIDDEN])
        for column in self._fixed if out.num_rows else ():
            self._check_column(column, out)
        self._follow(came.schema)
        settled = {}
        for field in out.schema:
            if field.name not in HIDDEN:
                try:
                    settled[field.name] = self._settled(field.name, field.type)
                except ValueError as error:
                    raise self._refused(field.name, f"{field.type}", error) from error
        self._types.update(settled)

    def _check_fixed(self, out: Row, came: Row) -> None:
        """Hold a row against the columns of a table, also where it is passed on: its source cannot set it aside."""
        columns = came.columns
        names = list(dict.keys(out)) if type(out) is WholeRow else [*out.columns.names, *out.columns.written]
        for column in self._fixed:
            self._check_name(column, names)
            if column.name not in names and column.nullable:
                continue
            value = out.get(column.name)
            try:
                present = columns.batch.schema.field(column.name).type if column.name in columns.names else None
                taken(column, to_arrow([value], present), "the table")
            except ValueError as error:
                what = f"{_shown(value)} ({type(value).__name__})"
                raise self._refused(column.name, what, ValueError(f"it {error}")) from error
            except NOT_ARROW:
                continue  # no column can hold it, as will be said

    def _check_column(self, column: pa.Field, out: pa.RecordBatch) -> None:
        """Likewise for a batch."""
        self._check_name(column, out.schema.names)
        there = column.name in out.schema.names
        try:
            taken(column, out.column(column.name) if there else pa.nulls(0 if column.nullable else 1), "the table")
        except ValueError as error:
            what = str(out.schema.field(column.name).type) if there else "None"
            raise self._refused(column.name, what, ValueError(f"it {error}")) from error

    def _check_name(self, column: pa.Field, names: Sequence[str]) -> None:
        low = column.name.lower()
        if others := [name for name in names if name != column.name and str(name).lower() == low]:
            text = (
                f"{self._operator} failed on a tuple: it has column {others[0]!r}, which the table has as "
                f"{column.name!r}; rename it"
            )
            raise DeclarationError(text, self._operator, text)

    def _follow(self, schema: pa.Schema) -> None:
        """If the input's types have changed (not only widened), those of what is written may change as well."""
        if self._input is None or schema == self._input:
            self._input = schema
            return
        try:
            self._input = united(self._input.remove_metadata(), schema.remove_metadata())
        except pa.ArrowException:
            self._input = schema
            self._forget_types()

    def _ask(self, name: Any, value: Any, came: Row) -> None:
        """Ask Arrow about a value; one that came with the row and was passed on is not this operator's."""
        if name in HIDDEN:
            return
        try:
            _refuse_as_name(name)
            alone = to_arrow([value], self._known(name, came.columns)).type
            kind, examples = self._settled(name, alone), self._examples.get(name, {})
            if examples and alone != self._types[name]:
                to_arrow([*examples.values(), value], None)  # as if all were in a first batch
        except NOT_ARROW as error:
            if dict.get(came, name, _ABSENT) is not value:
                raise self._refused(name, f"{_shown(value)} ({type(value).__name__})", error) from error
        else:
            self._note(name, value, kind)

    def _known(self, name: str, columns: Columns) -> pa.DataType | None:
        """The type under which the column is tried first, as ``assemble`` will."""
        present = columns.batch.schema.field(name).type if name in columns.names else None
        return self._types.get(name, present)

    def _settled(self, name: str, kind: pa.DataType) -> pa.DataType:
        """The type that the column has from now on: one that holds what it had and this one.

        Raises:
            ValueError: there is none.
        """
        before = self._types.get(name, kind)
        if kind == before:
            return before
        both = [pa.schema([("x", one)]) for one in (before, kind)]
        with suppress(pa.ArrowException):
            if not are_apart(before, kind):
                return pa.unify_schemas(both, promote_options="permissive").field("x").type
        raise ValueError(f"it was {before} before, and a column keeps its type")

    def _note(self, name: str, value: Any, kind: pa.DataType) -> None:
        sure = self._kinds.setdefault(name, set())
        if value is None:
            return
        self._types[name] = kind
        self._examples.setdefault(name, {})[type(value)] = value
        if _takes_all(kind, type(value)):
            sure.add(type(value))

    def _lacks(self, name: str, columns: Sequence[str]) -> DeclarationError:
        text = (
            f"{self._operator} failed on a tuple: its row has {', '.join(columns) or 'no columns'}, and "
            f"{self.needed[name]} is keyed by {name}"
        )
        return DeclarationError(text, self._operator, text)

    def _refused(self, name: Any, what: str, error: Exception) -> DeclarationError:
        text = f"{self._operator} failed on a tuple: column {name!r} cannot hold {what}: {_reason(error)}"
        return DeclarationError(text, self._operator, text)


def _takes_all(column: pa.DataType, kind: type) -> bool:
    """Whether a column of this type that has taken one value of a Python type takes all (ints up to ``_EXACT``)."""
    number = pa.types.is_integer(column) or pa.types.is_floating(column)
    return (
        (kind is int and bool(number))
        or (kind is float and bool(pa.types.is_floating(column)))
        or (kind is str and bool(pa.types.is_string(column) or pa.types.is_large_string(column)))
        or (kind is bool and bool(pa.types.is_boolean(column)))
    )


def _refuse_as_name(name: Any) -> None:
    if not isinstance(name, (str, bytes)):
        raise ValueError("a column's name is text")
    pa.field(name, pa.null())  # and text that can be written


def _reason(error: Exception) -> str:
    """The end of what Arrow says; in front of it is the value, which was shown already."""
    text = (str(error).splitlines() or [type(error).__name__])[0]
    return text if type(error) is ValueError else text.rpartition(": ")[2]


def _shown(value: Any) -> str:
    """A value on one line; an object's own ``repr`` may fail."""
    try:
        text = " ".join(repr(value).split())
    except Exception as error:  # noqa: BLE001 (the user's code; the value is refused, and its message says why)
        text = f"<its repr fails with {type(error).__name__}>"
    return text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."


def culprit(operators: str, rows: Sequence[Row]) -> str:
    """By which value these rows, which an operator (or one of several) has made, make no columns.

    Empty where no value alone is to blame.
    """
    written = ColumnTypes(operators)
    try:
        for row in rows:
            written.check(row, derived({}, row))
    except DeclarationError as error:
        return str(error)
    return ""
