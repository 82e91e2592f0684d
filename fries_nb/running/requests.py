"""What the user asks of a run's operators: plans, changes, rollbacks. Checked and planned here, then entered."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from fries_nb.changes import Change
from fries_nb.controller.states import RunState
from fries_nb.dataflow.graph import Graph
from fries_nb.dataflow.limits import Limit
from fries_nb.dataflow.regions import Region
from fries_nb.dataflow.updates import Update, as_updates, check_updates
from fries_nb.running.change_queue import ChangeQueue
from fries_nb.running.guard_notes import guarded
from fries_nb.running.queue_entries import NO_GUARD_FOR_FIXES, Request
from fries_nb.running.region_plans import planned, predicted, together
from fries_nb.running.region_runner import RegionRunner
from fries_nb.running.telemetry import Telemetry
from fries_nb.scheduling import Plan

_FLOWING = frozenset(str(state) for state in RunState if state.flows)
_NEEDS = "a change needs a running dataflow"


class ChangeRequests:
    """Makes changes of one run; ``fries_nb.run.Run`` says what each method means and raises."""

    def __init__(
        self, graph: Graph, regions: tuple[Region, ...], course: RegionRunner, ledger: ChangeQueue, seen: Telemetry
    ) -> None:
        self._graph = graph
        self._regions = regions
        self._course = course
        self._ledger = ledger
        self._seen = seen

    def plan(self, change: Mapping[str, Any] | Iterable[str], scheduler: str, pruning: bool) -> Plan:
        """What the change would do, and how long that would take if tuples flow."""
        if isinstance(change, Mapping):
            check_updates(self._graph, as_updates(change))
        targets = (change,) if isinstance(change, str) else tuple(change)
        plans = self._planned(targets, scheduler, pruning)
        if self._course.state not in _FLOWING:
            return together(plans)
        measured = self._seen.snapshot().operators
        return replace(together(plans), prediction=predicted(self._regions, plans, measured))

    def request(
        self,
        updates: dict[str, Update],
        scheduler: str,
        pruning: bool,
        merge: bool,
        limit: Limit | None,
        rehearse: bool,
    ) -> Change:
        """Carry the change out when it is its turn; with ``merge``, as one with those that wait."""
        began, requested_s = time.perf_counter(), time.time()
        payloads = self._payloads(updates)
        with self._ledger.lock:
            self._course.refuse_if_over(_NEEDS)
            plans = self._planned(updates, scheduler, pruning)
            mends = self._ledger.mends(updates)
            joins = self._ledger.joinable() if merge and not mends else []  # with another it would be no fix
            whole = self._planned([name for one in joins for name in one.updates] + [*updates], scheduler, pruning)
            limit = limit or next((one.guard for one in joins if one.guard is not None), None)
            guard, words = self._guard(whole, updates, joins, limit, mends)
            change = self._new(plans, updates, began, requested_s, words)
            request = Request(change.id, updates, payloads, whole, [change], guard=guard, rehearse=rehearse)
            self._course.carry_out(self._ledger.enter(request.joined_to(joins), joins))
        return change

    def rollback(self, scheduler: str) -> Change:
        """Undo the last change by a change back, or withdraw it if it has not begun."""
        began, requested_s = time.perf_counter(), time.time()
        self._course.refuse_if_over(_NEEDS)
        while True:  # until nothing came in between: pickling takes long, so it holds up nobody
            found = self._ledger.undoing()
            last, updates = found.request, found.updates
            payloads = self._payloads(updates)
            with self._ledger.lock:
                self._course.refuse_if_over(_NEEDS)
                if not self._ledger.still_undoes(found):
                    continue
                plans = self._planned(updates, scheduler, True)
                change = self._new(plans, updates, began, requested_s)
                if not self._ledger.withdraw(last, change):
                    request = Request(change.id, updates, payloads, plans, [change], last, found.ground)
                    self._course.carry_out(self._ledger.enter(request))
                return change

    def _guard(
        self,
        plans: Mapping[int, Plan],
        updates: Mapping[str, Update],
        joins: Iterable[Request],
        limit: Limit | None,
        mends: bool,
    ) -> tuple[Limit | None, str]:
        """The guard as far as it is possible, and what it covers, in words."""
        if limit is None:
            return None, ""
        if mends:
            return None, NO_GUARD_FOR_FIXES
        whole = {name: update for one in joins for name, update in one.updates.items()} | dict(updates)
        options, recovers = self._course.options, self._course.resumable
        found = [
            guarded(self._regions[number].graph, plan.targets, whole, limit, options.chaining, recovers)
            for number, plan in plans.items()
        ]
        return next((one for one in found if one[0] is None), found[0])

    def _payloads(self, updates: Mapping[str, Update]) -> dict[str, bytes]:
        """What is shipped; checked before, since it takes long."""
        self._course.refuse_if_over(_NEEDS)
        check_updates(self._graph, updates)
        return {name: self._course.payload(name, update) for name, update in updates.items()}

    def _planned(self, targets: Iterable[str], scheduler: str, pruning: bool) -> dict[int, Plan]:
        return planned(self._regions, self._ledger.shares(dict.fromkeys(targets)), scheduler, pruning)

    def _new(
        self,
        plans: Mapping[int, Plan],
        updates: Mapping[str, Update],
        began: float,
        requested_s: float,
        guard: str = "",
    ) -> Change:
        plan_ms = (time.perf_counter() - began) * 1000
        change = Change(self._ledger.new_id(), together(plans), updates, plan_ms, requested_s, guard)
        self._seen.requested(change)
        return change
