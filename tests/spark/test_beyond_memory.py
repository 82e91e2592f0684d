"""More states than the hosts may have in memory, on Spark: while checkpoints are taken, hosts die, join, and functions
change, every row counts once, and each key has the state that its rows have left.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from patience import PATIENCE_S
from pyspark.sql import SparkSession
from run_setting import until

import fries_nb as fn
from fries_nb.errors import DataflowError
from fries_nb.run import Run

KEYS, ROWS, LIMIT = 6_000, 60_000, 1 << 20


@dataclass
class Sum:
    """Sums a key's rows."""

    factor: int = 1

    def initial_state(self) -> dict[str, Any]:
        """None yet, and something to keep."""
        return {"count": 0, "sum": 0, "kept": b"x" * 1_000}

    def process(self, row: dict[str, Any], state: dict[str, Any]) -> dict[str, Any]:
        """The row with its number in its key."""
        state["count"] += 1
        state["sum"] += row["value"]
        return {**row, "nth": state["count"], "factor": self.factor}


def declared(rate: float | None = 10_000) -> fn.Dataflow:
    """Rows are summed by key, of which there are six times as many bytes as fit into memory."""
    flow = fn.Dataflow("large")
    source = fn.rate(rate, count=ROWS, row=lambda value: {"value": value, "key": value % KEYS})
    rows = flow.source("S", source, workers=1)  # so that the rows of a key come in order
    rows.map("K", Sum(), key="key").sink("out", fn.memory())
    return flow


def assert_each_row_counts_once(run: Run) -> None:
    """In the output, and in each key's state."""
    rows = run.output().select("value", "key", "nth").toPandas()
    assert sorted(rows["value"]) == list(range(ROWS))
    assert (rows["nth"] == rows["value"] // KEYS + 1).all()


def on_disk(run: Run) -> int:
    """Number of keys whose states are on the disks of hosts."""
    return int(run.state_sizes(timeout=PATIENCE_S)["disk_keys"].sum())


def test_no_row_is_lost_or_doubled_with_most_states_on_disk(
    spark: SparkSession, kept: Callable[[Run], Run], tmp_path: Path
) -> None:
    """Through checkpoints, a kill, a change with a transformation of states, and a host that joins."""
    place = tmp_path / "c"
    run = kept(declared().run(spark, hosts=2, checkpoint=place, commit_interval_s=0.5, state_bytes=LIMIT))
    until(lambda: run.metrics().operators["K"].processed > 2 * KEYS, run)
    assert on_disk(run) > KEYS // 2
    os.kill(run.host_processes[1], signal.SIGKILL)
    until(lambda: bool(run.recoveries) and run.recoveries[-1].seconds is not None, run)
    change = run.reconfigure({"K": fn.Update(Sum(2), state=lambda old: {**old, "changed": True}, back=dict)})
    assert change.settled(PATIENCE_S).outcome == "done"
    assert run.rescale(3).result(PATIENCE_S).outcome == "done"
    run.wait(PATIENCE_S)
    assert_each_row_counts_once(run)
    states = run.state("K", n=None)
    assert len(states) == KEYS
    assert (states["count"] == ROWS // KEYS).all()
    assert (states["sum"] == states["key"] * 10 + KEYS * 45).all()


def test_a_run_goes_on_elsewhere_with_other_limits(
    spark: SparkSession, kept: Callable[[Run], Run], tmp_path: Path
) -> None:
    """What was on disk is in the checkpoint, for a run that has all in memory, and another one that has not."""
    place = tmp_path / "c"
    run = kept(declared().run(spark, hosts=2, checkpoint=place, commit_interval_s=0.5, state_bytes=LIMIT))
    until(lambda: run.metrics().operators["K"].processed > 2 * KEYS, run)
    run.suspend()
    between = kept(declared().resume(place, spark, hosts=1, workers=3, commit_interval_s=0.5))
    until(lambda: between.metrics().operators["K"].processed > 3 * KEYS, between)
    assert on_disk(between) == 0
    between.suspend()
    last = kept(declared().resume(place, spark, hosts=2, workers=2, commit_interval_s=0.5, state_bytes=LIMIT))
    last.wait(PATIENCE_S)
    assert_each_row_counts_once(last)


@pytest.mark.parametrize("given", [0, 1000, LIMIT - 1, True, "1 GB", 2e6])
def test_a_limit_that_is_none_is_refused(given: Any) -> None:
    """Before anything starts, with what was expected."""
    with pytest.raises(DataflowError, match=r"state_bytes=.*; expected bytes of states .* at least 1048576 \(1 MiB\)"):
        declared().run(state_bytes=given)
