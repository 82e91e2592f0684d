"""The Fries scheduler (Fries, algorithms 2 to 4): an FCM to the heads of each component, a marker inside it.

>>> from fries_nb.dataflow.graph import Edge, Operator
>>> graph = Graph("chain", tuple(map(Operator, ("payments", "FC", "FM", "MC"))), (
...     Edge("payments", "FC"), Edge("FC", "FM"), Edge("FM", "MC")))
>>> [stage] = schedule(graph, {"FM", "MC"}).stages
>>> [(send.operator, sorted(send.scope)) for send in stage.sends]
[('FM', ['FM', 'MC'])]
"""

from __future__ import annotations

from collections.abc import Iterable

from fries_nb.dataflow.graph import Graph
from fries_nb.planning import cover
from fries_nb.scheduling.stages import Plan, Send, Stage


def schedule(graph: Graph, targets: Iterable[str], pruning: bool = True) -> Plan:
    """The plan of the Fries scheduler; see ``scheduling.schedule``."""
    covering = cover(graph, targets, pruning)
    sends = tuple(Send(head, part.operators) for part in covering.components for head in sorted(part.heads))
    return Plan("fries", covering.targets, (Stage(sends, covering.targets),), covering)
