"""The checks that users get for their own sources and sinks: ours pass, and each broken promise is named."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import fries_nb as fn
from fries_nb.connectors.source import SplitReader
from fries_nb.testing import BrokenPromise, check_sink, check_source
from fries_nb.workloads.connector_examples import SqliteSink

ROWS = [{"n": number, "word": "even" if number % 2 == 0 else None} for number in range(23)]


class Reader:
    """Reads a list; ``spoil`` says which promise it does not keep."""

    def __init__(self, rows: list[dict[str, Any]], position: fn.Position, spoil: str) -> None:
        self.rows, self.spoil = rows, spoil
        row = 0 if spoil == "begins anew" else position.row
        self.position: fn.Position | None = fn.Position(row) if row < len(rows) else None

    def read(self, limit: int, now_ns: int) -> Any:
        """The next rows."""
        assert self.position is not None
        first = self.position.row
        last = first + (limit + 1 if self.spoil == "reads too many" else limit)
        if self.spoil == "skips rows" and first:
            last += 1
        rows = self.rows[first:last][-limit:] if self.spoil == "skips rows" else self.rows[first:last]
        moved = min(last, len(self.rows))
        count = moved - 1 if self.spoil == "counts wrong" and moved > 1 else moved
        self.position = fn.Position(count) if moved < len(self.rows) else None
        if self.spoil == "gives lists":
            return rows
        if self.spoil == "shuffles":
            rows = rows[::-1]
        return pa.RecordBatch.from_pylist(rows)


@dataclass
class Listed(fn.Source):
    """Rows of a list."""

    spoil: str = ""

    def splits(self, count: int) -> Sequence[fn.Split]:
        """Every so many rows."""
        count += self.spoil == "too many splits"
        begin = 1 if self.spoil == "numbers from 1" else 0
        return [fn.Split(begin + number, count) for number in range(count)]

    def open(self, split: fn.Split, position: fn.Position) -> SplitReader:
        """The rows of one."""
        every = 1 if self.spoil == "all rows in each" else split.content
        return Reader(ROWS[split.number :: every], position, self.spoil)


def test_a_source_that_keeps_its_promises_passes() -> None:
    """The rows may be given in any order."""
    check_source(Listed(), ROWS[::-1])


class Endless(Listed):
    """Rows that come while it is read: it has none at present, and never says that it has ended."""

    def open(self, split: fn.Split, position: fn.Position) -> SplitReader:
        """Behind the last row it waits."""
        rows = ROWS[split.number :: split.content]

        class Waiting:
            def __init__(self) -> None:
                self.position = position

            def read(self, limit: int, now_ns: int) -> pa.RecordBatch | None:
                first = self.position.row
                found = rows[first : first + limit]
                self.position = fn.Position(first + len(found))
                return pa.RecordBatch.from_pylist(found) if found else None

        return Waiting()


def test_an_endless_source_is_read_until_it_gives_nothing() -> None:
    """It need not end."""
    check_source(Endless(), ROWS)


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        ("numbers from 1", "splits are numbered from 0; got [1], expected [0]; number them by enumerate()"),
        ("too many splits", "splits(1) gives at most as many; got 2, expected at most 1"),
        ("all rows in each", "with splits(2) each row is in one split; got {"),
        ("reads too many", "read(1, ...) gives 1 to 1 rows; got 2"),
        ("counts wrong", "Position.row counts the rows"),
        ("gives lists", "read() gives a pyarrow.RecordBatch, or None"),
        ("shuffles", "the rows of a split are the same, in the same order, each time it is read"),
        ("skips rows", "Position.row counts the rows"),
        ("begins anew", "a reader opened at a position says that position"),
    ],
)
def test_a_broken_source_is_named_with_its_promise(spoil: str, said: str) -> None:
    """And with what was found."""
    with pytest.raises(BrokenPromise) as broken:
        check_source(Listed(spoil), ROWS)
    assert str(broken.value).startswith("Listed: ")
    assert said in str(broken.value)


def test_rows_that_are_missing_or_too_many_are_shown() -> None:
    """With their numbers."""
    said = r"with splits\(1\) each row is in one split; got \{.*'n', 99.*0, expected 1"
    with pytest.raises(BrokenPromise, match=said):
        check_source(Listed(), [*ROWS, {"n": 99}])


class LinesWriter:
    """Writes hidden files."""

    def __init__(self, sink: Lines, name: str) -> None:
        self.sink, self.name, self.count = sink, name, 0
        self.rows: list[dict[str, Any]] = []

    def write(self, batch: pa.RecordBatch) -> None:
        """Keep rows."""
        self.rows += batch.to_pylist()
        if self.sink.spoil == "output at once":
            self.sink.store("seen", self.rows)

    def close_part(self) -> tuple[str, ...]:
        """A hidden file."""
        if not self.rows and self.sink.spoil != "empty parts":
            return ()
        self.count, part = self.count + 1, f"{self.name}-{self.count}"
        self.sink.store(f".{part}", self.rows[:-1] if self.sink.spoil == "loses the last row" else self.rows)
        if self.sink.spoil != "closes again":
            self.rows = []
        return (part,)


@dataclass
class Lines(fn.Sink):
    """A directory of files with a JSON object a line."""

    path: str
    spoil: str = ""
    run: str = ""

    def __repr__(self) -> str:
        return f"Lines at {id(self)}" if self.spoil == "no repr" else f"Lines({self.path})"

    def store(self, part: str, rows: list[dict[str, Any]]) -> None:
        """Write a file."""
        with open(f"{self.path}/{part}", "a") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)

    def claim(self, flow: str, run: str) -> None:
        """Nothing else."""
        self.run = run

    def open(self, writer_id: str) -> LinesWriter:
        """A writer with a name."""
        if self.spoil == "same names":
            writer_id = writer_id[:6]
        return LinesWriter(self, f"{self.run}-{writer_id}")

    def prepare(self, parts: Sequence[str]) -> None:
        """Look for them."""
        if self.spoil == "output when prepared":
            self.commit(1, parts)
        if self.spoil != "looks for nothing":
            self._look(parts)

    def _look(self, parts: Sequence[str]) -> None:
        if gone := [part for part in parts if not any(map(os.path.exists, self._places(part)))]:
            raise fn.SinkError(f"{gone} have gone")

    def _places(self, part: str) -> tuple[str, str]:
        return f"{self.path}/.{part}", f"{self.path}/{part}"

    def commit(self, number: int, parts: Sequence[str]) -> None:
        """Show the files."""
        for part in parts[:1] if self.spoil == "commits one" else parts:
            hidden, shown = self._places(part)
            if os.path.exists(hidden):
                os.rename(hidden, shown)
            elif self.spoil == "commits again":
                self.store(f"{part}-{number}", [json.loads(line) for line in Path(shown).read_text().splitlines()])

    def discard(self, spared: Collection[str]) -> None:
        """Delete hidden files."""
        for name in os.listdir(self.path):
            hides = name.startswith(f".{self.run}-") or (self.spoil == "takes back" and name.startswith(self.run))
            if hides and (name[1:] not in spared or self.spoil == "spares nothing"):
                os.remove(f"{self.path}/{name}")

    def rows(self) -> list[dict[str, Any]]:
        """What is output."""
        names = (name for name in sorted(os.listdir(self.path)) if name[0] != ".")
        return [json.loads(line) for name in names for line in Path(self.path, name).read_text().splitlines()]


def lines(path: Path, spoil: str) -> Callable[[], Lines]:
    """A sink for a directory."""
    return lambda: Lines(str(path), spoil)


def test_sinks_that_keep_their_promises_pass(tmp_path: Path) -> None:
    """Files, and the table of SQLite."""
    (tmp_path / "lines").mkdir()
    make = lines(tmp_path / "lines", "")
    check_sink(make, make().rows)
    table = SqliteSink(str(tmp_path / "out.db"), "scored", ("n",))
    table.claim("flow", "r0")
    check_sink(lambda: SqliteSink(str(tmp_path / "out.db"), "scored", ("n",)), table.rows)


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        ("no repr", "has the same repr"),
        ("output at once", "nothing is output before its commit; got [1], expected []; write() must not"),
        ("output when prepared", "nothing is output before its commit; got [1], expected []; prepare() must not"),
        ("empty parts", "without rows there is no part"),
        ("closes again", "without rows there is no part"),
        ("loses the last row", "a commit makes the rows of its parts output; got [], expected [1]"),
        ("same names", "no two writers give the same name to a part"),
        ("commits one", "a commit takes the parts of all writers"),
        ("commits again", "a commit that is repeated has no effect"),
        ("looks for nothing", "prepare() raises a SinkError for a part that is not there"),
        ("takes back", "discard() takes nothing back"),
        ("spares nothing", "discard() keeps the parts that are spared"),
    ],
)
def test_a_broken_sink_is_named_with_its_promise(tmp_path: Path, spoil: str, said: str) -> None:
    """And with the likely mistake."""
    make = lines(tmp_path, spoil)
    with pytest.raises(BrokenPromise) as broken:
        check_sink(make, make().rows)
    assert str(broken.value).startswith("Lines: ")
    assert said in str(broken.value)
