"""The difference of two dataflows as a picture: both in one, with what is added, removed and changed.

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

from markupsafe import Markup

from fries_nb.dataflow.graph import Graph
from fries_nb.errors import DataflowError
from fries_nb.planning.difference import Difference
from fries_nb.report.dag import dag_svg
from fries_nb.report.markup import stacked
from fries_nb.report.page import part


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
    """Operator to its state in the picture, as ``dag_svg`` takes it."""
    before, after = difference.before, difference.after
    found = {name: "removed" for name in before if name not in after}
    found |= {name: "added" for name in after if name not in before}
    return found | {operator.name: "changed" for operator in difference.changed}


def difference_svg(difference: Difference) -> str:
    """The difference as one SVG element: both dataflows in one, or one above the other if that has a cycle."""
    marks = states(difference)
    titles = {operator.name: operator.words for operator in difference.changed}
    before, after = difference.before, difference.after
    was, now = ({(edge.source, edge.to) for edge in graph.edges} for graph in (before, after))
    kept = {ends for ends in was | now if {*ends} <= {*before} & {*after}}  # others are plain from their ends
    labels = dict.fromkeys(kept - was, "added") | dict.fromkeys(kept - now, "removed")
    if (both := united(difference)) is not None:
        return dag_svg(both, marks, labels, titles, marked=())
    return stacked(*(
        dag_svg(
            graph,
            {name: mark for name, mark in marks.items() if name in graph},
            {ends: label for ends, label in labels.items() if ends in edges},
            {name: title for name, title in titles.items() if name in graph},
            marked=(),
        )
        for graph, edges in ((before, was), (after, now))
    ))


def difference_parts(difference: Difference) -> Markup:
    """A difference in one piece: picture and words."""
    return part("figure", difference_svg(difference), difference.summary) + part(
        "bullets", repr(difference).splitlines()[1:]
    )
