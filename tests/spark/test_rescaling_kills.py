"""Kills at the steps of a rescale on real Spark: of an owner of state, and of the bootstrap server.

Newcomers that are killed early, and with their splits, are in ``test_joining`` and ``test_split_moves``; kills at any
step are drawn in memory (``tests/simulation/test_rescaling.py``) and in ``test_rescaled_chaos``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from recovery_setting import Trial, check_counted, counting, trial

import fries_nb as fn
from fries_nb.controller import events
from fries_nb.dataflow.graph import Graph
from fries_nb.protocol.messages import Fcm, Move, WorkerId

COUNT = 16_000
SHARES = {"A": 2, "C": 2, "B": 2, "out": 2}
SLOW = 50
"""Bins a step: eleven steps, or so."""
RATE = 800
"""Rows a second: the marker of each step waits behind all rows of an operator that cannot keep up."""


def request(run: Trial, hosts: int, shares: dict[str, int], at_once: int = 0) -> events.RescaleEnded:
    """Request so many hosts, and wait for the end of the request."""
    number = len(run.watch.heard_of("rescaled")) + 1
    run.launched.driver.post(events.HostsRequested(f"r{number}", hosts, shares, at_once))
    ended: events.RescaleEnded = run.watch.until_said("rescaled", number)
    return ended


def at_move(count: int, act: Callable[[], None], tell: Callable[..., None]) -> Callable[..., None]:
    """Tells as the driver does, and acts once, when so many steps of moves have begun."""
    begun: set[int] = set()

    def tell_or_act(worker: WorkerId, control: Any) -> None:
        if isinstance(control, Fcm) and isinstance(control.marker.action, Move) and control.marker.id not in begun:
            begun.add(control.marker.id)
            if len(begun) == count:
                act()
        tell(worker, control)

    return tell_or_act


def test_an_owner_that_is_killed_while_state_moves(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """State is restored where the rows of its keys go; a second request is done."""
    with trial(counting(None, RATE), spark, str(tmp_path / "c"), hosts=1) as run:
        run.watch.until_said("checkpoint")
        core = run.launched.driver.core
        monkeypatch.setattr(core, "_direct", at_move(4, lambda: run.kill(0), core._direct))
        assert request(run, 2, SHARES, SLOW).outcome in ("done", "aborted")
        run.watch.until_said("recovered")
        ended = request(run, 2, SHARES, SLOW)
        assert (ended.outcome, ended.error) == ("done", "")
        assert len(run.pids) == 2
        assert run.end() == ("finished", "")
        rows = run.rows()
        check_counted(rows, len(rows))
        assert run.audit().serializable


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
        assert request(run, 3, {"W": 1, "out": 1}).outcome in ("done", "aborted")
        assert killed
        run.watch.until_said("recovered")
        ended = request(run, 3, {"W": 1, "out": 1})
        assert (ended.outcome, ended.error) == ("done", "")
        run.hurry()  # no earlier: it is to grow before it ends
        assert run.end(drain=False) == ("finished", "")
        sums: Counter[tuple[int, int]] = Counter()
        for value in range(COUNT):
            sums[value % 20, value // 500 * 500 + 500] += value
        found = Counter((row["key"], row["end"], row["sum"]) for row in run.rows())
        assert found == Counter((*place, total) for place, total in sums.items())
