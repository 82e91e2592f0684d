"""Graphs as values and as JSON: what is refused, and that nothing is lost on the way there and back."""

from __future__ import annotations

import copy
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fries_nb.dataflow import (
    Edge,
    Emits,
    Graph,
    Operator,
    Partitioning,
    check_runnable,
    graph_from_json,
    graph_to_json,
)  # fmt: skip
from fries_nb.errors import DataflowError

GOOD = {
    "name": "f",
    "operators": [{"name": "S"}, {"name": "A", "emits": "one_to_many", "workers": 3}, {"name": "B", "blocking": True}],
    "edges": [{"from": "S", "to": "A", "partitioning": "hash"}, {"from": "A", "to": "B"}],
}


def test_defaults():
    """All keys but names may be left out."""
    graph = graph_from_json(json.dumps(GOOD))
    assert graph.operators == (
        Operator("S"), Operator("A", Emits.ONE_TO_MANY, workers=3), Operator("B", blocking=True),
    )  # fmt: skip
    assert graph.edges == (Edge("S", "A", Partitioning.HASH), Edge("A", "B"))


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """Any names, types and edges forward."""
    names = draw(st.lists(st.text(min_size=1), min_size=1, max_size=5, unique=True))
    operators = tuple(
        Operator(
            name, draw(st.sampled_from(Emits)), draw(st.booleans()), draw(st.booleans()), draw(st.booleans()),
            draw(st.integers(1, 10**6)),
        )
        for name in names
    )  # fmt: skip
    pairs = [(tail, head) for place, tail in enumerate(names) for head in names[place + 1 :]]
    chosen = draw(st.lists(st.sampled_from(pairs), unique=True)) if pairs else []
    edges = tuple(Edge(*pair, draw(st.sampled_from(Partitioning))) for pair in chosen)
    return Graph(draw(st.text(min_size=1)), operators, edges)


@given(graphs())
def test_there_and_back(graph):
    """A graph without functions is the same after a round trip through text; the dict is not touched."""
    as_dict = graph_to_json(graph)
    kept = copy.deepcopy(as_dict)
    assert graph_from_json(json.dumps(as_dict)) == graph == graph_from_json(as_dict)
    assert as_dict == kept


def changed(*path, to):
    """The good graph with one value replaced, or added."""
    given = copy.deepcopy(GOOD)
    place = given
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = to
    return given


def without(*path):
    """The good graph with one value removed."""
    given = copy.deepcopy(GOOD)
    place = given
    for step in path[:-1]:
        place = place[step]
    del place[path[-1]]
    return given


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("{", "not JSON"),
        ("", "not JSON"),
        (b"\xff\xfe{", "not JSON"),
        ("[" * 100_000, "nested too deeply"),
        ("[]", r"a dataflow is a JSON object; got \[\]"),
        ("null", "got null"),
        (without("name"), "the dataflow: 'name' is a name, a non-empty string; got none"),
        (changed("name", to=3), "got 3"),
        (without("operators"), "'operators' is a list of objects; got null"),
        (changed("operators", to={}), "'operators' is a list of objects"),
        (changed("operators", to=[]), "has no operators; expected at least one"),
        (without("edges"), "'edges' is a list of objects; got null"),
        (changed("operator", to=[]), "has a key 'operator'.*did you mean 'operators'"),
        (changed("operators", 0, to="S"), "operator number 1 is a JSON object; got 'S'"),
        (without("operators", 0, "name"), "operator number 1: 'name'"),
        (changed("operators", 0, "name", to=""), "operator number 1: 'name'"),
        (changed("operators", 0, "emit", to="x"), "operator 'S' has a key 'emit'.*did you mean 'emits'"),
        (changed("operators", 0, "emits", to="one_to_manny"), "one_to_one, one_to_many; got .*mean 'one_to_many'"),
        (changed("operators", 0, "emits", to=None), "'emits' is one of one_to_one, one_to_many; got null"),
        (changed("operators", 0, "emits", to=["x"]), "'emits' is one of"),
        (changed("operators", 0, "blocking", to=1), "operator 'S': 'blocking' is true or false; got 1"),
        (changed("operators", 0, "edgewise_one_to_one", to="true"), "is true or false; got 'true'"),
        (changed("operators", 0, "unique_per_transaction", to=None), "is true or false; got null"),
        (changed("operators", 0, "workers", to=0), "workers=0; expected 1 or more"),
        (changed("operators", 0, "workers", to="2"), "workers='2'; expected 1 or more"),
        (changed("operators", 0, "workers", to=True), "workers=True; expected 1 or more"),
        (changed("operators", 0, "workers", to=1.0), "workers=1.0; expected 1 or more"),
        (changed("operators", 1, "name", to="S"), "two operators are named 'S'"),
        (changed("edges", 0, to=["S", "A"]), "edge number 1 is a JSON object"),
        (without("edges", 1, "from"), "edge number 2: 'from'"),
        (changed("edges", 0, "to", to="AA"), "edge S -> AA: no operator 'AA'; .*did you mean 'A'"),
        (changed("edges", 0, "partitioning", to="hashed"), "edge S -> A: 'partitioning' is .*did you mean 'hash'"),
        (changed("edges", 0, "key", to="K"), "edge number 1 has a key 'key'"),
        (changed("edges", 1, to={"from": "S", "to": "A"}), "two edges S -> A; put an operator on one of them"),
        (changed("edges", 1, to={"from": "A", "to": "S"}), "has a cycle .*a cycle belongs inside a loop scope"),
        (changed("edges", 1, to={"from": "A", "to": "A"}), "has a cycle A -> A"),
    ],
)
def test_bad_files_are_refused(given, said):
    """Each with the place, what was got, and what was expected."""
    with pytest.raises(DataflowError, match=said) as refused:
        graph_from_json(given)
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 400


def test_a_cycle_is_named():
    """The operators on it, in their order, and none beside."""
    operators = tuple(map(Operator, "SABC"))
    edges = tuple(Edge(*pair) for pair in ("SA", "AB", "BC", "CA"))
    with pytest.raises(DataflowError, match=r"has a cycle (A -> B -> C -> A|B -> C -> A -> B|C -> A -> B -> C);"):
        Graph("f", operators, edges)


def test_a_graph_from_json_does_not_run():
    """It has no functions."""
    with pytest.raises(DataflowError, match="has no source"):
        check_runnable(graph_from_json(GOOD))


def test_order_puts_each_operator_behind_what_feeds_it():
    """And keeps all of them."""
    graph = graph_from_json(GOOD)
    assert graph.order == ("S", "A", "B")
    assert (list(graph), "A" in graph, "X" in graph) == (["S", "A", "B"], True, False)
    assert (graph.successors("S"), graph.predecessors("B")) == (["A"], ["A"])
