"""The cut of a dataflow into regions: drawn cases, and what must hold of every graph."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from planning_graphs import drawn

from fries_nb.dataflow.graph import Edge, Graph, Kind, Operator, Partitioning
from fries_nb.dataflow.regions import Computed, Kept, Region, Rows, pipelined, regions
from fries_nb.errors import PlanError
from fries_nb.planning import cover


def blocked(ways: str, blocking: str) -> Graph:
    """The drawn graph, with these operators blocking."""
    graph = drawn(ways)
    operators = tuple(replace(one, blocking=one.name in blocking.split()) for one in graph.operators)
    return Graph(graph.name, operators, graph.edges)


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """Any acyclic graph of up to nine operators, some of them blocking."""
    size = draw(st.integers(1, 9))
    blocking = draw(st.lists(st.booleans(), min_size=size, max_size=size))
    pairs = [(low, high) for high in range(size) for low in range(high)]
    chosen = draw(st.lists(st.sampled_from(pairs), unique=True)) if pairs else []
    operators = tuple(Operator(f"o{number}", blocking=blocks) for number, blocks in enumerate(blocking))
    return Graph("any", operators, tuple(Edge(f"o{low}", f"o{high}") for low, high in chosen))


def kept_in(rows: Rows) -> Iterator[Kept]:
    """All the rows that were kept for these."""
    if isinstance(rows, Kept):
        yield rows
    else:
        for one in rows.inputs:
            yield from kept_in(one)


def owner_of(parts: tuple[Region, ...]) -> dict[str, int]:
    """Operator to the number of its region."""
    return {name: number for number, part in enumerate(parts) for name in part.own}


@given(graphs())
def test_every_operator_is_in_one_region_and_no_blocking_one_is_in_any(graph: Graph) -> None:
    """The regions share out what is not blocking."""
    parts = regions(graph)
    if not any(operator.blocking for operator in graph.operators):
        assert parts == (Region(graph),)
        return
    counted = Counter(name for part in parts for name in part.own)
    assert counted == Counter(operator.name for operator in graph.operators if not operator.blocking)
    assert all(not operator.blocking for part in parts for operator in part.graph.operators)
    assert all(part.own for part in parts)


@given(graphs())
def test_regions_come_after_what_they_need(graph: Graph) -> None:
    """An input is kept in an earlier region, by a sink that is there; so all its way back to the sources has run."""
    parts = regions(graph)
    for number, part in enumerate(parts):
        for source, rows in part.inputs.items():
            assert not part.graph.in_edges(source)
            for kept in kept_in(rows):
                assert kept.region < number
                assert kept.sink in parts[kept.region].kept
        assert all(part.graph.out_edges(name) == () for name in part.kept)
    owner = owner_of(parts)
    for before, after in nx.transitive_closure(graph.digraph).edges:
        if before in owner and after in owner:
            assert owner[before] <= owner[after]


@given(graphs())
def test_no_edge_is_lost(graph: Graph) -> None:
    """Every edge is in a region, or leads to its cut; and what is cut is what `pipelined` leaves out."""
    parts, owner = regions(graph), owner_of(regions(graph))
    inside = {edge for part in parts for edge in part.graph.edges if {edge.source, edge.to} <= set(part.own)}
    assert inside == set(pipelined(graph).edges)
    for edge in graph.edges:
        if edge in inside:
            continue
        assert any(graph.by_name[end].blocking for end in (edge.source, edge.to)) or owner[edge.source] < owner[edge.to]
        if edge.source in owner:
            fed = parts[owner[edge.source]].graph.successors(edge.source)
            assert {edge.to, f"{edge.source} -> {edge.to}"} & set(fed) & parts[owner[edge.source]].kept
        if edge.to in owner:
            feeds = parts[owner[edge.to]].graph.predecessors(edge.to)
            assert {edge.source, f"{edge.source} -> {edge.to}"} & set(feeds) & set(parts[owner[edge.to]].inputs)


@given(graphs(), st.data())
def test_no_plan_spans_two_regions(graph: Graph, data: st.DataObject) -> None:
    """A component lies in one region; whatever is above a blocking operator is not synchronised with what is below."""
    owner = owner_of(regions(graph))
    changeable = [name for name in owner if graph.in_edges(name)]
    if not changeable:
        return
    targets = data.draw(st.lists(st.sampled_from(changeable), min_size=1, unique=True))
    for part in cover(graph, targets).components:
        assert len({owner[name] for name in part.operators}) == 1


def test_a_blocking_operator_is_no_target() -> None:
    """It is Spark SQL, and not there to be switched."""
    with pytest.raises(PlanError, match=r"^'G' is blocking: it is computed between two regions"):
        cover(blocked("S > A > G > O", "G"), ["A", "G"])


def test_two_blocking_operators_in_a_row_are_one_step() -> None:
    """What an aggregate gives is sorted by Spark, without a region between them."""
    first, second = regions(blocked("S > A > G > O > B > Out", "G O"))
    assert list(first.graph) == ["S", "A", "G"]
    sort = second.inputs["O"]
    assert isinstance(sort, Computed)
    assert sort.operator.name == "O"
    [aggregate] = sort.inputs
    assert isinstance(aggregate, Computed)
    assert aggregate.inputs == (Kept("G", 0),)


def test_a_stream_around_a_blocking_operator_is_kept_for_the_later_region() -> None:
    """A copy of the stream waits for the aggregate of the other; the two edges of the union keep their order."""
    first, second = regions(blocked("S > R > G > U > Out, R > U", "G"))
    assert first.kept == {"G", "R -> U"}
    assert second.inputs["R -> U"] == Kept("R -> U", 0)
    assert [edge.source for edge in second.graph.in_edges("U")] == ["G", "R -> U"]


def test_a_source_of_the_second_region_is_read_there() -> None:
    """What only the second region needs is not stored in between."""
    first, second = regions(blocked("S > A > G > U > Out, T > B > U", "G"))
    assert list(first.graph) == ["S", "A", "G"]
    assert {"T", "B", "U", "Out", "G"} == set(second.graph)


def test_cut_edges_keep_how_they_deal() -> None:
    """The branch of a split goes to the sink, the key to the source's edge; sinks chain with what feeds them."""
    split = Operator("SP", kind=Kind.SPLIT, branches=2, workers=3)
    keyed = Operator("A", key=("k",), workers=2)
    operators = (Operator("S"), split, Operator("G", blocking=True), keyed, Operator("O"))
    after = Edge("G", "A", Partitioning.HASH, ("k",))
    edges = (Edge("S", "SP"), Edge("SP", "O", branch=0), Edge("SP", "G", branch=1), after)
    first, second = regions(Graph("partitioned", operators, edges))
    assert first.graph.in_edges("G") == (Edge("SP", "G", branch=1),)
    assert first.graph.operator("G").workers == 3
    assert second.graph.in_edges("A") == (after,)
    assert second.graph.operator("G").kind is Kind.SOURCE
