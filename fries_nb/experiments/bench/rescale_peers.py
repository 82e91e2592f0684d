"""From one worker to two with the same keyed state: ours while rows flow, and what others do instead.

    bytewax                 stopped in good order and resumed with two processes from its recovery partitions
    Structured Streaming    stopped and restarted from its checkpoint, twice the shuffle partitions being asked for
    Flink                   a savepoint and a restart; not measured, since it is not a Python package with a runtime

Compared is the longest time without any row coming out, from the request on. Rows that are lost, doubled or met another
state are counted on every side.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from fries_nb.experiments.bench.apart import bytewax_resumed
from fries_nb.experiments.bench.ours import CREDIT_BYTES, HOSTS, spark_session
from fries_nb.experiments.bench.pairs import Side, pairs
from fries_nb.experiments.bench.results import BenchReport, Target
from fries_nb.experiments.rescaling import measured
from fries_nb.workloads.accounts import wrong_rows

RATE, ACCOUNTS, STATE_BYTES = 1_000, 5_000, 2_000
MEASURED_S = 6.0
PAIRS_OF_SPARK = 2


class Gaps:
    """Measures the gap of each system, and counts wrong rows.

    Args:
        spark: the session.
        accounts: number of accounts.
        seconds: duration before the request, and after the rescale.

    Attributes:
        wrong: by system, rows that were lost, doubled or met another state, over all runs.
        partitions: the partitions of Spark's query after its restart.
    """

    def __init__(self, spark: Any, accounts: int, seconds: float) -> None:
        self.wrong = dict.fromkeys(("fries_nb", "bytewax", "Structured Streaming"), 0)
        self.partitions = 0
        self._spark = spark
        self._accounts = accounts
        self._seconds = seconds

    def ours(self) -> float:
        """Milliseconds without a row during ``run.rescale(2)``."""
        found = measured(self._spark, None, self._accounts, STATE_BYTES, self._seconds)
        self.wrong["fries_nb"] += found.wrong
        return found.gap_ms

    def bytewax(self) -> float:
        """Milliseconds without a row while bytewax is stopped and resumed."""
        rows, requested_ns = bytewax_resumed(RATE, self._accounts, STATE_BYTES, self._seconds)
        return self._gap_ms("bytewax", rows, requested_ns)

    def streaming(self) -> float:
        """Milliseconds without a row while a query is restarted."""
        from fries_nb.experiments.rivals.streaming_accounts import restarted

        found = restarted(self._spark, RATE, self._accounts, STATE_BYTES, self._seconds)
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
        gaps = Gaps(spark, max(1, int(ACCOUNTS * scale)), MEASURED_S * scale)
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
    facts |= {"rows/s": RATE, "keys": int(ACCOUNTS * scale), "bytes a key": STATE_BYTES}
    return BenchReport("rescale-peers", scale, results, targets, facts, CREDIT_BYTES)
