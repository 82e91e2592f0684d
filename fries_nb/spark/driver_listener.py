"""The callbacks of a region's driver."""

from __future__ import annotations

from typing import Protocol

from fries_nb.constraints.reactions import ConstraintVerdict
from fries_nb.controller import events as said
from fries_nb.progress.change_batch import CountChanges
from fries_nb.transport.envelopes import Line, ProcessUsage


class Listener(Protocol):
    """Callbacks of a driver; called from the driver's thread."""

    def resolved(self, outcome: said.Outcome) -> None:
        """A change has ended."""

    def over(self, state: str, error: str, details: str) -> None:
        """The outcome of the region is known; its hosts are being dismissed.

        Called again with ``failed`` if their final messages cannot be processed.
        """

    def closed(self) -> None:
        """All hosts have ended, and all sockets are closed."""

    def checkpointed(self, event: said.CheckpointEnded) -> None:
        """A checkpoint is complete, or was aborted."""

    def held(self, event: said.CommitsHeld) -> None:
        """Nothing is committed, for a reason; or commits succeed again."""

    def recovering(self, event: said.Recover) -> None:
        """The hosts are being restarted."""

    def recovered(self) -> None:
        """All hosts have joined again."""

    def guard_fired(self, event: said.GuardFired) -> None:
        """The guard of a change has begun to roll it back."""

    def guard_ended(self, event: said.GuardEnded) -> None:
        """The guard of a change has ended, with or without a rollback."""

    def rescaled(self, event: said.RescaleEnded) -> None:
        """A request for another number of hosts has ended."""

    def paused(self, event: said.OperatorPaused) -> None:
        """Workers of an operator are paused on a tuple, or have resumed."""

    def answered(self, event: said.Answered) -> None:
        """A worker has sent a message."""

    def heard(self, lines: tuple[Line, ...]) -> None:
        """User functions have printed lines."""

    def used(self, host: int, usage: ProcessUsage) -> None:
        """A host has told what its process uses."""

    def judged(self, verdicts: tuple[ConstraintVerdict, ...]) -> None:
        """A host has judged the latency constraints that are allocated to it."""

    def outstanding(self, counts: CountChanges) -> None:
        """A host has sent its view of the outstanding pointstamps."""
