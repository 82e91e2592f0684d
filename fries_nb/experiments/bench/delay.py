"""The delay of a change with ten seconds of work queued in front of FD: Fries and Epoch alternating in one run.

FD waits 2 ms for each tuple and has two workers, so a second's work is a little less than a thousand tuples. Before
each change the source runs ahead until ten seconds of work are queued, by FD's measured rate, and then keeps that rate.
``commit`` is the time from the first FCM to the last worker's switch, less the 2 ms of the tuple in hand. It is
compared with a function that polls a flag, at the same cost of a tuple.

Memory of a multi-version change: new tuples that are set aside while a keyed operator works off its old ones.

Before each change more than a second of work is queued in front of FD. From the first new tuple to the last old one
both states exist, and tuples that are set aside are held in memory; afterwards they are worked off.
"""

from __future__ import annotations

import time
from statistics import median

import fries_nb as fn
from fries_nb.controller.events import Outcome
from fries_nb.errors import RunError
from fries_nb.experiments.bench.ours import CREDIT_BYTES, HOSTS, payments_file, spark_session
from fries_nb.experiments.bench.pairs import BenchReport, Side, Target, pairs
from fries_nb.experiments.measuring import until
from fries_nb.run import Run
from fries_nb.telemetry.metrics import OperatorMetrics
from fries_nb.workloads.scorer import CUSTOMER
from fries_nb.workloads.w1 import FraudDetector, w1_flow

COST_MS = 2.0
RATE = HOSTS * 1000 / COST_MS
WAITING_S = 10.0
POLLED = 20
_PATIENCE_S = 120.0


def delay(scale: float, runs: int) -> BenchReport:
    """Fries against Epoch; ``scale`` multiplies the amount of queued work."""
    waiting_s = WAITING_S * scale
    rows = int(RATE * (3 * waiting_s + runs * (waiting_s + 5) * 2))
    changes: dict[str, list[Outcome]] = {"fries": [], "epoch": []}
    with spark_session() as spark:
        flow = w1_flow(fn.replay(str(payments_file(rows)), rate=3 * RATE), fn.memory(), cost_ms=COST_MS)
        run = flow.run(spark=spark, hosts=HOSTS, workers=HOSTS)

        def changed(scheduler: str) -> float:
            fill(run, waiting_s)
            change = run.reconfigure({"FD": FraudDetector(cost_ms=COST_MS)}, scheduler=scheduler)
            changes[scheduler].append(_done(change.result(_PATIENCE_S)))
            return changes[scheduler][-1].delay_ms

        try:
            result = pairs(
                Side("epoch", lambda: changed("epoch")), Side("fries", lambda: changed("fries")), runs, unit="ms"
            )
        finally:
            run.cancel()
        polled = _polled(spark)
    commit = median(change.commit_ms for change in changes["fries"]) - COST_MS
    targets = (
        Target("Fries, request to last worker switched", result.b_median, 50.0, at_least=False, unit="ms"),
        Target("of which commit, the tuple in hand apart", commit, 5.0, at_least=False, unit="ms"),
        Target("Epoch over Fries", result.ratio_median, 100.0, unit="times"),
    )
    facts = {
        "work waiting, s": waiting_s,
        "old tuples, fries": median(change.old_tuples for change in changes["fries"]),
        "old tuples, epoch": median(change.old_tuples for change in changes["epoch"]),
        "prepare, fries, ms": median(change.prepare_ms for change in changes["fries"]),
        "a polled flag, ms": polled,
    }
    return BenchReport("delay", scale, (result,), targets, facts, CREDIT_BYTES)


def fill(run: Run, seconds: float) -> None:
    """Queue this many seconds of work in front of FD, at most a tenth more, and keep the source at FD's rate."""
    operator = OperatorMetrics()

    def is_filled() -> bool:
        nonlocal operator
        operator = run.metrics().operators.get("FD", OperatorMetrics())
        waits_s = operator.queued / operator.rate if operator.rate else 0.0
        if not seconds <= waits_s <= 1.1 * seconds:
            run.set_rate("Src", 3 * RATE if waits_s < seconds else 0)
            return False
        return True

    until(run, is_filled, f"{seconds:g} s of work in front of FD", _PATIENCE_S)
    run.set_rate("Src", operator.rate)


def _done(change: Outcome) -> Outcome:
    if change.outcome != "done":
        raise RunError(f"a change of the benchmark was {change.outcome}: {change.error}")
    return change


def _polled(spark: object) -> float:
    from fries_nb.experiments.bench.rivals.polled_flag import delays_ms

    return median(delays_ms(spark, POLLED, COST_MS / 1000))  # type: ignore[arg-type]


MEMORY_WAITING_S = 3.0
_REPORTS_S = 0.6  # workers report four times a second, and one may be under way


def versions(scale: float, runs: int) -> BenchReport:
    """Bytes held by multi-version changes; ``scale`` multiplies the amount of queued work."""
    waiting_s = MEMORY_WAITING_S * scale
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
            run.cancel()
    targets = (
        Target("most bytes held once the old tuples had drained", float(max(after)), 0.0, False, "bytes"),
        Target("most bytes held while they had not", float(peak), 1.0, unit="bytes"),
    )
    facts = {"work waiting, s": waiting_s, "change, request to last worker switched, ms": median(delays)}
    return BenchReport("versions", scale, (), targets, facts, CREDIT_BYTES)


def _changed(run: Run) -> float:
    """Change FD with the multi-version scheduler while the source continues; returns the delay in milliseconds."""
    change = run.reconfigure({"FD": FraudDetector(cost_ms=COST_MS)}, scheduler="multiversion").result(_PATIENCE_S)
    if change.outcome != "done":
        raise RunError(f"a change of the benchmark was {change.outcome}: {change.error}")
    return change.delay_ms


def _held_after(run: Run) -> int:
    """Bytes held according to reports after the change; the first such report may still describe the time before."""
    time.sleep(2 * _REPORTS_S)
    return run.metrics().operators["FD"].held_bytes
