"""Which rows of a Parquet path each worker of a source replays.

A row stands at (file, row group, row). The rows in file order are cut into as many contiguous, equally long parts as
there are workers, so at most one row group is shared by two neighbours; the cut depends on the files alone, and a
position means the same after a retry.
"""

from __future__ import annotations

import hashlib
import itertools
import posixpath
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from msgspec.structs import replace
from pyarrow import fs

from fries_nb.errors import SourceError
from fries_nb.messages import HIDDEN
from fries_nb.storage.delta import refuse_delta
from fries_nb.storage.locations import is_local, locate


class Position(NamedTuple):
    """Of a row: ``row`` counts from the beginning of its row group."""

    file: str
    row_group: int
    row: int


class Span(msgspec.Struct, frozen=True):
    """Consecutive rows of one row group; ``content`` is the file's fingerprint, unless it was not taken."""

    file: str
    row_group: int
    start: int
    rows: int
    content: str = ""


def plan_replay(path: str, workers: int, may_be_empty: bool = False) -> list[tuple[Span, ...]]:
    """Deals the rows of a Parquet file or directory to workers: entry w is what worker w reads, in order.

    Raises:
        SourceError: there is no such path, it holds something other than Parquet files of one schema, or no rows though
            it may not be empty.
    """
    groups = list(_row_groups(path))
    total = sum(group.rows for group in groups)
    if not total and not may_be_empty:
        raise SourceError(f"{path} holds no rows; a replay needs at least one")
    cuts = [total * worker // workers for worker in range(workers + 1)]
    return [tuple(_between(groups, first, last)) for first, last in itertools.pairwise(cuts)]


def behind(spans: Iterable[Span], rows: int) -> Iterator[Span]:
    """What is left of the spans when their first so many rows are taken away.

    >>> list(behind([Span("a", 0, 10, 5), Span("a", 1, 0, 4)], 7))
    [Span(file='a', row_group=1, start=2, rows=2, content='')]
    """
    for span in spans:
        if rows < span.rows:
            yield replace(span, start=span.start + rows, rows=span.rows - rows)
        rows = max(0, rows - span.rows)


def fingerprint(filesystem: fs.FileSystem, name: str) -> str:
    """Tells contents of a Parquet file apart without its rows: by its size, and its footer, which places them all."""
    with filesystem.open_input_file(name) as file:
        size: int = file.size()
        length = int.from_bytes(file.read_at(4, size - 8), "little")
        footer = file.read_at(length, size - 8 - length)
    return f"{size:,} bytes, footer {hashlib.blake2b(footer, digest_size=8).hexdigest()}"


def _between(groups: list[Span], first: int, last: int) -> Iterator[Span]:
    """The rows number ``first`` to ``last``, counted through all groups."""
    begin = 0
    for group in groups:
        start, stop = max(first - begin, 0), min(last - begin, group.rows)
        if start < stop:
            yield replace(group, start=start, rows=stop - start)
        begin += group.rows


def _row_groups(path: str) -> Iterator[Span]:
    try:
        filesystem, root = locate(path)
        refuse_delta(path, "fn.replay(deltalake.DeltaTable(path).to_pyarrow_table())")
        files = _files(path, filesystem, root)
    except (OSError, ValueError) as error:
        raise SourceError(f"cannot look at {path}: {error}") from error
    first: tuple[str, pa.Schema] | None = None
    for name in files:
        # what hosts are told must name the file system too
        place = name if is_local(path) else path.rstrip("/") + name.removeprefix(root.rstrip("/"))
        metadata, schema = _footer(filesystem, name)
        first = first or (name, schema)
        if not schema.equals(first[1]):
            raise SourceError(f"{name} has other columns than {first[0]}; a replay needs files of one schema")
        content = fingerprint(filesystem, name)
        for index in range(metadata.num_row_groups):
            yield Span(place, index, 0, metadata.row_group(index).num_rows, content)


def _files(path: str, filesystem: fs.FileSystem, root: str) -> list[str]:
    found = filesystem.get_file_info(root)
    if found.type == fs.FileType.NotFound:
        raise SourceError(f"there is no {path}; expected a Parquet file or a directory of them")
    if found.type == fs.FileType.File:
        return [root]
    inside = filesystem.get_file_info(fs.FileSelector(root, recursive=True))
    names = []
    for entry in sorted(inside, key=lambda entry: entry.path):
        steps = entry.path.removeprefix(root).strip("/").split("/")
        if any(step.startswith(("_", ".")) for step in steps) or entry.type != fs.FileType.File:
            continue  # Spark's own notes, and files that are still being written
        if partition := next((step for step in steps[:-1] if "=" in step), None):
            raise SourceError(f"{path} is partitioned ({partition}); replay the DataFrame spark.read.parquet(path)")
        names.append(entry.path)
    return names


def _footer(filesystem: fs.FileSystem, name: str) -> tuple[pq.FileMetaData, pa.Schema]:
    try:
        metadata = pq.read_metadata(name, filesystem=filesystem)
    except (OSError, pa.ArrowException) as error:
        reason = str(error).splitlines()[0]
        raise SourceError(f"{posixpath.basename(name)} is not a readable Parquet file ({name}: {reason})") from error
    schema = metadata.schema.to_arrow_schema()
    for hidden in HIDDEN:
        if hidden in schema.names:
            raise SourceError(f"{name} has a column {hidden}, a name that fries_nb keeps for itself; rename or drop it")
    if twice := [column for column, count in Counter(schema.names).items() if count > 1]:
        raise SourceError(f"{name} has several columns {twice[0]!r}; a row is a dict, with one value a name")
    return metadata, schema
