"""Can this request be carried out at all? What a caller got wrong is said at once, before anything is begun."""

from __future__ import annotations

from collections.abc import Iterable

from fries_nb.controller.events import ChangeRequested
from fries_nb.errors import ProtocolError
from fries_nb.scheduling.plan import Does


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
    if len(plan.stages) > 1 and any(stage.does is Does.RESTART for stage in plan.stages):
        raise ProtocolError(f"{plan.scheduler} has stages beside a restart, which is a whole plan")
    for stage in plan.stages:
        beyond = stage.awaits.difference(*(send.scope for send in stage.sends))
        if beyond:
            raise ProtocolError(f"a stage of {plan.scheduler} awaits {names(beyond)}, which no marker of it reaches")
        scopes = {send.scope for send in stage.sends}
        if sum(map(len, scopes)) > len(frozenset().union(*scopes)):
            raise ProtocolError(f"scopes of a stage of {plan.scheduler} overlap; their markers could cross")


def keeps_state(operator: str, before: str) -> str:
    """Why a fix ahead of change ``before``, which was prepared for the state as it is, cannot transform that."""
    return (
        f"{operator} stands in front of a tuple of before change {before!r}, which expects its state as it is; "
        "expected a fix that keeps the state as it is"
    )


def names(operators: Iterable[str]) -> str:
    """Operators in a sentence."""
    return ", ".join(sorted(operators)) or "none"
