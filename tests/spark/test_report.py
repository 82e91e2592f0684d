"""The report of a run on real Spark."""

from __future__ import annotations

from pathlib import Path

import pytest
from patience import PATIENCE_S
from pyspark.sql import SparkSession
from report_page import SECTIONS, stands_alone
from run_setting import until

import fries_nb as fn
from fries_nb.workloads.fraud import fraud_change, fraud_flow
from fries_nb.workloads.payments import payments


def test_a_run_writes_its_report_while_it_runs_and_afterwards(spark: SparkSession, tmp_path: Path) -> None:
    """The change's row has the very numbers of its result; the last report has the verdict on all payments."""
    table = payments(100_000, seed=5)
    run = fraud_flow(fn.replay(table, rate=2_000), fn.memory(), workers=1).run(spark, hosts=1, audit=True)
    path = tmp_path / "report.html"
    try:
        assert run.report(path) == str(path)
        stands_alone(path.read_text(encoding="utf-8"))
        until(lambda: bool(run.history.latency), run)
        result = run.reconfigure(fraud_change()).result(PATIENCE_S)
        assert result.outcome == "done"
    finally:
        run.cancel()
    page = stands_alone(Path(run.report(str(path))).read_text(encoding="utf-8"))
    assert page.headings[1:] == [*SECTIONS[:3], "Hosts", *SECTIONS[3:]]
    assert "The run was stopped." in page.text
    assert page.tags.count("svg") == 3 + 1 + len(run.changes[0].replay().steps)
    assert "window: 5 -> 10" in page.text
    assert f"{result.old_tuples:,}" in page.texts
    assert any(said.startswith("Serializable: ") for said in page.texts)
    request, done = run.history.marks
    assert (done.at_s - request.at_s) * 1000 == pytest.approx(result.delay_ms, abs=0.01)
