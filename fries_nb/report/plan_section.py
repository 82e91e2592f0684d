"""The section of a report on a plan: the operators that a change synchronises, drawn and in words.

>>> from fries_nb.dataflow.graph import Edge, Operator
>>> from fries_nb.scheduling import schedule
>>> graph = Graph("chain", tuple(map(Operator, ("S", "A", "B", "T"))), (Edge("S", "A"), Edge("A", "B"), Edge("B", "T")))
>>> roles(schedule("fries", graph, ["A", "B"]))
{'A': 'target head mcs', 'B': 'target mcs'}
>>> roles(schedule("epoch", graph, ["B"]))["S"]
'head mcs'
>>> in_words(graph, schedule("fries", graph, ["A", "B"]))[0]
'A, B change together: the message goes to A, and a marker travels from there along A → B.'
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fries_nb.dataflow.graph import Graph
from fries_nb.dataflow.loops import loops_in
from fries_nb.report.dag import dag_svg
from fries_nb.report.latency import took
from fries_nb.report.markup import Html, figure, joined, listed
from fries_nb.scheduling import Plan

_SHOWN = 12


def roles(plan: Plan) -> dict[str, str]:
    """Operator to its roles in the plan, as ``dag_svg`` takes them: words of ``target head mcs pruned``."""
    sends = [send for stage in plan.stages for send in stage.sends]
    members = {
        "target": plan.targets,
        "head": {send.operator for send in sends},
        "mcs": {name for send in sends for name in send.scope},
    }
    pruned = {one.operator for one in plan.covering.pruning if one.pruned}
    # A pruned operator inside a component is passed by a marker from upstream; epoch markers ignore pruning.
    covered = {name for component in plan.covering.components for name in component.operators}
    members["pruned"] = pruned if members["mcs"] <= covered else pruned - members["mcs"]
    taking_part = sorted(set().union(*members.values()))
    return {name: " ".join(word for word, names in members.items() if name in names) for name in taking_part}


def dag_parts(graph: Graph, plan: Plan | None) -> Html:
    """The dataflow's picture, with the plan if there is one."""
    if plan is None:
        return figure(dag_svg(graph), f"The dataflow {graph.name}; data flows along the arrows.")
    titles = {decision.operator: decision.reason for decision in plan.covering.pruning}
    drawing = dag_svg(graph, roles(plan), titles=titles, marked=_marked(graph, _scopes(plan)))
    names = _names(graph, plan.targets)
    marked = f"Highlighted: the part that {plan.scheduler.capitalize()} synchronises to change {names}."
    shown = figure(drawing, f"The dataflow {graph.name}; data flows along the arrows. {marked}")
    return joined([shown, listed(in_words(graph, plan))])


def in_words(graph: Graph, plan: Plan) -> list[str]:
    """One sentence for each marker and each pruning decision of the plan, then on naive FCM and the predicted delay."""
    lines = [_of_scope(graph, plan, scope) for scope in _scopes(plan)]
    lines += [decision.reason for decision in plan.covering.pruning]
    if plan.covering.naive_safe:
        lines.append("Naive FCM would be consistent here: no tuple meets two targets.")
    else:
        lines.append("Naive FCM would not be consistent: a tuple may meet one target old and another new.")
    return lines + foretold(plan)


def foretold(plan: Plan) -> list[str]:
    """A line on the predicted delay; empty if the plan was not made for a run.

    >>> from dataclasses import replace
    >>> from fries_nb.dataflow.graph import Edge, Operator
    >>> from fries_nb.planning import Prediction, CriticalPath
    >>> from fries_nb.scheduling import schedule
    >>> plan = schedule("fries", Graph("chain", (Operator("S"), Operator("A")), (Edge("S", "A"),)), ["A"])
    >>> foretold(plan), foretold(replace(plan, prediction=Prediction((CriticalPath(("A",), 12.0),), 8_400.0)))
    ([], ['predicted delay 12 ms (epoch: 8.4 s)'])
    """
    if plan.prediction is None:
        return []
    slowest = max(plan.prediction.ways, key=lambda way: way.delay_ms or 0.0, default=None)
    unmeasured = list(dict.fromkeys(name for way in plan.prediction.ways for name in way.unmeasured))
    if slowest is None:
        delay = f"unknown, since a change by {plan.scheduler} waits for more than markers"
    elif loops := list(dict.fromkeys(name for way in plan.prediction.ways for name in way.loops)):
        delay = f"unknown, since {_loops(loops)} to be empty first"
    elif unmeasured:
        delay = f"unknown, since the pace of {', '.join(unmeasured[:_SHOWN])} is not known yet"
    else:
        along = f" along {' → '.join(slowest.operators)}" if len(slowest.operators) > 1 else ""
        delay = took((slowest.delay_ms or 0.0) / 1000) + along
    by_epoch = plan.prediction.epoch_ms if plan.scheduler != "epoch" else None
    return [f"predicted delay {delay}" + ("" if by_epoch is None else f" (epoch: {took(by_epoch / 1000)})")]


def _of_scope(graph: Graph, plan: Plan, scope: frozenset[str]) -> str:
    told = _names(graph, {send.operator for stage in plan.stages for send in stage.sends if send.scope == scope})
    changing = _names(graph, plan.targets & scope)
    loops = loops_in(graph, scope)
    edges = [" → ".join(ends) for ends in _marked(graph, [scope])]
    if not edges:
        return f"{changing} receives the message directly, and no marker follows."
    verb = "change together" if len(plan.targets & scope) > 1 else "changes"
    way = f"the message goes to {told}, and a marker travels from there along {', '.join(edges)}"
    waits = f"; {_loops(loops)} to be empty first, and no row enters until then" if loops else ""
    return f"{changing} {verb}: {way}{waits}."


def _loops(loops: Sequence[str]) -> str:
    return f"loop {loops[0]} has" if len(loops) == 1 else f"loops {', '.join(loops)} have"


def _scopes(plan: Plan) -> list[frozenset[str]]:
    """The scopes of the plan's markers, each once."""
    return list(dict.fromkeys(send.scope for stage in plan.stages for send in stage.sends))


def _marked(graph: Graph, scopes: Iterable[frozenset[str]]) -> list[tuple[str, str]]:
    """The edges inside these scopes, on which markers travel."""
    return [(edge.source, edge.to) for scope in scopes for edge in graph.edges if {edge.source, edge.to} <= scope]


def _names(graph: Graph, names: Iterable[str]) -> str:
    chosen = set(names)
    return ", ".join(name for name in graph.order if name in chosen)
