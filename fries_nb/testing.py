"""Checks for the tests of your own sources and sinks: each promise of ``fn.Source`` and ``fn.Sink`` in turn.

>>> from fries_nb.connectors.source import Position, Split
>>> class Reader:
...     def __init__(self, rows, position):
...         self.rows, self.position = rows, position if position.row < len(rows) else None
...
...     def read(self, limit, now_ns):
...         first = self.position.row
...         rows = self.rows[first : first + limit]
...         self.position = Position(first + len(rows)) if first + len(rows) < len(self.rows) else None
...         return pa.RecordBatch.from_pylist(rows)
>>> class Listed:
...     rows = [{"n": number} for number in range(9)]
...
...     def splits(self, count):
...         return [Split(number, count) for number in range(count)]
...
...     def open(self, split, position):
...         return Reader(self.rows[split.number :: split.content], position)
>>> check_source(Listed(), Listed.rows)
>>> Listed.open = lambda self, split, position: Reader(self.rows[split.number :: split.content], Position())
>>> check_source(Listed(), Listed.rows)
Traceback (most recent call last):
    ...
fries_nb.testing.BrokenPromise: Listed: a reader opened at a position says that position; got Position(row=0, at=None),
expected Position(row=1, at=None); does open() use its position?

A check raises an ``AssertionError`` of one sentence, which test runners show as the failure of the test.
"""

from __future__ import annotations

import itertools
import pickle
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import cloudpickle
import msgspec
import pyarrow as pa

from fries_nb.connectors.sink import RowWriter, Sink
from fries_nb.connectors.source import Position, Source, Split, SplitReader
from fries_nb.errors import SinkError

__all__ = ["BrokenPromise", "check_sink", "check_source"]

T = TypeVar("T")
Row = Mapping[str, Any]

_NOW_NS = 1_700_000_000_000_000_000
_SPLITS = (1, 2, 3, 16)
"""Numbers of splits that are asked for."""
_RESUMED = 50
"""Positions of each split at which a reader is opened again."""
_ASKED = 5
"""Times that a reader without rows is asked again before its split counts as read."""


class BrokenPromise(AssertionError):
    """A source or a sink does not keep a promise; says which one, what was found, and the likely mistake."""


@dataclass(frozen=True)
class _Promises:
    """What is checked, by the name of its class."""

    of: str

    def hold(self, promise: str, got: object, expected: object, mistake: str) -> None:
        """Raise a BrokenPromise unless what was found is what was expected."""
        if got != expected:
            raise self.broken(promise, f"got {_shown(got)}, expected {_shown(expected)}; {mistake}")

    def broken(self, promise: str, found: str) -> BrokenPromise:
        """The error that says which promise is broken, and what was found."""
        return BrokenPromise(f"{self.of}: {promise}; {found}")


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:200]} ..."


# ---- sources


def check_source(source: Source, rows: Iterable[Row]) -> None:
    """Check the promises of a source: splits, positions, limits, and that rows can be read again.

    Args:
        source: your source. It is read to its end about a hundred times, so it should be small; an endless one is read
            until it gives nothing more.
        rows: all rows that it gives, in any order.

    Raises:
        BrokenPromise: a promise is broken.
        SourceError: it cannot be read.
    """
    promises = _Promises(type(source).__name__)
    shipped: Source = pickle.loads(cloudpickle.dumps(source))
    expected = _counted(rows)
    for count in _SPLITS:
        splits = [_kept(split, Split) for split in source.splits(count)]
        numbers = [split.number for split in splits]
        promises.hold("splits are numbered from 0", numbers, [*range(len(splits))], "number them by enumerate()")
        if len(splits) > count:
            found = f"got {len(splits)}, expected at most {count}; does splits() use its count?"
            raise promises.broken(f"splits({count}) gives at most as many", found)
        read = (_read(promises, shipped.open(split, Position()), 1_000) for split in splits)
        differences = _differences(_counted(itertools.chain.from_iterable(read)), expected)
        if differences:
            raise promises.broken(f"with splits({count}) each row is in one split", f"got {_shown(differences)}")
    for split in [_kept(split, Split) for split in source.splits(3)]:
        _check_split(promises, shipped, split)


def _check_split(promises: _Promises, source: Source, split: Split) -> None:
    """The promises of the readers of one split."""
    whole = _read(promises, source.open(split, Position()), 1_000)
    for limit in (1, 2, 5, 1_000):
        again = _read(promises, source.open(split, Position()), limit)
        same = f"the rows of a split are the same, in the same order, each time it is read (by {limit})"
        promises.hold(same, again, whole, "what they come from must be able to repeat them")
    for row in range(min(len(whole), _RESUMED)):
        reader = source.open(split, Position())
        before = _read(promises, reader, 1, row)
        if reader.position is None:
            raise promises.broken("a split is the same each time", f"got an end after {row} of {len(whole)} rows")
        position = _kept(reader.position, Position)
        resumed = source.open(split, position)
        says = "a reader opened at a position says that position"
        promises.hold(says, resumed.position, position, "does open() use its position?")
        rest = _read(promises, resumed, 4)
        exactly = f"a reader opened at row {row} gives exactly the rows behind it"
        promises.hold(exactly, before + rest, whole, "does Position.at tell where the next row is found?")


def _read(promises: _Promises, reader: SplitReader, limit: int, count: int | None = None) -> list[Row]:
    """The next rows of a split, or all that are left."""
    rows: list[Row] = []
    idle = 0
    while reader.position is not None and len(rows) != count and idle < _ASKED:
        before = reader.position.row
        batch = reader.read(limit, _NOW_NS)
        if batch is None:
            idle += 1
            continue
        if not isinstance(batch, pa.RecordBatch):
            kind = "read() gives a pyarrow.RecordBatch, or None if there are no rows at present"
            raise promises.broken(kind, f"got a {type(batch).__name__}")
        if not 1 <= batch.num_rows <= limit:
            raise promises.broken(f"read({limit}, ...) gives 1 to {limit} rows", f"got {batch.num_rows}")
        if reader.position is not None:
            moved, expected = reader.position.row, before + batch.num_rows
            promises.hold("Position.row counts the rows", moved, expected, "add the rows of the batch to it")
        rows += batch.to_pylist()
        idle = 0
    return rows


def _kept(value: T, kind: type[T]) -> T:
    """A value as a checkpoint gives it back."""
    return msgspec.msgpack.decode(msgspec.msgpack.encode(value), type=kind)


def _counted(rows: Iterable[Row]) -> Counter[str]:
    """Rows with their numbers, without the columns that they lack."""
    return Counter(_text(row) for row in rows)


def _text(row: Row) -> str:
    return repr(sorted((name, value) for name, value in row.items() if value is not None))


def _differences(found: Counter[str], expected: Counter[str]) -> dict[str, str]:
    """The rows that come another number of times, with both numbers."""
    names = sorted(found.keys() | expected.keys())
    return {name: f"{found[name]}, expected {expected[name]}" for name in names if found[name] != expected[name]}


# ---- sinks


def check_sink(
    make: Callable[[], Sink], output: Callable[[], Iterable[Row]], row: Callable[[int], Row] = lambda n: {"n": n}
) -> None:
    """Check the promises of a sink: nothing is output before its commit, and each row once after it.

    Args:
        make: makes your sink; each call makes it for the same target, as in another process.
        output: reads the rows that are output there.
        row: from a number to a row that the sink accepts; rows of different numbers differ.

    Raises:
        BrokenPromise: a promise is broken.
        SinkError: it cannot be written.
    """
    one, other = make(), make()
    promises = _Promises(type(one).__name__)
    known = "a checkpoint knows a sink by it; a dataclass has a good one"
    promises.hold("another object for the same target has the same repr", repr(other), repr(one), known)
    for number, check in enumerate(_SINK_CHECKS):
        check(_Target(promises, make, output, row, f"check{number}", 100 * number))


@dataclass(frozen=True)
class _Target:
    """A target of one run, which writes rows with numbers of its own.

    Attributes:
        promises: what is checked.
        make: makes the sink.
        output: reads what is output.
        row: from a number to a row.
        run: id of the run.
        first: its first number.
    """

    promises: _Promises
    make: Callable[[], Sink]
    output: Callable[[], Iterable[Row]]
    row: Callable[[int], Row]
    run: str
    first: int

    def sink(self) -> Sink:
        """For the driver of another process that starts on the target."""
        sink = self.make()
        sink.claim("check", self.run)
        return sink

    def writer(self, name: str = "out[0]-1-1") -> RowWriter:
        """A writer on a host."""
        shipped: Sink = pickle.loads(cloudpickle.dumps(self.sink()))
        return shipped.open(name)

    def write(self, writer: RowWriter, *numbers: int) -> None:
        """Write rows, each as a batch."""
        for number in numbers:
            writer.write(pa.RecordBatch.from_pylist([dict(self.row(self.first + number))]))

    def closed(self, name: str, *numbers: int) -> tuple[str, ...]:
        """The parts of a writer of these rows, whose host has died since."""
        writer = self.writer(name)
        self.write(writer, *numbers)
        return tuple(writer.close_part())

    def commit(self, number: int, parts: tuple[str, ...]) -> None:
        """As a driver does, which dies after it."""
        sink = self.sink()
        sink.prepare(parts)
        sink.commit(number, parts)

    def expect(self, promise: str, numbers: Iterable[int], mistake: str) -> None:
        """Check which rows are output, of those of this run."""
        texts = {_text(self.row(self.first + number)): number for number in range(100)}
        seen = sorted(texts[text] for text in map(_text, self.output()) if text in texts)
        self.promises.hold(promise, seen, sorted(numbers), mistake)


def _check_unseen(target: _Target) -> None:
    """Whatever was written, closed or prepared."""
    promise = "nothing is output before its commit"
    writer = target.writer()
    target.write(writer, 1)
    target.expect(promise, [], "write() must not make rows output")
    parts = tuple(writer.close_part())
    target.expect(promise, [], "close_part() must not make rows output")
    sink = target.sink()
    sink.prepare(parts)
    target.expect(promise, [], "prepare() must not make rows output")
    sink.commit(1, parts)
    target.expect("a commit makes the rows of its parts output", [1], "are they found by the names of the parts?")


def _check_parts(target: _Target) -> None:
    """Each row is in one part."""
    writer = target.writer()
    nothing = "without rows there is no part"
    target.promises.hold(nothing, tuple(writer.close_part()), (), "close_part() gives () if nothing was written")
    target.write(writer, 1)
    first = tuple(writer.close_part())
    target.promises.hold(nothing, tuple(writer.close_part()), (), "what was closed must not be closed again")
    target.write(writer, 2, 3)
    second = tuple(writer.close_part())
    promise = "a part has the rows since the last one"
    target.commit(1, first)
    target.expect(promise, [1], "does close_part() begin a new part?")
    target.commit(2, second)
    target.commit(3, ())
    target.expect(promise, [1, 2, 3], "does close_part() keep the rows of the last part?")


def _check_names(target: _Target) -> None:
    """Also of the same worker after a restart."""
    writers = ("out[0]-1-1", "out[0]-2-1", "out[1]-1-1", "out[1]-1-2")
    names = [part for number, name in enumerate(writers) for part in target.closed(name, number)]
    mistake = "put the id of the writer into the names of its parts, and a count"
    target.promises.hold("no two writers give the same name to a part", len(set(names)), len(names), mistake)
    target.commit(1, tuple(names))
    target.expect("a commit takes the parts of all writers", range(len(writers)), "are all of its parts looked for?")


def _check_repeated(target: _Target) -> None:
    """A driver may not know how far the one before it came."""
    first, second = target.closed("out[0]-1-1", 1), target.closed("out[1]-1-1", 2)
    for number, parts, seen in ((1, first, [1]), (1, first, [1]), (2, second, [1, 2]), (2, second, [1, 2])):
        target.commit(number, parts)
        target.sink().commit(number, parts)
        mistake = "record the number of a commit in the transaction that makes its parts output"
        target.expect("a commit that is repeated has no effect", seen, mistake)


def _check_gone(target: _Target) -> None:
    """Before its record is written, since nothing can be taken back after it."""
    parts = target.closed("out[0]-1-1", 1)
    gone = tuple(f"{part}-gone" for part in parts)
    try:
        target.commit(1, (*parts, *gone))
    except SinkError:
        target.expect("of a commit that is refused nothing is output", [], "look for all parts before the first")
        return
    raise target.promises.broken(
        "prepare() raises a SinkError for a part that is not there", f"got none for {gone}; does it look for its parts?"
    )


def _check_recovered(target: _Target) -> None:
    """However often the next attempt is killed as well."""
    parts = target.closed("out[0]-1-1", 1)
    target.sink().prepare(parts)
    for _ in range(3):
        target.sink().recover(1, parts)
        target.expect("recover() makes what is on record output, once", [1], "the default calls commit()")
    target.commit(2, target.closed("out[0]-2-1", 2))
    target.expect("a run goes on after recover()", [1, 2], "is the number of the commit recorded?")


def _check_discarded(target: _Target) -> None:
    """At the end of a run."""
    committed, doubtful = target.closed("out[0]-1-1", 1), target.closed("out[1]-1-1", 2)
    target.closed("out[2]-1-1", 3)
    target.commit(1, committed)
    target.sink().discard(doubtful)
    target.expect("discard() takes nothing back", [1], "it deletes only what was never committed")
    try:
        target.commit(2, doubtful)
    except SinkError as error:
        raise target.promises.broken("discard() keeps the parts that are spared", f"got {error}") from error
    target.expect("what discard() has spared can be committed", [1, 2], "it deletes only what is not spared")


_SINK_CHECKS: tuple[Callable[[_Target], None], ...] = (
    _check_unseen, _check_parts, _check_names, _check_repeated, _check_gone, _check_recovered, _check_discarded,
)  # fmt: skip
