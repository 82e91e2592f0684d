"""From a source's description to its readers: planned once on the driver, opened by each worker on its host."""

from __future__ import annotations

import math
from dataclasses import dataclass

from pyspark.sql import SparkSession

from fries_nb.connectors.replay import Span
from fries_nb.connectors.sources import RateReader, Reader, ReplayReader
from fries_nb.dataflow.endpoints import Rate, Replay
from fries_nb.messages import WorkerId
from fries_nb.spark.staging import stage_replay

WORKERS_PER_SOURCE = 1024
"""Bound on a source's workers; a source tuple's identity holds (source, worker) in 15 bits above its number."""


@dataclass(frozen=True)
class ReplayPlan:
    """Which rows each worker replays, and the rate of all together in tuples a second (``None`` is flat out)."""

    parts: tuple[tuple[Span, ...], ...]
    rate: float | None


SourcePlan = ReplayPlan | Rate


def plan_source(description: Replay | Rate, spark: SparkSession, scratch: str, name: str, workers: int) -> SourcePlan:
    """What the source's workers need to know. A DataFrame or a table is written to ``scratch`` once, and read there.

    Raises:
        SourceError: it cannot be replayed.
    """
    if isinstance(description, Rate):
        return description
    return ReplayPlan(tuple(stage_replay(description, spark, scratch, name, workers)), description.rate)


def open_reader(plan: SourcePlan, worker: WorkerId, workers: int, source: int, audit: bool, skip: int = 0) -> Reader:
    """The reader of one worker; ``source`` is the source's number in the graph, ``skip`` what it has read before."""
    number = source * WORKERS_PER_SOURCE + worker.index if audit else None
    rate = math.inf if plan.rate is None else plan.rate / workers
    if isinstance(plan, Rate):
        return RateReader(worker.index, workers, rate, plan.count, plan.row, number, skip)
    return ReplayReader(plan.parts[worker.index], rate, number, skip)
