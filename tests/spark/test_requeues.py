"""Rows of dead letters go back to a mended function, on Spark, through a kill, and by a driver that resumes."""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from patience import PATIENCE_S
from pyspark.sql import SparkSession
from run_setting import ended_runs, until

import fries_nb as fn
from fries_nb.errors import DataflowError, PlanError, RunError
from fries_nb.run import Run

EVERY = 50


class Scores:
    """Counts the rows of a key; fails on each fiftieth row until it is mended."""

    def __init__(self, mended: int = 0) -> None:
        self.mended = mended

    def process(self, row: dict[str, Any], state: dict[str, int]) -> dict[str, Any]:
        """The row with the number of those before it."""
        state["seen"] = state.get("seen", 0) + 1
        if row["value"] % EVERY == 3 and row["value"] // EVERY % 2 >= self.mended:
            raise ValueError(f"no score for {row['value']}")
        return {**row, "by": self.mended}


def declared(count: int | None = None) -> fn.Dataflow:
    """Rows are scored by key, behind a map."""
    flow = fn.Dataflow("scored")
    rows = flow.source("S", fn.rate(500, count=count, row=lambda value: {"key": value % 7}), workers=2)
    scored = rows.map("M", lambda row: row).map("FM", Scores(), key="key", workers=2, on_error=fn.memory())
    scored.map("N", lambda row: row).sink("out", fn.memory())
    return flow


def open_letters(run: Run) -> int:
    """The number of committed letters that were not requeued."""
    return int(run.dead_letters("FM").where("requeued is null").count())


def check_ends(run: Run) -> None:
    """Each row is in the output, or has one open letter."""
    letters = run.dead_letters("FM").collect()
    still = [json.loads(one["tuple"])["value"] for one in letters if one["requeued"] is None]
    ended = Counter([row["value"] for row in run.output().collect()] + still)
    assert set(ended.values()) == {1}
    assert len(ended) == run.metrics().operators["M"].processed
    assert Counter(one["letter"] for one in letters).most_common(1)[0][1] == 1


def test_a_fix_and_a_requeue_leave_each_row_scored_once(spark: SparkSession) -> None:
    """Half of what fails is mended first; what fails again is a letter again; a host is killed on the way."""
    with ended_runs() as runs:
        run = declared().run(spark, hosts=2, commit_interval_s=0.5, audit=True, recover=True)
        runs.append(run)
        until(lambda: open_letters(run) >= 4, run)
        assert run.reconfigure({"FM": Scores(1)}).settled(PATIENCE_S).outcome == "done"
        few = run.requeue("FM", where=lambda row: row["value"] > 3 and row["_tries"] == 1, limit=2)
        assert few.rows == 2
        given = few.result(PATIENCE_S)
        assert (given.rows, given.left, given.error) == (2, 0, "")
        os.kill(run.host_processes[1], signal.SIGKILL)
        again = run.requeue("FM", per_second=200)
        assert again.result(PATIENCE_S).rows == again.rows
        until(lambda: run.dead_letters("FM").where("tries = 2").count() > 0, run)
        assert {row["version"] for row in run.dead_letters("FM").where("tries = 2").collect()} == {"u1"}
        assert run.reconfigure({"FM": Scores(2)}).settled(PATIENCE_S).outcome == "done"
        until(lambda: run.requeue("FM").result(PATIENCE_S).error == "" and open_letters(run) == 0, run)
        run.stop(timeout=PATIENCE_S)
        check_ends(run)
        assert open_letters(run) == 0
        verdict = run.audit()
        assert verdict.serializable
        assert not [*verdict.lost, *verdict.doubled]
        with pytest.raises(RunError, match="rows go back to a dataflow that runs"):
            run.requeue("FM")


def test_what_a_driver_has_decided_its_successor_gives_back(spark: SparkSession, tmp_path: Path) -> None:
    """The letters are open until a commit says otherwise; none is given back twice."""
    with ended_runs() as runs:
        flow = declared()
        run = flow.run(spark, hosts=1, checkpoint=tmp_path / "kept", commit_interval_s=0.5)
        runs.append(run)
        until(lambda: open_letters(run) >= 4, run)
        assert run.reconfigure({"FM": Scores(2)}).settled(PATIENCE_S).outcome == "done"
        assert run.requeue("FM").result(PATIENCE_S).error == ""
        run.cancel()  # perhaps before what became of them is committed
        later = flow.resume(tmp_path / "kept", commit_interval_s=0.5)
        runs.append(later)
        until(lambda: later.requeue("FM").result(PATIENCE_S).error == "" and open_letters(later) == 0, later)
        later.stop(timeout=PATIENCE_S)
        check_ends(later)


def test_what_cannot_go_back_is_refused_by_name(spark: SparkSession) -> None:
    """With what is expected instead."""
    with ended_runs() as runs:
        run = declared().run(spark, hosts=1, commit_interval_s=0.5)
        runs.append(run)
        until(lambda: open_letters(run) >= 1, run)
        with pytest.raises(DataflowError, match="FN"):
            run.requeue("FN")
        with pytest.raises(DataflowError, match="keeps no dead letters"):
            run.requeue("M")
        infinite = {"per_second": float("inf")}
        for wrong in ({"limit": 0}, {"limit": True}, {"per_second": -1}, infinite, {"where": "value > 3"}):
            with pytest.raises(PlanError, match=next(iter(wrong))):
                run.requeue("FM", **wrong)  # type: ignore[arg-type]
        with pytest.raises(PlanError, match=r"columns value, .*_tries"):
            run.requeue("FM", where=lambda row: row["amount"] > 3)
        assert run.requeue("FM", where=lambda row: False).result(PATIENCE_S).rows == 0
