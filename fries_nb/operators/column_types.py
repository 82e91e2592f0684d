"""What leaves an operator: values in canonical form, whose types can become columns.

Outputs are values: a row leaves an operator as it was when its function returned (or yielded it), in canonical form.

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

Checks for each emitted row whether its values can become columns.

Rows are converted to Arrow columns one batch at a time, at the end of a chain (see ``rows``). It is then too late to
set a single tuple aside, since later tuples have used the state that it changed, and other operators have processed its
rows. So an operator that writes dead letters, or pauses, checks each row that it emits. A value of a Python type that
its column has accepted before costs a dictionary lookup; other values are converted by Arrow. Operators that fail the
run check rows only when a batch cannot be converted.

A column keeps its type, also across batches, since a sink could not write it otherwise; integers may become floats, and
nulls any type. The first value determines the type. It may change when the operator's input types change, as after a
change upstream.

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

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import pyarrow as pa

from fries_nb.dataflow.columns import HIDDEN, is_fixed, taken, united
from fries_nb.errors import DeclarationError
from fries_nb.operators.conversion import NOT_ARROW, PLAIN, are_plain, canonical, to_arrow
from fries_nb.operators.rows import UNREAD, Columns, NestedRow, Row, WholeRow, derived

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

    __slots__ = ("_names", "_operator", "count", "keys")

    def __init__(self, names: dict[str, None], operator: str) -> None:
        # ``names``: the columns; shared by all compilations of the chain
        self._names, self._operator = names, operator
        # what the last row held that was completed; a row that holds the same has all columns
        self.keys: frozenset[object] = frozenset()
        self.count = 0  # the number of columns then; another compilation may have met more since

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
        self.keys, self.count = frozenset(dict.keys(held)), len(names)

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
    refused = DeclarationError(text, operator, text)
    refused.mentions = {str(name): shown(value)}
    return refused


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


_EXACT = 2**53
"""Largest integer up to which all integers fit a column of floats."""
_ABSENT: Any = object()
Emit = Callable[[Row], None]


class TypesMark(NamedTuple):
    """A saved state of ``ColumnTypes``."""

    columns: Columns | None
    input: pa.Schema | None
    types: dict[str, pa.DataType]
    examples: dict[str, dict[type, Any]]
    kinds: dict[Any, set[type]]


class ColumnTypes:
    """The types of the columns that one operator at one worker has written with its current function."""

    __slots__ = (
        "_columns", "_examples", "_fixed", "_input", "_kinds", "_operator", "_types", "agreed", "emitted", "needed",
    )  # fmt: skip

    def __init__(self, operator: str) -> None:
        self._operator = operator
        # for each branch the columns that each row must have, each with the operator that is keyed by it
        self.needed: Sequence[Mapping[str, str]] = ()
        self.emitted: dict[str, None] = {}  # the columns that the rows for the next operator of the chain have had
        # columns that other workers of the operator have written, or that the sink's table has; this worker must keep
        # their types and satisfy the table's constraints
        self.agreed = pa.schema([])
        self.forget()

    def forget(self) -> None:
        """Discard learned types, since other functions run now."""
        self._columns: Columns | None = None
        self._input: pa.Schema | None = None
        self.emitted.clear()
        self._forget_types()

    def requiring(self, emits: Sequence[Emit]) -> Sequence[Emit]:
        """These functions, which take the rows of each branch, as ones that refuse a row without a key column.

        Raises (the functions):
            DeclarationError: the row lacks a column that an operator behind is keyed by.
        """
        asked = [*self.needed, *[{}] * (len(emits) - len(self.needed))]
        return [self._requiring(emit, names) if names else emit for emit, names in zip(emits, asked, strict=True)]

    def _requiring(self, emit: Emit, needed: Mapping[str, str]) -> Emit:
        names, complete = tuple(needed), None

        def emit_complete(row: Row) -> None:
            nonlocal complete
            came = row.columns.names
            if came is not complete or type(row) is WholeRow:
                for name in names:
                    if name not in row:
                        raise self._lacks(name, needed[name], list(map(str, row)))
                if type(row) is not WholeRow and all(name in came for name in names):
                    complete = came  # so that no other row of such a batch needs a look, unless it is whole
            emit(row)

        return emit_complete

    def require(self, out: pa.RecordBatch) -> None:
        """Check that a batch that a vectorised function made has the key columns."""
        for name, of in self.needed[0].items() if self.needed and out.num_rows else ():
            if name not in out.schema.names:
                raise self._lacks(name, of, [each for each in out.schema.names if each not in HIDDEN])

    def _forget_types(self) -> None:
        self._types: dict[str, pa.DataType] = {field.name: field.type for field in self.agreed}
        self._fixed = [field for field in self.agreed if is_fixed(field)]
        self._examples: dict[str, dict[type, Any]] = {}  # column to a value of each Python type
        self._kinds: dict[Any, set[type]] = {}

    def mark(self) -> TypesMark:
        """The current state, for ``rewind``."""
        examples = {name: dict(values) for name, values in self._examples.items()}
        kinds = {name: set(sure) for name, sure in self._kinds.items()}
        return TypesMark(self._columns, self._input, dict(self._types), examples, kinds)

    def rewind(self, mark: TypesMark) -> None:
        """Restore a saved state."""
        self._columns, self._input, self._types, self._examples, self._kinds = mark

    def check(self, out: Row, came: Row) -> None:
        """Check a row that the operator made, and learn its types."""
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
                    and (kind is not str or value.isascii())  # no lone surrogate
                ):
                    continue
            self._convert(name, value, came)

    def check_batch(self, out: pa.RecordBatch, came: pa.RecordBatch) -> None:
        """Check a batch that a vectorised function made; a batch that is refused has no effect on the types."""
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
        """Check a row against the columns of a table, including values that were passed on unchanged."""
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
                what = f"{shown(value)} ({type(value).__name__})"
                refused = self._refused(column.name, what, ValueError(f"it {error}"))
                refused.mentions = {column.name: shown(value)}
                raise refused from error
            except NOT_ARROW:
                continue  # no column can hold it; reported by the checks that follow

    def _check_column(self, column: pa.Field, out: pa.RecordBatch) -> None:
        """Check a column of a batch."""
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
        """If input types have changed (beyond widening), output types may change as well."""
        if self._input is None or schema == self._input:
            self._input = schema
            return
        try:
            self._input = united(self._input.remove_metadata(), schema.remove_metadata())
        except pa.ArrowException:
            self._input = schema
            self._forget_types()

    def _convert(self, name: Any, value: Any, came: Row) -> None:
        """Check a value with Arrow, unless it was passed on from the input."""
        if name in HIDDEN:
            return
        try:
            refuse_as_name(name)
            alone = to_arrow([value], self._known(name, came.columns)).type
            kind, examples = self._settled(name, alone), self._examples.get(name, {})
            if examples and alone != self._types[name]:
                to_arrow([*examples.values(), value], None)  # as if all were values of the first batch
        except NOT_ARROW as error:
            if dict.get(came, name, _ABSENT) is not value:
                raise cannot_hold(self._operator, name, value, error) from error
        else:
            self._note(name, value, kind)

    def _known(self, name: str, columns: Columns) -> pa.DataType | None:
        """The type that ``assemble`` tries first."""
        present = columns.batch.schema.field(name).type if name in columns.names else None
        return self._types.get(name, present)

    def _settled(self, name: str, kind: pa.DataType) -> pa.DataType:
        """The column's type after a value of this type was accepted: one that holds all earlier values and this one."""
        before = self._types.get(name, kind)
        if kind == before:
            return before
        one, other = [pa.schema([("x", each)]) for each in (before, kind)]
        with suppress(pa.ArrowException):
            return united(one, other).field("x").type
        raise ValueError(f"it was {before} before, and a column keeps its type")

    def _note(self, name: str, value: Any, kind: pa.DataType) -> None:
        sure = self._kinds.setdefault(name, set())
        if value is None:
            return
        self._types[name] = kind
        self._examples.setdefault(name, {})[type(value)] = value
        if _takes_all(kind, type(value)):
            sure.add(type(value))

    def _lacks(self, name: str, of: str, columns: Sequence[str]) -> DeclarationError:
        text = (
            f"{self._operator} failed on a tuple: its row has {', '.join(columns) or 'no columns'}, and "
            f"{of} is keyed by {name}"
        )
        return DeclarationError(text, self._operator, text)

    def _refused(self, name: Any, what: str, error: Exception) -> DeclarationError:
        text = f"{self._operator} failed on a tuple: column {name!r} cannot hold {what}: {reason(error)}"
        return DeclarationError(text, self._operator, text)


def _takes_all(column: pa.DataType, kind: type) -> bool:
    """Whether a column of this type that accepts one value of a Python type accepts all (ints up to ``_EXACT``)."""
    number = pa.types.is_integer(column) or pa.types.is_floating(column)
    return (
        (kind is int and bool(number))
        or (kind is float and bool(pa.types.is_floating(column)))
        or (kind is str and bool(pa.types.is_string(column) or pa.types.is_large_string(column)))
        or (kind is bool and bool(pa.types.is_boolean(column)))
    )


def culprit(operators: Sequence[str], rows: Sequence[Row], error: Exception) -> DeclarationError:
    """The error for rows that cannot become columns: it names the value, if a single one is the cause.

    Args:
        operators: names of those that may have made it, the last one last.
        rows: the rows.
        error: why they make no columns.
    """
    written = ColumnTypes(" or ".join(operators))
    try:
        for row in rows:
            written.check(row, derived({}, row))
    except DeclarationError as found:
        refused = DeclarationError(str(found), operators[-1])
        refused.mentions = found.mentions
        return refused
    return DeclarationError(f"{operators[-1]} produced rows that make no columns: {error}", operators[-1])
