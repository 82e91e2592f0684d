"""What is in a run's queue of changes: requests and the orders to carry them out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from fries_nb.changes import Change
from fries_nb.controller.events import Outcome
from fries_nb.dataflow.limits import Limit
from fries_nb.dataflow.updates import Update
from fries_nb.running.shelf import Shelf
from fries_nb.scheduling import Plan

NO_GUARD_FOR_FIXES = "not at all: it is the fix of an operator that stands in front of a tuple, and goes at once"


@dataclass(eq=False)
class Request:
    """One change, or several that were merged, as they are carried out.

    Attributes:
        id: under which controllers and traces know it.
        plans: by the number of the region.
        changes: all that it resolves, in order of request; the last one gave it its id.
        undoes: what it rolls back, if it is a rollback; ``ground``: what its operators then run.
        guard: how long it is under guard, if it is.
        rehearse: whether it is tried on recent tuples first; what is merged is if one of its parts is.
        as_fix: whether it was begun as the fix of an operator that stands; until that goes on.
        begun_s: when each region began it; ``outcomes`` how it ended there.
        guarded: the regions where its guard lasts; ``fired`` those where it is rolling the request back, with why;
            ``let_go`` those where it is over, which it may be before the request is done.
        at_start: the regions that began with it, so that no controller has carried it out.
    """

    id: str
    updates: Mapping[str, Update]
    payloads: dict[str, bytes]
    plans: dict[int, Plan]
    changes: list[Change]
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
            changes=[change for one in whole for change in one.changes],
            rehearse=any(one.rehearse for one in whole),
        )

    def drop_guard(self) -> None:
        """Be under no guard, being a fix."""
        if self.guard is not None:
            self.guard = None
            for change in self.changes:
                change.guard = NO_GUARD_FOR_FIXES

    def shelve(self, shelf: Shelf) -> None:
        """Hold neither functions nor payloads any more: whoever still asks for a function gets it from disk."""
        self.updates = shelf.put(self.payloads)
        self.payloads = {}
        for change in self.changes:
            change.updates = self.updates

    def rolled_back(self, region: int) -> bool:
        """Whether its guard has rolled it back there."""
        return region in self.outcomes and self.outcomes[region].outcome == "rolled_back"

    def may_hold(self, region: int) -> bool:
        """Whether it has changed something there, or still can."""
        return region not in self.outcomes or self.outcomes[region].outcome == "done"


Ground = dict[str, Request | None]
"""For operators, the request whose function they ran, or ``None`` for what they began with."""


class Undoing(NamedTuple):
    """What a rollback undoes: the request, the updates back, and where their functions come from."""

    request: Request
    updates: dict[str, Update]
    ground: Ground


class Order(NamedTuple):
    """Let the controller of this region carry out this request."""

    region: int
    request: Request
