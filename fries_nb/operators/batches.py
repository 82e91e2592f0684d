"""Vectorised functions: how one is called with a batch, and how what it returns becomes one.

The hidden columns are carried past the function, and what it returns is a value from then on (see ``values``). A
function that fails on a slice, where its operator sets tuples aside, is called for each row of the slice by itself: so
the others leave, and the one that it fails on is known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from fries_nb.dataflow.graph import Kind
from fries_nb.errors import DeclarationError, OperatorError
from fries_nb.messages import HIDDEN
from fries_nb.operators.conversion import NOT_ARROW
from fries_nb.operators.error_policy import is_watched
from fries_nb.operators.failures import FAILURES, failure, set_aside
from fries_nb.operators.instance import Instance
from fries_nb.operators.outputs import check_names

Call = Callable[[pa.RecordBatch], pa.RecordBatch]
_Fit = Callable[[Any, pa.RecordBatch, Sequence[str]], pa.RecordBatch]


def call_of_batch(instance: Instance) -> Call:
    """The present vectorised function as one of a batch with hidden columns; rows that it fails on are set aside.

    Raises (the call):
        OperatorError: it failed, and there is no place for dead letters.
    """
    whole, check = _whole(instance), instance.written.check_batch
    if not is_watched(instance):
        return whole

    def call(batch: pa.RecordBatch) -> pa.RecordBatch:
        out = whole(batch)
        check(out, batch)
        return out

    def row_by_row(batch: pa.RecordBatch) -> pa.RecordBatch:
        try:
            return call(batch)
        except OperatorError:
            if instance.dead_letters is None or instance.guarded:
                raise
        made = [batch.slice(0, 0)]
        for number, row in enumerate(one_by_one(batch)):
            try:
                made.append(call(row))
            except OperatorError as error:
                [tuple_] = row.drop_columns([name for name in HIDDEN if name in row.schema.names]).to_pylist()
                set_aside(instance, tuple_, error, number)
        return _joined(made)

    return row_by_row


def one_by_one(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """The rows of a batch, each as a batch."""
    return (batch.slice(position, 1) for position in range(batch.num_rows))


def _joined(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """One batch of what was made (of what came in, without rows, if nothing was); a column of nulls takes any type."""
    made = [batch for batch in batches if batch.num_rows] or [batches[0]]
    table = pa.concat_tables(map(pa.table, made), promote_options="permissive").combine_chunks()
    return pa.RecordBatch.from_arrays([column.combine_chunks() for column in table.columns], schema=table.schema)


def _whole(instance: Instance) -> Call:
    """A vectorised function on the user's columns, with the hidden ones carried past it."""
    function, name = instance.function, instance.worker.operator
    fit: _Fit = _FITS.get(instance.operator.kind, _mapped)

    def call(batch: pa.RecordBatch) -> pa.RecordBatch:
        names = batch.schema.names
        hidden = [column for column in HIDDEN if column in names]
        given = batch.drop_columns(hidden)
        try:
            out = function(given)
        except FAILURES as error:
            raise failure(instance, error) from error
        if out is given and fit is _mapped:
            return batch
        try:
            return fit(out, batch, hidden)
        except NOT_ARROW as error:
            got = f"{out.num_rows} rows" if isinstance(out, pa.RecordBatch) else type(out).__name__
            raise DeclarationError(
                f"{name} returned {got} for a batch of {batch.num_rows} rows ({error}); a batched map returns a "
                "RecordBatch of as many rows, a filter a mask, a flat_map (RecordBatch, indices of parent rows)",
                name,
            ) from error

    return call


def _mapped(out: Any, batch: pa.RecordBatch, hidden: Sequence[str]) -> pa.RecordBatch:
    if not isinstance(out, pa.RecordBatch) or out.num_rows != batch.num_rows:
        raise ValueError("one row out for a row in")
    return _with_hidden(out.schema.names, _values(out, batch), batch, hidden)


def _filtered(mask: Any, batch: pa.RecordBatch, hidden: Sequence[str]) -> pa.RecordBatch:
    if isinstance(mask, pa.RecordBatch):
        raise TypeError("a mask is an array of booleans")
    mask = mask if isinstance(mask, pa.Array) else pa.array(mask)
    if not pa.types.is_boolean(mask.type) or len(mask) != batch.num_rows:
        raise ValueError("a mask has one boolean a row")
    return batch.filter(mask)


def _multiplied(out: Any, batch: pa.RecordBatch, hidden: Sequence[str]) -> pa.RecordBatch:
    if not isinstance(out, tuple) or len(out) != 2 or not isinstance(out[0], pa.RecordBatch):
        raise TypeError("a tuple of two")
    children, parents = out
    parents = parents if isinstance(parents, pa.Array) else pa.array(parents, type=pa.int64())
    if len(parents) != children.num_rows:
        raise ValueError(f"{children.num_rows} rows with {len(parents)} parents")
    return _with_hidden(children.schema.names, _values(children, batch), batch.take(parents), hidden)


_FITS: dict[Kind, _Fit] = {Kind.FILTER: _filtered, Kind.FLAT_MAP: _multiplied}
"""How a vectorised function's result becomes a batch with hidden columns; all others are maps."""


def _values(batch: pa.RecordBatch, origin: pa.RecordBatch) -> list[pa.Array]:
    """The columns of a result, those that did not come in as copies: a function may fill the same buffer again.

    What came in is found by its name: to compare all buffers takes longer than to copy a column that was renamed.
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
