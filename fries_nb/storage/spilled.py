"""What a host moves out of memory to its own disk: batches that wait, and states. No file remains, however it ends.

Batches are memory-mapped, so the system loads and evicts them as needed; a file is unlinked as soon as it is mapped. A
file for states has no name from the start on.

>>> file = SpillFile()
>>> file.write(b"abcdef", 0), file.write(b"XY", 2), file.read(1, 4)
(None, None, b'bXYe')

They are in the first directory of ``SPARK_LOCAL_DIRS``, which Spark sets from ``spark.local.dir``, or else in that of
temporary files.
"""

from __future__ import annotations

import itertools
import os
import tempfile
from collections.abc import Sequence

import pyarrow as pa

from fries_nb.errors import RunError


def spill_directory() -> str:
    """Where a host has its scratch space."""
    return os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0] or tempfile.gettempdir()


class SpillFile:
    """A file for states that are not in memory.

    Raises:
        OSError: it cannot be made.
    """

    def __init__(self) -> None:
        directory = spill_directory()
        self._file = tempfile.TemporaryFile(prefix="fries-states-", dir=directory, buffering=0)  # noqa: SIM115 - kept

    def write(self, content: bytes, start: int) -> None:
        """Write all of it from this position on; raises an ``OSError`` if that fails."""
        left = memoryview(content)
        while left:  # as a disk gets full, less is written before it fails
            written = os.pwrite(self._file.fileno(), left, start)
            left, start = left[written:], start + written

    def read(self, start: int, length: int) -> bytes:
        """At most so many bytes from this position on; raises an ``OSError`` if that fails."""
        return os.pread(self._file.fileno(), length, start)


def spilled(batches: Sequence[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """The same batches, mapped from a file in the host's scratch space (Spark's, if configured)."""
    directory = spill_directory()
    try:
        alike = itertools.groupby(batches, _schema)
        return [batch for schema, some in alike for batch in _mapped(schema, list(some), directory)]
    except OSError as error:
        raise RunError(f"tuples that wait cannot be spilled to {directory}: {error}") from error


def _schema(batch: pa.RecordBatch) -> pa.Schema:
    return batch.schema


def _mapped(schema: pa.Schema, batches: Sequence[pa.RecordBatch], directory: str) -> list[pa.RecordBatch]:
    with tempfile.NamedTemporaryFile(prefix="fries-spill-", dir=directory) as file:
        with pa.ipc.new_stream(pa.PythonFile(file, mode="w"), schema) as stream:
            for batch in batches:
                stream.write_batch(batch)
        file.flush()
        with pa.memory_map(file.name) as mapped:
            return list(pa.ipc.open_stream(mapped))
