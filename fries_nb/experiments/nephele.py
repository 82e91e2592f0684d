"""Figures 2, and 7 to 9, of the Nephele paper: the cost of buffers, and a pipeline under a latency constraint.

**Figure 2**, from a sender to a receiver: latency and throughput by rate and buffering. A sender on one host creates
items of 128 bytes at a given rate, and a receiver on another host takes them. Latency is the time from the creation of
an item to its arrival. What is sent at once is decided by the *mode*, a choice of options of ``flow.run``: with
``flush`` a buffer is sent as soon as its host would wait, or its deadline has passed; it is then as large as the load
makes it. The paper's flushing, in contrast, sends each item by itself, whatever the load. In the other modes a buffer
of a fixed size is sent only when it is full.

**Figures 7 to 9**: the latency of the video pipeline, element by element. Four streams at a time are decoded, merged,
overlaid and encoded again (see ``workloads.video``). Packets are small, so buffers of 32 KB that are sent only when
they are full take seconds to fill. In every mode the same constraint is measured; the modes differ in what is done
about it:

none                    nothing: the paper's Figure 7
flush                   nothing; buffers are sent when a host would wait, as by default
buffers                 the sizes of buffers are adapted: Figure 8
buffers and chaining    and Merger, Overlay and Encoder may be chained as well: Figure 9

Beside them, ``outside`` is the same pipeline in Structured Streaming. Latencies of a mode are means over the span in
which the constraint was met for good, or over its last half if it was not.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import mean
from typing import Any

import numpy as np
import pyarrow as pa

import fries_nb as fn
from fries_nb.constraints.judgements import ConstraintState
from fries_nb.constraints.reactions import ConstraintStatus
from fries_nb.experiments.measuring import HOSTS, ExperimentScale, Result, Row, pause, running, session
from fries_nb.protocol.partitioning import bins_of_keys, routing_table
from fries_nb.run import Run, with_buffers
from fries_nb.workloads.video import VideoFeed, video_flow

PAIR_MODES: Mapping[str, int] = {"flush": 0, "8 KB": 8 << 10, "64 KB": 64 << 10}
"""Mode to the size of buffers that are sent only when they are full; 0 for none."""
RATES = (1, 10, 100, 1_000, 10_000, 100_000, 1_000_000, 100_000_000)
"""Items per second; nothing creates the last one's, which is thus the highest rate possible."""
ITEM_BYTES = 128
PAIR_PAPER_S = 120.0
PAIR_SHORTEST_S = 0.3
LEAST_ITEMS = 3
"""Items for which a mean is taken; lower rates are left out at small scales."""
SETTLE_S = 0.3
"""Seconds at a rate before it is measured."""
FILLED = 3
"""Number of buffers that a rate fills at least while it is measured; lower rates are left out."""
PAIR_PAPER_MS: Mapping[str, Mapping[float, float]] = {
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
    seconds = scale.seconds(PAIR_PAPER_S, PAIR_SHORTEST_S)
    with session() as spark:
        rows = [row for mode in PAIR_MODES for row in _measured_pair(spark, mode, rates_of(mode, seconds), seconds)]
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
    least = max(LEAST_ITEMS, FILLED * PAIR_MODES[mode] / ITEM_BYTES)
    return [rate for rate in RATES if rate * seconds >= least]


def _measured_pair(spark: Any, mode: str, rates: Sequence[float], seconds: float) -> list[Row]:
    """One run through all rates, in ascending order; the marker of a commit would send what is buffered."""
    options: dict[str, Any] = {"commit_interval_s": None} if PAIR_MODES[mode] else {}
    with running(with_buffers(pair_flow(rates[0]), PAIR_MODES[mode]), spark, workers=HOSTS, **options) as run:
        windows = [_window(run, rate, seconds) for rate in rates]
        run.stop()
        received = [row.asDict() for row in run.output().collect()]
    paper_ms = PAIR_PAPER_MS.get(mode, {})
    return [
        {"mode": mode, "rate": rate, **summary(received, window), "paper mean ms": paper_ms.get(rate)}
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

    Returns a row; latencies are ``None`` if nothing was received.
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


BUFFER_BYTES = 32 << 10
VIDEO_MODES: Mapping[str, Mapping[str, Any]] = {
    "none": {"buffer_bytes": BUFFER_BYTES, "adapt": False},
    "flush": {"adapt": False},
    "buffers": {"buffer_bytes": BUFFER_BYTES},
    "buffers and chaining": {"buffer_bytes": BUFFER_BYTES},
}
"""Mode to its arguments of ``with_buffers``."""
CHAINING = "buffers and chaining"
"""The mode in which operators may be chained."""
VIDEO_PAPER_MS: Mapping[str, tuple[float, float]] = {
    "none": (4_500.0, 5_500.0),
    "buffers": (340.0, 380.0),
    "buffers and chaining": (270.0, 320.0),
}
"""Mode to the paper's mean and worst latency; without optimisations the mean fluctuates between 3.5 and 5.5 s."""
STREAMS, FRAMES_PER_S, WORKERS = 16, 4.0, 4
LIMIT_MS, PAPER_WINDOW_S, LEAST_WINDOW_S = 300.0, 15.0, 2.0
VIDEO_PAPER_S, VIDEO_SHORTEST_S = 900.0, 4.0
"""Duration of each mode in seconds; in the paper buffers converge after nine minutes."""
CAUSES = ("task ms", "buffer ms", "transport ms")
LOOK_S = 0.5
OUTSIDE = "outside: Structured Streaming"


@dataclass(frozen=True)
class Measured:
    """One mode: the constraint at the end, when it was met for good, and the throughput at the end.

    Attributes:
        mean_ms, worst_ms: means over all looks of the settled span; ``None`` if nothing was judged in it.
    """

    state: ConstraintState  # the state of the constraint at the end
    mean_ms: float | None
    worst_ms: float | None
    converged_s: float | None  # seconds until it was met for good; ``None`` if it was not met at the end
    frames_per_s: float  # merged frames per second in the last half


def nephele7(scale: ExperimentScale) -> Result:
    """Nephele 7: latency of the video pipeline under a constraint, by element and remedy (Figures 7 to 9)."""
    seconds = scale.seconds(VIDEO_PAPER_S, VIDEO_SHORTEST_S)
    window_s = min(PAPER_WINDOW_S, max(LEAST_WINDOW_S, seconds / 10))
    rows: list[Row] = []
    with session() as spark:
        for mode, options in VIDEO_MODES.items():
            flow = with_buffers(constrained_flow(window_s, chain=mode == CHAINING), **options)
            rows += rows_of(mode, _measured_video(spark, flow, seconds))
        rows.append(_outside(spark, seconds))
    parameters = {
        "hosts": HOSTS, "streams": STREAMS, "frames/s each": FRAMES_PER_S, "workers": WORKERS, "limit ms": LIMIT_MS,
        "window s": window_s, "seconds": seconds, "merged frames/s offered": STREAMS / 4 * FRAMES_PER_S,
    }  # fmt: skip
    title = "latency of the video pipeline under a constraint of 300 ms"
    return Result("nephele7", title, scale.of_paper, parameters, tuple(rows))


def constrained_flow(window_s: float, chain: bool = True) -> fn.Dataflow:
    """The pipeline with the paper's constraint, up to the Server's input."""
    # In the paper it begins behind the Partitioner, which is the source there. Here the source is an operator of its
    # own, and its buffers would delay the streams of a group by different times, so they are part of the sequence.
    flow = video_flow(VideoFeed(STREAMS).source(FRAMES_PER_S), fn.memory(), WORKERS, chain=chain)
    tasks = ["Partitioner", "Decoder", "Merger", "Overlay", "Encoder"]
    sequence = [fn.edge("Src", "Partitioner"), *tasks, fn.edge("Encoder", "Server")]
    flow.constrain(sequence, latency_ms=LIMIT_MS, window_s=window_s)
    return flow


def _measured_video(spark: Any, flow: fn.Dataflow, seconds: float) -> Measured:
    # Without commits, since the marker of a commit sends whatever is buffered in front of it.
    with running(flow, spark, workers=WORKERS, commit_interval_s=None) as run:
        began_s, states = time.time(), list[tuple[float, ConstraintState]]()
        half, processed = began_s + seconds / 2, 0
        while (now_s := time.time()) < began_s + seconds:
            [state] = run.constraints()
            states.append((now_s - began_s, state))
            if now_s < half:
                processed, half_s = run.metrics().operators["Server"].processed, now_s
            pause(LOOK_S)
        [state] = run.constraints()
        frames_per_s = (run.metrics().operators["Server"].processed - processed) / (time.time() - half_s)
        met_s = converged([(at_s, state.status) for at_s, state in states])
        since_s = seconds / 2 if met_s is None else met_s
        settled = [state for at_s, state in states if at_s >= since_s]
        mean_ms, worst_ms = mean_of([one.mean_ms for one in settled]), mean_of([one.worst_ms for one in settled])
        return Measured(state, mean_ms, worst_ms, met_s, frames_per_s)


def _outside(spark: Any, seconds: float) -> Row:
    """The row of Structured Streaming; its latencies are of merged frames, the worst is the mean of a group."""
    from fries_nb.experiments.rivals.streaming_jobs import latencies

    found = latencies(spark, STREAMS, FRAMES_PER_S, WORKERS, seconds)
    return {
        "mode": OUTSIDE, "element": "sequence", "mean ms": float(found["ms"].mean()),
        "worst ms": float(found.groupby("group")["ms"].mean().max()), "frames/s": len(found) / (seconds / 2),
    }  # fmt: skip


def mean_of(looks: Sequence[float | None]) -> float | None:
    """The mean over those looks at which there was a value; ``None`` if there was none.

    >>> mean_of([10.0, None, 20.0]), mean_of([None])
    (15.0, None)
    """
    known = [value for value in looks if value is not None]
    return mean(known) if known else None


def converged(states: Sequence[tuple[float, ConstraintStatus]]) -> float | None:
    """The time from which on a constraint was met until the end; ``None`` if it was not met at the end.

    >>> from fries_nb.constraints.reactions import ConstraintStatus as Is
    >>> converged([(0, Is.NOT_YET_JUDGED), (1, Is.MET), (2, Is.VIOLATED), (3, Is.MET), (4, Is.MET)])
    3
    >>> converged([(0, Is.MET), (1, Is.VIOLATED)])
    """
    since = None
    for at, status in states:
        if status is not ConstraintStatus.MET:
            since = None
        elif since is None:
            since = at
    return since


def rows_of(mode: str, measured: Measured) -> list[Row]:
    """A row for each element, then one for the sequence."""
    rows: list[Row] = []
    tasks = set(measured.state.constraint.tasks)
    for part in measured.state.parts:
        causes = {"buffer ms": part.buffer_ms, "transport ms": part.transport_ms}
        causes = {"task ms": part.task_ms} if part.element in tasks else causes
        rows.append({"mode": mode, "element": part.element, **dict.fromkeys(CAUSES), **causes})
    mean_ms, worst_ms = VIDEO_PAPER_MS.get(mode, (None, None))
    rows.append({
        "mode": mode, "element": "sequence", "mean ms": measured.mean_ms, "worst ms": measured.worst_ms,
        "status": str(measured.state.status), "met after s": measured.converged_s,
        "frames/s": measured.frames_per_s, "paper mean ms": mean_ms, "paper worst ms": worst_ms,
    })  # fmt: skip
    return rows
