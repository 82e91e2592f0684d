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
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import partial, reduce
from itertools import count

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from fries_nb.connectors.part_writer import PartWriter
from fries_nb.connectors.partitioned_writer import PartitionedWriter
from fries_nb.connectors.sink import Sink, SinkWriter
from fries_nb.errors import SinkError
from fries_nb.messages import WorkerId
from fries_nb.storage import delta, manifest
from fries_nb.storage.delta_columns import TableColumns
from fries_nb.storage.locations import join, locate, name_at
from fries_nb.storage.part_files import PartName
from fries_nb.storage.schemas import unified


class ParquetSink(Sink):
    """Part files in a directory; a part becomes visible when it is committed.

    Args:
        path: the directory, local or a URI that the driver and all hosts reach.

    Attributes:
        path: the directory.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._run = ""  # until it is claimed
        self._columns: pa.Schema | None = None  # columns of committed and prepared parts; read on first use

    def claim(self, flow: str, run: str) -> None:
        """Make the directory a target of this flow, and complete interrupted commits of its earlier runs.

        Args:
            flow: name of the flow.
            run: id of the run, which identifies its output.

        Raises:
            SinkError: the directory holds data that this flow did not write, or cannot be written.
        """
        manifest.claim(self.path, flow)
        self._run = run

    def open(self, worker: WorkerId, incarnation: int, epoch: int = 1) -> SinkWriter:
        """Open a writer of part files; see ``Sink``."""
        return PartWriter(self.path, worker, incarnation, self._run, epoch)

    def prepare(self, parts: Sequence[str]) -> None:
        """Check that the parts can be read together with committed ones, and are on disk; see ``Sink``."""
        if self._columns is None:
            self._columns = _columns(manifest.committed(self.path, self._run))
        columns = unified(self._columns, _columns(_current_paths(self.path, parts)))
        manifest.prepare(self.path, parts)
        self._columns = columns

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
    """A Delta Lake table; each commit is one transaction of its log. Needs the extra ``delta``.

    Args:
        path: the directory of the table, which may not exist yet.
        partition_by: the columns by which it is partitioned.
    """

    def __init__(self, path: str, partition_by: Sequence[str] = ()) -> None:
        super().__init__(path)
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
    by_schema = {PartName.read(file).columns: file for file in files}
    return reduce(unified, map(_schema, by_schema.values()), pa.schema([]))


def _schema(file: str) -> pa.Schema:
    filesystem, path = locate(file)
    if filesystem.get_file_info(path).type != fs.FileType.File:
        raise SinkError(f"the part {file} has gone")
    return pq.read_schema(path, filesystem=filesystem).remove_metadata()
