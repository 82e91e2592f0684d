"""What a worker measures for latency constraints, once it is asked to (Nephele Streaming, section 3.3).

task      from the beginning of a slice until results are in the outbox; if a slice has none, from the first slice on
          that had none. The operators of a chain share it equally, since rows leave the chain together
row       the time of all slices of an interval, over the rows that the operator took in
channel   from the addition of the tagged row to its sender's buffer until the slice that processes it begins
queue     rows of a channel that wait, if none of its tagged rows was processed
buffer    at its sender; see ``buffer_meter``

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

from collections.abc import Callable, Sequence

from fries_nb.operators.instance import Instance
from fries_nb.protocol.messages import ChannelId, ChannelMeasured, Data, Measured, QueueMeasured, TaskMeasured
from fries_nb.worker.events import Instruction, Measure, Observe, Resize, TellMeasured
from fries_nb.worker.inbox import Inbox
from fries_nb.worker.outbox import Outbox


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

    def loaded(self, frames: Sequence[tuple[ChannelId, Data]]) -> None:
        """Record that a batch is about to be processed, which consists of these frames, each with its channel."""
        if self._observed is None:
            return
        first = 0
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
