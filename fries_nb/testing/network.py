"""The lanes between workers and controller: each is a FIFO, and nothing is promised about one against another.

    frames     one lane a channel, data and markers in one order
    grants     one lane a channel, the other way
    control    one lane a host, controller to its workers
    answers    one lane a host, its workers to the controller

That is what the links of Spark's hosts promise, and no more.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterator
from enum import Enum
from typing import Any

from fries_nb.testing.draws import Draws


class LaneKind(Enum):
    """What runs on a lane."""

    FRAMES = "frames"
    GRANTS = "grants"
    CONTROL = "control"
    ANSWERS = "answers"

    __hash__ = object.__hash__


Lane = tuple[LaneKind, Hashable]


class SeededNetwork:
    """All lanes; those on which something waits can be drawn."""

    def __init__(self, draws: Draws) -> None:
        self._draws = draws
        self._lanes: dict[Lane, deque[Any]] = {}

    def put(self, lane: Lane, what: Any) -> None:
        """Send something."""
        queue = self._lanes.get(lane)
        if queue is None:
            queue = self._lanes[lane] = deque()
        if not queue:
            self._draws.add(lane)
        queue.append(what)

    def take(self, lane: Lane) -> Any:
        """What arrives next on a lane on which something waits."""
        queue = self._lanes[lane]
        what = self._next(lane, queue)
        if not queue:
            self._draws.discard(lane)
        return what

    def _next(self, lane: Lane, queue: deque[Any]) -> Any:
        return queue.popleft()

    def lose(self, lane: Lane, kept: int) -> None:
        """Of what waits on a lane only so much arrives."""
        queue = self._lanes.get(lane, deque())
        while len(queue) > kept:
            queue.pop()
        if not queue:
            self._draws.discard(lane)

    def waiting(self) -> Iterator[tuple[Lane, int]]:
        """Each lane on which something waits, and how much."""
        return ((lane, len(queue)) for lane, queue in self._lanes.items() if queue)
