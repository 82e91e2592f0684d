"""The output of a worker: rows, a report for each of its operators, and the records of the audit."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from fries_nb.dataflow.hidden_columns import DUE
from fries_nb.operators.dry_run import types_of
from fries_nb.operators.executors import ChainExecutor
from fries_nb.operators.instance import Instance
from fries_nb.operators.steps import Results
from fries_nb.protocol.checkpoints import Reading
from fries_nb.protocol.messages import Data, Report
from fries_nb.worker.events import Instruction, SinkWidened, TellController, Traced, Write
from fries_nb.worker.inbox import Inbox
from fries_nb.worker.meters import LatencyMeter
from fries_nb.worker.outbox import Outbox


class WorkerReports:
    """Measures one worker, and makes its reports.

    Args:
        instances: the worker's operators, in the chain's order.
        clock: returns nanoseconds since the Unix epoch.

    Attributes:
        written: the schema of the last batch that left the chain.
        columns: all columns of a sink; reported when they have changed.
        is_blocked: what was noted last; see ``note_credit``.
        withholds_trace: whether reports contain no records of the audit, since those of a checkpoint are not complete.
    """

    def __init__(self, instances: Sequence[Instance], inbox: Inbox, clock: Callable[[], int]) -> None:
        self.written = pa.schema([])
        self.columns = self._reported = pa.schema([])
        self.withholds_trace = False
        self._typed, self._types = self.written, types_of(self.written)
        self._instances = tuple(instances)
        self._inbox = inbox
        self._clock = clock
        self._meter = LatencyMeter()
        self._last: tuple[Report, ...] = ()
        self.is_blocked = False
        self._blocked_ns = self._since_ns = 0

    def measure(self, due: pa.Array) -> None:
        """Record the end-to-end latencies of tuples that reach a sink now."""
        due = due.to_numpy(zero_copy_only=False)
        self._meter.add((np.int64(self._clock()) - due) / 1e6)

    def note_credit(self, is_blocked: bool) -> None:
        """Record that so much of the worker's output waits for credit that it takes no tuple, or no longer does."""
        self._count_blocked()
        self.is_blocked = is_blocked

    def _count_blocked(self) -> None:
        """Count the time until now, if the worker is blocked."""
        now_ns = self._clock()
        if self.is_blocked:
            self._blocked_ns += max(0, now_ns - self._since_ns)
        self._since_ns = now_ns

    def _take_blocked(self) -> int:
        self._count_blocked()
        taken, self._blocked_ns = self._blocked_ns, 0
        return taken

    def widened(self, event: SinkWidened) -> None:
        """Record the columns of the worker's sink; an event for a sink of dead letters is ignored."""
        if event.worker == self._instances[0].worker and self._instances[0].operator.traits.is_sink:
            self.columns = event.columns

    def report(
        self, executor: ChainExecutor, running: ChainExecutor, held: int, used_ns: tuple[int, int, int],
        reading: Reading | None,
    ) -> list[Instruction]:  # fmt: skip
        """A report for each operator, and the audit's records since the last one."""
        if self.written is not self._typed:
            self._typed, self._types = self.written, types_of(self.written)
        latency, columns, blocked_ns = self._meter.take(), self._new_columns(), self._take_blocked()
        told: list[Report] = []
        for position, instance in enumerate(self._instances):
            first, last = not position, position == len(self._instances) - 1
            told.append(
                Report(
                    instance.worker,
                    instance.processed,
                    self._inbox.bytes if first else 0,
                    self._inbox.tuples + running.remaining if first else 0,
                    tuple(executor.reads) if first else (),
                    self._types if last else {},
                    latency if last else (),
                    held if first else 0,
                    columns if last else b"",
                    self._inbox.feedback if first else None,
                    *(used_ns[:2] if first else (0, 0)),
                    reading if first else None,
                    used_ns[2],
                    blocked_ns,
                    instance.failed,
                    instance.given if last else self._instances[position + 1].processed,
                    len(instance.state),
                )
            )
        self._last = tuple(told)
        reported = map(TellController, told)
        return [*reported] if self.withholds_trace else [*reported, *self.traced()]

    def inside(self, remaining: int, arrived: Sequence[Data], busy_ns: int, turn_ns: int) -> list[Report]:
        """The last reports with what is known while the worker is inside a call; may be called by any thread.

        What is counted since the last report, such as latencies, is left to the next one.
        """
        told = []
        for position, (last, instance) in enumerate(zip(self._last, self._instances, strict=False)):
            known: dict[str, Any] = {"processed": instance.processed, "turn_ns": turn_ns}
            if not position:
                known["queued"] = self._inbox.bytes + sum(frame.size for frame in arrived)
                waiting = sum(frame.batch.num_rows for frame in arrived)
                known["queued_tuples"] = self._inbox.tuples + max(0, remaining) + waiting
                known["busy_ns"] = busy_ns
            told.append(msgspec.structs.replace(last, latency=(), columns=b"", blocked_ns=0, **known))
        return told

    def _new_columns(self) -> bytes:
        if self.columns is self._reported:
            return b""
        self._reported = self.columns
        return bytes(self.columns.serialize())

    def traced(self, ended: bool = False) -> list[Instruction]:
        """The audit's records since the last call; ``ended`` marks them as the last ones."""
        records = [instance.records(ended) for instance in self._instances]
        return [Traced(tuple(some)) for some in records if some]


BATCHES_KEPT = 8
"""Number of batches of results that are kept to be looked at."""
MANY = 64
"""Number of rows of a batch beyond which those before it are not kept."""


class WorkerOutput:
    """Passes the results of one worker's executor to its outbox or its sinks.

    Args:
        instances: the worker's operators, in the chain's order.
        outbox: receives the rows of a chain that does not end in a sink.

    Attributes:
        emits: whether there were results at the last call of ``collect``.
        newest: output of the operator to the last batches of results, by reference, the newest first: several if they
            have few rows.
        collected: all that the last call of ``collect`` has taken.
    """

    def __init__(self, instances: Sequence[Instance], outbox: Outbox, reports: WorkerReports) -> None:
        self._instances = tuple(instances)
        self._is_sink = instances[0].operator.traits.is_sink
        self._outbox = outbox
        self._reports = reports
        self.emits = False
        self.newest: dict[int, deque[pa.RecordBatch]] = {}
        self.collected: Results = []

    def collect(self, executor: ChainExecutor) -> list[Instruction]:
        """Take the executor's results since the last call; returns the instructions to write to sinks."""
        writes: list[Instruction] = []
        self.emits = False
        self.collected = executor.results()
        for branch, batch in self.collected:
            if batch.num_rows:
                self.emits = True
                self._instances[-1].given += batch.num_rows
                kept = self.newest.get(branch)
                if kept is None or batch.num_rows > MANY:
                    kept = self.newest[branch] = deque(maxlen=BATCHES_KEPT)
                kept.appendleft(batch)
            if self._is_sink:
                writes.append(Write(self._instances[0].worker, batch))
                self._reports.measure(batch.column(DUE))
            else:
                self._outbox.add(branch, batch)
                self._reports.written = batch.schema
        for instance in self._instances:
            if instance.letters:
                writes += [Write(instance.worker, letter) for letter in instance.take_letters()]
        return writes
