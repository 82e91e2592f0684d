"""The worker: events go in, instructions come out, tuples are processed in between.

A worker is one chain of operators at one index. It holds no thread, socket or clock of its own: a shell (Spark's host,
or the seeded cluster of ``testing``) feeds it events with ``handle``, lets it work with ``run``, and carries out what
``take`` returns. All three are called from one thread. ``run`` does one slice of work and stands between two tuples
when it returns, so whatever event is handled next is handled at a tuple boundary; to make ``run`` return early from
another thread, queue the event and raise ``attention``.

    event        what the worker does with it
    Arrived      queues the frame in its inbox
    Granted      spends the credit on what waits in its outbox
    Directed     FCM: applies the marker now, as a head of its scope; Prepare, Abort, Cancel: at once
    Rehearsed    keeps the prepared function until the marker comes
    Tick         reports what it measured
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa

from fries_nb.dataflow.graph import Kind
from fries_nb.errors import FriesError, OperatorError, ProtocolError
from fries_nb.messages import (
    DUE,
    Abort,
    Answer,
    Cancel,
    ChannelId,
    Commit,
    Control,
    Data,
    Done,
    Ended,
    Failed,
    Fcm,
    Marker,
    Prepare,
    Prepared,
    Reconfigure,
    Report,
    WorkerId,
)
from fries_nb.worker.alignment import Alignment
from fries_nb.worker.chaining import Attention, execution_of
from fries_nb.worker.events import Arrived, Directed, Event, Grant, Granted, Instruction, Tell, ToReader, Traced
from fries_nb.worker.inbox import Inbox
from fries_nb.worker.instance import Instance, SinkPort
from fries_nb.worker.meter import LatencyMeter
from fries_nb.worker.outbox import Outbox
from fries_nb.worker.reconfiguration import SAMPLE_KEYS, Rehearse, Rehearsed, refused, types_of
from fries_nb.worker.wiring import READER, Wiring

SLICE_NS = 2_000_000
"""What a slice aims to take, and how long a tuple may wait in an output buffer while its sender is busy."""
MOST_PER_SLICE = 16_384


class Worker:
    """One chain at one index; see the module.

    Args:
        wiring: its place.
        instances: its operators, opened, in the chain's order.
        window: bytes that may be under way to it on each channel (its share of the host's budget).
        clock: returns nanoseconds since the Unix epoch.
        port: where a sink writes.

    Attributes:
        attention: raise it to have ``run`` return at the next tuple boundary.
        ended: all input is processed and the out-channels are ended.
        failed: an operator failed; the worker takes no further tuple.
    """

    def __init__(
        self,
        wiring: Wiring,
        instances: Sequence[Instance],
        window: int,
        clock: Callable[[], int],
        port: SinkPort | None = None,
    ) -> None:
        self.wiring = wiring
        self.instances = tuple(instances)
        self.attention = Attention()
        self.ended = False
        self.failed = False
        self._clock = clock
        self._port = port
        self._inbox = Inbox(wiring.incoming)
        self._alignment = Alignment(wiring.incoming)
        self._outbox = Outbox(wiring.edges)
        self._meter = LatencyMeter()
        self._execution = execution_of(
            self.instances, self.attention, wiring.branches, wiring.left, port, self._measure
        )
        self._open = set(wiring.incoming)
        self._current: tuple[ChannelId, int] | None = None
        self._quota = 64
        self._buffered_since = 0
        self._written = pa.schema([])
        self._instructions: list[Instruction] = [
            Grant(channel, window) for channel in wiring.incoming if channel.sender.operator != READER
        ]

    # ---- events

    def handle(self, event: Event) -> None:
        """Take one event, at a tuple boundary.

        Raises:
            ProtocolError: the event is illegal here: a channel or worker that is not ours, a marker that came twice.
        """
        if isinstance(event, Arrived):
            self._inbox.put(event.channel, event.frame)
        elif isinstance(event, Granted):
            self._outbox.credit(event.channel, event.size)
        elif isinstance(event, Directed):
            self._direct(event.worker, event.control)
        elif isinstance(event, Rehearsed):
            self._keep(event)
        else:
            self._report()

    def _direct(self, worker: WorkerId, control: Control) -> None:
        position, instance = self._instance(worker)
        if isinstance(control, Fcm):
            if not self._alignment.passed(control.marker.id):
                self._alignment.applied(control.marker.id)
                self._apply(control.marker, position)
        elif isinstance(control, Prepare):
            self._prepare(control, position, instance)
        elif isinstance(control, Abort):
            instance.forget(control.change)
        elif isinstance(control, Cancel):
            self._alignment.cancel(control.marker)
            self._sync_blocks()
        else:
            self._instructions.append(ToReader(control))

    def _instance(self, worker: WorkerId) -> tuple[int, Instance]:
        for position, instance in enumerate(self.instances):
            if instance.worker == worker:
                return position, instance
        raise ProtocolError(f"a message for {worker} came to worker {self.wiring.id}, whose chain does not have it")

    def _prepare(self, order: Prepare, position: int, instance: Instance) -> None:
        instance.expect(order.change)
        if self.ended:
            self._tell(Prepared(order.change, instance.worker))
            return
        try:
            states = instance.state.sample(SAMPLE_KEYS)
        except Exception as error:  # noqa: BLE001 (pickling runs the user's code; the error is the answer)
            what = f"the state of {instance.worker.operator} cannot be copied for a trial"
            self._keep(refused(order.change, instance.worker, what, error))
            return
        row = self._execution.sample() if order.rehearse and not position else None
        self._instructions.append(
            Rehearse(order.change, instance.worker, order.payload, instance.operator, instance.function, states, row)
        )

    def _keep(self, rehearsed: Rehearsed) -> None:
        """What was prepared waits for its marker, unless the change was aborted meanwhile."""
        answer = rehearsed.answer
        instance = self._instance(answer.worker)[1]
        if rehearsed.ready is not None and instance.expects(answer.change):
            instance.prepared[answer.change] = rehearsed.ready
        self._tell(answer)

    # ---- work

    @property
    def hungry(self) -> bool:
        """A source's reader may hand over more: nothing waits, and what was sent has credit."""
        waits = self._inbox.tuples or self._current is not None
        return not waits and not self._outbox.blocked and not self.failed

    def run(self, limit: int = MOST_PER_SLICE) -> bool:
        """Do one slice of work: at most ``limit`` tuples, or one marker. Returns whether there may be more to do.

        While ``attention`` is raised no tuple is taken: lower it, then hand over the events, then run. When nothing can
        be done the output buffers are flushed, since their sender would wait.
        """
        if self.failed:
            return False
        if self.attention.raised:
            return True
        try:
            if not self._work(limit):
                self._outbox.flush()
                return False
        except OperatorError as error:
            self._fail(error, error.operator or self.instances[0].worker.operator, error.details)
        except FriesError as error:
            self._fail(error, self.instances[0].worker.operator, "")
        return True

    def _work(self, limit: int) -> bool:
        if self._outbox.blocked:
            return False
        if self._current is not None:
            self._advance(min(limit, self._quota))
            return True
        taken = self._inbox.take()
        if taken is None:
            return False
        channel, frame = taken
        if isinstance(frame, Data):
            self._execution.load(channel.sender.operator, frame.batch)
            self._current = (channel, frame.size)
            self._advance(min(limit, self._quota))
        elif isinstance(frame, Marker):
            complete = self._alignment.arrived(frame, channel)
            self._sync_blocks()
            if complete is not None:
                self._apply(complete, 0)
        else:
            self._end_of(channel)
        return True

    def _advance(self, quota: int) -> None:
        began = self._clock()
        taken = self._execution.advance(quota)
        for branch, batch in self._execution.results():
            self._outbox.add(branch, batch)
            self._written = batch.schema
        now = self._clock()
        if now - began < SLICE_NS // 2 and taken == quota:
            self._quota = min(self._quota * 2, MOST_PER_SLICE)
        elif now - began > 2 * SLICE_NS:
            self._quota = max(self._quota // 2, 1)
        self._flush_if_old(now)
        if not self._execution.remaining and self._current is not None:
            channel, size = self._current
            self._current = None
            if channel.sender.operator != READER:
                self._instructions.append(Grant(channel, size))

    def _flush_if_old(self, now: int) -> None:
        if not self._outbox.buffered:
            self._buffered_since = 0
        elif not self._buffered_since:
            self._buffered_since = now
        elif now - self._buffered_since >= SLICE_NS:
            self._outbox.flush()
            self._buffered_since = 0

    def _end_of(self, channel: ChannelId) -> None:
        self._open.discard(channel)
        for marker in self._alignment.ended(channel):
            self._apply(marker, 0)
        self._sync_blocks()
        if not self._open and not self.ended:
            self._outbox.end()
            self.ended = True
            files = self._port.close_part() if self._port else ()
            for instance in self.instances:
                self._tell(Ended(instance.worker, files))

    def _sync_blocks(self) -> None:
        blocked = self._alignment.blocked
        for channel in self.wiring.incoming:  # not in a set's order, which differs from process to process
            if channel in blocked:
                self._inbox.block(channel)
            else:
                self._inbox.unblock(channel)

    # ---- markers

    def _apply(self, marker: Marker, start: int) -> None:
        """Apply a marker from this position of the chain on, as far as its scope reaches, and pass it on."""
        switched = False
        for instance in self.instances[start:]:
            if instance.worker.operator not in marker.scope:
                break
            done = self._done(marker, instance)
            switched |= done.switched
            self._tell(done)
        else:
            self._outbox.mark(marker)
        if switched:
            self._execution.rebuild()

    def _done(self, marker: Marker, instance: Instance) -> Done:
        action, worker = marker.action, instance.worker
        if self.ended:
            return Done(marker.id, worker, ended=True)
        if isinstance(action, Commit):
            closes = instance.operator.kind is Kind.SINK and self._port is not None
            return Done(marker.id, worker, files=self._port.close_part() if closes and self._port else ())
        if not isinstance(action, Reconfigure) or worker.operator not in action.targets:
            return Done(marker.id, worker)
        old_tuples = instance.old_tuples(action.change)
        return Done(marker.id, worker, switched=instance.switch(action.change), old_tuples=old_tuples)

    # ---- answers

    def take(self) -> list[Instruction]:
        """What the shell has to carry out now, in order; empties the list."""
        instructions = self._instructions
        instructions.extend(self._outbox.sends())
        self._instructions = []
        return instructions

    def _tell(self, answer: Answer) -> None:
        self._instructions.append(Tell(answer))

    def _fail(self, error: FriesError, operator: str, details: str) -> None:
        self.failed = True
        self._tell(Failed(WorkerId(operator, self.wiring.index), str(error), details))

    def _measure(self, batch: pa.RecordBatch) -> None:
        due = batch.column(DUE).to_numpy(zero_copy_only=False)
        self._meter.add((np.int64(self._clock()) - due) / 1e6)

    def _report(self) -> None:
        reads, writes = tuple(self._execution.reads), types_of(self._written)
        latency = self._meter.take()
        for position, instance in enumerate(self.instances):
            first, last = not position, position == len(self.instances) - 1
            self._tell(
                Report(
                    instance.worker,
                    instance.processed,
                    self._inbox.bytes if first else 0,
                    self._inbox.tuples + self._execution.remaining if first else 0,
                    reads if first else (),
                    writes if last else {},
                    latency if last else (),
                )
            )
            records = instance.records()
            if records:
                self._instructions.append(Traced(tuple(records)))
