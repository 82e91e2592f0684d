"""Multi-version: sources tag what they read from now on, and both versions live until the old tag has drained.

No tuple waits for a marker: a new-tagged one is processed by the new functions beside old-tagged ones that are still
under way (Fries, section 8.1). The price is two configurations at once.

>>> from fries_nb.dataflow.graph import Edge, Operator
>>> graph = Graph("chain", tuple(map(Operator, ("payments", "FC", "FM"))), (Edge("payments", "FC"), Edge("FC", "FM")))
>>> [stage] = schedule(graph, {"FM"}).stages
>>> [(send.operator, sorted(send.scope)) for send in stage.sends], sorted(stage.awaits), str(stage.does)
([('payments', ['FC', 'FM', 'payments'])], ['FM'], 'tag')
"""

from __future__ import annotations

from collections.abc import Iterable

from fries_nb.dataflow.graph import Graph
from fries_nb.planning import cover
from fries_nb.scheduling.stages import Plan, Send, Stage, StageAction


def schedule(graph: Graph, targets: Iterable[str], pruning: bool = True) -> Plan:
    """The plan of the multi-version scheduler; raises ``PlanError`` as ``cover`` does.

    ``pruning`` concerns the covering that is reported, not what is sent.
    """
    covering = cover(graph, targets, pruning)
    scope = frozenset(graph.by_name)
    sends = tuple(Send(source, scope) for source in graph.sources)
    return Plan("multiversion", covering.targets, (Stage(sends, covering.targets, StageAction.TAG),), covering)
