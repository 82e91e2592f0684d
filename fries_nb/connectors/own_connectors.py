"""The user's own sources and sinks, as the runtime uses them: shipped as bytes, called with their mistakes in words.

>>> import cloudpickle
>>> class Numbers:
...     def splits(self, count):
...         return [Split(0)]
...
...     def open(self, split, position):
...         return [1, 2, 3]
>>> source = OwnSourceCopy("numbers", cloudpickle.dumps(Numbers()))
>>> source.open(*source.splits(16), Position())
Traceback (most recent call last):
    ...
fries_nb.errors.SourceError: source 'numbers': open() of Numbers gave a list; expected a reader with read() and position
"""

from __future__ import annotations

import pickle
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

import msgspec
import pyarrow as pa

from fries_nb.connectors.sink import RowWriter, RuntimeSink, Sink, SinkWriter, WrittenColumns, of_user
from fries_nb.connectors.source import Position, RuntimeReader, RuntimeSource, Source, Split, SplitReader, TimeColumn
from fries_nb.dataflow.columns import HIDDEN
from fries_nb.errors import FriesError, SinkError, SourceError, exception_text
from fries_nb.protocol.messages import WorkerId


@contextmanager
def _told(what: str, kind: type[SourceError | SinkError]) -> Iterator[None]:
    """An exception of the user's code becomes a sentence."""
    try:
        yield
    except FriesError as error:
        raise kind(f"{what}: {error}") from error
    except Exception as error:
        raise kind(f"{what} raised {exception_text(error)}") from error


class OwnSourceCopy(RuntimeSource):
    """A source of the user's: a copy for the driver, and one for each worker; see ``Source``."""

    def __init__(self, name: str, payload: bytes) -> None:
        self._name = name
        self._payload = payload  # the source, pickled

    def __reduce__(self) -> tuple[type[OwnSourceCopy], tuple[str, bytes]]:
        return OwnSourceCopy, (self._name, self._payload)

    def __copy__(self) -> OwnSourceCopy:
        return OwnSourceCopy(self._name, self._payload)

    @cached_property
    def _source(self) -> Source:
        with _told(f"source {self._name!r}: unpickling it here", SourceError):
            source: Source = pickle.loads(self._payload)
            return source

    def __repr__(self) -> str:
        return f"source {self._name!r}"

    def splits(self, count: int) -> list[Split]:
        """Divide the source; see ``Source``."""
        what = f"{self!r}: splits() of {type(self._source).__name__}"
        with _told(what, SourceError):
            splits = self._source.splits(count)
        if not isinstance(splits, Sequence) or not splits or not all(isinstance(split, Split) for split in splits):
            raise SourceError(f"{what} gave {splits!r}; expected a list of fn.Split, at least one")
        for split in splits:
            _check_packs(what, "content", split.content)
        return list(splits)

    def find(
        self, splits: Sequence[Split], time: datetime | int, column: TimeColumn | None
    ) -> Mapping[int, Position | None]:
        """Where rows from a time on begin, if the user's source can tell; see ``Source``."""
        find, kind = getattr(self._source, "find", None), type(self._source).__name__
        if not callable(find):
            raise SourceError(
                f"a {kind} without find(); expected a source with find(time), which gives the position of each split"
            )
        if isinstance(time, datetime) and time.tzinfo is None:
            time = time.replace(tzinfo=UTC)
        with _told(f"whose find() of {kind}", SourceError):
            found = find(time)
        numbers = {split.number for split in splits}
        if not isinstance(found, Mapping) or not all(
            number in numbers and (place is None or isinstance(place, Position)) for number, place in found.items()
        ):
            expected = "a dict from the number of a split to an fn.Position, or None if nothing of it is read"
            raise SourceError(f"whose find() of {kind} gave {found!r}; expected {expected}")
        for place in found.values():
            _check_packs(f"whose find() of {kind}", "at", None if place is None else place.at)
        return found

    def open(self, split: Split, position: Position) -> OwnReader:
        """Open a split; see ``Source``."""
        what = f"{self!r}: open() of {type(self._source).__name__}"
        with _told(what, SourceError):
            reader = self._source.open(split, position)
            found = getattr(reader, "position", reader)
        if not callable(getattr(reader, "read", None)) or found is reader:
            raise SourceError(f"{what} gave a {type(reader).__name__}; expected a reader with read() and position")
        if found is not None and (not isinstance(found, Position) or found.row != position.row):
            raise SourceError(
                f"{what} gave a reader with position {found!r}, but it was opened at {position!r}; expected that "
                "position, from which it reads on, or None at the end"
            )
        return OwnReader(f"{self!r}: read() of {type(reader).__name__}", reader)

    def row_at(self, split: Split, number: int) -> Mapping[str, Any]:
        """Read one row again, if the user's source can; see ``RuntimeSource``."""
        read = getattr(self._source, "row_at", None)
        if not callable(read):
            return {}
        what = f"{self!r}: row_at() of {type(self._source).__name__}"
        with _told(what, SourceError):
            row = read(split, number)
        if not isinstance(row, Mapping):
            raise SourceError(f"{what} gave a {type(row).__name__}; expected a dict of the row's columns")
        return row


class OwnReader(RuntimeReader):
    """A reader of a source of the user's; see ``SplitReader``."""

    def __init__(self, what: str, reader: SplitReader) -> None:
        self._what = what
        self._reader = reader
        self._schema: pa.Schema | None = None

    @property
    def position(self) -> Position | None:  # type: ignore[override]
        """The position of the next row."""
        return self._reader.position

    def read(self, limit: int, now_ns: int) -> pa.RecordBatch | None:
        """Read the next rows."""
        before = self._reader.position
        batch = self._reader.read(limit, now_ns)
        if batch is not None and not isinstance(batch, pa.RecordBatch):
            raise SourceError(f"{self._what} gave a {type(batch).__name__}; expected a pyarrow.RecordBatch, or None")
        rows = 0 if batch is None else batch.num_rows
        if rows > limit:
            raise SourceError(f"{self._what} gave {rows} rows; expected at most the {limit} that it was asked for")
        self._check_position(before, self._reader.position, rows)
        if batch is not None and batch.schema is not self._schema and batch.schema != self._schema:
            self._check_columns(batch.schema)
        return batch

    def close(self) -> None:
        """Close the reader, if it can be closed."""
        if callable(close := getattr(self._reader, "close", None)):
            close()

    def _check_position(self, before: Position | None, after: Position | None, rows: int) -> None:
        assert before is not None, "a split is not read at its end"
        if after is None:
            return
        if not isinstance(after, Position) or after.row != before.row + rows:
            raise SourceError(
                f"{self._what} gave {rows} rows from row {before.row} on and left position at {after!r}; expected "
                f"fn.Position({before.row + rows}), or None at the end"
            )
        _check_packs(self._what, "Position.at", after.at)

    def _check_columns(self, schema: pa.Schema) -> None:
        names = schema.names
        if reserved := [name for name in names if name in HIDDEN]:
            raise SourceError(f"{self._what} gave a column {reserved[0]!r}, a name of the runtime's own; rename it")
        if twice := [name for name in names if names.count(name) > 1]:
            raise SourceError(f"{self._what} gave several columns {twice[0]!r}; a row has one value a name")
        self._schema = schema


def _check_packs(what: str, part: str, value: Any) -> None:
    """Refuse a value that no checkpoint can keep."""
    try:
        msgspec.msgpack.encode(value)
    except (TypeError, ValueError, OverflowError, msgspec.MsgspecError) as error:
        raise SourceError(
            f"{what} gave {part} {value!r}; expected numbers, text, bytes, lists and dicts, as msgpack encodes: {error}"
        ) from error


class OwnSinkCopy(RuntimeSink):
    """A sink of the user's; see ``Sink``."""

    def __init__(self, name: str, payload: bytes) -> None:
        self._name = name  # name of the sink, or of the operator with dead letters
        self._payload = payload  # the sink, pickled; claimed, if hosts get it

    def __reduce__(self) -> tuple[type[OwnSinkCopy], tuple[str, bytes]]:
        return OwnSinkCopy, (self._name, self._payload)

    @cached_property
    def sink(self) -> Sink:
        """The user's object, a copy."""
        with _told(f"sink {self._name!r}: unpickling it here", SinkError):
            sink: Sink = pickle.loads(self._payload)
            return sink

    def _step(self, method: str) -> str:
        return f"sink {self._name!r}: {method}() of {type(self.sink).__name__}"

    def claim(self, flow: str, run: str) -> None:
        """Claim the target; see ``Sink``."""
        with _told(self._step("claim"), SinkError):
            self.sink.claim(flow, run)

    def open(self, worker: WorkerId, incarnation: int, epoch: int = 1) -> SinkWriter:
        """Open a writer; see ``Sink``."""
        what = self._step("open")
        with _told(what, SinkError):
            writer = self.sink.open(f"{worker}-{incarnation}-{epoch}")
        if not all(callable(getattr(writer, name, None)) for name in ("write", "close_part")):
            raise SinkError(f"{what} gave a {type(writer).__name__}; expected a writer with write() and close_part()")
        return OwnWriter(f"sink {self._name!r}: close_part() of {type(writer).__name__}", writer)

    def prepare(self, parts: Sequence[str]) -> None:
        """Ensure that parts can be committed; see ``Sink``."""
        with _told(self._step("prepare"), SinkError):
            self.sink.prepare(parts)

    def commit(self, number: int, parts: Sequence[str]) -> None:
        """Make parts output; see ``Sink``."""
        with _told(self._step("commit"), SinkError):
            self.sink.commit(number, parts)

    def recover(self, number: int, parts: Sequence[str]) -> None:
        """Restore the output to that of a checkpoint, by ``commit`` if the sink has no ``recover``; see ``Sink``."""
        method = "recover" if hasattr(self.sink, "recover") else "commit"
        if method == "commit" and not parts:
            return
        with _told(self._step(method), SinkError):
            getattr(self.sink, method)(number, parts)

    def discard(self, incarnation: int, spared: Collection[str]) -> None:
        """Delete parts that were never committed, if the sink can; see ``Sink``."""
        if hasattr(self.sink, "discard"):
            with _told(self._step("discard"), SinkError):
                self.sink.discard(spared)


class OwnWriter:
    """A writer of a sink of the user's; see ``SinkWriter``."""

    def __init__(self, what: str, writer: RowWriter) -> None:
        self._columns = WrittenColumns()
        self._what = what  # its method, for the message of an error
        self._writer = writer

    @property
    def columns(self) -> pa.Schema:
        """All columns written so far."""
        return self._columns.schema

    def write(self, batch: pa.RecordBatch) -> None:
        """Write rows, without the columns of the runtime's own."""
        batch = of_user(batch)
        self._columns.note(batch.schema)
        if batch.num_rows:
            self._writer.write(batch)

    def close_part(self) -> tuple[str, ...]:
        """Close the parts with all rows since the last call."""
        parts = self._writer.close_part()
        if isinstance(parts, str) or not isinstance(parts, Sequence) or not all(isinstance(one, str) for one in parts):
            raise SinkError(f"{self._what} gave {parts!r}; expected a tuple of the names of parts, maybe empty")
        return tuple(parts)
