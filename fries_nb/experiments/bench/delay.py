"""The delay of a change under load: with ten seconds of work in front of an operator, and with many operators.

**W1**, Fries and Epoch alternating in one run, then Fries and the cut; rows have identities, which the cut needs. FD
waits 2 ms for each tuple and has two workers, so a second's work is a little less than a thousand tuples. Before each
change the source runs ahead until ten seconds of work are queued, by FD's measured rate, and then keeps that rate.
``commit`` is the time from the first FCM to the last worker's switch, less the 2 ms of the tuple in hand. It is
compared with a function that polls a flag, at the same cost of a tuple.

**A loop**, whose rows make 20 rounds while others come: Fries blocks what enters it until it is empty, the cut nothing.

**Memory of a multi-version change**: new tuples that are set aside while a keyed operator works off its old ones.
Before each change more than a second of work is queued in front of FD. From the first new tuple to the last old one
both states exist, and tuples that are set aside are held in memory; afterwards they are worked off.

**A crowd** of ``operators`` times ``workers`` is a line of keyed row functions with a hash exchange before each, so
that every worker sends to every worker of the next operator. Two hosts run it on the cores of one machine: what is
measured is the cost of running many workers in one interpreter, not that of the functions: throughput flat out, and at
a moderate rate the delay of a change. In one more crowd, a worker beside the line keeps the interpreter busy for 25 ms
a tuple, half of the time: the fast control messages have to pass it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Any

import numpy as np

import fries_nb as fn
from fries_nb.controller.events import Outcome
from fries_nb.errors import RunError
from fries_nb.experiments.bench.maps import LastTen, is_hundredth, spinning
from fries_nb.experiments.bench.ours import CREDIT_BYTES, HOSTS, payments_file, spark_session
from fries_nb.experiments.bench.pairs import BenchReport, PairedResult, Side, Target, pairs
from fries_nb.experiments.measuring import until
from fries_nb.run import Run
from fries_nb.telemetry.metrics import OperatorMetrics
from fries_nb.workloads.scorer import CUSTOMER
from fries_nb.workloads.workflows import FraudDetector, w1_flow

COST_MS = 2.0
RATE = HOSTS * 1000 / COST_MS
WAITING_S = 10.0
POLLED = 20
ROUNDS, LOOP_RATE = 20, 1_000
"""Rounds of each row of the loop, and its rows per second."""
_PATIENCE_S = 120.0


def delay(scale: float, runs: int) -> BenchReport:
    """Fries against Epoch, and the cut against Fries; ``scale`` multiplies the amount of queued work."""
    waiting_s = WAITING_S * scale
    rows = int(RATE * (3 * waiting_s + runs * (waiting_s + 5) * 5))
    changes: dict[str, list[Outcome]] = {"fries": [], "epoch": [], "cut": []}
    with spark_session() as spark:
        flow = w1_flow(fn.replay(str(payments_file(rows)), rate=3 * RATE), fn.memory(), cost_ms=COST_MS)
        run = flow.run(spark=spark, hosts=HOSTS, workers=HOSTS, identities=True)

        def made(scheduler: str) -> Outcome:
            return _done(run.reconfigure({"FD": FraudDetector(cost_ms=COST_MS)}, scheduler).result(_PATIENCE_S))

        def changed(scheduler: str) -> float:
            fill(run, waiting_s)
            changes[scheduler].append(made(scheduler))
            if scheduler == "cut":
                made("fries")  # waits until no old row can come; the next one that is measured does not
            return changes[scheduler][-1].delay_ms

        by = {name: Side(name, partial(changed, name)) for name in changes}
        try:
            results = [pairs(by[a], by[b], runs, unit="ms") for a, b in (("epoch", "fries"), ("fries", "cut"))]
        finally:
            run.cancel()
        results.append(_in_a_loop(spark, runs))
    commit = median(change.commit_ms for change in changes["fries"]) - COST_MS
    targets = (
        Target("Fries, request to last worker switched", results[0].b_median, 50.0, at_least=False, unit="ms"),
        Target("of which commit, the tuple in hand apart", commit, 5.0, at_least=False, unit="ms"),
        Target("Epoch over Fries", results[0].ratio_median, 100.0, unit="times"),
        Target("the cut in a loop of 20 rounds", results[-1].b_median, 50.0, at_least=False, unit="ms"),
    )
    facts = {
        "work waiting, s": waiting_s,
        **{f"old tuples, {by}": median(one.old_tuples for one in changes[by]) for by in ("fries", "epoch")},
        "prepare, fries, ms": median(change.prepare_ms for change in changes["fries"]),
        "commit, cut, ms": median(change.commit_ms for change in changes["cut"]),
        "a polled flag, ms": _polled(),
    }
    return BenchReport("delay", scale, tuple(results), targets, facts, CREDIT_BYTES)


class Round:
    """A round of a row in the loop."""

    def process(self, row: dict[str, Any]) -> dict[str, Any]:
        """The row, one round further."""
        return {**row, "round": row["round"] + 1}


def _in_a_loop(spark: Any, runs: int) -> PairedResult:
    """Changes inside a loop under load, by Fries and by the cut in turns, from the request to the last switch."""
    flow = fn.Dataflow("rounds")
    rows = flow.source("S", fn.rate(LOOP_RATE), workers=HOSTS).map("A", lambda row: {**row, "round": 0})
    again = rows.iterate("L", lambda body: body.map("B", Round()).split("R", lambda row: int(row["round"] == ROUNDS)))
    again.sink("Z", fn.memory())
    run = flow.run(spark=spark, hosts=HOSTS, workers=HOSTS, identities=True)

    def changed(scheduler: str) -> float:
        passed = run.metrics().operators["B"].processed
        until(run, lambda: run.metrics().operators["B"].processed > passed + LOOP_RATE * ROUNDS, "load", _PATIENCE_S)
        delay_ms = _done(run.reconfigure({"B": Round()}, scheduler).result(_PATIENCE_S)).delay_ms
        if scheduler == "cut":
            _done(run.reconfigure({"B": Round()}, "fries").result(_PATIENCE_S))  # see delay
        return delay_ms

    try:
        until(run, lambda: run.metrics().operators["Z"].processed > LOOP_RATE, "rows behind the loop", _PATIENCE_S)
        fries, cut = (Side(f"{name} in a loop", partial(changed, name)) for name in ("fries", "cut"))
        return pairs(fries, cut, runs, unit="ms")
    finally:
        run.cancel()


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


def _polled() -> float:
    from fries_nb.experiments.rivals.spark_jobs import delays_ms

    with spark_session() as spark:
        return median(delays_ms(spark, POLLED, COST_MS / 1000))


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


PACED_RATE = 2_000
"""Tuples per second of the paced crowds."""
FLAT_ROWS = 400_000
"""Number of tuples of a crowd that runs flat out."""
SETTLE_S = 4.0
"""Seconds after the start before a paced crowd is measured."""
FLAT_WINDOW_S, PACED_WINDOW_S = 5.0, 15.0
"""Seconds in which tuples are counted. At a moderate rate they arrive in waves of a few seconds, since workers send by
deadlines."""
CROWD_PATIENCE_S = 240.0
KEYS = ("CUSTOMER_ID", "TERMINAL_ID")


@dataclass(frozen=True)
class Crowd:
    """One setting."""

    operators: int  # number of keyed operators in a line
    workers: int  # number of workers of each of them, and of the source and the sink
    rate: int  # tuples per second; 0 for flat out
    within_s: float  # target for the delay of a change of two adjacent operators, in seconds
    spins: bool = False  # whether a worker beside the line spins

    def __str__(self) -> str:
        pace = f"at {self.rate:,}/s" if self.rate else "flat out"
        return f"{self.operators}x{self.workers} {pace}"

    def flow(self, rows: int) -> fn.Dataflow:
        """The dataflow over this many payments."""
        flow = fn.Dataflow("crowd")
        source = fn.replay(str(payments_file(rows)), rate=self.rate or None)
        stream = flow.source("S", source)
        if self.spins:
            few = stream.filter("few", is_hundredth)
            few.map("spinner", spinning, workers=1).sink("spun", fn.memory())
        for number in range(1, self.operators + 1):
            stream = stream.map(f"O{number}", LastTen(), key=KEYS[number % 2])
        stream.sink("Z", fn.memory())
        return flow

    @property
    def pair(self) -> tuple[str, str]:
        """The two adjacent operators that a change replaces, in the middle of the line."""
        middle = max(1, self.operators // 2)
        return f"O{middle}", f"O{middle + 1}"


CROWDS = (
    Crowd(4, 2, 0, 0.5),
    Crowd(4, 20, 0, 1.5),
    Crowd(12, 2, 0, 0.5),
    Crowd(12, 10, PACED_RATE, 0.5),
    Crowd(12, 20, PACED_RATE, 0.5),
    Crowd(12, 40, PACED_RATE, 1.5),
)
SPUN = Crowd(11, 20, PACED_RATE, 0.5, spins=True)
SPUN_CHANGES = 40
SPUN_BEFORE_S = 16.9
"""The 99th percentile of commits in the crowd ``SPUN`` with a thread for each worker (version 3f28347)."""


@dataclass(frozen=True)
class CrowdResult:
    """What was measured: tuples per second at the last operator, and the median delay of changes in seconds."""

    rows_per_s: float
    delay_s: float


def crowd(scale: float, runs: int) -> BenchReport:
    """Run all crowds; ``scale`` multiplies the length of each, ``runs`` is the number of changes of each."""
    facts: dict[str, Any] = {}
    targets = []
    with spark_session() as spark:
        for setting in CROWDS:
            found = measure(setting, spark, scale, runs)
            facts[f"{setting}: rows/s"] = found.rows_per_s
            facts[f"{setting}: delay of a change, s"] = found.delay_s
            if setting.rate:
                share = found.rows_per_s / setting.rate
                targets.append(Target(f"{setting}: rows/s, of the source's", share, 0.95, unit="times"))
            what = f"{setting}: delay of a change of two adjacent operators"
            targets.append(Target(what, found.delay_s, setting.within_s, at_least=False, unit="s"))
        commits = past_spinner(spark, max(1, int(SPUN_CHANGES * scale)))
    facts["past a spinner: median of commits, s"] = median(commits)
    what = "past a spinner: 99th percentile of commits, of that with a thread for each worker"
    worst = float(np.percentile(commits, 99, method="higher"))
    targets.append(Target(what, worst / SPUN_BEFORE_S, 0.1, at_least=False, unit="times"))
    return BenchReport("crowd", scale, (), tuple(targets), facts, CREDIT_BYTES)


def measure(setting: Crowd, spark: Any, scale: float, changes: int) -> CrowdResult:
    """Run one crowd until it has settled, and for some seconds more; then change two operators again and again."""
    window_s = (PACED_WINDOW_S if setting.rate else FLAT_WINDOW_S) * scale
    with _settled(setting, spark, window_s + 30 * changes * scale) as run:
        rate = _rate(run, f"O{setting.operators}", window_s)
        delays = [_replaced(run, setting.pair).delay_ms / 1000 for _ in range(changes)]
    return CrowdResult(rate, median(delays))


def past_spinner(spark: Any, changes: int) -> list[float]:
    """Change one operator again and again while a worker of the host spins; returns the commits, in seconds."""
    with _settled(SPUN, spark, 5.0 * changes) as run:
        return [_replaced(run, SPUN.pair[:1]).commit_ms / 1000 for _ in range(changes)]


@contextmanager
def _settled(setting: Crowd, spark: Any, seconds: float) -> Iterator[Run]:
    """A run of a crowd that has settled and has input for some seconds more; stops it."""
    rows = int((setting.rate or FLAT_ROWS) * (SETTLE_S + seconds))
    flow = setting.flow(min(rows, 4_000_000))
    run = flow.run(spark=spark, hosts=HOSTS, workers=setting.workers)
    try:
        if not run.wait_flowing(CROWD_PATIENCE_S):
            raise RunError(f"the crowd {setting} does not flow: {run.state} {run.error}")
        time.sleep(SETTLE_S)
        yield run
    finally:
        run.request_stop(drain=False)
        run.wait(CROWD_PATIENCE_S)


def _rate(run: Run, operator: str, seconds: float) -> float:
    before, began = run.metrics().operators[operator].processed, time.monotonic()
    time.sleep(seconds)
    after, took = run.metrics().operators[operator].processed, time.monotonic() - began
    return (after - before) / took


def _replaced(run: Run, operators: Sequence[str]) -> Outcome:
    result = run.reconfigure({name: LastTen() for name in operators}).result(CROWD_PATIENCE_S)
    if result.outcome != "done":
        raise RunError(f"a change of {', '.join(operators)} in a crowd was {result.outcome}: {result.error}")
    return result
