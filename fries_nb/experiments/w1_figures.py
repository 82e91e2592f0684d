"""Figures 13 and 14 of Fries: W1 while it is changed under load, by scheduler.

**Figure 13**: end-to-end latency through two surges, each answered by a cheaper model. FD's model takes 25 ms a
payment; at 120 s (of the paper's time) it is replaced by a cheaper one, at 220 s by an even cheaper one. Our latency
counts from the time at which a payment was due, even if the flow holds its source back. Without a change it therefore
keeps rising where the paper's, which counts from the source's output, stays at 70 s. The same flow as a Structured
Streaming query (``rivals/streaming_jobs.py``) is measured in the first surge.

**Figure 14**: payments processed in vain because the versions of the source and of FD differ. Every 50 s (of the
paper's time) the source's version rises, and 20 s later FD is changed to follow. Payments that FD processes meanwhile
are invalid. The version of a payment is that of the clock period in which it was due. A queue of 7 s of work is kept in
front of FD. That explains the paper's 67,000 for Fries: a change that overtakes the queue finds payments that were due
in the last 7 of the 20 s. And 302,000 in 250 s are 1,208 per second, hence the rate of FD there; here a payment takes
33 ms, so that 40 workers process 1,200 per second.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any

import fries_nb as fn
from fries_nb.experiments.measuring import (
    HOSTS,
    PATIENCE_S,
    ExperimentScale,
    Result,
    Row,
    changed,
    fill,
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
SURGE_COST_MS = 25.0
CREDIT_S = 70.0
TUPLE_BYTES = 65
"""Size of a queued payment in bytes; the credit holds CREDIT_S seconds of FD's work, as in the paper."""
SURGE_PAPER = {
    "none": "climbs from 100 s on, to 70 s",
    "epoch": "above 60 s until 135 s; stragglers of 58 s and 69 s",
    "fries": "falls at once after 120 s",
}


def figure13(scale: ExperimentScale) -> Result:
    """Figure 13: latency of W1 through two surges, without a change, by Epoch and by Fries."""
    workers = scale.workers()
    rows, curves, marks = list[Row](), list[Row](), list[Row]()
    with session() as spark:
        for scheduler in SURGE_PAPER:
            row, points, changes = _surges(spark, scheduler, scale, workers)
            rows.append(row)
            curves += points
            marks += changes
        rows += _outside(spark, scale, workers)
    parameters = {
        "flow": "W1", "workers": workers, "seconds": LENGTH_S * scale.of_paper,
        "rates": [per_workers(rate, workers) for rate in RATES.values()], "budget": _budget(scale, workers),
        "costs ms": [SURGE_COST_MS, *CHANGES.values()], "chaining": False,
    }  # fmt: skip
    title = "end-to-end latency through two surges"
    return Result("figure13", title, scale.of_paper, parameters, tuple(rows), tuple(curves), tuple(marks))


def _budget(scale: ExperimentScale, workers: int) -> int:
    """The byte budget of a host."""
    return max(1, int(scale.seconds(CREDIT_S) * workers * 1000 / SURGE_COST_MS * TUPLE_BYTES / HOSTS))


def _surges(spark: Any, scheduler: str, scale: ExperimentScale, workers: int) -> tuple[Row, list[Row], list[Row]]:
    """One run: a row of the table, the curve, and the times of requests and ends of changes."""
    rates = {at * scale.of_paper: per_workers(rate, workers) for at, rate in RATES.items()}
    lighter = {} if scheduler == "none" else {at * scale.of_paper: cost for at, cost in CHANGES.items()}
    flow = w1_flow(fn.replay(payments_path(1_000_000), rate=rates[0.0]), fn.memory(), workers, SURGE_COST_MS)
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
        "paper": SURGE_PAPER[scheduler],
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
        "streaming, restarted": by_restart(spark, rate, workers, SURGE_COST_MS, cost_ms, wait_s),
        "streaming, re-reading": by_rereading(spark, rate, workers, SURGE_COST_MS, cost_ms, wait_s),
    }
    return [
        {"scheduler": name, "first delay ms": seconds * 1000, "paper": "-"} for name, seconds in found.items()
    ]  # fmt: skip


PERIODS = 6
PERIOD_S, LATE_S, QUEUE_S = 50.0, 20.0, 7.0
LEAST_PERIOD_S = 0.8
VERSIONED_COST_MS = 100 / 3
CUSTOMERS = 4_999
INVALID_PAPER = {"none": 302_000, "epoch": 176_000, "fries": 67_000}


@dataclass(frozen=True)
class VersionedDetector:
    """The FD of this figure: waits, and returns the time and whether the versions differed."""

    version: int | None  # the version that it can process; ``None`` for all
    period_ns: int  # length of a period of the source's clock in nanoseconds
    cost_ms: float = VERSIONED_COST_MS

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        """Compare the version of the payment's period with its own."""
        time.sleep(self.cost_ms / 1000)
        version = row["timestamp"] // self.period_ns
        invalid = self.version is not None and version != self.version
        return {"due": row["timestamp"], "at": time.time_ns(), "invalid": invalid}


def _payment(value: int) -> Mapping[str, Any]:
    """A payment; customers take turns, so that all workers have the same load."""
    return {"CUSTOMER_ID": value % CUSTOMERS}


def figure14(scale: ExperimentScale) -> Result:
    """Figure 14: tuples processed in vain after the source's version has risen, by scheduler."""
    workers, period_s = scale.workers(), scale.seconds(PERIOD_S, LEAST_PERIOD_S)
    rows, curves = list[Row](), list[Row]()
    with session() as spark:
        for scheduler, paper in INVALID_PAPER.items():
            invalid, valid, delays = _processed(spark, scheduler, workers, period_s)
            curves += [{"scheduler": scheduler, "at_s": at_s, "invalid": n + 1} for n, at_s in enumerate(invalid)]
            counts = {"invalid": len(invalid), "valid": len(valid), "paper": paper}
            rows.append({"scheduler": scheduler, **counts, "delay ms": median(delays) if delays else None})
    most = rows[0]["invalid"] or 1
    shares = [{"of none": row["invalid"] / most, "paper of none": row["paper"] / INVALID_PAPER["none"]} for row in rows]
    table = tuple({**row, **share} for row, share in zip(rows, shares, strict=True))
    parameters = {
        "flow": "W1", "workers": workers, "cost ms": VERSIONED_COST_MS, "rate": workers * 1000 / VERSIONED_COST_MS,
        "period s": period_s, "work waiting s": QUEUE_S / PERIOD_S * period_s, "chaining": False,
    }  # fmt: skip
    return Result("figure14", "invalid tuples over time", scale.of_paper, parameters, table, tuple(curves))


def _processed(
    spark: Any, scheduler: str, workers: int, period_s: float
) -> tuple[list[float], list[float], list[float]]:
    """One run of six periods: when payments were processed in vain, in seconds from its start."""
    # And when others were that were due after the first rise; without a change there are none. And the delays of the
    # changes in milliseconds: one that takes longer than is left of its period is in vain itself.
    delays = []
    pace, period_ns = workers * 1000 / VERSIONED_COST_MS, int(period_s * 1e9)
    flow = fn.Dataflow("W1")
    payments = flow.source("Src", fn.rate(pace, row=_payment), workers=1)
    scored = payments.map("FD", VersionedDetector(None, period_ns), key="CUSTOMER_ID", workers=workers)
    scored.sink("Sink", fn.memory(), workers=1)
    with running(flow, spark, workers=workers) as run:
        fill(run, "Src", {"FD": QUEUE_S / PERIOD_S * period_s * pace}, pace)
        version, began_s = _next_period(run, period_s)
        for number in range(1, PERIODS):
            if scheduler != "none":
                _pause_to(began_s + (number + LATE_S / PERIOD_S) * period_s)
                made = changed(run, {"FD": VersionedDetector(version + number, period_ns)}, scheduler)
                delays.append(made.delay_ms)
        _pause_to(began_s + PERIODS * period_s)
        run.stop(timeout=PATIENCE_S)
        found = run.output().select("due", "at", "invalid").toPandas()
    found["at_s"] = found["at"] / 1e9 - began_s
    found = found[(found["due"] >= began_s * 1e9) & (found["at_s"] <= PERIODS * period_s)].sort_values("at_s")
    valid = ~found["invalid"] & (found["due"] >= (began_s + period_s) * 1e9)
    return found["at_s"][found["invalid"]].tolist(), found["at_s"][valid].tolist(), delays


def _next_period(run: Run, period_s: float) -> tuple[int, float]:
    """Change FD to the next period's version just before it begins; returns the version and its start time."""
    # Payments that wait then are of the earlier period and do not count; the first period lets them drain.
    period_ns = int(period_s * 1e9)
    version = time.time_ns() // period_ns + 1
    _pause_to(version * period_ns / 1e9)
    changed(run, {"FD": VersionedDetector(version, period_ns)}, "fries")
    return version, version * period_ns / 1e9


def _pause_to(at_s: float) -> None:
    """Wait until a time of the clock that determines versions."""
    pause_until(time.monotonic() + at_s - time.time())
