"""Random small topologies with a constrained path, and all runtime sequences along it, one by one."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

from fries_nb.dataflow import Edge, Graph, LatencyConstraint, Operator, Partitioning, constraint_of
from fries_nb.protocol.messages import ChannelId, WorkerId
from fries_nb.protocol.topology import Topology

Sequence = tuple[WorkerId, ...]
"""The workers of a runtime sequence."""


def drawn_topology(draws: random.Random) -> Topology:
    """Up to six operators with up to four workers, on up to three hosts; workers are placed anyhow."""
    size = draws.randint(2, 6)
    operators = tuple(Operator(f"n{number}", workers=draws.choice((1, 2, 3, 3, 4))) for number in range(size))
    pairs = {(number, number + 1) for number in range(size - 1)}
    pairs |= {(a, b) for a in range(size) for b in range(a + 2, size) if draws.random() < 0.3}
    edges = tuple(
        Edge(f"n{a}", f"n{b}", draws.choice((Partitioning.FORWARD, Partitioning.FORWARD, Partitioning.HASH)))
        for a, b in sorted(pairs)
    )
    graph = Graph("drawn", operators, edges)
    hosts = draws.randint(1, 3)
    topology = Topology.dealt(graph, hosts)
    if draws.random() < 0.6:
        topology = replace(topology, placement={worker: draws.randrange(hosts) for worker in topology.workers})
    sources = set(graph.sources)
    growing = [name for name in graph if not topology._on_forward_edges(name) & sources]
    if growing and draws.random() < 0.3:
        topology = topology.grown(draws.choice(growing), draws.randrange(hosts))
    return topology


def drawn_constraint(draws: random.Random, graph: Graph) -> LatencyConstraint:
    """A constraint on a random path, which may begin and end with an edge."""
    path = [draws.choice(list(graph))]
    while (after := graph.successors(path[-1])) and draws.random() < 0.8:
        path.append(draws.choice(after))
    if len(path) == 1 and path[0] in graph.sources:
        path.append(graph.successors(path[0])[0])
    constraint = constraint_of(graph, path, draws.randint(1, 500))
    return replace(
        constraint,
        begins_with_edge=len(path) > 1 and (constraint.begins_with_edge or draws.random() < 0.3),
        ends_with_edge=len(path) > 1 and draws.random() < 0.3,
    )


def runtime_sequences(topology: Topology, path: tuple[str, ...]) -> Iterator[Sequence]:
    """All sequences of workers that rows may take along a path, followed channel by channel."""
    idle = topology.idle
    channels: dict[tuple[WorkerId, str], list[ChannelId]] = {}
    for channel in topology.channels():
        if channel.sender not in idle and channel.receiver not in idle:
            channels.setdefault((channel.sender, channel.receiver.operator), []).append(channel)
    ahead: list[Sequence] = [(worker,) for worker in topology.workers if worker.operator == path[0]]
    ahead = [sequence for sequence in ahead if sequence[0] not in idle]
    for name in path[1:]:
        ahead = [
            (*sequence, channel.receiver) for sequence in ahead for channel in channels.get((sequence[-1], name), ())
        ]
    yield from ahead
