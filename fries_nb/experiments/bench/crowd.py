"""Many operators with many workers on two hosts: throughput flat out, and at a moderate rate the delay of a change.

A crowd of ``operators`` times ``workers`` is a line of keyed row functions with a hash exchange before each, so that
every worker sends to every worker of the next operator. Two hosts run it on the cores of one machine: what is measured
is the cost of running many workers in one interpreter, not that of the functions.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from statistics import median
from typing import Any

import fries_nb as fn
from fries_nb.errors import RunError
from fries_nb.experiments.bench.functions import LastTen
from fries_nb.experiments.bench.ours import CREDIT_BYTES, HOSTS, payments_file, spark_session
from fries_nb.experiments.bench.results import BenchReport, Target
from fries_nb.run import Run

RATE = 2_000
"""Tuples per second of the paced crowds."""
FLAT_ROWS = 400_000
"""Number of tuples of a crowd that runs flat out."""
SETTLE_S = 4.0
"""Seconds after the start before a paced crowd is measured."""
WINDOW_S = 5.0
"""Seconds in which its tuples are counted."""
_PATIENCE_S = 240.0
KEYS = ("CUSTOMER_ID", "TERMINAL_ID")


@dataclass(frozen=True)
class Crowd:
    """One setting.

    Attributes:
        operators: number of keyed operators in a line.
        workers: number of workers of each of them, and of the source and the sink.
        rate: tuples per second; 0 for flat out.
        within_s: target for the delay of a change of two adjacent operators, in seconds.
    """

    operators: int
    workers: int
    rate: int
    within_s: float

    def __str__(self) -> str:
        pace = f"at {self.rate:,}/s" if self.rate else "flat out"
        return f"{self.operators}x{self.workers} {pace}"

    def flow(self, rows: int) -> fn.Dataflow:
        """The dataflow over this many payments."""
        flow = fn.Dataflow("crowd")
        source = fn.replay(str(payments_file(rows)), rate=self.rate or None)
        stream = flow.source("S", source)
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
    Crowd(12, 10, RATE, 0.5),
    Crowd(12, 20, RATE, 0.5),
    Crowd(12, 40, RATE, 1.5),
)


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
    return BenchReport("crowd", scale, (), tuple(targets), facts, CREDIT_BYTES)


def measure(setting: Crowd, spark: Any, scale: float, changes: int) -> CrowdResult:
    """Run one crowd until it has settled, and for some seconds more; then change two operators again and again.

    Raises:
        RunError: the run ended, or a change did.
    """
    seconds = SETTLE_S + (WINDOW_S + 30 * changes) * scale
    rows = int((setting.rate or FLAT_ROWS) * seconds)
    flow = setting.flow(min(rows, 4_000_000))
    run = flow.run(spark=spark, hosts=HOSTS, workers=setting.workers)
    try:
        if not run.wait_flowing(_PATIENCE_S):
            raise RunError(f"the crowd {setting} does not flow: {run.state} {run.error}")
        time.sleep(SETTLE_S)
        rate = _rate(run, f"O{setting.operators}", WINDOW_S * scale)
        return CrowdResult(rate, median(_changed(run, setting) for _ in range(changes)))
    finally:
        run.request_stop()
        run.wait(_PATIENCE_S)


def _rate(run: Run, operator: str, seconds: float) -> float:
    before, began = run.metrics().operators[operator].processed, time.monotonic()
    time.sleep(seconds)
    after, took = run.metrics().operators[operator].processed, time.monotonic() - began
    return (after - before) / took


def _changed(run: Run, setting: Crowd) -> float:
    change = run.reconfigure({name: LastTen() for name in setting.pair})
    result = change.result(_PATIENCE_S)
    if result.outcome != "done":
        raise RunError(f"a change of the crowd {setting} was {result.outcome}: {result.error}")
    return result.delay_ms / 1000
