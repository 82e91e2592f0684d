"""Minimal covering sub-DAGs by hand: graphs in short notation, and checks of components, heads and algorithms.

>>> graph = sketch("A -> C -> D -> F -> H", "C -> E -> F", "B -> G -> H")
>>> check_components(graph, set("CFG"), [{"C", "E", "F"}, {"G"}])
Traceback (most recent call last):
fries_nb.errors.LabError: not right yet: 1 operator is missing; ... (the next wrong answer is explained)
>>> check_components(graph, set("CFG"), [{"C", "E", "F"}, {"G"}])
Traceback (most recent call last):
fries_nb.errors.LabError: D is missing: it lies on the path C -> D -> F between two operators that take part, so a tuple
can be at D when one of them has switched and the other has not
>>> check_components(graph, set("CFG"), ["G", "C, D, E, F"])
Right. 2 components: C, D, E and F; G.

Checks of pruning: which one-to-many operators are pruned, by which rule, and where the paper's rule fails.

>>> graph = sketch("RE -> C -> SJ -> E", "RE -> D -> SJ", replicate={"RE"}, unique={"SJ"})
>>> check_pruning(graph, {"E"}, {"RE": "kept"})
Traceback (most recent call last):
fries_nb.errors.LabError: not right yet: count the tuples ...
>>> check_pruning(graph, {"E"}, {"RE": "kept"})
Traceback (most recent call last):
fries_nb.errors.LabError: RE is not kept: SJ lets one tuple of a transaction pass, and lies before every target below RE
>>> check_pruning(graph, {"E"}, {"RE": "uniqueness"})
Right. RE pruned (uniqueness): SJ lets one tuple of a transaction pass, and lies before every target below RE.

Checks of changes of the shape: which operators take part when edges are added and removed.

>>> before, after = sketch("S -> A -> X", "Q -> E -> T"), sketch("S -> A -> X", "Q -> E -> T", "A -> E")
>>> check_shape(before, after, {"T"}, {"A", "T"})
Traceback (most recent call last):
fries_nb.errors.LabError: not right yet: 1 operator is missing; ask of each one: ... (the next wrong answer ...
>>> check_shape(before, after, {"T"}, {"A", "T"})
Traceback (most recent call last):
fries_nb.errors.LabError: E is missing: it lies on the path A -> E -> T, on the edges of before and after together, ...
>>> check_shape(before, after, {"T"}, "A, E, T")
Right. A at the message: its out-edges change; E at the message: it lies between others; T at the marker of E: its ...
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping
from itertools import pairwise
from typing import Any

import networkx as nx

from fries_nb.dataflow.builder import DataflowBuilder
from fries_nb.dataflow.graph import Edge, Emits, Graph, Kind, Operator, ends_of, union_of
from fries_nb.errors import DataflowError, LabError, PlanError
from fries_nb.labs.answers import AnsweredSet, Passed, Picture, answered, listed, names_in, result_of, wrong
from fries_nb.labs.interleavings import check_broken, interleaved
from fries_nb.planning import Covering, Rule, cover, minimal_covering_subdag
from fries_nb.planning.covering import PruningDecision, prune
from fries_nb.planning.shape import BETWEEN, ExplainedPlan, shape_plan
from fries_nb.report.dag import dag_svg

_ALGORITHM_HINT = (
    "try it by hand on a chain of three, with one member, two and three; does it keep the members themselves, and "
    "all that lies on a path from one to another?"
)
_NAIVE_HINT = "for which changes can no payment meet old and new, wherever its rows are when the messages arrive?"
COMPONENTS = 'a list of sets, one for each component, such as [{"A", "B"}, {"D"}]'


def sketch(
    *paths: str, one_to_many: Collection[str] = (), replicate: Collection[str] = (), unique: Collection[str] = ()
) -> Graph:
    """A graph that can be planned, though not run, from the paths through it.

    ``paths``: such as ``"A -> B -> D"``; an operator or edge may be on several. ``one_to_many``: operators that make
    any number of tuples of one. ``replicate``: operators that send one copy along each of their edges. ``unique``:
    operators that let at most one tuple of each transaction pass.

    Returns:
        The graph, with operators in the order in which the paths name them.

    Raises:
        LabError: a path that is not written so, a cycle, or a name that is on no path.
    """
    steps = [[name.strip() for name in path.split("->")] for path in paths]
    names = dict.fromkeys(name for path in steps for name in path)
    if not names or "" in names:
        raise LabError(f"got the paths {paths!r}; expected names with arrows between them, such as 'A -> B -> D'")
    for special in (one_to_many, replicate, unique):
        names_in(set(special), names)
    edges = dict.fromkeys(edge for path in steps for edge in pairwise(path))
    fed, forks = {to for _, to in edges}, {*one_to_many, *replicate}
    operators = tuple(
        Operator(
            name,
            Emits.ONE_TO_MANY if name in forks else Emits.ONE_TO_ONE,
            edgewise_one_to_one=name in replicate,
            unique_per_transaction=name in unique,
            kind=_kind(name, {Kind.REPLICATE: replicate, Kind.FLAT_MAP: one_to_many, Kind.SELF_JOIN: unique}, fed),
            function=dict if name in one_to_many else None,  # a picture names the kind of what could be run
        )
        for name in names
    )
    try:
        return Graph("sketch", operators, tuple(Edge(*edge) for edge in edges))
    except DataflowError as error:
        raise LabError(str(error)) from None


def _kind(name: str, special: Mapping[Kind, Collection[str]], fed: Collection[str]) -> Kind:
    """The kind that a picture shows."""
    usual = Kind.MAP if name in fed else Kind.SOURCE
    return next((kind for kind, names in special.items() if name in names), usual)


def drawn(graph: Graph, targets: Iterable[str] = ()) -> Picture:
    """A picture of a graph with the operators that a change replaces.

    Returns:
        The picture.
    """
    edges = "; ".join(f"{edge.source} -> {edge.to}" for edge in graph.edges)
    return Picture(edges, dag_svg(graph, dict.fromkeys(targets, "target")))


def covering_svg(graph: Graph, covering: Covering) -> str:
    """The graph with the operators that take part in a change, by their roles."""
    states = {name: "mcs" for part in covering.components for name in part.operators}
    for part in covering.components:
        states |= dict.fromkeys(part.targets, "target")
        for head in part.heads:
            states[head] = f"{states[head]} head"
    return dag_svg(graph, states | {decision.operator: "pruned" for decision in covering.pruning if decision.pruned})


def check_components(graph: Graph, targets: Iterable[str], answer: Any, pruning: bool = True) -> Passed:
    """Check the components of a change.

    ``answer``: the operators of each component, in any order. ``pruning``: whether one-to-many operators that need no
    synchronisation are left out.

    Raises:
        LabError: first how many operators are missing or superfluous; then names one, and why, or two that are joined
            or divided; with a picture of the answer.
    """
    covering = cover(graph, targets, pruning)
    return _judged(("components", graph.edges, covering.targets, pruning), graph, covering, answer)


def _judged(question: Hashable, graph: Graph, covering: Covering, answer: Any) -> Passed:
    """The components, if they are those of the covering."""
    parts = _parts(graph, answer)
    right = set().union(*(part.operators for part in covering.components))
    given = set().union(*parts)
    why = _why_not_members(graph, covering, right, given) or _why_not_divided(covering, parts)
    if why:
        drawn = AnsweredSet(graph, covering.targets, given, right, parts)
        raise wrong(question, _components_hint(right, given), why, drawn)
    said = "; ".join(listed(component.operators) for component in covering.components)
    count = len(covering.components)
    return Passed(f"{count} component{'s' if count > 1 else ''}: {said}.", covering_svg(graph, covering))


def _components_hint(right: set[str], given: set[str]) -> str:
    """How much is wrong with the members of components, or else that it is their division."""
    many = {"missing": len(right - given), "too many": len(given - right)}
    told = [f"{count} operator{'s are' if count > 1 else ' is'} {words}" for words, count in many.items() if count]
    if not told:
        return "all operators are right; which of them do edges connect, without a way outside of the sub-DAG?"
    return (
        f"{' and '.join(told)}; ask of each one: does it change, is it one-to-many above one that changes (and not "
        "pruned), or does it lie on a path between two of these?"
    )


def _why_not_members(graph: Graph, covering: Covering, right: set[str], given: set[str]) -> str:
    """What is wrong with the members of all components; empty if nothing is."""
    missing = [_why_inside(graph, covering, name) for name in graph.order if name in right - given]
    superfluous = [_why_outside(graph, covering, name) for name in graph.order if name in given - right]
    return next(iter(missing + superfluous), "")


def _why_not_divided(covering: Covering, parts: Iterable[set[str]]) -> str:
    """Which two operators are wrongly apart or together; empty if none are."""
    for component in covering.components:
        for one, other in component.edges:
            if not any({one, other} <= part for part in parts):
                return f"{one} and {other} belong to one component: an edge of the sub-DAG connects them"
    for part in parts:
        first, *others = (component for component in covering.components if component.operators & part)
        if others:
            apart = f"{min(first.operators & part)} and {min(others[0].operators & part)}"
            return f"{apart} belong to two components: no edges inside the sub-DAG connect them"
    return ""


def check_heads(graph: Graph, targets: Iterable[str], answer: Any) -> Passed:
    """Check the operators that get the fast control message.

    >>> check_heads(sketch("A -> B -> C"), {"B", "C"}, "A, B")
    Traceback (most recent call last):
    fries_nb.errors.LabError: not right yet: which operators of a component does no marker reach, ...
    >>> check_heads(sketch("A -> B -> C"), {"B", "C"}, "A, B")
    Traceback (most recent call last):
    fries_nb.errors.LabError: A takes no part in the change, so it gets no message; heads are operators of a component

    ``answer``: the heads of all components, in any order.

    Raises:
        LabError: names the first operator that is missing or superfluous, and why.
    """
    covering = cover(graph, targets)
    given = names_in(answer, graph)
    heads = set().union(*(part.heads for part in covering.components))
    if given != heads:
        hint = "which operators of a component does no marker reach, since no edge of the component enters them?"
        drawn = AnsweredSet(graph, covering.targets, given, heads, [part.operators for part in covering.components])
        raise wrong(("heads", graph.edges, covering.targets), hint, _why_not_heads(covering, heads, given), drawn)
    return Passed(f"The message goes to {listed(heads)}.")


def _why_not_heads(covering: Covering, heads: set[str], given: set[str]) -> str:
    """Which operator is wrongly named as a head, or not named, and why."""
    for part in covering.components:
        for name in sorted(part.heads - given):
            return f"{name} is missing: no edge of its component enters it, so no marker can reach it"
        for name in sorted(given & part.operators - part.heads):
            source = next(start for start, to in part.edges if to == name)
            return f"{name} is not a head: the marker reaches it from {source}, inside the component"
    outside = min(given - heads)
    return f"{outside} takes no part in the change, so it gets no message; heads are operators of a component"


def check_algorithm(function: Callable[[nx.DiGraph[str], set[str]], Any] | None) -> Passed:
    """Check a function from a graph and a set of its nodes to the nodes of their minimal covering sub-DAG.

    >>> check_algorithm(lambda graph, members: members)
    Traceback (most recent call last):
    fries_nb.errors.LabError: not right yet: try it by hand on a chain of three, ...
    >>> check_algorithm(lambda graph, members: members)
    Traceback (most recent call last):
    fries_nb.errors.LabError: for the edges AB, BC and the operators A and C it gives A and C; expected A, B and C

    Raises:
        LabError: shows a graph on which it is wrong, a small one if there is.
    """
    answered(function, "a function of a networkx.DiGraph and a set of names")
    draws = random.Random(5)
    cases = [(nx.DiGraph(["AB", "BC"]), {"A", "C"}), *(_drawn(draws, size) for size in range(3, 9) for _ in range(20))]
    for graph, members in cases:
        right = set(minimal_covering_subdag(graph, members))
        result = result_of(function, graph.copy(), set(members))
        if not isinstance(result, Iterable):
            raise LabError(f"it returns {result!r}; expected a set of names")
        given = set(map(str, result))
        if given != right:
            edges = ", ".join("".join(edge) for edge in graph.edges) or "(none)"
            why = (
                f"for the edges {edges} and the operators {listed(members)} it gives "
                f"{listed(given) if given else 'nothing'}; expected {listed(right)}"
            )
            shown = sketch(*graph.nodes, *(f"{one} -> {to}" for one, to in graph.edges))
            drawn = AnsweredSet(shown, members, given, right)
            raise wrong("algorithm", _ALGORITHM_HINT, why, drawn)
    return Passed(f"It was right on {len(cases)} graphs.")


def drawn_shapes(before: Graph, after: Graph, changed: Collection[str] = ()) -> Picture:
    """A picture of two graphs in one: what is added and removed, and the operators whose function changes.

    Returns:
        The picture.
    """
    kinds = {"added": ends_of(after) - ends_of(before), "removed": ends_of(before) - ends_of(after)}
    edges = "; ".join(f"{source} -> {to} is {word}" for word, ends in kinds.items() for source, to in sorted(ends))
    return Picture(edges, _shapes_svg(before, after, dict.fromkeys(changed, "changed")))


def _shapes_svg(before: Graph, after: Graph, states: Mapping[str, str]) -> str:
    """Both graphs in one, with these states, and labels on edges that only one of them has."""
    states = {name: "added" for name in after if name not in before} | dict(states)
    states = {name: "removed" for name in before if name not in after} | states
    labels = dict.fromkeys(ends_of(after) - ends_of(before), "added")
    labels |= dict.fromkeys(ends_of(before) - ends_of(after), "removed")
    return dag_svg(union_of(before, after), states, labels, marked=())


def check_shape(before: Graph, after: Graph, changed: Collection[str], answer: Any) -> Passed:
    """Check which operators take part in a change of the shape, rows of each key in order.

    ``changed``: operators of both whose function changes. ``answer``: the names of all that get the message.

    Raises:
        LabError: one is missing, or takes no part; says why, with a picture of the answer.
    """
    answered(answer, 'a set of names, such as {"A", "B"}')
    union = union_of(before, after)
    given = names_in(answer, union)
    plan = shape_plan(before, after, changed)
    if why := _why_not_reshaped(union, before, plan, given):
        question = ("shape", before.edges, after.edges, frozenset(changed))
        drawn = AnsweredSet(union, plan.plan.targets, given, plan.reasons.keys())
        raise wrong(question, _shape_hint(given, plan.reasons.keys()), why, drawn)
    targets = plan.plan.targets
    states = {name: "target" if name in targets else "mcs" for name in plan.reasons}
    return Passed("; ".join(plan.lines) + ".", _shapes_svg(before, after, states))


def _shape_hint(given: Collection[str], right: Collection[str]) -> str:
    many = {"missing": len(set(right) - set(given)), "too many": len(set(given) - set(right))}
    told = [f"{count} operator{'s are' if count > 1 else ' is'} {words}" for words, count in many.items() if count]
    return (
        f"{' and '.join(told)}; ask of each one: do its out-edges or its function change, does it lie between two such "
        "operators on the edges of before and after together, or do an old and a new way meet there?"
    )


def _why_not_reshaped(union: Graph, before: Graph, plan: ExplainedPlan, given: Collection[str]) -> str:
    """Which operator is missing or superfluous in a change of the shape, and why; empty if none is."""
    digraph, members = union.digraph, set(plan.reasons)
    for name, why in plan.reasons.items():
        if name in given:
            continue
        above, below = members & nx.ancestors(digraph, name), members & nx.descendants(digraph, name)
        if why != BETWEEN or not above or not below:
            return f"{name} is missing: {why}"
        first, last = (next(one for one in union.order if one in some) for some in (above, below))
        path = " -> ".join(nx.shortest_path(digraph, first, name) + nx.shortest_path(digraph, name, last)[1:])
        return (
            f"{name} is missing: it lies on the path {path}, on the edges of before and after together, so a row can "
            f"be there when {first} has switched and {last} has not, or the other way round"
        )
    for name in (name for name in union.order if name in given and name not in members):
        if name not in before:
            return f"{name} is one too many: it is added, so no row of before is there, and it waits for nothing"
        return f"{name} is one too many: no path of before and after together leads over it from one member to another"
    return ""


def check_own(graph: Graph | None, targets: Any, answer: Any) -> Passed:
    """Check the components of a change in a graph of one's own, which has to show something.

    ``answer``: the operators of each component.

    Raises:
        LabError: the graph or the change is too plain, or see ``check_components``.
    """
    answered(graph, 'a graph, such as sketch("A -> B -> C", "A -> C")')
    if not isinstance(graph, Graph):
        raise LabError(f"got {graph!r}; expected a graph, made by sketch(...)")
    chosen = names_in(targets, graph)
    if len(graph.by_name) < 6 or not any(len(graph.in_edges(name)) > 1 for name in graph):
        raise LabError("the graph is too plain; expected at least six operators, and one with two in-edges")
    try:
        covering = cover(graph, chosen)
    except PlanError as error:
        raise LabError(str(error)) from None
    if len(covering.components) < 2:
        raise LabError("the change has one component; choose operators so that there are at least two")
    if all(part.operators == part.targets for part in covering.components):
        raise LabError("only operators that change take part; let one lie on a path between two of them")
    return _judged("own graph", graph, covering, answer)


def check_naive_safe(graph: Graph, changes: Mapping[str, Collection[str]], answer: Any) -> Passed:
    """Check for which changes one message to each target, without markers, is consistent.

    ``changes``: name of a change to its targets. ``answer``: the names of those for which it is.

    Raises:
        LabError: one is missing, or is not safe; says why.
    """
    given = names_in(answer, changes, "change")
    question, hint = ("naive is safe", graph.edges, tuple(changes)), _NAIVE_HINT
    for name, targets in changes.items():
        covering = cover(graph, targets)
        wide = next((part for part in covering.components if len(part.operators) > 1), None)
        if name in given and wide is not None:
            one, other = wide.edges[0]
            kept = [decision.operator for decision in covering.pruning if not decision.pruned]
            why = f"{kept[0]} may send two tuples of a transaction there" if kept else "targets lie on both sides of it"
            why = f"{name} is not safe: a tuple may be between {one} and {other} at that moment, and {why}"
            raise wrong(question, hint, why)
        if name not in given and wide is None:
            why = f"{name} is safe: no transaction meets a target twice, so there is nothing to keep in order"
            raise wrong(question, hint, why)
    return Passed(f"Safe without markers: {listed(given)}.")


def _drawn(draws: random.Random, size: int) -> tuple[nx.DiGraph[str], set[str]]:
    names = "ABCDEFGH"[:size]
    edges = [(a, b) for i, a in enumerate(names) for b in names[i + 1 :] if draws.random() < 2 / size]
    graph: nx.DiGraph[str] = nx.DiGraph()
    graph.add_nodes_from(names)
    graph.add_edges_from(edges)
    return graph, set(draws.sample(names, draws.randint(1, 3)))


def _parts(graph: Graph, answer: Any) -> list[set[str]]:
    """The components of an answer; one set of names alone is one component."""
    answered(answer, COMPONENTS)
    if not isinstance(answer, str | Collection):
        raise LabError(f"got {answer!r}; expected {COMPONENTS}")
    if isinstance(answer, str | set | frozenset) and all(isinstance(name, str) for name in answer):
        answer = [answer]

    return [names_in(part, graph) for part in answer]


def _why_inside(graph: Graph, covering: Covering, name: str) -> str:
    if name in covering.targets:
        return f"{name} is missing: it changes itself, and every operator that changes belongs to the sub-DAG"
    kept = {decision.operator for decision in covering.pruning if not decision.pruned}
    if name in kept:
        return (
            f"{name} is missing: it is one-to-many and above {listed(covering.targets)}, so two tuples of one "
            "transaction may arrive there, one before and one after the switch"
        )
    members = covering.targets | kept
    digraph = graph.digraph
    above = next(operator for operator in graph.order if operator in members & nx.ancestors(digraph, name))
    below = next(operator for operator in graph.order if operator in members & nx.descendants(digraph, name))
    path = nx.shortest_path(digraph, above, name) + nx.shortest_path(digraph, name, below)[1:]
    return (
        f"{name} is missing: it lies on the path {' -> '.join(path)} between two operators that take part, so a tuple "
        f"can be at {name} when one of them has switched and the other has not"
    )


def _why_outside(graph: Graph, covering: Covering, name: str) -> str:
    pruned = next((decision for decision in covering.pruning if decision.operator == name and decision.pruned), None)
    if pruned is not None:
        return f"{name} is one too many: {pruned.reason.partition(': ')[2]}"
    inside = set().union(*(part.operators for part in covering.components))
    digraph = graph.digraph
    if inside & nx.ancestors(digraph, name):
        where = "it is below operators that take part, but above none of them"
    elif inside & nx.descendants(digraph, name):
        where = "it is above operators that take part, but below none of them"
    else:
        where = "no path connects it with an operator that takes part"
    return f"{name} is one too many: {where}, so it goes on undisturbed"


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

    ``answer``: operator to ``"edgewise"`` or ``"uniqueness"``, the rule that prunes it, or to ``"kept"``.

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
    return Passed("; ".join(decision.reason for decision in covering.pruning) + ".", covering_svg(graph, covering))


def _word(decision: PruningDecision) -> str:
    """A decision as it is answered."""
    return decision.rule.value if decision.pruned else "kept"


def _why_not_decided(covering: Covering, answer: Mapping[str, Any]) -> str:
    """Which operator is decided wrongly, without need or not at all, and why; empty if none is."""
    decided = {decision.operator: decision for decision in covering.pruning}
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

    ``operator``: a one-to-many operator above the target.
    """
    unique = {operator.name for operator in graph.operators if operator.unique_per_transaction}
    bare = graph.digraph.subgraph(set(graph) - unique | {operator, target})
    return not nx.has_path(bare, operator, target)


def check_counterexample(flow: DataflowBuilder | None, target: str | None) -> Passed:
    """Check a dataflow on which the printed rule prunes too much, and show by a run what happens then.

    ``flow``: a dataflow of one source, whose target is a map of a ``VersionStamp``.

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
    both = [decision.operator for decision in decisions if not decision.pruned and decision not in refuting]
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

    ``function``: a function of the graph, an operator, the targets and the unique operators.

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
    unique = {operator.name for operator in graph.operators if operator.unique_per_transaction}
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
