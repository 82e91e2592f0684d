"""The set of possible events, from which the next one is drawn in constant time, by a seed.

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
from collections.abc import Callable, Hashable
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
        for _ in range(PATIENCE):
            thing = self._things[int(self._random.random() * len(self._things))]
            pace = self._pace[thing]
            if pace == 1.0 or self._random.random() < pace:
                break
        return thing
