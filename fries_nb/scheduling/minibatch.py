"""Mini-batch scheduler: sources hold until all tuples are processed; then targets switch, and sources resume.

The change is made between two batches, as in Spark Streaming; the cost is an empty pipeline.

>>> from fries_nb.dataflow.graph import Edge, Operator
>>> graph = Graph("chain", tuple(map(Operator, ("payments", "FC", "FM"))), (Edge("payments", "FC"), Edge("FC", "FM")))
>>> for stage in schedule(graph, {"FM"}).stages:
...     print(stage.does, [(send.operator, sorted(send.scope)) for send in stage.sends], sorted(stage.awaits))
hold [('payments', ['FC', 'FM', 'payments'])] ['FC', 'FM', 'payments']
switch [('FM', ['FM'])] ['FM']
release [('payments', ['payments'])] ['payments']
"""

from __future__ import annotations

from collections.abc import Iterable

from fries_nb.dataflow.graph import Graph
from fries_nb.planning import cover
from fries_nb.scheduling.stages import Plan, Send, Stage, StageAction


def schedule(graph: Graph, targets: Iterable[str], pruning: bool = True) -> Plan:
    """The plan of the mini-batch scheduler; see ``scheduling.schedule``.

    ``pruning`` affects the covering that the plan reports, not the messages.
    """
    covering = cover(graph, targets, pruning)
    everywhere = frozenset(graph.by_name)
    hold = Stage(tuple(Send(source, everywhere) for source in graph.sources), everywhere, StageAction.HOLD)
    switch = Stage(_alone(sorted(covering.targets)), covering.targets)
    release = Stage(_alone(graph.sources), frozenset(graph.sources), StageAction.RELEASE)
    return Plan("minibatch", covering.targets, (hold, switch, release), covering)


def _alone(operators: Iterable[str]) -> tuple[Send, ...]:
    return tuple(Send(operator, frozenset((operator,))) for operator in operators)
