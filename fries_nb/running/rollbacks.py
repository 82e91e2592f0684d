"""What a rollback undoes, and what it brings back.

A request is *in effect* in a region where it has changed something or still can, and where no rollback of it has, or
still can. Each region ends a request in its own way, so it may be in effect in one and not in another. A rollback
undoes the newest request in effect, in the regions where it is; there, each operator gets the function of the newest
request in front of it that is in effect as well.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fries_nb.changes import undone
from fries_nb.checkpoints import CommittedChange
from fries_nb.controller.states import RegionPhase
from fries_nb.dataflow.updates import Update
from fries_nb.errors import PlanError
from fries_nb.running.queue_entries import Ground, Request


class Rollbacks:
    """The rollbacks that a run's requests allow.

    Args:
        requests: all of them, in the order in which they took effect; the caller changes this list.
        region_of: the number of each operator's region.
        phases: what becomes of each region; the caller changes this list.
        ran: what each operator began with.
    """

    def __init__(
        self, requests: Sequence[Request], region_of: Mapping[str, int], phases: Sequence[RegionPhase],
        ran: Mapping[str, Any],
    ) -> None:
        self._requests = requests
        self._region_of = region_of
        self._phases = phases
        self._ran = ran

    def last(self) -> Request:
        """What a rollback would undo.

        Raises:
            PlanError: nothing is in effect, or its guard is rolling it back.
        """
        undone_in = self._undone_in()
        for request in reversed(self._requests):
            if request.undoes is None and any(_in_effect(request, region, undone_in) for region in request.plans):
                if request.fired:
                    raise PlanError(
                        f"got a rollback of change {request.id}, {_fired(request)}; expected a change that "
                        "is not being rolled back; wait for its end (settled())"
                    )
                return request
        gone = next((one.id for one in reversed(self._requests) if any(map(one.rolled_back, one.plans))), "")
        already = f"; change {gone} was rolled back by its guard already" if gone else ""
        raise PlanError(f"no change is in effect that could be rolled back{already}")

    def ground(self, last: Request) -> Ground:
        """For each operator that a rollback of this request would change, the request whose function it ran before.

        ``None`` is what it began with.

        Raises:
            PlanError: it is open what one of them ran before.
        """
        undone_in = self._undone_in()
        names = [name for name in last.updates if _in_effect(last, self._region_of[name], undone_in)]
        return {name: self._before(last, name, undone_in) for name in names}

    def back(self, last: Request, ground: Ground) -> dict[str, Update]:
        """The updates of a rollback of this request.

        Raises:
            PlanError: a target's state was transformed, and its update has no inverse.
        """
        before = {name: self._ran[name] if one is None else one.updates[name].function for name, one in ground.items()}
        return undone(last.id, {name: last.updates[name] for name in ground}, before)

    def can_withdraw(self, last: Request) -> bool:
        """Nothing of it has begun, and no rollback that is still to come returns to it."""
        coming = [one for one in self._requests if one.undoes is not None and not one.ended]
        returns = any(not one.updates.keys().isdisjoint(last.updates) for one in coming)
        return not last.begun_s and not last.outcomes and not returns

    def overtakes(self, region: int, request: Request, in_flight: Iterable[str]) -> bool:
        """Whether a rollback that went ahead would be in front of what it undoes, or of what has come since."""
        if request.undoes is None:
            return False
        since, begun = self._requests[self._requests.index(request.undoes) :], set(in_flight)
        targets = request.plans[region].targets
        return any(targets & one.plans[region].targets for one in since if one.id in begun)

    def pointless(self, region: int, request: Request) -> str:
        """Why a rollback would not undo what it was asked for, or an empty string."""
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
            if both := sorted(targets & since.plans[region].targets):
                return f"change {since.id} has changed {', '.join(both)} since change {victim.id}; roll that back first"
        return ""

    # ---- inside

    def _outdated(self, victim: Request, request: Request, region: int, undone_in: set[tuple[Request, int]]) -> str:
        """Why a rollback that waited would not bring back what ran before, or an empty string."""
        for name in sorted(request.plans[region].targets):
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
        """What is rolled back, or on the way to be, with the region."""
        return {
            (request.undoes, region)
            for request in self._requests
            for region in request.plans
            if request.undoes is not None and request.may_hold(region)
        }

    def _before(self, last: Request, name: str, undone_in: set[tuple[Request, int]]) -> Request | None:
        region = self._region_of[name]
        earlier = [one for one in self._requests[: self._requests.index(last)] if name in one.updates]
        if open_ := next((one for one in earlier if self._is_open(one, last, region)), None):
            why = _fired(open_) if region in open_.fired else "which is still being carried out"
            raise PlanError(
                f"got a rollback of change {last.id} behind change {open_.id} of {name}, {why}, so that it "
                "is open what ran there before; expected that one to have ended; roll back then"
            )
        return self._newest(last, name, undone_in)

    def _newest(self, last: Request, name: str, undone_in: set[tuple[Request, int]]) -> Request | None:
        earlier, region = self._requests[: self._requests.index(last)], self._region_of[name]
        held = [
            one for one in earlier if one.undoes is None and name in one.updates and _in_effect(one, region, undone_in)
        ]
        return held[-1] if held else None

    def _is_open(self, earlier: Request, last: Request, region: int) -> bool:
        """Whether it is undecided if a request in front of one that is rolled back has changed this region."""
        is_open = region in earlier.fired or (region in earlier.plans and region not in earlier.outcomes)
        return is_open and self._phases[region] is RegionPhase.RUNNING and not self.can_withdraw(last)


def functions_of(decided: Iterable[CommittedChange]) -> dict[str, Any]:
    """What operators run after these changes, as far as they run what a change has shipped."""
    functions: dict[str, Any] = {}
    before: dict[str, dict[str, Any]] = {}
    for one in decided:
        before[one.change] = {name: functions.get(name) for name in one.payloads}
        functions |= {name: pickle.loads(payload).function for name, payload in one.payloads.items()}
        functions |= before.get(one.undoes, {})
    return {name: function for name, function in functions.items() if function is not None}


def _fired(request: Request) -> str:
    error = min(request.fired.values())
    return f"which is being rolled back by its guard because the new configuration failed: {error}"


def _in_effect(request: Request, region: int, undone_in: set[tuple[Request, int]]) -> bool:
    return region in request.plans and request.may_hold(region) and (request, region) not in undone_in
