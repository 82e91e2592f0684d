"""Attempts to end a loop: their pace, their verdicts, and what goes before them."""

from __future__ import annotations

import pytest

from fries_nb.controller.events import Instruction
from fries_nb.controller.loop_attempts import LoopAttempts
from fries_nb.controller.markers import MarkerCoordinator
from fries_nb.controller.membership import Workers
from fries_nb.dataflow.graph import ROOT, Edge, Graph, Kind, Operator
from fries_nb.errors import ProtocolError
from fries_nb.planning.schedulers import Send
from fries_nb.protocol.messages import Attempt, Commit, Done, EndLoop, InputEnded, Settled, WorkerId

INSIDE = ROOT.nest("L")
GRAPH = Graph(
    "loop",
    (
        Operator("S", kind=Kind.SOURCE),
        Operator("L", kind=Kind.LOOP, within=INSIDE, workers=2),
        Operator("B", within=INSIDE),
        Operator("Z", kind=Kind.SINK),
    ),
    (Edge("S", "L"), Edge("L", "B"), Edge("B", "L", feedback=True), Edge("B", "Z", branch=1)),
)
HEADS, BODY = [WorkerId("L", 0), WorkerId("L", 1)], WorkerId("B", 0)


class Crowd:
    """The workers of a loop, as the controller knows them."""

    def __init__(self) -> None:
        workers = Workers(GRAPH)
        self.lane = MarkerCoordinator(workers)
        self.is_commit_due = False
        self.loops = LoopAttempts(workers, self.lane, lambda now_ns: self.is_commit_due)

    def advance(self) -> list[Instruction]:
        """Take the next steps."""
        return self.loops.advance(0, is_tick=False)

    def acknowledge(self, marker: int, worker: WorkerId, done: Done) -> None:
        """Give one answer."""
        self.lane.acknowledge(marker, worker)
        self.loops.acknowledged(Attempt("L", marker), worker, done, 0)

    def answer(self, marker: int, *answers: Done) -> list[Instruction]:
        """Give these answers, and plain ones of the others."""
        given = {done.worker: done for done in answers}
        for worker in (*HEADS, BODY):
            done = given.get(worker, Done(marker, worker))
            self.acknowledge(marker, worker, done)
        return self.advance()


def begun() -> Crowd:
    """With the first attempt in flight."""
    crowd = Crowd()
    for worker in HEADS:
        crowd.loops.answered(InputEnded(worker))
    assert [tell.worker for tell in crowd.advance()] == HEADS
    return crowd


def test_the_first_attempt_awaits_the_end_of_all_forward_channels() -> None:
    """At every worker of the head."""
    crowd = Crowd()
    crowd.loops.answered(InputEnded(HEADS[0]))
    assert crowd.advance() == []
    with pytest.raises(ProtocolError, match="has no more forward input"):
        crowd.loops.answered(InputEnded(HEADS[0]))
    with pytest.raises(ProtocolError, match="has no more forward input"):
        crowd.loops.answered(InputEnded(BODY))


def test_an_empty_loop_ends() -> None:
    """All workers of its head are told."""
    assert [(tell.worker, tell.control) for tell in begun().answer(1)] == [(worker, EndLoop()) for worker in HEADS]


def test_after_frames_were_taken_the_next_attempt_follows_at_once() -> None:
    """One worker of the head is enough."""
    crowd = begun()
    assert len(crowd.answer(1, Done(1, HEADS[1], observed=1))) == 2
    assert crowd.loops.loops["L"].attempts == 2


@pytest.mark.parametrize("settles", ["before the marker has retired", "later"])
def test_while_nothing_moves_an_attempt_awaits_the_busy(settles: str) -> None:
    """It must not spin; and a worker that has settled meanwhile was busy nevertheless."""
    crowd, busy = begun(), Done(1, BODY, busy=True)
    if settles == "later":
        assert crowd.answer(1, busy) == crowd.advance() == []
        crowd.loops.answered(Settled(BODY, 1))
    else:
        crowd.acknowledge(1, BODY, busy)
        crowd.loops.answered(Settled(BODY, 1))
        for worker in HEADS:
            assert crowd.advance() == []
            crowd.acknowledge(1, worker, Done(1, worker))
    assert [tell.control.marker.action.number for tell in crowd.advance()] == [2, 2]


def test_a_cancelled_attempt_ends_nothing() -> None:
    """It is made again."""
    crowd = begun()
    crowd.lane.cancel()
    assert [tell.control.marker.action.number for tell in crowd.advance()] == [2, 2]


def test_other_markers_come_first() -> None:
    """An attempt waits for the lane."""
    crowd = begun()
    crowd.lane.cancel()
    crowd.lane.start([Send("S", frozenset("S"))], Commit(1))
    assert crowd.advance() == []
    crowd.lane.acknowledge(2, WorkerId("S", 0))
    assert len(crowd.advance()) == 2


def test_a_commit_that_is_due_comes_between_two_attempts() -> None:
    """While rows go round, the lane is free for this moment only; the next attempt comes before another commit."""
    crowd = begun()
    assert not crowd.lane.committed_last
    for worker in (*HEADS, BODY):
        crowd.acknowledge(1, worker, Done(1, worker, observed=1))
    crowd.is_commit_due = True
    assert crowd.advance() == []
    crowd.is_commit_due = False
    crowd.lane.start([Send("S", frozenset("S"))], Commit(1))
    assert crowd.advance() == []
    crowd.lane.acknowledge(2, WorkerId("S", 0))
    assert crowd.lane.committed_last
    assert len(crowd.advance()) == 2


def test_another_incarnation_begins_anew() -> None:
    """Its heads take the ends of their channels again."""
    crowd = begun()
    crowd.lane.clear()
    crowd.loops.lost("host 0 was lost", 0)
    assert crowd.advance() == []
    crowd.loops.answered(InputEnded(HEADS[0]))
    assert crowd.advance() == []
