"""Connectors of one's own: a source of rows that arrive from outside, and a sink that is a table of SQLite.

The source has rows that come as over a websocket, and that the peer can repeat.

>>> def numbers(since):
...     yield {"n": since}
...     yield None  # the next one has not arrived yet
...     yield {"n": since + 1}
>>> source = FeedSource(numbers)
>>> reader = source.open(*source.splits(16), fn.Position(row=5))
>>> [(batch.to_pylist() if (batch := reader.read(10, 0)) else batch, reader.position) for _ in range(2)]
[([{'n': 5}], Position(row=6, at=None)), ([{'n': 6}], None)]

The sink outputs each row exactly once.

>>> import tempfile
>>> with tempfile.TemporaryDirectory() as directory:
...     sink = SqliteSink(f"{directory}/out.db", "scored", ("n",))
...     sink.claim("flow", "r1")
...     writer = sink.open("scored[0]-1-1")
...     writer.write(pa.RecordBatch.from_pylist([{"n": 1}]))
...     parts, before = writer.close_part(), sink.rows()
...     sink.commit(1, parts)
...     sink.commit(1, parts)
...     before, sink.rows()
([], [{'n': 1}])
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

import fries_nb as fn

Feed = Callable[[int], Generator[Mapping[str, Any] | None, None, None]]
END: Any = object()


class FeedSource(fn.Source):
    """The rows of a feed, over one connection that can be made again from any row on.

    With the package ``websockets`` a feed is, for instance::

        def trades(since):
            with connect(f"wss://example.org/trades?from={since}") as peer:
                while True:
                    try:
                        yield json.loads(peer.recv(timeout=0))
                    except TimeoutError:
                        yield None

    Args:
        feed: generator of the rows from a number on, which yields ``None`` when no row has arrived yet.
        rate: rows per second; ``None`` for as fast as they arrive.
    """

    def __init__(self, feed: Feed, rate: float | None = None) -> None:
        self.feed = feed
        self.rate = rate

    def splits(self, count: int) -> list[fn.Split]:
        """One connection, so one split; see ``fn.Source``."""
        return [fn.Split(0)]

    def open(self, split: fn.Split, position: fn.Position) -> FeedReader:
        """Connect; the peer repeats the rows from the position on; see ``fn.Source``."""
        return FeedReader(self.feed(position.row), position)


class FeedReader:
    """Reads the rows that have arrived.

    Args:
        rows: the rows from the position on.
        position: position of the first of them.
    """

    def __init__(self, rows: Generator[Mapping[str, Any] | None, None, None], position: fn.Position) -> None:
        self.position: fn.Position | None = position  # position of the next row; ``None`` at the end of the feed
        self._rows = rows
        self._next = position.row

    def read(self, limit: int, now_ns: int) -> pa.RecordBatch | None:
        """Those that have arrived, at most ``limit``."""
        rows: list[Mapping[str, Any]] = []
        row = None
        while len(rows) < limit and (row := next(self._rows, END)) is not END and row is not None:
            rows.append(row)
        self._next += len(rows)
        self.position = None if row is END else fn.Position(self._next)
        return pa.RecordBatch.from_pylist(rows) if rows else None

    def close(self) -> None:
        """Disconnect: the generator is closed, which ends a ``with`` in it."""
        self._rows.close()


PATIENCE_S = 60
"""Seconds that a writer waits for others to finish theirs, since SQLite lets one write at a time."""


@dataclass
class SqliteSink(fn.Sink):
    """A table whose rows belong to parts; a commit numbers its parts in one transaction. Other parts are no output."""

    path: str  # file of the database, which the driver and all hosts reach; made absolute
    table: str  # name of the table; that of its parts has the same name with ``_parts``
    columns: tuple[str, ...]  # its columns; a row has NULL in those that it lacks
    run: str = ""  # id of the run that has claimed the table

    def __post_init__(self) -> None:
        self.path = os.path.abspath(self.path)  # hosts have other working directories

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """A transaction, which is rolled back if the block raises."""
        with closing(sqlite3.connect(self.path, PATIENCE_S)) as database, database:
            yield database

    def claim(self, flow: str, run: str) -> None:
        """Create the tables, unless there are some; see ``fn.Sink``."""
        self.run = run
        key = "run, name, number, PRIMARY KEY (run, name)"
        with self.transaction() as database:
            database.execute(f"CREATE TABLE IF NOT EXISTS {self.table}_parts ({key})")
            database.execute(f"CREATE TABLE IF NOT EXISTS {self.table} (part, {', '.join(self.columns)})")

    def open(self, writer_id: str) -> SqliteWriter:
        """Open a writer; see ``fn.Sink``."""
        return SqliteWriter(self, writer_id)

    def prepare(self, parts: Sequence[str]) -> None:
        """Look for all parts; see ``fn.Sink``."""
        if gone := set(parts) - self.parts().keys():
            raise fn.SinkError(f"the parts {sorted(gone)} have gone")

    def commit(self, number: int, parts: Sequence[str]) -> None:
        """Number the parts, all or none; see ``fn.Sink``."""
        committed = {part for part, one in self.parts().items() if one == number}
        if committed and committed != set(parts):
            raise fn.SinkError(f"{number} is committed in {self.path} with other parts")
        self._change("UPDATE {0}_parts SET number = ? WHERE run = ? AND name = ?", parts, number)

    def recover(self, number: int, parts: Sequence[str]) -> None:
        """Take back later commits, and repeat this one; see ``fn.Sink``."""
        later = [part for part, one in self.parts().items() if one is not None and one > number]
        self._change("DELETE FROM {0}_parts WHERE run = ? AND name = ?", later)
        self.commit(number, parts)

    def discard(self, spared: Collection[str]) -> None:
        """Delete parts that no commit has numbered; see ``fn.Sink``."""
        left = [part for part, number in self.parts().items() if number is None and part not in spared]
        self._change("DELETE FROM {0}_parts WHERE run = ? AND name = ?", left)

    def parts(self) -> dict[str, int | None]:
        """The parts of this run, each with the number of its commit if there was one."""
        with self.transaction() as database:
            return dict(database.execute(f"SELECT name, number FROM {self.table}_parts WHERE run = ?", [self.run]))

    def rows(self) -> list[dict[str, Any]]:
        """The output of all runs."""
        output = f"SELECT rowid FROM {self.table}_parts WHERE number IS NOT NULL"
        with self.transaction() as database:
            found = database.execute(f"SELECT {', '.join(self.columns)} FROM {self.table} WHERE part IN ({output})")
            return [dict(zip(self.columns, values, strict=True)) for values in found]

    def _change(self, statement: str, parts: Collection[str], *values: int) -> None:
        """Change the parts in one transaction; rows of parts that have been deleted go with them."""
        with self.transaction() as database:
            database.executemany(statement.format(self.table), [(*values, self.run, part) for part in parts])
            if statement.startswith("DELETE") and parts:
                database.execute(f"DELETE FROM {self.table} WHERE part NOT IN (SELECT rowid FROM {self.table}_parts)")


class SqliteWriter:
    """Writes the rows of one worker, without a number.

    Args:
        sink: the sink.
        name: its id, with which the names of its parts begin.
    """

    def __init__(self, sink: SqliteSink, name: str) -> None:
        self._sink = sink
        self._name = name
        self._count = 0
        self._rows: list[dict[str, Any]] = []

    def write(self, batch: pa.RecordBatch) -> None:
        """Take rows, which stay in memory up to the next marker."""
        self._rows += batch.to_pylist()

    def close_part(self) -> tuple[str, ...]:
        """Store the rows since the last marker."""
        if not self._rows:
            return ()
        self._count, part = self._count + 1, f"{self._name}-{self._count}"
        values = [tuple(map(row.get, self._sink.columns)) for row in self._rows]
        marks = ", ".join("?" * (1 + len(self._sink.columns)))
        with self._sink.transaction() as database:
            known = (self._sink.run, part)
            added = database.execute(f"INSERT INTO {self._sink.table}_parts VALUES (?, ?, NULL)", known)
            database.executemany(
                f"INSERT INTO {self._sink.table} VALUES ({marks})", [(added.lastrowid, *row) for row in values]
            )
        self._rows = []
        return (part,)
