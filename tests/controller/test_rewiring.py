"""A change of the topology and a loss of hosts: what the next incarnation routes to is what its checkpoints record."""

from __future__ import annotations

from fries_nb.controller.membership import Rewiring, Workers
from fries_nb.dataflow.graph import Edge, Graph, Kind, Operator, Partitioning
from fries_nb.protocol.messages import TopologyAdopted, WorkerId
from fries_nb.protocol.topology import Topology

GRAPH = Graph("pair", (Operator("S", kind=Kind.SOURCE), Operator("A")), (Edge("S", "A", Partitioning.REBALANCE),))


def grown() -> tuple[Rewiring, Workers]:
    """A run whose topology has grown by an idle worker of A."""
    workers = Workers(GRAPH)
    rewiring = Rewiring(workers)
    rewiring.request(Topology.dealt(GRAPH, hosts=1).grown("A", host=0))
    rewiring.step(is_free=True, issued=1)
    for name in "SA":
        rewiring.adopted(TopologyAdopted(2, WorkerId(name, 0)))
    rewiring.step(is_free=True, issued=1)
    return rewiring, workers


def test_an_added_worker_is_idle_until_the_hosts_are_lost() -> None:
    """The next incarnation deals the graph's workers anew, and routes to all of them; checkpoints must say so."""
    rewiring, workers = grown()
    assert workers.routed == {"S": 1, "A": 1}
    rewiring.lost("host 0 was lost", 0)
    assert rewiring.epoch == 1
    again = Topology.dealt(workers.graph, hosts=1)
    assert workers.routed == {name: again.routed(name) for name in "SA"} == {"S": 1, "A": 2}


def test_a_change_that_is_lost_on_its_way_leaves_the_workers_as_they_were() -> None:
    """The workers that it would have added are not awaited."""
    workers = Workers(GRAPH)
    rewiring = Rewiring(workers)
    rewiring.request(Topology.dealt(GRAPH, hosts=1).grown("A", host=0))
    rewiring.step(is_free=True, issued=1)
    rewiring.lost("host 0 was lost", 0)
    assert not rewiring.under_way
    assert workers.routed == {"S": 1, "A": 1}
    assert workers.of("A") == [WorkerId("A", 0)]
