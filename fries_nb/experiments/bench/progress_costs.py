"""The cost of progress: where nothing listens, and with many operators that rows do not reach.

Messages of tokens and of in-band watermarks, over many operators that rows do not reach.

Each time has rows that go to a reduce, which makes a result of it as soon as the time is past. A branch to a line of
idle operators, connected by hash edges, gets no row. Counted are the messages that only coordinate:

    tokens        progress frames, once for each other host that one goes to
    watermarks    watermarks on channels, between workers of one host as well; those between hosts apart

A host sums the steps of its workers in one progress frame, and a worker passes on the last of several watermarks that
wait; so both send fewer messages when they lag behind.

>>> flow = idle_flow(fn.rate(None), 2)
>>> [edge.to for edge in flow.graph(workers=2).edges]
['Sort', 'R', 'out', 'I0', 'I1', 'idle']
>>> counts = [counted(operators=4, times=20, seed=1, watermarks=one) for one in (None, Watermarks())]
>>> counts[0].progress < counts[1].watermarks, counts[1].progress
(True, 0)
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import fries_nb as fn
from fries_nb.dataflow.endpoints import Source
from fries_nb.errors import RunError
from fries_nb.experiments.bench.functions import LastTen
from fries_nb.experiments.bench.ours import CREDIT_BYTES, flow_seconds, job, spark_session, timed_seconds
from fries_nb.experiments.bench.pairs import BenchReport, PairedResult, Side, Target, pairs
from fries_nb.experiments.bench.w1_throughput import scored
from fries_nb.protocol.checkpoints import Restoration
from fries_nb.protocol.messages import Answer, Watermark
from fries_nb.protocol.progress_locations import Watermarks
from fries_nb.simulation.cluster import Cluster
from fries_nb.simulation.deployment import Deployment
from fries_nb.simulation.hosts import Hosts
from fries_nb.simulation.network import LaneKind

ROWS = 4_000_000
OPERATORS = (1, 16, 256)
FEW, MANY = 100, 10_000
MOST_RATIO = 0.1


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
    """Messages that only coordinate, in memory: progress frames between hosts over watermarks on channels.

    The runs are seeded, so the figures are exact, and the same whenever they are counted.
    """
    found = {(n, t): coordination(n, t, runs) for t in (FEW, int(MANY * scale)) for n in OPERATORS}
    targets = tuple(
        Target(f"messages at {n} idle operators and {t:,} times", one.ratio_median, MOST_RATIO, False, "times")
        for (n, t), (one, _) in found.items()
        if n == max(OPERATORS)
    )
    facts = {
        f"over watermarks between hosts alone, {n} operators, {t:,} times": remote.ratio_median
        for (n, t), (_, remote) in found.items()
    }
    return BenchReport("idle", scale, tuple(one for one, _ in found.values()), targets, facts)


def coordination(operators: int, times: int, runs: int) -> tuple[PairedResult, PairedResult]:
    """Count messages of tokens over all watermarks, and over those between hosts alone.

    Args:
        operators: number of idle operators.
        times: number of distinct times.
        runs: number of seeds; the largest dataflows are run once.
    """
    what = f"{operators} idle operators, {times:,} times"
    seeds = range(1 if operators * times > MANY else runs)
    tokens = [counted(operators, times, seed, None).progress for seed in seeds]
    marks = [counted(operators, times, seed, Watermarks()) for seed in seeds]

    def against(name: str, figures: list[int]) -> PairedResult:
        ours, theirs = tuple(map(float, tokens)), tuple(map(float, figures))
        return PairedResult(f"tokens, {what}:", name, "messages", ours, theirs)

    every, remote = [one.watermarks for one in marks], [one.remote for one in marks]
    return against("watermarks", every), against("watermarks between hosts", remote)


def idling(scale: float, runs: int) -> BenchReport:
    """The same dataflow on Spark: the time from its start to its end, one row group of the replay for each time."""
    results = []
    with spark_session() as spark, tempfile.TemporaryDirectory(prefix="fries-bench-") as place:
        for count in (FEW, int(MANY * scale)):
            path = _times_file(Path(place, f"{count}.parquet"), count)
            for operators in (min(OPERATORS), max(OPERATORS)):
                flow: Callable[[], fn.Dataflow] = partial(idle_flow, fn.replay(str(path)), operators)
                results.append(_seconds(spark, flow, f"{operators} idle operators, {count:,} times", runs))
    what = "seconds with tokens, of those with watermarks, most operators and times"
    target = Target(what, results[-1].ratio_median, 1.0, False)
    return BenchReport("idling", scale, tuple(results), (target,), {"hosts": HOSTS}, CREDIT_BYTES)


def _seconds(spark: Any, flow: Callable[[], fn.Dataflow], what: str, runs: int) -> PairedResult:
    timed_seconds(flow(), spark, None)  # to warm up
    tokens = Side(f"tokens, {what}:", lambda: timed_seconds(flow(), spark, None))
    return pairs(tokens, Side("watermarks", lambda: timed_seconds(flow(), spark, Watermarks())), runs, unit="s")


def _times_file(path: Path, count: int) -> Path:
    """A file with a row of each time, in a row group of its own."""
    with pq.ParquetWriter(path, pa.schema([("key", pa.int64()), ("at", pa.int64())])) as writer:
        for time in range(count):
            writer.write_batch(pa.RecordBatch.from_pydict({"key": [time % KEYS], "at": [time]}))
    return path


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


@dataclass
class CoordinationCount:
    """Numbers of messages that only coordinate.

    Attributes:
        progress: progress frames, for each host that one went to.
        watermarks: watermarks on channels.
        remote: those of them between hosts.
    """

    progress: int = 0
    watermarks: int = 0
    remote: int = 0


class CountedHosts(Hosts):
    """Hosts that count what arrives.

    Attributes:
        counts: what has arrived.
    """

    def __init__(self, plan: Deployment, incarnation: int, restoration: Restoration) -> None:
        super().__init__(plan, incarnation, restoration)
        self.counts = CoordinationCount()

    def _arrive(self, kind: LaneKind, place: Any, what: Any) -> Answer | None:
        if kind is LaneKind.PROGRESS:
            self.counts.progress += 1
        elif isinstance(what, Watermark):
            self.counts.watermarks += 1
            self.counts.remote += self.host_of(place.sender) != self.host_of(place.receiver)
        return super()._arrive(kind, place, what)


class CountedCluster(Cluster):
    """A cluster whose hosts count what arrives; the arguments are those of ``Cluster``."""

    hosts: CountedHosts
    hosts_of = CountedHosts


def counted(operators: int, times: int, seed: int, watermarks: Watermarks | None) -> CoordinationCount:
    """Run the dataflow in memory, with one row of each time, read in batches of at most five.

    Args:
        operators: number of idle operators.
        times: number of distinct times.
        seed: determines the interleaving.
        watermarks: how watermarks are made; ``None`` for tokens.

    Raises:
        RunError: a result is missing.
    """
    graph = idle_flow(fn.rate(None), operators).graph(workers=HOSTS)
    rows = [{"key": time % KEYS, "at": time} for time in range(times)]
    cluster = CountedCluster(
        graph, {"Src": rows}, hosts=HOSTS, seed=seed, window=1 << 20, audit=False, notifications=watermarks
    )
    cluster.run(steps=10**9)
    cluster.settle()
    if (found := len(cluster.rows("out"))) != times:
        raise RunError(f"a benchmark has {found} results; expected {times}")
    return cluster.hosts.counts
