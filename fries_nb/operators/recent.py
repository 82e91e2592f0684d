"""Recent input tuples of an operator, on which its next function is tried.

They are tuples that the current function has processed successfully, since a tuple that became a dead letter may fail
with any function. Only for a paused worker it is the tuple that failed, which the fix has to process. The input of the
first operator of a chain, and that of batched operators, are rows of a batch that is in memory anyway. Between row
functions rows are not kept, so one row of each slice is copied, which bounds the cost.

>>> came = Recent(pa.RecordBatch.from_pydict({"n": [1], "text": ["x"]})).row()
>>> recent_row(came | {"words": ["x"]}).row()
{'n': 1, 'text': 'x', 'words': ['x']}
>>> passed(4, refused={2})
[3, 1, 0]
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from fries_nb.dataflow.hidden_columns import HIDDEN, TIME
from fries_nb.operators.firing import is_firing, shown_firing
from fries_nb.operators.instance import Instance
from fries_nb.operators.rows import Columns, Reads, Row, WholeRow, derived
from fries_nb.operators.values import as_value

SAMPLES = 8
"""Maximum number of recent tuples that a worker provides for a trial."""

Passed = tuple[pa.RecordBatch, Sequence[int]]
"""A batch and the numbers of those of its rows that the operator processed last."""

Noted = dict[Instance, Row]
"""Operator to its last copied input row, for all operators but the first of a chain."""


@dataclass(frozen=True, slots=True)
class Recent:
    """A copy of an input tuple, which functions may change.

    Attributes:
        batch: one row, with the user's columns as they entered the chain.
        written: the values that earlier operators of the chain have written to it.
        whole: whether ``written`` is the whole row.
        facing: whether the operator is paused on this tuple.
    """

    batch: pa.RecordBatch
    written: dict[str, Any] = field(default_factory=dict)
    whole: bool = False
    facing: bool = False

    def compact(self) -> Recent:
        """The same tuple, without the rest of the batch that it was cut from."""
        return replace(self, batch=self.batch.take(pa.array([0])))

    def row(self) -> Row:
        """The tuple as a row function gets it."""
        came = next(Columns(self.batch, Reads()).rows())
        return derived(self.written, came) if self.whole else came | self.written


def one_row(batch: pa.RecordBatch, index: int) -> pa.RecordBatch:
    """A row of a batch, without hidden columns, except for its time, by which timed operators work."""
    dropped = [name for name in HIDDEN if name != TIME and name in batch.schema.names]
    return batch.slice(index, 1).drop_columns(dropped)


def shown_tuple(batch: pa.RecordBatch) -> dict[str, Any]:
    """The tuple of a batch of one row, for a message: the user's columns, or key and time of a firing."""
    row = next(Columns(batch, Reads()).rows())
    return shown_firing(row) if is_firing(batch) else dict(row)


def passed(end: int, refused: Collection[int], count: int = SAMPLES) -> list[int]:
    """The indices of the last rows before ``end``, in descending order.

    Args:
        end: index after the last row that was processed.
        refused: indices of rows that became dead letters, which are left out.
        count: maximum number of rows.
    """
    if not refused:
        return list(range(end - 1, max(end - count, 0) - 1, -1))
    found: list[int] = []
    index = end - 1
    while index >= 0 and len(found) < count:
        if index not in refused:
            found.append(index)
        index -= 1
    return found


def recent_rows(rows: Passed | None) -> list[Recent]:
    """A tuple for each of these rows."""
    return [] if rows is None else [Recent(one_row(rows[0], index)) for index in rows[1]]


def recent_row(row: Row) -> Recent | None:
    """A copy of a row; ``None`` if a value in it cannot be copied."""
    written = {name: value for name, value in dict.items(row) if isinstance(name, str)}
    try:
        return Recent(one_row(row.columns.batch, row.index), copy.deepcopy(written), isinstance(row, WholeRow))
    except Exception:  # noqa: BLE001 (an object of the user's; without a copy there is no rehearsal)
        return None


def noting(noted: Noted, instance: Instance, step: Callable[[Row], None]) -> Callable[[Row], None]:
    """Extend a step to copy each row to ``noted`` before the operator processes it."""

    def keep(row: Row) -> None:
        came = as_value(row.copy(), instance.worker.operator)
        step(row)
        if row.index not in instance.refused:
            noted[instance] = came

    return keep
