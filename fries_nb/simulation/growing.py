"""Runs that change their topology: workers come, get rows, and leave, or a run is resumed with other numbers."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from msgspec import structs

from fries_nb.controller import events as said
from fries_nb.errors import DataflowError
from fries_nb.protocol.messages import WorkerId
from fries_nb.protocol.topology import Topology, workers_of
from fries_nb.protocol.trace import Record, TraceFlow
from fries_nb.simulation.cluster import Cluster
from fries_nb.simulation.faults import Faults
from fries_nb.simulation.scenarios import Scenario, draw_focused
from fries_nb.simulation.step_requests import TopologyRequested


def draw_reshaped(seed: int) -> Scenario:
    """Draw a scenario with keyed state, frequent checkpoints, and kills of the driver; runs resume rescaled."""
    chance = random.Random(f"reshaped {seed}")
    plain = draw_focused(seed, chained=seed % 2 == 0)
    faults = Faults(chance.choice((0.003, 0.01)), driver_kills=2, reshapes=True)
    settings = plain.cluster | {"faults": faults, "commit_interval_ns": chance.choice((500_000, 1_000_000))}
    return replace(plain, cluster=settings)


class GrowingCluster(Cluster):
    """A cluster in which workers are added, get rows, get no more, and are removed; see ``Cluster`` for the arguments.

    Attributes:
        adopted: the topologies that all workers have adopted, in order.
        refused: the reasons of all requests that were refused, as when a worker had ended.
        often: probability at a step that a change of topology is requested, if none is in progress.
    """

    often = 0.05

    def __init__(self, *args: Any, **settings: Any) -> None:
        self.adopted: list[Topology] = []
        self.refused: list[str] = []
        self._asked_for: Topology | None = None
        super().__init__(*args, **settings)

    def step(self) -> bool:
        """Carry out one event; sometimes request another topology first."""
        if self._may_ask() and self.random.random() < self.often:
            added = [worker.operator for worker in self.hosts.topology.added]
            everyone = [operator.name for operator in self.graph.operators]
            self._want(self.random.choice(added if added and self.random.random() < 0.6 else everyone))
        return super().step()

    def records(self) -> list[Record]:
        """The trace so far, with the workers of now, and earlier ones that have left records."""
        flow, *records = super().records()
        assert isinstance(flow, TraceFlow), "the first record"
        workers = {WorkerId(one.operator, one.worker) for one in records if not isinstance(one, TraceFlow)}
        workers.update(one for name in self.graph.by_name for one in workers_of(self.graph, name))
        traced = {name: sum(worker.operator == name for worker in workers) for name in flow.workers}
        return [structs.replace(flow, workers=traced), *records]

    def _may_ask(self) -> bool:
        return self._asked_for is None and self.hosts.started

    def grow(self, operator: str, host: int) -> None:
        """Request an idle worker of this operator on this host.

        Raises:
            DataflowError: the operator cannot get another worker.
        """
        self._ask(self.hosts.topology.grown(operator, host))

    def shrink(self, operator: str) -> None:
        """Request the removal of an operator's idle worker.

        Raises:
            DataflowError: it has none.
        """
        self._ask(self.hosts.topology.shrunk(operator))

    def widen(self) -> None:
        """Request that rows are routed to idle workers; those of keyed operators own no bins yet."""
        self._ask(self.hosts.topology.widened())

    def narrow(self, operator: str) -> None:
        """Request that no more rows are routed to an operator's last worker.

        Raises:
            DataflowError: it is the only one, or owns bins.
        """
        topology = self.hosts.topology
        self._ask(topology.narrowed(topology.last_workers(operator)))

    def _want(self, operator: str) -> None:
        topology = self.hosts.topology
        try:
            if any(worker.operator == operator for worker in topology.idle):
                self.widen() if self.random.random() < 0.5 else self.shrink(operator)
            elif any(worker.operator == operator for worker in topology.added) and self.random.random() < 0.5:
                self.narrow(operator)
            else:
                self.grow(operator, self.random.randrange(self._plan.hosts))
        except DataflowError as error:  # a source, or a worker that was added together with those of other operators
            self.refused.append(str(error))

    def _ask(self, topology: Topology) -> None:
        self._asked_for = topology
        self._say(TopologyRequested(topology))

    def _carry_out(self, instruction: said.Instruction) -> Iterable[said.Event]:
        match instruction:
            case said.ChangeTopology():
                self.hosts.extend(instruction.topology, instruction.issued)
            case said.TopologyChanged():
                self.adopted.append(instruction.topology)
                self._asked_for, self.graph = None, instruction.topology.graph
                self._plan = replace(self._plan, graph=self.graph)
                self.hosts.settle(instruction.topology)
            case said.TopologyRefused():
                self.refused.append(instruction.reason)
                self._asked_for = None
            case said.Recover():
                self._asked_for = None
        return super()._carry_out(instruction)
