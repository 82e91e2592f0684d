"""What the benches of progress count, in seeded runs; nothing is timed."""

from __future__ import annotations

import pytest

import fries_nb as fn
from fries_nb.experiments.bench.costs import coordination, counted
from fries_nb.experiments.bench.timed_rates import ResultLatency, TerminalMinute
from fries_nb.simulation.cluster import Cluster


def test_messages_do_not_grow_with_idle_operators() -> None:
    """Those of a mechanism that sends its times along the edges would."""
    few, many = (counted(operators, times=60, seed=3) for operators in (2, 32))
    assert 0 < many < 2 * few


def test_figures_are_the_same_whenever_they_are_counted() -> None:
    """They are determined by their seeds."""
    first, again = (coordination(operators=4, times=30, runs=2) for _ in range(2))
    assert first == again
    assert first.ratio_median < 2


def test_windows_of_payments_are_counted_and_summed() -> None:
    """As bytewax's form of them has it."""
    flow = fn.Dataflow("minutes")
    payments = flow.source("Src", fn.rate(None), time="at", workers=2)
    payments.window("W", TerminalMinute(), fn.tumbling(60), key="TERMINAL_ID").sink("Sink", fn.memory())
    rows = [{"TERMINAL_ID": n % 3, "at": 10 * n, "TX_AMOUNT": float(n)} for n in range(12)]
    cluster = Cluster(flow.graph(workers=2), {"Src": rows}, seed=5, hosts=2)
    cluster.run()
    found = sorted((row["TERMINAL_ID"], row["TIME"], row["COUNT"], row["AMOUNT"]) for row in cluster.rows("Sink"))
    assert found == [(n, 60 * w, 2, 12.0 * w - 12 + 2 * n + 3) for n in range(3) for w in (1, 2)]


def test_a_latency_is_from_the_end_of_the_window(monkeypatch: pytest.MonkeyPatch) -> None:
    """In milliseconds."""
    monkeypatch.setattr("fries_nb.experiments.bench.timed_rates.now_ns", lambda: 7_500_000)
    assert ResultLatency().close(key=1, time=2_000_000, state={}) == {"ms": 5.5}
