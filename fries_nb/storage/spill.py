"""Spilling of record batches to a host's disk, as memory-mapped files that the system loads and evicts as needed.

Each call writes one file, maps it and unlinks it, so that no file remains, however the process ends.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from itertools import groupby

import pyarrow as pa

from fries_nb.errors import RunError


def spilled(batches: Sequence[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """The same batches, mapped from a file in the host's scratch space (Spark's, if configured).

    Raises:
        RunError: the file cannot be written.
    """
    directory = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0] or tempfile.gettempdir()
    try:
        return [batch for schema, some in groupby(batches, _schema) for batch in _mapped(schema, list(some), directory)]
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
