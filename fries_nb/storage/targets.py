"""The targets of a run's sinks, as known to the driver: their directories, and the columns written so far.

Files are checked before the record that makes them output is written: a checkpoint never contains files that could not
be read together with the others, or that a Delta table could not hold, since no run could resume from it.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Iterator, Mapping
from functools import reduce

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from fries_nb.errors import SinkError
from fries_nb.storage import manifest
from fries_nb.storage.locations import join, locate
from fries_nb.storage.part_files import PartName
from fries_nb.storage.schemas import unified


class Targets:
    """The targets of one run.

    Args:
        paths: sink (or operator with dead letters) to its directory.
        run: name of the run, whose output is read together.
    """

    def __init__(self, paths: Mapping[str, str], run: str) -> None:
        self._paths = paths
        self._run = run
        self._columns: dict[str, pa.Schema] = {}

    def prepare(self, sink: str, files: Iterable[str]) -> None:
        """Check that these files can be committed and are durable; idempotent, also after the commit.

        Raises:
            SinkError: they cannot. A ``ColumnError`` if a column has another type than another worker has written.
        """
        path = self._paths[sink]
        if sink not in self._columns:
            self._columns[sink] = _columns(manifest.committed(path, self._run))
        files = list(files)
        whole = unified(self._columns[sink], _columns(_as_they_lie(path, files)))
        manifest.prepare(path, files)
        self._columns[sink] = whole


def _as_they_lie(path: str, files: Iterable[str]) -> Iterator[str]:
    """The paths of the files, whether a commit has moved them into the target or not."""
    filesystem, root = locate(path)
    for file in files:
        moved = f"{root.rstrip('/')}/{posixpath.basename(file)}"
        is_moved = filesystem.get_file_info(moved).type == fs.FileType.File
        yield join(path, posixpath.basename(file)) if is_moved else file


def _columns(files: Iterable[str]) -> pa.Schema:
    """The columns of these files, read from one file for each schema fingerprint."""
    by_schema = {PartName.read(file).columns: file for file in files}
    return reduce(unified, map(_schema, by_schema.values()), pa.schema([]))


def _schema(file: str) -> pa.Schema:
    filesystem, path = locate(file)
    if filesystem.get_file_info(path).type != fs.FileType.File:
        raise SinkError(f"the part {file} has gone")
    return pq.read_schema(path, filesystem=filesystem).remove_metadata()
