"""Threads of a seeded run: generators that stop wherever another thread may act, and are resumed in a drawn order.

A thread yields ``None`` where it goes on whenever it is drawn, and a ``Wait`` where it goes on under a condition.

>>> import random
>>> from fries_nb.simulation.cluster import ManualClock
>>> from fries_nb.simulation.network import Draws
>>> clock, draws, seen = ManualClock(0), Draws(random.Random(1)), []
>>> threads = VirtualThreads(draws, clock)
>>> def sleeper():
...     yield Wait(due_ns=5)
...     seen.append(clock())
>>> thread = threads.start(0, sleeper())
>>> threads.step(draws.draw()[1])
>>> threads.look(), len(draws), threads.next_due_ns()
(None, 0, 5)
>>> clock.advance(7)
>>> threads.look(), threads.step(draws.draw()[1]), seen, len(draws)
(None, None, [7], 0)
"""

from __future__ import annotations

import random
from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fries_nb.host.environment import Steps
from fries_nb.operators.cold_states import MemoryFile, StateBudget
from fries_nb.protocol.messages import WorkerId
from fries_nb.simulation.network import Draws
from fries_nb.simulation.seeded_calls import SeededCalls
from fries_nb.worker.turns import Fifo, Lock
from fries_nb.worker.worker import Worker


@dataclass(frozen=True, slots=True)
class Wait:
    """What a thread waits for: a condition, or a time in nanoseconds, whichever is met first.

    The condition is looked at after each event of a run, so it is best a method of what it depends on.
    """

    until: Callable[[], object] | None = None
    due_ns: int | None = None


class VirtualThread:
    """One thread of a host; compared by identity. ``taken`` counts its steps."""

    def __init__(self, host: int, steps: Steps[None], threads: VirtualThreads) -> None:
        self.host = host
        self.steps = steps
        self.taken = 0
        self._threads = threads

    def join(self, timeout: float | None = None) -> None:
        """No thread of a run waits for another one's end; see ``Body``."""

    def is_alive(self) -> bool:
        """Whether it has steps left."""
        return self in self._threads.alive


class OwnerMark:
    """A lock, of one ticket or several, that knows its last holder."""

    def __init__(self, threads: VirtualThreads, tickets: int = 1) -> None:
        self._threads = threads  # the threads that may hold it
        self._tickets = tickets  # number of threads that may hold it at a time
        self.holder: VirtualThread | None = None

    @property
    def is_held(self) -> bool:
        """Whether no ticket is left."""
        return not self._tickets

    @property
    def is_mine(self) -> bool:
        """Whether the current thread is its last holder."""
        return self.holder is self._threads.current

    def acquire(self, blocking: bool = True) -> bool:
        """Take it; returns whether it was free. A thread that waits for it yields ``Wait`` instead of blocking."""
        if self.is_held:
            return False
        self._tickets -= 1
        self.holder = self._threads.current
        return True

    def release(self) -> None:
        """Let it go."""
        self._tickets += 1
        self.holder = None

    def __enter__(self) -> bool:
        """Take it; what is done with it takes one step, so it is free."""
        assert self.acquire(), "a lock that is held for a step only is held already"
        return True

    def __exit__(self, *error: object) -> None:
        self.release()


class ListQueue:
    """A queue, of which a thread that waits for an item yields."""

    def __init__(self) -> None:
        self._items: deque[Any] = deque()
        self.filled = self._items.__len__  # the number of items; threads wait until there is one

    def put(self, item: Any) -> None:
        """Append an item; see ``turns.Fifo``."""
        self._items.append(item)

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        """Remove the first one, of which there is one."""
        return self._items.popleft()

    def empty(self) -> bool:
        """Whether there is none."""
        return not self._items


class VirtualThreads:
    """All threads of the hosts of one incarnation."""

    def __init__(self, draws: Draws, clock: Callable[[], int]) -> None:
        self.current: VirtualThread | None = None  # the thread whose step is being taken; ``None`` outside of all
        self.alive: set[VirtualThread] = set()  # the threads that have steps left
        self.draws = draws  # the possible events; threads that can go on are among them
        self._clock = clock  # returns nanoseconds
        self._waiting: dict[VirtualThread, tuple[Callable[[], object] | None, int | None]] = {}

    def start(self, host: int, steps: Steps[None]) -> VirtualThread:
        """Start a thread of a host."""
        thread = VirtualThread(host, steps, self)
        self.alive.add(thread)
        self.draws.add(("thread", thread))
        return thread

    def step(self, thread: VirtualThread) -> None:
        """Let a thread go on until it yields."""
        before, self.current = self.current, thread
        try:
            thread.taken += 1
            wait = next(thread.steps)
        except StopIteration:
            self.alive.discard(thread)
            self.draws.discard(("thread", thread))
            return
        finally:
            self.current = before
        if wait is not None:
            self.draws.discard(("thread", thread))
            self._waiting[thread] = wait.until, wait.due_ns

    def look(self) -> None:
        """Let the threads go on whose wait is over."""
        now = self._clock()
        over = [
            thread
            for thread, (until, due_ns) in self._waiting.items()
            if (until is not None and until()) or (due_ns is not None and due_ns <= now)
        ]
        for thread in over:
            del self._waiting[thread]
            self.draws.add(("thread", thread))

    def next_due_ns(self) -> int | None:
        """The earliest time for which a thread waits; ``None`` if none does."""
        return min((due_ns for _, due_ns in self._waiting.values() if due_ns is not None), default=None)

    def drop(self, host: int) -> None:
        """Drop the threads of a host that was killed."""
        self.alive = {thread for thread in self.alive if thread.host != host}
        for thread in [thread for thread in self._waiting if thread.host == host]:
            del self._waiting[thread]
        for thing in self.draws.of_kind("thread"):
            if thing.host == host:
                self.draws.discard(("thread", thing))


class SharedDict(dict[Any, Any]):
    """A dict whose values threads look up, and act on a moment later: what has changed meanwhile they do not see.

    A thread between two steps may have looked one value up already. So in its next step it may get one as it was.
    """

    def __init__(self, threads: VirtualThreads, chance: random.Random) -> None:
        super().__init__()
        # ``chance``: draws whether a thread is late
        # ``threads``: the threads that read it
        self._threads, self._chance = threads, chance
        self._before: dict[Any, tuple[Any, dict[VirtualThread, int]]] = {}

    def __setitem__(self, key: Any, value: Any) -> None:
        if key in self:
            late = {thread: thread.taken + 1 for thread in self._threads.alive if thread is not self._threads.current}
            self._before[key] = super().__getitem__(key), late
        super().__setitem__(key, value)

    def __getitem__(self, key: Any) -> Any:
        thread = self._threads.current
        if thread is not None and key in self._before:
            before, late = self._before[key]
            if late.pop(thread, None) == thread.taken and self._chance.random() < 0.5:
                return before
        return super().__getitem__(key)


class VirtualEnvironment:
    """The environment of seeded hosts; see ``host.environment``.

    Their tuples take the virtual time that functions name in an attribute ``takes_ns``, and none by default. While a
    thread is inside such a tuple, the others go on; it uses the processor if that is an odd number of milliseconds.
    """

    def __init__(self, threads: VirtualThreads, clock: Callable[[], int], chance: random.Random) -> None:
        self.inside = 0  # number of tuples that took time
        self._threads = threads
        self._clock = clock  # returns nanoseconds
        self._chance = chance  # draws how many tuples a slice has
        self._used_ns = defaultdict[VirtualThread | None, int](int)

    def now_ns(self) -> int:
        """The time; see ``Environment``."""
        return self._clock()

    def wall_ns(self) -> int:
        """The time; see ``Environment``."""
        return self._clock()

    def processor_ns(self) -> int:
        """What the tuples of the current thread have used."""
        return self._used_ns[self._threads.current]

    def state_budget(self, limit: int) -> StateBudget:
        """A limit with files in memory; see ``Environment``."""
        return StateBudget(limit, MemoryFile)

    def lock(self) -> Lock:
        """A lock that is free."""
        return OwnerMark(self._threads)

    def tickets(self, number: int) -> Lock:
        """A lock that so many threads may hold."""
        return OwnerMark(self._threads, number)

    def shared(self) -> SharedDict:
        """A dict that threads read without a lock."""
        return SharedDict(self._threads, self._chance)

    def queue(self) -> Fifo[Any]:
        """An empty queue."""
        return ListQueue()

    def start(
        self, host: int, name: str, steps: Steps[None], failed: Callable[[Exception], None]
    ) -> VirtualThread:
        """Start a thread; its errors are the run's."""
        return self._threads.start(host, steps)

    def calls(self, worker: WorkerId) -> SeededCalls:
        """Calls that end when their events are drawn."""
        return SeededCalls(self._threads.draws, worker, self._chance)

    def received(self, items: Fifo[Any], due_ns: int | None) -> Steps[Any]:
        """Let others go on until an item is queued."""
        assert isinstance(items, ListQueue), "the queues of a seeded run are its own"
        if items.empty():
            yield Wait(items.filled, due_ns)
        return None if items.empty() else items.get()

    def acquired(self, lock: Lock) -> Steps[None]:
        """Let others go on until the lock is free."""
        assert isinstance(lock, OwnerMark), "the locks of a seeded run are its own"
        while not lock.acquire():
            yield Wait(lambda: not lock.is_held)

    def slice(self, worker: Worker) -> Steps[bool]:
        """Process a few tuples; after each, or inside it if it takes long, other threads go on."""
        left = self._chance.randint(1, 4)
        while True:
            takes_ns = sum(getattr(instance.function, "takes_ns", 0) for instance in worker.instances)
            limit = 1 if takes_ns else self._chance.randint(1, left)
            before = worker.instances[0].processed
            busy = worker.run(limit)
            left -= limit
            if takes_ns and worker.instances[0].processed > before:
                self.inside += 1
                self._used_ns[self._threads.current] += takes_ns if takes_ns // 1_000_000 % 2 else 0
                yield Wait(due_ns=self._clock() + takes_ns)
                worker.slowness.learn(takes_ns, 1)
            else:
                yield
            if not (busy and left) or worker.interrupt.raised:
                return busy
