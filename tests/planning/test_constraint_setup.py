"""The set-up of constraints against all runtime sequences, listed one by one; mutants of it; and its size at m=800."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

import pytest
from soak import SOAK

from fries_nb.dataflow import Edge, Graph, LatencyConstraint, Operator, Partitioning, constraint_of
from fries_nb.errors import PlanError
from fries_nb.planning import constraint_setup as rooms
from fries_nb.planning.constraint_setup import Allocation, anchor_of, constraint_setup, subscriptions
from fries_nb.protocol.messages import (
    BufferMeasured,
    ChainMeasured,
    ChannelId,
    ChannelMeasured,
    Measured,
    QueueMeasured,
    TaskMeasured,
    WorkerId,
)
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


# ---- the tests


SEEDS = range(50 * SOAK)
Setup = Callable[[Topology, list[LatencyConstraint]], dict[int, tuple[Allocation, ...]]]


def vertices(allocation: Allocation) -> frozenset[WorkerId]:
    """The workers of an allocation."""
    pairs = zip(allocation.constraint.path, allocation.layers, strict=True)
    return frozenset(WorkerId(name, index) for name, layer in pairs for index in layer)


def judged(topology: Topology, allocation: Allocation) -> set[Sequence]:
    """The runtime sequences of the path whose workers all belong to the allocation."""
    inside = vertices(allocation)
    return {one for one in runtime_sequences(topology, allocation.constraint.path) if inside.issuperset(one)}


def broken_laws(topology: Topology, constraints: list[LatencyConstraint], setup: Setup = constraint_setup) -> set[str]:
    """The laws of the set-up that do not hold here."""
    broken = set()
    found = setup(topology, constraints)
    for constraint in constraints:
        allocations = [one for host in found.values() for one in host if one.constraint == constraint]
        every = Counter(one for allocation in allocations for one in judged(topology, allocation))
        whole = set(runtime_sequences(topology, constraint.path))
        if every.keys() != whole:
            broken.add("all are judged")
        if any(count > 1 for count in every.values()):
            broken.add("each is judged once")
        for allocation in allocations:
            mine = judged(topology, allocation)
            if vertices(allocation) != {worker for one in mine for worker in one}:
                broken.add("no worker is idle in it")
            if allocation.sequences != len(mine):
                broken.add("sequences are counted")
            anchors = {one for one in vertices(allocation) if one.operator == allocation.anchor}
            if {topology.host_of(one) for one in anchors} != {allocation.host}:
                broken.add("anchors are on its host")
        if len({one.host for one in allocations}) < len(allocations):
            broken.add("one for each host")
    return broken


def drawn(seed: int) -> tuple[Topology, list[LatencyConstraint]]:
    """A topology with up to three constraints on different sequences."""
    draws = random.Random(seed)
    topology = drawn_topology(draws)
    constraints = [drawn_constraint(draws, topology.graph) for _ in range(draws.randint(1, 3))]
    return topology, list({(one.path, one.elements): one for one in constraints}.values())


def test_every_runtime_constraint_is_in_exactly_one_allocation():
    """Union all, pairwise disjoint, minimal, counted without listing; over random topologies."""
    constrained = 0
    for seed in SEEDS:
        topology, constraints = drawn(seed)
        assert broken_laws(topology, constraints) == set(), seed
        constrained += sum(len(list(runtime_sequences(topology, one.path))) for one in constraints)
    assert constrained > 10 * len(SEEDS)


# ---- mutants


def merged_by_host(topology: Topology, constraints: list[LatencyConstraint]) -> dict[int, tuple[Allocation, ...]]:
    """The paper's algorithm 1: the graphs of all paths on a host are merged, and sequences are looked for in that."""
    found = {}
    for host, allocations in constraint_setup(topology, constraints).items():
        workers = frozenset(worker for one in allocations for worker in vertices(one))
        merged = []
        for one in allocations:
            layers = tuple(
                tuple(sorted(worker.index for worker in workers if worker.operator == name))
                for name in one.constraint.path
            )
            merged.append(replace(one, layers=layers))
        found[host] = tuple(merged)
    return found


def mutated(name: str, mutant: Callable[..., object]) -> Setup:
    """The set-up with one function replaced."""

    def setup(topology: Topology, constraints: list[LatencyConstraint]) -> dict[int, tuple[Allocation, ...]]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(rooms, name, mutant)
            return constraint_setup(topology, constraints)

    return setup


def expanded_over_the_graph(whole, one_to_one, place, anchors):
    """Every other layer is whole, whatever the edges between."""
    return tuple(anchors if number == place else layer for number, layer in enumerate(whole))


def expanded_downstream_only(whole, one_to_one, place, anchors, expanded=rooms._expanded):
    """Against the edges nothing is followed."""
    return (*whole[:place], *expanded(whole, one_to_one, place, anchors)[place:])


def anchors_of_the_first_host(topology, constraint, edges, partitioned=rooms._partitioned):
    """The anchors of the other hosts are forgotten."""
    return partitioned(topology, constraint, edges)[:1]


def anchors_on_every_host(topology, constraint, edges, partitioned=rooms._partitioned):
    """Each host judges all sequences."""
    whole = tuple(tuple(range(topology.routed(name))) for name in constraint.path)
    return [replace(one, layers=whole) for one in partitioned(topology, constraint, edges)]


@pytest.mark.parametrize(
    ("setup", "law"),
    [
        (merged_by_host, "each is judged once"),
        (mutated("_expanded", expanded_over_the_graph), "no worker is idle in it"),
        (mutated("_expanded", expanded_downstream_only), "no worker is idle in it"),
        (mutated("_partitioned", anchors_of_the_first_host), "all are judged"),
        (mutated("_partitioned", anchors_on_every_host), "each is judged once"),
    ],
    ids=["merged by host", "over the graph", "downstream only", "first host", "every host"],
)
def test_a_broken_set_up_is_caught(setup: Setup, law: str):
    """Within the seeds for which the whole one keeps every law."""
    for seed in SEEDS:
        if law in broken_laws(*drawn(seed), setup):
            return
    pytest.fail(f"no seed broke: {law}")


# ---- the anchor


def pipeline(workers: Iterable[int], partitioning: str, hosts: int) -> Topology:
    """Operators A, B, ... with h (hash) or f (forward) edges between them."""
    kinds = {"h": Partitioning.HASH, "f": Partitioning.FORWARD}
    operators = tuple(Operator(chr(65 + place), workers=count) for place, count in enumerate(workers))
    names = [operator.name for operator in operators]
    edges = tuple(Edge(*pair, kinds[kind]) for *pair, kind in zip(names, names[1:], partitioning, strict=False))
    return Topology.dealt(Graph("pipeline", operators, edges), hosts)


@pytest.mark.parametrize(
    ("workers", "edges", "hosts", "anchor"),
    [
        ((4, 4, 4), "hh", 2, "A"),  # all alike: the first
        ((4, 4, 4), "hf", 2, "B"),  # fewest channels beside it
        ((4, 4, 4), "fh", 2, "A"),
        ((1, 4, 4), "hh", 4, "B"),  # on most hosts first: A has fewest channels, and is on one host
        ((4, 1, 2), "hh", 4, "A"),
        ((2, 4, 2), "hh", 2, "A"),
        ((4, 4, 1), "hh", 2, "B"),  # four channels to C
        ((3,), "", 2, "A"),  # no edge
    ],
)
def test_the_anchor_is_on_most_hosts_and_has_fewest_channels(workers, edges, hosts, anchor):
    """Algorithm 3."""
    topology = pipeline(workers, edges, hosts)
    path = [operator.name for operator in topology.graph.operators]
    constraint = LatencyConstraint(tuple(path), 1.0)
    assert anchor_of(topology, constraint) == anchor


def test_a_path_of_another_dataflow_is_refused():
    """Whether an operator or an edge is missing."""
    topology = pipeline((2, 2, 2), "ff", 1)
    for path, missing in ((("A", "C"), "no edge A -> C"), (("A", "X"), "no edge A -> X"), (("X",), "no operator 'X'")):
        with pytest.raises(PlanError, match=missing):
            constraint_setup(topology, [LatencyConstraint(path, 1.0)])


# ---- reports


def everything(topology: Topology, host: int) -> Iterable[Measured]:
    """All that a host measures: channels where they arrive, buffers where they begin."""
    for worker in topology.workers:
        if topology.host_of(worker) == host:
            yield TaskMeasured(worker, 1.0, 1, 0.1)
            yield ChainMeasured((worker.operator,), worker.index)
    for channel in topology.channels():
        if topology.host_of(channel.receiver) == host:
            yield ChannelMeasured(channel, 1.0, 1)
            yield QueueMeasured(channel, 1, 1.0)
        if topology.host_of(channel.sender) == host:
            yield BufferMeasured(channel, 1.0, 1, 200, 0)


def test_each_allocation_gets_the_measurements_of_its_elements_and_no_others():
    """Over random topologies: from every host those of the workers and channels on its sequences, each once."""
    sent = 0
    for seed in SEEDS[: 20 * SOAK]:
        topology, constraints = drawn(seed)
        setup = constraint_setup(topology, constraints)
        wanted: Counter[object] = Counter()
        for number, allocation in enumerate(one for host in setup.values() for one in host):
            elements: set[WorkerId | ChannelId] = set()
            for sequence in judged(topology, allocation):
                elements.update(sequence)
                elements.update(topology.channel(*pair) for pair in itertools.pairwise(sequence))
            kinds = {
                WorkerId: (TaskMeasured, ChainMeasured),
                ChannelId: (ChannelMeasured, QueueMeasured, BufferMeasured),
            }
            wanted.update((number, kind, element) for element in elements for kind in kinds[type(element)])
        got: Counter[object] = Counter()
        numbers = {id(one): number for number, one in enumerate(one for host in setup.values() for one in host)}
        for host in range(3):
            for subscription in subscriptions(topology, setup, host):
                assert subscription.reporter == host
                for measured in everything(topology, host):
                    if subscription.needs(measured):
                        element = (
                            measured.worker if isinstance(measured, TaskMeasured)
                            else WorkerId(measured.operators[0], measured.index) if isinstance(measured, ChainMeasured)
                            else measured.channel
                        )  # fmt: skip
                        got[numbers[id(subscription.allocation)], type(measured), element] += 1
        assert got == wanted, seed
        sent += got.total()
    assert sent > 1_000


def test_a_host_without_an_element_reports_nothing():
    """No subscription, so no report."""
    topology = pipeline((1, 1, 2), "ff", 2)
    setup = constraint_setup(topology, [constraint_of(topology.graph, ["A", "B"], 1)])
    assert list(setup) == [0]
    assert len(subscriptions(topology, setup, 0)) == 1
    assert subscriptions(topology, setup, 1) == ()


# ---- the paper's example


class Unlisted(Topology):
    """A topology whose channels must not be listed."""

    def channels_of(self, edge):
        raise AssertionError("the channels of an edge were listed")


def test_half_a_billion_sequences_are_set_up_without_listing_them():
    """Figure 5 with m=800: two hash edges, 200 hosts; 512 million runtime constraints, no channel is looked at."""
    m, hosts = 800, 200
    topology = pipeline([m] * 6, "hfffh", hosts)
    topology = Unlisted(topology.graph, topology.placement, True, topology.begun)
    path = ["A", "B", "C", "D", "E", "F"]
    setup = constraint_setup(topology, [constraint_of(topology.graph, path, 300)])
    allocations = [one for host in setup.values() for one in host]
    assert sum(one.sequences for one in allocations) == 512_000_000
    assert {one.anchor for one in allocations} == {"B"}
    assert [len(layer) for layer in allocations[7].layers] == [800, 4, 4, 4, 4, 800]
    wholes = {id(layer) for one in allocations for layer in (one.layers[0],)}
    assert len(wholes) == 1, "whole layers are stored once for all hosts"
    assert len(subscriptions(topology, setup, 3)) == hosts
