"""The loop of a host: one owner a worker, control that waits for one tuple at most, and slow workers apart.

The threads are real; the workers are stubs that are held inside a tuple until the test lets them go.
"""

from __future__ import annotations

import itertools
import queue
import random
import threading
import time
from collections import deque
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from patience import PATIENCE_S

from fries_nb.host.environment import Steps, Threads, run
from fries_nb.host.host_loop import HostLoop
from fries_nb.operators.executors import InterruptFlag
from fries_nb.worker import turns
from fries_nb.worker.meters import TurnTime
from fries_nb.worker.rota import JUDGED_NS, FlushDeadline, Slowness
from fries_nb.worker.turns import Turns

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
        interrupt = InterruptFlag()
        self.worker = SimpleNamespace(interrupt=interrupt, slowness=Slowness(), useful_ns=0, busy_ns=0)
        self.worker.is_aside = False
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


# ---- the tests


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[HostLoop, list[Stub]]]:
    """A loop of three workers that has started, whose turns may be handed on at once."""
    monkeypatch.setattr(turns, "HANDOFF_NS", 0)
    notes: list[tuple[str, str, int]] = []
    stubs = [Stub(name, notes) for name in "ABC"]
    loop = HostLoop(Threads(), 0, "loop", stubs, tickets=1)  # type: ignore[arg-type]
    loop.start()
    yield loop, stubs
    loop.leave()
    for stub in stubs:
        stub.holds = False
        stub.held.release(1000)
    assert loop.join(time.monotonic_ns() + int(PATIENCE_S * 1e9)) == []
    assert [thread.name for thread in threading.enumerate() if thread.name.startswith(("loop", "A", "B", "C"))] == []


def handed_on(loop: HostLoop) -> None:
    """Check as the control thread does: the first time interrupts, the second one hands on."""
    loop.check()
    loop.check()


def test_workers_share_one_thread_and_are_flushed_before_it_waits(made: tuple[HostLoop, list[Stub]]) -> None:
    """However many there are."""
    loop, stubs = made
    for stub in stubs:
        loop.post(stub, 3)
    for stub in stubs:
        stub.until("tuple", 3)
        stub.until("flush")
    threads = {thread for stub in stubs for thread in stub.when("tuple")}
    assert len(threads) == 1
    assert threads != {threading.get_ident()}


def test_a_fast_control_message_does_not_wait_for_the_tuple_of_another_worker(
    made: tuple[HostLoop, list[Stub]],
) -> None:
    """The thread that posts it processes it, since no other runs that worker."""
    loop, (a, b, _) = made
    a.holds = True
    loop.post(a, 1)
    a.entered.get(timeout=PATIENCE_S)
    run(loop.switch(b, "fcm"))
    assert b.when("fcm") == [threading.get_ident()]
    a.held.release()


def test_a_fast_control_message_waits_for_the_tuple_in_hand_and_no_other(made: tuple[HostLoop, list[Stub]]) -> None:
    """The flag of its worker is raised while that is inside the tuple."""
    loop, (a, *_) = made
    a.holds = True
    loop.post(a, 5)
    a.entered.get(timeout=PATIENCE_S)
    run(loop.switch(a, "fcm"))
    assert a.worker.interrupt.raised
    assert a.when("fcm") == []
    a.held.release()
    a.until("fcm")
    assert len(a.when("tuple")) == 1
    a.holds = False
    a.held.release(5)


def test_an_urgent_event_interrupts_whichever_worker_runs_and_is_served_next(
    made: tuple[HostLoop, list[Stub]],
) -> None:
    """Before the rest of its turn, and before workers that were ready earlier."""
    loop, (a, b, c) = made
    a.holds = True
    loop.post(a, 9)
    a.entered.get(timeout=PATIENCE_S)
    loop.post(c, 1)
    loop.post(b, "prepare", urgent=True)
    assert a.worker.interrupt.raised
    a.holds = False
    a.held.release()
    b.until("prepare")
    c.until("tuple")
    order = [(name, what) for name, what, _ in a.notes]
    assert order.index(("B", "prepare")) < order.index(("C", "tuple"))
    assert order[: order.index(("B", "prepare"))].count(("A", "tuple")) == 1


def test_inside_a_long_tuple_the_other_workers_are_handed_on(made: tuple[HostLoop, list[Stub]]) -> None:
    """To another thread; the first one ends behind its tuple, and its worker is run by the other from then on."""
    loop, (a, b, _) = made
    a.holds = True
    loop.post(a, 2)
    a.entered.get(timeout=PATIENCE_S)
    loop.post(b, 1)
    loop.check()
    assert a.worker.interrupt.raised
    assert b.when("tuple") == []
    loop.check()
    b.until("tuple")
    a.holds = False
    a.held.release()
    a.until("tuple", 2)
    b.until("flush")
    first, second = a.when("tuple")
    assert first != b.when("tuple")[0]
    assert second in (first, b.when("tuple")[0])


def test_what_is_due_to_be_flushed_does_not_wait_for_a_long_tuple(
    made: tuple[HostLoop, list[Stub]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread that goes on with the other workers flushes it, even if its deadline passed as the tuple began."""
    monkeypatch.setattr(FlushDeadline, "adjusted", lambda deadline, now_ns: -1)
    loop, (a, b, _) = made
    a.holds = b.holds = True
    loop.post(b, 1)
    b.entered.get(timeout=PATIENCE_S)
    loop.post(a, 1)
    b.held.release()
    a.entered.get(timeout=PATIENCE_S)
    handed_on(loop)
    b.until("flush")
    assert not a.when("tuple")
    a.held.release()


def test_a_worker_that_has_a_loop_to_itself_is_left_in_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long it takes: nothing waits for its end."""
    monkeypatch.setattr(turns, "HANDOFF_NS", 0)
    alone = Stub("A", [])
    alone.holds = True
    loop = HostLoop(Threads(), 0, "loop", [alone], tickets=1)  # type: ignore[list-item]
    loop.post(alone, 1)
    loop.start()
    alone.entered.get(timeout=PATIENCE_S)
    handed_on(loop)
    assert not loop.is_busy
    assert not alone.worker.interrupt.raised
    assert [thread.name for thread in threading.enumerate() if thread.name.startswith("loop")] == ["loop-0"]
    alone.held.release()
    loop.leave()
    assert loop.join(time.monotonic_ns() + int(PATIENCE_S * 1e9)) == []


@pytest.mark.parametrize("look", [1, 2, 3])
def test_an_event_that_comes_as_a_turn_begins_is_not_the_last_one_heard(
    monkeypatch: pytest.MonkeyPatch, look: int
) -> None:
    """It was, when its waking was taken for that of the turn: a run stood still after a recovery."""
    stub, looks, take_woken = Stub("A", []), itertools.count(1), Turns._take_woken

    def posting(decisions: Turns[Any]) -> None:
        if next(looks) == look:
            loop.post(stub, 1)  # type: ignore[arg-type]
        take_woken(decisions)

    monkeypatch.setattr(Turns, "_take_woken", posting)
    loop = HostLoop(Threads(), 0, "loop", [stub], tickets=1)  # type: ignore[list-item]
    loop.start()
    stub.until("flush")
    loop.post(stub, 1)  # type: ignore[arg-type]
    stub.until("tuple", 2)
    loop.leave()
    assert loop.join(time.monotonic_ns() + int(PATIENCE_S * 1e9)) == []


def test_a_worker_that_two_threads_leave_to_each_other_is_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """One finds it in the other's hands, just before its long tuple ends; neither would run it, once."""
    monkeypatch.setattr(turns, "HANDOFF_NS", 0)
    stub, other, released = Stub("A", []), Stub("B", []), threading.Event()

    class Owner:
        lock = threading.Lock()

        def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
            got = self.lock.acquire(blocking, timeout)
            if not got and not blocking:  # the second thread: the first one leaves its tuple now
                stub.holds = False
                stub.held.release()
                assert released.wait(PATIENCE_S)
            return got

        def release(self) -> None:
            self.lock.release()
            released.set()

        def __enter__(self) -> bool:
            return self.acquire()

        def __exit__(self, *_: object) -> None:
            self.release()

    stub.owner, stub.holds = Owner(), True  # type: ignore[assignment]
    loop = HostLoop(Threads(), 0, "loop", [stub, other], tickets=1)  # type: ignore[list-item]
    loop.post(stub, 2)
    loop.start()
    stub.entered.get(timeout=PATIENCE_S)
    handed_on(loop)
    stub.until("tuple", 2)
    loop.leave()
    assert loop.join(time.monotonic_ns() + int(PATIENCE_S * 1e9)) == []


def test_a_function_that_never_returns_keeps_its_worker_alone(made: tuple[HostLoop, list[Stub]]) -> None:
    """The host goes on, several handings on or not, and says at the end which worker is stuck."""
    loop, (a, b, c) = made
    a.holds = True
    loop.post(a, 1)
    a.entered.get(timeout=PATIENCE_S)
    handed_on(loop)
    for number in range(1, 4):
        loop.post(b, 1)
        b.until("tuple", number)
        handed_on(loop)
    run(loop.switch(c, "fcm"))
    assert c.when("fcm") == [threading.get_ident()]
    loop.leave()
    assert loop.join(time.monotonic()) == ["A"] or loop.join(time.monotonic() + PATIENCE_S / 100) == ["A"]


def test_a_slow_worker_has_a_thread_of_its_own_until_it_is_quick_again(made: tuple[HostLoop, list[Stub]]) -> None:
    """A change of it is processed at once while it waits, and by its thread when it does not."""
    loop, (a, b, _) = made
    loop.post(a, SLOW)
    loop.post(a, 1)
    a.until("tuple")
    loop.post(b, 1)
    b.until("tuple")
    loop.post(a, 1)
    a.until("tuple", 2)
    own, shared = a.when("tuple")[-1], b.when("tuple")[0]
    assert own != shared
    a.until("flush")
    loop.post(a, QUICK)
    loop.post(a, 1)
    a.until("tuple", 3)
    loop.post(a, 1)
    a.until("tuple", 4)
    assert a.when("tuple")[-1] == shared
    assert a.worker.turn_time.take() > a.worker.busy_ns > 0


def test_a_slow_worker_sends_each_tuple_though_others_wait_behind_it(made: tuple[HostLoop, list[Stub]]) -> None:
    """Its receivers would have nothing to do meanwhile."""
    loop, (slow, *_) = made
    loop.post(slow, SLOW)
    slow.until("flush", 0)
    slow.holds = True
    loop.post(slow, 3)
    for sent in (1, 2):
        slow.entered.get(timeout=PATIENCE_S)
        slow.held.release()
        slow.until("flush", sent)
    assert len(slow.when("tuple")) < 3


def test_a_worker_that_waits_in_its_turns_gets_a_thread_of_its_own(made: tuple[HostLoop, list[Stub]]) -> None:
    """Its turns take long, and hardly use the processor."""
    loop, (waiting, *_) = made
    waiting.worker.slowness.may_wait = True
    waiting.worker.slowness._took_ns = JUDGED_NS - 1
    waiting.holds = True
    loop.post(waiting, 2)
    for _ in range(2):
        waiting.entered.get(timeout=PATIENCE_S)
        waiting.held.release()
    waiting.until("tuple", 2)
    first, second = waiting.when("tuple")
    assert first != second


def test_slow_workers_that_use_the_processor_take_turns(made: tuple[HostLoop, list[Stub]]) -> None:
    """One ticket: while one is inside a tuple another waits, but not its control messages."""
    loop, (a, b, _) = made
    for stub in (a, b):
        loop.post(stub, SLOW)
    real = turns.PROCESSOR_SHARE
    try:
        turns.PROCESSOR_SHARE = -1.0
        for stub in (a, b):
            loop.post(stub, 1)
            stub.until("tuple")
        a.holds = True
        loop.post(a, 1)
        a.entered.get(timeout=PATIENCE_S)
        loop.post(b, 1)
        run(loop.switch(b, "fcm"))
        b.until("fcm")
        assert len(b.when("tuple")) == 1
        a.holds = False
        a.held.release()
        b.until("tuple", 2)
    finally:
        turns.PROCESSOR_SHARE = real


@pytest.mark.parametrize("seed", range(20))
def test_no_event_is_lost_and_no_worker_has_two_owners(made: tuple[HostLoop, list[Stub]], seed: int) -> None:
    """Several threads post events, tuples and control messages; workers become slow and quick; loops are handed on."""
    loop, stubs = made
    chance = random.Random(seed)
    posted = {stub.name: [0, 0] for stub in stubs}
    lock = threading.Lock()

    def post(draws: random.Random) -> None:
        for _ in range(60):
            stub = draws.choice(stubs)
            kind = draws.randrange(6)
            with lock:
                posted[stub.name][0] += kind < 3
                posted[stub.name][1] += kind == 3
            if kind < 3:
                loop.post(stub, 1, urgent=kind == 2)
            elif kind == 3:
                run(loop.switch(stub, "fcm"))
            elif kind == 4:
                loop.post(stub, draws.choice((SLOW, QUICK)))
            else:
                loop.check()

    threads = [threading.Thread(target=post, args=[random.Random(chance.random())]) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for stub in stubs:
        tuples, messages = posted[stub.name]
        stub.until("tuple", tuples)
        stub.until("fcm", messages)
        assert (len(stub.when("tuple")), len(stub.when("fcm"))) == (tuples, messages)
