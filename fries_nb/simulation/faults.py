"""Fault injection in a seeded cluster: kills of hosts and drivers, full disks, a slow host.

>>> fate = Fate(Faults(hazard=1.0, host_kills=1), 2, random.Random(3))
>>> fate.next_kill(busy=False), fate.next_kill(busy=False)
((1,), None)
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

from fries_nb.dataflow.graph import Graph, Operator, Partitioning
from fries_nb.operators.state import keeps_state

BUSY = 4
"""Factor by which a kill is more probable while a marker is in flight."""

LAST_WORDS = 8
"""Maximum number of instructions that a dying driver carries out."""


class DriverKilled(Exception):
    """Raised to kill the driver; its next action is not carried out."""


@dataclass(frozen=True)
class Faults:
    """The faults that may occur in a run.

    Attributes:
        hazard: probability of a kill at each step.
        host_kills: maximum number of kills of hosts; each kills one or several.
        driver_kills: maximum number of kills of the driver; the run is then resumed from the store.
        full_disk: probability that a snapshot or a record cannot be written.
        slow: whether one of the hosts is slow.
        reshapes: whether the run is resumed with other chains and other numbers of workers.
    """

    hazard: float = 0.0
    host_kills: int = 0
    driver_kills: int = 0
    full_disk: float = 0.0
    slow: bool = False
    reshapes: bool = False


class Fate:
    """Draws faults.

    Attributes:
        hosts: the hosts that may be killed.
        slow: the slow host, ``None`` if there is none.
    """

    def __init__(self, faults: Faults, hosts: int, chance: random.Random) -> None:
        self._faults = faults
        self.hosts = list(range(hosts))
        self._random = chance
        self._kills = ["host"] * faults.host_kills + ["driver"] * faults.driver_kills
        self.slow = chance.randrange(hosts) if faults.slow else None

    def next_kill(self, busy: bool) -> tuple[int, ...] | None:
        """The hosts to kill now; empty to kill the driver; ``None`` for no kill."""
        if not self._kills or self._random.random() >= self._faults.hazard * (BUSY if busy else 1):
            return None
        if self._kills.pop(self._random.randrange(len(self._kills))) == "driver":
            return ()
        dying = 1 if self._random.random() < 0.7 else self._random.randint(1, len(self.hosts))
        return tuple(self._random.sample(self.hosts, dying))

    def rechains(self) -> bool:
        """Whether chaining is switched on or off when a dead driver's run is resumed."""
        return self._faults.reshapes and self._random.random() < 0.5

    def reshaped(self, graph: Graph) -> Graph:
        """The graph with which a dead driver's run is resumed.

        Operators keep their number of workers if their state is not divided by key, or their input is broadcast.
        """
        if not self._faults.reshapes:
            return graph
        operators = (self._reshaped(one) if _may_vary(graph, one) else one for one in graph.operators)
        return Graph(graph.name, tuple(operators), graph.edges)

    def _reshaped(self, operator: Operator) -> Operator:
        return replace(operator, workers=self._random.randint(1, 3)) if self._random.random() < 0.7 else operator

    def last_words(self) -> int:
        """Number of instructions that a dying driver still carries out."""
        return self._random.randint(0, LAST_WORDS)

    def disk_is_full(self) -> bool:
        """Whether the current write fails."""
        return bool(self._faults.full_disk) and self._random.random() < self._faults.full_disk

    def prefix(self, count: int) -> int:
        """The number of a lane's messages that a killed host has sent, of ``count``."""
        return self._random.randint(0, count)


def _may_vary(graph: Graph, operator: Operator) -> bool:
    is_undivided = keeps_state(operator, operator.function) and not operator.key
    gets_all = any(edge.partitioning is Partitioning.BROADCAST for edge in graph.in_edges(operator.name))
    return not is_undivided and not gets_all
