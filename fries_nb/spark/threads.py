"""The thread of a worker in a host: delivers events to the I/O-free worker and carries out its instructions.

Other threads only ``post``: they queue an event and, if it is urgent (an FCM or a ``Prepare``), set the worker's
interrupt flag, a plain attribute that is read between two tuples. Frames between workers of one host are passed by
reference from thread to thread, without a socket.
"""

from __future__ import annotations

import queue
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass

from fries_nb.connectors.sink import OpenSinks
from fries_nb.connectors.worker_reader import WorkerReader
from fries_nb.errors import FriesError
from fries_nb.messages import Drain, Failed, SetRate
from fries_nb.worker.events import (
    ClosePart,
    Event,
    Instruction,
    Supplied,
    TellController,
    ToReader,
    WorkerTick,
    Write,
)
from fries_nb.worker.worker import Worker

READ_LIMIT = 16_384
"""Maximum number of tuples that a source takes from its reader at a time."""


@dataclass(frozen=True, slots=True)
class EndThread:
    """Tells a thread to end."""


class WorkerThread(threading.Thread):
    """Runs one worker until ``EndThread`` is posted.

    Args:
        worker: the worker, called from this thread only.
        carry_out: carries out instructions that concern neither reader nor sinks; called from this thread.
        sinks: writers of the worker's sink, and of its operators with dead letters.
        reader: the reader of a source.
    """

    def __init__(
        self,
        worker: Worker,
        carry_out: Callable[[Instruction], None],
        sinks: OpenSinks,
        reader: WorkerReader | None = None,
    ) -> None:
        super().__init__(name=f"fries-{worker.wiring.id}", daemon=True)
        self.worker = worker
        self._carry_out = carry_out
        self._sinks = sinks
        self._reader = reader
        self._events: queue.SimpleQueue[Event | EndThread] = queue.SimpleQueue()
        self._left = False
        self._draining = False
        self._due: int | None = None

    def post(self, event: Event | EndThread, urgent: bool = False) -> None:
        """Queue an event, from any thread; an urgent one is processed before the next tuple."""
        self._events.put(event)
        if urgent:
            self.worker.interrupt.raised = True

    def run(self) -> None:
        """The thread's body: processes events until the worker has left."""
        try:
            self.worker.handle(WorkerTick())  # sends a first report, with the counts of a restored worker
            while not self._left:
                self.worker.interrupt.raised = False
                self._take_events(block=False)
                self._carry_out_all()  # sends the answer to an FCM before the next tuple
                fed = self._feed()
                busy = self.worker.run()
                self._carry_out_all()
                if not busy and not fed and not self._left:
                    self._take_events(block=True)
            self.worker.handle(WorkerTick())  # sends the remaining measurements and trace records
            self._carry_out_all()
        except FriesError as error:
            self._carry_out(TellController(Failed(self.worker.wiring.id, str(error))))
        except BaseException as error:  # noqa: BLE001 - an internal error, or a user's sys.exit(), must fail the run
            details = "".join(traceback.format_exception(error))
            worker = self.worker.wiring.id
            told = f"{worker.operator} failed: {type(error).__name__}: {error}"
            self._carry_out(TellController(Failed(worker, told, details)))

    def _take_events(self, block: bool) -> None:
        """Process all queued events; with ``block``, wait for one, or until the reader's next tuple is due."""
        timeout = None if self._due is None else max(0.0, (self._due - time.time_ns()) / 1e9)
        try:
            while True:
                event = self._events.get(block, timeout)
                if isinstance(event, EndThread):
                    self._left = True
                    return
                self.worker.handle(event)
                block = False
        except queue.Empty:
            return

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

    def _control_reader(self, control: SetRate | Drain) -> None:
        if isinstance(control, Drain):
            self._draining = True
        elif self._reader is not None:
            self._reader.set_rate(control.rate, time.time_ns())
            self._due = 0

    def _feed(self) -> bool:
        """Supply a source's worker with tuples that are due, if it wants input; returns whether it received any."""
        if self._reader is None:
            return False
        self._due = None
        if not self.worker.wants_input:
            return False
        if self._draining or self._reader.exhausted:
            self._reader = None
            self.worker.handle(Supplied(None))
            return True
        batch, self._due = self._reader.read(time.time_ns(), READ_LIMIT)
        if batch is None:
            if self._reader.exhausted:
                self._due = 0
            return False
        self.worker.handle(Supplied(batch, self._reader.moved))
        return True
