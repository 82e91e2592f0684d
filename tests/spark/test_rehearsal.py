"""On real Spark: a change that would lose every row, or is far slower, is refused unless it is forced."""

from __future__ import annotations

import time
from typing import Any

from patience import PATIENCE_S
from pyspark.sql import SparkSession
from run_setting import wait_for_more

import fries_nb as fn


def slow(row: dict[str, Any]) -> dict[str, Any]:
    """Takes so long that it counts as far slower also if the present one is called when the machine is busy."""
    time.sleep(0.3)
    return row


def test_a_change_that_loses_every_row_or_is_far_slower_has_to_be_forced(spark: SparkSession) -> None:
    """Over two hosts, within a chain; until it is forced rows arrive as before, and the rollback needs no force."""
    flow = fn.Dataflow("numbers")
    numbers = flow.source("numbers", fn.rate(2_000)).map("M", dict).filter("F", lambda row: row["value"] >= 0)
    numbers.sink("out", fn.memory())
    run = flow.run(spark, hosts=2, workers=2)

    try:
        wait_for_more(run, 500)
        doubted: dict[str, dict[str, Any]] = {
            "new M drops every row in the rehearsal: of ": {"M": lambda row: None},
            "new F drops every row in the rehearsal: of ": {"F": lambda row: False},
            "with the new M no row is left in the rehearsal: F, which stays": {"M": lambda row: {"value": -1}},
            "new M takes ": {"M": slow},
        }
        for words, change in doubted.items():
            result = run.reconfigure(change).result(PATIENCE_S)
            assert (result.outcome, result.needs_force) == ("aborted", True), result
            assert result.error.startswith(words), result.error
        wait_for_more(run, 500)
        assert run.reconfigure({"M": lambda row: row | {"m": 1}}).result(PATIENCE_S).outcome == "done"
        wait_for_more(run, 500)
        assert run.reconfigure({"M": lambda row: None}, force=True).result(PATIENCE_S).outcome == "done"
        assert run.rollback().result(PATIENCE_S).outcome == "done"
        wait_for_more(run, 500)
    finally:
        run.cancel()
