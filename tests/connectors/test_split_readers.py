"""Readers whose splits change hands: rows, identities and rates."""

from __future__ import annotations

import math
from typing import Any

from fries_nb.connectors.rate import RateSource
from fries_nb.connectors.source import Position, RuntimeReader, RuntimeSource, Split
from fries_nb.connectors.worker_reader import WorkerReader, open_reader, planned
from fries_nb.dataflow.columns import TRANSACTION
from fries_nb.protocol.messages import WorkerId
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
