"""A directory that grows, as an endless source: each file is read once, when it is complete.

A file belongs to a split by its name; a split reads its files one after the other, in the order of names or times among
those that are complete. A position has the files that the split has read, and the place in the current one.

>>> import os, tempfile, time
>>> with tempfile.TemporaryDirectory() as path:
...     for name in ("a", "b"):
...         _ = open(f"{path}/{name}.json", "w").write(f'{{"from": "{name}"}}')
...     source = FilesSource("S", path, "json", quiet_s=0)
...     reader = source.open(*source.splits(1), Position())
...     now = time.time_ns()
...     reader.read(10, now).to_pylist(), reader.read(10, now).to_pylist(), reader.read(10, now), reader.position.row
([{'from': 'a'}], [{'from': 'b'}], None, 2)
"""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from time import time_ns
from typing import Any

import msgspec
import pyarrow as pa
from msgspec.structs import replace

from fries_nb.connectors.file_columns import FileColumns
from fries_nb.connectors.file_formats import FilePiece, format_of
from fries_nb.connectors.file_listing import DirectoryContents, Entry, FileListing, KnownFiles, first_line, hashed
from fries_nb.connectors.source import (
    Position,
    RuntimeReader,
    RuntimeSource,
    Skipped,
    Split,
    TimeColumn,
    Undecoded,
    ticks_of,
)
from fries_nb.connectors.text_blocks import BadRow, UnreadableError
from fries_nb.errors import SourceError


class OpenFile(msgspec.Struct, frozen=True, array_like=True):
    """The file that a split is reading, as a position has it."""

    name: str  # its path relative to the directory
    size: int  # number of bytes
    mtime_ns: int  # time of the last modification in nanoseconds since the Unix epoch
    content: bytes  # fingerprint of its content
    row: int = 0  # number of rows of it that were read; lines that are no rows count

    @property
    def key(self) -> int:
        """The hash of its name."""
        return hashed(self.name)

    @property
    def identity(self) -> int:
        """What a renamed file has in common with that of its old name."""
        return hashed(struct.pack("<QQ", self.size, self.mtime_ns & (2**64 - 1)) + self.content)


class FilesSource(RuntimeSource):
    """The rows of the files of a directory."""

    def __init__(
        self,
        source: str,
        place: str,
        format: str,
        schema: pa.Schema | None = None,
        order: str = "name",
        until: str | None = None,
        quiet_s: float = 1.0,
        most_splits: int | None = None,
        csv: Mapping[str, Any] | None = None,
        encoding: str | None = None,
        bad_rows: str = "fail",
        adds_columns: bool = True,
    ) -> None:
        self._place = place  # the directory, or a glob below one; a path or URI
        self._schema = schema  # the columns; ``None`` for those of the files that are there first
        # ``most_splits``: maximum number of splits; ``None`` for as many as are wanted
        self._most = most_splits
        self._bad_rows = bad_rows  # what becomes of a line that is no row: ``fail``, ``skip`` or ``letters``
        self._adds_columns = adds_columns  # whether a later file may have further columns
        # ``encoding``: encoding of text; ``None`` for UTF-8
        # ``csv``: options of CSV by name; ``None`` for none
        # ``quiet_s``: seconds for which a file of text must not have changed before it counts as complete
        # ``until``: name of the file that says that no other comes any more; ``None`` for an endless source
        # ``order``: ``name`` or ``time``
        # ``format``: ``parquet``, ``csv`` or ``json``
        self._listing = FileListing(source, place, format_of(format, csv, encoding), order, until, quiet_s)

    def __repr__(self) -> str:
        return f"the files of {self._place}"

    def splits(self, count: int) -> list[Split]:
        """Divide the names of files among splits; see ``Source``."""
        self._listing.check()
        count = min(count, self._most or count)
        first = None if self._schema is not None else self._listing.columns(time_ns())
        known = None if first is None else (first.origin, first.schema.serialize().to_pybytes())
        return [Split(number, (count, known)) for number in range(count)]

    def find(
        self, splits: Sequence[Split], time: datetime | int, column: TimeColumn | None
    ) -> dict[int, Position | None]:
        """A position behind the files that are there and were not changed since; ``time`` is that of changes."""
        if not isinstance(time, datetime):
            raise SourceError("a directory; expected the time since which files were changed, or positions")
        since, look = ticks_of(time, pa.timestamp("ns", "UTC")), self._listing.look(time_ns())
        found: dict[int, Position | None] = {}
        for split in splits:
            known = KnownFiles()
            for entry in look.of_split(split.number, split.content[0]):
                if entry.mtime_ns < since:
                    known.add(entry.key, entry.size, hashed(f"{entry.name} {entry.mtime_ns}"))
            found[split.number] = Position(0, (known.packed, None, 0, None))
        return found

    def open(self, split: Split, position: Position) -> FilesReader:
        """Open a split; see ``Source``."""
        count, known = split.content
        columns: FileColumns | None = None
        if self._schema is not None:
            columns = FileColumns(self._schema, "schema=", is_given=True)
        elif known is not None:
            columns = FileColumns(pa.ipc.read_schema(pa.py_buffer(known[1])), known[0])
        return FilesReader(self._listing, split.number, count, columns, position, self._bad_rows, self._adds_columns)


class FilesReader(RuntimeReader):
    """Reads the files of one split."""

    def __init__(
        self, listing: FileListing, number: int, count: int, columns: FileColumns | None, position: Position,
        bad_rows: str = "fail", adds_columns: bool = True,
    ) -> None:  # fmt: skip
        packed, current, skipped, known = (b"", None, 0, None) if position.at is None else position.at
        # position of the first row to read
        self.position: Position | None = position  # position of the next row; see ``SplitReader``
        self.skipped = Skipped(skipped)  # what was left out; see ``RuntimeReader``
        self.undecoded: list[Undecoded] = []  # what was left out and is to become a dead letter; see ``take_undecoded``
        self._listing = listing
        self._number, self._count = number, count
        self._bad_rows = bad_rows  # what becomes of a line that is no row: ``fail``, ``skip`` or ``letters``
        # the columns of all files; ``None`` for those of the files that are complete when one is read here
        self._columns = columns if known is None else _unpacked(known)
        self._adds_columns = adds_columns
        if self._columns is not None:
            self._columns.adds = adds_columns
        self._packed_columns: tuple[pa.Schema | None, Any] = (None if columns is None else columns.schema, None)
        if known is not None and self._columns is not None:
            self._packed_columns = self._columns.schema, known
        self._known = KnownFiles(packed)
        self._current = None if current is None else msgspec.convert(current, OpenFile)
        self._partition: dict[str, str] = {}
        self._pieces: Iterator[FilePiece] | None = None
        self._piece: FilePiece | None = None
        self._seen: DirectoryContents | None = None
        self._ahead: list[Entry] = []
        self._renamed: set[Entry] = set()
        for identity, name in self._known.identities():
            listing.note(identity, name)
        if self._current is not None:
            listing.note(self._current.identity, self._current.key)

    def read(self, limit: int, now_ns: int) -> pa.RecordBatch | None:
        """The next rows of the current file, or the first ones of the next; see ``SplitReader``."""
        assert self.position is not None, "a split is not read at its end"
        while self._piece is None:
            if self._pieces is None and not self._begin(now_ns):
                return None
            self._advance()
        batch = self._take(limit)
        if self._piece is None:
            self._advance()
        self._move(batch.num_rows)
        return batch if batch.num_rows else None

    def _take(self, limit: int) -> pa.RecordBatch:
        """The next rows of the piece in hand; what is in front of them and is no row is left out."""
        piece = self._piece
        assert piece is not None
        assert self._current is not None, "rows are those of a file"
        batch = piece.batch.slice(0, limit)
        records = piece.cut(batch.num_rows)
        for place, bad in piece.bad.items():
            if place < records:
                self._leave_out(bad, self._current.name)
        self._piece = piece.behind(records) if records < piece.records else None
        self._current = replace(self._current, row=self._current.row + records)
        return batch

    def _leave_out(self, bad: BadRow, file: str) -> None:
        """What is no row is refused, skipped or set aside."""
        where = f"line {bad.line:,} of {file}" if bad.line else file
        if self._bad_rows == "fail":
            raise SourceError(
                f"{where} (of {self._listing.place}) cannot be read: {bad.reason}; mend it, or leave it out by "
                "bad_rows='skip' or bad_rows=fn.memory()"
            )
        self.skipped += Skipped(1, f"{where}: {bad.reason}")
        if self._bad_rows == "letters":
            row = {"file": file, "line": bad.line or None, "text": bad.text, "reason": bad.reason}
            self.undecoded.append(Undecoded(f"{where} is no row: {bad.reason}", row))

    @property
    def place(self) -> str:
        """The file and the row in it, or what is waited for, or how many files were read."""
        if self._current is not None:
            return f"{self._current.name}, row {self._current.row:,}"
        waiting = [(entry.name, self._listing.why_incomplete(entry)) for entry in self._ahead if entry.size]
        waiting = [(name, why) for name, why in waiting if why]
        if waiting:
            more = f" and {len(waiting) - 1:,} more" if len(waiting) > 1 else ""
            return f"split {self._number} waits for {waiting[0][0]} ({waiting[0][1]}){more}"
        return f"split {self._number} waits: {len(self._known):,} files read" if len(self._known) else ""

    def behind(self, now_ns: int) -> tuple[int | None, int | None]:
        """The time since the first file that is there and was not begun was last changed."""
        # The number of rows is not known, unless there is no file to read.
        if self._current is None and not self._ahead:
            return 0, 0
        waited = max((now_ns - entry.mtime_ns for entry in self._ahead), default=0)
        return None, max(0, waited)

    def take_undecoded(self) -> list[Undecoded]:
        """What was left out and is to become a dead letter."""
        taken, self.undecoded = self.undecoded, []
        return taken

    def close(self) -> None:
        """Close the current file."""
        self._pieces = self._piece = None

    def _move(self, rows: int) -> None:
        assert self.position is not None
        current = None if self._current is None else msgspec.to_builtins(self._current, builtin_types=(bytes,))
        at = (self._known.packed, current, self.skipped.count, self._columns_at())
        self.position = Position(self.position.row + rows, at)

    def _columns_at(self) -> Any:
        """The columns for a position, if others than those of the split: what has come out decides what may come."""
        schema, packed = self._packed_columns
        if self._columns is not None and self._columns.schema is not schema:
            columns = self._columns
            packed = (columns.origin, columns.schema.serialize().to_pybytes(), columns.is_given)
            self._packed_columns = columns.schema, packed
        return packed

    def _advance(self) -> None:
        """Read the next piece of the current file, or note that it is read."""
        assert self._current is not None
        assert self._pieces is not None
        assert self._columns is not None
        name = self._current.name
        try:
            self._piece = next((piece for piece in self._pieces if piece.records), None)
        except FileNotFoundError:
            self._pieces = None  # the next listing shows where it is
            return
        except (OSError, pa.ArrowException, UnreadableError) as error:
            self._give_up(error)
        if self._piece is not None:
            batch, bad = self._piece
            self._piece = FilePiece(self._columns.fit(batch, name, self._partition), bad)
            return
        self._finish()

    def _give_up(self, error: Exception) -> None:
        """The rest of the current file cannot be read, now or later."""
        assert self._current is not None
        assert self._columns is not None
        if self._bad_rows == "fail" or getattr(error, "errno", None) is not None:
            raise SourceError(
                f"cannot read {self._current.name} of {self._listing.place} behind its row {self._current.row:,}: "
                f"{first_line(error)}; its columns are to be those of {self._columns.origin}"
            ) from error
        line = error.line if isinstance(error, UnreadableError) else 0
        reason = f"cannot be read behind its row {self._current.row:,}: {first_line(error)}"
        self._leave_out(BadRow(line, "", reason), self._current.name)

    def _finish(self) -> None:
        """Note that the current file is read."""
        assert self._current is not None
        self._known.add(self._current.key, self._current.size, self._current.identity)
        if len(self._known) % 1_000 == 0 and self._seen is not None:
            self._listing.forget(self._known.forget_gone(self._seen.present))
        self._current = self._pieces = None

    def _begin(self, now_ns: int) -> bool:
        """Open the current file again, or the next one; returns whether there is one."""
        look = self._listing.look(now_ns)
        entry = self._found_again(look) or (self._next(look, now_ns) if self._current is None else None)
        if entry is None:
            self._listing.wait(now_ns, look)
            return False
        assert self._current is not None
        if self._columns is None:
            found = self._listing.columns(now_ns) or FileColumns(pa.schema([]), entry.name)
            self._columns = dataclasses.replace(found, adds=self._adds_columns)
        self._listing.active(now_ns)
        self._partition = entry.partition
        format = self._listing.format
        self._pieces = format.pieces(self._listing.filesystem, entry.path, self._columns, self._current.row)
        return True

    def _next(self, look: DirectoryContents, now_ns: int) -> Entry | None:
        """The first complete file that was not read, which becomes the current one."""
        if look is not self._seen:
            self._seen, self._ahead = look, self._unread(look)
        for entry in tuple(self._ahead):
            content = self._listing.content(entry)
            if not content:
                continue
            found = OpenFile(entry.name, entry.size, entry.mtime_ns, content)
            self._ahead.remove(entry)
            if self._listing.is_renamed(found.identity, entry, look):
                # Not for a checkpoint: the split that has read the file may have a position before it there.
                self._renamed.add(entry)
                continue
            self._listing.note(found.identity, entry.key)
            self._current = found
            return entry
        if look.final:
            self._give_up_stuck()
            if not any(entry.size for entry in self._ahead):  # files without content have no rows
                self.position = None
        return None

    def _give_up_stuck(self) -> None:
        """Files that never become complete are broken."""
        for entry in [one for one in self._ahead if one.size and self._listing.is_stuck(one)]:
            why = self._listing.why_incomplete(entry)
            reason = f"it is not complete ({why}) and does not grow, and by until= no more comes"
            self._leave_out(BadRow(0, "", reason), entry.name)
            self._ahead.remove(entry)
            self._known.add(entry.key, entry.size, hashed(f"{entry.name} {entry.mtime_ns}"))
            self._move(0)

    def _unread(self, look: DirectoryContents) -> list[Entry]:
        unread = []
        self._renamed.intersection_update(look.entries)
        for entry in look.of_split(self._number, self._count):
            if entry.key not in self._known:
                if entry not in self._renamed:
                    unread.append(entry)
            elif not self._known.has_size(entry.key, entry.size):
                raise SourceError(
                    f"{entry.name} of {self._listing.place} was read and has another size now, {entry.size:,} bytes; "
                    "expected files that do not change: write under a name that begins with _ or ., and rename it"
                )
        return unread

    def _found_again(self, look: DirectoryContents) -> Entry | None:
        """The current file, maybe under another name; ``None`` if there is none, or the listing is too old."""
        current = self._current
        if current is None:
            return None
        same = [entry for entry in look.entries if entry.size == current.size]
        for entry in sorted(same, key=lambda one: (one.name != current.name, one.mtime_ns != current.mtime_ns)):
            try:
                if self._listing.format.content(self._listing.filesystem, entry.path, entry.size) == current.content:
                    return entry
            except OSError:
                return None  # it was there when the directory was listed
        if not current.row:
            self._listing.forget([current.identity])
            self._current = None
            return None
        now = next((f"has {entry.size:,} bytes" for entry in look.entries if entry.name == current.name), "has gone")
        raise SourceError(
            f"{current.name} of {self._listing.place}, a file of {current.size:,} bytes of which {current.row:,} rows "
            f"were read, {now}; expected files to stay as they are until they are read: put it back and resume"
        )


def _unpacked(known: tuple[str, bytes, bool]) -> FileColumns:
    origin, schema, is_given = known
    return FileColumns(pa.ipc.read_schema(pa.py_buffer(schema)), origin, is_given)
