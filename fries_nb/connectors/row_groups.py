"""Decoding of row groups of Parquet files, batch by batch; efficient for rows that are read in order.

The division of the rows of Parquet files into splits: contiguous pieces, or blocks that are dealt in turn.

>>> Span("a.parquet", row_group=1, start=0, rows=4)
Span(file='a.parquet', row_group=1, start=0, rows=4, content='', least=None, cut=False)
>>> [[(span.start, span.rows) for span in spans] for spans in deal([Span("a", 0, 0, 10)], parts=2, block=3)]
[[(0, 3), (6, 3)], [(3, 3), (9, 1)]]

Row groups that the source workers of one host decode together.

Workers that are dealt the blocks of a file in turn read the same row groups at about the same time. So what one of them
decodes, the others find here: the last few batches, and the times of the last row groups. A worker that has fallen
behind decodes for itself.
"""

from __future__ import annotations

import hashlib
import itertools
import posixpath
import threading
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from msgspec.structs import replace
from pyarrow import fs

from fries_nb.connectors.file_columns import misread_in
from fries_nb.connectors.source import TimeColumn
from fries_nb.dataflow.columns import HIDDEN
from fries_nb.dataflow.windowing import NS_PER_S
from fries_nb.errors import SourceError
from fries_nb.progress.times import EARLIEST, LATEST
from fries_nb.storage.delta import refuse_delta
from fries_nb.storage.durable import is_local, locate

BATCH_ROWS = 16_384
"""Number of rows that are decoded at a time; a slice of them shares their memory."""

_NOTHING: pa.RecordBatch = pa.RecordBatch.from_pydict({})


class RowGroupReader:
    """Decodes row groups, and caches the last decoded batch, since reads are mostly sequential."""

    def __init__(self) -> None:
        self._name = ""
        self._file: pq.ParquetFile | None = None
        self._group = -1
        self._first = 0  # index of the batch's first row within the row group
        self._batch = _NOTHING
        self._batches: Iterator[pa.RecordBatch] = iter(())

    @property
    def rows_in_group(self) -> int:
        """Number of rows of the row group that was read last; 0 before the first one."""
        return 0 if self._file is None else self._file.metadata.row_group(self._group).num_rows

    def rows(self, file: str, content: str, group: int, start: int, limit: int) -> pa.RecordBatch:
        """Read rows of a row group; returns those of the decoded batch that contains the first one."""
        first, batch = self.batch(file, content, group, start)
        return batch.slice(start - first, limit)

    def batch(self, file: str, content: str, group: int, start: int) -> tuple[int, pa.RecordBatch]:
        """The decoded batch that contains a row, and the index of its first row; see ``rows``."""
        try:
            if file != self._name:
                self._file, self._name, self._group = open_file(file, content), file, -1
            if group != self._group or start < self._first:
                self._begin(group)
            while start >= self._first + self._batch.num_rows:
                self._first += self._batch.num_rows
                self._batch = next(self._batches)
        except (OSError, pa.ArrowException) as error:
            raise SourceError(f"cannot read row group {group} of {file}: {error}") from error
        except StopIteration:
            raise SourceError(f"{file} has become shorter since the run was planned") from None
        return self._first, self._batch

    def _begin(self, group: int) -> None:
        assert self._file is not None
        self._batches = decoded(self._file, group)
        self._group, self._first, self._batch = group, 0, _NOTHING


def decoded(file: pq.ParquetFile, group: int, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
    """A row group as batches of plain columns, decoded by one thread, since a host has a worker for each core."""
    plain = {name: kind for name, kind in _plain_types(file).items() if columns is None or name in columns}
    for batch in file.iter_batches(BATCH_ROWS, row_groups=[group], columns=columns, use_threads=False):
        yield _with_types(batch, plain)


def plain_schema(file: pq.ParquetFile) -> pa.Schema:
    """The columns of a file, of the types that they are decoded to."""
    plain = _plain_types(file)
    return pa.schema([pa.field(field.name, plain.get(field.name, field.type)) for field in file.schema_arrow])


def column_of(file: pq.ParquetFile, group: int, column: str) -> pa.RecordBatch:
    """One column of a row group, of the same type as in the rows of ``RowGroupReader``."""
    table = file.read_row_group(group, columns=[column], use_threads=False).select([column]).combine_chunks()
    [batch] = table.to_batches() or [pa.RecordBatch.from_pylist([], table.schema)]
    return _with_types(batch, {name: kind for name, kind in _plain_types(file).items() if name == column})


def open_file(name: str, content: str) -> pq.ParquetFile:
    """Open a Parquet file."""
    filesystem, path = locate(name)
    if content and (found := fingerprint(filesystem, path)) != content:
        raise SourceError(
            f"{name} has been replaced since the run was planned (got {found}, expected {content}), so that "
            "rows of both would be mixed; put the old file back and resume, or run the flow anew"
        )
    return pq.ParquetFile(path, filesystem=filesystem, coerce_int96_timestamp_unit="us", pre_buffer=False)


def fingerprint(filesystem: fs.FileSystem, name: str) -> str:
    """Identify the content of a Parquet file by its size and footer, without reading its rows."""
    with filesystem.open_input_file(name) as file:
        size: int = file.size()
        length = int.from_bytes(file.read_at(4, size - 8), "little")
        footer = file.read_at(length, size - 8 - length)
    return f"{size:,} bytes, footer {hashlib.blake2b(footer, digest_size=8).hexdigest()}"


def _plain_types(file: pq.ParquetFile) -> dict[str, pa.DataType]:
    """The columns to convert, with their types: dictionaries are decoded, and Spark's INT96 becomes an instant."""
    leaves = iter([file.schema.column(index).physical_type for index in range(len(file.schema))])
    kinds = {field.name: _plain_type(field.type, leaves) for field in file.schema_arrow}
    return {field.name: kinds[field.name] for field in file.schema_arrow if kinds[field.name] != field.type}


def _plain_type(kind: pa.DataType, leaves: Iterator[str]) -> pa.DataType:
    """The type for a column, or a part of one, given the physical types of Parquet's columns from there on."""
    if isinstance(kind, pa.BaseExtensionType):
        _plain_type(kind.storage_type, leaves)
        return kind
    if pa.types.is_dictionary(kind):
        return _plain_type(kind.value_type, leaves)
    if pa.types.is_struct(kind):
        fields = [kind.field(number) for number in range(kind.num_fields)]
        return pa.struct([field.with_type(_plain_type(field.type, leaves)) for field in fields])
    if pa.types.is_map(kind):
        key = _plain_type(kind.key_type, leaves)
        return pa.map_(key, kind.item_field.with_type(_plain_type(kind.item_type, leaves)))
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_plain_type(kind.value_type, leaves)))
    if pa.types.is_large_list(kind):
        return pa.large_list(kind.value_field.with_type(_plain_type(kind.value_type, leaves)))
    if pa.types.is_fixed_size_list(kind):
        return pa.list_(kind.value_field.with_type(_plain_type(kind.value_type, leaves)), kind.list_size)
    return pa.timestamp("us", "UTC") if next(leaves, "") == "INT96" else kind


def _with_types(batch: pa.RecordBatch, types: dict[str, pa.DataType]) -> pa.RecordBatch:
    for name, kind in types.items():
        batch = batch.set_column(batch.schema.get_field_index(name), name, batch.column(name).cast(kind))
    return batch


BLOCK_ROWS = 8_192
"""Number of rows of a block that is dealt to a split; smaller for few rows, larger for very many."""

UNCUT_ROWS = 131_072
"""Maximum number of rows of a row group that is a block by itself."""

BLOCKS_PER_SPLIT = 512
"""Maximum number of blocks of a split, which limits the size of the plan of a large source."""


class Span(msgspec.Struct, frozen=True, omit_defaults=True):
    """Consecutive rows of one row group."""

    file: str  # path or URI of the file
    row_group: int  # index of the row group
    start: int  # index of the first row within the row group
    rows: int  # number of rows
    content: str = ""  # the file's fingerprint, or empty
    least: int | None = None  # the least time of the row group's rows; ``None`` if it is not known
    cut: bool = False  # whether the row group was cut into blocks, so that several workers decode it


def plan_replay(path: str, parts: int, may_be_empty: bool = False) -> list[tuple[Span, ...]]:
    """The spans of contiguous parts of equal length, in order, of a Parquet file or directory."""
    groups = list(_row_groups(path, may_be_empty))
    total = sum(group.rows for group in groups)
    cuts = [total * part // parts for part in range(parts + 1)]
    return [tuple(_between(groups, first, last)) for first, last in itertools.pairwise(cuts)]


def timed_row_groups(path: str, column: TimeColumn, may_be_empty: bool = False) -> list[Span]:
    """All row groups of a Parquet file or directory, with their least times where the statistics have them."""
    return list(_row_groups(path, may_be_empty, column))


def deal(groups: Iterable[Span], parts: int, block: int) -> list[list[Span]]:
    """The spans of each part, in order, if blocks of consecutive rows are dealt to the parts in turn."""
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
    """The least time by the statistics; ``None`` if there are none, or the times have to be looked at."""
    # As those of unsigned integers and INT96, whose statistics have another order, or no times and ones out of range,
    # which are refused.
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


RECENT_BATCHES = 4
"""Number of decoded batches that are kept."""

RECENT_GROUPS = 2
"""Number of row groups whose times are kept."""

_Key = tuple[str, int]


class SharedRowGroups:
    """Decoded batches and times of row groups, shared by the source workers of one host.

    Pickled without what it holds.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._reader = RowGroupReader()
        self._farthest: tuple[str, int, int] = ("", -1, 0)
        self._content = ""
        self._batches: deque[tuple[_Key, int, pa.RecordBatch]] = deque(maxlen=RECENT_BATCHES)
        self._times: deque[tuple[_Key, pa.Array]] = deque(maxlen=RECENT_GROUPS)
        self._file: tuple[str, pq.ParquetFile] | None = None

    def __reduce__(self) -> tuple[type[SharedRowGroups], tuple[()]]:
        return SharedRowGroups, ()

    def batch(self, file: str, content: str, group: int, start: int) -> tuple[int, pa.RecordBatch] | None:
        """The decoded batch that contains a row, and the index of its first row; ``None`` if it is no longer kept."""
        with self._lock:
            for key, first, batch in self._batches:
                if key == (file, group) and first <= start < first + batch.num_rows:
                    return first, batch
            if (file, group, start) < self._farthest:
                return None
            return self._decode_until(file, content, group, start)

    def _decode_until(self, file: str, content: str, group: int, start: int) -> tuple[int, pa.RecordBatch]:
        """Decode batch after batch, and keep them: one that this worker skips is another's."""
        if self._farthest[:2] != (file, group):
            self._decode_rest()
            self._farthest, self._content = (file, group, 0), content
        while True:
            first, batch = self._decode_next()
            if start < first + batch.num_rows:
                return first, batch

    def _decode_rest(self) -> None:
        """Decode the current row group to its end, which other workers have yet to read."""
        rows = self._reader.rows_in_group
        while self._farthest[2] < rows:
            self._decode_next()

    def _decode_next(self) -> tuple[int, pa.RecordBatch]:
        file, group, next_row = self._farthest
        first, batch = self._reader.batch(file, self._content, group, next_row)
        self._farthest = (file, group, first + batch.num_rows)
        self._batches.append(((file, group), first, batch))
        return first, batch

    def times(self, file: str, content: str, group: int, column: TimeColumn) -> pa.Array:
        """The times of a row group's rows."""
        with self._lock:
            for key, times in self._times:
                if key == (file, group):
                    return times
            times = self._decoded(file, content, group, column)
            self._times.append(((file, group), times))
            return times

    def _decoded(self, file: str, content: str, group: int, column: TimeColumn) -> pa.Array:
        try:
            if self._file is None or self._file[0] != file:
                self._file = (file, open_file(file, content))
            rows = column_of(self._file[1], group, column.name)
        except (OSError, pa.ArrowException, KeyError) as error:
            raise SourceError(f"cannot read row group {group} of {file}: {error}") from error
        return column.times(rows, lambda index: f"row {index:,} of row group {group} of {file}")


class DecodedRows:
    """Decoded rows as one source worker reads them.

    What it shares with other workers of its host is decoded once for all, as long as it keeps up with them.
    """

    def __init__(self, shared: SharedRowGroups) -> None:
        self._shared = shared  # what the workers of the host decode together
        self._own = RowGroupReader()
        self._recent: tuple[str, int, int, pa.RecordBatch] | None = None

    def rows(self, span: Span, limit: int) -> pa.RecordBatch:
        """Read rows of a row group; returns those of the decoded batch that contains the first one."""
        if not span.cut:
            return self._own.rows(span.file, span.content, span.row_group, span.start, limit)
        where = span.file, span.content, span.row_group, span.start
        if self._recent is not None:
            file, group, first, batch = self._recent
            if (file, group) == (span.file, span.row_group) and first <= span.start < first + batch.num_rows:
                return batch.slice(span.start - first, limit)
        first, batch = self._shared.batch(*where) or self._own.batch(*where)
        self._recent = (span.file, span.row_group, first, batch)
        return batch.slice(span.start - first, limit)
