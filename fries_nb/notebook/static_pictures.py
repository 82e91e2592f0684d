r"""Static pictures of a run, for saved notebooks and exports: they need no kernel, script or network access.

>>> from fries_nb.dataflow.graph import Edge, Graph, Operator
>>> from fries_nb.scheduling import schedule
>>> graph = Graph("w1", tuple(map(Operator, ("Src", "FD", "Sink"))), (Edge("Src", "FD"), Edge("FD", "Sink")))
>>> shown = Shown.of(graph, schedule("fries", graph, ["FD"]))
>>> shown.states, shown.titles["FD"]
({'FD': 'target head mcs'}, 'target of the change, head: gets the message')
>>> both = stacked('<svg width="20" height="5"/>', '<svg width="7" height="4.5"/>')
>>> print(both.replace("><", ">\n<"))
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 20 9.5" width="20" height="9.5">
<svg y="0" width="20" height="5"/>
<svg y="5" width="7" height="4.5"/>
</svg>
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from fries_nb.controller.metrics import MetricsSnapshot
from fries_nb.dataflow.graph import Edge, Graph
from fries_nb.dataflow.traits import Emits, Execution, Returns
from fries_nb.report.buffer_steps import buffers_svg
from fries_nb.report.constraint_bars import constraint_svg
from fries_nb.report.dag import Ends, dag_png, dag_svg, explained, state_words
from fries_nb.report.frontier_rows import progress_svgs
from fries_nb.report.host_rows import before_now, hosts_svg
from fries_nb.report.latency import latency_svg
from fries_nb.report.latency_bands import bands_of
from fries_nb.report.layout import Layout, layout
from fries_nb.report.plan_section import roles
from fries_nb.run import Run
from fries_nb.scheduling import Plan

__all__ = [
    "LIVE", "ONE_OF_TWO", "Layout", "Shown", "dag_png", "dag_svg", "edge_labels", "latency_svg", "layout", "plan_svg",
    "run_svg", "stacked",
]  # fmt: skip

LIVE = "fries-live"
"""CSS class of the live view."""
# A live view hides the picture in front of it. Without its kernel the view is only text ("Loading widget..." or an
# error)
# in a panel without elements, which is hidden behind a picture. An <img> takes its colour scheme from the page.
ONE_OF_TWO = f"""<style>
.jp-OutputArea-child:has(> .jp-RenderedSVG):has(+ .jp-OutputArea-child .{LIVE}) {{ display: none; }}
.jp-OutputArea-child:has(> .jp-RenderedSVG) + .jp-OutputArea-child > .jp-OutputArea-output.lm-Panel:not(:has(*)) {{
  display: none; }}
[data-jp-theme-light="true"] .jp-RenderedSVG img {{ color-scheme: light; }}
[data-jp-theme-light="false"] .jp-RenderedSVG img {{ color-scheme: dark; }}
</style>"""
"""HTML that makes a page show either the picture of a run or the live view behind it."""
_SIZE = re.compile(r'<svg\b[^>]*?\swidth="([\d.]+)" height="([\d.]+)"')


@dataclass(frozen=True)
class Shown:
    """The states and tooltips by which a picture of the dataflow shows a plan.

    Attributes:
        states: operator to its states, as ``dag_svg`` takes them.
        titles: operator to tooltip text: its role and, for one-to-many operators, why it was kept or pruned.
        marked: edges on which markers travel.
    """

    states: Mapping[str, str] = field(default_factory=dict)
    titles: Mapping[str, str] = field(default_factory=dict)
    marked: frozenset[Ends] = frozenset()

    @property
    def legend(self) -> dict[str, str]:
        """The states that occur, and their meaning."""
        return explained(self.states, self.marked)

    @staticmethod
    def of(graph: Graph, plan: Plan) -> Shown:
        """The states and tooltips of a plan."""
        states = roles(plan)
        reasons = {decision.operator: decision.reason for decision in plan.covering.pruning}
        titles = {
            name: "\n".join(filter(None, [state_words(states.get(name, "")), reasons.get(name, "")]))
            for name in graph
            if name in states or name in reasons
        }
        scopes = {send.scope for stage in plan.stages for send in stage.sends}
        ends = {(edge.source, edge.to) for edge in graph.edges}
        return Shown(states, titles, frozenset(pair for pair in ends if any(set(pair) <= scope for scope in scopes)))


def plan_svg(
    graph: Graph,
    plan: Plan,
    labels: Mapping[Ends, str] = {},
    width: float = 900.0,
    rounds: Mapping[str, str] = {},
) -> str:
    """The dataflow with the roles of a plan, as SVG.

    Args:
        graph: the dataflow.
        plan: the plan.
        labels: edge to a label of one or two short lines.
        width: available width in pixels.
        rounds: loop to a text on its rounds.

    Returns:
        An ``<svg>`` element.
    """
    shown = Shown.of(graph, plan)
    return dag_svg(graph, shown.states, labels, shown.titles, shown.marked, width, rounds)


def run_svg(run: Run) -> str:
    """The dataflow with the last change, latency and throughput so far, progress, constraints, buffers, hosts."""
    loops = run.loops()
    rounds = {loop.name: loop.rounds for loop in loops}
    plan = run.changes[-1].plan if run.changes else None
    dataflow = dag_svg(run.graph, rounds=rounds) if plan is None else plan_svg(run.graph, plan, rounds=rounds)
    progress = progress_svgs(run.frontiers(), loops)
    latency = latency_svg(run.history(), run.marks(), bands_of(run.constraint_history()))
    sizes, judged = run.buffer_history(), run.constraint_history()
    buffers = [buffers_svg(sizes, run.chain_history(), judged[0].at_s, judged[-1].at_s)] if sizes else []
    hosts = hosts_svg(run.topology(), {}, before_now(run.topology_history()))
    return stacked(dataflow, latency, *progress, *map(constraint_svg, run.constraints()), *buffers, hosts)


def stacked(*drawings: str) -> str:
    """Stack SVG elements vertically into one; each must declare its width and height."""
    width = height = 0.0
    parts = []
    for drawing in drawings:
        size = _SIZE.match(drawing)
        assert size is not None, drawing[:200]
        parts.append(drawing.replace("<svg ", f'<svg y="{height:g}" ', 1))
        width, height = max(width, float(size[1])), height + float(size[2])
    extent = f'viewBox="0 0 {width:g} {height:g}" width="{width:g}" height="{height:g}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {extent}>{"".join(parts)}</svg>'


def edge_labels(graph: Graph, snapshot: MetricsSnapshot) -> dict[Ends, str]:
    """For each edge its rate and, below it, the length of the queue in front of its receiver.

    Workers count the tuples that they take in. The rate of one of several edges into an operator is therefore known
    only if the sender passes on every tuple; and the receiver's queue is shown once, marked Σ, at the first of its
    edges.
    """
    return {(edge.source, edge.to): f"{_rate(graph, snapshot, edge)}\n{_queue(graph, snapshot, edge)}"
            for edge in graph.edges}  # fmt: skip


def short(value: float) -> str:
    """A count in at most four characters.

    >>> short(999), short(4_512), short(45_120), short(3_200_000)
    ('999', '4.5k', '45k', '3.2M')
    """
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if value >= 0.9995 * size:
            return f"{value / size:.1f}{letter}" if value < 9.95 * size else f"{value / size:.0f}{letter}"
    return f"{value:.0f}"


def _rate(graph: Graph, snapshot: MetricsSnapshot, edge: Edge) -> str:
    tail = graph.by_name[edge.source]
    traits, is_only = tail.traits, len(graph.out_edges(tail.name)) == 1
    one_for_one = traits.execution is Execution.PASS or traits.returns is Returns.ROW
    passes_on = traits.copies or (one_for_one and tail.emits is Emits.ONE_TO_ONE and is_only)
    if len(graph.in_edges(edge.to)) == 1:
        counted = snapshot.operators.get(edge.to)
    else:
        counted = snapshot.operators.get(edge.source) if passes_on else None
    return f"{short(counted.rate)}/s" if counted else ""


def _queue(graph: Graph, snapshot: MetricsSnapshot, edge: Edge) -> str:
    entering = graph.in_edges(edge.to)
    seen = snapshot.operators.get(edge.to)
    if seen is None or entering[0] != edge:
        return ""
    return f"{'Σ ' if len(entering) > 1 else ''}{short(seen.queued)} queued"
