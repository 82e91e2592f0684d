"""Runs that are rescaled: workers come and go, and bins of keyed operators and splits of sources move between them.

>>> from fries_nb.simulation.drawn_flows import source_rows
>>> from fries_nb.simulation.stamp_functions import Counter
>>> from fries_nb.protocol.messages import WorkerId
>>> import fries_nb as fn
>>> flow = fn.Dataflow("count")
>>> numbers = flow.source("S", fn.rate(None, count=1), workers=1)
>>> keyed = numbers.map("K", Counter("K"), key="customer", workers=1)
>>> keyed.sink("out", fn.memory(), workers=1)
Stream('out')
>>> cluster = RescalingCluster(flow.graph(), {"S": source_rows("S", 60)}, seed=3)
>>> cluster.often = 0.0
>>> cluster.hold([WorkerId("S", 0)])
>>> cluster.grow("K", 0), cluster.until_settled()
(None, None)
>>> cluster.widen(), cluster.until_settled()
(None, None)
>>> cluster.move({"K": RoutingTable.even(2)}, at_once=100), cluster.until_settled()
(None, None)
>>> cluster.moved[0].reason, [len(one.state) > 0 for one in cluster.instances("K")]
('', [True, True])
>>> cluster.release(), cluster.run(), len(cluster.rows("out"))
(None, None, 60)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from fries_nb.controller import events as said
from fries_nb.controller.moves import senders_of
from fries_nb.errors import DataflowError
from fries_nb.protocol.partitioning import RoutingTable
from fries_nb.protocol.progress_locations import is_tracked
from fries_nb.simulation.growing import GrowingCluster

MOST_WORKERS = 4
"""Number of workers of an operator beyond which none is added."""


class RescalingCluster(GrowingCluster):
    """A cluster that is rescaled at random; the arguments are those of ``Cluster``.

    Attributes:
        moved: the ends of all moves of bins, in order.
        dealt: the ends of all moves of splits, in order.
        tables: keyed operator to its routing table, if its bins are not dealt evenly.
        often: probability at a step that a step of a rescale is requested, if none is in progress.
    """

    often = 0.1

    def __init__(self, *args: Any, **settings: Any) -> None:
        self.moved: list[said.BinsMoved] = []
        self.tables: Mapping[str, RoutingTable] = {}
        self.dealt: list[said.SplitsMoved] = []
        self._is_moving = self._is_dealing = False
        super().__init__(*args, **settings)

    @property
    def is_settled(self) -> bool:
        """Whether no request is open."""
        return self._asked_for is None and not (self._is_moving or self._is_dealing)

    def until_settled(self) -> None:
        """Take steps until no request is open, or the run has ended."""
        self.until(lambda: self.is_settled)

    def narrow(self, operator: str) -> None:
        """Request that no rows are routed to an operator's last worker.

        Raises:
            DataflowError: it owns bins, has splits, or is the only one.
        """
        topology = self.hosts.topology.with_tables(self.tables)
        leaving = topology.last_workers(operator)
        narrowed = topology.narrowed(leaving)
        for worker in sorted(leaving):
            if worker.operator in self.graph.sources and worker.index < self.reading(worker.operator):
                raise DataflowError(f"{worker} has splits; expected them to be moved to other workers first")
        self._ask(narrowed)

    def reading(self, source: str) -> int:
        """The number of a source's workers that have splits."""
        return self.controller._workers.reading(source)

    def deal(self, source: str, workers: int) -> None:
        """Request that the splits of a source are dealt to so many of its workers.

        Raises:
            DataflowError: rows are not routed to so many workers, or the dataflow does not allow it.
        """
        self._is_dealing = True
        try:
            self._say(said.SplitsRequested({source: workers}))
        except DataflowError:
            self._is_dealing = False
            raise

    def move(self, targets: Mapping[str, RoutingTable], at_once: int = 0) -> None:
        """Request that bins move until operators are routed by these tables.

        Raises:
            DataflowError: a table does not fit its operator.
        """
        self._is_moving = True
        try:
            self._say(said.BinsRequested(targets, at_once))
        except DataflowError:
            self._is_moving = False
            raise

    def _may_ask(self) -> bool:
        return super()._may_ask() and not (self._is_moving or self._is_dealing)

    def _want(self, operator: str) -> None:
        """Request a random step of a rescale of this operator, or of any keyed one, or of a source."""
        chance, keyed = self.random, [one.name for one in self.graph.operators if senders_of(self.graph, one.name)]
        steps: list[Callable[[], None]] = [
            self.widen, lambda: self._leave(operator), lambda: self.shrink(operator),
        ]  # fmt: skip
        if self.graph.operator(operator).workers < MOST_WORKERS:
            steps += [lambda: self.grow(operator, chance.randrange(self._plan.hosts))] * 2
        if keyed:
            steps += [lambda: self._move_some(chance.choice(keyed))] * 2
        if not is_tracked(self.graph):
            steps += [lambda: self._deal_some(chance.choice(self.graph.sources))] * 2
        try:
            chance.choice(steps)()
        except DataflowError as error:
            self.refused.append(str(error))

    def _leave(self, operator: str) -> None:
        """Request that an operator's last worker gets no rows, after its splits have moved if it is a source's."""
        routed = self.hosts.topology.routed(operator)
        if operator in self.graph.sources and 1 < routed == self.reading(operator):
            self.deal(operator, routed - 1)
        else:
            self.narrow(operator)

    def _move_some(self, operator: str) -> None:
        """Request to deal an operator's bins evenly to its first workers, or some bins to random ones."""
        chance, routed = self.random, self.hosts.topology.routed(operator)
        target = RoutingTable.even(chance.randint(1, routed))
        if chance.random() < 0.4:
            bins = chance.sample(range(len(target.owners)), 400)
            target = target.moved({bin_: (0, chance.randrange(routed)) for bin_ in bins})
        self.move({operator: target}, chance.choice((0, 200, 350)))

    def _deal_some(self, source: str) -> None:
        """Request to deal the splits of a source to a random number of workers."""
        self.deal(source, self.random.randint(1, self.hosts.topology.routed(source)))

    def _carry_out(self, instruction: said.Instruction) -> Iterable[said.Event]:
        if isinstance(instruction, said.BinsMoved):
            self.moved.append(instruction)
            self._is_moving, self.tables = False, instruction.tables
        elif isinstance(instruction, said.SplitsMoved):
            self.dealt.append(instruction)
            self._is_dealing = False
        elif isinstance(instruction, said.TopologyChanged):
            self.tables = instruction.topology.tables
        return super()._carry_out(instruction)

    def kill_driver(self) -> None:
        """Kill the driver with all hosts; the run is resumed without what was requested."""
        self._is_moving = self._is_dealing = False
        self._asked_for, self.tables = None, {}
        super().kill_driver()
