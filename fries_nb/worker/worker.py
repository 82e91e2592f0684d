"""The worker: events go in, instructions come out, tuples are processed in between.

A worker is one chain of operators at one index. It has no thread, socket or clock of its own: a shell (Spark's host, or
the seeded cluster of ``testing``) passes it events with ``handle``, calls ``run`` to process tuples, and carries out
the instructions that ``take`` returns. All three are called from one thread. ``run`` processes one slice and returns
between two tuples, so events are always handled at a tuple boundary; to make ``run`` return early from another thread,
queue the event and raise ``interrupt``. ``events`` lists the effect of each event.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import pyarrow as pa

from fries_nb.checkpoints import Position, Snapshot
from fries_nb.errors import FriesError, OperatorError, ProtocolError
from fries_nb.messages import (
    Abort,
    Answer,
    Attempt,
    Cancel,
    ChannelId,
    Commit,
    Control,
    Data,
    Drain,
    Ended,
    Fcm,
    Frame,
    Marker,
    Prepare,
    SetRate,
    Settled,
    Unguard,
    WorkerId,
)
from fries_nb.operators.batch_size import MOST_PER_SLICE, AdaptiveBatchSize
from fries_nb.operators.dry_run import DryRunResult
from fries_nb.operators.executors import ChainExecutor, InterruptFlag, executor_of
from fries_nb.operators.instance import Instance
from fries_nb.operators.recent import Recent
from fries_nb.topology.wiring import Wiring
from fries_nb.worker.adoption import TopologyAdoption
from fries_nb.worker.alignment import Alignment
from fries_nb.worker.element_meter import ElementMeter
from fries_nb.worker.events import (
    Arrived,
    ClosePart,
    Directed,
    Event,
    Expected,
    Grant,
    Granted,
    Instruction,
    Measure,
    Observe,
    Resize,
    Rewired,
    SinkFailed,
    SinkWidened,
    Stalled,
    Supplied,
    TellController,
    ToReader,
)
from fries_nb.worker.inbox import MERGED_ROWS, Inbox, owed
from fries_nb.worker.marker_actions import effects_of, failed_answer
from fries_nb.worker.outbox import Outbox
from fries_nb.worker.pause import PauseState
from fries_nb.worker.preparation import Preparation, keep_ready
from fries_nb.worker.reports import WorkerOutput, WorkerReports
from fries_nb.worker.slowness import Slowness
from fries_nb.worker.snapshot import kept, refuse_another
from fries_nb.worker.versions import Spill, Versions, is_tagged


class Worker:
    """One chain at one index; see the module.

    Args:
        wiring: the worker's channels and out-edges.
        instances: the worker's operators, opened and restored, in the chain's order.
        window: maximum number of bytes in transit to the worker on each channel (its share of the host's budget).
        clock: returns nanoseconds since the Unix epoch.
        snapshot: the snapshot from which the last operator was restored, if any.
        spill: moves batches that wait for a tagged change out of memory; see ``versions``.
        issued: id of the last marker that was issued before the worker was added to a running dataflow.

    Raises:
        ProtocolError: the snapshot is of another worker.

    Attributes:
        interrupt: raise it to make ``run`` return at the next tuple boundary.
        ended, failed: whether all input is processed; whether an operator failed, so that no further tuple is taken.
        slices, slowness: the number of tuples of the next slice; whether it should not share a thread.
        outbox: its output; to be flushed when there is nothing more to do, or after some time.
        preparation: the input of dry runs.
        came: sending operator to the schema of its last batch.
        reports: its measurements, and the columns of a sink.
    """

    def __init__(
        self,
        wiring: Wiring,
        instances: Sequence[Instance],
        window: int,
        clock: Callable[[], int],
        snapshot: Snapshot | None = None,
        spill: Spill = list,
        issued: int = 0,
    ) -> None:
        self.wiring = wiring
        for instance, needed in zip(instances, wiring.needed, strict=True):
            instance.written.needed = needed
        self.interrupt = InterruptFlag()
        self.ended = self.failed = self._held = self._stalled = self._in_hand = False
        self.came: dict[str, pa.Schema] = {}
        self._clock, self._window, self._spill = clock, window, spill
        self._inbox, self._alignment = self._input(issued)
        self._open, self._sender = set(wiring.incoming), ""
        self._owed: dict[ChannelId, int] = {}
        self._unsettled: list[Settled] = []
        self._earlier: dict[WorkerId, tuple[Recent, ...]] = {}
        self._compose(instances, Outbox(wiring.edges), snapshot.version if snapshot else 0)
        self._instructions: list[Instruction] = [*Grant.of(dict.fromkeys(wiring.incoming, window))]
        self._instructions += self.reports.traced()  # the initial record counts
        if snapshot is not None:
            refuse_another(snapshot, self.instances[-1])
            self.outbox.resume(snapshot.round_robin_positions)

    def _input(self, issued: int) -> tuple[Inbox, Alignment]:
        return Inbox(self.wiring.incoming), Alignment(self.wiring.incoming, issued)

    def _compose(self, instances: Sequence[Instance], outbox: Outbox, version: int) -> None:
        """Set up the processing of a chain, which begins with the worker's first operator; see ``chaining`` as well."""
        self.instances = tuple(instances)
        self.outbox = outbox
        self.reports = WorkerReports(self.instances, self._inbox, self._clock)
        self._output = WorkerOutput(self.instances, outbox, self.reports)
        self._executor = self._running = self._compiled(self.instances)
        limit = self._window * max(1, len(self.wiring.incoming))
        self._versions = Versions(self.instances, version, self._inbox, self._compiled, limit, self._spill)
        self._pause = PauseState(self.instances, self._tell)
        self._meter = ElementMeter(self.instances, self._inbox, outbox, self._clock)
        self._adoption = TopologyAdoption(self._inbox, self._alignment, outbox, self._open, self._window)
        self.slices, self.slowness = AdaptiveBatchSize(), Slowness()
        self.preparation = Preparation(self.instances, self._recent, self._clock)

    def _compiled(self, instances: Sequence[Instance]) -> ChainExecutor:
        return executor_of(instances, self.interrupt, self.wiring.branches, self.wiring.left, self.wiring.feedback)

    # ---- events

    def handle(self, event: Event) -> None:
        """Process one event, at a tuple boundary.

        Raises:
            ProtocolError: the event is not allowed: an unknown channel or worker, or a marker that arrived twice.
        """
        if isinstance(event, Arrived):
            self._inbox.put(event.channel, event.frame)
        elif isinstance(event, Supplied):
            self._inbox.supply(event.batch, event.positions)
        elif isinstance(event, Granted):
            self.outbox.credit(event.channel, event.size)
        elif isinstance(event, Directed):
            self._direct(event.worker, event.control)
        elif isinstance(event, Expected):
            self._instance(event.worker)[1].expect(event.order.change, event.order.tagged)
        elif isinstance(event, Rewired):
            self._instructions += self._adoption.begin(self.wiring, event, self.ended)
            self._adopt()
        elif isinstance(event, Observe | Measure | Resize):
            self._instructions += self._meter.process(event)
        elif isinstance(event, DryRunResult):
            keep_ready(event, self._instance(event.answer.worker)[1])
        elif isinstance(event, Stalled):
            self._stalled = event.stalled
            self.outbox.empty()
        elif isinstance(event, SinkWidened):
            self.reports.widened(event)
        elif isinstance(event, SinkFailed):
            self._fail(event.error)
        else:
            self._instructions += self.reports.report(self._executor, self._running, self._versions.held())

    def _direct(self, worker: WorkerId, control: Control) -> None:
        position, instance = self._instance(worker)
        if isinstance(control, Fcm):
            self._head(control.marker, position)
        elif isinstance(control, Prepare):
            self._instructions.append(self.preparation.begin(control, position, control.rehearse and not self.ended))
        elif isinstance(control, Abort):
            instance.forget(control.change)
        elif isinstance(control, Unguard):
            if instance.unguard(control.change, control.keeps):
                self._executor.rebuild()
                self._pause.unguarded(control.change)
        elif isinstance(control, Cancel):
            self._alignment.cancel(control.marker)
            self._inbox.block_only(self._alignment.blocked)
        elif isinstance(control, SetRate | Drain):
            self._instructions.append(ToReader(control))
        else:
            raise ProtocolError(f"{control} came to {self.wiring.id}; expected it to be carried out by the host")

    def _head(self, marker: Marker, position: int) -> None:
        if is_tagged(marker) and not self.instances[0].operator.traits.is_source:
            raise ProtocolError(f"{marker} came to {self.wiring.id} as its head; only a source can tag what it reads")
        if not self._alignment.passed(marker.id):
            self._alignment.applied(marker.id)
            try:
                self._apply(marker, position)
            except OperatorError as error:
                self._fail(error)

    def _instance(self, worker: WorkerId) -> tuple[int, Instance]:
        for position, instance in enumerate(self.instances):
            if instance.worker == worker:
                return position, instance
        raise ProtocolError(f"a message for {worker} came to worker {self.wiring.id}, whose chain does not have it")

    def _recent(self, position: int) -> tuple[Recent, ...]:
        """Tuples for a rehearsal; if the worker is paused, the tuple that a fix has to process."""
        facing = self._executor.facing() if self._pause.paused else None
        taken = tuple(self._executor.samples(position)) or self._earlier.get(self.instances[position].worker, ())
        return taken if facing is None else (Recent(facing, facing=True),)

    # ---- work

    @property
    def wants_input(self) -> bool:
        """Whether a source's reader may supply more: nothing is queued, and no output channel is full."""
        waits = self._inbox.is_supplied or self._in_hand or self.outbox.full
        return not (waits or self.failed or self._held)

    @property
    def is_busy(self) -> bool:
        """Whether the worker holds tuples that it has taken from its inbox: in hand, paused on, or set aside."""
        return not self.ended and (self._in_hand or self._pause.under_way or self._versions.under_way)

    @property
    def version(self) -> int:
        """Number of tagged changes that have been applied."""
        return self._versions.number

    def run(self, limit: int = MOST_PER_SLICE) -> bool:
        """Process markers, and one slice of at most ``limit`` tuples; returns whether there may be more to do.

        While ``interrupt`` is raised no tuple is taken: lower it, then deliver the events, then run.
        """
        if self.failed:
            return False
        if self.interrupt.raised:
            return True
        try:
            return self._work(limit)
        except FriesError as error:
            self._fail(error)
        return True

    @property
    def _is_stopped(self) -> bool:  # until there is credit, the source or the chain is released, or the tuple has a fix
        return self.outbox.full or self._held or self._stalled or self._pause.paused

    def _work(self, limit: int) -> bool:
        if self._is_stopped:
            return False
        if self._in_hand:
            self._advance(limit)
        elif self._inbox.is_supplied:
            self._read(*self._inbox.take_supplied(), limit)
        else:
            while (taken := self._inbox.take()) is not None and not self._receive(*taken, limit):
                if self._is_stopped or self.interrupt.raised:
                    break  # a marker needs no turn of its own, but a tuple behind it is not to be taken
        return self._in_hand or self._inbox.is_supplied or self._inbox.is_ready

    def _read(self, batch: pa.RecordBatch | None, positions: Mapping[int, Position | None], limit: int) -> None:
        """Process a batch from a source's reader; it has the version that the source has reached."""
        if batch is None:
            self._finish()
        else:
            self._begin("", batch, self._versions.number)
            self._advance(limit)
            self.instances[0].positions.update(positions)

    def _receive(self, channel: ChannelId, frame: Frame, limit: int) -> bool:
        """Process a frame from a channel, a small one together with others that wait; returns whether it had tuples."""
        if isinstance(frame, Marker):
            self._arrived(frame, channel)
        elif not isinstance(frame, Data):
            self._end_of(channel)
        elif frame.version > self._versions.number and self._versions.sets_aside(channel, frame):
            self._instructions += Grant.of(owed([(channel, frame)]))
        else:
            batch, frames = self._inbox.merged(channel, frame, min(MERGED_ROWS, self.slices.quota))
            self._begin(channel.sender.operator, batch, frame.version)
            self._owed = owed(frames)
            self._meter.loaded(frames)
            self._advance(limit)
        return isinstance(frame, Data)

    def _begin(self, sender: str, batch: pa.RecordBatch, version: int) -> None:
        """Begin a batch."""
        self._running = self._versions.executor_of(version, self._executor)
        self.outbox.turn_to(version)
        self.came[sender], self._sender = batch.schema, sender
        self._running.load(sender, batch)
        self._in_hand = True

    def _arrived(self, marker: Marker, channel: ChannelId) -> None:
        complete = self._alignment.arrived(marker, channel, holds=not is_tagged(marker) or self._versions.waits)
        self._inbox.block_only(self._alignment.blocked)
        if complete is not None:
            self._apply(complete, 0)

    def _advance(self, limit: int) -> None:
        self.preparation.offer()
        began = self._clock()
        taken = self._pause.advance(self._running, min(limit, self.slices.quota))
        self._instructions += self._output.collect(self._running)
        now = self._clock()
        self._meter.sliced(began, now, taken, self._output.emits)
        self.slices.learn(now - began, taken)
        self.slowness.learn(now - began, taken)
        self.preparation.withdraw(now - began, taken)
        if not self._running.remaining:
            self._in_hand = False
            self._instructions += Grant.of(self._owed)
            self._owed = {}

    def _end_of(self, channel: ChannelId) -> None:
        self._open.discard(channel)
        for marker in self._alignment.ended(channel):
            self._apply(marker, 0)
        self._inbox.block_only(self._alignment.blocked)
        self._adopt()
        if not self._open and not self.ended:
            self._finish()

    def _adopt(self) -> None:
        """Adopt the wiring of the next topology epoch, if all removed channels have ended."""
        self.wiring, answers = self._adoption.adopted(self.wiring)
        self._instructions += map(TellController, answers)

    def _finish(self) -> None:
        """End the output channels, close the sink's part and report the end, since all input is processed."""
        self.outbox.end()
        self.ended = True
        # The last trace records are sent first: once a checkpoint records the worker as finished, none can be added.
        self._instructions.extend(self.reports.traced(ended=True))
        for instance in self.instances:
            instance.unguard()
            self._instructions.append(ClosePart(Ended(instance.worker)))

    # ---- markers

    def _apply(self, marker: Marker, start: int) -> None:
        """Apply a marker to the chain's operators from this position on that are in its scope, and forward it."""
        action, busy = marker.action, self.is_busy
        saves: list[Instruction] = []
        if isinstance(action, Commit) and action.checkpoint and not self.ended:
            saves = [kept(action.epoch, self.instances, self.outbox.round_robin_positions, self._versions.number)]
            self._instructions.extend(self.reports.traced())
        effects = effects_of(marker, self.instances[start:], self.ended, busy)
        self._held = self._held if effects.holds is None else effects.holds
        self._instructions += effects.answers
        if busy and isinstance(action, Attempt):
            self._unsettled += [Settled(instance.worker, marker.id) for instance in self.instances[start:]]
        if effects.leaves:
            self.outbox.mark(marker)
        self._instructions += saves
        if is_tagged(marker):
            self._versions.complete()
            self._running = self._executor
        if effects.switched:
            self._executor.rebuild()
            self._earlier.clear()
            self._pause.fixed()
            self.slowness = Slowness()

    # ---- answers

    def take(self) -> list[Instruction]:
        """The instructions for the shell, in order; removes them."""
        if self._unsettled and not self.is_busy:
            self._instructions += map(TellController, self._unsettled)
            self._unsettled.clear()
        taken, self._instructions = [*self._instructions, *self.outbox.sends()], []
        return taken

    def _tell(self, answer: Answer) -> None:
        self._instructions.append(TellController(answer))

    def _fail(self, error: FriesError) -> None:
        self.failed = True
        self._tell(failed_answer(error, self.instances[0].worker))
