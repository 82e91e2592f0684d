"""Every look into a run answers, or says by name why it cannot, whatever state the run is in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from patience import PATIENCE_S
from pyspark.sql import SparkSession
from run_setting import ended_runs, until

import fries_nb as fn
from fries_nb.errors import DataflowError, PlanError, RunError
from fries_nb.run import Run

BAD = 2_000


class Counts:
    """Counts the rows of a key, up to one that it cannot take; a later version can."""

    def __init__(self, version: int = 0) -> None:
        self.version = version

    def process(self, row: dict[str, Any], state: dict[str, int]) -> dict[str, Any]:
        """The row with its number."""
        if row["value"] == BAD and self.version < 2:
            raise ValueError("no")
        state["count"] = state.get("count", 0) + 1
        return {**row, "nth": state["count"], "version": self.version}


def started(spark: SparkSession, on_error: Any, runs: list[Run], count: int | None = None) -> tuple[Run, fn.Change]:
    """A run that has had one change before the row that is bad."""
    flow = fn.Dataflow("sight")
    rows = flow.source("S", fn.rate(100, count=count, row=lambda value: {"key": value % 7}), workers=1)
    rows.map("FM", Counts(), key="key", on_error=on_error).sink("out", fn.memory())
    run = flow.run(spark, hosts=1, workers=1, commit_interval_s=0.5)
    runs.append(run)
    until(lambda: bool(run.metrics().operators["out"].processed), run)
    change = run.reconfigure({"FM": Counts(1)})
    assert change.result(PATIENCE_S).outcome == "done"
    run.set_rate("S", 20_000)
    return run, change


def looks_answer(run: Run, change: fn.Change) -> None:
    """What was kept is there, also if the run goes on no more."""
    assert set(run.rows("FM", n=5)["_side"]) == {"in", "out"}
    tapped = run.rows("FM", where=lambda row: row["value"] >= 0, n=2, timeout=5)
    assert 0 < len(tapped) <= 4
    assert len(run.state("FM")) == 7
    assert run.state_sizes()["operator"].tolist() == ["FM"]
    assert change.examples().rows
    assert {one.operator for one in change.effect(timeout=PATIENCE_S).measures} == {"FM", "out"}
    assert change.story().entries


def refused(kind: type[Exception], words: str, call: Callable[[], object]) -> None:
    """A call is refused by name."""
    with pytest.raises(kind, match=words):
        call()


def test_a_paused_run_is_looked_into_and_mended(spark: SparkSession) -> None:
    """Examples of its fix are there before it is made: those of the row on which it is paused."""
    with ended_runs() as runs:
        run, change = started(spark, "pause", runs)
        until(lambda: bool(run.paused), run)
        looks_answer(run, change)
        [example] = run.examples({"FM": Counts(2)}).rows
        assert (example.result, example.came["value"]) == ("mended", BAD)
        refused(DataflowError, "keeps no dead letters", lambda: run.requeue("FM"))
        assert run.reconfigure({"FM": Counts(2)}).result(PATIENCE_S).outcome == "done"
        until(lambda: not run.paused, run)


@pytest.mark.parametrize("on_error", ["fail", "letters"])
def test_a_run_that_is_over_shows_its_last_moments(spark: SparkSession, on_error: str) -> None:
    """Failed, or finished with a dead letter, which stays one."""
    with ended_runs() as runs:
        letters = fn.memory() if on_error == "letters" else "fail"
        run, change = started(spark, letters, runs, count=2 * BAD if on_error == "letters" else None)
        assert run.wait(PATIENCE_S) == ("finished" if on_error == "letters" else "failed")
        looks_answer(run, change)
        refused(RunError, "has (finished|failed)", lambda: run.examples({"FM": Counts(2)}))
        if on_error == "letters":
            [letter] = run.dead_letters("FM").collect()
            assert (letter["version"], letter["tries"], letter["requeued"]) == ("u1", 1, None)
            refused(RunError, "rows go back to a dataflow that runs", lambda: run.requeue("FM"))
        refused(PlanError, "n=0", lambda: run.rows("FM", n=0))
        refused(DataflowError, "FN", lambda: run.rows("FN"))
