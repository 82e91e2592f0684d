"""The choice of the request that a rollback undoes, and of the functions that it restores.

A request is *in effect* in a region if it is done or under way there and has no rollback that is done or under way.
Since outcomes differ between regions, a request may be in effect in some of them only. A rollback undoes the newest
request in effect, in those regions; each operator gets the function of the newest earlier request in effect.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from fries_nb.changes.change import FunctionPairs, undone
from fries_nb.changes.queue_entries import Ground, Request, is_open_canary
from fries_nb.controller.states import RegionPhase
from fries_nb.dataflow.graph import Graph
from fries_nb.dataflow.tables import JoinTable
from fries_nb.dataflow.updates import Update, configured
from fries_nb.dataflow.windowing import ConfiguredFunction, following
from fries_nb.errors import PlanError
from fries_nb.protocol.checkpoints import CommittedChange


class Rollbacks:
    """The possible rollbacks of a run's requests.

    Args:
        requests: all requests, in the order in which they took effect; a live view of the caller's list.
        phases: phase of each region; a live view of the caller's list.
    """

    def __init__(
        self, requests: Sequence[Request], region_of: Mapping[str, int], phases: Sequence[RegionPhase],
        ran: Mapping[str, Any],
    ) -> None:
        self._requests = requests
        self._region_of = region_of
        self._phases = phases
        self._ran = ran
        self._forgotten: dict[str, list[Request]] = {}  # the last ones in effect at an operator, at most two

    def forget_oldest(self) -> Request | None:
        """Forget the oldest request, whose functions count from now on as those of the beginning.

        Returns:
            The request; ``None`` if it is still open, or under guard, or an open rollback undoes it or returns to it.
        """
        oldest = self._requests[0]
        open_ones = [request for request in self._requests if not request.ended]
        is_needed = any(request.undoes is oldest or oldest in request.ground.values() for request in open_ones)
        if not oldest.ended or oldest.guarded or oldest.fired or is_needed:
            return None
        undone_in = self._undone_in()
        for name in oldest.updates:
            if oldest.undoes is None and _in_effect(oldest, self._region_of.get(name, 0), undone_in):
                self._fold(name, oldest)
        return oldest

    def _fold(self, name: str, request: Request) -> None:
        """Keep what an operator ran after a request that is forgotten: its function and the setting, as of windows."""
        held = [*self._forgotten.get(name, ()), request]
        has_setting = isinstance(self._ran[name], ConfiguredFunction)
        setting = [one for one in held if has_setting and one.updates[name].setting is not None]
        self._forgotten[name] = [*(one for one in setting[-1:] if one is not request), request]

    def running(self, shipped: Mapping[str, bytes]) -> dict[str, Callable[[], Any]]:
        """Operator to what makes a copy of what it runs now, as it was shipped, for the operators that can be changed.

        Copies are unpickled by the caller, which holds no lock then: a user's object may take its time.
        """
        found = dict[str, Callable[[], Any]]()
        for name, ran in self._ran.items():
            if name not in self._region_of:
                continue  # a change of the shape has removed it
            region = self._region_of[name]
            ended = [request for request in self._requests if request.is_done(region)]
            undone = [request.undoes for request in ended]  # a rollback that is under way has undone nothing yet
            made = (request for request in ended if request.undoes is None and request not in undone)
            done = [request for request in made if name in request.updates]
            held = [*self._forgotten.get(name, ()), *done]
            if isinstance(ran, JoinTable):  # shipped as the path of a file, which says nothing of the rows
                table = held[-1].updates[name].function if held else ran
                found[name] = partial(_given, table if isinstance(table, JoinTable) else ran.of(table))
                continue
            if not held:
                found[name] = partial(pickle.loads, shipped[name]) if name in shipped else partial(_given, ran)
                continue
            function = _shipped(held[-1], name)
            configured = self._with(name, done) if isinstance(ran, ConfiguredFunction) else None
            found[name] = partial(_with_setting, configured, function)
        return found

    def last(self) -> Request:
        """The request that a rollback would undo."""
        undone_in = self._undone_in()
        for request in reversed(self._requests):
            if request.step_of is not None:
                continue
            if request.undoes is None and any(_in_effect(request, region, undone_in) for region in request.plans):
                if request.fired:
                    raise PlanError(
                        f"got a rollback of change {request.id}, {_fired(request)}; expected a change that "
                        "is not being rolled back; wait for its end (settled())"
                    )
                self._refuse_shape(request, undone_in)
                return request
        gone = next((one.id for one in reversed(self._requests) if any(map(one.rolled_back, one.plans))), "")
        already = f"; change {gone} was rolled back by its guard already" if gone else ""
        raise PlanError(f"no change is in effect that could be rolled back{already}")

    def of(self, change: str) -> Request:
        """The request of a change, which a rollback would undo although later changes are in effect."""
        undone_in = self._undone_in()
        request = self._find(change)
        if request is None:
            raise PlanError(f"change {change} is not in effect and cannot be rolled back")
        if request.step_of is not None and request.undoes is None:
            raise PlanError(f"change {change} is a step of {request.step_of.id}; expected a rollback of that")
        if request.undoes is not None:
            raise PlanError(
                f"change {change} is a rollback itself, of change {request.undoes.id}; request its functions again"
            )
        held = [name for name in request.updates if _in_effect(request, self._region_of.get(name, 0), undone_in)]
        is_shape = request.shape is not None and _in_effect(request, 0, undone_in)
        if not (held or is_shape):
            raise PlanError(f"change {change} is not in effect and cannot be rolled back: {self._why_not(request)}")
        self._refuse_shape(request, undone_in)
        if removed := [name for name in held if name not in self._region_of]:
            words = f"{removed[0]}, which change {change} has changed, was removed since"
            raise PlanError(f"{words}; roll back the change that removed it first")
        self._refuse_changed_since(request, held, undone_in)
        if request.fired:
            raise PlanError(f"change {change} cannot be rolled back, {_fired(request)}")
        return request

    def _refuse_changed_since(self, request: Request, held: Sequence[str], undone_in: set[tuple[Request, int]]) -> None:
        """Raise a PlanError if a later change of these operators is in effect, or still to come."""
        if is_open_canary(request, self._requests):
            return  # all others wait behind it
        for one in self._requests[self._requests.index(request) + 1 :]:
            # A later rollback has restored what ran before its own change, which is this request's function by now.
            names = () if one.undoes is not None else one.updates.keys() & held
            both = sorted(name for name in names if _in_effect(one, self._region_of[name], undone_in))
            if both:
                words = f"change {one.id} has changed {', '.join(both)} since change {request.id}"
                raise PlanError(f"{words}; roll that back first")

    def _refuse_shape(self, request: Request, undone_in: set[tuple[Request, int]]) -> None:
        """Raise a PlanError for a change of the shape that is not the last change in effect, or the last of a shape."""
        if request.shape is None:
            return
        later = self._requests[self._requests.index(request) + 1 :]
        if over := next((one for one in later if one.undoes is None and _in_effect(one, 0, undone_in)), None):
            raise PlanError(f"change {over.id} came after change {request.id} of the shape; roll that back first")
        if request.before is None or any(one.shape is not None and one.may_hold(0) for one in later):
            # What it removed is kept until the next change of the shape is decided.
            words = "expected run.apply() of the earlier dataflow, whose added operators begin with empty states"
            raise PlanError(f"change {request.id} is not the last one of the shape; {words}")

    def functions(self, change: str) -> FunctionPairs:
        """Operator to the function that it ran when a change was begun, and the new one.

        Returns:
            The functions; those of a window have its windows. Empty if the change was withdrawn.
        """
        request = self._find(change)
        if request is None:
            return {}
        held = {name: self._held_then(request, name) for name in request.updates}
        return {name: (self._with(name, then), self._with(name, [*then, request])) for name, then in held.items()}

    def ground(self, last: Request) -> Ground:
        """Operator to the request whose function a rollback of ``last`` restores; ``None`` for the initial function."""
        undone_in = self._undone_in()
        names = [name for name in last.updates if _in_effect(last, self._region_of[name], undone_in)]
        return {name: self._before(last, name, undone_in) for name in names}

    def back(self, last: Request, ground: Ground) -> dict[str, Update]:
        """The updates of a rollback."""
        self.check_inverse(last, ground)
        undone_in = self._undone_in()
        before = {
            name: self._with(name, [] if one is None else [*self._held_before(one, name, undone_in), one])
            for name, one in ground.items()
        }
        return undone({name: last.updates[name] for name in ground}, before)

    def check_inverse(self, last: Request, names: Iterable[str]) -> None:
        """Refuse to undo a request that has transformed the state of one of these operators without an inverse."""
        for name in names:
            if name in last.irreversible:
                raise PlanError(
                    f"the state of {name} was transformed by change {last.id}, which has no inverse; "
                    "expected Update(..., state=..., back=...) there"
                )

    def _with(self, name: str, held: Sequence[Request]) -> Any:
        """What an operator ran after these requests: its last function, with the last setting, as of windows."""
        ran, held = self._ran[name], [*self._forgotten.get(name, ()), *held]
        if not held or not isinstance(ran, ConfiguredFunction):
            return held[-1].updates[name].function if held else ran
        given = (each for each in (one.updates[name].setting for one in reversed(held)) if each is not None)
        return replace(ran, function=held[-1].updates[name].function).with_setting(next(given, ran.setting))

    def can_withdraw(self, last: Request) -> bool:
        """Whether the request has not begun in any region, and no pending rollback restores its functions."""
        coming = [request for request in self._requests if request.undoes is not None and not request.ended]
        returns = any(not one.updates.keys().isdisjoint(last.updates) for one in coming)
        return not last.begun_s and not last.outcomes and not returns

    def overtakes(self, region: int, request: Request, in_flight: Iterable[str]) -> bool:
        """Whether a rollback, sent as a fix, would precede the request that it undoes or a later one in flight."""
        if request.undoes is None:
            return False
        since, begun = self._requests[self._requests.index(request.undoes) :], set(in_flight)
        targets = request.plans[region].targets
        return any(targets & one.plans[region].targets for one in since if one.id in begun)

    def pointless(self, region: int, request: Request) -> str:
        """Why a waiting rollback no longer has its requested effect in this region, as a message; empty if it has."""
        victim = request.undoes
        if victim is None:
            return ""
        if victim.rolled_back(region):
            return f"change {victim.id} was rolled back by its guard already; there is nothing to roll back"
        if not victim.may_hold(region):
            return f"change {victim.id} was {victim.outcomes[region].outcome}; there is nothing to roll back"
        targets, undone_in = request.plans[region].targets, self._undone_in()
        if words := self._outdated(victim, request, region, undone_in):
            return words
        for since in self._requests[self._requests.index(victim) + 1 :]:
            if since.undoes is not None or region not in since.outcomes or not _in_effect(since, region, undone_in):
                continue
            if since.step_of is not None:
                continue
            if both := sorted(targets & since.plans[region].targets):
                return f"change {since.id} has changed {', '.join(both)} since change {victim.id}; roll that back first"
        return ""

    def installed(self, request: Request, name: str) -> Any:
        """A copy of the function that a request has installed at an operator, as it was shipped."""
        return _shipped(request, name)()

    # ---- earlier functions

    def _outdated(self, victim: Request, request: Request, region: int, undone_in: set[tuple[Request, int]]) -> str:
        """Why a waiting rollback would not restore the functions that ran before, as a message; empty if it would."""
        for name in sorted(request.plans[region].targets & request.ground.keys()):
            before, then = self._newest(victim, name, undone_in), request.ground[name]
            if then is not None and then.rolled_back(region):
                return (
                    f"change {then.id}, to which {name} was to return, was rolled back by its guard meanwhile; roll "
                    f"change {victim.id} back again"
                )
            if before is not None and (then is None or self._requests.index(then) < self._requests.index(before)):
                return (
                    f"{name} ran change {before.id} before change {victim.id}, which was not known when the rollback "
                    f"was asked for; roll change {victim.id} back again"
                )
        return ""

    def _undone_in(self) -> set[tuple[Request, int]]:
        """Pairs of a request and the index of a region in which it is rolled back, or is being rolled back."""
        return {
            (request.undoes, region)
            for request in self._requests
            for region in request.plans
            if request.undoes is not None and request.may_hold(region)
        }

    def _before(self, last: Request, name: str, undone_in: set[tuple[Request, int]]) -> Request | None:
        region = self._region_of[name]
        earlier = [request for request in self._requests[: self._requests.index(last)] if name in request.updates]
        if open_ := next((one for one in earlier if self._is_open(one, last, region)), None):
            why = _fired(open_) if region in open_.fired else "which is still being carried out"
            raise PlanError(
                f"got a rollback of change {last.id} behind change {open_.id} of {name}, {why}, so that it "
                "is open what ran there before; expected that one to have ended; roll back then"
            )
        return self._newest(last, name, undone_in)

    def _newest(self, last: Request, name: str, undone_in: set[tuple[Request, int]]) -> Request | None:
        held = self._held_before(last, name, undone_in)
        return held[-1] if held else None

    def _held_before(self, last: Request, name: str, undone_in: set[tuple[Request, int]]) -> list[Request]:
        """The requests in effect at an operator before a request, in order."""
        earlier, region = self._requests[: self._requests.index(last)], self._region_of[name]
        return [
            one for one in earlier if one.undoes is None and name in one.updates and _in_effect(one, region, undone_in)
        ]

    def _held_then(self, request: Request, name: str) -> list[Request]:
        """The requests that were in effect at an operator when a request was begun, in order."""
        held: list[Request] = []
        for one in self._requests[: self._requests.index(request)]:
            if name not in one.updates or not one.may_hold(self._region_of[name]):
                continue
            if one.undoes is None:
                held.append(one)
            elif one.undoes in held:
                held.remove(one.undoes)
        return held

    def _find(self, change: str) -> Request | None:
        return next((request for request in self._requests if change in request.merged), None)

    def _why_not(self, request: Request) -> str:
        """Why a request is not in effect anywhere, in words."""
        backs = (one for one in self._requests if one.undoes is request)
        back = next((one for one in backs if any(map(one.may_hold, one.plans))), None)
        if back is not None:
            return f"change {back.id} {'has rolled' if back.ended else 'rolls'} it back"
        if any(map(request.rolled_back, request.plans)):
            return "its guard has rolled it back"
        return f"it was {' and '.join(sorted({outcome.outcome for outcome in request.outcomes.values()}))}"

    def _is_open(self, earlier: Request, last: Request, region: int) -> bool:
        """Whether the outcome of a request before the one to roll back is still undetermined in this region."""
        is_open = region in earlier.fired or (region in earlier.plans and region not in earlier.outcomes)
        return is_open and self._phases[region] is RegionPhase.RUNNING and not self.can_withdraw(last)


def functions_of(decided: Iterable[CommittedChange], graph: Graph) -> dict[str, Any]:
    """Operator to the function that it runs after these changes; operators with their initial function are omitted.

    That of a window has its windows.
    """
    functions: dict[str, Any] = {}
    before: dict[str, dict[str, Any]] = {}
    for one in decided:
        before[one.change] = {name: functions.get(name) for name in one.payloads}
        for name, payload in one.payloads.items() if not one.is_withdrawn else ():
            operator, update = graph.operator(name), pickle.loads(payload)
            ran = functions.get(name) or operator.function
            functions[name] = following(ran, configured(operator, update))
        functions |= before.get(one.undoes, {})
    return {name: function for name, function in functions.items() if function is not None}


def _shipped(request: Request, name: str) -> Callable[[], Any]:
    """What makes the function that a request has installed, as it was shipped: it may have been changed since."""
    if name not in request.payloads:  # updates on disk are copies already
        return partial(_given, request.updates[name].function)
    return partial(_unpickled, request.payloads[name])


def _given(function: Any) -> Any:
    return function


def _unpickled(payload: bytes) -> Any:
    return pickle.loads(payload).function


def _with_setting(configured: ConfiguredFunction | None, function: Callable[[], Any]) -> Any:
    return function() if configured is None else replace(configured, function=function())


def _fired(request: Request) -> str:
    error = min(request.fired.values())
    return f"which is being rolled back by its guard because the new configuration failed: {error}"


def _in_effect(request: Request, region: int, undone_in: set[tuple[Request, int]]) -> bool:
    return region in request.plans and request.may_hold(region) and (request, region) not in undone_in
