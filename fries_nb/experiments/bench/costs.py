"""Fixed costs: latency at a moderate rate, overhead of a row function, memory of an idle host, control and metrics.

Planning time on a large graph, and its dependence on the number of workers.

The graph is a chain of diamonds: ``Ai -> {Bi, Ci} -> Di -> A(i+1)``, between one source and one sink, with hash edges.
Every hundredth ``A`` is one-to-many, and the change is of the first and the last ``D``, so the minimal covering sub-DAG
is nearly the whole graph, with pruning decisions all along it.

>>> [(edge.source, edge.to) for edge in diamonds(6, workers=1).edges]
[('Src', 'A0'), ('A0', 'B0'), ('A0', 'C0'), ('B0', 'D0'), ('C0', 'D0'), ('D0', 'Sink')]
"""

from __future__ import annotations

import contextlib
import time
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import pyarrow as pa

import fries_nb as fn
from fries_nb.dataflow.graph import Edge, Emits, Graph, Operator, Partitioning
from fries_nb.experiments.bench.maps import LastTen
from fries_nb.experiments.bench.ours import CREDIT_BYTES, HOSTS, flow_seconds, job, payments_file, spark_session
from fries_nb.experiments.bench.pairs import BenchReport, Side, Target, pairs, require
from fries_nb.operators.executors import InterruptFlag, RowExecutor
from fries_nb.operators.instance import Instance
from fries_nb.planning.schedulers import schedule
from fries_nb.protocol.messages import WorkerId
from fries_nb.protocol.topology import channel_count
from fries_nb.run import Run
from fries_nb.telemetry.metrics import WINDOW_S, Latency

RATE = 1_000
ROWS = 1_000_000
SETTLE_S = 5.0
BATCH = 10_000


def latency(scale: float, runs: int) -> BenchReport:
    """W1 at 1,000 tuples per second, commits included: the medians, over windows, of each window's quantiles."""
    windows = 4 * runs
    rows = int(RATE * (SETTLE_S + WINDOW_S * windows) * 2)
    with spark_session() as spark:
        flow = fn.Dataflow("W1")
        payments = flow.source("Src", fn.replay(str(payments_file(rows)), rate=RATE))
        payments.map("FD", LastTen(), key="CUSTOMER_ID").sink("Sink", fn.memory())
        run = flow.run(spark=spark, hosts=HOSTS, workers=HOSTS)
        try:
            time.sleep(SETTLE_S)
            found = [_after(WINDOW_S, run) for _ in range(windows)]
        finally:
            run.cancel()
    targets = (
        Target("p50", median(window.p50_ms for window in found), 3.0, at_least=False, unit="ms"),
        Target("p99", median(window.p99_ms for window in found), 10.0, at_least=False, unit="ms"),
    )
    worst = max(window.p99_ms for window in found)
    facts = {"tuples/s": RATE, "windows, s each": WINDOW_S, "windows": windows, "worst window's p99, ms": worst}
    return BenchReport("latency", scale, (), targets, facts, CREDIT_BYTES)


def _after(seconds: float, run: Run) -> Latency:
    time.sleep(seconds)
    return run.metrics().latency


def row(scale: float, runs: int) -> BenchReport:
    """A row function that reads nothing, called by the worker's loop and by a bare loop; the rest is overhead."""
    rows = max(BATCH, int(ROWS * scale))
    batch = pa.RecordBatch.from_pydict({"CUSTOMER_ID": pa.array(range(BATCH)), "TX_AMOUNT": pa.array([1.0] * BATCH)})
    result = pairs(
        Side("worker", lambda: _worker_seconds(batch, rows // BATCH) / rows * 1e6),
        Side("bare loop", lambda: _bare_seconds(rows // BATCH) / rows * 1e6),
        runs,
        unit="µs a tuple",
    )
    own = result.a_median - result.b_median
    targets = (Target("the runtime's own cost of a row function", own, 1.5, at_least=False, unit="µs"),)
    return BenchReport("row", scale, (result,), targets, {"rows": rows})


def rest(scale: float, runs: int) -> BenchReport:
    """Resident memory of the largest host while one tuple per second passes."""
    require("psutil")
    with spark_session() as spark:
        flow = fn.Dataflow("rest")
        flow.source("Src", fn.rate(1)).map("same", _same).sink("Sink", fn.memory())
        run = flow.run(spark=spark, hosts=HOSTS, workers=HOSTS)
        try:
            time.sleep(SETTLE_S)
            sizes = [max(host_sizes()) for _ in range(runs)]
        finally:
            run.cancel()
    targets = (Target("a host at rest", median(sizes) / 2**20, 200.0, at_least=False, unit="MiB"),)
    return BenchReport("rest", scale, (), targets, {}, CREDIT_BYTES)


def quiet(scale: float, runs: int) -> BenchReport:
    """W1 at full speed with controller and metrics, and with hosts that neither tick nor measure."""
    rows = int(ROWS * scale)
    with spark_session() as spark:
        on = job(lambda path: flow_seconds(partial(_heard, True), spark, path), rows)
        off = job(lambda path: flow_seconds(partial(_heard, False), spark, path), rows)
        result = pairs(Side("on", on.flowing_rate), Side("off", off.flowing_rate), runs, unit="rows/s, rows flowing")
    targets = (Target("throughput with controller and metrics on, against off", result.ratio_median, 0.97),)
    return BenchReport("quiet", scale, (result,), targets, {"rows": rows}, CREDIT_BYTES)


class HopSample(LastTen):
    """W1's score; its ``open`` switches its host's ticks and latency meter on or off.

    There is no option for that, since only a benchmark needs hosts without control. The interpreter of a host may be
    reused, so both sides set the switch.
    """

    def __init__(self, heard: bool) -> None:
        self.heard = heard

    def open(self) -> None:
        """Called on the host before the first tuple."""
        from fries_nb.host import host
        from fries_nb.worker import meters

        if not hasattr(meters.LatencyMeter, "measured"):
            meters.LatencyMeter.measured = meters.LatencyMeter.add  # type: ignore[attr-defined]
        measured = meters.LatencyMeter.measured  # type: ignore[attr-defined]
        meters.LatencyMeter.add = measured if self.heard else lambda *_: None  # type: ignore[method-assign]
        host.TICK_S = 0.25 if self.heard else 3_600.0


def _heard(heard: bool, source: Path, target: str) -> fn.Dataflow:
    flow = fn.Dataflow("W1")
    payments = flow.source("Src", fn.replay(str(source)))
    payments.map("FD", HopSample(heard), key="CUSTOMER_ID").sink("Sink", fn.parquet(target))
    return flow


def _same(row: dict[str, Any]) -> dict[str, Any]:
    return row


def _worker_seconds(batch: pa.RecordBatch, batches: int) -> float:
    instance = Instance(WorkerId("same", 0), Operator("same"), _same, audit=False)
    execution = RowExecutor([instance], InterruptFlag(), 1, "")
    started = time.perf_counter()
    for _ in range(batches):
        execution.load("Src", batch)
        while execution.remaining:
            execution.advance(batch.num_rows)
        execution.results()
    return time.perf_counter() - started


def _bare_seconds(batches: int) -> float:
    rows = [dict[str, Any]() for _ in range(BATCH)]
    started = time.perf_counter()
    for _ in range(batches):
        for one in rows:
            _same(one)
    return time.perf_counter() - started


def host_sizes() -> list[int]:
    """Resident bytes of each of Spark's Python workers below this process, without the daemon that forks them."""
    import psutil  # an extra, and the command line is to work without it

    forked, found = "fries_nb.spark.daemon", []
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            if forked in process.cmdline() and forked in process.parent().cmdline():
                found.append(process.memory_info().rss)
    return found


OPERATORS = 100_000
WORKERS = 40
MANY_EVERY = 100


def diamonds(operators: int, workers: int) -> Graph:
    """A chain of diamonds with at most ``operators`` operators, each with ``workers`` workers."""
    nodes, edges, before = [Operator("Src", workers=workers)], list[Edge](), "Src"
    for i in range((operators - 2) // 4):
        a, b, c, d = (f"{letter}{i}" for letter in "ABCD")
        emits = Emits.ONE_TO_MANY if i % MANY_EVERY == MANY_EVERY - 1 else Emits.ONE_TO_ONE
        nodes.append(Operator(a, emits, workers=workers))
        nodes += [Operator(name, workers=workers) for name in (b, c, d)]
        edges += [_hashed(*ends) for ends in ((before, a), (a, b), (a, c), (b, d), (c, d))]
        before = d
    nodes.append(Operator("Sink", workers=workers))
    edges.append(_hashed(before, "Sink"))
    return Graph("diamonds", tuple(nodes), tuple(edges))


def plan_seconds(operators: int, workers: int, scheduler: str = "fries") -> float:
    """Seconds to plan a change of the graph's ends and to count its channels; the graph is new, so nothing cached."""
    graph = diamonds(operators, workers)
    ends = [edge.to for edge in (graph.edges[4], graph.edges[-2])]
    started = time.perf_counter()
    schedule(scheduler, graph, ends)
    channel_count(graph, graph.edges)
    return time.perf_counter() - started


def planning(scale: float, runs: int) -> BenchReport:
    """Planning with 1 and with 40 workers for each operator, alternating."""
    operators = max(6, int(OPERATORS * scale))
    result = pairs(
        Side("1 worker", lambda: plan_seconds(operators, 1)),
        Side(f"{WORKERS} workers", lambda: plan_seconds(operators, WORKERS)),
        runs,
        unit="s",
    )
    targets = (Target("plan, many workers", result.b_median, 3.0, at_least=False, unit="s"),)
    return BenchReport("plan", scale, (result,), targets, {"operators": operators})


def _hashed(source: str, to: str) -> Edge:
    return Edge(source, to, Partitioning.HASH)
