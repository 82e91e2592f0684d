"""Plans over loops: contracted to one operator each, against definitions by rounds and by closure, and by hand."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from loop_graphs import closure, copies_of, loop_changes, loops_as_operators, unrolled
from planning_reference import is_synchronised, members_by_target

from fries_nb.commands.plan import as_dict, in_words
from fries_nb.dataflow import DataflowBuilder, Emits, Graph, graph_from_json, graph_to_json, memory, rate
from fries_nb.dataflow.loops import contracted, loops_in
from fries_nb.planning import Prediction, cover
from fries_nb.planning.prediction import CriticalPath, Queue, ways
from fries_nb.planning.schedulers import SCHEDULERS, Plan, foretold, schedule
from fries_nb.report.plan_section import in_words as report_words


def same(row):
    """A function of a row."""
    return row


def payments(one_to_one: bool = False) -> Graph:
    """A check that goes round until decided, between two operators, with a loop inside of it."""
    flow = DataflowBuilder("payments")

    def inner(stream):
        return stream.map("Ask", same).split("Asked", same)

    def outer(stream):
        return stream.map("Check", same).iterate("Inner", inner).split("Decided", same)

    rows = flow.source("payments", rate(10)).map("FC", same)
    rows.iterate("Outer", outer, one_to_one=one_to_one).map("FM", same).sink("out", memory())
    return flow.graph()


LOOP = {"Outer", "Check", "Inner", "Ask", "Asked", "Decided"}


@pytest.mark.parametrize(("change", "operators", "heads"), [
    ("Ask", LOOP, {"Outer"}),
    ("Check", LOOP, {"Outer"}),
    ("Check Ask", LOOP, {"Outer"}),
    ("FC", {"FC"}, {"FC"}),
    ("FM", {*LOOP, "FM"}, {"Outer"}),
    ("FC Ask", {"FC", *LOOP}, {"FC"}),
    ("FC FM", {"FC", *LOOP, "FM"}, {"FC"}),
])  # fmt: skip
def test_a_component_has_a_whole_loop_or_nothing_of_it(change, operators, heads):
    """The outermost loop, with its inner ones; behind it a tuple may arrive as several, so the loop is kept."""
    covering = cover(payments(), change.split())
    [part] = covering.components
    assert (part.operators, part.heads, part.targets) == (operators, heads, set(change.split()))
    assert covering.loops == part.loops == (("Outer",) if operators >= LOOP else ())
    assert covering.naive_safe is (change == "FC")


def test_one_to_one_loops_need_no_synchronisation_behind_them():
    """One row leaves for each that enters, so a change behind the loop is one message."""
    graph = payments(one_to_one=True)
    covering = cover(graph, ["FM"])
    assert [part.operators for part in covering.components] == [{"FM"}]
    assert covering.naive_safe
    assert [part.operators for part in cover(graph, ["Ask"]).components] == [LOOP]


def test_one_to_one_with_two_consumers():
    """What leaves is copied, so two targets on different copies begin at the loop, and one does not."""
    flow = DataflowBuilder("copies")
    out = flow.source("S", rate(1)).iterate("L", lambda stream: stream.split("B", same), one_to_one=True)
    for name in ("X", "Y"):
        out.map(name, same).sink(f"out {name}", memory())
    graph = flow.graph()
    assert graph.operator("Replicate(B[1])").within.loops == ("L",)
    assert [part.operators for part in cover(graph, ["X"]).components] == [{"X"}]
    [part] = cover(graph, ["X", "Y"]).components
    assert (part.heads, part.loops) == ({"L"}, ("L",))


def test_loops_in_sequence_are_apart():
    """A change in one of them leaves the other one alone, unless it lies between targets."""
    flow = DataflowBuilder("sequence")
    stream = flow.source("S", rate(1))
    for name in ("1", "2", "3"):
        stream = stream.iterate(f"L{name}", lambda rows, n=name: rows.split(f"B{n}", same), one_to_one=True)
    stream.sink("out", memory())
    assert cover(flow.graph(), ["B2"]).loops == ("L2",)
    assert cover(flow.graph(), ["B1", "B3"]).loops == ("L1", "L2", "L3")


def test_edges_and_longest_path():
    """Markers travel along feedback edges as well; the longest path is one without them."""
    [part] = cover(payments(), ["Ask"]).components
    assert ("Asked", "Inner") in part.edges
    assert ("Decided", "Outer") in part.edges
    assert part.longest_path == 5


@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_every_scheduler_plans(scheduler):
    """Schedulers see the graph as it is; Fries asks the heads, and all scopes hold whole loops or single operators."""
    graph = payments()
    plan = schedule(scheduler, graph, ["Ask", "Check"])
    for send in (send for stage in plan.stages for send in stage.sends):
        assert loops_in(graph, send.scope) == ("Outer",) or len(send.scope) == 1
    if scheduler == "fries":
        assert [(send.operator, send.scope) for send in plan.stages[0].sends] == [("Outer", LOOP)]


# ---- words, predictions, JSON


def test_the_plan_names_the_loops():
    """In the report, on the command line, and as JSON."""
    graph = payments()
    plan = schedule("fries", graph, ["Ask"])
    assert "; loop Outer has to be empty first, and no row enters until then." in report_words(graph, plan)[0]
    shown = as_dict(graph, cover(graph, ["Ask"]))
    assert shown["components"][0]["loops"] == ["Outer"]
    assert "  loops: Outer; they have to be empty when the operators switch" in in_words(shown)


def test_no_delay_is_predicted_through_a_loop():
    """It has to be empty first, which no measurement foretells; nor for epoch markers through one."""
    graph = payments()
    queues = {name: Queue(10, 100.0) for name in graph}
    plan = schedule("fries", graph, ["Ask"])
    [path] = ways(graph, {plan.scope: {"Outer"}}, plan.targets, queues)
    assert path == CriticalPath((), None, loops=("Outer",))
    [path] = ways(graph, {frozenset(graph): {"payments"}}, {"FM"}, queues)
    assert path.loops == ("Outer",)
    [path] = ways(graph, {frozenset(graph): {"payments"}}, {"FC"}, queues)
    assert path.delay_ms == pytest.approx(100.0)
    assert foretold(_foreseen(plan, graph, queues)) == [
        "predicted delay unknown, since loop Outer has to be empty first"
    ]


def _foreseen(plan: Plan, graph: Graph, queues: dict[str, Queue]) -> Plan:
    return replace(plan, prediction=Prediction(ways(graph, {plan.scope: {"Outer"}}, plan.targets, queues), None))


def test_json_keeps_the_plan():
    """Loops survive the way through text, and so do plans."""
    graph = payments()
    read = graph_from_json(json.dumps(graph_to_json(graph)))
    assert graph_to_json(read) == graph_to_json(graph)
    for target in ("FC", "Ask", "FM"):
        assert cover(read, [target]) == cover(graph, [target])


# ---- against definitions


@given(loop_changes())
def test_contracted_plans_are_plans_of_the_contracted_graph(change):
    """Algorithm 4 taken literally, over networkx's own quotient; then whole loops, and what lies between."""
    graph, targets = change
    shown, stands = loops_as_operators(graph)
    members = members_by_target(shown, {stands[name] for name in targets})
    kept = {decision.operator for decision in cover(graph, targets).pruning if not decision.pruned}
    found = {name for part in cover(graph, targets).components for name in part.operators}
    assert found == closure(graph, members) == closure(graph, targets | kept)


@given(loop_changes(most=4))
def test_rounds_are_synchronised(change):
    """Soundness: with loops unrolled, no transaction has two target operations that markers leave unordered."""
    graph, targets = change
    _refuse_unsound(graph, targets)


def _refuse_unsound(graph: Graph, targets: frozenset[str]) -> None:
    flat, originals = unrolled(graph)
    covering = cover(graph, targets)
    [copied] = copies_of([targets], originals)
    assert is_synchronised(flat, copied, copies_of([part.operators for part in covering.components], originals))
    if covering.naive_safe:
        assert is_synchronised(flat, copied, copies_of([{target} for target in targets], originals))


@given(loop_changes())
def test_components_are_closed(change):
    """Disjoint, with no edge from one to another; heads have no forward in-edge inside; a loop is whole or absent."""
    graph, targets = change
    parts = cover(graph, targets).components
    part_of = {name: part for part in parts for name in part.operators}
    assert sum(len(part.operators) for part in parts) == len(part_of)
    for edge in graph.edges:
        ends = part_of.get(edge.source), part_of.get(edge.to)
        assert ends[0] == ends[1] or None in ends
    for part in parts:
        inside = [edge for edge in graph.edges if {edge.source, edge.to} <= part.operators]
        assert part.heads == part.operators - {edge.to for edge in inside if not edge.feedback}
        assert set(part.edges) == {(edge.source, edge.to) for edge in inside}
        assert part.loops == loops_in(graph, part.operators)


# ---- sabotage


def _one_to_one(contraction):
    """Loops are taken for one-to-one."""
    graph = contraction.graph
    operators = (replace(one, emits=Emits.ONE_TO_ONE) if one.within.level else one for one in graph.operators)
    return replace(contraction, graph=Graph(graph.name, tuple(operators), graph.edges))


def _head_only(contraction):
    """A loop stands for its head alone."""
    return replace(contraction, members={loop: members[:1] for loop, members in contraction.members.items()})


def _no_loops(contraction):
    """A component does not know that it holds a loop."""
    return replace(contraction, members={})


@pytest.mark.parametrize(("mutant", "change"), [(_one_to_one, "Copies"), (_head_only, "B"), (_no_loops, "B")])
def test_mutants_are_noticed(monkeypatch, mutant, change):
    """Each of these plans is refused by the definition by rounds."""
    flow = DataflowBuilder("mutants")

    def body(stream):
        return stream.map("B", same).flat_map("Many", lambda row: [row, row]).split("D", same)

    flow.source("S", rate(1)).iterate("L", body).map("Copies", same).sink("out", memory())
    graph = flow.graph()
    _refuse_unsound(graph, frozenset({change}))
    monkeypatch.setattr("fries_nb.planning.covering.contracted", lambda given: mutant(contracted(given)))
    with pytest.raises(AssertionError):
        _refuse_unsound(graph, frozenset({change}))
