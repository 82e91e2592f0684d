"""Schedulers compared on real Spark by ``fn.compare``."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession
from run_setting import ended_runs

import fries_nb as fn
from fries_nb.errors import DataflowError, PlanError


def test_sinks_that_each_run_would_write_are_refused() -> None:
    """So is a change of no operator."""
    flow = fn.Dataflow("kept")
    flow.source("rows", fn.rate(100)).map("A", lambda row: row).sink("out", fn.parquet("nowhere"))
    with pytest.raises(DataflowError, match=r"sink 'out' is written by each of the runs .* fn.memory\(\) in its place"):
        fn.compare(flow, {"A": lambda row: row}, surge={"rows": 200})
    with pytest.raises(PlanError, match="the change is empty"):
        fn.compare(_in_memory(), {}, surge={"rows": 200})


def test_a_restart_has_a_checkpoint_of_its_own(spark: SparkSession) -> None:
    """And leaves nothing behind."""
    with ended_runs():
        found = fn.compare(
            _in_memory(), {"A": lambda row: row | {"new": 1}}, ["restart"], surge={"rows": 200}, calm_s=0.1,
            surge_s=0.1, hosts=1, workers=1, spark=spark,
        )  # fmt: skip
    assert [trial.row.outcome for trial in found.trials] == ["done"]


def _in_memory() -> fn.Dataflow:
    flow = fn.Dataflow("small")
    flow.source("rows", fn.rate(100)).map("A", lambda row: row).sink("out", fn.memory())
    return flow
