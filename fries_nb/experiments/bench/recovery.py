"""Recovery time after a host was killed: a keyed, stateful W1 at a constant rate, Parquet output, checkpoints.

It is measured from the kill to the first checkpoint after it, which makes new rows visible. The time in which Spark
cancels the old tasks and starts new ones, from the submission of the job to the last host's hello, is deducted. The
rest is the time to detect the loss, to resume, and to commit.
"""

from __future__ import annotations

import os
import signal
import tempfile
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median

import fries_nb as fn
from fries_nb.experiments.bench.ours import CREDIT_BYTES, HOSTS, spark_session
from fries_nb.experiments.bench.pairs import BenchReport, Target
from fries_nb.experiments.measuring import until
from fries_nb.run import Run
from fries_nb.workloads.scorer import AMOUNT, CUSTOMER
from fries_nb.workloads.w1 import w1_flow

RATE = 5_000.0
CUSTOMERS = 5_000
INTERVAL_S = 1.0
BEYOND_S = 3.0
_await = partial(until, look_s=0.005)


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
    source = fn.rate(RATE * scale, row=lambda value: {CUSTOMER: value % customers, AMOUNT: float(value % 97)})
    with spark_session() as spark, tempfile.TemporaryDirectory(prefix="fries-bench-") as target:
        run = w1_flow(source, fn.parquet(Path(target, "out"))).run(
            spark, HOSTS, HOSTS, commit_interval_s=INTERVAL_S, checkpoint=Path(target, "checkpoints")
        )
        try:
            _await(run, lambda: len(run.checkpoints) > 2, "the first checkpoints")
            found = [_killed(run, number % HOSTS) for number in range(runs)]
        finally:
            run.cancel()
    targets = (
        Target("kill to committed output, Spark's restart apart", _middle(found, "beyond_s"), BEYOND_S, False, "s"),
        Target("the longest of them", max(one.beyond_s for one in found), BEYOND_S, False, "s"),
    )
    facts = {
        "rows a second": RATE * scale,
        "keys": customers,
        "checkpoint every, s": INTERVAL_S,
        "kills": runs,
        "kill to noticed, s": _middle(found, "noticed_s"),
        "Spark, submitted to last hello, s": _middle(found, "restarted_s"),
        "last hello to committed output, s": _middle(found, "resumed_s"),
    }
    return BenchReport("recovery", scale, (), targets, facts, CREDIT_BYTES)


def _killed(run: Run, host: int) -> Recovered:
    """Kill a host just after a checkpoint, and wait for two more, so that the next kill meets a recovered run."""
    before, kept = len(run.recoveries), len(run.checkpoints)
    _await(run, lambda: len(run.checkpoints) > kept, "the next checkpoint")
    kept = len(run.checkpoints)
    killed_s = time.time()
    os.kill(run.host_processes[host], signal.SIGKILL)
    _await(run, lambda: len(run.recoveries) > before and run.recoveries[-1].seconds is not None, "the hosts")
    recovered = run.recoveries[-1]
    restarted_s = recovered.seconds or 0.0
    back_s = recovered.at_s + restarted_s
    _await(run, lambda: any(one.at_s > back_s for one in run.checkpoints[kept:]), "new output")
    output_s = next(checkpoint.at_s for checkpoint in run.checkpoints[kept:] if checkpoint.at_s > back_s)
    kept = len(run.checkpoints)
    _await(run, lambda: len(run.checkpoints) > kept, "the next checkpoint")
    return Recovered(recovered.at_s - killed_s, restarted_s, output_s - back_s)


def _middle(found: list[Recovered], name: str) -> float:
    return median(float(getattr(one, name)) for one in found)
