"""Writer of the Parquet part files of one sink worker, which the driver commits (see ``storage.manifest``).

A part is written under ``<path>/_fries/pending``, which readers ignore, and closed at a commit marker. Rows are
collected into row groups of ``GROUP_ROWS``, since batches may be of a single row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from fries_nb.dataflow.held_types import HeldBy, NotHeldError, converted_batch, held_columns
from fries_nb.dataflow.hidden_columns import HIDDEN
from fries_nb.errors import SinkError
from fries_nb.messages import WorkerId
from fries_nb.storage.locations import join, locate
from fries_nb.storage.part_files import PartName, fingerprint, pending
from fries_nb.storage.schemas import fitted, unified

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

    Attributes:
        count: number of rows.
    """

    def __init__(self) -> None:
        self.count = 0
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

    Args:
        path: the target directory, local or a URI; the same for all workers.
        worker: the sink's worker.
        incarnation: incarnation of the run; part of the file names.
        run: name of the run; part of the file names.
        epoch: epoch of the topology in which the worker was added; part of the file names.
        keep_hidden: whether the columns named in ``hidden_columns.HIDDEN`` are written as well.
        fit: converts each batch to the types of the target's columns, or raises a ``SinkError``.
        serials: numbers of the parts, if the worker has several writers; ``None`` for 1, 2, 3, ...

    Attributes:
        columns: all columns written so far, which are those of the current part.

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
        self._path = path
        self._worker = worker
        self._incarnation = incarnation
        self._run = run
        self._epoch = epoch
        self._fit = fit
        self._hidden = () if keep_hidden else HIDDEN
        self._filesystem, self._directory = locate(pending(path))
        self._seen: pa.Schema | None = None  # schema of the last batch
        self._held = self._seen
        self.columns = pa.schema([])
        self._rows = RowBuffer()
        self._writer: pq.ParquetWriter | None = None
        self._name = ""
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
        """The batch in the types in which files hold its columns; a part ends if it cannot hold them.

        Raises:
            NotHeldError: a column, or a value, is not held.
        """
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


def part_writer(file: str, columns: pa.Schema, filesystem: fs.FileSystem) -> pq.ParquetWriter:
    """Open a Parquet writer.

    Args:
        file: path of the part within the file system.
        columns: schema of the part, in types that files hold.
        filesystem: the file system.
    """
    return pq.ParquetWriter(file, columns, filesystem=filesystem)
