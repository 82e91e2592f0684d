"""Loops in graphs, however made: their laws, JSON, regions, constraints, chains and wiring."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from loop_graphs import loop_graphs

from fries_nb.dataflow import (
    DataflowBuilder,
    Edge,
    Graph,
    Kind,
    Operator,
    constraint_of,
    edge,
    graph_from_json,
    graph_to_json,
    memory,
    rate,
)  # fmt: skip
from fries_nb.dataflow.graph import ROOT
from fries_nb.dataflow.loops import contracted
from fries_nb.dataflow.regions import pipelined, regions
from fries_nb.errors import DataflowError
from fries_nb.protocol.topology import Topology, chains, wire

L, M = ROOT.nest("L"), ROOT.nest("L").nest("M")
HEADS = Operator("L", kind=Kind.LOOP, within=L), Operator("M", kind=Kind.LOOP, within=M)
NESTED = (Operator("S"), *HEADS, Operator("A", within=L), Operator("B", within=M), Operator("T"))
EDGES = (
    Edge("S", "L"), Edge("L", "A"), Edge("A", "M"), Edge("M", "B"), Edge("B", "M", feedback=True),
    Edge("B", "L", feedback=True), Edge("B", "T"),
)  # fmt: skip


def same(row):
    """A function of a row."""
    return row


def test_a_graph_with_loops_has_an_order():
    """Without feedback edges; contracted it is a path."""
    graph = Graph("nested", NESTED, EDGES)
    assert graph.order == ("S", "L", "A", "M", "B", "T")
    assert contracted(graph).graph.order == ("S", "L", "T")


BROKEN = {
    "an operator in no known loop": (
        (*NESTED, Operator("X", within=ROOT.nest("N"))), EDGES, r"operator 'X': no loop 'N'; expected one of L, M",
    ),
    "a loop that is elsewhere": (
        (*NESTED, Operator("X", within=ROOT.nest("M"))), EDGES, r"'X' is in loop 'M', but loop 'M' is loop 'L/M'",
    ),
    "a head that is outside of itself": (
        (*NESTED, Operator("X", kind=Kind.LOOP)), EDGES, r"loop 'X' is in the root scope; expected its head inside",
    ),
    "an operator without input": (
        (*NESTED, Operator("X", within=L)), EDGES, r"operator 'X' is in loop 'L', and has no input there",
    ),
    "a blocking operator": (
        (*NESTED, Operator("X", within=L, blocking=True)), (*EDGES, Edge("A", "X")), r"'X' is blocking, in loop 'L'",
    ),
    "feedback to another operator": (
        NESTED, (*EDGES, Edge("M", "A", feedback=True)), r"feedback edge M -> A starts in loop 'L/M'; expected",
    ),
    "feedback to an inner loop": (
        NESTED, (*EDGES, Edge("L", "M", feedback=True)), r"feedback edge L -> M starts in loop 'L'; expected",
    ),
    "feedback from outside": ((*NESTED,), (*EDGES, Edge("T", "L", feedback=True)), r"feedback edge T -> L starts in"),
    "coming back without feedback": (
        NESTED, (*EDGES, Edge("A", "L")), r"edge A -> L comes back to the head of loop 'L'; expected it as a feedback",
    ),
    "entering elsewhere": (
        NESTED, (*EDGES, Edge("S", "A")), r"edge S -> A goes from the root scope into loop 'L'.*at its head only",
    ),
    "entering two loops at once": (
        NESTED, (*EDGES, Edge("S", "M")), r"edge S -> M goes from the root scope into loop 'L'.*at its head only",
    ),
    "a cycle through the outside": (
        (*NESTED, Operator("X")), (*EDGES, Edge("T", "X"), Edge("X", "T")), r"has a cycle T -> X -> T; a cycle belongs",
    ),
    "a loop round a loop": (NESTED, (*EDGES, Edge("T", "L")), r"has a cycle .*; a cycle belongs inside a loop scope"),
}  # fmt: skip


@pytest.mark.parametrize("case", BROKEN)
def test_laws_of_loops(case):
    """Each violation is one sentence that names operators and scopes."""
    operators, edges, words = BROKEN[case]
    with pytest.raises(DataflowError, match=words) as refused:
        Graph("broken", operators, edges)
    assert "\n" not in str(refused.value)


@given(loop_graphs())
def test_json_there_and_back(graph):
    """Loops, scopes and feedback edges are the same after a round trip."""
    assert graph_from_json(json.dumps(graph_to_json(graph))) == graph


@given(loop_graphs())
def test_contraction_leaves_no_cycle(graph):
    """An operator for each outermost loop, and an order of all of them."""
    flat = contracted(graph)
    assert len(flat.graph.order) == len(flat.graph.operators)
    assert {flat.node(name) for name in graph} == set(flat.graph)
    assert flat.expanded(flat.graph) == set(graph)


@pytest.mark.parametrize(("key", "value", "words"), [
    ("kind", "map", r"operator 'L': 'kind' is one of loop; got 'map'"),
    ("within", "L", r"operator 'L': 'within' is a list of names of loops; got 'L'"),
    ("within", [3], r"operator 'L': 'within' is a list of names of loops; got \[3\]"),
])  # fmt: skip
def test_json_says_what_is_wrong(key, value, words):
    """In keys of loops as in others."""
    given = graph_to_json(Graph("nested", NESTED, EDGES))
    given["operators"][1][key] = value
    with pytest.raises(DataflowError, match=words):
        graph_from_json(given)


def test_json_of_a_feedback_that_is_no_flag():
    """An edge's key."""
    given = graph_to_json(Graph("nested", NESTED, EDGES))
    given["edges"][4]["feedback"] = "yes"
    with pytest.raises(DataflowError, match=r"edge B -> M: 'feedback' is true or false; got 'yes'"):
        graph_from_json(given)


# ---- regions


@pytest.fixture
def flow() -> DataflowBuilder:
    """A loop between an aggregate and a sort, whose output bypasses the sort as well."""
    flow = DataflowBuilder("regions")
    sums = flow.source("S", rate(1)).map("A", same).aggregate("Sum", "k", {"n": "count(*)"})
    out = sums.iterate("L", lambda rows: rows.map("B", same).split("C", same))
    sorted_rows = out.sort("Sort", "k")
    sorted_rows.union("U", out.map("D", same)).sink("out", memory())
    return flow


def test_a_loop_is_in_one_region(flow):
    """It is cut off by blocking operators around it, never inside."""
    graph = flow.graph()
    first, second, third = regions(graph)
    assert set(first.own) == {"S", "A"}
    assert {"L", "B", "C"} <= set(second.own)
    assert set(third.own) == {"D", "U", "out"}
    assert [(one.source, one.to) for one in second.graph.edges if one.feedback] == [("C", "L")]
    assert second.inputs.keys() == {"Sum"}
    kept = {(one.source, one.to) for one in pipelined(graph).edges}
    assert ("C", "L") in kept
    assert ("Sum", "L") not in kept


def test_a_constraint_does_not_go_through_a_loop(flow):
    """Rows go round any number of times; in words, for operators and edges, also those that enter and leave."""
    graph = flow.graph()
    for sequence in (["B"], ["B", "C"], [edge("C", "D")], ["L"]):
        with pytest.raises(DataflowError, match=r"'[BCL]' is in loop 'L', which a row may go round any number"):
            constraint_of(graph, sequence, latency_ms=10)
    assert constraint_of(graph, ["D", "U"], latency_ms=10).path == ("D", "U")
    with pytest.raises(DataflowError, match="is in loop 'L'"):
        flow.constrain(["B"], 10)


# ---- chains and wiring


def test_chains_do_not_cross_the_boundary_of_a_loop():
    """Nor do they include a head; inside and outside they are as ever."""
    flow = DataflowBuilder("chains")
    rows = flow.source("S", rate(1)).map("A", same).map("A2", same)
    out = rows.iterate("L", lambda rows: (rows.map("B", same).map("B2", same), rows.map("C", same).map("C2", same)))
    out.map("D", same).map("D2", same).sink("out", memory())
    assert [chain for chain in chains(flow.graph()) if len(chain) > 1] == [
        ("A", "A2"), ("B", "B2"), ("C", "C2"), ("D", "D2"),
    ]  # fmt: skip


def test_needed_columns_round_a_loop():
    """Keys further on are found behind operators that keep columns, also round a loop of nothing but such."""
    flow = DataflowBuilder("keys")

    def body(rows):
        kept = rows.filter("F", same)
        return kept.filter("G", same), kept.filter("H", same)

    flow.source("S", rate(1)).iterate("L", body).dedup("X", on="k").sink("out", memory())
    topology = Topology.dealt(flow.graph(), hosts=1)
    assert wire(topology, ("G",), 0).needed == (({"k": "X"},),)
