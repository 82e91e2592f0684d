"""The lanes between workers, hosts and controller: each is a FIFO, and lanes are independent of each other.

    frames     one lane for each channel, data and markers in one order
    grants     one lane for each channel, in the opposite direction
    control    one lane for each host, from the controller to its workers
    answers    one lane for each host, from its workers to the controller
    progress   one lane for each pair of hosts, of counts of pointstamps
    state      one lane for each pair of workers, of bins that move
    link       one lane for each pair of hosts, of all that one sends to the other, where hosts are those of Spark

The links between the hosts of a run on Spark give the same guarantees.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable, Iterator
from enum import Enum
from typing import Any

from fries_nb.simulation.draws import Draws


class LaneKind(Enum):
    """The content of a lane."""

    FRAMES = "frames"
    GRANTS = "grants"
    CONTROL = "control"
    ANSWERS = "answers"
    PROGRESS = "progress"
    STATE = "state"
    LINK = "link"

    __hash__ = object.__hash__


Lane = tuple[LaneKind, Hashable]


class SeededNetwork:
    """All lanes; non-empty ones can be drawn."""

    def __init__(self, draws: Draws) -> None:
        self._draws = draws
        self._lanes: dict[Lane, deque[Any]] = {}

    def put(self, lane: Lane, what: Any) -> None:
        """Append to a lane."""
        queue = self._lanes.get(lane)
        if queue is None:
            queue = self._lanes[lane] = deque()
        if not queue:
            self._draws.add(lane)
        queue.append(what)

    def put_all(self, kind: LaneKind, elements: Iterable[tuple[Hashable, Any]]) -> None:
        """Append each element to the lane of this kind that it is paired with."""
        for place, what in elements:
            self.put((kind, place), what)

    def take(self, lane: Lane) -> Any:
        """Remove the first element of a non-empty lane."""
        queue = self._lanes[lane]
        what = self._next(lane, queue)
        if not queue:
            self._draws.discard(lane)
        return what

    def _next(self, lane: Lane, queue: deque[Any]) -> Any:
        return queue.popleft()

    def lose(self, lane: Lane, kept: int) -> None:
        """Truncate a lane to this number of elements."""
        queue = self._lanes.get(lane, deque())
        while len(queue) > kept:
            queue.pop()
        if not queue:
            self._draws.discard(lane)

    def queued(self, lane: Lane) -> tuple[Any, ...]:
        """The elements of a lane, in order."""
        return tuple(self._lanes.get(lane, ()))

    def waiting(self) -> Iterator[tuple[Lane, int]]:
        """The non-empty lanes and their lengths."""
        return ((lane, len(queue)) for lane, queue in self._lanes.items() if queue)
