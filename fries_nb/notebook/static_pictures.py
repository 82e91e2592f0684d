"""The place that a live view shares with the static picture of its run, and the labels of edges, live and static."""

from __future__ import annotations

from fries_nb.dataflow.graph import Edge, Graph
from fries_nb.dataflow.traits import Emits, Execution, Returns
from fries_nb.report.dag import Ends
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
