"""The worker: events go in, instructions come out, tuples are processed in between.

A worker is one chain of operators at one index. It has no thread, socket or clock of its own: a shell (Spark's host, or
the seeded cluster of ``simulation``) passes it events with ``handle``, calls ``run`` to process tuples, and carries out
the instructions that ``take`` returns. All three are called from one thread. ``run`` processes one slice and returns
between two tuples, so events are always handled at a tuple boundary; to make ``run`` return early from another thread,
queue the event and raise ``interrupt``. ``events`` lists the effect of each event.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc
from msgspec.structs import replace

from fries_nb.dataflow.columns import DUE
from fries_nb.errors import FriesError, OperatorError, ProtocolError
from fries_nb.operators.batches import MOST_PER_SLICE, AdaptiveBatchSize
from fries_nb.operators.dry_run import SAMPLES, DryRunResult, Recent
from fries_nb.operators.executors import ChainExecutor, InterruptFlag, executor_of
from fries_nb.operators.instance import Instance
from fries_nb.operators.state import UnreadableState
from fries_nb.operators.timed_calls import FIRED, firing_batch
from fries_nb.progress.agenda import Firing
from fries_nb.progress.progress_graph import CountChanges, ProgressGraph
from fries_nb.progress.times import Antichain
from fries_nb.protocol.checkpoints import Snapshot
from fries_nb.protocol.messages import (
    Abort,
    Action,
    AdoptSplits,
    Answer,
    Attempt,
    BlockEntries,
    Cancel,
    ChannelId,
    Commit,
    Control,
    Data,
    Drain,
    Ended,
    Fcm,
    Frame,
    Installed,
    Marker,
    Move,
    MovedBins,
    MoveSplits,
    OpenEntries,
    Prepare,
    Reconfigure,
    Report,
    SetRate,
    Settle,
    Settled,
    Unguard,
    WorkerId,
)
from fries_nb.protocol.topology import Wiring
from fries_nb.worker import events
from fries_nb.worker.alignment import Alignment, GivenBefore, effects_of, failed_answer, given_by
from fries_nb.worker.bin_transfer import BinTransfer, TopologyAdoption
from fries_nb.worker.freezing import TELLING, Freezing
from fries_nb.worker.handover import Handover
from fries_nb.worker.inbox import MERGED_ROWS, Inbox, owed
from fries_nb.worker.input_times import Bounds, input_times
from fries_nb.worker.meters import TurnTime
from fries_nb.worker.moving_out import MovingOut
from fries_nb.worker.outbox import Outbox, output_of
from fries_nb.worker.reports import ElementMeter, PassedSlice, WorkerOutput, WorkerReports
from fries_nb.worker.retries import PauseState, Returning
from fries_nb.worker.rota import Slowness
from fries_nb.worker.saving import StateTurns, parking
from fries_nb.worker.snapshot import refuse_another
from fries_nb.worker.versions import Preparation, Spill, Versions, is_of_shape, is_tagged, keep_ready


class Worker:
    """One chain at one index: its input, its executors and its output; see the module.

    Args:
        instances: the worker's operators, opened and restored, in the chain's order.
        window: maximum number of bytes in transit to the worker on each channel (its share of the host's budget); less
            is granted within a loop.
        clock: returns nanoseconds since the Unix epoch.
        snapshot: the snapshot from which the last operator was restored, if any.
        spill: moves batches that wait for a tagged change out of memory; see ``versions``.
        issued: id of the last marker that was issued before the worker was added to a running dataflow.
        progress: the dataflow as progress sees it; ``None`` if progress is not tracked.

    Raises:
        ProtocolError: the snapshot is of another worker.

    Attributes:
        interrupt: raise it to make ``run`` return at the next tuple boundary.
        ended, failed: whether all input is processed; whether an operator failed, so that no further tuple is taken.
        slices, slowness: the number of tuples of the next slice; whether it should not share a thread.
        states, moving_out, is_aside: what it does with its states between tuples; whether that is all it has to do.
        outbox: its output; to be flushed when there is nothing more to do, or after some time.
        useful_ns, busy_ns: nanoseconds of a processor that it has used, and in which it was busy while its tuples were
            slow; counted by the shell, or 0.
        turn_time: the duration of its turns; told by the shell when they begin and end.
        preparation: the input of dry runs.
        passed: the slices since it was emptied, while taps look at them; otherwise ``None``.
        progress: see the arguments.
        came: sending operator to the schema of its last batch.
        freezing: how far it has begun each origin, for changes that are decided row by row.
        handover: the states that its operators give to others, or begin with, by a change of the shape.
        reports: its measurements, and the columns of a sink.
        given_before: operator's worker to the last change that it has switched to, and its last results before.
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
        progress: ProgressGraph | None = None,
    ) -> None:
        self.wiring, self.progress, self.freezing, self.handover = wiring, progress, Freezing(), Handover()
        for instance, needed in zip(instances, wiring.needed, strict=True):
            instance.written.needed = needed
        self.interrupt, self.turn_time = InterruptFlag(), TurnTime(clock)
        self.useful_ns = self.busy_ns = 0
        self.ended = self.failed = self._held = self._stalled = self._in_hand = self._has_warned = False
        self._begins_held = self._leaves = self.is_aside = False
        self.passed: list[PassedSlice] | None = None
        self.came: dict[str, pa.Schema] = {}
        self._clock, self._window, self._spill = clock, window, spill
        self._inbox, self._alignment = self._input(issued)
        self._open, self._sender, self._due_ns = set(wiring.incoming), "", 0
        self._firing: Firing | None = None
        self._owed: list[tuple[ChannelId, Data]] = []
        self._unsettled: list[Settled] = []
        self._earlier: dict[WorkerId, tuple[Recent, ...]] = {}
        self.given_before: dict[WorkerId, GivenBefore] = {}
        self._transfer: BinTransfer | None = None
        self.states, self.moving_out = StateTurns(clock), MovingOut(clock)
        version = snapshot.version if snapshot else 0
        self._times = input_times(wiring, progress, version)
        self._compose(instances, output_of(wiring, progress), version)
        granted = dict.fromkeys(wiring.incoming, wiring.window(window))
        self._instructions: list[events.Instruction] = [*events.Grant.of(granted)]
        self._instructions += self.reports.traced()  # the initial record counts
        if snapshot is not None:
            refuse_another(snapshot, self.instances[-1])
            self.outbox.resume(snapshot.round_robin_positions)

    def _input(self, issued: int) -> tuple[Inbox, Alignment]:
        return Inbox(self.wiring.incoming), Alignment(self.wiring.incoming, issued)

    def _compose(self, instances: Sequence[Instance], outbox: Outbox, version: int) -> None:
        """Set up the processing of a chain, which begins with the worker's first operator; see ``chaining`` as well."""
        self.instances = tuple(instances)
        self.freezing.brought_out = instances[0].brought_out
        self.outbox = outbox
        for instance in instances:
            instance.track(outbox.changes, self._clock)
        self.reports = WorkerReports(self.instances, self._inbox, outbox, self._clock)
        self._output = WorkerOutput(self.instances, outbox, self.reports)
        self._executor = self._running = self._compiled(self.instances)
        self._versions = Versions(self.instances, version, self._inbox, self._compiled, self._limit, self._spill)
        self._pause = PauseState(self.instances, self._tell)
        self._meter = ElementMeter(self.instances, self._inbox, outbox, self._clock)
        self._adoption = TopologyAdoption(self._inbox, self._alignment, outbox, self._open, self._window)
        self.slices, self.slowness = AdaptiveBatchSize(), Slowness()
        self.preparation = Preparation(self.instances, self._recent, self._clock)
        self._returning = Returning(self.instances, self._compiled, self._clock)

    def _compiled(self, instances: Sequence[Instance]) -> ChainExecutor:
        return executor_of(instances, self.interrupt, self.wiring.branches, self.wiring.left, self.wiring.feedback)

    def limit_ahead(self, ahead: int | None) -> None:
        """Change how far a source may read ahead of the sinks; ``None`` for no limit, and while it is not known."""
        self._times.limit_ahead(ahead)

    @property
    def _limit(self) -> int:
        """The number of bytes that can be in transit to the worker on all channels."""
        return self._window * max(1, len(self.wiring.incoming))

    def _tell(self, answer: Answer) -> None:
        self._instructions.append(events.TellController(answer))

    def _recent(self, position: int, count: int = SAMPLES) -> tuple[Recent, ...]:
        """Tuples for a rehearsal; if the worker is paused, the tuple that a fix has to process."""
        facing = self._executor.facing() if self._pause.paused else None
        taken = tuple(self._executor.samples(position, count)) or self._earlier.get(self.instances[position].worker, ())
        return taken if facing is None else (Recent(facing, facing=True, sender=self._sender),)

    # ---- events

    def handle(self, event: events.Event) -> None:
        """Process one event, at a tuple boundary."""
        if isinstance(event, events.Arrived):
            self._inbox.put(event.channel, event.frame)
        elif isinstance(event, events.Supplied):
            self._inbox.supply(event)
        elif isinstance(event, events.Granted):
            self.outbox.credit(event.channel, event.size)
            if self._adoption.under_way:
                self._adopt()
        elif isinstance(event, events.FrontierAdvanced):
            self._reach(event)
        elif isinstance(event, events.Directed):
            self._direct(event.worker, event.control)
        elif isinstance(event, events.Expected):
            self._instance(event.worker)[1].expect(event.order.change, event.order.tagged)
        elif isinstance(event, events.Rewired):
            self._rewire(event)
        elif isinstance(event, events.Connected):
            self._instructions += self._adoption.connect()
            self._times.turn_to(self._versions.number, self.outbox.changes)
        elif isinstance(event, events.Observe | events.Measure | events.Resize):
            self._instructions += self._meter.process(event)
        elif isinstance(event, DryRunResult):
            keep_ready(event, self._instance(event.answer.worker)[1])
        elif isinstance(event, events.Stalled):
            self._stalled = event.stalled
            self.outbox.empty()
        elif isinstance(event, events.SinkWidened):
            self.reports.widened(event)
        elif isinstance(event, events.SinkFailed):
            self._fail(event.error)
        elif isinstance(event, events.BinsArrived | events.StatesLost):
            self._change_states(event)
        else:
            held = self._versions.held()
            used_ns = self.useful_ns, self.busy_ns, self.turn_time.take()
            told = self.reports.report(self._executor, self._running, held, used_ns, event.reading)
            self._instructions += told

    def reports_inside(self, arrived: Sequence[Data]) -> list[Report]:
        """Reports while the worker cannot make its own; may be called by any thread."""
        inside_ns = self.turn_time.current_ns if self.slowness.is_slow else 0
        return self.reports.inside(self._running.remaining, arrived, self.busy_ns + inside_ns, self.turn_time.take())

    def _reach(self, event: events.FrontierAdvanced) -> None:
        """A frontier has advanced: that of a timed operator, or of a sink for which a source waits."""
        self._times.advance(event.operator, event.frontier)
        self._pass_time()

    def _pass_time(self) -> None:
        """Let time bring out rows; not at an operator that is to be removed, which soon lacks rows of the time."""
        agenda, first = self.instances[0].agenda, self.instances[0].worker
        if agenda is not None and first not in self._adoption.removed:
            agenda.advance(self._times.frontier(agenda.operator))
            self._finish_if_complete()

    def _direct(self, worker: WorkerId, control: Control) -> None:
        position, instance = self._instance(worker)
        if isinstance(control, Fcm):
            self._head(control.marker, position)
        elif isinstance(control, Prepare):
            self._instructions.append(self.preparation.begin(control, position, control.rehearse and not self.ended))
        elif isinstance(control, Abort):
            instance.forget(control.change)
            self.freezing.thaw(control.change, worker.operator)
        elif isinstance(control, Settle):
            if instance.settle(control.change):
                self._executor.rebuild()
        elif isinstance(control, Unguard):
            if instance.unguard(control.change, control.keeps):
                self.give_back()
                self._executor.rebuild()
                self._pause.unguarded(control.change)
        elif isinstance(control, Cancel):
            self._alignment.cancel(control.marker)
            self._block()
        elif isinstance(control, OpenEntries):
            self._alignment.open_entries()
            self._block()
        elif isinstance(control, AdoptSplits):
            instance.positions.update(control.positions)
            self._instructions.append(events.ToReader(control))
            self._tell(Installed(control.marker, worker))
        elif isinstance(control, SetRate | Drain):
            self._held = self._held and not (self._begins_held and isinstance(control, Drain))
            self._instructions.append(events.ToReader(control))
        else:
            raise ProtocolError(f"{control} came to {self.wiring.id}; expected it to be carried out by the host")

    def _head(self, marker: Marker, position: int) -> None:
        if is_tagged(marker) and not self.instances[0].operator.traits.is_source:
            raise ProtocolError(f"{marker} came to {self.wiring.id} as its head; only a source can tag what it reads")
        if self._alignment.passed(marker.id) or self._comes_with_the_chain(marker, position):
            return
        if not position and is_of_shape(marker):
            if self._alignment.told(marker) is None:
                return
        else:
            self._alignment.applied(marker.id)
        try:
            self._apply(marker, position)
        except OperatorError as error:
            self._fail(error)

    def _comes_with_the_chain(self, marker: Marker, position: int) -> bool:
        """Whether the operator before this one in the chain is told, too, which brings the marker along."""
        return is_of_shape(marker) and position > 0 and self.instances[position - 1].worker.operator in marker.scope

    def _instance(self, worker: WorkerId) -> tuple[int, Instance]:
        for position, instance in enumerate(self.instances):
            if instance.worker == worker:
                return position, instance
        raise ProtocolError(f"a message for {worker} came to worker {self.wiring.id}, whose chain does not have it")

    def _arrived(self, marker: Marker, channel: ChannelId) -> None:
        holds = not is_tagged(marker) or self._versions.waits
        if self._is_moved_by(marker):
            holds = False
            if channel in self._open and not self._alignment.passed(marker.id):
                self._transferred().passed_by(marker, channel)
        complete = self._alignment.arrived(marker, channel, holds)
        self._block()
        if complete is not None:
            self._apply(complete, 0)

    def _end_of(self, channel: ChannelId) -> None:
        self._open.discard(channel)
        for marker in self._alignment.ended(channel):
            self._apply(marker, 0)
        self._block()
        self._adopt()
        self._finish_if_complete()

    def _finish_if_complete(self) -> None:
        """End, if all channels have, and time can bring out no more rows."""
        if not (self._open or self.ended or self._in_hand or self._awaits_time or self._extracts):
            self._finish()

    def _rewire(self, event: events.Rewired) -> None:
        """Begin to adopt the next epoch of the topology."""
        if event.progress is not None:
            self.progress = event.progress
            self.outbox.extend_progress(event.progress)
            self._times.extend(event.progress)
        self._instructions += self._adoption.begin(self.wiring, event, self.ended)
        if self.ended and event.is_removed:
            self._instructions.append(parking(event.epoch, self._instance(event.member)[1]))
        self._pass_time()
        self._block()
        self._adopt()

    def _adopt(self) -> None:
        """Adopt the wiring of the next topology epoch, if nothing is left of the present one."""
        self.wiring, answers = self._adoption.adopted(self.wiring)
        self._instructions += map(events.TellController, answers)

    def _finish(self) -> None:
        """End the output channels, close the sink's part and report the end, since all input is processed."""
        self._instructions += self.states.finish()
        self.outbox.end()
        self.ended = True
        self._times.end(self.outbox.changes)
        # The last trace records are sent first: once a checkpoint records the worker as finished, none can be added.
        self._instructions.extend(self.reports.traced(ended=True))
        for instance in self.instances:
            instance.unguard()
            self._instructions.append(events.ClosePart(Ended(instance.worker, begun=self.freezing.positions(0))))
            if instance.worker in self._adoption.removed:
                self._instructions.append(parking(self._adoption.epoch, instance))
        self.instances[0].drop_times()  # not before it is parked with them

    # ---- work

    def hold_back(self) -> None:
        """Before any event of a worker that is added while others run: do nothing before ``Connected``."""
        window = self.wiring.window(self._window)
        self._adoption.hold_back(dict.fromkeys(self.wiring.incoming, window))
        self._instructions = [each for each in self._instructions if not isinstance(each, events.Grant)]

    def hold_reading(self) -> None:
        """Before any event of a worker of an added source: read nothing before a ``Release``, or the end of the run."""
        self._held = self._begins_held = self.instances[0].operator.traits.is_source
        self._times.start()

    def introduce(self, bounds: Bounds, ahead: int | None = None) -> CountChanges:
        """Begin to count; returns the first counts, to be called once, before any event."""
        held = [count for instance in self.instances for count in instance.held()]
        return (*self._times.introduce(bounds, ahead), *held)

    @property
    def wants_input(self) -> bool:
        """Whether a source's reader may supply more: nothing is queued, and no output channel is full."""
        waits = self._inbox.is_supplied or self._in_hand or self.outbox.full or self._times.is_far_ahead
        return not (waits or self.failed or self._held or self.ended or self._alignment.is_closed)

    @property
    def _awaits_time(self) -> bool:
        """Whether time may still bring out rows: something is held for a later time, or is ripe."""
        if (agenda := self.instances[0].agenda) is None or self._leaves or not self.instances[0].holds_time:
            return False
        return agenda.is_ripe or self._times.frontier(agenda.operator) != Antichain()

    @property
    def is_busy(self) -> bool:
        """Whether rows can still come of what the worker has: in hand, paused on, set aside, or held for a later time.

        What is held for a later time does not count while its operators are closed for a change, since it is not due.
        """
        if self.ended:
            return False
        holds_time = any(instance.holds_time for instance in self.instances[:1]) and not self._alignment.is_closed
        waits = self._versions.under_way or self._transfer is not None
        return self._in_hand or self._returning.waits or self._pause.under_way or waits or holds_time

    @property
    def wiring_after(self) -> Wiring:
        """Its wiring after the change of the shape that is prepared, if there is one; otherwise that of now."""
        return self._adoption.after or self.wiring

    @property
    def executor(self) -> ChainExecutor:
        """What processes its tuples, by the functions of now."""
        return self._executor

    @property
    def newest_output(self) -> Mapping[int, Sequence[pa.RecordBatch]]:
        """Output of the last operator to the last batches of its function of now, by reference, the newest first."""
        return self._output.newest

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
            more = self._work(limit)
            self._instructions += self.states.advance(limit)
            moves, said = self.moving_out.advance(self.instances)
            self._instructions += said
            aside = moves or self.states.read_some(self.instances, limit) or self.states.saves
        except (FriesError, UnreadableState) as error:
            self._fail(error)
            return True
        self.is_aside = aside and not more
        return more or aside

    @property
    def _is_stopped(self) -> bool:
        """Whether it waits: for credit, for its source's or chain's release, for a fix, or until others know it."""
        waits = self.outbox.full or self._held or self._stalled or self._pause.paused or self.freezing.is_frozen
        return waits or self._adoption.is_apart or self.handover.waits

    def _work(self, limit: int) -> bool:
        if self._transfer is not None and self._transfer.extracts:
            self._ship(self._transfer)
        if self._is_stopped:
            return self._extracts
        if self._in_hand:
            self._advance(limit)
        elif self._returning.waits:  # before a marker in the inbox: see ``retries``
            self._begin_returned(limit)
        elif self._inbox.is_supplied and not self._alignment.is_closed:
            self._read(self._inbox.take_supplied(), limit)
        elif self._is_ripe:
            self._fire(limit)
        else:
            while (taken := self._inbox.take()) is not None and not self._receive(*taken, limit):
                if self._is_stopped or self.interrupt.raised:
                    break  # a marker needs no turn of its own, but a tuple behind it is not to be taken
        more = self._in_hand or self._is_ripe or self._inbox.is_ready or self._extracts or self._returning.waits
        return more or (self._inbox.is_supplied and not self._alignment.is_closed)

    @property
    def _extracts(self) -> bool:
        return self._transfer is not None and self._transfer.extracts

    def _ship(self, transfer: BinTransfer) -> None:
        """Extract some state of bins that move to other workers, even while no tuple is taken."""
        began_ns, shipped = self._clock(), transfer.extract()
        took_ns = (self._clock() - began_ns) // max(1, len(shipped))
        self._instructions += [events.Ship(replace(bins, took_ns=took_ns)) for bins in shipped]
        if not transfer.extracts:
            self._transfer = None if transfer.is_over else transfer
            self._finish_if_complete()

    @property
    def _is_ripe(self) -> bool:
        agenda, waits = self.instances[0].agenda, self._alignment.is_closed or self._extracts or self._leaves
        return agenda is not None and agenda.is_ripe and not waits

    def _fire(self, limit: int) -> None:
        """Process rows that time brings out, at the version that the worker has reached."""
        instance = self.instances[0]
        assert instance.agenda is not None
        firing = self._firing = instance.agenda.take(min(limit, self.slices.quota))
        if not firing.keys:  # the ends of all that were ripe have been put off
            self._end_firing()
            return
        version = max(firing.time[0], self._versions.number)
        self._times.take_fired((version, *firing.time[1:]))
        self._begin(FIRED, firing_batch(instance, firing, self._due_ns or self._clock()), version)
        self._advance(limit)

    def _read(self, supplied: events.Supplied, limit: int) -> None:
        """Process a batch from a source's reader; it has the version that the source has reached."""
        if self.ended:
            return  # the source was removed when its reader had read further
        if supplied.batch is None:
            self._finish()
            return
        self._instructions += supplied.letters
        if supplied.batch.num_rows:
            self._times.take_rows(self._versions.number, supplied.positions, supplied.bounds, supplied.least)
            self._begin("", supplied.batch, self._versions.number)
            self._advance(limit)
            self.instances[0].bounds = dict(supplied.bounds)
        self.instances[0].positions.update(supplied.positions)

    def _read_supplied(self) -> None:
        """Process what a source's reader has supplied, so that positions and reader agree."""
        while self._inbox.is_supplied:
            self._read(self._inbox.take_supplied(), MOST_PER_SLICE)

    def _receive(self, channel: ChannelId, frame: Frame, limit: int) -> bool:
        """Process a frame from a channel, a small one together with others that wait; returns whether it had tuples."""
        if self._transfer is not None:
            return self._admit(self._transfer, channel, frame, limit)
        return self._process(channel, frame, limit, MERGED_ROWS)

    def _admit(self, transfer: BinTransfer, channel: ChannelId, frame: Frame, limit: int) -> bool:
        """Process what is left of a frame while bins move: whole rows whose state is not here yet are set aside."""
        admitted = transfer.admitted(channel, frame)
        if admitted is not frame:
            self._block()
            if admitted is not None and isinstance(frame, Data):
                self._times.divide(channel, frame, self.outbox.changes)
        if admitted is not None:
            return self._process(channel, admitted, limit, 0)
        if isinstance(frame, Data):
            self._instructions += events.Grant.of(owed([(channel, frame)]))
        return isinstance(frame, Data)

    def _process(self, channel: ChannelId, frame: Frame, limit: int, merged: int) -> bool:
        if isinstance(frame, Marker):
            self._arrived(frame, channel)
        elif not isinstance(frame, Data):
            self._end_of(channel)
        elif frame.version > self._versions.number and self._versions.sets_aside(channel, frame):
            self._instructions += events.Grant.of(owed([(channel, frame)]))
        else:
            batch, frames = self._inbox.merged(channel, frame, min(merged, self.slices.quota))
            version = self._version_of(frame)
            self._times.take_frames(frames, version)
            self._begin(channel.sender.operator, batch, version)
            self._owed = frames
            self._meter.loaded(frames)
            self._advance(limit)
        return isinstance(frame, Data)

    def _version_of(self, frame: Data) -> int:
        """The version at which a frame is processed, which is also that of its results."""
        return frame.version

    def _begin(self, sender: str, batch: pa.RecordBatch, version: int) -> None:
        """Begin a batch."""
        self._running = self._versions.executor_of(version, self._executor)
        self.outbox.turn_to(version, self._times.stamp)
        self._sender = sender
        if sender != FIRED:
            self.came[sender] = batch.schema
            self.freezing.begin(batch)
            if (agenda := self.instances[0].agenda) is not None:
                agenda.begin(self._times.stamp)  # its latency counts for what time brings out later
                self._due_ns = max(self._due_ns, pc.max(batch.column(DUE)).as_py() or 0)
        self._running.load(sender, batch)
        self._in_hand = True

    def _begin_returned(self, limit: int) -> None:
        """Begin rows of dead letters, by the functions of now."""
        self.outbox.turn_to(self._versions.number, self._times.stamp)
        self._running = self._returning.begin(self._executor)
        self.freezing.begin(self._running.unread)
        self._in_hand = True
        self._advance(limit)

    def give_back(self) -> None:
        """Let rows of dead letters in hand wait again, before the chain is composed anew."""
        if self._returning.give_back(self._running):
            self._running, self._in_hand = self._executor, False

    def _advance(self, limit: int) -> None:
        self.preparation.offer()
        passes = self.passed
        unread = None if passes is None or self._sender == FIRED else self._running.unread
        began = self._clock()
        taken = self._pause.advance(self._running, min(limit, self.slices.quota))
        self._instructions += self._output.collect(self._running)
        now = self._clock()
        if passes is not None:
            came = None if unread is None else unread.slice(0, taken)
            passes.append(PassedSlice(came, self._output.collected))
        self._meter.sliced(began, now, taken, self._output.emits)
        self.slices.learn(now - began, taken)
        self.slowness.learn(now - began, taken)
        self.preparation.withdraw(now - began, taken)
        if not self._running.remaining:
            self._used_up()

    def _used_up(self) -> None:
        self._in_hand = False
        self.freezing.end()
        self._returning.end()
        self._instructions += events.Grant.of(owed(self._owed))
        self._owed = []
        self._times.use_up(self.outbox.changes)
        self._end_firing()

    def _end_firing(self) -> None:
        (firing, self._firing), agenda = (self._firing, None), self.instances[0].agenda
        if firing is not None and agenda is not None:
            agenda.done(firing)
            self._finish_if_complete()

    # ---- markers

    def close(self, operators: Collection[str]) -> None:
        """Let no row enter from others than these operators; see ``BlockEntries``."""
        self._alignment.block_entries(operators)
        self._block()

    def _apply(self, marker: Marker, start: int) -> None:
        """Apply a marker to the chain's operators from this position on that are in its scope, and forward it."""
        action, busy = marker.action, self.is_busy
        if isinstance(action, MoveSplits):
            self._read_supplied()
        name, tells = self.instances[start].worker.operator, isinstance(action, TELLING)
        begun = self.freezing.apply(action, name, self._running.remaining) if tells or self.freezing.is_frozen else {}
        if isinstance(action, Commit) and action.checkpoint and not self.ended:
            positions = self.outbox.round_robin_positions
            self.states.begin(action.epoch, self.instances, positions, self._versions.number)
            self._instructions.extend(self.reports.traced())
        effects = effects_of(marker, self.instances[start:], self.ended, busy, begun)
        self._held = self._held if effects.holds is None else effects.holds
        self._begins_held = self._begins_held and self._held
        self._instructions += effects.answers
        self._instructions += [events.ToReader(events.GiveUpSplits(splits)) for splits in effects.given_up]
        if busy and isinstance(action, Attempt):
            self._unsettled += [Settled(instance.worker, marker.id) for instance in self.instances[start:]]
        if isinstance(action, BlockEntries):
            self.close(action.operators)
        if effects.leaves:
            self.outbox.mark(marker)
        if isinstance(action, Reconfigure) and action.epoch:
            self._instructions += self.states.finish()
            self._instructions += map(events.Ship, self.handover.give(marker, self.instances[start:]))
            self.handover.switch(marker, self.instances[start:])
            self._reshape(action.change, start, effects.leaves)
        if isinstance(action, Move):
            self.outbox.reassign(action.operator, action.bins)
            self._align_transfer(marker)
        if is_tagged(marker):
            self._versions.complete()
            self._running = self._executor
            self._times.turn_to(self._versions.number, self.outbox.changes)
        self._returning.look()
        if effects.switched:
            self._switched(action)

    def _switched(self, action: Action) -> None:
        """Go on with other functions."""
        if isinstance(action, Reconfigure) and not action.tagged:
            self.given_before |= given_by(action, self.instances, self._executor, self.newest_output)
        self.give_back()
        self._executor.rebuild()
        self._output.newest.clear()
        self._earlier.clear()
        self._pause.fixed()
        self.slowness = Slowness()
        if self._transfer is not None:
            self._transfer.install_early()
            self._release_rows()

    def _reshape(self, change: str, start: int, leaves: bool) -> None:
        """Switch to the dataflow after a change of the shape, as far as it concerns the operators that have switched.

        The first operator of the chain reads its new channels, the last one sends on its new edges; see ``shape``. The
        marker is on the old channels by then, and the end of those that are dropped follows it.
        """
        after, first = self._adoption.after, self.instances[0]
        if after is None:
            if first.operator.traits.is_source and not self.ended:  # it is removed, and reads no further
                first.reroute(change)
                self._instructions.append(events.ToReader(Drain()))
                self._finish()
            elif first.worker in self._adoption.removed:
                self._leaves = True  # so that it ends with its channels, whatever it holds for a later time
                self._finish_if_complete()
            return
        if not start:
            self._alignment.open()
            self.wiring = dataclasses.replace(self.wiring, closed=frozenset(), keys=after.keys)
            self._block()
        if leaves:
            self.outbox.rewire(after.edges, self.ended)
            self.wiring = dataclasses.replace(self.wiring, edges=after.edges, needed=after.needed)
            for instance, needed in zip(self.instances, after.needed, strict=True):
                instance.written.needed = needed

    # ---- bins that move; see bin_transfer

    def _block(self) -> None:
        blocked = self._alignment.blocked
        self._inbox.block_only(blocked if self._transfer is None else blocked | self._transfer.resting)

    def _is_moved_by(self, marker: Marker) -> bool:
        """Whether the marker moves bins of this worker's operator, which is the first one of its chain."""
        return isinstance(marker.action, Move) and marker.action.operator == self.instances[0].worker.operator

    def _transferred(self) -> BinTransfer:
        """The move that is under way, begun if it is not."""
        if self._transfer is None:
            self._transfer = BinTransfer(self.instances[0], self.wiring.keys, self._limit // 4)
        return self._transfer

    def _change_states(self, event: events.BinsArrived | events.StatesLost) -> None:
        if isinstance(event, events.BinsArrived):
            self._install(event.bins)
        else:
            self._instance(event.worker)[1].state.save_all_again()

    def _install(self, bins: MovedBins) -> None:
        if self.ended or self.failed:
            return
        try:
            if bins.pieces:
                self._instructions += self.states.finish()
                self.handover.take(bins, self._instance(bins.to)[1])
                return
            transfer, began_ns = self._transferred(), self._clock()
            transfer.install(bins)
        except OperatorError as error:
            self._fail(error)
        else:
            transfer.took_ns += bins.took_ns + self._clock() - began_ns
            self._release_rows()

    def _align_transfer(self, marker: Marker) -> None:
        """The move's marker has come on all channels and has been passed on."""
        if self._transfer is not None and self._is_moved_by(marker):
            self._transfer.align()
            self._release_rows()

    def _release_rows(self) -> None:
        """Return the rows that were set aside to their channels, if the state that they need is here."""
        transfer = self._transfer
        if transfer is None or not transfer.is_installed:
            return
        for channel, frames in transfer.release():
            self._inbox.put_back(channel, frames)
        if transfer.installed:
            worker = self.instances[0].worker
            self._tell(Installed(transfer.installed, worker, transfer.size, transfer.took_ns))
        self._transfer = None if transfer.is_over else transfer
        self._block()

    # ---- answers

    def take(self) -> list[events.Instruction]:
        """The instructions for the shell, in order; removes them."""
        if self._unsettled and not self.is_busy:
            self._instructions += map(events.TellController, self._unsettled)
            self._unsettled.clear()
        if (told := self.instances[0].drop_lost()) and not self._has_warned:
            self._has_warned = True
            self._instructions.append(events.Warned(self.instances[0].worker, told))
        if (full := self.outbox.full) is not self.reports.is_blocked:
            self.reports.note_credit(full)
        taken, self._instructions = [*self._instructions, *self.outbox.sends()], []
        return [*taken, *events.Counted.of(self.outbox.changes.take())] if self.outbox.changes else taken

    def _fail(self, failure: FriesError | UnreadableState) -> None:
        self.failed, error = True, failure.error if isinstance(failure, UnreadableState) else failure
        first = self.instances[0]
        self._tell(failed_answer(error, first.worker, self._running.facing(), first.hide))
