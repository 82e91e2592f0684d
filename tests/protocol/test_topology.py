"""Placement as a value: who runs where, and how it grows by an idle worker and shrinks again."""

from __future__ import annotations

import pickle
import random

import pytest

from fries_nb.dataflow.graph import ROOT, Edge, Graph, Kind, Operator, Partitioning, ends_of
from fries_nb.errors import DataflowError
from fries_nb.protocol.messages import WorkerId
from fries_nb.protocol.partitioning import RoutingTable
from fries_nb.protocol.topology import BODY_WINDOW, Topology, wire, wirings_of
from fries_nb.simulation.reshaping_cluster import drawn_program
from fries_nb.simulation.scenarios import draw_scenario


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


def test_workers_are_dealt_to_hosts_in_blocks() -> None:
    """The last host has the last ones of every operator, and none of an operator with a single worker."""
    topology = Topology.dealt(line(workers=5), hosts=3)
    assert [topology.host_of(WorkerId("A", index)) for index in range(5)] == [0, 0, 1, 1, 2]
    assert {Topology.dealt(line(workers=1), hosts=3).host_of(WorkerId("A", 0))} == {0}


def test_what_is_derived_is_not_sent() -> None:
    """Another thread may derive it while a topology is pickled, and its hosts derive what they need."""
    topology = Topology.dealt(line(), hosts=2)
    sent = pickle.dumps(topology)
    assert topology.hosts_of_workers["K"] == (0, 1)
    assert topology.routed_counts["K"] == 2
    assert pickle.dumps(topology) == sent
    assert pickle.loads(sent) == topology


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


def test_hosts_join_with_idle_workers_and_leave_without_them() -> None:
    """Workers behind a rebalancing edge get rows when it is widened; those behind a key none before bins move."""
    first = Topology.dealt(line(), hosts=2)
    joined = first.joined([2, 3], {"A": 1, "B": 1, "K": 2, "Z": 2})
    assert [joined.host_of(WorkerId("A", index)) for index in range(4)] == [0, 1, 2, 3]
    assert [joined.host_of(WorkerId("K", index)) for index in range(6)] == [0, 1, 2, 2, 3, 3]
    assert [joined.routed(name) for name in "SABKZ"] == [2, 2, 2, 2, 2]
    widened = joined.widened()
    assert [widened.routed(name) for name in "SABKZ"] == [2, 4, 4, 6, 6]  # those by key stay, since bins do
    assert (widened.epoch, set(widened.channels())) == (3, set(joined.channels()))
    narrowed = widened.narrowed(widened.workers_on([3]))
    assert [narrowed.routed(name) for name in "SABKZ"] == [2, 3, 3, 4, 4]
    left = narrowed.without(narrowed.workers_on([3]))
    assert [left.graph.operator(name).workers for name in "SABKZ"] == [2, 3, 3, 4, 4]
    assert set(left.channels()) < set(joined.channels())
    leaving = left.workers_on([2])
    last = left.narrowed(leaving).without(leaving)
    assert (last.graph, last.placement, last.added, last.idle) == (first.graph, first.placement, {}, frozenset())


def test_hosts_that_cannot_join_or_leave_are_refused() -> None:
    """Without those on forward edges; those of the beginning; before later ones; or while rows are routed there."""
    first = Topology.dealt(line(), hosts=2)
    with pytest.raises(DataflowError, match="A cannot get another worker without B, on its forward edges"):
        first.joined([2], {"A": 1})
    widened = first.joined([2, 3], {"A": 1, "B": 1}).widened()
    with pytest.raises(DataflowError, match=r"A\[1\] cannot leave; expected the last workers of A, and not all"):
        widened.narrowed(widened.workers_on([1]))
    with pytest.raises(DataflowError, match=r"A\[2\] cannot leave; expected the last workers of A, and not all"):
        widened.narrowed(widened.workers_on([2]))
    with pytest.raises(DataflowError, match=r"A\[3\] cannot be taken away, since rows are routed to it"):
        widened.without(widened.workers_on([3]))


def test_what_cannot_grow_or_shrink_is_refused() -> None:
    """A worker that rows are routed to; one that is not there."""
    first = Topology.dealt(line(), hosts=2)
    with pytest.raises(DataflowError, match="K has no idle worker to take away"):
        first.shrunk("K")
    with pytest.raises(DataflowError, match=r"no worker K\[2\] in epoch 1 of the topology of 'line'"):
        first.host_of(WorkerId("K", 2))
    with pytest.raises(DataflowError, match="no operator"):
        first.grown("nobody", host=0)


def test_rows_are_routed_to_a_newcomer_when_the_topology_is_widened() -> None:
    """Those in turn; those by key stay where they are, since their bins do."""
    first = Topology.dealt(line(), hosts=2)
    widened = first.grown("K", host=0).widened().grown("A", host=0).widened()
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
    small = moved.narrowed(moved.last_workers("K")).shrunk("K")
    assert [worker for worker in small.workers if worker.operator in "KZ"] == [WorkerId("K", 0), WorkerId("Z", 0)]
    again = small.grown("K", host=1)
    assert {channel.epoch for channel in again.channels() if channel.receiver == WorkerId("K", 1)} == {again.epoch}
    assert again.widened().table("K") == RoutingTable.even(1)


def test_what_cannot_be_narrowed_is_refused() -> None:
    """The only one, or one in front of others; one that still owns bins."""
    first = Topology.dealt(line(), hosts=2)
    for refused, said in (
        ({WorkerId("S", 0)}, r"S\[0\] cannot leave; expected the last workers of S, and not all"),
        ({WorkerId("A", 0), WorkerId("A", 1)}, r"A\[0\] cannot leave; expected the last workers of A, and not all"),
        ({WorkerId("A", 0)}, r"A\[0\] cannot leave; expected the last workers"),
        ({WorkerId("K", 1)}, r"K\[1\] still owns bins; expected them to be moved to other workers"),
    ):
        with pytest.raises(DataflowError, match=said):
            first.narrowed(refused)
    with pytest.raises(DataflowError, match="a routing table has 3 bins; expected 1024"):
        RoutingTable.of([0, 1, 2])


def test_windows_are_small_within_a_loop() -> None:
    """A head in no other loop has the whole share, since rows wait there; other shares may be smaller still."""
    outer = ROOT.nest("L")
    inner = outer.nest("M")
    operators = (
        Operator("S", kind=Kind.SOURCE),
        Operator("L", kind=Kind.LOOP, within=outer),
        Operator("M", kind=Kind.LOOP, within=inner),
        Operator("B", function=dict, within=inner, branches=2),
        Operator("C", function=dict, within=outer, branches=2),
        Operator("Z", kind=Kind.SINK),
    )
    edges = (
        Edge("S", "L"), Edge("L", "M"), Edge("M", "B"), Edge("B", "M", feedback=True), Edge("B", "C", branch=1),
        Edge("C", "L", feedback=True), Edge("C", "Z", branch=1),
    )  # fmt: skip
    topology = Topology.dealt(Graph("nested", operators, edges), hosts=1)
    share = 8 * BODY_WINDOW
    windows = {name: wire(topology, (name,), 0).window(share) for name in "LMBCZ"}
    assert windows == {"L": share, "M": BODY_WINDOW, "B": BODY_WINDOW, "C": BODY_WINDOW, "Z": share}
    assert wire(topology, ("B",), 0).window(100) == 100


def test_those_that_a_change_of_the_shape_does_not_concern_are_wired_as_before() -> None:
    """Their workers are not told of it. Some operators far above are: their rows get key columns that they lacked."""
    far = 0
    for seed in range(300):
        chance = random.Random(f"concerned {seed}")
        program = drawn_program(chance)
        before, after = program.graph(), program.edited(chance).graph()
        topology = Topology.dealt(before, hosts=2)
        during = topology.reshaping(after, hosts=[0, 1])
        ends = {name for ends in ends_of(before) ^ ends_of(during.after) for name in ends}
        for name in set(before) - during.concerned:
            wirings = [wire(one, (name,), 0) for one in (topology, during, during.reshaped(), during.withdrawn())]
            assert all(one == wirings[0] for one in wirings)
        needed = [name for name in during.concerned - ends if wire(topology, (name,), 0) != wire(during, (name,), 0)]
        far += len(needed)
    assert far > 10


def test_operators_get_other_numbers_of_workers_together_with_those_on_their_forward_edges() -> None:
    """Each new one is on the host with the fewest of its operator, so the members of a group stay together."""
    topology = Topology.dealt(line(workers=3), hosts=2)  # two on host 0, one on host 1
    numbers = topology.numbers({"A": 5})
    assert numbers == {"A": 5, "B": 5}
    grown = topology.scaled(numbers, hosts=[0, 1])
    assert grown.fresh == {WorkerId(name, index) for name in "AB" for index in (3, 4)}
    assert [grown.hosts_of_workers[name] for name in "AB"] == [(0, 0, 1, 1, 0)] * 2
    assert grown.routed("A") == 3
    assert topology.scaled(topology.numbers({"A": 3}), hosts=[0, 1]).fresh == frozenset()
    assert topology.numbers({"A": 2, "B": 2}) == {"A": 2, "B": 2}
    with pytest.raises(DataflowError, match="2 for A and 4 for B; expected one number, since they are connected"):
        topology.numbers({"A": 2, "B": 4})
    told = Graph("told", line().operators[:2], (Edge("S", "A", Partitioning.BROADCAST),))
    with pytest.raises(DataflowError, match="A keeps its number of workers: each worker of A gets all rows"):
        Topology.dealt(told, hosts=1).numbers({"A": 3})
    assert Topology.dealt(told, hosts=1).numbers({"A": 2}) == {"A": 2}
    with pytest.raises(DataflowError, match="no operator 'Q'"):
        topology.numbers({"Q": 1})


def test_the_last_workers_are_the_surplus_also_of_a_host_that_has_earlier_ones() -> None:
    """Those that stay are numbered from 0."""
    topology = Topology.dealt(line(), hosts=2)
    assert topology.surplus({"K": 1}) == {WorkerId("K", 1)}
    assert topology.surplus({"K": 2}) == topology.surplus({}) == frozenset()
    assert topology.surplus({}, hosts=[1]) == {WorkerId(name, 1) for name in "SABKZ"}
    grown = topology.scaled(topology.numbers({"K": 4}), hosts=[0, 1]).widened()
    assert grown.hosts_of_workers["K"] == (0, 1, 0, 1)
    leaving = {one.index for one in grown.surplus({}, hosts=[1]) if one.operator == "K"}
    assert leaving == {1, 2, 3}


def test_an_operator_is_added_after_others_have_grown() -> None:
    """A forward edge from four workers, of which two have joined, to two is dealt; each channel has both ends."""
    before = Graph("g", (Operator("A", workers=2), Operator("B", workers=2)), (Edge("A", "B"),))
    grown = Topology.dealt(before, hosts=1).joined([1], {"A": 2, "B": 2}).widened()
    operators = (*before.operators, Operator("N", workers=2), Operator("M", workers=2))
    after = Graph("g", operators, (Edge("A", "N"), Edge("N", "M"), Edge("M", "B")))
    reshaping = grown.reshaping(after, hosts=[0, 1])
    made = sorted(str(channel) for channel in reshaping.channels() if channel.epoch == reshaping.epoch)
    assert len([one for one in made if one.startswith("A")]) == 8
    assert [one for one in made if one.startswith("N")] == ["N[0]->M[0]", "N[1]->M[1]"]
    assert len([one for one in made if one.startswith("M")]) == 8
    behind = reshaping.reshaped()
    wired = [worker for host in (0, 1) for wiring in wirings_of(behind, host) for worker in wiring.workers]
    assert sorted(wired) == sorted(behind.placement)


def test_an_edge_that_is_added_between_different_numbers_of_workers_is_not_one_to_one() -> None:
    """Both began with as many, and then one was scaled alone, as the operator between them that is removed allowed."""
    before = Topology.dealt(line(), hosts=1)
    numbers = before.numbers({"K": 4})
    scaled = before.scaled(numbers, [0])
    after = Graph("line", tuple(one for one in line().operators if one.name != "K"), (
        Edge("S", "A", Partitioning.REBALANCE), Edge("A", "B"), Edge("B", "Z"),
    ))  # fmt: skip
    reshaped = scaled.widened().reshaping(after, [0]).reshaped()
    assert len([channel for channel in reshaped.channels() if channel.receiver.operator == "Z"]) == 2 * 4
    assert reshaped.numbers({"B": 3}) == {"A": 3, "B": 3}


def test_what_is_equally_parallel_by_chance_does_not_grow_together_after_a_restart() -> None:
    """Hosts that start again know with which numbers the operators count as begun."""
    operators = Operator("S", kind=Kind.SOURCE), Operator("A", workers=2)
    began = Topology.dealt(Graph("pair", operators, (Edge("S", "A"),)), hosts=1)
    scaled = began.narrowed(leaving := began.surplus({"A": 1})).without(leaving)
    assert scaled.graph.sizes == {"S": 1, "A": 1}
    again = Topology.dealt(scaled.graph, 1, begun=scaled.begun)
    assert again.numbers({"A": 3}) == {"A": 3}
    assert Topology.dealt(scaled.graph, 1).numbers({"A": 3}) == {"S": 3, "A": 3}


def test_workers_are_added_so_that_any_number_of_the_first_ones_is_spread_over_the_hosts() -> None:
    """The last ones leave first, and no host is to be left without any."""
    began = Topology.dealt(line(workers=1), hosts=2)
    grown = began.scaled(began.numbers({"K": 4}), [0, 1])
    assert grown.hosts_of_workers["K"] == grown.hosts_of_workers["Z"] == (0, 1, 0, 1)
    more = began.joined([2, 3], {"K": 2, "Z": 2})
    assert more.hosts_of_workers["K"] == (0, 2, 2, 3, 3)
