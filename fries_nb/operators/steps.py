"""A chain at work: steps, which pass a row from operator to operator, and outputs, in which rows become batches.

**Steps** are functions that process one row with an operator's function and pass the results to the next step.

Steps are compiled when a chain starts and after each switch, so the loop over tuples has no branches: a step is a
closure over the current function and state. Tuples that a step emits reach the end of the chain before it returns, so
between two tuples of a chain's first operator none is in transit inside the chain.

References to a row show whether a function has kept it, in its state for example (CPython counts them): if there are
more when the function has returned than before, another row leaves in its place (see ``rows.detach``).

**Outputs**: a chain has one for each branch, with rows, and the batches that earlier rows were packed into.

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
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from operator import attrgetter, itemgetter
from sys import getrefcount
from typing import Any, ParamSpec, TypeVar

import msgspec
import pyarrow as pa

from fries_nb.dataflow.columns import HIDDEN, alike
from fries_nb.dataflow.expiring import Expiring
from fries_nb.dataflow.keys import canonical_key
from fries_nb.dataflow.operators import Shape, is_generator, shape_of, takes_state, takes_time
from fries_nb.dataflow.tables import JoinTable
from fries_nb.errors import DeclarationError
from fries_nb.operators.audit_log import dropped_of, made_of, matched_of, transaction_of
from fries_nb.operators.awaited_calls import returned_call, waited_for
from fries_nb.operators.column_types import EmittedColumns, as_value, refuse_as_name
from fries_nb.operators.conversion import are_atoms, are_plain, to_arrow
from fries_nb.operators.instance import FAILURES, Instance, failure
from fries_nb.operators.key_ends import renewing_call
from fries_nb.operators.rows import ALONE, NOTHING, UNKNOWN, UNWRITTEN, Columns, Row, WholeRow, derived, detach
from fries_nb.operators.state import key_reader
from fries_nb.operators.timed_calls import timed_call

MOST_ROWS = 4096
"""Maximum number of Python rows kept for one tuple before they are packed, which takes a tenth of their memory."""

_Asked = ParamSpec("_Asked")
_Told = TypeVar("_Told")
Types = dict[str, pa.DataType]
Results = list[tuple[int, pa.RecordBatch]]
"""Batches that a chain produced, each with the index of its branch."""


class Captured(msgspec.Struct, frozen=True):
    """Rows of one batch, as columns of what was written to them."""

    columns: Columns  # the batch
    indices: Sequence[int]  # the indices of the rows
    values: dict[str, list[Any]]  # for each written column its values, one for each row

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

    Attributes:
        captured: rows that arrived as columns, each part with the number of row objects before it.
        is_known: whether columns have begun to settle in it (see ``column_types``).
        emitted: the columns that were written to earlier rows, and are null in later ones that lack them.
    """

    is_known = False

    def __init__(self, assembled: Callable[[Output, Types], pa.RecordBatch], learn: Callable[[Types], None]):
        super().__init__()
        self.batches: list[pa.RecordBatch] = []  # the batches of earlier rows
        self.types: Types = {}  # the types of the columns written so far
        self.captured: list[tuple[int, Captured]] = []
        self.emitted: dict[str, None] = {}
        self.assembled = assembled  # makes a batch of rows, and learns the types of the columns
        # receives the types of each batch; raises an ``OperatorError`` if the batch must not be emitted
        self.learn = learn

    def pack(self) -> None:
        """Pack the rows into a batch."""
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
    """Make one batch of rows, with the hidden columns."""
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
    """The values of all columns; rows may have different columns."""
    # The fast path is that all rows have the columns of the first one.
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
    """Check that column names are distinct, for rows and for Spark, and not reserved."""
    if taken := [name for name in names if name in HIDDEN]:
        raise ValueError(f"the column name {taken[0]!r} is for the runtime's own use")
    first, second = alike(names) or ("", "")
    if first and first == second:
        raise ValueError(f"it has the column {first!r} more than once")
    if first and not alike(came):
        raise ValueError(f"Spark does not tell the columns {first!r} and {second!r} apart; rename one")


Step = Callable[[Row], None]
Emit = Callable[[Row], None]
Sides = Callable[[], str]


@dataclass(frozen=True, slots=True)
class Behind:
    """The continuation of a step."""

    emits: Sequence[Emit]  # functions that take the operator's output rows, one for each branch
    least: int  # the ``Columns.plain`` at which rows are emitted unchanged; rows of other batches are made values first
    side: Sides  # returns the input of the current row of a self-join, ``left`` or ``right``
    call: Callable[[Row], Any] | None = None  # called instead of the operator's function; ``None`` for that function

    def valued(self, instance: Instance) -> Sequence[Emit]:
        """The continuation of an operator that does not itself make values of its rows."""
        operator, least = instance.worker.operator, self.least
        return [_valued(emit, operator, least) if least > UNKNOWN else emit for emit in self.emits]


def call_of(instance: Instance) -> Callable[[Row], Any]:
    """The current function as a function of a row; keyed state is looked up and passed to it."""
    function = instance.function
    process = function.process if shape_of(function) is Shape.KEYED else function
    if instance.operator.awaiting is not None:
        return returned_call(instance, _with_state(instance, waited_for(instance, process)))
    if isinstance(function, Expiring):
        return renewing_call(instance)
    return timed_call(instance) if takes_time(function) else _with_state(instance, process)


def _with_state(instance: Instance, process: Callable[..., Any]) -> Callable[[Row], Any]:
    """A function of a row, which passes the state of the row's key to ``process`` if the operator keeps one."""
    if not takes_state(instance.function):
        return process
    find, touch, key = instance.state.find, instance.state.touch, instance.operator.key
    if len(key) == 1:
        name = key[0]

        def with_state(row: Row) -> Any:
            value = row[name]
            try:
                state = find(value)
            except TypeError:  # not hashable; ``touch`` says what it is
                state = None
            return process(row, touch(value) if state is None else state)
    else:
        read = key_reader(key)

        def with_state(row: Row) -> Any:
            values = read(row)
            try:
                state = find(values)
            except TypeError:
                state = None
            return process(row, touch(values) if state is None else state)

    return with_state


def map_step(instance: Instance, behind: Behind) -> Step:
    """Emits at most one row for a row; any number if the function is a generator."""
    return flat_map_step(instance, behind) if is_generator(instance.function) else row_map_step(instance, behind)


def row_map_step(instance: Instance, behind: Behind) -> Step:
    """Emits at most one row for a row."""
    emit, least = behind.emits[0], behind.least
    call, operator, dropped = behind.call or call_of(instance), instance.worker.operator, dropped_of(instance)
    values = dict.values

    def step(row: Row) -> None:
        held = getrefcount(row)
        try:
            out = call(row)
        except FAILURES as error:
            raise failure(instance, error) from error
        if out is row:
            if getrefcount(row) > held + 1:  # one is ``out``
                out = row = detach(row)
        elif getrefcount(row) > held:
            row = detach(row)
        if out is row or (isinstance(out, Row) and out.index == row.index and out.columns is row.columns):
            if out is not row and getrefcount(out) > ALONE:
                out = detach(out)
            emit(out if out.columns.plain >= least else as_value(out, operator))
        elif isinstance(out, dict):  # a row kept from an earlier tuple, too, is emitted for the current one
            new = derived(out, row)
            if least > UNKNOWN and not are_atoms(map(type, values(new))):
                as_value(new, operator)
            emit(new)
        elif out is not None:
            raise DeclarationError(
                f"{operator} returned {type(out).__name__}; a map returns one row (a dict) or None to drop the tuple; "
                "several rows are what flat_map, or a generator, is for",
                operator,
            )
        elif dropped is not None:
            dropped(row.columns.transactions()[row.index])

    return step


def flat_map_step(instance: Instance, behind: Behind) -> Step:
    """Emits any number of rows for a row, each before the next one is requested."""
    emit = behind.valued(instance)[0]
    call, operator, made, draw = call_of(instance), instance.worker.operator, made_of(instance), instance.draw

    def produced(row: Row) -> Iterator[Row]:
        try:
            outs = call(row)
            for out in () if outs is None else draw(outs):
                yield own_row(out, row, operator)
        except DeclarationError:
            raise
        except FAILURES as error:
            raise failure(instance, error) from error

    def step(row: Row) -> None:
        count, held = 0, getrefcount(row)
        for out in produced(row):
            emit(out)
            count += 1
        if made is not None:
            made(row, count)
        if getrefcount(row) > held:
            detach(row)

    return step


def _of_this_tuple(out: dict[str, Any], row: Row) -> Row:
    if isinstance(out, Row) and out.index == row.index and out.columns is row.columns:
        return out
    return derived(out, row)


def own_row(out: Any, row: Row, operator: str) -> Row:
    """A row that a function has made, as one that derives from ``row``."""
    # It is copied, since a generator may yield one object repeatedly, changed in between.
    if isinstance(out, dict):
        own = _of_this_tuple(out, row)
        return own.copy() if own is out else own
    raise DeclarationError(f"{operator} yielded {type(out).__name__}; expected rows (dicts)", operator)


def filter_step(instance: Instance, behind: Behind) -> Step:
    """Emits the row if the predicate is true."""
    emit, least = behind.emits[0], behind.least
    call, operator, dropped = behind.call or call_of(instance), instance.worker.operator, dropped_of(instance)

    def step(row: Row) -> None:
        held = getrefcount(row)
        try:
            keep = bool(call(row))
        except FAILURES as error:
            raise failure(instance, error) from error
        if getrefcount(row) > held:
            row = detach(row)
        if keep:
            emit(row if row.columns.plain >= least else as_value(row, operator))
        elif dropped is not None:
            dropped(row.columns.transactions()[row.index])

    return step


def unnest_step(instance: Instance, behind: Behind) -> Step:
    """Emits one row for each element of a list column; a struct element is merged into the row."""
    emit = behind.valued(instance)[0]
    column, made, draw = instance.function, made_of(instance), instance.draw

    def step(row: Row) -> None:
        try:
            elements = list(row[column] or ())
        except (KeyError, TypeError) as error:
            raise failure(instance, error) from error
        if made is not None:
            made(row, len(elements))
        for element in draw(elements):
            if isinstance(element, dict):
                out = row | element
                if column not in element:
                    del out[column]
            else:
                out = row | {column: element}
            emit(out)

    return step


def split_step(instance: Instance, behind: Behind) -> Step:
    """Emits the row on the branch that the router returns."""
    emits = behind.valued(instance)
    call, operator = behind.call or call_of(instance), instance.worker.operator

    def step(row: Row) -> None:
        held = getrefcount(row)
        try:
            branch = int(call(row))
        except FAILURES as error:
            raise failure(instance, error) from error
        if getrefcount(row) > held:
            row = detach(row)
        if not 0 <= branch < len(emits):
            raise DeclarationError(
                f"{operator} routed a tuple to branch {branch}; it has branches 0 to {len(emits) - 1}", operator
            )
        if branch and instance.audit:
            transaction = transaction_of(row)
            instance.log.emitted(transaction, -1)
            instance.log.emitted(transaction, 1, branch)
        emits[branch](row)

    return step


def self_join_step(instance: Instance, behind: Behind) -> Step:
    """Pairs the two replicas of a tuple; the output has the left one's columns, then the right one's."""
    # The key occurs once; if both have another column, the right one's gets the operator's suffix. Rows of one side
    # with equal keys wait in order of arrival and are paired first in, first out, so n rows on either side make n
    # pairs. For each key only rows of one side ever wait.
    emit, side = behind.valued(instance)[0], behind.side
    key, suffix = instance.operator.key, instance.function
    state, read, dropped, matched = instance.state, key_reader(key), dropped_of(instance), matched_of(instance)

    def step(row: Row) -> None:
        try:
            values = canonical_key(read(row))
            waiting = state.get(values)
        except FAILURES as error:
            raise failure(instance, error) from error
        here, mine = side(), dict(row)
        if waiting is None:
            state.put(values, waiting := (here, deque()))
        if waiting[0] == here:
            waiting[1].append(mine)
            if dropped is not None and matched is not None:
                dropped(row.columns.transactions()[row.index])
                matched(row, values, here, False)
            return
        partner = waiting[1].popleft()
        if not waiting[1]:
            state.drop(values)
        left, right = (mine, partner) if here == "left" else (partner, mine)
        new = {name: value for name, value in right.items() if name not in key}
        emit(derived(left | _renamed(new, left, suffix, instance), row))
        if matched is not None:
            matched(row, values, here, True)

    return step


def join_step(instance: Instance, behind: Behind) -> Step:
    """Emits the row once for each of the table's rows with its key, extended by their columns."""
    emit = behind.valued(instance)[0]
    table: JoinTable = instance.function
    read, find, suffix = key_reader(table.key), table.find, table.suffix
    nothing = [dict.fromkeys(table.schema.names)] if table.how == "left" else []
    made, draw = made_of(instance), instance.draw

    def step(row: Row) -> None:
        try:
            found = find(read(row)) or nothing
        except FAILURES as error:
            raise failure(instance, error) from error
        if made is not None:
            made(row, len(found))
        for columns in draw(found):
            emit(row | _renamed(columns, row, suffix, instance))

    return step


def _renamed(columns: dict[str, Any], row: dict[str, Any], suffix: str, instance: Instance) -> dict[str, Any]:
    """Columns of the right side under names that the row does not have; each has the same name in all rows."""
    names = instance.names
    if names.is_plain and not any(name in row for name in columns):
        return columns
    known = names.known.get("right", {})
    called = {name: name + suffix if name in row else known.get(name, name) for name in columns}
    if not called.items() <= known.items():
        names.settle({}, called)
    new = {called[name]: value for name, value in columns.items()}
    if taken := [name for name in new if name in row]:
        operator = instance.worker.operator
        raise DeclarationError(
            f"{operator} would overwrite the column {taken[0]!r}; give the join another suffix than {suffix!r}",
            operator,
        )
    return new


def dedup_step(instance: Instance, behind: Behind) -> Step:
    """Emits the row if it is the first with its key."""
    emit = behind.valued(instance)[0]
    state, read, find = instance.state, key_reader(instance.operator.key), instance.state.find
    dropped, matched = dropped_of(instance), matched_of(instance)

    def step(row: Row) -> None:
        try:
            key = canonical_key(read(row))
            seen = find(key) or state.get(key)
        except FAILURES as error:
            raise failure(instance, error) from error
        if not seen:
            state.put(key, True)
            emit(row)
        elif dropped is not None:
            dropped(row.columns.transactions()[row.index])
        if matched is not None:
            matched(row, key, "", not seen)

    return step


def crossing_step(before: Instance, instance: Instance, step: Step) -> Step:
    """Passes rows from one operator of a chain to the next, as values with all columns, and counts them."""
    operator, values, keys, names = before.worker.operator, dict.values, dict.keys, before.written.emitted
    emitted = EmittedColumns(names, operator)

    def crossing(row: Row) -> None:
        instance.processed += 1
        if row.columns.plain < UNWRITTEN or names:
            if not are_plain(map(type, values(row))):
                as_value(row, operator)
            if keys(row) != emitted.keys or len(names) != emitted.count:
                emitted.complete(row)
        step(row)

    return crossing


def _valued(emit: Emit, operator: str, least: int) -> Emit:
    """An ``emit`` that makes values of rows, unless ``Columns.plain`` is at least ``least``."""

    def emit_value(row: Row) -> None:
        emit(row if row.columns.plain >= least else as_value(row, operator))

    return emit_value
