"""On real Spark: new functions that would fail together, or below, change nothing; the message names who and why."""

from __future__ import annotations

import time
from typing import Any

from patience import PATIENCE_S
from pyspark.sql import SparkSession
from run_setting import until

import fries_nb as fn
from fries_nb.workloads.fraud import Combine, fraud_change, fraud_flow
from fries_nb.workloads.payments import payments


def as_text(row: dict[str, Any]) -> dict[str, Any]:
    """What was a number is text from now on."""
    return row | {"p_m5": "high"}


def marked(row: dict[str, Any]) -> dict[str, Any]:
    """Another type for a column that the sink has, which nobody reads."""
    return row | {"p": f"{row['p_c']}"}


REFUSED = {
    "MC, which stays as it is, failed in a rehearsal on a recent tuple as new FM left it": {"FM": as_text},
    "new MC failed in a rehearsal on a recent tuple as new FM left it": {
        "FM": lambda row: row, "MC": Combine([0.4, 0.6]),
    },
    "with the new MC, 'p' would come to sink scored as string, which has taken it as double": {"MC": marked},
}  # fmt: skip


def test_what_would_fail_below_is_refused_and_the_run_goes_on(spark: SparkSession) -> None:
    """Over two hosts with two workers each; then the change that fits is done, and says what it was rehearsed on."""
    table = payments(200_000, seed=5)
    run = fraud_flow(fn.replay(table, rate=2_000), fn.memory(), workers=2).run(spark, hosts=2, audit=True)
    try:
        until(lambda: run.metrics().operators["scored"].processed > 500, run)
        for words, change in REFUSED.items():
            result = run.reconfigure(change).result(PATIENCE_S)
            assert (result.outcome, result.error[: len(words)]) == ("aborted", words)
        done = run.reconfigure(fraud_change()).result(PATIENCE_S)
        assert done.outcome == "done"
        assert done.rehearsal.startswith("rehearsed on ")
        assert done.rehearsal.endswith("through FM, MC, scored")
        before = run.metrics().operators["scored"].processed
        until(lambda: run.metrics().operators["scored"].processed > before + 500, run)
    finally:
        run.cancel()
    assert run.audit().serializable


class Gap:
    """How far a number is from the one before it; of a ``ratio`` its inverse, for which there must be a gap."""

    def __init__(self, ratio: bool) -> None:
        self.ratio = ratio

    def initial_state(self) -> dict[str, int]:
        return {"last": -1}

    def process(self, row: dict[str, Any], state: dict[str, int]) -> dict[str, Any]:
        gap, state["last"] = row["value"] - state["last"], row["value"]
        return row | {"gap": 1 / gap if self.ratio else gap}


def test_a_change_goes_without_its_rehearsal_where_one_says_so(spark: SparkSession) -> None:
    """There a tuple meets its key's state as it is behind that very tuple, which never happens in the flow."""
    flow = fn.Dataflow("gaps")
    numbers = flow.source("numbers", fn.rate(300), workers=1).map("K", lambda row: row | {"key": 0})
    numbers.map("D", Gap(ratio=False), key="key", workers=1).sink("out", fn.memory())
    run = flow.run(spark, hosts=1, workers=1)
    try:
        until(lambda: run.metrics().operators["out"].processed > 100, run)
        assert "ZeroDivisionError" in run.reconfigure({"D": Gap(ratio=True)}).result(PATIENCE_S).error
        done = run.reconfigure({"D": Gap(ratio=True)}, rehearse=False).result(PATIENCE_S)
        assert (done.outcome, done.rehearsal) == ("done", "not rehearsed, as requested")
        before = run.metrics().operators["out"].processed
        until(lambda: run.metrics().operators["out"].processed > before + 100, run)
    finally:
        run.cancel()


def slow(row: dict[str, Any]) -> dict[str, Any]:
    """Takes 20 ms."""
    time.sleep(0.02)
    return row


def test_a_change_that_loses_every_row_or_is_far_slower_has_to_be_forced(spark: SparkSession) -> None:
    """Over two hosts, within a chain; until it is forced rows arrive as before, and the rollback needs no force."""
    flow = fn.Dataflow("numbers")
    numbers = flow.source("numbers", fn.rate(2_000)).map("M", dict).filter("F", lambda row: row["value"] >= 0)
    numbers.sink("out", fn.memory())
    run = flow.run(spark, hosts=2, workers=2)

    def arrive() -> None:
        before = run.metrics().operators["out"].processed
        until(lambda: run.metrics().operators["out"].processed > before + 500, run)

    try:
        arrive()
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
        arrive()
        assert run.reconfigure({"M": lambda row: row | {"m": 1}}).result(PATIENCE_S).outcome == "done"
        arrive()
        assert run.reconfigure({"M": lambda row: None}, force=True).result(PATIENCE_S).outcome == "done"
        assert run.rollback().result(PATIENCE_S).outcome == "done"
        arrive()
    finally:
        run.cancel()
