"""The placement and connection of a dataflow's workers: one immutable value for each epoch of the topology.

Every host derives its workers' wiring from this value. Adding or removing workers makes a new value, with the next
epoch. An added worker is *idle*: it has channels, gets markers and ends like any other, but no row is routed to it. The
operators on an operator's forward edges grow and shrink with it, since worker i of one sends to worker i of the next.

When the topology is *widened*, senders that rebalance route rows to idle workers as well. Of a keyed operator they
still own no bins, which are moved to them while rows flow (see ``controller.moves``); idle workers of a source have
no splits until these are moved (see ``controller.moves``). *Narrowing* is the reverse.

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
>>> after = Graph("pair", (*graph.operators, Operator("N")), (Edge("A", "N"), Edge("N", "B")))
>>> reshaping = topology.reshaping(after, hosts=[0, 1])
>>> [(edge.to, edge.is_closed) for edge in wire(reshaping, ("A",), 0).edges]
[('B', False), ('N', True)]
>>> [str(channel) for channel in reshaping.reshaped().channels()][:2], reshaping.withdrawn().workers == topology.workers
(['A[0]->N[0]', 'A[1]->N[0]'], True)
>>> widened = grown.widened()
>>> widened.routed("B"), widened.table("B") == topology.table("B")
(3, True)

Expansion of operators to workers, channels and chains; computed for single operators and edges on demand.

Workers of one operator are equivalent, so plans are made on operators and expanded here (Fries, section 7.2).

>>> from fries_nb.dataflow.graph import Operator
>>> graph = Graph("pair", (Operator("A", workers=2), Operator("B", workers=2)), (Edge("A", "B"),))
>>> [str(worker) for worker in workers_of(graph, "A")]
['A[0]', 'A[1]']
>>> [str(channel) for channel in channels_of(graph, graph.edges[0])], channel_count(graph, graph.edges)
(['A[0]->B[0]', 'A[1]->B[1]'], 2)
>>> chains(graph)
(('A', 'B'),)

The wiring of one worker: its chain of operators, its input channels, its out-edges.

Each host derives it from the topology alone.

>>> from fries_nb.dataflow.graph import Edge, Graph, Operator, Partitioning
>>> graph = Graph("w1", (Operator("Src"), Operator("FD", workers=2), Operator("Sink")),
...               (Edge("Src", "FD", Partitioning.HASH, ("c",)), Edge("FD", "Sink")))
>>> wiring = wire(Topology.dealt(graph, hosts=1), ("FD",), 1)
>>> [str(channel) for channel in wiring.incoming], [str(channel) for channel in wiring.edges[0].channels]
(['Src[0]->FD[1]'], ['FD[1]->Sink[0]'])
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from functools import cached_property
from itertools import pairwise, product
from typing import Any

from fries_nb.dataflow.graph import Edge, Graph, Operator, Partitioning, ShadowRole, ends_of, resized, union_of
from fries_nb.dataflow.operators import Shape, is_timed, shape_of
from fries_nb.dataflow.traits import ColumnsOut, Holds
from fries_nb.errors import DataflowError
from fries_nb.protocol.messages import ChannelId, WorkerId
from fries_nb.protocol.partitioning import Bins, RoutingTable, routing_table


class _Family(StrEnum):
    """How a chain is executed: row by row, or batch by batch."""

    ROWS = "rows"
    BATCHES = "batches"


def workers_of(graph: Graph, name: str) -> tuple[WorkerId, ...]:
    """The workers of an operator."""
    return tuple(WorkerId(name, index) for index in range(graph.operator(name).workers))


def channels_of(graph: Graph, edge: Edge) -> Iterator[ChannelId]:
    """The channels of an edge: worker i to worker i for forward between equal numbers, else all to all."""
    receivers = workers_of(graph, edge.to)
    is_forward = _is_one_to_one(graph, edge)
    for sender in workers_of(graph, edge.source):
        for receiver in (receivers[sender.index],) if is_forward else receivers:
            yield ChannelId(sender, receiver)


def channel_count(graph: Graph, edges: Iterable[Edge]) -> int:
    """The number of channels of these edges, computed without listing them (Fries, table 7)."""
    operators = graph.by_name
    total = 0
    for edge in edges:
        senders, receivers = operators[edge.source].workers, operators[edge.to].workers
        total += senders if _is_one_to_one(graph, edge) else senders * receivers
    return total


def chains(graph: Graph, chaining: bool = True) -> tuple[tuple[str, ...], ...]:
    """The operators grouped into chains, each executed by one worker; every operator is in exactly one chain.

    A chain follows forward edges between equally parallel operators that are executed alike, if the edge is the only
    one out of its tail and into its head. It may end in a split. Operators of a kind that is not ``chained`` (see
    ``dataflow.traits``) form a chain of one, and so does one that pauses on errors, since it blocks its chain, or that
    is declared with ``chain=False``. A timed operator is the first of its chain. With ``chaining=False`` all chains
    have one operator.
    """
    grouped: list[tuple[str, ...]] = []
    seen: set[str] = set()
    for first in graph.order:
        if first in seen:
            continue
        chain = [first]
        while chaining and (following := _chained_after(graph, chain[-1])) is not None:
            chain.append(following)
        seen.update(chain)
        grouped.append(tuple(chain))
    return tuple(grouped)


def _is_one_to_one(graph: Graph, edge: Edge) -> bool:
    workers = graph.by_name[edge.source].workers
    return edge.partitioning is Partitioning.FORWARD and workers == graph.by_name[edge.to].workers


def _chained_after(graph: Graph, name: str) -> str | None:
    """The operator that continues a chain after ``name``, if there is one."""
    out = graph.out_edges(name)
    if len(out) != 1 or len(graph.in_edges(out[0].to)) != 1 or not _is_one_to_one(graph, out[0]):
        return None
    head = graph.operator(out[0].to)
    return head.name if may_chain(graph.operator(name), head) else None


def may_chain(tail: Operator, head: Operator) -> bool:
    """Whether one operator may follow another in a chain, if they are connected by a one-to-one edge alone.

    A chain does not cross the boundary of a loop.
    """
    if tail.within != head.within:
        return False
    family = _family(tail)
    return family is not None and family is _family(head) and not tail.traits.routes and not is_timed(head)


def _family(operator: Operator) -> _Family | None:
    """How an operator is executed in a chain; ``None`` if it is not chained. Graphs read from JSON count as rows."""
    if not (operator.traits.chained and operator.chain) or operator.on_error == "pause":
        return None
    if not operator.traits.runs_user_code or operator.function is None:
        return _Family.ROWS
    return _Family.BATCHES if shape_of(operator.function) is Shape.BATCH else _Family.ROWS


NO_TABLES: Mapping[str, RoutingTable] = {}
NONE_BEGUN: Mapping[str, int] = {}


@dataclass(frozen=True)
class Topology:
    """The placement of all workers of a graph.

    Attributes:
        graph: the dataflow, with each operator's number of workers.
        placement: worker to the index of its host.
        chaining: whether operators on forward edges share a thread.
        epoch: number of the epoch, from 1.
        added: worker that was added while the run went on to the epoch in which it was.
        begun: operator to the number of workers with which it counts as begun, which determines for all epochs which
            forward edges are one to one and which operators are chained: those of its first epoch, told apart where
            the numbers of now differ (see ``_told_apart``).
        idle: the workers to which no row is routed: of each operator the last ones.
        tables: keyed operator to its routing table, if its bins are not dealt evenly to its routed workers.
        made: edge, as (from, to), that was added while the run went on to the epoch in which it was.
        before, after: the dataflow before and after a change of the shape that is being prepared or carried out; the
            graph has the operators and edges of both, of which those made in this epoch are *closed*: a worker sends
            and reads there from its switch on.
    """

    graph: Graph
    placement: Mapping[WorkerId, int]
    chaining: bool
    begun: Mapping[str, int]
    epoch: int = 1
    added: Mapping[WorkerId, int] = field(default_factory=dict)
    idle: frozenset[WorkerId] = frozenset()
    tables: Mapping[str, RoutingTable] = field(default_factory=dict)
    made: Mapping[tuple[str, str], int] = field(default_factory=dict)
    before: Graph | None = None
    after: Graph | None = None

    @classmethod
    def dealt(
        cls,
        graph: Graph,
        hosts: int,
        chaining: bool = True,
        tables: Mapping[str, RoutingTable] = NO_TABLES,
        begun: Mapping[str, int] = NONE_BEGUN,
    ) -> Topology:
        """Make the first epoch: worker i of n runs on host ``i * hosts // n``, so forward edges are local.

        The last host has the last workers of each operator, and can leave with them. When hosts start again, ``begun``
        is that of before: operators that are equally parallel by chance do not grow together from then on.
        """
        sizes = graph.sizes
        workers = (worker for name in graph.by_name for worker in workers_of(graph, name))
        placement = {worker: worker.index * hosts // sizes[worker.operator] for worker in workers}
        return cls(graph, placement, chaining, _told_apart(sizes, begun), tables=tables)

    @property
    def workers(self) -> tuple[WorkerId, ...]:
        """All workers, operator by operator."""
        return tuple(worker for name in self.graph.by_name for worker in workers_of(self.graph, name))

    @cached_property
    def chains(self) -> tuple[tuple[str, ...], ...]:
        """The operators grouped into chains; see ``expansion.chains``."""
        return chains(resized(self.graph, self.begun), self.chaining)

    def may_be_chained(self, operator: str) -> bool:
        """Whether a host may run the operator in one worker with another one, now or later."""
        edges = (*self.graph.in_edges(operator), *self.graph.out_edges(operator))
        return any(
            self.is_one_to_one(edge) and may_chain(self.graph.operator(edge.source), self.graph.operator(edge.to))
            for edge in edges
        )

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
        """The host that runs the worker."""
        host = self.placement.get(worker)
        if host is None:
            raise DataflowError(f"no worker {worker} in epoch {self.epoch} of the topology of {self.graph.name!r}")
        return host

    def routed(self, operator: str) -> int:
        """Number of an operator's workers to which rows are routed: the first ones, without idle workers."""
        return self.graph.operator(operator).workers - sum(worker.operator == operator for worker in self.idle)

    @property
    def fresh(self) -> frozenset[WorkerId]:
        """The workers that were added in this epoch."""
        return frozenset(worker for worker, epoch in self.added.items() if epoch == self.epoch)

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
        made = self.made.get((sender.operator, receiver.operator), 1)
        return ChannelId(sender, receiver, max(self.added.get(sender, 1), self.added.get(receiver, 1), made))

    def is_one_to_one(self, edge: Edge) -> bool:
        """Whether worker i of an edge's sender has one channel, to worker i of its receiver."""
        return edge.partitioning is Partitioning.FORWARD and self.begun[edge.source] == self.begun[edge.to]

    def channels(self) -> Iterator[ChannelId]:
        """All channels, edge by edge."""
        for edge in self.graph.edges:
            yield from self.channels_of(edge)

    def channels_at(self, host: int) -> int:
        """The number of channels into and out of the workers of a host; one between two of them counts twice."""
        inside = {ends for chain in self.chains for ends in pairwise(chain)}
        edges = (edge for edge in self.graph.edges if (edge.source, edge.to) not in inside)
        workers = (end for edge in edges for one in self.channels_of(edge) for end in (one.sender, one.receiver))
        return sum(self.placement[worker] == host for worker in workers)

    def is_former(self, channel: ChannelId) -> bool:
        """Whether it is the channel of an earlier worker with the index of a present one."""
        made = self.made.get((channel.sender.operator, channel.receiver.operator), 1)
        return channel.epoch < max(made, *(self.added.get(end, 1) for end in (channel.sender, channel.receiver)))

    def with_graph(self, graph: Graph) -> Topology:
        """The same topology for a copy of the graph that includes functions, on which chaining depends."""
        return replace(self, graph=graph)

    def with_functions(self, functions: Mapping[str, Any]) -> Topology:
        """The same topology with these functions of operators, and none for the others."""

        def own(graph: Graph) -> Graph:
            operators = (replace(operator, function=functions.get(operator.name)) for operator in graph.operators)
            return replace(graph, operators=tuple(operators))

        before, after = self.before and own(self.before), self.after and own(self.after)
        return replace(self, graph=own(self.graph), before=before, after=after)

    # ---- changes of the shape

    def reshaping(self, after: Graph, hosts: Sequence[int]) -> Topology:
        """The next epoch, in which workers of added operators are on these hosts, and channels of added edges closed.

        Operators that both dataflows have keep their numbers of workers; those of a shadow are placed and routed to as
        those of which they are copies.
        """
        present = self.graph.sizes
        copies = {one.name: one.shadow.of for one in after.operators if one.shadow and one.name not in present}
        beside = {name: present[of] for name, of in copies.items() if of in present}
        after, epoch = resized(after, present | beside), self.epoch + 1
        fresh = {name: operator.workers for name, operator in after.by_name.items() if name not in present}
        workers = [worker for name in fresh for worker in workers_of(after, name)]
        placed = {
            worker: self.placement[WorkerId(copies[worker.operator], worker.index)]
            if worker.operator in beside
            else hosts[worker.index * len(hosts) // fresh[worker.operator]]
            for worker in workers
        }
        known = {(edge.source, edge.to) for edge in self.graph.edges}
        ends = ((edge.source, edge.to) for edge in after.edges)
        return replace(
            self,
            graph=union_of(self.graph, after),
            placement={**self.placement, **placed},
            begun=_told_apart({**present, **fresh}, self.begun),
            epoch=epoch,
            added={**self.added, **dict.fromkeys(workers, epoch)},
            tables={**self.tables, **{name: self.tables[of] for name, of in copies.items() if of in self.tables}},
            made={**self.made, **{end: epoch for end in ends if end not in known}},
            before=self.graph,
            after=after,
        )

    def reshaped(self) -> Topology:
        """The epoch behind that, in which only the dataflow after the change is left."""
        assert self.after is not None, "a change of the shape is under way"
        return self._of_shape(self.after)

    def withdrawn(self) -> Topology:
        """The epoch behind that if the change is not made, in which only the dataflow before it is left."""
        assert self.before is not None, "a change of the shape is under way"
        return self._of_shape(self.before)

    def afterwards(self) -> Topology | None:
        """The same epoch as it is for a worker that has switched; ``None`` if the shape does not change."""
        return None if self.after is None else replace(self, graph=self.after, before=None, after=None)

    @property
    def concerned(self) -> frozenset[str]:
        """The operators of which workers are wired otherwise before, during or after the change of the shape.

        These are the ends of edges that change, and those above them whose rows must have other columns, since only
        operators are between that add none.
        """
        assert self.before is not None, "a change of the shape is under way"
        assert self.after is not None, "a change of the shape is under way"
        changed = ends_of(self.before) ^ ends_of(self.after)
        found, ahead = {name for ends in changed for name in ends}, [source for source, _ in changed]
        while ahead:
            name = ahead.pop()
            if self.graph.operator(name).traits.columns is ColumnsOut.SAME:
                above = set(self.graph.predecessors(name))
                ahead += above - found
                found |= above
        return frozenset(found)

    def is_closed(self, edge: Edge) -> bool:
        """Whether workers do not send or read on this edge before they switch."""
        return self.after is not None and self.made.get((edge.source, edge.to)) == self.epoch

    def _of_shape(self, graph: Graph) -> Topology:
        stay = {worker for worker in self.placement if worker.operator in graph}
        kept = {(edge.source, edge.to) for edge in graph.edges}
        return replace(
            self,
            graph=graph,
            placement={worker: host for worker, host in self.placement.items() if worker in stay},
            begun={name: count for name, count in self.begun.items() if name in graph},
            epoch=self.epoch + 1,
            added={worker: epoch for worker, epoch in self.added.items() if worker in stay},
            idle=frozenset(worker for worker in self.idle if worker in stay),
            tables={name: table for name, table in self.tables.items() if name in graph},
            made={ends: epoch for ends, epoch in self.made.items() if ends in kept},
            before=None,
            after=None,
        )

    def grown(self, operator: str, host: int) -> Topology:
        """The next epoch, with one more idle worker of this operator and of those on its forward edges."""
        return self._with_idle({name: [host] for name in self._on_forward_edges(operator)})

    def joined(self, hosts: Iterable[int], shares: Mapping[str, int]) -> Topology:
        """The next epoch, with idle workers on hosts that join."""
        new = list(hosts)
        return self._with_idle({name: [host for host in new for _ in range(more)] for name, more in shares.items()})

    def numbers(self, asked: Mapping[str, int]) -> dict[str, int]:
        """The numbers of workers that are asked for, and with them those of operators on their forward edges.

        Raises:
            DataflowError: an operator is unknown, or cannot have so many workers.
        """
        told = {edge.to for edge in self.graph.edges if edge.partitioning is Partitioning.BROADCAST}
        found: dict[str, int] = {}
        for name, count in asked.items():
            for other in sorted(self._on_forward_edges(name)):
                if asked.get(other, count) != count:
                    both = f"{count} for {name} and {asked[other]} for {other}"
                    raise DataflowError(f"{both}; expected one number, since they are connected by forward edges")
                if other in told and count != self.graph.operator(other).workers:
                    raise DataflowError(f"{name} keeps its number of workers: each worker of {other} gets all rows")
                found[other] = count
        return found

    def scaled(self, numbers: Mapping[str, int], hosts: Sequence[int]) -> Topology:
        """The next epoch, with idle workers on these hosts until each of these operators has so many workers.

        Each is added to the host that has the fewest of its operator, so that operators on forward edges stay together,
        and that every number of the first ones, which stay when others leave, is spread over the hosts.
        """
        homes: dict[str, list[int]] = {}
        for name, count in numbers.items():
            placed = self.hosts_of_workers[name]
            held, homes[name] = Counter(placed), []
            for _ in range(count - len(placed)):
                homes[name].append(min(hosts, key=lambda one: held[one]))
                held[homes[name][-1]] += 1
        return self._with_idle(homes)

    def surplus(self, numbers: Mapping[str, int], hosts: Collection[int] = ()) -> frozenset[WorkerId]:
        """The workers that leave for operators to have at most these numbers of workers, and none on these hosts.

        Those that stay are numbered from 0, so all behind the first one that leaves do.
        """
        first: dict[str, int] = {}
        for (operator, index), host in self.placement.items():
            if host in hosts or index >= numbers.get(operator, index + 1):
                first[operator] = min(index, first.get(operator, index))
        return frozenset(one for one in self.placement if one.index >= first.get(one.operator, one.index + 1))

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
        """The next epoch, in which no row is routed to these workers, of each operator the last ones."""
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
        """The next epoch, without these workers."""
        if routed := leaving - self.idle:
            raise DataflowError(f"{min(routed)} cannot be taken away, since rows are routed to it")
        stay = Counter(worker.operator for worker in self.placement if worker not in leaving)
        return replace(
            self,
            graph=resized(self.graph, stay),
            placement={worker: host for worker, host in self.placement.items() if worker not in leaving},
            epoch=self.epoch + 1,
            added={worker: epoch for worker, epoch in self.added.items() if worker not in leaving},
            idle=self.idle - leaving,
        )

    def _with_idle(self, homes: Mapping[str, Sequence[int]]) -> Topology:
        """The next epoch, with further idle workers of operators, each on its host."""
        totals = {name: len(homes[name]) for name in self.graph.by_name if homes.get(name)}
        for name in totals:
            self._check_grows(name, totals)
        epoch = self.epoch + 1
        graph = resized(self.graph, {name: self.graph.operator(name).workers + more for name, more in totals.items()})
        placement = dict(self.placement)
        for name in totals:
            fresh = workers_of(graph, name)[self.graph.operator(name).workers :]
            placement.update(zip(fresh, homes[name], strict=True))
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
        """The next epoch, without the last worker of this operator and of those on its forward edges."""
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


def _told_apart(sizes: Mapping[str, int], begun: Mapping[str, int]) -> dict[str, int]:
    """The numbers with which operators of these sizes count as begun; those that are added begin with theirs.

    Operators on a forward edge that count as begun with equal numbers are connected one to one. If they were connected
    otherwise before, they may have different numbers by now, and then they must not count as begun with equal ones.
    Operators that are connected one to one have equal sizes, and are not told apart.

    >>> _told_apart({"A": 2, "B": 4, "N": 2}, {"A": 2, "B": 2})
    {'A': 2, 'B': 5, 'N': 2}
    """
    numbers = {name: (begun.get(name, size), size) for name, size in sizes.items()}
    last, found = max(max(pair) for pair in numbers.values()), dict[tuple[int, int], int]()
    known = set[int]()
    for number, size in sorted(set(numbers.values())):
        last += number in known
        found[number, size] = last if number in known else number
        known.add(number)
    return {name: found[pair] for name, pair in numbers.items()}


BODY_WINDOW = 32 * 1024
"""Maximum credit window of a channel within a loop, in bytes: if the loop falls behind, rows wait in front of it."""


@dataclass(frozen=True, slots=True)
class OutEdge:
    """One out-edge of a chain's last operator at one of its workers.

    Attributes:
        to: the receiving operator.
        partitioning, key: how rows are divided among the receiver's workers.
        branch: index of the split output that the edge carries.
        channels: the channels to the receiver's workers, by index (a single one if the edge is one to one).
        start: index of the first receiver of a round-robin edge.
        routed: number of channels that get rows, counted from the first; the others lead to idle workers. 0 for all.
        hosts: index of the host of each channel's receiver; empty if every frame is to be sent alone.
        table: the routing table of the edge when the worker was wired; ``None`` if bins are dealt evenly. It changes
            while rows flow, as the outbox knows.
        is_closed: whether nothing is sent there yet; see ``Topology.is_closed``.
        lossy: the part of the receiver in a shadow that the edge enters, beyond whose budget rows are left out.
        tells: whether each of the receiver's workers gets the columns of the rows, as a batch without rows, before all
            others; a join of two streams needs them for rows without partner.
    """

    to: str
    partitioning: Partitioning
    key: tuple[str, ...]
    branch: int
    channels: tuple[ChannelId, ...]
    start: int = 0
    routed: int = 0
    hosts: tuple[int, ...] = ()
    table: RoutingTable | None = None
    is_closed: bool = False
    lossy: ShadowRole | None = None
    tells: bool = False

    @property
    def routed_channels(self) -> tuple[ChannelId, ...]:
        """The channels that get rows."""
        return self.channels[: self.routed] if self.routed else self.channels

    @property
    def owners(self) -> Bins:
        """The index of the receiver that owns each bin, when the worker was wired."""
        return routing_table(len(self.routed_channels)) if self.table is None else self.table.owners


Needed = tuple[Mapping[str, str], ...]
"""For each branch of an operator the key columns that its rows must have, each with the operator keyed by it."""


@dataclass(frozen=True)
class Wiring:
    """The wiring of one worker.

    Attributes:
        chain: the operators that share its thread, in topological order.
        index: index of the parallel instance.
        incoming: channels into the first operator; none for a source.
        edges: out-edges of the last operator.
        left: for a self-join, the operator whose tuples are the left side; else empty.
        needed: for each operator of the chain what its rows must have.
        feedback: for a loop's head, the operators whose channels to it are feedback channels.
        keys: operator that sends by key to the key columns of its rows.
        closed: those of ``incoming`` that are not read yet; see ``Topology.is_closed``.
    """

    chain: tuple[Operator, ...]
    index: int
    incoming: tuple[ChannelId, ...]
    edges: tuple[OutEdge, ...]
    left: str
    needed: tuple[Needed, ...]
    feedback: frozenset[str] = frozenset()
    keys: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    closed: frozenset[ChannelId] = frozenset()

    @cached_property
    def id(self) -> WorkerId:
        """The worker's id, which has the name of its first operator."""
        return WorkerId(self.chain[0].name, self.index)

    @property
    def workers(self) -> tuple[WorkerId, ...]:
        """The operator workers of the chain, in its order."""
        return tuple(WorkerId(operator.name, self.index) for operator in self.chain)

    @property
    def branches(self) -> int:
        """Number of outputs of the last operator."""
        return self.chain[-1].branches

    def window(self, share: int) -> int:
        """The credit window of its input channels in bytes: a share of the host's budget, and less within a loop."""
        first = self.chain[0]
        return min(share, BODY_WINDOW) if first.within.level > first.traits.heads_loop else share


def wire(topology: Topology, chain: tuple[str, ...], index: int) -> Wiring:
    """The wiring of worker ``index`` of this chain."""
    graph = topology.graph
    first, last = graph.operator(chain[0]), graph.operator(chain[-1])
    me_in, me_out = WorkerId(first.name, index), WorkerId(last.name, index)
    in_edges = graph.in_edges(first.name)
    incoming = [channel for edge in in_edges for channel in topology.channels_of(edge) if channel.receiver == me_in]
    left = in_edges[0].source if first.traits.two_sided and in_edges else ""
    edges = tuple(_out_edge(topology, edge, me_out) for edge in graph.out_edges(last.name))
    needed = tuple(_needed_by_branch(graph, name) for name in chain)
    feedback = frozenset(edge.source for edge in in_edges if edge.feedback)
    keys = {edge.source: edge.key for edge in in_edges if edge.partitioning is Partitioning.HASH}
    operators = tuple(graph.operator(name) for name in chain)
    is_added = topology.added.get(me_in) == topology.epoch  # it has no rows of before the change, and reads at once
    shut = [edge for edge in in_edges if topology.is_closed(edge) and not is_added]
    closed = frozenset(channel for edge in shut for channel in topology.channels_of(edge) if channel.receiver == me_in)
    return Wiring(operators, index, tuple(incoming), edges, left, needed, feedback, keys, closed)


def wirings_of(topology: Topology, host: int, first: Collection[str] | None = None) -> Iterator[Wiring]:
    """The wirings of all workers on one host, or of those of chains that begin with some operators."""
    for chain in topology.chains:
        if first is not None and chain[0] not in first:
            continue
        for index in range(topology.graph.operator(chain[0]).workers):
            if topology.host_of(WorkerId(chain[0], index)) == host:
                yield wire(topology, chain, index)


def _needed_by_branch(graph: Graph, name: str) -> Needed:
    """The key columns that an operator's rows must have, by branch, each with the operator that is keyed by it."""
    return tuple(_needed(graph, name, branch) for branch in range(graph.operator(name).branches))


def _needed(graph: Graph, name: str, branch: int) -> dict[str, str]:
    needed: dict[str, str] = {}
    ahead, seen = [edge for edge in graph.out_edges(name) if edge.branch == branch], set[str]()
    while ahead:
        edge = ahead.pop()
        for column in (*edge.key, *_joined_on(graph.operator(edge.to))):
            needed.setdefault(column, edge.to)
        if edge.to in seen:
            continue
        seen.add(edge.to)
        after = graph.operator(edge.to)
        if after.traits.columns is ColumnsOut.SAME and (after.branches == 1 or after.traits.heads_loop):
            ahead += graph.out_edges(edge.to)  # it adds no columns, so its input needs the key; a split asks itself
    return needed


def _joined_on(operator: Operator) -> tuple[str, ...]:
    """The key of the table with which an operator joins rows."""
    return tuple(operator.function.key) if operator.traits.holds is Holds.TABLE and operator.function else ()


def _out_edge(topology: Topology, edge: Edge, sender: WorkerId) -> OutEdge:
    channels = tuple(channel for channel in topology.channels_of(edge) if channel.sender == sender)
    routed = min(len(channels), topology.routed(edge.to))
    start = sender.index % routed
    hosts = tuple(topology.host_of(channel.receiver) for channel in channels)
    table = topology.tables.get(edge.to) if edge.partitioning is Partitioning.HASH else None
    is_closed = topology.is_closed(edge) and topology.added.get(sender) != topology.epoch
    role = None if topology.graph.operator(sender.operator).shadow else topology.graph.operator(edge.to).shadow
    tells = topology.graph.operator(edge.to).traits.pairs
    return OutEdge(
        edge.to, edge.partitioning, edge.key, edge.branch, channels, start, routed, hosts, table, is_closed, role, tells
    )
