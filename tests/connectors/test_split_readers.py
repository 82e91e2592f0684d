"""Readers whose splits change hands: rows, identities and rates."""

from __future__ import annotations

import math
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from fries_nb.connectors.rate import RateSource
from fries_nb.connectors.source import Position, RuntimeReader, RuntimeSource, Split
from fries_nb.connectors.worker_reader import WorkerReader, open_reader, planned
from fries_nb.dataflow.columns import COHORT, DUE, TRANSACTION
from fries_nb.errors import SourceError
from fries_nb.protocol.messages import WorkerId
from fries_nb.protocol.partitioning import cohorts, cohorts_of
from fries_nb.simulation.readers import ListSource

NOW = 1_700_000_000_000_000_000
SECOND = 1_000_000_000


def test_a_split_is_read_on_where_another_worker_has_given_it_up() -> None:
    """Each row once, with one identity; and the rate of the source stays what it is, by the splits of each worker."""
    plan = planned(RateSource(count=640), workers=2, rate=3_200.0)
    readers = [open_reader(plan, WorkerId("S", index), 2, 0, identities=True) for index in range(2)]
    newcomer = open_reader(plan, WorkerId("S", 2), 2, 0, identities=True)
    assert newcomer.read(NOW, 100) == (None, None)
    rows: list[dict[str, int]] = []
    reached: dict[int, Position | None] = {split.number: Position() for split in plan.splits}

    def read(reader: WorkerReader, now: int) -> int:
        batch, _ = reader.read(now, 1_000)
        reached.update(reader.moved)
        rows.extend(batch.to_pylist() if batch is not None else [])
        return 0 if batch is None else batch.num_rows

    assert [read(reader, NOW) for reader in readers] == [1, 1]
    assert [read(reader, NOW + SECOND // 100) for reader in readers] == [16, 16]
    given = {0: list(range(0, 16, 2)), 1: list(range(1, 17, 2))}
    for index, reader in enumerate(readers):
        reader.give_up(given[index], NOW + SECOND // 100)
    newcomer.adopt({split: reached[split] for splits in given.values() for split in splits}, NOW + SECOND // 100)
    later = NOW + SECOND // 10
    assert read(newcomer, NOW + SECOND // 100) == 1  # its first row is due at once
    shares = [read(reader, later) for reader in (*readers, newcomer)]
    assert shares == [72, 72, 144]
    newcomer.set_rate(math.inf, later)
    for reader in (*readers, newcomer):
        reader.set_rate(math.inf, later)
        while not reader.exhausted:
            read(reader, later)
    assert sorted(row["value"] for row in rows) == list(range(640))
    assert len({row[TRANSACTION] for row in rows}) == 640
    assert set(reached.values()) == {None}
    newcomer.adopt({0: None}, later)
    assert newcomer.exhausted


class IdleReader(RuntimeReader):
    """Has no row at present, and counts how often it was asked."""

    def __init__(self, position: Position) -> None:
        self.position: Position | None = position
        self.asked = 0

    def read(self, limit: int, now_ns: int) -> None:
        """Nothing."""
        self.asked += 1


class BusySource(RuntimeSource):
    """One split that has rows, and three that have none."""

    def __init__(self) -> None:
        self.idle: list[IdleReader] = []

    def splits(self, count: int) -> list[Split]:
        return [Split(number) for number in range(4)]

    def open(self, split: Split, position: Position) -> Any:
        if split.number == 2:
            return ListSource([{"value": value} for value in range(40)]).open(Split(0, 0, 0, 1), position)
        self.idle.append(IdleReader(position))
        return self.idle[-1]


def test_a_split_with_rows_does_not_wait_for_those_without() -> None:
    """They are asked in turn until one has rows, in one call; and only that one has moved."""
    source = BusySource()
    reader = WorkerReader(source, source.splits(4), math.inf)
    for first in range(0, 36, 4):
        batch, _ = reader.read(NOW, 4)
        assert batch is not None
        assert batch["value"].to_pylist() == [first, first + 1, first + 2, first + 3]
        assert reader.moved == {2: Position(first + 4)}
    assert all(one.asked >= 8 for one in source.idle)


VALUES = {"card": [1, 2, 1, None], "price": [Decimal(1), Decimal("1.5"), None, Decimal(1)], "of": [[1], [2], [1], None]}


def read_in(cohort: str | None, identities: bool = True) -> pa.RecordBatch:
    """The rows with these values, of two splits."""
    rows = [dict(zip(VALUES, row, strict=True)) for row in zip(*VALUES.values(), strict=True)]
    plan = replace(planned(ListSource(rows), 1, None), cohort=cohort)
    batch, _ = open_reader(plan, WorkerId("pay", 0), 1, 3, identities).read(NOW, 100)
    assert batch is not None
    return batch


def test_a_row_has_the_cohort_of_its_value_or_of_its_identity() -> None:
    """A null is a value of its own, as in keys; without identities nothing is computed, or refused."""
    for name in ("card", "price"):
        batch = read_in(name)
        assert cohorts(batch).tolist() == cohorts_of([batch.column(name)]).tolist()
    found = cohorts(read_in("card")).tolist()
    assert found[0] == found[2]
    assert len(set(found)) == 3
    plain, by_identity = read_in(None), read_in("")
    assert COHORT not in plain.schema.names
    assert by_identity.schema.field(COHORT).type == pa.uint16()
    assert cohorts(plain).tolist() == cohorts(by_identity).tolist()
    assert read_in("nowhere", identities=False).schema.names == [*VALUES, "_fries_due"]


@pytest.mark.parametrize(
    ("cohort", "words"),
    [
        ("crad", "source 'pay' has cohort='crad', but no such column; expected one of card, price, of; did"),
        ("of", r"source 'pay' has cohort='of', a column of list<item: int64>; expected numbers, text, bytes, times"),
    ],
)
def test_a_cohort_that_rows_cannot_have_is_refused_with_the_first_of_them(cohort: str, words: str) -> None:
    """By the names of the source and of the column."""
    with pytest.raises(SourceError, match=words):
        read_in(cohort)


class GrowingReader(RuntimeReader):
    """Rows that are given, one at a time."""

    def __init__(self, rows: list[pa.RecordBatch]) -> None:
        self._rows = rows
        self.position: Position | None = Position()

    def read(self, limit: int, now_ns: int) -> pa.RecordBatch:
        """The next rows, of one schema."""
        assert self.position is not None
        row = self.position.row
        batch = self._rows[row]
        self.position = Position(row + 1) if row + 1 < len(self._rows) else None
        return batch


class GrowingSplits(RuntimeSource):
    """Rows that alternate among the splits, each of which gains columns by itself."""

    def __init__(self, *splits: list[Any]) -> None:
        self._splits = [[pa.RecordBatch.from_pylist([row]) for row in rows] for rows in splits]

    def splits(self, count: int) -> list[Split]:
        """As many as were given."""
        return [Split(number, None, number, len(self._splits)) for number in range(len(self._splits))]

    def open(self, split: Split, position: Position) -> GrowingReader:
        """The reader of one."""
        return GrowingReader(self._splits[split.number])


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        ([{"n": 2}, {"tax": 0.5, "n": 4}], [{"n": 1}, {"n": 2}, {"n": 3, "tax": 7}, {"n": 4, "tax": 0.5}]),
        ([{"n": 2}, {"n": 4, "tax": "x"}], r"splits 0, 1 of one source .*: column 'tax' was int64 and is now string"),
        ([{"n": 2.5}, {"n": 2**53 + 0.0}], [{"n": 1}, {"n": 2.5}, {"n": 3, "tax": 7}, {"n": 2**53}]),
    ],
)
def test_alternating_splits_may_learn_columns_apart(other: list[Any], expected: Any) -> None:
    """In the same batch a row lacks what others have, and types widen; what does not go together is refused by name."""
    plan = planned(GrowingSplits([{"n": 1}, {"n": 3, "tax": 7}], other), 1, None)
    reader = open_reader(plan, WorkerId("S", 0), 1, 0, identities=False)
    found: list[dict[str, Any]] = []

    def read() -> None:
        while not reader.exhausted:
            batch, _ = reader.read(NOW, 2)
            found.extend([] if batch is None else batch.drop_columns([DUE]).to_pylist())

    if isinstance(expected, str):
        with pytest.raises(SourceError, match=expected):
            read()
        return
    read()
    assert [{name: value for name, value in row.items() if value is not None} for row in found] == expected
