"""What the benches of progress count, in seeded runs; nothing is timed."""

from __future__ import annotations

import pytest

import fries_nb as fn
from fries_nb.errors import DataflowError
from fries_nb.experiments.bench.progress_costs import coordination, counted
from fries_nb.experiments.bench.window_rates import ResultLatency, TerminalMinute
from fries_nb.protocol.progress_locations import Watermarks, progress_of
from fries_nb.simulation.cluster import Cluster


def test_messages_of_tokens_do_not_grow_with_idle_operators() -> None:
    """Those of watermarks do: about as many on each edge."""
    few, many = (
        [counted(operators, times=60, seed=3, watermarks=one) for one in (None, Watermarks())] for operators in (2, 32)
    )
    assert many[0].progress < 2 * few[0].progress
    assert many[1].watermarks > 3 * few[1].watermarks


def test_each_version_sends_its_own_messages_only() -> None:
    """No watermark where tokens are, no progress frame where watermarks are; some watermarks cross hosts."""
    tokens, marks = (counted(4, 40, seed=1, watermarks=one) for one in (None, Watermarks()))
    assert tokens.progress > 0
    assert tokens.watermarks == marks.progress == 0
    assert 0 < marks.remote < marks.watermarks


def test_figures_are_the_same_whenever_they_are_counted() -> None:
    """They are determined by their seeds."""
    first, again = (coordination(operators=4, times=30, runs=2) for _ in range(2))
    assert first == again
    assert first[0].a_figures == first[1].a_figures
    assert first[0].ratio_median < first[1].ratio_median


def test_fewer_watermarks_with_an_interval() -> None:
    """A source holds its watermarks back until the interval has passed."""
    each, rare = (counted(4, 200, seed=2, watermarks=Watermarks(ns)).watermarks for ns in (0, 10**9))
    assert rare < each / 2


def test_what_watermarks_cannot_do_is_refused() -> None:
    """A source that waits for the sinks."""
    flow = fn.Dataflow("waits")
    flow.source("S", fn.rate(None), time="at", ahead=5).sink("out", fn.memory())
    with pytest.raises(DataflowError, match="S has ahead=, and watermarks do not tell"):
        progress_of(flow.graph(), Watermarks())


@pytest.mark.parametrize("notifications", [None, Watermarks()])
def test_windows_of_payments_are_counted_and_summed(notifications: Watermarks | None) -> None:
    """By tokens and by watermarks; as bytewax's form of them has it."""
    flow = fn.Dataflow("minutes")
    payments = flow.source("Src", fn.rate(None), time="at", workers=2)
    payments.window("W", TerminalMinute(), fn.tumbling(60), key="TERMINAL_ID").sink("Sink", fn.memory())
    rows = [{"TERMINAL_ID": n % 3, "at": 10 * n, "TX_AMOUNT": float(n)} for n in range(12)]
    cluster = Cluster(flow.graph(workers=2), {"Src": rows}, seed=5, hosts=2, notifications=notifications)
    cluster.run()
    found = sorted((row["TERMINAL_ID"], row["TIME"], row["COUNT"], row["AMOUNT"]) for row in cluster.rows("Sink"))
    assert found == [(n, 60 * w, 2, 12.0 * w - 12 + 2 * n + 3) for n in range(3) for w in (1, 2)]


def test_a_latency_is_from_the_end_of_the_window(monkeypatch: pytest.MonkeyPatch) -> None:
    """In milliseconds."""
    monkeypatch.setattr("fries_nb.experiments.bench.window_rates.now_ns", lambda: 7_500_000)
    assert ResultLatency().close(key=1, time=2_000_000, state={}) == {"ms": 5.5}
