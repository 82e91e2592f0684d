"""What it costs that hosts come and go: rescaling while nothing moves, a host that joins, a host that is killed.

``idle_bins`` compares W1 with the last version in which bins could not move. ``joining`` lets a host join a dataflow
whose rows keep their rate, again and again. ``second_host`` does so where the function of an operator waits, as for a
service: there a second host doubles the rate whatever the number of cores.

From one worker to two with the same keyed state: ours while rows flow, and what others do instead.

    bytewax                 stopped in good order and resumed with two processes from its recovery partitions
    Structured Streaming    stopped and restarted from its checkpoint, twice the shuffle partitions being asked for
    Flink                   a savepoint and a restart; not measured, since it is not a Python package with a runtime

Compared is the longest time without any row coming out, from the request on. Rows that are lost, doubled or met another
state are counted on every side.

``recovery`` kills hosts of a keyed, stateful W1 at a constant rate, with Parquet output and checkpoints. It is measured
from the kill to the first checkpoint after it, which makes new rows visible. The time in which Spark cancels the old
tasks and starts new ones, from the submission of the job to the last host's hello, is deducted. The rest is the time to
detect the loss, to resume, and to commit.
"""

from __future__ import annotations

import os
import signal
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import fries_nb as fn
from fries_nb.controller.states import RescalePhase
from fries_nb.experiments.bench.apart import bytewax_resumed, keyed_jobs
from fries_nb.experiments.bench.ours import CREDIT_BYTES, HOSTS, Job, payments_file, spark_session
from fries_nb.experiments.bench.pairs import BenchError, BenchReport, PairedResult, Side, Target, pairs
from fries_nb.experiments.measuring import pause, running, until
from fries_nb.experiments.rescaling import measured
from fries_nb.run import Run
from fries_nb.workloads.accounts import accounts_flow, wrong_rows
from fries_nb.workloads.scorer import AMOUNT, CUSTOMER
from fries_nb.workloads.workflows import w1_flow

BEFORE = "37ecb23"
"""The last version in which bins do not move."""
ROWS = 4_000_000
RATE, ACCOUNTS, STATE_BYTES = 1_000.0, 10_000, 100
BOOTSTRAP_MS = 500.0
COST_MS, WAITING_RATE, WAITING_BYTES, MEASURED_S = 5.0, 1_000.0, 1 << 14, 5.0
_PATIENCE_S = 120.0
_await = partial(until, patience_s=_PATIENCE_S, look_s=0.002)


def idle_bins(scale: float, runs: int) -> BenchReport:
    """W1 on two hosts while no bin moves, against the version before; start-up time counts on neither side."""
    rows = int(ROWS * scale)
    with keyed_jobs("") as now, keyed_jobs(BEFORE) as before:
        ours, theirs = _job(now, rows), _job(before, rows)
        sides = Side("bins that can move", ours.flowing_rate), Side(f"version {BEFORE}", theirs.flowing_rate)
        result = pairs(*sides, runs, unit="rows/s")
    target = Target("rows/s, of the version before", result.ratio_median, 0.97, unit="times")
    return BenchReport("idle-bins", scale, (result,), (target,), {"rows": rows}, CREDIT_BYTES)


def _job(seconds: Callable[[str, Path], float], rows: int) -> Job:
    path, one = payments_file(rows), payments_file(1)
    seconds(str(HOSTS), path)
    return Job(rows, lambda: seconds(str(HOSTS), path), median(seconds(str(HOSTS), one) for _ in range(3)))


# ---- joining


@dataclass(frozen=True)
class Joined:
    """Milliseconds of one rescale from one host to two."""

    hello_ms: float  # from the request to the first line of the new host
    dealt_ms: float  # from then to its first row that is dealt in turn
    keyed_ms: float  # from then to its first row of a key
    total_ms: float  # the whole rescale


def joining(scale: float, runs: int) -> BenchReport:
    """Let a host join ``runs`` times, each time another run; ``scale`` multiplies the number of accounts."""
    accounts = max(1, int(ACCOUNTS * scale))
    with spark_session(HOSTS) as spark:
        found = [_joined(spark, accounts) for _ in range(runs)]
    what = "the new host's first line to its first row"
    targets = (
        Target(f"{what}, dealt in turn", _middle(found, "dealt_ms"), BOOTSTRAP_MS, False, "ms"),
        Target(f"{what}, by key", _middle(found, "keyed_ms"), BOOTSTRAP_MS, False, "ms"),
    )
    facts = {
        "rows/s": RATE,
        "keys": accounts,
        "bytes a key": STATE_BYTES,
        "joined": runs,
        "request to the first line, ms": _middle(found, "hello_ms"),
        "the whole rescale, ms": _middle(found, "total_ms"),
        "the longest of them, ms": max(joined.total_ms for joined in found),
    }
    return BenchReport("joining", scale, (), targets, facts, CREDIT_BYTES)


def _joined(spark: Any, accounts: int) -> Joined:
    """One run."""
    flow = accounts_flow(max(RATE, float(accounts)), accounts, STATE_BYTES)
    with running(flow, spark, workers=HOSTS, hosts=1) as run:  # with as many as the source, Check would stay with it
        _await(run, lambda: _booked(run) >= accounts, "all accounts")
        run.set_rate("Src", RATE)
        [old] = run.host_processes.values()
        requested_s = time.time()
        rescale = run.rescale(HOSTS)
        before = RescalePhase.IDLE, RescalePhase.REQUESTED, RescalePhase.STARTING
        _await(run, lambda: run.topology().phase not in before or bool(rescale.outcome), "the new host")
        hello_s = time.time()
        if (result := rescale.result(_PATIENCE_S)).outcome != "done":
            raise BenchError(f"the rescale of a benchmark was {result.outcome}: {result.error}")
        processed = _booked(run)
        _await(run, lambda: _booked(run) >= processed + RATE, "a second of rows")
        run.stop()
        names = "value", "nth", "checked", "checked_ns", "booked", "booked_ns"
        columns = run.output().select(*names).toArrow().to_pydict()
    if wrong := wrong_rows(columns["value"], columns["nth"], accounts):
        raise BenchError(f"{wrong} rows of a benchmark are lost, doubled or found another state")
    dealt_s, keyed_s = (_first_s(columns[by], columns[f"{by}_ns"], old) for by in ("checked", "booked"))
    return Joined(
        1000 * (hello_s - requested_s), 1000 * (dealt_s - hello_s), 1000 * (keyed_s - hello_s), result.delay_ms
    )


def _first_s(processes: Sequence[int], times_ns: Sequence[int], old: int) -> float:
    """The time of the first row that another process than the old one has processed, in seconds since 1970."""
    return min(at for process, at in zip(processes, times_ns, strict=True) if process != old) / 1e9


def _booked(run: fn.Run) -> int:
    operator = run.metrics().operators.get("Book")
    return 0 if operator is None else operator.processed


def _middle(found: Sequence[Joined], name: str) -> float:
    return median(float(getattr(one, name)) for one in found)


# ---- a second host


def second_host(scale: float, runs: int) -> BenchReport:
    """The rate of a keyed function that waits 5 ms a row, before and after ``run.rescale(2)``, of the same run."""
    # More rows come than two hosts process. The byte budget is small: a move of bins waits for the rows in front of it,
    # and each of these takes 5 ms. ``scale`` multiplies the time for which each rate is measured.
    with spark_session(HOSTS) as spark:
        rates = [_before_and_after(spark, MEASURED_S * scale) for _ in range(runs)]
    ones, twos = zip(*rates, strict=True)
    result = PairedResult("two hosts", "one host", "rows/s", twos, ones)
    target = Target("rows/s after run.rescale(2), of those before", result.ratio_median, 1.8, unit="times")
    facts = {"a row waits, ms": COST_MS}
    return BenchReport("second-host", scale, (result,), (target,), facts, WAITING_BYTES)


def _before_and_after(spark: Any, seconds: float) -> tuple[float, float]:
    flow = accounts_flow(WAITING_RATE, ACCOUNTS, STATE_BYTES, COST_MS)
    with running(flow, spark, workers=1, hosts=1, budget=WAITING_BYTES, commit_interval_s=None) as run:
        _await(run, lambda: _booked(run) > 0, "the first row")
        before = _rate(run, seconds)
        if (result := run.rescale(HOSTS).result(_PATIENCE_S)).outcome != "done":
            raise BenchError(f"the rescale of a benchmark was {result.outcome}: {result.error}")
        return before, _rate(run, seconds)


def _rate(run: fn.Run, seconds: float) -> float:
    """Rows per second from now on, over so many seconds, and longer if no row was reported by then."""
    # What was processed is reported now and then, so a short time may pass without any row.
    began_s, processed = time.monotonic(), _booked(run)
    pause(seconds)
    _await(run, lambda: _booked(run) > processed, "a row that is measured")
    return (_booked(run) - processed) / (time.monotonic() - began_s)


PEERS_RATE, PEERS_ACCOUNTS, PEERS_STATE_BYTES = 1_000, 5_000, 2_000
PEERS_MEASURED_S = 6.0
PAIRS_OF_SPARK = 2


class Gaps:
    """Measures the gap of each system, and counts wrong rows."""

    def __init__(self, spark: Any, accounts: int, seconds: float) -> None:
        # by system, rows that were lost, doubled or met another state, over all runs
        self.wrong = dict.fromkeys(("fries_nb", "bytewax", "Structured Streaming"), 0)
        self.partitions = 0  # the partitions of Spark's query after its restart
        self._spark = spark
        self._accounts = accounts
        self._seconds = seconds  # duration before the request, and after the rescale

    def ours(self) -> float:
        """Milliseconds without a row during ``run.rescale(2)``."""
        found = measured(self._spark, None, self._accounts, PEERS_STATE_BYTES, self._seconds)
        self.wrong["fries_nb"] += found.wrong
        return found.gap_ms

    def bytewax(self) -> float:
        """Milliseconds without a row while bytewax is stopped and resumed."""
        rows, requested_ns = bytewax_resumed(PEERS_RATE, self._accounts, PEERS_STATE_BYTES, self._seconds)
        return self._gap_ms("bytewax", rows, requested_ns)

    def streaming(self) -> float:
        """Milliseconds without a row while a query is restarted."""
        from fries_nb.experiments.rivals.streaming_jobs import restarted

        found = restarted(self._spark, PEERS_RATE, self._accounts, PEERS_STATE_BYTES, self._seconds)
        self.partitions = found.partitions
        return self._gap_ms("Structured Streaming", found.rows, found.requested_ns)

    def _gap_ms(self, system: str, rows: Sequence[Sequence[int]], requested_ns: int) -> float:
        values, nths, _ = zip(*rows, strict=True)
        self.wrong[system] += wrong_rows(values, nths, self._accounts)
        return gap_ms([at for _, _, at in rows], requested_ns)


def gap_ms(times_ns: Sequence[int], requested_ns: int) -> float:
    """The longest time between two rows, of which the second came after the request, in milliseconds.

    >>> gap_ms([0, 1_000_000, 9_000_000, 7_000_000], requested_ns=2_000_000)
    6.0
    """
    steps = [(after - before) / 1e6 for before, after in pairwise(sorted(times_ns)) if after >= requested_ns]
    return max(steps, default=0.0)


def rescale_peers(scale: float, runs: int) -> BenchReport:
    """Compare the gaps; ``scale`` multiplies the number of accounts and the duration."""
    with spark_session(HOSTS) as spark:
        gaps = Gaps(spark, max(1, int(PEERS_ACCOUNTS * scale)), PEERS_MEASURED_S * scale)
        ours = Side("fries_nb", gaps.ours)
        results = (
            pairs(ours, Side("bytewax, resumed", gaps.bytewax), runs, unit="ms"),
            pairs(ours, Side("Structured Streaming, restarted", gaps.streaming), min(runs, PAIRS_OF_SPARK), unit="ms"),
        )
    targets = tuple(
        Target(f"time without a row, of {name}", one.ratio_median, 0.5, at_least=False, unit="times")
        for name, one in zip(("bytewax", "Structured Streaming"), results, strict=True)
    )
    facts: dict[str, Any] = {f"rows lost, doubled or with another state, {name}": n for name, n in gaps.wrong.items()}
    facts["partitions of Structured Streaming after the restart"] = gaps.partitions
    facts |= {"rows/s": PEERS_RATE, "keys": int(PEERS_ACCOUNTS * scale), "bytes a key": PEERS_STATE_BYTES}
    return BenchReport("rescale-peers", scale, results, targets, facts, CREDIT_BYTES)


RECOVERY_RATE = 5_000.0
CUSTOMERS = 5_000
INTERVAL_S = 1.0
BEYOND_S = 3.0
_await_often = partial(until, look_s=0.005)


@dataclass(frozen=True)
class Recovered:
    """Durations of one recovery in seconds, up to loss detection, start of hosts by Spark, and output."""

    noticed_s: float
    restarted_s: float
    resumed_s: float

    @property
    def beyond_s(self) -> float:
        """The duration without Spark's part in seconds."""
        return self.noticed_s + self.resumed_s


def recovery(scale: float, runs: int) -> BenchReport:
    """Kill hosts one after the other; ``scale`` multiplies the rate and the number of keys."""
    customers = max(1, int(CUSTOMERS * scale))
    source = fn.rate(RECOVERY_RATE * scale, row=lambda value: {CUSTOMER: value % customers, AMOUNT: float(value % 97)})
    with spark_session() as spark, tempfile.TemporaryDirectory(prefix="fries-bench-") as target:
        run = w1_flow(source, fn.parquet(Path(target, "out"))).run(
            spark, HOSTS, HOSTS, commit_interval_s=INTERVAL_S, checkpoint=Path(target, "checkpoints")
        )
        try:
            _await_often(run, lambda: len(run.checkpoints) > 2, "the first checkpoints")
            found = [_killed(run, number % HOSTS) for number in range(runs)]
        finally:
            run.cancel()
    targets = (
        Target("kill to committed output, Spark's restart apart", _middle_of(found, "beyond_s"), BEYOND_S, False, "s"),
        Target("the longest of them", max(recovered.beyond_s for recovered in found), BEYOND_S, False, "s"),
    )
    facts = {
        "rows a second": RECOVERY_RATE * scale,
        "keys": customers,
        "checkpoint every, s": INTERVAL_S,
        "kills": runs,
        "kill to noticed, s": _middle_of(found, "noticed_s"),
        "Spark, submitted to last hello, s": _middle_of(found, "restarted_s"),
        "last hello to committed output, s": _middle_of(found, "resumed_s"),
    }
    return BenchReport("recovery", scale, (), targets, facts, CREDIT_BYTES)


def _killed(run: Run, host: int) -> Recovered:
    """Kill a host just after a checkpoint, and wait for two more, so that the next kill meets a recovered run."""
    before, kept = len(run.recoveries), len(run.checkpoints)
    _await_often(run, lambda: len(run.checkpoints) > kept, "the next checkpoint")
    kept = len(run.checkpoints)
    killed_s = time.time()
    os.kill(run.host_processes[host], signal.SIGKILL)
    _await_often(run, lambda: len(run.recoveries) > before and run.recoveries[-1].seconds is not None, "the hosts")
    recovered = run.recoveries[-1]
    restarted_s = recovered.seconds or 0.0
    back_s = recovered.at_s + restarted_s
    _await_often(run, lambda: any(checkpoint.at_s > back_s for checkpoint in run.checkpoints[kept:]), "new output")
    output_s = next(checkpoint.at_s for checkpoint in run.checkpoints[kept:] if checkpoint.at_s > back_s)
    kept = len(run.checkpoints)
    _await_often(run, lambda: len(run.checkpoints) > kept, "the next checkpoint")
    return Recovered(recovered.at_s - killed_s, restarted_s, output_s - back_s)


def _middle_of(found: list[Recovered], name: str) -> float:
    return median(float(getattr(one, name)) for one in found)
