"""Steps: functions that process one row with an operator's function and pass the results to the next step.

Steps are compiled when a chain starts and after each switch, so the loop over tuples has no branches: a step is a
closure over the current function and state. Tuples that a step emits reach the end of the chain before it returns, so
between two tuples of a chain's first operator none is in transit inside the chain.

References to a row show whether a function has kept it, in its state for example (CPython counts them): if there are
more when the function has returned than before, another row leaves in its place (see ``rows.detach``).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from sys import getrefcount
from typing import Any

from fries_nb.dataflow.keys import canonical_key
from fries_nb.dataflow.operators import Shape, is_generator, shape_of, takes_state, takes_time
from fries_nb.dataflow.tables import JoinTable
from fries_nb.errors import DeclarationError
from fries_nb.operators.audit_log import dropped_of, made_of, matched_of, transaction_of
from fries_nb.operators.conversion import are_atoms, are_plain
from fries_nb.operators.failures import FAILURES, failure
from fries_nb.operators.instance import Instance
from fries_nb.operators.rows import ALONE, UNKNOWN, UNWRITTEN, Row, derived, detach
from fries_nb.operators.state import key_reader
from fries_nb.operators.timed_calls import timed_call
from fries_nb.operators.values import EmittedColumns, as_value

Step = Callable[[Row], None]
Emit = Callable[[Row], None]
Sides = Callable[[], str]


@dataclass(frozen=True, slots=True)
class Behind:
    """The continuation of a step.

    Attributes:
        emits: functions that take the operator's output rows, one for each branch.
        least: the ``Columns.plain`` at which rows are emitted unchanged; rows of other batches are made values first.
        side: returns the input of the current row of a self-join, ``left`` or ``right``.
        call: called instead of the operator's function; ``None`` for that function.
    """

    emits: Sequence[Emit]
    least: int
    side: Sides
    call: Callable[[Row], Any] | None = None

    def valued(self, instance: Instance) -> Sequence[Emit]:
        """The continuation of an operator that does not itself make values of its rows."""
        operator, least = instance.worker.operator, self.least
        return [_valued(emit, operator, least) if least > UNKNOWN else emit for emit in self.emits]


def call_of(instance: Instance) -> Callable[[Row], Any]:
    """The current function as a function of a row; keyed state is looked up and passed to it."""
    function = instance.function
    if shape_of(function) is not Shape.KEYED:
        return function  # type: ignore[no-any-return]
    process = function.process
    if takes_time(function):
        return timed_call(instance)
    if not takes_state(function):
        return process  # type: ignore[no-any-return]
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
    """A row that a function has made, as one that derives from ``row``.

    It is copied, since a generator may yield one object repeatedly, changed in between.

    Raises:
        DeclarationError: it is no row.
    """
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
    """Pairs the two replicas of a tuple; the output has the left one's columns, then the right one's.

    The key occurs once; if both have another column, the right one's gets the operator's suffix. Rows of one side with
    equal keys wait in order of arrival and are paired first in, first out, so n rows on either side make n pairs. For
    each key only rows of one side ever wait.
    """
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
        new = {name + suffix if name in left else name: value for name, value in right.items() if name not in key}
        emit(derived(left | new, row))
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
            emit(row | _renamed(columns, row, suffix, instance.worker.operator))

    return step


def _renamed(columns: dict[str, Any], row: Row, suffix: str, operator: str) -> dict[str, Any]:
    """A table's columns under names that the row does not have."""
    if not any(name in row for name in columns):
        return columns
    new = {name + suffix if name in row else name: value for name, value in columns.items()}
    if taken := [name for name in new if name in row]:
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
    operator, values, keys = before.worker.operator, dict.values, dict.keys
    emitted = EmittedColumns(before.written.emitted, operator)

    def crossing(row: Row) -> None:
        instance.processed += 1
        if row.columns.plain < UNWRITTEN or emitted.keys:
            if not are_plain(map(type, values(row))):
                as_value(row, operator)
            if keys(row) != emitted.keys:
                emitted.complete(row)
        step(row)

    return crossing


def _valued(emit: Emit, operator: str, least: int) -> Emit:
    """An ``emit`` that makes values of rows, unless ``Columns.plain`` is at least ``least``."""

    def emit_value(row: Row) -> None:
        emit(row if row.columns.plain >= least else as_value(row, operator))

    return emit_value
