"""Files of rows for directories that grow, and their readers."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.parquet as pq
from source_contract import NOW, shipped

from fries_nb.connectors.files import FilesReader, FilesSource
from fries_nb.connectors.source import Position

LONG_AGO_S = 1_500_000_000
TEXT = ("csv", "json")


def opened(path: Path, format: str, position: Position | None = None, **options: Any) -> FilesReader:
    """The reader of the only split, on a host."""
    source = FilesSource("S", str(path), format, most_splits=1, **options)
    there, (split,) = shipped(source, tuple(source.splits(1)))
    reader = there.open(split, position or Position())
    assert isinstance(reader, FilesReader)
    return reader


def rows_of(reader: FilesReader, now_ns: int = NOW, limit: int = 100) -> list[dict[str, Any]]:
    """All that can be read now."""
    rows: list[dict[str, Any]] = []
    while reader.position is not None and (batch := reader.read(limit, now_ns)) is not None:
        rows += batch.to_pylist()
    return rows


def write_rows(path: Path, rows: Sequence[dict[str, Any]], modified_s: float = LONG_AGO_S) -> None:
    """Write a file in the format of its ending, and rename it when it is whole."""
    draft = path.with_name(f"_{path.name}")
    path.parent.mkdir(parents=True, exist_ok=True)
    table = pa.Table.from_pylist(list(rows))
    if path.suffix == ".parquet":
        pq.write_table(table, draft, row_group_size=3)
    elif path.suffix == ".csv":
        pc.write_csv(table, draft)
    else:
        draft.write_text("".join(json.dumps(row) + "\n" for row in rows))
    os.utime(draft, ns=(int(modified_s * 1e9), int(modified_s * 1e9)))
    draft.rename(path)
