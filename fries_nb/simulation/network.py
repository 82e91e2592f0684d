"""The lanes between workers, hosts and controller: each is a FIFO, and lanes are independent of each other.

    frames     one lane for each channel, data and markers in one order
    grants     one lane for each channel, in the opposite direction
    control    one lane for each host, from the controller to its workers
    answers    one lane for each host, from its workers to the controller
    progress   one lane for each pair of hosts, of counts of pointstamps
    state      one lane for each pair of workers, of bins that move
    link       one lane for each pair of hosts, of all that one sends to the other, where hosts are those of Spark

The links between the hosts of a run on Spark give the same guarantees.

The set of possible events, from which the next one is drawn in constant time, by a seed.

Each event has its own pace, drawn when it is first added: most are fast, some slow, a few very slow. A uniform draw
would hardly ever let one channel or one worker fall far behind the others, where interleavings are most revealing.

>>> draws = Draws(random.Random(1))
>>> for name in "abc":
...     draws.add(name)
>>> draws.discard("b")
>>> draws.draw() in ("a", "c"), len(draws)
(True, 2)
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator
from enum import Enum
from typing import Any

PACES = (1.0, 1.0, 1.0, 0.2, 0.02)
PATIENCE = 8
"""Number of draws after which a slow event is accepted, since no fast one may be left."""


class Draws:
    """A set of events to draw from; a drawn event stays in it. ``slow`` decides which have the slowest pace."""

    def __init__(self, source: random.Random, slow: Callable[[Hashable], bool] = lambda thing: False) -> None:
        self._random = source
        self._slow = slow
        self._things: list[Hashable] = []
        self._place: dict[Hashable, int] = {}
        self._pace: dict[Hashable, float] = {}

    def __len__(self) -> int:
        return len(self._things)

    def of_kind(self, kind: str) -> list[Any]:
        """The places of the possible events of a kind."""
        return [thing[1] for thing in self._things if isinstance(thing, tuple) and thing[0] == kind]

    def add(self, thing: Hashable) -> None:
        """Make an event possible; idempotent."""
        if thing not in self._place:
            self._place[thing] = len(self._things)
            self._things.append(thing)
            if thing not in self._pace:
                self._pace[thing] = PACES[-1] if self._slow(thing) else self._random.choice(PACES)

    def discard(self, thing: Hashable) -> None:
        """Make an event impossible; idempotent."""
        place = self._place.pop(thing, None)
        if place is not None:
            last = self._things.pop()
            if last != thing:
                self._things[place] = last
                self._place[last] = place

    def draw(self) -> Hashable:
        """A possible event. The set must not be empty."""
        drawn, things = self._random.random, self._things
        for _ in range(PATIENCE):
            thing = things[int(drawn() * len(things))]
            pace = self._pace[thing]
            if pace == 1.0 or drawn() < pace:
                break
        return thing


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
