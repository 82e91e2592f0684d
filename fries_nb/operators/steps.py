"""How one operator treats one row: a step calls the operator's function and hands what comes out to the next step.

Steps are compiled when a chain starts and after each switch, so the loop over tuples asks no questions: a step is a
closure over the present function and state. The tuples that a step emits reach the end of the chain before the step
returns; so between two tuples of a chain's first operator nothing is under way inside it.

Whether a function has kept a row, in its state for example, is seen by the references to it (CPython counts them): if
there are more when the function has returned than before, another row leaves in its place (see ``rows.detach``).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from sys import getrefcount
from typing import Any

import pyarrow as pa

from fries_nb.dataflow.graph import Emits, Kind
from fries_nb.dataflow.operators import Shape, is_generator, shape_of, takes_state
from fries_nb.dataflow.tables import JoinTable
from fries_nb.errors import DeclarationError
from fries_nb.operators.audit_log import dropped_of, logged, made_of, transaction_of
from fries_nb.operators.error_policy import Held, Leaving, guarded, is_watched
from fries_nb.operators.failures import FAILURES, failure
from fries_nb.operators.instance import Instance
from fries_nb.operators.outputs import Apart, Output
from fries_nb.operators.recent import Noted, noting
from fries_nb.operators.retry import Undos, is_retried, undoable, whole
from fries_nb.operators.rows import ALONE, SETTLED, UNKNOWN, UNWRITTEN, Row, derived, detach, key_reader
from fries_nb.operators.state import same_key
from fries_nb.operators.values import all_hashable, as_value

Step = Callable[[Row], None]
Emit = Callable[[Row], None]
Sides = Callable[[], str]


def call_of(instance: Instance) -> Callable[[Row], Any]:
    """The present function as a function of a row alone; keyed state is looked up and handed in."""
    function = instance.function
    if shape_of(function) is not Shape.KEYED:
        return function  # type: ignore[no-any-return]
    process = function.process
    if not takes_state(function):
        return process  # type: ignore[no-any-return]
    live, touch, key = instance.state.live, instance.state.touch, instance.operator.key
    if len(key) == 1:
        name = key[0]

        def with_state(row: Row) -> Any:
            value = row[name]
            state = live.get(value)
            return process(row, touch(value) if state is None else state)
    else:
        read = key_reader(key)

        def with_state(row: Row) -> Any:
            values = read(row)
            state = live.get(values)
            return process(row, touch(values) if state is None else state)

    return with_state


def map_step(instance: Instance, emit: Emit, least: int) -> Step:
    """At most one row out for a row in; it is a value as it is where its batch is at ``least`` so plain."""
    call, operator, dropped = call_of(instance), instance.worker.operator, dropped_of(instance)
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
        elif isinstance(out, dict):  # an earlier row, too, leaves on behalf of the tuple in hand
            new = derived(out, row)
            if least > UNKNOWN:
                try:
                    all_hashable(values(new))
                except Exception:  # noqa: BLE001 (not hashable, or by the user's own __hash__)
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


def flat_map_step(instance: Instance, emit: Emit) -> Step:
    """Any number of rows out for a row in, each passed on before the next one is asked for."""
    call, operator, made, draw = call_of(instance), instance.worker.operator, made_of(instance), instance.draw

    def produced(row: Row) -> Iterator[Row]:
        try:
            outs = call(row)
            for out in () if outs is None else draw(outs):
                yield _copied(out, row, operator)
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


def _copied(out: Any, row: Row, operator: str) -> Row:
    """A generator may yield one row object again and again, changed in between: take a copy of each."""
    if isinstance(out, dict):
        own = _of_this_tuple(out, row)
        return own.copy() if own is out else own
    raise DeclarationError(f"{operator} yielded {type(out).__name__}; expected rows (dicts)", operator)


def filter_step(instance: Instance, emit: Emit, least: int) -> Step:
    """The row, if the predicate is true of it; for ``least`` see ``map_step``."""
    call, operator, dropped = call_of(instance), instance.worker.operator, dropped_of(instance)

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


def unnest_step(instance: Instance, emit: Emit) -> Step:
    """One row for each element of a list column; an element that is a struct is merged into the row."""
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


def split_step(instance: Instance, emits: Sequence[Emit]) -> Step:
    """The row, to the branch that the router names."""
    call, operator = call_of(instance), instance.worker.operator

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
            instance.log.dropped.append(transaction)
            instance.log.emitted(transaction, 1, branch)
        emits[branch](row)

    return step


def self_join_step(instance: Instance, emit: Emit, side: Sides) -> Step:
    """Waits for the two replicas of a tuple; emits the left one's columns, then the right one's.

    The key is there once; where both have another column, the right one's gets the operator's suffix. ``side`` tells
    where the row in hand came from. Rows of one side with equal keys wait in order of arrival, and the first that came
    is paired first, so that n rows on either side make n pairs. Of a key only rows of one side ever wait.
    """
    key, suffix = instance.operator.key, instance.function
    live, read, dropped = instance.state.live, key_reader(key), dropped_of(instance)

    def step(row: Row) -> None:
        try:
            values = same_key(read(row))
            waiting = live.get(values)
        except (KeyError, TypeError) as error:
            raise failure(instance, error) from error
        here, mine = side(), dict(row)
        if waiting is None or waiting[0] == here:
            live.setdefault(values, (here, deque()))[1].append(mine)
            if dropped is not None:
                dropped(row.columns.transactions()[row.index])
            return
        partner = waiting[1].popleft()
        if not waiting[1]:
            del live[values]
        left, right = (mine, partner) if here == "left" else (partner, mine)
        new = {name + suffix if name in left else name: value for name, value in right.items() if name not in key}
        emit(derived(left | new, row))

    return step


def join_step(instance: Instance, emit: Emit) -> Step:
    """The row with the columns of the table's rows of its key."""
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


def joined_columns(instances: Sequence[Instance]) -> list[tuple[pa.Field, str]]:
    """The columns that the chain's joins add, each with the suffix that it gets if the stream has it as well."""
    tables = [instance.function for instance in instances if instance.operator.kind is Kind.JOIN]
    return [(field, table.suffix) for table in tables for field in table.schema]


def joined_types(added: Iterable[tuple[pa.Field, str]], names: Sequence[str]) -> dict[str, pa.DataType]:
    """The names and types under which these columns of joins join the stream's, which has these names already.

    They are the tables' types, not those that the values of some rows suggest.
    """
    return {field.name + suffix if field.name in names else field.name: field.type for field, suffix in added}


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


def dedup_step(instance: Instance, emit: Emit) -> Step:
    """The row, if it is the first of its key."""
    live, read, dropped = instance.state.live, key_reader(instance.operator.key), dropped_of(instance)

    def step(row: Row) -> None:
        try:
            key = same_key(read(row))
            seen = key in live
        except (KeyError, TypeError) as error:
            raise failure(instance, error) from error
        if not seen:
            live[key] = True
            emit(row)
        elif dropped is not None:
            dropped(row.columns.transactions()[row.index])

    return step


def compile_chain(
    instances: Sequence[Instance],
    outputs: Sequence[Output],
    side: Sides,
    noted: Noted | None = None,
) -> Step:
    """The chain's first step, with the others behind it; what comes out lands in ``outputs``, one list a branch.

    With ``noted``, what comes to each operator but the first is noted there.
    """
    retried, undos = is_retried(instances), Undos()
    apart = [Apart(output) for output in outputs] if retried else []
    ends: Sequence[Output] = apart or outputs
    emits: list[Emit] = [output.append for output in ends]
    step: Step = emits[0]
    for position in range(len(instances) - 1, -1, -1):
        instance = instances[position]
        outs = emits if instance.operator.kind is Kind.SPLIT else [step]
        if is_watched(instance):
            many_leave = position == len(instances) - 1 and instance.operator.emits is Emits.ONE_TO_MANY
            room = Leaving(instance, ends) if many_leave else Held(instance, outs)
            step = guarded(instance, partial(_step_of, instance, side, UNKNOWN), room, position == 0)
        else:
            step = _step_of(instance, side, SETTLED if position == len(instances) - 1 else UNKNOWN, outs)
        if retried:
            step = undoable(instance, undos, step)
        if position and noted is not None:
            step = noting(noted, instance, step)
        if instance.audit:
            step = logged(instance, step)
        if position:
            step = _crossing(instances[position - 1], instance, step)
    return whole(instances, apart, undos, step) if retried else step


def _step_of(instance: Instance, side: Sides, least: int, emits: Sequence[Emit]) -> Step:
    kind = instance.operator.kind
    if kind is Kind.FILTER:
        return filter_step(instance, emits[0], least)
    if kind is Kind.MAP and not is_generator(instance.function):
        return map_step(instance, emits[0], least)
    valued = [_valued(emit, instance.worker.operator, least) if least > UNKNOWN else emit for emit in emits]
    if kind is Kind.SPLIT:
        return split_step(instance, valued)
    if kind is Kind.SELF_JOIN:
        return self_join_step(instance, valued[0], side)
    return _STEPS[kind](instance, valued[0])


_STEPS: dict[Kind, Callable[[Instance, Emit], Step]] = {
    Kind.MAP: flat_map_step,
    Kind.UNNEST: unnest_step,
    Kind.FLAT_MAP: flat_map_step,
    Kind.JOIN: join_step,
    Kind.DEDUP: dedup_step,
}


def _crossing(before: Instance, instance: Instance, step: Step) -> Step:
    """From one operator of a chain to the next, which is handed values, and counts them."""
    operator, values = before.worker.operator, dict.values

    def crossing(row: Row) -> None:
        instance.processed += 1
        if row.columns.plain < UNWRITTEN:
            try:
                all_hashable(values(row))
            except Exception:  # noqa: BLE001 (not hashable, or by the user's own __hash__)
                as_value(row, operator)
        step(row)

    return crossing


def _valued(emit: Emit, operator: str, least: int) -> Emit:
    """Emit values where the batch is not at least so plain."""

    def emit_value(row: Row) -> None:
        emit(row if row.columns.plain >= least else as_value(row, operator))

    return emit_value
