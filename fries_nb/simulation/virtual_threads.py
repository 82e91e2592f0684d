"""Threads of a seeded run: generators that stop wherever another thread may act, and are resumed in a drawn order.

A thread yields ``None`` where it goes on whenever it is drawn, and a ``Wait`` where it goes on under a condition.

>>> import random
>>> from fries_nb.simulation.clock import ManualClock
>>> from fries_nb.simulation.draws import Draws
>>> clock, draws, seen = ManualClock(0), Draws(random.Random(1)), []
>>> threads = VirtualThreads(draws, clock)
>>> def sleeper():
...     yield Wait(due_ns=5)
...     seen.append(clock())
>>> threads.start(0, sleeper())
>>> threads.step(draws.draw()[1])
>>> threads.look(), len(draws), threads.next_due_ns()
(None, 0, 5)
>>> clock.advance(7)
>>> threads.look(), threads.step(draws.draw()[1]), seen, len(draws)
(None, None, [7], 0)
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

from fries_nb.simulation.draws import Draws


@dataclass(frozen=True, slots=True)
class Wait:
    """What a thread waits for: a condition, or a time in nanoseconds, whichever is met first."""

    until: Callable[[], bool] = lambda: False
    due_ns: int | None = None


R = TypeVar("R")
Steps: TypeAlias = Generator[Wait | None, None, R]


class VirtualThread:
    """One thread of a host; compared by identity."""

    def __init__(self, host: int, steps: Steps[None]) -> None:
        self.host = host
        self.steps = steps


class OwnerMark:
    """An owner lock that knows its holder.

    Args:
        threads: the threads that may hold it.
    """

    def __init__(self, threads: VirtualThreads) -> None:
        self._threads = threads
        self.is_held = False
        self.holder: VirtualThread | None = None

    def acquire(self, blocking: bool = True) -> bool:
        """Take it; returns whether it was free. A thread that waits for it yields ``Wait`` instead of blocking."""
        if self.is_held:
            return False
        self.is_held, self.holder = True, self._threads.current
        return True

    def release(self) -> None:
        """Let it go."""
        assert self.is_held, "a lock is released that no thread holds"
        self.is_held, self.holder = False, None


class VirtualThreads:
    """All threads of the hosts of one incarnation.

    Args:
        draws: the possible events; threads that can go on are among them.
        clock: returns nanoseconds.

    Attributes:
        current: the thread whose step is being taken; ``None`` outside of all.
    """

    def __init__(self, draws: Draws, clock: Callable[[], int]) -> None:
        self.current: VirtualThread | None = None
        self._draws = draws
        self._clock = clock
        self._waiting: dict[VirtualThread, Wait] = {}

    def start(self, host: int, steps: Steps[None]) -> None:
        """Start a thread of a host."""
        self._draws.add(("thread", VirtualThread(host, steps)))

    def step(self, thread: VirtualThread) -> None:
        """Let a thread go on until it yields."""
        before, self.current = self.current, thread
        try:
            wait = next(thread.steps)
        except StopIteration:
            self._draws.discard(("thread", thread))
            return
        finally:
            self.current = before
        if wait is not None:
            self._draws.discard(("thread", thread))
            self._waiting[thread] = wait

    def look(self) -> None:
        """Let the threads go on whose wait is over."""
        now = self._clock()
        for thread, wait in list(self._waiting.items()):
            if (wait.due_ns is not None and wait.due_ns <= now) or wait.until():
                del self._waiting[thread]
                self._draws.add(("thread", thread))

    def next_due_ns(self) -> int | None:
        """The earliest time for which a thread waits; ``None`` if none does."""
        return min((wait.due_ns for wait in self._waiting.values() if wait.due_ns is not None), default=None)

    def drop(self, host: int) -> None:
        """Drop the threads of a host that was killed."""
        for thread in [thread for thread in self._waiting if thread.host == host]:
            del self._waiting[thread]
        for thing in self._draws.of_kind("thread"):
            if thing.host == host:
                self._draws.discard(("thread", thing))
