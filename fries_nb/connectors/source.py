"""The protocol of sources: splits that are read from positions.

A source is divided into splits once for a run, ``SPLITS_PER_WORKER`` for each worker that it starts with. A split is
assigned to one worker at a time; when the number of workers changes, the same splits are assigned anew. A checkpoint
records the position in each split, from which a resumed run continues.

A complete source over a list of rows:

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

A source of the user's offers no more than these. The runtime's own are a ``RuntimeSource`` and a ``RuntimeReader``,
which have defaults for the rest. ``tests/connectors/test_source_contract.py`` checks the contract of sources.

The column with the times of a source's rows, and the hidden column that is made of it.

Integers become int64; timestamps and dates become nanoseconds, in the time zone of the column.

>>> column = TimeColumn("payments", "at")
>>> column.times(pa.record_batch({"at": pa.array([1, 2], pa.timestamp("s"))}), str).type
TimestampType(timestamp[ns])
>>> column.type_in(pa.schema({"At": pa.int64()}))
Traceback (most recent call last):
    ...
fries_nb.errors.SourceError: source 'payments' has time='at', but no such column; expected one of At; did you mean 'At'?
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple, Protocol

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from fries_nb.dataflow.columns import HIDDEN
from fries_nb.dataflow.keys import is_key_type
from fries_nb.errors import SourceError, unknown
from fries_nb.protocol.checkpoints import Position
from fries_nb.protocol.partitioning import cohorts_of
from fries_nb.protocol.trace import SPLIT_BITS

Ticks = npt.NDArray[np.int64]
"""Times as numbers."""


@dataclass(frozen=True, slots=True)
class TimeColumn:
    """The column with the times of a source's rows."""

    source: str  # name of the source
    name: str  # name of the column

    def type_in(self, schema: pa.Schema) -> pa.DataType:
        """The type of the times of rows with these columns."""
        if self.name not in schema.names:
            known = unknown("column", self.name, schema.names).partition("; ")[2]
            raise SourceError(f"{self._said}, but no such column; {known}")
        kind = schema.field(self.name).type
        if pa.types.is_dictionary(kind):
            kind = kind.value_type
        if pa.types.is_integer(kind):
            return pa.int64()
        if pa.types.is_timestamp(kind):
            return pa.timestamp("ns", kind.tz)
        if pa.types.is_date(kind):
            return pa.timestamp("ns")
        raise SourceError(f"{self._said}, a column of {kind}; expected timestamps, dates or integers")

    def times(self, batch: pa.RecordBatch, row: Callable[[int], str]) -> pa.Array:
        """The times of some rows; ``row`` describes one, by its index in the batch, for the message of an error."""
        kind = self.type_in(batch.schema)
        column = batch.column(self.name)
        if column.null_count:
            first = pc.index(pc.is_null(column), True).as_py()
            raise SourceError(f"{self._said}, which is null in {row(first)}; expected a time in every row")
        try:
            return column.cast(kind)
        except pa.ArrowInvalid as error:
            most = "integers below 2**63" if pa.types.is_integer(kind) else "nanoseconds, from 1678 to 2261"
            raise SourceError(f"{self._said}, a time of which is out of range ({error}); expected {most}") from None

    @property
    def _said(self) -> str:
        return f"source {self.source!r} has time={self.name!r}"


@dataclass(frozen=True, slots=True)
class CohortColumn:
    """The column by whose values a source's rows are divided into cohorts; its nulls are one value, as in keys."""

    source: str  # name of the source
    name: str  # name of the column; empty for the rows' identities

    def cohorts(self, batch: pa.RecordBatch) -> pa.Array:
        """The cohort of each row of a batch; raises a SourceError if there is no such column, or it can be no key."""
        said = f"source {self.source!r} has cohort={self.name!r}"
        names = [name for name in batch.schema.names if name not in HIDDEN]
        if self.name not in names:
            raise SourceError(f"{said}, but no such column; {unknown('column', self.name, names).partition('; ')[2]}")
        column = batch.column(self.name)
        if not is_key_type(column.type):
            raise SourceError(f"{said}, a column of {column.type}; expected numbers, text, bytes, times or UUIDs")
        return pa.array(cohorts_of([column]))


def ticks_of(time: datetime | int, kind: pa.DataType) -> int:
    """A time that a user gives as a number like those of ``as_ticks``.

    Args:
        time: without an offset it is one in UTC, or in a column without a time zone what the column has.
        kind: the type of the times.

    Raises:
        SourceError: it cannot be compared with times of this type.

    >>> ticks_of(datetime(1970, 1, 2), pa.timestamp("ns"))
    86400000000000
    """
    if pa.types.is_integer(kind) or not isinstance(time, datetime):
        if pa.types.is_integer(kind) and not isinstance(time, datetime):
            return time
        expected = "a whole number" if pa.types.is_integer(kind) else "a datetime, or a time as text"
        raise SourceError(f"whose times are {kind}; expected {expected}")
    if time.tzinfo is not None and kind.tz is None:
        raise SourceError(f"whose times are {kind}, without a time zone; expected a time without an offset")
    since = (time if time.tzinfo is not None else time.replace(tzinfo=UTC)) - datetime(1970, 1, 1, tzinfo=UTC)
    return since // timedelta(microseconds=1) * 1_000


def as_ticks(times: pa.Array) -> Ticks:
    """The times as int64 numbers: nanoseconds, or the integers of the column.

    >>> as_ticks(pa.array([5], pa.timestamp("ns"))).tolist()
    [5]
    """
    numbers: Ticks = times.view(pa.int64()).to_numpy()
    return numbers


__all__ = [
    "NOTHING_SKIPPED",
    "SPLITS_PER_SOURCE",
    "SPLITS_PER_WORKER",
    "DueTimes",
    "Foresight",
    "Position",
    "RuntimeReader",
    "RuntimeSource",
    "Skipped",
    "Source",
    "Split",
    "SplitReader",
    "Undecoded",
    "in_turn",
    "restored_positions",
    "split_count",
    "splits_of",
]

SPLITS_PER_WORKER = 16
"""Number of splits for each worker that a source starts with."""

SPLITS_PER_SOURCE = 1 << SPLIT_BITS
"""Maximum number of splits of a source: a row's identity has (source, split) in 23 bits above the row's number."""

DueTimes = npt.NDArray[np.int64]
"""Due times of rows, in nanoseconds since the Unix epoch."""


class Split(msgspec.Struct, frozen=True):
    """A part of a source's rows; the rows and their numbers within the split never change.

    The rows of all splits may have a common order, in which a worker reads the rows of its splits: a split then has
    blocks of ``block`` consecutive rows of the source, the first of them from row ``first`` on, the others ``step``
    rows apart. ``step`` and ``block`` are the same for all splits of a source. Without an order (``step`` is 0) a
    worker reads a batch of each split in turn.

    >>> dealt = Split(1, first=100, step=400, block=100)
    >>> [dealt.place(row) for row in (0, 99, 100, 101)]
    [100, 199, 500, 501]

    Attributes:
        number: number of the split, from 0.
        content: data for ``Source.open``; any msgpack value.
        first: number of the split's first row in the order of the source.
        step: difference between the numbers of the first rows of consecutive blocks; 1 if the split is a contiguous
            piece of the source.
        block: number of rows of a block.
        start: position of the first row that a run reads, given by ``start=``; ``None`` if it reads none of the split.
    """

    number: int
    content: Any = None
    first: int = 0
    step: int = 0
    block: int = 1
    start: Position | None = Position()

    def place(self, row: int) -> int:
        """The number of a row of the split in the order of the source.

        Args:
            row: number of the row in the split.

        Returns:
            Its number in the source.
        """
        blocks, within = divmod(row, self.block)
        return self.first + blocks * self.step + within

    def row_from(self, place: int) -> int:
        """The number of the first row of the split that is not before a row of the source, if they have an order.

        Args:
            place: number of the row of the source.

        Returns:
            The row's number in the split, beyond its last one if all rows are before.

        >>> [Split(1, first=100, step=400, block=100).row_from(place) for place in (0, 150, 200, 500, 501)]
        [0, 50, 100, 100, 101]
        """
        blocks, within = divmod(max(0, place - self.first), self.step)
        return blocks * self.block + min(within, self.block)


class SplitReader(Protocol):
    """Reads one split without blocking. Used by one thread."""

    @property
    def position(self) -> Position | None:
        """The position of the next row; ``None`` at the end of the split."""

    def read(self, limit: int, now_ns: int) -> pa.RecordBatch | None:
        """Read the next rows. Not called at the end of the split.

        Args:
            limit: maximum number of rows, at least 1. Fewer may be returned.
            now_ns: the current time in nanoseconds since the Unix epoch.

        Returns:
            Rows with the user's columns; ``None`` if there are none at present.

        Raises:
            SourceError: the rows cannot be read.
        """


class Undecoded(NamedTuple):
    """What a source has read and could not make a row of.

    Attributes:
        row: what its dead letter has in the place of a row: it, or its beginning, as text, and where it is.
    """

    error: str  # where it is, and why it is no row
    row: dict[str, Any]


@dataclass(frozen=True)
class Skipped:
    """What was left out."""

    count: int = 0  # number of lines, or files, that are no rows
    last: str = ""  # the last of them, and why it is none

    def __add__(self, other: Skipped) -> Skipped:
        """What both have left out."""
        return Skipped(self.count + other.count, other.last or self.last)


NOTHING_SKIPPED = Skipped()


class RuntimeReader(ABC):
    """A ``SplitReader`` as the runtime uses it: what not every one knows or holds has a default."""

    position: Position | None  # see ``SplitReader``
    skipped: Skipped = NOTHING_SKIPPED  # what it has left out, since it is no row

    @property
    def place(self) -> str | None:
        """Where the next row is, as the source's users say it: ``partition 3, offset 1,204``; by default its number."""
        return None

    @abstractmethod
    def read(self, limit: int, now_ns: int) -> pa.RecordBatch | None:
        """See ``SplitReader``."""

    def behind(self, now_ns: int) -> tuple[int | None, int | None] | None:
        """How far it is behind what it knows to be there; called a few times a second, so it must not block.

        The number of rows that are there and were not read, and the nanoseconds for which the oldest of them has been
        there, each ``None`` if it is not known; ``None`` in place of both if what is there never is known.
        """
        return None

    def take_undecoded(self) -> list[Undecoded]:
        """What it could not decode since the last call, and has set aside."""
        return []

    def close(self) -> None:  # noqa: B027 - most hold nothing
        """Release a connection, a thread or a file.

        Called once: at the end of the split, when it is given to another worker, and with the run.
        """


class Source(Protocol):
    """A source of your own: ``flow.source("feed", MySource())``.

    ``splits`` says which parts can be read independently, at most; ``open`` begins to read one of them at a position.
    The run takes a copy (the source is pickled), and each worker opens splits on a copy of its own. The module has an
    example of 20 lines, ``fries_nb.workloads.connector_examples`` one of a live feed.

    What ``open`` returns is a reader: ``read(limit, now_ns)`` returns the next rows, at most ``limit``, as a
    ``pyarrow.RecordBatch``, or ``None`` if there are none at present, and never waits: it is asked again every 10 ms.
    Its attribute ``position`` is that of the next row, an ``fn.Position``, or ``None`` once the split has ended, which
    an endless one never does. ``Position.row`` counts the rows of the split; ``Position.at`` may add any value that
    msgpack encodes (numbers, text, bytes, lists, dicts) and that tells where the next row is found. A checkpoint keeps
    positions, and a reader opened at one continues with exactly the rows behind it, each with the same number as
    before: so whatever the rows come from must be able to repeat those since the last checkpoint. A ``close()`` of the
    reader is called at the end, if it has one. An exception of the reader ends the run, which can be resumed; a lost
    connection is better made again by the reader itself.

    The runtime controls the rate, by reading as many rows as are due: those of all workers together are ``rate`` rows
    per second, if the source has an attribute of this name and it is not ``None``. With ``flow.source(..., time=...)``
    the source may also be given ``ahead=`` and ``late=``; a window then stays open until each split has had a row
    behind it, so such a source should have no split without rows. In a checkpoint the source is known by the name of
    its class: a resumed run may give it other arguments, as a new address, but its splits are those of the first run.
    With a method ``row_at(split, number)``, which reads one row again, an audit shows the rows that it names. With a
    method ``find(time)`` a run may begin at a time, ``flow.run(start={"feed": "2026-11-01"})``: it is called on the
    driver behind ``splits``, with a ``datetime`` (in UTC, if it was given without an offset) or the whole number that
    was given, and returns a dict from the number of a split to the ``fn.Position`` of its first row from that time on.
    Splits that are not there are read from the beginning.
    """

    @abstractmethod
    def splits(self, count: int) -> Sequence[Split]:
        """Divide the source into splits. Called once for a run, on the driver; the result is kept in its checkpoints.

        Args:
            count: maximum number of splits, and the number wanted.

        Returns:
            Splits numbered from 0; each row is in exactly one of them.

        Raises:
            SourceError: the source cannot be read.
        """

    @abstractmethod
    def open(self, split: Split, position: Position) -> SplitReader:
        """Open a split, on the host of the worker to which it is assigned.

        Args:
            split: one of ``splits``.
            position: position of the first row to read: ``Position()`` for the beginning, or ``SplitReader.position``
                of an earlier reader of the split.

        Returns:
            A reader at the position.

        Raises:
            SourceError: the split cannot be read.
        """


class Foresight(Protocol):
    """The times of the rows of some splits that were not read yet."""

    @property
    def type(self) -> pa.DataType | None:
        """The type of the times; ``None`` if no split has rows."""

    def least(self, split: int, row: int) -> int:
        """The least time of the rows of a split from ``row`` on, which is not less than in the last call for it."""


class RuntimeSource(Source):
    """A source as the runtime uses it: what not every one can do has a default."""

    @abstractmethod
    def open(self, split: Split, position: Position) -> RuntimeReader:
        """See ``Source``."""

    def with_due_times(self, batch: pa.RecordBatch, due: DueTimes) -> pa.RecordBatch:
        """Add columns that depend on the rows' due times, in nanoseconds since the Unix epoch; by default none."""
        return batch

    def row_at(self, split: Split, number: int) -> Mapping[str, Any]:
        """One row by its number in a split, read again to show it; empty for a source that cannot, as by default."""
        return {}

    def rows_of(self, split: Split) -> float | None:
        """The number of rows of a split, if a number is all that is needed to find a row of it; ``None`` by default."""
        return None

    def find(
        self, splits: Sequence[Split], time: datetime | int, column: TimeColumn | None
    ) -> Mapping[int, Position | None]:
        """Where to begin to read the rows from a time on, on the driver.

        Args:
            splits: all splits.
            time: the time; a number for a column of integers.
            column: the column with the times of rows, if they have some.

        Returns:
            Split number to the position of the first row, ``None`` if there is none and none will come; splits that are
            not there are read from the beginning.

        Raises:
            SourceError: it cannot tell, or the time is not one of the column.
        """
        raise SourceError("which does not look for times; expected the position of each split, as in start={0: 7, ...}")

    def splits_in_blocks(self, count: int, column: TimeColumn) -> Sequence[Split]:
        """Divide the source as ``splits`` does, but into blocks that are dealt to the splits in turn, if it foresees.

        So all workers read about the same part of the source at a time, and no window of time stays open for long.
        """
        return self.splits(count)

    def foresee(self, splits: Sequence[tuple[Split, int]], column: TimeColumn) -> Foresight | None:
        """The times of the rows that one worker has not read yet, which a data set knows; ``None`` by default.

        The splits are those that the worker has not read to their end, each with the number of its next row.
        """
        return None

    def outline(self, splits: Sequence[tuple[Split, int]]) -> Foresight | None:
        """Lower bounds of these times, if the source's plan has them; for dataflows that need no exact ones."""
        return None


def split_count(workers: int) -> int:
    """The number of splits of a source that starts with so many workers; equal for each of them if possible.

    >>> [split_count(workers) for workers in (1, 2, 64, 100, 1024, 2000)]
    [16, 32, 1024, 1000, 1024, 1024]
    """
    each = max(1, min(SPLITS_PER_WORKER, SPLITS_PER_SOURCE // workers))
    return min(SPLITS_PER_SOURCE, workers * each)


def in_turn(splits: Sequence[Split], workers: int) -> tuple[Split, ...]:
    """The order in which splits are assigned to workers, round robin.

    If the splits are contiguous pieces of the source, each worker that it starts with gets consecutive ones, since
    these may share data that is then read once. When the number of workers changes, each gets an equal share of the
    rows not read yet.

    >>> pieces = [Split(number, first=10 * number, step=1) for number in range(6)]
    >>> [split.number for split in in_turn(pieces, workers=2)]
    [0, 3, 1, 4, 2, 5]
    """
    if not splits or splits[0].step != 1:
        return tuple(splits)
    each = -(-len(splits) // workers)
    return tuple(split for number in range(each) for split in splits[number::each])


def splits_of(splits: Sequence[Split], worker: int, workers: int) -> Sequence[Split]:
    """The splits, of all in the order of ``in_turn``, of one worker; none for those beyond ``workers``.

    >>> [split.number for split in splits_of([Split(number) for number in range(7)], worker=1, workers=3)]
    [1, 4]
    """
    return splits[worker::workers] if worker < workers else ()


def restored_positions(
    splits: Sequence[Split],
    index: int,
    workers: int,
    known: Mapping[int, Position | None],
    ended: Iterable[int],
    then: int,
) -> dict[int, Position | None]:
    """The positions from which a worker continues to read its splits; another worker may have read them before.

    >>> splits = [Split(number) for number in range(6)]
    >>> restored_positions(splits, 0, workers=3, known={0: Position(7), 1: Position(4)}, ended=[1], then=2)
    {0: Position(row=7, at=None), 3: None}

    Args:
        splits: all splits of the source, in the order of ``in_turn``.
        index: index of the worker.
        workers: current number of workers of the source.
        known: split number to its position in the checkpoint; splits that were not begun are missing, and begin at
            their ``Split.start``.
        ended: indices of the workers that had ended before the checkpoint, whose splits are read.
        then: number of workers of the source that had splits in the checkpoint: the first ones.
    """
    begun = {split.number: split.start for split in splits if split.start != Position()}
    read = {split.number: None for gone in ended for split in splits_of(splits, gone, then)}
    positions = {**begun, **known, **read}
    mine = splits_of(splits, index, workers)
    return {split.number: positions[split.number] for split in mine if split.number in positions}
