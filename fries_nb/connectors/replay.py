"""A source that replays Parquet files, in order.

The rows in file order are divided into splits of equal length, independent of the number of hosts. Two consecutive
splits share at most one row group.

>>> Span("a.parquet", row_group=1, start=0, rows=4)
Span(file='a.parquet', row_group=1, start=0, rows=4, content='')
"""

from __future__ import annotations

import itertools
import posixpath
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from msgspec.structs import replace
from pyarrow import fs

from fries_nb.connectors.row_groups import RowGroupReader, fingerprint
from fries_nb.connectors.source import Position, Split
from fries_nb.dataflow.hidden_columns import HIDDEN
from fries_nb.errors import SourceError
from fries_nb.storage.delta import refuse_delta
from fries_nb.storage.locations import is_local, locate


class Span(msgspec.Struct, frozen=True):
    """Consecutive rows of one row group; ``content`` is the file's fingerprint, or empty."""

    file: str
    row_group: int
    start: int
    rows: int
    content: str = ""


class ReplaySource:
    """The rows of a Parquet file, or of all Parquet files of one schema in a directory and its subdirectories.

    Args:
        path: a local path, or a URI that all hosts can read; not needed to open splits.
        may_be_empty: whether an empty source is allowed.
    """

    def __init__(self, path: str = "", may_be_empty: bool = False) -> None:
        self._path = path
        self._may_be_empty = may_be_empty
        self._groups: RowGroupReader | None = None

    def __repr__(self) -> str:
        return f"the replay of {self._path}"

    def splits(self, count: int) -> list[Split]:
        """Divide the rows into splits of equal length; see ``Source``."""
        first, splits = 0, []
        for number, spans in enumerate(plan_replay(self._path, count, self._may_be_empty)):
            splits.append(Split(number, msgspec.to_builtins(spans), first, step=1))
            first += sum(span.rows for span in spans)
        return splits

    def open(self, split: Split, position: Position) -> ReplayReader:
        """Open a split; see ``Source``. Splits that share a row group decode it once, if read in order."""
        if self._groups is None:
            self._groups = RowGroupReader()
        return ReplayReader(msgspec.convert(split.content, tuple[Span, ...]), position, self._groups)


class ReplayReader:
    """Reads spans of Parquet files, in order.

    Args:
        spans: all rows of the split.
        position: position of the first row to read; earlier row groups are not decoded.
        groups: decodes row groups.

    Attributes:
        position: position of the next row; see ``SplitReader``.
    """

    def __init__(self, spans: Sequence[Span], position: Position, groups: RowGroupReader) -> None:
        self._ahead = list(behind(spans, position.row))
        self._groups = groups
        self.position = position if self._ahead else None

    def read(self, limit: int, now_ns: int) -> pa.RecordBatch:
        """Read the next rows, as many as are decoded together; see ``SplitReader``.

        Raises:
            SourceError: a file is missing, damaged, or was replaced.
        """
        span = self._ahead[0]
        batch = self._groups.rows(span.file, span.content, span.row_group, span.start, min(limit, span.rows))
        self._ahead[:1] = behind([span], batch.num_rows)
        assert self.position is not None, "a split is not read at its end"
        self.position = Position(self.position.row + batch.num_rows) if self._ahead else None
        return batch


def plan_replay(path: str, parts: int, may_be_empty: bool = False) -> list[tuple[Span, ...]]:
    """Divide the rows of a Parquet file or directory into contiguous parts of equal length.

    Args:
        path: path of the file or directory.
        parts: number of parts.
        may_be_empty: whether an empty source is allowed.

    Returns:
        The spans of each part, in order.

    Raises:
        SourceError: there is no such path, it holds something other than Parquet files of one schema, or no rows though
            an empty source is not allowed.
    """
    groups = list(_row_groups(path))
    total = sum(group.rows for group in groups)
    if not total and not may_be_empty:
        raise SourceError(f"{path} holds no rows; a replay needs at least one")
    cuts = [total * part // parts for part in range(parts + 1)]
    return [tuple(_between(groups, first, last)) for first, last in itertools.pairwise(cuts)]


def behind(spans: Iterable[Span], rows: int) -> Iterator[Span]:
    """The spans without their first ``rows`` rows.

    >>> list(behind([Span("a", 0, 10, 5), Span("a", 1, 0, 4)], 7))
    [Span(file='a', row_group=1, start=2, rows=2, content='')]
    """
    for span in spans:
        if rows < span.rows:
            yield replace(span, start=span.start + rows, rows=span.rows - rows)
        rows = max(0, rows - span.rows)


def _between(groups: list[Span], first: int, last: int) -> Iterator[Span]:
    """The rows ``first`` to ``last`` (exclusive), counted over all row groups."""
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
        # hosts need the name of the file system, too
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
            continue  # Spark's metadata, and files that are being written
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
