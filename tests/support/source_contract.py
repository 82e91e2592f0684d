"""What every source promises, as checks that a test applies to each kind of source (and to broken ones).

A source under check has a column ``value`` with the numbers from 0 up to its number of rows.
"""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

from fries_nb.connectors.source import SPLITS_PER_SOURCE, Position, Source, Split, SplitReader, splits_of
from fries_nb.connectors.worker_reader import Positions, SourcePlan, WorkerReader, open_reader, planned
from fries_nb.dataflow.columns import DUE, TIME, TRANSACTION
from fries_nb.dataflow.windowing import EventTime
from fries_nb.protocol.messages import WorkerId
from fries_nb.protocol.trace import ROW_BITS

NOW = 1_700_000_000_000_000_000
SECOND = 10**9
LATER = 20_000_000
"""Longer than a reader waits before it asks again for rows that were not at hand."""

Check = Callable[[Source, int], None]
Read = list[dict[str, Any]]
Steps = list[tuple[Mapping[int, int], list[tuple[int, int]]]]
"""For each batch the bounds before it, and the split and the time of each of its rows."""


def shipped(source: Source, splits: tuple[Split, ...]) -> tuple[Source, tuple[Split, ...]]:
    """As a host gets them: pickled, and the splits from the checkpoints' place."""
    kept = msgspec.msgpack.decode(msgspec.msgpack.encode(splits), type=tuple[Split, ...])
    return pickle.loads(pickle.dumps(source)), kept


def kept(position: Position) -> Position:
    """The position as a checkpoint gives it back."""
    return msgspec.msgpack.decode(msgspec.msgpack.encode(position), type=Position)


def values_of(reader: SplitReader, limit: int, count: int | None = None) -> list[int]:
    """The values of the next rows of a split, or of all that are left."""
    values: list[int] = []
    for _ in range(1_000):
        if reader.position is None or len(values) == count:
            return values
        before = reader.position.row
        batch = reader.read(limit, NOW)
        if batch is None:
            continue
        assert 1 <= batch.num_rows <= limit, f"{batch.num_rows} rows where at most {limit} were asked for"
        assert reader.position is None or reader.position.row == before + batch.num_rows, "a position counts rows"
        values += batch["value"].to_pylist()
    raise AssertionError("a split does not come to its end")


def check_splits(source: Source, rows: int) -> None:
    """Each row is in one split, and there are at most as many as were asked for, numbered from 0."""
    for count in (1, 2, 7, 16):
        splits = tuple(source.splits(count))
        assert [split.number for split in splits] == list(range(len(splits)))
        assert 1 <= len(splits) <= count
        there, splits = shipped(source, splits)
        found = [values_of(there.open(split, Position()), 1_000) for split in splits]
        assert sorted(value for some in found for value in some) == list(range(rows))
        assert found == [values_of(there.open(split, Position()), 1_000) for split in splits], "other rows each time"


def check_limit(source: Source, rows: int) -> None:
    """However many rows are asked for at a time, they are the same."""
    for split in source.splits(3):
        whole = values_of(source.open(split, Position()), 1_000)
        assert all(values_of(source.open(split, Position()), limit) == whole for limit in (1, 2, 5))


def check_resuming(source: Source, rows: int) -> None:
    """From each position comes exactly the rest; opening at a position says that position; behind the last is the end.
    """
    for split in source.splits(3):
        whole = values_of(source.open(split, Position()), 1_000)
        for row in range(len(whole) + 1):
            reader = source.open(split, Position())
            before = values_of(reader, 1, row)
            if row == len(whole):
                assert values_of(reader, 1) == [], "nothing comes behind the last row but the end"
                continue
            assert reader.position is not None
            position = kept(reader.position)
            assert position.row == row
            again = source.open(split, position)
            assert again.position == position
            assert before + values_of(again, 4) == whole


def check_order(source: Source, rows: int) -> None:
    """Splits that have an order are read in it: one worker reads the rows as if there were no splits."""
    plan = planned(source, 1, None)
    if plan.splits[0].step:
        for limit in (1, 3, 1_000):
            assert [row["value"] for row in read_all(reader_of(plan, 0, 1), limit)] == list(range(rows))


def check_workers(source: Source, rows: int) -> None:
    """Together the workers give each row once, whatever their number, and its identity is always the same."""
    plan = planned(source, 2, None)
    known: dict[int, int] = {}
    for workers in (1, 2, 3, 5):
        for limit in (1, 3, 1_000):
            read = [row for index in range(workers) for row in read_all(reader_of(plan, index, workers), limit)]
            assert sorted(row["value"] for row in read) == list(range(rows))
            identities = {row["value"]: row[TRANSACTION] for row in read}
            assert len(set(identities.values())) == rows, "identities are unique"
            assert known in ({}, identities), "identities do not depend on the number of workers"
            known = identities


def check_handing_over(source: Source, rows: int) -> None:
    """Others, of any number, go on behind what was read: nothing is lost and nothing comes twice."""
    plan = planned(source, 2, None)
    for before, after in [(2, 3), (3, 1), (2, 2)]:
        for steps in (1, 2, 3, 6):
            read: Read = []
            positions: dict[int, Position | None] = {}
            for index in range(before):
                reader = reader_of(plan, index, before)
                for step in range(steps):
                    batch, _ = reader.read(NOW + step * LATER, 2)
                    positions.update(reader.moved)
                    read += batch.select(["value", TRANSACTION]).to_pylist() if batch is not None else []
            for index in range(after):
                read += read_all(reader_of(plan, index, after, positions), 2)
            assert sorted(row["value"] for row in read) == list(range(rows))
            assert len({row[TRANSACTION] for row in read}) == rows


def check_rate(source: Source, rows: int) -> None:
    """Eight rows a second are eight at any number of workers, by their splits; the first of each is due at once."""
    for workers in (1, 2, 4):
        plan = planned(source, workers, 8.0)
        readers = [reader_of(plan, index, workers) for index in range(workers)]
        first = [batch for reader in readers for batch in due(reader, NOW)]
        reading = sum(bool(splits_of(plan.splits, index, workers)) for index in range(workers))
        assert [batch[DUE].to_pylist() for batch in first] == [[NOW]] * reading
        second = [time for reader in readers for batch in due(reader, NOW + SECOND) for time in batch[DUE].to_pylist()]
        rates = [8 * len(splits_of(plan.splits, index, workers)) / len(plan.splits) for index in range(workers)]
        expected = [NOW + math.ceil(SECOND * n / one) for one in rates for n in range(1, int(one) + 1)]
        assert sorted(second) == sorted(expected)


def check_pause(source: Source, rows: int) -> None:
    """A reader with nothing due says when to come back; a pause says nothing, and costs no row."""
    reader = reader_of(planned(source, 1, 1.0), 0, 1)
    assert sum(batch.num_rows for batch in due(reader, NOW)) == 1
    assert reader.read(NOW + LATER, 100) == (None, NOW + SECOND)
    reader.set_rate(0, NOW + LATER)
    assert reader.read(NOW + 100 * SECOND, 100) == (None, None)
    assert not reader.exhausted
    reader.set_rate(float("inf"), NOW + 100 * SECOND)
    assert len(read_all(reader, 2, NOW + 100 * SECOND)) == rows - 1


def check_end(source: Source, rows: int) -> None:
    """An end is an end, whatever is asked then, and whatever the rate becomes; it can be resumed from."""
    plan = planned(source, 1, None)
    reader, positions = reader_of(plan, 0, 1), {}
    while not reader.exhausted:
        reader.read(NOW, 1_000)
        positions.update(reader.moved)
    reader.set_rate(10.0, NOW + SECOND)
    assert reader.read(NOW + 2 * SECOND, 10) == (None, None)
    assert set(positions.values()) == {None}
    assert reader_of(plan, 0, 1, positions).exhausted


def check_times(source: Source, rows: int) -> None:
    """With times, here the values: each row once, with its time, and none is earlier than a bound before it said."""
    plan = planned(source, 2, None, EventTime("value", ahead=3), "S")
    for workers in (1, 2, 3):
        for limit in (1, 3, 1_000):
            followed = [follow(reader_of(plan, index, workers), limit) for index in range(workers)]
            assert sorted(time for steps in followed for _, some in steps for _, time in some) == list(range(rows))
            for steps in followed:
                check_bounds(steps)


def check_bounds(steps: Steps) -> None:
    """The bounds before each step hold for all rows from it on, and do not decrease; ``follow`` saw them end."""
    for number, (bounds, _) in enumerate(steps):
        rest = [row for _, some in steps[number:] for row in some]
        assert all(bounds[split] <= time for split, time in rest), "a row came late"
        assert {split for split, _ in rest} <= set(bounds), "a split with rows has a bound"
        if number:
            before = steps[number - 1][0]
            assert all(before[split] <= bound for split, bound in bounds.items()), "a bound was taken back"


def check_times_resumed(source: Source, rows: int) -> None:
    """Others, of any number, begin with the bounds that were reached."""
    plan = planned(source, 2, None, EventTime("value"), "S")
    for before, after in [(2, 3), (3, 1), (2, 2)]:
        positions: dict[int, Position | None] = {}
        bounds: dict[int, int] = {}
        for index in range(before):
            reader = reader_of(plan, index, before)
            for step in range(4):
                reader.read(NOW + step * LATER, 2)
                positions.update(reader.moved)
            bounds |= reader.bounds
        again = [reader_of(plan, index, after, positions, bounds) for index in range(after)]
        assert {split: bound for reader in again for split, bound in reader.bounds.items()} == bounds


CHECKS: tuple[Check, ...] = (
    check_splits, check_limit, check_resuming, check_order, check_workers, check_handing_over, check_rate, check_pause,
    check_end, check_times, check_times_resumed,
)  # fmt: skip


def reader_of(
    plan: SourcePlan,
    index: int,
    workers: int,
    positions: Positions | None = None,
    bounds: Mapping[int, int] | None = None,
) -> WorkerReader:
    """The reader of one worker of source number 1, as its host opens it."""
    source, splits = shipped(plan.source, plan.splits)
    return reader_on(SourcePlan(source, splits, plan.rate, plan.time), index, workers, positions, bounds)


def reader_on(
    plan: SourcePlan,
    index: int,
    workers: int,
    positions: Positions | None = None,
    bounds: Mapping[int, int] | None = None,
) -> WorkerReader:
    """The reader of one worker of source number 1, from the plan that all workers of a host have."""
    return open_reader(plan, WorkerId("S", index), workers, 1, True, positions or {}, bounds or {})


def follow(reader: WorkerReader, limit: int) -> Steps:
    """All that a reader gives: the bounds before each batch, and the split and the time of each row."""
    steps: Steps = []
    for now in range(NOW, NOW + 10_000 * LATER, LATER):
        if reader.exhausted:
            assert reader.bounds == {}
            return steps
        bounds = reader.bounds
        batch, _ = reader.read(now, limit)
        if batch is not None:
            assert batch[TIME].to_pylist() == batch["value"].to_pylist()
            splits = [(identity >> ROW_BITS) % SPLITS_PER_SOURCE for identity in batch[TRANSACTION].to_pylist()]
            steps.append((bounds, list(zip(splits, batch[TIME].to_pylist(), strict=True))))
            assert reader.ahead_ticks == 3
    raise AssertionError("a source does not come to its end")


def read_all(reader: WorkerReader, limit: int, now: int = NOW) -> Read:
    """All that a reader gives, asked again when it has said so."""
    rows: Read = []
    for _ in range(10_000):
        if reader.exhausted:
            return rows
        batch, again_at = reader.read(now, limit)
        if batch is not None:
            assert 1 <= batch.num_rows <= limit
            assert max(batch[DUE].to_pylist()) <= now
            rows += batch.select(["value", TRANSACTION]).to_pylist()
        assert batch is not None or again_at is not None or reader.exhausted
        assert again_at is None or again_at > now
        now = again_at or now
    raise AssertionError("a source does not come to its end")


def due(reader: WorkerReader, now: int) -> Iterator[Any]:
    """The batches that are due by now, where some may not be at hand at once."""
    for wait in range(20):
        batch, _ = reader.read(now + wait, 100)
        if batch is not None:
            yield batch
