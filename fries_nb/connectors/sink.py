"""The protocol of sinks: workers write invisible parts, and a commit makes parts output.

A commit includes the parts that all workers closed at one marker of the dataflow, so the output is always the result of
a prefix of the sources. The driver prepares the parts, records their names with the checkpoint, and commits them. If
the driver dies in between, the next attempt commits the recorded parts; parts without a record never become output.

A complete sink that writes rows as lines of files:

>>> import os, json, tempfile
>>> class LinesWriter:
...     def __init__(self, path, name):
...         self.path, self.name, self.rows, self.count = path, name, [], 0
...
...     def write(self, batch):
...         self.rows += batch.to_pylist()
...
...     def close_part(self):
...         if not self.rows:
...             return ()
...         part, self.rows, rows = f"{self.name}-{self.count}", [], self.rows
...         self.count += 1
...         with open(f"{self.path}/.{part}", "w") as file:
...             file.writelines(json.dumps(row) for row in rows)
...         return (part,)
>>> class LinesSink(Sink):
...     def __init__(self, path):
...         self.path = path
...
...     def claim(self, flow, run):
...         self.run = run
...
...     def open(self, writer_id):
...         return LinesWriter(self.path, f"{self.run}-{writer_id}")
...
...     def prepare(self, parts):
...         if gone := [part for part in parts if not os.path.exists(f"{self.path}/.{part}")]:
...             raise SinkError(f"{gone} have gone")
...
...     def commit(self, number, parts):
...         for part in parts:
...             if os.path.exists(f"{self.path}/.{part}"):
...                 os.rename(f"{self.path}/.{part}", f"{self.path}/{part}")
>>> with tempfile.TemporaryDirectory() as path:
...     sink = LinesSink(path)
...     sink.claim("flow", "r1")
...     writer = sink.open("lines[0]-1-1")
...     writer.write(pa.RecordBatch.from_pylist([{"n": 1}]))
...     parts = writer.close_part()
...     sink.prepare(parts)
...     before = os.listdir(path)
...     sink.commit(1, parts)
...     before, os.listdir(path)
(['.r1-lines[0]-1-1-0'], ['r1-lines[0]-1-1-0'])

``fries_nb.testing.check_sink`` checks the contract of sinks.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Protocol

import pyarrow as pa
from msgspec.structs import replace

from fries_nb.dataflow.columns import HIDDEN
from fries_nb.errors import FriesError, SinkError
from fries_nb.protocol.messages import Done, Ended, WorkerId
from fries_nb.storage.part_files import unified
from fries_nb.worker.events import ClosePart, SinkFailed, SinkWidened, TellController, Write

__all__ = ["OpenSinks", "RowWriter", "RuntimeSink", "Sink", "SinkError", "SinkWriter", "WrittenColumns", "of_user"]


class RowWriter(Protocol):
    """Writes the rows of one worker. Used by one thread."""

    def write(self, batch: pa.RecordBatch) -> None:
        """Write rows, which are invisible until they are committed.

        Args:
            batch: rows, with the columns that the runtime adds (``columns.HIDDEN``).

        Raises:
            SinkError: the sink does not accept the rows, or they cannot be written.
        """

    def close_part(self) -> tuple[str, ...]:
        """Close the parts with all rows since the last call, durably; called at a marker.

        Returns:
            Names of the closed parts, unique over all workers and attempts; empty if nothing was written.

        Raises:
            SinkError: a part cannot be written.
        """


class SinkWriter(RowWriter, Protocol):
    """A writer that knows the columns of its rows."""

    @property
    def columns(self) -> pa.Schema:
        """All columns written so far; the same object as long as there are no new ones."""


class SinkCommits(Protocol):
    """What the driver asks of a sink: it claims the target, and makes parts output."""

    @abstractmethod
    def claim(self, flow: str, run: str) -> None:
        """Make the target one of this run, on the driver, before its hosts start; also when the run is resumed.

        Numbers of commits begin at 1 in each run, so a target that outlives a run has to tell runs apart.

        Args:
            flow: name of the dataflow.
            run: id of the run, which it keeps when it is resumed.

        Raises:
            SinkError: the target is not fit for it, or cannot be written.
        """

    @abstractmethod
    def prepare(self, parts: Sequence[str]) -> None:
        """Ensure that parts can be committed; called on the driver, before their names are recorded.

        Args:
            parts: names of the parts of all workers, as returned by ``SinkWriter.close_part``. They may have been
                prepared before.

        Raises:
            SinkError: they cannot be committed; the run fails. A ``ColumnError`` if two workers have written a column
                with different types, which is a failure of the operator that writes it.
        """

    @abstractmethod
    def commit(self, number: int, parts: Sequence[str]) -> None:
        """Make parts output, all or none; idempotent. Called on the driver.

        Args:
            number: number of the commit; numbers increase, and each is always committed with the same parts.
            parts: names of prepared parts.

        Raises:
            SinkError: other parts were committed under this number, or the output cannot be written.
        """

    def recover(self, number: int, parts: Sequence[str]) -> None:
        """Restore the output to that of a checkpoint: commit its parts and take back later ones.

        The default implementation only commits the parts, if there are any.

        Args:
            number: number of the checkpoint's commit; 0 for that with which a fork begins, before its first commit.
            parts: names of the parts that the checkpoint records.

        Raises:
            SinkError: later parts cannot be taken back, or the output cannot be written.
        """
        if parts:
            self.commit(number, parts)


class Sink(SinkCommits, Protocol):
    """A sink of your own: ``stream.sink("out", MySink())``, or ``on_error=`` and ``late=``.

    Workers write rows into invisible parts (``open``, on the hosts). At every marker of a checkpoint, or every few
    seconds without checkpoints, each closes its part, and the driver makes all of these parts output at once
    (``prepare`` and ``commit``). Each row is output exactly once if ``commit`` with the same number and parts has no
    effect the second time, which a transaction that also records the number achieves. The module has an example of 20
    lines, ``fries_nb.workloads.connector_examples`` one for a table of SQLite; ``fries_nb.testing.check_sink`` checks
    yours.

    What ``open`` returns is a writer: ``write(batch)`` takes rows, a ``pyarrow.RecordBatch``; ``close_part()`` stores
    those since the last call durably, and returns the names of the parts that hold them, none if there were none. No
    other writer may use the same names. An exception ends the run, which can be resumed.

    The run takes a copy of the sink (it is pickled), claims the target with it, and pickles it again for the hosts. In
    a checkpoint it is known by its ``repr``: a resumed run must have the same, so that it commits to the same target. A
    dataclass has a good one. ``run.output`` cannot read it.
    """

    @abstractmethod
    def open(self, writer_id: str) -> RowWriter:
        """Open a writer, on the host of a worker.

        Args:
            writer_id: an id that no other writer of the run has: not of another worker, nor of the same one after a
                restart. Names of parts that contain it, and a count, are unique.

        Returns:
            The writer.

        Raises:
            SinkError: the sink cannot be written.
        """

    def discard(self, spared: Collection[str]) -> None:
        """Delete the parts of the run that were never committed, after its end. The default implementation keeps them.

        Args:
            spared: names of parts to keep, since a record may list them.

        Raises:
            SinkError: they cannot be deleted.
        """


class RuntimeSink(SinkCommits, Protocol):
    """A sink as the runtime uses it, whose writers know the columns of their rows."""

    @abstractmethod
    def open(self, worker: WorkerId, incarnation: int, epoch: int = 1) -> SinkWriter:
        """Open a writer, on the host of a worker.

        Hosts of older incarnations may still be writing: a commit refuses parts of an older one than has committed.
        ``epoch`` is that of the topology in which the worker was added; an earlier worker may have had its index.
        """

    def discard(self, incarnation: int, spared: Collection[str]) -> None:
        """Delete the parts that were never committed, after the end of a run. The default implementation keeps them.

        Kept are those of later incarnations, and ``spared`` ones, since a record may list them.
        """


def of_user(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch without the columns that the runtime adds."""
    hidden = [name for name in HIDDEN if name in batch.schema.names]
    return batch.drop_columns(hidden) if hidden else batch


class WrittenColumns:
    """The columns of all batches that a writer has written."""

    def __init__(self) -> None:
        self.schema = pa.schema([])  # the columns; the same object as long as there are no new ones
        self._seen: pa.Schema | None = None

    def note(self, schema: pa.Schema) -> None:
        """Note the columns of a batch; a ``ColumnError`` if one has changed its type."""
        if schema is not self._seen and schema != self._seen:
            self._seen = schema
            wider = unified(self.schema, schema)
            self.schema = self.schema if wider == self.schema else wider


class OpenSinks:
    """The open writers of one worker: its sink, or the dead letters of its operators.

    After a failure nothing more is written or closed, so that no commit omits the rows that were not written.
    """

    def __init__(self, writers: Mapping[WorkerId, SinkWriter]) -> None:
        self._writers = dict(writers)
        self._columns = {worker: writer.columns for worker, writer in writers.items()}
        self._has_failed = False

    def carry_out(self, instruction: Write | ClosePart) -> Iterator[TellController | SinkWidened | SinkFailed]:
        """Write rows, or close a part; yields answers for the controller, and events for the worker."""
        if self._has_failed:
            return
        try:
            if isinstance(instruction, ClosePart):
                yield TellController(self._closed(instruction))
            else:
                yield from self._written(instruction)
        except FriesError as error:
            self._has_failed = True
            yield SinkFailed(error)

    def merge(self, other: OpenSinks) -> None:
        """Take over all writers of a worker whose operators join those of this one."""
        self._writers.update(other._writers)
        self._columns.update(other._columns)

    def part(self, workers: Iterable[WorkerId]) -> OpenSinks:
        """Give up the writers of some operators, which another worker runs from now on; returns them."""
        writers = {worker: self._writers.pop(worker) for worker in workers if worker in self._writers}
        apart = OpenSinks(writers)
        apart._columns = {worker: self._columns.pop(worker) for worker in writers}
        return apart

    def _closed(self, instruction: ClosePart) -> Done | Ended:
        answer = instruction.answer
        writer = self._writers.get(answer.worker)
        return answer if writer is None else replace(answer, files=writer.close_part())

    def _written(self, instruction: Write) -> Iterator[SinkWidened]:
        writer = self._writers[instruction.worker]
        writer.write(instruction.batch)
        if writer.columns is not self._columns[instruction.worker]:
            self._columns[instruction.worker] = writer.columns
            yield SinkWidened(instruction.worker, writer.columns)
