"""Figure 14: payments of W1 processed in vain because the versions of the source and of FD differ, by scheduler.

Every 50 s (of the paper's time) the source's version rises, and 20 s later FD is changed to follow. Payments that FD
processes meanwhile are invalid. The version of a payment is that of the clock period in which it was due.

A queue of 7 s of work is kept in front of FD. That explains the paper's 67,000 for Fries: a change that overtakes the
queue finds payments that were due in the last 7 of the 20 s. And 302,000 in 250 s are 1,208 per second, hence the rate
of FD there; here a payment takes 33 ms, so that 40 workers process 1,200 per second.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any

import fries_nb as fn
from fries_nb.experiments.measuring import (
    PATIENCE_S,
    ExperimentScale,
    Result,
    Row,
    changed,
    fill,
    pause_until,
    running,
    session,
)
from fries_nb.run import Run

PERIODS = 6
PERIOD_S, LATE_S, QUEUE_S = 50.0, 20.0, 7.0
LEAST_PERIOD_S = 0.8
COST_MS = 100 / 3
CUSTOMERS = 4_999
PAPER = {"none": 302_000, "epoch": 176_000, "fries": 67_000}


@dataclass(frozen=True)
class VersionedDetector:
    """The FD of this figure: waits, and returns the time and whether the versions differed.

    Attributes:
        version: the version that it can process; ``None`` for all.
        period_ns: length of a period of the source's clock in nanoseconds.
    """

    version: int | None
    period_ns: int
    cost_ms: float = COST_MS

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
        for scheduler, paper in PAPER.items():
            invalid, valid, delays = _processed(spark, scheduler, workers, period_s)
            curves += [{"scheduler": scheduler, "at_s": at_s, "invalid": n + 1} for n, at_s in enumerate(invalid)]
            counts = {"invalid": len(invalid), "valid": len(valid), "paper": paper}
            rows.append({"scheduler": scheduler, **counts, "delay ms": median(delays) if delays else None})
    most = rows[0]["invalid"] or 1
    shares = [{"of none": row["invalid"] / most, "paper of none": row["paper"] / PAPER["none"]} for row in rows]
    table = tuple({**row, **share} for row, share in zip(rows, shares, strict=True))
    parameters = {
        "flow": "W1", "workers": workers, "cost ms": COST_MS, "rate": workers * 1000 / COST_MS, "period s": period_s,
        "work waiting s": QUEUE_S / PERIOD_S * period_s, "chaining": False,
    }  # fmt: skip
    return Result("figure14", "invalid tuples over time", scale.of_paper, parameters, table, tuple(curves))


def _processed(
    spark: Any, scheduler: str, workers: int, period_s: float
) -> tuple[list[float], list[float], list[float]]:
    """One run of six periods: when payments were processed in vain, in seconds from its start.

    And when others were that were due after the first rise; without a change there are none. And the delays of the
    changes in milliseconds: one that takes longer than is left of its period is in vain itself.
    """
    delays = []
    pace, period_ns = workers * 1000 / COST_MS, int(period_s * 1e9)
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
    """Change FD to the next period's version just before it begins; returns the version and its start time.

    Payments that wait then are of the earlier period and do not count; the first period lets them drain.
    """
    period_ns = int(period_s * 1e9)
    version = time.time_ns() // period_ns + 1
    _pause_to(version * period_ns / 1e9)
    changed(run, {"FD": VersionedDetector(version, period_ns)}, "fries")
    return version, version * period_ns / 1e9


def _pause_to(at_s: float) -> None:
    """Wait until a time of the clock that determines versions."""
    pause_until(time.monotonic() + at_s - time.time())
