"""Changes by the cut on real Spark: two hosts, rows that are multiplied between the targets, a host that dies."""

from __future__ import annotations

import os
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from patience import PATIENCE_S
from pyspark.sql import SparkSession
from run_setting import ended_runs, wait_for_more

import fries_nb as fn
from fries_nb.protocol.checkpoints import CommittedChange
from fries_nb.run import Run
from fries_nb.storage.checkpoint_store import CheckpointStore


class Mark:
    """Says by which version, in a column of its own."""

    def __init__(self, column: str, version: int = 0) -> None:
        self.column = column
        self.version = version

    def process(self, row: dict[str, Any]) -> dict[str, Any]:
        """The row, marked."""
        return {**row, self.column: self.version}


def doubled_flow() -> fn.Dataflow:
    """Rows are marked by A, doubled by B, and marked by C, another worker of which gets the second of the two."""
    flow = fn.Dataflow("doubled")
    marked = flow.source("numbers", fn.rate(4_000)).map("A", Mark("a"))
    twice = marked.flat_map("B", lambda row: [{**row, "twin": row["value"] + number} for number in (0, 1)])
    twice.map("C", Mark("c"), key="twin").sink("out", fn.memory())
    return flow


def change_to(version: int) -> dict[str, Mark]:
    """Both targets change to a version."""
    return {"A": Mark("a", version), "C": Mark("c", version)}


def end_well(run: Run) -> set[int]:
    """Each value twice, of one version all over, and audited; returns the versions of rows."""
    run.stop(drain=True)
    twins = Counter((row["value"], row["a"], row["c"]) for row in run.output().collect())
    assert set(twins.values()) == {2}
    assert sorted(value for value, _, _ in twins) == list(range(len(twins)))
    assert all(a == c for _, a, c in twins)
    verdict = run.audit()
    assert verdict.serializable, verdict.mixed[:3]
    return {a for _, a, _ in twins}


def test_cuts_right_behind_each_other_and_fries_behind_them(spark: SparkSession) -> None:
    """No row and no twin is half new, though no marker waits for the rows between the targets."""
    with ended_runs() as runs:
        run = doubled_flow().run(spark=spark, hosts=2, workers=2, audit=True)
        runs.append(run)
        wait_for_more(run, 2_000)
        changes = [run.reconfigure(change_to(n), scheduler) for n, scheduler in ((1, "cut"), (2, "cut"), (3, "fries"))]
        assert [change.result(PATIENCE_S).outcome for change in changes] == ["done"] * 3
        wait_for_more(run, 2_000)
        assert end_well(run) >= {0, 3}


def test_a_host_that_dies_behind_the_decision(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The journal has the cut: rows that are read again are decided as they were, or would have been."""
    decide, killed = CheckpointStore.decide, list[int]()

    def decided(self: CheckpointStore, change: CommittedChange) -> None:
        decide(self, change)
        if change.steps and not killed:
            killed.append(runs[0].host_processes[1])
            os.kill(killed[0], signal.SIGKILL)

    monkeypatch.setattr(CheckpointStore, "decide", decided)
    with ended_runs() as runs:
        run = doubled_flow().run(spark=spark, hosts=2, workers=2, audit=True, checkpoint=tmp_path / "c")
        runs.append(run)
        wait_for_more(run, 2_000)
        assert run.checkpoint(PATIENCE_S)
        change = run.reconfigure(change_to(1), "cut")
        assert change.result(PATIENCE_S).outcome == "done"
        assert killed
        wait_for_more(run, 2_000)
        assert run.reconfigure(change_to(2), "cut").result(PATIENCE_S).outcome == "done"
        wait_for_more(run, 2_000)
        assert end_well(run) >= {0, 2}  # of version 1 none, if the second cut is where the first is
