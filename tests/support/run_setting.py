"""What tests of runs on real Spark share: to wait for a run, and to see that it leaves nothing behind."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from patience import looks

from fries_nb.controller.reshaping import Reshaping
from fries_nb.controller.states import ReshapingPhase
from fries_nb.run import Run


@contextmanager
def ended_runs() -> Iterator[list[Run]]:
    """A list for runs: behind the block each is stopped, and no thread of theirs is left; Java's words have one."""
    runs, before = list[Run](), threading.enumerate()
    try:
        yield runs
    finally:  # a run that is left by a failed test would let those after it fail, too
        for run in runs:
            run.cancel()
    names = [thread.name for thread in threading.enumerate() if thread not in before]
    left = [name for name in names if name.startswith("fries") and name != "fries-java"]
    assert left == []


def until(condition: Callable[[], bool], run: Run) -> None:
    """Wait until something is true of a run that goes on; if it has ended, at once."""
    for _ in looks():
        state = run.state  # before the look, which then sees all that there is to be seen
        assert state not in ("failed", "stopped"), run.error
        if condition():
            return
        assert state != "finished", f"it did not come true: {run.metrics()}"
    raise AssertionError(f"it did not come true: {run.state}, {run.metrics()}")


def kill_at(step: ReshapingPhase, run: Run, patch: pytest.MonkeyPatch) -> list[int]:
    """Kill a host when a change comes to this step, once; returns the list of processes that were killed."""
    move, killed = Reshaping._move, list[int]()

    def moved(self: Reshaping, to: ReshapingPhase) -> None:
        move(self, to)
        if to is step and not killed:
            killed.append(run.host_processes[1])
            os.kill(killed[0], signal.SIGKILL)

    patch.setattr(Reshaping, "_move", moved)
    return killed


def wait_for_more(run: Run, tuples: int = 300, operator: str = "out") -> None:
    """Until so many more tuples have come to an operator, or its hosts have started again."""
    before = run.metrics().operators[operator].processed
    until(lambda: not 0 <= run.metrics().operators[operator].processed - before < tuples, run)
