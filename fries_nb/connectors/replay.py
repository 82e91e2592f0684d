"""A source that replays Parquet files, in order.

The rows in file order are divided into splits of equal length, independent of the number of hosts. Two consecutive
splits share at most one row group. If the rows have times, the splits are blocks of consecutive rows, dealt in turn, so
that all workers read about the same part of the files at a time; workers of one host then decode a row group together.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pyarrow as pa

from fries_nb.connectors.replay_splits import Span, behind, block_rows, deal, plan_replay, timed_row_groups
from fries_nb.connectors.replay_times import ReplayForesight, ReplayOutline, with_least_times
from fries_nb.connectors.shared_row_groups import DecodedRows, SharedRowGroups
from fries_nb.connectors.source import Position, Split
from fries_nb.connectors.time_column import TimeColumn
from fries_nb.operators.conversion import to_python


class ReplaySource:
    """The rows of a Parquet file, or of all Parquet files of one schema in a directory and its subdirectories.

    Args:
        path: a local path, or a URI that all hosts can read; not needed to open splits.
        may_be_empty: whether there may be no files.
    """

    def __init__(self, path: str = "", may_be_empty: bool = False) -> None:
        self._path = path
        self._may_be_empty = may_be_empty
        self._shared = SharedRowGroups()
        self._groups: DecodedRows | None = None

    def __repr__(self) -> str:
        return f"the replay of {self._path}"

    def splits(self, count: int) -> list[Split]:
        """Divide the rows into splits of equal length; see ``Source``."""
        first, splits = 0, []
        for number, spans in enumerate(plan_replay(self._path, count, self._may_be_empty)):
            splits.append(Split(number, msgspec.to_builtins(spans), first, step=1))
            first += sum(span.rows for span in spans)
        return splits

    def splits_in_blocks(self, count: int, column: TimeColumn) -> list[Split]:
        """Deal blocks of rows to the splits in turn; see ``ForeseeingSource``."""
        known = timed_row_groups(self._path, column, self._may_be_empty)
        groups = with_least_times(known, column, self._shared)
        block = block_rows(groups, count)
        return [
            Split(number, msgspec.to_builtins(spans), number * block, count * block, block)
            for number, spans in enumerate(deal(groups, count, block))
        ]

    def foresee(self, splits: Sequence[tuple[Split, int]], column: TimeColumn) -> ReplayForesight:
        """The times of the rows that one worker has not read yet; see ``ForeseeingSource``."""
        return ReplayForesight([(split.number, _spans(split), row) for split, row in splits], column, self._shared)

    def outline(self, splits: Sequence[tuple[Split, int]]) -> ReplayOutline:
        """Lower bounds of those times; see ``OutlinedSource``."""
        return ReplayOutline((split.number, _spans(split), row) for split, row in splits)

    def open(self, split: Split, position: Position) -> ReplayReader:
        """Open a split; see ``Source``. Splits that share a row group decode it once, if read in order."""
        if self._groups is None:
            self._groups = DecodedRows(self._shared)
        return ReplayReader(_spans(split), position, self._groups)

    def row_at(self, split: Split, number: int) -> dict[str, Any]:
        """Read one row; see ``NumberedSource``."""
        batch = self.open(split, Position(number)).read(1, 0)
        return {name: to_python(batch.column(name))[0] for name in batch.schema.names}


class ReplayReader:
    """Reads spans of Parquet files, in order.

    Args:
        spans: all rows of the split.
        position: position of the first row to read; earlier row groups are not decoded.
        groups: decodes row groups.

    Attributes:
        position: position of the next row; see ``SplitReader``.
    """

    def __init__(self, spans: Sequence[Span], position: Position, groups: DecodedRows) -> None:
        self._ahead = list(behind(spans, position.row))
        self._groups = groups
        self.position = position if self._ahead else None

    def read(self, limit: int, now_ns: int) -> pa.RecordBatch:
        """Read the next rows, as many as are decoded together; see ``SplitReader``.

        Raises:
            SourceError: a file is missing, damaged, or was replaced.
        """
        span = self._ahead[0]
        batch = self._groups.rows(span, min(limit, span.rows))
        self._ahead[:1] = behind([span], batch.num_rows)
        assert self.position is not None, "a split is not read at its end"
        self.position = Position(self.position.row + batch.num_rows) if self._ahead else None
        return batch


def _spans(split: Split) -> tuple[Span, ...]:
    return msgspec.convert(split.content, tuple[Span, ...])
