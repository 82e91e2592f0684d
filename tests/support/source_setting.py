"""Readers of sources, as a worker has them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from fries_nb.connectors.rate import RateSource
from fries_nb.connectors.replay import ReplaySource
from fries_nb.connectors.row_groups import Span
from fries_nb.connectors.source import Position, Split, split_count, splits_of
from fries_nb.connectors.worker_reader import FROM_THE_START, Positions, WorkerReader


def rate_reader(
    worker: int,
    workers: int,
    rate: float,
    count: int | None = None,
    row: Callable[[int], Any] | None = None,
    number: int | None = None,
    positions: Positions = FROM_THE_START,
) -> WorkerReader:
    """A worker's part of rows made up, with a rate of its own."""
    source = RateSource(count, row)
    splits = splits_of(source.splits(split_count(workers)), worker, workers)
    return WorkerReader(source, splits, rate, number, positions)


def span_reader(spans: Sequence[Span], rate: float, number: int | None = None, skip: int = 0) -> WorkerReader:
    """One split of a replay; split and source have one number."""
    split = Split(number or 0, msgspec.to_builtins(tuple(spans)), 0, 1)
    return WorkerReader(
        ReplaySource(), [split], rate, None if number is None else 0, {split.number: Position(skip)}
    )
