"""What all tests share: how hard properties are tried, and one Spark."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from _pytest.doctest import DoctestModule
from hypothesis import settings
from quick_start import SYNTAX
from soak import SOAK

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

sys.modules.setdefault(SYNTAX, None)  # type: ignore[arg-type]
os.environ.pop("FRIES_PROGRESS", None)  # what a developer has switched off is looked at by tests
# Some images tell Python to keep nothing of what it compiles: then each kernel, host and driver compiles all of ours.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

settings.register_profile("fries", max_examples=40 * SOAK, derandomize=SOAK == 1, deadline=None, print_blob=True)
settings.load_profile("fries")

LONGEST_FIRST = (
    "experiments/test_experiments.py", "notebook/test_browser_views.py", "notebook/test_notebooks.py",
    "notebook/test_browser_runs.py", "experiments/test_rescaling.py", "spark/test_requeues.py", "labs/test_labs.py",
    "spark/test_session.py", "spark/test_cluster.py", "experiments/test_nephele7.py", "spark/test_sight_of_runs.py",
    "spark/test_commit_deaths.py", "spark/test_key_states.py", "spark/test_state_classes.py", "spark/test_loops.py",
    "spark/test_scaled_operators.py", "spark/test_chaos.py", "simulation/test_matrix.py",
    "simulation/test_reshaping.py", "test_readme.py", "test_packaging.py", "test_site.py", "notebook/test_offers.py",
    "notebook/test_comparison.py",
    "spark/test_loop_changes.py", "spark/test_ends.py", "spark/test_run.py", "spark/test_borrowed.py",
    "spark/test_reshaping_kills.py", "spark/test_catalog.py", "spark/test_regions.py", "spark/test_liveness.py",
    "spark/test_cut.py", "spark/test_reshaping.py",
    "spark/test_kafka.py", "spark/test_run_checkpoints.py", "connectors/test_kafka_sink.py",
    "simulation/test_loops.py", "simulation/test_threads.py", "simulation/test_threaded_joining.py",
    "operators/test_bounds.py", "storage/test_crash_points.py",
)  # fmt: skip
"""Files that take long, under ``tests``: one that begins last would be run by one process, while the others wait."""


@pytest.hookimpl(wrapper=True)
def pytest_collect_file() -> Generator[None, list[pytest.Collector], list[pytest.Collector]]:
    """Tests have no doctests, so their modules need not be looked through for them."""
    return [found for found in (yield) if not isinstance(found, DoctestModule)]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files that take long come first, in the order of their names above."""
    places = {Path(__file__).parent / name: place for place, name in enumerate(LONGEST_FIRST)}
    items.sort(key=lambda item: places.get(item.path, len(places)))


def pytest_collection_finish() -> None:
    """What was collected stays to the end: the garbage collector need not look through it again and again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 20, 100)


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The one Spark of all tests: the embedded one, with room for two hosts and two to grow."""
    from fries_nb.spark.session import start_or_find

    lease = start_or_find(hosts=2)
    yield lease.spark
    lease.release()
