"""The division of the rows of Parquet files into splits: contiguous pieces, or blocks that are dealt in turn.

>>> Span("a.parquet", row_group=1, start=0, rows=4)
Span(file='a.parquet', row_group=1, start=0, rows=4, content='', least=None, cut=False)
>>> [[(span.start, span.rows) for span in spans] for spans in deal([Span("a", 0, 0, 10)], parts=2, block=3)]
[[(0, 3), (6, 3)], [(3, 3), (9, 1)]]
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

from fries_nb.connectors.row_groups import fingerprint
from fries_nb.connectors.spark_columns import misread_in
from fries_nb.connectors.time_column import TimeColumn
from fries_nb.dataflow.event_time import NS_PER_S
from fries_nb.dataflow.hidden_columns import HIDDEN
from fries_nb.errors import SourceError
from fries_nb.progress.times import EARLIEST, LATEST
from fries_nb.storage.delta import refuse_delta
from fries_nb.storage.locations import is_local, locate

BLOCK_ROWS = 8_192
"""Number of rows of a block that is dealt to a split; smaller for few rows, larger for very many."""

UNCUT_ROWS = 131_072
"""Maximum number of rows of a row group that is a block by itself."""

BLOCKS_PER_SPLIT = 512
"""Maximum number of blocks of a split, which limits the size of the plan of a large source."""


class Span(msgspec.Struct, frozen=True, omit_defaults=True):
    """Consecutive rows of one row group.

    Attributes:
        file: path or URI of the file.
        row_group: index of the row group.
        start: index of the first row within the row group.
        rows: number of rows.
        content: the file's fingerprint, or empty.
        least: the least time of the row group's rows; ``None`` if it is not known.
        cut: whether the row group was cut into blocks, so that several workers decode it.
    """

    file: str
    row_group: int
    start: int
    rows: int
    content: str = ""
    least: int | None = None
    cut: bool = False


def plan_replay(path: str, parts: int, may_be_empty: bool = False) -> list[tuple[Span, ...]]:
    """Divide the rows of a Parquet file or directory into contiguous parts of equal length.

    Args:
        path: path of the file or directory.
        parts: number of parts.
        may_be_empty: whether there may be no files.

    Returns:
        The spans of each part, in order.

    Raises:
        SourceError: there is no such path, or it holds something other than Parquet files of one schema, or no files.
    """
    groups = list(_row_groups(path, may_be_empty))
    total = sum(group.rows for group in groups)
    cuts = [total * part // parts for part in range(parts + 1)]
    return [tuple(_between(groups, first, last)) for first, last in itertools.pairwise(cuts)]


def timed_row_groups(path: str, column: TimeColumn, may_be_empty: bool = False) -> list[Span]:
    """All row groups of a Parquet file or directory, with their least times where the statistics have them.

    Args:
        path: path of the file or directory.
        column: the column with the times.
        may_be_empty: whether there may be no files.

    Raises:
        SourceError: as ``plan_replay``, or the files have no such times.
    """
    return list(_row_groups(path, may_be_empty, column))


def deal(groups: Iterable[Span], parts: int, block: int) -> list[list[Span]]:
    """Divide rows into blocks of consecutive ones, and deal these to the parts in turn.

    Args:
        groups: the row groups, in order.
        parts: number of parts.
        block: number of rows of a block.

    Returns:
        The spans of each part, in order.
    """
    dealt: list[list[Span]] = [[] for _ in range(parts)]
    begin = 0
    for group in groups:
        start = begin
        while start < begin + group.rows:
            stop = min(start - start % block + block, begin + group.rows)
            span = replace(group, start=start - begin, rows=stop - start, cut=stop - start < group.rows)
            dealt[start // block % parts].append(span)
            start = stop
        begin += group.rows
    return dealt


def block_rows(groups: Sequence[Span], parts: int) -> int:
    """The number of rows of a block, so that each part gets a fair share and not too many blocks.

    Small row groups of one size are not cut, so that each is decoded by one worker.

    >>> [block_rows([Span("a", 0, 0, rows)], 16) for rows in (20, 1_000, 10**7, 10**9)]
    [1, 62, 8192, 122071]
    >>> block_rows([Span("a", number, 0, 20_000) for number in range(10)] + [Span("a", 10, 0, 7)], 16)
    20000

    Args:
        groups: the row groups, in order.
        parts: number of parts.
    """
    total = sum(group.rows for group in groups)
    least = -(-total // (parts * BLOCKS_PER_SPLIT))
    whole = groups[0].rows if groups else 0
    if max(BLOCK_ROWS, least) <= whole <= min(UNCUT_ROWS, 2 * total // parts):
        begins = itertools.accumulate((group.rows for group in groups[:-1]), initial=0)
        if all(begin % whole == 0 and group.rows <= whole for begin, group in zip(begins, groups, strict=True)):
            return whole
    return max(1, min(BLOCK_ROWS, total // parts), least)


def behind(spans: Iterable[Span], rows: int) -> Iterator[Span]:
    """The spans without their first ``rows`` rows.

    >>> list(behind([Span("a", 0, 10, 5), Span("a", 1, 0, 4)], 7))
    [Span(file='a', row_group=1, start=2, rows=2, content='', least=None, cut=False)]
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


def _row_groups(path: str, may_be_empty: bool, column: TimeColumn | None = None) -> Iterator[Span]:
    try:
        filesystem, root = locate(path)
        refuse_delta(path, "fn.replay(deltalake.DeltaTable(path).to_pyarrow_table())")
        files = _files(path, filesystem, root)
    except (OSError, ValueError) as error:
        raise SourceError(f"cannot look at {path}: {error}") from error
    if not files and not may_be_empty:
        raise SourceError(f"{path} holds no Parquet files; a replay needs at least one, which may have no rows")
    first: tuple[str, pa.Schema] | None = None
    for name in files:
        # hosts need the name of the file system, too
        place = name if is_local(path) else path.rstrip("/") + name.removeprefix(root.rstrip("/"))
        metadata, schema = _footer(filesystem, name)
        first = first or (name, schema)
        if not schema.equals(first[1]):
            raise SourceError(f"{name} has other columns than {first[0]}; a replay needs files of one schema")
        content = fingerprint(filesystem, name)
        if column is not None:
            column.type_in(schema)  # refuses it
        for index in range(metadata.num_row_groups):
            group = metadata.row_group(index)
            least = None if column is None else _least_time(group, schema, column.name)
            yield Span(place, index, 0, group.num_rows, content, least)


def _least_time(group: pq.RowGroupMetaData, schema: pa.Schema, column: str) -> int | None:
    """The least time by the statistics; ``None`` if there are none, or the times have to be looked at.

    As those of unsigned integers and INT96, whose statistics have another order, or no times and ones out of range,
    which are refused.
    """
    chunks = [group.column(index) for index in range(group.num_columns)]
    statistics = [chunk.statistics for chunk in chunks if chunk.path_in_schema == column and chunk.is_stats_set]
    unit = _unit(schema.field(column).type)
    if len(statistics) != 1 or unit is None or statistics[0].physical_type not in ("INT32", "INT64"):
        return None
    [found] = statistics
    if not found.has_min_max or not found.has_null_count or found.null_count:
        return None
    least, latest = found.min_raw * unit, found.max_raw * unit
    return least if least >= EARLIEST and latest <= LATEST else None


def _unit(kind: pa.DataType) -> int | None:
    """The unit of a stored time: nanoseconds, or 1 for signed integers; ``None`` for other types."""
    if pa.types.is_signed_integer(kind):
        return 1
    if pa.types.is_timestamp(kind):
        return {"ms": 1_000_000, "us": 1_000, "ns": 1}.get(kind.unit)
    return 86_400 * NS_PER_S if pa.types.is_date32(kind) else None


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
        schema = metadata.schema.to_arrow_schema()
    except (OSError, pa.ArrowException) as error:
        reason = str(error).splitlines()[0]
        raise SourceError(f"{posixpath.basename(name)} is not a readable Parquet file ({name}: {reason})") from error
    if refused := misread_in(metadata):
        raise SourceError(f"{name}: {refused} in Spark")
    for hidden in HIDDEN:
        if hidden in schema.names:
            raise SourceError(f"{name} has a column {hidden}, a name that fries_nb keeps for itself; rename or drop it")
    if twice := [column for column, count in Counter(schema.names).items() if count > 1]:
        raise SourceError(f"{name} has several columns {twice[0]!r}; a row is a dict, with one value a name")
    return metadata, schema
