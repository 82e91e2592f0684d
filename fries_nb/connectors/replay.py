"""A source that replays Parquet files, in order.

The rows in file order are divided into splits of equal length, independent of the number of hosts. Two consecutive
splits share at most one row group. If the rows have times, the splits are blocks of consecutive rows, dealt in turn, so
that all workers read about the same part of the files at a time; workers of one host then decode a row group together.

The times of the rows that a replay has not read yet: exact, and mostly without reading the rows.

The least time of the rest of a split is the least one of the rest of its current row group, whose times are decoded
when the split enters it, and of those in later row groups. For these the least time of the whole row group is known
from the plan; only if it is earlier than all else, so that it might count, the times of that row group are decoded as
well. So in files that are in order of time one row group's times are decoded at a time, and no estimate is made in
others, where all may have to be decoded at the beginning. If no operator needs exact times, the plan gives bounds.

>>> whole = [Span("a", group, 0, 10, least=least) for group, least in enumerate((3, 9, 5))]
>>> outline = ReplayOutline([(0, whole, 0)])
>>> [outline.least(0, row) for row in (0, 9, 10, 20)]
[3, 3, 5, 5]
"""

from __future__ import annotations

import bisect
import heapq
import itertools
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
from msgspec.structs import replace

from fries_nb.connectors.row_groups import (
    DecodedRows,
    SharedRowGroups,
    Span,
    behind,
    block_rows,
    deal,
    plan_replay,
    timed_row_groups,
)
from fries_nb.connectors.source import (
    Position,
    RuntimeReader,
    RuntimeSource,
    Split,
    Ticks,
    TimeColumn,
    as_ticks,
    ticks_of,
)
from fries_nb.errors import SourceError
from fries_nb.operators.conversion import to_python
from fries_nb.progress.times import EARLIEST, LATEST

_Group = tuple[str, int]


class _Part(NamedTuple):
    """The rows of one split in one row group; ``first`` is the number of the first one within the split."""

    spans: tuple[Span, ...]
    first: int
    rows: int

    @property
    def group(self) -> _Group:
        return self.spans[0].file, self.spans[0].row_group

    def times(self, of_group: Ticks) -> Ticks:
        """The times of these rows among those of the row group."""
        return np.concatenate([of_group[span.start : span.start + span.rows] for span in self.spans])


@dataclass(slots=True)
class _Rest:
    """What is left of one split."""

    parts: list[_Part]  # all its rows, in order
    at: int  # index of the current part
    # for each row of the current part the least time from it on; empty until it is decoded
    minima: Ticks = field(default_factory=lambda: np.empty(0, np.int64))
    exact: dict[int, int] = field(default_factory=dict)  # index of a later part to its least time, if it was decoded
    later: int = LATEST  # the least of ``exact``

    def least(self, row: int) -> int:
        """The least time from a row of the current part on, as far as row groups were decoded."""
        return min(int(self.minima[row - self.parts[self.at].first]), self.later)

    def enter(self, at: int, times: Ticks) -> None:
        """Make a part the current one."""
        self.at = at
        self.minima = np.minimum.accumulate(times[::-1])[::-1]
        self.exact = {part: least for part, least in self.exact.items() if part > at}
        self.later = min(self.exact.values(), default=LATEST)


class ReplayForesight:
    """The times of the rows that one worker has not read yet; see ``Foresight``.

    Raises:
        SourceError: as ``Foresight.least``.
    """

    def __init__(
        self, splits: Iterable[tuple[int, Sequence[Span], int]], column: TimeColumn, shared: SharedRowGroups
    ) -> None:
        self.type: pa.DataType | None = None  # the type of the times, known once some were decoded
        self._column = column
        self._shared = shared
        # number, spans and number of the next row of each of its splits
        self._splits: dict[int, _Rest] = {}
        self._in_group: defaultdict[_Group, list[tuple[_Rest, int]]] = defaultdict(list)
        self._decoded: set[_Group] = set()
        self._spans: dict[_Group, Span] = {}
        for number, whole, row in splits:
            parts = list(_parts(whole))
            at = next(index for index, part in enumerate(parts) if row < part.first + part.rows)
            rest = self._splits[number] = _Rest(parts, at)
            for index, part in enumerate(parts[at:], at):
                self._in_group[part.group].append((rest, index))
                self._spans[part.group] = part.spans[0]
        self._ahead = [
            (EARLIEST if span.least is None else span.least, group) for group, span in self._spans.items()
        ]
        heapq.heapify(self._ahead)

    def least(self, split: int, row: int) -> int:
        """The least time of the rows of a split from ``row`` on; see ``Foresight``."""
        rest = self._splits[split]
        part = rest.parts[rest.at]
        if not rest.minima.size or row >= part.first + part.rows:
            self._enter(rest, row)
        least = rest.least(row)
        while self._ahead and self._ahead[0][0] < least:
            group = heapq.heappop(self._ahead)[1]
            if group not in self._decoded:
                self._look_into(group)
                least = rest.least(row)
        return least

    def _enter(self, rest: _Rest, row: int) -> None:
        at = rest.at
        while row >= rest.parts[at].first + rest.parts[at].rows:
            at += 1
        part = rest.parts[at]
        rest.enter(at, part.times(self._look_into(part.group)))

    def _look_into(self, group: _Group) -> Ticks:
        """The times of a row group; the first time, each split to which it is a later one notes its least time."""
        span = self._spans[group]
        times = self._shared.times(span.file, span.content, span.row_group, self._column)
        found = as_ticks(times)
        if group not in self._decoded:
            self._decoded.add(group)
            self.type = times.type
            if span.least is not None and found.min() < span.least:
                raise SourceError(
                    f"the statistics of row group {span.row_group} of {span.file} say that no {self._column.name} is "
                    f"less than {span.least}, but one is {found.min()}; write the file anew"
                )
            for rest, index in self._in_group.pop(group):
                if index > rest.at:
                    rest.exact[index] = int(rest.parts[index].times(found).min())
                    rest.later = min(rest.later, rest.exact[index])
        return found


class ReplayOutline:
    """Lower bounds of the times of the rows that one worker has not read yet: those of row groups, from the plan."""

    type: pa.DataType | None = None  # ``None``, since no time was decoded

    def __init__(self, splits: Iterable[tuple[int, Sequence[Span], int]]) -> None:
        # number, spans with their least times and number of the next row of each of its splits
        self._splits: dict[int, tuple[list[int], list[int]]] = {}
        for number, spans, _ in splits:
            ends = list(itertools.accumulate(span.rows for span in spans))
            known = (EARLIEST if span.least is None else span.least for span in reversed(spans))
            self._splits[number] = ends, list(itertools.accumulate(known, min))[::-1]

    def least(self, split: int, row: int) -> int:
        """A lower bound of the times of a split's rows from ``row`` on; see ``Foresight``."""
        ends, minima = self._splits[split]
        return minima[bisect.bisect_right(ends, row)]


def with_least_times(groups: Iterable[Span], column: TimeColumn, shared: SharedRowGroups) -> list[Span]:
    """The row groups with their least times, decoded where the statistics do not have them."""
    known = []
    for group in groups:
        if group.least is None and group.rows:
            times = shared.times(group.file, group.content, group.row_group, column)
            group = replace(group, least=int(as_ticks(times).min()))
        known.append(group)
    return known


def _parts(spans: Iterable[Span]) -> Iterator[_Part]:
    first = 0
    for _, same in itertools.groupby(spans, key=lambda span: (span.file, span.row_group)):
        part = _Part(tuple(same), first, 0)
        part = part._replace(rows=sum(span.rows for span in part.spans))
        yield part
        first += part.rows


class ReplaySource(RuntimeSource):
    """The rows of a Parquet file, or of all Parquet files of one schema in a directory and its subdirectories."""

    def __init__(self, path: str = "", may_be_empty: bool = False) -> None:
        self._path = path  # a local path, or a URI that all hosts can read; not needed to open splits
        self._may_be_empty = may_be_empty  # whether there may be no files
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
        """Deal blocks of rows to the splits in turn; see ``RuntimeSource``."""
        known = timed_row_groups(self._path, column, self._may_be_empty)
        groups = with_least_times(known, column, self._shared)
        block = block_rows(groups, count)
        return [
            Split(number, msgspec.to_builtins(spans), number * block, count * block, block)
            for number, spans in enumerate(deal(groups, count, block))
        ]

    def foresee(self, splits: Sequence[tuple[Split, int]], column: TimeColumn) -> ReplayForesight:
        """The times of the rows that one worker has not read yet; see ``RuntimeSource``."""
        return ReplayForesight([(split.number, _spans(split), row) for split, row in splits], column, self._shared)

    def outline(self, splits: Sequence[tuple[Split, int]]) -> ReplayOutline:
        """Lower bounds of those times; see ``RuntimeSource``."""
        return ReplayOutline((split.number, _spans(split), row) for split, row in splits)

    def rows_of(self, split: Split) -> int:
        """The number of rows of a split."""
        return sum(span.rows for span in _spans(split))

    def find(
        self, splits: Sequence[Split], time: datetime | int, column: TimeColumn | None
    ) -> dict[int, Position | None]:
        """The first row of each split whose time is not earlier; ``None`` if all are. Times are decoded up to there."""
        if column is None:
            raise SourceError("whose rows have no times; expected source(..., time=<column>), or the number of a row")
        found: dict[int, Position | None] = dict.fromkeys((split.number for split in splits), None)
        groups: defaultdict[_Group, list[tuple[int, _Part]]] = defaultdict(list)
        for split in splits:
            for part in _parts(_spans(split)):
                groups[part.group].append((split.number, part))
        for parts in groups.values():
            wanted = [(number, part) for number, part in parts if found[number] is None]
            if not wanted:
                continue
            span = wanted[0][1].spans[0]
            times = self._shared.times(span.file, span.content, span.row_group, column)
            since, of_group = ticks_of(time, times.type), as_ticks(times)
            for number, part in wanted:
                later = part.times(of_group) >= since
                if later.any():
                    found[number] = Position(part.first + int(later.argmax()))
        return found

    def open(self, split: Split, position: Position) -> ReplayReader:
        """Open a split; see ``Source``. Splits that share a row group decode it once, if read in order."""
        if self._groups is None:
            self._groups = DecodedRows(self._shared)
        return ReplayReader(_spans(split), position, self._groups)

    def row_at(self, split: Split, number: int) -> dict[str, Any]:
        """Read one row."""
        batch = self.open(split, Position(number)).read(1, 0)
        return {name: to_python(batch.column(name))[0] for name in batch.schema.names}


class ReplayReader(RuntimeReader):
    """Reads spans of Parquet files, in order."""

    def __init__(self, spans: Sequence[Span], position: Position, groups: DecodedRows) -> None:
        self._ahead = list(behind(spans, position.row))
        self._groups = groups
        # position of the first row to read; earlier row groups are not decoded
        self.position = position if self._ahead else None  # position of the next row; see ``SplitReader``

    def read(self, limit: int, now_ns: int) -> pa.RecordBatch:
        """Read the next rows, as many as are decoded together; see ``SplitReader``."""
        span = self._ahead[0]
        batch = self._groups.rows(span, min(limit, span.rows))
        self._ahead[:1] = behind([span], batch.num_rows)
        assert self.position is not None, "a split is not read at its end"
        self.position = Position(self.position.row + batch.num_rows) if self._ahead else None
        return batch


def _spans(split: Split) -> tuple[Span, ...]:
    return msgspec.convert(split.content, tuple[Span, ...])
