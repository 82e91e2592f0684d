"""A run goes on in another shape: the checkpoint of one dataflow, resumed by a dataflow with other operators."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from patience import PATIENCE_S
from pyspark.sql import SparkSession
from run_setting import until

import fries_nb as fn
from fries_nb.errors import CheckpointError
from fries_nb.run import Run


class Numbered:
    """How many tuples of its key there have been."""

    def __init__(self, column: str) -> None:
        self.column = column

    def initial_state(self) -> list[int]:
        """None yet."""
        return [0]

    def process(self, row: dict[str, Any], state: list[int]) -> dict[str, Any]:
        """The row with its number."""
        state[0] += 1
        return row | {self.column: state[0]}


def keyed(row: dict[str, Any]) -> dict[str, Any]:
    """A row of one of seven keys."""
    return row | {"key": row["value"] % 7}


def earlier(place: Path) -> fn.Dataflow:
    """Two numbers for each row, and a sink that will be gone."""
    flow = fn.Dataflow("shapes")
    rows = flow.source("S", fn.rate(1_000), workers=1).map("K", keyed).map("Old", Numbered("old"), key="key")
    numbered = rows.map("N", Numbered("number"), key="key")
    numbered.sink("out", fn.memory())
    numbered.sink("gone", fn.parquet(place))
    return flow


def later() -> fn.Dataflow:
    """One of them, a filter in front, a branch with another number, and a second source."""
    flow = fn.Dataflow("shapes")
    rows = flow.source("S", fn.rate(1_000), workers=1).map("K", keyed).filter("Small", lambda row: row["key"] < 5)
    numbered = rows.map("N", Numbered("number"), key="key")
    numbered.union("U", flow.source("T", fn.rate(100, count=50), workers=1).map("M", keyed)).sink("out", fn.memory())
    numbered.map("Two", Numbered("second"), key="key").sink("new", fn.memory())
    return flow


def test_a_run_goes_on_in_another_shape(spark: SparkSession, kept: Callable[[Run], Run], tmp_path: Path) -> None:
    """Kept state counts on, new state begins, and what is left out has to be named; back again by name as well."""
    place, files = tmp_path / "place", tmp_path / "files"
    run = kept(earlier(files).run(spark, hosts=2, workers=2, checkpoint=place, commit_interval_s=0.3, audit=True))
    until(lambda: run.metrics().operators["out"].processed > 300, run)
    run.suspend()
    before = len(run.output("out").collect())
    written = spark.read.parquet(str(files)).count()
    assert written == before
    with pytest.raises(CheckpointError, match=r"its operator Old, .* expected drop=\['Old'\]"):
        later().resume(place, spark)
    again = kept(later().resume(place, spark, hosts=1, commit_interval_s=0.3, audit=True, drop=["Old"]))
    assert {one.name: one.workers for one in again.graph.operators}["N"] == 2
    until(lambda: again.metrics().operators["new"].processed > 200, again)
    until(lambda: again.metrics().operators["M"].processed == 50, again)  # all rows of T
    again.stop()
    assert again.audit().serializable
    rows, second = again.output("out").collect(), again.output("new").collect()
    assert spark.read.parquet(str(files)).count() == written
    counts: dict[int, list[int]] = {}
    for row in rows:
        if row["number"] is not None:
            counts.setdefault(row["key"], []).append(row["number"])
    assert all(sorted(found) == list(range(1, len(found) + 1)) for found in counts.values())
    assert sum(row["number"] is None for row in rows) == 50
    firsts = Counter(row["key"] for row in second if row["second"] == 1)
    assert firsts == dict.fromkeys(range(5), 1)


class Sum:
    """The sum of the values of a window, or of a key."""

    def open(self) -> None:
        """Nothing to open."""

    def process(self, row: dict[str, Any], state: dict[str, int]) -> None:
        """Add a row."""
        state["n"] = state.get("n", 0) + row["value"]

    def close(self, key: int, time: int, state: dict[str, int]) -> dict[str, Any]:
        """The sum."""
        return {"key": key, "at": time, "sum": state["n"]}


class Twice(Sum):
    """Twice that sum."""

    def close(self, key: int, time: int, state: dict[str, int]) -> dict[str, Any]:
        """Two sums."""
        return {"key": key, "at": time, "sum": 2 * state["n"]}


def windowed(function: type[Sum], size: int, names: list[str], reduce: type[Sum]) -> fn.Dataflow:
    """A window, a join with a table, and a reduce."""
    import pyarrow as pa

    flow = fn.Dataflow("windows")
    rows = flow.source("S", fn.rate(500), workers=1, time="value").map("K", keyed)
    table = pa.table({"key": list(range(7)), "name": [f"{name}{key}" for key in range(7) for name in names[:1]]})
    rows.window("W", function(), fn.tumbling(size), key="key").join("J", table, on="key").sink("out", fn.memory())
    rows.reduce("R", reduce(), key="key").sink("sums", fn.memory())
    return flow


def test_windows_and_tables_of_a_cell_are_applied(spark: SparkSession, kept: Callable[[Run], Run]) -> None:
    """Each edit of the cell is a difference that the run takes, and none is left of it."""
    cell: list[Any] = [Sum, 500, ["a"], Sum]
    run = kept(windowed(*cell).run(spark, hosts=1, workers=1))
    until(lambda: run.metrics().operators["out"].processed > 0, run)
    for place, edit in enumerate([Twice, 250, ["b"], Twice]):
        cell[place] = edit
        change = run.apply(windowed(*cell))
        assert change.result(PATIENCE_S).outcome == "done", change.result(0).error
        assert not run.diff(windowed(*cell))
    run.stop()
