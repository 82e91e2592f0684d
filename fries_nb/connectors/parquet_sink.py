"""Sinks of Parquet files: a directory of part files, or a Delta Lake table.

>>> import tempfile
>>> with tempfile.TemporaryDirectory() as path:
...     sink = ParquetSink(path)
...     sink.claim("flow", run="r1")
...     writer = sink.open(WorkerId("scored", 0), incarnation=1)
...     writer.write(pa.RecordBatch.from_pylist([{"n": 1}]))
...     parts = writer.close_part()
...     before = len(manifest.committed(path))
...     sink.prepare(parts)
...     sink.commit(1, parts)
...     before, len(manifest.committed(path))
(0, 1)

Writer of the Parquet part files of one sink worker, which the driver commits (see ``storage.manifest``).

A part is written under ``<path>/_fries/pending``, which readers ignore, and closed at a commit marker. Rows are
collected into row groups of ``GROUP_ROWS``, since batches may be of a single row.

Writer of the parts of a partitioned table: a part has rows of one partition, which its partition columns tell.

>>> rows = pa.record_batch({"day": ["mon", "tue", "mon"], "n": [1, 2, 3]})
>>> [(values, part["n"].to_pylist()) for values, part in divided(rows, ["day"])]
[(('mon',), [1, 3]), (('tue',), [2])]

A sink that appends to a table of Spark's catalogue whose files are Parquet.

Committed parts are moved into the table's directory, as by ``ParquetSink``; then Spark is told to look at it again. The
catalogue has the table's columns, so rows must fit them: a column that the table lacks is refused.

>>> columns = ClosedColumns("the table t", pa.schema({"n": pa.int64(), "name": pa.string()}))
>>> columns.fit(pa.record_batch({"n": pa.array([1], pa.int32())})).schema.types
[DataType(int64)]
>>> columns.fit(pa.record_batch({"m": [1]}))
Traceback (most recent call last):
fries_nb.errors.ColumnError: column 'm' is not in the table t, which has n, name; add it to the table, or drop ...
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import partial, reduce
from itertools import count, pairwise
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from fries_nb.connectors.sink import RuntimeSink, SinkWriter, WrittenColumns, of_user
from fries_nb.dataflow.columns import HIDDEN, HeldBy, NotHeldError, converted_batch, held_columns
from fries_nb.errors import ColumnError, SinkError
from fries_nb.protocol.messages import WorkerId
from fries_nb.storage import delta, manifest
from fries_nb.storage.delta import TableColumns
from fries_nb.storage.durable import join, locate, name_at
from fries_nb.storage.part_files import PartName, fingerprint, fitted, pending, unified

GROUP_ROWS = 32_768
"""Number of rows of a row group, which is the maximum that a sink holds in memory."""
MERGED = 128
"""Number of batches that are merged into one."""


def as_it_comes(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the batch unchanged: files take all column types that Spark reads."""
    return batch


class RowBuffer:
    """Rows of one schema that wait in memory.

    Small batches are merged early, since writing thousands of them at a commit would delay tuples.
    """

    def __init__(self) -> None:
        self.count = 0  # number of rows
        self._merged: list[pa.RecordBatch] = []
        self._recent: list[pa.RecordBatch] = []

    def add(self, batch: pa.RecordBatch) -> None:
        """Add rows."""
        self.count += batch.num_rows
        self._recent.append(batch)
        if len(self._recent) >= MERGED:
            self._merged.append(pa.concat_batches(self._recent))
            self._recent = []

    def take(self) -> pa.RecordBatch:
        """Remove all rows, at least one, and return them as one batch."""
        rows = pa.concat_batches(self._merged + self._recent)
        self.count, self._merged, self._recent = 0, [], []
        return rows


class PartWriter:
    """The part files of one sink worker.

    A schema may change from batch to batch within the bounds of ``schemas.unified``. If the current part cannot hold
    the wider schema, a new part is begun.

    Raises:
        SinkError: from every method: rows have no column, a column changed its type, or the file system failed.
    """

    def __init__(
        self,
        path: str,
        worker: WorkerId,
        incarnation: int,
        run: str,
        epoch: int = 1,
        keep_hidden: bool = False,
        fit: Callable[[pa.RecordBatch], pa.RecordBatch] = as_it_comes,
        serials: Iterator[int] | None = None,
    ) -> None:
        self._path = path  # the target directory, local or a URI; the same for all workers
        self._worker = worker
        self._incarnation = incarnation  # incarnation of the run; part of the file names
        self._run = run  # name of the run; part of the file names
        self._epoch = epoch  # epoch of the topology in which the worker was added; part of the file names
        self._fit = fit  # converts each batch to the types of the target's columns, or raises a ``SinkError``
        # ``keep_hidden``: whether the columns named in ``columns.HIDDEN`` are written as well
        self._hidden = () if keep_hidden else HIDDEN
        self._filesystem, self._directory = locate(pending(path))
        self._seen: pa.Schema | None = None  # schema of the last batch
        self._held = self._seen
        self.columns = pa.schema([])  # all columns written so far, which are those of the current part
        self._rows = RowBuffer()
        self._writer: pq.ParquetWriter | None = None
        self._name = ""
        # numbers of the parts, if the worker has several writers; ``None`` for 1, 2, 3, ...
        self._serials = serials or count(1)
        self._closed: list[str] = []

    def write(self, batch: pa.RecordBatch) -> None:
        """Add the batch's rows to the current part."""
        if not batch.num_rows:
            return
        if hidden := [name for name in self._hidden if name in batch.schema.names]:
            batch = batch.drop_columns(hidden)
        try:
            batch = self._as_held(self._fit(batch))
        except NotHeldError as error:
            raise SinkError(f"{self._worker} got {error} in an operator") from None
        self._rows.add(batch if batch.schema == self.columns else fitted(batch, self.columns))
        if self._rows.count >= GROUP_ROWS:
            self.write_group()

    def _as_held(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch in the types in which files hold its columns; a part ends if it cannot hold them."""
        if batch.schema is not self._seen and batch.schema != self._seen:
            if not batch.schema.names:
                raise SinkError(f"{self._worker} got rows without a column; return None, not {{}}, to drop a tuple")
            wanted = held_columns(batch.schema, HeldBy.FILES)
            wider = held_columns(unified(self.columns, wanted), HeldBy.FILES)
            self._seen, self._held = batch.schema, wanted
            if wider != self.columns:
                self._end_part()
                self.columns = wider
        assert self._held is not None, "set with the schema"
        return batch if self._held is self._seen else converted_batch(batch, self._held)

    def close_part(self) -> tuple[str, ...]:
        """Close the current part if it has rows; returns the names of all parts closed since the last call."""
        self._end_part()
        closed, self._closed = tuple(self._closed), []
        return closed

    def discard(self) -> None:
        """Delete the parts that ``close_part`` has not returned."""
        self._rows = RowBuffer()
        self._end_part()
        for file in self._closed:
            self._filesystem.delete_file(locate(file)[1])
        self._closed = []

    def _end_part(self) -> None:
        self.write_group()
        if self._writer is not None:
            try:
                self._writer.close()
            except (OSError, pa.ArrowException) as error:
                raise self._failed(error) from error
            self._writer = None
            self._closed.append(self._name)

    def write_group(self) -> None:
        """Write the rows that are in memory to the current part, as a row group."""
        if not self._rows.count:
            return
        try:
            if self._writer is None:
                self._writer = self._open()
            self._writer.write_batch(self._rows.take(), row_group_size=2 * GROUP_ROWS)
        except (OSError, pa.ArrowException) as error:
            raise self._failed(error) from error

    def _open(self) -> pq.ParquetWriter:
        operator, index = self._worker
        serial, columns = next(self._serials), fingerprint(self.columns)
        name = PartName(self._run, operator, index, self._incarnation, serial, columns, self._epoch)
        self._name = join(pending(self._path), str(name))
        self._filesystem.create_dir(self._directory, recursive=True)
        return part_writer(f"{self._directory}/{name}", self.columns, self._filesystem)

    def _failed(self, error: Exception) -> SinkError:
        return SinkError(f"{self._worker} cannot write to {self._path}: {str(error).splitlines()[0]}")


DICTIONARY_BYTES = 16_384
"""Size at which a column of a row group gives up its dictionary, if all columns are numbers, times or booleans.

Looking up values in a dictionary is most of the time of writing numbers, and pays only if there are few of them. With
pyarrow's limit of 1 MiB, a row group of ``GROUP_ROWS`` numbers never gives up. Over the payments of W1 with three more
columns, 16 KiB take 208 ns a row where 1 MiB takes 381, and the files are no larger.
"""
TEXT_DICTIONARY_BYTES = 8 * DICTIONARY_BYTES
"""The same if there are other columns, such as texts. A text that comes a few times in a row group is worth its place
in a dictionary: 5,000 names in a row group are half as large with one, and have 120 KB of it."""


def part_writer(file: str, columns: pa.Schema, filesystem: fs.FileSystem) -> pq.ParquetWriter:
    """Open a Parquet writer, whose columns give up dictionaries that do not pay."""
    limit = DICTIONARY_BYTES if all(map(pa.types.is_primitive, columns.types)) else TEXT_DICTIONARY_BYTES
    return pq.ParquetWriter(file, columns, filesystem=filesystem, dictionary_pagesize_limit=limit)


HELD_ROWS = 4 * GROUP_ROWS
"""Number of rows that are divided at a time, which is the maximum that a sink holds in memory."""
MOST_OPEN = 100
"""Maximum number of parts that are open at a time; if there are rows of more partitions, parts are closed early."""
_KINDS = (
    pa.types.is_null, pa.types.is_string, pa.types.is_integer, pa.types.is_boolean, pa.types.is_date,
    pa.types.is_timestamp,
)  # fmt: skip
"""Types of partition columns; deltalake 1.6 reads a decimal of -0.01 as ``0.-1``."""


class PartitionedWriter:
    """Writes the rows of one sink worker, a part for each partition; see ``SinkWriter``.

    A row without a partition column, or with null in it, is in the partition of null. Rows are divided when there are
    many, or at a commit, since batches may have a row or two of each partition.
    """

    def __init__(
        self,
        table: str,
        by: Sequence[str],
        fit: Callable[[pa.RecordBatch], pa.RecordBatch],
        open_part: Callable[[], PartWriter],
    ) -> None:
        self._table = table  # description of the table, for the messages of errors
        self._by = by
        self._fit = fit  # converts each batch to the types of the table's columns, or raises a ``SinkError``
        self._open_part = open_part
        self._columns = WrittenColumns()
        self._rows = RowBuffer()
        self._writers: dict[tuple[Any, ...], PartWriter] = {}
        self._closed: list[str] = []

    @property
    def columns(self) -> pa.Schema:
        """All columns written so far."""
        return self._columns.schema

    def write(self, batch: pa.RecordBatch) -> None:
        """Add rows to the parts of their partitions."""
        if not batch.num_rows:
            return
        batch, before = self._fit(of_user(batch)), self.columns
        self._columns.note(batch.schema)
        self._check_kinds(batch.schema)
        if self.columns is not before:
            self._divide()
        self._rows.add(batch if batch.schema == self.columns else fitted(batch, self.columns))
        if self._rows.count >= HELD_ROWS:
            self._divide()

    def close_part(self) -> tuple[str, ...]:
        """Close the parts of all partitions."""
        self._divide()
        self._close()
        closed, self._closed = tuple(self._closed), []
        return closed

    def _divide(self) -> None:
        """Write the rows that are in memory to the parts of their partitions."""
        if self._rows.count:
            for values, rows in divided(self._rows.take(), self._by):
                writer = self._writer(values)
                writer.write(rows)
                writer.write_group()

    def _close(self) -> None:
        for writer in self._writers.values():
            self._closed += writer.close_part()
        self._writers = {}

    def _writer(self, values: tuple[Any, ...]) -> PartWriter:
        if values in self._writers:
            return self._writers[values]
        if "" in values:
            raise SinkError(
                f"a row has '' in the column {self._by[values.index('')]!r}, by which {self._table} is partitioned and "
                "which would be read as null; write None or another text in an operator"
            )
        if len(self._writers) == MOST_OPEN:
            self._close()
        self._writers[values] = self._open_part()
        return self._writers[values]

    def _check_kinds(self, schema: pa.Schema) -> None:
        for name in self._by:
            if name in schema.names and not any(is_kind(schema.field(name).type) for is_kind in _KINDS):
                raise SinkError(
                    f"the column {name!r}, by which {self._table} is partitioned, is {schema.field(name).type}; "
                    "expected text, integers, booleans, dates or times; convert it in an operator"
                )


def divided(batch: pa.RecordBatch, by: Sequence[str]) -> Iterator[tuple[tuple[Any, ...], pa.RecordBatch]]:
    """The rows of each partition in their order, with the values of its columns; ``None`` for a column that lacks."""
    codes = np.zeros(batch.num_rows, np.int64)
    for name in by:
        if name in batch.schema.names:
            column = batch.column(name).dictionary_encode("encode")
            codes = codes * len(column.dictionary) + column.indices.to_numpy()
            codes = np.unique(codes, return_inverse=True)[1]  # so that they stay small
    order = np.argsort(codes, kind="stable")
    ends = np.flatnonzero(np.diff(codes[order])) + 1
    for first, last in pairwise([0, *ends.tolist(), batch.num_rows]):
        rows = batch.take(pa.array(order[first:last])) if len(ends) else batch
        yield tuple(rows[name][0].as_py() if name in batch.schema.names else None for name in by), rows


class ParquetSink(RuntimeSink):
    """Part files in a directory; a part becomes visible when it is committed."""

    def __init__(self, path: str) -> None:
        # the directory, local or a URI that the driver and all hosts reach
        self.path = path  # the directory
        self._run = ""  # until it is claimed
        self._columns: pa.Schema | None = None  # columns of committed and prepared parts; read on first use

    def claim(self, flow: str, run: str) -> None:
        """Make the directory a target of this flow, and complete interrupted commits of its earlier runs."""
        manifest.claim(self.path, flow)
        self._run = run

    def open(self, worker: WorkerId, incarnation: int, epoch: int = 1) -> SinkWriter:
        """Open a writer of part files; see ``Sink``."""
        return PartWriter(self.path, worker, incarnation, self._run, epoch)

    def prepare(self, parts: Sequence[str]) -> None:
        """Check that the parts can be read together with committed ones, and are on disk; see ``Sink``."""
        if self._columns is None:
            self._columns = _columns(manifest.committed(self.path, self._run))
        there = list(_current_paths(self.path, parts))
        columns = unified(self._columns, _columns(there))
        manifest.prepare(self.path, parts)
        self._check_whole(columns, there)
        self._columns = columns

    def _check_whole(self, columns: pa.Schema, parts: Sequence[str]) -> None:
        """Check what no worker knows: columns that are alike, and types that widen, in the parts of several of them."""
        assert self._columns is not None, "read before"
        try:
            held_columns(columns, HeldBy.FILES)
        except NotHeldError as error:
            raise SinkError(f"{self.path} would have {error} in an operator") from None
        is_wider = columns.types[: len(self._columns)] != self._columns.types
        check_exact([*parts, *manifest.committed(self.path, self._run)] if is_wider else parts, columns)

    def commit(self, number: int, parts: Sequence[str]) -> None:
        """Write the manifest of the commit, then move the files that it names; see ``Sink``."""
        manifest.commit(self.path, number, parts)

    def recover(self, number: int, parts: Sequence[str]) -> None:
        """Take back the output of later commits, and commit this one; see ``Sink``."""
        manifest.take_back(self.path, self._run, number)
        manifest.commit(self.path, number, parts)

    def discard(self, incarnation: int, spared: Collection[str]) -> None:
        """Delete the parts of the run that no manifest names; see ``Sink``."""
        manifest.sweep(self.path, self._run, incarnation, frozenset(spared))


class DeltaSink(ParquetSink):
    """A Delta Lake table; each commit is one transaction of its log. Needs the extra ``delta``."""

    def __init__(self, path: str, partition_by: Sequence[str] = ()) -> None:
        # ``path``: the directory of the table, which may not exist yet
        super().__init__(path)
        # ``partition_by``: the columns by which it is partitioned
        self._by = tuple(partition_by)
        self._table = pa.schema([])

    def claim(self, flow: str, run: str) -> None:
        """See ``ParquetSink``; raises a SinkError as well for a table that cannot be appended to."""
        manifest.claim(self.path, flow, table=True, partition_by=self._by)
        self._run = run
        self._table = delta.columns(self.path)

    def open(self, worker: WorkerId, incarnation: int, epoch: int = 1) -> SinkWriter:
        """Open a writer of files with the columns that the table had when it was claimed; see ``Sink``."""
        table = f"the Delta table {self.path}"
        fit = TableColumns(table, self._table).fit
        open_part = partial(PartWriter, self.path, worker, incarnation, self._run, epoch)
        if not self._by:
            return open_part(fit=fit)
        return PartitionedWriter(table, self._by, fit, partial(open_part, serials=count(1)))


def _current_paths(path: str, files: Iterable[str]) -> Iterator[str]:
    """The current paths of pending files: those that a commit has moved are in the target itself."""
    filesystem, root = locate(path)
    for file in files:
        moved = f"{root.rstrip('/')}/{name_at(file)}"
        is_moved = filesystem.get_file_info(moved).type == fs.FileType.File
        yield join(path, name_at(file)) if is_moved else file


def _columns(files: Iterable[str]) -> pa.Schema:
    """The union of the files' columns; reads one file for each schema, which the names identify."""
    return reduce(unified, map(_schema, _by_schema(files).values()), pa.schema([]))


def _by_schema(files: Iterable[str]) -> dict[str, str]:
    """A file of each schema, by its fingerprint."""
    return {PartName.read(file).columns: file for file in files}


def check_exact(files: Sequence[str], whole: pa.Schema) -> None:
    """Refuse integers that are not exact as the floats that their column has in other files.

    Each file has its own types, so a worker that writes integers need not know that another one writes floats; what
    reads both makes floats of all. The footers have the extremes of each column.
    """
    leaves = {columns: list(_exact_integers(_schema(file), whole)) for columns, file in _by_schema(files).items()}
    for file in files:
        exact = leaves[PartName.read(file).columns]
        if not any(most for _, most in exact):
            continue
        filesystem, path = locate(file)
        footer = pq.read_metadata(path, filesystem=filesystem)
        for at, (name, most) in enumerate(exact):
            if most and any(abs(value) > most for value in _extremes(footer, at)):
                raise ColumnError(
                    f"column {name!r} has integers beyond {most:,}, which are not exact as floats, and other rows have "
                    "floats there; a column keeps its type, so convert it in the operator",
                    name,
                    whole.serialize().to_pybytes(),
                )


def _exact_integers(schema: pa.Schema, whole: pa.Schema) -> Iterator[tuple[str, int]]:
    """For each leaf, in the order of a file, its column and the greatest integer that is exact; 0 if all are."""
    for field in schema:
        for mine, united in _leaves(field.type, whole.field(field.name).type):
            is_wider = pa.types.is_integer(mine) and pa.types.is_floating(united)
            yield field.name, (2**53 if united == pa.float64() else 2**24) if is_wider else 0


def _leaves(mine: pa.DataType, united: pa.DataType) -> Iterator[tuple[pa.DataType, pa.DataType]]:
    """The types without fields within a type, each with what it has become in a wider one."""
    if not mine.num_fields:
        yield mine, united
    for at in range(mine.num_fields):
        inner = mine.field(at)
        yield from _leaves(inner.type, united.field(inner.name if pa.types.is_struct(mine) else at).type)


def _extremes(footer: pq.FileMetaData, at: int) -> Iterator[int]:
    """The least and the greatest value of a column in each row group that has some."""
    for group in range(footer.num_row_groups):
        found = footer.row_group(group).column(at).statistics
        if found is not None and found.has_min_max:
            yield from (found.min, found.max)


def _schema(file: str) -> pa.Schema:
    filesystem, path = locate(file)
    if filesystem.get_file_info(path).type != fs.FileType.File:
        raise SinkError(f"the part {file} has gone")
    return pq.read_schema(path, filesystem=filesystem).remove_metadata()


class ClosedColumns(TableColumns):
    """The columns of a table to which none can be added."""

    def joined(self, schema: pa.Schema) -> pa.Schema:
        """These columns with their types in the table."""
        for name in schema.names:
            if name not in self.columns.names:
                there = ", ".join(self.columns.names)
                problem = f"is not in {self.table}, which has {there}; add it to the table, or drop it"
                raise self.refused(name, problem)
        return super().joined(schema)


class CatalogEntry(Protocol):
    """A table as the catalogue of the driver's session has it."""

    def check(self) -> None:
        """Raise a ``SinkError`` if the table was dropped."""

    def refresh(self) -> None:
        """Make committed files visible in the table; raises a ``SinkError`` if it was dropped."""


class TableSink(ParquetSink):
    """Appends to a table of Parquet files."""

    def __init__(self, name: str, path: str, columns: pa.Schema, entry: CatalogEntry) -> None:
        super().__init__(path)
        self._name = name
        self._table = columns
        self._entry: CatalogEntry | None = entry  # its entry in the catalogue; used on the driver only

    def __getstate__(self) -> dict[str, Any]:
        """For a host, which has no session."""
        return self.__dict__ | {"_entry": None}

    def claim(self, flow: str, run: str) -> None:
        """Make the table a target of this flow; what it holds already stays. See ``Sink``."""
        self._run = run
        manifest.claim(self.path, flow, beside_others=True)

    def open(self, worker: WorkerId, incarnation: int, epoch: int = 1) -> PartWriter:
        """Open a writer of files with the table's columns; see ``Sink``."""
        fit = ClosedColumns(f"the table {self._name}", self._table).fit
        return PartWriter(self.path, worker, incarnation, self._run, epoch, fit=fit)

    def prepare(self, parts: Sequence[str]) -> None:
        """See ``ParquetSink``; raises a SinkError as well if the table was dropped."""
        self._catalogued.check()
        super().prepare(parts)

    def commit(self, number: int, parts: Sequence[str]) -> None:
        """Make parts rows of the table; see ``Sink``."""
        super().commit(number, parts)
        self._catalogued.refresh()

    def recover(self, number: int, parts: Sequence[str]) -> None:
        """Take back rows of later commits; see ``Sink``."""
        super().recover(number, parts)
        self._catalogued.refresh()

    @property
    def _catalogued(self) -> CatalogEntry:
        assert self._entry is not None, "hosts do not commit"
        return self._entry
