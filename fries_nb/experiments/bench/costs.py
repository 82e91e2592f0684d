"""Fixed costs: latency at a moderate rate, a row function, an idle host, control and metrics, planning, progress.

``planning`` measures a chain of diamonds, ``Ai -> {Bi, Ci} -> Di -> A(i+1)``, between one source and one sink, with
hash edges. Every hundredth ``A`` is one-to-many, and the change is of the first and the last ``D``, so the minimal
covering sub-DAG is nearly the whole graph, with pruning decisions all along it.

>>> [(edge.source, edge.to) for edge in diamonds(6, workers=1).edges]
[('Src', 'A0'), ('A0', 'B0'), ('A0', 'C0'), ('B0', 'D0'), ('C0', 'D0'), ('D0', 'Sink')]

``times`` and ``idle`` measure progress where nothing listens, and with many operators that rows do not reach. Each time
has rows that go to a reduce, which makes a result of it as soon as the time is past. A branch to a line of idle
operators, connected by hash edges, gets no row. Counted are the messages that only coordinate: progress frames, once
for each other host that one goes to. A host sums the steps of its workers in one progress frame, and so sends fewer
messages when it lags behind.

>>> flow = idle_flow(fn.rate(None), 2)
>>> [edge.to for edge in flow.graph(workers=2).edges]
['Sort', 'R', 'out', 'I0', 'I1', 'idle']
>>> counted(operators=32, times=20, seed=1) < 2 * counted(operators=1, times=20, seed=1)
True
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
from fries_nb.dataflow.endpoints import Source
from fries_nb.dataflow.graph import Edge, Emits, Graph, Operator, Partitioning
from fries_nb.errors import RunError
from fries_nb.experiments.bench.maps import LastTen
from fries_nb.experiments.bench.ours import CREDIT_BYTES, HOSTS, flow_seconds, job, payments_file, spark_session
from fries_nb.experiments.bench.pairs import BenchReport, PairedResult, Side, Target, pairs, require
from fries_nb.experiments.bench.w1_throughput import scored
from fries_nb.operators.executors import InterruptFlag, RowExecutor
from fries_nb.operators.instance import Instance
from fries_nb.planning.schedulers import schedule
from fries_nb.protocol.checkpoints import Restoration
from fries_nb.protocol.messages import WorkerId
from fries_nb.protocol.topology import channel_count
from fries_nb.run import Run
from fries_nb.simulation.cluster import Cluster
from fries_nb.simulation.faults import Deployment
from fries_nb.simulation.hosts import Hosts, Said
from fries_nb.simulation.network import LaneKind
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
        on = job(lambda path: flow_seconds(partial(_w1_flow, True), spark, path), rows)
        off = job(lambda path: flow_seconds(partial(_w1_flow, False), spark, path), rows)
        result = pairs(Side("on", on.flowing_rate), Side("off", off.flowing_rate), runs, unit="rows/s, rows flowing")
    targets = (Target("throughput with controller and metrics on, against off", result.ratio_median, 0.97),)
    return BenchReport("quiet", scale, (result,), targets, {"rows": rows}, CREDIT_BYTES)


class HopSample(LastTen):
    """W1's score; its ``open`` switches its host's ticks and latency meter on or off.

    There is no option for that, since only a benchmark needs hosts without control. The interpreter of a host may be
    reused, so both sides set the switch.
    """

    def __init__(self, measures: bool) -> None:
        self.measures = measures

    def open(self) -> None:
        """Called on the host before the first tuple."""
        from fries_nb.host import host
        from fries_nb.worker import meters

        if not hasattr(meters.LatencyMeter, "measured"):
            meters.LatencyMeter.measured = meters.LatencyMeter.add  # type: ignore[attr-defined]
        measured = meters.LatencyMeter.measured  # type: ignore[attr-defined]
        meters.LatencyMeter.add = measured if self.measures else lambda *_: None  # type: ignore[method-assign]
        host.TICK_S = 0.25 if self.measures else 3_600.0


def _w1_flow(measures: bool, source: Path, target: str) -> fn.Dataflow:
    flow = fn.Dataflow("W1")
    payments = flow.source("Src", fn.replay(str(source)))
    payments.map("FD", HopSample(measures), key="CUSTOMER_ID").sink("Sink", fn.parquet(target))
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
        for empty in rows:
            _same(empty)
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


PLANNED_OPERATORS = 100_000
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


def plan_seconds(operators: int, workers: int) -> float:
    """Seconds to plan a change of the graph's ends and to count its channels; the graph is new, so nothing cached."""
    graph = diamonds(operators, workers)
    ends = [edge.to for edge in (graph.edges[4], graph.edges[-2])]
    started = time.perf_counter()
    schedule("fries", graph, ends)
    channel_count(graph, graph.edges)
    return time.perf_counter() - started


def planning(scale: float, runs: int) -> BenchReport:
    """Planning with 1 and with 40 workers for each operator, alternating."""
    operators = max(6, int(PLANNED_OPERATORS * scale))
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


TIMED_ROWS = 4_000_000
IDLE_OPERATORS = (16, 256)
FEW, MANY = 100, 10_000
MOST = 1.1


def timed_w1(source: Path, target: str) -> fn.Dataflow:
    """W1 of payments with times, of which no operator makes use."""
    flow = fn.Dataflow("W1")
    payments = flow.source("Src", fn.replay(str(source)), time="TX_DATETIME")
    payments.map("FD", LastTen(), key="CUSTOMER_ID").sink("Sink", fn.parquet(target))
    return flow


def times(scale: float, runs: int) -> BenchReport:
    """W1 at full speed with and without times."""
    rows = int(TIMED_ROWS * scale)
    with spark_session() as spark:
        timed = job(lambda path: flow_seconds(timed_w1, spark, path), rows)
        plain = job(lambda path: flow_seconds(scored, spark, path), rows)
        sides = Side("with time=", timed.flowing_rate), Side("without", plain.flowing_rate)
        result = pairs(*sides, n=runs, unit="rows/s, rows flowing")
    target = Target("throughput with times to which no operator listens, of that without", result.ratio_median, 0.97)
    return BenchReport("times", scale, (result,), (target,), {"rows": rows, "hosts": HOSTS}, CREDIT_BYTES)


def idle(scale: float, runs: int) -> BenchReport:
    """Messages that only coordinate, in memory: progress frames with many idle operators over those with one."""
    # The runs are seeded, so the figures are exact, and the same whenever they are counted.
    numbers = [(n, t) for t in (FEW, int(MANY * scale)) for n in IDLE_OPERATORS]
    results = tuple(coordination(n, t, runs) for n, t in numbers)
    targets = tuple(
        Target(f"messages at {n} idle operators and {t:,} times", found.ratio_median, MOST, False, "times")
        for (n, t), found in zip(numbers, results, strict=True)
    )
    return BenchReport("idle", scale, results, targets)


def coordination(operators: int, times: int, runs: int) -> PairedResult:
    """Count the messages with so many idle operators, and with one."""
    seeds = range(1 if operators * times > MANY else runs)
    many, few = (tuple(float(counted(number, times, seed)) for seed in seeds) for number in (operators, 1))
    return PairedResult(f"{operators} idle operators, {times:,} times:", "one", "messages", many, few)


KEYS = 16


class TimeCount:
    """Counts the rows of a key and time."""

    def initial_state(self) -> list[int]:
        """No row."""
        return [0]

    def process(self, row: dict[str, Any], state: list[int]) -> None:
        """Count a row."""
        state[0] += 1

    def close(self, key: int, time: int, state: list[int]) -> dict[str, Any]:
        """The count."""
        return {"key": key, "time": time, "count": state[0]}


def _busy(row: dict[str, Any]) -> int:
    return 0


def _same_row(row: dict[str, Any]) -> dict[str, Any]:
    return row


def idle_flow(source: Source, operators: int) -> fn.Dataflow:
    """The dataflow, with a line of so many idle operators."""
    flow = fn.Dataflow("idle")
    busy, idle = flow.source("Src", source, time="at").split("Sort", _busy)
    busy.reduce("R", TimeCount(), key="key").sink("out", fn.memory())
    for number in range(operators):
        idle = idle.map(f"I{number}", _same_row, key="key")
    idle.sink("idle", fn.memory())
    return flow


class CountedHosts(Hosts):
    """Hosts that count the progress frames that arrive."""

    def __init__(self, plan: Deployment, incarnation: int, restoration: Restoration) -> None:
        super().__init__(plan, incarnation, restoration)
        self.counted = 0  # their number

    def _arrive(self, kind: LaneKind, place: Any, what: Any) -> Said | None:
        self.counted += kind is LaneKind.PROGRESS
        return super()._arrive(kind, place, what)


class CountedCluster(Cluster):
    """A cluster whose hosts count what arrives; the arguments are those of ``Cluster``."""

    hosts: CountedHosts
    hosts_of = CountedHosts


def counted(operators: int, times: int, seed: int) -> int:
    """The number of progress frames, one for each host that a frame goes to, of a run in memory."""
    # There is one row of each time, and rows are read in batches of at most five.
    graph = idle_flow(fn.rate(None), operators).graph(workers=HOSTS)
    rows = [{"key": time % KEYS, "at": time} for time in range(times)]
    cluster = CountedCluster(graph, {"Src": rows}, hosts=HOSTS, seed=seed, window=1 << 20, audit=False)
    cluster.run(steps=10**9)
    cluster.settle()
    if (found := len(cluster.rows("out"))) != times:
        raise RunError(f"a benchmark has {found} results; expected {times}")
    return cluster.hosts.counted
