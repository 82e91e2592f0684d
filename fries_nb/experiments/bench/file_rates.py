"""W1 over a directory that may grow, against a replay of the same Parquet files."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

import fries_nb as fn
from fries_nb.experiments.bench.functions import LastTen
from fries_nb.experiments.bench.ours import CREDIT_BYTES, HOSTS, ROW_GROUP, flow_seconds, job, spark_session
from fries_nb.experiments.bench.pairs import Side, pairs
from fries_nb.experiments.bench.results import BenchReport, Target

ROWS = 4_000_000
FILES = 32
MARKER = "_END"


def files(scale: float, runs: int) -> BenchReport:
    """Compare W1 that reads a directory of Parquet files by ``fn.files`` with W1 that replays them.

    Both sides read the same files with one worker, so the difference is that of looking for files, telling whether they
    are complete, and reading several at a time.
    """
    rows = int(ROWS * scale)
    with spark_session() as spark:
        growing = job(lambda path: flow_seconds(partial(scored_from, _growing), spark, _divided(path)), rows)
        replayed = job(lambda path: flow_seconds(partial(scored_from, fn.replay), spark, _divided(path)), rows)
        sides = Side("files", growing.flowing_rate), Side("replay", replayed.flowing_rate)
        result = pairs(*sides, n=runs, unit="rows/s, rows flowing")
    target = Target("throughput of files, of that of a replay", result.ratio_median, 0.95)
    facts = {"rows": rows, "files": FILES, "hosts": HOSTS, "seconds with one row": growing.start}
    return BenchReport("files", scale, (result,), (target,), facts, CREDIT_BYTES)


def scored_from(read: Callable[[str], Any], source: Path, target: str) -> fn.Dataflow:
    """W1 over a source.

    Args:
        read: makes the description of the source.
        source: the directory.
        target: the directory of the output.
    """
    flow = fn.Dataflow("W1")
    payments = flow.source("Src", read(str(source)))
    payments.map("FD", LastTen(), key="CUSTOMER_ID").sink("Sink", fn.parquet(target))
    return flow


def _growing(directory: str) -> Any:
    return fn.files(directory, "parquet", until=MARKER)


def _divided(path: Path) -> Path:
    """A directory with the rows of a file in ``FILES`` files, or one if there are few rows; made once."""
    directory = path.with_suffix(".files")
    if not (directory / MARKER).exists():
        directory.mkdir(parents=True, exist_ok=True)
        table = pq.read_table(path)
        each = -(-table.num_rows // FILES)
        for number, first in enumerate(range(0, table.num_rows, each)):
            pq.write_table(table.slice(first, each), directory / f"{number:03}.parquet", row_group_size=ROW_GROUP)
        (directory / MARKER).touch()
    return directory
