"""Multi-version scheduler: sources tag new tuples; both versions run until the last tuple with the old tag has drained.

No tuple waits for a marker: new-tagged tuples are processed by the new functions, concurrently with old-tagged ones
(Fries, section 8.1). The cost is two configurations in memory.

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
    """The plan of the multi-version scheduler; see ``scheduling.schedule``.

    ``pruning`` affects the covering that the plan reports, not the messages.
    """
    covering = cover(graph, targets, pruning)
    scope = frozenset(graph.by_name)
    sends = tuple(Send(source, scope) for source in graph.sources)
    return Plan("multiversion", covering.targets, (Stage(sends, covering.targets, StageAction.TAG),), covering)
