"""A source of one's own: rows that arrive from outside, as over a websocket, and that the peer can repeat.

>>> def numbers(since):
...     yield {"n": since}
...     yield None  # the next one has not arrived yet
...     yield {"n": since + 1}
>>> source = FeedSource(numbers)
>>> reader = source.open(*source.splits(16), fn.Position(row=5))
>>> [(batch.to_pylist() if (batch := reader.read(10, 0)) else batch, reader.position) for _ in range(2)]
[([{'n': 5}], Position(row=6, at=None)), ([{'n': 6}], None)]
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
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

    Attributes:
        position: position of the next row; ``None`` at the end of the feed.
    """

    def __init__(self, rows: Generator[Mapping[str, Any] | None, None, None], position: fn.Position) -> None:
        self.position: fn.Position | None = position
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
