"""The entries of a run's queue of changes: each request, its outcome in each region, and the users' handles.

Also what the queue needs around it: the shell that carries changes out, and a listener.

Each region has its own plan of a change, and users see a combined one. A marker never leaves its region, so the plans
are independent. The prediction is computed from the run's measurements; the coverage of a guard is determined when the
change is requested.
"""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Any, Protocol

import networkx as nx

from fries_nb.changes.canary_gates import CanaryStatus
from fries_nb.changes.change import Change, ChangesOfRun
from fries_nb.changes.change_effect import ChangeEffect
from fries_nb.changes.function_versions import FunctionVersions, Shelf
from fries_nb.controller.event_log import Timeline
from fries_nb.controller.events import (
    ChangeCancelled,
    ChangeRequested,
    Guard,
    GuardEnded,
    GuardFired,
    Outcome,
    ShapeChange,
    WorkerOutcome,
)
from fries_nb.controller.guards import Guards
from fries_nb.controller.states import ChangeProgress
from fries_nb.controller.transactions import guard_of, names
from fries_nb.dataflow.arguments import Limit, shown_limit
from fries_nb.dataflow.graph import Graph, resized
from fries_nb.dataflow.regions import Region
from fries_nb.dataflow.updates import Edits, Update
from fries_nb.errors import PlanError
from fries_nb.planning import Covering, CriticalPath, Prediction, Queue
from fries_nb.planning.prediction import longest, ways
from fries_nb.planning.schedulers import Plan, Stage, StageAction, refused_by_row, schedule
from fries_nb.protocol.checkpoints import CommittedChange
from fries_nb.protocol.messages import EXAMPLES, ArmsSeen, WorkerId
from fries_nb.protocol.trace import Record
from fries_nb.telemetry.metrics import OperatorMetrics

CHANGES_KEPT = 1_000
"""Number of changes that a run remembers; older ones that have ended are forgotten, and cannot be rolled back."""
NO_GUARD_OF_SHAPE = "not at all: the run keeps no checkpoint to go back to"
NO_GUARD_FOR_FIXES = "not at all: it is the fix of an operator that is paused on a tuple, and goes at once"


class QueueShell(Protocol):
    """What a queue needs around it: what carries changes out, on Spark or in the simulation, and what is known of them.

    The last six are asked by the handles of changes; the defaults are those of a run that keeps no such records.
    """

    @property
    def chaining(self) -> bool:
        """Whether hosts chain operators."""

    @property
    def recovers(self) -> bool:
        """Whether the run can go back to a checkpoint."""

    @property
    def identifies(self) -> bool:
        """Whether rows carry the identity of their source tuple."""
        return True

    @property
    def hide(self) -> frozenset[str]:
        """The columns that are masked in what is shown."""
        return frozenset()

    def refuse_if_over(self, why: str) -> None:
        """Raise a RunError if the run accepts no further requests."""

    def ship(self, updates: Mapping[str, Update]) -> dict[str, bytes]:
        """Validate and pickle updates, by operator; raises a FriesError if one cannot be sent to hosts."""

    def first_table(self, join: str) -> Any:
        """The table of a join as it was stored when the run began; ``None`` if its region has not begun."""
        return None

    def carry_out(self, region: int, event: ChangeRequested | ChangeCancelled) -> None:
        """Pass an event to the controller of this region; the order of calls is preserved."""

    def go_on(self, graph: Graph) -> None:
        """Go on with the dataflow after a change of its shape; called before the change is told to have ended."""
        return

    def shape_back(self, before: Graph) -> ShapeChange:
        """What makes the dataflow again what it was; raises a FriesError if a source or sink cannot be had again."""
        return ShapeChange(before, returns=True)

    def progress(self, change: str) -> ChangeProgress | None:
        """How far a change is in the first region in which it has not ended; ``None`` if no controller has it."""
        return None

    def story(self) -> Timeline:
        """What has happened in the run, in words."""
        return Timeline(())

    def records(self) -> Sequence[Record]:
        """The trace so far; empty for a run that keeps none."""
        return ()

    def effect(
        self, change: Change, carried_out: str, window: float, timeout: float, since: Sequence[str]
    ) -> ChangeEffect:  # fmt: skip
        """What a change has altered; raises a PlanError if nothing was seen when it began."""
        raise PlanError(f"of change {change.id} nothing was seen when it began: this run keeps no telemetry")

    def arms(self, change: Change, samples: bool, timeout: float) -> Sequence[ArmsSeen]:
        """What the workers of a canary's targets tell of both arms, with samples of the rows or without."""
        return ()

    def canary(self, change: str) -> CanaryStatus | None:
        """How far a canary is; ``None`` if nothing follows it."""
        return None


class ChangeListener(Protocol):
    """Callbacks on a run's changes; called from any thread, and must not block."""

    def requested(self, change: Change) -> None:
        """Called when a change was requested."""

    def ended(self, change: Change, outcome: Outcome) -> None:
        """Called before a change is resolved; called again if its guard rolls it back later."""


@dataclass(frozen=True)
class ChangeOrigin:
    """The origin of a request: the policy of a latency constraint, or the user, with a condition or without.

    Attributes:
        constraint: the sequence of the constraint; empty if the user requests the change.
        check: called under the queue's lock just before the request is entered; raises a PlanError to refuse it, since
            a request of the user may have come first.
    """

    constraint: str = ""
    check: Callable[[], None] = lambda: None


BY_USER = ChangeOrigin()


_LOOKED_AT = 20  # of the last changes, for the time to prepare the next one


@dataclass(eq=False)
class Request:
    """A change, or several merged changes, as carried out.

    Attributes:
        id: id in controllers and traces.
        updates: operator to its update.
        payloads: operator to its pickled update; empty once it is shelved on disk.
        plans: region index to plan.
        merged: ids of all changes that it resolves, in order of request; the last one equals ``id``.
        undoes: the request that it rolls back; ``None`` if it is no rollback.
        ground: for a rollback, operator to the request whose function it restores.
        guard: the duration of its guard; ``None`` without one.
        rehearse: whether it is rehearsed on recent tuples; a merged request is, if one of its parts is.
        force: whether it is made although its rehearsal gives reason to doubt it; a merged request is forced if all of
            its parts are.
        timeout_s: seconds within which loops that it touches must have emptied; ``None`` for no limit.
        shape: what it makes of the dataflow, if it changes the shape.
        before: then the dataflow before it, with what the operators ran that it removes; ``None`` for a rollback.
        as_fix: whether it was begun as the fix of an operator that is still paused.
        begun_s: region index to the time at which it was begun, in seconds of the run's clock.
        outcomes: region index to the outcome.
        guarded: the regions in which it is under guard.
        fired: region index to the failure for which the guard is rolling it back.
        let_go: the regions in which the guard has ended, possibly before the request is done.
        at_start: the regions that started with it, so that no controller carried it out.
        share: if it is decided row by row, the share of rows that are new from its first step on.
        step_of: the canary of which it is a further step; ``None`` if it is none.
        irreversible: the operators whose state it transforms without an inverse.
    """

    id: str
    updates: Mapping[str, Update]
    payloads: dict[str, bytes]
    plans: dict[int, Plan]
    merged: tuple[str, ...]
    undoes: Request | None = None
    ground: Ground = field(default_factory=dict)
    guard: Limit | None = None
    rehearse: bool = True
    timeout_s: float | None = None
    force: bool = False
    shape: ShapeChange | None = None
    before: Graph | None = None
    share: float = 1.0
    step_of: Request | None = None
    as_fix: bool = False
    begun_s: dict[int, float] = field(default_factory=dict)
    outcomes: dict[int, Outcome] = field(default_factory=dict)
    at_start: set[int] = field(default_factory=set)
    guarded: set[int] = field(default_factory=set)
    let_go: set[int] = field(default_factory=set)
    fired: dict[int, str] = field(default_factory=dict)
    irreversible: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        one_way = (name for name, update in self.updates.items() if update.state is not None and update.back is None)
        self.irreversible = frozenset(one_way)  # kept, since updates on disk take long to read

    @property
    def ended(self) -> bool:
        """Whether it has ended in all regions."""
        return self.outcomes.keys() == self.plans.keys()

    def joined_to(self, earlier: Iterable[Request]) -> Request:
        """This request merged with earlier ones; it keeps its id and plans."""
        whole = [*earlier, self]
        return replace(
            self,
            updates={name: update for one in whole for name, update in one.updates.items()},
            payloads={name: payload for one in whole for name, payload in one.payloads.items()},
            merged=tuple(change for one in whole for change in one.merged),
            rehearse=any(one.rehearse for one in whole),
            force=all(one.force for one in whole),
        )

    def rolled_back(self, region: int) -> bool:
        """Whether its guard has rolled it back in this region."""
        return region in self.outcomes and self.outcomes[region].outcome == "rolled_back"

    def is_done(self, region: int) -> bool:
        """Whether it is done in this region, and no guard has rolled it back."""
        return region in self.outcomes and self.outcomes[region].outcome == "done"

    def may_hold(self, region: int) -> bool:
        """Whether it is in effect in this region, or can still take effect."""
        return region not in self.outcomes or self.is_done(region)


Ground = dict[str, Request | None]
"""Operator to the request whose function it ran before; ``None`` for its initial function."""


class RequestRegistry:
    """All requests of a run, and the changes that they resolve.

    Args:
        graph: the whole dataflow.
        listener: receives callbacks on every change.
        clock: a monotonic clock in seconds.
        versions: receives the functions that operators run.

    Attributes:
        versions: the functions that operators run.
        changes: the users' handles, by id, in order of request; see ``CHANGES_KEPT``.
        requests: the requests in the order in which they took effect.
    """

    def __init__(
        self, graph: Graph, listener: ChangeListener, clock: Callable[[], float], versions: FunctionVersions
    ) -> None:
        self.versions = versions
        self.changes: dict[str, Change] = {}
        self.requests: list[Request] = []
        self._graph = graph
        self._listener = listener
        self._clock = clock
        self._entered_s: dict[str, float] = {}
        self._flows_s: dict[int, float] = {}
        self._shelf = Shelf()

    def go_on(self, graph: Graph) -> None:
        """Go on with the dataflow after a change of its shape."""
        self._graph = graph

    def add(self, change: Change) -> Change:
        """Add a request; returns it."""
        self.changes[change.id] = change
        self._entered_s[change.id] = self._clock()
        self._listener.requested(change)
        return change

    def resume(self, request: Request, run: ChangesOfRun) -> None:
        """Add a canary that was open when the run was resumed; it is to be promoted or rolled back."""
        words = "not at all, since the run was resumed; on_error= applies"
        whole, now_s = together(request.plans), time.time()
        change = Change(request.id, whole, request.updates, 0.0, requested_s=now_s, guard=words, run=run)
        self.changes[change.id] = change
        self._entered_s[change.id] = self._clock()
        self.requests.append(request)
        for region, plan in request.plans.items():
            request.at_start.add(region)
            request.outcomes[region] = at_start(self._graph, request.id, plan)
            self._installed(region, request)
        change.resolve(self._whole(request, self._entered_s[change.id], change.id))

    def forget(self, request: Request) -> None:
        """Remove a request that has ended, and the changes that it resolves; handles that users hold stay valid."""
        self.requests.remove(request)
        for change in request.merged:
            del self.changes[change], self._entered_s[change]

    def flows(self, region: int) -> None:
        """Record that the region's workers process tuples: delays of earlier requests are counted from now."""
        self._flows_s.setdefault(region, self._clock())

    def of(self, change: str) -> Request:
        """The request that resolves a change; one without plans if the change was withdrawn."""
        gone = Request(change, {}, {}, {}, (change,))
        return next((request for request in self.requests if change in request.merged), gone)

    @property
    def joinable(self) -> list[Request]:
        """The newest requests of the user that no region has begun, back to the last rollback, in order."""
        joinable: list[Request] = []
        for request in reversed(self.requests):
            if request.ended:
                continue
            is_automatic = bool(self.changes[request.id].constraint)  # undone by itself, so not merged
            is_alone = request.share < 1 or request.step_of is not None
            if request.begun_s or request.outcomes or request.undoes is not None or is_automatic or is_alone:
                break
            joinable.append(request)
        return joinable[::-1]

    def prepare_ms(self, shape: bool = False) -> float | None:
        """Milliseconds from a request to the first message: the median of the last changes that are done, if any is.

        Changes of the shape are apart from those of functions: they make workers and channels as well.
        """
        last = [change for change in list(self.changes.values())[-_LOOKED_AT:] if change.done]
        ended = [change.result(0) for change in last if (self.of(change.id).shape is not None) is shape]
        known = [one.delay_ms - one.commit_ms for one in ended if one.outcome == "done" and not one.waited_ms]
        return median(known) if known else None

    def drop_guard(self, request: Request) -> None:
        """Remove the guard of a request that is begun as a fix."""
        if request.guard is not None:
            request.guard = None
            for change in request.merged:
                self.changes[change].guard = NO_GUARD_FOR_FIXES

    def withdraw(self, request: Request, rollback: Change) -> None:
        """Resolve a request that has not begun as aborted, and its rollback as done."""
        self.requests.remove(request)
        words = "it was rolled back before it was begun; nothing changed"
        for change in request.merged:
            self._resolve(change, Outcome(change, self.changes[change].plan.scheduler, "aborted", words))
        self._resolve(rollback.id, Outcome(rollback.id, rollback.plan.scheduler, "done"))
        for change in (*request.merged, rollback.id):
            self.changes[change].end_guard()

    def end_at_start(self, region: int, request: Request) -> None:
        """Record that the region has started with the request applied."""
        request.at_start.add(region)
        self.end(region, request, at_start(self._graph, request.id, request.plans[region]))

    def end(self, region: int, request: Request, outcome: Outcome) -> None:
        """Record the outcome of a request in this region; its changes end with the last region."""
        request.outcomes[region] = outcome
        done = outcome.outcome == "done"
        if request.guard is not None and done and region not in request.at_start | request.let_go:
            request.guarded.add(region)
        if done:
            self._reorder(region, request)
            self._installed(region, request)
        if request.ended:
            self._settle(request)
            self._shelve_superseded()

    def _installed(self, region: int, request: Request) -> None:
        """Record which functions run since the last worker of the request's targets in this region has switched."""
        change = self.changes[request.id]
        outcome = self._timed(request, region, self._entered_s[change.id])
        targets = request.plans[region].targets & request.updates.keys()
        functions = {name: request.updates[name].function for name in targets}
        self.versions.install(change.id, functions, change.ended_s(outcome, time.time()))

    def guard_fired(self, region: int, event: GuardFired) -> None:
        """Record that the guard of a request rolls it back in this region; it cannot be rolled back otherwise."""
        for request in self.requests:
            if request.id == event.change:
                request.fired[region] = event.error

    def guard_ended(self, region: int, event: GuardEnded) -> None:
        """Record that the guard of a request has ended in this region; if it has fired, the request is rolled back."""
        request = next((one for one in self.requests if one.id == event.change), None)
        if request is None:
            return
        request.guarded.discard(region)
        request.let_go.add(region)
        request.fired.pop(region, None)
        for change in request.merged:
            self.changes[change].guard_end = event.reason
        if event.rolled_back:
            words = f"rolled back by its guard, since the new configuration failed: {event.error}"
            was = request.outcomes[region]
            request.outcomes[region] = replace(was, outcome="rolled_back", error=words, details=event.details)
            replaced = request.plans[region].targets & request.updates.keys()
            self.versions.restore(request.id, replaced, time.time())
        self._settle(request, event.rolled_back and request.ended)

    def executed(self) -> list[tuple[str, str]]:
        """Id and target of all decided changes, of which a trace must have records."""
        return [
            (request.id, target)
            for request in self.requests
            for region, outcome in request.outcomes.items()
            if outcome.outcome != "aborted" and region not in request.at_start
            for target in request.plans[region].targets
            if request.shape is None or target in request.shape.after  # what a restart has removed has no record
        ]

    # ---- outcomes of changes

    def _settle(self, request: Request, resolve: bool = True) -> None:
        for change in request.merged:
            if resolve:
                self._resolve(change, self._whole(request, self._entered_s[change], change))
            if not request.guarded:
                self.changes[change].end_guard()

    def _reorder(self, region: int, request: Request) -> None:
        """Keep requests in the order in which they took effect: a fix moves before requests that are still open."""
        for number, one in enumerate(self.requests):
            if one is request:
                return
            if region in one.plans and region not in one.outcomes:
                self.requests.remove(request)
                self.requests.insert(number, request)
                return

    def _shelve_superseded(self) -> None:
        """Move the functions of ended requests to disk, except those of the run's last two requests in effect."""
        holding = [one for one in self.requests if any(map(one.may_hold, one.plans))]
        for request in self.requests:
            if request.ended and request.payloads and not request.guarded and request not in holding[-2:]:
                request.updates, request.payloads = self._shelf.put(request.payloads), {}
                for change in request.merged:
                    self.changes[change].updates = request.updates

    def _whole(self, request: Request, entered_s: float, change: str) -> Outcome:
        """The outcome over all regions, with times counted from the request and from when tuples flow."""
        return combined(change, [self._timed(request, region, entered_s) for region in sorted(request.outcomes)])

    def _timed(self, request: Request, region: int, entered_s: float) -> Outcome:
        """The outcome in a region, with times counted likewise."""
        begun_s = max(entered_s, request.begun_s.get(region, entered_s))
        from_s = max(entered_s, min(begun_s, self._flows_s.get(region, begun_s)))
        return later(request.outcomes[region], 1000 * (from_s - entered_s), 1000 * (begun_s - from_s))

    def _resolve(self, change: str, outcome: Outcome) -> None:
        """Resolve a change; called a second time after a rollback by its guard."""
        self._listener.ended(self.changes[change], outcome)
        self.changes[change].resolve(outcome)


def at_start(graph: Graph, change: str, plan: Plan) -> Outcome:
    """The outcome of a change that was applied before its region's first tuple, without a delay at any worker."""
    workers = {
        WorkerId(name, index): WorkerOutcome(0.0)
        for name in sorted(plan.targets)
        for index in range(graph.operator(name).workers)
    }
    return Outcome(change, plan.scheduler, "done", per_worker=workers)


def combined(change: str, parts: list[Outcome]) -> Outcome:
    """Combine the outcomes of a change in several regions.

    It is done if it is done in all of them, aborted if it is aborted in all of them, and failed if they differ.
    """
    kinds = {part.outcome for part in parts}
    worst = min(kinds, key=("failed", "rolled_back", "aborted", "done").index)
    whole = next(part for part in parts if part.outcome == worst)
    error = whole.error
    if len(kinds) > 1 and whole.outcome == "aborted":
        done = ", ".join(sorted({str(worker.operator) for part in parts for worker in part.per_worker}))
        error = f"{whole.error} (but {done} changed, in another region)"
    per_worker: Mapping[WorkerId, WorkerOutcome] = {
        worker: outcome for part in parts for worker, outcome in part.per_worker.items()
    }
    return replace(
        whole,
        change=change,
        outcome=whole.outcome if len(kinds) == 1 else "failed",
        error=error,
        prepare_ms=sum(part.prepare_ms for part in parts),
        commit_ms=sum(part.commit_ms for part in parts),
        delay_ms=(delay_ms := max(part.delay_ms for part in parts)),
        waited_ms=max(part.waited_ms + part.delay_ms for part in parts) - delay_ms,
        components=tuple(component for part in parts for component in part.components),
        per_worker=dict(per_worker),
        has_examples=any(part.has_examples for part in parts),
    )


def later(outcome: Outcome, waited_ms: float, delayed_ms: float) -> Outcome:
    """Add times before a request was begun to its outcome, if it is done."""
    if outcome.outcome != "done":
        return outcome
    workers = {worker: replace(one, delay_ms=one.delay_ms + delayed_ms) for worker, one in outcome.per_worker.items()}
    return replace(
        outcome,
        delay_ms=outcome.delay_ms + delayed_ms,
        waited_ms=outcome.waited_ms + waited_ms,
        per_worker=workers,
    )


def planned(
    regions: tuple[Region, ...],
    shares: Mapping[int, Iterable[str]],
    scheduler: str,
    pruning: bool,
    against_cut: str = "",
) -> dict[int, Plan]:
    """The plan of each region for its share of the targets; see ``schedule``."""
    plans = {
        number: schedule(scheduler, regions[number].graph, targets, pruning, against_cut)
        for number, targets in (shares or {0: ()}).items()
    }
    if len({plan.scheduler for plan in plans.values()}) == 1:
        return plans
    return planned(regions, shares, scheduler, pruning, "it could not be taken in all regions of the dataflow")


def against_cut(identifies: bool, updates: Mapping[str, Update], limit: Limit | None) -> str:
    """Why a change cannot be decided row by row, whatever the dataflow; empty if it can."""
    if not identifies:
        return "the rows of this run carry no identities (flow.run(identities=True))"
    if limit is not None:
        return "by the cut a change has no guard of its own"
    if one_way := sorted(name for name, update in updates.items() if update.state is not None and update.back is None):
        words = "cannot be transformed without a way back (Update(..., state=..., back=...))"
        return f"by the cut the state of {names(one_way)} {words}, since old and new rows use it in turns"
    if edited := sorted(name for name, update in updates.items() if isinstance(update.state, Edits)):
        return f"by the cut the states of single keys of {names(edited)} would be set anew whenever a new row comes"
    return ""


def refuse_by_row(plans: Mapping[int, Plan], regions: Sequence[Region], against: str) -> None:
    """Raise a PlanError if a change by the cut cannot be decided row by row."""
    for number, plan in plans.items():
        if plan.scheduler == "cut" and (why := against or refused_by_row(regions[number].graph, plan.covering)):
            raise PlanError(f"the cut decides by the identity of a row, and {why}; expected scheduler='fries'")


CANARY_GUARD = "until it is promoted or rolled back, by going back to the last checkpoint"
NO_CANARY_GUARD = "not at all, since the run keeps no checkpoint to go back to; on_error= applies"
NO_GUARD_IN_LOOPS = "not at all, since rows of a checkpoint may have met it in rounds of a loop; on_error= applies"


def share_now(request: Request, requests: Iterable[Request]) -> float:
    """The share of rows that are new by the last step of a canary that is requested and not refused."""
    if any(map(request.rolled_back, request.plans)):
        return 0.0
    steps = [one.share for one in requests if one.step_of is request and all(map(one.may_hold, one.plans))]
    return steps[-1] if steps else request.share


def is_open_canary(request: Request, requests: Iterable[Request]) -> bool:
    """Whether a request is of a canary, itself and no step of it, that is to be promoted or rolled back."""
    may_hold = all(map(request.may_hold, request.plans)) and request.step_of is None
    return may_hold and request.share < 1 and 0 < share_now(request, requests) < 1


def checked_step(request: Request, share: float, requests: Iterable[Request]) -> None:
    """Raise a PlanError if a canary cannot go on to this share."""
    change, now = request.id, share_now(request, requests)
    if request.share == 1:
        raise PlanError(f"change {change} is no canary; expected one of run.reconfigure(..., canary=0.05)")
    if isinstance(share, bool) or not isinstance(share, int | float) or not 0 <= share <= 1:
        raise PlanError(f"got {share!r} as the share of change {change}; expected a number from 0 to 1")
    if any(map(request.rolled_back, request.plans)):
        raise PlanError(f"change {change} was rolled back since its new version failed; request it again")
    if not all(map(request.is_done, request.plans)):
        raise PlanError(f"change {change} is not done; expected its end (result()) before a further step")
    if now in (0, 1):
        raise PlanError(f"change {change} was {'promoted' if now else 'rolled back'}, so it has no further step")
    if 0 < share <= now:
        words = "a share only rises, so that no row goes back to the old version; or it is 0, which rolls back"
        raise PlanError(f"got {share:g} as the share of change {change}, which has {now:g}: {words}")


def resumed_canary(canary: CommittedChange, regions: Sequence[Region]) -> Request:
    """The request of a canary of an earlier process, with its share now, done in its region."""
    updates = {name: pickle.loads(payload) for name, payload in canary.payloads.items()}
    number = next(number for number, region in enumerate(regions) if updates.keys() <= set(region.own))
    plans = {number: schedule("cut", regions[number].graph, updates)}
    last = canary.steps[-1].share
    return Request(canary.change, updates, dict(canary.payloads), plans, (canary.change,), share=last)


def has_finished(operators: Iterable[str], region: int, regions: int) -> str:
    """Why nothing of these operators can be changed or asked any more, as the beginning of a sentence."""
    return f"{', '.join(sorted(operators))} ran in region {region + 1} of {regions}, which has finished"


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
    stages = tuple(stage for plan in whole for stage in plan.stages)
    return Plan(first.scheduler, targets, stages, covering, reason=first.reason)


def predicted(
    regions: tuple[Region, ...],
    plans: Mapping[int, Plan],
    measured: Mapping[str, OperatorMetrics],
    prepare_ms: float | None,
) -> Prediction:
    """Predict the delay of these plans, and that of epoch markers (from all sources) for comparison.

    Only plans that merely switch at a marker have a prediction, not those with tags, holds or restarts. In a change of
    the shape every member gets the message, but those below others wait for their markers all the same; sources that
    begin to read when all have switched wait for nothing.
    """
    queues = {name: Queue(one.queued, one.rate) for name, one in measured.items() if one.processed}
    found: list[CriticalPath] = []
    by_epoch: list[CriticalPath] = []
    for number, plan in plans.items():
        graph = regions[number].graph
        switching = _switching(plan)
        awaited = frozenset().union(*(stage.awaits for stage in switching))
        if not awaited and plan.stages[0].does is StageAction.RELEASE:
            found.append(CriticalPath((), 0.0))
            continue
        found += ways(graph, _markers(graph, switching), awaited, queues)
        by_epoch += ways(graph, {frozenset(graph): set(graph.sources)}, awaited or plan.targets, queues)
    return Prediction(tuple(found), longest(by_epoch), prepare_ms)


def _switching(plan: Plan) -> list[Stage]:
    """The stages at whose markers operators switch; none if the plan does more than that before its end."""
    if any(stage.does not in (StageAction.SWITCH, StageAction.RELEASE) for stage in plan.stages):
        return []
    return [stage for stage in plan.stages if stage.does is StageAction.SWITCH]


def _markers(graph: Graph, switching: Iterable[Stage]) -> dict[frozenset[str], set[str]]:
    """Scope to those that get the message and wait for no marker of the scope."""
    markers: dict[frozenset[str], set[str]] = {}
    for send in (send for stage in switching for send in stage.sends):
        if send.scope.isdisjoint(graph.predecessors(send.operator)):
            markers.setdefault(send.scope, set()).add(send.operator)
    return markers


def shape_requested(request: Request, graph: Graph) -> ChangeRequested:
    """The request of a change of the shape of a dataflow; it is rehearsed from the first operators that switch on."""
    assert request.shape is not None, "it changes the shape"
    plan = request.plans[0]
    fair = rehearsed(plan.targets, graph, request.shape.after) if request.rehearse else frozenset()
    guard = _shape_guard(request, graph) if request.guard is not None else None
    undoes = request.undoes.id if request.undoes is not None else ""
    return ChangeRequested(
        request.id, plan, request.payloads, fair, guard=guard, undoes=undoes, force=request.force, shape=request.shape,
        examples=EXAMPLES,
    )


def step_requested(request: Request, plan: Plan) -> ChangeRequested:
    """The request of a further step of a canary."""
    assert request.step_of is not None, "it is a step"
    undoes = "" if request.undoes is None else request.undoes.id
    return ChangeRequested(request.id, plan, {}, undoes=undoes, share=request.share, step_of=request.step_of.id)


def rehearsed(targets: Collection[str], before: Graph, after: Graph) -> frozenset[str]:
    """The targets of a change of the shape from which it is rehearsed: those of both shapes with none upstream."""
    stay = {name for name in targets if name in before and name in after}
    return frozenset(name for name in stay if not stay & nx.ancestors(before.digraph, name))


def _shape_guard(request: Request, graph: Graph) -> Guard:
    """The guard of a change of the shape of a dataflow, which is rolled back by a restart with the dataflow before."""
    assert request.shape is not None, "it changes the shape"
    assert request.before is not None, "it is no rollback"
    after, plan, limit = request.shape.after, request.plans[0], request.guard
    stay = frozenset(name for name in plan.targets if name in after)
    back = ShapeChange(resized(request.before, graph.sizes), fingerprint=request.shape.back)
    return Guard(replace(plan, targets=stay), True, limit if isinstance(limit, float | int) else None, shape=back)


def guarded_regions(
    regions: tuple[Region, ...],
    plans: Mapping[int, Plan],
    updates: Mapping[str, Update],
    limit: Limit,
    chaining: bool,
    recovers: bool,
) -> tuple[Limit | None, str]:
    """Determine the guard that is possible in all regions.

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
