"""Compiles a chain of operators into one function of a row, and determines the columns that its joins add.

Each operator's step (see ``steps``) is wrapped, from the inside out, as its error policy, guards, the audit and the
next operator require, so that the loop over tuples has no branches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pyarrow as pa

from fries_nb.dataflow.traits import Emits, Holds
from fries_nb.operators.audit_log import logged
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
from fries_nb.operators.instance import Instance
from fries_nb.operators.kinds import CALLS
from fries_nb.operators.rows import SETTLED, UNKNOWN, Row
from fries_nb.operators.steps import Apart, Behind, Emit, Output, Sides, Step, crossing_step
from fries_nb.operators.values import as_value

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
            emits = [crossing_step(instances[position - 1], instance, step_of(instance, behind))]
    return resumed[::-1]


@dataclass(frozen=True, slots=True)
class _Call:
    """How an operator's function is called with its input: rows, or rows of a firing.

    Attributes:
        instance: the operator.
        make: makes the step.
        refuse: sets aside a row on which the function failed.
        is_logged: whether each row belongs to a transaction that came to the operator.
        retire: called with each row when it has been processed, or set aside; ``None`` for nothing.
    """

    instance: Instance
    make: Callable[[Instance, Behind], Step]
    refuse: Refuse
    is_logged: bool
    retire: Step | None = None

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
    return _Call(instance, CALLS[instance.operator.kind].step, refuse_row, is_logged=True)


def has_due(instance: Instance) -> bool:
    """Whether the function of a timed operator makes rows of firings."""
    function = instance.function
    return instance.operator.traits.timed or any(hasattr(function, name) for name in ("due", "reached"))


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
