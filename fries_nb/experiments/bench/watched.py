"""The cost of looking: W1 while its rows and states are asked for twice a second, against W1 that nothing looks at.

Flat out, for throughput: ``W1`` is run to its end in turn with and without a look, and with a tap. Then one run at a
moderate rate is looked at in turn, and its latency and the delay of a change are measured. And once the states of many
keys are asked for at once, while the same run goes on: how long that takes.

A look is ``run.rows("FD")`` and ``run.state("FD")``; a tap, ``run.rows("FD", where=...)``, that finds no row.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from statistics import median
from typing import Any

import fries_nb as fn
from fries_nb.errors import RunError
from fries_nb.experiments.bench.maps import LastTen
from fries_nb.experiments.bench.ours import CREDIT_BYTES, HOSTS, flow_seconds, job, spark_session
from fries_nb.experiments.bench.pairs import BenchReport, Side, Target, pairs
from fries_nb.experiments.bench.w1_throughput import scored
from fries_nb.experiments.measuring import until
from fries_nb.run import Run

ROWS = 12_000_000
"""Some seconds on two cores: many looks fall into a run."""
RATE = 4_000
LOOK_S = 0.5
SPAN_S = 4.0
"""Seconds for which a run is measured on each side: longer than the window of latencies."""
SPANS = 3
"""Number of such spans for each run to its end, since they are short."""
CHANGES = 25
KEYS = 100_000
FILLING = 40_000
"""Rows per second until all keys are there: no queue is left when they are asked for."""
PATIENCE_S = 120.0


def watched(scale: float, runs: int) -> BenchReport:
    """Compare W1 that is looked at twice a second with W1 that is not."""
    rows = int(ROWS * scale)
    with spark_session() as spark:
        seen = job(lambda source: flow_seconds(scored, spark, source, begun=looked_at), rows)
        heard = job(lambda source: flow_seconds(scored, spark, source, begun=tapped), rows)
        bare = job(lambda source: flow_seconds(scored, spark, source), rows)
        flat_out, with_tap = (
            pairs(Side(name, watched.flowing_rate), Side("not", bare.flowing_rate), runs, unit="rows/s")
            for name, watched in (("looked at", seen), ("tapped", heard))
        )
        run = _moderate().run(spark=spark, hosts=HOSTS, workers=HOSTS)
        try:
            until(run, lambda: run.metrics().operators["FD"].processed > RATE, "rows flow", PATIENCE_S)
            sides = _sides(run, _latency_ms)
            latency = pairs(*sides, n=runs * SPANS, unit="ms, the median")
            delay = pairs(*_sides(run, _delay_ms), n=runs * SPANS, unit="ms, of a change")
        finally:
            run.cancel()
        took_s, keys = _many_keys(spark, int(KEYS * scale))
    targets = (
        Target("throughput while it is looked at, of that without", flat_out.ratio_median, 0.97, unit="times"),
        Target("throughput with a tap, of that without", with_tap.ratio_median, 0.97, unit="times"),
        Target("latency without a look, of that with one", 1 / latency.ratio_median, 0.97, unit="times"),
        Target("delay without a look, of that with one", 1 / delay.ratio_median, 0.97, unit="times"),
        Target(f"the states of {keys:,} keys of 1 KB", took_s, 2.0 * scale, at_least=False, unit="s"),
    )
    facts = {"rows": rows, "hosts": HOSTS, "looks a second": 1 / LOOK_S}
    return BenchReport("watched", scale, (flat_out, with_tap, latency, delay), targets, facts, CREDIT_BYTES)


def looked_at(run: Run) -> AbstractContextManager[None]:
    """Looks at rows and states twice a second, for as long as the block."""

    def look() -> None:
        run.rows("FD", 20)
        run.state("FD", n=100)

    return _beside(look, LOOK_S)


def tapped(run: Run) -> AbstractContextManager[None]:
    """Waits for rows that never come, for as long as the block."""
    return _beside(lambda: run.rows("FD", where=_never, n=1, timeout=1.0), 0.0)


@contextmanager
def _beside(call: Callable[[], object], pause_s: float) -> Iterator[None]:
    """Makes a call again and again while the block goes on, until the run is over."""
    over = threading.Event()

    def go_on() -> None:
        with suppress(RunError):  # the run is over
            while not over.wait(pause_s):
                call()

    thread = threading.Thread(target=go_on, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _never(row: Any) -> bool:
    return bool(row["TX_AMOUNT"] < 0)


def _moderate() -> fn.Dataflow:
    flow = fn.Dataflow("W1")
    rows = flow.source("Src", fn.rate(RATE, row=lambda n: {"CUSTOMER_ID": n % 5_000, "TX_AMOUNT": float(n % 90)}))
    rows.map("FD", LastTen(), key="CUSTOMER_ID").sink("Sink", fn.memory())
    return flow


def _sides(run: Run, measure: Callable[[Run], float]) -> tuple[Side, Side]:
    def looking() -> float:
        with looked_at(run):
            time.sleep(SPAN_S)
            return measure(run)

    def alone() -> float:
        time.sleep(SPAN_S)
        return measure(run)

    return Side("looked at", looking), Side("not", alone)


def _latency_ms(run: Run) -> float:
    return run.metrics().latency.p50_ms


def _delay_ms(run: Run) -> float:
    """The median of many changes, as one takes from half to twice the time of another."""
    return median(run.reconfigure({"FD": LastTen()}).result(PATIENCE_S).delay_ms for _ in range(CHANGES))


class Kilobyte:
    """Keeps a kilobyte for each key."""

    def process(self, row: dict[str, Any], state: dict[str, Any]) -> dict[str, Any]:
        """The row as it is."""
        state["kept"] = bytes(1000)
        return row


def _many_keys(spark: Any, keys: int) -> tuple[float, int]:
    """Seconds in which the states of many keys are there, while rows go on."""
    flow = fn.Dataflow("keys")
    rows = flow.source("Src", fn.rate(FILLING, row=lambda n: {"key": n % keys}))
    rows.map("K", Kilobyte(), key="key").sink("Sink", fn.memory())
    run = flow.run(spark=spark, hosts=HOSTS, workers=HOSTS)
    try:
        until(run, lambda: run.metrics().operators["K"].processed > 1.2 * keys, "all keys are there", PATIENCE_S)
        for source in run.graph.sources:
            run.set_rate(source, RATE)
        began = time.perf_counter()
        found = len(run.state("K", n=None, timeout=PATIENCE_S))
        return time.perf_counter() - began, found
    finally:
        run.cancel()
