"""The reader of one worker of a source: reads its splits as one stream of rows, each with its due time.

A reader has no thread and no clock: ``read(now_ns, limit)`` returns a batch, or the time of the next call. A batch has
the user's columns, ``_fries_due`` and, in runs with identities, ``_fries_transaction``: (source, split, row of the
split) as one number, which identifies the row in every attempt and with any number of workers; beside it
``_fries_cohort``, if a source names the column of its cohorts. If the rows have times, it has ``_fries_time`` as well,
and the reader has lower bounds of the times of the rows not read yet.

>>> from fries_nb.connectors.rate import RateSource
>>> plan = planned(RateSource(count=6), workers=2, rate=2_000)
>>> reader = open_reader(plan, WorkerId("S", 1), workers=2, source=0, identities=False)
>>> batch, again_at = reader.read(now_ns=0, limit=100)
>>> batch.column("value").to_pylist(), again_at
([1], 1000000)
>>> batch, again_at = reader.read(now_ns=5_000_000, limit=100)
>>> batch.column("value").to_pylist(), batch.column("_fries_due").to_pylist(), reader.exhausted
([3, 5], [1000000, 2000000], True)

How far the reader of a source's worker is, over all of its splits, as users are told it.

Two things can be behind: what the source has and was not read, if its readers know it, and what is due by the source's
rate. The first is of interest for a log, the second for a replay; of both the larger is told, and nothing if the source
is known to have no more.

>>> from fries_nb.protocol.checkpoints import Position
>>> from fries_nb.connectors.rate import RateSource
>>> source = RateSource(count=50)
>>> [split] = source.splits(1)
>>> observed([(split, source.open(split, Position(7)))], RateSchedule(1_000, now_ns=0), now_ns=2_500_000)
Reading(places=('row 7',), behind=3, behind_ns=2500000, ...)

Rows that a reader takes from several splits at a time, in the order of the source.

>>> even, odd = Split(0, first=0, step=2), Split(1, first=1, step=2)
>>> pieces = [Piece(pa.record_batch({"n": [0, 2]}), even, 0), Piece(pa.record_batch({"n": [1, 3]}), odd, 0)]
>>> batch, order = joined(pieces)
>>> batch.column("n").to_pylist(), order.tolist()
([0, 1, 2, 3], [0, 2, 1, 3])
>>> described(pieces, order, 1)
"row 0 of split 1, {'n': 1}"

The splits that a worker reads, and which of them it reads next.

>>> even, odd = Split(0, first=0, step=2), Split(1, first=1, step=2)
>>> splits = [OpenSplit(even, reader=None, position=Position(3)), OpenSplit(odd, reader=None, position=Position(1))]
>>> [(one.split.number, count) for one, count in shares(splits, 10)]
[(1, 2)]
>>> splits[1].position = Position(3)
>>> [(one.split.number, count) for one, count in shares(splits, 5)]
[(0, 3), (1, 2)]

Where a source begins to read, if not at its beginning: ``flow.run(start={"payments": ...})``.

What is given is made a position of each split, when the splits are made. It is part of the split (``Split.start``), so
every restart of the run, and every worker that gets the split before it was begun, begins there.

    a time              what ``find`` of the source gives: the first row of each split from that time on
    a whole number      the same, if the rows have times (``time=``) that are integers; otherwise a row in the order of
                        the source, for one whose rows have numbers: a replay, a table, a rate
    positions           one for each split, since those of another number of splits are of other rows

>>> from fries_nb.connectors.rate import RateSource
>>> source = RateSource(count=7)
>>> [split.start.row for split in begun_at(source, source.splits(2), SourceStart(number=3), None, "S")]
[2, 1]
>>> begun_at(source, source.splits(2), SourceStart(places={0: 2}), None, "S")
Traceback (most recent call last):
fries_nb.errors.SourceError: start= has positions of 1 splits for source 'S', which has 2; expected one of each, ...
"""

from __future__ import annotations

import copy
import math
import reprlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import reduce
from itertools import islice
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from msgspec import structs

from fries_nb.connectors.row_times import RateSchedule, RowTimes, SourceTime, checked
from fries_nb.connectors.source import (
    NOTHING_SKIPPED,
    SPLITS_PER_SOURCE,
    CohortColumn,
    Position,
    RuntimeReader,
    RuntimeSource,
    Skipped,
    Split,
    TimeColumn,
    Undecoded,
    in_turn,
    split_count,
    splits_of,
)
from fries_nb.dataflow.columns import COHORT, DUE, TRANSACTION
from fries_nb.dataflow.starts import AtRow, SourceStart
from fries_nb.dataflow.windowing import EventTime
from fries_nb.errors import SinkError, SourceError, exception_text
from fries_nb.operators.instance import FAILURES
from fries_nb.protocol.checkpoints import Reading
from fries_nb.protocol.messages import WorkerId
from fries_nb.protocol.partitioning import cohorts
from fries_nb.protocol.trace import ROW_BITS, SourceRow
from fries_nb.storage.part_files import fitted, unified

MOST_PLACES = 16
"""Number of splits of a worker whose places are told."""


def observed(
    readers: Sequence[tuple[Split, RuntimeReader]], schedule: RateSchedule | None, now_ns: int,
    skipped: Skipped = NOTHING_SKIPPED,
) -> Reading:  # fmt: skip
    """How far a worker has read."""
    known = [found for _, reader in readers if (found := reader.behind(now_ns)) is not None]
    rows, waited_ns = _total([rows for rows, _ in known]), _most([since for _, since in known])
    due, overdue_ns = schedule.overdue(now_ns) if schedule is not None else (0, 0)
    has_more = any(rows != 0 for rows, _ in known)
    if not known or (has_more and due > (rows or 0)):
        rows, waited_ns = due, overdue_ns
    places = filter(None, (_place(split, reader) for split, reader in readers))
    return Reading(tuple(islice(places, MOST_PLACES)), rows, waited_ns, skipped.count, skipped.last)


def _place(split: Split, reader: RuntimeReader) -> str:
    if (place := reader.place) is not None:
        return place
    row = reader.position.row if reader.position is not None else 0
    return f"row {split.place(row):,}" if split.step else f"split {split.number}, row {row:,}"


def _total(found: Iterable[int | None]) -> int | None:
    counts = [count for count in found if count is not None]
    return sum(counts) if counts else None


def _most(found: Iterable[int | None]) -> int | None:
    return max((since for since in found if since is not None), default=None)


class Piece(NamedTuple):
    """Consecutive rows of one split."""

    batch: pa.RecordBatch
    split: Split
    row: int

    def numbers(self, first: int, step: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        """For each row ``first + row * step``."""
        begin = first + self.row * step
        return np.arange(begin, begin + self.batch.num_rows * step, step, dtype=np.int64)


def joined(pieces: list[Piece]) -> tuple[pa.RecordBatch, np.ndarray[tuple[int], np.dtype[np.int64]] | None]:
    """The rows of all pieces in order, and their indices in the concatenated pieces; ``None`` if these are the same."""
    if len(pieces) == 1:
        return pieces[0].batch, None
    order = _order(pieces) if any(piece.batch.num_rows > 1 for piece in pieces) else None
    try:
        batch = pa.concat_batches([piece.batch for piece in pieces])
    except pa.ArrowInvalid:  # their columns differ
        batch = pa.concat_batches(_with_all_columns(pieces))
    return batch if order is None else batch.take(pa.array(order)), order


def _with_all_columns(pieces: Sequence[Piece]) -> list[pa.RecordBatch]:
    """The rows of pieces with the columns of all: a split may have learned of one that others have not met yet."""
    try:
        whole = reduce(unified, (piece.batch.schema for piece in pieces))
        return [fitted(piece.batch, whole) for piece in pieces]
    except SinkError as error:
        raise SourceError(
            f"splits {', '.join(str(piece.split.number) for piece in pieces)} of one source gave rows whose columns "
            f"do not go together: {error}"
        ) from error


def described(pieces: list[Piece], order: np.ndarray[tuple[int], np.dtype[np.int64]] | None, index: int) -> str:
    """The row of an index in the joined pieces, in words."""
    place = index if order is None else int(order[index])
    for piece in pieces:
        if place < piece.batch.num_rows:
            [row] = piece.batch.slice(place, 1).to_pylist()
            return f"row {piece.row + place:,} of split {piece.split.number}, {reprlib.repr(row)}"
        place -= piece.batch.num_rows
    raise IndexError(index)


def _order(pieces: list[Piece]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
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


@dataclass(eq=False)
class OpenSplit:
    """A split that is being read; ``turn`` is the reader's count at its last read."""

    split: Split
    reader: RuntimeReader
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


def shares(splits: Sequence[OpenSplit], limit: int) -> list[tuple[OpenSplit, int]]:
    """The splits to read next, with numbers of rows."""
    # Splits whose rows alternate are read together. Without an order all are listed in turn, and read until one has
    # rows.
    order = sorted(splits, key=lambda one: one.place) if len(splits) > 1 else splits
    step = order[0].split.step
    if not step or len(order) == 1:
        return [(opened, limit) for opened in order]
    if order[0].split.block > 1:
        return [(order[0], min(limit, order[0].left_in_block))]
    bound = order[0].place + step
    together = [opened for opened in order if opened.place < bound]
    if len(together) < len(order):
        rounds = -((together[-1].place - order[len(together)].place) // step)
        limit = min(limit, rounds * len(together))
    each, more = divmod(limit, len(together))
    return [(opened, each + (place < more)) for place, opened in enumerate(together) if each or place < more]


POLL_NS = 10_000_000
"""Time in nanoseconds after which a split that returned no rows is read again."""

Answer = tuple[pa.RecordBatch | None, int | None]
Positions = Mapping[int, Position | None]
FROM_THE_START: Positions = {}
NOTHING_SEEN: Mapping[int, int] = {}


@dataclass(frozen=True)
class SourcePlan:
    """A source, its splits and its rate, as shipped to its workers."""

    source: RuntimeSource  # opens the splits
    splits: tuple[Split, ...]  # all splits, in the order in which they are assigned to workers
    rate: float | None  # rows per second of all workers together; ``None`` for no limit
    time: EventTime | None = None  # where the rows have their times, if they have some
    number: int = 0  # of all sources that the region ever had: a part of the identity of its rows
    cohort: str | None = None  # see ``Operator``

    def beginning_at(self, start: SourceStart, name: str) -> SourcePlan:
        """The same plan for a run that begins to read the source there; raises a SourceError if it cannot."""
        column = None if self.time is None else TimeColumn(name, self.time.column)
        return replace(self, splits=tuple(begun_at(self.source, self.splits, start, column, name)))

    def row(self, name: str, split: int, number: int) -> SourceRow | None:
        """A row by its number in a split, read again if the source can; ``None`` if there is no such split."""
        found = next((opened for opened in self.splits if opened.number == split), None)
        if found is None:
            return None
        try:
            values = self.source.row_at(found, number)
        except FAILURES as error:  # a file that is gone, or the user's function: no reason to refuse a verdict
            return SourceRow(name, found.place(number), unread=exception_text(error))
        return SourceRow(name, found.place(number), values)


def planned(
    source: RuntimeSource, workers: int, rate: float | None, time: EventTime | None = None, name: str = ""
) -> SourcePlan:
    """Plan a source for a new run."""
    count = split_count(workers)
    column = None if time is None else TimeColumn(name, time.column)
    splits = tuple(source.splits(count) if column is None else source.splits_in_blocks(count, column))
    if [split.number for split in splits] != list(range(len(splits))) or len(splits) > count:
        numbers = ", ".join(str(split.number) for split in splits[:5])
        raise SourceError(f"{source!r} gave {len(splits)} splits ({numbers}, ...); expected at most {count}, from 0 up")
    return SourcePlan(source, in_turn(splits, workers), rate, time)


def open_reader(
    plan: SourcePlan,
    worker: WorkerId,
    workers: int,
    source: int,
    identities: bool,
    positions: Positions = FROM_THE_START,
    bounds: Mapping[int, int] = NOTHING_SEEN,
) -> WorkerReader:
    """Make the reader of one worker of a source."""
    mine = splits_of(plan.splits, worker.index, workers)
    rate = math.inf if plan.rate is None else plan.rate
    number = source * SPLITS_PER_SOURCE if identities else None
    times = None if plan.time is None else SourceTime(worker.operator, plan.time, bounds)
    cohort = None if plan.cohort is None else CohortColumn(worker.operator, plan.cohort)
    return WorkerReader(copy.copy(plan.source), mine, rate, number, positions, times, plan.splits, cohort)


class WorkerReader:
    """Reads the splits of one worker of a source.

    Raises:
        SourceError: the rate is negative or NaN, a split cannot be opened, or times cannot be read.
    """

    def __init__(
        self,
        source: RuntimeSource,
        splits: Iterable[Split],
        rate: float,
        number: int | None = None,
        positions: Positions = FROM_THE_START,
        time: SourceTime | None = None,
        every: Iterable[Split] = (),
        cohort: CohortColumn | None = None,
    ) -> None:
        mine = list(splits)
        self._source = source
        # ``every``: all splits of the source, of which it may get others
        self._splits = {split.number: split for split in (*mine, *every)}
        self._mine = {split.number for split in mine}
        # the splits whose positions the last call has changed, with these: those of the batch, and those of which it
        # has read nothing but what is no row
        self.moved: dict[int, Position | None] = {}
        # ``rate``: rows per second of the source, of which the worker has the share of its splits; infinity for no
        # limit
        self._total = checked(rate)
        self._schedule: RateSchedule | None = None
        self._number = number  # added to a split's number in the identities of its rows; ``None`` for no identities
        self._cohort = cohort  # gives the rows with identities their cohorts; ``None`` if they need no column of them
        self._turns = 0
        self._undecoded: list[Undecoded] = []
        self._skipped = NOTHING_SKIPPED
        self._open: list[OpenSplit] = []
        # ``positions``: split number to the position to continue from; ``None`` for a split that has ended
        for split in mine:
            self._begin(split, positions.get(split.number, Position()))
        unread = [(opened.split, opened.position.row) for opened in self._open]
        # ``time``: where the rows have their times, if they have some
        self._times = None if time is None else RowTimes(source, unread, time)

    def _begin(self, split: Split, position: Position | None) -> None:
        if position is None:
            return
        reader = self._source.open(split, position)
        if reader.position is not None:
            self._open.append(OpenSplit(split, reader, position))

    @property
    def _rate(self) -> float:
        """Rows per second of this worker."""
        if self._total in (0, math.inf) or not self._splits:
            return self._total
        return self._total * len(self._mine) / len(self._splits)

    @property
    def exhausted(self) -> bool:
        """Whether all rows have been read."""
        return not self._open

    @property
    def bounds(self) -> dict[int, int]:
        """Each split that has not ended, with a time that none of its rows not read yet is earlier than."""
        # Exact for a source that knows its rows. For others see ``row_times``: there a row may come late. Empty without
        # ``time``. A dict is never changed, only replaced by the next read.
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
        """``EventTime.ahead`` in the unit of the times; ``None`` for no limit, or as long as the unit is not known."""
        # A source that knows its rows knows it from the beginning, any other with its first row.
        return None if self._times is None else self._times.ahead_ticks

    def read(self, now_ns: int, limit: int) -> Answer:
        """Read rows that are due. The first call is the time at which the first row is due.

        Returns:
            The batch, ``None`` if no row is due or available; and the time of the next call, ``None`` if the next row
            is due already, or the source is paused or exhausted.
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
            gave = {piece.split.number for piece in pieces}
            self._times.advance({split: at for split, at in self.moved.items() if at is None or split in gave})
        if batch is not None:
            return batch, None if self.exhausted else self._schedule.next_due(now_ns)
        if wanted and not self.exhausted:
            return None, now_ns + POLL_NS
        return None, None if self.exhausted else self._schedule.next_due(now_ns)

    def reading(self, now_ns: int) -> Reading | None:
        """How far it has read, at a time in nanoseconds since the Unix epoch."""
        # ``None`` if it has read everything, and has left out nothing.
        skipped = sum((opened.reader.skipped for opened in self._open), self._skipped)
        if not self._open:
            return Reading(skipped=skipped.count, last_skipped=skipped.last, ended=True) if skipped.count else None
        return observed([(opened.split, opened.reader) for opened in self._open], self._schedule, now_ns, skipped)

    def take_undecoded(self) -> list[Undecoded]:
        """What was read since the last call and is no row."""
        taken, self._undecoded = self._undecoded, []
        return taken

    def set_rate(self, rate: float, now_ns: int) -> None:
        """Change the rate; rows that are due already keep their times."""
        self._total = checked(rate)
        self._set_share(now_ns)

    def give_up(self, splits: Iterable[int], now_ns: int) -> None:
        """Read these splits no more; the worker's rate becomes the share of the others."""
        self._mine.difference_update(splits)
        for one in [one for one in self._open if one.split.number not in self._mine]:
            self._end(one)
        self._set_share(now_ns)

    def adopt(self, positions: Positions, now_ns: int) -> None:
        """Read further splits, of which other workers have read a part; not for a source whose rows have times."""
        for number, position in positions.items():
            self._mine.add(number)
            self._begin(self._splits[number], position)
        self._set_share(now_ns)

    def close(self) -> None:
        """Read no more, and release what the readers of splits hold."""
        for one in list(self._open):
            self._end(one)

    def _end(self, one: OpenSplit) -> None:
        self._open.remove(one)
        one.reader.close()

    def _set_share(self, now_ns: int) -> None:
        if self._schedule is not None:
            self._schedule.set_rate(self._rate, now_ns)

    def _pieces(self, limit: int, now_ns: int) -> list[Piece]:
        """The next available rows, in order; without an order, those of the first split in turn that has some."""
        pieces = []
        for one, count in shares(self._open, limit):
            self._turns += 1
            one.turn = self._turns
            before, batch = one.position, one.reader.read(count, now_ns)
            position = one.reader.position
            read = 0 if batch is None else batch.num_rows
            if read > count or (position is not None and position.row != before.row + read):
                raise SourceError(
                    f"split {one.split.number} was asked for at most {count} rows from row {before.row} on and gave "
                    f"{read}, with {position} as the next position"
                )
            if position is None:
                self._skipped += one.reader.skipped
                self._end(one)
            else:
                one.position = position
            if position != before:
                self.moved[one.split.number] = position
            self._undecoded += one.reader.take_undecoded()
            if batch is not None and read:
                pieces.append(Piece(batch, one.split, before.row))
                if not one.split.step:
                    break
        return pieces

    def _stamped(self, pieces: list[Piece], due: np.ndarray[tuple[int], np.dtype[np.int64]]) -> pa.RecordBatch:
        """The rows of all pieces in order, with the columns that the runtime adds."""
        batch, order = joined(pieces)
        batch = self._source.with_due_times(batch, due)
        if self._times is not None:
            batch = self._times.stamped(batch, lambda index: described(pieces, order, index))
        batch = batch.append_column(DUE, pa.array(due))
        if self._number is None:
            return batch
        bases = [(self._number + piece.split.number) << ROW_BITS for piece in pieces]
        numbers = np.concatenate([piece.numbers(base, 1) for piece, base in zip(pieces, bases, strict=True)])
        batch = batch.append_column(TRANSACTION, pa.array(numbers if order is None else numbers[order]))
        if self._cohort is None:
            return batch
        found = self._cohort.cohorts(batch) if self._cohort.name else pa.array(cohorts(batch))
        return batch.append_column(COHORT, found)


def begun_at(
    source: RuntimeSource, splits: Sequence[Split], start: SourceStart, column: TimeColumn | None, name: str
) -> list[Split]:
    """The splits of a source with the positions at which a run begins to read them.

    Args:
        source: the source.
        splits: all of its splits.
        start: where the run begins.
        column: the column with the times of its rows, if they have some.
        name: name of the source.

    Raises:
        SourceError: the source has no such place, or cannot find it.
    """
    with _of(name, start):
        if start.places is not None:
            found = {split.number: _placed(source, split, start.places) for split in _all_of(splits, start.places)}
        elif start.time is None and column is None and all(split.step for split in splits):
            found = _from_row(source, splits, start.number or 0)
        else:
            found = dict(source.find(splits, start.time or start.number or 0, column))
        if splits and all(found.get(split.number, Position()) is None for split in splits):
            raise SourceError("which has no row there; expected an earlier place")
    return [structs.replace(split, start=found.get(split.number, split.start)) for split in splits]


@contextmanager
def _of(name: str, start: SourceStart) -> Iterator[None]:
    """Begins the sentence of an error that says why a source cannot begin there."""
    try:
        yield
    except SourceError as error:
        raise SourceError(f"start= has {start} for source {name!r}, {error}") from error


def _all_of(splits: Sequence[Split], places: Mapping[int, object]) -> Sequence[Split]:
    if places.keys() != {split.number for split in splits}:
        raise SourceError(
            f"which has {len(splits)}; expected one of each, numbered from 0, of a run with as many workers of the "
            "source (None for a split that was read)"
        )
    return splits


def _placed(source: RuntimeSource, split: Split, places: Mapping[int, int | AtRow | None]) -> Position | None:
    """The position of a split that is given."""
    place, rows = places[split.number], source.rows_of(split)
    if place is None:
        return None
    if isinstance(place, int) and rows is None:
        raise SourceError(
            f"whose rows are not found by their numbers, as {place} for split {split.number}; expected positions with "
            "all that it needs, as fn.checkpoint(path).positions() has them, or fn.Position(row, at)"
        )
    row = place if isinstance(place, int) else place.row
    if row > (math.inf if rows is None else rows):
        raise SourceError(f"of which split {split.number} has {rows:,} rows, and not {row:,}; expected its own rows")
    if isinstance(place, int):
        return Position(row)
    following = split.place(row) if split.step else None
    if place.following not in (None, following):
        raise SourceError(
            f"of which row {row:,} of split {split.number} was row {place.following:,} of the source, and is "
            f"{'none' if following is None else f'{following:,}'} now; expected positions of a run whose source has as "
            "many workers, and time= or not as here, or a time or a number"
        )
    return Position(place.row, place.at)


def _from_row(source: RuntimeSource, splits: Sequence[Split], place: int) -> dict[int, Position | None]:
    """The first row of each split from a row of the source on."""
    rows = {split.number: source.rows_of(split) for split in splits}
    if place < 0 or any(count is None for count in rows.values()):
        raise SourceError("whose rows have no such number; expected the position of each split, or a time")
    first = {split.number: split.row_from(place) for split in splits}
    return {number: Position(row) if row < (rows[number] or 0) else None for number, row in first.items()}
