"""The input of the seeded cluster's sources: lists of rows, read by the readers of a run on Spark in small batches."""

from __future__ import annotations

import itertools
import random
from abc import abstractmethod
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import pyarrow as pa

from fries_nb.connectors.source import (
    Position,
    RuntimeReader,
    RuntimeSource,
    Split,
    TimeColumn,
    Undecoded,
    as_ticks,
    restored_positions,
    split_count,
    splits_of,
)  # fmt: skip
from fries_nb.connectors.worker_reader import Positions, SourcePlan, WorkerReader, open_reader, planned
from fries_nb.dataflow.graph import Graph
from fries_nb.operators.instance import Instance
from fries_nb.protocol.messages import AdoptSplits, Drain, SetRate, SplitsRead, WorkerId
from fries_nb.protocol.trace import identity_of
from fries_nb.worker.events import GiveUpSplits, Supplied
from fries_nb.worker.snapshot import Redistribution


class CountedSource(RuntimeSource):
    """A source of which it is known how many rows it has, as seeded runs read some beside lists."""

    @abstractmethod
    def __len__(self) -> int:
        """The number of its rows."""


Rows = Sequence[Mapping[str, Any]] | CountedSource

FROM_THE_START: Mapping[WorkerId, Positions | None] = {}

MOST_ROWS = 5
"""Maximum number of rows of a batch."""
PAUSES_NS = (0, 0, 50_000, 2_000_000)
"""Possible time until a reader's next tuples are due, in nanoseconds."""


def transaction_of_row(source: int, workers: int, number: int) -> int:
    """The identity of a row of a list.

    >>> from fries_nb.protocol.trace import place_of
    >>> place_of(transaction_of_row(0, workers=2, number=33))
    (0, 1, 1)

    Args:
        source: number of the source in the graph.
        workers: number of workers that the source started with.
        number: number of the row in the list.
    """
    row, split = divmod(number, split_count(workers))
    return identity_of(source, split, row)


class ListSource(RuntimeSource):
    """Rows in memory; split s of n has the rows s, s + n, ..."""

    def __init__(self, rows: Sequence[Mapping[str, Any]]) -> None:
        # the rows; the first one has all columns
        self._rows = pa.RecordBatch.from_pylist([dict(row) for row in rows])

    def splits(self, count: int) -> list[Split]:
        """Divide the rows among splits, round robin; see ``Source``."""
        return [Split(number, None, number, count) for number in range(count)]

    def splits_in_blocks(self, count: int, column: TimeColumn) -> list[Split]:
        """Deal the rows to the splits in turn, one by one; see ``RuntimeSource``."""
        if self._rows.num_rows:  # without rows there are no columns
            column.type_in(self._rows.schema)
        return self.splits(count)

    def foresee(self, splits: Sequence[tuple[Split, int]], column: TimeColumn) -> ListForesight:
        """The times of the rows not read yet; see ``RuntimeSource``."""
        times = column.times(self._rows, lambda index: f"row {index}") if splits else None
        return ListForesight(times, [split for split, _ in splits])

    def open(self, split: Split, position: Position) -> ListReader:
        """Open a reader of one split; see ``Source``."""
        mine = [self._rows.slice(row, 1) for row in range(split.first, self._rows.num_rows, split.step)]
        return ListReader(pa.concat_batches(mine) if mine else self._rows.slice(0, 0), position)


class ListForesight:
    """The times of the rows not read yet; see ``Foresight``."""

    def __init__(self, times: pa.Array | None, splits: Sequence[Split]) -> None:
        self.type: pa.DataType | None = None if times is None else times.type  # type of the times, if there are any
        # ``splits``: the splits of the worker that have rows left
        # times of all rows
        self._times = {split.number: as_ticks(times)[split.first :: split.step] for split in splits}

    def least(self, split: int, row: int) -> int:
        """The least time of the rows of a split from ``row`` on."""
        return int(self._times[split][row:].min())


class ListReader(RuntimeReader):
    """Reads rows in memory."""

    def __init__(self, rows: pa.RecordBatch, position: Position) -> None:
        self._rows = rows  # the rows of the split
        # position of the first row to read
        # position of the next row; see ``SplitReader``
        self.position = position if position.row < rows.num_rows else None

    def read(self, limit: int, now_ns: int) -> pa.RecordBatch:
        """The next rows; see ``SplitReader``."""
        assert self.position is not None, "a split is not read at its end"
        batch = self._rows.slice(self.position.row, limit)
        last = self.position.row + batch.num_rows
        self.position = Position(last) if last < self._rows.num_rows else None
        return batch


def plans_of(graph: Graph, inputs: Mapping[str, Rows], workers: Mapping[str, int]) -> dict[str, SourcePlan]:
    """Divide each source into splits.

    Args:
        graph: the dataflow.
        inputs: source to its rows.
        workers: source to its number of workers at the beginning of the run, in the order of the graph.
    """
    return {
        name: replace(
            planned(source_of(inputs[name]), count, None, graph.operator(name).time, name),
            cohort=graph.operator(name).cohort,
        )
        for name, count in workers.items()
        if name in graph  # others were removed since
    }


def source_of(rows: Rows) -> RuntimeSource:
    """The source of these rows."""
    return rows if isinstance(rows, RuntimeSource) else ListSource(rows)


class Supply:
    """The batches of each source worker.

    A source worker that is *held* keeps its last batch, and so does not end, until it is released.
    """

    END: ClassVar[Supplied] = Supplied(None)

    def __init__(
        self,
        graph: Graph,
        inputs: Mapping[str, Rows],
        chance: random.Random,
        due_ns: int,
        positions: Mapping[WorkerId, Positions | None] = FROM_THE_START,
        plans: Mapping[str, SourcePlan] | None = None,
        identities: bool = True,
    ) -> None:
        # ``graph``: the dataflow
        begun = {name: graph.operator(name).workers for name in graph.sources}
        # ``inputs``: the rows of each source
        self.total = sum(len(rows) for rows in inputs.values())  # total number of rows
        self.held: set[WorkerId] = set()  # the source workers that are held
        # source worker to its ``WorkerReader.bounds`` after the rows that were read
        self.bounds: dict[WorkerId, Mapping[int, int]] = {}
        self.ahead_ticks: dict[WorkerId, int | None] = {}  # source worker to its ``WorkerReader.ahead_ticks``
        # ``chance``: draws the sizes of batches; ``due_ns``: due time of all rows in nanoseconds
        # ``identities``: whether rows carry identities
        self._chance, self._due_ns, self._identities = chance, due_ns, identities
        # source to its splits as of the beginning of the run; by default the sources are divided now
        self._plans = dict(plans or plans_of(graph, inputs, begun))
        # ``positions``: source worker to the positions of its splits; ``None`` for a worker that has ended
        self._spent = {worker for worker, reached in positions.items() if reached is None}
        self._reached: dict[WorkerId, dict[int, Position | None]] = {}
        self._batches: dict[WorkerId, deque[Supplied] | None] = {}
        self._drained, self._told = set[WorkerId](), set[WorkerId]()
        for name, plan in self._plans.items():
            for index in range(begun[name]):
                source = WorkerId(name, index)
                reached = positions.get(source, {})
                self._reached[source] = {
                    split.number: None if reached is None else reached.get(split.number, Position())
                    for split in splits_of(plan.splits, index, begun[name])
                }
                self._cut(source)
        # number of rows read so far, over all sources
        self.read = self.total - sum(map(_rows_of, self._batches.values()))

    def join(self, source: WorkerId) -> None:
        """Note a worker that was added, if it is a source's: without splits, held if another one of its source is."""
        if source.operator not in self._plans:
            return
        self._reached[source] = {}
        self._told.discard(source)
        self._drained.discard(source)
        if any(held.operator == source.operator for held in self.held):
            self.held.add(source)
        self._cut(source)

    def add(self, instance: Instance, plan: SourcePlan, parked: Redistribution) -> None:
        """Note a worker of a source that was added, or that returns and reads on."""
        source = instance.worker
        plan = self._plans.setdefault(source.operator, plan)
        known = positions_of(instance, plan, parked)
        mine = splits_of(plan.splits, source.index, instance.operator.workers)
        self._reached[source] = {split.number: known.get(split.number, Position()) for split in mine}
        self._cut(source)

    def _cut(self, source: WorkerId) -> None:
        """Cut the rest of a worker's splits into batches."""
        name, reached = source.operator, self._reached[source]
        plan, number = self._plans[name], list(self._plans).index(name)
        mine = tuple(split for split in plan.splits if split.number in reached)
        reader = open_reader(replace(plan, splits=mine), WorkerId(name, 0), 1, number, self._identities, reached)
        self.bounds[source], self.ahead_ticks[source] = reader.bounds, reader.ahead_ticks
        self._batches[source] = _cut(reader, self._chance, self._due_ns)

    @property
    def dry(self) -> bool:
        """Whether all source workers have read to their end, or to their last batch if they are held."""
        return not any(self._may_read(source) for source in self._batches)

    def _may_read(self, source: WorkerId) -> bool:
        batches = self._batches[source]
        return batches is not None and len(batches) > self._is_held(source)

    def _is_held(self, source: WorkerId) -> bool:
        return source in self.held and source not in self._spent

    @property
    def sources(self) -> tuple[WorkerId, ...]:
        """All source workers."""
        return tuple(self._batches)

    def has_more(self, source: WorkerId) -> bool:
        """Whether there are rows, or the end, that were not read yet."""
        return self._batches[source] is not None

    def next(self, source: WorkerId) -> Supplied | SplitsRead | None:
        """Read the next batch; then say that all splits are read; after ``drain`` read ``END``, then ``None``."""
        # ``None`` while there is nothing to say, and while the last batch is held.
        batches = self._batches[source]
        if batches is None:
            return None
        if source in self._drained:
            self._batches[source], self.bounds[source] = None, {}
            return self.END
        if self._may_read(source):
            supplied = batches.popleft()
            self.bounds[source] = supplied.bounds
            self.read += _rows_of([supplied])
            self._reached[source].update(supplied.positions)
            return supplied
        if batches or source in self._told or self._is_held(source):
            return None
        self._told.add(source)
        return SplitsRead(source)

    def unread(self, source: WorkerId) -> list[pa.RecordBatch]:
        """The rows that a source worker has not read, in order."""
        return [supplied.batch for supplied in self._batches[source] or () if supplied.batch is not None]

    def obey(self, source: WorkerId, control: SetRate | Drain | GiveUpSplits | AdoptSplits) -> None:
        """Carry out an instruction for a worker's reader: drop the remaining rows, or change its splits."""
        # A worker that is drained ends even if it is held. Rates have no effect.
        if self._batches[source] is None:
            return
        if isinstance(control, Drain):
            self.held.discard(source)
            self._drained.add(source)
            self._batches[source] = deque()
        elif isinstance(control, GiveUpSplits):
            self.give_up(source, control.splits)
        elif isinstance(control, AdoptSplits):
            self.adopt(source, control.positions)

    def give_up(self, source: WorkerId, splits: Iterable[int]) -> None:
        """A worker reads these splits no more."""
        for split in splits:
            del self._reached[source][split]
        self._cut(source)

    def adopt(self, source: WorkerId, positions: Positions) -> None:
        """A worker reads further splits."""
        self._reached[source].update(positions)
        self._told.discard(source)
        self._cut(source)

    def is_exhausted(self, source: WorkerId) -> bool:
        """Whether a worker has read all rows of its splits."""
        return not self._batches[source] and not self._is_held(source)

    def close(self, source: WorkerId) -> None:
        """A worker reads no more, whatever is left, even if it is held."""
        self.held.discard(source)
        self._batches[source], self.bounds[source] = None, {}


class SuppliedReader:
    """The reader of a source's worker whose rows a ``Supply`` has; see ``host.hosted_worker.Reader``."""

    is_limited = False

    def __init__(self, supply: Supply, source: WorkerId, chance: random.Random) -> None:
        self.moved: Positions = {}
        self.least: int | None = None
        # ``chance``: draws the time until the next rows are due
        # ``source``: the worker
        # ``supply``: has the rows
        self._supply, self._source, self._chance = supply, source, chance

    @property
    def bounds(self) -> Mapping[int, int]:
        """Lower bounds of the times of each split's rows."""
        return self._supply.bounds[self._source]

    @property
    def ahead_ticks(self) -> int | None:
        """How far it may read ahead of the sinks."""
        return self._supply.ahead_ticks.get(self._source)

    @property
    def exhausted(self) -> bool:
        """Whether all rows have been read, and the worker is not held."""
        return self._supply.is_exhausted(self._source)

    def read(self, now_ns: int, limit: int) -> tuple[pa.RecordBatch | None, int | None]:
        """The next rows, if the worker is not held before them."""
        supplied = self._supply.next(self._source)
        if not isinstance(supplied, Supplied):
            return None, None
        self.moved, self.least = supplied.positions, supplied.least
        pause_ns = self._chance.choice(PAUSES_NS)
        return supplied.batch, now_ns + pause_ns if pause_ns else None

    def reading(self, now_ns: int) -> None:
        """Nothing is told of it."""

    def take_undecoded(self) -> Sequence[Undecoded]:
        """Every row is one."""
        return ()

    def set_rate(self, rate: float, now_ns: int) -> None:
        """Its pace is drawn."""

    def give_up(self, splits: Iterable[int], now_ns: int) -> None:
        """Read these splits no more."""
        self._supply.give_up(self._source, splits)

    def adopt(self, positions: Positions, now_ns: int) -> None:
        """Read further splits."""
        self._supply.adopt(self._source, positions)

    def close(self) -> None:
        """Read no more."""
        self._supply.close(self._source)


def positions_of(instance: Instance, plan: SourcePlan, redistribution: Redistribution) -> Positions:
    """The positions from which a restored source's worker reads, which are its instance's from then on."""
    source, workers = instance.worker, instance.operator.workers
    ended, then = redistribution.ended(source.operator), redistribution.readers_then(source.operator)
    instance.positions = restored_positions(plan.splits, source.index, workers, instance.positions, ended, then)
    return instance.positions


def _cut(reader: WorkerReader, chance: random.Random, due_ns: int) -> deque[Supplied]:
    """The rows of a reader in small batches, which are slices of larger ones as in a Parquet file."""
    batches: list[pa.RecordBatch] = []
    positions: list[dict[int, Position | None]] = []
    bounds: list[Mapping[int, int]] = []
    while not reader.exhausted:
        batch, again_ns = reader.read(due_ns, chance.randint(1, MOST_ROWS))
        if batch is not None:
            batches.append(batch)
            positions.append({})
            bounds.append({})
        elif again_ns is not None:
            due_ns = again_ns
        if batches:  # a split may come to its end without further rows
            positions[-1] |= reader.moved
            bounds[-1] = reader.bounds
    return deque(map(Supplied, _sliced(batches), positions, bounds))


def _sliced(batches: Sequence[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The batches, those with the same columns as slices of one."""
    for _, alike in itertools.groupby(batches, key=lambda batch: batch.schema):
        some = list(alike)
        whole, starts = pa.concat_batches(some), itertools.accumulate((one.num_rows for one in some), initial=0)
        yield from (whole.slice(start, one.num_rows) for one, start in zip(some, starts, strict=False))


def _rows_of(batches: Sequence[Supplied] | deque[Supplied] | None) -> int:
    return sum(one.batch.num_rows for one in batches or () if one.batch is not None)
