"""The cost of progress: where nothing listens, and with many operators that rows do not reach.

Each time has rows that go to a reduce, which makes a result of it as soon as the time is past. A branch to a line of
idle operators, connected by hash edges, gets no row. Counted are the messages that only coordinate: progress frames,
once for each other host that one goes to. A host sums the steps of its workers in one progress frame, and so sends
fewer messages when it lags behind.

>>> flow = idle_flow(fn.rate(None), 2)
>>> [edge.to for edge in flow.graph(workers=2).edges]
['Sort', 'R', 'out', 'I0', 'I1', 'idle']
>>> counted(operators=32, times=20, seed=1) < 2 * counted(operators=1, times=20, seed=1)
True
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import fries_nb as fn
from fries_nb.dataflow.endpoints import Source
from fries_nb.errors import RunError
from fries_nb.experiments.bench.maps import LastTen
from fries_nb.experiments.bench.ours import CREDIT_BYTES, flow_seconds, job, spark_session
from fries_nb.experiments.bench.pairs import BenchReport, PairedResult, Side, Target, pairs
from fries_nb.experiments.bench.w1_throughput import scored
from fries_nb.protocol.checkpoints import Restoration
from fries_nb.simulation.cluster import Cluster
from fries_nb.simulation.faults import Deployment
from fries_nb.simulation.hosts import Hosts, Said
from fries_nb.simulation.network import LaneKind

ROWS = 4_000_000
OPERATORS = (16, 256)
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
    rows = int(ROWS * scale)
    with spark_session() as spark:
        timed = job(lambda path: flow_seconds(timed_w1, spark, path), rows)
        plain = job(lambda path: flow_seconds(scored, spark, path), rows)
        sides = Side("with time=", timed.flowing_rate), Side("without", plain.flowing_rate)
        result = pairs(*sides, n=runs, unit="rows/s, rows flowing")
    target = Target("throughput with times to which no operator listens, of that without", result.ratio_median, 0.97)
    return BenchReport("times", scale, (result,), (target,), {"rows": rows, "hosts": HOSTS}, CREDIT_BYTES)


def idle(scale: float, runs: int) -> BenchReport:
    """Messages that only coordinate, in memory: progress frames with many idle operators over those with one.

    The runs are seeded, so the figures are exact, and the same whenever they are counted.
    """
    numbers = [(n, t) for t in (FEW, int(MANY * scale)) for n in OPERATORS]
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


HOSTS = 2
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
    """Hosts that count the progress frames that arrive.

    Attributes:
        counted: their number.
    """

    def __init__(self, plan: Deployment, incarnation: int, restoration: Restoration) -> None:
        super().__init__(plan, incarnation, restoration)
        self.counted = 0

    def _arrive(self, kind: LaneKind, place: Any, what: Any) -> Said | None:
        self.counted += kind is LaneKind.PROGRESS
        return super()._arrive(kind, place, what)


class CountedCluster(Cluster):
    """A cluster whose hosts count what arrives; the arguments are those of ``Cluster``."""

    hosts: CountedHosts
    hosts_of = CountedHosts


def counted(operators: int, times: int, seed: int) -> int:
    """Run the dataflow in memory, with one row of each time, read in batches of at most five.

    Returns:
        The number of progress frames, for each host that one went to.
    """
    graph = idle_flow(fn.rate(None), operators).graph(workers=HOSTS)
    rows = [{"key": time % KEYS, "at": time} for time in range(times)]
    cluster = CountedCluster(graph, {"Src": rows}, hosts=HOSTS, seed=seed, window=1 << 20, audit=False)
    cluster.run(steps=10**9)
    cluster.settle()
    if (found := len(cluster.rows("out"))) != times:
        raise RunError(f"a benchmark has {found} results; expected {times}")
    return cluster.hosts.counted
