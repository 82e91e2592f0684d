"""The order in which a loop's head takes frames: what waits at the head is bounded by the rounds, and rows enter."""

from __future__ import annotations

import itertools
import random
from collections import deque

import pyarrow as pa
import pytest

from fries_nb.protocol.messages import ChannelId, Data, WorkerId
from fries_nb.protocol.topology import BODY_WINDOW
from fries_nb.worker.loop_head import FeedbackInbox

FORWARD, BACK = (ChannelId(WorkerId(name, 0), WorkerId("L", 0)) for name in "AB")
ROW = pa.RecordBatch.from_pydict({"x": [1]})
LONGEST = 4_000
"""Bytes of a frame; the shortest has 1."""
IN_BODY = 40
"""Frames that the body keeps at most."""


class Circle:
    """A head with a body that returns each frame some steps later, so many times; frames always wait to enter."""

    def __init__(self, seed: int, rounds: float) -> None:
        self.random, self.rounds = random.Random(seed), rounds
        self.inbox = FeedbackInbox([FORWARD, BACK], frozenset("B"), budget=1 << 26, spill=list)
        self.body, self.back = deque[Data](), deque[Data]()
        self.entered = self.most_waiting = 0
        self.inbox.put(FORWARD, self.frame(0))

    def frame(self, round_: int) -> Data:
        """A frame of this round."""
        return Data(ROW, (1, round_), self.random.randint(1, LONGEST))

    def turn(self) -> None:
        """The head takes a frame, or some that it merges, and the body returns others."""
        taken = self.inbox.take()
        assert taken is not None
        assert isinstance(taken[1], Data)
        for channel, frame in self.inbox.merged(*taken, self.random.choice((1, 3)))[1]:
            if channel == FORWARD:
                self.entered += 1
                self.inbox.put(FORWARD, self.frame(0))
            else:
                self.back.popleft()
            if frame.timestamp[-1] < self.rounds:
                self.body.append(self.frame(frame.timestamp[-1] + 1))
        while len(self.body) > self.random.randint(0, IN_BODY):
            self.back.append(self.body.popleft())
            self.inbox.put(BACK, self.back[-1])
        self.most_waiting = max(self.most_waiting, sum(frame.size for frame in self.back))


@pytest.mark.parametrize("rounds", [1, 5, 15])
@pytest.mark.parametrize("seed", range(5))
def test_as_many_units_wait_as_there_are_rounds(seed: int, rounds: int) -> None:
    """However many rows could enter; what the body returns at once is on top."""
    circle = Circle(seed, rounds)
    for _ in range(5_000):
        circle.turn()
    assert circle.entered > 5_000 // (4 * (rounds + 1))
    assert circle.most_waiting <= (rounds + 1) * BODY_WINDOW + IN_BODY * LONGEST


def test_rows_enter_a_loop_that_none_leaves() -> None:
    """So a marker behind them comes to its turn."""
    circle = Circle(0, rounds=float("inf"))
    entered = []
    for _ in range(4):
        for _ in range(2_000):
            circle.turn()
        entered.append(circle.entered)
    assert all(later > earlier for earlier, later in itertools.pairwise(entered))
