"""Checks of pruning: which one-to-many operators are pruned, by which rule, and where the paper's rule fails.

>>> graph = sketch("RE -> C -> SJ -> E", "RE -> D -> SJ", replicate={"RE"}, unique={"SJ"})
>>> check_pruning(graph, {"E"}, {"RE": "kept"})
Traceback (most recent call last):
fries_nb.errors.LabError: not right yet: count the tuples ...
>>> check_pruning(graph, {"E"}, {"RE": "kept"})
Traceback (most recent call last):
fries_nb.errors.LabError: RE is not kept: SJ lets one tuple of a transaction pass, and lies before every target below RE
>>> check_pruning(graph, {"E"}, {"RE": "uniqueness"})
Right. RE pruned (uniqueness): SJ lets one tuple of a transaction pass, and lies before every target below RE.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import networkx as nx

from fries_nb.dataflow.builder import DataflowBuilder
from fries_nb.dataflow.graph import Graph
from fries_nb.errors import LabError
from fries_nb.labs.answers import AnsweredSet, Passed, answered, listed, names_in, result_of, wrong
from fries_nb.labs.coverings import covering_svg, sketch
from fries_nb.labs.interleavings import check_broken, interleaved
from fries_nb.planning import Covering, Rule, cover
from fries_nb.planning.pruning import PruningDecision, prune

__all__ = ["check_counterexample", "check_pruning", "check_rule", "printed_rule_prunes", "sketch"]

SEEDS = 40
_PRUNING_HINT = (
    "count the tuples of one transaction that can reach each operator that changes: along how many edges do they leave "
    "the one-to-many operator, and does one operator let at most one of them pass?"
)
_COUNTEREXAMPLE_HINT = (
    "let one transaction reach the target along two paths, each with a unique operator of its own; what does each of "
    "the two rules ask of these paths?"
)
_RULE_HINT = "one and the same unique operator has to be on all paths to all targets; is that what it asks?"
RuleFunction = Callable[["nx.DiGraph[str]", str, set[str], set[str]], bool | None]


def check_pruning(graph: Graph, targets: Iterable[str], answer: Any) -> Passed:
    """Check what becomes of the one-to-many operators above the targets of a change.

    Args:
        graph: the dataflow.
        targets: the operators that change.
        answer: operator to ``"edgewise"`` or ``"uniqueness"``, the rule that prunes it, or to ``"kept"``.

    Returns:
        The reasons, with a picture.

    Raises:
        LabError: an operator is missing, superfluous, or decided otherwise; says why, with a picture of the answer.
    """
    answered(answer, 'a dict, such as {"RE": "edgewise"}, with "edgewise", "uniqueness" or "kept"')
    if not isinstance(answer, Mapping):
        raise LabError(f'got {answer!r}; expected a dict, such as {{"RE": "edgewise"}}')
    covering = cover(graph, targets)
    names_in(list(answer), graph)
    for name, word in answer.items():
        if word not in (Rule.EDGEWISE, Rule.UNIQUENESS, "kept"):
            raise LabError(f'got {word!r} for {name}; expected "edgewise", "uniqueness" or "kept"')
    why = _why_not_decided(covering, answer)
    if why:
        right = {one.operator for one in covering.pruning if answer.get(one.operator, _word(one)) == _word(one)}
        drawn = AnsweredSet(graph, covering.targets, set(answer), right)
        raise wrong(("pruning", graph.edges, covering.targets), _PRUNING_HINT, why, drawn)
    return Passed("; ".join(one.reason for one in covering.pruning) + ".", covering_svg(graph, covering))


def _word(decision: PruningDecision) -> str:
    """A decision as it is answered."""
    return decision.rule.value if decision.pruned else "kept"


def _why_not_decided(covering: Covering, answer: Mapping[str, Any]) -> str:
    """Which operator is decided wrongly, without need or not at all, and why; empty if none is."""
    decided = {one.operator: one for one in covering.pruning}
    for name in answer:
        if name not in decided:
            return f"{name} needs no decision: it is not one-to-many, or not above an operator that changes"
    for name, decision in decided.items():
        if name not in answer:
            return f"{name} is missing: it is one-to-many, and above an operator that changes"
        if answer[name] != _word(decision):
            wrongly = "is not kept" if answer[name] == "kept" else f"is not pruned by the rule of {answer[name]}"
            return f"{name} {wrongly}: {decision.reason.partition(': ')[2]}"
    return ""


def printed_rule_prunes(graph: Graph, operator: str, target: str) -> bool:
    """Whether the paper's second rule, as printed, prunes an operator: each path to the target has *some* unique one.

    >>> two = sketch("RE -> C -> X", "RE -> D -> X", replicate={"RE"}, unique={"C", "D"})
    >>> printed_rule_prunes(two, "RE", "X"), [one.pruned for one in prune(two, {"X"})]
    (True, [False])

    Args:
        graph: the dataflow.
        operator: a one-to-many operator above the target.
        target: the operator that changes.
    """
    unique = {one.name for one in graph.operators if one.unique_per_transaction}
    bare = graph.digraph.subgraph(set(graph) - unique | {operator, target})
    return not nx.has_path(bare, operator, target)


def check_counterexample(flow: DataflowBuilder | None, target: str | None) -> Passed:
    """Check a dataflow on which the printed rule prunes too much, and show by a run what happens then.

    Args:
        flow: a dataflow of one source, whose target is a map of a ``VersionStamp``.
        target: the operator that changes.

    Returns:
        Which transaction met which versions.

    Raises:
        LabError: says why the dataflow does not refute the rule.
    """
    answered(flow, "a dataflow, and the name of the operator that changes")
    answered(target, "the name of the operator that changes")
    if not isinstance(flow, DataflowBuilder) or not isinstance(target, str):
        raise LabError(f"got {flow!r} and {target!r}; expected a dataflow and the name of one operator")
    graph = flow.graph(workers=1)
    names_in({target}, graph)
    decisions = prune(graph, {target})
    hint = _COUNTEREXAMPLE_HINT
    if not decisions:
        why = f"no operator above {target} is one-to-many, so there is nothing to prune; replicate or unnest"
        raise wrong("counter-example", hint, why)
    refuting = [one for one in decisions if not one.pruned and printed_rule_prunes(graph, one.operator, target)]
    if not refuting:
        raise wrong("counter-example", hint, _why_not(graph, target))
    both = [one.operator for one in decisions if not one.pruned and one not in refuting]
    if both:
        why = f"the printed rule keeps {listed(both)}, too, and starts the markers there; leave that one out"
        raise wrong("counter-example", hint, why)
    for seed in range(SEEDS):
        run = interleaved(flow, {target}, "naive", seed)  # as with all pruned: one message to the target, no marker
        if run.mixed:
            return Passed(f"The printed rule prunes {refuting[0].operator}. {check_broken(run).text}")
    raise wrong("counter-example", hint, f"{SEEDS} interleavings are serializable: does {target} get two tuples of a "
                f"transaction, with what lies between the copies and {target} kept simple?")  # fmt: skip


def check_rule(function: RuleFunction | None) -> Passed:
    """Check a function that decides by the corrected second rule, on drawn graphs.

    Args:
        function: a function of the graph, an operator, the targets and the unique operators.

    Returns:
        On how many graphs it was right.

    Raises:
        LabError: shows a graph on which it is wrong.
    """
    answered(function, "a function of a networkx.DiGraph, an operator, the targets and the unique operators")
    count = 0
    for graph, unique, targets in _cases():
        right = any(not _reached(graph, "A", targets, without=one) for one in unique - targets - {"A"})
        given = result_of(function, graph.copy(), "A", set(targets), set(unique))
        if bool(given) is not right:
            edges = ", ".join("".join(edge) for edge in graph.edges)
            why = "all paths from A pass one and the same of them" if right else "no single one is on all paths from A"
            told = (
                f"with the edges {edges}, the unique operators {listed(unique)} and the targets {listed(targets)} "
                f"it {'prunes' if given else 'keeps'} A, although {why} to every target"
            )
            raise wrong("rule", _RULE_HINT, told)
        count += 1
    return Passed(f"It was right on {count} graphs.")


def _why_not(graph: Graph, target: str) -> str:
    decision = prune(graph, {target})[0]
    if decision.pruned:
        return f"the corrected rules prune {decision.operator} as well: {decision.reason.partition(': ')[2]}"
    unique = {one.name for one in graph.operators if one.unique_per_transaction}
    bare = graph.digraph.subgraph(set(graph) - unique | {decision.operator, target})
    path = " -> ".join(nx.shortest_path(bare, decision.operator, target))
    return f"the printed rule keeps {decision.operator}, too: no operator strictly inside of {path} is unique"


def _reached(graph: nx.DiGraph[str], start: str, targets: set[str], without: str) -> bool:
    rest = graph.subgraph(set(graph) - {without})
    return any(target in rest and nx.has_path(rest, start, target) for target in targets)


def _cases() -> Iterable[tuple[nx.DiGraph[str], set[str], set[str]]]:
    """Graphs with the operator A above all targets: two that tell the rules apart, then drawn ones."""
    yield nx.DiGraph(["AB", "AC", "BD", "CD"]), {"B", "C"}, {"D"}
    yield nx.DiGraph(["AB", "AC", "BD", "CD", "DE"]), {"D"}, {"E"}
    yield nx.DiGraph(["AB", "BC"]), {"B"}, {"B", "C"}
    draws = random.Random(11)
    for _ in range(80):
        names = "ABCDEF"
        edges = [(a, b) for i, a in enumerate(names) for b in names[i + 1 :] if draws.random() < 0.4]
        graph: nx.DiGraph[str] = nx.DiGraph(edges)
        below = sorted(nx.descendants(graph, "A")) if "A" in graph else []
        if below:
            targets = set(draws.sample(below, draws.randint(1, min(2, len(below)))))
            yield graph, set(draws.sample(names[1:], 2)), targets
