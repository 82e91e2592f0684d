"""Undoing a change while the dataflow runs: the old functions again, the state transformed back."""

from __future__ import annotations

import pytest
from patience import PATIENCE_S
from pyspark.sql import SparkSession
from run_setting import until

import fries_nb as fn
from fries_nb.errors import PlanError
from fries_nb.run import Run
from fries_nb.workloads.fraud import MerchantModel, fraud_change, fraud_flow, pad_to_ten
from fries_nb.workloads.payments import payments


def test_a_rollback_is_a_change_back_and_needs_a_way_back_for_the_state(spark: SparkSession) -> None:
    """The new columns go again; what cannot be undone is refused in words, and the dataflow goes on."""
    table = payments(200_000, seed=5)
    run: Run = fraud_flow(fn.replay(table, rate=2_000), fn.memory(), workers=1).run(spark, hosts=1, audit=True)
    try:
        with pytest.raises(PlanError, match="no change is in effect"):
            run.rollback()
        until(lambda: run.metrics().operators["MC"].processed >= 200, run)
        asked = run.reconfigure(fraud_change())
        assert (asked.result(PATIENCE_S).outcome, asked.blocked_by()) == ("done", None)
        assert run.rollback(asked).result(PATIENCE_S).outcome == "done"
        windows = [(was.window, new.window) for was, new in (change.functions()["FM"] for change in run.changes)]
        assert windows == [(5, 10), (10, 5)]
        with pytest.raises(PlanError, match="'u9' is no change of run 'fraud'; expected one of its changes: u1, u2"):
            run.rollback("u9")
        with pytest.raises(PlanError, match="no change is in effect"):
            run.rollback()
        one_way = fn.Update(MerchantModel(window=5), state=pad_to_ten)
        assert run.reconfigure({"FM": one_way}).result(PATIENCE_S).outcome == "done"
        with pytest.raises(PlanError, match=r"expected Update\(\.\.\., state=\.\.\., back=\.\.\.\)"):
            run.rollback()
        assert "no inverse" in str(run.changes[-1].blocked_by())
        assert run.changes.to_pandas()["origin"].tolist() == ["user", "rollback of u1", "user"]
        assert [mark.kind for mark in run.history.marks] == ["request", "done"] * 3
        until(lambda: bool(run.history.latency), run)
    finally:
        run.cancel()
    assert run.audit().serializable
