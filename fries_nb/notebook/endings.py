"""Ending a run from a notebook: drained or suspended by default, so that its output is complete."""

from __future__ import annotations

import threading
import time

from fries_nb.errors import FriesError, RunError
from fries_nb.notebook.cells import told_when_interrupted
from fries_nb.notebook.statuses import in_the_way
from fries_nb.notebook.summaries import quoted
from fries_nb.report.markup import counted
from fries_nb.run import Run

_LOOK_S = 0.2
"""Seconds between two checks for a paused operator while waiting for the end of a run."""


class Ending:
    """Requests the end of a run; the constructor returns at once.

    By default the run is drained or, if it keeps checkpoints, suspended at a last checkpoint.

    Args:
        run: the run to end.
        now: end it at once; tuples that were read and not committed are not in the output.
        drain: drain it even if it keeps checkpoints.
    """

    def __init__(self, run: Run, now: bool = False, drain: bool = False) -> None:
        self._run = run
        self._now = now
        self._refused: Exception | None = None
        self._suspends = run.resumable and not now and not drain
        if self._suspends:
            threading.Thread(target=self._suspend, name="fries-suspend", daemon=True).start()
        else:
            run.request_stop(drain=not now)

    @property
    def trouble(self) -> str:
        """Why the run cannot be suspended; empty if it can. Its sources are paused meanwhile."""
        return f"{self._refused}; its sources are paused" if self._refused is not None else ""

    @property
    def progress(self) -> str:
        """What the end of the run waits for, in a few words."""
        what = f"stopping {self._run.graph.name!r}"
        if self._now:
            return f"{what}: its hosts end"
        if self._suspends:
            return f"{what}: its sources are paused, and a last checkpoint is taken"
        waiting = sum(operator.queued for operator in self._run.metrics().operators.values())
        return f"{what}: {counted(waiting, 'tuple')} {'waits' if waiting == 1 else 'wait'} to be processed"

    def wait(self, wait_s: float) -> None:
        """Wait until the run has ended.

        Args:
            wait_s: seconds to wait.

        Raises:
            RunError: the run has not ended in time; or a draining run is blocked by an operator that is paused on a
                tuple, which can only be fixed in another cell; or the run cannot be suspended.
            KeyboardInterrupt: the user interrupted the wait; the run continues to end.
        """
        name = self._run.graph.name
        now = f"%fries_stop {quoted(name)} --now ends it at once, without what still waits"
        on = "is still ending; %fries_status shows its state" if self._now else f"is still draining; {now}"
        until_s = time.monotonic() + wait_s
        with told_when_interrupted(f"{name!r} {on}"):
            while not self._has_ended(until_s):
                why = self.trouble or next(iter({} if self._now else in_the_way(self._run, ()).values()), "")
                if why:
                    raise RunError(f"{name!r} cannot end yet: {why}; {now}")
                if time.monotonic() >= until_s:
                    raise RunError(f"{name!r} has not ended after {wait_s:g} s and {on}")

    def _has_ended(self, until_s: float) -> bool:
        try:
            self._run.wait(max(0.0, min(_LOOK_S, until_s - time.monotonic())))
        except TimeoutError:
            return False
        return True

    def _suspend(self) -> None:
        try:
            self._run.suspend(timeout=threading.TIMEOUT_MAX)
        except FriesError as error:
            self._refused = error
