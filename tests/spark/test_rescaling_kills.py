"""A kill in the midst of a rescale on real Spark: of the bootstrap server.

Newcomers that are killed early are in ``test_joining``; kills at any step are drawn in memory, with the core of a host
(``tests/simulation/test_threaded_joining.py``), and in ``test_rescaled_chaos``.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from recovery_setting import Trial, trial

import fries_nb as fn
from fries_nb.controller import events
from fries_nb.dataflow.graph import Graph

COUNT = 16_000


def request(run: Trial) -> events.RescaleEnded:
    """Request three hosts, and wait for the end of the request."""
    number = len(run.watch.heard_of("rescaled")) + 1
    run.launched.driver.post(events.RescaleRequested(f"r{number}", 3, {"W": 1, "out": 1}))
    ended: events.RescaleEnded = run.watch.until_said("rescaled", number)
    return ended


class Sums:
    """The sum of the values of a key in a window."""

    def initial_state(self) -> list[int]:
        """Nothing yet."""
        return [0]

    def process(self, row: dict[str, Any], state: list[int]) -> None:
        """Add a row."""
        state[0] += row["value"]

    def close(self, key: int, time: int, state: list[int]) -> dict[str, Any]:
        """The sum."""
        return {"key": key, "end": time, "sum": state[0]}


def windows() -> Graph:
    """Rows whose time is their number, in windows by key, slow at first; the source's one worker is at host 0."""
    flow = fn.Dataflow("windows")
    source = fn.rate(200, count=COUNT, row=lambda value: {"key": value % 20})
    rows = flow.source("numbers", source, time="value", workers=1)
    rows.window("W", Sums(), fn.tumbling(500), key="key").sink("out", fn.memory())
    graph: Graph = flow.graph(1)
    return graph


def test_the_server_is_killed_while_progress_is_bootstrapped(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The newcomer has no view yet, and host 0 would give it. No frontier is stuck: each window closes, once."""
    with trial(windows(), spark, str(tmp_path / "c"), hosts=2) as run:
        run.watch.until_said("checkpoint")
        topology = run.launched.driver.core.topology
        configure, killed = topology.configured, list[int]()

        def kill_first(answer: Any) -> None:
            if not killed:
                killed.append(0)
                run.kill(0)
            configure(answer)

        monkeypatch.setattr(topology, "configured", kill_first)
        assert request(run).outcome in ("done", "aborted")
        assert killed
        run.watch.until_said("recovered")
        ended = request(run)
        assert (ended.outcome, ended.error) == ("done", "")
        run.hurry()  # no earlier: it is to grow before it ends
        assert run.end(drain=False) == ("finished", "")
        sums: Counter[tuple[int, int]] = Counter()
        for value in range(COUNT):
            sums[value % 20, value // 500 * 500 + 500] += value
        found = Counter((row["key"], row["end"], row["sum"]) for row in run.rows())
        assert found == Counter((*place, total) for place, total in sums.items())
