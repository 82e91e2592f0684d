"""Declaring latency constraints: the sequence that results, and mistakes refused by the call that makes them."""

from __future__ import annotations

from math import inf, nan

import pytest

import fries_nb as fn
from fries_nb.dataflow import DataflowBuilder, Graph, LatencyConstraint, OnViolation, memory, rate
from fries_nb.dataflow.constraints import EdgeElement, check_agreement, constraint_of
from fries_nb.errors import DataflowError


def same(row):
    """A function of a row."""
    return row


@pytest.fixture
def flow() -> DataflowBuilder:
    """Payments through FC, FM and MC to a sink."""
    flow = DataflowBuilder("fraud")
    fc = flow.source("payments", rate(1_000)).map("FC", same, key="c")
    fc.map("FM", same, key="t").map("MC", same).sink("scored", memory())
    return flow


@pytest.fixture
def graph(flow) -> Graph:
    """The same as a graph."""
    return flow.graph()


E = fn.edge


@pytest.mark.parametrize(
    ("sequence", "text"),
    [
        (["FC"], "FC"),
        (["FC", "FM"], "FC -> FM"),
        (("FC", E("FC", "FM"), "FM"), "FC -> FM"),
        (["FC", E("FM", "MC")], "FC -> FM -> (MC)"),
        ([E("FC", "FM")], "(FC) -> (FM)"),
        ([E("FC", "FM"), E("FM", "MC")], "(FC) -> FM -> (MC)"),
        ([E("FC", "FM"), "FM"], "(FC) -> FM"),
        ([E("FC", "FM"), "MC"], "(FC) -> FM -> MC"),
        (["FM", E("FM", "MC")], "FM -> (MC)"),
        (["payments", "FC"], "(payments) -> FC"),
        ([E("payments", "FC"), "FC"], "(payments) -> FC"),
        (["payments", "FC", "FM", "MC", "scored"], "(payments) -> FC -> FM -> MC -> (scored)"),
        (["MC", "scored"], "MC -> (scored)"),
    ],
)
def test_a_sequence_is_normalised(graph, sequence, text):
    """Edges between neighbours are implied; the outer end of an edge, a source and a sink do not count."""
    constraint = constraint_of(graph, sequence, 300)
    assert constraint.sequence == text
    assert len(constraint.edges) == len(constraint.path) - 1
    assert constraint.elements == tuple(
        element
        for index, name in enumerate(constraint.path)
        for element in (
            *([EdgeElement(constraint.path[index - 1], name)] if index else []),
            *([name] if name in constraint.tasks else []),
        )
    )
    assert constraint_of(graph, constraint.elements, 300) == constraint, "the normal form is not stable"


def test_the_defaults(graph):
    """Fifteen seconds, and violations are told."""
    constraint = constraint_of(graph, ["FC"], 300)
    assert constraint == LatencyConstraint(("FC",), 300.0, 15.0, OnViolation.TELL)
    assert constraint_of(graph, ["FC"], 300, 1, "apply").on_violation == "apply"


@pytest.mark.parametrize(
    ("sequence", "expected"),
    [
        ([], "the sequence is empty"),
        ("FC", "a sequence is a list"),
        (E("FC", "FM"), r"expected \[fn.edge"),
        (7, "a sequence is a list"),
        (["FC", 7], "got 7 among them"),
        (["FC", "FN"], "no operator 'FN'; expected one of .*; did you mean 'FM'"),
        ([E("FX", "FC")], "no operator 'FX'"),
        (["FC", "MC"], r"no edge FC -> MC; FC is followed by FM; did you mean \['FC', 'FM', 'MC'\]"),
        (["FM", "FC"], "FM is downstream of FC: was the order meant to be reversed"),
        (["FC", "FC"], "'FC' follows itself"),
        ([E("FC", "MC")], "no edge FC -> MC"),
        (["payments"], r"'payments' is a source, which has no latency of its own; .* fn.edge\('payments', 'FC'\)"),
        (["scored"], r"'scored' is a sink, which has no latency of its own; .* fn.edge\('MC', 'scored'\)"),
    ],
)
def test_what_is_no_sequence_is_refused(graph, sequence, expected):
    """With what was got, what is expected, and the likely mistake."""
    with pytest.raises(DataflowError, match=expected):
        constraint_of(graph, sequence, 300)


def test_operators_that_no_path_connects(flow):
    """Neither way."""
    flow.source("other", rate(1)).map("A", same)
    with pytest.raises(DataflowError, match="no edge FC -> A; FC is followed by FM, and no path leads there"):
        flow.constrain(["FC", "A"], 300)


@pytest.mark.parametrize("given", [0, -1, -0.0, inf, -inf, nan, True, None, "300"])
@pytest.mark.parametrize("argument", ["latency_ms", "window_s"])
def test_a_limit_is_a_finite_number_above_zero(graph, argument, given):
    """So is a window."""
    with pytest.raises(DataflowError, match=rf"{argument}=.*: expected (milli)?seconds, a finite number more than 0"):
        constraint_of(graph, ["FC"], **{"latency_ms": 300, argument: given})


@pytest.mark.parametrize(("given", "hint"), [("aply", "did you mean 'apply'"), ("no", ""), (None, ""), (["tell"], "")])
def test_an_unknown_policy_is_refused(graph, given, hint):
    """With the three that there are."""
    with pytest.raises(DataflowError, match=rf"expected one of tell, propose, apply.*{hint}"):
        constraint_of(graph, ["FC"], 300, on_violation=given)


@pytest.mark.parametrize("ends", [("a", ""), ("", "b"), (None, "b"), (fn, "b")])
def test_an_edge_has_two_names(ends):
    """Not modules, and not streams."""
    with pytest.raises(DataflowError, match="expected the names of two operators"):
        fn.edge(*ends)


def test_no_sequence_leads_through_a_blocking_operator(flow):
    """Nor along rows that are kept between regions."""
    total = flow.stream("MC").aggregate("Sum", "c", {"x": "sum(x)"})
    total.map("L", same).union("U", flow.stream("FC")).sink("late", memory())
    for sequence in (["MC", "Sum"], ["Sum", "L"], ["Sum"]):
        with pytest.raises(DataflowError, match="'Sum' is blocking"):
            flow.constrain(sequence, 300)
    with pytest.raises(DataflowError, match=r"rows of Replicate\(FC\) -> U are kept between two regions"):
        flow.constrain(["FC", "Replicate(FC)", "U"], 300)
    assert flow.constrain(["L", "U"], 300).path == ("L", "U")


def test_a_flow_keeps_its_constraints(flow):
    """In order; one that is declared again, as by a cell that is run twice, is one."""
    first = flow.constrain(["FC", "FM"], latency_ms=300)
    light = fn.lighter({"FM": same})
    second = flow.constrain([fn.edge("FC", "FM"), "FM"], 200, window_s=5, on_violation="apply", lighter=light)
    assert flow.constrain(["FC", fn.edge("FC", "FM"), "FM"], 300) == first
    assert flow.constraints() == (first, second)


def test_a_refused_constraint_is_not_kept(flow):
    """The flow is as before."""
    flow.constrain(["FC"], 300)
    with pytest.raises(DataflowError):
        flow.constrain(["FC"], 400)
    with pytest.raises(DataflowError):
        flow.constrain(["later"], 400)
    assert [str(constraint) for constraint in flow.constraints()] == ["FC: at most 300 ms over 15 s"]


def test_operators_that_come_later_may_lengthen_a_path(flow):
    """A second consumer puts a Replicate between; a user does not see it and need not name it."""
    assert flow.constrain(["FC", "FM"], 300).path == ("FC", "FM")
    flow.stream("FC").map("B", same).sink("b", memory())
    (constraint,) = flow.constraints()
    assert constraint.path == ("FC", "Replicate(FC)", "FM")
    assert constraint.tasks == constraint.path
    assert flow.constrain(["FC", "Replicate(FC)", "FM"], 300) == constraint
    assert len(flow.constraints()) == 1


def test_an_operator_without_a_consumer_yet_is_no_sink(flow):
    """Its latency counts, since it will have one."""
    flow.stream("FC").map("B", same)
    assert flow.constrain(["B"], 300).tasks == ("B",)


def declared(sequence: str, latency: float = 300, window: float = 15, policy: str = "tell") -> LatencyConstraint:
    """A constraint on operators called by single letters; a parenthesis leaves an end out."""
    path = tuple(sequence.strip("()"))
    return LatencyConstraint(
        path, latency, window, OnViolation(policy), sequence.startswith("("), sequence.endswith(")")
    )


@pytest.mark.parametrize(
    ("others", "differing"),
    [
        ([declared("ab", 400)], "latency_ms=300 and latency_ms=400"),
        ([declared("bc"), declared("ab", window=5)], "window_s=15 and window_s=5"),
        ([declared("ab", policy="apply")], "on_violation=tell and on_violation=apply"),
    ],
)
def test_two_constraints_on_one_sequence_contradict(others, differing):
    """Whatever they differ in; both are named."""
    with pytest.raises(DataflowError, match=f"two constraints on a -> b contradict: {differing}"):
        check_agreement([declared("ab"), *others])


def test_upper_limits_on_different_sequences_never_contradict():
    """A part may have a larger limit than the whole, or a smaller one; parts may overlap."""
    agreeing = [
        declared("abc"), declared("ab", 400), declared("bc", 1), declared("(ab"), declared("ab)", 7),
        declared("a", 299), declared("(ab)"),
    ]  # fmt: skip
    assert check_agreement([*agreeing, agreeing[2]]) == tuple(agreeing)
