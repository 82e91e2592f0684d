"""Naive scheduler (Fries, section 4.1): an FCM to every target, and no marker between them.

It is fast, and inconsistent if ``covering.naive_safe`` is false; it is provided for comparison.

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
    """The plan of the naive scheduler; see ``scheduling.schedule``.

    ``pruning`` affects the covering that the plan reports, not the messages.
    """
    covering = cover(graph, targets, pruning)
    sends = tuple(Send(target, frozenset((target,))) for target in sorted(covering.targets))
    return Plan("naive", covering.targets, (Stage(sends, covering.targets),), covering)
