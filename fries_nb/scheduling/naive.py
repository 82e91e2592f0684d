"""Naive: a fast control message to every target and no marker between them (Fries, section 4.1).

Fast, and wrong where ``covering.naive_safe`` is false; kept to show why.

>>> from fries_nb.dataflow.graph import Edge, Operator
>>> graph = Graph("chain", tuple(map(Operator, ("payments", "FM", "MC"))), (Edge("payments", "FM"), Edge("FM", "MC")))
>>> plan = schedule(graph, {"FM", "MC"})
>>> [(send.operator, sorted(send.scope)) for send in plan.stages[0].sends], plan.covering.naive_safe
([('FM', ['FM']), ('MC', ['MC'])], False)
"""

from __future__ import annotations

from collections.abc import Iterable

from fries_nb.dataflow.graph import Graph
from fries_nb.planning import cover
from fries_nb.scheduling.stages import Plan, Send, Stage


def schedule(graph: Graph, targets: Iterable[str], pruning: bool = True) -> Plan:
    """The plan of the naive scheduler; raises ``PlanError`` as ``cover`` does.

    ``pruning`` concerns the covering that is reported, not what is sent.
    """
    covering = cover(graph, targets, pruning)
    sends = tuple(Send(target, frozenset((target,))) for target in sorted(covering.targets))
    return Plan("naive", covering.targets, (Stage(sends, covering.targets),), covering)
