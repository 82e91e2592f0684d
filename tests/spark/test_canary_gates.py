"""Canaries that go on, or back, by themselves on real Spark, and what is told of both versions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from patience import PATIENCE_S
from pyspark.sql import SparkSession
from run_setting import until

import fries_nb as fn
from fries_nb.errors import PlanError
from fries_nb.run import Run


def scored(row: dict[str, Any]) -> dict[str, Any]:
    """The version that runs first."""
    return row | {"score": 0.5}


def better_for_some(row: dict[str, Any]) -> dict[str, Any]:
    """Better on average, and worse for one group."""
    return row | {"score": 0.9 if row["group"] else 0.2}


def sometimes_failing(row: dict[str, Any]) -> dict[str, Any]:
    """A version that fails on few rows."""
    if row["n"] % 50 == 0:
        raise ValueError("a round number")
    return row | {"score": 0.9}


def scores_flow() -> fn.Dataflow:
    """A dataflow with dead letters of the target."""
    flow = fn.Dataflow("scores")
    rows = flow.source("rows", fn.rate(4_000, row=lambda n: {"n": n, "group": n % 3, "card": n % 500}), cohort="card")
    scores = rows.map("FM", scored, on_error=fn.memory())
    scores.map("MC", lambda row: row | {"decided": row["score"] > 0.4}).sink("out", fn.memory())
    return flow


def begun(spark: SparkSession) -> Run:
    """A run whose rows flow."""
    run = scores_flow().run(spark, hosts=2, workers=2, identities=True)
    assert run.wait_flowing(PATIENCE_S)
    return run


def test_gates_promote_and_roll_back_and_both_versions_are_compared(spark: SparkSession) -> None:
    """One is promoted by its gate, and another fails too often."""
    run = begun(spark)
    asked: list[Any] = []

    def accepts(arms: Any) -> bool:
        asked.append(arms)
        return len(asked) > 1 and arms.failures.new == 0

    steps = {"steps": [0.1, 0.4, 1], "every": fn.tuples(100)}
    change = run.reconfigure({"FM": better_for_some}, canary=0.1, promote_when=accepts, **steps)
    assert change.result(PATIENCE_S).outcome == "done"
    until(lambda: change.canary.share == 1, run)
    assert len(asked) == 3  # twice at the first share
    assert change.canary.reason == "promote_when has accepted"
    arms = change.compare()
    assert list(arms.index) == ["old", "new"]
    assert arms.rows.new >= 200
    assert arms.rows.old > 0
    assert arms["score mean"].old == 0.5
    assert 0.6 < arms["score mean"].new < 0.75
    by = change.compare(by="group")
    assert by["score mean"][0, "new"] == 0.2
    assert by["score mean"][1, "new"] == 0.9
    rows = change.sample()
    assert set(rows[rows._arm == "new"].score) == {0.2, 0.9}
    assert {"decided", "_latency_ms", "_operator"} <= set(rows)

    failing = run.reconfigure({"FM": sometimes_failing}, canary=0.5, tolerate=3, rehearse=False)
    assert failing.result(PATIENCE_S).outcome == "done"
    until(lambda: failing.canary.share == 0, run)
    assert failing.canary.reason.endswith("rows have failed in the new version, and tolerate=3")
    assert failing.compare().failures.new > 3
    assert failing.compare().failures.old == 0
    with pytest.raises(PlanError, match="a later canary has begun"):
        change.compare()
    plain = run.reconfigure({"MC": scored})
    assert plain.result(PATIENCE_S).outcome == "done"
    with pytest.raises(PlanError, match=f"change {plain.id} is no canary"):
        plain.compare()
    assert plain.canary is None
    run.stop(drain=True)
    assert failing.compare()["score mean"].new == 0.9  # its hosts have left that behind
    letters = run.dead_letters("FM").select("version").distinct().collect()
    assert [row.version for row in letters] == [failing.id]


@pytest.mark.parametrize("share", [1, 0])
def test_a_canary_goes_on_when_its_run_is_resumed(spark: SparkSession, tmp_path: Path, share: float) -> None:
    """It is a change of that run, with its share; it is compared, promoted or rolled back, and others can follow."""
    run = scores_flow().run(spark, hosts=2, workers=2, identities=True, checkpoint=tmp_path / "c")
    assert run.wait_flowing(PATIENCE_S)
    change = run.reconfigure({"FM": better_for_some}, canary=0.1)
    assert change.result(PATIENCE_S).outcome == "done"
    assert change.ramp(0.4).result(PATIENCE_S).outcome == "done"
    run.checkpoint(PATIENCE_S)
    run.cancel()
    run = scores_flow().resume(tmp_path / "c", spark, hosts=2, workers=2, identities=True)
    assert run.wait_flowing(PATIENCE_S)
    [canary] = run.changes
    assert (canary.id, canary.share, canary.result(0).outcome) == (change.id, 0.4, "done")
    until(lambda: canary.canary.new.rows > 100 < canary.canary.old.rows, run)
    assert {*canary.compare().index} == {"old", "new"}
    with pytest.raises(PlanError, match="one is open at a time"):
        run.reconfigure({"FM": scored}, canary=0.5)
    step = canary.promote() if share else canary.rollback()
    assert step.result(PATIENCE_S).outcome == "done"
    assert canary.share == share
    assert run.reconfigure({"MC": dict}).result(PATIENCE_S).outcome == "done"
    run.cancel()
