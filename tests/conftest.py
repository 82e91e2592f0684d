"""What all tests share: how hard properties are tried, and one Spark."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings
from soak import SOAK

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

os.environ.pop("FRIES_PROGRESS", None)  # what a developer has switched off is looked at by tests

settings.register_profile("fries", max_examples=100 * SOAK, derandomize=SOAK == 1, deadline=None, print_blob=True)
settings.load_profile("fries")


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
