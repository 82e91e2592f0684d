"""What checkpoints cost: W1 flat out with a checkpoint every five seconds, and without any, in turn."""

from __future__ import annotations

from fries_nb.experiments.bench.ours import CREDIT_BYTES, HOSTS, flow_seconds, job, spark_session
from fries_nb.experiments.bench.pairs import Side, pairs
from fries_nb.experiments.bench.results import BenchReport, Target
from fries_nb.experiments.bench.w1 import scored

ROWS = 12_000_000
"""Half a minute on two cores: several checkpoints fall into a run."""
INTERVAL_S = 5.0


def checkpoint(scale: float, runs: int) -> BenchReport:
    """The side without commits but once, at its end; so what commits cost counts as well."""
    rows = int(ROWS * scale)
    with spark_session() as spark:
        kept = job(lambda source: flow_seconds(scored, spark, source, checkpoints_s=INTERVAL_S), rows)
        bare = job(lambda source: flow_seconds(scored, spark, source), rows)
        result = pairs(
            Side(f"a checkpoint every {INTERVAL_S:g} s", kept.flowing_rate),
            Side("none", bare.flowing_rate),
            runs,
            unit="rows/s",
        )
    target = Target("throughput with checkpoints, of that without", result.ratio_median, 0.95, unit="times")
    facts = {"rows": rows, "hosts": HOSTS, "seconds without": rows / result.b_median, "state": "ten amounts a customer"}
    return BenchReport("checkpoint", scale, (result,), (target,), facts, CREDIT_BYTES)
