"""The hosts that judge latency constraints, and the measurements that they need (Nephele Streaming, section 3.4).

A constraint on a path of operators induces one *runtime constraint* for each sequence of workers and channels along the
path: with m workers an operator and two hash edges m^3 of them. They are never listed. One operator of the path is the
*anchor* (algorithm 3); its workers are partitioned by host (algorithm 2), and each host judges all sequences through
its anchors. Since every sequence passes exactly one anchor, every runtime constraint is judged exactly once. What a
host judges is an ``Allocation``: one set of worker indices for each operator of the path, found by following the path's
edges from the anchors both ways.

Where this differs from the paper: the expansion follows the edges of the path only, not of the whole graph; allocations
of several constraints on one host remain separate, since their union may contain sequences whose anchor is on another
host; a path of one operator has no edge to count. Idle workers (see ``topology``) get no rows, and are on no sequence.

>>> from fries_nb.dataflow.constraints import constraint_of
>>> from fries_nb.dataflow.graph import Edge, Graph, Operator, Partitioning
>>> operators = tuple(Operator(name, workers=4) for name in ("A", "B", "C"))
>>> edges = (Edge("A", "B", Partitioning.HASH, ("k",)), Edge("B", "C"))
>>> graph = Graph("example", operators, edges)
>>> topology = Topology.dealt(graph, hosts=2)
>>> setup = constraint_setup(topology, [constraint_of(graph, ["A", "B", "C"], latency_ms=300)])
>>> for host, allocations in setup.items():
...     print(host, allocations[0].anchor, allocations[0].layers, allocations[0].sequences)
0 B ((0, 1, 2, 3), (0, 1), (0, 1)) 8
1 B ((0, 1, 2, 3), (2, 3), (2, 3)) 8
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from fries_nb.dataflow.constraints import LatencyConstraint
from fries_nb.dataflow.graph import Edge
from fries_nb.errors import PlanError
from fries_nb.protocol.messages import BufferMeasured, ChainMeasured, Measured, TaskMeasured, WorkerId
from fries_nb.protocol.topology import Topology

Indices = tuple[int, ...]
"""Indices of workers of one operator, in ascending order."""


@dataclass(frozen=True)
class Allocation:
    """The runtime constraints of one constraint that one host judges.

    Attributes:
        constraint: the constraint.
        host: the host that judges it.
        anchor: the operator of the path through whose workers on this host its sequences pass.
        layers: for each operator of the path, the indices of its workers on these sequences.
        one_to_one: for each edge of the path, whether worker i sends to worker i only, instead of to all.
    """

    constraint: LatencyConstraint
    host: int
    anchor: str
    layers: tuple[Indices, ...]
    one_to_one: tuple[bool, ...]

    @property
    def sequences(self) -> int:
        """Number of runtime constraints, computed without listing them."""
        count = len(self.layers[0])
        for layer, is_one_to_one in zip(self.layers[1:], self.one_to_one, strict=True):
            count *= 1 if is_one_to_one else len(layer)
        return count


@dataclass(frozen=True)
class Subscription:
    """The measurements of one host that an allocation needs.

    Attributes:
        reporter: the host that measures.
        allocation: the allocation; the measurements are sent to its host.
        local: for each operator of the path, those workers of the allocation that run on the reporter.
    """

    reporter: int
    allocation: Allocation
    local: tuple[frozenset[int], ...]

    def needs(self, measured: Measured) -> bool:
        """Whether the allocation needs this measurement.

        The tasks at the outer ends of a sequence are needed as well if they do not count themselves: the size of a
        buffer depends on the latency of its sender.

        Returns:
            Whether to send it to the allocation's host.
        """
        if isinstance(measured, TaskMeasured):
            return self._is_local(measured.worker)
        if isinstance(measured, ChainMeasured):
            return any(self._is_local(WorkerId(name, measured.index)) for name in measured.operators)
        sender, receiver = measured.channel.sender, measured.channel.receiver
        if self._places.get(sender.operator, -2) + 1 != self._places.get(receiver.operator, -2):
            return False
        here, there = (sender, receiver) if isinstance(measured, BufferMeasured) else (receiver, sender)
        return self._is_local(here) and there.index in self._members[self._places[there.operator]]

    def _is_local(self, worker: WorkerId) -> bool:
        place = self._places.get(worker.operator)
        return place is not None and worker.index in self.local[place]

    @cached_property
    def _places(self) -> dict[str, int]:
        return {name: place for place, name in enumerate(self.allocation.constraint.path)}

    @cached_property
    def _members(self) -> tuple[frozenset[int], ...]:
        return tuple(map(frozenset, self.allocation.layers))


def constraint_setup(topology: Topology, constraints: Iterable[LatencyConstraint]) -> dict[int, tuple[Allocation, ...]]:
    """The hosts that judge constraints, each with its allocations (algorithm 1).

    It is computed from operators and indices of workers, in time that grows with their number and not with that of
    channels or sequences; every host can compute it by itself.

    Returns:
        Host to its allocations, one for each constraint of which it judges a part.
    """
    setup: dict[int, tuple[Allocation, ...]] = {}
    for constraint in constraints:
        edges = _edges_of(topology, constraint)
        for allocation in _partitioned(topology, constraint, edges):
            setup[allocation.host] = (*setup.get(allocation.host, ()), allocation)
    return dict(sorted(setup.items()))


def subscriptions(
    topology: Topology, setup: Mapping[int, Iterable[Allocation]], reporter: int
) -> tuple[Subscription, ...]:
    """The measurements that a host sends, and to which allocations.

    Returns:
        A subscription for each allocation with an element on this host.
    """
    here: dict[str, frozenset[int]] = {}
    found: list[Subscription] = []
    for allocation in (one for allocations in setup.values() for one in allocations):
        for name in allocation.constraint.path:
            if name not in here:
                hosts = _hosts_of(topology, name)
                here[name] = frozenset(index for index, host in enumerate(hosts) if host == reporter)
        pairs = zip(allocation.constraint.path, allocation.layers, strict=True)
        local = tuple(here[name].intersection(layer) for name, layer in pairs)
        if any(local):
            found.append(Subscription(reporter, allocation, local))
    return tuple(found)


def anchor_of(topology: Topology, constraint: LatencyConstraint) -> str:
    """The operator by whose workers a path is partitioned (algorithm 3).

    It is one on as many hosts as possible, so that each judges little; among those, one with as few channels as
    possible on an edge of the path, so that its workers lie on few sequences; then the first.
    """
    channels = [_channels(topology, edge) for edge in _edges_of(topology, constraint)]

    def rank(place: int) -> tuple[int, int]:
        adjacent = channels[max(0, place - 1) : place + 1]
        return -len(set(_hosts_of(topology, constraint.path[place]))), min(adjacent, default=0)

    return constraint.path[min(range(len(constraint.path)), key=rank)]


def _partitioned(topology: Topology, constraint: LatencyConstraint, edges: tuple[Edge, ...]) -> list[Allocation]:
    """The anchor's workers partitioned by host, each part expanded along the path (algorithm 2)."""
    anchor = anchor_of(topology, constraint)
    one_to_one = tuple(map(topology.is_one_to_one, edges))
    whole = [tuple(range(topology.routed(name))) for name in constraint.path]
    parts: dict[int, list[int]] = {}
    for index, host in enumerate(_hosts_of(topology, anchor)):
        parts.setdefault(host, []).append(index)
    place = constraint.path.index(anchor)
    return [
        Allocation(constraint, host, anchor, _expanded(whole, one_to_one, place, tuple(indices)), one_to_one)
        for host, indices in sorted(parts.items())
    ]


def _expanded(whole: list[Indices], one_to_one: tuple[bool, ...], place: int, anchors: Indices) -> tuple[Indices, ...]:
    """The workers on sequences through these anchors: one-to-one edges keep the indices, others lead to all workers."""
    layers = list(whole)
    layers[place] = anchors
    for after in range(place + 1, len(whole)):
        if one_to_one[after - 1]:
            layers[after] = layers[after - 1]
    for before in range(place - 1, -1, -1):
        if one_to_one[before]:
            layers[before] = layers[before + 1]
    return tuple(layers)


def _hosts_of(topology: Topology, name: str) -> Indices:
    """The host of each of an operator's workers that get rows."""
    return tuple(topology.host_of(WorkerId(name, index)) for index in range(topology.routed(name)))


def _channels(topology: Topology, edge: Edge) -> int:
    senders = topology.routed(edge.source)
    return senders if topology.is_one_to_one(edge) else senders * topology.routed(edge.to)


def _edges_of(topology: Topology, constraint: LatencyConstraint) -> tuple[Edge, ...]:
    graph = topology.graph
    found = []
    for source, to in pairwise(constraint.path):
        edges = [edge for edge in graph.out_edges(source) if edge.to == to] if source in graph else []
        if not edges:
            raise PlanError(
                f"constraint on {constraint.sequence}: dataflow {graph.name!r} has no edge {source} -> {to}"
            )
        found += edges
    if missing := [name for name in constraint.path if name not in graph]:
        raise PlanError(f"constraint on {constraint.sequence}: dataflow {graph.name!r} has no operator {missing[0]!r}")
    return tuple(found)
