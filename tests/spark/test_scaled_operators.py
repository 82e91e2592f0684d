"""Single operators get other numbers of workers on real Spark: whatever happens meanwhile, every row comes out once."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from patience import PATIENCE_S
from pyspark.sql import SparkSession
from run_setting import until, wait_for_more

import fries_nb as fn
from fries_nb.errors import PlanError
from fries_nb.run import Run
from fries_nb.running.rescales import Rescale

SPLITS, KEYS = 32, 96
"""Of a source with two workers; the rows of a key are all of one split, in order."""


class Count:
    """Numbers the rows of each key."""

    def __init__(self, version: int = 1) -> None:
        self.version = version

    def initial_state(self) -> list[int]:
        """None yet."""
        return [0]

    def process(self, row: dict[str, Any], state: list[int]) -> dict[str, Any]:
        """The row with its number."""
        state[0] += 1
        return {**row, "nth": state[0], "counted_by": self.version}


class Tag:
    """Says by which version and process; cannot be opened as long as there is a file of this name."""

    def __init__(self, version: int = 1, obstacle: str = "") -> None:
        self.version = version
        self.obstacle = obstacle

    def open(self) -> None:
        """Fail if it is there."""
        if self.obstacle and os.path.exists(self.obstacle):
            raise OSError("no model here")

    def process(self, row: dict[str, Any]) -> dict[str, Any]:
        """The row, tagged."""
        return {**row, "tagged_by": self.version, "pid": os.getpid()}


def keyed(value: int) -> dict[str, Any]:
    """The key of a row."""
    return {"key": value % KEYS}


class Numbers(fn.Source):
    """The numbers from 0, in two splits, by a source of the user's own."""

    def splits(self, count: int) -> list[fn.Split]:
        """Even and odd ones, however many are asked for."""
        return [fn.Split(0), fn.Split(1)]

    def open(self, split: fn.Split, position: fn.Position) -> NumberReader:
        """Read on behind the rows that were read."""
        return NumberReader(split.number, position)


class NumberReader:
    """Reads every second number."""

    def __init__(self, first: int, position: fn.Position) -> None:
        self.position = position
        self._first = first

    def read(self, limit: int, now_ns: int) -> pa.RecordBatch:
        """So many of them."""
        start = self.position.row
        self.position = fn.Position(start + limit)
        values = [self._first + 2 * number for number in range(start, start + limit)]
        return pa.RecordBatch.from_pylist([{"value": value, **keyed(value)} for value in values])

    def close(self) -> None:
        """Nothing is open."""


def declared(
    sink: Any, workers: int | None = 2, version: int = 1, obstacle: str = "", extra: bool = False, rate: float = 900
) -> fn.Dataflow:
    """Rows are numbered by key, tagged and written; the last three operators are connected by forward edges."""
    flow = fn.Dataflow("scaled")
    rows = flow.source("numbers", fn.rate(rate, row=keyed), workers=2)
    rows = rows.map("count", Count(), key="key", workers=workers).map("tag", Tag(version, obstacle), workers=workers)
    if extra:
        rows = rows.map("more", lambda row: {**row, "more": 1}, workers=3)
    rows.sink("out", sink)
    return flow


def sizes(run: Run, *operators: str) -> tuple[int, ...]:
    """The numbers of workers."""
    workers = run.topology().workers
    return tuple(len(workers[name]) for name in operators)


def done(rescale: Rescale | None) -> None:
    """Wait for a rescale that is to be made."""
    assert rescale is not None
    result = rescale.result(timeout=PATIENCE_S)
    assert (result.outcome, result.error) == ("done", "")


def refuse_errors(run: Run, rows: list[dict[str, Any]], splits: int = SPLITS) -> None:
    """Each row is there once, numbered as a plain loop numbers those of its key, as far as each split was read."""
    for split in range(splits):
        found = sorted((row["value"], row["nth"]) for row in rows if row["value"] % splits == split)
        read = range(split, split + splits * len(found), splits)
        assert found == [(value, value // KEYS + 1) for value in read], f"split {split}"
    verdict = run.audit()
    assert (verdict.serializable, verdict.claim) == (True, "complete"), str(verdict)


def test_operators_grow_shrink_and_grow_again_while_rows_flow(
    spark: SparkSession, started: Callable[..., Run], tmp_path: Path
) -> None:
    """A keyed one takes those on its forward edges along, and its Parquet files; the source keeps its rate."""
    files, obstacle = str(tmp_path / "files"), tmp_path / "obstacle"
    run = started(declared(fn.parquet(files), obstacle=str(obstacle)), hosts=2, audit=True, commit_interval_s=0.3)
    wait_for_more(run)
    assert sizes(run, "numbers", "count", "tag", "out") == (2, 2, 2, 2)
    done(run.rescale(workers={"count": 4}))
    assert sizes(run, "numbers", "count", "tag", "out") == (2, 4, 4, 4)
    assert {owner: len(bins) for owner, bins in run.topology().bins("count").items()} == dict.fromkeys(range(4), 256)
    assert run.topology().workers["count"] == (0, 1, 0, 1)
    wait_for_more(run)
    done(run.rescale(workers={"out": 1, "numbers": 3}))
    assert sizes(run, "numbers", "count", "tag", "out") == (3, 1, 1, 1)
    wait_for_more(run)
    requests = [run.rescale(workers={"tag": number}) for number in (3, 2, 3)]
    requests[1].cancel()
    change = run.reconfigure({"count": Count(2)})
    requests.append(run.rescale(workers={"numbers": 1}))
    done(requests[0])
    assert requests[1].result(PATIENCE_S).error == "it was cancelled; nothing changed"
    done(requests[2])
    done(requests[3])
    assert change.result(PATIENCE_S).outcome == "done"
    assert sizes(run, "numbers", "count", "tag", "out") == (1, 3, 3, 3)
    wait_for_more(run)
    obstacle.touch()
    failed = run.rescale(workers={"tag": 4}).result(timeout=PATIENCE_S)
    obstacle.unlink()
    assert (failed.outcome, failed.error) == (
        "aborted", "count[3] cannot run (tag failed in open(): OSError: no model here); nothing changed"
    )  # fmt: skip
    assert sizes(run, "count", "tag", "out") == (3, 3, 3)
    wait_for_more(run)
    assert set(run.metrics().operators) == {"numbers", "count", "tag", "out"}
    assert len(run.workers()) == 10
    run.stop()
    written = [row.asDict() for row in spark.read.parquet(files).collect()]
    assert len(written) == run.output().count()
    assert {row["counted_by"] for row in written} == {1, 2}
    refuse_errors(run, written)


class Sums:
    """The sum of the values of a key in a window."""

    def initial_state(self) -> list[int]:
        """Nothing yet."""
        return [0]

    def process(self, row: dict[str, Any], state: list[int]) -> None:
        """Add a row."""
        state[0] += row["value"]

    def close(self, key: int, time: int, state: list[int]) -> dict[str, Any]:
        """The sum."""
        return {"key": key, "end": time, "sum": state[0]}


def windows(workers: int) -> fn.Dataflow:
    """Rows whose time is their number, in windows by key; every number of workers is declared."""
    flow = fn.Dataflow("windows")
    rows = flow.source("numbers", fn.rate(600, row=lambda value: {"key": value % 20}), time="value", workers=1)
    rows = rows.map("tag", Tag(), workers=2)
    rows.window("sums", Sums(), fn.tumbling(200), key="key", workers=workers).sink("out", fn.memory())
    return flow


def test_a_window_grows_and_its_host_dies(started: Callable[..., Run], tmp_path: Path) -> None:
    """Its open windows move; behind the restart an operator grows without the source that is as parallel by chance."""
    run = started(windows(2), hosts=2, audit=True, checkpoint=tmp_path / "c", commit_interval_s=0.3)
    wait_for_more(run, 20)
    grown = run.apply(windows(4))
    assert isinstance(grown, Rescale)
    done(grown)
    assert sizes(run, "sums", "out") == (4, 4)
    assert not run.diff(windows(4))
    wait_for_more(run, 20)
    done(run.rescale(workers={"tag": 1, "sums": 3}))
    wait_for_more(run, 20)
    until(lambda: bool(run.checkpoints), run)
    os.kill(run.host_processes[1], signal.SIGKILL)
    until(lambda: bool(run.recoveries) and run.recoveries[-1].seconds is not None, run)
    assert sizes(run, "numbers", "tag", "sums") == (1, 1, 3)
    done(run.rescale(workers={"tag": 3}))
    with pytest.raises(PlanError, match="splits of numbers do not move yet in a dataflow with times"):
        run.rescale(workers={"numbers": 2})
    wait_for_more(run, 20)
    run.stop()
    rows = run.output().collect()
    last = max(row["end"] for row in rows) - 200
    sums: Counter[tuple[int, int]] = Counter()
    for value in range(last):
        sums[value % 20, value // 200 * 200 + 200] += value
    found = Counter((row["key"], row["end"], row["sum"]) for row in rows if row["end"] <= last)
    assert found == Counter((*place, total) for place, total in sums.items())
    assert run.audit().serializable


def test_numbers_functions_and_the_shape_differ_at_once_and_then_a_host_leaves(
    spark: SparkSession, started: Callable[..., Run], kept: Callable[[Run], Run], tmp_path: Path
) -> None:
    """The rescale is behind the change; a resumed run has the declared numbers, and nothing is lost or doubled."""
    files, place = fn.parquet(str(tmp_path / "files")), tmp_path / "c"
    run = started(declared(files), hosts=2, audit=True, checkpoint=place, commit_interval_s=0.3)
    wait_for_more(run)
    edited = declared(files, workers=4, version=2, extra=True)
    change = run.apply(edited)
    rescaling = run.rescaling
    assert repr(rescaling) == "Rescale(to 4 workers of count and 4 of tag: under way)"
    assert not isinstance(change, Rescale)
    assert change.result(PATIENCE_S).outcome == "done"
    done(rescaling)
    assert sizes(run, "count", "tag", "more", "out") == (4, 4, 3, 2)
    assert not run.diff(edited)
    done(run.rescale(workers={"out": 3}))
    wait_for_more(run)
    done(run.rescale(1))
    assert run.topology().hosts == (0,)
    left = sizes(run, "count", "tag", "more", "out")
    assert left == (2, 2, 2, 2)
    assert {len(bins) for bins in run.topology().bins("count").values()} == {512}
    done(run.rescale(workers={"count": 3}))
    wait_for_more(run)
    assert run.apply(declared(files, workers=3, version=2)).result(PATIENCE_S).outcome == "done"
    wait_for_more(run)
    assert run.audit().serializable
    run.suspend(PATIENCE_S)
    again = kept(declared(files, version=2).resume(place, spark, hosts=2, audit=True))
    assert sizes(again, "count", "tag", "out") == (2, 2, 2)
    wait_for_more(again)
    done(again.rescale(workers={"count": 4}))
    wait_for_more(again)
    again.stop()
    refuse_errors(again, [row.asDict() for row in again.output().collect()])


def test_workers_of_a_users_own_source_read_its_splits(started: Callable[..., Run]) -> None:
    """Of two splits: more workers than these have none to read, and the others go on where they were."""
    flow = fn.Dataflow("own")
    flow.source("numbers", Numbers(), workers=1).map("count", Count(), key="key", workers=2).sink("out", fn.memory())
    run = started(flow, hosts=2, audit=True)
    run.set_rate("numbers", 1_500)
    for number in (2, 3, 1):
        wait_for_more(run)
        done(run.rescale(workers={"numbers": number}))
        assert sizes(run, "numbers") == (number,)
    wait_for_more(run)
    run.stop()
    refuse_errors(run, [row.asDict() for row in run.output().collect()], splits=2)
