"""Looks at operators of every kind: what each shows of its rows and states, while its run goes on and afterwards."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from patience import PATIENCE_S
from pyspark.sql import SparkSession
from run_setting import ended_runs, until

import fries_nb as fn
from fries_nb.errors import DataflowError, PlanError, RunError
from fries_nb.run import Run

KEYS = 7
BAD = 300
STATEFUL = {"D", "C", "W"}


@fn.batched
class Priced:
    """A function of batches, which cannot take one of the rows until it is mended."""

    def __init__(self, version: int = 0) -> None:
        self.version = version

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows with their price."""
        if not self.version and pc.any(pc.equal(batch.column("value"), BAD)).as_py():
            raise ValueError("no price")
        price = pc.multiply(batch.column("value"), 2 + self.version)
        return batch.append_column("price", price)


class Counts:
    """Counts the rows of a key."""

    def __init__(self, version: int = 0) -> None:
        self.version = version

    def process(self, row: dict[str, Any], state: dict[str, int]) -> dict[str, Any]:
        """The row with its number."""
        state["count"] = state.get("count", 0) + 1
        return {**row, "nth": state["count"]}


class Total:
    """The sum of a window."""

    def __init__(self, version: int = 0) -> None:
        self.version = version

    def process(self, row: dict[str, Any], state: dict[str, int]) -> None:
        """Add a row."""
        state["sum"] = state.get("sum", 0) + row["price"]

    def close(self, key: int, time: int, state: dict[str, int]) -> dict[str, Any]:
        """The row of a window."""
        return {"key": key, "end": time, "sum": state["sum"], "version": self.version}


def twice(row: dict[str, Any]) -> Iterable[dict[str, Any]]:
    """A row as two."""
    yield {**row, "part": 0}
    yield {**row, "part": 1}


def declared(spark: SparkSession) -> fn.Dataflow:
    """Operators of all kinds that a region has."""
    flow = fn.Dataflow("kinds")
    names = spark.createDataFrame([(key, f"shop {key}") for key in range(KEYS)], "key long, name string")
    rows = flow.source("S", fn.rate(200, row=lambda value: {"key": value % KEYS, "at": value // 100}), time="at")
    rows = rows.map("B", Priced(), on_error=fn.memory()).join("J", names, on="key")
    rows = rows.filter("F", lambda row: row["key"] < 6)
    low, high = rows.flat_map("X", twice).dedup("D", on=["value", "part"]).split("P", lambda row: row["key"] > 2)
    one, other = low.map("C", Counts(), key="key").replicate("R")
    one.sink("counted", fn.memory())
    high.union("U", other).window("W", Total(), fn.tumbling(5), key="key").sink("summed", fn.memory())
    return flow


def check(run: Run) -> None:
    """Every operator shows its rows, along each edge, too; those with a state show it, and the others say so."""
    for name, operator in run.graph.by_name.items():
        sides = {"in", "out"} - ({"in"} if operator.traits.is_source else {"out"} if operator.traits.is_sink else set())
        assert set(run.rows(name)["_side"]) == sides, name
        found = run.rows(name, where=lambda row: True, n=4, timeout=PATIENCE_S)
        assert set(found["_side"]) <= sides, name
        assert len(found), name
        if name in STATEFUL:
            states = run.state(name, n=None)
            keys = states["key"].tolist() if "key" in states else [*zip(states["value"], states["part"], strict=True)]
            assert len(run.state(name, keys=keys[:9])) >= min(len(keys), 9) > 0, name
        else:
            with pytest.raises(DataflowError, match=f"{name} keeps no state; those that do: D, C, W"):
                run.state(name)
    for edge in run.graph.edges:
        assert set(run.rows(fn.edge(edge.source, edge.to))["_side"]) == {"out"}, edge
    assert set(run.state_sizes()["operator"]) == STATEFUL


def test_operators_of_one_region(spark: SparkSession) -> None:
    """Batched functions, joins, windows and all others; while the run goes on, and when it was cancelled."""
    with ended_runs() as runs:
        run = declared(spark).run(spark, hosts=2, workers=2, audit=True, commit_interval_s=0.5)
        runs.append(run)
        until(lambda: run.metrics().operators["summed"].processed > 20, run)
        check(run)
        assert {"price", "name"} <= set(run.rows("J")), "what the table adds"
        assert {"sum", "_start", "_end"} <= set(run.state("W"))
        change = run.reconfigure({"B": Priced(1), "C": Counts(1), "W": Total(1)})
        assert change.result(PATIENCE_S).outcome == "done"
        before = run.metrics().operators["summed"].processed
        until(lambda: run.metrics().operators["summed"].processed > before + 20, run)
        changed = {one.operator for one in change.effect().measures if one.before is not None is not one.after}
        assert changed == {"B", "C", "W", "counted", "summed"}
        assert "B" in {one.operator for one in change.examples().rows}
        until(lambda: run.dead_letters("B").count() > 0, run)
        with pytest.raises(PlanError, match="B is in a dataflow with times or loops, where rows do not go back"):
            run.requeue("B")
        way = run.rows(source=run.rows("counted")["_source"].iloc[0])
        assert set(way["_operator"]) <= {"S", "B", "J", "F", "X", "D", "P", "C", "R", "U", "W", "counted"}
        run.cancel()
        with warnings.catch_warnings(action="error"):  # which a part that a host has not left would be told by
            for name, operator in run.graph.by_name.items():
                lacks = {"in"} if operator.traits.is_source else {"out"} if operator.traits.is_sink else set[str]()
                assert set(run.rows(name)["_side"]) == {"in", "out"} - lacks, name
                assert name not in STATEFUL or len(run.state(name, n=None)), name
        assert set(run.state_sizes()["operator"]) == STATEFUL
        assert "has switched at marker" in str(change.story()), "commits since do not push it out"
        assert {one.operator for one in change.effect().measures} == {"B", "C", "W", "counted", "summed"}


class Picky(Counts):
    """Counts the rows of a key, but for some, until it is mended."""

    def process(self, row: dict[str, Any], state: dict[str, int]) -> dict[str, Any]:
        """The row with its number."""
        if row["value"] % 11 == 10 and self.version < 2:
            raise ValueError("no")
        return super().process(row, state)


def test_operators_of_two_regions(spark: SparkSession, tmp_path: Path) -> None:
    """What belongs to a region that has not begun, or has ended, says so; what it has left is shown."""
    flow = fn.Dataflow("two")
    numbers = flow.source("S", fn.rate(20, row=lambda value: {"key": value % 3}, count=400), workers=1)
    total = numbers.map("A", Picky(), key="key", on_error=fn.memory()).aggregate("G", "key", {"value": "sum(value)"})
    ticks = flow.source("T", fn.rate(50, row=lambda value: {"key": value % 3}), workers=1).map("E", dict)
    total.union("U", ticks).map("C", Picky(), key="key", on_error=fn.memory()).sink("out", fn.memory())
    with ended_runs() as runs:
        run = flow.run(spark, hosts=1, workers=1, audit=True, checkpoint=tmp_path / "kept", commit_interval_s=0.5)
        runs.append(run)
        until(lambda: run.metrics().operators["A"].processed > 20, run)
        change = run.reconfigure({"A": Picky(1)})
        assert change.result(PATIENCE_S).outcome == "done"
        later = "has not begun: its region of the dataflow begins when those above have ended"
        for call in (
            lambda: run.rows("C"), lambda: run.rows("C", where=bool), lambda: run.rows(fn.edge("U", "C")),
            lambda: run.state("C"), lambda: run.state("C", at="marker"), lambda: run.set_state("C", {1: {"count": 2}}),
            lambda: run.rows(source=("T", 0, 3)),
        ):  # fmt: skip
            with pytest.raises(RunError, match=later):
                call()
        assert run.dead_letters("C").count() == run.requeue("C").result(PATIENCE_S).rows == 0
        assert run.state_sizes()["keys"].tolist() == [3, 0]
        assert {one.operator for one in change.effect().measures} == {"A"}
        with pytest.raises(PlanError, match=r"U is in another region of the dataflow than source=\('S', 0, 3\)"):
            run.rows("U", source=("S", 0, 3))
        run.set_rate("S", 5_000)
        until(lambda: "C" in run.metrics().operators and run.metrics().operators["C"].processed > 50, run)
        assert {row[0] for row in run.rows("A")["_source"]} == {"S"}
        assert {row[0] for row in run.rows("C")["_source"]} <= {"G", "T"}
        assert set(run.rows(source=run.rows("A")["_source"].iloc[0])["_operator"]) <= {"S", "A", "G"}
        assert len(run.state("A")) == len(run.state("C")) == 3
        ended = "A ran in region 1 of 2, which has finished"
        for call in (
            lambda: run.state("A", at="marker"), lambda: run.state("A", to=tmp_path / "state.parquet"),
            lambda: run.set_state("A", {1: {"count": 2}}), lambda: run.examples({"A": Picky(2)}),
            lambda: run.requeue("A"),
        ):  # fmt: skip
            with pytest.raises(PlanError, match=ended):
                call()
        assert len(run.state("C", at="marker")) == run.state("C", to=tmp_path / "state.parquet") == 3
        assert run.set_state("C", {1: {"count": 10**6}}).result(PATIENCE_S).outcome == "done"
        until(lambda: run.dead_letters("C").count() > 0, run)
        assert run.requeue("C", limit=1).result(PATIENCE_S).rows == 1
        assert run.dead_letters("A").count() > 0
        assert {one.operator for one in change.effect().measures} == {"A", "out"}
