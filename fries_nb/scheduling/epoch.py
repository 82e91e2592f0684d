"""Epoch-based scheduler (Chi; Fries, section 3): a marker from all sources through the whole graph, behind all data.

>>> from fries_nb.dataflow.graph import Edge, Operator
>>> graph = Graph("chain", tuple(map(Operator, ("payments", "FC", "FM"))), (Edge("payments", "FC"), Edge("FC", "FM")))
>>> [stage] = schedule(graph, {"FM"}).stages
>>> [(send.operator, sorted(send.scope)) for send in stage.sends]
[('payments', ['FC', 'FM', 'payments'])]
"""

from __future__ import annotations

from collections.abc import Iterable

from fries_nb.dataflow.graph import Graph
from fries_nb.planning import cover
from fries_nb.scheduling.stages import Plan, Send, Stage


def schedule(graph: Graph, targets: Iterable[str], pruning: bool = True) -> Plan:
    """The plan of the epoch-based scheduler; see ``scheduling.schedule``.

    ``pruning`` affects the covering that the plan reports, not the messages.
    """
    covering = cover(graph, targets, pruning)
    scope = frozenset(graph.by_name)
    sends = tuple(Send(source, scope) for source in graph.sources)
    return Plan("epoch", covering.targets, (Stage(sends, covering.targets),), covering)
