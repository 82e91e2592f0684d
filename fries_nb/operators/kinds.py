"""How workers call the operators of each kind: the counterpart of ``dataflow.traits.TRAITS``.

There is an entry for each kind whose ``execution`` is ``CALL``. Chains, and ``batches``, add what all kinds
share: error policies, guards, the audit, column types, trials.

There is a conversion of results to batches, with the hidden columns of the input, for each kind with vectorised
functions. If the function returned something else, it raises ``ValueError``, ``TypeError`` or what Arrow raises.

A chain of operators is compiled into one function of a row. Each operator's step (see ``steps``) is wrapped, from the
inside out, as its error policy, guards, the audit and the next operator require, so that the loop over tuples has no
branches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pyarrow as pa

from fries_nb.dataflow.expiring import Expiring
from fries_nb.dataflow.traits import Emits, Holds, Kind
from fries_nb.operators.audit_log import logged
from fries_nb.operators.column_types import as_value
from fries_nb.operators.count_steps import count_step
from fries_nb.operators.error_policy import (
    Held,
    Leaving,
    Refuse,
    Undos,
    guarded,
    is_retried,
    is_watched,
    refuse_firing,
    refuse_row,
    undoable,
    whole,
)
from fries_nb.operators.first_rows import fade_step, first_step
from fries_nb.operators.instance import Instance
from fries_nb.operators.key_ends import due_or_end_step, forget_step
from fries_nb.operators.paired_rows import comparison_step
from fries_nb.operators.row_versions import chosen_step, side_by_side
from fries_nb.operators.rows import SETTLED, UNKNOWN, Row
from fries_nb.operators.steps import (
    Apart,
    Behind,
    Emit,
    Output,
    Sides,
    Step,
    check_names,
    crossing_step,
    dedup_step,
    filter_step,
    flat_map_step,
    join_step,
    map_step,
    self_join_step,
    split_step,
    unnest_step,
)
from fries_nb.operators.timed_joins import call_for_open, drop_step, leave_step, pair_step
from fries_nb.operators.window_steps import call_for_all, close_step, retire_step, window_step

Fit = Callable[[Any, pa.RecordBatch, Sequence[str]], pa.RecordBatch]
"""Makes a batch from the function's result, its input, and the names of the hidden columns."""


def mapped(out: Any, batch: pa.RecordBatch, hidden: Sequence[str]) -> pa.RecordBatch:
    """A map returns a batch with as many rows."""
    if not isinstance(out, pa.RecordBatch) or out.num_rows != batch.num_rows:
        raise ValueError("one row out for a row in")
    return _with_hidden(out.schema.names, _values(out, batch), batch, hidden)


def filtered(mask: Any, batch: pa.RecordBatch, hidden: Sequence[str]) -> pa.RecordBatch:
    """A filter returns a mask, with a boolean for each row."""
    if isinstance(mask, pa.RecordBatch):
        raise TypeError("a mask is an array of booleans")
    mask = mask if isinstance(mask, pa.Array) else pa.array(mask)
    if not pa.types.is_boolean(mask.type) or len(mask) != batch.num_rows:
        raise ValueError("a mask has one boolean a row")
    return batch.filter(mask)


def multiplied(out: Any, batch: pa.RecordBatch, hidden: Sequence[str]) -> pa.RecordBatch:
    """A flat_map returns a batch and, for each of its rows, the index of the row that it derives from."""
    if not isinstance(out, tuple) or len(out) != 2 or not isinstance(out[0], pa.RecordBatch):
        raise TypeError("a tuple of two")
    children, parents = out
    parents = parents if isinstance(parents, pa.Array) else pa.array(parents, type=pa.int64())
    if len(parents) != children.num_rows:
        raise ValueError(f"{children.num_rows} rows with {len(parents)} parents")
    return _with_hidden(children.schema.names, _values(children, batch), batch.take(parents), hidden)


def _values(batch: pa.RecordBatch, origin: pa.RecordBatch) -> list[pa.Array]:
    """The columns of a result; those that are not from the input are copied, since a function may reuse its buffers."""
    # Input columns are recognised by name, since comparing all buffers takes longer than copying a renamed column.
    names, came = batch.schema.names, origin.schema.names
    check_names(tuple(names), tuple(came))
    columns: list[pa.Array] = []
    for index, name in enumerate(names):
        column = batch.column(index)
        is_own = name in came and _addresses(column) == _addresses(origin.column(came.index(name)))
        columns.append(column if is_own else pa.concat_arrays([column]))
    return columns


def _addresses(column: pa.Array) -> list[int | None]:
    return [None if buffer is None else buffer.address for buffer in column.buffers()]


def _with_hidden(
    names: Sequence[str], columns: Sequence[pa.Array], origin: pa.RecordBatch, hidden: Sequence[str]
) -> pa.RecordBatch:
    came = origin.schema.names
    arrays = [*columns, *[origin.column(came.index(name)) for name in hidden]]
    return pa.RecordBatch.from_arrays(arrays, names=[*names, *hidden])


@dataclass(frozen=True, slots=True)
class OperatorCall:
    """How the operators of a kind are called."""

    step: Callable[[Instance, Behind], Step]  # makes the function that processes single rows
    # makes a batch of the result of a vectorised function; ``None`` if the kind has no vectorised functions
    fit: Fit | None = None
    # whether the inner loop can call its functions (see ``inner_loop``): they return the row, a truth value or the
    # number of a branch
    loops: bool = False
    # makes the function that processes the rows of a firing (see ``firing``); ``None`` if the kind has no timed
    # functions
    due: Callable[[Instance, Behind], Step] | None = None
    # makes the function that is called when a row of a firing has been processed, or set aside; ``None`` for nothing
    retire: Callable[[Instance], Step | None] | None = None
    # makes the entries of copies of states, in a trial; ``None`` if the kind has no states by time
    recall: Callable[[Instance], None] | None = None


_WINDOW_CALL = OperatorCall(window_step, due=close_step, retire=retire_step, recall=call_for_all)
_PAIR_CALL = OperatorCall(pair_step, due=leave_step, retire=drop_step, recall=call_for_open)

CALLS: Mapping[Kind, OperatorCall] = {
    Kind.MAP: OperatorCall(map_step, mapped, loops=True, due=due_or_end_step, retire=forget_step),
    Kind.FILTER: OperatorCall(filter_step, filtered, loops=True),
    Kind.FLAT_MAP: OperatorCall(flat_map_step, multiplied, due=due_or_end_step, retire=forget_step),
    Kind.SPLIT: OperatorCall(split_step, loops=True),
    Kind.UNNEST: OperatorCall(unnest_step),
    Kind.SELF_JOIN: OperatorCall(self_join_step),
    Kind.JOIN: OperatorCall(join_step),
    Kind.DEDUP: OperatorCall(dedup_step),
    Kind.DEDUP_WITHIN: OperatorCall(first_step, due=fade_step),
    Kind.COMPARISON: OperatorCall(comparison_step),
    Kind.WINDOW: _WINDOW_CALL,
    Kind.REDUCE: _WINDOW_CALL,
    Kind.COUNT_WINDOW: OperatorCall(count_step),
    Kind.JOIN_WITHIN: _PAIR_CALL,
    Kind.JOIN_LATEST: _PAIR_CALL,
    Kind.JOIN_WINDOW: _PAIR_CALL,
}


Around = Callable[[int, Instance, Step], Step]
"""Wraps the step of an operator, given its position in the chain."""


def compile_chain(
    instances: Sequence[Instance],
    outputs: Sequence[Output],
    side: Sides,
    around: Around | None = None,
    fired: bool = False,
) -> Step:
    """Compile a chain; returns its first step, connected to the others."""
    retried, undos = is_retried(instances), Undos()
    apart = [Apart(output) for output in outputs] if retried else []
    ends: Sequence[Output] = apart or outputs
    emits = emits_of(ends, instances[-1])
    step: Step = emits[0]
    for position in range(len(instances) - 1, -1, -1):
        instance = instances[position]
        outs = emits if instance.operator.branches > 1 else [step]
        called = due_call(instance) if fired and not position else row_call(instance)
        if is_watched(instance):
            many_leave = position == len(instances) - 1 and instance.operator.emits is Emits.ONE_TO_MANY
            room = Leaving(instance, ends) if many_leave else Held(instance, outs)
            step = guarded(instance, partial(called.step, side, UNKNOWN), room, position == 0, called.refuse)
        else:
            step = called.step(side, SETTLED if position == len(instances) - 1 else UNKNOWN, outs)
        step = called.then(step)
        if retried:
            step = undoable(instance, undos, step)
        if around is not None:
            step = around(position, instance, step)
        if instance.audit and called.is_logged:
            step = logged(instance, step)
        if position:
            step = crossing_step(instances[position - 1], instance, step)
    return whole(instances, apart, undos, step) if retried else step


def emits_of(outputs: Sequence[Output], last: Instance) -> list[Emit]:
    """Functions that append rows to these outputs; of several, each makes values of the first rows that it gets."""
    if len(outputs) == 1:
        return [outputs[0].append]
    return [_checked(output, last.worker.operator) for output in outputs]


def _checked(output: Output, operator: str) -> Emit:
    append = output.append

    def emit(row: Row) -> None:
        append(row if output.is_known else as_value(row, operator))

    return emit


def resumed_steps(
    instances: Sequence[Instance], outputs: Sequence[Output], call: Callable[[Row], Any]
) -> Sequence[Step]:
    """For each operator of a chain of an inner loop its step, connected to the next, with another function to call."""
    resumed: list[Step] = []
    emits = emits_of(outputs, instances[-1])
    for position in range(len(instances) - 1, -1, -1):
        instance = instances[position]
        behind = Behind(instance.written.requiring(emits), SETTLED if position == len(instances) - 1 else UNKNOWN, str)
        step_of = CALLS[instance.operator.kind].step
        resumed.append(step_of(instance, replace(behind, call=call)))
        if position:
            step = _by_version(step_of, instance, behind) if instance.earlier else step_of(instance, behind)
            emits = [crossing_step(instances[position - 1], instance, step)]
    return resumed[::-1]


@dataclass(frozen=True, slots=True)
class _Call:
    """How an operator's function is called with its input: rows, or rows of a firing."""

    instance: Instance  # the operator
    make: Callable[[Instance, Behind], Step]  # makes the step
    refuse: Refuse  # sets aside a row on which the function failed
    is_logged: bool  # whether each row belongs to a transaction that came to the operator
    retire: Step | None = None  # called with each row when it has been processed, or set aside; ``None`` for nothing

    def step(self, side: Sides, least: int, emits: Sequence[Emit]) -> Step:
        """The step, given what takes its rows."""
        return self.make(self.instance, Behind(self.instance.written.requiring(emits), least, side))

    def then(self, step: Step) -> Step:
        """The step, and what is to be done after it."""
        retire = self.retire
        if retire is None:
            return step

        def retiring(row: Row) -> None:
            step(row)
            retire(row)

        return retiring


def row_call(instance: Instance) -> _Call:
    """The call with a row."""
    make = CALLS[instance.operator.kind].step
    return _Call(instance, partial(_by_version, make) if instance.earlier else make, refuse_row, is_logged=True)


def _by_version(make: Callable[[Instance, Behind], Step], instance: Instance, behind: Behind) -> Step:
    """The step of an operator that runs several functions, for each row that of its version."""
    return chosen_step(instance, [make(one, behind) for one in side_by_side(instance)])


def has_due(instance: Instance) -> bool:
    """Whether the function of a timed operator makes rows of firings."""
    function = instance.function
    is_own = instance.operator.traits.timed or isinstance(function, Expiring)
    return is_own or any(hasattr(function, name) for name in ("due", "reached"))


def due_call(instance: Instance) -> _Call:
    """The call with a row of a firing."""
    how = CALLS[instance.operator.kind]
    assert how.due is not None, "only timed operators have firings"
    retire = None if how.retire is None else how.retire(instance)
    return _Call(instance, how.due, refuse_firing, is_logged=False, retire=retire)


def joined_columns(instances: Sequence[Instance]) -> list[tuple[pa.Field, str]]:
    """The columns that the chain's joins add, each with the suffix for columns that the stream has as well."""
    tables = [instance.function for instance in instances if instance.operator.traits.holds is Holds.TABLE]
    return [(field, table.suffix) for table in tables for field in table.schema]


def joined_types(added: Iterable[tuple[pa.Field, str]], names: Sequence[str]) -> dict[str, pa.DataType]:
    """The names and types of the columns that joins add to a stream; types are those of the tables, not inferred."""
    return {field.name + suffix if field.name in names else field.name: field.type for field, suffix in added}
