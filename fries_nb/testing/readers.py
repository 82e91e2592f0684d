"""What the sources have yet to read: rows cut into small batches, with the hidden columns that real readers add."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import pyarrow as pa

from fries_nb.dataflow.graph import Graph
from fries_nb.messages import DUE, TRANSACTION, WorkerId
from fries_nb.trace import ROW_BITS

Rows = Sequence[Mapping[str, Any]]

FROM_THE_START: Mapping[WorkerId, int | None] = {}

MOST_ROWS = 5
"""Rows of the largest batch."""


def transaction(source: int, worker: int, row: int) -> int:
    """The identity of a source tuple: the number of the source, of its worker, and of the row there.

    >>> transaction(0, 1, 5) == (1 << ROW_BITS) + 5
    True
    """
    return ((source * 64 + worker) << ROW_BITS) + row


class Supply:
    """The batches of each source worker.

    A source worker that is *held* keeps its last batch, and with it its end, until it is released.

    Attributes:
        read: rows handed out so far, of all sources.
        total: rows that there were.
        held: the source workers that are held.

    Args:
        graph, inputs: rows of each source; one with several workers takes them round robin.
        chance: cuts batches.
        due_ns: when all of them are due.
        positions: rows that a source worker has behind it, ``None`` for one that has ended.
    """

    END: ClassVar[pa.RecordBatch] = pa.RecordBatch.from_pydict({})

    def __init__(
        self,
        graph: Graph,
        inputs: Mapping[str, Rows],
        chance: random.Random,
        due_ns: int,
        positions: Mapping[WorkerId, int | None] = FROM_THE_START,
    ) -> None:
        self.read = 0
        self.total = sum(len(rows) for rows in inputs.values())
        self.held: set[WorkerId] = set()
        self._spent: set[WorkerId] = set()
        self._batches: dict[WorkerId, deque[pa.RecordBatch] | None] = {}
        for number, name in enumerate(graph.sources):
            workers = graph.operator(name).workers
            for index in range(workers):
                mine = inputs[name][index::workers]
                rows = [
                    {**row, DUE: due_ns, TRANSACTION: transaction(number, index, i)} for i, row in enumerate(mine)
                ]
                source = WorkerId(name, index)
                position = positions.get(source, 0)
                if position is None:
                    self._spent.add(source)
                    position = len(rows)
                self.read += position
                self._batches[source] = _cut(rows[position:], chance)

    @property
    def dry(self) -> bool:
        """All source workers have read their end, or as far as they may while they are held."""
        return not any(self._may_read(source) for source in self._batches)

    def _may_read(self, source: WorkerId) -> bool:
        batches = self._batches[source]
        return batches is not None and (source not in self.held or source in self._spent or len(batches) > 1)

    @property
    def sources(self) -> tuple[WorkerId, ...]:
        """All source workers."""
        return tuple(self._batches)

    def has_more(self, source: WorkerId) -> bool:
        """Rows, or the end, are still to be handed out."""
        return self._batches[source] is not None

    def next(self, source: WorkerId) -> pa.RecordBatch | None:
        """The next batch, then ``END``, then ``None``; ``None`` too while it is held."""
        batches = self._batches[source]
        if batches is None or not self._may_read(source):
            return None
        if not batches:
            self._batches[source] = None
            return self.END
        batch = batches.popleft()
        self.read += batch.num_rows
        return batch

    def drain(self, source: WorkerId) -> None:
        """Read no more; the end comes next, held or not."""
        self.held.discard(source)
        if (batches := self._batches[source]) is not None:
            batches.clear()


def _cut(rows: list[dict[str, Any]], chance: random.Random) -> deque[pa.RecordBatch]:
    batches: deque[pa.RecordBatch] = deque()
    if not rows:
        return batches
    whole, start = pa.RecordBatch.from_pylist(rows), 0
    while start < whole.num_rows:
        batches.append(whole.slice(start, chance.randint(1, MOST_ROWS)))
        start += batches[-1].num_rows
    return batches
