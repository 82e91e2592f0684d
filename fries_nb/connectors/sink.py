"""The protocol of sinks: workers write invisible parts, and a commit makes parts output.

A commit takes the parts that all workers closed at one marker of the dataflow, so that what is output is always what a
prefix of the sources led to. The driver prepares them, puts their names on record with the checkpoint, and commits
them. If it dies in between, the next attempt commits what is on record; parts on no record never become output.

A sink that keeps rows as lines of files, complete:

>>> import os, json, tempfile
>>> class LinesWriter:
...     def __init__(self, path, name):
...         self.path, self.name, self.rows, self.count, self.columns = path, name, [], 0, pa.schema([])
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
...     def open(self, worker, incarnation):
...         return LinesWriter(self.path, f"{worker}-{incarnation}")
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
...     writer = sink.open(WorkerId("lines", 0), incarnation=1)
...     writer.write(pa.RecordBatch.from_pylist([{"n": 1}]))
...     parts = writer.close_part()
...     sink.prepare(parts)
...     before = os.listdir(path)
...     sink.commit(1, parts)
...     before, os.listdir(path)
(['.lines[0]-1-0'], ['lines[0]-1-0'])

``tests/connectors/test_sink_contract.py`` checks what every sink promises.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Protocol

import pyarrow as pa
from msgspec.structs import replace

from fries_nb.errors import FriesError, SinkError
from fries_nb.messages import Done, Ended, WorkerId
from fries_nb.worker.events import ClosePart, SinkFailed, SinkWidened, TellController, Write

__all__ = ["OpenSinks", "Sink", "SinkError", "SinkWriter"]


class SinkWriter(Protocol):
    """Writes the rows of one worker. Used by one thread."""

    @property
    def columns(self) -> pa.Schema:
        """All columns that were written so far; the same object as long as there are no new ones."""

    def write(self, batch: pa.RecordBatch) -> None:
        """Take rows, which are invisible until they are committed.

        Args:
            batch: rows, with the columns that the runtime adds (``fries_nb.messages.HIDDEN``).

        Raises:
            SinkError: the sink cannot take them, or they cannot be written.
        """

    def close_part(self) -> tuple[str, ...]:
        """Close what was written since the last call, at a marker: it survives the end of this process.

        Returns:
            Names of the closed parts, which no other worker or attempt uses; none if nothing was written.

        Raises:
            SinkError: they cannot be written.
        """


class Sink(Protocol):
    """Where rows go. Made on the driver, and pickled for the hosts."""

    def open(self, worker: WorkerId, incarnation: int) -> SinkWriter:
        """Begin to write, on the host of a worker.

        Args:
            worker: whose rows are written.
            incarnation: the attempt; hosts of an older one may still be writing.

        Raises:
            SinkError: nothing can be written.
        """

    def prepare(self, parts: Sequence[str]) -> None:
        """See that parts can be committed, whatever happens next. On the driver, before their names are on record.

        Args:
            parts: of all workers, as ``SinkWriter.close_part`` named them. They may have been prepared before.

        Raises:
            SinkError: they cannot; the run ends without them. A ``ColumnError`` where a column has another type than
                another worker has written: that is a failure of the operator that writes it.
        """

    def commit(self, number: int, parts: Sequence[str]) -> None:
        """Make parts output, all or none. On the driver, also for parts that were committed before.

        Args:
            number: of the commit, which grows; a number is always committed with the same parts.
            parts: that were prepared.

        Raises:
            SinkError: other parts were committed under this number, a part is of an older attempt than one that has
                committed, or the output cannot be written.
        """

    def recover(self, number: int, parts: Sequence[str]) -> None:
        """A run goes on from a checkpoint: its parts are output, and nothing later is. By default, commits them.

        Args:
            number: of the checkpoint's commit.
            parts: that the checkpoint has on record.

        Raises:
            SinkError: later parts cannot be taken back, or the output cannot be written.
        """
        self.commit(number, parts)

    def discard(self, incarnation: int, spared: Collection[str]) -> None:
        """A run is over: delete its parts that were never committed. By default, they stay.

        Args:
            incarnation: of the attempt that ends; parts of later ones stay.
            spared: parts that stay as well, since they may be on a record.

        Raises:
            SinkError: they cannot be deleted.
        """


class OpenSinks:
    """What one worker writes to: its sink, or the dead letters of its operators. Carries out what it says of them.

    Behind a failure nothing more is written or closed, so that no commit can be without the rows that are missing.

    Args:
        writers: by the operator's worker.
    """

    def __init__(self, writers: Mapping[WorkerId, SinkWriter]) -> None:
        self._writers = dict(writers)
        self._columns = {worker: writer.columns for worker, writer in writers.items()}
        self._has_failed = False

    def carry_out(self, instruction: Write | ClosePart) -> Iterator[TellController | SinkWidened | SinkFailed]:
        """Write, or close a part.

        Args:
            instruction: of the worker.

        Yields:
            An answer that is due to the controller, or events that the worker is to hear.
        """
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
