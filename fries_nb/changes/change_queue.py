"""The queue of a run's changes: requests in flight and waiting in each region, changes in effect, rollbacks.

Each region has its own queue, with one request in flight at its controller. A request for a region that has not begun
waits, and applies before the region's first tuple; a request over several regions is done when it is done in all of
them. Fixes of paused operators are in flight in addition, one for each such operator.

Both shells use it, the driver and the seeded cluster, through the interface ``QueueShell``. Every method holds the lock
throughout, except while functions are pickled, which may take long; the request is validated again afterwards.

    method               effect
    request, roll_back   append a request, and carry it out if no other is in flight
    starting, started    return the requests to apply before the region's first tuple; then carry out waiting ones
    resolved             record an outcome, and carry out the next request of the region
    over                 abort the region's remaining requests
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from fries_nb.changes.arm_comparison import compared_arms, sampled_rows
from fries_nb.changes.canary_gates import CanaryStatus
from fries_nb.changes.change import Change, FunctionPairs
from fries_nb.changes.change_effect import ChangeEffect
from fries_nb.changes.change_examples import Examples, HeardExamples, checked_number, shown_examples, told_examples
from fries_nb.changes.change_replay import ChangeReplay, operations_around
from fries_nb.changes.function_versions import FunctionVersions, RunningFunction, versions_of
from fries_nb.changes.queue_entries import (
    BY_USER,
    CANARY_GUARD,
    CHANGES_KEPT,
    NO_CANARY_GUARD,
    NO_GUARD_FOR_FIXES,
    NO_GUARD_IN_LOOPS,
    NO_GUARD_OF_SHAPE,
    ChangeListener,
    ChangeOrigin,
    Ground,
    QueueShell,
    Request,
    RequestRegistry,
    against_cut,
    checked_step,
    guarded_regions,
    has_finished,
    is_open_canary,
    planned,
    predicted,
    refuse_by_row,
    resumed_canary,
    shape_requested,
    share_now,
    step_requested,
    together,
)
from fries_nb.changes.rollbacks import Rollbacks, functions_of
from fries_nb.controller.event_log import Timeline
from fries_nb.controller.events import (
    ChangeCancelled,
    GuardEnded,
    GuardFired,
    Outcome,
    ShapeChange,
)
from fries_nb.controller.states import REGION_MOVES, ChangeProgress, RegionPhase
from fries_nb.controller.transactions import change_requested
from fries_nb.dataflow.arguments import Limit, checked_seconds, shown_limit
from fries_nb.dataflow.graph import Graph, resized, union_of, without_shadows
from fries_nb.dataflow.regions import Region
from fries_nb.dataflow.traits import Holds
from fries_nb.dataflow.updates import Update
from fries_nb.errors import FriesError, PlanError, ReconfigurationError, RunError
from fries_nb.locks import locked
from fries_nb.planning.schedulers import Plan, loops_above
from fries_nb.planning.shape import shape_plan
from fries_nb.protocol.checkpoints import CommittedChange, number_of
from fries_nb.protocol.messages import ArmsSeen
from fries_nb.telemetry.metrics import OperatorMetrics
from fries_nb.transitions import moved

_NEEDS = "a change needs a running dataflow"


class ChangeQueue:
    """All changes of a run.

    Args:
        graph: the whole dataflow.
        regions: its regions, none of which has begun.
        listener: receives callbacks on every change.
        before: the changes that were decided before the run was resumed.
        last_number: number of the last earlier change, whatever its outcome.
        clock: a monotonic clock in seconds.

    Attributes:
        graph: the whole dataflow, as it is now.
        lock: held while any attribute is read or changed.
        heard: what hosts tell of rehearsals.
    """

    def __init__(
        self,
        graph: Graph,
        regions: tuple[Region, ...],
        shell: QueueShell,
        listener: ChangeListener,
        *,
        before: Sequence[CommittedChange] = (),
        last_number: int = 0,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.graph = graph
        self.lock = threading.RLock()
        self._shell = shell
        self._regions = regions
        self._region_of = {name: number for number, region in enumerate(regions) for name in region.own}
        numbers = (number_of(one.change) for one in before)
        self._last_number = max(last_number, max(numbers, default=0))
        self._clock = clock
        self._phases = [RegionPhase.AHEAD for _ in regions]
        self._paused: set[str] = set()
        opened = next((one for one in before if one.steps and 0 < one.steps[-1].share < 1), None)
        earlier = [one for one in before if one is not opened]
        self._resumed_with = functions_of(earlier, graph)
        ran = {name: operator.function for name, operator in graph.by_name.items()} | self._resumed_with
        versions = FunctionVersions(graph, ran, versions_of(earlier), time.time())
        self._known = RequestRegistry(graph, listener, clock, versions)
        self._ran = ran
        self._graphs: dict[str, Graph] = {}
        self._rollbacks = Rollbacks(self._known.requests, self._region_of, self._phases, ran)
        self._waiting: list[list[Request]] = [[] for _ in regions]
        self._in_flight: list[dict[str, Request]] = [{} for _ in regions]
        self._trials = 0
        self.heard = HeardExamples()
        if opened is not None:
            self._known.resume(resumed_canary(opened, regions), self)
            self._graphs[opened.change] = graph

    # ---- requests

    @property
    @locked
    def changes(self) -> tuple[Change, ...]:
        """The last changes, in order of request; older ones are forgotten."""
        return tuple(self._known.changes.values())

    @locked
    def running_functions(self) -> dict[str, RunningFunction]:
        """Operator to the function or table that it runs, for all operators that can be changed."""
        return self._known.versions.running()

    def functions_now(self, shipped: Mapping[str, bytes]) -> dict[str, Any]:
        """Operator to a copy of its present function; see ``Rollbacks.running``."""
        return {name: copied() for name, copied in self._copies(shipped).items()}

    @locked
    def _copies(self, shipped: Mapping[str, bytes]) -> dict[str, Callable[[], Any]]:
        declared = {name: payload for name, payload in shipped.items() if name not in self._resumed_with}
        return self._rollbacks.running(declared)

    @locked
    def plan(
        self, targets: Iterable[str], scheduler: str, pruning: bool, measured: Mapping[str, OperatorMetrics] | None
    ) -> Plan:
        """Plan a change without requesting it."""
        plans = self._planned(targets, scheduler, pruning, against_cut(self._shell.identifies, {}, None))
        whole = together(plans)
        if measured is None:
            return whole
        return replace(whole, prediction=predicted(self._regions, plans, measured, self._known.prepare_ms()))

    @locked
    def foretell(self, plan: Plan, measured: Mapping[str, OperatorMetrics]) -> Plan:
        """A plan of a change of the shape, of a dataflow that is one region, with its predicted delay."""
        prepare_ms = self._known.prepare_ms(shape=True)
        return replace(plan, prediction=predicted(self._regions, {0: plan}, measured, prepare_ms))

    def request(
        self,
        updates: Mapping[str, Update],
        scheduler: str = "fries",
        pruning: bool = True,
        *,
        merge: bool = False,
        limit: Limit | None = None,
        rehearse: bool = True,
        timeout_s: float | None = None,
        force: bool = False,
        origin: ChangeOrigin = BY_USER,
        share: float = 1.0,
    ) -> Change:
        """Request a change; for other arguments and errors see ``Run.reconfigure``."""
        began_s, requested_s = self._clock(), time.time()
        payloads = self._shell.ship(updates)
        with self.lock:
            self._shell.refuse_if_over(_NEEDS)
            if not (mends := self._mends(updates)):  # without its fix a paused operator would keep the shape waiting
                self._refuse_beside_shape()
            origin.check()
            joins = self._known.joinable if merge and not mends else []  # a merged request cannot be a fix
            limit = limit or next((one.guard for one in joins if one.guard is not None), None)
            after = {name: update for join in joins for name, update in join.updates.items()} | dict(updates)
            against = against_cut(self._shell.identifies, after, limit)
            whole = self._planned(after, scheduler, pruning, against)
            self._refuse_by_row(whole, against, share, mends)
            plans = self._planned(updates, together(whole).scheduler, pruning) if joins else whole
            guard, words = (None, NO_GUARD_FOR_FIXES) if limit and mends else self._guard(whole, after, limit, share)
            change = self._new(plans, updates, began_s, requested_s, words, origin)
            request = Request(
                change.id, updates, payloads, whole, (change.id,), guard=guard, rehearse=rehearse, timeout_s=timeout_s,
                force=force, share=share,
            )  # fmt: skip
            for joined in joins:
                self._known.requests.remove(joined)
                self._dequeue(joined)
            self._enter(request.joined_to(joins))
        return change

    def _refuse_by_row(self, plans: Mapping[int, Plan], against: str, share: float, mends: bool) -> None:
        """Raise a PlanError if a change cannot be decided row by row, or is a canary that cannot begin."""
        refuse_by_row(plans, self._regions, against)
        requests = self._known.requests
        if share == 1:
            return
        if other := next((one for one in requests if is_open_canary(one, requests)), None):
            words = "expected its promote() or rollback() before another one"
            raise PlanError(f"change {other.id} is a canary, and one is open at a time; {words}")
        if mends or len(plans) > 1:
            words = "operators of one region" if len(plans) > 1 else "a fix of all rows, since the operator is paused"
            raise PlanError(f"got a canary of {', '.join(sorted(together(plans).targets))}; expected {words}")

    @locked
    def step(self, change: str, share: float) -> Change:
        """Request a further step of a canary; for errors see ``Change.ramp``."""
        began_s, requested_s = self._clock(), time.time()
        self._shell.refuse_if_over(_NEEDS)
        request = self._known.of(change)
        checked_step(request, share, self._known.requests)
        step = self._new(request.plans, {}, began_s, requested_s, "", BY_USER, step_of=f"{share:.0%} of {request.id}")
        self._enter(Request(step.id, {}, {}, request.plans, (step.id,), rehearse=False, share=share, step_of=request))
        return step

    @locked
    def share(self, change: str) -> float:
        """The share of rows that are new by the last step of a change."""
        return share_now(self._known.of(change), self._known.requests)

    def roll_back(self, scheduler: str = "fries", change: str = "", origin: ChangeOrigin = BY_USER) -> Change:
        """Undo the newest change in effect, or the named one, by a change back, or withdraw it if it has not begun.

        Raises a PlanError if that is not possible; see ``Rollbacks``.
        """
        began_s, requested_s = self._clock(), time.time()
        self._shell.refuse_if_over(_NEEDS)
        while True:  # repeated if another request arrives during pickling
            last, ground, updates = self._undoing(change)
            payloads = self._shell.ship({**updates, **self._tables_then(updates, ground)})
            shape = None if last.before is None else self._shell.shape_back(last.before)
            with self.lock:
                self._shell.refuse_if_over(_NEEDS)
                if self._undoing(change)[:2] != (last, ground):
                    continue
                self._refuse_beside_shape()
                origin.check()
                against = against_cut(self._shell.identifies, updates, None)
                is_canary = is_open_canary(last, self._known.requests)
                if is_canary:
                    plans = last.plans
                elif shape is None:
                    plans = self._planned(updates, scheduler, True, against)
                    refuse_by_row(plans, self._regions, against)
                else:
                    plans = self._reshaped(shape, updates)
                back = self._new(plans, updates, began_s, requested_s, "", origin, last.id, shape)
                if is_canary:
                    request = Request(back.id, updates, payloads, plans, (back.id,), last, ground, rehearse=False)
                    self._enter(replace(request, share=0.0, step_of=last))
                elif self._rollbacks.can_withdraw(last):
                    self._dequeue(last)
                    self._known.withdraw(last, back)
                else:
                    self._enter(
                        Request(
                            back.id, updates, payloads, plans, (back.id,), last, ground, rehearse=shape is None,
                            force=True, shape=shape,
                        )
                    )  # fmt: skip
                return back

    def _tables_then(self, updates: Mapping[str, Update], ground: Ground) -> dict[str, Update]:
        """Of the updates of a rollback those of joins, with the tables as they were stored when they were given.

        What is at a path, in the catalogue or the result of a query may be another table by now.
        """
        found = dict[str, Update]()
        for name, request in ground.items():
            if name not in self.graph or self.graph.operator(name).traits.holds is not Holds.TABLE:
                continue
            stored = None
            if request is not None:
                stored = self._rollbacks.installed(request, name)
            elif name not in self._resumed_with:
                stored = self._shell.first_table(name)
            if stored is not None:
                found[name] = replace(updates[name], function=stored)
        return found

    def _reshaped(self, shape: ShapeChange, updates: Mapping[str, Update]) -> dict[int, Plan]:
        """The plan of a change of the shape, which begins alone."""
        self._refuse_beside_others()
        return {0: shape_plan(self.graph, shape.after, list(updates)).plan}

    @locked
    def reshape(
        self, shape: ShapeChange, plan: Plan, updates: Mapping[str, Update], payloads: Mapping[str, bytes],
        before: Graph, limit: float | None = None, force: bool = False,
    ) -> Change:  # fmt: skip
        """Request a change of the shape, of a dataflow that is one region; no other change may be open.

        Args:
            shape: the dataflow after the change, with what hosts need for its operators.
            plan: the plan, on the dataflow of now.
            updates: the functions that change beside.
            payloads: the same, pickled.
            before: the dataflow of now, with what the operators run that are removed.
            limit: the duration of its guard in seconds; ``None`` for no guard.
            force: whether it is made although its rehearsal gives reason to doubt it.

        Raises:
            PlanError: another change is open.
            RunError: the run has ended.
        """
        began_s, requested_s = self._clock(), time.time()
        self._shell.refuse_if_over(_NEEDS)
        self._refuse_beside_others()
        words = "" if limit is None else NO_GUARD_OF_SHAPE
        if limit is not None and self._shell.recovers:
            words = f"for {shown_limit(limit)}, by going back to the last checkpoint"
        change = self._new({0: plan}, updates, began_s, requested_s, words, BY_USER, shape=shape)
        self._enter(
            Request(
                change.id, updates, dict(payloads), {0: plan}, (change.id,), shape=shape, force=force,
                guard=limit if self._shell.recovers else None, before=before, rehearse=not shape.inherits,
            )
        )  # fmt: skip
        return change

    def _refuse_beside_others(self) -> None:
        """Raise a PlanError while another change is open, since the shape is changed alone."""
        if open_ones := [request.id for request in self._known.requests if not request.ended]:
            words = "a change of the shape begins alone; expected its end (settled()) before"
            raise PlanError(f"change {', '.join(open_ones)} is under way, and {words}")

    @locked
    def has_changed(self, operator: str) -> bool:
        """Whether a change has replaced the function of an operator, in this run or before it was resumed."""
        return operator in self._resumed_with or any(operator in one.updates for one in self._known.requests)

    @locked
    def last_of(self, operator: str) -> str:
        """Id of the last request that changes an operator; empty if there is none."""
        last = self._last_of(operator)
        return "" if last is None else last.id

    @locked
    def refuse_if_changed(self, operator: str, last: str) -> None:
        """Raise a PlanError if a request of an operator is open, or has come after the one that was its last."""
        now = self._last_of(operator)
        if now is not None and (now.id != last or not now.ended):
            words = f"change {now.id} of {operator} is under way, or has just ended"
            raise PlanError(f"{words}; expected its end (settled()) before")

    def _last_of(self, operator: str) -> Request | None:
        return next((one for one in reversed(self._known.requests) if operator in one.updates), None)

    def _refuse_beside_shape(self) -> None:
        """Raise a PlanError while the shape is being changed, since plans are made on the dataflow of now."""
        shapes = [request.id for request in self._known.requests if not request.ended and request.shape is not None]
        if shapes:
            under_way = f"change {shapes[0]} of the shape is under way"
            raise PlanError(f"{under_way}; expected its end (settled()) before another one")

    def _go_on(self, request: Request, after: Graph) -> None:
        """Go on with the dataflow that a request has made, or its guard again."""
        before = self.graph
        self.graph = after
        self._regions = (Region(self.graph),)
        self._region_of.clear()
        self._region_of.update(dict.fromkeys(self.graph, 0))
        added = {name: one.function for name, one in self.graph.by_name.items() if name not in before}
        # What comes back by a rollback is what it was: changes of it may be rolled back in turn.
        comes_back = request.undoes is not None or (request.shape is not None and after is not request.shape.after)
        self._ran.update({name: one for name, one in added.items() if not (comes_back and name in self._ran)})
        self._shell.go_on(self.graph)
        self._known.go_on(self.graph)
        self._known.versions.go_on(self.graph, request.id, time.time())

    @locked
    def cancel(self, change: str) -> None:
        """Abort the request of a change in every region in which it is not decided."""
        request = self._known.of(change)
        for region in request.plans:
            if request in self._waiting[region]:
                self._waiting[region].remove(request)
                self._abort(region, request, "it was cancelled; nothing changed")
            elif request.id in self._in_flight[region]:
                self._shell.carry_out(region, ChangeCancelled(request.id))

    # ---- events of regions

    @locked
    def starting(self, region: int) -> list[Request]:
        """Begin the requests to apply before the region's first tuple; returns them in order."""
        self._move(region, RegionPhase.STARTING)
        for request in self._waiting[region]:
            request.begun_s[region] = self._clock()
        return list(self._waiting[region])

    @locked
    def started(self, region: int, applied: Iterable[Request]) -> None:
        """Record that the region has started with these requests applied, and carry out requests since."""
        self._move(region, RegionPhase.RUNNING)
        for request in applied:
            self._waiting[region].remove(request)
            self._known.end_at_start(region, request)
        self._advance(region)

    @locked
    def flows(self, region: int) -> None:
        """Record that the region's workers process tuples: delays of earlier requests are counted from now."""
        self._known.flows(region)

    @locked
    def resolved(self, region: int, outcome: Outcome) -> None:
        """Record the outcome of a request at the region's controller."""
        request = self._in_flight[region].pop(outcome.change, None)
        self.heard.ended(outcome)
        if request is not None:  # the controller of a resumed run may end changes of the earlier run
            if outcome.needs_force:
                self._withhold(request, outcome.error)
            if request.shape is not None and outcome.outcome == "done":
                self._go_on(request, request.shape.after)
            self._known.end(region, request, outcome)
            self._forget()
            self._advance(region)

    def _forget(self) -> None:
        """Forget the oldest changes if there are more than ``CHANGES_KEPT``, as far as nothing open needs them."""
        while len(self._known.changes) > CHANGES_KEPT and (oldest := self._rollbacks.forget_oldest()) is not None:
            self._known.forget(oldest)
            self._graphs = {change: graph for change, graph in self._graphs.items() if change in self._known.changes}

    @locked
    def pause(self, region: int, operator: str, paused: bool) -> None:
        """Record that an operator is paused on a tuple or has resumed; waiting fixes of a paused operator begin.

        A fix precedes the change in flight, which may be blocked behind the operator. It has no guard.
        """
        (self._paused.add if paused else self._paused.discard)(operator)
        for request in self._in_flight[region].values():
            request.as_fix = request.as_fix and (paused or operator not in request.updates)
        self._advance(region)

    @locked
    def guard_fired(self, region: int, event: GuardFired) -> None:
        """Record that the guard of a request rolls it back in this region; it cannot be rolled back otherwise."""
        self._known.guard_fired(region, event)

    @locked
    def guard_ended(self, region: int, event: GuardEnded) -> None:
        """Record that the guard of a request has ended in this region; if it has fired, the request is rolled back."""
        request = self._known.of(event.change)
        if event.rolled_back and request.before is not None and request.is_done(region):
            self._go_on(request, resized(request.before, self.graph.sizes))
        self._known.guard_ended(region, event)

    @locked
    def over(self, region: int, why: str) -> None:
        """Record that no change of the region is possible any more, for the reason ``why``."""
        if self._phases[region] is RegionPhase.OVER:
            return
        self._move(region, RegionPhase.OVER)
        left = [*self._in_flight[region].values(), *self._waiting[region]]
        self._in_flight[region].clear()
        self._waiting[region].clear()
        for request in left:
            words = f"{why} before the change was begun; nothing changed"
            self._abort(region, request, words)

    @locked
    def executed(self) -> list[tuple[str, str]]:
        """Id and target of all decided changes, of which a trace must have records."""
        return self._known.executed()

    # ---- planning

    def _planned(self, targets: Iterable[str], scheduler: str, pruning: bool, against_cut: str = "") -> dict[int, Plan]:
        """The plan of each region that has some of the targets; raises a PlanError if one of these has finished."""
        return planned(self._regions, dict(sorted(self._shares(targets).items())), scheduler, pruning, against_cut)

    def _shares(self, targets: Iterable[str]) -> dict[int, list[str]]:
        """The targets in each region; unknown names are passed to the first region."""
        shares: dict[int, list[str]] = {}
        for name in dict.fromkeys(targets):
            shares.setdefault(self._region_of.get(name, 0), []).append(name)
        for region, names in shares.items():
            if self._phases[region] is RegionPhase.OVER:
                words = has_finished(names, region, len(self._phases))
                raise PlanError(f"{words}; expected operators of a region that runs or is still to come")
        return shares

    def _guard(
        self, plans: Mapping[int, Plan], updates: Mapping[str, Update], limit: Limit | None, share: float
    ) -> tuple[Limit | None, str]:
        if share < 1 and any(loops_above(self._regions[at].graph, one.covering.targets) for at, one in plans.items()):
            return None, NO_GUARD_IN_LOOPS
        if share < 1:
            return (math.inf, CANARY_GUARD) if self._shell.recovers else (None, NO_CANARY_GUARD)
        if limit is None:
            return None, ""
        return guarded_regions(self._regions, plans, updates, limit, self._shell.chaining, self._shell.recovers)

    def _new(
        self, plans: Mapping[int, Plan], updates: Mapping[str, Update], began_s: float, requested_s: float, guard: str,
        origin: ChangeOrigin, undoes: str = "", shape: ShapeChange | None = None, step_of: str = "",
    ) -> Change:  # fmt: skip
        self._last_number += 1
        change = Change(
            f"u{self._last_number}",
            together(plans),
            updates,
            plan_ms=(self._clock() - began_s) * 1000,
            requested_s=requested_s,
            guard=guard,
            constraint=origin.constraint,
            undoes=undoes,
            step_of=step_of,
            run=self,
        )
        self._graphs[change.id] = self.graph if shape is None else union_of(self.graph, shape.after)
        return self._known.add(change)

    @locked
    def _undoing(self, change: str = "") -> tuple[Request, Ground, dict[str, Update]]:
        """The request that a rollback would undo, the requests whose functions it restores, and its updates."""
        last = self._rollbacks.of(change) if change else self._rollbacks.last()
        _refuse_shadow(last)
        ground = self._rollbacks.ground(last)
        return last, ground, self._rollbacks.back(last, ground)

    # ---- what the handle of a change asks

    @locked
    def blocked_by(self, change: str) -> str | None:
        """Why ``roll_back`` of this change would be refused now, in words; ``None`` if it would not."""
        try:
            self._shell.refuse_if_over(_NEEDS)
            last = self._rollbacks.of(change)
            _refuse_shadow(last)
            ground = self._rollbacks.ground(last)
            self._rollbacks.check_inverse(last, ground)
            self._shares(ground)
        except FriesError as refused:
            return str(refused)
        return None

    @locked
    def functions(self, change: str) -> FunctionPairs:
        """Operator to the function that it ran before a change, and its new one; see ``Change.functions``."""
        return self._rollbacks.functions(change)

    def progress(self, change: str) -> ChangeProgress | None:
        """How far a change is, with all that it was merged with; see ``Change.progress``."""
        return self._shell.progress(self._carried_out_as(change))

    def story(self, change: str) -> Timeline:
        """What has happened to a change; see ``Change.story``."""
        return self._shell.story().about(self._carried_out_as(change))

    def examples(self, change: Change, most: int, timeout: float) -> Examples:
        """What a change makes of recent rows; see ``Change.examples``."""
        checked_number(most)
        checked_seconds("timeout", timeout)
        with self.lock:
            request = self._carried_out_as(change.id)
        parts = self.heard.wait(request, lambda: change.result(0) if change.done else None, timeout)
        outcome = change.result(0) if change.done else None
        if not parts and outcome is not None:
            why = outcome.rehearsal or outcome.error or "it was made before the first row came"
            raise PlanError(f"change {change.id} has no examples: {why}")
        is_refused = outcome is not None and outcome.outcome == "aborted"
        refusal = outcome.error if outcome is not None and is_refused else ""
        return told_examples(change.id, parts, most, refusal, self._shell.hide)

    def kept_examples(self, changes: Iterable[Change]) -> dict[str, Examples]:
        """What changes that have ended made of recent rows, by id, as far as that was told and is kept."""
        kept = {one.id: self.heard.kept(self._carried_out_as(one.id)) for one in changes}
        hide = self._shell.hide
        return {change: shown_examples(change, parts, hide) for change, parts in kept.items() if parts}

    def effect(self, change: Change, window: float, timeout: float) -> ChangeEffect:
        """What a change has altered; see ``Change.effect``."""
        checked_seconds("window", window)
        checked_seconds("timeout", timeout)
        if not change.done:
            raise PlanError(f"change {change.id} is still under way; expected one that is done; its result() waits")
        if (outcome := change.result(0)).outcome != "done":
            raise PlanError(f"change {change.id} is {outcome.outcome}, so it has no effect: {outcome.error}")
        with self.lock:
            request = self._carried_out_as(change.id)
            behind = self.changes[self.changes.index(change) + 1 :] if change in self.changes else ()
            since = [one.id for one in behind if one.decided and one.plan.targets & change.plan.targets]
        return self._shell.effect(change, request, window, timeout, since)

    def compare(self, change: Change, by: str | None, timeout: float) -> Any:
        """What both versions of a canary have done; see ``Change.compare``."""
        return compared_arms(self._arms(change, timeout), self.graph.order, by, self._shell.hide)

    def sample(self, change: Change, timeout: float) -> Any:
        """Rows that both versions of a canary have made; see ``Change.sample``."""
        return sampled_rows(self._arms(change, timeout), self.graph.order, self._shell.hide)

    def _arms(self, change: Change, timeout: float) -> Sequence[ArmsSeen]:
        checked_seconds("timeout", timeout)
        with self.lock:
            request = self._known.of(change.id)
        if request.share == 1:
            raise PlanError(f"change {change.id} is no canary; expected one of run.reconfigure(..., canary=0.05)")
        if not change.done:
            raise PlanError(f"change {change.id} is still under way; expected one that is done; its result() waits")
        if (outcome := change.result(0)).outcome == "aborted":
            raise PlanError(f"change {change.id} is aborted, so there is nothing to compare: {outcome.error}")
        parts = self._shell.arms(change, True, timeout)
        if not parts:
            why = "a later canary has begun, or the run went back to a checkpoint without it"
            raise PlanError(f"of canary {change.id} nothing is left to compare: {why}")
        return parts

    def canary(self, change: str) -> CanaryStatus | None:
        """How far a canary is; see ``Change.canary``."""
        return self._shell.canary(change)

    def try_out(self, updates: Mapping[str, Update], most: int, timeout: float) -> Examples:
        """Rehearse a change that is not made; see ``Run.examples``."""
        checked_number(most)
        checked_seconds("timeout", timeout)
        payloads = self._shell.ship(updates)
        with self.lock:
            self._shell.refuse_if_over(_NEEDS)
            self._refuse_beside_shape()
            plans = self._planned(updates, "fries", True)
            if ahead := [region for region in plans if self._phases[region] is not RegionPhase.RUNNING]:
                late = ", ".join(sorted(plans[ahead[0]].targets))
                raise RunError(f"{late}: its region of the dataflow has not begun, so it has no recent rows")
            self._trials += 1
            trial, [(region, plan)] = f"t{self._trials}", plans.items()  # of regions, one runs at a time
            self.heard.expect(trial)
            asked = change_requested(
                self._regions[region].graph, trial, plan, updates, payloads, examples=most, is_trial=True
            )
            self._shell.carry_out(region, asked)
        check = partial(self._shell.refuse_if_over, _NEEDS)
        try:
            outcome, parts = self.heard.wait_for_trial(trial, check, timeout)
        except BaseException as error:
            self._shell.carry_out(region, ChangeCancelled(trial))
            if isinstance(error, TimeoutError):
                waits = "a change that is under way, or an operator that is paused, keeps it waiting"
                raise TimeoutError(f"not rehearsed within {timeout:g} s; likely {waits}") from None
            raise
        if not parts:
            if outcome.error:
                raise ReconfigurationError(outcome.error)
            raise RunError(f"there are no examples: {outcome.rehearsal}")
        return told_examples("", parts, most, outcome.error, self._shell.hide)

    def replay(self, change: Change, traced: bool) -> ChangeReplay:
        """A change that has ended, step by step; see ``Change.replay``."""
        return self.replays([change], traced)[0]

    def replays(self, changes: Iterable[Change], traced: bool = True) -> list[ChangeReplay]:
        """The replays of changes that have ended; the trace is read once."""
        records = self._shell.records() if traced else ()
        return [
            ChangeReplay.of(self._graph_of(one), one.plan, one.result(0), operations_around(records, one.id))
            for one in changes
        ]

    def _graph_of(self, change: Change) -> Graph:
        """The dataflow in which a change was made; of a change of the shape, that of before and after together."""
        return self._graphs.get(change.id, self.graph)

    @locked
    def _carried_out_as(self, change: str) -> str:
        """The id under which controllers know a change: that of the last one with which it was merged."""
        return self._known.of(change).id

    def _mends(self, updates: Iterable[str]) -> bool:
        """Whether a change of these operators is a fix: it changes a single operator that is paused on a tuple."""
        return len(names := set(updates)) == 1 and self._paused.issuperset(names)

    # ---- queues of regions

    def _enter(self, request: Request) -> None:
        self._known.requests.append(request)
        for region in request.plans:
            self._waiting[region].append(request)
            self._advance(region)

    def _dequeue(self, request: Request) -> None:
        for waiting in self._waiting:
            if request in waiting:
                waiting.remove(request)

    def _move(self, region: int, to: RegionPhase) -> None:
        self._phases[region] = moved(REGION_MOVES, self._phases[region], to, f"region {region + 1}")

    def _advance(self, region: int) -> None:
        """Begin fixes, and the first waiting request if none is in flight; abort rollbacks without effect."""
        if self._phases[region] is not RegionPhase.RUNNING:
            return
        waiting = self._waiting[region]
        for request in list(waiting):
            if self._goes_ahead(region, request):
                self._begin(region, request)
        while waiting and not self._in_flight[region]:
            request = waiting[0]
            words = self._rollbacks.pointless(region, request)
            if not words:
                self._begin(region, request)
                return
            waiting.remove(request)
            self._abort(region, request, words)

    def _goes_ahead(self, region: int, request: Request) -> bool:
        """Whether the request is a fix that can begin beside the one in flight: at most one for each operator."""
        in_flight = self._in_flight[region]
        if request.step_of is not None:  # the others wait at the controller until one version is left
            return all(one.step_of is None for one in in_flight.values())
        return (
            self._mends(request.updates)
            and not any(one.as_fix and one.updates.keys() == request.updates.keys() for one in in_flight.values())
            and not self._rollbacks.overtakes(region, request, in_flight)
            and not self._rollbacks.pointless(region, request)
        )

    def _begin(self, region: int, request: Request) -> None:
        self._waiting[region].remove(request)
        request.as_fix = self._mends(request.updates)
        if request.as_fix:
            self._known.drop_guard(request)
        request.begun_s[region] = self._clock()
        self._in_flight[region][request.id] = request
        plan = request.plans[region]
        if request.shape is not None:
            self._shell.carry_out(region, shape_requested(request, self.graph))
            return
        if request.step_of is not None:
            self._shell.carry_out(region, step_requested(request, plan))
            return
        payloads = {name: request.payloads[name] for name in plan.targets}
        undoes = request.undoes.id if request.undoes is not None else ""
        how = (plan, request.updates, payloads, request.guard, request.rehearse, undoes)
        asked = change_requested(
            self._regions[region].graph, request.id, *how, timeout_s=request.timeout_s, force=request.force
        )
        self._shell.carry_out(region, replace(asked, share=request.share))

    def _withhold(self, request: Request, words: str) -> None:
        """Abort a request that has to be forced in the regions that have not begun, so that nothing of it is made."""
        for region in request.plans:
            if request in self._waiting[region]:
                self._waiting[region].remove(request)
                self._abort(region, request, words)

    def _abort(self, region: int, request: Request, words: str) -> None:
        scheduler = request.plans[region].scheduler
        self._known.end(region, request, Outcome(request.id, scheduler, "aborted", words))


def _refuse_shadow(request: Request) -> None:
    """Raise a PlanError if a request begins or ends a shadow: a state that was promoted has replaced another one."""
    graphs = () if request.shape is None or request.before is None else (request.shape.after, request.before)
    if any(without_shadows(graph) is not graph for graph in graphs):
        words = "expected promote() or drop() of the shadow, or another change"
        raise PlanError(f"change {request.id} begins or ends a shadow, and is not rolled back; {words}")
