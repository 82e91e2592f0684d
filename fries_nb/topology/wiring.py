"""The wiring of one worker: its chain of operators, its input channels, its out-edges.

Each host derives it from the topology alone.

>>> from fries_nb.dataflow.graph import Edge, Graph, Operator, Partitioning
>>> graph = Graph("w1", (Operator("Src"), Operator("FD", workers=2), Operator("Sink")),
...               (Edge("Src", "FD", Partitioning.HASH, ("c",)), Edge("FD", "Sink")))
>>> wiring = wire(Topology.dealt(graph, hosts=1), ("FD",), 1)
>>> [str(channel) for channel in wiring.incoming], [str(channel) for channel in wiring.edges[0].channels]
(['Src[0]->FD[1]'], ['FD[1]->Sink[0]'])
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from fries_nb.dataflow.graph import Edge, Graph, Operator, Partitioning
from fries_nb.dataflow.traits import ColumnsOut, Holds
from fries_nb.messages import ChannelId, WorkerId
from fries_nb.topology.partitioning import Bins, routing_table
from fries_nb.topology.routing_table import RoutingTable
from fries_nb.topology.topology import Topology

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
    """

    chain: tuple[Operator, ...]
    index: int
    incoming: tuple[ChannelId, ...]
    edges: tuple[OutEdge, ...]
    left: str
    needed: tuple[Needed, ...]
    feedback: frozenset[str] = frozenset()
    keys: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

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
    return Wiring(operators, index, tuple(incoming), edges, left, needed, feedback, keys)


def wirings_of(topology: Topology, host: int) -> Iterator[Wiring]:
    """The wirings of all workers on one host."""
    for chain in topology.chains:
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
    return OutEdge(edge.to, edge.partitioning, edge.key, edge.branch, channels, start, routed, hosts, table)
