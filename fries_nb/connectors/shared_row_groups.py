"""Row groups that the source workers of one host decode together.

Workers that are dealt the blocks of a file in turn read the same row groups at about the same time. So what one of them
decodes, the others find here: the last few batches, and the times of the last row groups. A worker that has fallen
behind decodes for itself.
"""

from __future__ import annotations

import threading
from collections import deque

import pyarrow as pa
import pyarrow.parquet as pq

from fries_nb.connectors.replay_splits import Span
from fries_nb.connectors.row_groups import RowGroupReader, column_of, open_file
from fries_nb.connectors.time_column import TimeColumn
from fries_nb.errors import SourceError

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
        """The decoded batch that contains a row, and the index of its first row; ``None`` if it is no longer kept.

        Args:
            file: path or URI of the file.
            content: the file's fingerprint; empty if it is not checked.
            group: index of the row group.
            start: index of the row within the row group.

        Raises:
            SourceError: the file is missing, damaged, or was replaced.
        """
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
        """The times of a row group's rows.

        Args:
            file: path or URI of the file.
            content: the file's fingerprint; empty if it is not checked.
            group: index of the row group.
            column: the column with the times.

        Raises:
            SourceError: the file is missing, damaged, or was replaced; or a time is null or out of range.
        """
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

    Args:
        shared: what the workers of the host decode together.
    """

    def __init__(self, shared: SharedRowGroups) -> None:
        self._shared = shared
        self._own = RowGroupReader()
        self._recent: tuple[str, int, int, pa.RecordBatch] | None = None

    def rows(self, span: Span, limit: int) -> pa.RecordBatch:
        """Read rows of a row group; returns those of the decoded batch that contains the first one.

        Args:
            span: rows of one row group.
            limit: maximum number of rows.

        Raises:
            SourceError: the file is missing, damaged, or was replaced.
        """
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
