"""A slow model under a latency constraint on real Spark: replaced by the lighter one by itself, and back."""

from __future__ import annotations

import time
from collections import Counter
from typing import Any

import pytest
from run_setting import until, wait_for_more

import fries_nb as fn
from fries_nb.constraints import reactions

RATE, WORKERS = 300, 2
SLOW_S = 0.01
"""What the original model waits for at each row, so that it cannot keep up with the rate."""


class Model:
    """Counts the rows of a key, in a list; the lighter model, in a dict, waits for nothing."""

    def __init__(self, name: str) -> None:
        self.name = name

    def initial_state(self) -> Any:
        """No row so far."""
        return [0]

    def process(self, row: dict[str, Any], state: Any) -> dict[str, Any]:
        """Name the model, and number the row."""
        place: Any = "seen"
        if self.name == "original":
            place = 0
            time.sleep(SLOW_S)
        state[place] += 1
        return row | {"model": self.name, "seen": state[place]}


def label(name: str) -> Any:
    """Another function that is changed together with the model."""

    def labelled(row: dict[str, Any]) -> dict[str, Any]:
        return row | {"label": name}

    return labelled


def test_a_slow_model_is_replaced_by_itself_and_returns_when_the_load_is_low(
    spark: Any, runs: list[fn.Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    """While buffers and chains are adapted. The state of each key goes there and back, and no row is lost."""
    monkeypatch.setattr(reactions, "SHORTEST_DWELL_S", 0.0)  # a test does not wait for a minute
    flow = fn.Dataflow("remedied")
    numbers = flow.source("S", fn.rate(RATE, None, lambda value: {"n": value, "k": value % 64}))
    numbers.map("FM", Model("original"), key="k").map("MC", label("original"), key="n").sink("Z", fn.memory())
    light = {
        "FM": fn.Update(Model("lighter"), state=lambda old: {"seen": old[0]}, back=lambda new: [new["seen"]]),
        "MC": label("lighter"),
    }
    flow.constrain(["S", "FM", "MC"], latency_ms=100, window_s=0.5, on_violation="apply", lighter=fn.lighter(light))
    run = flow.run(spark=spark, hosts=2, workers=WORKERS, audit=True, commit_interval_s=None)
    runs.append(run)
    until(lambda: len(run.changes) == 1 and run.changes[0].done, run)
    change = run.changes[0]
    assert (change.result(0).outcome, change.constraint) == ("done", "(S) -> FM -> MC")
    assert change.label == "FM, MC by fries, by constraint"
    until(lambda: run.constraints()[0].status == "met", run)
    assert run.constraints()[0].remedy == "lighter functions of FM, MC run by change u1"
    run.set_rate("S", 20)
    until(lambda: len(run.changes) == 2 and run.changes[1].done, run)
    monkeypatch.setattr(reactions, "SHORTEST_DWELL_S", 960.0)  # so that a pause of the machine changes nothing
    assert run.changes[1].result(0).outcome == "done"
    assert run.constraints()[0].remedy == ""
    wait_for_more(run, 20, "FM")
    run.stop()
    rows = run.output().collect()
    assert sorted(row.n for row in rows) == list(range(len(rows)))
    assert all(row.model == row.label for row in rows)
    assert {row.model for row in rows} == {"original", "lighter"}
    assert Counter((row.k, row.seen) for row in rows) == Counter((n % 64, 1 + n // 64) for n in range(len(rows)))
    verdict = run.audit()
    assert verdict.serializable
    assert not verdict.mixed
