"""A worker of a host, with its mailbox, its reader if it is a source, and its sinks.

Any thread may ``post`` an event. Only the thread that holds ``owner`` runs the worker: it processes the events of the
mailbox, supplies a source with tuples that are due, processes one slice, and carries out the instructions. A turn is
short, so that a loop can run many workers (see ``host_loop``).
"""

from __future__ import annotations

import traceback
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

import pyarrow as pa

from fries_nb.connectors.sink import OpenSinks
from fries_nb.connectors.source import Undecoded
from fries_nb.connectors.worker_reader import Positions
from fries_nb.dataflow.masking import masked_text
from fries_nb.dataflow.traits import Execution
from fries_nb.errors import FriesError, exception_text
from fries_nb.host.environment import Environment, Steps
from fries_nb.operators.dead_letters import FailedRow, dead_letter
from fries_nb.progress.progress_graph import CountChanges
from fries_nb.protocol.checkpoints import Reading
from fries_nb.protocol.messages import (
    AdoptSplits,
    Data,
    Drain,
    EndTap,
    Failed,
    LookAtArms,
    LookAtRows,
    LookAtState,
    SetRate,
    SplitsRead,
    WorkerId,
)  # fmt: skip
from fries_nb.worker.events import (
    Arrived,
    ClosePart,
    Directed,
    Event,
    GiveUpSplits,
    Instruction,
    Supplied,
    TellController,
    ToReader,
    WorkerTick,
    Write,
)
from fries_nb.worker.looks import StateLook, arms_seen, rows_seen
from fries_nb.worker.rota import AHEAD_BYTES
from fries_nb.worker.row_taps import RowTap, TapBudget
from fries_nb.worker.worker import Worker

READ_LIMIT = 16_384
"""Maximum number of tuples that a source takes from its reader at a time."""
READ_AHEAD_LIMIT = 512
"""The same for a source that must not read far ahead of the sinks: it is held back between two batches."""
NO_ROWS = pa.RecordBatch.from_pylist([])
DUE = 0
"""A time that has passed: the source is to be read at once."""


class Reader(Protocol):
    """What a source's worker reads from: a ``connectors.worker_reader.WorkerReader``, or the rows of a seeded run."""

    @property
    def moved(self) -> Positions:
        """The splits whose positions the last call has changed, with these."""

    @property
    def bounds(self) -> Mapping[int, int]:
        """Each split that has not ended, with a time that none of its rows not read yet is earlier than."""

    @property
    def least(self) -> int | None:
        """The least time of the last rows, if the bounds before them do not tell it."""

    @property
    def ahead_ticks(self) -> int | None:
        """How far it may read ahead of the sinks, in the unit of its times."""

    @property
    def exhausted(self) -> bool:
        """Whether all rows have been read."""

    @property
    def is_limited(self) -> bool:
        """Whether it must not read further ahead of the sinks than ``ahead_ticks``."""

    def read(self, now_ns: int, limit: int) -> tuple[pa.RecordBatch | None, int | None]:
        """Read rows that are due; returns also the time of the next call, if it has one."""

    def reading(self, now_ns: int) -> Reading | None:
        """How far it has read."""

    def take_undecoded(self) -> Sequence[Undecoded]:
        """What was read since the last call and is no row."""

    def set_rate(self, rate: float, now_ns: int) -> None:
        """Change the source's rate."""

    def give_up(self, splits: Iterable[int], now_ns: int) -> None:
        """Read these splits no more."""

    def adopt(self, positions: Positions, now_ns: int) -> None:
        """Read further splits, of which other workers have read a part."""

    def close(self) -> None:
        """Release what it holds; the last call."""


class HostedWorker:
    """One worker of a host.

    Args:
        worker: the worker.
        environment: its locks and clocks.
        carry_out: carries out instructions that concern neither reader nor sinks; called by the owner.
        sinks: writers of the worker's sink, and of its operators with dead letters.
        reader: the reader of a source.

    Attributes:
        owner: held by the thread that runs the worker.
        awake: whether the worker is to be run; set by posting threads, cleared before a turn.
        failed: whether an internal error has ended the worker.
        turns: number of its turns beside other workers.
        rerouted: passes an event on, if another worker runs its operator by now; set once the chain has changed.
    """

    def __init__(
        self,
        worker: Worker,
        environment: Environment,
        carry_out: Callable[[Instruction], None],
        sinks: OpenSinks,
        reader: Reader | None = None,
    ) -> None:
        self.worker = worker
        self.owner = environment.lock()
        self.awake = False
        self.failed = False
        self.turns = 0
        self.rerouted: Callable[[HostedWorker, Event], bool] | None = None
        self._environment = environment
        self._carry_out = carry_out
        self._sinks = sinks
        self._reader = reader
        self._due_ns: int | None = DUE
        self._last_reading: Reading | None = None
        self.mailbox: deque[Event] = deque()
        self._asked = False  # to report, and it has not yet
        self._reporting = environment.lock()
        self._draining = self._has_read = False
        self._looks: deque[StateLook] = deque()
        self._taps: list[RowTap] = []  # those that have ended as well, until their question is over
        self._tap_budget: TapBudget | None = None

    @property
    def name(self) -> str:
        """Name for threads and reports."""
        return f"fries-{self.worker.wiring.id}"

    @property
    def execution(self) -> Execution:
        """How its first operator is executed: a reader, a writer, or functions of the user."""
        return self.worker.instances[0].operator.traits.execution

    @property
    def buffers(self) -> bool:
        """Whether tuples wait in its output buffers for a flush."""
        return self.worker.outbox.buffered

    @property
    def is_blocked(self) -> bool:
        """Whether frames wait for credit; to be read by any thread, after it has posted the credit."""
        return self.worker.outbox.blocked

    @property
    def awaits_credit(self) -> bool:
        """Whether credit that was posted to it has to wake it.

        That is so if frames wait for it, or if another worker may run its operators by now: a thread that found this
        one before its chain changed may post to it later.
        """
        return self.is_blocked or self.rerouted is not None

    @property
    def is_ahead(self) -> bool:
        """Whether its receivers have much to process, so that they should be served first; see ``rota``."""
        return self.worker.outbox.outstanding > AHEAD_BYTES

    @property
    def due_ns(self) -> int | None:
        """Time at which a source is to be read, in nanoseconds since the Unix epoch; ``None`` if not by itself."""
        return self._due_ns if self._reader is not None and self.worker.wants_input else None

    def post(self, event: Event) -> None:
        """Append an event to the mailbox, from any thread."""
        self.mailbox.append(event)

    def await_calls(self, wake: Callable[[], None]) -> None:
        """Have the worker run when a call of its coroutine function has ended, which the event loop's thread says."""
        for instance in self.worker.instances:
            if instance.calls is not None:
                instance.calls.wake = wake

    def ask_report(self) -> bool:
        """Ask for a report, from any thread; returns whether the worker is to be woken for it.

        A worker that has not answered the last request is inside a call, or waits for its turn: what is known from
        outside is reported in its place. Its own report follows, so it cannot be overtaken by an older one.
        """
        with self._reporting:
            if not self._asked:
                self._asked = True
                self.post(WorkerTick())
                return True
            arrived = [one.frame for one in list(self.mailbox) if isinstance(one, Arrived)]
            for report in self.worker.reports_inside([frame for frame in arrived if isinstance(frame, Data)]):
                self._carry_out(TellController(report))
            return False

    def introduce(self) -> CountChanges:
        """Begin to count progress; returns the first counts. Called once, before the worker runs."""
        reader = self._reader
        return self.worker.introduce({}) if reader is None else self.worker.introduce(reader.bounds, reader.ahead_ticks)

    # ---- called by the owner

    def merge(self, other: HostedWorker) -> None:
        """Take over the sinks of a worker whose operators this one runs from now on, and the looks into them."""
        self._sinks.merge(other._sinks)
        self._looks += other._looks
        other._looks.clear()
        self._watch_passing([*self._taps, *other._taps])
        other._watch_passing([])

    def split_off(self, rest: Worker) -> HostedWorker:
        """The host's worker for the last operators of this one's chain, which takes over their sinks, and the looks."""
        made = type(self)(rest, self._environment, self._carry_out, self._sinks.part(rest.wiring.workers))
        looks, self._looks = self._looks, deque()
        for look in looks:
            (made if look.instance in rest.instances else self)._looks.append(look)
        members = {instance.worker for instance in rest.instances}
        made._watch_passing([tap for tap in self._taps if tap.member in members])
        self._watch_passing([tap for tap in self._taps if tap.member not in members])
        return made

    def process(self) -> None:
        """Process the events of the mailbox, and carry out what follows."""
        self._guarded(self._process_events)

    def turn(self) -> Steps[bool]:
        """Process the events of the mailbox and one slice of tuples; returns whether there may be more to do."""
        if self.failed:
            self.mailbox.clear()
            return False
        try:
            self._process_events()  # the answer to a fast control message does not wait for the next tuple
            yield
            self._feed()
            busy = yield from self._environment.slice(self.worker)
            self._look()
            if self._taps:
                self._try_taps()
            self._settle()
        except GeneratorExit:  # its host was killed
            raise
        except BaseException as error:  # noqa: BLE001 - so must a user's sys.exit()
            self.fail(error)
            return False
        return busy or self.due_ns == DUE or bool(self._looks) or any(tap.is_trying for tap in self._taps)

    def flush(self) -> int:
        """Send what is buffered; returns the number of frames."""
        flushed = self.worker.outbox.flush()
        self._guarded(self._settle)
        return flushed

    def finish(self) -> None:
        """Report the rest of the measurements and of the trace, and release what it holds; the last call."""
        self.post(WorkerTick())
        self.process()
        self._close_reader()
        for instance in self.worker.instances:
            if instance.calls is not None:
                instance.calls.close()

    def fail(self, error: BaseException) -> None:
        """Report an internal error, or one of the user's code, which fails the run; the worker is not run again."""
        self.failed = True
        worker = self.worker.wiring.id
        if isinstance(error, FriesError):
            words = masked_text(str(error), error.mentions, self.worker.instances[0].hide)
            self._carry_out(TellController(Failed(worker, words)))
        else:
            details = "".join(traceback.format_exception(error))
            told = f"{worker.operator} failed: {exception_text(error)}"
            self._carry_out(TellController(Failed(worker, told, details)))

    def _close_reader(self) -> None:
        """Read no more; an error of the user's own reader fails the run, though it has read all that it should."""
        reader, self._reader = self._reader, None
        if reader is not None:
            self._last_reading = reader.reading(self._environment.wall_ns()) if reader.exhausted else None
            try:
                reader.close()
            except BaseException as error:  # noqa: BLE001 - so must a user's sys.exit()
                self.fail(error)

    def _guarded(self, step: Callable[[], None]) -> None:
        if self.failed:
            self.mailbox.clear()
            return
        try:
            step()
        except BaseException as error:  # noqa: BLE001 - so must a user's sys.exit()
            self.fail(error)

    def _process_events(self) -> None:
        while self.mailbox:
            self._handle(self.mailbox.popleft())
        self._settle()

    def _handle(self, event: Event) -> None:
        if isinstance(event, WorkerTick):
            reader = self._reader
            event = WorkerTick(self._last_reading if reader is None else reader.reading(self._environment.wall_ns()))
            with self._reporting:
                self._asked = False
                self._pass(event)
        else:
            self._pass(event)

    def _pass(self, event: Event) -> None:
        if self.rerouted is not None and self.rerouted(self, event):
            return
        if isinstance(event, Directed) and isinstance(event.control, LookAtState | LookAtRows | LookAtArms):
            self._begin_look(event.worker, event.control)
        elif isinstance(event, Directed) and isinstance(event.control, EndTap):
            self._end_tap(event.worker, event.control.number)
        else:
            self.worker.handle(event)

    def _begin_look(self, member: WorkerId, order: LookAtState | LookAtRows | LookAtArms) -> None:
        """Answer with rows or arms, or begin a tap, or to copy states."""
        if isinstance(order, LookAtRows) and order.where:
            self._begin_tap(member, order)
        elif isinstance(order, LookAtRows):
            self._carry_out(TellController(rows_seen(order, self.worker, member)))
        elif isinstance(order, LookAtArms):
            self._carry_out(TellController(arms_seen(order, self.worker, member)))
        else:
            instance = next(one for one in self.worker.instances if one.worker == member)
            self._looks.append(StateLook(order, instance, self._environment.now_ns))

    def _look(self) -> None:
        """Copy a piece of a state that was asked for; the next piece has to wait for a slice of tuples."""
        if not self._looks:
            return
        look, began_ns = self._looks[0], self._environment.now_ns()
        if (part := look.advance()) is not None:
            if part.is_last:
                self._looks.popleft()
            self._carry_out(TellController(part))
        look.paused(self._environment.now_ns() - began_ns)

    def _begin_tap(self, member: WorkerId, order: LookAtRows) -> None:
        """Begin a tap, unless it has it already: workers are asked anew when others come or go."""
        if any((tap.number, tap.member) == (order.number, member) for tap in self._taps):
            return
        clock = self._environment.now_ns
        if self._tap_budget is None:
            self._tap_budget = TapBudget(clock)
        tap = RowTap(order, member, self.worker, self._tap_budget, clock)
        self._watch_passing([*self._taps, tap])

    def _try_taps(self) -> None:
        """Try the rows that have passed, and say what was found."""
        slices = self.worker.passed or []
        for tap in self._taps:
            if (part := tap.advance(self.worker, slices)) is not None:
                self._carry_out(TellController(part))
        slices.clear()

    def _end_tap(self, member: WorkerId, number: int) -> None:
        for tap in self._taps:
            if (tap.number, tap.member) == (number, member) and (part := tap.end(self.worker)) is not None:
                self._carry_out(TellController(part))
        self._watch_passing([tap for tap in self._taps if (tap.number, tap.member) != (number, member)])

    def _watch_passing(self, taps: list[RowTap]) -> None:
        """Have these taps; while there are any, the worker notes what it processes."""
        self._taps = taps
        self.worker.passed = [] if taps else None

    def _settle(self) -> None:
        """Carry out the instructions; if frames wait, also process credit that was posted before they did.

        Such credit did not wake the worker. It is seen here, since events are looked at after the frames began to wait.
        """
        self._carry_out_all()
        while self.mailbox and self.is_blocked:
            self._handle(self.mailbox.popleft())
            self._carry_out_all()

    def _carry_out_all(self) -> None:
        while instructions := self.worker.take():
            for instruction in instructions:
                if isinstance(instruction, ToReader):
                    self._control_reader(instruction.control)
                elif isinstance(instruction, Write | ClosePart):
                    self._write(instruction)
                else:
                    self._carry_out(instruction)

    def _write(self, instruction: Write | ClosePart) -> None:
        for effect in self._sinks.carry_out(instruction):
            if isinstance(effect, TellController):
                self._carry_out(effect)
            else:
                self.worker.handle(effect)

    def _control_reader(self, control: SetRate | Drain | GiveUpSplits | AdoptSplits) -> None:
        self._due_ns, now = DUE, self._environment.wall_ns()
        if isinstance(control, Drain):
            self._draining = True
        elif self._reader is None:
            return
        elif isinstance(control, SetRate):
            self._reader.set_rate(control.rate, now)
        elif isinstance(control, GiveUpSplits):
            self._reader.give_up(control.splits, now)
        else:
            self._has_read = False
            if control.rate is not None:
                self._reader.set_rate(control.rate, now)
            self._reader.adopt(control.positions, now)

    def _feed(self) -> None:
        """Supply a source's worker with tuples that are due, if it wants input."""
        if self._reader is None or not self.worker.wants_input:
            return
        if self._draining:
            self._close_reader()
            self.worker.handle(Supplied(None))
            return
        if self._reader.exhausted:
            self._due_ns = None
            if not self._has_read:
                self._has_read = True
                self._carry_out(TellController(SplitsRead(self.worker.wiring.id)))
            return
        limit = READ_AHEAD_LIMIT if self._reader.is_limited else READ_LIMIT
        batch, self._due_ns = self._reader.read(self._environment.wall_ns(), limit)
        self.worker.limit_ahead(self._reader.ahead_ticks)  # known with the first row, if not before
        me, undecoded = self.worker.instances[0], self._reader.take_undecoded()
        letters = tuple(Write(me.worker, dead_letter(me, FailedRow(one.row), one.error, "")) for one in undecoded)
        if batch is not None or letters:
            reader, rows = self._reader, NO_ROWS if batch is None else batch
            self.worker.handle(Supplied(rows, reader.moved, reader.bounds, reader.least, letters))
        if self._due_ns is None and (batch is not None or self._reader.exhausted):
            self._due_ns = DUE
