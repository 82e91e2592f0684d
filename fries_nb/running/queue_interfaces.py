"""What a run's queue of changes needs around it: the shell that carries changes out, and a listener.

Both shells have them, the driver and the seeded cluster; requests say where they come from.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from fries_nb.changes import Change
from fries_nb.controller.events import ChangeCancelled, ChangeRequested, Outcome
from fries_nb.dataflow.updates import Update


class QueueShell(Protocol):
    """The interface of the shell that runs a queue."""

    @property
    def chaining(self) -> bool:
        """Whether hosts chain operators."""

    @property
    def recovers(self) -> bool:
        """Whether the run can go back to a checkpoint."""

    def refuse_if_over(self, why: str) -> None:
        """Raise a RunError if the run accepts no further requests."""

    def ship(self, updates: Mapping[str, Update]) -> dict[str, bytes]:
        """Validate and pickle updates, by operator; raises a FriesError if one cannot be sent to hosts."""

    def carry_out(self, region: int, event: ChangeRequested | ChangeCancelled) -> None:
        """Pass an event to the controller of this region; the order of calls is preserved."""


class ChangeListener(Protocol):
    """Callbacks on a run's changes; called from any thread, and must not block."""

    def requested(self, change: Change) -> None:
        """Called when a change was requested."""

    def ended(self, change: Change, outcome: Outcome) -> None:
        """Called before a change is resolved; called again if its guard rolls it back later."""


@dataclass(frozen=True)
class ChangeOrigin:
    """The origin of a request: the policy of a latency constraint, or the user.

    Attributes:
        constraint: the sequence of the constraint; empty if the user requests the change.
        check: called under the queue's lock just before the request is entered; raises a PlanError to refuse it, since
            a request of the user may have come first.
    """

    constraint: str = ""
    check: Callable[[], None] = lambda: None


BY_USER = ChangeOrigin()
