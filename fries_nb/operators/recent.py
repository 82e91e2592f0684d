"""Recent input tuples of an operator, on which its next function is tried.

They are tuples that the current function has processed successfully, since a tuple that became a dead letter may fail
with any function. Only for a paused worker it is the tuple that failed, which the fix has to process. The input of the
first operator of a chain, and that of batched operators, are rows of the last batch, which is in memory anyway, and if
it has few, of light ones before it. Between row functions rows are not kept, so one row of each slice is copied, or a
few of a long one, which bounds the cost.

>>> came = Recent(pa.RecordBatch.from_pydict({"n": [1], "text": ["x"]})).row()
>>> recent_row(came | {"words": ["x"]}).row()
{'n': 1, 'text': 'x', 'words': ['x']}
>>> passed(4, refused={2})
[3, 1, 0]
"""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

import pyarrow as pa

from fries_nb.dataflow.hidden_columns import HIDDEN, TIME
from fries_nb.operators.firing import is_firing, shown_firing
from fries_nb.operators.instance import Instance
from fries_nb.operators.rows import Columns, Reads, Row, WholeRow, derived
from fries_nb.operators.values import as_value

SAMPLES = 8
"""Maximum number of recent tuples that a worker provides for a trial."""

LIGHT = 1 << 16
"""Size in bytes above which of a batch, no rows before it are kept: each refers to the whole of its batch."""
_COPIED = 1024
"""One row of so many is copied between the functions of a chain, and at least one of each slice."""

Passed = tuple[pa.RecordBatch, Sequence[int]]
"""A batch and the numbers of those of its rows that the operator processed last."""

Noted = dict[Instance, deque[Row]]
"""Operator to its last copied input rows, for all operators but the first of a chain."""


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
    """The indices of the last rows before ``end``, in descending order."""
    if not refused:
        return list(range(end - 1, max(end - count, 0) - 1, -1))
    found: list[int] = []
    index = end - 1
    while index >= 0 and len(found) < count:
        if index not in refused:
            found.append(index)
        index -= 1
    return found


def recent_rows(parts: Iterable[Passed]) -> list[Recent]:
    """A tuple for each of the rows, but no more than a worker provides."""
    rows = ((batch, index) for batch, indices in parts for index in indices)
    return [Recent(one_row(batch, index)) for batch, index in islice(rows, SAMPLES)]


def recorded(quota: int) -> int:
    """The number of rows that are copied between the functions of a chain in a slice of so many.

    >>> recorded(64), recorded(4096), recorded(16_384)
    (1, 4, 8)
    """
    return max(1, min(SAMPLES, quota // _COPIED))


def recent_row(row: Row) -> Recent | None:
    """A copy of a row; ``None`` if a value in it cannot be copied."""
    written = {name: value for name, value in dict.items(row) if isinstance(name, str)}
    try:
        return Recent(one_row(row.columns.batch, row.index), copy.deepcopy(written), isinstance(row, WholeRow))
    except Exception:  # noqa: BLE001 (an object of the user's; without a copy there is no rehearsal)
        return None


def noting(noted: Noted) -> Callable[[int, Instance, Callable[[Row], None]], Callable[[Row], None]]:
    """Extends steps, except those of a first operator, to copy each row to ``noted`` before it is processed."""

    def around(position: int, instance: Instance, step: Callable[[Row], None]) -> Callable[[Row], None]:
        def keep(row: Row) -> None:
            came = as_value(row.copy(), instance.worker.operator)
            step(row)
            if row.index not in instance.refused:
                noted.setdefault(instance, deque(maxlen=SAMPLES)).append(came)

        return keep if position else step

    return around
