r"""The formats of files in a directory: how complete ones are told, their columns, and their rows in pieces.

>>> import os, tempfile
>>> with tempfile.TemporaryDirectory() as path:
...     with open(f"{path}/a.csv", "w") as file:
...         _ = file.write("n,name\n1,x\n2\n")
...     local, name, format = fs.LocalFileSystem(), f"{path}/a.csv", CsvFormat()
...     columns = FileColumns(format.schema(local, [("a.csv", name)]), "a.csv")
...     [(piece.batch.to_pylist(), piece.bad) for piece in format.pieces(local, name, columns)]
[([{'n': 1, 'name': 'x'}], {1: BadRow(line=3, text='2', reason='it has 1 cell, and the header 2')})]
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from fries_nb.connectors.csv_text import CsvText
from fries_nb.connectors.file_columns import FileColumns, usable
from fries_nb.connectors.inferred_types import NOTHING, Facts, NoTypeError, type_of
from fries_nb.connectors.json_text import JsonText
from fries_nb.connectors.row_groups import decoded, plain_schema
from fries_nb.connectors.text_blocks import BLOCK_BYTES, BadRow, UnreadableError
from fries_nb.errors import SourceError

__all__ = ["BLOCK_BYTES", "CsvFormat", "FileFormat", "JsonFormat", "ParquetFormat", "FilePiece", "format_of"]

SAMPLE_BYTES = 1 << 16
"""Number of bytes at each end of a text file by which its content is told."""

SCANNED_BYTES = 32 << 20
"""Number of bytes of text, of the files that are there when a run begins, from which types are inferred."""

MAGIC = b"PAR1"


class FilePiece(NamedTuple):
    """Consecutive records of a file."""

    batch: pa.RecordBatch  # those that are rows
    bad: Mapping[int, BadRow] = {}  # index in the piece to what is no row

    @property
    def records(self) -> int:
        """Number of rows and of what is none."""
        return int(self.batch.num_rows) + len(self.bad)

    def cut(self, rows: int) -> int:
        """The number of records in front of the row of an index: all of them behind the last row."""
        if not self.bad or rows >= self.batch.num_rows:
            return self.records if rows >= self.batch.num_rows else rows
        places = np.fromiter(self.bad, np.int64, len(self.bad))
        return rows + int(np.searchsorted(places - np.arange(len(places)), rows, side="right"))

    def behind(self, records: int) -> FilePiece:
        """The piece without its first records.

        >>> piece = FilePiece(pa.record_batch({"n": [0, 2]}), {1: BadRow(2, "", ""), 3: BadRow(4, "", "")})
        >>> [(piece.behind(count).batch["n"].to_pylist(), list(piece.behind(count).bad)) for count in range(5)]
        [([0, 2], [1, 3]), ([2], [0, 2]), ([2], [1]), ([], [0]), ([], [])]
        """
        passed = sum(place < records for place in self.bad)
        left = {place - records: row for place, row in self.bad.items() if place >= records}
        return FilePiece(self.batch.slice(records - passed), left)


class FileFormat(Protocol):
    """How the files of one format are read."""

    tells_its_end: bool  # whether a file that is still being written can be told from a complete one

    def content(self, filesystem: fs.FileSystem, path: str, size: int) -> bytes:
        """A fingerprint of the content; empty for a file that is not complete yet. Raises an OSError."""

    def schema(self, filesystem: fs.FileSystem, files: Iterable[tuple[str, str]]) -> pa.Schema:
        """The columns of files, of which only the first ones may be taken."""

    def pieces(self, filesystem: fs.FileSystem, path: str, columns: FileColumns, skip: int = 0) -> Iterator[FilePiece]:
        """The records behind the first ``skip``.

        Types of inferred columns are widened where that is necessary.
        """


class ParquetFormat:
    """Parquet: complete with its footer, read by row groups. The first file decides columns."""

    tells_its_end = True

    def content(self, filesystem: fs.FileSystem, path: str, size: int) -> bytes:
        """A hash of the footer; see ``FileFormat``."""
        if size < 12:
            return b""
        with filesystem.open_input_file(path) as file:
            if file.read_at(4, size - 4) != MAGIC or file.read_at(4, 0) != MAGIC:
                return b""
            length = int.from_bytes(file.read_at(4, size - 8), "little")
            if length > size - 12:
                return b""
            footer = file.read_at(length, size - 8 - length)
        return hashlib.blake2b(footer, digest_size=16).digest()

    def schema(self, filesystem: fs.FileSystem, files: Iterable[tuple[str, str]]) -> pa.Schema:
        """The columns that rows are decoded to; see ``FileFormat``."""
        name, path = next(iter(files))
        with self._opened(filesystem, path) as file:
            return usable(plain_schema(file), name)

    def pieces(self, filesystem: fs.FileSystem, path: str, columns: FileColumns, skip: int = 0) -> Iterator[FilePiece]:
        """Skipped row groups are not decoded; see ``FileFormat``."""
        with self._opened(filesystem, path) as file:
            known = file.schema_arrow.names
            wanted = [name for name in columns.schema.names if name in known] if columns.is_given else None
            for group in range(file.num_row_groups):
                rows = file.metadata.row_group(group).num_rows
                if skip < rows:
                    yield from behind_records(map(FilePiece, decoded(file, group, wanted)), skip)
                skip = max(0, skip - rows)

    def _opened(self, filesystem: fs.FileSystem, path: str) -> pq.ParquetFile:
        return pq.ParquetFile(path, filesystem=filesystem, coerce_int96_timestamp_unit="us", pre_buffer=False)


class Text(Protocol):
    """How text of one format is parsed."""

    is_json: bool

    def facts(self, filesystem: fs.FileSystem, path: str) -> Iterator[tuple[int, Mapping[str, Facts]]]:
        """What is known of the columns by further pieces of a file, with their numbers of bytes."""

    def pieces(
        self, filesystem: fs.FileSystem, path: str, columns: FileColumns
    ) -> Iterator[tuple[pa.RecordBatch, Mapping[int, BadRow]]]:
        """All records of a file."""


class TextFormat:
    """CSV or JSON lines: types are inferred from all that is there when the run begins, up to ``SCANNED_BYTES``."""

    tells_its_end = False

    def __init__(self, text: Text) -> None:
        self._text = text

    def content(self, filesystem: fs.FileSystem, path: str, size: int) -> bytes:
        """See ``FileFormat``."""
        return ends_of(filesystem, path, size)

    def schema(self, filesystem: fs.FileSystem, files: Iterable[tuple[str, str]]) -> pa.Schema:
        """See ``FileFormat``. A file that cannot be read is left out, unless there is no other."""
        known: dict[str, Facts] = {}
        types: dict[str, pa.DataType] = {}
        left, unread = SCANNED_BYTES, None
        for name, path in files:
            try:
                left = self._scan(filesystem, path, known, left)
            except (OSError, pa.ArrowException, UnreadableError) as error:
                unread = unread or error
            types = self._types(known, name)
            if left <= 0:
                break
        if not known and unread is not None:
            raise unread
        return usable(pa.schema(list(types.items())), name)

    def _scan(self, filesystem: fs.FileSystem, path: str, known: dict[str, Facts], left: int) -> int:
        """Add what is known by a file, or by so many bytes of it; returns how many are left."""
        for size, columns in self._text.facts(filesystem, path):
            for column, facts in columns.items():
                known[column] = known.get(column, NOTHING) | facts
            left -= size
            if left <= 0:
                break
        return left

    def _types(self, known: Mapping[str, Facts], file: str) -> dict[str, pa.DataType]:
        types = {}
        for column, facts in known.items():
            try:
                types[column] = type_of(facts, self._text.is_json)
            except NoTypeError as error:
                raise SourceError(
                    f"column {column!r} {error}, with {file} or before; expected values of one type, or schema= with a "
                    "type that holds all of them"
                ) from None
        return types

    def pieces(self, filesystem: fs.FileSystem, path: str, columns: FileColumns, skip: int = 0) -> Iterator[FilePiece]:
        """See ``FileFormat``."""
        return behind_records((FilePiece(*piece) for piece in self._text.pieces(filesystem, path, columns)), skip)


class CsvFormat(TextFormat):
    """CSV."""

    def __init__(self, options: Mapping[str, Any] | None = None, encoding: str = "utf-8") -> None:
        # ``options``: options of ``pyarrow.csv`` by name, see ``stream_endpoints.CSV_OPTIONS``
        super().__init__(CsvText(options or {}, encoding))


class JsonFormat(TextFormat):
    """JSON lines."""

    def __init__(self, encoding: str = "utf-8") -> None:
        super().__init__(JsonText(encoding))


FORMATS = ("parquet", "csv", "json")


def format_of(name: str, csv: Mapping[str, Any] | None = None, encoding: str | None = None) -> FileFormat:
    """The format of a name."""
    if name == "parquet":
        return ParquetFormat()
    if name == "json":
        return JsonFormat(encoding or "utf-8")
    options = dict(csv or {})
    return CsvFormat(options, encoding or options.pop("encoding", "utf-8"))


def behind_records(pieces: Iterable[FilePiece], skip: int) -> Iterator[FilePiece]:
    """Pieces without their first records.

    >>> [piece.records for piece in behind_records([FilePiece(pa.record_batch({"n": [1, 2]}))] * 3, 3)]
    [1, 2]
    """
    for piece in pieces:
        if skip < piece.records:
            yield piece.behind(skip) if skip else piece
        skip = max(0, skip - piece.records)


def ends_of(filesystem: fs.FileSystem, path: str, size: int) -> bytes:
    """A hash of the two ends of a file; empty for a file without any content."""
    if not size:
        return b""
    with filesystem.open_input_file(path) as file:
        first, last = file.read_at(SAMPLE_BYTES, 0), file.read_at(SAMPLE_BYTES, max(0, size - SAMPLE_BYTES))
    return hashlib.blake2b(first + last, digest_size=16).digest()
