"""Turns: which thread runs which worker of a host's loop, and when. The decisions, without threads and locks.

A worker is run only by the thread that holds its ``owner`` lock:

    a loop thread    the next worker of the rota, for one turn. A turn that is inside one tuple for ``HANDOFF_NS`` is
                     handed off: another thread goes on with the other workers, and this one ends after the tuple
    its own thread   a slow worker (see ``slowness``), which is *apart* from the rota until it is quick again
    the control      a fast control message is processed by the thread that posts it, if no other runs the worker;
    thread           otherwise it interrupts the turn, and its worker is served next

A shell carries the decisions out: on Spark with threads (``host/host_loop.py``), in a seeded cluster with steps in a
drawn order. What happens to a worker in between:

    event                                  effect
    an event is posted                     one wake-up is queued, unless the worker is awake already
    an urgent event is posted              its turn and that of the running worker end after the tuple in hand
    its turn begins                        it is no longer awake: what is posted from here on queues another wake-up
    it is next, and another thread owns it it leaves the rota; the owner wakes it, or runs it apart
    its turn ends, and it is slow          it is apart, and has wake-ups of its own

Methods are called under the shell's lock, except those for any thread, which only set flags and append to queues.

>>> from queue import SimpleQueue
>>> from threading import Lock
>>> from types import SimpleNamespace
>>> from fries_nb.operators.executors import InterruptFlag
>>> from fries_nb.worker.rota import Slowness
>>> class Stub:
...     buffers = is_ahead = awake = False
...     due_ns = None
...     def __init__(self):
...         self.worker = SimpleNamespace(interrupt=InterruptFlag(), slowness=Slowness(), is_aside=False)
...         self.owner = Lock()
>>> a, b = Stub(), Stub()
>>> turns = Turns([a, b], SimpleQueue, clock=lambda: 0, wall=lambda: 0)
>>> turns.posted(a)
>>> turns.begin() is a
True
>>> turns.posted(b, urgent=True)
>>> a.worker.interrupt.raised                                # a's turn ends after the tuple in hand
True
>>> turns.switch_begins(a)                                   # a's control messages wait for that, too
False
>>> a.owner.release()
>>> turns.ended(a, generation=0, spent_ns=1, busy=True)      # and this is still the thread of the others
>>> turns.begin() is b                                       # which has waited longer for its urgent event
True
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Hashable
from enum import Enum
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

from fries_nb.worker.rota import FlushDeadline, Rota
from fries_nb.worker.worker import Worker

HANDOFF_NS = 10_000_000
"""Duration of a turn after which it is interrupted, and of a tuple after which it is handed off, in nanoseconds."""
PROCESSOR_SHARE = 0.5
"""Share of processor time in a slow worker's turn from which on it holds a ticket."""


class Lock(Protocol):
    """A lock of the environment that runs the workers."""

    def acquire(self, blocking: bool = True) -> bool:
        """Take it; returns whether it was free."""

    def release(self) -> None:
        """Let it go."""

    def __enter__(self) -> Any:
        """Take it, as soon as it is free."""

    def __exit__(self, kind: Any, error: Any, trace: Any) -> Any:
        """Let it go."""


class Member(Hashable, Protocol):
    """A worker of a host.

    Attributes:
        worker: the worker itself.
        awake: whether a wake-up is queued; set by posting threads, cleared as a turn begins.
    """

    worker: Worker
    awake: bool

    @property
    def owner(self) -> Lock:
        """Held by the thread that runs it."""

    @property
    def buffers(self) -> bool:
        """Whether tuples wait in its output buffers for a flush."""

    @property
    def is_ahead(self) -> bool:
        """Whether its receivers are to be served first; see ``rota``."""

    @property
    def due_ns(self) -> int | None:
        """Time at which it is to be run by itself, in nanoseconds since the Unix epoch."""


M = TypeVar("M", bound=Member)


T = TypeVar("T")


class Fifo(Protocol[T]):
    """A queue to which any thread appends."""

    def put(self, item: T) -> None:
        """Append an item."""

    def get(self, block: bool = True, timeout: float | None = None) -> T:
        """Remove the first one."""

    def empty(self) -> bool:
        """Whether there is none."""


WakeUp: TypeAlias = tuple[M, bool] | None
"""A worker to be served, and whether it has an urgent event; ``None`` wakes the thread only."""


class After(Enum):
    """What a loop's thread does after a turn, other than beginning the next one."""

    START_OWN = "the worker is slow: start its own thread"
    LEAVE = "another thread has taken over the others: run the worker on, or end"


class Turns(Generic[M]):
    """The workers of one loop.

    Args:
        members: the workers; none of them is run elsewhere.
        queues: makes an empty queue.
        clock: returns nanoseconds; only differences have a meaning.
        wall: returns nanoseconds since the Unix epoch.

    Attributes:
        members: the workers; may be replaced while chains change.
        woken: wake-ups of workers in the rota.
        apart: the slow workers, with their own wake-ups.
        deadline: the flush deadline.
        generation: number of handoffs, and of the loop thread that goes on.
        leaving: whether all threads are to end.
    """

    def __init__(
        self,
        members: Collection[M],
        queues: Callable[[], Fifo[WakeUp[M]]],
        clock: Callable[[], int],
        wall: Callable[[], int],
    ) -> None:
        self.woken = queues()
        self.apart: dict[M, Fifo[WakeUp[M]]] = {}
        self.deadline = FlushDeadline(clock())
        self.generation = 0
        self.leaving = False
        self.members = members
        self._queues = queues
        self._clock = clock
        self._wall = wall
        self._rota: Rota[M] = Rota()
        self._running: tuple[M, int] | None = None  # and since when
        self._interrupted: tuple[M, int] | None = None
        self._unflushed: dict[M, int] = {}  # and since when
        self._due_ns: dict[M, int] = {}
        self._uses_processor: set[M] = set()

    # ---- any thread

    def posted(self, member: M, urgent: bool = False) -> None:
        """Wake a worker to which an event has been posted."""
        if urgent:
            member.worker.interrupt.set()
        if (own := self.apart.get(member)) is not None:
            own.put(None)
        elif urgent or not member.awake:
            member.awake = True
            self.woken.put((member, urgent))
            if urgent and (running := self._running) is not None:
                running[0].worker.interrupt.set()

    def switch_begins(self, member: M) -> bool:
        """Whether the thread that has posted a fast control message processes it, to be followed by ``switch_ended``.

        Otherwise the thread that runs the worker does, after the tuple in hand.
        """
        if self.claim(member):
            return True
        self.posted(member, urgent=True)
        return False

    def switch_ended(self, member: M) -> None:
        """Record that the posted message is processed; the worker may have more to do."""
        member.owner.release()
        self.posted(member)

    def claim(self, member: M) -> bool:
        """Become the owner of a worker unless another thread is; returns whether the caller is."""
        return member.owner.acquire(blocking=False)

    def is_stuck(self) -> bool:
        """Whether a turn is to be handed off, since it is inside one tuple; a long turn is interrupted first."""
        running = self._running
        if running is None or not self.is_shared or self._clock() - running[1] < HANDOFF_NS:
            return False
        if self._interrupted is not running:
            self._interrupted = running
            running[0].worker.interrupt.set()
            return False
        return True

    def leave(self) -> None:
        """Have all threads end at the next tuple boundary."""
        self.leaving = True
        for member in self.members:
            member.worker.interrupt.set()
            self.posted(member)
        self.woken.put(None)

    @property
    def is_shared(self) -> bool:
        """Whether more than one worker shares the loop's thread."""
        return len(self.members) - len(self.apart) > 1

    @property
    def is_busy(self) -> bool:
        """Whether a worker is in its turn for which others wait, so that ``is_stuck`` is to be called soon."""
        return self._running is not None and self.is_shared

    # ---- a loop's thread

    def begin(self) -> M | None:
        """Begin the turn of the next worker, which is then owned by the caller; ``None`` if there is nothing to do."""
        self._take_woken()
        member = self._rota.next()
        while member is not None and not (member.owner.acquire(blocking=False) or self._claims_now(member)):
            self._rota.drop(member)
            member = self._rota.next()
        if member is not None:
            interrupt = member.worker.interrupt
            interrupt.clear()
            self._running = (member, self._clock())
            self._take_woken()
            if self._rota.has_urgent:  # its event was posted when nothing ran that could be interrupted
                interrupt.set()
            member.awake = False  # behind the last look at what was woken: a wake-up from here on is for another turn
        return member

    def _claims_now(self, member: M) -> bool:
        """Try once more to own a worker, asleep: an owner that releases it from here on wakes it."""
        member.awake = False
        return member.owner.acquire(blocking=False)

    def _take_woken(self) -> None:
        while not self.woken.empty():
            self.woke(self.woken.get())
        if self._due_ns:
            now = self._wall()
            for member in [member for member, due in self._due_ns.items() if due <= now]:
                del self._due_ns[member]
                self._rota.ready(member, ahead=member.is_ahead)

    def woke(self, wake_up: WakeUp[M]) -> None:
        """Add a worker to the rota whose wake-up was taken."""
        if wake_up is not None and wake_up[0] not in self.apart:
            member, urgent = wake_up
            self._rota.ready(member, urgent, member.is_ahead)

    def would_wait(self, member: M) -> bool:
        """Whether the loop has nothing to do after this worker's turn, so that its buffers are flushed at once."""
        return self.woken.empty() and not self._rota.has_others(member)

    def idles(self, member: M | None) -> bool:
        """Whether there is nothing to do but to save the states of this worker, if that, so that all is flushed."""
        return member is None or (self._rota.is_aside(member) and not self._rota.has_others(member))

    def ended(self, member: M, generation: int, spent_ns: int, busy: bool) -> After | None:
        """Record the end of a turn, of a worker that the thread has released.

        Returns:
            ``None`` if the thread goes on with the next turn.
        """
        if self.generation != generation:
            return After.LEAVE
        self._running = None
        self._rota.charge(member, spent_ns, busy, member.is_ahead, member.worker.is_aside)
        if member.worker.slowness.is_slow and member in self.members:  # not one that was dropped
            self._part(member)
            return After.START_OWN
        if member.buffers:
            self._unflushed.setdefault(member, self._clock())
        if not busy and (due_ns := member.due_ns) is not None:
            self._due_ns[member] = due_ns
        return None

    def take_unflushed(self, all_of_them: bool) -> list[M]:
        """The workers to flush: all if the loop would wait, or those that have buffered tuples past the deadline."""
        if not self._unflushed:
            return []
        now = self._clock()
        before = now if all_of_them else now - self.deadline.adjusted(now)
        taken = list(itertools.takewhile(lambda member: self._unflushed[member] <= before, self._unflushed))
        for member in taken:
            del self._unflushed[member]
        return taken

    @property
    def next_due_ns(self) -> int | None:
        """Time until which the loop may wait for a wake-up, in nanoseconds since the Unix epoch."""
        return min(self._due_ns.values(), default=None)

    # ---- handoff

    def hand_off(self) -> bool:
        """Begin the next generation if the turn is still the one for which ``is_stuck``; returns whether it is."""
        if self._running is None or self._running is not self._interrupted or self.leaving:
            return False
        self.generation += 1
        self._running = None
        return True

    def runs_on(self, member: M) -> bool:
        """Whether a thread that was handed off runs its worker on, apart; it does unless another thread has it."""
        if member in self.apart or (self._running is not None and self._running[0] is member):
            self.posted(member)  # the other thread may have found it in this one's hands
            return False
        self._part(member)
        return True

    def _part(self, member: M) -> None:
        self._rota.drop(member)
        self._due_ns.pop(member, None)
        self._unflushed.pop(member, None)
        self.apart[member] = self._queues()

    # ---- the thread of a slow worker

    def needs_ticket(self, member: M) -> bool:
        """Whether a slow worker holds a ticket in its next turn, since it uses the processor."""
        return member in self._uses_processor

    def slow_turn_begins(self, member: M) -> None:
        """Begin the turn of a slow worker, which its thread owns."""
        member.worker.interrupt.clear()

    def slow_turn_ended(self, member: M, spent_ns: int, took_ns: int) -> bool:
        """Record the turn of a slow worker.

        Returns:
            Whether the worker is still slow; otherwise it is in the rota again, and the thread ends.
        """
        if member.worker.slowness.is_slow:
            (self._uses_processor.add if spent_ns > PROCESSOR_SHARE * took_ns else self._uses_processor.discard)(member)
            return True
        self.rejoin(member)
        return False

    def rejoin(self, member: M) -> None:
        """Return a worker to the rota, since its own thread ends."""
        self._uses_processor.discard(member)
        member.awake = False
        del self.apart[member]
        self.posted(member, urgent=member.worker.interrupt.raised)  # since its last turn has begun
