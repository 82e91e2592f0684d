"""Table 7: the number of data channels of W2, in all and in the component of J1 and J4; computed by the planner."""

from __future__ import annotations

from pathlib import Path

import fries_nb as fn
from fries_nb.experiments.printed_tables import Result
from fries_nb.experiments.scale import ExperimentScale
from fries_nb.planning import cover
from fries_nb.topology.topology import channel_count
from fries_nb.workloads.tpcds import Tables
from fries_nb.workloads.w2 import w2_flow

PAPER = {1: (5, 3), 4: (68, 48), 12: (588, 432), 20: (1_620, 1_200), 40: (6_440, 4_800)}
"""Workers of an operator to the number of channels in all, and in the component."""
CHANGE = ("J1", "J4")


def table7(scale: ExperimentScale) -> Result:
    """Table 7: data channels of W2 by the number of workers, in all and in a component; from the planner."""
    rows = tuple(
        {"workers": workers, "all": ours[0], "component": ours[1], "paper all": paper[0], "paper component": paper[1]}
        for workers, paper in PAPER.items()
        for ours in [channels(workers)]
    )
    parameters = {"flow": "W2", "change": ", ".join(CHANGE)}
    return Result("table7", "number of data channels by number of workers", scale.of_paper, parameters, rows)


def channels(workers: int) -> tuple[int, int]:
    """Number of channels of W2 with this number of workers for each operator, in all and inside the component."""
    graph = w2_flow(Tables(Path()), fn.memory(), workers=workers).graph()
    [component] = cover(graph, CHANGE).components
    inside = [edge for edge in graph.edges if (edge.source, edge.to) in component.edges]
    return channel_count(graph, graph.edges), channel_count(graph, inside)
