"""Conversion of results of vectorised functions to batches with the hidden columns of their input.

There is one conversion for each kind with vectorised functions (see ``kinds``). If the function returned something
else, they raise ``ValueError``, ``TypeError`` or what Arrow raises.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from fries_nb.operators.outputs import check_names

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
