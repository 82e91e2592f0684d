"""What keeps a run from committing, as the user reads it: in ``run.error``, ``run.explain()`` and the log ``fries_nb``.

>>> from fries_nb.controller.events import CommitsHeld
>>> held = HeldCommits("flow", clock=lambda: 100.0)
>>> held.tell(CommitsHeld("the snapshot of A[0] could not be written: no space", failed=True), since_s=0.0)
>>> held.words.replace(at(0.0), "12:00:00")
'nothing has been committed since 12:00:00: the snapshot of A[0] could not be written: no space; it is tried again'
>>> held.tell(CommitsHeld(), since_s=0.0)
>>> held.words
''
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from fries_nb.controller.events import CommitsHeld
from fries_nb.errors import in_one_line

_log = logging.getLogger("fries_nb")
QUIET_S = 60.0
"""Seconds between two entries of the log on commits that are still held."""


class HeldCommits:
    """The commits of one run, and why there are none.

    Args:
        flow: name of the dataflow, for the log.
        clock: a monotonic clock in seconds.

    Attributes:
        reason: why nothing is committed; empty while commits succeed.
        words: the reason, and since when; empty while commits succeed.
    """

    def __init__(self, flow: str, clock: Callable[[], float] = time.monotonic) -> None:
        self.reason = self.words = ""
        self._flow = flow
        self._clock = clock
        self._logged_s = -QUIET_S

    def tell(self, event: CommitsHeld, since_s: float) -> None:
        """Log that commits are held, at once and then once a minute, and that they succeed again.

        Args:
            event: what the controller says.
            since_s: time of the last commit, in seconds since the Unix epoch.
        """
        if not event.reason:
            if self.words:
                _log.warning("%r: output is committed again; it was held: %s", self._flow, self.reason)
            self.reason = self.words = ""
            self._logged_s = -QUIET_S
            return
        self.reason, _ = in_one_line(event.reason, "")
        again = "; it is tried again" if event.failed else ""
        self.words = f"nothing has been committed since {at(since_s)}: {self.reason}{again}"
        if self._clock() - self._logged_s >= QUIET_S:
            self._logged_s = self._clock()
            _log.warning("%r: %s", self._flow, self.words)


def at(time_s: float) -> str:
    """A time of the day, for messages."""
    return time.strftime("%H:%M:%S", time.localtime(time_s))
