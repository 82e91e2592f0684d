"""Schedulers: make the plan of messages for a change. One module for each; ``SCHEDULERS`` lists them by name."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from fries_nb.dataflow.graph import Graph
from fries_nb.errors import PlanError, unknown
from fries_nb.scheduling import epoch, fries, minibatch, multiversion, naive, restart
from fries_nb.scheduling.stages import Plan, Send, Stage

__all__ = ["Plan", "SCHEDULERS", "Send", "Stage", "schedule"]

SCHEDULERS: dict[str, Callable[[Graph, Iterable[str], bool], Plan]] = {
    "fries": fries.schedule,
    "epoch": epoch.schedule,
    "naive": naive.schedule,
    "multiversion": multiversion.schedule,
    "restart": restart.schedule,
    "minibatch": minibatch.schedule,
}


def schedule(name: str, graph: Graph, targets: Iterable[str], pruning: bool = True) -> Plan:
    """The plan of a change.

    Args:
        name: the scheduler, a key of ``SCHEDULERS``.
        graph: the dataflow.
        targets: names of the operators to change.
        pruning: whether one-to-many operators that need no synchronisation are left out.

    Returns:
        The plan, without a prediction.

    Raises:
        PlanError: no such scheduler; or an unknown operator, a source, or no operator among the targets.
    """
    if not isinstance(name, str) or name not in SCHEDULERS:
        raise PlanError(unknown("scheduler", str(name), SCHEDULERS))
    return SCHEDULERS[name](graph, targets, pruning)
