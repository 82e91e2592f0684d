"""Workers, channels and chains of a graph."""

from __future__ import annotations

import itertools
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from planning_graphs import drawn

from fries_nb.dataflow import Edge, Graph, Kind, Operator, Partitioning, batched
from fries_nb.errors import DataflowError
from fries_nb.planning import chains, channel_count, channels_of, cover, workers_of
from fries_nb.protocol.topology import may_chain


def workflow_2(workers: int) -> Graph:
    """W2: hash edges between the joins, forward into the sink, all equally parallel."""
    names = ("Src", "J1", "J2", "J3", "J4", "Sink")
    edges = [Edge(*pair, Partitioning.HASH) for pair in pairwise(names[:5])]
    operators = tuple(Operator(name, workers=workers) for name in names)
    return Graph("W2", operators, (*edges, Edge("J4", "Sink")))


@pytest.mark.parametrize(("workers", "all_of_it", "inside"), [
    (1, 5, 3), (4, 68, 48), (12, 588, 432), (20, 1_620, 1_200), (40, 6_440, 4_800),
])  # fmt: skip
def test_table_7(workers, all_of_it, inside):
    """Channels of W2: 4p^2 + p in all, 3p^2 in the component of J1 and J4; counted and listed."""
    graph = workflow_2(workers)
    [part] = cover(graph, ["J1", "J4"]).components
    edges = [edge for edge in graph.edges if (edge.source, edge.to) in part.edges]
    assert (channel_count(graph, graph.edges), channel_count(graph, edges)) == (all_of_it, inside)
    assert sum(1 for edge in graph.edges for _ in channels_of(graph, edge)) == all_of_it


@given(st.integers(1, 6), st.integers(1, 6), st.sampled_from(Partitioning))
def test_channels_are_counted_as_listed(senders, receivers, partitioning):
    """The closed form agrees with the list; no channel is listed twice; every receiver is reached."""
    edge = Edge("A", "B", partitioning)
    graph = Graph("pair", (Operator("A", workers=senders), Operator("B", workers=receivers)), (edge,))
    channels = list(channels_of(graph, edge))
    assert len(channels) == len(set(channels)) == channel_count(graph, [edge])
    assert {channel.receiver for channel in channels} == set(workers_of(graph, "B"))
    assert {channel.sender for channel in channels} == set(workers_of(graph, "A"))


def test_forward_between_unequal_numbers_is_all_to_all():
    """It is the same as rebalance then."""
    edge = Edge("A", "B")
    graph = Graph("pair", (Operator("A", workers=2), Operator("B", workers=3)), (edge,))
    assert len(list(channels_of(graph, edge))) == 6


def test_channels_are_listed_lazily():
    """The first channel of an edge between a million senders and three receivers costs no list of three million."""
    edge = Edge("A", "B", Partitioning.HASH)
    graph = Graph("pair", (Operator("A", workers=1_000), Operator("B", workers=3)), (edge,))
    assert str(next(channels_of(graph, edge))) == "A[0]->B[0]"


def test_workers_of_an_unknown_operator():
    """The closest name is suggested."""
    with pytest.raises(DataflowError, match="did you mean 'J1'"):
        workers_of(workflow_2(1), "j1")


def row(_row):
    """A function of a row."""


@batched
def batch(_batch):
    """A function of a batch."""


def chain_of(*operators: Operator, edges: tuple[Edge, ...] = ()) -> tuple[tuple[str, ...], ...]:
    """Chains of operators that follow each other by forward edges, unless edges are given."""
    pairs = itertools.pairwise(operators)
    return chains(Graph("chain", operators, edges or tuple(Edge(tail.name, head.name) for tail, head in pairs)))


def test_rows_chain_with_rows_and_batches_with_batches():
    """Two families; a chain never mixes them."""
    found = chain_of(
        Operator("Src", kind=Kind.SOURCE),
        Operator("A", function=row),
        Operator("B", function=row, kind=Kind.FILTER),
        Operator("C", function="items", kind=Kind.UNNEST),
        Operator("D", function=batch),
        Operator("E", function=batch),
        Operator("F", function=row),
        Operator("Sink", kind=Kind.SINK),
    )
    assert found == (("Src",), ("A", "B", "C"), ("D", "E"), ("F",), ("Sink",))


def test_a_chain_may_end_in_a_split():
    """But nothing follows the split in it, even where only one branch is consumed."""
    split = Operator("SP", function=row, kind=Kind.SPLIT, branches=2)
    assert chain_of(Operator("A", function=row), split, Operator("B", function=row)) == (("A", "SP"), ("B",))


@pytest.mark.parametrize("kind", [Kind.SOURCE, Kind.SINK, Kind.SELF_JOIN, Kind.UNION, Kind.REPLICATE])
def test_what_stands_alone(kind):
    """Sources, sinks, self-joins, unions and Replicates are chains of their own."""
    found = chain_of(Operator("A", function=row), Operator("X", kind=kind), Operator("B", function=row))
    assert found == (("A",), ("X",), ("B",))


def test_no_chain_over_a_hash_edge_or_unequal_numbers():
    """Only a forward edge between equally parallel operators keeps a tuple at its worker."""
    one, two = Operator("A", function=row), Operator("B", function=row)
    assert chain_of(one, two, edges=(Edge("A", "B", Partitioning.HASH),)) == (("A",), ("B",))
    assert chain_of(one, Operator("B", function=row, workers=2)) == (("A",), ("B",))


def test_no_chain_where_ways_part_or_meet():
    """The edge must be the only one out of its tail and into its head."""
    assert chains(drawn("A > B > D, A > C > D")) == (("A",), ("B",), ("C",), ("D",))


def test_chaining_can_be_switched_off():
    """Every operator is a chain then."""
    graph = drawn("A > B > C")
    assert chains(graph) == (("A", "B", "C"),)
    assert chains(graph, chaining=False) == (("A",), ("B",), ("C",))


def test_an_operator_may_be_kept_out_of_chains():
    """One that is declared with ``chain=False`` has a worker of its own, and so may not be fused while running."""
    one, other = Operator("A", function=row), Operator("B", function=row)
    apart = Operator("X", function=row, chain=False)
    assert chain_of(one, apart, other) == (("A",), ("X",), ("B",))
    assert (may_chain(one, other), may_chain(one, apart), may_chain(apart, other)) == (True, False, False)
