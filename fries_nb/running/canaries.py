"""The canaries of a run, each followed by a thread until one version is left: what both arms do, and its gates.

    LOOK_S have passed         ask the workers of its targets what both arms have done
    the share is another one   its step was requested, by the user or a gate: the gates begin anew with it
    a gate says so             request the next step, or the rollback
    the share is 0 or 1        the canary is over; what both arms had done last is kept

Gates are of this process: a run that is resumed has its canary, which then waits for the user.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from typing import Any, Protocol

from fries_nb.changes.arm_comparison import NONE_YET, counts_of
from fries_nb.changes.canary_gates import MOST_LOOKS, ArmsLook, CanaryStatus, GateDecision, GateProgress, Gates
from fries_nb.changes.change import Change
from fries_nb.errors import FriesError
from fries_nb.protocol.messages import ArmsSeen

LOOK_S = 0.5
"""Seconds between two looks at what both arms have done."""
_ANSWERED_S = 10.0

_log = logging.getLogger(__name__)


class FollowedRun(Protocol):
    """What following a canary needs of a run."""

    @property
    def ended(self) -> threading.Event:
        """Set when all resources of the run are released."""

    def arms(self, change: Change, samples: bool, timeout: float) -> Sequence[ArmsSeen]:
        """What the workers of its targets tell of both arms."""


class Canaries:
    """The canaries of a run.

    Args:
        run: the run.
    """

    def __init__(self, run: FollowedRun) -> None:
        self._run = run
        self._statuses: dict[str, CanaryStatus] = {}

    def begin(self, change: Change, gates: Gates) -> None:
        """Follow a canary from its request on."""
        waits = GateProgress(gates, gates.shares[0], time.monotonic()).words
        self._statuses[change.id] = CanaryStatus(gates.shares[0], time.time(), waits=waits)
        follow = _Following(self._run, change, gates, self._statuses)
        threading.Thread(target=follow.run, name="fries-canary", daemon=True).start()

    def status(self, change: str) -> CanaryStatus | None:
        """How far a canary is; ``None`` if the change is none, or was begun by another process."""
        return self._statuses.get(change)


class _Following:
    """The thread of one canary."""

    def __init__(self, run: FollowedRun, change: Change, gates: Gates, statuses: dict[str, CanaryStatus]) -> None:
        self._run, self._change, self._gates = run, change, gates
        self._statuses = statuses
        self._reason = ""
        self._looks: list[ArmsLook] = []
        self._step, self._passed = 1, 0  # every so many looks are kept, and how many have passed since the last

    def run(self) -> None:
        if self._change.result().outcome != "done":
            del self._statuses[self._change.id]
            return
        progress = GateProgress(self._gates, self._change.share, time.monotonic())
        since_s = time.time()
        new = old = NONE_YET
        while True:
            if (share := self._change.share) != progress.share:
                progress, since_s = GateProgress(self._gates, share, time.monotonic(), new.rows), time.time()
            is_over = share in (0, 1) or self._run.ended.wait(LOOK_S)
            try:
                parts = self._run.arms(self._change, False, _ANSWERED_S)
                old, new = counts_of(parts, "old"), counts_of(parts, "new")
                self._keep(ArmsLook(time.time(), old, new), is_over)
            except (FriesError, TimeoutError) as error:  # the workers are restored, say, or one is in a long call
                _log.debug("of canary %s: %s", self._change.id, error)
            waits = "" if is_over else progress.words
            self._statuses[self._change.id] = CanaryStatus(
                share, since_s, old, new, waits, self._reason, tuple(self._looks)
            )
            if is_over:
                return
            if (decision := progress.judge(new, time.monotonic(), self._compare)) is not None:
                self._go_on(decision)

    def _keep(self, look: ArmsLook, is_last: bool) -> None:
        """Keep a look, if it is its turn; when there are too many, every second one goes, and half as many come."""
        self._passed += 1
        if self._passed >= self._step or is_last:
            self._looks.append(look)
            self._passed = 0
        if len(self._looks) > MOST_LOOKS:
            del self._looks[1::2]
            self._step *= 2

    def _compare(self) -> Any:
        return self._change.compare()

    def _go_on(self, decision: GateDecision) -> None:
        """Request the step that a gate asks for, and wait for it."""
        self._reason = decision.reason
        try:
            step = self._change.ramp(decision.share) if decision.share else self._change.rollback()
            step.result()
        except FriesError as error:  # the user has requested another one meanwhile, or the run has ended
            self._reason = ""
            _log.debug("the gate of canary %s was too late: %s", self._change.id, error)
