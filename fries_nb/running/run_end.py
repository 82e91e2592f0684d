"""The end of a run: the warning about uncommitted tuples, and the end of all runs when the interpreter exits.

The warning is issued when a run is stopped without being drained, and when it fails.

>>> print(UncommittedCheck(tuples=1204, since_s=0.0, first=True).facts[:42])
none of the 1,204 tuples read since it was

What keeps a run from committing, as the user reads it: in ``run.error``, ``run.explain()`` and the log ``fries_nb``.

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

import atexit
import logging
import time
import warnings
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from fries_nb.controller.events import CommitsHeld
from fries_nb.errors import UncommittedWarning, in_one_line

_log = logging.getLogger("fries_nb")
QUIET_S = 60.0
"""Seconds between two entries of the log on commits that are still held."""


class HeldCommits:
    """The commits of one run, and why there are none.

    Args:
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
        """Log that commits are held, at once and then once a minute, and that they succeed again."""
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


@dataclass(frozen=True)
class UncommittedCheck:
    """Source tuples that a run has read and not committed.

    Attributes:
        tuples: number of tuples, at least one.
        since_s: time at which the last commit was begun, or the run was started, in seconds since the Unix epoch.
        first: whether nothing was committed before.
        resumable: whether the run keeps checkpoints, so that ``resume`` reads these tuples again.
        reason: why nothing was committed at the end; empty if commits succeeded.
    """

    tuples: int
    since_s: float
    first: bool = False
    resumable: bool = False
    reason: str = ""

    @property
    def facts(self) -> str:
        """The number of missing tuples, as a clause."""
        since, why = at(self.since_s), f" ({self.reason})" if self.reason else ""
        noun, verb = ("tuple", "is") if self.tuples == 1 else ("tuples", "are")
        if self.first:
            return f"none of the {self.tuples:,} {noun} read since it was started at {since} is in the output{why}"
        return f"{self.tuples:,} {noun} read since the last commit at {since} {verb} not in the output{why}"

    def sentence(self, remedy: str) -> str:
        """The number of missing tuples, followed by ``remedy``, or by the hint at ``resume`` if that is possible."""
        return f"{self.facts}; {'resume reads them again' if self.resumable else remedy}"


def warn_of(name: str, failure: str, left: UncommittedCheck | None, depth: int = 1) -> None:
    """Issue an ``UncommittedWarning`` for a run that failed, or that was stopped with uncommitted tuples."""
    if failure:
        missing = left.facts if left else "its output is what was committed before"
        warnings.warn(f"{name!r} failed: {failure}; {missing}", UncommittedWarning, stacklevel=depth + 2)
    elif left is not None:
        missing = left.sentence("stop() processes and commits what was read")
        warnings.warn(f"{name!r} was stopped, and {missing}", UncommittedWarning, stacklevel=depth + 2)


class Cancellable(Protocol):
    """A run that can be ended."""

    def cancel(self) -> None:
        """End the run at once, and wait until its resources are released."""


live: weakref.WeakSet[Cancellable] = weakref.WeakSet()
"""The runs of this process that have not ended; they are ended when the interpreter exits.

A run adds itself when it starts, and removes itself when it has ended.
"""


@atexit.register
def _cancel_all() -> None:
    for one in list(live):
        one.cancel()
