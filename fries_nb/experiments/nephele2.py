"""Figure 2 of the Nephele paper: items from a sender to a receiver, their latency and throughput by rate and buffering.

A sender on one host creates items of 128 bytes at a given rate, and a receiver on another host takes them. Latency is
the time from the creation of an item to its arrival. What is sent at once is decided by the *mode*, a choice of options
of ``flow.run``: with ``flush`` a buffer is sent as soon as its host would wait, or its deadline has passed; it is then
as large as the load makes it. The paper's flushing, in contrast, sends each item by itself, whatever the load. In the
other modes a buffer of a fixed size is sent only when it is full.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

import fries_nb as fn
from fries_nb.experiments.measuring import HOSTS, ExperimentScale, Result, Row, pause, running, session
from fries_nb.protocol.partitioning import bins_of_keys, routing_table
from fries_nb.run import Run, with_buffers

MODES: Mapping[str, int] = {"flush": 0, "8 KB": 8 << 10, "64 KB": 64 << 10}
"""Mode to the size of buffers that are sent only when they are full; 0 for none."""
RATES = (1, 10, 100, 1_000, 10_000, 100_000, 1_000_000, 100_000_000)
"""Items per second; nothing creates the last one's, which is thus the highest rate possible."""
ITEM_BYTES = 128
PAPER_S = 120.0
SHORTEST_S = 0.3
LEAST_ITEMS = 3
"""Items for which a mean is taken; lower rates are left out at small scales."""
SETTLE_S = 0.3
"""Seconds at a rate before it is measured."""
FILLED = 3
"""Number of buffers that a rate fills at least while it is measured; lower rates are left out."""
PAPER_MS: Mapping[str, Mapping[float, float]] = {
    "flush": dict.fromkeys(RATES, 38.0),
    "64 KB": {1: 222_000.0, 100_000_000: 50.0},
}
"""Mode to the mean latency by rate, as far as the paper gives it in numbers."""
PAPER = "flushing: 38 ms, at most 10 Mbit/s; buffers of 64 KB: 222 s at 1/s, 50 ms at 10^8/s, up to 1 Gbit/s"
_CREATED, _TO, _ITEM = "created", "to", "item"


@fn.batched
class Sender:
    """Creates items: their time, the key of the receiver's worker on the other host, and filling."""

    def __init__(self, to: int) -> None:
        self.to = to

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """An item for each row."""
        rows = batch.num_rows
        keys, filling = np.full(rows, self.to, np.int16), np.zeros((rows, ITEM_BYTES - 10), np.uint8)
        item = pa.FixedSizeBinaryArray.from_buffers(pa.binary(ITEM_BYTES - 10), rows, [None, pa.py_buffer(filling)])
        created = np.full(rows, time.time_ns(), np.int64)
        return pa.record_batch({_CREATED: created, _TO: keys, _ITEM: item})


@fn.batched
class Receiver:
    """Takes items, and makes one row of those that it gets at once."""

    def __call__(self, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, list[int]]:
        """``at`` (the time in nanoseconds), ``items``, and their ``waited_ms`` together and at ``worst_ms``."""
        now = time.time_ns()
        waited_ms = (now - batch.column(_CREATED).to_numpy()) / 1e6
        row = {"at": now, "items": len(waited_ms), "waited_ms": waited_ms.sum(), "worst_ms": waited_ms.max()}
        return pa.RecordBatch.from_pylist([row]), [0]


def nephele2(scale: ExperimentScale) -> Result:
    """Nephele 2: latency and throughput of items of 128 bytes between two hosts, by rate (Figure 2 of that paper)."""
    seconds = scale.seconds(PAPER_S, SHORTEST_S)
    with session() as spark:
        rows = [row for mode in MODES for row in _measured(spark, mode, rates_of(mode, seconds), seconds)]
    parameters = {"hosts": HOSTS, "item bytes": ITEM_BYTES, "seconds": seconds, "paper": PAPER}
    title = "latency and throughput between two hosts by item rate"
    return Result("nephele2", title, scale.of_paper, parameters, tuple(rows))


def pair_flow(rate: float) -> fn.Dataflow:
    """Src -> Sender on the first host, Receiver on the second one, keyed, -> Sink."""
    flow = fn.Dataflow("sender and receiver")
    created = flow.source("Src", fn.rate(rate), workers=1).map("Sender", Sender(remote_key()), workers=1)
    received = created.flat_map("Receiver", Receiver(), key=_TO, workers=HOSTS)
    received.sink("Sink", fn.memory(), workers=HOSTS)
    return flow


def remote_key(hosts: int = HOSTS) -> int:
    """A key of the last of so many workers, each on a host.

    >>> int(routing_table(2)[bins_of_keys([remote_key(2)])[0]])
    1
    """
    table = routing_table(hosts)
    return next(key for key in range(1 << 15) if table[bins_of_keys([key])[0]] == hosts - 1)


def rates_of(mode: str, seconds: float) -> list[int]:
    """The rates at which something arrives within this time.

    >>> rates_of("flush", 6), rates_of("64 KB", 6)[0]
    ([1, 10, 100, 1000, 10000, 100000, 1000000, 100000000], 1000)
    """
    least = max(LEAST_ITEMS, FILLED * MODES[mode] / ITEM_BYTES)
    return [rate for rate in RATES if rate * seconds >= least]


def _measured(spark: Any, mode: str, rates: Sequence[float], seconds: float) -> list[Row]:
    """One run through all rates, in ascending order; the marker of a commit would send what is buffered."""
    options: dict[str, Any] = {"commit_interval_s": None} if MODES[mode] else {}
    with running(with_buffers(pair_flow(rates[0]), MODES[mode]), spark, workers=HOSTS, **options) as run:
        windows = [_window(run, rate, seconds) for rate in rates]
        run.stop()
        received = [row.asDict() for row in run.output().collect()]
    return [
        {"mode": mode, "rate": rate, **summary(received, window), "paper mean ms": PAPER_MS.get(mode, {}).get(rate)}
        for rate, window in zip(rates, windows, strict=True)
    ]


def _window(run: Run, rate: float, seconds: float) -> tuple[int, int]:
    """Set a rate; returns the time in which it was kept, in nanoseconds since the Unix epoch."""
    run.set_rate("Src", rate)
    pause(SETTLE_S)
    began = time.time_ns()
    pause(seconds)
    return began, time.time_ns()


def summary(received: Sequence[Row], window: tuple[int, int]) -> Row:
    """Throughput and latency of what was received in a time.

    >>> received = [{"at": at, "items": 1_000, "waited_ms": 2_000.0, "worst_ms": 9.0} for at in (1, 10**9)]
    >>> summary(received, (0, 10**9))
    {'items/s': 1000.0, 'Mbit/s': 1.024, 'mean ms': 2.0, 'worst ms': 9.0}

    Returns:
        A row; latencies are ``None`` if nothing was received.
    """
    began, ended = window
    inside = [row for row in received if began <= row["at"] < ended]
    items = sum(row["items"] for row in inside)
    per_s = items / (ended - began) * 1e9
    return {
        "items/s": per_s,
        "Mbit/s": per_s * ITEM_BYTES * 8 / 1e6,
        "mean ms": sum(row["waited_ms"] for row in inside) / items if items else None,
        "worst ms": max((row["worst_ms"] for row in inside), default=None),
    }
