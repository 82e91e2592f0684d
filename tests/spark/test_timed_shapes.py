"""A dataflow with times changes its shape on Spark: windows go on, and a window that is added begins."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from patience import PATIENCE_S
from pyspark.sql import SparkSession
from run_setting import kill_at, until

import fries_nb as fn
from fries_nb.controller.states import ReshapingPhase
from fries_nb.errors import PlanError
from fries_nb.run import Run


class Sum:
    """The sum and the number of a window's rows."""

    def initial_state(self) -> list[int]:
        """Nothing."""
        return [0, 0]

    def process(self, row: dict[str, Any], state: list[int]) -> None:
        """Add a row."""
        state[0] += row["value"]
        state[1] += 1

    def close(self, key: int, time: int, state: list[int]) -> dict[str, Any]:
        """The result of a window."""
        return {"key": key, "end": time, "sum": state[0], "count": state[1]}


def timed(value: int) -> dict[str, Any]:
    """A row of one of five keys at a time."""
    return {"value": value, "key": value % 5, "at": value}


def declared(*edits: str) -> fn.Dataflow:
    """Sums of windows, with an operator in front, a branch, a second window, or none of them."""
    flow = fn.Dataflow("timed")
    rows = flow.source("S", fn.rate(100, count=COUNT, row=timed), time="at", workers=1).map("A", dict, workers=2)
    into = rows.filter("N", lambda row: row["value"] >= 0, workers=1) if "N" in edits else rows
    into.window("W", Sum(), fn.tumbling(100), key="key", workers=2).sink("sums", fn.memory(), workers=1)
    if "branch" in edits:
        rows.filter("P", lambda row: row["key"] == 3, workers=1).sink("threes", fn.memory(), workers=1)
    if "window" in edits:
        rows.window("W2", Sum(), fn.tumbling(50), key="key", workers=2).sink("halves", fn.memory(), workers=1)
    if "long" in edits:
        rows.window("L", Sum(), fn.tumbling(COUNT), key="key", workers=2).sink("whole", fn.memory(), workers=1)
    if "source" in edits:
        other = flow.source("T", fn.rate(100, count=COUNT, row=timed), time="at", workers=2)
        other.window("W3", Sum(), fn.tumbling(100), key="key", workers=2).sink("others", fn.memory(), workers=1)
    return flow


def sums_of(size: int) -> dict[tuple[int, int], tuple[int, int]]:
    """Key and end of each window to the sum and the number of its rows."""
    found: dict[tuple[int, int], tuple[int, int]] = {}
    for value in range(COUNT):
        place = value % 5, (value // size + 1) * size
        total, count = found.get(place, (0, 0))
        found[place] = total + value, count + 1
    return found


def output(run: Run, sink: str) -> dict[tuple[int, int], tuple[int, int]]:
    """The same of what a sink has."""
    rows = run.output(sink).collect()
    found = {(row["key"], row["end"]): (row["sum"], row["count"]) for row in rows}
    assert len(found) == len(rows), "a window was closed twice"
    return found


COUNT = 60_000  # ten minutes, of which the edits take a few seconds
EDITS: tuple[tuple[str, ...], ...] = (("N",), ("N", "branch"), ("branch",), ("branch", "window"), ("N", "window"))


def test_windows_go_on_while_the_shape_changes(spark: SparkSession, kept: Callable[[Run], Run]) -> None:
    """Audited, on two hosts; what is refused is refused by name."""
    run = kept(declared().run(spark, hosts=2, workers=2, audit=True, commit_interval_s=0.3))
    until(lambda: run.metrics().operators["sums"].processed > 0, run)
    for edits in EDITS:
        change = run.apply(declared(*edits))
        assert change.result(PATIENCE_S).outcome == "done", change.result()
        passed = run.metrics().operators["sums"].processed
        until(lambda passed=passed: run.metrics().operators["sums"].processed > passed, run)  # type: ignore[misc]
    assert "- W2 (window); its state is dropped" in run.diff(declared("N")).lines
    assert {"sums", "halves"} <= {one.operator for one in run.frontiers()}
    run.set_rate("S", 1_000_000)
    run.wait(PATIENCE_S)
    verdict = run.audit()
    assert (verdict.serializable, verdict.mixed, verdict.lost, verdict.doubled) == (True, (), (), ()), verdict
    assert output(run, "sums") == sums_of(100)
    halves = [row["count"] for row in run.output("halves").collect()]
    assert halves.count(10) > len(halves) * 0.5  # whole ones, behind the first
    assert {row["key"] for row in run.output("threes").collect()} == {3}


def test_windows_and_sources_come_and_go(spark: SparkSession, kept: Callable[[Run], Run]) -> None:
    """What a window had emitted before it was removed is whole, and a source that is added has all of its results."""
    run = kept(declared("window").run(spark, hosts=2, workers=2, audit=True, commit_interval_s=0.3))
    until(lambda: run.metrics().operators["halves"].processed > 0, run)
    with pytest.raises(PlanError, match=r"W2: its state is dropped; expected drop=\['W2'\]"):
        run.apply(declared("long", "source"))
    change = run.apply(declared("long", "source"), drop=["W2"])
    assert change.result(PATIENCE_S).outcome == "done", change.result()
    until(lambda: min(run.metrics().operators[name].processed for name in ("L", "others")) > 0, run)
    change = run.apply(declared("source"), drop=["L"])
    assert change.result(PATIENCE_S).outcome == "done", change.result()
    outcome = run.rollback().result(PATIENCE_S)
    assert outcome.outcome == "aborted", outcome
    assert "L cannot return: windows, calls or tokens were open when it was removed" in outcome.error
    passed = run.metrics().operators["sums"].processed
    until(lambda: run.metrics().operators["sums"].processed > passed, run)
    _read_to_the_end(run)
    assert output(run, "halves")


def _read_to_the_end(run: Run) -> None:
    """What was there all the time has all results, and so has the source that was added; the rest has whole ones."""
    for source in ("S", "T"):
        run.set_rate(source, 1_000_000)
    run.wait(PATIENCE_S)
    verdict = run.audit()
    assert (verdict.serializable, verdict.mixed, verdict.lost, verdict.doubled) == (True, (), (), ()), verdict
    assert output(run, "sums") == output(run, "others") == sums_of(100)
    assert output(run, "halves").items() <= sums_of(50).items()


def test_a_host_dies_while_a_window_goes_and_a_source_comes(
    spark: SparkSession, kept: Callable[[Run], Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The change was decided; behind the restart the window is gone, and nothing below waits for it."""
    flow = declared("window")
    run = kept(flow.run(spark, hosts=2, workers=2, checkpoint=tmp_path / "c", audit=True, commit_interval_s=0.3))
    until(lambda: bool(run.checkpoints) and run.metrics().operators["halves"].processed > 0, run)
    killed = kill_at(ReshapingPhase.SWITCHING, run, monkeypatch)
    outcome = run.apply(declared("source"), drop=["W2"]).settled(PATIENCE_S)
    until(lambda: bool(run.recoveries) and run.recoveries[-1].seconds is not None, run)
    assert (bool(killed), outcome.outcome) == (True, "done"), outcome
    until(lambda: run.metrics().operators["others"].processed > 0, run)
    _read_to_the_end(run)
