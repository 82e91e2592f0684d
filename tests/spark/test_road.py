"""The road of a tuple on Spark, seen from the calls in its hosts: the files that ARCHITECTURE.md lists, no others."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import cloudpickle
import pytest
import roads
from run_setting import ended_runs, until

import fries_nb as fn

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

REHEARSAL = {"operators/dry_run.py"}
"""A worker keeps some recent tuples for the rehearsal of a change; that is no part of the road."""
LONG_SLICES = {"operators/inner_loop.py"}
"""On a machine that is slow, tuples wait for each other: long slices pass it instead, as ARCHITECTURE.md says."""


class Traced:
    """A map that records, from its ``open()`` on, the files through which tuples pass in all threads of its host.

    Args:
        directory: where each worker writes a file, with a line for each file of the package.
    """

    def __init__(self, directory: str) -> None:
        self.directory = directory

    def open(self) -> None:
        """Hosts open their functions before they start the threads of their workers."""
        self.files = roads.FilesPassed(roads.TUPLES)
        threading.setprofile(self.files)
        sys.setprofile(self.files)

    def process(self, row: dict[str, Any]) -> dict[str, Any]:
        """Write what is known by now: later rows know of the road of earlier ones.

        The list is replaced whole: a file written in place is empty for a moment, in which the test may read it.
        """
        written = Path(self.directory, f"{os.getpid()}-{id(self)}")
        written.write_text("\n".join(sorted(self.files.found)))
        written.replace(written.with_suffix(".files"))
        return {**row, "y": 1}


@pytest.fixture
def shipped() -> Iterator[None]:
    """Hosts have no test modules: what they need of them travels by value."""
    here = sys.modules[__name__]
    for module in (here, roads):
        cloudpickle.register_pickle_by_value(module)
    yield
    for module in (here, roads):
        cloudpickle.unregister_pickle_by_value(module)


def test_a_tuple_on_spark_passes_the_files_that_are_listed(spark: SparkSession, tmp_path: Path, shipped: None) -> None:
    """Between two hosts, from a reader of Parquet to the writer of a part."""
    rows = tmp_path / "rows.parquet"
    spark.range(200_000).toDF("k").write.parquet(str(rows))
    traces = tmp_path / "traces"
    traces.mkdir()
    flow = fn.Dataflow("road")
    source = flow.source("S", fn.replay(str(rows), rate=200))
    source.map("M", Traced(str(traces)), key="k").sink("Z", fn.memory())
    listed = roads.listed("The road of a tuple") | roads.listed("The road of a tuple", shell=True)

    def passed() -> set[str]:
        lines = {line for file in traces.glob("*.files") for line in file.read_text().splitlines()}
        return lines - REHEARSAL - LONG_SLICES

    with ended_runs() as runs:
        run = flow.run(spark=spark, hosts=2, workers=2)
        runs.append(run)
        until(lambda: passed() >= listed, run)
        assert passed() == listed
