"""Which thread runs which worker: what is posted at any line of a turn is heard, and what is urgent stays urgent."""

from __future__ import annotations

import queue
import sys
import threading
from collections.abc import Callable
from types import FrameType, SimpleNamespace
from typing import Any

import pytest

from fries_nb.operators.executors import InterruptFlag
from fries_nb.worker import turns as module
from fries_nb.worker.rota import Slowness
from fries_nb.worker.turns import After, Turns


class Stub:
    """A worker of which only the mailbox counts."""

    due_ns = None
    buffers = is_ahead = False

    def __init__(self) -> None:
        self.worker: Any = SimpleNamespace(interrupt=InterruptFlag(), slowness=Slowness(), is_aside=False)
        self.owner = threading.Lock()
        self.awake = False
        self.mailbox: list[str] = []


class Two:
    """A loop with two workers, of which the first has an event."""

    def __init__(self) -> None:
        self.now_ns = 0
        self.a, self.b = Stub(), Stub()
        self.turns: Turns[Stub] = Turns([self.a, self.b], queue.SimpleQueue, lambda: self.now_ns, lambda: 0)
        self.post(self.a)

    def post(self, stub: Stub, urgent: bool = False) -> None:
        stub.mailbox.append("event")
        self.turns.posted(stub, urgent)

    def switch(self, stub: Stub) -> None:
        stub.mailbox.append("event")
        if self.turns.switch_begins(stub):
            stub.mailbox.clear()
            self.turns.switch_ended(stub)

    def serve(self) -> Stub | None:
        """One turn, as the loop's thread runs it."""
        if (stub := self.turns.begin()) is not None:
            stub.mailbox.clear()
            stub.owner.release()
            self.turns.ended(stub, self.turns.generation, 1, busy=False)
        return stub

    def run_dry(self) -> None:
        while self.serve() is not None:
            pass


def at_line(number: int, act: Callable[[], None], during: Callable[[], object]) -> bool:
    """Whether ``during`` has so many lines in this module and in that of the turns; at that one, ``act`` is called."""
    left = number

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal left
        if frame.f_code.co_filename not in (module.__file__, __file__):
            return None
        if event == "line":
            left -= 1
            if left == 0:
                sys.settrace(None)
                act()
        return trace

    sys.settrace(trace)
    try:
        during()
    finally:
        sys.settrace(None)
    return left <= 0


ACTS: dict[str, Callable[[Two], None]] = {
    "an event of the same worker": lambda two: two.post(two.a),
    "an urgent one": lambda two: two.post(two.a, urgent=True),
    "one of another worker": lambda two: two.post(two.b),
    "a fast control message": lambda two: two.switch(two.a),
}


def lost(act: Callable[[Two], None]) -> list[int]:
    """The lines of a turn at which what is posted is not processed, or keeps a worker from being woken again."""
    found = []
    for line in range(1, 1000):
        two = Two()
        reached = at_line(line, lambda two=two: act(two), two.serve)  # type: ignore[misc]
        if not reached:
            assert line > 10, "the lines of a turn were not seen"
            return found
        two.run_dry()
        heard = not two.a.mailbox and not two.b.mailbox
        two.post(two.a)
        two.post(two.b)
        two.run_dry()
        if not heard or two.a.mailbox or two.b.mailbox:
            found.append(line)
    raise AssertionError("a turn does not end")


@pytest.mark.parametrize("act", ACTS.values(), ids=ACTS)
def test_what_is_posted_at_any_line_of_a_turn_is_heard(act: Callable[[Two], None]) -> None:
    """Posting threads hold no lock."""
    assert lost(act) == []


def _awake_in_its_turn(turns: Turns[Any], begin: Callable[[Turns[Any]], Any] = Turns.begin) -> Any:
    if (member := begin(turns)) is not None:
        member.awake = True
    return member


def _asleep_behind_its_turn(turns: Turns[Any], member: Any, *turn: int, busy: bool) -> Any:
    after = ENDED(turns, member, *turn, busy)
    member.awake = False
    return after


def _asleep_before_the_last_look(turns: Turns[Any]) -> Any:
    turns._take_woken()
    member = turns._rota.next()
    if member is not None and member.owner.acquire(blocking=False):
        member.awake = False
        turns._running = (member, 0)
        turns._take_woken()
    return member


ENDED = Turns.ended
BROKEN = {
    "awake in its turn": {"begin": _awake_in_its_turn, "ended": _asleep_behind_its_turn},
    "asleep before the last look": {"begin": _asleep_before_the_last_look},
}


@pytest.mark.parametrize("broken", BROKEN.values(), ids=BROKEN)
def test_lost_wake_ups_are_noticed(monkeypatch: pytest.MonkeyPatch, broken: dict[str, Callable[..., Any]]) -> None:
    """A worker that is awake without a wake-up is never run again."""
    for name, replacement in broken.items():
        monkeypatch.setattr(Turns, name, replacement)
    assert lost(ACTS["an event of the same worker"])


def test_the_flag_of_a_worker_that_another_thread_owns_stays_raised() -> None:
    """Else that thread would take more tuples in front of the urgent event."""
    two = Two()
    assert two.turns.begin() is two.a
    two.now_ns = module.HANDOFF_NS
    assert not two.turns.is_stuck()
    assert two.turns.is_stuck()
    assert two.turns.hand_off()
    two.post(two.a, urgent=True)
    two.post(two.b)
    assert two.turns.begin() is two.b
    assert two.a.worker.interrupt.raised


def test_an_urgent_event_that_comes_as_a_slow_worker_becomes_quick_stays_urgent() -> None:
    """It is served before a worker that was ready earlier."""
    two = Two()
    two.a.worker.slowness.is_slow = True
    assert two.turns.begin() is two.a
    two.a.owner.release()
    assert two.turns.ended(two.a, 0, 1, busy=False) is After.START_OWN
    assert two.turns.claim(two.a)
    two.turns.slow_turn_begins(two.a)
    two.a.owner.release()
    two.post(two.b)
    two.post(two.a, urgent=True)
    two.a.worker.slowness.is_slow = False
    assert not two.turns.slow_turn_ended(two.a, 0, 1)
    assert two.serve() is two.a
