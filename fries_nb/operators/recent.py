"""A recent tuple as it came to one operator of a chain: what the operator's next function is rehearsed on.

It is one that the present function got past: one that ended as a dead letter would make any change fail that is about
something else. Only a worker that stands rehearses on the tuple in front of it, which its fix has to get past. In front
of the first operator of a chain, and between vectorised ones, tuples are rows of a batch that is at hand anyway.
Between row functions they are Python rows that nobody keeps; there one tuple of a slice is noted, so that tuples cost
no more.

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

from fries_nb.messages import HIDDEN
from fries_nb.operators.instance import Instance
from fries_nb.operators.rows import Columns, Reads, Row, WholeRow, derived
from fries_nb.operators.values import as_value

SAMPLES = 8
"""Recent tuples that a worker hands over, at most."""

Passed = tuple[pa.RecordBatch, Sequence[int]]
"""Rows of a batch by number, those that its operator got past last."""

Noted = dict[Instance, Row]
"""For operators behind others in a chain, the row that was noted last."""


@dataclass(frozen=True, slots=True)
class Recent:
    """A tuple, apart from the worker's own: functions may do with it what they like.

    ``batch`` has one row, the user's columns as they came to the chain; ``written`` holds what operators in front have
    written to it, which is all of it if it is ``whole``. ``facing``: its operator is paused on it.
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
    """A row of a batch, without hidden columns."""
    return batch.slice(index, 1).drop_columns([name for name in HIDDEN if name in batch.schema.names])


def passed(end: int, refused: Collection[int], count: int = SAMPLES) -> list[int]:
    """Of the rows in front of number ``end`` the last ones that are not among those refused, the last one first."""
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
    """These rows, each by itself."""
    return [] if rows is None else [Recent(one_row(rows[0], index)) for index in rows[1]]


def recent_row(row: Row) -> Recent | None:
    """A noted row; ``None`` where something in it cannot be copied."""
    written = {name: value for name, value in dict.items(row) if isinstance(name, str)}
    try:
        return Recent(one_row(row.columns.batch, row.index), copy.deepcopy(written), isinstance(row, WholeRow))
    except Exception:  # noqa: BLE001 (an object of the user's; without a copy there is no rehearsal)
        return None


def noting(noted: Noted, instance: Instance, step: Callable[[Row], None]) -> Callable[[Row], None]:
    """The step, which notes each row that its operator gets past as it came."""

    def keep(row: Row) -> None:
        came = as_value(row.copy(), instance.worker.operator)
        step(row)
        if row.index not in instance.refused:
            noted[instance] = came

    return keep
