"""The settings of a seeded cluster, which survive its hosts and its driver."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import cloudpickle

from fries_nb.dataflow.endpoints import Sink
from fries_nb.dataflow.graph import Graph
from fries_nb.dataflow.traits import Holds
from fries_nb.host.host_workers import Assembly
from fries_nb.progress.progress_graph import ProgressGraph
from fries_nb.protocol.checkpoints import Restoration, Snapshot
from fries_nb.protocol.messages import WorkerId
from fries_nb.protocol.progress_locations import progress_of
from fries_nb.protocol.topology import Topology
from fries_nb.simulation.faults import Fate
from fries_nb.simulation.readers import Rows, plans_of
from fries_nb.simulation.store import Store
from fries_nb.worker.snapshot import Redistribution


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

    @cached_property
    def progress(self) -> ProgressGraph | None:
        """How workers learn what can still arrive."""
        return progress_of(self.graph)

    def reshaped(self) -> Deployment:
        """The settings with which a dead driver's run is resumed."""
        return replace(self, graph=self.fate.reshaped(self.graph), chaining=self.chaining ^ self.fate.rechains())

    def splits(self) -> dict[str, list[int]]:
        """Source to the numbers of its splits, in the order in which they are dealt to workers."""
        plans = plans_of(self.graph, self.inputs, self.store.cut_by(self.graph))
        return {name: [split.number for split in plan.splits] for name, plan in plans.items()}

    def assembly(self, topology: Topology, restoration: Restoration, redistribution: Redistribution) -> Assembly:
        """The assembly of an incarnation's workers, with the snapshots from which they are restored."""
        given = {one.name: one.function for one in self.graph.operators if one.traits.holds is not Holds.ENDPOINT}
        return Assembly(
            restoration=restoration,
            snapshots={one: self._snapshot(one, restoration, redistribution) for one in topology.workers},
            payloads={name: cloudpickle.dumps(function) for name, function in given.items() if function is not None},
            letters=[one.name for one in self.graph.operators if isinstance(one.on_error, Sink)],
            window=self.window,
            clock=self.clock,
            audit=self.audit,
            progress=self.progress,
        )

    def _snapshot(
        self, worker: WorkerId, restoration: Restoration, redistribution: Redistribution
    ) -> Snapshot | None:
        record, needed = restoration.checkpoint, redistribution.read_from(worker)
        if record is None:
            return None
        held = {each: self.store.snapshot(record.snapshots[str(each)], each) for each in needed}
        return redistribution.snapshot(worker, held)
