"""How workers call the operators of each kind: the counterpart of ``dataflow.traits.TRAITS``.

There is an entry for each kind whose ``execution`` is ``CALL``. ``chain_compiler`` and ``batches`` add what all kinds
share: error policies, guards, the audit, column types, trials.

Conversion of results of vectorised functions to batches with the hidden columns of their input.

There is one conversion for each kind with vectorised functions (see ``kinds``). If the function returned something
else, they raise ``ValueError``, ``TypeError`` or what Arrow raises.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from fries_nb.dataflow.traits import Kind
from fries_nb.operators.instance import Instance
from fries_nb.operators.steps import (
    Behind,
    Step,
    check_names,
    dedup_step,
    filter_step,
    flat_map_step,
    join_step,
    map_step,
    self_join_step,
    split_step,
    unnest_step,
)
from fries_nb.operators.timed_calls import due_step
from fries_nb.operators.window_steps import close_step, retire_step, window_step

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
    """The columns of a result; those that are not from the input are copied, since a function may reuse its buffers.

    Input columns are recognised by name, since comparing all buffers takes longer than copying a renamed column.
    """
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
    """How the operators of a kind are called.

    Attributes:
        step: makes the function that processes single rows.
        fit: makes a batch of the result of a vectorised function; ``None`` if the kind has no vectorised functions.
        loops: whether the inner loop can call its functions (see ``inner_loop``): they return the row, a truth value or
            the number of a branch.
        due: makes the function that processes the rows of a firing (see ``firing``); ``None`` if the kind has no timed
            functions.
        retire: makes the function that is called when a row of a firing has been processed, or set aside.
    """

    step: Callable[[Instance, Behind], Step]
    fit: Fit | None = None
    loops: bool = False
    due: Callable[[Instance, Behind], Step] | None = None
    retire: Callable[[Instance], Step] | None = None


CALLS: Mapping[Kind, OperatorCall] = {
    Kind.MAP: OperatorCall(map_step, mapped, loops=True, due=due_step),
    Kind.FILTER: OperatorCall(filter_step, filtered, loops=True),
    Kind.FLAT_MAP: OperatorCall(flat_map_step, multiplied, due=due_step),
    Kind.SPLIT: OperatorCall(split_step, loops=True),
    Kind.UNNEST: OperatorCall(unnest_step),
    Kind.SELF_JOIN: OperatorCall(self_join_step),
    Kind.JOIN: OperatorCall(join_step),
    Kind.DEDUP: OperatorCall(dedup_step),
    Kind.WINDOW: OperatorCall(window_step, due=close_step, retire=retire_step),
    Kind.REDUCE: OperatorCall(window_step, due=close_step, retire=retire_step),
}
