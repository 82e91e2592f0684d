"""What cells wait for: the start of a run, the end of a change. Each wait shows its progress and can be cancelled."""

from __future__ import annotations

import contextlib
import time

from IPython.core.interactiveshell import InteractiveShell

from fries_nb.changes import Change, ChangeResult
from fries_nb.errors import DoubtfulChangeError, ReconfigurationError, RunError
from fries_nb.notebook import summaries
from fries_nb.notebook.cells import told_when_interrupted
from fries_nb.notebook.change_lines import why_waits
from fries_nb.notebook.progress_output import ProgressOutput
from fries_nb.notebook.run_moment import RunMoment
from fries_nb.notebook.starts import Start
from fries_nb.notebook.statuses import in_the_way
from fries_nb.notebook.summaries import Summary, quoted
from fries_nb.run import Run

GLANCE_S = 2.0
"""Seconds to wait for a change before its cell ends; the change continues in the background."""
PATIENCE_S = 30.0
"""Seconds to wait for the hosts of a run to join before its cell ends; they may still join later."""
_LOOK_S = 0.2
"""Seconds between two checks for a paused operator while waiting for a change."""


def wait_for_start(shell: InteractiveShell, start: Start, hosts: int) -> Run:
    """Wait until a run's data flows. An interrupt cancels the start.

    Args:
        shell: the shell whose cell waits.
        start: the start.
        hosts: the number of hosts that are to join.

    Returns:
        The run, whose data may not flow yet if that takes longer than ``PATIENCE_S``.

    Raises:
        Exception: the error with which the start failed.
    """
    try:
        with (
            told_when_interrupted(f"{start.flow!r} is not started; what has begun of it is stopped"),
            ProgressOutput(shell, lambda: start.progress(hosts)),
        ):
            run = start.run()
            with contextlib.suppress(RunError):  # a run that has failed at once is shown as one that failed later
                run.wait_flowing(PATIENCE_S)
    except KeyboardInterrupt:
        start.cancel()
        raise
    return run


def change_summary(shell: InteractiveShell, run: Run, change: Change, wait_s: float, variable: str) -> Summary:
    """The summary of a change after waiting for its end. An interrupt cancels the change.

    Args:
        shell: the shell whose cell waits.
        run: the run that is changed.
        change: the change.
        wait_s: seconds to wait at most. A wait of a glance shows no progress, since the cell ends soon.
        variable: the variable that holds the change.

    Raises:
        DoubtfulChangeError: the change was aborted, and can be forced.
        ReconfigurationError: it was aborted for another reason, or the run failed meanwhile.
    """
    targets = sorted(change.plan.targets)
    cancelled = f"the change of {', '.join(targets)} is cancelled, unless it was decided before"
    try:
        with told_when_interrupted(f"{cancelled}; {variable}.result(timeout=60)"):
            if wait_s <= GLANCE_S:
                result = _result(run, change, wait_s)
            else:
                with ProgressOutput(shell, lambda: change_progress(run, change), change.cancel):
                    result = _result(run, change, wait_s)
    except TimeoutError:
        if blocked_by := in_the_way(run, targets):
            return summaries.of_change_that_waits(change, blocked_by, variable)
        return summaries.of_change_under_way(change, wait_s, variable)
    except KeyboardInterrupt:
        change.cancel()
        raise
    if result.outcome == "done":
        return summaries.of_change(result)
    more = f" (traceback: print({variable}.result().details))" if result.details else ""
    paused = [name for name in in_the_way(run, targets) if result.error.startswith(f"{name} is paused")]
    fix = f"; fix it alone, with %fries_reconfigure {quoted(paused[0])}=..." if paused else ""
    told = f"{', '.join(targets)} {result.outcome}: {result.error}"
    if result.needs_force:
        raise DoubtfulChangeError(f"{told}, as does --force on this line")
    raise ReconfigurationError(f"{told}{fix}{more}")


def change_progress(run: Run, change: Change) -> str:
    """What a change that is under way waits for, as far as the driver knows.

    Returns:
        Words such as "changing FM: prepared 3 of 8 workers".
    """
    return f"changing {', '.join(sorted(change.plan.targets))}: {why_waits(RunMoment(run), change)}"


def _result(run: Run, change: Change, wait_s: float) -> ChangeResult:
    """Wait for the end of a change, unless an operator is paused, which can only be fixed in another cell.

    Raises:
        TimeoutError: the change has not ended.
    """
    until_s, patience_s = time.monotonic() + wait_s, min(wait_s, GLANCE_S)
    while True:
        try:
            return change.result(timeout=patience_s)
        except TimeoutError:
            patience_s = min(until_s - time.monotonic(), _LOOK_S)
            if patience_s <= 0 or in_the_way(run, change.plan.targets):
                raise
