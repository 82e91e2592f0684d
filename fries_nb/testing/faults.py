"""What goes wrong in a seeded cluster, and when: hosts and drivers die, disks are full, one host is slow.

>>> fate = Fate(Faults(hazard=1.0, host_kills=1), 2, random.Random(3))
>>> fate.next_kill(busy=False), fate.next_kill(busy=False)
((1,), None)
"""

from __future__ import annotations

import random
from dataclasses import dataclass

BUSY = 4
"""So many times likelier is a kill while a marker is on its way."""

LAST_WORDS = 8
"""At most so many instructions are carried out by a driver that is dying."""


class DriverKilled(Exception):
    """The driver dies here; what it was about to do is not done."""


@dataclass(frozen=True)
class Faults:
    """What may go wrong in a run.

    Attributes:
        hazard: how likely a kill is at a step.
        host_kills: at most so many times hosts are killed: one, or several at a time.
        driver_kills: at most so many times the driver is, and the run resumed from the store.
        full_disk: how likely it is that a snapshot or a record cannot be written.
        slow: whether one of the hosts is slow.
    """

    hazard: float = 0.0
    host_kills: int = 0
    driver_kills: int = 0
    full_disk: float = 0.0
    slow: bool = False


class Fate:
    """Draws what goes wrong.

    Attributes:
        slow: the slow host, ``None`` if there is none.
    """

    def __init__(self, faults: Faults, hosts: int, chance: random.Random) -> None:
        self._faults = faults
        self._hosts = hosts
        self._random = chance
        self._kills = ["host"] * faults.host_kills + ["driver"] * faults.driver_kills
        self.slow = chance.randrange(hosts) if faults.slow else None

    def next_kill(self, busy: bool) -> tuple[int, ...] | None:
        """The hosts that die now; no host: the driver does; ``None``: nobody."""
        if not self._kills or self._random.random() >= self._faults.hazard * (BUSY if busy else 1):
            return None
        if self._kills.pop(self._random.randrange(len(self._kills))) == "driver":
            return ()
        dying = 1 if self._random.random() < 0.7 else self._random.randint(1, self._hosts)
        return tuple(self._random.sample(range(self._hosts), dying))

    def last_words(self) -> int:
        """How many instructions a dying driver still carries out."""
        return self._random.randint(0, LAST_WORDS)

    def disk_is_full(self) -> bool:
        """Whether what is being written cannot be."""
        return bool(self._faults.full_disk) and self._random.random() < self._faults.full_disk

    def prefix(self, count: int) -> int:
        """How much of a lane leaves a host that dies."""
        return self._random.randint(0, count)
