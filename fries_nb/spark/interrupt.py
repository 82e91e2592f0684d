"""Handling of Ctrl-C: it cancels the jobs that the user waits for, but not the dataflows that run in the background.

PySpark cancels all jobs of the session on an interrupt. The hosts of a region are such a job, so interrupting a cell
that waits for ``change.result()`` would end the run. The handler installed here cancels the other jobs only.
"""

from __future__ import annotations

import signal
import threading
from types import FrameType

from pyspark import SparkContext

_PATIENCE_S = 5.0  # maximum wait for the cancellation of jobs
_regions: set[str] = set()


def spare(group: str) -> None:
    """Exempt the jobs of this group from interrupts."""
    _regions.add(group)


def forget(group: str) -> None:
    """Remove the exemption of this group; idempotent."""
    _regions.discard(group)


def take_over(context: SparkContext) -> None:
    """Install the handler in place of PySpark's; a handler of the user's is kept."""
    if threading.current_thread() is not threading.main_thread():
        return  # Python sets signal handlers in the main thread only; a later run may be started there
    if not getattr(signal.getsignal(signal.SIGINT), "__qualname__", "").startswith("SparkContext."):
        return

    def interrupted(number: int, frame: FrameType | None) -> None:
        # In another thread, since the main thread may be in the middle of a call to Java.
        others = threading.Thread(target=_cancel_others, args=(context,), daemon=True)
        others.start()
        others.join(_PATIENCE_S)
        raise KeyboardInterrupt

    interrupted.__qualname__ = "SparkContext.interrupted"  # marks it as replaceable for a run in another session
    signal.signal(signal.SIGINT, interrupted)


def take_over_active() -> None:
    """Install the handler for the active session, if any; for runs that are started outside the main thread."""
    if SparkContext._active_spark_context is not None:
        take_over(SparkContext._active_spark_context)


def _cancel_others(context: SparkContext) -> None:
    if context._jsc is None:
        return
    tracker = context.statusTracker()
    ours = {job for group in tuple(_regions) for job in tracker.getJobIdsForGroup(group)}
    for job in set(tracker.getActiveJobsIds()) - ours:
        context._jsc.sc().cancelJob(job)
