"""Decoding of row groups of Parquet files, batch by batch; efficient for rows that are read in order."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from fries_nb.errors import SourceError
from fries_nb.storage.locations import locate

BATCH_ROWS = 16_384
"""Number of rows that are decoded at a time; a slice of them shares their memory."""

_NOTHING: pa.RecordBatch = pa.RecordBatch.from_pydict({})


class RowGroupReader:
    """Decodes row groups, and caches the last decoded batch, since reads are mostly sequential."""

    def __init__(self) -> None:
        self._name = ""
        self._file: pq.ParquetFile | None = None
        self._group = -1
        self._first = 0  # index of the batch's first row within the row group
        self._batch = _NOTHING
        self._batches: Iterator[pa.RecordBatch] = iter(())

    @property
    def rows_in_group(self) -> int:
        """Number of rows of the row group that was read last; 0 before the first one."""
        return 0 if self._file is None else self._file.metadata.row_group(self._group).num_rows

    def rows(self, file: str, content: str, group: int, start: int, limit: int) -> pa.RecordBatch:
        """Read rows of a row group; returns those of the decoded batch that contains the first one.

        Args:
            file: path or URI of the file.
            content: the file's fingerprint; empty if it is not checked.
            group: index of the row group.
            start: index of the first row within the row group.
            limit: maximum number of rows.

        Raises:
            SourceError: the file is missing, damaged, or was replaced.
        """
        first, batch = self.batch(file, content, group, start)
        return batch.slice(start - first, limit)

    def batch(self, file: str, content: str, group: int, start: int) -> tuple[int, pa.RecordBatch]:
        """The decoded batch that contains a row, and the index of its first row; see ``rows``."""
        try:
            if file != self._name:
                self._file, self._name, self._group = open_file(file, content), file, -1
            if group != self._group or start < self._first:
                self._begin(group)
            while start >= self._first + self._batch.num_rows:
                self._first += self._batch.num_rows
                self._batch = next(self._batches)
        except (OSError, pa.ArrowException) as error:
            raise SourceError(f"cannot read row group {group} of {file}: {error}") from error
        except StopIteration:
            raise SourceError(f"{file} has become shorter since the run was planned") from None
        return self._first, self._batch

    def _begin(self, group: int) -> None:
        assert self._file is not None
        self._batches = decoded(self._file, group)
        self._group, self._first, self._batch = group, 0, _NOTHING


def decoded(file: pq.ParquetFile, group: int, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
    """A row group as batches of plain columns, decoded by one thread, since a host has a worker for each core.

    Args:
        file: the file.
        group: index of the row group.
        columns: the columns to read; ``None`` for all.
    """
    plain = {name: kind for name, kind in _plain_types(file).items() if columns is None or name in columns}
    for batch in file.iter_batches(BATCH_ROWS, row_groups=[group], columns=columns, use_threads=False):
        yield _with_types(batch, plain)


def plain_schema(file: pq.ParquetFile) -> pa.Schema:
    """The columns of a file, of the types that they are decoded to."""
    plain = _plain_types(file)
    return pa.schema([pa.field(field.name, plain.get(field.name, field.type)) for field in file.schema_arrow])


def column_of(file: pq.ParquetFile, group: int, column: str) -> pa.RecordBatch:
    """One column of a row group, of the same type as in the rows of ``RowGroupReader``."""
    table = file.read_row_group(group, columns=[column], use_threads=False).select([column]).combine_chunks()
    [batch] = table.to_batches() or [pa.RecordBatch.from_pylist([], table.schema)]
    return _with_types(batch, {name: kind for name, kind in _plain_types(file).items() if name == column})


def open_file(name: str, content: str) -> pq.ParquetFile:
    """Open a Parquet file.

    Args:
        name: path or URI of the file.
        content: the file's fingerprint; empty if it is not checked.

    Raises:
        SourceError: the file was replaced.
    """
    filesystem, path = locate(name)
    if content and (found := fingerprint(filesystem, path)) != content:
        raise SourceError(
            f"{name} has been replaced since the run was planned (got {found}, expected {content}), so that "
            "rows of both would be mixed; put the old file back and resume, or run the flow anew"
        )
    return pq.ParquetFile(path, filesystem=filesystem, coerce_int96_timestamp_unit="us", pre_buffer=False)


def fingerprint(filesystem: fs.FileSystem, name: str) -> str:
    """Identify the content of a Parquet file by its size and footer, without reading its rows."""
    with filesystem.open_input_file(name) as file:
        size: int = file.size()
        length = int.from_bytes(file.read_at(4, size - 8), "little")
        footer = file.read_at(length, size - 8 - length)
    return f"{size:,} bytes, footer {hashlib.blake2b(footer, digest_size=8).hexdigest()}"


def _plain_types(file: pq.ParquetFile) -> dict[str, pa.DataType]:
    """The columns to convert, with their types: dictionaries are decoded, and Spark's INT96 becomes an instant."""
    leaves = iter([file.schema.column(index).physical_type for index in range(len(file.schema))])
    kinds = {field.name: _plain_type(field.type, leaves) for field in file.schema_arrow}
    return {field.name: kinds[field.name] for field in file.schema_arrow if kinds[field.name] != field.type}


def _plain_type(kind: pa.DataType, leaves: Iterator[str]) -> pa.DataType:
    """The type for a column, or a part of one, given the physical types of Parquet's columns from there on."""
    if isinstance(kind, pa.BaseExtensionType):
        _plain_type(kind.storage_type, leaves)
        return kind
    if pa.types.is_dictionary(kind):
        return _plain_type(kind.value_type, leaves)
    if pa.types.is_struct(kind):
        fields = [kind.field(number) for number in range(kind.num_fields)]
        return pa.struct([field.with_type(_plain_type(field.type, leaves)) for field in fields])
    if pa.types.is_map(kind):
        key = _plain_type(kind.key_type, leaves)
        return pa.map_(key, kind.item_field.with_type(_plain_type(kind.item_type, leaves)))
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_plain_type(kind.value_type, leaves)))
    if pa.types.is_large_list(kind):
        return pa.large_list(kind.value_field.with_type(_plain_type(kind.value_type, leaves)))
    if pa.types.is_fixed_size_list(kind):
        return pa.list_(kind.value_field.with_type(_plain_type(kind.value_type, leaves)), kind.list_size)
    return pa.timestamp("us", "UTC") if next(leaves, "") == "INT96" else kind


def _with_types(batch: pa.RecordBatch, types: dict[str, pa.DataType]) -> pa.RecordBatch:
    for name, kind in types.items():
        batch = batch.set_column(batch.schema.get_field_index(name), name, batch.column(name).cast(kind))
    return batch
