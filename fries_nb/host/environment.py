"""What the loops of a host need around them: clocks, locks, threads, and ways to wait.

The loops are written once, as generators of steps (``host_loop``, ``hosted_worker``, ``host_chains``), and are run by
two environments: ``Threads`` here, and virtual threads in the simulation, whose interleavings are drawn from a seed.

    in a generator                      with threads                          in the simulation
    yield                               goes on at once                       another thread may go on first
    yield from environment.received     blocks until an item is queued        others go on until one is
    yield from environment.acquired     blocks until the lock is free         others go on until it is
    yield from environment.slice        processes one slice of tuples         the same; a tuple may take virtual time

So a bare ``yield`` stands wherever a thread does something between two locks: what is done while a lock is held that
other threads take is one step.

>>> def body(environment, items):
...     yield
...     print((yield from environment.received(items, due_ns=None)))
>>> threads = Threads()
>>> items = threads.queue()
>>> items.put("first")
>>> run(body(threads, items))
first
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar

from fries_nb.host.event_loops import AsyncioCalls
from fries_nb.operators.awaited_calls import CallLoop
from fries_nb.operators.cold_states import StateBudget
from fries_nb.protocol.messages import WorkerId
from fries_nb.storage.spilled import SpillFile
from fries_nb.worker.turns import Fifo, Lock

if TYPE_CHECKING:
    from fries_nb.worker.worker import Worker

R = TypeVar("R")
Steps: TypeAlias = Generator[Any, None, R]


class Body(Protocol):
    """A thread that runs a generator of steps."""

    def join(self, timeout: float | None = None) -> None:
        """Wait for its end for so many seconds."""

    def is_alive(self) -> bool:
        """Whether it has steps left."""


class Environment(Protocol):
    """Clocks, locks and threads of a host; all times are in nanoseconds."""

    def now_ns(self) -> int:
        """A time of which only differences have a meaning."""

    def wall_ns(self) -> int:
        """Time since the Unix epoch."""

    def processor_ns(self) -> int:
        """Processor time of the current thread."""

    def lock(self) -> Lock:
        """A lock that is free."""

    def tickets(self, number: int) -> Lock:
        """A lock that so many threads may hold at a time."""

    def queue(self) -> Fifo[Any]:
        """An empty queue."""

    def shared(self) -> dict[Any, Any]:
        """A dict that threads read without a lock: one that has read before a change may act on it after the change."""

    def start(self, host: int, name: str, steps: Steps[None], failed: Callable[[Exception], None]) -> Body:
        """Start a thread of a host; ``failed`` is called with an error of its steps, which are then over."""

    def calls(self, worker: WorkerId) -> CallLoop:
        """Where the calls of a worker's coroutine function run."""

    def state_budget(self, limit: int) -> StateBudget:
        """The limit of states in memory, in bytes: one for all workers."""

    def received(self, items: Fifo[Any], due_ns: int | None) -> Steps[Any]:
        """Wait for the first item until a time since the Unix epoch; returns it, ``None`` if none came."""

    def acquired(self, lock: Lock) -> Steps[None]:
        """Take a lock as soon as it is free."""

    def slice(self, worker: Worker) -> Steps[bool]:
        """Process one slice of a worker's tuples; returns whether there may be more to do."""


class Threads:
    """The environment of a host process: threads, their locks, and the clocks of the machine."""

    now_ns = staticmethod(time.monotonic_ns)
    wall_ns = staticmethod(time.time_ns)
    processor_ns = staticmethod(time.thread_time_ns)
    lock = staticmethod(threading.Lock)
    tickets = staticmethod(threading.BoundedSemaphore)
    queue: Callable[[], Fifo[Any]] = staticmethod(SimpleQueue)
    shared: Callable[[], dict[Any, Any]] = staticmethod(dict)

    def __init__(self) -> None:
        self._budget: StateBudget | None = None

    def start(self, host: int, name: str, steps: Steps[None], failed: Callable[[Exception], None]) -> threading.Thread:
        """Start a thread; see ``Environment``."""
        thread = threading.Thread(target=_guarded, args=[steps, failed], name=name, daemon=True)
        thread.start()
        return thread

    def calls(self, worker: WorkerId) -> CallLoop:
        """An event loop of asyncio; see ``Environment``."""
        return AsyncioCalls(f"fries-calls-{worker}")

    def state_budget(self, limit: int) -> StateBudget:
        """A limit with files on disk; see ``Environment``."""
        self._budget = self._budget or StateBudget(limit, SpillFile)
        return self._budget

    def received(self, items: Fifo[Any], due_ns: int | None) -> Steps[Any]:
        """Block until an item is queued; see ``Environment``."""
        yield from ()
        timeout = None if due_ns is None else max(0.0, (due_ns - time.time_ns()) / 1e9)
        try:
            return items.get(timeout=timeout)
        except Empty:
            return None

    def acquired(self, lock: Lock) -> Steps[None]:
        """Block until the lock is free; see ``Environment``."""
        yield from ()
        lock.acquire()

    def slice(self, worker: Worker) -> Steps[bool]:
        """Process one slice; see ``Environment``."""
        yield from ()
        return worker.run()


def run(steps: Steps[R]) -> R:
    """Take all steps in the calling thread; returns what they return."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: R = end.value
            return result


def _guarded(steps: Steps[None], failed: Callable[[Exception], None]) -> None:
    try:
        for _ in steps:
            pass
    except Exception as error:  # noqa: BLE001 - an internal error must fail the run, not leave its workers waiting
        failed(error)
