"""The protocol of sources: splits that are read from positions.

A source is cut into splits once a run, ``SPLITS_PER_WORKER`` for each worker that it starts with. A split belongs to
one worker at a time, and the workers of any later number share the same splits. A checkpoint keeps the position in each
split, so that the run goes on with the row behind the last one that the checkpoint covers.

A source over a list of rows, complete:

>>> class ListReader:
...     def __init__(self, rows, position):
...         self.rows, self.position = rows, position if position.row < len(rows) else None
...
...     def read(self, limit, now_ns):
...         first = self.position.row
...         rows = self.rows[first : first + limit]
...         last = first + len(rows)
...         self.position = Position(last) if last < len(self.rows) else None
...         return pa.RecordBatch.from_pylist(rows)
>>> class ListSource:
...     def __init__(self, rows):
...         self.rows = rows
...
...     def splits(self, count):
...         return [Split(number, count) for number in range(count)]
...
...     def open(self, split, position):
...         return ListReader(self.rows[split.number :: split.content], position)
>>> source = ListSource([{"n": 0}, {"n": 1}, {"n": 2}])
>>> first, second = source.splits(2)
>>> reader = source.open(first, Position())
>>> reader.read(1, 0).to_pylist(), reader.position
([{'n': 0}], Position(row=1, at=None))
>>> source.open(first, reader.position).read(10, 0).to_pylist()
[{'n': 2}]

``tests/connectors/test_source_contract.py`` checks what every source promises.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from fries_nb.checkpoints import Position
from fries_nb.trace import SPLIT_BITS

__all__ = [
    "SPLITS_PER_SOURCE",
    "SPLITS_PER_WORKER",
    "DueTimes",
    "Position",
    "Source",
    "Split",
    "SplitReader",
    "TimedSource",
    "in_turn",
    "restored_positions",
    "split_count",
    "splits_of",
]

SPLITS_PER_WORKER = 16
"""Splits for each worker that a source starts with."""

SPLITS_PER_SOURCE = 1 << SPLIT_BITS
"""Bound on the splits of a source: a row's identity holds (source, split) in 23 bits above the row's number."""

DueTimes = npt.NDArray[np.int64]
"""When rows are due, in nanoseconds since the Unix epoch."""


class Split(msgspec.Struct, frozen=True):
    """A part of a source's rows, which always have the same numbers within it.

    Rows of different splits may have a common order: row r of the split is then number ``first + r * step`` of the
    source, and a worker reads the rows of its splits in that order. ``step`` is the same for all splits of a source.
    Without one (0) a worker reads a batch of each split in turn.

    Attributes:
        number: of the split, from 0.
        content: what ``Source.open`` needs to know of it; anything that msgpack can hold.
        first: place of its first row in the order of the whole source.
        step: from the place of a row to that of the next one; 1 where the split is a piece of the source.
    """

    number: int
    content: Any = None
    first: int = 0
    step: int = 0


class SplitReader(Protocol):
    """Reads one split, never waiting. Used by one thread."""

    @property
    def position(self) -> Position | None:
        """Where the next row is found; ``None`` once the split has come to its end."""

    def read(self, limit: int, now_ns: int) -> pa.RecordBatch | None:
        """The next rows. Not called at the end of the split.

        Args:
            limit: the most rows to return, at least 1. Fewer may be returned, if those are at hand.
            now_ns: the present time, in nanoseconds since the Unix epoch.

        Returns:
            Rows with the user's columns; ``None`` if there are none at present.

        Raises:
            SourceError: they cannot be read.
        """


class Source(Protocol):
    """Where rows come from. Pickled on the driver; each worker opens splits on a copy of its own.

    How many rows a second are read is decided by the runtime, which asks for as many as are due.
    """

    def splits(self, count: int) -> Sequence[Split]:
        """Cut the source. Called once a run, on the driver; the result is kept with the run's checkpoints.

        Args:
            count: the number of splits wanted; more are refused.

        Returns:
            Splits numbered from 0, each row in exactly one of them.

        Raises:
            SourceError: the source cannot be read.
        """

    def open(self, split: Split, position: Position) -> SplitReader:
        """Begin to read a split, on the host of the worker to which it belongs.

        Args:
            split: one of ``splits``.
            position: where to begin: ``Position()`` for the first row, or what a reader of the split gave before.

        Returns:
            A reader whose next row is the one at the position.

        Raises:
            SourceError: it cannot be read.
        """


@runtime_checkable
class TimedSource(Source, Protocol):
    """A source whose rows tell when they were due."""

    def with_due_times(self, batch: pa.RecordBatch, due: DueTimes) -> pa.RecordBatch:
        """Add what depends on the time to rows that were read.

        Args:
            batch: rows of one split or of several.
            due: when each of them was due.

        Returns:
            As many rows.
        """


def split_count(workers: int) -> int:
    """How many splits a source of so many workers is cut into: as many for each of them.

    >>> [split_count(workers) for workers in (1, 2, 64, 100, 1024, 2000)]
    [16, 32, 1024, 1000, 1024, 1024]
    """
    each = max(1, min(SPLITS_PER_WORKER, SPLITS_PER_SOURCE // workers))
    return min(SPLITS_PER_SOURCE, workers * each)


def in_turn(splits: Sequence[Split], workers: int) -> tuple[Split, ...]:
    """The order in which splits are assigned to workers, round robin.

    Where they are pieces of the source, each worker that it starts with gets consecutive ones, so that what neighbours
    share is read once. And whatever the workers have read when their number changes, others get equal shares of the
    rest.

    >>> pieces = [Split(number, first=10 * number, step=1) for number in range(6)]
    >>> [split.number for split in in_turn(pieces, workers=2)]
    [0, 3, 1, 4, 2, 5]

    Args:
        splits: of the source, in its order.
        workers: that the source starts with.
    """
    if not splits or splits[0].step != 1:
        return tuple(splits)
    each = -(-len(splits) // workers)
    return tuple(split for number in range(each) for split in splits[number::each])


def splits_of(splits: Sequence[Split], worker: int, workers: int) -> Sequence[Split]:
    """The splits that one worker of a source reads, of all in the order in which they are assigned.

    >>> [split.number for split in splits_of([Split(number) for number in range(7)], worker=1, workers=3)]
    [1, 4]

    Args:
        splits: as ``in_turn`` orders them.
        worker: number of the worker.
        workers: of the source at present.
    """
    return splits[worker::workers]


def restored_positions(
    splits: Sequence[Split],
    index: int,
    workers: int,
    known: Mapping[int, Position | None],
    ended: Iterable[int],
    then: int,
) -> dict[int, Position | None]:
    """Where a worker goes on reading its splits, of which another one may have read before.

    >>> splits = [Split(number) for number in range(6)]
    >>> restored_positions(splits, 0, workers=3, known={0: Position(7), 1: Position(4)}, ended=[1], then=2)
    {0: Position(row=7, at=None), 3: None}

    Args:
        splits: of the source, as ``in_turn`` orders them.
        index: of the worker.
        workers: of the source at present.
        known: the positions that workers had when the checkpoint was taken; a split that was not begun has none.
        ended: indices of the workers that had ended by then: their splits were read.
        then: number of the source's workers when the checkpoint was taken.
    """
    read = {split.number: None for gone in ended for split in splits_of(splits, gone, then)}
    positions = {**known, **read}
    mine = splits_of(splits, index, workers)
    return {split.number: positions[split.number] for split in mine if split.number in positions}
