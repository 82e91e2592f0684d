"""What a guard can do for a change, said when it is asked for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from fries_nb.controller.guards import Guards
from fries_nb.controller.requests import guard_of, names
from fries_nb.dataflow.graph import Graph
from fries_nb.dataflow.limits import Limit, shown_limit
from fries_nb.dataflow.updates import Update


def guarded(
    graph: Graph, targets: Iterable[str], updates: Mapping[str, Update], limit: Limit, chaining: bool, recovers: bool
) -> tuple[Limit | None, str]:
    """The guard as far as it is possible, and what it covers, in one sentence.

    Args:
        graph: what runs.
        targets: the operators that change.
        updates: their new functions.
        limit: how long the guard is to last.
        chaining: whether hosts chain operators.
        recovers: whether the run can go back to a checkpoint.
    """
    chosen = frozenset(targets)
    guard = guard_of(graph, chosen, updates, limit)
    for_long = shown_limit(limit)
    transformed = names(name for name in chosen if updates[name].state is not None)
    if not guard.back and not recovers:
        return None, (
            f"not at all: the state of {transformed} is transformed and Update(...) says no way back (back=...), and "
            "the run keeps no checkpoint to go back to"
        )
    if not guard.back:
        return limit, (
            f"for {for_long}, as long as the run can go back to a checkpoint from before the change: the state of "
            f"{transformed} is transformed and Update(...) says no way back (back=...)"
        )
    if recovers:
        return limit, f"for {for_long}"
    guards = Guards(graph, chaining)
    guards.begin("", guard, frozenset())
    watch = guards.of("")
    others = sorted(name for name in chosen if watch is None or not watch.in_place(name))
    if not others:
        words = f"where {names(chosen)} fails; a failure below would need a checkpoint to go back to"
        return limit, f"for {for_long}, {words}"
    return limit, (
        f"for {for_long}, partly: not where {names(others)} fails: what comes there has met the new configuration "
        "already, and the run keeps no checkpoint to go back to"
    )
