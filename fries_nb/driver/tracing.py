"""The audit trace on the driver: stored by worker, truncated to a checkpoint on recovery, and spooled to disk if long.

Operations after the checkpoint from which a run restarts are repeated, so their records are removed. Each worker sends
its records before its ``Done`` for a checkpoint's marker; the number of records at that time is its position.

Above a maximum size, records are spooled to an append-only file, so a truncation does not affect concurrent readers.
The file has no name and is deleted with the run or the process.

>>> from fries_nb.protocol.trace import Ran
>>> trace, worker = Trace(bound=0), WorkerId("FM", 0)
>>> trace.add(worker, [Ran("t1", "FM")])
>>> trace.note(worker, epoch=1)
>>> trace.add(worker, [Ran("t2", "FM")])
>>> trace.cut(epoch=1, ended=lambda worker: False)
>>> [record.transaction for record in trace.records()]
['t1']
"""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import IO

import msgspec

from fries_nb.protocol.messages import WorkerId
from fries_nb.protocol.trace import EarlierRecords, Matched, earlier_records, last_word
from fries_nb.transport.envelopes import Packed, PackedEmitted, PackedRun, unpack

IN_MEMORY = 64 << 20
"""Maximum number of bytes of trace in memory."""
_RECORD = 200
"""Approximate size of a record without its transactions in bytes."""
_MATCH = 100
"""Approximate size of a transaction with its key in bytes."""

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(list[Packed])


@dataclass(frozen=True, slots=True)
class _Chunk:
    """Records in the spool file."""

    offset: int
    length: int
    count: int


@dataclass
class _Written:
    """The records of one worker: those on disk, followed by those in memory."""

    chunks: list[_Chunk] = field(default_factory=list)
    tail: list[Packed] = field(default_factory=list)

    @property
    def count(self) -> int:
        return sum(chunk.count for chunk in self.chunks) + len(self.tail)


@dataclass(frozen=True)
class WorkerRecords:
    """The trace at one moment; can be iterated repeatedly."""

    workers: tuple[_Written, ...]
    spool: IO[bytes] | None

    def __iter__(self) -> Iterator[Packed]:
        for written in self.workers:
            for chunk in written.chunks:
                yield from _read(self.spool, chunk)
            yield from written.tail


class Trace:
    """Records of all workers, each worker's in order.

    Args:
        bound: maximum number of bytes in memory.
    """

    def __init__(self, bound: int = IN_MEMORY) -> None:
        self._bound = bound
        self._bytes = 0
        self._written: dict[WorkerId, _Written] = {}
        self._noted: dict[int, dict[WorkerId, int]] = {}
        self._left: set[WorkerId] = set()
        self._spool: IO[bytes] | None = None
        self._lock = threading.Lock()

    def add(self, worker: WorkerId, records: Iterable[Packed]) -> None:
        """Append records of a worker."""
        added = list(records)
        with self._lock:
            self._written.setdefault(worker, _Written()).tail.extend(added)
            self._bytes += sum(map(_size, added))
            if self._bytes > self._bound:
                self._move_out()

    def note(self, worker: WorkerId, epoch: int) -> None:
        """Record the worker's current number of records as its position at the marker of this checkpoint."""
        if epoch not in self._noted:
            self._noted[epoch] = {gone: self._count(gone) for gone in self._left}
        self._noted[epoch][worker] = self._count(worker)

    def leave(self, workers: Iterable[WorkerId]) -> None:
        """Record that workers were removed from the dataflow, so that checkpoints from now on include all they did."""
        self._left.update(workers)

    def earlier(self) -> dict[WorkerId, EarlierRecords]:
        """For the workers that were removed: what the trace holds of them, which later ones of their index continue."""
        with self._lock:
            found = {worker: self._written[worker] for worker in sorted(self._left & self._written.keys())}
            each = {worker: WorkerRecords((written,), self._spool) for worker, written in found.items()}
            return {worker: earlier_records(map(unpack, records)) for worker, records in each.items()}

    def cut(self, epoch: int, ended: Callable[[WorkerId], bool]) -> None:
        """Remove the records after a checkpoint.

        Args:
            epoch: number of the checkpoint; 0 removes all records.
            ended: whether a worker had ended before the checkpoint's marker; its records are kept, since it repeats no
                operation after the restart.
        """
        noted = self._noted.get(epoch, {})
        with self._lock:
            for worker, written in self._written.items():
                if worker in noted or not ended(worker):
                    self._written[worker] = self._first(written, noted.get(worker, 0))
            for worker in self._left & self._written.keys():
                self._close(worker)
            self._bytes = sum(_size(record) for written in self._written.values() for record in written.tail)
        self._noted = {epoch: noted}

    def _close(self, worker: WorkerId) -> None:
        """Let the records of a worker end, since it has left, and what it wrote at its end is perhaps undone."""
        written = self._written[worker]
        if written.count:
            records = map(unpack, WorkerRecords((written,), self._spool))
            written.tail.append(last_word(worker.operator, worker.index, records))

    def forget(self, epoch: int) -> None:
        """Discard positions of checkpoints older than this one, which are not restored any more."""
        self._noted = {known: noted for known, noted in self._noted.items() if known >= epoch}

    def workers(self) -> set[WorkerId]:
        """The workers of which it holds records; from any thread."""
        with self._lock:
            return {worker for worker, written in self._written.items() if written.count}

    def records(self) -> WorkerRecords:
        """All records so far; from any thread."""
        with self._lock:
            written = tuple(_Written([*one.chunks], [*one.tail]) for one in self._written.values())
            return WorkerRecords(written, self._spool)

    def _count(self, worker: WorkerId) -> int:
        return self._written.get(worker, _Written()).count

    @property
    def bytes_in_memory(self) -> int:
        """Approximate memory of the trace on the driver in bytes."""
        return self._bytes

    def _move_out(self) -> None:
        if self._spool is None:
            self._spool = tempfile.TemporaryFile(prefix="fries-trace-")  # noqa: SIM115 - as long as the trace
        for written in self._written.values():
            if written.tail:
                offset = self._spool.seek(0, os.SEEK_END)
                length = self._spool.write(_encoder.encode(written.tail))
                written.chunks.append(_Chunk(offset, length, len(written.tail)))
                written.tail = []
        self._spool.flush()
        self._bytes = 0

    def _first(self, written: _Written, count: int) -> _Written:
        """The first records of a worker; a chunk that is kept in part is read from disk."""
        kept = _Written()
        for chunk in written.chunks:
            if count < chunk.count:
                return _Written(kept.chunks, _read(self._spool, chunk)[:count])
            kept.chunks.append(chunk)
            count -= chunk.count
        return _Written(kept.chunks, written.tail[:count])


def _read(spool: IO[bytes] | None, chunk: _Chunk) -> list[Packed]:
    assert spool is not None, "a chunk is in the spool"
    return _decoder.decode(os.pread(spool.fileno(), chunk.length, chunk.offset))


def _size(record: Packed) -> int:
    if isinstance(record, Matched):
        return _RECORD + _MATCH * len(record.transactions)
    return _RECORD + (len(record.transactions) if isinstance(record, (PackedRun, PackedEmitted)) else 0)
