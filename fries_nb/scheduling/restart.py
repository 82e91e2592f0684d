"""Restart scheduler (Flink's savepoints): takes a checkpoint, ends the job, and restarts it with the new functions.

>>> from fries_nb.dataflow.graph import Edge, Operator
>>> graph = Graph("chain", tuple(map(Operator, ("payments", "FC", "FM"))), (Edge("payments", "FC"), Edge("FC", "FM")))
>>> [stage] = schedule(graph, {"FM"}).stages
>>> [(send.operator, sorted(send.scope)) for send in stage.sends], sorted(stage.awaits), str(stage.does)
([('payments', ['FC', 'FM', 'payments'])], ['FC', 'FM', 'payments'], 'restart')
"""

from __future__ import annotations

from collections.abc import Iterable

from fries_nb.dataflow.graph import Graph
from fries_nb.planning import cover
from fries_nb.scheduling.stages import Plan, Send, Stage, StageAction


def schedule(graph: Graph, targets: Iterable[str], pruning: bool = True) -> Plan:
    """The plan of the restart scheduler; see ``scheduling.schedule``.

    ``pruning`` affects the covering that the plan reports, not the messages.
    """
    covering = cover(graph, targets, pruning)
    scope = frozenset(graph.by_name)
    sends = tuple(Send(source, scope) for source in graph.sources)
    return Plan("restart", covering.targets, (Stage(sends, scope, StageAction.RESTART),), covering)
