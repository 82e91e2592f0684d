"""The state of a run, as its region runner reports it."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest
from controller_setting import FRAUD

from fries_nb.controller.events import RunEnded
from fries_nb.controller.states import RunState
from fries_nb.dataflow.regions import regions
from fries_nb.driver.driver_core import Closed
from fries_nb.errors import RunError
from fries_nb.running import region_runner
from fries_nb.running.region_runner import RegionRunner

LAUNCHED = threading.Event()
LAUNCHED.set()


@pytest.mark.parametrize("end", ["finished", "stopped", "failed"])
def test_a_run_is_over_when_its_error_is_known_and_its_directory_released(end: str) -> None:
    """Its controller is done before that: the last rows are being committed, which may fail."""
    states: list[str] = []
    cut, unused = regions(FRAUD), SimpleNamespace()
    places: Any = SimpleNamespace(release=lambda: states.append(runner.state), path="")
    runner = RegionRunner(FRAUD, cut, places, unused, unused, lambda: states.append(runner.state))
    launched: Any = SimpleNamespace(driver=SimpleNamespace(controller=SimpleNamespace(state=RunState(end))))
    runner.launched.append(launched)
    runner._open = True
    assert (runner.state, runner.error) == ("draining", "")
    runner.take(0, LAUNCHED, RunEnded("failed", "no room"))
    assert (runner.state, runner.error) == ("draining", "no room")
    for refused in (lambda: runner.refuse_if_over("a rate"), lambda: runner.wait_flowing(0)):
        with pytest.raises(RunError, match="has failed: no room"):
            refused()
    runner._end()
    assert states == ["draining", "failed"]


def test_a_run_whose_next_region_fails_at_once_ends_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread that goes on may end the run before the one that started it looks again."""
    cut = (*regions(FRAUD), *regions(FRAUD))
    ends: list[str] = []
    places = SimpleNamespace(release=lambda: ends.append("released"), path="")
    telemetry = SimpleNamespace(rest=lambda graph: None, outstanding=lambda number, counts: None)
    runner = RegionRunner(FRAUD, cut, places, SimpleNamespace(), telemetry, lambda: ends.append("closed"))

    def fail(number: int) -> None:
        runner._state = "failed"
        runner._end()

    class AtOnce:
        """A thread that has done all before its start returns."""

        def __init__(self, target: Any, args: list[int], **_: Any) -> None:
            self.start = lambda: target(*args)

    monkeypatch.setattr(runner, "_go_on", fail)
    monkeypatch.setattr(region_runner.threading, "Thread", AtOnce)
    runner.take(0, LAUNCHED, Closed())
    assert ends == ["released", "closed"]
