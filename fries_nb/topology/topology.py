"""The placement and connection of a dataflow's workers: one immutable value for each epoch of the topology.

Every host derives its workers' wiring from this value. Adding or removing workers makes a new value, with the next
epoch. An added worker is *idle*: it has channels, gets markers and ends like any other, but no row is routed to it. The
operators on an operator's forward edges grow and shrink with it, since worker i of one sends to worker i of the next.

When the topology is *widened*, senders that rebalance route rows to idle workers as well. Of a keyed operator they
still own no bins, which are moved to them while rows flow (see ``controller.rescaling``). *Narrowing* is the reverse.

A channel's id includes the epoch in which it was made, which distinguishes it from the channel of an earlier worker
with the same index.

>>> from fries_nb.dataflow.graph import Operator, Partitioning
>>> edge = Edge("A", "B", Partitioning.HASH, ("k",))
>>> graph = Graph("pair", (Operator("A", workers=2), Operator("B", workers=2)), (edge,))
>>> topology = Topology.dealt(graph, hosts=2)
>>> [topology.host_of(worker) for worker in topology.workers]
[0, 1, 0, 1]
>>> grown = topology.grown("B", host=0)
>>> grown.epoch, [str(channel) for channel in grown.channels() if channel.epoch == 2]
(2, ['A[0]->B[2]', 'A[1]->B[2]'])
>>> grown.routed("B"), grown.shrunk("B").workers == topology.workers
(2, True)
>>> widened = grown.widened("B")
>>> widened.routed("B"), widened.table("B") == topology.table("B")
(3, True)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import product

from fries_nb.dataflow.graph import Edge, Graph, Partitioning
from fries_nb.errors import DataflowError
from fries_nb.messages import ChannelId, WorkerId
from fries_nb.topology.expansion import chains, workers_of
from fries_nb.topology.routing_table import RoutingTable

NO_TABLES: Mapping[str, RoutingTable] = {}
_ALIKE = {"get another worker": "get one", "do without a worker": "lose one"}


@dataclass(frozen=True)
class Topology:
    """The placement of all workers of a graph.

    Attributes:
        graph: the dataflow, with each operator's number of workers.
        placement: worker to the index of its host.
        chaining: whether operators on forward edges share a thread.
        epoch: number of the epoch, from 1.
        added: worker that was added while the run went on to the epoch in which it was.
        begun: operator to its number of workers in the first epoch, which determines for all epochs which forward edges
            are one to one and which operators are chained.
        idle: the workers to which no row is routed: of each operator the last ones.
        tables: keyed operator to its routing table, if its bins are not dealt evenly to its routed workers.
    """

    graph: Graph
    placement: Mapping[WorkerId, int]
    chaining: bool
    begun: Mapping[str, int]
    epoch: int = 1
    added: Mapping[WorkerId, int] = field(default_factory=dict)
    idle: frozenset[WorkerId] = frozenset()
    tables: Mapping[str, RoutingTable] = field(default_factory=dict)

    @classmethod
    def dealt(
        cls, graph: Graph, hosts: int, chaining: bool = True, tables: Mapping[str, RoutingTable] = NO_TABLES
    ) -> Topology:
        """Make the first epoch: worker i of each operator runs on host ``i % hosts``, so forward edges are local.

        Args:
            graph: the dataflow.
            hosts: number of hosts.
            chaining: whether operators on forward edges share a thread.
            tables: routing tables of keyed operators whose bins are not dealt evenly.
        """
        workers = (worker for name in graph.by_name for worker in workers_of(graph, name))
        begun = {operator.name: operator.workers for operator in graph.operators}
        placement = {worker: worker.index % hosts for worker in workers}
        return cls(graph, placement, chaining, begun, tables=tables)

    @property
    def workers(self) -> tuple[WorkerId, ...]:
        """All workers, operator by operator."""
        return tuple(worker for name in self.graph.by_name for worker in workers_of(self.graph, name))

    @cached_property
    def chains(self) -> tuple[tuple[str, ...], ...]:
        """The operators grouped into chains; see ``expansion.chains``."""
        return chains(_resized(self.graph, self.begun), self.chaining)

    def host_of(self, worker: WorkerId) -> int:
        """The host that runs the worker.

        Raises:
            DataflowError: there is no such worker.
        """
        host = self.placement.get(worker)
        if host is None:
            raise DataflowError(f"no worker {worker} in epoch {self.epoch} of the topology of {self.graph.name!r}")
        return host

    def routed(self, operator: str) -> int:
        """Number of an operator's workers to which rows are routed: the first ones, without idle workers."""
        return self.graph.operator(operator).workers - sum(worker.operator == operator for worker in self.idle)

    def table(self, operator: str) -> RoutingTable:
        """The routing table of a keyed operator."""
        return self.tables.get(operator) or RoutingTable.even(self.routed(operator))

    def with_tables(self, tables: Mapping[str, RoutingTable]) -> Topology:
        """The same topology with these routing tables."""
        return replace(self, tables=dict(tables))

    def channels_of(self, edge: Edge) -> Iterator[ChannelId]:
        """The channels of an edge, each with the epoch in which it was made."""
        senders, receivers = workers_of(self.graph, edge.source), workers_of(self.graph, edge.to)
        pairs = zip(senders, receivers, strict=True) if self.is_one_to_one(edge) else product(senders, receivers)
        for sender, receiver in pairs:
            yield self.channel(sender, receiver)

    def channel(self, sender: WorkerId, receiver: WorkerId) -> ChannelId:
        """The channel between two workers, with the epoch in which it was made."""
        return ChannelId(sender, receiver, max(self.added.get(sender, 1), self.added.get(receiver, 1)))

    def is_one_to_one(self, edge: Edge) -> bool:
        """Whether worker i of an edge's sender has one channel, to worker i of its receiver."""
        return edge.partitioning is Partitioning.FORWARD and self.begun[edge.source] == self.begun[edge.to]

    def channels(self) -> Iterator[ChannelId]:
        """All channels, edge by edge."""
        for edge in self.graph.edges:
            yield from self.channels_of(edge)

    def with_graph(self, graph: Graph) -> Topology:
        """The same topology for a copy of the graph that includes functions, on which chaining depends."""
        return replace(self, graph=graph)

    def grown(self, operator: str, host: int) -> Topology:
        """The next epoch, with one more idle worker of this operator and of those on its forward edges.

        Args:
            operator: name of the operator.
            host: index of the host that runs the new workers.

        Raises:
            DataflowError: one of the operators is a source, with splits already assigned, or receives broadcast rows.
        """
        together = self._resizable(operator, "get another worker")
        epoch, graph = self.epoch + 1, self._with_more(together, 1)
        newcomers = [workers_of(graph, name)[-1] for name in graph.by_name if name in together]
        placement = {**self.placement, **dict.fromkeys(newcomers, host)}
        added = {**self.added, **dict.fromkeys(newcomers, epoch)}
        idle = self.idle.union(newcomers)
        return replace(self, graph=graph, placement=placement, epoch=epoch, added=added, idle=idle)

    def shrunk(self, operator: str) -> Topology:
        """The next epoch, without the last worker of this operator and of those on its forward edges.

        Raises:
            DataflowError: the worker is not idle.
        """
        together = self._on_forward_edges(operator)
        leaving = {workers_of(self.graph, name)[-1] for name in together}
        if not leaving <= self.idle:
            raise DataflowError(f"{operator} has no idle worker to take away; rows are routed to each of them")
        return replace(
            self,
            graph=self._with_more(together, -1),
            placement={worker: host for worker, host in self.placement.items() if worker not in leaving},
            epoch=self.epoch + 1,
            added={worker: epoch for worker, epoch in self.added.items() if worker not in leaving},
            idle=self.idle - leaving,
        )

    def widened(self, operator: str) -> Topology:
        """The next epoch, in which rows are routed to the idle workers of this operator and of those on forward edges.

        Raises:
            DataflowError: none of them is idle.
        """
        together = self._on_forward_edges(operator)
        idle = frozenset(worker for worker in self.idle if worker.operator not in together)
        if idle == self.idle:
            raise DataflowError(f"{operator} has no idle worker; rows are routed to each of them")
        return replace(self, epoch=self.epoch + 1, idle=idle, tables=self._settled(together))

    def narrowed(self, operator: str) -> Topology:
        """The next epoch, in which the last routed worker of this operator and of those on forward edges is idle.

        Raises:
            DataflowError: a source is among them, a worker gets all rows, is the only one, or owns bins.
        """
        together = self._resizable(operator, "do without a worker")
        if self.routed(operator) == 1:
            raise DataflowError(f"{operator} cannot do without a worker: rows are routed to a single one")
        leaving = [WorkerId(name, self.routed(name) - 1) for name in self.graph.by_name if name in together]
        for worker in leaving:
            if self._is_keyed(worker.operator) and self.table(worker.operator).owns(worker.index):
                raise DataflowError(f"{worker} still owns bins; expected them to be moved to other workers first")
        return replace(self, epoch=self.epoch + 1, idle=self.idle.union(leaving), tables=self._settled(together))

    def _settled(self, operators: frozenset[str]) -> dict[str, RoutingTable]:
        """The tables, with those of these operators as they are now, whatever number of workers is routed to later."""
        return {**self.tables, **{name: self.table(name) for name in sorted(operators) if self._is_keyed(name)}}

    def _is_keyed(self, operator: str) -> bool:
        return any(edge.partitioning is Partitioning.HASH for edge in self.graph.in_edges(operator))

    def _resizable(self, operator: str, what: str) -> frozenset[str]:
        """The operator and those on its forward edges, whose number of workers may change together.

        Raises:
            DataflowError: one of the operators is a source, with splits already assigned, or receives broadcast rows.
        """
        together = self._on_forward_edges(operator)
        if sources := together & set(self.graph.sources):
            raise DataflowError(f"{operator} cannot {what}: source {min(sources)} would {_ALIKE[what]} with it")
        broadcast = [edge.to for edge in self.graph.edges if edge.partitioning is Partitioning.BROADCAST]
        if told := together.intersection(broadcast):
            raise DataflowError(f"{operator} cannot {what}: each worker of {min(told)} gets all rows")
        return together

    def _on_forward_edges(self, operator: str) -> frozenset[str]:
        """The operator, and all that are connected to it through forward edges between equal numbers of workers."""
        found, ahead = {self.graph.operator(operator).name}, [operator]
        while ahead:
            name = ahead.pop()
            for edge in (*self.graph.in_edges(name), *self.graph.out_edges(name)):
                others = {edge.source, edge.to} - found if self.is_one_to_one(edge) else set[str]()
                found |= others
                ahead += others
        return frozenset(found)

    def _with_more(self, operators: frozenset[str], more: int) -> Graph:
        return _resized(self.graph, {name: self.graph.operator(name).workers + more for name in operators})


def _resized(graph: Graph, workers: Mapping[str, int]) -> Graph:
    operators = (replace(one, workers=workers.get(one.name, one.workers)) for one in graph.operators)
    return Graph(graph.name, tuple(operators), graph.edges)
