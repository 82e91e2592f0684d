"""The wiring of one worker: its chain of operators, its input channels, its out-edges.

Each host derives it from the graph alone.

>>> from fries_nb.dataflow.graph import Edge, Graph, Operator, Partitioning
>>> graph = Graph("w1", (Operator("Src"), Operator("FD", workers=2), Operator("Sink")),
...               (Edge("Src", "FD", Partitioning.HASH, ("c",)), Edge("FD", "Sink")))
>>> wiring = wire(graph, ("FD",), 1)
>>> [str(channel) for channel in wiring.incoming], [str(channel) for channel in wiring.edges[0].channels]
(['Src[0]->FD[1]'], ['FD[1]->Sink[0]'])
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from fries_nb.dataflow.graph import Edge, Graph, Operator
from fries_nb.dataflow.traits import ColumnsOut
from fries_nb.messages import ChannelId, WorkerId
from fries_nb.topology.expansion import chains, channels_of, host_of
from fries_nb.worker.outbox import OutEdge


@dataclass(frozen=True)
class Wiring:
    """The wiring of one worker.

    Attributes:
        chain: the operators that share its thread, in topological order.
        index: index of the parallel instance.
        incoming: channels into the first operator; none for a source.
        edges: out-edges of the last operator.
        left: for a self-join, the operator whose tuples are the left side; else empty.
        needed: for each operator of the chain, the columns by which receivers of its rows are keyed, and these
            receivers.
    """

    chain: tuple[Operator, ...]
    index: int
    incoming: tuple[ChannelId, ...]
    edges: tuple[OutEdge, ...]
    left: str
    needed: tuple[Mapping[str, str], ...]

    @property
    def id(self) -> WorkerId:
        """The worker's id, which has the name of its first operator."""
        return WorkerId(self.chain[0].name, self.index)

    @property
    def branches(self) -> int:
        """Number of outputs of the last operator."""
        return self.chain[-1].branches


def wire(graph: Graph, chain: tuple[str, ...], index: int) -> Wiring:
    """The wiring of worker ``index`` of this chain."""
    first, last = graph.operator(chain[0]), graph.operator(chain[-1])
    me_in, me_out = WorkerId(first.name, index), WorkerId(last.name, index)
    in_edges = graph.in_edges(first.name)
    incoming = [channel for edge in in_edges for channel in channels_of(graph, edge) if channel.receiver == me_in]
    left = in_edges[0].source if first.traits.two_sided and in_edges else ""
    edges = tuple(_out_edge(graph, edge, me_out) for edge in graph.out_edges(last.name))
    needed = tuple(_needed(graph, name) for name in chain)
    return Wiring(tuple(graph.operator(name) for name in chain), index, tuple(incoming), edges, left, needed)


def wirings_of_host(graph: Graph, host: int, hosts: int, chaining: bool = True) -> Iterator[Wiring]:
    """The wirings of all workers on one host."""
    for chain in chains(graph, chaining=chaining):
        for index in range(graph.operator(chain[0]).workers):
            if host_of(WorkerId(chain[0], index), hosts) == host:
                yield wire(graph, chain, index)


def _needed(graph: Graph, name: str) -> dict[str, str]:
    """The key columns that an operator's rows must have, each with the operator that is keyed by it."""
    needed: dict[str, str] = {}
    ahead = list(graph.out_edges(name))
    while ahead:
        edge = ahead.pop()
        for column in edge.key:
            needed.setdefault(column, edge.to)
        if graph.operator(edge.to).traits.columns is ColumnsOut.SAME:  # a key that is missing behind it was in front
            ahead += graph.out_edges(edge.to)
    return needed


def _out_edge(graph: Graph, edge: Edge, sender: WorkerId) -> OutEdge:
    channels = tuple(channel for channel in channels_of(graph, edge) if channel.sender == sender)
    start = sender.index % len(channels)
    return OutEdge(edge.to, edge.partitioning, edge.key, edge.branch, channels, start)
