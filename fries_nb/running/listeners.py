"""Forwards the callbacks of a region's driver, tagged with the region's index."""

from __future__ import annotations

import threading
from typing import Protocol

from fries_nb.constraints.reactions import ConstraintVerdict
from fries_nb.controller import events as said
from fries_nb.progress.change_batch import CountChanges
from fries_nb.protocol.messages import Report
from fries_nb.running.change_queue import ChangeQueue
from fries_nb.running.remedies import Remedies
from fries_nb.running.rescales import Rescales
from fries_nb.telemetry.telemetry import Telemetry
from fries_nb.transport.envelopes import Line, ProcessUsage


class Regions(Protocol):
    """The receiver of tagged callbacks; see ``region_runner``."""

    telemetry: Telemetry
    queue: ChangeQueue
    remedies: Remedies
    rescales: Rescales

    def answered(self, number: int, event: said.Answered) -> None:
        """A worker of the region has sent a message."""

    def checkpointed(self, number: int, event: said.CheckpointEnded) -> None:
        """A checkpoint of the region is complete, or was aborted."""

    def held(self, number: int, event: said.CommitsHeld) -> None:
        """The region commits nothing, or commits again."""

    def over(self, number: int, state: str, error: str, details: str) -> None:
        """The outcome of the region is known.

        Args:
            number: index of the region.
            state: its final state: ``finished``, ``stopped`` or ``failed``.
            error: the failure in one sentence; empty if it has not failed.
            details: the traceback of the failure.
        """

    def closed(self, number: int) -> None:
        """All resources of the region are released."""


class RegionListener:
    """Forwards the callbacks of one region's driver with the region's index.

    Args:
        runner: the receiver.
        number: index of the region.

    Attributes:
        launched: to be set when the launch of the region has returned; ``closed`` waits for it.
    """

    def __init__(self, runner: Regions, number: int) -> None:
        self.launched = threading.Event()
        self._runner = runner
        self._number = number

    def resolved(self, outcome: said.Outcome) -> None:
        """Record the outcome of a change at the region's controller."""
        self._runner.queue.resolved(self._number, outcome)

    def guard_fired(self, event: said.GuardFired) -> None:
        """Record that the guard of a change has begun to roll it back."""
        self._runner.queue.guard_fired(self._number, event)

    def guard_ended(self, event: said.GuardEnded) -> None:
        """Record that the guard of a change has ended, with or without a rollback."""
        self._runner.queue.guard_ended(self._number, event)

    def over(self, state: str, error: str, details: str) -> None:
        """Forward to ``Regions.over``."""
        self._runner.over(self._number, state, error, details)

    def closed(self) -> None:
        """Forward to ``Regions.closed``."""
        self.launched.wait()  # a region may end before its launch has returned
        self._runner.rescales.closed()
        self._runner.closed(self._number)

    def answered(self, event: said.Answered) -> None:
        """Forward to ``Regions.answered``."""
        self._runner.answered(self._number, event)
        if isinstance(event.answer, Report) and self.launched.is_set():
            self._runner.rescales.advice.observe()

    def heard(self, lines: tuple[Line, ...]) -> None:
        """Record printed lines."""
        self._runner.telemetry.hear(lines)

    def used(self, host: int, usage: ProcessUsage) -> None:
        """Record what the process of a host uses."""
        self._runner.telemetry.used(host, usage)

    def checkpointed(self, event: said.CheckpointEnded) -> None:
        """Forward to ``Regions.checkpointed``."""
        self._runner.checkpointed(self._number, event)

    def held(self, event: said.CommitsHeld) -> None:
        """Forward to ``Regions.held``."""
        self._runner.held(self._number, event)

    def recovering(self, event: said.Recover) -> None:
        """Record that the hosts are being restarted."""
        self._runner.telemetry.recovering(event)

    def recovered(self) -> None:
        """Record that all hosts have joined again."""
        self._runner.telemetry.recovered()

    def judged(self, verdicts: tuple[ConstraintVerdict, ...]) -> None:
        """Record verdicts on latency constraints, and begin the changes that they lead to."""
        self._runner.telemetry.constraints.judge(verdicts)
        self._runner.remedies.judged()

    def outstanding(self, counts: CountChanges) -> None:
        """Record the outstanding pointstamps of the region."""
        self._runner.telemetry.outstanding(self._number, counts)

    def rescaled(self, event: said.RescaleEnded) -> None:
        """Record the outcome of a request for another number of hosts."""
        self._runner.rescales.ended(event)

    def paused(self, event: said.OperatorPaused) -> None:
        """Record that workers of an operator are paused on a tuple, or have resumed."""
        self._runner.telemetry.pause(event)
        self._runner.queue.pause(self._number, event.operator, bool(event.paused))
