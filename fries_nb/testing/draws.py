"""What may happen next, drawn from a seed in constant time.

Each thing has a pace of its own, drawn when it is first seen: most go at full pace, some are slow, a few very slow.
A uniform draw would hardly ever let one channel or one worker fall far behind the others, and it is there that the
order of events gets interesting.

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

PACES = (1.0, 1.0, 1.0, 0.2, 0.02)
PATIENCE = 8
"""Draws after which even something slow is taken: nothing fast may be left."""


class Draws:
    """A set that something can be drawn from; what is drawn stays in it. ``slow`` tells what goes at the last pace."""

    def __init__(self, source: random.Random, slow: Callable[[Hashable], bool] = lambda thing: False) -> None:
        self._random = source
        self._slow = slow
        self._things: list[Hashable] = []
        self._place: dict[Hashable, int] = {}
        self._pace: dict[Hashable, float] = {}

    def __len__(self) -> int:
        return len(self._things)

    def add(self, thing: Hashable) -> None:
        """It may happen from now on; idempotent."""
        if thing not in self._place:
            self._place[thing] = len(self._things)
            self._things.append(thing)
            if thing not in self._pace:
                self._pace[thing] = PACES[-1] if self._slow(thing) else self._random.choice(PACES)

    def discard(self, thing: Hashable) -> None:
        """It may not happen any more; idempotent."""
        place = self._place.pop(thing, None)
        if place is not None:
            last = self._things.pop()
            if last != thing:
                self._things[place] = last
                self._place[last] = place

    def draw(self) -> Hashable:
        """One of those that may happen. The set is not empty."""
        for _ in range(PATIENCE):
            thing = self._things[int(self._random.random() * len(self._things))]
            pace = self._pace[thing]
            if pace == 1.0 or self._random.random() < pace:
                break
        return thing
