"""The reader of one worker of a source: reads its splits as one stream of rows, each with its due time.

A reader has no thread and no clock: ``read(now_ns, limit)`` returns a batch, or the time of the next call. A batch has
the user's columns, ``_fries_due`` and, under audit, ``_fries_transaction``: (source, split, row of the split) as one
number, which identifies the row in every attempt and with any number of workers. If the rows have times, it has
``_fries_time`` as well, and the reader has lower bounds of the times of the rows not read yet.

>>> from fries_nb.connectors.rate import RateSource
>>> plan = planned(RateSource(count=6), workers=2, rate=2_000)
>>> reader = open_reader(plan, WorkerId("S", 1), workers=2, source=0, audit=False)
>>> batch, again_at = reader.read(now_ns=0, limit=100)
>>> batch.column("value").to_pylist(), again_at
([1], 1000000)
>>> batch, again_at = reader.read(now_ns=5_000_000, limit=100)
>>> batch.column("value").to_pylist(), batch.column("_fries_due").to_pylist(), reader.exhausted
([3, 5], [1000000, 2000000], True)
"""

from __future__ import annotations

import copy
import math
import reprlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from fries_nb.connectors.rate_schedule import RateSchedule, checked
from fries_nb.connectors.source import (
    SPLITS_PER_SOURCE,
    ForeseeingSource,
    Position,
    Source,
    Split,
    SplitReader,
    TimedSource,
    in_turn,
    split_count,
    splits_of,
)
from fries_nb.connectors.time_bounds import RowTimes, SourceTime
from fries_nb.connectors.time_column import TimeColumn
from fries_nb.dataflow.event_time import EventTime
from fries_nb.dataflow.hidden_columns import DUE, TRANSACTION
from fries_nb.errors import SourceError
from fries_nb.messages import WorkerId
from fries_nb.trace import ROW_BITS

POLL_NS = 10_000_000
"""Time in nanoseconds after which a split that returned no rows is read again."""

Answer = tuple[pa.RecordBatch | None, int | None]
Positions = Mapping[int, Position | None]
FROM_THE_START: Positions = {}
NOTHING_SEEN: Mapping[int, int] = {}


@dataclass(frozen=True)
class SourcePlan:
    """A source, its splits and its rate, as shipped to its workers.

    Attributes:
        source: opens the splits.
        splits: all splits, in the order in which they are assigned to workers.
        rate: rows per second of all workers together; ``None`` for no limit.
        time: where the rows have their times, if they have some.
    """

    source: Source
    splits: tuple[Split, ...]
    rate: float | None
    time: EventTime | None = None


def planned(
    source: Source, workers: int, rate: float | None, time: EventTime | None = None, name: str = ""
) -> SourcePlan:
    """Plan a source for a new run.

    Args:
        source: the source.
        workers: number of workers that it starts with.
        rate: see ``SourcePlan``.
        time: see ``SourcePlan``.
        name: name of the source, for the message of an error.

    Raises:
        SourceError: the source cannot be read, has no such times, or returns more splits than the maximum.
    """
    count = split_count(workers)
    if time is not None and isinstance(source, ForeseeingSource):
        splits = tuple(source.splits_in_blocks(count, TimeColumn(name, time.column)))
    else:
        splits = tuple(source.splits(count))
    if [split.number for split in splits] != list(range(len(splits))) or len(splits) > count:
        numbers = ", ".join(str(split.number) for split in splits[:5])
        raise SourceError(f"{source!r} gave {len(splits)} splits ({numbers}, ...); expected at most {count}, from 0 up")
    return SourcePlan(source, in_turn(splits, workers), rate, time)


def open_reader(
    plan: SourcePlan,
    worker: WorkerId,
    workers: int,
    source: int,
    audit: bool,
    positions: Positions = FROM_THE_START,
    bounds: Mapping[int, int] = NOTHING_SEEN,
) -> WorkerReader:
    """Make the reader of one worker of a source.

    Args:
        plan: the plan of the source.
        worker: the worker.
        workers: current number of workers of the source, which share its splits and its rate equally.
        source: index of the source in the graph.
        audit: whether each row gets its identity.
        positions: split number to the position to continue from; other splits are read from the beginning.
        bounds: split number to its bound in the checkpoint (``WorkerReader.bounds`` of the workers then). A source that
            knows its rows computes the bounds anew instead.

    Raises:
        SourceError: the plan's rate is negative or NaN, a split cannot be opened, or times cannot be read.
    """
    rate = math.inf if plan.rate is None else plan.rate / workers
    number = source * SPLITS_PER_SOURCE if audit else None
    splits = splits_of(plan.splits, worker.index, workers)
    times = None if plan.time is None else SourceTime(worker.operator, plan.time, bounds)
    return WorkerReader(copy.copy(plan.source), splits, rate, number, positions, times)


@dataclass(eq=False)
class _OpenSplit:
    """A split that is being read; ``turn`` is the reader's count at its last read."""

    split: Split
    reader: SplitReader
    position: Position
    turn: int = 0

    @property
    def place(self) -> int:
        """The number of its next row in the order of the source; without an order, ``turn``."""
        return self.split.place(self.position.row) if self.split.step else self.turn

    @property
    def left_in_block(self) -> int:
        """Number of consecutive rows of the source, from its next row on."""
        return self.split.block - self.position.row % self.split.block


class _Piece(NamedTuple):
    """Consecutive rows of one split."""

    batch: pa.RecordBatch
    split: Split
    row: int

    def numbers(self, first: int, step: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        """For each row ``first + row * step``."""
        return np.arange(self.row, self.row + self.batch.num_rows, dtype=np.int64) * step + first


class WorkerReader:
    """Reads the splits of one worker of a source.

    Args:
        source: opens the splits.
        splits: the splits of this worker.
        rate: rows per second of this worker; infinity for no limit, 0 for a pause.
        number: added to a split's number in the identities of its rows; ``None`` for no identities.
        positions: split number to the position to continue from; ``None`` for a split that has ended.
        time: where the rows have their times, if they have some.

    Attributes:
        moved: the splits of the last batch, with the positions after it.

    Raises:
        SourceError: the rate is negative or NaN, a split cannot be opened, or times cannot be read.
    """

    def __init__(
        self,
        source: Source,
        splits: Iterable[Split],
        rate: float,
        number: int | None = None,
        positions: Positions = FROM_THE_START,
        time: SourceTime | None = None,
    ) -> None:
        self.moved: dict[int, Position | None] = {}
        self._timed = source if isinstance(source, TimedSource) else None
        self._rate = checked(rate)
        self._schedule: RateSchedule | None = None
        self._number = number
        self._turns = 0
        self._open: list[_OpenSplit] = []
        for split in splits:
            position = positions.get(split.number, Position())
            if position is None:
                continue
            reader = source.open(split, position)
            if reader.position is not None:
                self._open.append(_OpenSplit(split, reader, position))
        unread = [(one.split, one.position.row) for one in self._open]
        self._times = None if time is None else RowTimes(source, unread, time)

    @property
    def exhausted(self) -> bool:
        """Whether all rows have been read."""
        return not self._open

    @property
    def bounds(self) -> dict[int, int]:
        """Each split that has not ended, with a time that none of its rows not read yet is earlier than.

        Exact for a source that knows its rows. For others see ``time_bounds``: there a row may come late. Empty without
        ``time``. A dict is never changed, only replaced by the next read.
        """
        return {} if self._times is None else self._times.bounds

    @property
    def next_time(self) -> int | None:
        """The least of the bounds; ``None`` without ``time``, or at the end."""
        return min(self.bounds.values(), default=None)

    @property
    def is_limited(self) -> bool:
        """Whether the source must not read further ahead of the sinks than its ``EventTime.ahead``."""
        return self._times is not None and self._times.is_limited

    @property
    def least(self) -> int | None:
        """The least time of the last rows, if the bounds before them do not tell it; ``None`` otherwise."""
        return None if self._times is None else self._times.least

    @property
    def ahead_ticks(self) -> int | None:
        """``EventTime.ahead`` in the unit of the times; ``None`` for no limit, or as long as the unit is not known.

        A source that knows its rows knows it from the beginning, any other with its first row.
        """
        return None if self._times is None else self._times.ahead_ticks

    def read(self, now_ns: int, limit: int) -> Answer:
        """Read rows that are due. The first call is the time at which the first row is due.

        Args:
            now_ns: the current time in nanoseconds since the Unix epoch.
            limit: maximum number of rows.

        Returns:
            The batch, ``None`` if no row is due or available; and the time of the next call, ``None`` if the next row
            is due already, or the source is paused or exhausted.

        Raises:
            SourceError: rows cannot be read.
        """
        self.moved = {}
        if self.exhausted:
            return None, None
        if self._schedule is None:
            self._schedule = RateSchedule(self._rate, now_ns)
        wanted = self._schedule.ready(now_ns, limit)
        pieces = self._pieces(wanted, now_ns) if wanted else []
        batch = None
        if pieces:
            count = sum(piece.batch.num_rows for piece in pieces)
            batch = self._stamped(pieces, self._schedule.take(now_ns, count))
        if self._times is not None:
            self._times.advance(self.moved)
        if batch is not None:
            return batch, None if self.exhausted else self._schedule.next_due(now_ns)
        if wanted and not self.exhausted:
            return None, now_ns + POLL_NS
        return None, None if self.exhausted else self._schedule.next_due(now_ns)

    def set_rate(self, rate: float, now_ns: int) -> None:
        """Change the rate; rows that are due already keep their times.

        Args:
            rate: rows per second of this worker; infinity for no limit, 0 for a pause.
            now_ns: the current time in nanoseconds since the Unix epoch.

        Raises:
            SourceError: the rate is negative or NaN.
        """
        if self._schedule is None:
            self._rate = checked(rate)
        else:
            self._schedule.set_rate(rate, now_ns)

    def _pieces(self, limit: int, now_ns: int) -> list[_Piece]:
        """The next available rows, in order."""
        pieces = []
        for one, count in self._shares(limit):
            self._turns += 1
            one.turn = self._turns
            before, batch = one.position.row, one.reader.read(count, now_ns)
            position = one.reader.position
            read = 0 if batch is None else batch.num_rows
            if read > count or (position is not None and position.row != before + read):
                raise SourceError(
                    f"split {one.split.number} was asked for at most {count} rows from row {before} on and gave "
                    f"{read}, with {position} as the next position"
                )
            if position is None:
                self._open.remove(one)
            else:
                one.position = position
            self.moved[one.split.number] = position
            if batch is not None and read:
                pieces.append(_Piece(batch, one.split, before))
        return pieces

    def _shares(self, limit: int) -> list[tuple[_OpenSplit, int]]:
        """The splits to read next, with numbers of rows. Splits whose rows alternate are read together."""
        order = sorted(self._open, key=lambda one: one.place) if len(self._open) > 1 else self._open
        step = order[0].split.step
        if not step or len(order) == 1:
            return [(order[0], limit)]
        if order[0].split.block > 1:
            return [(order[0], min(limit, order[0].left_in_block))]
        bound = order[0].place + step
        together = [one for one in order if one.place < bound]
        if len(together) < len(order):
            rounds = -((together[-1].place - order[len(together)].place) // step)
            limit = min(limit, rounds * len(together))
        each, more = divmod(limit, len(together))
        return [(one, each + (place < more)) for place, one in enumerate(together) if each or place < more]

    def _stamped(self, pieces: list[_Piece], due: np.ndarray[tuple[int], np.dtype[np.int64]]) -> pa.RecordBatch:
        """The rows of all pieces in order, with the columns that the runtime adds."""
        batch, order = _joined(pieces)
        if self._timed is not None:
            batch = self._timed.with_due_times(batch, due)
        if self._times is not None:
            batch = self._times.stamped(batch, lambda index: _described(pieces, order, index))
        batch = batch.append_column(DUE, pa.array(due))
        if self._number is None:
            return batch
        bases = [(self._number + piece.split.number) << ROW_BITS for piece in pieces]
        numbers = np.concatenate([piece.numbers(base, 1) for piece, base in zip(pieces, bases, strict=True)])
        return batch.append_column(TRANSACTION, pa.array(numbers if order is None else numbers[order]))


def _joined(pieces: list[_Piece]) -> tuple[pa.RecordBatch, np.ndarray[tuple[int], np.dtype[np.int64]] | None]:
    """The rows of all pieces in order, and their indices in the concatenated pieces; ``None`` if these are the same."""
    if len(pieces) == 1:
        return pieces[0].batch, None
    order = _order(pieces) if any(piece.batch.num_rows > 1 for piece in pieces) else None
    try:
        batch = pa.concat_batches([piece.batch for piece in pieces])
        return batch if order is None else batch.take(pa.array(order)), order
    except pa.ArrowException as error:
        raise SourceError(f"splits of one source gave rows with different columns: {error}") from error


def _described(pieces: list[_Piece], order: np.ndarray[tuple[int], np.dtype[np.int64]] | None, index: int) -> str:
    """The row of an index in the joined pieces, in words."""
    place = index if order is None else int(order[index])
    for piece in pieces:
        if place < piece.batch.num_rows:
            [row] = piece.batch.slice(place, 1).to_pylist()
            return f"row {piece.row + place:,} of split {piece.split.number}, {reprlib.repr(row)}"
        place -= piece.batch.num_rows
    raise IndexError(index)


def _order(pieces: list[_Piece]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """The indices of the concatenated pieces' rows, in the order of the source."""
    count = len(pieces)
    turns = [np.arange(place, piece.batch.num_rows * count, count) for place, piece in enumerate(pieces)]
    ranks = np.concatenate(turns)
    if ranks.max() == len(ranks) - 1:  # one row of each in turn: no need to sort
        order = np.empty(len(ranks), np.int64)
        order[ranks] = np.arange(len(ranks))
        return order
    places = np.concatenate([piece.numbers(piece.split.first, piece.split.step) for piece in pieces])  # block is 1
    return np.argsort(places, kind="stable")
