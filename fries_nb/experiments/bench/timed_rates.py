"""Windows and loops: their rates beside those of others, the latency of a result, and the delay of a change inside.

``windows`` counts the payments of each terminal and minute, most of which are alone in theirs: so most rows open a
window and have it closed. ``window_latency`` takes windows of a second of a source that keeps its rate. A result can
be made when the first row behind the window has come from every worker of the source.

``iteration`` sends rows 20 times through a keyed body, in a loop and in a dataflow in which the body stands 20 times.
``components`` finds connected components of a real graph, and of one drawn by R-MAT. ``loop_change`` replaces the keyed
operator of a loop while rows go round in it, against a drain and a new run.
"""

from __future__ import annotations

import shutil
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import fries_nb as fn
from fries_nb.dataflow.windowing import NS_PER_S
from fries_nb.experiments.bench.apart import bytewax_windows
from fries_nb.experiments.bench.costs import host_sizes
from fries_nb.experiments.bench.ours import (
    CREDIT_BYTES,
    HOSTS,
    Job,
    flow_seconds,
    job,
    payments_file,
    spark_session,
)
from fries_nb.experiments.bench.pairs import (
    DIRECTORY,
    BenchError,
    BenchReport,
    PairedResult,
    Side,
    Target,
    pairs,
    require,
)
from fries_nb.experiments.measuring import until
from fries_nb.run import Run
from fries_nb.workloads.graphs import components_flow, generated, labels, miserables

WINDOW_ROWS = 100_000
FEWER = 20_000
"""Number of rows for windows that come with bytewax, which slow down with the number of keys."""
MINUTE_S = 60
WINDOW_RATE, WINDOW_KEYS = 1_000, 100
SETTLE_S, MEASURED_S = 3.0, 8.0


class TerminalMinute:
    """The number and the sum of a terminal's payments in a window."""

    def initial_state(self) -> list[float]:
        """Nothing yet."""
        return [0, 0.0]

    def process(self, row: dict[str, Any], state: list[float]) -> None:
        """Add a payment."""
        state[0] += 1
        state[1] += row["TX_AMOUNT"]

    def close(self, key: int, time: datetime, state: list[float]) -> dict[str, Any]:
        """Terminal, end of the window, number and sum."""
        return {"TERMINAL_ID": key, "TIME": time, "COUNT": state[0], "AMOUNT": state[1]}


def minutes(source: Path, target: str) -> fn.Dataflow:
    """Payments of each terminal and minute."""
    flow = fn.Dataflow("minutes")
    payments = flow.source("Src", fn.replay(str(source)), time="TX_DATETIME", workers=None)
    payments.window("W", TerminalMinute(), fn.tumbling(MINUTE_S), key="TERMINAL_ID").sink("Sink", fn.parquet(target))
    return flow


def windows(scale: float, runs: int) -> BenchReport:
    """Compare the rates of windows with bytewax in both forms. Start-up time counts on neither side."""
    rows, fewer = int(WINDOW_ROWS * scale), int(FEWER * scale)
    with spark_session(HOSTS) as spark:

        def ours(hosts: int, count: int) -> Side:
            once = job(lambda source: flow_seconds(minutes, spark, source, hosts=hosts), count)
            return Side(f"fries_nb, {hosts} hosts, {count:,} rows", once.flowing_rate)

        def theirs(processes: int, count: int, form: str) -> Side:
            path = payments_file(count)
            name = f"bytewax, {processes} processes, windows {form}"
            return Side(name, lambda: bytewax_windows(path, count, processes, form))

        results = (
            pairs(ours(1, fewer), theirs(1, fewer, "own"), runs, unit="rows/s"),
            pairs(ours(1, rows), theirs(1, rows, "by-hand"), runs, unit="rows/s"),
            pairs(ours(HOSTS, rows), theirs(HOSTS, rows, "by-hand"), runs, unit="rows/s"),
        )
    whats = ("bytewax's own windows", "windows by hand in bytewax", "windows by hand in bytewax, two processes")
    targets = tuple(
        Target(f"rows/s, of {what}", one.ratio_median, 1.0, unit="times")
        for what, one in zip(whats, results, strict=True)
    )
    return BenchReport("windows", scale, results, targets, {"rows": rows}, CREDIT_BYTES)


class ResultLatency:
    """A row for each window, with the time from its end to its result in milliseconds."""

    def process(self, row: dict[str, Any], state: dict[str, Any]) -> None:
        """Take a row."""

    def close(self, key: int, time: int, state: dict[str, Any]) -> dict[str, Any]:
        """The latency of this window, and when it was made."""
        return {"ms": (now_ns() - time) / 1e6}


def now_ns() -> int:
    """Nanoseconds since the Unix epoch; ``close`` has an argument of the module's name."""
    return time.time_ns()


def _key_of(value: int) -> dict[str, int]:
    return {"key": value % WINDOW_KEYS}


def seconds_flow() -> fn.Dataflow:
    """Windows of a second of a source that keeps its rate, whose rows are due at the time that they have."""
    flow = fn.Dataflow("seconds")
    count = int(WINDOW_RATE * (SETTLE_S + MEASURED_S))
    rows = flow.source("Src", fn.rate(WINDOW_RATE, count=count, row=_key_of), time="timestamp", late=0, workers=None)
    rows.window("W", ResultLatency(), fn.tumbling(NS_PER_S), key="key", late=fn.memory()).sink("Sink", fn.memory())
    return flow


def p99_ms(spark: Any) -> float:
    """The 99th percentile of a run's latencies, without those of the start and of the end."""
    run = seconds_flow().run(spark=spark, hosts=HOSTS, workers=HOSTS, checkpoint="", commit_interval_s=None)
    state = run.wait(60 + SETTLE_S + MEASURED_S)
    if state != "finished":
        raise BenchError(f"the flow of a benchmark has {state}: {run.error}")
    found = [row["ms"] for row in run.output("Sink").collect()]
    return float(np.percentile(found[int(WINDOW_KEYS * SETTLE_S) : -2 * WINDOW_KEYS], 99))


def window_latency(scale: float, runs: int) -> BenchReport:
    """Compare the latencies of results with those of Structured Streaming."""
    with spark_session(HOSTS) as spark:
        ours = Side("fries_nb", lambda: p99_ms(spark))
        peers = pairs(ours, Side("Structured Streaming", _of_spark(spark)), max(1, runs // 3), unit="ms, p99")
    targets = (Target("p99 of a result, of that in Structured Streaming", peers.ratio_median, 0.1, False, "times"),)
    facts = {"rows/s": WINDOW_RATE, "results/s": WINDOW_KEYS, "hosts": HOSTS}
    return BenchReport("window-latency", scale, (peers,), targets, facts, CREDIT_BYTES)


def _of_spark(spark: Any) -> Callable[[], float]:
    from fries_nb.experiments.rivals.streaming_jobs import window_latencies

    return lambda: float(np.percentile(window_latencies(spark, WINDOW_RATE, WINDOW_KEYS, HOSTS, 2 * MEASURED_S), 99))


Row = dict[str, Any]

ROUNDS = 20
LOOP_KEYS = 5_000
ROW_GROUP = 31_250
PRIME = 2_147_483_647


@dataclass(frozen=True)
class Visit:
    """Changes a number of the row, and counts the visits of the key in its state."""

    def initial_state(self) -> list[int]:
        """No visit."""
        return [0]

    def process(self, row: Row, state: list[int]) -> Row:
        """The row, in its next round."""
        state[0] += 1
        row["x"] = (row["x"] * 31 + row["round"]) % PRIME
        row["round"] += 1
        return row


def is_through(row: Row) -> bool:
    """Whether a row has made its rounds."""
    return bool(row["round"] >= ROUNDS)


def goes_on(row: Row) -> bool:
    """Whether a row may go on in the unrolled body: it always may."""
    return bool(row["round"] <= ROUNDS)


def rounds_file(rows: int, directory: Path = DIRECTORY / "data") -> Path:
    """A Parquet file of rows in front of their first round; created once and kept in ``directory``."""
    path = directory / f"rounds-{rows}.parquet"
    if not path.exists():
        directory.mkdir(parents=True, exist_ok=True)
        number = pa.array(range(rows), pa.int64())
        keys = pa.array((value * 7919 % LOOP_KEYS for value in range(rows)), pa.int64())
        table = pa.table({"id": number, "k": keys, "x": number, "round": pa.array([0] * rows, pa.int64())})
        unfinished = path.with_suffix(".unfinished")
        pq.write_table(table, unfinished, row_group_size=ROW_GROUP)
        unfinished.rename(path)
    return path


def looped(source: Path, target: str) -> fn.Dataflow:
    """The body in a loop."""
    flow = fn.Dataflow("looped")
    rows = flow.source("Src", fn.replay(str(source)))
    through = rows.iterate("Loop", lambda again: again.map("Visit", Visit(), key="k").split("Through", is_through))
    through.sink("Sink", fn.parquet(target))
    return flow


def unrolled(source: Path, target: str) -> fn.Dataflow:
    """The body, with a filter in the place of its split, as often as there are rounds."""
    flow = fn.Dataflow("unrolled")
    rows = flow.source("Src", fn.replay(str(source)))
    for number in range(1, ROUNDS + 1):
        rows = rows.map(f"Visit{number}", Visit(), key="k").filter(f"GoesOn{number}", goes_on)
    rows.sink("Sink", fn.parquet(target))
    return flow


def results_of(target: str) -> pa.Table:
    """What a flow has written, in order."""
    return pq.read_table(target, columns=["id", "k", "x", "round"]).sort_by("id")


LOOP_ROWS = 1_000_000
LEVELS, EDGES = 14, 100_000
LOOP_RATE = 100.0
"""Rows per second that enter a loop of 20 rounds, one by one.

Few enough for any machine to keep up with: rows of different rounds are never in one frame, and a frame of one row
costs as much as one of many.
"""
_PATIENCE_S = 600.0
_SAMPLE_S = 0.2


def iteration(scale: float, runs: int) -> BenchReport:
    """The loop against its body unrolled; rows per second, and the memory of a host meanwhile."""
    require("psutil")
    path = rounds_file(int(LOOP_ROWS * scale))
    with spark_session(HOSTS) as spark, _LargestHost() as largest:
        ours, theirs = _rates(spark, looped, path), _rates(spark, unrolled, path)
        result = pairs(Side("in a loop", ours.flowing_rate), Side("unrolled", theirs.flowing_rate), runs, unit="rows/s")
        _check_rows(spark, path)
    target = Target("rows/s in a loop, of the body unrolled", result.ratio_median, 0.8, unit="times")
    facts = {"rows": ours.rows, "rounds": ROUNDS, "largest host, MiB": round(largest.bytes / 2**20)}
    return BenchReport("iteration", scale, (result,), (target,), facts, CREDIT_BYTES)


def _rates(spark: Any, declare: Any, path: Path) -> Job:
    def once(source: Path) -> float:
        return flow_seconds(declare, spark, source)

    once(path)
    return Job(pq.read_metadata(path).num_rows, lambda: once(path), min(once(rounds_file(1)) for _ in range(3)))


def _check_rows(spark: Any, path: Path) -> None:
    """Run both once more, to compare their rows."""
    found = []
    for declare in (looped, unrolled):
        target = tempfile.mkdtemp(prefix="fries-bench-")
        try:
            run = declare(path, str(Path(target, "out"))).run(spark=spark, hosts=HOSTS, workers=HOSTS)
            if (state := run.wait(_PATIENCE_S)) != "finished":
                raise BenchError(f"the flow of a benchmark has {state}: {run.error}")
            found.append(results_of(str(Path(target, "out"))))
        finally:
            shutil.rmtree(target)
    if not found[0].equals(found[1]):
        raise BenchError("the loop has other rows than its body unrolled")


class _LargestHost:
    """The most memory that a host has used, sampled in a thread."""

    def __init__(self) -> None:
        self.bytes = 0  # its resident size
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)

    def __enter__(self) -> _LargestHost:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _sample(self) -> None:
        while not self._over.wait(_SAMPLE_S):
            self.bytes = max([self.bytes, *host_sizes()])


# ---- connected components


def components(scale: float, runs: int) -> BenchReport:
    """Connected components of a real graph and of a generated one, against a driver loop and a loop over arrays."""
    drawn = generated(LEVELS, int(EDGES * scale), seed=1)
    with spark_session(HOSTS) as spark:
        real = _peers(spark, miserables(), runs)
        large = _peers(spark, drawn, max(1, runs // 2))
    targets = tuple(
        Target(f"seconds, of a Spark driver loop, {name} graph", peer.ratio_median, 1.0, at_least=False, unit="times")
        for name, (peer, _) in {"real": real, "generated": large}.items()
    )
    facts = {"edges": (miserables().num_rows, drawn.num_rows)}
    return BenchReport("components", scale, (*real, *large), targets, facts, CREDIT_BYTES)


def _peers(spark: Any, edges: pa.Table, runs: int) -> tuple[PairedResult, PairedResult]:
    """Our loop against that of a driver, and against arrays in one process."""
    from fries_nb.experiments.rivals.spark_jobs import driver_loop, in_arrays

    wanted = in_arrays(edges)[1]

    def checked(seconds: float, found: dict[int, int]) -> float:
        if found != wanted:
            raise BenchError(f"{sum(found.get(one) != label for one, label in wanted.items())} labels are wrong")
        return seconds

    with tempfile.TemporaryDirectory(prefix="fries-bench-") as place:
        path = str(Path(place, "edges.parquet"))
        pq.write_table(edges, path, row_group_size=max(1, edges.num_rows // 8))
        ours = Side(f"in a loop, {edges.num_rows:,} edges", lambda: checked(*_components(spark, path)))
        theirs = Side("driver loop", lambda: checked(*driver_loop(spark, path, HOSTS)))
        arrays = Side("arrays", lambda: checked(*in_arrays(edges)))
        return pairs(ours, theirs, runs, unit="s"), pairs(ours, arrays, 1, unit="s")


def _components(spark: Any, path: str) -> tuple[float, dict[int, int]]:
    started = time.perf_counter()
    run = components_flow(fn.replay(path), fn.memory()).run(spark=spark, hosts=HOSTS, workers=HOSTS)
    if (state := run.wait(_PATIENCE_S)) != "finished":
        raise BenchError(f"the flow of a benchmark has {state}: {run.error}")
    found = labels(row.asDict() for row in run.output("labels").collect())
    return time.perf_counter() - started, found


# ---- a change in a loop


def loop_change(scale: float, runs: int) -> BenchReport:
    """The delay of a change of the operator inside a loop, under load, against a drain and a new run."""
    # Both let no row meet two functions. The new run counts from the request of the drain to its first row that has
    # left the loop; Spark is up all the time.
    with spark_session(HOSTS) as spark:

        def started() -> Run:
            run: Run = _visits(LOOP_RATE * scale).run(spark=spark, hosts=HOSTS, workers=HOSTS)
            until(run, lambda: _left(run) > 0, "the first row that has left the loop", _PATIENCE_S)
            return run

        def changed() -> float:
            run = started()
            until(run, lambda: _left(run) > LOOP_RATE * scale, "a second of rows", _PATIENCE_S)
            result = run.reconfigure({"Visit": Visit()}).result(_PATIENCE_S)
            run.cancel()
            if result.outcome != "done":
                raise BenchError(f"the change of a benchmark was {result.outcome}: {result.error}")
            return result.delay_ms

        def restarted() -> float:
            run = started()
            until(run, lambda: _left(run) > LOOP_RATE * scale, "a second of rows", _PATIENCE_S)
            began = time.perf_counter()
            run.stop()
            again = started()
            took = time.perf_counter() - began
            again.cancel()
            return 1000 * took

        result = pairs(Side("a change", changed), Side("drain and run anew", restarted), runs, unit="ms")
    ratio = result.ratio_median
    target = Target("delay of a change in a loop, of a new run's", ratio, 0.2, at_least=False, unit="times")
    return BenchReport("loop-change", scale, (result,), (target,), {"rows/s": LOOP_RATE * scale}, CREDIT_BYTES)


def _visits(rate: float) -> fn.Dataflow:
    """Rows that make their rounds at a rate of rows per second."""
    flow = fn.Dataflow("visits")
    rows = flow.source("Src", fn.rate(rate, row=_visitor))
    through = rows.iterate("Loop", lambda again: again.map("Visit", Visit(), key="k").split("Through", is_through))
    through.sink("Sink", fn.memory())
    return flow


def _left(run: Run) -> int:
    """Number of rows that have left the loop."""
    sink = run.metrics().operators.get("Sink")
    return 0 if sink is None else sink.processed


def _visitor(value: int) -> dict[str, int]:
    return {"id": value, "k": value % 5_000, "x": value, "round": 0}
