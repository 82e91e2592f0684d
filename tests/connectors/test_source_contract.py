"""Every source keeps its promises, and a source that breaks one is caught.

A new kind of source is one entry of ``KINDS``. What belongs to one kind alone is in ``test_sources``.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import Any

import cloudpickle
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import source_contract
from file_setting import write_rows
from msgspec.structs import replace
from source_contract import CHECKS, Check

from fries_nb.connectors.files import FilesSource
from fries_nb.connectors.own_connectors import OwnSourceCopy
from fries_nb.connectors.rate import RateSource
from fries_nb.connectors.replay import ReplaySource
from fries_nb.connectors.source import Position, RuntimeReader, RuntimeSource, Source, Split, TimeColumn, splits_of
from fries_nb.connectors.worker_reader import planned
from fries_nb.errors import SourceError
from fries_nb.simulation.readers import ListSource
from fries_nb.workloads.connector_examples import FeedSource

ROWS = 83


def square(value: int) -> dict[str, int]:
    """A further column."""
    return {"square": value * value}


class PolledReader(RuntimeReader):
    """Every second time it is asked there are no rows at hand; where it goes on is known by a name."""

    def __init__(self, last: int, position: Position, step: int) -> None:
        self._next = int(position.at.removeprefix("value ")) if position.at else position.row * step
        self._row, self._last, self._step, self._asked = position.row, last, step, 0

    @property
    def position(self) -> Position | None:
        """Where the next row is found."""
        return Position(self._row, f"value {self._next}") if self._next < self._last else None

    def read(self, limit: int, now_ns: int) -> pa.RecordBatch | None:
        """Two rows at a time."""
        self._asked += 1
        if self._asked % 2 == 0:
            return None
        values = list(range(self._next, self._last, self._step))[: min(limit, 2)]
        self._next, self._row = self._next + len(values) * self._step, self._row + len(values)
        return pa.record_batch({"value": values})


class PolledSource(RuntimeSource):
    """As a live source is: splits without an order, rows that are not at hand yet, positions of its own."""

    def splits(self, count: int) -> list[Split]:
        """The last one is not used."""
        return [Split(number, [number, max(1, count - 1)]) for number in range(max(1, count - 1))]

    def open(self, split: Split, position: Position) -> Any:
        """Begin at the split's number, or at the name."""
        number, step = split.content
        return PolledReader(ROWS, position if position.at else Position(0, f"value {number}"), step)


def replayed(path: Path) -> Source:
    """Two files with several row groups."""
    for name, rows in (("a", range(50)), ("b", range(50, ROWS))):
        pq.write_table(pa.table({"value": rows}), path / f"{name}.parquet", row_group_size=7)
    return ReplaySource(str(path))


def in_files(path: Path, format: str) -> Source:
    """Many files in two directories, and the file that says that no other comes."""
    for first in range(0, ROWS, 5):
        rows = [{"value": value} for value in range(first, min(first + 5, ROWS))]
        write_rows(path / f"{first // 40}" / f"{first:03}.{format}", rows)
    (path / "_SUCCESS").touch()
    return FilesSource("S", str(path), format, until="_SUCCESS", most_splits=3)


def in_latin1(path: Path) -> Source:
    """CSV in another encoding."""
    for first in range(0, ROWS, 5):
        lines = [f"{value},Köln\n" for value in range(first, min(first + 5, ROWS))]
        (path / f"{first:03}.csv").write_bytes("".join(["value,town\n", *lines]).encode("latin-1"))
    (path / "_SUCCESS").touch()
    return FilesSource("S", str(path), "csv", until="_SUCCESS", quiet_s=0, most_splits=3, encoding="latin-1")


def with_bad_lines(path: Path, format: str, bad_rows: str) -> Source:
    """Lines that are no rows at both ends of files, and between."""
    for first in range(0, ROWS, 10):
        values = range(first, min(first + 10, ROWS))
        rows = [f"{value},x" if format == "csv" else f'{{"value": {value}}}' for value in values]
        bad = ["1,2,3", "4"] if format == "csv" else ['{"value": ', "[1]"]
        head = ["value,s"] if format == "csv" else []
        (path / f"{first}.{format}").write_text("\n".join([*head, *bad, *rows[:4], *bad, *rows[4:], *bad[:1]]))
    (path / "_SUCCESS").touch()
    return FilesSource("S", str(path), format, until="_SUCCESS", quiet_s=0, most_splits=3, bad_rows=bad_rows)


def numbers(since: int) -> Generator[dict[str, int] | None]:
    """Values from a number on; every third time none has arrived."""
    for value in range(since, ROWS):
        if value % 2:
            yield None
        yield {"value": value}


def own(source: Source) -> Source:
    """A source of the user's, as it reaches the hosts."""
    return OwnSourceCopy("S", cloudpickle.dumps(source))


KINDS: dict[str, Callable[[Path], Source]] = {
    "rate": lambda path: RateSource(ROWS),
    "rate with columns": lambda path: RateSource(ROWS, square),
    "replay": replayed,
    "list": lambda path: ListSource([{"value": value} for value in range(ROWS)]),
    "polled": lambda path: PolledSource(),
    "files of Parquet": lambda path: in_files(path, "parquet"),
    "files of CSV": lambda path: in_files(path, "csv"),
    "files of JSON": lambda path: in_files(path, "json"),
    "files in Latin-1": in_latin1,
    "files of CSV with bad lines": lambda path: with_bad_lines(path, "csv", "letters"),
    "files of JSON with bad lines": lambda path: with_bad_lines(path, "json", "skip"),
    "own feed": lambda path: own(FeedSource(numbers)),
    "own polled": lambda path: own(PolledSource()),
}


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("kind", KINDS)
def test_a_source_keeps_its_promises(kind: str, check: Check, tmp_path: Path) -> None:
    """Each kind, each promise."""
    check(KINDS[kind](tmp_path), ROWS)


FORESEEN = ("times too late", "bounds taken back", "bounds of its own")
READING = ("a position too far", "a position behind", "from the start again", "over the limit", "no end")


class Broken(ListSource):
    """A list that is cut or read badly."""

    def __init__(self, spoil: str) -> None:
        super().__init__([{"value": value} for value in range(ROWS)])
        self.spoil = spoil

    def splits(self, count: int) -> list[Split]:
        """The content is where the split really begins."""
        splits = [replace(split, content=split.first) for split in super().splits(count)]
        if self.spoil == "a row in two splits":
            splits[-1] = replace(splits[-1], content=max(0, count - 2))
        elif self.spoil == "more splits than asked for":
            splits.append(Split(count, 10**6, count, count))
        elif self.spoil == "another order":
            return [replace(split, first=count - 1 - split.first) for split in splits]
        return splits

    def foresee(self, splits: Sequence[tuple[Split, int]], column: TimeColumn) -> Any:
        """Times that are too late, or those of the beginning."""
        known = super().foresee(splits, column)
        return BrokenForesight(known, self.spoil) if self.spoil in FORESEEN else known

    def open(self, split: Split, position: Position) -> Any:
        """The split that it really is."""
        lost = self.spoil == "lost on the way" and position.row > 0
        reader = super().open(replace(split, first=split.content), Position(position.row + lost))
        return BrokenReader(reader, self.spoil, position) if self.spoil in READING else reader


class BrokenForesight:
    """Knows other times than those of the rows that were not read."""

    def __init__(self, known: Any, spoil: str) -> None:
        self._known, self._spoil, self._calls = known, spoil, 0
        self.type = known.type

    def least(self, split: int, row: int) -> int:
        """Too late, earlier and earlier, or one that depends on how often it was asked."""
        self._calls += 1
        least: int = self._known.least(split, row)
        return {"times too late": least + 1, "bounds taken back": -least}.get(self._spoil, least - self._calls)


class BrokenReader(RuntimeReader):
    """Reads otherwise than it says."""

    def __init__(self, reader: Any, spoil: str, position: Position) -> None:
        self._reader, self._spoil, self._begun = reader, spoil, position.row

    @property
    def position(self) -> Position | None:
        """Off by one, or never the end."""
        position = self._reader.position
        if position is None:
            return Position(10**6) if self._spoil == "no end" else None
        if position.row > self._begun and self._spoil in ("a position too far", "a position behind"):
            return Position(position.row + (1 if self._spoil == "a position too far" else -1))
        return position

    def read(self, limit: int, now_ns: int) -> pa.RecordBatch | None:
        """More than was asked for, or other rows."""
        if self._reader.position is None:
            return None
        batch = self._reader.read(limit + (self._spoil == "over the limit"), now_ns)
        if self._spoil == "from the start again" and self._begun:
            return pa.record_batch({"value": [0] * batch.num_rows})
        return batch


@pytest.mark.parametrize(
    ("spoil", "check"),
    [
        ("a row in two splits", source_contract.check_splits),
        ("a row in two splits", source_contract.check_workers),
        ("more splits than asked for", source_contract.check_splits),
        ("another order", source_contract.check_order),
        ("a position too far", source_contract.check_resuming),
        ("a position behind", source_contract.check_resuming),
        ("from the start again", source_contract.check_resuming),
        ("from the start again", source_contract.check_handing_over),
        ("over the limit", source_contract.check_limit),
        ("lost on the way", source_contract.check_handing_over),
        ("no end", source_contract.check_end),
        ("times too late", source_contract.check_times),
        ("bounds taken back", source_contract.check_times),
        ("a row in two splits", source_contract.check_times),
        ("bounds of its own", source_contract.check_times_resumed),
    ],
)
def test_a_broken_source_is_caught(spoil: str, check: Check) -> None:
    """By its check, or refused by the runtime."""
    with pytest.raises((AssertionError, SourceError)):
        check(Broken(spoil), ROWS)


def test_a_source_that_gives_more_splits_than_identities_are_for_is_refused() -> None:
    """In a sentence."""
    with pytest.raises(SourceError, match=r"gave 17 splits \(0, 1, 2, 3, 4, ...\); expected at most 16, from 0 up"):
        planned(Broken("more splits than asked for"), 1, None)


def test_a_reader_that_gives_more_than_it_was_asked_for_is_refused() -> None:
    """Its rows would have no times."""
    reader = source_contract.reader_of(planned(Broken("over the limit"), 1, None), 0, 1)
    with pytest.raises(SourceError, match=r"split 0 was asked for at most 1 rows from row 0 on and gave 2, with "):
        reader.read(source_contract.NOW, 1)


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_workers_begin_with_consecutive_pieces_and_later_ones_share_the_rest_equally(
    workers: int, tmp_path: Path
) -> None:
    """What neighbouring pieces share, a row group, is decoded once; whatever is read, no later worker gets more."""
    plan = planned(replayed(tmp_path), workers, None)
    for worker in range(workers):
        mine = [split.number for split in splits_of(plan.splits, worker, workers)]
        assert mine == list(range(16 * worker, 16 * (worker + 1)))
    for read in range(16):
        done = {split.number for worker in range(workers) for split in splits_of(plan.splits, worker, workers)[:read]}
        for later in range(1, 6):
            left = [
                sum(split.number not in done for split in splits_of(plan.splits, worker, later))
                for worker in range(later)
            ]
            assert max(left) - min(left) <= 1
