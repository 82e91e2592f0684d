"""What a report shows of a plan, and of the difference of two dataflows.

The section of a report on a plan: the operators that a change synchronises, drawn and in words.

>>> from fries_nb.dataflow.graph import Edge, Operator
>>> from fries_nb.planning.schedulers import schedule
>>> graph = Graph("chain", tuple(map(Operator, ("S", "A", "B", "T"))), (Edge("S", "A"), Edge("A", "B"), Edge("B", "T")))
>>> roles(schedule("fries", graph, ["A", "B"]))
{'A': 'target head mcs', 'B': 'target mcs'}
>>> roles(schedule("epoch", graph, ["B"]))["S"]
'head mcs'
>>> in_words(graph, schedule("fries", graph, ["A", "B"]))[0]
'A, B change together: the message goes to the head A, and a marker travels from there along A → B.'
>>> shown = Shown.of(graph, schedule("fries", graph, ["A"]))
>>> shown.states, shown.titles["A"]
({'A': 'target head mcs'}, 'target of the change, head: gets the message')

The difference of two dataflows as a picture: both in one, with what is added, removed and changed.

>>> from fries_nb.dataflow.graph import Edge, Operator
>>> before = Graph("f", (Operator("S"), Operator("A"), Operator("T")), (Edge("S", "A"), Edge("A", "T")))
>>> after = Graph("f", (Operator("S"), Operator("B"), Operator("T")), (Edge("S", "B"), Edge("B", "T")))
>>> both = united(Difference.of(before, after))
>>> [operator.name for operator in both.operators], len(both.edges)
(['S', 'B', 'T', 'A'], 4)
>>> states(Difference.of(before, after))
{'A': 'removed', 'B': 'added'}
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from markupsafe import Markup

from fries_nb.dataflow.graph import Graph
from fries_nb.dataflow.loops import loops_in
from fries_nb.errors import DataflowError
from fries_nb.planning import Component, CriticalPath
from fries_nb.planning.counter_example import CounterExample, counter_example, witnesses
from fries_nb.planning.difference import Difference
from fries_nb.planning.schedulers import Plan, foretold, waits_for_loops
from fries_nb.planning.shape import PlannedDifference
from fries_nb.report.audit_section import end_svgs, example_parts, summary
from fries_nb.report.dag import Ends, dag_svg, explained, state_words
from fries_nb.report.markup import part, stacked
from fries_nb.words import counted, duration

_SHOWN = 12


@dataclass(frozen=True)
class Shown:
    """States, tooltips, marked edges and labels of edges by which a picture shows a plan or a difference.

    They are as ``dag_svg`` takes them.
    """

    states: Mapping[str, str] = field(default_factory=dict)
    titles: Mapping[str, str] = field(default_factory=dict)
    marked: frozenset[Ends] = frozenset()
    labels: Mapping[Ends, str] = field(default_factory=dict)

    @property
    def legend(self) -> dict[str, str]:
        """The states that occur, and their meaning."""
        return explained(self.states, self.marked)

    @staticmethod
    def of(graph: Graph, plan: Plan, done: bool = False) -> Shown:
        """The states and tooltips of a plan, or of one that was carried out: only then its targets are changed."""
        states = {name: words for name, words in roles(plan).items() if name in graph}  # some may have been removed
        if done:
            states = {name: words.replace("target", "changed") for name, words in states.items()}
        reasons = {decision.operator: decision.reason for decision in plan.covering.pruning}
        titles = {
            name: "\n".join(filter(None, [state_words(states.get(name, "")), reasons.get(name, "")]))
            for name in graph
            if name in states or name in reasons
        }
        return Shown(states, titles, frozenset(_marked(graph, _scopes(plan))))

    @staticmethod
    def of_difference(difference: Difference) -> Shown:
        """What is added, removed and changed, and the roles in the plan if one is known: markers pass marked edges."""
        titles = {operator.name: operator.words for operator in difference.changed}
        if isinstance(difference, PlannedDifference) and difference.planned is not None:
            why = difference.planned.reasons
            titles |= {name: "\n".join(filter(None, [titles.get(name), words])) for name, words in why.items()}
        before, after = difference.before, difference.after
        was, now = ({(edge.source, edge.to) for edge in graph.edges} for graph in (before, after))
        kept = {ends for ends in was | now if {*ends} <= {*before} & {*after}}  # others are plain from their ends
        labels = dict.fromkeys(kept - was, "added") | dict.fromkeys(kept - now, "removed")
        marked = frozenset(ends for component in _components(difference) for ends in component.edges)
        return Shown(states(difference), titles, marked, labels)

    def within(self, graph: Graph) -> Shown:
        """What of it belongs to operators and edges of a graph."""
        edges = {(edge.source, edge.to) for edge in graph.edges}
        return Shown(
            {name: words for name, words in self.states.items() if name in graph},
            {name: words for name, words in self.titles.items() if name in graph},
            self.marked & edges,
            {ends: label for ends, label in self.labels.items() if ends in edges},
        )


def plan_svg(graph: Graph, plan: Plan) -> str:
    """The dataflow with the roles of a plan."""
    shown = Shown.of(graph, plan)
    return dag_svg(graph, shown.states, {}, shown.titles, shown.marked)


def roles(plan: Plan) -> dict[str, str]:
    """Operator to its roles in the plan, as ``dag_svg`` takes them: words of ``target head mcs pruned``."""
    sends = [send for stage in plan.stages for send in stage.sends]
    members = {
        "target": plan.targets,
        "head": {send.operator for send in sends},
        "mcs": {name for send in sends for name in send.scope},
    }
    pruned = {decision.operator for decision in plan.covering.pruning if decision.pruned}
    # A pruned operator inside a component is passed by a marker from upstream; epoch markers ignore pruning.
    covered = {name for component in plan.covering.components for name in component.operators}
    members["pruned"] = pruned if members["mcs"] <= covered else pruned - members["mcs"]
    taking_part = sorted(set().union(*members.values()))
    return {name: " ".join(word for word, names in members.items() if name in names) for name in taking_part}


def dag_parts(graph: Graph, plan: Plan | None) -> Markup:
    """The dataflow's picture, with the plan if there is one."""
    words = f"The dataflow {graph.name}; data flows along the arrows."
    if plan is None:
        return part("figure", dag_svg(graph), words)
    changing = _names(graph, plan.targets)
    marked = f"Highlighted: the part that {plan.scheduler.capitalize()} synchronises to change {changing}."
    return part("figure", plan_svg(graph, plan), f"{words} {marked}") + part("bullets", in_words(graph, plan))


def plan_parts(graph: Graph, plan: Plan, more: Iterable[str] = ()) -> Markup:
    """A plan in one piece: picture, words, ``more`` lines, and a counter-example if naive FCM is not consistent."""
    example = counter_example(graph, plan.targets)
    steps = "" if example is None else example_parts(graph, example)
    return part("plan", plan_svg(graph, plan), [*in_words(graph, plan), *more], steps)


def plan_drawing(graph: Graph, plan: Plan) -> str:
    """A plan as one SVG element: its picture and, if naive FCM is not consistent, the end of a counter-example."""
    example = counter_example(graph, plan.targets)
    if example is None:
        return plan_svg(graph, plan)
    return stacked(plan_svg(graph, plan), *end_svgs(graph, example))


def in_words(graph: Graph, plan: Plan) -> list[str]:
    """One sentence for each marker and each pruning decision of the plan, then on naive FCM and the predicted delay."""
    scopes = _scopes(plan)
    ways = () if plan.prediction is None else plan.prediction.ways
    delays: dict[frozenset[str], CriticalPath] = dict(zip(scopes, ways, strict=False)) if len(ways) > 1 else {}
    lines = [_of_scope(graph, plan, scope, delays.get(scope)) for scope in scopes]
    lines += _decisions(graph, plan)
    return [*lines, _on_naive(plan, counter_example(graph, plan.targets)), *foretold(plan)]


def _decisions(graph: Graph, plan: Plan) -> list[str]:
    """The reason of each pruning decision, with the ways of tuples that show it."""
    shown = plan.covering.pruning[:_SHOWN]
    found = {name: f": {witness.in_words}" for name, witness in witnesses(graph, plan.targets, shown).items()}
    lines = [decision.reason + found.get(decision.operator, "") for decision in shown]
    more = len(plan.covering.pruning) - _SHOWN
    return [*lines, f"... and {counted(more, 'more one-to-many operator')}"] if more > 0 else lines


def _on_naive(plan: Plan, example: CounterExample | None) -> str:
    if plan.covering.naive_safe:
        return "Naive FCM would be consistent here: no tuple meets two targets."
    if example is None:
        return "Naive FCM is not taken to be consistent: plans are cautious about loops and kept rows."
    return f"Naive FCM would not be consistent: {summary(example)}"


def _of_scope(graph: Graph, plan: Plan, scope: frozenset[str], predicted: CriticalPath | None) -> str:
    heads = {send.operator for stage in plan.stages for send in stage.sends if send.scope == scope}
    receivers = f"the {'head' if len(heads) == 1 else 'heads'} {_names(graph, heads)}"
    delay = None if predicted is None else predicted.delay_ms
    after = "" if delay is None else f" (predicted: {duration(delay / 1000)})"
    changing = _names(graph, plan.targets & scope)
    loops = loops_in(graph, scope)
    edges = [" → ".join(ends) for ends in _marked(graph, [scope])]
    if not edges:
        return f"{changing} receives the message directly, and no marker follows{after}."
    verb = "change together" if len(plan.targets & scope) > 1 else "changes"
    way = f"the message goes to {receivers}, and a marker travels from there along {', '.join(edges)}"
    waits = f"; {waits_for_loops(loops)} to be empty first, and no row enters until then" if loops else ""
    return f"{changing} {verb}: {way}{waits}{after}."


def _scopes(plan: Plan) -> list[frozenset[str]]:
    """The scopes of the plan's markers, each once."""
    return list(dict.fromkeys(send.scope for stage in plan.stages for send in stage.sends))


def _marked(graph: Graph, scopes: Iterable[frozenset[str]]) -> list[tuple[str, str]]:
    """The edges inside these scopes, on which markers travel."""
    return [(edge.source, edge.to) for scope in scopes for edge in graph.edges if {edge.source, edge.to} <= scope]


def _names(graph: Graph, names: Iterable[str]) -> str:
    chosen = set(names)
    return ", ".join(name for name in graph.order if name in chosen)


def united(difference: Difference) -> Graph | None:
    """Both dataflows as one graph; ``None`` if it would have a cycle, as when two operators have changed places."""
    before, after = difference.before, difference.after
    gone = [operator for operator in before.operators if operator.name not in after]
    ends = {(edge.source, edge.to) for edge in after.edges}
    edges = [edge for edge in before.edges if (edge.source, edge.to) not in ends]
    try:
        return Graph(after.name, (*after.operators, *gone), (*after.edges, *edges))
    except DataflowError:
        return None


def states(difference: Difference) -> dict[str, str]:
    """Operator to its state in the picture, as ``dag_svg`` takes it; with the roles in a plan, if there is one."""
    before, after = difference.before, difference.after
    found = {name: "removed" for name in before if name not in after}
    found |= {name: "added" for name in after if name not in before}
    found |= {operator.name: "changed" for operator in difference.changed}
    for component in _components(difference):
        for name in component.operators:
            role = "target" if name in component.targets and name not in found else ""
            head = "head" if name in component.heads else ""
            found[name] = " ".join(filter(None, [found.get(name), role, head, "mcs"]))
    return found


def _components(difference: Difference) -> tuple[Component, ...]:
    """What is synchronised, if a plan is known."""
    planned = difference.planned if isinstance(difference, PlannedDifference) else None
    return () if planned is None else planned.plan.covering.components


def difference_svg(difference: Difference) -> str:
    """The difference as one SVG element: both dataflows in one, or one above the other if that has a cycle.

    Where a plan is known, markers travel on the edges that are marked.
    """
    shown, both = Shown.of_difference(difference), united(difference)
    if both is not None:
        return dag_svg(both, shown.states, shown.labels, shown.titles, shown.marked)
    graphs = (difference.before, difference.after)
    parts = [(graph, shown.within(graph)) for graph in graphs]
    return stacked(*(dag_svg(graph, one.states, one.labels, one.titles, marked=()) for graph, one in parts))


def difference_parts(difference: Difference) -> Markup:
    """A difference in one piece: picture, words and, if one is known, the plan."""
    sections = difference.sections if isinstance(difference, PlannedDifference) else []
    return part("changes", difference_svg(difference), difference.summary, difference.lines, sections)
