"""Ctrl-C ends what the user waits for, and none of the dataflows that run beside it.

PySpark's own answer to an interrupt is to cancel all jobs of the session. The hosts of a region are such a job, so the
interrupt of a cell that waits for ``change.result()`` would end the run. Ours cancels the others only.
"""

from __future__ import annotations

import signal
import threading
from types import FrameType

from pyspark import SparkContext

_PATIENCE_S = 5.0
_regions: set[str] = set()


def spare(group: str) -> None:
    """The jobs of this group go on when the user interrupts."""
    _regions.add(group)


def forget(group: str) -> None:
    """The group is over; idempotent."""
    _regions.discard(group)


def take_over(context: SparkContext) -> None:
    """Put our answer to an interrupt in the place of PySpark's; a handler of the user's own stays."""
    if threading.current_thread() is not threading.main_thread():
        return  # Python sets handlers from the main thread only; a run started there will do it
    if not getattr(signal.getsignal(signal.SIGINT), "__qualname__", "").startswith("SparkContext."):
        return

    def interrupted(number: int, frame: FrameType | None) -> None:
        # From another thread, since the main one may be in the middle of a conversation with Java.
        others = threading.Thread(target=_cancel_others, args=(context,), daemon=True)
        others.start()
        others.join(_PATIENCE_S)
        raise KeyboardInterrupt

    interrupted.__qualname__ = "SparkContext.interrupted"  # so that the next session's run replaces it
    signal.signal(signal.SIGINT, interrupted)


def take_over_active() -> None:
    """Likewise for the session at hand, if there is one; for runs that are started beside the main thread."""
    if SparkContext._active_spark_context is not None:
        take_over(SparkContext._active_spark_context)


def _cancel_others(context: SparkContext) -> None:
    if context._jsc is None:
        return
    tracker = context.statusTracker()
    ours = {job for group in tuple(_regions) for job in tracker.getJobIdsForGroup(group)}
    for job in set(tracker.getActiveJobsIds()) - ours:
        context._jsc.sc().cancelJob(job)
