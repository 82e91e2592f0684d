"""Our side of a benchmark: runs a flow to its end, on the Spark session and the payments that the rival uses too.

Spark refuses Parquet timestamps in nanoseconds, and distributes a file by row groups; so the file of payments has
microseconds, and row groups small enough for an even distribution.
"""

from __future__ import annotations

import math
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import fries_nb as fn
from fries_nb.errors import RunError
from fries_nb.experiments.bench.pairs import DIRECTORY
from fries_nb.experiments.measuring import session
from fries_nb.run import BUFFER_BUDGET_BYTES, Run
from fries_nb.workloads.payments import payments_path

HOSTS = 2
CREDIT_BYTES = BUFFER_BUDGET_BYTES
ROW_GROUP = 31_250
_PATIENCE_S = 600.0
_SCATTER = 0.05
"""By how much the time of starting differs from run to run, as a part of it."""

# From a path to read and a directory to write to, a flow.
Declare = Callable[[Path, str], fn.Dataflow]


def payments_file(rows: int, directory: Path = DIRECTORY / "data", columns: Sequence[str] = ()) -> Path:
    """A Parquet file of exactly ``rows`` payments, all columns or these; created once and kept in ``directory``."""
    path = directory / "-".join(["payments", str(rows), *columns, ".parquet"]).replace("-.", ".")
    if not path.exists():
        directory.mkdir(parents=True, exist_ok=True)
        table = pq.read_table(payments_path(rows)).slice(0, rows).replace_schema_metadata(None)
        at = table.schema.get_field_index("TX_DATETIME")
        table = table.set_column(at, "TX_DATETIME", table["TX_DATETIME"].cast(pa.timestamp("us")))
        table = table.select(columns) if columns else table
        unfinished = path.with_suffix(".unfinished")
        pq.write_table(table, unfinished, row_group_size=ROW_GROUP)
        unfinished.rename(path)
    return path


spark_session = session
"""The Spark session of a benchmark, for both sides; ends with the benchmark if it was started for it."""


@dataclass(frozen=True)
class Job:
    """A job that reads ``rows`` payments and writes them; ``seconds`` runs it once and returns its duration.

    ``start`` is its duration with one row in seconds, which separates the time of starting and ending from that of the
    rows.
    """

    rows: int
    seconds: Callable[[], float]
    start: float = 0.0

    def rate(self) -> float:
        """Rows per second over the complete job, starting and ending included."""
        return self.rows / self.seconds()

    def flowing_rate(self) -> float:
        """Rows per second while rows flow: the job's duration less that with one row; infinite if nothing is left."""
        flowing = self.seconds() - self.start
        return self.rows / flowing if flowing > _SCATTER * self.start else math.inf


def job(run_once: Callable[[Path], float], rows: int, columns: Sequence[str] = ()) -> Job:
    """The job ``run_once`` with a file of this many payments, after a warm-up; its start is measured three times."""
    path, one = payments_file(rows, columns=columns), payments_file(1, columns=columns)
    run_once(path)
    return Job(rows, lambda: run_once(path), median(run_once(one) for _ in range(3)))


@contextmanager
def _alone(run: Run) -> Iterator[None]:
    """A block in which nothing is done beside the run."""
    yield


def flow_seconds(
    declare: Declare, spark: Any, source: Path, hosts: int = HOSTS, checkpoints_s: float | None = None,
    begun: Callable[[Run], AbstractContextManager[None]] = _alone, **options: Any,
) -> float:  # fmt: skip
    """Seconds from ``run`` to the end of a flow with its output committed; one worker of an operator a host.

    ``begun`` is a block around the wait for the end.
    """
    target = tempfile.mkdtemp(prefix="fries-bench-")
    try:
        flow = declare(source, str(Path(target, "out")))
        started = time.perf_counter()
        options["checkpoint"] = "" if checkpoints_s is None else str(Path(target, "checkpoints"))
        run = flow.run(spark=spark, hosts=hosts, workers=hosts, commit_interval_s=checkpoints_s, **options)
        with begun(run):
            state, ended = run.wait(_PATIENCE_S), time.perf_counter()
        if state != "finished":
            raise RunError(f"the flow of a benchmark has {state}: {run.error}")
        return ended - started
    finally:
        shutil.rmtree(target)
