r"""The formats of files in a directory: Parquet, CSV and JSON lines, read block by block.

>>> import os, tempfile
>>> with tempfile.TemporaryDirectory() as path:
...     with open(f"{path}/a.csv", "w") as file:
...         _ = file.write("n,name\n1,x\n2,y\n")
...     local, name, format = fs.LocalFileSystem(), f"{path}/a.csv", CsvFormat()
...     columns = FileColumns(format.schema(local, name), "a.csv")
...     [batch.to_pylist() for batch in format.batches(local, name, columns)]
[[{'n': 1, 'name': 'x'}, {'n': 2, 'name': 'y'}]]
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.json as pj
import pyarrow.parquet as pq
from pyarrow import fs

from fries_nb.connectors.file_columns import FileColumns
from fries_nb.connectors.row_groups import decoded, plain_schema
from fries_nb.dataflow.file_endpoints import csv_options

BLOCK_BYTES = 1 << 20
"""Number of bytes of a text file that are parsed at a time; more for a longer line of JSON."""

SAMPLE_BYTES = 1 << 16
"""Number of bytes at each end of a text file by which its content is told."""

MAGIC = b"PAR1"

OTHER_DELIMITERS = (";", "\t", "|")
"""What divides columns of CSV, beside the comma."""


class FileFormat(Protocol):
    """How the files of one format are read.

    Attributes:
        tells_its_end: whether a file that is still being written can be told from a complete one.
    """

    tells_its_end: bool

    def content(self, filesystem: fs.FileSystem, path: str, size: int) -> bytes:
        """A fingerprint of the content; empty for a file that is not complete yet. Raises an OSError."""

    def schema(self, filesystem: fs.FileSystem, path: str) -> pa.Schema:
        """The columns. Raises an OSError or an ArrowException."""

    def batches(
        self, filesystem: fs.FileSystem, path: str, columns: FileColumns, skip: int = 0
    ) -> Iterator[pa.RecordBatch]:
        """The rows behind the first ``skip``, with the file's own columns. Raises an OSError or an ArrowException."""


class ParquetFormat:
    """Parquet: complete with its footer, read by row groups."""

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

    def schema(self, filesystem: fs.FileSystem, path: str) -> pa.Schema:
        """The columns that rows are decoded to; see ``FileFormat``."""
        with self._opened(filesystem, path) as file:
            return plain_schema(file)

    def batches(
        self, filesystem: fs.FileSystem, path: str, columns: FileColumns, skip: int = 0
    ) -> Iterator[pa.RecordBatch]:
        """Skipped row groups are not decoded; see ``FileFormat``."""
        with self._opened(filesystem, path) as file:
            known = file.schema_arrow.names
            wanted = [name for name in columns.schema.names if name in known] if columns.is_given else None
            for group in range(file.num_row_groups):
                rows = file.metadata.row_group(group).num_rows
                if skip < rows:
                    yield from behind_rows(decoded(file, group, wanted), skip)
                skip = max(0, skip - rows)

    def _opened(self, filesystem: fs.FileSystem, path: str) -> pq.ParquetFile:
        return pq.ParquetFile(path, filesystem=filesystem, coerce_int96_timestamp_unit="us", pre_buffer=False)


class CsvFormat:
    """CSV; types are inferred from the first block, unless the columns are known.

    Args:
        options: options of ``pyarrow.csv`` by name, see ``file_endpoints.CSV_OPTIONS``; ``None`` for none.
    """

    tells_its_end = False

    def __init__(self, options: Mapping[str, Any] | None = None) -> None:
        self._options = options or {}

    def content(self, filesystem: fs.FileSystem, path: str, size: int) -> bytes:
        """See ``FileFormat``."""
        return ends_of(filesystem, path, size)

    def schema(self, filesystem: fs.FileSystem, path: str) -> pa.Schema:
        """See ``FileFormat``. One column that looks like several is refused, unless the delimiter is given."""
        with self._opened(filesystem, path) as file:
            names = file.schema.names
            likely = [mark for mark in OTHER_DELIMITERS if mark in names[0]] if len(names) == 1 else []
            if likely and "delimiter" not in self._options:
                raise pa.ArrowInvalid(f"its only column is {names[0]!r}; likely csv={{'delimiter': {likely[0]!r}}}")
            return file.schema

    def batches(
        self, filesystem: fs.FileSystem, path: str, columns: FileColumns, skip: int = 0
    ) -> Iterator[pa.RecordBatch]:
        """See ``FileFormat``."""
        with self._opened(filesystem, path, columns.schema) as file:
            yield from behind_rows(file, skip)

    def _opened(
        self, filesystem: fs.FileSystem, path: str, schema: pa.Schema | None = None
    ) -> pc.CSVStreamingReader:
        read, parse, convert = csv_options(self._options)
        read.use_threads, read.block_size, parse.newlines_in_values = False, BLOCK_BYTES, True
        convert.column_types = {} if schema is None else {field.name: field.type for field in schema}
        return pc.open_csv(filesystem.open_input_stream(path), read, parse, convert)


class JsonFormat:
    """JSON lines; types are inferred from the first block, unless the columns are known."""

    tells_its_end = False

    def content(self, filesystem: fs.FileSystem, path: str, size: int) -> bytes:
        """See ``FileFormat``."""
        return ends_of(filesystem, path, size)

    def schema(self, filesystem: fs.FileSystem, path: str) -> pa.Schema:
        """See ``FileFormat``."""
        first = next(_blocks_of_lines(filesystem, path), b"")
        return _parsed(first, None).schema if first else pa.schema([])

    def batches(
        self, filesystem: fs.FileSystem, path: str, columns: FileColumns, skip: int = 0
    ) -> Iterator[pa.RecordBatch]:
        """See ``FileFormat``."""
        parsed = (_parsed(block, columns) for block in _blocks_of_lines(filesystem, path))
        return behind_rows((batch for table in parsed for batch in table.to_batches()), skip)


FORMATS: dict[str, FileFormat] = {"parquet": ParquetFormat(), "csv": CsvFormat(), "json": JsonFormat()}
"""Name to format."""


def behind_rows(batches: Iterator[pa.RecordBatch], skip: int) -> Iterator[pa.RecordBatch]:
    """Batches of rows without the first ones.

    >>> [batch.num_rows for batch in behind_rows(iter([pa.record_batch({"n": [1, 2]})] * 3), 3)]
    [1, 2]
    """
    for batch in batches:
        if skip < batch.num_rows:
            yield batch.slice(skip)
        skip = max(0, skip - batch.num_rows)


def ends_of(filesystem: fs.FileSystem, path: str, size: int) -> bytes:
    """A hash of the two ends of a file; empty for a file without any content."""
    if not size:
        return b""
    with filesystem.open_input_file(path) as file:
        first, last = file.read_at(SAMPLE_BYTES, 0), file.read_at(SAMPLE_BYTES, max(0, size - SAMPLE_BYTES))
    return hashlib.blake2b(first + last, digest_size=16).digest()


def _blocks_of_lines(filesystem: fs.FileSystem, path: str) -> Iterator[bytes]:
    """The file in blocks of whole lines; blank ones are no rows."""
    with filesystem.open_input_stream(path) as stream:
        rest = b""
        while data := stream.read(BLOCK_BYTES):
            lines, newline, tail = data.rpartition(b"\n")
            if newline:
                yield from filter(bytes.strip, [rest + lines])
                rest = tail
            else:
                rest += data
        yield from filter(bytes.strip, [rest])


def _parsed(block: bytes, columns: FileColumns | None) -> pa.Table:
    if columns is None:
        options = pj.ParseOptions()
    else:
        unexpected = "ignore" if columns.is_given else "infer"
        options = pj.ParseOptions(explicit_schema=columns.schema, unexpected_field_behavior=unexpected)
    size = pj.ReadOptions(use_threads=False, block_size=max(BLOCK_BYTES, 2 * len(block)))
    return pj.read_json(pa.BufferReader(block), size, options)
