"""What tests of runs on real Spark share: runs that are over behind a test, and have left nothing behind."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pyspark.sql import SparkSession
from run_setting import ended_runs

from fries_nb.run import Run


@pytest.fixture
def runs() -> Iterator[list[Run]]:
    """For runs, each of which ends with the test and leaves nothing behind."""
    with ended_runs() as made:
        yield made


@pytest.fixture
def kept(runs: list[Run]) -> Callable[[Run], Run]:
    """Takes a run, likewise, and gives it."""

    def keep(run: Run) -> Run:
        runs.append(run)
        return run

    return keep


@pytest.fixture
def started(spark: SparkSession, kept: Callable[[Run], Run]) -> Callable[..., Run]:
    """Starts flows, likewise."""

    def start(flow: Any, **options: Any) -> Run:
        return kept(flow.run(spark, **options))

    return start
