"""Forwards the callbacks of a region's driver, tagged with the region's index."""

from __future__ import annotations

import threading
from typing import Protocol

from fries_nb.controller import events as said
from fries_nb.running.telemetry import Telemetry
from fries_nb.transport.envelopes import Line


class Regions(Protocol):
    """Whom it is told to; see ``course``."""

    seen: Telemetry

    def answered(self, number: int, event: said.Answered) -> None:
        """A worker of the region has said something."""

    def resolved(self, number: int, outcome: said.Outcome) -> None:
        """The region's controller has come to the end of a change."""

    def guard_fired(self, number: int, event: said.GuardFired) -> None:
        """The guard of a change has begun to roll it back."""

    def guard_ended(self, number: int, event: said.GuardEnded) -> None:
        """The guard of a change is over, or it has rolled the change back."""

    def paused(self, number: int, event: said.OperatorPaused) -> None:
        """Workers of an operator are paused on a tuple, or go on."""

    def checkpointed(self, number: int, event: said.CheckpointEnded) -> None:
        """A checkpoint of the region is complete, or was aborted."""

    def over(self, number: int, state: str, error: str, details: str) -> None:
        """The region is decided."""

    def closed(self, number: int) -> None:
        """Nothing of the region is left."""


class Listening:
    """What the driver of one region says, told on with the region's number."""

    def __init__(self, course: Regions, number: int) -> None:
        self.launched = threading.Event()
        self._course = course
        self._number = number

    def resolved(self, outcome: said.Outcome) -> None:
        """Called by the driver."""
        self._course.resolved(self._number, outcome)

    def guard_fired(self, event: said.GuardFired) -> None:
        """Called by the driver."""
        self._course.guard_fired(self._number, event)

    def guard_ended(self, event: said.GuardEnded) -> None:
        """Called by the driver."""
        self._course.guard_ended(self._number, event)

    def over(self, state: str, error: str, details: str) -> None:
        """Called by the driver."""
        self._course.over(self._number, state, error, details)

    def closed(self) -> None:
        """Called by the driver."""
        self.launched.wait()  # a region may be over before its launch has returned
        self._course.closed(self._number)

    def answered(self, event: said.Answered) -> None:
        """Called by the driver."""
        self._course.answered(self._number, event)

    def heard(self, lines: tuple[Line, ...]) -> None:
        """Called by the driver."""
        self._course.seen.hear(lines)

    def checkpointed(self, event: said.CheckpointEnded) -> None:
        """Called by the driver."""
        self._course.checkpointed(self._number, event)

    def recovering(self, event: said.Recover) -> None:
        """Called by the driver."""
        self._course.seen.recovering(event)

    def recovered(self) -> None:
        """Called by the driver."""
        self._course.seen.recovered()

    def paused(self, event: said.OperatorPaused) -> None:
        """Called by the driver."""
        self._course.paused(self._number, event)
