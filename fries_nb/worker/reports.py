"""What a worker tells of its work: its rows, a report for each operator, the audit's records, and what is measured.

The output of a worker: rows, a report for each of its operators, and the records of the audit.

What a worker measures for latency constraints, once it is asked to (Nephele Streaming, section 3.3).

task      from the beginning of a slice until results are in the outbox; if a slice has none, from the first slice on
          that had none. The operators of a chain share it equally, since rows leave the chain together
row       the time of all slices of an interval, over the rows that the operator took in
channel   from the addition of the tagged row to its sender's buffer until the slice that processes it begins
queue     rows of a channel that wait, if none of its tagged rows was processed
buffer    at its sender; see ``BufferMeter``

Elements that are not observed cost nothing.

>>> import pyarrow as pa
>>> from fries_nb.dataflow.graph import Operator
>>> from fries_nb.protocol.messages import Tag, WorkerId
>>> channel = ChannelId(WorkerId("FC", 0), WorkerId("FM", 1))
>>> now = [0]
>>> inbox = Inbox([channel])
>>> function = Instance(WorkerId("FM", 1), Operator("FM"), dict, audit=False)
>>> meter = ElementMeter([function], inbox, Outbox([]), lambda: now[0])
>>> meter.process(Observe(senders=frozenset(["FC"]), receivers=frozenset(), tasks=frozenset(["FM"])))
[]
>>> rows = pa.RecordBatch.from_pydict({"n": [1, 2]})
>>> meter.loaded([(channel, Data(rows, tag=Tag(1, 500_000)))])     # of two rows, the second one is tagged
>>> meter.sliced(1_000_000, 3_000_000, taken=1, emits=True)    # processes the first
>>> meter.sliced(4_000_000, 5_000_000, taken=1, emits=True)
>>> function.processed, now[0] = 2, 10_000_000
>>> [told] = meter.process(Measure())
>>> task, came = told.measured
>>> (str(task.worker), task.latency_ms, task.samples, task.processor), (str(came.channel), came.latency_ms)
(('FM[1]', 1.5, 2, 0.3), ('FC[0]->FM[1]', 3.5))
>>> task.row_ms, task.rows
(1.5, 2)
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from fries_nb.dataflow.columns import DUE
from fries_nb.operators.arms import Arms
from fries_nb.operators.dry_run import types_of
from fries_nb.operators.executors import ChainExecutor
from fries_nb.operators.instance import Instance
from fries_nb.operators.steps import Results
from fries_nb.protocol.checkpoints import Reading
from fries_nb.protocol.messages import (
    ChannelId,
    ChannelMeasured,
    Data,
    Measured,
    QueueMeasured,
    Report,
    TaskMeasured,
)
from fries_nb.protocol.rollout import RolloutStep
from fries_nb.worker.events import (
    Instruction,
    Measure,
    Observe,
    Resize,
    SinkWidened,
    TellController,
    TellMeasured,
    Traced,
    Write,
)
from fries_nb.worker.inbox import Inbox
from fries_nb.worker.meters import LatencyMeter
from fries_nb.worker.outbox import Outbox


@dataclass(frozen=True, slots=True)
class PassedSlice:
    """A slice that the worker has processed, by reference: rows that came in, if any, and batches that went out."""

    came: pa.RecordBatch | None
    went: Results


class WorkerReports:
    """Measures one worker, and makes its reports.

    Args:
        instances: the worker's operators, in the chain's order.
        outbox: their output.
        clock: returns nanoseconds since the Unix epoch.

    Attributes:
        written: the schema of the last batch that left the chain.
        columns: all columns of a sink; reported when they have changed.
        is_blocked: what was noted last; see ``note_credit``.
        left_out: number of rows that a worker of a shadow has left out itself.
        withholds_trace: whether reports contain no records of the audit, since those of a checkpoint are not complete.
    """

    def __init__(
        self, instances: Sequence[Instance], inbox: Inbox, outbox: Outbox, clock: Callable[[], int]
    ) -> None:  # fmt: skip
        self._outbox, self.left_out = outbox, 0
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

    def now_ns(self) -> int:
        """Nanoseconds since the Unix epoch."""
        return self._clock()

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
                    self._outbox.left_out + self.left_out if last else 0,
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
                for arms, steps in self._sampling():
                    arms.made(batch, steps, self._reports.now_ns())
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

    def _sampling(self) -> list[tuple[Arms, tuple[RolloutStep, ...]]]:
        """In a canary, what samples the rows: the arms of the last target in the chain, with the canary's steps."""
        found = [(one.arms, one.earlier[-1].steps) for one in self._instances if one.arms is not None and one.earlier]
        return found[-1:]


class ElementMeter:
    """Measures one worker.

    Args:
        outbox: its output, whose buffers are measured.
        clock: returns nanoseconds since the Unix epoch.
    """

    def __init__(self, instances: Sequence[Instance], inbox: Inbox, outbox: Outbox, clock: Callable[[], int]) -> None:
        self._instances = tuple(instances)
        self._processed = [instance.processed for instance in self._instances]
        self._inbox = inbox
        self._outbox = outbox
        self._clock = clock
        self._observed: Observe | None = None
        self._began_ns = clock()
        self._ahead: list[tuple[int, ChannelId, int]] = []  # rows until a tagged row, its channel, its time
        self._latencies: dict[ChannelId, tuple[int, int]] = {}
        self._rows: dict[ChannelId, int] = {}
        self._pending_ns: int | None = None
        self._task_ns = self._samples = self._busy_ns = 0

    def process(self, event: Observe | Measure | Resize) -> list[Instruction]:
        """Process an event about measurements; returns the instruction to send them if an interval has ended."""
        if isinstance(event, Resize):
            self._outbox.resize(event.channel, event.size, event.version)
        elif isinstance(event, Observe):
            self._observed = event
            self._outbox.observe(event.receivers, self._clock, event.size, event.version)
            self._outbox.fills_buffers = event.fills_buffers
        elif measured := [*self._take(), *self._outbox.measured()]:
            return [TellMeasured(tuple(measured))]
        return []

    def loaded(self, frames: Sequence[tuple[ChannelId, Data]], first: int = 0) -> None:
        """Record that a batch is about to be processed, which consists of these frames, each with its channel.

        ``first`` is the number of rows that are in hand ahead of it.
        """
        if self._observed is None:
            return
        for channel, frame in frames:
            if frame.tag is not None:
                self._ahead.append((first + frame.tag.row, channel, frame.tag.time_ns))
            self._rows[channel] = self._rows.get(channel, 0) + frame.batch.num_rows
            first += frame.batch.num_rows

    def sliced(self, began_ns: int, ended_ns: int, taken: int, emits: bool) -> None:
        """Record a slice."""
        if self._observed is None:
            return
        self._busy_ns += ended_ns - began_ns
        if taken:
            self._reach(began_ns, taken)
            since_ns = began_ns if self._pending_ns is None else self._pending_ns
            self._pending_ns = None if emits else since_ns
            if emits:
                self._task_ns += ended_ns - since_ns
                self._samples += 1

    def _reach(self, began_ns: int, taken: int) -> None:
        ahead: list[tuple[int, ChannelId, int]] = []
        for rows, channel, added_ns in self._ahead:
            if rows >= taken:
                ahead.append((rows - taken, channel, added_ns))
            else:
                sum_ns, samples = self._latencies.get(channel, (0, 0))
                self._latencies[channel] = sum_ns + max(0, began_ns - added_ns), samples + 1
        self._ahead = ahead

    def _take(self) -> list[Measured]:
        """The measurements of tasks and incoming channels since the last call."""
        now_ns = self._clock()
        interval_ns = max(1, now_ns - self._began_ns)
        observed, measured = self._observed, list[Measured]()
        if observed is not None:
            measured += self._tasks(observed, interval_ns)
            measured += self._incoming(observed, interval_ns)
        self._began_ns = now_ns
        self._latencies.clear()
        self._rows.clear()
        self._task_ns = self._samples = self._busy_ns = 0
        self._processed = [instance.processed for instance in self._instances]
        return measured

    def _tasks(self, observed: Observe, interval_ns: int) -> list[Measured]:
        """The measurements of the observed tasks, if there was a result."""
        if not self._samples:
            return []
        share = len(self._instances)
        latency_ms = self._task_ns / self._samples / 1e6 / share
        processor = min(1.0, self._busy_ns / interval_ns) / share
        measured = list[Measured]()
        for one, before in zip(self._instances, self._processed, strict=True):
            if one.worker.operator in observed.tasks:
                rows = max(0, one.processed - before)
                row_ms = self._busy_ns / rows / 1e6 if rows else 0.0
                measured.append(TaskMeasured(one.worker, latency_ms, self._samples, processor, row_ms, rows))
        return measured

    def _incoming(self, observed: Observe, interval_ns: int) -> list[Measured]:
        measured: list[Measured] = []
        waiting = self._inbox.waiting
        for channel in dict.fromkeys((*self._latencies, *waiting)):
            if channel.sender.operator not in observed.senders:
                continue
            if found := self._latencies.get(channel):
                sum_ns, samples = found
                measured.append(ChannelMeasured(channel, sum_ns / samples / 1e6, samples))
            else:
                rate = self._rows.get(channel, 0) * 1e9 / interval_ns
                measured.append(QueueMeasured(channel, waiting[channel], rate))
        return measured
