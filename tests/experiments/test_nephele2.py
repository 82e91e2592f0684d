"""Figure 2 of the Nephele paper: items of 128 bytes go to the other host, and each one's latency counts once."""

from __future__ import annotations

import itertools
import time
from importlib import import_module
from typing import Any

import pyarrow as pa
import pytest

from fries_nb.experiments import experiment
from fries_nb.experiments.nephele import (
    ITEM_BYTES,
    PAIR_MODES,
    Receiver,
    Sender,
    pair_flow,
    rates_of,
    remote_key,
    summary,
)
from fries_nb.protocol.partitioning import bins_of_values, routing_table
from fries_nb.protocol.topology import Topology

ROWS = pa.RecordBatch.from_pydict({"value": [0, 1, 2], "timestamp": [5, 6, 7]})


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """The time moves on by a second with each look."""
    seconds = itertools.count(1)
    monkeypatch.setattr(time, "time_ns", lambda: next(seconds) * 10**9)


def test_an_item_has_the_papers_size_and_the_time_of_its_creation(clock: None) -> None:
    """128 bytes without the runtime's own columns; their receiver is on the other host."""
    items = Sender(remote_key())(ROWS)
    assert items.nbytes == 3 * ITEM_BYTES
    assert items.column("created").to_pylist() == [10**9] * 3
    topology = Topology.dealt(pair_flow(1).graph(workers=2), hosts=2)
    on = {str(worker): topology.host_of(worker) for worker in topology.workers}
    receivers = {f"Receiver[{index}]" for index in routing_table(2)[bins_of_values([items.column("to")])]}
    assert {on["Src[0]"], on["Sender[0]"]} == {0}
    assert {on[receiver] for receiver in receivers} == {1}


def test_the_receiver_counts_each_item(clock: None) -> None:
    """Their waits are summed, from creation to arrival, and the longest is kept."""
    early, late = Sender(0)(ROWS.slice(0, 2)), Sender(0)(ROWS.slice(2))
    row, origin = Receiver()(pa.concat_batches([early, late]))
    assert row.to_pylist() == [{"at": 3 * 10**9, "items": 3, "waited_ms": 5_000.0, "worst_ms": 2_000.0}]
    assert origin == [0]


@pytest.mark.parametrize(
    ("window", "items", "mean", "worst"),
    [((0, 10), 2, 3.0, 4.0), ((0, 11), 6, 2.0, 4.0), ((10, 20), 4, 1.5, 2.5), ((11, 20), 0, None, None)],
)
def test_a_window_counts_what_arrives_in_it(window: tuple[int, int], items: int, mean: Any, worst: Any) -> None:
    """Its end belongs to the next one; means are over items, not over what was received at once."""
    received = [
        {"at": 5, "items": 2, "waited_ms": 6.0, "worst_ms": 4.0},
        {"at": 10, "items": 4, "waited_ms": 6.0, "worst_ms": 2.5},
    ]
    found = summary(received, window)
    per_s = items / (window[1] - window[0]) * 1e9
    assert found["items/s"] == pytest.approx(per_s)
    assert found["Mbit/s"] == pytest.approx(per_s * ITEM_BYTES * 8 / 1e6)
    assert (found["mean ms"], found["worst ms"]) == (mean, worst)


def test_it_runs_through_all_rates(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A row for each mode and rate for which there is time, beside the paper's; of the rates two are tried.

    On a busy machine it may be that no item arrives in the third of a second of a low rate.
    """
    module = import_module("fries_nb.experiments.nephele")  # its function has the same name
    monkeypatch.setattr(module, "RATES", module.RATES[3::4])
    result = experiment("nephele2", "test")
    seconds = result.parameters["seconds"]
    expected = [(mode, rate) for mode in PAIR_MODES for rate in rates_of(mode, seconds)]
    assert [(row["mode"], row["rate"]) for row in result.rows] == expected
    measured = [row for row in result.rows if row["items/s"]]
    assert measured
    assert all(0 < row["mean ms"] <= row["worst ms"] for row in measured)
    assert {row["paper mean ms"] for row in result.rows if row["mode"] == "flush"} == {38.0}
