"""The worker: events go in, instructions come out, tuples are processed in between.

A worker is one chain of operators at one index. It has no thread, socket or clock of its own: a shell (Spark's host, or
the seeded cluster of ``testing``) passes it events with ``handle``, calls ``run`` to process tuples, and carries out
the instructions that ``take`` returns. All three are called from one thread. ``run`` processes one slice and returns
between two tuples, so events are always handled at a tuple boundary; to make ``run`` return early from another thread,
queue the event and raise ``interrupt``. ``events`` lists the effect of each event.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from fries_nb.errors import FriesError, OperatorError, ProtocolError
from fries_nb.messages import (
    Abort,
    AdoptSplits,
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
    Installed,
    Marker,
    Move,
    MovedBins,
    MoveSplits,
    OpenEntries,
    Prepare,
    Report,
    SetRate,
    Settled,
    Unguard,
    Watermark,
    WorkerId,
)
from fries_nb.operators.dry_run import DryRunResult
from fries_nb.operators.instance import Instance
from fries_nb.worker.alignment import effects_of, failed_answer
from fries_nb.worker.bin_transfer import BinTransfer
from fries_nb.worker.chain_work import ChainWork
from fries_nb.worker.events import (
    Arrived,
    BinsArrived,
    ClosePart,
    Counted,
    Directed,
    Event,
    Expected,
    FrontierAdvanced,
    GiveUpSplits,
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
    Warned,
)
from fries_nb.worker.preparation import keep_ready
from fries_nb.worker.rota import Slowness
from fries_nb.worker.snapshot import kept
from fries_nb.worker.versions import is_tagged
from fries_nb.worker.watermarks import frontier_at


class Worker(ChainWork):
    """One chain at one index; see the module, and ``ChainWork`` for its arguments."""

    def close(self, operators: Collection[str]) -> None:
        """Let no row enter from others than these operators; see ``BlockEntries``."""
        self._alignment.block_entries(operators)
        self._block()

    # ---- events

    def handle(self, event: Event) -> None:
        """Process one event, at a tuple boundary.

        Raises:
            ProtocolError: the event is not allowed: an unknown channel or worker, or a marker that arrived twice.
        """
        if isinstance(event, Arrived):
            self._inbox.put(event.channel, event.frame)
        elif isinstance(event, Supplied):
            self._inbox.supply(event)
        elif isinstance(event, Granted):
            self.outbox.credit(event.channel, event.size)
            if self._adoption.under_way:
                self._adopt()
        elif isinstance(event, FrontierAdvanced):
            self._reach(event)
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
        elif isinstance(event, BinsArrived):
            self._install(event.bins)
        else:
            held = self._versions.held()
            used_ns = self.useful_ns, self.busy_ns, self.turn_time.take()
            told = self.reports.report(self._executor, self._running, held, used_ns, event.reading)
            self._instructions += told

    def reports_inside(self, arrived: Sequence[Data]) -> list[Report]:
        """Reports while the worker cannot make its own; may be called by any thread.

        Args:
            arrived: frames that it has not seen yet.
        """
        inside_ns = self.turn_time.current_ns if self.slowness.is_slow else 0
        return self.reports.inside(self._running.remaining, arrived, self.busy_ns + inside_ns, self.turn_time.take())

    def _reach(self, event: FrontierAdvanced) -> None:
        """A frontier has advanced: that of a timed operator, or of a sink for which a source waits."""
        self._times.advance(event.operator, event.frontier)
        agenda = self.instances[0].agenda
        if agenda is not None:
            agenda.advance(event.frontier)
            self._finish_if_complete()

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
            self._block()
        elif isinstance(control, OpenEntries):
            self._alignment.open_entries()
            self._block()
        elif isinstance(control, AdoptSplits):
            instance.positions.update(control.positions)
            self._instructions.append(ToReader(control))
            self._tell(Installed(control.marker, worker))
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

    def _pass_watermark(self) -> None:
        first = self.instances[0]
        if (watermark := self._times.risen()) is not None:
            self._reach(FrontierAdvanced(first.worker.operator, frontier_at(watermark)))
        if self.ended or self._is_ripe:
            return  # rows that time brings out come first
        held = () if first.tokens is None else first.tokens.times.values()
        if (watermark := self._times.passed_on(held)) is not None:
            self.outbox.broadcast(Watermark(watermark))

    def _finish_if_complete(self) -> None:
        """End, if all channels have, and time can bring out no more rows."""
        if not (self._open or self.ended or self._in_hand or self._awaits_time or self._extracts):
            self._finish()

    def _adopt(self) -> None:
        """Adopt the wiring of the next topology epoch, if nothing is left of the present one."""
        self.wiring, answers = self._adoption.adopted(self.wiring)
        self._instructions += map(TellController, answers)

    def _finish(self) -> None:
        """End the output channels, close the sink's part and report the end, since all input is processed."""
        self.outbox.end()
        self.ended = True
        if (tokens := self.instances[0].tokens) is not None:
            tokens.end()
        self._times.end(self.outbox.changes)
        # The last trace records are sent first: once a checkpoint records the worker as finished, none can be added.
        self._instructions.extend(self.reports.traced(ended=True))
        for instance in self.instances:
            instance.unguard()
            self._instructions.append(ClosePart(Ended(instance.worker)))

    # ---- markers

    def _apply(self, marker: Marker, start: int) -> None:
        """Apply a marker to the chain's operators from this position on that are in its scope, and forward it."""
        action, busy = marker.action, self.is_busy
        if isinstance(action, MoveSplits):
            self._read_supplied()
        saves: list[Instruction] = []
        if isinstance(action, Commit) and action.checkpoint and not self.ended:
            saves = [kept(action.epoch, self.instances, self.outbox.round_robin_positions, self._versions.number)]
            self._instructions.extend(self.reports.traced())
        effects = effects_of(marker, self.instances[start:], self.ended, busy)
        self._held = self._held if effects.holds is None else effects.holds
        self._instructions += effects.answers
        self._instructions += [ToReader(GiveUpSplits(splits)) for splits in effects.given_up]
        if busy and isinstance(action, Attempt):
            self._unsettled += [Settled(instance.worker, marker.id) for instance in self.instances[start:]]
        if isinstance(action, BlockEntries):
            self.close(action.operators)
        if effects.leaves:
            self.outbox.mark(marker)
        if isinstance(action, Move):
            self.outbox.reassign(action.operator, action.bins)
            self._align_transfer(marker)
        self._instructions += saves
        if is_tagged(marker):
            self._versions.complete()
            self._running = self._executor
            self._times.turn_to(self._versions.number, self.outbox.changes)
        if effects.switched:
            self._executor.rebuild()
            self._earlier.clear()
            self._pause.fixed()
            self.slowness = Slowness()
            if self._transfer is not None:
                self._transfer.install_early()
                self._release_rows()

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

    def _install(self, bins: MovedBins) -> None:
        if self.ended or self.failed:
            return
        transfer, began_ns = self._transferred(), self._clock()
        try:
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

    def take(self) -> list[Instruction]:
        """The instructions for the shell, in order; removes them."""
        if self._unsettled and not self.is_busy:
            self._instructions += map(TellController, self._unsettled)
            self._unsettled.clear()
        self._drop_lost()
        if (full := self.outbox.full) is not self.reports.is_blocked:
            self.reports.note_credit(full)
        taken, self._instructions = [*self._instructions, *self.outbox.sends()], []
        return [*taken, *Counted.of(self.outbox.changes.take())] if self.outbox.changes else taken

    def _drop_lost(self) -> None:
        """Drop the tokens whose handles the function has lost; warn of the first one."""
        instance = self.instances[0]
        lost = instance.tokens.take_lost() if instance.tokens is not None else []
        if lost and not self._has_warned:
            self._has_warned = True
            text = f"{lost[0].operator} has lost a token of time {lost[0].time}, which counts as dropped"
            self._instructions.append(Warned(instance.worker, f"{text}, as any later one; expected token.drop()"))

    def _fail(self, error: FriesError) -> None:
        self.failed = True
        self._tell(failed_answer(error, self.instances[0].worker, self._running.facing()))
