"""A fork on Spark: it goes on where a checkpoint of another run was, and that run goes on as if nothing were."""

from __future__ import annotations

import datetime
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from patience import PATIENCE_S
from pyspark.sql import SparkSession
from run_setting import until

import fries_nb as fn
from fries_nb.errors import CheckpointError, DataflowError, SinkError
from fries_nb.run import Run

DAY = datetime.datetime(2026, 11, 1)
ROWS = 20_000


class Numbered:
    """How many tuples of its key there have been."""

    def __init__(self, version: int) -> None:
        self.version = version

    def initial_state(self) -> list[int]:
        """None yet."""
        return [0]

    def process(self, row: dict[str, Any], state: list[int]) -> dict[str, Any]:
        """The row with its number."""
        state[0] += 1
        return row | {"number": state[0], "version": self.version}


def keyed(row: dict[str, Any]) -> dict[str, Any]:
    """A row of one of seven keys; one of a thousand is none."""
    if row["value"] % 1_000 == 999:
        raise ValueError("no row")
    return row | {"key": row["value"] % 7}


def declared(place: Path) -> fn.Dataflow:
    """Rows that are numbered by key, in the order in which they are read, and dead letters."""
    flow = fn.Dataflow("forked")
    rows = flow.source("S", fn.rate(2_000), workers=1).map("K", keyed, workers=1, on_error=fn.memory())
    rows.map("N", Numbered(1), key="key").sink("out", fn.parquet(place))
    return flow


def files(path: Path) -> dict[str, bytes | None]:
    """All files and directories below a path, with their contents."""
    return {str(one): one.read_bytes() if one.is_file() else None for one in path.rglob("*")}


def numbers(rows: list[Any]) -> dict[tuple[int, int], int]:
    """Key and number to the value that has it, each once."""
    found = {(row["key"], row["number"]): row["value"] for row in rows}
    assert len(found) == len(rows)
    return found


def test_a_fork_goes_on_beside_its_origin(spark: SparkSession, kept: Callable[[Run], Run], tmp_path: Path) -> None:
    """With the function of the checkpoint, not a later one, and the rows that the origin reads as well."""
    flow, place = declared(tmp_path / "out"), tmp_path / "origin"
    origin = kept(flow.run(spark, hosts=1, workers=2, checkpoint=place, commit_interval_s=None))
    until(lambda: origin.metrics().operators["out"].processed > 300, origin)
    origin.reconfigure({"N": Numbered(2)}).result(PATIENCE_S)
    until(lambda: origin.metrics().operators["out"].processed > 1_500, origin)
    origin.checkpoint()
    origin.reconfigure({"N": Numbered(3)}).result(PATIENCE_S)
    committed, before = len(origin.output("out").collect()), files(place)
    with pytest.raises(DataflowError, match=r"^sinks= lacks 'K' \(its dead letters\); .* written twice"):
        flow.fork(place, {"out": fn.memory()}, spark)
    sinks = {"out": fn.parquet(tmp_path / "fork" / "out"), "K": fn.memory()}
    fork = kept(flow.fork(place, sinks, spark, hosts=1, workers=3, commit_interval_s=0.3))
    assert [one.workers for one in fork.graph.operators if one.name == "N"] == [3]
    until(lambda: fork.metrics().operators["out"].processed > 3_000, fork)
    assert origin.state == "running"
    assert files(place) == before
    fork.stop(drain=True)
    reached = origin.metrics().operators["out"].processed
    until(lambda: origin.metrics().operators["out"].processed > reached + 3_000, origin)
    origin.stop(drain=True)
    ours, theirs = fork.output("out").collect(), origin.output("out").collect()
    assert {row["version"] for row in ours} == {2}
    assert {row["version"] for row in theirs} == {1, 2, 3}
    assert fork.dead_letters("K").count() > 0
    own, all_of_origin = numbers(ours), numbers(theirs)
    assert own.items() <= all_of_origin.items()
    in_order = sorted(all_of_origin.values())
    assert sorted(own.values()) == in_order[committed : committed + len(own)]


def test_a_fork_of_a_run_that_is_over_is_a_run_of_its_own(
    spark: SparkSession, kept: Callable[[Run], Run], tmp_path: Path
) -> None:
    """It recovers before a checkpoint of its own, from its directory, and is resumed from there."""
    flow, place = declared(tmp_path / "out"), tmp_path / "origin"
    origin = kept(flow.run(spark, hosts=1, workers=2, checkpoint=place, commit_interval_s=0.3))
    until(lambda: origin.metrics().operators["out"].processed > 1_000, origin)
    origin.suspend()
    committed, before = origin.output("out").collect(), files(tmp_path)
    sinks = {"out": fn.parquet(tmp_path / "fork"), "K": fn.memory()}
    with pytest.raises(CheckpointError, match="in the directory of the origin"):
        flow.fork(place, sinks, spark, checkpoint=place / "fork")
    with pytest.raises(DataflowError, match="to which 'out' of the origin writes; expected another target"):
        flow.fork(place, sinks | {"out": fn.parquet(tmp_path / "out")}, spark)
    view, own = fn.checkpoint(place), tmp_path / "own"
    with pytest.raises(SinkError, match="holds files that no flow wrote"):
        flow.fork(view, sinks | {"out": fn.parquet(tmp_path)}, spark, checkpoint=own)
    assert files(own) == {}
    fork = kept(flow.fork(view, sinks, spark, hosts=2, checkpoint=own, commit_interval_s=None, audit=True))
    until(lambda: fork.metrics().operators["out"].processed > 1_000, fork)
    os.kill(fork.host_processes[1], signal.SIGKILL)
    until(lambda: len(fork.recoveries) == 1 and fork.metrics().operators["out"].processed > 2_000, fork)
    assert fork.checkpoints == ()
    fork.suspend()
    assert fork.audit().serializable
    changed = declared(tmp_path / "fork")
    again = kept(changed.resume(own, spark, hosts=1, commit_interval_s=0.3))
    until(lambda: again.metrics().operators["out"].processed > 3_000, again)
    again.stop(drain=True)
    assert {name: content for name, content in files(tmp_path).items() if name in before} == before
    rows = [*committed, *spark.read.parquet(str(tmp_path / "fork")).collect()]
    values = sorted(numbers(rows).values())
    assert values == [value for value in range(values[-1] + 1) if value % 1_000 != 999]


def stamped(place: Path, rate: float | None = None) -> fn.Dataflow:
    """A table of a row for each second, which a run stages."""
    flow = fn.Dataflow("stamped")
    seconds = [DAY + datetime.timedelta(seconds=number) for number in range(ROWS)]
    table = pa.table({"at": seconds, "value": range(ROWS)})
    rows = flow.source("S", fn.replay(table, rate=rate), time="at", workers=1)
    rows.map("K", lambda row: row).sink("out", fn.parquet(place))
    return flow


def values(spark: SparkSession, *places: Path) -> list[int]:
    """What has been written there, in order."""
    return sorted(row["value"] for place in places for row in spark.read.parquet(str(place)).collect())


def test_a_run_begins_where_it_is_told(spark: SparkSession, kept: Callable[[Run], Run], tmp_path: Path) -> None:
    """At a time, or where the checkpoint of another run was, also if it is restored before it has read a row.

    A fork takes the staged rows along, so the directory of its origin may be deleted.
    """
    first, place = stamped(tmp_path / "first", rate=500), tmp_path / "place"
    run = kept(first.run(spark, hosts=1, checkpoint=place, commit_interval_s=None, start={"S": "2026-11-01T00:10"}))
    until(lambda: run.metrics().operators["out"].processed > 300, run)
    run.suspend()
    begun = values(spark, tmp_path / "first")
    assert begun == list(range(600, 600 + len(begun)))
    rest = list(range(600 + len(begun), ROWS))
    positions = fn.checkpoint(place).positions()
    kept(stamped(tmp_path / "second").run(spark, hosts=1, start={"S": positions})).wait(PATIENCE_S)
    assert values(spark, tmp_path / "second") == rest
    third = tmp_path / "third"
    fork = first.fork(place, {"out": fn.parquet(third)}, spark, hosts=1, checkpoint=tmp_path / "own")
    shutil.rmtree(place)
    kept(fork).set_rate("S", 100_000)
    fork.wait(PATIENCE_S)
    assert values(spark, third) == rest
