"""The worked cases: components, heads, longest paths and pruning of the paper's own workflows and figures."""

from __future__ import annotations

import pytest
from planning_graphs import (
    FIGURE_7,
    FIGURE_8,
    FIGURE_8_LATE,
    FIGURE_9_I,
    FIGURE_9_II,
    FIGURE_9_III,
    FIGURE_10,
    W1,
    W2,
    W3,
    W4,
    W5,
    drawn,
)  # fmt: skip

from fries_nb.dataflow import Graph
from fries_nb.errors import PlanError
from fries_nb.planning import Rule, cover

ALL_OF_W5 = "RE FD3 S1 F3 F4 FD4 SJ E1"


def parts(graph: Graph, change: str, pruning: bool = True) -> list[tuple[set[str], set[str]]]:
    """Operators and heads of each component."""
    covering = cover(graph, change.split(), pruning)
    return [(set(part.operators), set(part.heads)) for part in covering.components]


@pytest.mark.parametrize(
    ("graph", "change", "components", "heads", "longest"),
    [
        (W1, "FD", ["FD"], ["FD"], 0),
        (W2, "J1", ["J1"], ["J1"], 0),
        (W2, "J2", ["J2"], ["J2"], 0),
        (W2, "J1 J3", ["J1 J2 J3"], ["J1"], 2),
        (W2, "J1 J4", ["J1 J2 J3 J4"], ["J1"], 3),
        (W2, "J3 J4", ["J3 J4"], ["J3"], 1),
        (W3, "J5", ["J5"], ["J5"], 0),
        (W3, "J5 J6", ["J5", "J6"], ["J5", "J6"], 0),
        (W3, "J5 J6 J7 J8", ["J5 J6 J7 U1 J8"], ["J5 J6 J7"], 2),
        (W3, "J5 J6 J7 J9", ["J5 J6 J7 U1 J8 J9"], ["J5 J6 J7"], 3),
        (W3, "J7 J8 J9", ["J7 U1 J8 J9"], ["J7"], 3),
        (W4, "F1 U2", ["F1 U2"], ["F1"], 1),
        (W4, "FD1", ["U2 FD1"], ["U2"], 1),
        (W4, "F2", ["U2 FD1 FD2 F2"], ["U2"], 2),
        (FIGURE_7, "C F G", ["C D E F", "G"], ["C", "G"], 2),
        (FIGURE_8, "FMX", ["J SP FMX"], ["J"], 2),
        (FIGURE_8_LATE, "U", ["FMX FMY U"], ["FMX FMY"], 1),
        (FIGURE_9_I, "E", ["E"], ["E"], 0),
        (FIGURE_9_II, "E F", ["RE C D E F"], ["RE"], 2),
        (FIGURE_9_III, "X", ["RE C D X"], ["RE"], 2),
        (FIGURE_10, "E", ["E"], ["E"], 0),
        (W5, "FD4", ["FD4"], ["FD4"], 0),
        (W5, "F3", ["F3"], ["F3"], 0),
        (W5, "F4", ["F4"], ["F4"], 0),
        (W5, "FD3 FD4", ["RE FD3 F4 FD4"], ["RE"], 2),
        (W5, "E1", ["E1"], ["E1"], 0),
        (W5, "F3 E1", [ALL_OF_W5], ["RE"], 5),
        (W5, "SJ", ["RE FD3 S1 F3 F4 FD4 SJ"], ["RE"], 4),
    ],
)  # fmt: skip
def test_the_papers_workflows_with_pruning(graph, change, components, heads, longest):
    """Tables 4 to 6 and figures 7 to 10: the components, their heads and the longest path."""
    found = parts(graph, change)
    assert sorted(found, key=str) == sorted(
        [(set(part.split()), set(head.split())) for part, head in zip(components, heads, strict=True)], key=str
    )
    assert cover(graph, change.split()).longest_path == longest


@pytest.mark.parametrize(
    ("graph", "change", "component"),
    [
        (W5, "FD4", "RE F4 FD4"),
        (W5, "F3", "RE FD3 S1 F3"),
        (W5, "F4", "RE F4"),
        (W5, "FD3 FD4", "RE FD3 F4 FD4"),
        (W5, "E1", ALL_OF_W5),
        (W5, "F3 E1", ALL_OF_W5),
        (W5, "SJ", "RE FD3 S1 F3 F4 FD4 SJ"),
        (FIGURE_9_I, "E", "RE C E"),
        (FIGURE_10, "E", "RE C D SJ E"),
    ],
)
def test_the_papers_workflows_without_pruning(graph, change, component):
    """Table 6, second column, and figures 9 and 10: markers start at the Replicate."""
    assert parts(graph, change, pruning=False) == [(set(component.split()), {"RE"})]


def test_e1_unpruned_has_eight_edges():
    """Section 8.9: pruning takes the edges of the MCS of E1 from eight to none."""
    [unpruned] = cover(W5, ["E1"], pruning=False).components
    [pruned] = cover(W5, ["E1"]).components
    assert (len(unpruned.edges), len(pruned.edges)) == (8, 0)


def test_targets_and_edges_belong_to_their_component():
    """A component has the targets and the edges inside it, and no other."""
    first, second = sorted(cover(FIGURE_7, ["C", "F", "G"]).components, key=lambda part: min(part.operators))
    assert (first.targets, second.targets) == ({"C", "F"}, {"G"})
    assert set(first.edges) == {("C", "D"), ("C", "E"), ("D", "F"), ("E", "F")}
    assert second.edges == ()


@pytest.mark.parametrize(
    ("graph", "change", "pruned", "rule", "witness"),
    [
        (W5, "FD4", True, Rule.EDGEWISE, ("F4",)),
        (W5, "E1", True, Rule.UNIQUENESS, ("SJ",)),
        (W5, "F3 E1", False, Rule.SEVERAL_EDGES, ("FD3", "F4")),
        (W5, "SJ", False, Rule.SEVERAL_EDGES, ("FD3", "F4")),
        (FIGURE_9_I, "E", True, Rule.EDGEWISE, ("C",)),
        (FIGURE_9_II, "E F", False, Rule.SEVERAL_EDGES, ("C", "D")),
        (FIGURE_8, "FMX", False, Rule.SEVERAL_TUPLES, ("SP",)),
    ],
)
def test_each_decision_names_its_rule_and_witness(graph, change, pruned, rule, witness):
    """What was pruned or kept comes with the rule, and with operators that show why."""
    [decision] = cover(graph, change.split()).pruning
    assert (decision.pruned, decision.rule, decision.witness) == (pruned, rule, witness)
    assert all(name in decision.reason for name in (*witness, rule, decision.operator))


def test_without_pruning_decisions_say_so():
    """Every one-to-many ancestor is reported as kept because pruning is off."""
    [decision] = cover(W5, ["E1"], pruning=False).pruning
    assert (decision.operator, decision.pruned, decision.rule) == ("RE", False, Rule.OFF)


def test_a_unique_operator_on_each_way_is_not_enough():
    """Rule 2 as printed ("on each path some unique operator") would prune RE here, and X would meet two tuples."""
    graph = drawn("Src > RE > O1 > X, RE > O2 > X", edgewise="RE", unique="O1 O2")
    assert parts(graph, "X") == [({"RE", "O1", "O2", "X"}, {"RE"})]


def test_a_unique_operator_must_lie_before_every_target_below():
    """Rule 2 as printed looks at one target at a time and would start at SJ's; C is met by another tuple."""
    assert parts(FIGURE_10, "C E") == [({"RE", "C", "D", "SJ", "E"}, {"RE"})]


def test_a_unique_target_is_no_gate():
    """The unique operator must lie strictly before the targets: SJ itself meets both copies."""
    assert parts(FIGURE_10, "SJ") == [({"RE", "C", "D", "SJ"}, {"RE"})]


def test_a_broadcast_edge_is_a_replicate_with_several_tuples_on_one_edge():
    """Fries, section 7.2; edge-wise pruning does not apply, a unique operator behind its head does."""
    assert parts(drawn("Src > A > B > C", broadcast="A>B"), "C") == [({"A", "B", "C"}, {"A"})]
    assert parts(drawn("Src > A > B > C, A > D", broadcast="A>B"), "D") == [({"D"}, {"D"})]
    assert parts(drawn("Src > A > B > U > C", broadcast="A>B", unique="U"), "C") == [({"C"}, {"C"})]


def test_broadcast_edges_of_a_one_to_one_operator_are_judged_each_by_itself():
    """A tuple takes one of them, so a unique operator behind each suffices; a Replicate needs one behind all."""
    ways = "Src > A > B > U > X, A > C > V > X"
    graph = drawn(ways, broadcast="A>B A>C", unique="U V")
    [decision] = cover(graph, ["X"]).pruning
    assert (decision.pruned, decision.witness) == (True, ("U", "V"))
    assert decision.reason.endswith("U and V let one tuple of a transaction pass, and lie before every target below A")
    assert not cover(graph, ["B"]).naive_safe
    assert not cover(drawn(ways, edgewise="A", broadcast="A>B A>C", unique="U V"), ["X"]).naive_safe


def test_a_unique_operator_that_each_of_several_workers_is_passes_several_tuples():
    """Fed by broadcast, each worker has its own tuple of the transaction; behind it, one operator has both."""
    assert parts(drawn("S > A > D > T", broadcast="A>D", unique="D"), "T") == [({"A", "D", "T"}, {"A"})]
    assert parts(drawn("S > A > B > D > T", broadcast="A>B", unique="D"), "T") == [({"T"}, {"T"})]


def test_hash_fan_out_is_not_one_to_many():
    """Rules work on logical edges: the workers behind a hash edge do not multiply tuples."""
    assert [part.operators for part in cover(W2, ["J1"]).components] == [{"J1"}]


@pytest.mark.parametrize(
    ("graph", "change", "safe"),
    [
        (W1, "FD", True),
        (W2, "J1 J2", False),
        (W2, "J1 J4", False),
        (W3, "J5 J6", True),
        (W4, "FD1", False),
        (W5, "FD4", True),
        (W5, "FD3 FD4", False),
        (FIGURE_9_III, "X", False),
        (drawn("A > X > C, X > D"), "C D", True),
    ],
)
def test_naive_safe(graph, change, safe):
    """Sections 4.2 and 5.1 (figures 2 and 6): safe where no transaction can meet two target operations."""
    assert cover(graph, change.split()).naive_safe is safe
    assert cover(graph, change.split(), pruning=False).naive_safe is safe


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (["FDD"], "no operator 'FDD'; expected one of Src, FD, Sink; did you mean 'FD'"),
        ([], "the change is empty"),
        (["Src"], "'Src' is a source"),
        ("FD", "got the string 'FD'; expected \\['FD'\\]"),
    ],
)
def test_changes_that_cannot_be_planned_are_refused(change, said):
    """Unknown operator, empty change, change of a source."""
    with pytest.raises(PlanError, match=said):
        cover(W1, change)
