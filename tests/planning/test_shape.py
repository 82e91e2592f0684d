"""The plan of a change of the shape: cases with answers, and what it promises over thousands of drawn changes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Set
from random import Random
from typing import Any

import pytest
from planning_reference import is_synchronised

import fries_nb as fn
from fries_nb.dataflow import Edge, Emits, Graph, Operator, Partitioning
from fries_nb.dataflow.graph import union_of
from fries_nb.errors import PlanError
from fries_nb.planning import covering
from fries_nb.planning.covering import components, covered
from fries_nb.planning.difference import Difference
from fries_nb.planning.schedulers import StageAction
from fries_nb.planning.shape import refuse_unsupported, shape_plan

CHANGES = 3_000


def drawn(edges: set[tuple[str, str]], both: set[tuple[str, str]]) -> Graph:
    """A graph whose operators are of the kind that their first letter says, with those edges.

    ``L`` and what has several out-edges in one of both replicates; ``m`` emits several rows, ``b`` broadcasts, ``d``
    and ``j`` pass one row of a transaction, ``p`` sends each row to one of its receivers.
    """
    names = sorted({name for ends in edges for name in ends})
    operators = []
    for name in names:
        several = sum(a == name for a, _ in both) > 1 and name[0] not in "pmb"
        many = several or name[0] == "m"
        operators.append(
            Operator(
                name,
                Emits.ONE_TO_MANY if many else Emits.ONE_TO_ONE,
                edgewise_one_to_one=several,
                unique_per_transaction=name[0] in "dj",
                branches=2 if name[0] == "p" else 1,
            )
        )
    parts = {"b": Partitioning.BROADCAST}
    drawn_edges = (Edge(a, b, parts.get(a[0], Partitioning.FORWARD)) for a, b in sorted(edges))
    return Graph("drawn", tuple(operators), tuple(drawn_edges))


def changed(text: str, edit: str) -> tuple[Graph, Graph, list[str]]:
    """The graphs before and after, and the operators whose function changes: ``~`` removes an edge, ``!`` is one."""
    before = {(a, b) for a, _, b in (way.partition("-") for way in text.split())}
    after, functions = set(before), []
    for word in edit.split():
        a, _, b = word.strip("~!").partition("-")
        if word[0] == "!":
            functions.append(a)
        else:
            (after.discard if word[0] == "~" else after.add)((a, b))
    both = before | after
    return drawn(before, both), drawn(after, both), functions


@pytest.mark.parametrize(
    ("text", "edit", "members", "receivers"),
    [
        ("s0-A A-k0 s1-C C-T s2-E E-T T-k1", "A-E !C !T", "A C E T", ""),
        ("s0-A A-D D-T T-k0 s1-D A-k1", "~A-D !T", "A D T", ""),
        ("s0-P P-X X-T T-k0 s1-X", "~P-X P-N N-X !T", "P T X", ""),
        ("s0-A A-B B-C s2-X X-C C-k0", "s1-X !A !C", "A B C", "X"),
        ("s0-X s1-X X-T T-k0", "~s1-X !T", "T X s1", ""),
        ("s0-L L-R L-X X-P P-R R-k0", "~L-R", "L P R X", ""),
        ("s0-b b-d d-T T-k0", "!T", "T b d", ""),
        ("s0-L L-dC L-dD dC-X dD-X X-k0", "!X", "L X dC dD", ""),
        ("s0-A A-R R-k0", "~A-R ~R-k0 A-k0", "A R k0", ""),
        ("s0-A A-k0 s1-B B-C C-k1", "A-B", "A", "B"),
        ("s0-P P-X X-D D-k0 s1-X", "~P-X P-N N-D", "D P X", ""),
        ("s0-P P-X X-D D-k0 s1-X s1-Y Y-D", "~P-X P-Y", "D P X Y", ""),
        ("s0-L L-A L-B A-j B-j j-T T-k0", "L-C C-j !T", "A B L T j", ""),
        ("s0-A A-R R-Q Q-D D-k0 s1-D", "~A-R ~R-Q ~Q-D A-D", "A D Q R", ""),
        ("s0-A A-k0 A-k1", "~A-k1", "A", ""),
        ("s0-A A-R R-D D-T T-k0", "~A-R ~R-D A-M M-N N-D !T", "A D R T", ""),
        ("s0-m m-A A-k0 m-k1", "~A-k0 A-N N-k0 A-k2", "A k0 m", ""),
        ("s0-L L-A A-B B-T T-k0 L-X X-Y Y-k1", "!T", "T", ""),
        ("s0-p p-A p-B A-D B-D D-k0", "p-C C-D", "A B D p", ""),
    ],
)
def test_cases(text: str, edit: str, members: str, receivers: str) -> None:
    """An old edge and a new one make a way together; what meets again keeps its order; added ones are no members."""
    before, after, functions = changed(text, edit)
    planned = shape_plan(before, after, functions)
    told = {name for part in planned.plan.covering.components for name in part.operators}
    assert told == {*members.split(), *receivers.split()}
    assert planned.reasons.keys() == told
    assert [planned.reasons[name] for name in receivers.split()] == [
        "it gets a new edge, which it reads from then on"
    ] * len(receivers.split())


def test_the_stages_of_a_change() -> None:
    """Every member is told; then a marker passes everything, with which the new source begins to read."""
    planned = shape_plan(*changed("s0-A A-X X-k0", "s1-X ~A-X A-N N-X"))
    switch, release = planned.plan.stages
    assert sorted(send.operator for send in switch.sends) == ["A", "X"]
    assert {send.scope for send in switch.sends} == {frozenset("AX")}
    assert (release.does, release.awaits) == (StageAction.RELEASE, {"s1"})
    assert sorted(send.operator for send in release.sends) == ["s0", "s1"]
    assert release.sends[0].scope == {"s0", "s1", "A", "N", "X", "k0"}


def test_order_costs_members() -> None:
    """Without it the receiver need not wait for what is under way on the old way."""
    change = changed("s0-P P-X X-D D-k0 s1-X", "~P-X P-N N-D")
    assert [sorted(part.operators) for part in shape_plan(*change).plan.covering.components] == [["D", "P", "X"]]
    alone = [sorted(part.operators) for part in shape_plan(*change, order=False).plan.covering.components]
    assert alone == [["P"], ["D"]]


def test_operators_change_places() -> None:
    """Both dataflows in one have a cycle; all on it take part, and markers travel along the edges before only."""
    found = shape_plan(*changed("s0-P P-A A-B B-D D-k0", "~P-A ~A-B ~B-D P-B B-A A-D"))
    [part] = found.plan.covering.components
    assert (part.operators, part.heads, part.edges) == (
        frozenset("PABD"), frozenset("P"), (("P", "A"), ("A", "B"), ("B", "D")),
    )  # fmt: skip
    assert "rows of P that come by way of A and by way of B meet there" in found.reasons["D"]


def test_what_is_kept_between_operators_that_change_places_takes_part() -> None:
    """A goes behind B and C, whose edge stays; a row of before may be on it when A has switched."""
    found = shape_plan(*changed("s0-P P-A A-B B-C C-k0", "~P-A ~A-B ~C-k0 P-B C-A A-k0"), order=False)
    [part] = (one for one in found.plan.covering.components if "A" in one.operators)
    assert part.operators == frozenset("PABC")
    assert found.reasons["B"] == "it lies between others"


def test_what_has_no_plan() -> None:
    """A change of nothing."""
    with pytest.raises(PlanError, match="the same shape and functions"):
        shape_plan(*changed("s0-A A-k0", ""))


def circling(*edits: str, once: bool = False) -> Graph:
    """S, A, a loop L of B and R, and C behind it; S leads to X as well. With these edits."""

    def body(rows: Any) -> Any:
        around = rows.map("B", dict)
        around = around.map("N", dict) if "inside" in edits else around
        again, out = around.split("R", bool)
        return (out, again) if "other way" in edits else (again, out)

    flow = fn.Dataflow("circling")
    source = flow.source("S", fn.rate(None))
    source.map("X", dict).sink("x", fn.memory())
    rows = source.map("A", dict)
    rows = rows.filter("F", bool) if "in front" in edits else rows
    out = rows if "no loop" in edits else rows.iterate("L", body, one_to_one=once)
    if "beside" in edits:
        out.sink("copy", fn.memory())
    if "x branch" in edits:
        flow.stream("X").filter("Y", bool).sink("y", fn.memory())
    out = out.map("N", dict) if "behind" in edits else out
    out.map("C", dict, key="k").sink("out", fn.memory())
    return flow.graph(1)


@pytest.mark.parametrize(
    ("edit", "once", "order", "members", "loops"),
    [
        ("behind", False, True, "S Replicate(S) A L B R C", "L"),  # R is inside, and its out-edges change
        ("beside", False, True, "S Replicate(S) A L B R C", "L"),
        ("in front", False, True, "S Replicate(S) A L B R", "L"),
        ("in front", False, False, "S Replicate(S) A L B R", "L"),  # the loop gets a new edge
        ("x branch", False, True, "X x", ""),
        ("x branch", True, True, "S Replicate(S) X x A L B R", "L"),  # a later plan may leave the loop out
    ],
)
def test_a_loop_that_takes_part_is_made_empty_from_the_sources_on(
    edit: str, once: bool, order: bool, members: str, loops: str
) -> None:
    """Each member switches by itself then; where no loop takes part, rows go round meanwhile."""
    for edits in ((), (edit,)), ((edit,), ()):
        before, after = (circling(*one, once=once) for one in edits)
        planned = shape_plan(before, after, order=order)
        covering = planned.plan.covering
        told = {name for part in covering.components for name in part.operators}
        common = {name for name in members.split() if name in before} | ({"F"} & told) | ({"N"} & told)
        assert told - {"Replicate(R[1])", "Replicate(X)", "copy", "Y", "y"} == common
        assert covering.loops == tuple(loops.split())
        scopes = {send.scope for send in planned.plan.stages[0].sends}
        assert scopes == ({frozenset((name,)) for name in told} if loops else {frozenset(told)})


@pytest.mark.parametrize(
    ("edits", "words"),
    [
        ("inside", "N cannot be added inside of loop 'L', which keeps its shape while it runs"),
        ("other way", "R and L: edges inside of loop 'L' stay as they are while a dataflow runs"),
        ("no loop", "loop 'L' cannot be removed while a dataflow runs"),
    ],
)
def test_loops_keep_their_operators_and_edges(edits: str, words: str) -> None:
    """What is refused names the operator and the loop."""
    with pytest.raises(PlanError, match=words):
        refuse_unsupported(Difference.of(circling(), circling(edits)))
    for edit in ("behind", "beside", "in front", "x branch"):
        refuse_unsupported(Difference.of(circling(), circling(edit)))
        refuse_unsupported(Difference.of(circling(edit), circling()))


def test_a_dataflow_with_an_aggregate_keeps_its_shape() -> None:
    """The refusal names it."""
    flow = fn.Dataflow("cut")
    flow.source("S", fn.rate(None)).aggregate("sum", "k", {"v": "sum(v)"}).sink("out", fn.memory())
    graph = flow.graph(1)
    with pytest.raises(PlanError, match=r"sum \(aggregate\) cuts the dataflow into regions"):
        refuse_unsupported(Difference.of(graph, graph))


def drawn_change(seed: int) -> tuple[Graph, Graph, list[str]]:
    """Random edges forward, of which some are replaced, some by way of an operator that is added."""
    chance = Random(seed)
    names = [chance.choice("ALmbdjp") + str(number) for number in range(chance.randint(2, 6))]
    pairs = [(a, b) for place, a in enumerate(names) for b in names[place + 1 :]]
    before = {("s", names[0]), *chance.sample(pairs, chance.randint(1, len(pairs)))}
    after = set(before)
    for number in range(chance.randint(1, 3)):
        a, b = chance.choice(pairs)
        after ^= {(a, b)}
        if chance.random() < 0.5:
            after |= {(a, f"N{number}"), (f"N{number}", b)}
    both = before | after
    common = sorted({name for ends in before for name in ends} & {name for ends in after for name in ends} - {"s"})
    functions = chance.sample(common, min(len(common), chance.randint(0, 2)))
    return drawn(before, both), drawn(after, both), functions


def is_ordered(before: Graph, after: Graph, functions: list[str], order: bool = True) -> bool | None:
    """Whether the plan of a change orders what it has to, by the definition; ``None`` if nothing is changed."""
    union = union_of(before, after)
    try:
        planned = shape_plan(before, after, functions, order)
    except PlanError:
        return None
    targets = {name for name in planned.plan.targets if union.in_edges(name)}
    kept = {decision.operator for decision in planned.plan.covering.pruning if not decision.pruned}
    meetings = {name for name, why in planned.reasons.items() if "meet there" in why}
    scope = covered(union, planned.plan.targets | kept | meetings)
    told = {name for part in planned.plan.covering.components for name in part.operators}
    alone = {name for name in told if "new edge" in planned.reasons[name]}
    assert {name for name in scope if name in before} == told - alone
    parts = [part.operators for part in components(union, scope, frozenset(targets))]
    return is_synchronised(union, targets, parts) if targets else None


def test_markers_order_every_pair_of_operations_that_the_change_replaces() -> None:
    """By the definition, over all ways of the union of both graphs, old and new edges after one another."""
    answers = [is_ordered(*drawn_change(seed), order=seed % 2 == 0) for seed in range(CHANGES)]
    assert False not in answers, answers.index(False)
    assert answers.count(True) > CHANGES / 2


def accept_different_gates(patch: pytest.MonkeyPatch) -> None:
    """Each way has some operator that passes one row, not all the same."""

    def gate(graph: Graph, edges: Iterable[Edge], targets: Set[str], gates: Mapping[str, str]) -> str | None:
        found = [gate_behind(graph, [edge], targets, gates) for edge in edges]
        return found[0] if found and None not in found else None

    gate_behind = covering._gate_behind
    patch.setattr(covering, "_gate_behind", gate)


def forget_broadcasts(patch: pytest.MonkeyPatch) -> None:
    """A unique operator passes one row, although each of its workers gets all."""
    patch.setattr(covering, "passes_one", lambda graph, name: graph.by_name[name].unique_per_transaction)


@pytest.mark.parametrize(
    ("break_it", "edges", "change"),
    [
        (accept_different_gates, "s0-L L-dC L-dD dC-X dD-X X-k0", "~X-k0 X-N N-k0"),
        (forget_broadcasts, "s0-b b-d d-T T-k0", "~T-k0 T-N N-k0"),
    ],
)  # fmt: skip
def test_a_broken_rule_shows(
    break_it: Callable[[pytest.MonkeyPatch], None], edges: str, change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is pruned on the union has to be unique behind it."""
    before, after, functions = changed(edges, change)
    assert is_ordered(before, after, functions, order=False)
    break_it(monkeypatch)
    assert is_ordered(before, after, functions, order=False) is False
