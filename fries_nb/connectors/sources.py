"""The readers of sources, as they run on hosts: who is asked gets the tuples that are due, and never waits.

A reader holds no thread and no clock: ``read(now_ns, limit)`` answers with a batch, or with the time to come back at.
A batch has the user's columns, ``_fries_due`` and, under audit, ``_fries_transaction``; a tuple's number in the latter
depends on the assignment alone, so it means the same in every attempt.

>>> reader = RateReader(worker=1, workers=2, rate=1_000, count=6)
>>> batch, again_at = reader.read(now_ns=0, limit=100)
>>> batch.column("value").to_pylist(), again_at
([1], 1000000)
>>> batch, again_at = reader.read(now_ns=5_000_000, limit=100)
>>> batch.column("value").to_pylist(), batch.column("_fries_due").to_pylist(), reader.exhausted
([3, 5], [1000000, 2000000], True)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from fries_nb.connectors.rate_schedule import RateSchedule, Times, checked
from fries_nb.connectors.replay import Position, Span, behind, fingerprint
from fries_nb.dataflow.endpoints import Rate
from fries_nb.errors import SourceError
from fries_nb.messages import DUE, HIDDEN, TRANSACTION, WorkerId
from fries_nb.operators.conversion import NOT_ARROW, to_arrow
from fries_nb.storage.locations import locate
from fries_nb.trace import ROW_BITS

BATCH_ROWS = 16_384
"""Rows that are decoded at a time; a slice of them shares their memory."""

WORKERS_PER_SOURCE = 1024
"""Bound on a source's workers; a source tuple's identity holds (source, worker) in 15 bits above its number."""

Answer = tuple[pa.RecordBatch | None, int | None]


@dataclass(frozen=True)
class ReplayPlan:
    """Which rows each worker replays, and the rate of all together in tuples a second (``None`` is flat out)."""

    parts: tuple[tuple[Span, ...], ...]
    rate: float | None


SourcePlan = ReplayPlan | Rate
"""What a source's workers are shipped."""


class Reader(Protocol):
    """One worker's part of a source.

    ``rate`` is always this worker's own: tuples a second, infinity for flat out, 0 for a pause.
    """

    @property
    def exhausted(self) -> bool:
        """There is nothing more to come, at whatever time."""

    @property
    def position(self) -> object:
        """Where the next tuple stands, in a form that means the same to every attempt; ``None`` at the end."""

    def read(self, now_ns: int, limit: int) -> Answer:
        """The tuples due by now that were not read yet, at most ``limit``; and when the next one will be due.

        The batch is ``None`` if no tuple is due. The time is ``None`` if one is due already, if the source is paused
        or if it is exhausted. The first call starts the source's time.
        """

    def set_rate(self, rate: float, now_ns: int) -> None:
        """Change the rate; tuples that are due already keep their times."""


class RateReader:
    """Makes up rows: worker w of n has the values w, w + n, ... below ``count``.

    ``row(value)`` gives further columns, which are null in the rows that lack them. ``number`` is the number of this
    worker among all source workers, given under audit. ``skip`` tuples were read by an earlier attempt.
    """

    def __init__(
        self,
        worker: int,
        workers: int,
        rate: float,
        count: int | None = None,
        row: Callable[[int], Mapping[str, Any]] | None = None,
        number: int | None = None,
        skip: int = 0,
    ) -> None:
        self._worker = worker
        self._workers = workers
        self._row = row
        self._types: dict[str, pa.DataType] = {}
        self._left: float = math.inf if count is None else max(0, math.ceil((count - worker) / workers) - skip)
        self._stamp = _Stamp(rate, number, skip)

    @property
    def exhausted(self) -> bool:
        return self._left <= 0

    @property
    def position(self) -> int | None:
        """The next value."""
        return None if self.exhausted else self._worker + self._stamp.sequence * self._workers

    def read(self, now_ns: int, limit: int) -> Answer:
        first = self._stamp.sequence
        due = self._stamp.due(now_ns, int(min(limit, self._left)))
        batch = None
        if len(due):
            values = np.arange(first, first + len(due), dtype=np.int64) * self._workers + self._worker
            rows = pa.record_batch({"value": values, "timestamp": due} | self._further(values))
            batch = self._stamp.put_on(rows, due)
            self._left -= len(due)
        return batch, None if self.exhausted else self._stamp.next_due(now_ns)

    def set_rate(self, rate: float, now_ns: int) -> None:
        self._stamp.set_rate(rate, now_ns)

    def _further(self, values: Times) -> dict[str, pa.Array]:
        if self._row is None:
            return {}
        rows = [dict(self._row(value)) for value in values.tolist()]
        columns: dict[str, pa.Array] = {}
        for name in dict.fromkeys(chain.from_iterable(rows)):
            if name in HIDDEN:
                raise SourceError(f"row= of rate gave the column {name!r}, a name for the runtime's own use; rename it")
            try:
                columns[name] = to_arrow([row.get(name) for row in rows], self._types.get(name))
            except NOT_ARROW as error:
                why = str(error).splitlines()[0]
                raise SourceError(f"row= of rate gave values that make no column {name!r}: {why}") from error
            self._types[name] = columns[name].type
        return columns


class ReplayReader:
    """Reads its spans of Parquet files, in order; a row group is decoded as it is read, ``BATCH_ROWS`` at a time.

    The first ``skip`` rows were read by an earlier attempt; row groups with nothing else are not decoded.

    Raises:
        SourceError: from ``read``: a file has gone, is damaged, or has been replaced.
    """

    def __init__(self, spans: Sequence[Span], rate: float, number: int | None = None, skip: int = 0) -> None:
        self._spans = spans
        self._stamp = _Stamp(rate, number, skip)
        ahead = tuple(behind(spans, skip))
        self._left = sum(span.rows for span in ahead)
        self._batches = self._decode(ahead)
        self._batch: pa.RecordBatch | None = None
        self._offset = 0

    @property
    def exhausted(self) -> bool:
        return not self._left

    @property
    def position(self) -> Position | None:
        before = self._stamp.sequence
        for span in self._spans:
            if before < span.rows:
                return Position(span.file, span.row_group, span.start + before)
            before -= span.rows
        return None

    def read(self, now_ns: int, limit: int) -> Answer:
        if self.exhausted:
            return None, None
        batch = None
        due = self._stamp.due(now_ns, min(limit, self._ahead()))
        if len(due) and self._batch is not None:
            batch = self._stamp.put_on(self._batch.slice(self._offset, len(due)), due)
            self._offset += len(due)
            self._left -= len(due)
        return batch, None if self.exhausted else self._stamp.next_due(now_ns)

    def set_rate(self, rate: float, now_ns: int) -> None:
        self._stamp.set_rate(rate, now_ns)

    def _ahead(self) -> int:
        """Rows that are decoded and not read; at least one, as long as some are left."""
        while self._batch is None or self._offset == self._batch.num_rows:
            self._batch = next(self._batches)
            self._offset = 0
        return int(self._batch.num_rows) - self._offset

    @staticmethod
    def _decode(spans: Sequence[Span]) -> Iterator[pa.RecordBatch]:
        name, file = "", None
        for span in spans:
            try:
                if file is None or name != span.file:
                    name, file = span.file, _open(span)
                yield from _rows_of(file, span)
            except (OSError, pa.ArrowException) as error:
                raise SourceError(f"cannot read row group {span.row_group} of {span.file}: {error}") from error
        raise SourceError(f"{name} has become shorter since the run was planned")


class NoReader:
    """Of a source worker that had ended: there is nothing more to come."""

    exhausted = True
    position = None

    def read(self, now_ns: int, limit: int) -> Answer:
        return None, None

    def set_rate(self, rate: float, now_ns: int) -> None:
        """Nothing comes at any rate."""


def open_reader(plan: SourcePlan, worker: WorkerId, workers: int, source: int, audit: bool, skip: int = 0) -> Reader:
    """The reader of one worker of a source.

    Args:
        plan: of the whole source.
        worker: that reads.
        workers: of the source; the rate is divided among them evenly.
        source: the source's number in the graph.
        audit: give each tuple its identity.
        skip: tuples that this worker has read before.

    Returns:
        A reader that goes on behind the tuples to skip.

    Raises:
        SourceError: the plan's rate is none.
    """
    number = source * WORKERS_PER_SOURCE + worker.index if audit else None
    rate = math.inf if plan.rate is None else plan.rate / workers
    if isinstance(plan, Rate):
        return RateReader(worker.index, workers, rate, plan.count, plan.row, number, skip)
    return ReplayReader(plan.parts[worker.index], rate, number, skip)


class _Stamp:
    """Gives tuples their due times and their numbers."""

    def __init__(self, rate: float, number: int | None, sequence: int) -> None:
        self._rate = checked(rate)
        self._pace: RateSchedule | None = None
        self._base = None if number is None else number << ROW_BITS
        self.sequence = sequence

    def due(self, now_ns: int, limit: int) -> Times:
        if self._pace is None:
            self._pace = RateSchedule(self._rate, now_ns)
        return self._pace.take(now_ns, limit)

    def next_due(self, now_ns: int) -> int | None:
        return self._pace.next_due(now_ns) if self._pace is not None else None

    def set_rate(self, rate: float, now_ns: int) -> None:
        if self._pace is None:
            self._rate = checked(rate)
        else:
            self._pace.set_rate(rate, now_ns)

    def put_on(self, batch: pa.RecordBatch, due: Times) -> pa.RecordBatch:
        batch = batch.append_column(DUE, pa.array(due))
        if self._base is not None:
            first = self._base + self.sequence
            batch = batch.append_column(TRANSACTION, pa.array(np.arange(first, first + len(due), dtype=np.int64)))
        self.sequence += len(due)
        return batch


def _open(span: Span) -> pq.ParquetFile:
    filesystem, path = locate(span.file)
    if span.content and (found := fingerprint(filesystem, path)) != span.content:
        raise SourceError(
            f"{span.file} has been replaced since the run was planned (got {found}, expected {span.content}), so that "
            "rows of both would be mixed; put the old file back and resume, or run the flow anew"
        )
    return pq.ParquetFile(path, filesystem=filesystem, coerce_int96_timestamp_unit="us", pre_buffer=False)


def _rows_of(file: pq.ParquetFile, span: Span) -> Iterator[pa.RecordBatch]:
    """The span's rows, as batches of plain columns. One thread: a host has as many workers as it has cores."""
    skip, left = span.start, span.rows
    plain = _plain_types(file)
    for batch in file.iter_batches(BATCH_ROWS, row_groups=[span.row_group], use_threads=False):
        part = batch.slice(skip, left)
        skip = max(0, skip - batch.num_rows)
        if part.num_rows:
            left -= part.num_rows
            yield _with_types(part, plain)
        if not left:
            return


def _plain_types(file: pq.ParquetFile) -> dict[str, pa.DataType]:
    """Columns to convert: dictionaries become what they stand for, and Spark's INT96 the instant that it means."""
    plain = {field.name: field.type.value_type for field in file.schema_arrow if pa.types.is_dictionary(field.type)}
    for index in range(len(file.schema)):
        column = file.schema.column(index)
        if column.physical_type == "INT96" and column.path == column.name:
            plain[column.name] = pa.timestamp("us", "UTC")
    return plain


def _with_types(batch: pa.RecordBatch, types: dict[str, pa.DataType]) -> pa.RecordBatch:
    for name, kind in types.items():
        batch = batch.set_column(batch.schema.get_field_index(name), name, batch.column(name).cast(kind))
    return batch
