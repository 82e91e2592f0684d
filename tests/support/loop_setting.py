"""Workers for the tests of a host's loop, whose threads are real: stubs that are held inside a tuple."""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from types import SimpleNamespace
from typing import Any

from patience import PATIENCE_S

from fries_nb.host.environment import Steps
from fries_nb.worker.meters import TurnTime
from fries_nb.worker.rota import Slowness

SLOW, QUICK = "slow", "quick"


class Stub:
    """A worker of the loop: it processes its events, then one tuple if it has some, inside which it may be held.

    Attributes:
        notes: shared by all stubs: what happened, as (name, what, thread).
    """

    def __init__(self, name: str, notes: list[tuple[str, str, int]]) -> None:
        self.name = name
        self.notes = notes
        self.owner = threading.Lock()
        self.awake = False
        self.due_ns: int | None = None
        self.buffers = self.is_ahead = self.awaits_credit = False
        interrupt = SimpleNamespace(raised=False)
        self.worker = SimpleNamespace(interrupt=interrupt, slowness=Slowness(), useful_ns=0, busy_ns=0)
        self.worker.turn_time = TurnTime(time.monotonic_ns)
        self.tuples = self.turns = 0
        self.held = threading.Semaphore(0)
        self.holds = False
        self.entered = queue.SimpleQueue[None]()
        self.noted = threading.Condition()
        self._mailbox: deque[Any] = deque()
        self._inside = 0

    def note(self, what: str) -> None:
        with self.noted:
            self.notes.append((self.name, what, threading.get_ident()))
            self.noted.notify_all()

    def until(self, what: str, times: int = 1) -> None:
        """Wait until this has been noted."""
        with self.noted:
            assert self.noted.wait_for(lambda: len(self.when(what)) >= times, PATIENCE_S), (self.name, what)

    def when(self, what: str) -> list[int]:
        """The threads in which this was noted."""
        return [thread for name, noted, thread in list(self.notes) if (name, noted) == (self.name, what)]

    def post(self, event: Any) -> None:
        self._mailbox.append(event)

    def process(self) -> None:
        self._inside += 1
        assert self._inside == 1, "two threads run one worker"
        while self._mailbox:
            event = self._mailbox.popleft()
            if isinstance(event, int):
                self.tuples += event
            elif event in (SLOW, QUICK):
                self.worker.slowness.is_slow = event == SLOW
            elif isinstance(event, str):
                self.note(event)
        self._inside -= 1

    def turn(self) -> Steps[bool]:
        yield
        return self._turn()

    def _turn(self) -> bool:
        self.process()
        if not self.tuples or self.worker.interrupt.raised:
            return bool(self.tuples)
        self._inside += 1
        assert self._inside == 1, "two threads run one worker"
        if self.holds:
            self.entered.put(None)
            self.held.acquire()
        self.tuples -= 1
        self.buffers = True
        self.note("tuple")
        self._inside -= 1
        return self.tuples > 0

    def flush(self) -> int:
        if self.buffers:
            self.buffers = False
            self.note("flush")
        return 1

    def finish(self) -> None:
        self.note("finish")
