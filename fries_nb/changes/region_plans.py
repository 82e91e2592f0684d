"""Plans of changes over several regions: each region has its own plan, and users see a combined one.

A marker never leaves its region, so the plans are independent. The prediction is computed from the run's measurements;
the coverage of a guard is determined when the change is requested.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from fries_nb.controller.guards import Guards
from fries_nb.controller.transactions import guard_of, names
from fries_nb.dataflow.arguments import Limit, shown_limit
from fries_nb.dataflow.graph import Graph
from fries_nb.dataflow.regions import Region
from fries_nb.dataflow.updates import Update
from fries_nb.planning import Covering, CriticalPath, Prediction, Queue
from fries_nb.planning.prediction import longest, ways
from fries_nb.planning.schedulers import Plan, StageAction, schedule
from fries_nb.telemetry.metrics import OperatorMetrics


def planned(
    regions: tuple[Region, ...], shares: Mapping[int, Iterable[str]], scheduler: str, pruning: bool
) -> dict[int, Plan]:
    """The plan of each region for its share of the targets.

    Args:
        regions: the regions of the run.
        shares: region index to its targets; if it is empty, the first region rejects the change.
        scheduler: name of the scheduler.
        pruning: see ``Run.reconfigure``.

    Raises:
        PlanError: no such scheduler, an unknown operator, no operator, or a source among the targets.
    """
    return {
        number: schedule(scheduler, regions[number].graph, targets, pruning)
        for number, targets in (shares or {0: ()}).items()
    }


def together(plans: Mapping[int, Plan]) -> Plan:
    """Combine the plans of regions that run one after another."""
    first, *others = (plan for _, plan in sorted(plans.items()))
    if not others:
        return first
    whole = [first, *others]
    targets = frozenset().union(*(plan.targets for plan in whole))
    covering = Covering(
        targets,
        tuple(component for plan in whole for component in plan.covering.components),
        tuple(decision for plan in whole for decision in plan.covering.pruning),
        all(plan.covering.naive_safe for plan in whole),
        max(plan.covering.longest_path for plan in whole),
    )
    return Plan(first.scheduler, targets, tuple(stage for plan in whole for stage in plan.stages), covering)


def predicted(
    regions: tuple[Region, ...],
    plans: Mapping[int, Plan],
    measured: Mapping[str, OperatorMetrics],
    prepare_ms: float | None,
) -> Prediction:
    """Predict the delay of these plans, and that of epoch markers (from all sources) for comparison.

    Only plans that merely switch at a marker have a prediction, not those with tags, holds or restarts.

    Args:
        regions: the regions of the run.
        plans: region index to plan.
        measured: operator to its measurements.
        prepare_ms: see ``Prediction``.
    """
    queues = {name: Queue(one.queued, one.rate) for name, one in measured.items() if one.processed}
    found: list[CriticalPath] = []
    by_epoch: list[CriticalPath] = []
    for number, plan in plans.items():
        graph = regions[number].graph
        found += ways(graph, _markers(plan), plan.targets, queues)
        by_epoch += ways(graph, {frozenset(graph): set(graph.sources)}, plan.targets, queues)
    return Prediction(tuple(found), longest(by_epoch), prepare_ms)


def _markers(plan: Plan) -> dict[frozenset[str], set[str]]:
    """Scope to its heads; empty if the plan does more than switch at a marker."""
    if any(stage.does is not StageAction.SWITCH for stage in plan.stages):
        return {}
    markers: dict[frozenset[str], set[str]] = {}
    for send in (send for stage in plan.stages for send in stage.sends):
        markers.setdefault(send.scope, set()).add(send.operator)
    return markers


def guarded_regions(
    regions: tuple[Region, ...],
    plans: Mapping[int, Plan],
    updates: Mapping[str, Update],
    limit: Limit,
    chaining: bool,
    recovers: bool,
) -> tuple[Limit | None, str]:
    """Determine the guard that is possible in all regions.

    Args:
        regions: the regions of the run.
        plans: region index to plan.
        updates: operator to its update.
        limit: the requested duration of the guard.
        chaining: whether hosts chain operators.
        recovers: whether the run can restart from a checkpoint.

    Returns:
        The duration, ``None`` if no guard is possible; and the coverage in one sentence.
    """
    found = [
        _guarded(regions[number].graph, plan.targets, updates, limit, chaining, recovers)
        for number, plan in plans.items()
    ]
    return next((one for one in found if one[0] is None), found[0])


def _guarded(
    graph: Graph, targets: Iterable[str], updates: Mapping[str, Update], limit: Limit, chaining: bool, recovers: bool
) -> tuple[Limit | None, str]:
    chosen = frozenset(targets)
    guard = guard_of(graph, chosen, updates, limit)
    for_long = shown_limit(limit)
    transformed = names(name for name in chosen if updates[name].state is not None)
    if not guard.back and not recovers:
        return None, (
            f"not at all: the state of {transformed} is transformed without an inverse (Update(..., back=...)), and "
            "the run keeps no checkpoint to go back to"
        )
    if not guard.back:
        return limit, (
            f"for {for_long}, as long as the run can go back to a checkpoint from before the change: the state of "
            f"{transformed} is transformed without an inverse (Update(..., back=...))"
        )
    if recovers:
        return limit, f"for {for_long}"
    guards = Guards(graph, chaining)
    guards.begin("", guard, frozenset())
    watch = guards.of("")
    others = sorted(name for name in chosen if watch is None or not watch.in_place(guards.chain_of(name)))
    if not others:
        words = f"where {names(chosen)} fails; a failure below would need a checkpoint to go back to"
        return limit, f"for {for_long}, {words}"
    return limit, (
        f"for {for_long}, partly: not where {names(others)} fails, whose input has passed the new configuration, since "
        "the run keeps no checkpoint to go back to"
    )
