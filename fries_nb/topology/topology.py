"""The placement and connection of a dataflow's workers: one immutable value for each epoch of the topology.

Every host derives its workers' wiring from this value. Adding or removing workers makes a new value, with the next
epoch. An added worker is *idle*: it has channels, gets markers and ends like any other, but no row is routed to it. The
operators on an operator's forward edges grow and shrink with it, since worker i of one sends to worker i of the next.

When the topology is *widened*, senders that rebalance route rows to idle workers as well. Of a keyed operator they
still own no bins, which are moved to them while rows flow (see ``controller.bin_moves``); idle workers of a source have
no splits until these are moved (see ``controller.split_moves``). *Narrowing* is the reverse.

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
>>> widened = grown.widened()
>>> widened.routed("B"), widened.table("B") == topology.table("B")
(3, True)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from itertools import product

from fries_nb.dataflow.graph import Edge, Graph, Partitioning
from fries_nb.errors import DataflowError
from fries_nb.messages import ChannelId, WorkerId
from fries_nb.topology.expansion import chains, workers_of
from fries_nb.topology.routing_table import RoutingTable

NO_TABLES: Mapping[str, RoutingTable] = {}


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
        """Make the first epoch: worker i of n runs on host ``i * hosts // n``, so forward edges are local.

        The last host has the last workers of each operator, and can leave with them.

        Args:
            graph: the dataflow.
            hosts: number of hosts.
            chaining: whether operators on forward edges share a thread.
            tables: routing tables of keyed operators whose bins are not dealt evenly.
        """
        begun = {operator.name: operator.workers for operator in graph.operators}
        workers = (worker for name in graph.by_name for worker in workers_of(graph, name))
        placement = {worker: worker.index * hosts // begun[worker.operator] for worker in workers}
        return cls(graph, placement, chaining, begun, tables=tables)

    @property
    def workers(self) -> tuple[WorkerId, ...]:
        """All workers, operator by operator."""
        return tuple(worker for name in self.graph.by_name for worker in workers_of(self.graph, name))

    @cached_property
    def chains(self) -> tuple[tuple[str, ...], ...]:
        """The operators grouped into chains; see ``expansion.chains``."""
        return chains(_resized(self.graph, self.begun), self.chaining)

    def __getstate__(self) -> dict[str, object]:
        """The fields alone: what is derived from them may be derived by another thread meanwhile."""
        return {one.name: getattr(self, one.name) for one in fields(self)}

    @cached_property
    def hosts_of_workers(self) -> Mapping[str, tuple[int, ...]]:
        """Operator to the host of each of its workers, in order of their indices."""
        return {
            name: tuple(self.host_of(one) for one in workers_of(self.graph, name)) for name in self.graph.by_name
        }

    @cached_property
    def routed_counts(self) -> Mapping[str, int]:
        """Operator to the number of its workers to which rows are routed; see ``routed``."""
        return {name: self.routed(name) for name in self.graph.by_name}

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

    def is_former(self, channel: ChannelId) -> bool:
        """Whether it is the channel of an earlier worker with the index of a present one."""
        return channel.epoch < max(self.added.get(one, 1) for one in (channel.sender, channel.receiver))

    def with_graph(self, graph: Graph) -> Topology:
        """The same topology for a copy of the graph that includes functions, on which chaining depends."""
        return replace(self, graph=graph)

    def grown(self, operator: str, host: int) -> Topology:
        """The next epoch, with one more idle worker of this operator and of those on its forward edges.

        Args:
            operator: name of the operator.
            host: index of the host that runs the new workers.

        Raises:
            DataflowError: one of the operators receives broadcast rows.
        """
        return self._with_idle({host: dict.fromkeys(self._on_forward_edges(operator), 1)})

    def joined(self, hosts: Iterable[int], shares: Mapping[str, int]) -> Topology:
        """The next epoch, with idle workers on hosts that join.

        Args:
            hosts: indices of these hosts.
            shares: operator to the number of its workers on each of them; equal for operators on forward edges.

        Raises:
            DataflowError: one of the operators cannot get another worker (see ``grown``).
        """
        return self._with_idle(dict.fromkeys(hosts, shares))

    def widened(self) -> Topology:
        """The next epoch, in which rows are routed to all workers; idle ones of keyed operators still own no bins."""
        groups = {worker.operator for worker in self.idle}
        return replace(self, epoch=self.epoch + 1, idle=frozenset(), tables=self._settled(groups))

    def last_workers(self, operator: str) -> frozenset[WorkerId]:
        """The last worker of this operator, and of those on its forward edges."""
        return frozenset(workers_of(self.graph, name)[-1] for name in self._on_forward_edges(operator))

    def workers_on(self, hosts: Collection[int]) -> frozenset[WorkerId]:
        """The workers of these hosts."""
        return frozenset(worker for worker, host in self.placement.items() if host in hosts)

    def narrowed(self, leaving: Collection[WorkerId]) -> Topology:
        """The next epoch, in which no row is routed to these workers, of each operator the last ones.

        Raises:
            DataflowError: they are not the last ones, or all; one gets all rows, or owns bins.
        """
        idle = self.idle.union(leaving)
        broadcast = {edge.to for edge in self.graph.edges if edge.partitioning is Partitioning.BROADCAST}
        for worker in sorted(leaving):
            name, stays = worker.operator, self.graph.operator(worker.operator).workers
            stays -= sum(one.operator == name for one in idle)
            if name in broadcast:
                raise DataflowError(f"{worker} cannot leave: it gets all rows")
            if self._is_keyed(name) and self.table(name).owns(worker.index):
                raise DataflowError(f"{worker} still owns bins; expected them to be moved to other workers first")
            if not 0 < stays <= worker.index:
                raise DataflowError(f"{worker} cannot leave; expected the last workers of {name}, and not all of them")
        return replace(self, epoch=self.epoch + 1, idle=idle, tables=self._settled({one.operator for one in leaving}))

    def even_tables(self, leaving: Collection[WorkerId] = ()) -> dict[str, RoutingTable]:
        """Keyed operator to the table that deals its bins evenly to its routed workers, except for those that leave."""
        return {name: RoutingTable.even(self._beside(name, leaving)) for name in self.graph.keyed}

    def readers_beside(self, leaving: Collection[WorkerId]) -> dict[str, int]:
        """Source to the number of its routed workers without those that leave, if some do."""
        sources = {worker.operator for worker in leaving} & set(self.graph.sources)
        return {name: self._beside(name, leaving) for name in sorted(sources)}

    def _beside(self, operator: str, leaving: Collection[WorkerId]) -> int:
        """The number of its routed workers without those that leave; at least one."""
        return max(1, self.routed(operator) - sum(worker.operator == operator for worker in leaving))

    def without(self, leaving: frozenset[WorkerId]) -> Topology:
        """The next epoch, without these workers.

        Raises:
            DataflowError: rows are routed to one of them.
        """
        if routed := leaving - self.idle:
            raise DataflowError(f"{min(routed)} cannot be taken away, since rows are routed to it")
        stay = Counter(worker.operator for worker in self.placement if worker not in leaving)
        return replace(
            self,
            graph=_resized(self.graph, stay),
            placement={worker: host for worker, host in self.placement.items() if worker not in leaving},
            epoch=self.epoch + 1,
            added={worker: epoch for worker, epoch in self.added.items() if worker not in leaving},
            idle=self.idle - leaving,
        )

    def resized(self, graph: Graph) -> Topology:
        """The same topology for a graph with other functions, whatever its numbers of workers."""
        return self.with_graph(_resized(graph, {operator.name: operator.workers for operator in self.graph.operators}))

    def _with_idle(self, shares: Mapping[int, Mapping[str, int]]) -> Topology:
        """The next epoch, with so many idle workers of each operator on each host."""
        totals = {name: sum(share.get(name, 0) for share in shares.values()) for name in self.graph.by_name}
        totals = {name: total for name, total in totals.items() if total}
        for name in totals:
            self._check_grows(name, totals)
        epoch = self.epoch + 1
        graph = _resized(self.graph, {name: self.graph.operator(name).workers + more for name, more in totals.items()})
        placement = dict(self.placement)
        for name in totals:
            fresh = iter(workers_of(graph, name)[self.graph.operator(name).workers :])
            homes = [host for host, share in shares.items() for _ in range(share.get(name, 0))]
            placement.update(zip(fresh, homes, strict=True))
        newcomers = [worker for worker in placement if worker not in self.placement]
        added = {**self.added, **dict.fromkeys(newcomers, epoch)}
        return replace(
            self, graph=graph, placement=placement, epoch=epoch, added=added, idle=self.idle.union(newcomers)
        )

    def _check_grows(self, operator: str, totals: Mapping[str, int]) -> None:
        together = self._on_forward_edges(operator)
        broadcast = [edge.to for edge in self.graph.edges if edge.partitioning is Partitioning.BROADCAST]
        if told := together.intersection(broadcast):
            raise DataflowError(f"{operator} cannot get another worker: each worker of {min(told)} gets all rows")
        if other := [name for name in together if totals.get(name) != totals[operator]]:
            raise DataflowError(f"{operator} cannot get another worker without {min(other)}, on its forward edges")

    def shrunk(self, operator: str) -> Topology:
        """The next epoch, without the last worker of this operator and of those on its forward edges.

        Raises:
            DataflowError: the worker is not idle.
        """
        leaving = self.last_workers(operator)
        if not leaving <= self.idle:
            raise DataflowError(f"{operator} has no idle worker to take away; rows are routed to each of them")
        return self.without(leaving)

    def _settled(self, operators: Iterable[str]) -> dict[str, RoutingTable]:
        """The tables, with those of these operators as they are now, whatever number of workers is routed to later."""
        return {**self.tables, **{name: self.table(name) for name in sorted(operators) if self._is_keyed(name)}}

    def _is_keyed(self, operator: str) -> bool:
        return operator in self.graph.keyed

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


def _resized(graph: Graph, workers: Mapping[str, int]) -> Graph:
    operators = (replace(one, workers=workers.get(one.name, one.workers)) for one in graph.operators)
    return Graph(graph.name, tuple(operators), graph.edges)
