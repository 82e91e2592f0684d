"""What is in a run's queue of changes: each request, how it ended in each region, and the handles that users hold."""

from __future__ import annotations

import os
import pickle
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import IO, Protocol

from fries_nb.changes import Change
from fries_nb.controller.events import GuardEnded, GuardFired, Outcome, WorkerOutcome
from fries_nb.dataflow.graph import Graph
from fries_nb.dataflow.limits import Limit
from fries_nb.dataflow.updates import Update
from fries_nb.messages import WorkerId
from fries_nb.scheduling import Plan

NO_GUARD_FOR_FIXES = "not at all: it is the fix of an operator that is paused on a tuple, and goes at once"


@dataclass(eq=False)
class Request:
    """One change, or several that were merged, as they are carried out.

    Attributes:
        id: under which controllers and traces know it.
        plans: by the number of the region.
        merged: the ids of all changes that it resolves, in order of request; the last one gave it its own.
        undoes: what it rolls back, if it is a rollback; ``ground``: what its operators then run.
        guard: how long it is under guard, if it is.
        rehearse: whether it is tried on recent tuples first; what is merged is if one of its parts is.
        as_fix: whether it was begun as the fix of an operator that is paused; until that goes on.
        begun_s: when each region began it; ``outcomes`` how it ended there.
        guarded: the regions where its guard lasts; ``fired`` those where it is rolling the request back, with why;
            ``let_go`` those where it is over, which it may be before the request is done.
        at_start: the regions that began with it, so that no controller has carried it out.
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
    as_fix: bool = False
    begun_s: dict[int, float] = field(default_factory=dict)
    outcomes: dict[int, Outcome] = field(default_factory=dict)
    at_start: set[int] = field(default_factory=set)
    guarded: set[int] = field(default_factory=set)
    let_go: set[int] = field(default_factory=set)
    fired: dict[int, str] = field(default_factory=dict)

    @property
    def ended(self) -> bool:
        """Whether all regions are through with it."""
        return self.outcomes.keys() == self.plans.keys()

    def joined_to(self, earlier: Iterable[Request]) -> Request:
        """This one together with earlier ones, as they will be carried out: under this id, by these plans."""
        whole = [*earlier, self]
        return replace(
            self,
            updates={name: update for one in whole for name, update in one.updates.items()},
            payloads={name: payload for one in whole for name, payload in one.payloads.items()},
            merged=tuple(change for one in whole for change in one.merged),
            rehearse=any(one.rehearse for one in whole),
        )

    def rolled_back(self, region: int) -> bool:
        """Whether its guard has rolled it back there."""
        return region in self.outcomes and self.outcomes[region].outcome == "rolled_back"

    def may_hold(self, region: int) -> bool:
        """Whether it has changed something there, or still can."""
        return region not in self.outcomes or self.outcomes[region].outcome == "done"


Ground = dict[str, Request | None]
"""For operators, the request whose function they ran, or ``None`` for what they began with."""


class ChangeListener(Protocol):
    """Callbacks on a run's changes, from any thread; they return at once."""

    def requested(self, change: Change) -> None:
        """A change was requested."""

    def ended(self, change: Change, outcome: Outcome) -> None:
        """A change is about to be resolved; one that was done may be again, by its guard."""


class RequestRegistry:
    """All requests of a run, and the changes that they resolve.

    Args:
        graph: the whole dataflow.
        listener: told of every change.
        clock: seconds, never going back.

    Attributes:
        changes: the handles of users, by id, in order of request.
        requests: in the order in which they took effect.
    """

    def __init__(self, graph: Graph, listener: ChangeListener, clock: Callable[[], float]) -> None:
        self.changes: dict[str, Change] = {}
        self.requests: list[Request] = []
        self._graph = graph
        self._listener = listener
        self._clock = clock
        self._entered_s: dict[str, float] = {}
        self._flows_s: dict[int, float] = {}
        self._shelf = Shelf()

    def add(self, change: Change) -> None:
        """A change is requested."""
        self.changes[change.id] = change
        self._entered_s[change.id] = self._clock()
        self._listener.requested(change)

    def flows(self, region: int) -> None:
        """The region's workers are at work: what was requested before is timed from now."""
        self._flows_s.setdefault(region, self._clock())

    def drop_guard(self, request: Request) -> None:
        """It is under no guard, being a fix."""
        if request.guard is not None:
            request.guard = None
            for change in request.merged:
                self.changes[change].guard = NO_GUARD_FOR_FIXES

    def withdraw(self, request: Request, rollback: Change) -> None:
        """It is rolled back before it was begun, and never will be."""
        self.requests.remove(request)
        words = "it was rolled back before it was begun; nothing changed"
        for change in request.merged:
            self._resolve(change, Outcome(change, self.changes[change].plan.scheduler, "aborted", words))
        self._resolve(rollback.id, Outcome(rollback.id, rollback.plan.scheduler, "done"))
        for change in (*request.merged, rollback.id):
            self.changes[change].end_guard()

    def end_at_start(self, region: int, request: Request) -> None:
        """The region has begun with it."""
        request.at_start.add(region)
        self.end(region, request, at_start(self._graph, request.id, request.plans[region]))

    def end(self, region: int, request: Request, outcome: Outcome) -> None:
        """It has come to its end in this region; its changes have if it has in all."""
        request.outcomes[region] = outcome
        done = outcome.outcome == "done"
        if request.guard is not None and done and region not in request.at_start | request.let_go:
            request.guarded.add(region)
        if done:
            self._reorder(region, request)
        if request.ended:
            self._settle(request)
            self._shelve_superseded()

    def guard_fired(self, region: int, event: GuardFired) -> None:
        """The guard of a request has begun to roll it back in this region; until it has ended no other rollback can."""
        for request in self.requests:
            if request.id == event.change:
                request.fired[region] = event.error

    def guard_ended(self, region: int, event: GuardEnded) -> None:
        """The guard of a request is over in this region; if it has fired, the request is rolled back there."""
        request = next((one for one in self.requests if one.id == event.change), None)
        if request is None:
            return
        request.guarded.discard(region)
        request.let_go.add(region)
        request.fired.pop(region, None)
        if event.rolled_back:
            words = f"rolled back by its guard, since the new configuration failed: {event.error}"
            was = request.outcomes[region]
            request.outcomes[region] = replace(was, outcome="rolled_back", error=words, details=event.details)
        self._settle(request, event.rolled_back and request.ended)

    def executed(self) -> list[tuple[str, str]]:
        """Id and target of all that controllers have decided: what a trace must have records of."""
        return [
            (request.id, target)
            for request in self.requests
            for region, outcome in request.outcomes.items()
            if outcome.outcome != "aborted" and region not in request.at_start
            for target in request.plans[region].targets
        ]

    # ---- inside

    def _settle(self, request: Request, resolve: bool = True) -> None:
        for change in request.merged:
            if resolve:
                self._resolve(change, self._whole(request, self._entered_s[change], change))
            if not request.guarded:
                self.changes[change].end_guard()

    def _reorder(self, region: int, request: Request) -> None:
        """Requests are in the order in which they took effect: one that went ahead, in front of those still open."""
        for number, one in enumerate(self.requests):
            if one is request:
                return
            if region in one.plans and region not in one.outcomes:
                self.requests.remove(request)
                self.requests.insert(number, request)
                return

    def _shelve_superseded(self) -> None:
        """Of what has changed something the last two stay in memory: what runs, and what ran before it."""
        holding = [one for one in self.requests if any(map(one.may_hold, one.plans))]
        for request in self.requests:
            if request.ended and request.payloads and not request.guarded and request not in holding[-2:]:
                request.updates, request.payloads = self._shelf.put(request.payloads), {}
                for change in request.merged:
                    self.changes[change].updates = request.updates

    def _whole(self, request: Request, entered_s: float, change: str) -> Outcome:
        """The outcome of all regions together; times count from when the change was entered and tuples flowed."""
        parts = []
        for region, outcome in sorted(request.outcomes.items()):
            begun_s = max(entered_s, request.begun_s.get(region, entered_s))
            from_s = max(entered_s, min(begun_s, self._flows_s.get(region, begun_s)))
            parts.append(later(outcome, 1000 * (from_s - entered_s), 1000 * (begun_s - from_s)))
        return combined(change, parts)

    def _resolve(self, change: str, outcome: Outcome) -> None:
        """It has come to its end; or, having been done, to another one by its guard."""
        self._listener.ended(self.changes[change], outcome)
        self.changes[change].resolve(outcome)


def at_start(graph: Graph, change: str, plan: Plan) -> Outcome:
    """How a change ended with which its region has begun: at once, at all workers of its targets."""
    workers = {
        WorkerId(name, index): WorkerOutcome(0.0)
        for name in sorted(plan.targets)
        for index in range(graph.operator(name).workers)
    }
    return Outcome(change, plan.scheduler, "done", per_worker=workers)


def combined(change: str, parts: list[Outcome]) -> Outcome:
    """How a change ended of which each region had a part: done if all are, aborted if nothing changed anywhere."""
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
    )


def later(outcome: Outcome, waited_ms: float, delayed_ms: float) -> Outcome:
    """The outcome as timed from the request: first it waited for tuples to flow, then it was delayed by others."""
    if outcome.outcome != "done":
        return outcome
    workers = {worker: replace(one, delay_ms=one.delay_ms + delayed_ms) for worker, one in outcome.per_worker.items()}
    return replace(
        outcome,
        delay_ms=outcome.delay_ms + delayed_ms,
        waited_ms=outcome.waited_ms + waited_ms,
        per_worker=workers,
    )


class Shelf:
    """Functions that later changes have replaced, on disk: a rollback may still ask for them.

    It is a file without a name, which goes with the run or with the process.

    >>> updates = Shelf().put({"FM": pickle.dumps(Update(len))})
    >>> list(updates), updates["FM"].function("abc")
    (['FM'], 3)
    """

    def __init__(self) -> None:
        self._file: IO[bytes] | None = None

    def put(self, payloads: Mapping[str, bytes]) -> Shelved:
        """Keep pickled updates by operator; each is read on access."""
        if self._file is None:
            self._file = tempfile.TemporaryFile(prefix="fries-functions-")  # noqa: SIM115 - as long as the run
        places: dict[str, tuple[int, int]] = {}
        for name, payload in payloads.items():
            places[name] = (self._file.seek(0, os.SEEK_END), self._file.write(payload))
        self._file.flush()
        return Shelved(self._file, places)


class Shelved(Mapping[str, Update]):
    """Updates by operator, each unpickled anew when it is looked up."""

    def __init__(self, file: IO[bytes], places: Mapping[str, tuple[int, int]]) -> None:
        self._file = file
        self._places = dict(places)

    def __getitem__(self, name: str) -> Update:
        offset, length = self._places[name]
        update: Update = pickle.loads(os.pread(self._file.fileno(), length, offset))
        return update

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)
