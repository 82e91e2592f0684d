"""Operators are added with given states to a run on Spark, whose hosts and driver die right behind the decision."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from patience import PATIENCE_S
from pyspark.sql import SparkSession
from run_setting import until

import fries_nb as fn
from fries_nb.errors import DataflowError, UncommittedWarning
from fries_nb.run import Run

KEYS = range(7)


@dataclass
class Total:
    """What is known of a key."""

    count: int = 0
    since: Any = "never"


class Numbers:
    """Counts the rows of a key."""

    def __init__(self, column: str) -> None:
        self.column = column

    def initial_state(self) -> Total:
        """None yet."""
        return Total()

    def process(self, row: dict[str, Any], state: Total) -> dict[str, Any]:
        """The row with its number."""
        state.count += 1
        return row | {self.column: state.count}


def declared(*names: str) -> fn.Dataflow:
    """Rows of seven keys, and of each key the number of rows, by an operator for each name."""
    flow = fn.Dataflow("given")
    rows = flow.source("S", fn.rate(1_000, row=lambda value: {"key": value % len(KEYS)}), workers=1)
    for name in names:
        rows = rows.map(name, Numbers(name.lower()), key="key")
    rows.sink("out", fn.memory())
    return flow


def base(change: int) -> dict[int, Total]:
    """What a change gives to all keys but one."""
    return {key: Total(change * 100_000 + 1_000 * key, "before") for key in KEYS if key}


def refuse_gaps(rows: list[Any], column: str, *given: dict[int, Total]) -> None:
    """Each row was counted from a given count on, or from nothing, without a gap and no two alike."""
    for key in KEYS:
        found = sorted(row[column] for row in rows if row["key"] == key and row[column] is not None)
        for start in (states.get(key, Total()).count for states in given if key or states is given[-1]):
            counted = [one for one in found if start < one <= start + 50_000]
            assert counted == list(range(start + 1, start + 1 + len(counted))), (key, start)
            found = [one for one in found if one not in {*counted}]
        assert found == [], key


def test_given_states_outlive_hosts_and_driver(
    spark: SparkSession, kept: Callable[[Run], Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are there before the first row, are given once, go with a rollback, and come with the change again."""
    place, first = tmp_path / "place", base(1)
    options: dict[str, Any] = {"hosts": 2, "checkpoint": place, "audit": True}
    run = kept(declared("Old").run(spark, workers=2, commit_interval_s=3_600, **options))
    until(lambda: run.metrics().operators["out"].processed > 300, run)
    run.checkpoint(PATIENCE_S)
    difference = run.diff(declared("New"), state={"New": first})
    assert difference.states == {"Old": "its state is dropped", "New": "it begins with 6 keys that are given"}
    assert run.apply(declared("New"), state={"New": first}, drop=["Old"]).result(PATIENCE_S).outcome == "done"
    os.kill(run.host_processes[1], signal.SIGKILL)
    until(lambda: bool(run.recoveries) and run.recoveries[-1].seconds is not None, run)
    states = run.state("New", keys=[*first], timeout=PATIENCE_S)
    assert all(count >= first[key].count for key, count in zip(states["key"], states["count"], strict=True)), states
    assert len(states) == len(first)
    with pytest.warns(UncommittedWarning):
        run.cancel(PATIENCE_S)  # nothing was stored behind the decision, as if the driver had died

    resumed: dict[str, Any] = {"hosts": 2, "commit_interval_s": 0.3, "audit": True, "drop": ["Old"]}
    again = kept(declared("New").resume(place, spark, **resumed))  # the checkpoint is one of before
    until(lambda: again.metrics().operators["out"].processed > 100, again)
    handed = again.state("New", n=None, timeout=PATIENCE_S)
    refused = again.apply(declared("New", "More"), state={"More": handed}).settled(PATIENCE_S)
    assert "the state given to More for key" in refused.error
    assert "is a dict; expected a Total, as More makes for a new key" in refused.error
    strange = {f"k{key}": Total(7) for key in range(30)}  # some of them are on the host that rehearses
    refused = again.apply(declared("New", "More"), state={"More": strange}).settled(PATIENCE_S)
    assert "More was given states of keys such as 'k" in refused.error
    monkeypatch.setattr("fries_nb.spark.launch.MOST_GIVEN", 1 << 20)
    for state, words in (
        (Total(since=threading.Lock()), "the given state of More cannot be pickled"),
        (Total(since=bytes(1 << 20)), r"state= is 1,[\d,]+ bytes long, pickled; expected at most 1,048,576: they are"),
    ):
        with pytest.raises(DataflowError, match=words):
            again.apply(declared("New", "More"), state={"More": {1: state}})
    given = [base(2), base(3)]
    for states in given:
        assert again.apply(declared("New", "More"), state={"More": states}).result(PATIENCE_S).outcome == "done"
        before = again.metrics().operators["out"].processed
        until(lambda before=before: again.metrics().operators["out"].processed > before + 100, again)
        if states is given[0]:
            again.checkpoint(PATIENCE_S)  # what it has made of them is output
            assert again.rollback().settled(PATIENCE_S).outcome == "done"
            assert not again.diff(declared("New"))
    os.kill(again.host_processes[1], signal.SIGKILL)  # a checkpoint may have what has become of them
    until(lambda: bool(again.recoveries) and again.recoveries[-1].seconds is not None, again)
    again.stop(timeout=PATIENCE_S)
    assert again.state == "finished", again.error
    rows = [row.asDict() for row in again.output("out").collect()]
    assert sorted(row["value"] for row in rows) == list(range(len(rows)))
    refuse_gaps([row for row in rows if row["new"] is not None], "new", first)
    more = [row for row in rows if row.get("more") is not None]
    refuse_gaps([row for row in more if row["key"]], "more", *given)
    assert {row["more"] // 100_000 for row in more if row["key"]} == {2, 3}
    assert again.audit().serializable
