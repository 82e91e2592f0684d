"""Placement as a value: who runs where, and how it grows by an idle worker and shrinks again."""

from __future__ import annotations

import random

import pytest

from fries_nb.dataflow.graph import Edge, Graph, Kind, Operator, Partitioning
from fries_nb.errors import DataflowError
from fries_nb.messages import WorkerId
from fries_nb.testing.scenarios import draw_scenario
from fries_nb.topology.routing_table import RoutingTable
from fries_nb.topology.topology import Topology
from fries_nb.topology.wiring import wire, wirings_of


def line(workers: int = 2) -> Graph:
    """A source, two operators on a forward edge, a keyed one, a sink."""
    operators = (
        Operator("S", kind=Kind.SOURCE, workers=workers),
        *(Operator(name, workers=workers) for name in "AB"),
        Operator("K", workers=workers, key=("k",)),
        Operator("Z", kind=Kind.SINK, workers=workers),
    )
    edges = (
        Edge("S", "A", Partitioning.REBALANCE), Edge("A", "B"),
        Edge("B", "K", Partitioning.HASH, ("k",)), Edge("K", "Z"),
    )  # fmt: skip
    return Graph("line", operators, edges)


@pytest.mark.parametrize("seed", range(20))
def test_every_worker_is_wired_on_one_host_and_every_channel_has_two_ends(seed: int) -> None:
    """Of any graph: the hosts together have every worker once, and both ends of a channel know it by one name."""
    graph, hosts = draw_scenario(seed).graph, random.Random(seed).randint(1, 4)
    topology = Topology.dealt(graph, hosts, chaining=seed % 2 == 0)
    wirings = [wiring for host in range(hosts) for wiring in wirings_of(topology, host)]
    assert sorted(worker for wiring in wirings for worker in wiring.workers) == sorted(topology.workers)
    incoming = [channel for wiring in wirings for channel in wiring.incoming]
    outgoing = [channel for wiring in wirings for edge in wiring.edges for channel in edge.channels]
    assert sorted(incoming) == sorted(outgoing)
    assert set(incoming) <= set(topology.channels())


def test_workers_are_dealt_to_hosts_in_turn() -> None:
    """By their index."""
    topology = Topology.dealt(line(workers=5), hosts=3)
    assert [topology.host_of(WorkerId("A", index)) for index in range(5)] == [0, 1, 2, 0, 1]


def test_a_topology_grows_by_an_idle_worker_and_those_on_its_forward_edges() -> None:
    """The others keep their channels; the new ones bear the new epoch; no row is routed to a newcomer."""
    first = Topology.dealt(line(), hosts=2)
    grown = first.grown("A", host=1)
    assert grown.epoch == 2
    assert [str(worker) for worker in grown.added] == ["A[2]", "B[2]"]
    assert [grown.host_of(WorkerId(name, 2)) for name in "AB"] == [1, 1]
    assert set(first.channels()) < set(grown.channels())
    fresh = set(grown.channels()) - set(first.channels())
    assert {channel.epoch for channel in fresh} == {2}
    assert all(WorkerId("A", 2) in channel[:2] or WorkerId("B", 2) in channel[:2] for channel in fresh)
    edge = wire(grown, ("S",), 1).edges[0]
    assert (len(edge.channels), edge.routed, edge.start) == (3, 2, 1)
    twice = grown.grown("K", host=0)
    assert [str(worker) for worker in twice.added] == ["A[2]", "B[2]", "K[2]", "Z[2]"]
    assert set(twice.added.values()) == {2, 3}


def test_a_topology_shrinks_to_what_it_was_and_grows_by_other_channels() -> None:
    """A channel of an earlier epoch is not mistaken for one of a later."""
    first = Topology.dealt(line(), hosts=2)
    grown = first.grown("K", host=0)
    shrunk = grown.shrunk("K")
    assert (shrunk.graph, shrunk.placement, shrunk.added, shrunk.epoch) == (first.graph, first.placement, {}, 3)
    assert set(shrunk.channels()) == set(first.channels())
    assert not (set(shrunk.grown("K", host=0).channels()) - set(first.channels())) & set(grown.channels())


def test_what_cannot_grow_or_shrink_is_refused() -> None:
    """A source; a worker that rows are routed to; one that is not there."""
    first = Topology.dealt(line(), hosts=2)
    with pytest.raises(DataflowError, match="S cannot get another worker: source S would get one with it"):
        first.grown("S", host=0)
    with pytest.raises(DataflowError, match="K has no idle worker to take away"):
        first.shrunk("K")
    with pytest.raises(DataflowError, match=r"no worker K\[2\] in epoch 1 of the topology of 'line'"):
        first.host_of(WorkerId("K", 2))
    with pytest.raises(DataflowError, match="no operator"):
        first.grown("nobody", host=0)


def test_rows_are_routed_to_a_newcomer_when_the_topology_is_widened() -> None:
    """Those in turn; those by key stay where they are, since their bins do."""
    first = Topology.dealt(line(), hosts=2)
    widened = first.grown("K", host=0).widened("K").grown("A", host=0).widened("A")
    [edge] = wire(widened, ("S",), 1).edges
    assert (len(edge.routed_channels), edge.start, edge.table) == (3, 1, None)
    [edge] = wire(widened, ("B",), 0).edges
    assert (len(edge.routed_channels), edge.table) == (3, RoutingTable.even(2))
    assert wire(widened, ("K",), 2).keys == {"B": ("k",)}
    assert widened.grown("A", host=0).routed("A") == 3


def test_a_topology_is_narrowed_and_shrunk_below_what_it_began_with() -> None:
    """Its newcomers then have other channels than the first workers of their index."""
    first = Topology.dealt(line(), hosts=2)
    moved = first.with_tables({"K": RoutingTable.even(1)})
    small = moved.narrowed("K").shrunk("K")
    assert [worker for worker in small.workers if worker.operator in "KZ"] == [WorkerId("K", 0), WorkerId("Z", 0)]
    again = small.grown("K", host=1)
    assert {channel.epoch for channel in again.channels() if channel.receiver == WorkerId("K", 1)} == {again.epoch}
    assert again.widened("K").table("K") == RoutingTable.even(1)


def test_what_cannot_be_widened_or_narrowed_is_refused() -> None:
    """Nobody is idle; a source; the only worker; one that still owns bins."""
    first = Topology.dealt(line(), hosts=2)
    with pytest.raises(DataflowError, match="K has no idle worker; rows are routed to each of them"):
        first.widened("K")
    with pytest.raises(DataflowError, match="S cannot do without a worker: source S would lose one with it"):
        first.narrowed("S")
    with pytest.raises(DataflowError, match="A cannot do without a worker: rows are routed to a single one"):
        first.narrowed("A").narrowed("A")
    with pytest.raises(DataflowError, match=r"K\[1\] still owns bins; expected them to be moved to other workers"):
        first.narrowed("K")
    with pytest.raises(DataflowError, match="a routing table has 3 bins; expected 1024"):
        RoutingTable.of([0, 1, 2])
