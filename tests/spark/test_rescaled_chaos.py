"""Changes on real Spark while hosts join, leave and are killed: nothing is lost, doubled, or half changed."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from chaos_setting import Drawn, Killer, carry_out, chaos_flow, drawn_changes, end_well
from pyspark.sql import SparkSession
from recovery_setting import Trial, trial
from soak import SOAK

import fries_nb as fn
from fries_nb.controller import events

CHANGES, KILLS = (16, 3) if SOAK > 1 else (6, 2)
MOST_HOSTS = 3
SHARES = dict.fromkeys(("FC", "FM", "D", "MC", "out"), 1)


class Rescaler:
    """Requests another number of hosts after some of the changes."""

    def __init__(self, run: Trial, seed: int) -> None:
        self.requests: list[str] = []
        self._run = run
        self._draw = random.Random(f"rescaler {seed}")

    def told(self, drawn: Drawn, outcome: str) -> None:
        """After half of the changes, whatever became of them."""
        if self._draw.random() < 0.5:
            self._request()

    def _request(self) -> None:
        self.requests.append(f"r{len(self.requests) + 1}")
        hosts, at_once = self._draw.randint(1, MOST_HOSTS), self._draw.choice((0, 50, 1024))
        event = events.RescaleRequested(self.requests[-1], hosts, SHARES, at_once)
        self._run.launched.driver.post(event)

    def finish(self) -> None:
        """Wait for the ends of all; when nothing is killed any more, one is done (the last kill may yet show)."""
        while True:
            ends = len(self.requests)
            self._run.watch.until(lambda: len(self.ended) == ends, f"the ends of {ends} rescales")  # noqa: B023
            if "done" in self.ended:
                return
            self._request()

    @property
    def ended(self) -> list[str]:
        """The outcomes so far."""
        return [end.outcome for end in self._run.watch.heard_of("rescaled")]


@pytest.mark.parametrize("seed", range(1, 2 * SOAK))
def test_hosts_join_and_leave_and_are_killed_while_operators_change(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Each request ends; rows, states and audit are as without."""
    changes, watch = drawn_changes(seed, CHANGES), Killer(random.Random(seed), KILLS)
    graph = chaos_flow("line", fn.parquet(tmp_path / "out")).graph(1)
    with trial(graph, spark, str(tmp_path / "c"), hosts=1, watch=watch) as run:
        run.watch.until_said("checkpoint", 1)
        watch.aim(run, monkeypatch.setattr)
        rescaler = Rescaler(run, seed)
        outcomes = carry_out(run, changes, rescaler.told)
        rescaler.finish()
        end_well(run, changes, outcomes)
    assert set(rescaler.ended) <= {"done", "aborted"}
