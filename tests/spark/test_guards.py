"""A change under guard on real Spark: a new function that fails is rolled back by itself, and the run goes on.

A failure of an operator below it is in ``test_notebook_defaults``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from patience import PATIENCE_S

import fries_nb as fn
from fries_nb.run import Run


class Count:
    """Counts by key."""

    def __init__(self, version: int) -> None:
        self.version = version

    def initial_state(self) -> list[int]:
        return [0]

    def process(self, row: dict[str, Any], state: list[int]) -> dict[str, Any]:
        state[0] += 1
        return row | {"version": self.version, "seen": state[0], "key": row["value"] % 5}


def label(version: int, fails: Path | None = None) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Names a version; once the file ``fails`` is there it fails on numbers that end in 77."""

    def labelled(row: dict[str, Any]) -> dict[str, Any]:
        if row["value"] % 100 == 77 and fails and fails.exists():
            raise KeyError("model")
        return row | {"label": version}

    return labelled


def flow() -> fn.Dataflow:
    """numbers -> FM (keyed) -> MC -> out."""
    flow = fn.Dataflow("guarded")
    numbers = flow.source("numbers", fn.rate(1_500))
    keyed = numbers.map("FK", lambda row: row | {"key": row["value"] % 5})
    keyed.map("FM", Count(1), key="key").map("MC", label(1)).sink("out", fn.memory())
    return flow


def each_once(run: Run) -> list[Any]:
    """The rows, of which every number is there once, and of which each key was counted one by one."""
    rows = run.output().collect()
    values = Counter(row["value"] for row in rows)
    assert set(values.values()) == {1}
    assert set(values) == set(range(len(values)))
    for key in range(5):
        seen = sorted(row["seen"] for row in rows if row["value"] % 5 == key)
        assert seen == list(range(1, len(seen) + 1))
    return rows


def test_a_new_function_that_fails_is_rolled_back_in_place(started: Callable[..., Run], tmp_path: Path) -> None:
    """The tuple it failed on is processed by the old function; state counts it once, and every tuple is there once.

    It fails only once it is installed: one that failed earlier could already be refused in its rehearsal.
    """
    fails = tmp_path / "fails"
    run = started(flow(), hosts=1, workers=2, audit=True)
    assert run.wait_flowing(PATIENCE_S)
    new = {"FM": Count(2), "MC": label(2, fails)}
    change = run.reconfigure(new, guard=fn.tuples(10**9))
    assert change.guard.startswith("for 1,000,000,000 tuples, where FM, MC fails")
    assert change.result(PATIENCE_S).outcome == "done"
    fails.touch()
    result = change.settled(PATIENCE_S)
    assert result.outcome == "rolled_back", result.error
    assert "MC failed on a tuple" in result.error
    assert [one.result(0).outcome for one in run.changes] == ["rolled_back"]
    assert "rolled_back" in [mark.kind for mark in run.history.marks]
    again = run.reconfigure({"MC": label(3)}, guard=0.01).settled(PATIENCE_S)
    assert again.outcome == "done"
    run.stop()
    rows = each_once(run)
    assert {(row["version"], row["label"]) for row in rows} >= {(1, 1), (1, 3)}
    assert {row["version"] for row in rows if row["label"] == 3} == {1}
    assert {row["version"] == row["label"] for row in rows if row["label"] != 3} == {True}
    assert run.audit().serializable
