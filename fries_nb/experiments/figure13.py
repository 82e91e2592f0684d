"""Figure 13: end-to-end latency of W1 through two surges, each answered by a cheaper model, by scheduler.

FD's model takes 25 ms a payment; at 120 s (of the paper's time) it is replaced by a cheaper one, at 220 s by an even
cheaper one. Our latency counts from the time at which a payment was due, even if the flow holds its source back.
Without a change it therefore keeps rising where the paper's, which counts from the source's output, stays at 70 s. The
same flow as a Structured Streaming query (``rivals/streaming_jobs.py``) is measured in the first surge.
"""

from __future__ import annotations

import time
from typing import Any

import fries_nb as fn
from fries_nb.experiments.measuring import (
    HOSTS,
    ExperimentScale,
    Result,
    Row,
    changed,
    pause_until,
    per_workers,
    running,
    session,
)
from fries_nb.run import Run
from fries_nb.workloads.payments import payments_path
from fries_nb.workloads.w1 import FraudDetector, w1_flow

LENGTH_S = 300.0
RATES = {0.0: 1_000, 100.0: 2_000, 200.0: 9_000}
"""Start time in seconds, and payments per second from then on."""
CHANGES = {120.0: 10.0, 220.0: 2.0}
"""Time in seconds, and cost of the new model in milliseconds."""
COST_MS = 25.0
CREDIT_S = 70.0
TUPLE_BYTES = 65
"""Size of a queued payment in bytes; the credit holds CREDIT_S seconds of FD's work, as in the paper."""
PAPER = {
    "none": "climbs from 100 s on, to 70 s",
    "epoch": "above 60 s until 135 s; stragglers of 58 s and 69 s",
    "fries": "falls at once after 120 s",
}


def figure13(scale: ExperimentScale) -> Result:
    """Figure 13: latency of W1 through two surges, without a change, by Epoch and by Fries."""
    workers = scale.workers()
    rows, curves, marks = list[Row](), list[Row](), list[Row]()
    with session() as spark:
        for scheduler in PAPER:
            row, points, changes = _surges(spark, scheduler, scale, workers)
            rows.append(row)
            curves += points
            marks += changes
        rows += _outside(spark, scale, workers)
    parameters = {
        "flow": "W1", "workers": workers, "seconds": LENGTH_S * scale.of_paper,
        "rates": [per_workers(rate, workers) for rate in RATES.values()], "budget": _budget(scale, workers),
        "costs ms": [COST_MS, *CHANGES.values()], "chaining": False,
    }  # fmt: skip
    title = "end-to-end latency through two surges"
    return Result("figure13", title, scale.of_paper, parameters, tuple(rows), tuple(curves), tuple(marks))


def _budget(scale: ExperimentScale, workers: int) -> int:
    """The byte budget of a host."""
    return max(1, int(scale.seconds(CREDIT_S) * workers * 1000 / COST_MS * TUPLE_BYTES / HOSTS))


def _surges(spark: Any, scheduler: str, scale: ExperimentScale, workers: int) -> tuple[Row, list[Row], list[Row]]:
    """One run: a row of the table, the curve, and the times of requests and ends of changes."""
    rates = {at * scale.of_paper: per_workers(rate, workers) for at, rate in RATES.items()}
    lighter = {} if scheduler == "none" else {at * scale.of_paper: cost for at, cost in CHANGES.items()}
    flow = w1_flow(fn.replay(payments_path(1_000_000), rate=rates[0.0]), fn.memory(), workers, COST_MS)
    with running(flow, spark, workers=workers, budget=_budget(scale, workers)) as run:
        began_s, began = time.time(), time.monotonic()
        delays: list[float] = []
        for at in sorted({*rates, *lighter}):
            pause_until(began + at)
            if at in rates:
                run.set_rate("Src", rates[at])
            else:
                delays.append(changed(run, {"FD": FraudDetector(lighter[at])}, scheduler).delay_ms)
        pause_until(began + LENGTH_S * scale.of_paper)
        curve = _curve(run, scheduler, began_s)
        marks: list[Row] = [
            {"scheduler": scheduler, "at_s": mark.at_s - began_s, "kind": mark.kind} for mark in run.history.marks
        ]  # fmt: skip
    first, second = delays or (None, None)
    row: Row = {
        "scheduler": scheduler,
        "first delay ms": first,
        "second delay ms": second,
        "highest latency s": max((point["p50_ms"] for point in curve), default=0.0) / 1000,
        "last latency s": curve[-1]["p50_ms"] / 1000 if curve else None,
        "paper": PAPER[scheduler],
    }
    return row, curve, marks


def _curve(run: Run, scheduler: str, began_s: float) -> list[Row]:
    """Median and 99th percentile of the latency, and the rate, four times a second."""
    return [
        {
            "scheduler": scheduler,
            "at_s": point.at_s - began_s,
            "p50_ms": point.p50_ms,
            "p99_ms": point.p99_ms,
            "rate": point.rate,
        }
        for point in run.history.latency
        if point.at_s >= began_s
    ]


def _outside(spark: Any, scale: ExperimentScale, workers: int) -> list[Row]:
    """Structured Streaming in the same first surge, changed in two ways."""
    from fries_nb.experiments.rivals.streaming_jobs import by_rereading, by_restart

    rate, cost_ms = per_workers(RATES[100.0], workers), next(iter(CHANGES.values()))
    wait_s = 20.0 * scale.of_paper
    found = {
        "streaming, restarted": by_restart(spark, rate, workers, COST_MS, cost_ms, wait_s),
        "streaming, re-reading": by_rereading(spark, rate, workers, COST_MS, cost_ms, wait_s),
    }
    return [
        {"scheduler": name, "first delay ms": seconds * 1000, "paper": "-"} for name, seconds in found.items()
    ]  # fmt: skip
