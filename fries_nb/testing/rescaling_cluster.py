"""Runs that are rescaled: operators get workers and lose them, and bins of keyed operators move between them.

>>> from fries_nb.testing.drawn_flows import source_rows
>>> from fries_nb.testing.stamp_functions import Counter
>>> from fries_nb.messages import WorkerId
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
>>> cluster.widen("K"), cluster.until_settled()
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
from fries_nb.controller.rescaling import senders_of
from fries_nb.errors import DataflowError
from fries_nb.testing.growing import GrowingCluster
from fries_nb.topology.routing_table import RoutingTable

MOST_WORKERS = 4
"""Number of workers of an operator beyond which none is added."""


class RescalingCluster(GrowingCluster):
    """A cluster that is rescaled at random; the arguments are those of ``Cluster``.

    Attributes:
        moved: the ends of all rescales, in order.
        tables: keyed operator to its routing table, if its bins are not dealt evenly.
        often: probability at a step that a step of a rescale is requested, if none is in progress.
    """

    often = 0.1

    def __init__(self, *args: Any, **settings: Any) -> None:
        self.moved: list[said.BinsMoved] = []
        self.tables: Mapping[str, RoutingTable] = {}
        self._is_moving = False
        super().__init__(*args, **settings)

    @property
    def is_settled(self) -> bool:
        """Whether no request is open."""
        return self._asked_for is None and not self._is_moving

    def until_settled(self) -> None:
        """Take steps until no request is open, or the run has ended."""
        self.until(lambda: self.is_settled)

    def widen(self, operator: str) -> None:
        """Request that rows are routed to an operator's idle workers.

        Raises:
            DataflowError: it has none.
        """
        self._ask(self.hosts.topology.widened(operator))

    def narrow(self, operator: str) -> None:
        """Request that no rows are routed to an operator's last worker.

        Raises:
            DataflowError: it owns bins, or is the only one.
        """
        self._ask(self.hosts.topology.with_tables(self.tables).narrowed(operator))

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
        return super()._may_ask() and not self._is_moving

    def _want(self, operator: str) -> None:
        """Request a random step of a rescale of this operator, or of any keyed one."""
        chance, keyed = self.random, [one.name for one in self.graph.operators if senders_of(self.graph, one.name)]
        steps: list[Callable[[], None]] = [
            lambda: self.widen(operator), lambda: self.narrow(operator), lambda: self.shrink(operator),
        ]  # fmt: skip
        if self.graph.operator(operator).workers < MOST_WORKERS:
            steps += [lambda: self.grow(operator, chance.randrange(self._plan.hosts))] * 2
        if keyed:
            steps += [lambda: self._move_some(chance.choice(keyed))] * 2
        try:
            chance.choice(steps)()
        except DataflowError as error:
            self.refused.append(str(error))

    def _move_some(self, operator: str) -> None:
        """Request to deal an operator's bins evenly to its first workers, or some bins to random ones."""
        chance, routed = self.random, self.hosts.topology.routed(operator)
        target = RoutingTable.even(chance.randint(1, routed))
        if chance.random() < 0.4:
            bins = chance.sample(range(len(target.owners)), 400)
            target = target.moved({bin_: (0, chance.randrange(routed)) for bin_ in bins})
        self.move({operator: target}, chance.choice((0, 200, 350)))

    def _carry_out(self, instruction: said.Instruction) -> Iterable[said.Event]:
        if isinstance(instruction, said.BinsMoved):
            self.moved.append(instruction)
            self._is_moving, self.tables = False, instruction.tables
        elif isinstance(instruction, said.TopologyChanged):
            self.tables = instruction.topology.tables
        return super()._carry_out(instruction)

    def kill_driver(self) -> None:
        """Kill the driver with all hosts; the run is resumed without what was requested."""
        self._is_moving, self._asked_for, self.tables = False, None, {}
        super().kill_driver()
