"""A directory that grows and loses files while its readers fail and hand over: each row is read once."""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from file_setting import write_rows
from soak import SOAK
from source_contract import kept, reader_on, shipped

from fries_nb.connectors.files import FilesSource
from fries_nb.connectors.source import Position, in_turn
from fries_nb.connectors.worker_reader import SourcePlan, WorkerReader, planned
from fries_nb.dataflow.columns import TRANSACTION

SEEDS = 10 * SOAK
STEPS = 120
MOST_WORKERS = 3
BEGUN_NS = 1_700_000_000_000_000_000


class Played:
    """A directory and the readers of one host, under events that are drawn.

    Attributes:
        expected: value to how often it has to be read.
        done: what happened, and how often.
    """

    def __init__(self, path: Path, seed: int) -> None:
        self.path, self.chance = path, random.Random(seed)
        self.format = self.chance.choice(["json", "json", "csv", "parquet"])
        self.now_ns = BEGUN_NS
        self.expected: Counter[int] = Counter()
        self.done: Counter[str] = Counter()
        self.rows_of: dict[str, list[int]] = {}
        self.growing: dict[str, list[int]] = {}
        self.touched, self.renamed = set[str](), set[str]()
        self.names = self.grown_ns = 0
        order = self.chance.choice(["name", "time"])
        self.plan = planned(FilesSource("S", str(path), self.format, order=order, until="_END"), 1, None)
        self.read: list[tuple[int, int]] = []
        self.saved: tuple[int, dict[int, Position | None]] = (0, {})
        self.positions: dict[int, Position | None] = {}
        self.identities: dict[int, int] = {}
        self.readers: list[WorkerReader] = []
        self.open()

    def open(self) -> None:
        """Hosts start again: they know what their checkpoint knows."""
        workers = self.chance.randint(1, MOST_WORKERS)
        source, splits = shipped(self.plan.source, self.plan.splits)
        plan = SourcePlan(source, in_turn(splits, 1), None)
        self.readers = [reader_on(plan, index, workers, self.positions) for index in range(workers)]

    # ---- the directory

    def name(self) -> str:
        """A new one, before or after others."""
        self.names += 1
        return f"{self.chance.choice('abc')}{self.chance.choice(['', '/deep'])}/{self.names}.{self.format}"

    def values(self) -> list[int]:
        """New rows."""
        return list(range(1_000 * self.names, 1_000 * self.names + self.chance.randint(1, 7)))

    def add(self) -> None:
        """A file comes whole, late or not."""
        name, values = self.name(), self.values()
        modified_s = self.now_ns / 1e9 - self.chance.choice([0, 0.5, 5, 50_000])
        write_rows(self.path / name, [{"value": value} for value in values], modified_s)
        self.rows_of[name] = values
        self.expected.update(values)

    def grow(self) -> None:
        """A file comes bit by bit, each within a second."""
        self.grown_ns = self.now_ns
        if not self.growing or self.chance.random() < 0.3:
            name, values = self.name(), self.values()
            self.growing[name] = values
            write_rows(self.path / f"_whole-{self.names}.{self.format}", [{"value": value} for value in values])
        for name in list(self.growing):
            whole = (self.path / f"_whole-{name.rpartition('/')[2]}").read_bytes()
            place = self.path / name
            place.parent.mkdir(parents=True, exist_ok=True)
            there = place.stat().st_size if place.exists() else 0
            last = min(len(whole), there + self.chance.randint(1, max(1, len(whole) // 2)))
            with place.open("ab") as file:
                file.write(whole[there:last])
            os.utime(place, ns=(self.now_ns, self.now_ns))
            if last == len(whole):
                values = self.growing.pop(name)
                self.rows_of[name] = values
                self.expected.update(values)

    def rename(self) -> None:
        """A file gets another name, whether it was read or not. What is touched as well would be a new file."""
        if names := sorted(self.rows_of.keys() - self.touched):
            name, new = self.chance.choice(names), self.name()
            (self.path / new).parent.mkdir(parents=True, exist_ok=True)
            (self.path / name).rename(self.path / new)
            self.rows_of[new] = self.rows_of.pop(name)
            self.renamed.add(new)

    def touch(self) -> None:
        """A file that no checkpoint has to find again looks newer, and stays the same."""
        if names := [name for name in self.durable() if name not in self.renamed]:
            name = self.chance.choice(names)
            os.utime(self.path / name, ns=(self.now_ns, self.now_ns))
            self.touched.add(name)

    def copy(self) -> None:
        """A file is copied: its rows are there twice."""
        if self.rows_of and self.format == "json":
            name, new = self.chance.choice(sorted(self.rows_of)), self.name()
            values = self.rows_of[name]
            write_rows(self.path / new, [{"value": value} for value in values], self.now_ns / 1e9)
            self.rows_of[new] = values
            self.expected.update(values)

    def durable(self) -> list[str]:
        """The files all of whose rows are in the checkpoint."""
        counted = Counter(value for value, _ in self.read[: self.saved[0]])
        return [
            name for name, values in sorted(self.rows_of.items())
            if all(counted[value] == self.expected[value] for value in values)
        ]  # fmt: skip

    def vanish(self) -> None:
        """A file goes once it is not needed any more."""
        if names := self.durable():
            name = self.chance.choice(names)
            (self.path / name).unlink()
            del self.rows_of[name]

    # ---- the readers

    def take(self, reader: WorkerReader | None = None) -> None:
        """Some worker reads."""
        reader = reader or self.chance.choice(self.readers)
        batch, _ = reader.read(self.now_ns, self.chance.randint(1, 4))
        self.positions.update(reader.moved)
        if batch is not None:
            self.read += zip(batch["value"].to_pylist(), batch[TRANSACTION].to_pylist(), strict=True)

    def save(self) -> None:
        """A checkpoint."""
        packed = {split: position and kept(position) for split, position in self.positions.items()}
        self.saved = (len(self.read), packed)

    def crash(self) -> None:
        """All that is behind the checkpoint is lost."""
        count, positions = self.saved
        del self.read[count:]
        self.positions = dict(positions)
        self.open()

    def hand_over(self) -> None:
        """A split goes to another worker."""
        if len(self.readers) > 1:
            giver, taker = self.chance.sample(self.readers, 2)
            mine = [one.split.number for one in giver._open]
            if mine:
                split = self.chance.choice(mine)
                giver.give_up([split], self.now_ns)
                taker.adopt({split: self.positions.get(split, Position())}, self.now_ns)

    def play(self) -> None:
        """Draw events, then let everything come to its end."""
        events: Mapping[str, int] = {
            "add": 8, "grow": 6, "rename": 3, "touch": 2, "copy": 1, "vanish": 3, "take": 40, "save": 5, "crash": 2,
            "hand_over": 4,
        }  # fmt: skip
        for _ in range(STEPS):
            event = self.chance.choices(list(events), list(events.values()))[0]
            self.done[event] += 1
            getattr(self, event)()
            self.now_ns += self.chance.choice([0, 10_000_000, 150_000_000, 300_000_000])
            if self.growing and self.now_ns - self.grown_ns >= 600_000_000:
                self.grow()
        while self.growing:
            self.grow()
        (self.path / "_END").touch()
        for _ in range(10_000):
            if all(reader.exhausted for reader in self.readers):
                return
            self.now_ns += 50_000_000
            for reader in self.readers:
                self.take(reader)
        raise AssertionError("a directory does not come to its end")


def test_each_row_is_read_once_whatever_happens_to_the_directory_and_its_readers(tmp_path: Path) -> None:
    """Late, growing, renamed, copied and vanished files; crashes, and splits that go from worker to worker."""
    happened: Counter[str] = Counter()
    rows = 0
    for seed in range(SEEDS):
        (tmp_path / str(seed)).mkdir()
        one = Played(tmp_path / str(seed), seed)
        one.play()
        read = Counter(value for value, _ in one.read)
        assert read == one.expected, f"seed {seed}: {read - one.expected} too often, {one.expected - read} missing"
        assert len({identity for _, identity in one.read}) == len(one.read), f"seed {seed}: identities are unique"
        happened += one.done
        rows += len(one.read)
    assert min(happened[event] for event in ("add", "grow", "rename", "vanish", "crash", "hand_over")) >= SEEDS
    assert rows > 20 * SEEDS
