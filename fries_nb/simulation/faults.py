"""Fault injection in a seeded cluster: kills of hosts and drivers, full disks, a slow host.

>>> fate = Fate(Faults(hazard=1.0, host_kills=1), 2, random.Random(3))
>>> fate.next_kill(busy=False), fate.next_kill(busy=False)
((1,), None)

The settings of a seeded cluster, which survive its hosts and its driver.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import cloudpickle

from fries_nb.dataflow.endpoints import Sink
from fries_nb.dataflow.graph import Graph, Operator, Partitioning
from fries_nb.dataflow.traits import Holds
from fries_nb.host.host_workers import Assembly
from fries_nb.host.region_spec import Options, RegionSpec, without_functions
from fries_nb.operators.state import keeps_state
from fries_nb.progress.progress_graph import ProgressGraph
from fries_nb.protocol.checkpoints import Restoration
from fries_nb.protocol.messages import WorkerId
from fries_nb.protocol.progress_locations import progress_of
from fries_nb.simulation.readers import Rows, plans_of
from fries_nb.simulation.store import Store
from fries_nb.storage.restored_states import RestoredStates, read_states
from fries_nb.storage.snapshot_files import SnapshotStore
from fries_nb.transport.sockets import HostKeys
from fries_nb.worker.snapshot import Redistribution

BUSY = 4
"""Factor by which a kill is more probable while a marker is in flight."""

LAST_WORDS = 8
"""Maximum number of instructions that a dying driver carries out."""


NO_KEYS = HostKeys(b"", b"", b"")


class DriverKilled(Exception):
    """Raised to kill the driver; its next action is not carried out."""


@dataclass(frozen=True)
class Faults:
    """The faults that may occur in a run."""

    hazard: float = 0.0  # probability of a kill at each step
    host_kills: int = 0  # maximum number of kills of hosts; each kills one or several
    driver_kills: int = 0  # maximum number of kills of the driver; the run is then resumed from the store
    full_disk: float = 0.0  # probability that a snapshot or a record cannot be written
    slow: bool = False  # whether one of the hosts is slow
    reshapes: bool = False  # whether the run is resumed with other chains and other numbers of workers
    haste: float = 0.0  # probability that hosts that leave die before they have said what is left
    bad_sinks: float = 0.0  # probability that a sink cannot commit


class Fate:
    """Draws faults."""

    def __init__(self, faults: Faults, hosts: int, chance: random.Random) -> None:
        self._faults = faults
        self.hosts = list(range(hosts))  # the hosts that may be killed
        self._random = chance
        self.kills = ["host"] * faults.host_kills + ["driver"] * faults.driver_kills  # those that are left
        self.slow = chance.randrange(hosts) if faults.slow else None  # the slow host, ``None`` if there is none

    def next_kill(self, busy: bool) -> tuple[int, ...] | None:
        """The hosts to kill now; empty to kill the driver; ``None`` for no kill."""
        if not self.kills or self._random.random() >= self._faults.hazard * (BUSY if busy else 1):
            return None
        if self.kills.pop(self._random.randrange(len(self.kills))) == "driver":
            return ()
        dying = 1 if self._random.random() < 0.7 else self._random.randint(1, len(self.hosts))
        return tuple(self._random.sample(self.hosts, dying))

    def rechains(self) -> bool:
        """Whether chaining is switched on or off when a dead driver's run is resumed."""
        return self._faults.reshapes and self._random.random() < 0.5

    def reshaped(self, graph: Graph) -> Graph:
        """The graph with which a dead driver's run is resumed."""
        # Operators keep their number of workers if their state is not divided by key, or their input is broadcast.
        if not self._faults.reshapes:
            return graph
        operators = (
            self._reshaped(operator) if _may_vary(graph, operator) else operator for operator in graph.operators
        )
        return Graph(graph.name, tuple(operators), graph.edges)

    def _reshaped(self, operator: Operator) -> Operator:
        return replace(operator, workers=self._random.randint(1, 3)) if self._random.random() < 0.7 else operator

    def last_words(self) -> int:
        """Number of instructions that a dying driver still carries out."""
        return self._random.randint(0, LAST_WORDS)

    def disk_is_full(self) -> bool:
        """Whether the current write fails."""
        return bool(self._faults.full_disk) and self._random.random() < self._faults.full_disk

    def sink_fails(self) -> bool:
        """Whether the current commit of a sink fails."""
        return bool(self._faults.bad_sinks) and self._random.random() < self._faults.bad_sinks

    def is_hasty(self) -> bool:
        """Whether hosts that leave now die before they have said what is left."""
        return bool(self._faults.haste) and self._random.random() < self._faults.haste

    def prefix(self, count: int) -> int:
        """The number of a lane's messages that a killed host has sent, of ``count``."""
        return self._random.randint(0, count)


def _may_vary(graph: Graph, operator: Operator) -> bool:
    is_undivided = keeps_state(operator, operator.function) and not operator.key
    gets_all = any(edge.partitioning is Partitioning.BROADCAST for edge in graph.in_edges(operator.name))
    return not is_undivided and not gets_all


@dataclass(frozen=True)
class Deployment:
    """The settings that all incarnations share; see ``Cluster``."""

    graph: Graph
    inputs: Mapping[str, Rows]
    hosts: int
    window: int
    chaining: bool
    audit: bool
    clock: Callable[[], int]
    due_ns: int
    random: random.Random
    store: Store
    fate: Fate
    begun: Mapping[str, int] = field(default_factory=dict)  # operator to what it counts as begun with; see ``Topology``
    identities: bool = True  # whether rows carry identities

    @cached_property
    def progress(self) -> ProgressGraph | None:
        """How workers learn what can still arrive."""
        return progress_of(self.graph)

    def reshaped(self) -> Deployment:
        """The settings with which a dead driver's run is resumed."""
        graph = self.fate.reshaped(self.graph)  # drawn first, as seeds that were recorded expect
        return replace(self, graph=graph, chaining=self.chaining ^ self.fate.rechains(), begun={})

    def region(self, incarnation: int, restoration: Restoration) -> RegionSpec:
        """What a driver knows of its region; hosts are made by ``assembly``."""
        options = Options(self.hosts, budget=1, audit=self.audit, chaining=self.chaining, commit_interval_s=None,
                          silence_s=1.0, port=0, identities=self.identities)  # fmt: skip
        return RegionSpec(
            "r", incarnation, without_functions(self.graph), {}, {}, self.store.sinks, "", NO_KEYS, "", options,
            SnapshotStore("", "r"), restoration,
        )  # fmt: skip

    def splits(self) -> dict[str, list[int]]:
        """Source to the numbers of its splits, in the order in which they are dealt to workers."""
        plans = plans_of(self.graph, self.inputs, self.store.cut_by(self.graph))
        return {name: [split.number for split in plan.splits] for name, plan in plans.items()}

    def assembly(self, restoration: Restoration, states: RestoredStates) -> Assembly:
        """The assembly of an incarnation's workers, with the states with which they begin."""
        given = {one.name: one.function for one in self.graph.operators if one.traits.holds is not Holds.ENDPOINT}
        return Assembly(
            restoration=restoration,
            snapshots=states.snapshots,
            unread=states.unread,
            payloads={name: cloudpickle.dumps(function) for name, function in given.items() if function is not None},
            letters=[operator.name for operator in self.graph.operators if isinstance(operator.on_error, Sink)],
            window=self.window,
            clock=self.clock,
            audit=self.audit,
            identities=self.identities,
            progress=self.progress,
        )

    def restored(self, workers: Iterable[WorkerId], redistribution: Redistribution) -> RestoredStates:
        """The states with which workers begin."""
        return read_states(self.store, redistribution, [*workers])
