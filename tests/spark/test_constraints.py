"""Latency constraints on real Spark: measured on two hosts, judged, kept by other buffer sizes, told to the driver."""

from __future__ import annotations

from typing import Any

import pytest
from run_setting import until

import fries_nb as fn
from fries_nb.constraints.judgements import ConstraintState
from fries_nb.errors import DataflowError, RunError
from fries_nb.run import with_buffers

RATE, BUFFER = 400, 4_096
"""Rows per second, and a size of buffers that a channel fills in about a second."""


class Count:
    """Counts the rows of its key."""

    def initial_state(self) -> list[int]:
        """No row so far."""
        return [0]

    def process(self, row: dict[str, Any], state: list[int]) -> dict[str, Any]:
        """Add the number of this row."""
        state[0] += 1
        return row | {"seen": state[0]}


def counting_flow(rows: int | None = None) -> fn.Dataflow:
    """S -> A -> B -> Z, keyed, so that rows cross between the hosts."""
    flow = fn.Dataflow("constrained")
    numbers = flow.source("S", fn.rate(RATE, rows, lambda value: {"n": value, "k": value % 64, "j": value % 32}))
    numbers.map("A", Count(), key="k").map("B", Count(), key="j").sink("Z", fn.memory())
    return flow


def test_buffers_shrink_until_the_constraint_is_met_and_no_row_is_lost(spark: Any, runs: list[fn.Run]) -> None:
    """Full buffers would keep rows for most of a second; it is violated at first."""
    flow = counting_flow()
    flow.constrain(["S", "A", "B", "Z"], latency_ms=100, window_s=1)
    run = with_buffers(flow, BUFFER).run(spark=spark, hosts=2, workers=2, commit_interval_s=None)
    runs.append(run)
    seen: list[ConstraintState] = []

    def met() -> bool:
        [state] = run.constraints()
        seen.append(state)
        return state.status == "met" and any(one.status == "violated" for one in seen)

    until(met, run)
    last = seen[-1]
    assert last.worst_ms is not None
    assert last.worst_ms <= 100
    assert [one.element for one in last.elements] == ["S -> A", "A", "A -> B", "B", "B -> Z"]
    sizes = [one for one in run.history.buffers if one.edge == "A -> B"]
    assert sizes[0].largest_bytes == BUFFER
    assert sizes[-1].largest_bytes < BUFFER
    assert "ms" in next(one.reason for one in seen if one.status == "violated")
    run.stop()
    rows = sorted(row.n for row in run.output().collect())
    assert rows == list(range(len(rows)))
    assert rows


def test_a_constraint_on_a_run_is_judged_by_the_hosts_that_run_already(spark: Any, runs: list[fn.Run]) -> None:
    """Without it nothing is measured. One limit below what the tasks take says so."""
    run = counting_flow().run(spark=spark, hosts=2, workers=2)
    runs.append(run)
    until(lambda: run.metrics().operators["B"].processed > 0, run)
    assert run.constraints() == ()
    run.constrain(["A", "B"], latency_ms=5_000, window_s=1)
    run.constrain([fn.edge("S", "A"), "A"], latency_ms=0.000_1, window_s=1)
    until(lambda: [one.status for one in run.constraints()] == ["met", "violated"], run)
    until(lambda: "below the task latencies" in run.constraints()[1].reason, run)
    with pytest.raises(DataflowError, match="contradict"):
        run.constrain(["A", "B"], latency_ms=1_000, window_s=1)
    with pytest.raises(DataflowError, match="did you mean"):
        run.constrain(["A", "Bb"], latency_ms=1_000)
    run.cancel()
    with pytest.raises(RunError, match="stopped"):
        run.constrain(["B", "Z"], latency_ms=1_000)
