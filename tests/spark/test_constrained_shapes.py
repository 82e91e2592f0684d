"""A dataflow under latency constraints changes its shape on Spark: what the new cell declares is judged then."""

from __future__ import annotations

from collections.abc import Callable

from patience import PATIENCE_S
from pyspark.sql import SparkSession
from run_setting import until

import fries_nb as fn
from fries_nb.run import Run


def declared(inserted: bool = False, branch: bool = False) -> fn.Dataflow:
    """A and B under a constraint, with an operator between, and with a branch that gets the rows of A as well."""
    flow = fn.Dataflow("limited")
    rows = flow.source("S", fn.rate(500), workers=1).map("A", lambda row: row | {"a": 1}, key="value", workers=2)
    first = rows.map("N", lambda row: row | {"n": 1}, key="value", workers=2) if inserted else rows
    first.map("B", lambda row: row | {"b": 1}, key="value", workers=2).sink("out", fn.memory(), workers=1)
    if branch:
        rows.filter("P", lambda row: row["value"] % 2, workers=1).sink("odd", fn.memory(), workers=1)
    flow.constrain(["A", "N", "B"] if inserted else ["A", "B"], latency_ms=60_000, window_s=1)
    return flow


def test_constraints_are_judged_in_each_shape(spark: SparkSession, kept: Callable[[Run], Run]) -> None:
    """A path that is kept goes on being judged, one that is gone is not any more, and comes back with a rollback."""
    run = kept(declared().run(spark, hosts=2, workers=2, audit=True, commit_interval_s=0.3))

    def judged(*sequences: str) -> None:
        until(lambda: [one.constraint.sequence for one in run.constraints()] == list(sequences), run)
        until(lambda: all(one.status == "met" for one in run.constraints()), run)

    judged("A -> B")
    run.constrain(["B"], latency_ms=50_000, window_s=1)
    judged("A -> B", "B")
    assert "+ A -> N -> B: at most 60000 ms over 1 s" in str(run.diff(declared(inserted=True)))
    assert run.apply(declared(inserted=True)).settled(PATIENCE_S).outcome == "done"
    judged("A -> N -> B", "B")
    assert run.apply(declared(inserted=True, branch=True)).settled(PATIENCE_S).outcome == "done"
    judged("A -> Replicate(A) -> N -> B", "B")
    assert run.rollback().settled(PATIENCE_S).outcome == "done"
    judged("A -> N -> B", "B")
    assert run.apply(declared()).settled(PATIENCE_S).outcome == "done"
    judged("A -> B", "B")
    run.stop(timeout=PATIENCE_S)
    assert run.audit().serializable
