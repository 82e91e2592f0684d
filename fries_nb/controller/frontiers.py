"""Frontiers of all operators, computed from one host's view of the outstanding pointstamps.

A host's view is safe for every operator, since it consists of whole steps: nothing can arrive before a frontier that is
computed from it. So the frontiers of operators that do not listen are computed on request, and cost nothing while the
dataflow runs.

Nothing can arrive at a source, so its own frontier is empty. What it has still to read holds back the frontiers of the
operators below it.

>>> from fries_nb.dataflow.event_time import EventTime
>>> from fries_nb.dataflow.graph import Edge, Kind, Operator
>>> from fries_nb.progress.change_batch import GraphLocation
>>> source = Operator("Src", kind=Kind.SOURCE, time=EventTime("at"))
>>> operators = (source, Operator("FM"), Operator("Out", kind=Kind.SINK))
>>> graph = Graph("one", operators, (Edge("Src", "FM"), Edge("FM", "Out")))
>>> counts = (CountChange(GraphLocation("Src"), (0, 40), 1), CountChange(GraphLocation("Src", "FM"), (0, 30), 2))
>>> frontiers = Frontiers(graph, counts)
>>> frontiers.reached()
{'Src': None, 'FM': 30, 'Out': 30}
>>> frontiers.holding("Out")                                      # two frames in front of FM
(FrontierHolder(operator='Src', time=(0, 30), count=2, to='FM'),)
"""

from __future__ import annotations

from collections.abc import Iterable

from fries_nb.dataflow.graph import Graph
from fries_nb.progress.change_batch import CountChange
from fries_nb.progress.progress_graph import ProgressGraph
from fries_nb.progress.times import moment
from fries_nb.progress.tracker import FrontierHolder, Tracker
from fries_nb.topology.progress_locations import progress_graph

__all__ = ["FrontierHolder", "Frontiers", "ProgressGraph"]


class Frontiers:
    """The frontiers of all operators of a region at one moment.

    Args:
        graph: the dataflow of the region.
        counts: the outstanding pointstamps.
    """

    def __init__(self, graph: Graph, counts: Iterable[CountChange]) -> None:
        self._graph = graph
        self._tracker = Tracker(progress_graph(graph), graph.by_name, counts)

    def reached(self) -> dict[str, int | None]:
        """Operator to the least time that can still arrive at its input; ``None`` if nothing can."""
        return {name: min(map(moment, self._tracker.frontier(name)), default=None) for name in self._graph}

    def holding(self, operator: str) -> tuple[FrontierHolder, ...]:
        """What keeps an operator's frontier from advancing, the earliest first.

        Raises:
            DataflowError: there is no such operator.
        """
        return self._tracker.holders(self._graph.operator(operator).name)
