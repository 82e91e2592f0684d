"""The loop of a seeded host: the same decisions as on Spark (``worker.turns``), by threads whose steps are drawn.

Each generator here is the body of one of the threads of ``host/host_loop.py``, and yields wherever that one does
something between two locks: before and after each turn, inside it after each event and tuple, before a flush. What is
done there while a lock is held that other threads take is one step here.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterable

from fries_nb.simulation.seeded_member import SeededMember
from fries_nb.simulation.virtual_threads import Steps, VirtualThreads, Wait
from fries_nb.worker.events import Event, Granted, WorkerTick
from fries_nb.worker.turns import HANDOFF_NS, After, Turns

WakeUp = tuple[SeededMember, bool] | None


class WakeUpQueue:
    """Wake-ups, of which a thread that waits for one yields."""

    def __init__(self) -> None:
        self._queue: deque[WakeUp] = deque()

    def put(self, item: WakeUp) -> None:
        """Append a wake-up; see ``turns.WakeUps``."""
        self._queue.append(item)

    def get(self, block: bool = True, timeout: float | None = None) -> WakeUp:
        """Remove the first one, of which there is one."""
        return self._queue.popleft()

    def empty(self) -> bool:
        """Whether there is none."""
        return not self._queue


class SeededLoop:
    """Runs workers of one host in turn; see ``host.host_loop.HostLoop``.

    Args:
        host: the host.
        members: the workers.
        threads: starts threads.
        clock: returns nanoseconds.

    Attributes:
        host: the host.
        turns: the decisions.
        begun: number of turns that have begun.
        handoffs: number of handoffs.
    """

    def __init__(
        self, host: int, members: Iterable[SeededMember], threads: VirtualThreads, clock: Callable[[], int]
    ) -> None:
        self.turns: Turns[SeededMember] = Turns(tuple(members), WakeUpQueue, clock, clock)
        self.begun = self.handoffs = 0
        self.host = host
        self._threads = threads
        self._clock = clock
        self._tickets = 1
        self._began_ns: int | None = None  # the turn of this generation

    # ---- called by any thread

    def start(self) -> None:
        """Start the loop; every worker sends a first report."""
        for member in self.turns.members:
            self.post(member, WorkerTick())
        self._threads.start(self.host, self._loop(0))

    def add(self, member: SeededMember) -> None:
        """Run one more worker."""
        self.turns.members = (*self.turns.members, member)
        self.post(member, WorkerTick())

    def drop(self, member: SeededMember) -> None:
        """Run a worker only to pass on events that were posted to it before."""
        self.turns.members = tuple(one for one in self.turns.members if one is not member)

    def post(self, member: SeededMember, event: Event, urgent: bool = False) -> None:
        """Post an event to a worker, and wake it."""
        member.mailbox.append(event)
        self.turns.posted(member, urgent)

    def post_credit(self, member: SeededMember, event: Granted) -> None:
        """Post credit; the worker is woken only if it awaits credit."""
        member.mailbox.append(event)
        if member.awaits_credit:
            self.turns.posted(member)

    def switch(self, member: SeededMember, event: Event) -> Steps[None]:
        """Post a fast control message; it is processed at once unless another thread runs the worker."""
        member.mailbox.append(event)
        yield None
        if self.turns.switch_begins(member):
            try:
                yield None
                member.process()
                yield None
            finally:
                self.turns.switch_ended(member)

    def check(self) -> None:
        """Interrupt a turn that takes long; if it is inside one tuple, hand the other workers on."""
        if self.turns.is_stuck() and self.turns.hand_off():
            self.handoffs += 1
            self._threads.start(self.host, self._loop(self.turns.generation))

    @property
    def is_held_up(self) -> bool:
        """Whether a turn lasts that was not handed off so far, but may soon be."""
        return self._began_ns is not None and self._clock() - self._began_ns < 2 * HANDOFF_NS

    # ---- the loop's thread

    def _loop(self, generation: int) -> Steps[None]:
        turns = self.turns
        while turns.generation == generation and not turns.leaving:
            member = turns.begin()
            unflushed = turns.take_unflushed(all_of_them=True) if member is None else []
            due_ns = turns.next_due_ns if member is None else None
            self.begun += member is not None
            self._began_ns = None if member is None else self._clock()
            yield None
            if member is None:
                yield from self._flush(unflushed)
                if not unflushed:
                    yield from self._wait(due_ns)
            elif not (yield from self._serve(member, generation)):
                if turns.runs_on(member):
                    yield from self._run_apart(member)
                return

    def _serve(self, member: SeededMember, generation: int) -> Steps[bool]:
        turns, began_ns = self.turns, self._clock()
        try:
            busy = yield from member.turn()
            if not busy and member.buffers and turns.would_wait(member):
                turns.deadline.flushed(member.flush())
        finally:
            member.owner.release()
        yield None
        after = turns.ended(member, generation, self._clock() - began_ns, busy)
        unflushed = turns.take_unflushed(all_of_them=False) if after is not After.LEAVE else []
        yield None
        yield from self._flush(unflushed)
        if after is After.START_OWN:
            self._threads.start(self.host, self._run_apart(member))
        return after is not After.LEAVE

    def _flush(self, members: Iterable[SeededMember]) -> Steps[None]:
        for member in members:
            if self.turns.claim(member):
                try:
                    yield None
                    self.turns.deadline.flushed(member.flush())
                finally:
                    member.owner.release()
            yield None

    def _wait(self, due_ns: int | None) -> Steps[None]:
        began_ns, woken = self._clock(), self.turns.woken
        if woken.empty():
            yield Wait(lambda: not woken.empty(), due_ns)
        if not woken.empty():
            wake_up = woken.get()
            yield None
            self.turns.woke(wake_up)
        self.turns.deadline.waited(self._clock() - began_ns)

    # ---- the thread of a slow worker

    def _run_apart(self, member: SeededMember) -> Steps[None]:
        turns = self.turns
        own = turns.apart[member]
        yield from self._own(member)
        member.flush()
        member.owner.release()
        while not turns.leaving:
            yield None
            while not own.empty():
                own.get()
            began_ns = self._clock()
            busy, burnt = yield from self._slow_turn(member)
            yield None
            took_ns = self._clock() - began_ns
            if not turns.slow_turn_ended(member, took_ns if burnt else 0, took_ns):
                return
            if not busy and own.empty():
                yield Wait(lambda: not own.empty(), member.due_ns)
        turns.rejoin(member)

    def _slow_turn(self, member: SeededMember) -> Steps[tuple[bool, bool]]:
        """Run a worker for one turn; returns whether there may be more to do, and whether it has used the processor."""
        holds = self.turns.needs_ticket(member)
        if holds:
            while not self._tickets:
                yield Wait(lambda: self._tickets > 0)
            self._tickets -= 1
        yield from self._own(member)
        try:
            self.turns.slow_turn_begins(member)
            yield None
            busy = yield from member.turn()
            member.flush()
        finally:
            member.owner.release()
            self._tickets += holds
        return busy, bool(member.takes_ns // 1_000_000 % 2)

    def _own(self, member: SeededMember) -> Steps[None]:
        while not self.turns.claim(member):
            yield Wait(lambda: not member.owner.is_held)


def loops_of(
    host: int, members: Iterable[SeededMember], threads: VirtualThreads, clock: Callable[[], int]
) -> tuple[SeededLoop, ...]:
    """The loops of a host: workers that read, workers that write, and all others."""
    by_kind = sorted(members, key=_execution)
    return tuple(SeededLoop(host, some, threads, clock) for _, some in itertools.groupby(by_kind, _execution))


def _execution(member: SeededMember) -> str:
    traits = member.worker.instances[0].operator.traits
    return "read" if traits.is_source else "write" if traits.is_sink else "loop"
