"""On real Spark: with the defaults of a notebook, a change after which an operator below fails does not end the run."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from patience import PATIENCE_S
from pyspark.sql import SparkSession
from run_setting import until

import fries_nb as fn


def doubled(row: dict[str, Any]) -> dict[str, Any]:
    """What the operator below expects, for all rows that are rehearsed."""
    return row | {"v": 2 * row["value"]}


class Torn:
    """Makes the operator below fail as soon as there is a file: not in the rehearsal, whichever rows that has."""

    def __init__(self, file: str) -> None:
        self.file = file

    def process(self, row: dict[str, Any]) -> dict[str, Any]:
        """Nought from then on."""
        return row | {"v": 0 if os.path.exists(self.file) else 1}


def divided(row: dict[str, Any]) -> dict[str, Any]:
    """Stays as it is, and cannot divide by nought."""
    return row | {"w": 1 / row["v"]} if row["value"] else row | {"w": 0.0}


def test_a_failure_below_a_change_rolls_it_back(spark: SparkSession, tmp_path: Path) -> None:
    """The run goes back to its own checkpoint, the output has every row once, and no file of the run is left."""
    flow = fn.Dataflow("below")
    numbers = flow.source("numbers", fn.rate(2_000)).map("A", doubled)
    numbers.map("B", divided, workers=1).sink("out", fn.memory())
    run = flow.run(spark, hosts=1, workers=1, recover=True, on_error="pause", commit_interval_s=0.5)
    try:
        until(lambda: run.metrics().operators["out"].processed > 500, run)
        change = run.reconfigure({"A": Torn(str(tmp_path / "torn"))}, guard=600)
        assert change.guard == "for 600 s"
        assert change.result(PATIENCE_S).outcome == "done"
        (tmp_path / "torn").touch()
        settled = change.settled(PATIENCE_S)
        assert (settled.outcome, run.state) == ("rolled_back", "running"), settled
        assert "B" in settled.error
        until(lambda: not run.paused and run.metrics().operators["out"].processed > 500, run)
        run.checkpoint(PATIENCE_S)
        rows = [row["value"] for row in run.output().select("value").collect()]
        assert len(rows) == len(set(rows))
        assert sorted(rows) == list(range(len(rows)))
    finally:
        run.cancel()
    assert not os.path.exists(os.path.join(run.scratch, "checkpoint")) or not run.resumable
