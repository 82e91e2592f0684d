"""Planning against its definitions, on random small graphs of random operator types."""

from __future__ import annotations

from hypothesis import assume, example, given
from hypothesis import strategies as st
from planning_draws import changes, graphs
from planning_graphs import FIGURE_10, drawn
from planning_reference import (
    covering_by_definition,
    is_synchronised,
    members_by_target,
    printed_rule_2,
    rule_2,
)  # fmt: skip

from fries_nb.planning import cover, minimal_covering_subdag

TWO_GATES = drawn("Src > RE > O1 > X, RE > O2 > X", edgewise="RE", unique="O1 O2")
A_GATE_AND_A_WAY_ROUND = drawn("Src > RE > C > SJ > E, RE > D > SJ, D > F", edgewise="RE D", unique="SJ")


@given(graphs(), st.data())
def test_the_mcs_is_the_one_defined(graph, data):
    """Definition 5.4: members, and all that lies on a path between two; edges included. Over networkx as well."""
    members = data.draw(st.frozensets(st.sampled_from(sorted(graph.by_name)), min_size=1))
    for digraph in (graph, graph.digraph):
        covering = minimal_covering_subdag(digraph, members)
        assert (set(covering.nodes), set(covering.edges)) == covering_by_definition(graph, members)


@given(changes(), st.booleans())
def test_the_plan_is_algorithm_4_taken_literally(change, pruning):
    """One decision for each operator comes to the same as an ancestor set pruned for each target."""
    graph, targets = change
    covering = cover(graph, targets, pruning)
    operators, edges = covering_by_definition(graph, members_by_target(graph, targets, pruning))
    assert {name for part in covering.components for name in part.operators} == operators
    assert {edge for part in covering.components for edge in part.edges} == edges


@given(changes(), st.booleans())
@example((TWO_GATES, frozenset({"X"})), True)
@example((A_GATE_AND_A_WAY_ROUND, frozenset({"E", "F"})), True)
def test_the_plan_synchronises_every_possible_transaction(change, pruning):
    """Soundness: no transaction that the types allow has two target operations that markers leave unordered."""
    graph, targets = change
    parts = [part.operators for part in cover(graph, targets, pruning).components]
    assert is_synchronised(graph, targets, parts)


@given(changes())
def test_the_naive_verdict_is_exact(change):
    """Naive-safe exactly if single messages to the targets leave no possible transaction unordered."""
    graph, targets = change
    assert cover(graph, targets).naive_safe == is_synchronised(graph, targets, [{target} for target in targets])


@given(changes())
def test_nothing_is_kept_in_vain(change):
    """A plan that leaves out one kept operator, and what only it brought in, fails for some possible transaction."""
    graph, targets = change
    covering = cover(graph, targets)
    kept = {decision.operator for decision in covering.pruning if not decision.pruned}
    heads = {head for part in covering.components for head in part.heads}
    assume(kept & heads - targets)
    for name in sorted(kept & heads - targets):
        members = members_by_target(graph, targets) - {name}
        operators, _ = covering_by_definition(graph, members)
        assert not is_synchronised(graph, targets, [operators])


@given(changes())
def test_components_are_apart_and_complete(change):
    """Components share nothing, no edge joins two, each holds a target (lemma 5.6), heads are those nothing enters."""
    graph, targets = change
    covering = cover(graph, targets)
    part_of = {name: part for part in covering.components for name in part.operators}
    assert sum(len(part.operators) for part in covering.components) == len(part_of)
    assert frozenset().union(*(part.targets for part in covering.components)) == targets
    for edge in graph.edges:
        if edge.source in part_of and edge.to in part_of:
            assert part_of[edge.source] is part_of[edge.to]
    for part in covering.components:
        assert part.targets
        assert part.heads == part.operators - {to for _, to in part.edges}
    assert covering.longest_path == max(part.longest_path for part in covering.components)


def test_the_printed_rule_2_is_unsound():
    """It prunes RE in both graphs; the plan that follows leaves a possible transaction unordered. Ours does not."""
    assert printed_rule_2(TWO_GATES, "RE", "X")
    assert not rule_2(TWO_GATES, "RE", {"X"})
    assert not is_synchronised(TWO_GATES, {"X"}, [{"X"}])

    round_it = A_GATE_AND_A_WAY_ROUND
    assert printed_rule_2(round_it, "RE", "E")
    assert not is_synchronised(round_it, {"E", "F"}, [{"E"}, {"F"}])
    assert is_synchronised(round_it, {"E", "F"}, [part.operators for part in cover(round_it, {"E", "F"}).components])

    assert rule_2(FIGURE_10, "RE", {"E"})
    assert is_synchronised(FIGURE_10, {"E"}, [{"E"}])
