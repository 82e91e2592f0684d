"""The end of a run: what it has read and its output lacks, and that no run outlives the interpreter.

The first is said when a run is stopped without being drained, and when it fails.

>>> print(UncommittedCheck(tuples=1204, since_s=0.0, first=True).facts[:42])
none of the 1,204 tuples read since it was
"""

from __future__ import annotations

import atexit
import time
import warnings
import weakref
from dataclasses import dataclass
from typing import Protocol

from fries_nb.errors import UncommittedWarning


@dataclass(frozen=True)
class UncommittedCheck:
    """Source tuples that a run has read and that are in none of its commits.

    Attributes:
        tuples: how many; one at least.
        since_s: when the last commit was begun, or the run was started, in seconds since the Unix epoch.
        first: nothing was committed before.
        resumable: the run keeps checkpoints, so that ``resume`` reads these tuples again.
    """

    tuples: int
    since_s: float
    first: bool = False
    resumable: bool = False

    @property
    def facts(self) -> str:
        """What is missing, as a clause."""
        at = time.strftime("%H:%M:%S", time.localtime(self.since_s))
        noun, verb = ("tuple", "is") if self.tuples == 1 else ("tuples", "are")
        if self.first:
            return f"none of the {self.tuples:,} {noun} read since it was started at {at} is in the output"
        return f"{self.tuples:,} {noun} read since the last commit at {at} {verb} not in the output"

    def sentence(self, remedy: str) -> str:
        """What is missing, and what brings it: ``remedy``, unless the run can be resumed."""
        return f"{self.facts}; {'resume reads them again' if self.resumable else remedy}"


def warn_of(name: str, failure: str, left: UncommittedCheck | None, depth: int = 1) -> None:
    """Warn of what the output of a run lacks that was stopped, or has failed.

    Law: of a run that failed there is always a warning; of one that was stopped, if anything is ``left``.

    Args:
        name: of the dataflow.
        failure: why the run failed; empty if it was stopped.
        left: what was read and is not in the output.
        depth: how many calls of ours lie between this one and the line of the user's that it is shown at.
    """
    if failure:
        missing = left.facts if left else "its output is what was committed before"
        warnings.warn(f"{name!r} failed: {failure}; {missing}", UncommittedWarning, stacklevel=depth + 2)
    elif left is not None:
        missing = left.sentence("stop(drain=True) processes and commits what was read")
        warnings.warn(f"{name!r} was stopped, and {missing}", UncommittedWarning, stacklevel=depth + 2)


class Stoppable(Protocol):
    """A run, as far as its end is concerned."""

    def stop(self) -> None:
        """End it, and wait until nothing of it is left."""


live: weakref.WeakSet[Stoppable] = weakref.WeakSet()
"""The runs of this interpreter that have not ended: they are stopped when it exits, so that no host outlives it.

A run adds itself when it starts, and discards itself when it has ended.
"""


@atexit.register
def _stop_all() -> None:
    for one in list(live):
        one.stop()
