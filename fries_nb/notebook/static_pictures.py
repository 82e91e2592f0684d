"""Static pictures of a run, for saved notebooks and exports: they need no kernel, script or network access."""

from __future__ import annotations

from fries_nb.dataflow.graph import Edge, Graph
from fries_nb.dataflow.traits import Emits, Execution, Returns
from fries_nb.report.constraint_bars import buffers_svg, constraint_svg
from fries_nb.report.dag import Ends, dag_svg
from fries_nb.report.host_rows import before_now, hosts_svg, progress_svgs
from fries_nb.report.latency import bands_of, latency_svg
from fries_nb.report.markup import stacked
from fries_nb.report.plan_section import Shown
from fries_nb.run import Run
from fries_nb.telemetry.metrics import MetricsSnapshot

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


def run_svg(run: Run) -> str:
    """The dataflow with the last change, latency and throughput so far, progress, constraints, buffers, hosts."""
    loops = run.loops()
    rounds = {loop.name: loop.rounds for loop in loops}
    shown = last_change(run)
    states = shown.states if run.failed_at not in run.graph else {**shown.states, run.failed_at: "failed"}
    marked = shown.marked if shown.states else None
    dataflow = dag_svg(run.graph, states, titles=shown.titles, marked=marked, rounds=rounds)
    progress = progress_svgs(run.frontiers(), loops)
    latency = latency_svg(run.history.latency, run.history.marks, bands_of(run.history.constraints))
    sizes, judged = run.history.buffers, run.history.constraints
    buffers = [buffers_svg(sizes, run.history.chains, judged[0].at_s, judged[-1].at_s)] if sizes else []
    hosts = hosts_svg(run.topology(), {}, before_now(run.history.hosts))
    return stacked(dataflow, latency, *progress, *map(constraint_svg, run.constraints()), *buffers, hosts)


def last_change(run: Run) -> Shown:
    """The roles in the last change, if it is under way or done; one that had no effect is not shown."""
    if not run.changes:
        return Shown()
    last = run.changes[-1]
    outcome = last.result(0).outcome if last.done else ""
    return Shown() if outcome not in ("", "done") else Shown.of(run.graph, last.plan, done=bool(outcome))


class EdgeLabels:
    """For each edge its rate and, below it, the length of the queue in front of its receiver.

    Workers count the tuples that they take in. The rate of one of several edges into an operator is therefore known
    only if the sender passes on every tuple; and the receiver's queue is shown once, marked Σ, at the first of its
    edges. Where the figures of each edge come from is found once, since a live view asks for the labels many times.
    """

    def __init__(self, graph: Graph) -> None:
        self._edges = [
            ((edge.source, edge.to), _counted_at(graph, edge), *_queue_of(graph, edge)) for edge in graph.edges
        ]

    def of(self, snapshot: MetricsSnapshot) -> dict[Ends, str]:
        """The labels of these measurements."""
        seen, labels = snapshot.operators, {}
        for ends, counted_at, receiver, mark in self._edges:
            rate = f"{short(seen[counted_at].rate)}/s" if counted_at in seen else ""
            queue = f"{mark}{short(seen[receiver].queued)} queued" if receiver in seen else ""
            labels[ends] = f"{rate}\n{queue}"
        return labels


def short(value: float) -> str:
    """A count in at most four characters.

    >>> short(999), short(4_512), short(45_120), short(3_200_000)
    ('999', '4.5k', '45k', '3.2M')
    """
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if value >= 0.9995 * size:
            return f"{value / size:.1f}{letter}" if value < 9.95 * size else f"{value / size:.0f}{letter}"
    return f"{value:.0f}"


def _counted_at(graph: Graph, edge: Edge) -> str:
    """The operator whose tuples are those of this edge; empty if there is none."""
    tail = graph.by_name[edge.source]
    traits, is_only = tail.traits, len(graph.out_edges(tail.name)) == 1
    one_for_one = traits.execution is Execution.PASS or traits.returns is Returns.ROW
    passes_on = traits.copies or (one_for_one and tail.emits is Emits.ONE_TO_ONE and is_only)
    if len(graph.in_edges(edge.to)) == 1:
        return edge.to
    return edge.source if passes_on else ""


def _queue_of(graph: Graph, edge: Edge) -> tuple[str, str]:
    """The operator whose queue is shown at this edge, empty if none is, and what is put before the length."""
    first, *others = graph.in_edges(edge.to)
    return (edge.to if first == edge else "", "Σ " if others else "")
