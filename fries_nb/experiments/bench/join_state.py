"""The state of a join of two streams over many rows: as large as its bounds make it, not as its input.

Each row of the left side meets the right rows of its key of the ten seconds before it. So ``WITHIN_S`` times the rate
of the right side is the number of rows that are kept, however long the join runs, and beside them those of the side
that was read further: as many as fit into the buffers of the channels. The former is measured with rows that come at
their rate, and both with rows that are read as fast as they are joined.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import fries_nb as fn
from fries_nb.experiments.bench.ours import CREDIT_BYTES, HOSTS, spark_session
from fries_nb.experiments.bench.pairs import DIRECTORY, BenchError, BenchReport, Side, Target, pairs
from fries_nb.experiments.measuring import pause, running
from fries_nb.run import Run

ROWS = 10_000_000
RATE = 100
"""Rows of a side per second of event time."""
KEYS, WITHIN_S = 1_000, 10
CHUNK, LOOK_S = 50_000, 1.0
PACED, PACED_S = 2_000.0, 8.0
"""Rows of a side per second, at a rate that is kept; and for how long it is looked at."""


def join_state(scale: float, runs: int) -> BenchReport:
    """The greatest size of the state in the second half of a long join, of that in the first half."""
    rows = int(ROWS * scale)
    with spark_session(HOSTS) as spark, tempfile.TemporaryDirectory(prefix="fries-bench-") as place:
        with running(joined(rows, f"{place}/paced", PACED), spark, checkpoint="", commit_interval_s=None) as run:
            pause(PACED_S / 2)
            kept = [size_of(run) for _ in range(int(PACED_S / 2))]
        sizes, seconds = _flat_out(spark, joined(rows, f"{place}/out"))
    half = len(sizes) // 2
    sides = Side("second half", lambda: max(sizes[half:])), Side("first half", lambda: max(sizes[:half]))
    result = pairs(*sides, n=1, unit="bytes of state, at most")
    target = Target("greatest state of the second half, of that of the first", result.ratio_median, 1.5, at_least=False)
    facts = {
        "rows": rows, "rows/s": rows / seconds, "rows within the bounds": RATE * WITHIN_S,
        "bytes at a rate that is kept": max(kept), "bytes flat out, in tenths of the time": _tenths(sizes),
    }  # fmt: skip
    return BenchReport("join-state", scale, (result,), (target,), facts, CREDIT_BYTES)


def side_file(side: str, rows: int, directory: Path = DIRECTORY / "data") -> Path:
    """A Parquet file of the rows of a side, written in chunks; created once and kept in ``directory``."""
    path = directory / f"{side}-{rows}.parquet"
    if not path.exists():
        directory.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_suffix(".unfinished")
        schema = pa.schema([("at", pa.timestamp("us")), ("key", pa.int64()), (side, pa.int64())])
        with pq.ParquetWriter(unfinished, schema) as writer:
            for first in range(0, rows, CHUNK):
                number = np.arange(first, min(first + CHUNK, rows))
                at = pa.array(number * (1_000_000 // RATE)).cast(pa.timestamp("us"))
                writer.write_batch(pa.record_batch([at, number * 7919 % KEYS, number], schema=schema))
        unfinished.rename(path)
    return path


def joined(rows: int, target: str, rate: float | None = None) -> fn.Dataflow:
    """So many rows, half of them of each side, joined."""
    flow = fn.Dataflow("joined")
    left, right = (
        flow.source(side, fn.replay(str(side_file(side, rows // 2)), rate), time="at", workers=None)
        for side in ("left", "right")
    )
    left.join_within("Join", right, on=["key"], before=WITHIN_S, after=0).sink("out", fn.parquet(target))
    return flow


def size_of(run: Run) -> int:
    """Bytes of the join's state, a second later."""
    pause(LOOK_S)
    return int(run.state_sizes()["bytes"].sum())


def _flat_out(spark: Any, flow: fn.Dataflow) -> tuple[list[int], float]:
    """The sizes of the state until all rows are read, one in each second, and the time that it took."""
    began_s, sizes = time.monotonic(), list[int]()
    run = flow.run(spark=spark, hosts=HOSTS, workers=HOSTS, checkpoint="", commit_interval_s=None)
    while run.state in ("joining", "running"):
        sizes.append(size_of(run))
    if run.state != "finished":
        raise BenchError(f"the flow of a benchmark is {run.state}: {run.error}")
    return sizes, time.monotonic() - began_s


def _tenths(sizes: list[int]) -> list[int]:
    """The greatest size in each tenth."""
    return [max(part.tolist()) for part in np.array_split(np.array(sizes), 10) if len(part)]
