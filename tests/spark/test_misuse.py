"""What a function or a user may do to a run: leave, hang, say too much, interrupt. It ends in words, or goes on."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from patience import PATIENCE_S, until
from pyspark.sql import SparkSession

import fries_nb as fn
from fries_nb.connectors.row_groups import plan_replay
from fries_nb.errors import CheckpointError, DataflowError, SessionError, SourceError
from fries_nb.host.region_spec import Options
from fries_nb.run import Run
from fries_nb.simulation import Cluster
from fries_nb.spark.catalog import output


def flow_of(function: Callable[[Any], Any]) -> fn.Dataflow:
    """A flow of one map over numbers."""
    flow = fn.Dataflow("misuse")
    flow.source("numbers", fn.rate(2_000)).map("A", function).sink("out", fn.memory())
    return flow


def run_of(function: Callable[[Any], Any], spark: SparkSession) -> Run:
    """A run of it."""
    return flow_of(function).run(spark)


def leaves(row: dict[str, Any]) -> dict[str, Any]:
    """Ends its interpreter, or thinks so."""
    sys.exit(3)


def says_much(row: dict[str, Any]) -> dict[str, Any]:
    """Raises as validating libraries do."""
    raise ValueError("2 errors\n  x is missing\n  y is missing")


def test_a_function_that_leaves_fails_the_run_in_one_line(spark: SparkSession) -> None:
    """Never a thread that ends unseen and a run that waits for it."""
    run = run_of(leaves, spark)
    assert run.wait(PATIENCE_S) == "failed"
    assert run.error.startswith("A failed on a tuple: SystemExit: 3")
    assert "\n" not in run.error


def test_a_function_that_says_too_much_fails_the_run_in_one_line() -> None:
    """Never a paragraph; what no column comes of is refused by the sink (``connectors/test_sinks.py``)."""
    cluster = Cluster(flow_of(says_much).graph(1), {"numbers": [{"value": 1}]}, seed=1)
    cluster.run()
    assert cluster.state == "failed"
    assert cluster.error.startswith("A failed on a tuple: ValueError: 2 errors ...")
    assert "\n" not in cluster.error
    assert "y is missing" in cluster.details


def hangs(row: dict[str, Any]) -> dict[str, Any]:
    """Never returns, and keeps a core busy."""
    while True:
        pass


def test_a_function_that_never_returns_holds_up_neither_changes_nor_stops(spark: SparkSession) -> None:
    """Its hosts stay reachable. Spark uses Python processes again, so one with a stuck thread in it has to end."""
    flow = fn.Dataflow("misuse")
    numbers = flow.source("numbers", fn.rate(2_000))
    numbers.map("A", hangs).sink("out", fn.memory())
    numbers.map("B", lambda row: row, chain=False).sink("beside", fn.memory())
    run = flow.run(spark)
    until(lambda: len(run.host_processes) == 2 and run.metrics().operators["numbers"].processed > 0)
    hosts = list(run.host_processes.values())
    assert run.reconfigure({"B": lambda row: {**row, "new": 1}}).result(PATIENCE_S).outcome == "done"
    run.cancel()
    until(lambda: not any(os.path.exists(f"/proc/{host}") for host in hosts))
    assert spark.range(10).mapInArrow(lambda batches: batches, "id long").count() == 10


def test_an_interrupt_ends_the_waiting_and_not_the_run(spark: SparkSession) -> None:
    """PySpark would cancel all jobs of the session, the hosts' among them."""
    run = run_of(lambda row: row, spark)
    until(lambda: run.metrics().operators["out"].processed > 0)
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
    before = run.metrics().operators["out"].processed
    until(lambda: run.metrics().operators["out"].processed > before + 1_000)
    run.cancel()
    assert (run.state, run.error) == ("stopped", "")


@pytest.mark.parametrize(
    "wrong",
    [{"budget": 0}, {"budget": "8M"}, {"commit_interval_s": 0}, {"commit_interval_s": "1"}, {"silence_s": -1},
     {"silence_s": float("inf")}, {"port": -1}, {"port": 70_000}, {"port": 22.5}],
    ids=str,
)  # fmt: skip
def test_options_out_of_range_are_refused(wrong: dict[str, Any]) -> None:
    """Before Spark starts, with the value that was got."""
    public = {"budget": "buffer_budget_bytes", "silence_s": "heartbeat_timeout_s"}
    given: dict[str, Any] = {"budget": 1, "commit_interval_s": 1.0, "silence_s": 1.0, "port": 0} | wrong
    ((name, value),) = wrong.items()
    with pytest.raises(DataflowError, match=f"{public.get(name, name)}={value!r}; expected"):
        Options(hosts=1, audit=False, chaining=True, **given)


def test_a_column_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    """A row is a dict: one of the two values would be lost."""
    pq.write_table(pa.table([pa.array([1]), pa.array([2])], names=["x", "x"]), tmp_path / "rows.parquet")
    with pytest.raises(SourceError, match="several columns 'x'"):
        plan_replay(str(tmp_path), 1)


class Stopped:
    """A session whose context is gone."""

    class sparkContext:
        """As it is after ``spark.stop()``."""

        _jsc = None


def test_the_output_of_a_stopped_session_says_where_it_lies() -> None:
    """Not an attribute of None."""
    stopped: Any = Stopped()
    with pytest.raises(SessionError, match=r"has been stopped; what was committed lies in /there"):
        output(stopped, "/there")


@pytest.mark.parametrize("place", [5, True, b"checkpoints", None])
def test_a_checkpoints_place_is_a_path(place: Any) -> None:
    """Text or a path, at the start and to resume; a run may have none."""
    flow = fn.Dataflow("placed")
    flow.source("numbers", fn.rate(10)).sink("out", fn.memory())
    begins = [lambda: flow.resume(place), lambda: flow.run(checkpoint=place)]
    for begin in begins[: 1 if place is None else 2]:
        with pytest.raises(CheckpointError, match="expected its path or URI, got "):
            begin()
