"""A shadow in runs on Spark: what differs is seen, with examples; it is promoted with its state, or leaves no trace."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from patience import PATIENCE_S
from pyspark.sql import SparkSession
from run_setting import until

import fries_nb as fn
from fries_nb.errors import DataflowError, PlanError
from fries_nb.run import Run


class Scored:
    """The number of a row of its key, and a score, which some more or every row gets."""

    def __init__(self, more: int = 0, version: int = 1) -> None:
        self.more = more
        self.version = version

    def initial_state(self) -> list[int]:
        """No row yet."""
        return [0]

    def process(self, row: dict[str, Any], state: list[int]) -> dict[str, Any]:
        """The row with both."""
        state[0] += 1
        score = row["value"] % 7 + (self.more if row["value"] % 5 == 0 else 0)
        return row | {"number": state[0], "score": score, "version": self.version}


class Raising(Scored):
    """The same, for nothing."""

    def process(self, row: dict[str, Any], state: list[int]) -> dict[str, Any]:
        """An error, behind a change of the state."""
        state[0] += 1
        raise ValueError(f"not {row['value']}")


def combined(row: dict[str, Any]) -> dict[str, Any]:
    """A row with twice its score."""
    return row | {"twice": 2 * row["score"]}


def begun(spark: SparkSession, kept: Callable[[Run], Run], **options: Any) -> Run:
    """A run of a keyed operator and one behind it, in which rows flow; those of a key come in one order, from one K."""
    flow = fn.Dataflow("shadowed")
    rows = flow.source("S", fn.rate(1_000), workers=1)
    rows = rows.map("K", lambda row: row | {"key": row["value"] % 10}, workers=1)
    rows.map("FM", Scored(), key="key").map("MC", combined).sink("out", fn.memory())
    options = {"identities": True, "commit_interval_s": 0.3} | options
    run = kept(flow.run(spark, hosts=2, workers=2, **options))
    until(lambda: run.metrics().operators["out"].processed > 100, run)
    return run


def opened(run: Run, change: dict[str, Any], **options: Any) -> Any:
    """A shadow that gets rows."""
    shadow = run.shadow(change, **options)
    outcome = shadow.change.result(PATIENCE_S)
    assert outcome.outcome == "done", outcome.error
    assert shadow.state == "open"
    return shadow


def ended(run: Run) -> list[Any]:
    """The rows of a run that is drained: each is there, and each key was counted without a gap."""
    run.stop(timeout=PATIENCE_S)
    assert run.state == "finished", run.error
    rows = run.output("out").collect()
    assert sorted(row["value"] for row in rows) == list(range(len(rows)))
    for key in range(10):
        counts = sorted(row["number"] for row in rows if row["key"] == key)
        assert counts == list(range(1, len(counts) + 1))
    return rows


def test_what_differs_is_seen_and_promoted_with_its_state(spark: SparkSession, kept: Callable[[Run], Run]) -> None:
    """Of a component of two under an audit: scores of every fifth row, examples, and no key that starts anew."""
    run = begun(spark, kept, audit=True, commit_interval_s=3_600)  # a slow machine leaves nothing out for a commit
    shadow = opened(run, {"FM": Scored(more=1, version=2), "MC": combined}, bytes=1 << 28)
    until(lambda: shadow.compare().columns.get("score", 0) > 10, run)  # the worker of these keys may be the slower one
    found = shadow.compare()
    assert found.columns.keys() == {"score", "version", "twice"}
    assert found.columns["score"] == found.columns["twice"] < found.columns["version"] == found.rows == found.differ
    assert (found.only_old, found.only_new) == (0, 0)
    assert not any((*found.failures.values(), *found.left_out.values()))
    examples = found.examples
    assert set(examples) == {"_source", *(f"{name} ({side})" for name in found.columns for side in ("old", "new"))}
    assert set(examples["version (new)"]) == {2}
    until(lambda: run.metrics().operators["FM~shadow"].processed > 0, run)  # by its next report
    outcome = shadow.promote().result(PATIENCE_S)
    assert outcome.outcome == "done", outcome.error
    assert shadow.state == "promoted"
    assert [*run.graph] == ["S", "K", "FM", "MC", "out"]
    with pytest.raises(PlanError, match="is promoted"):
        shadow.drop()
    with pytest.raises(PlanError, match="begins or ends a shadow"):
        run.rollback()
    before = run.metrics().operators["out"].processed
    until(lambda: run.metrics().operators["out"].processed > before + 100, run)
    assert {row["version"] for row in ended(run)} == {1, 2}
    verdict = run.audit()
    assert (verdict.serializable, verdict.claim) == (True, "complete"), str(verdict)


@pytest.mark.parametrize("lags", [False, True])
def test_it_has_no_effect_whether_it_fails_or_lags(
    spark: SparkSession, kept: Callable[[Run], Run], lags: bool
) -> None:  # fmt: skip
    """It raises on every row, or has no room for any: that is counted; dropped, it leaves the run as before."""
    run = begun(spark, kept)
    shadow = opened(run, {"FM": Scored() if lags else Raising()}, bytes=1 if lags else 1 << 20)
    if lags:
        until(lambda: min(shadow.compare().left_out[name] for name in ("K", "FM")) > 100, run)
        assert shadow.compare().rows == 0
    else:
        until(lambda: shadow.compare().failures["FM"] > 100, run)
        assert shadow.compare().only_new == 0
    assert shadow.drop().result(PATIENCE_S).outcome == "done"
    assert [*run.graph] == ["S", "K", "FM", "MC", "out"]
    with pytest.raises(PlanError, match="is dropped"):
        shadow.promote()
    again = opened(run, {"MC": combined}, share=0.5)
    until(lambda: again.compare().same > 100, run)
    found = again.compare()
    assert (found.differ, found.only_old, found.only_new) == (0, 0, 0)
    assert {row["version"] for row in ended(run)} == {1}


def test_it_outlives_a_host(spark: SparkSession, kept: Callable[[Run], Run], tmp_path: Path) -> None:
    """From a checkpoint before it began, it begins with the state that the other one has there."""
    run = begun(spark, kept, checkpoint=tmp_path, commit_interval_s=3_600)
    run.checkpoint(PATIENCE_S)
    shadow = opened(run, {"FM": Scored()}, bytes=1 << 28)
    os.kill(run.host_processes[1], signal.SIGKILL)
    until(lambda: bool(run.recoveries) and run.recoveries[-1].seconds is not None, run)
    until(lambda: shadow.compare().same > 300, run)
    found = shadow.compare()
    assert (found.differ, found.only_old, found.only_new) == (0, 0, 0)
    ended(run)


def test_what_has_no_shadow_is_refused_by_name(
    spark: SparkSession, kept: Callable[[Run], Run], tmp_path: Path
) -> None:  # fmt: skip
    """Each in a sentence, and nothing is changed."""
    run = begun(spark, kept)
    for change, options, words in (
        ({"S": combined}, {}, "S"), ({"out": combined}, {}, "out"), ({"FM": Scored()}, {"share": 0}, "share=0"),
        ({"FM": Scored()}, {"bytes": 0}, "bytes=0"), ({}, {}, "at least one"),
        ({"FM": fn.Update(Scored(), state=list)}, {}, "keep its form"),
    ):  # fmt: skip
        with pytest.raises(PlanError, match=words):
            run.shadow(change, **options)
    with pytest.raises(DataflowError, match="no operator 'X'"):
        run.shadow({"X": combined})
    shadow = opened(run, {"FM": Scored()})
    with pytest.raises(PlanError, match="FM has a shadow already"):
        run.shadow({"FM": Scored(), "MC": combined})
    with pytest.raises(PlanError, match="FM~shadow is part of a shadow"):
        run.reconfigure({"FM~shadow": Scored()})
    other = fn.Dataflow("shadowed")
    other.source("S", fn.rate(1_000), workers=1).sink("out", fn.memory())
    with pytest.raises(PlanError, match="FM has a shadow"):
        run.apply(other, drop=["FM"])
    assert run.reconfigure({"FM": Scored(version=3)}).result(PATIENCE_S).outcome == "done"
    until(lambda: shadow.compare().columns.get("version", 0) > 10, run)
    assert run.rescale(workers={"FM": 3}).result(PATIENCE_S).outcome == "done"
    outcome = shadow.promote().result(PATIENCE_S)
    assert (outcome.outcome, "cannot go on with the state of FM~shadow" in outcome.error) == ("aborted", True)
    assert shadow.state == "open"
    run.report(tmp_path / "shadow.html")
    assert shadow.drop().result(PATIENCE_S).outcome == "done"
    ended(run)


def test_rows_without_identities_have_no_shadow(spark: SparkSession, kept: Callable[[Run], Run]) -> None:
    """They could not be compared."""
    run = begun(spark, kept, identities=False)
    with pytest.raises(PlanError, match="no identities"):
        run.shadow({"FM": Scored()})
    ended(run)
