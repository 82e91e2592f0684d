"""Replays with times, read by workers in any order, against a model that has all rows in memory."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import source_contract

from fries_nb.connectors.replay import ReplaySource
from fries_nb.connectors.source import Position, Split
from fries_nb.connectors.worker_reader import SourcePlan, WorkerReader, planned
from fries_nb.dataflow.hidden_columns import TIME, TRANSACTION
from fries_nb.dataflow.windowing import EventTime
from fries_nb.protocol.trace import ROW_BITS

NOW = source_contract.NOW
DAY = 86_400_000_000_000
AT = EventTime("at", ahead=2)

KINDS: dict[str, tuple[pa.DataType, int]] = {
    "int64": (pa.int64(), 1),
    "int8": (pa.int8(), 1),
    "uint32": (pa.uint32(), 1),
    "seconds": (pa.timestamp("s"), 10**9),
    "milliseconds": (pa.timestamp("ms", "Europe/Paris"), 10**6),
    "microseconds": (pa.timestamp("us", "UTC"), 10**3),
    "nanoseconds": (pa.timestamp("ns"), 1),
    "days": (pa.date32(), DAY),
    "days in milliseconds": (pa.date64(), DAY),
    "dictionary": (pa.dictionary(pa.int32(), pa.int64()), 1),
    "INT96": (pa.timestamp("us"), 10**3),
}
"""Kinds of columns, each with the number of ticks that one unit is."""


@dataclass
class TimedRows:
    """Files in a directory, and what they hold: row n of the source has ``value`` n and the time ``times[n]``."""

    path: Path
    kind: str
    times: list[int]

    def plan(self, workers: int) -> SourcePlan:
        """As the driver plans the replay."""
        return planned(ReplaySource(str(self.path)), workers, None, AT, "pay")


def column(kind: str, units: list[int]) -> pa.Array:
    """A column of times of some kind."""
    of, _ = KINDS[kind]
    if kind == "days":
        return pa.array(units, pa.int32()).cast(of)
    if kind == "days in milliseconds":
        return pa.array([unit * 86_400_000 for unit in units], pa.int64()).cast(of)
    if pa.types.is_dictionary(of):
        return pa.array(units, pa.int64()).dictionary_encode()
    return pa.array(units, pa.int64()).cast(of)


def write_rows(path: Path, kind: str, files: list[tuple[list[int], int, bool]]) -> TimedRows:
    """Write files of rows: the times of each, in units of the kind, the size of row groups, whether with statistics."""
    times: list[int] = []
    for number, (units, size, statistics) in enumerate(files):
        values = pa.array(range(len(times), len(times) + len(units)), pa.int64())
        rows = pa.table({"value": values, "at": column(kind, units)})
        pq.write_table(
            rows, path / f"{number}.parquet", row_group_size=size, write_statistics=statistics,
            use_deprecated_int96_timestamps=kind == "INT96",
        )  # fmt: skip
        times += [unit * KINDS[kind][1] for unit in units]
    return TimedRows(path, kind, times)


def drawn(chance: random.Random, path: Path) -> TimedRows:
    """Some files: in order of time, nearly so, or not at all; row groups of all sizes, with statistics or without."""
    kind = chance.choice(list(KINDS))
    files, now = [], 20
    for _ in range(chance.randint(1, 3)):
        jitter = chance.choice([0, 3, 20])
        units = []
        for _ in range(chance.choice([1, 5, 30, 60])):
            now += chance.choice([0, 0, 1])
            units.append(max(0, now + chance.randint(-jitter, jitter)))
        files.append((units, chance.choice([1, 3, 8, 100]), chance.random() < 0.8))
    return write_rows(path, kind, files)


def rows_of(splits: Sequence[Split], total: int) -> dict[int, list[int]]:
    """For each split its rows of the source, by the definition of its order."""
    firsts = [split.first for split in sorted(splits, key=lambda split: split.number)] + [total]
    ends = firsts[1:] if splits[0].step == 1 else [total] * len(splits)
    return {
        split.number: [place for row in range(total) if (place := split.place(row)) < ends[split.number]]
        for split in splits
    }


class Play:
    """Workers read a replay, and are checked after each batch.

    Attributes:
        read: the values of all rows read so far.
    """

    def __init__(self, rows: TimedRows, plan: SourcePlan) -> None:
        self.rows, self.plan = rows, plan
        self.positions: dict[int, Position | None] = {}
        self.read: list[int] = []
        self._rows_of = rows_of(plan.splits, len(rows.times))

    def begin(self, workers: int) -> list[WorkerReader]:
        """Workers that share the splits, at the positions that were reached."""
        source, _ = source_contract.shipped(self.plan.source, self.plan.splits)
        there = SourcePlan(source, self.plan.splits, None, self.plan.time)
        readers = [source_contract.reader_on(there, index, workers, self.positions) for index in range(workers)]
        for reader in readers:
            self.check_bounds(reader)
        bounds = {split: bound for reader in readers for split, bound in reader.bounds.items()}
        assert sum(len(reader.bounds) for reader in readers) == len(bounds), "a split has one worker"
        assert bounds.keys() == {split for split in self._rows_of if self.left(split)}
        return readers

    def left(self, split: int) -> list[int]:
        """The rows of a split that were not read."""
        position = self.positions.get(split, Position())
        return [] if position is None else self._rows_of[split][position.row :]

    def step(self, reader: WorkerReader, limit: int) -> None:
        """Read, and check what comes."""
        before = reader.bounds
        batch, _ = reader.read(NOW, limit)
        assert batch is not None, "a replay has rows until its end"
        self.positions.update(reader.moved)
        values = batch["value"].to_pylist()
        self.read += values
        times = batch[TIME].cast(pa.int64()).to_pylist()
        assert times == [self.rows.times[value] for value in values]
        for value, identity in zip(values, batch[TRANSACTION].to_pylist(), strict=True):
            split, row = divmod(identity, 1 << ROW_BITS)
            assert self._rows_of[split - 1024][row] == value, "a row keeps its identity"
            assert before[split - 1024] <= self.rows.times[value], "no row is late"
        self.check_bounds(reader)
        assert all(before[split] <= bound for split, bound in reader.bounds.items()), "bounds do not decrease"

    def check_bounds(self, reader: WorkerReader) -> None:
        """Each bound is the least time of the rows that are left, and an ended split has none."""
        for split, bound in reader.bounds.items():
            assert bound == min(self.rows.times[value] for value in self.left(split))
        for split, position in reader.moved.items():
            assert (split in reader.bounds) == (position is not None)
        assert reader.exhausted == (not reader.bounds)
        assert reader.next_time == min(reader.bounds.values(), default=None)
        if not reader.exhausted:
            assert reader.ahead_ticks == (2 * 10**9 if is_timestamp(self.rows.kind) else 2)


def is_timestamp(kind: str) -> bool:
    """Whether times of a kind are nanoseconds."""
    return not pa.types.is_integer(KINDS[kind][0]) and kind != "dictionary"


def play(chance: random.Random) -> None:
    """Files, workers and an order in which they read, handing over to others; in the end all rows were read once."""
    with tempfile.TemporaryDirectory() as path:
        rows = drawn(chance, Path(path))
        game = Play(rows, rows.plan(chance.randint(1, 3)))
        for incarnation in range(3):
            readers = game.begin(chance.randint(1, 4))
            for reader in turns(chance, readers, 10**6 if incarnation == 2 else chance.randint(0, 40)):
                game.step(reader, chance.choice([1, 2, 5, 1_000]))
        assert sorted(game.read) == list(range(len(rows.times)))


def turns(chance: random.Random, readers: list[WorkerReader], most: int) -> Iterator[Any]:
    """Readers that have rows, in any order, until all have ended."""
    for _ in range(most):
        waiting = [reader for reader in readers if not reader.exhausted]
        if not waiting:
            return
        yield chance.choice(waiting)
