"""Requests as the controller takes them, and whether they can be carried out at all, which is said at once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import networkx as nx

from fries_nb.controller.events import ChangeRequested, Guard
from fries_nb.dataflow.graph import Graph
from fries_nb.dataflow.limits import Limit, Tuples
from fries_nb.dataflow.updates import Update
from fries_nb.errors import ProtocolError
from fries_nb.scheduling.fries import schedule
from fries_nb.scheduling.stages import Plan, StageAction


def change_requested(
    graph: Graph,
    change: str,
    plan: Plan,
    updates: Mapping[str, Update],
    payloads: Mapping[str, bytes],
    limit: Limit | None = None,
    rehearse: bool = True,
    undoes: str = "",
) -> ChangeRequested:
    """The request of a change of this graph.

    Args:
        graph: what runs.
        change: its id.
        plan: what a scheduler made of it.
        updates: the targets' new functions.
        payloads: the same, pickled.
        limit: how long it is under guard; ``None``: not at all.
        rehearse: try new functions on a recent tuple: those below no other target, since what comes to the others will
            change, so that a recent tuple is no fair trial.
        undoes: the change that it rolls back, or empty.
    """
    targets = plan.targets
    fair = {name for name in targets if not targets & nx.ancestors(graph.digraph, name)} if rehearse else set()
    transforms = frozenset(name for name in targets if updates[name].state is not None)
    guard = guard_of(graph, targets, updates, limit) if limit is not None else None
    return ChangeRequested(change, plan, payloads, frozenset(fair), transforms, guard, undoes)


def guard_of(graph: Graph, targets: Iterable[str], updates: Mapping[str, Update], limit: Limit) -> Guard:
    """The guard of a change; its rollback goes by Fries whatever the change goes by, so that it comes soonest."""
    back = all(updates[name].state is None or updates[name].back is not None for name in targets)
    seconds, count = (None, limit.count) if isinstance(limit, Tuples) else (limit, None)
    return Guard(schedule(graph, targets), back, seconds, count)


def refuse_incomplete(request: ChangeRequested) -> None:
    """Raise a ProtocolError for a plan without targets or stages, that would wait for ever, or whose markers cross."""
    plan = request.plan
    if not plan.targets or not plan.stages:
        raise ProtocolError(f"change {request.change!r} has no targets or no stages; a scheduler plans both")
    if set(request.payloads) != plan.targets:
        raise ProtocolError(
            f"change {request.change!r} ships functions for {names(request.payloads)}; its targets are "
            f"{names(plan.targets)}"
        )
    if len(plan.stages) > 1 and any(stage.does is StageAction.RESTART for stage in plan.stages):
        raise ProtocolError(f"{plan.scheduler} has stages beside a restart, which is a whole plan")
    for stage in plan.stages:
        beyond = stage.awaits.difference(*(send.scope for send in stage.sends))
        if beyond:
            raise ProtocolError(f"a stage of {plan.scheduler} awaits {names(beyond)}, which no marker of it reaches")
        scopes = {send.scope for send in stage.sends}
        if sum(map(len, scopes)) > len(frozenset().union(*scopes)):
            raise ProtocolError(f"scopes of a stage of {plan.scheduler} overlap; their markers could cross")


def keeps_state(operator: str, before: str) -> str:
    """The reason why a fix ahead of ``before``, a change prepared for the current state, cannot transform state."""
    return (
        f"{operator} is paused on a tuple from before change {before!r}, which was prepared for the current state; "
        "expected a fix without a state transformation"
    )


def names(operators: Iterable[str]) -> str:
    """Operators in a sentence."""
    return ", ".join(sorted(operators)) or "none"
