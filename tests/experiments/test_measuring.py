"""How experiments fill queues and wait, on a clock that moves only when they wait: these tests take no time."""

from __future__ import annotations

import math

import pytest

from fries_nb.errors import RunError
from fries_nb.experiments import measuring
from fries_nb.experiments.measuring import Clock, fill, pause_until, surge, until, until_full
from fries_nb.simulation import ManualClock
from fries_nb.telemetry.metrics import MetricsSnapshot, OperatorMetrics

LOOK_S = measuring._LOOK_S


class Virtual(ManualClock):
    """A virtual clock, and how far it has moved."""

    def __init__(self) -> None:
        super().__init__()
        self.began = self()
        self.clock = Clock(self.now_s, lambda seconds: self.advance(round(seconds * 1e9)))

    def now_s(self) -> float:
        return (self() - self.began) / 1e9


class Played:
    """A run of one operator FD that processes ``pace`` tuples per second behind a queue of ``room`` tuples."""

    def __init__(self, time: Virtual, pace: float, room: float = math.inf) -> None:
        self.time, self.pace, self.room = time, pace, room
        self.state, self.error = "running", ""
        self.rates: list[float] = [0.0]
        self._queued = self._at = 0.0

    def metrics(self) -> MetricsSnapshot:
        now = self.time.now_s()
        grown = self._queued + (self.rates[-1] - self.pace) * (now - self._at)
        self._queued, self._at = min(self.room, max(0.0, grown)), now
        return MetricsSnapshot({"FD": OperatorMetrics(queued=round(self._queued))})

    def set_rate(self, source: str, rate: float) -> None:
        self.metrics()
        self.rates.append(rate)


@pytest.fixture
def time() -> Virtual:
    """A virtual clock at 0 s."""
    return Virtual()


def test_a_queue_is_filled_in_about_a_second_and_kept(time: Virtual) -> None:
    """The source runs ahead by what is missing, and afterwards as fast as FD."""
    run = Played(time, pace=40)
    fill(run, "Src", {"FD": 200}, pace=40, clock=time.clock)
    assert run.rates == [0.0, 240, 40]
    assert 1.0 <= time.now_s() <= 1.0 + 2 * LOOK_S
    assert run.metrics().operators["FD"].queued >= 200


def test_a_source_row_that_makes_several_tuples_counts_as_many(time: Virtual) -> None:
    """A queue in front of an operator behind an unnest needs fewer rows."""
    run = Played(time, pace=0)
    fill(run, "Src", {"FD": 100}, pace=0, a_row=4.0, clock=time.clock)
    assert run.rates == [0.0, 25, 0]


def test_a_full_queue_is_not_filled_again(time: Virtual) -> None:
    """Only the rate is set."""
    run = Played(time, pace=40)
    run.set_rate("Src", 240)
    time.clock.wait(1.0)
    fill(run, "Src", {"FD": 150}, pace=40, clock=time.clock)
    assert (run.rates, time.now_s()) == ([0.0, 240, 40], 1.0)


def test_a_surge_leaves_the_source_paused_and_so_many_waiting(time: Virtual) -> None:
    """In a quarter of a second; what waits already is not sent again."""
    run = Played(time, pace=0)
    for count in (100, 150):
        surge(run, "Src", "FD", count, clock=time.clock)
        assert (run.rates[-1], run.metrics().operators["FD"].queued) == (0, count)
    assert run.rates == [0.0, 400, 0, 200, 0]
    assert time.now_s() == 2 * measuring.SURGE_S


def test_a_queue_is_full_when_it_has_not_grown_for_a_while(time: Virtual) -> None:
    """Half a second until the credit is used up, and the time in which nothing is added."""
    run = Played(time, pace=0, room=50)
    run.set_rate("Src", 100)
    until_full(run, "FD", clock=time.clock)
    assert 0.5 + measuring.SETTLED_S < time.now_s() <= 0.5 + measuring.SETTLED_S + 2 * LOOK_S


def test_an_empty_queue_is_not_full(time: Virtual) -> None:
    """A flow that keeps up has no queue to wait for: that is an error, not a measurement."""
    run = Played(time, pace=100)
    run.set_rate("Src", 100)
    with pytest.raises(RunError, match="waited for full queues in front of FD; the run is running: it took too long"):
        until_full(run, "FD", clock=time.clock)
    assert measuring.STARTING_S < time.now_s() <= measuring.STARTING_S + 2 * LOOK_S


@pytest.mark.parametrize("state", ["finished", "stopped", "failed"])
def test_what_an_ended_run_lacks_is_not_waited_for(time: Virtual, state: str) -> None:
    """Its error is named, at once."""
    run = Played(time, pace=0)
    run.state, run.error = state, "FD broke"
    with pytest.raises(RunError, match=f"waited for a queue; the run is {state}: FD broke"):
        until(run, lambda: False, "a queue", clock=time.clock)
    assert time.now_s() == 0


def test_a_moment_is_waited_for_unless_it_has_passed(time: Virtual) -> None:
    """The next change comes at its time, or at once if the one before took longer."""
    pause_until(2.5, time.clock)
    assert time.now_s() == 2.5
    pause_until(1.0, time.clock)
    assert time.now_s() == 2.5
