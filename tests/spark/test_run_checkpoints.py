"""Checkpoints, recoveries and resumed runs as their user sees them, also with several regions."""

from __future__ import annotations

import os
import re
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from patience import PATIENCE_S
from pyspark.sql import SparkSession
from run_setting import until

import fries_nb as fn
from fries_nb.errors import CheckpointError, RunError
from fries_nb.protocol.trace import Updated
from fries_nb.run import Run


def counted(row: dict[str, Any]) -> dict[str, Any]:
    """The old version."""
    return {"value": row["value"], "key": row["value"] % 5, "version": 1}


def counted_anew(row: dict[str, Any]) -> dict[str, Any]:
    """The new version."""
    return {"value": row["value"], "key": row["value"] % 5, "version": 2}


def numbers(count: int, rate: float) -> fn.Dataflow:
    """Numbers with their version."""
    flow = fn.Dataflow("numbers")
    flow.source("S", fn.rate(rate, count=count)).map("A", counted).sink("out", fn.memory())
    return flow


def test_a_lost_host_is_recovered_from_and_a_stopped_run_goes_on(
    spark: SparkSession, kept: Callable[[Run], Run], tmp_path: Path
) -> None:
    """One run by its user's hand: a checkpoint, a killed host, a change, a stop, and the rest after resuming."""
    place = tmp_path / "place"
    flow = numbers(6_000, 500)
    run = kept(flow.run(spark, hosts=1, workers=1, checkpoint=place, commit_interval_s=0.3))
    until(lambda: run.metrics().operators["out"].processed > 50, run)
    assert run.checkpoint() == str(place)
    known = len(run.checkpoints)
    assert known
    os.kill(run.host_processes[0], signal.SIGKILL)
    until(lambda: bool(run.recoveries) and run.recoveries[0].seconds is not None, run)
    [recovery] = run.recoveries
    assert recovery.epoch >= run.checkpoints[known - 1].epoch
    assert "host 0 was lost" in recovery.reason
    assert run.reconfigure({"A": counted_anew}).result(PATIENCE_S).outcome == "done"
    assert {"checkpoint", "recovery", "request", "done"} <= {mark.kind for mark in run.history.marks}
    after = len(run.checkpoints)
    until(lambda: len(run.checkpoints) > after, run)
    run.cancel()
    with pytest.raises(RunError, match="a checkpoint needs a running dataflow"):
        run.checkpoint()
    with pytest.raises(CheckpointError, match="holds a run of flow 'numbers' already"):
        flow.run(spark, hosts=1, workers=1, checkpoint=place)
    again = kept(flow.resume(place, spark, hosts=1))
    assert [operator.workers for operator in again.graph.operators] == [1, 1, 1]
    assert again.reconfigure({"A": counted}).result(PATIENCE_S).outcome == "done"
    assert again.rollback().result(PATIENCE_S).outcome == "done"
    assert [change.id for change in again.changes] == ["u2", "u3"]
    assert again.changes[-1].updates["A"].function({"value": 1})["version"] == 2
    again.set_rate("S", 100_000)
    assert again.wait(PATIENCE_S) == "finished", again.error
    rows = sorted((row["value"], row["version"]) for row in again.output().collect())
    assert [value for value, _ in rows] == list(range(6_000))
    assert rows[0][1] == 1
    assert rows[-1][1] == 2


class Numbered:
    """How many tuples of its key there have been."""

    def initial_state(self) -> list[int]:
        return [0]

    def process(self, row: dict[str, Any], state: list[int]) -> dict[str, Any]:
        state[0] += 1
        return row | {"number": state[0]}


def test_a_run_is_resumed_at_any_number_of_workers_and_hosts_chained_or_not(
    spark: SparkSession, kept: Callable[[Run], Run], tmp_path: Path
) -> None:
    """Each key's state goes where its rows go: 2 workers on 2 hosts, then 3 on 1 without chains, then 1 with them."""
    place, flow = tmp_path / "place", fn.Dataflow("shapes")
    numbers = flow.source("S", fn.rate(2_000), workers=2).map("A", lambda row: row | {"key": row["value"] % 23})
    numbers.map("N", Numbered(), key="key").map("B", lambda row: row).sink("out", fn.memory())
    run = kept(flow.run(spark, hosts=2, workers=2, checkpoint=place, commit_interval_s=0.3, audit=True))
    shapes = [(1, 3, False), (2, 1, True), (1, None, True)]
    for hosts, workers, chaining in shapes:
        until(lambda run=run: run.metrics().operators["out"].processed > 200, run)
        run.suspend()
        run = kept(flow.resume(place, spark, hosts, workers, chaining=chaining, commit_interval_s=0.3, audit=True))
        assert {one.workers for one in run.graph.operators if one.name != "S"} == {workers or 1}
        assert run.graph.operator("S").workers == 2
    until(lambda: run.metrics().operators["out"].processed > 200, run)
    run.stop()
    assert run.audit().serializable
    counts: dict[int, list[int]] = {}
    for row in run.output().collect():
        counts.setdefault(row["key"], []).append(row["number"])
    assert len(counts) == 23
    assert all(sorted(found) == list(range(1, len(found) + 1)) for found in counts.values())


def test_regions_are_resumed_one_by_one(spark: SparkSession, kept: Callable[[Run], Run], tmp_path: Path) -> None:
    """What the first region kept is there, and what the second began with counts again."""
    place = tmp_path / "place"
    flow = fn.Dataflow("sums")
    sums = flow.source("S", fn.rate(2, count=200)).map("A", counted).aggregate("G", "key", {"total": "sum(value)"})
    ticks = flow.source("T", fn.rate(100)).map("E", lambda row: {"key": -1})
    sums.union("U", ticks).map("C", lambda row: row | {"version": 1}).sink("out", fn.memory())
    run = kept(flow.run(spark, hosts=1, workers=1, checkpoint=place, commit_interval_s=0.3))
    until(lambda: run.metrics().operators["A"].processed > 0, run)
    waiting = run.reconfigure({"C": lambda row: row | {"version": 2}})
    run.set_rate("S", 10_000)
    assert waiting.result(PATIENCE_S).outcome == "done"
    until(lambda: any(one.region == 2 for one in run.checkpoints), run)
    run.cancel()
    again = kept(flow.resume(place, spark, hosts=1, audit=True))
    assert {name: one.version for name, one in again.functions().items()} == {"A": "", "E": "", "C": waiting.id}
    until(lambda: again.metrics().operators["C"].processed > 50, again)
    again.stop()
    rows = again.output().collect()
    totals = {row["key"]: row["total"] for row in rows if row["key"] >= 0}
    assert totals == {key: sum(range(key, 200, 5)) for key in range(5)}
    assert len([row for row in rows if row["key"] >= 0]) == 5
    assert {row["version"] for row in rows} == {2}
    assert {record.operator for record in again.records() if isinstance(record, Updated)} <= {"C"}


def fails_on_seven(row: dict[str, Any]) -> dict[str, Any]:
    """Cannot process one of the rows."""
    if row["value"] == 7:
        raise ValueError("seven is not allowed")
    return {"value": row["value"], "fixed": False}


def fixed(row: dict[str, Any]) -> dict[str, Any]:
    """Can."""
    return {"value": row["value"], "fixed": True}


def test_an_operator_that_stands_is_seen_and_mended(spark: SparkSession, kept: Callable[[Run], Run]) -> None:
    """It shows its error and its tuple; after the fix the tuple is tried again, and counts once."""
    flow = fn.Dataflow("poison")
    flow.source("S", fn.rate(200, count=60)).map("FM", fails_on_seven, on_error="pause").sink("out", fn.memory())
    run = kept(flow.run(spark, hosts=1, workers=1))
    until(lambda: "FM" in run.paused, run)
    [paused] = run.paused["FM"]
    assert "seven is not allowed" in paused.error
    assert '"value":7' in paused.row.replace(" ", "")
    result = run.reconfigure({"FM": fixed}).result(PATIENCE_S)
    assert result.outcome == "done", result.error
    assert run.wait(PATIENCE_S) == "finished", run.error
    assert run.paused == {}
    rows = {row["value"]: row["fixed"] for row in run.output().collect()}
    assert run.output().count() == len(rows) == 60
    assert rows == {value: value >= 7 for value in range(60)}


def test_names_lead_nowhere(spark: SparkSession, kept: Callable[[Run], Run], tmp_path: Path) -> None:
    """Whatever a source, an operator with dead letters and a sink are called, all is written below the place."""
    place, up = tmp_path / "1" / "2" / "3" / "4" / "place", "../" * 4
    rows = spark.createDataFrame([(number,) for number in range(20)], "value long")
    flow = fn.Dataflow(f"{up}flow")
    source = flow.source(f"{up}source", fn.replay(rows)).map(f"{up}map", fails_on_seven, on_error=fn.memory())
    table = spark.createDataFrame([(1, "one")], "value long, text string")
    source.join(f"{up}join", table, on="value", how="left").sink("..", fn.memory())
    run = kept(flow.run(spark, hosts=1, workers=1, checkpoint=place))
    assert run.wait(PATIENCE_S) == "finished", run.error
    assert run.output().count() == 19
    assert run.dead_letters(f"{up}map").count() == 1
    assert [path.name for path in tmp_path.rglob("*") if not path.is_relative_to(place)] == ["1", "2", "3", "4"]
    again = kept(flow.resume(place, spark, hosts=1))
    assert again.wait(PATIENCE_S) == "finished", again.error
    assert again.output().count() == 19


class Locked:
    """Its state cannot be written to a checkpoint."""

    def initial_state(self) -> dict[str, Any]:
        """A lock."""
        return {"lock": threading.Lock()}

    def process(self, row: dict[str, Any], state: dict[str, Any]) -> dict[str, Any]:
        """The row."""
        return row


def test_a_run_that_goes_on_without_checkpoints_says_so(spark: SparkSession, kept: Callable[[Run], Run]) -> None:
    """If it was not asked to keep any, output is committed all the same; it cannot recover, and tells why."""
    flow = fn.Dataflow("locked")
    flow.source("S", fn.rate(200)).map("A", Locked(), key="value").sink("out", fn.memory())
    run = kept(flow.run(spark, hosts=1, workers=1, recover=True, commit_interval_s=0.2))
    until(lambda: "goes on without checkpoints" in str(run.explain()), run)
    told = str(run.explain()).splitlines()[-1]
    assert re.search(r"it goes on without checkpoints to go back to: .*A.*lock", told), told
    until(lambda: bool(run.output().count()), run)
    run.cancel()
    assert "without checkpoints" not in str(run.explain())
