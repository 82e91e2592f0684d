"""The changes of a run: what each region carries out now, what waits, what is in effect, what a rollback undoes.

Each region has a queue of its own, and one request in flight at its controller. A request for a region that has not
begun waits until then, and applies before its first tuple; one over several regions is done when all are. Pure but for
a clock and its lock: it answers with orders, and others carry them out.

Every method holds the lock for as long as it lasts. Who has to do several things that nobody may come in between, such
as to plan and to enter, or to carry out orders in their order, holds it around them.

    enter      -> orders: tell the controller of this region to carry out this request
    starting   -> the requests whose functions the region begins with; started -> orders
    resolved   -> orders: the next one of this region
    over       -> nothing of this region can change any more
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace

from fries_nb.changes import Change
from fries_nb.checkpoints import CommittedChange
from fries_nb.controller.events import GuardEnded, GuardFired, Outcome, WorkerOutcome
from fries_nb.controller.states import REGION_MOVES, RegionPhase, moved
from fries_nb.dataflow.graph import Graph
from fries_nb.dataflow.regions import Region
from fries_nb.errors import PlanError
from fries_nb.messages import WorkerId
from fries_nb.running.locks import locked
from fries_nb.running.outcomes import combined, functions_of, later
from fries_nb.running.queue_entries import Order, Request, Undoing
from fries_nb.running.rollbacks import Rollbacks
from fries_nb.running.shelf import Shelf


class ChangeQueue:
    """All changes of a run.

    Args:
        graph: the whole dataflow.
        regions: its regions, none of which has begun.
        ended: called once for each change, just before it is resolved.
        before: the changes that were decided before the run was resumed.
        clock: seconds, never going back.

    Attributes:
        changes: by id, in order of request.
        lock: held by whoever reads or changes anything here.
    """

    def __init__(
        self,
        graph: Graph,
        regions: tuple[Region, ...],
        ended: Callable[[Change, Outcome], None],
        before: Sequence[CommittedChange] = (),
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.lock = threading.RLock()
        self.changes: dict[str, Change] = {}
        self._graph = graph
        self._region_of = {name: number for number, region in enumerate(regions) for name in region.own}
        self._ended = ended
        self._known = max((int(one.change.removeprefix("u").partition(".")[0]) for one in before), default=0)
        self._ran = {name: operator.function for name, operator in graph.by_name.items()} | functions_of(before)
        self._clock = clock
        self._phases = [RegionPhase.AHEAD for _ in regions]
        self._standing: set[str] = set()
        self._requests: list[Request] = []
        self._rollbacks = Rollbacks(self._requests, self._region_of, self._phases, self._ran)
        self._waiting: list[list[Request]] = [[] for _ in regions]
        self._in_flight: list[dict[str, Request]] = [{} for _ in regions]
        self._entered_s: dict[str, float] = {}
        self._shelf = Shelf()
        self._flows_s: dict[int, float] = {}

    # ---- what the user asks

    @locked
    def new_id(self) -> str:
        """The id of the next change."""
        return f"u{self._known + len(self.changes) + 1}"

    @locked
    def shares(self, targets: Iterable[str]) -> dict[int, list[str]]:
        """The targets by the number of their region, in order; a name that is in none goes to the first.

        Raises:
            PlanError: a target's region has finished.
        """
        shares: dict[int, list[str]] = {}
        for name in targets:
            shares.setdefault(self._region_of.get(name, 0), []).append(name)
        for region, names in shares.items():
            if self._phases[region] is RegionPhase.OVER:
                raise PlanError(
                    f"{', '.join(sorted(names))} ran in region {region + 1} of {len(self._phases)}, which has "
                    "finished; expected operators of a region that runs or is still to come"
                )
        return dict(sorted(shares.items()))

    @locked
    def joinable(self) -> list[Request]:
        """The newest requests of which no region has begun anything, back to the last rollback, in order."""
        joinable: list[Request] = []
        for request in reversed(self._requests):
            if request.ended:
                continue
            if request.begun_s or request.outcomes or request.undoes is not None:
                break
            joinable.append(request)
        return joinable[::-1]

    @locked
    def mends(self, updates: Collection[str]) -> bool:
        """Whether this changes just an operator that stands in front of a tuple; nothing else could go before it."""
        return len(updates) == 1 and self._standing.issuperset(updates)

    @locked
    def enter(self, request: Request, joins: Iterable[Request] = ()) -> list[Order]:
        """Take in a request that was planned, and with it what it ``joins``: behind all that waits, or as a fix."""
        newest = request.changes[-1]
        self.changes[newest.id] = newest
        self._entered_s[newest.id] = self._clock()
        for joined in joins:
            self._forget(joined)
        self._requests.append(request)
        orders: list[Order] = []
        for region in request.plans:
            self._waiting[region].append(request)
            orders += self._next(region)
        return orders

    @locked
    def undoing(self) -> Undoing:
        """What a rollback would undo now, and how.

        It is the newest request in effect (see ``rollbacks``); the updates are what its operators ran, or will run,
        before it.

        Raises:
            PlanError: there is none, or its guard is rolling it back; or one before it that changes the same operators
                is still being carried out, or rolled back by its guard, so that it is open what ran before; or a
                target's state was transformed, and nobody has said how to transform it back.
        """
        last = self._rollbacks.last()
        ground = self._rollbacks.ground(last)
        return Undoing(last, self._rollbacks.back(last, ground), ground)

    @locked
    def still_undoes(self, found: Undoing) -> bool:
        """Whether ``undoing`` would answer the same now.

        Raises:
            PlanError: as ``undoing`` does.
        """
        last = self._rollbacks.last()
        return last is found.request and self._rollbacks.ground(last) == found.ground

    @locked
    def withdraw(self, last: Request, rollback: Change) -> bool:
        """Roll back a request of which nothing has begun: it never will be; false, and nothing done, otherwise."""
        if not self._rollbacks.can_withdraw(last):
            return False
        self.changes[rollback.id] = rollback
        self._forget(last)
        for change in last.changes:
            self._resolve(change, Outcome(
                change.id, change.plan.scheduler, "aborted", "it was rolled back before it was begun; nothing changed"
            ))  # fmt: skip
        self._resolve(rollback, Outcome(rollback.id, rollback.plan.scheduler, "done"))
        for change in (*last.changes, rollback):
            change.end_guard()
        return True

    # ---- what becomes of regions

    @locked
    def starting(self, region: int) -> list[Request]:
        """The region is about to start: the requests that apply before its first tuple, in order; they have begun."""
        self._move(region, RegionPhase.STARTING)
        for request in self._waiting[region]:
            request.begun_s[region] = self._clock()
        return list(self._waiting[region])

    @locked
    def started(self, region: int, applied: Iterable[Request]) -> list[Order]:
        """The region has started with these requests applied."""
        self._move(region, RegionPhase.RUNNING)
        for request in applied:
            self._waiting[region].remove(request)
            request.at_start.add(region)
            self._end(region, request, self._at_start(region, request))
        return self._next(region)

    @locked
    def flows(self, region: int) -> None:
        """The region's workers are at work: what was requested before is timed from now."""
        self._flows_s.setdefault(region, self._clock())

    @locked
    def resolved(self, region: int, outcome: Outcome) -> list[Order]:
        """The region's controller has come to the end of a request."""
        request = self._in_flight[region].pop(outcome.change, None)
        if request is None:  # a run that was resumed ends changes that were asked for before
            return []
        self._end(region, request, outcome)
        return self._next(region)

    @locked
    def stands(self, region: int, operator: str, waits: bool) -> list[Order]:
        """An operator stands in front of a tuple, or goes on: what waits and changes just that goes ahead, one by one.

        The change in flight may wait for that very operator, and would then never end. Like every fix it has no guard.
        """
        (self._standing.add if waits else self._standing.discard)(operator)
        for request in self._in_flight[region].values():
            request.as_fix = request.as_fix and (waits or operator not in request.updates)
        return self._next(region)

    @locked
    def guard_fired(self, region: int, event: GuardFired) -> None:
        """The guard of a request has begun to roll it back in this region; until it has ended nobody else can."""
        for request in self._requests:
            if request.id == event.change:
                request.fired[region] = event.error

    @locked
    def guard_ended(self, region: int, event: GuardEnded) -> None:
        """The guard of a request is over in this region; if it has fired, the request is rolled back there."""
        request = next((one for one in self._requests if one.id == event.change), None)
        if request is None:
            return
        request.guarded.discard(region)
        request.let_go.add(region)
        request.fired.pop(region, None)
        if event.rolled_back:
            words = f"rolled back by its guard, since the new configuration failed: {event.error}"
            was = request.outcomes[region]
            request.outcomes[region] = replace(was, outcome="rolled_back", error=words, details=event.details)
        for change in request.changes:
            if event.rolled_back and request.ended:
                self._resolve(change, self._whole(request, self._entered_s[change.id], change.id))
            if not request.guarded:
                change.end_guard()

    @locked
    def over(self, region: int, why: str) -> None:
        """Nothing of the region can change any more, since ``why``."""
        if self._phases[region] is RegionPhase.OVER:
            return
        self._move(region, RegionPhase.OVER)
        left = [*self._in_flight[region].values(), *self._waiting[region]]
        self._in_flight[region].clear()
        self._waiting[region].clear()
        for request in left:
            words = f"{why} before the change was begun; nothing changed"
            self._end(region, request, Outcome(request.id, request.plans[region].scheduler, "aborted", words))

    @locked
    def executed(self) -> list[tuple[str, str]]:
        """Id and target of all that controllers have decided: what a trace must have records of."""
        return [
            (request.id, target)
            for request in self._requests
            for region, outcome in request.outcomes.items()
            if outcome.outcome != "aborted" and region not in request.at_start
            for target in request.plans[region].targets
        ]

    # ---- inside

    def _move(self, region: int, to: RegionPhase) -> None:
        self._phases[region] = moved(REGION_MOVES, self._phases[region], to, f"region {region + 1}")

    def _forget(self, request: Request) -> None:
        self._requests.remove(request)
        for waiting in self._waiting:
            if request in waiting:
                waiting.remove(request)

    def _begin(self, region: int, request: Request) -> Order:
        self._waiting[region].remove(request)
        request.as_fix = self.mends(request.updates)
        if request.as_fix:
            request.drop_guard()
        request.begun_s[region] = self._clock()
        self._in_flight[region][request.id] = request
        return Order(region, request)

    def _next(self, region: int) -> list[Order]:
        """Fixes, and the first that waits, if it can begin; a rollback that undoes nothing, or another change, ends."""
        if self._phases[region] is not RegionPhase.RUNNING:
            return []
        waiting = self._waiting[region]
        orders = [self._begin(region, one) for one in list(waiting) if self._goes_ahead(region, one)]
        while waiting and not self._in_flight[region]:
            request = waiting[0]
            words = self._rollbacks.pointless(region, request)
            if not words:
                return [*orders, self._begin(region, request)]
            waiting.remove(request)
            self._end(region, request, Outcome(request.id, request.plans[region].scheduler, "aborted", words))
        return orders

    def _goes_ahead(self, region: int, request: Request) -> bool:
        """Whether it is a fix that begins beside what is in flight; an operator gets one at a time."""
        in_flight = self._in_flight[region]
        return (
            self.mends(request.updates)
            and not any(one.as_fix and one.updates.keys() == request.updates.keys() for one in in_flight.values())
            and not self._rollbacks.overtakes(region, request, in_flight)
            and not self._rollbacks.pointless(region, request)
        )

    def _order(self, region: int, request: Request) -> None:
        """Requests are in the order in which they took effect: one that went ahead, in front of those still open."""
        for number, one in enumerate(self._requests):
            if one is request:
                return
            if region in one.plans and region not in one.outcomes:
                self._requests.remove(request)
                self._requests.insert(number, request)
                return

    def _at_start(self, region: int, request: Request) -> Outcome:
        plan = request.plans[region]
        workers = {
            WorkerId(name, index): WorkerOutcome(0.0)
            for name in sorted(plan.targets)
            for index in range(self._graph.operator(name).workers)
        }
        return Outcome(request.id, plan.scheduler, "done", per_worker=workers)

    def _end(self, region: int, request: Request, outcome: Outcome) -> None:
        request.outcomes[region] = outcome
        if request.guard is not None and outcome.outcome == "done" and region not in request.at_start | request.let_go:
            request.guarded.add(region)
        if outcome.outcome == "done":
            self._order(region, request)
        if request.ended:
            for change in request.changes:
                self._resolve(change, self._whole(request, self._entered_s[change.id], change.id))
                if not request.guarded:
                    change.end_guard()
            self._shelve_superseded()

    def _shelve_superseded(self) -> None:
        """Of what has changed something the last two stay in memory: what runs, and what ran before it."""
        holding = [one for one in self._requests if any(map(one.may_hold, one.plans))]
        for request in self._requests:
            if request.ended and request.payloads and not request.guarded and request not in holding[-2:]:
                request.shelve(self._shelf)

    def _whole(self, request: Request, entered_s: float, change: str) -> Outcome:
        """The outcome of all regions together; times count from when the change was entered and tuples flowed."""
        parts = []
        for region, outcome in sorted(request.outcomes.items()):
            begun_s = max(entered_s, request.begun_s.get(region, entered_s))
            from_s = max(entered_s, min(begun_s, self._flows_s.get(region, begun_s)))
            parts.append(later(outcome, 1000 * (from_s - entered_s), 1000 * (begun_s - from_s)))
        return combined(change, parts)

    def _resolve(self, change: Change, outcome: Outcome) -> None:
        """It has come to its end; or, having been done, to another one by its guard."""
        self._ended(change, outcome)
        change.resolve(outcome)
