"""Memory of a multi-version change: new tuples that are set aside while a keyed operator works off its old ones.

Before each change more than a second of work is queued in front of FD. From the first new tuple to the last old one
both states exist, and tuples that are set aside are held in memory; afterwards they are worked off.
"""

from __future__ import annotations

import time
from statistics import median

import fries_nb as fn
from fries_nb.errors import RunError
from fries_nb.experiments.bench.delay import COST_MS, RATE, fill
from fries_nb.experiments.bench.ours import CREDIT_BYTES, HOSTS, payments_file, spark_session
from fries_nb.experiments.bench.results import BenchReport, Target
from fries_nb.run import Run
from fries_nb.workloads.models import CUSTOMER
from fries_nb.workloads.w1 import FraudDetector

WAITING_S = 3.0
_PATIENCE_S = 120.0
_REPORTS_S = 0.6  # workers report four times a second, and one may be under way


def versions(scale: float, runs: int) -> BenchReport:
    """Bytes held by multi-version changes; ``scale`` multiplies the amount of queued work."""
    waiting_s = WAITING_S * scale
    rows = int(RATE * (3 * waiting_s + runs * (waiting_s + 10) * 2))
    delays, after = [], []
    with spark_session() as spark:
        flow = fn.Dataflow("W1 from two sources")  # of one channel new tuples never overtake old ones
        source = flow.source("Src", fn.replay(str(payments_file(rows)), rate=3 * RATE), workers=HOSTS)
        source.map("FD", FraudDetector(cost_ms=COST_MS), key=CUSTOMER).sink("Sink", fn.memory())
        run = flow.run(spark=spark, hosts=HOSTS, workers=HOSTS)
        try:
            for _ in range(runs):
                fill(run, waiting_s)
                delays.append(_changed(run))
                after.append(_held_after(run))
            peak = run.metrics().operators["FD"].held_peak
        finally:
            run.stop()
    targets = (
        Target("most bytes held once the old tuples had drained", float(max(after)), 0.0, False, "bytes"),
        Target("most bytes held while they had not", float(peak), 1.0, unit="bytes"),
    )
    facts = {"work waiting, s": waiting_s, "change, request to last worker switched, ms": median(delays)}
    return BenchReport("versions", scale, (), targets, facts, CREDIT_BYTES)


def _changed(run: Run) -> float:
    """Change FD with the multi-version scheduler while the source continues; returns the delay in milliseconds.

    Raises:
        RunError: the change was not made.
    """
    change = run.reconfigure({"FD": FraudDetector(cost_ms=COST_MS)}, scheduler="multiversion").result(_PATIENCE_S)
    if change.outcome != "done":
        raise RunError(f"a change of the benchmark was {change.outcome}: {change.error}")
    return change.delay_ms


def _held_after(run: Run) -> int:
    """Bytes held according to reports after the change; the first such report may still describe the time before."""
    time.sleep(2 * _REPORTS_S)
    return run.metrics().operators["FD"].held_bytes
