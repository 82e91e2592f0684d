"""What every source promises to the worker that reads it, at any number of workers.

A new kind of source is one entry of ``KINDS``. What belongs to one kind alone is in ``test_sources``.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fries_nb.connectors.replay import plan_replay
from fries_nb.connectors.sources import Reader, ReplayPlan, SourcePlan, open_reader
from fries_nb.dataflow.endpoints import Rate
from fries_nb.messages import DUE, TRANSACTION, WorkerId

KINDS = ("rate", "rate with columns", "replay")
NOW = 1_700_000_000_000_000_000
ROWS = 23
SECOND = 10**9


def square(value: int) -> dict[str, int]:
    """A further column."""
    return {"square": value * value}


def plan_of(kind: str, path: Path, workers: int, rate: float | None) -> SourcePlan:
    """What the workers of a source of ``ROWS`` rows are shipped."""
    if kind != "replay":
        return Rate(rate, ROWS, square if kind == "rate with columns" else None)
    pq.write_table(pa.table({"value": range(ROWS)}), path / "rows.parquet", row_group_size=5)
    return ReplayPlan(tuple(plan_replay(str(path), workers)), rate)


def opened(plan: SourcePlan, workers: int, skip: int = 0) -> Iterator[Reader]:
    """The readers of all workers of source number 1, as hosts open them from what they were shipped."""
    shipped = pickle.loads(pickle.dumps(plan))
    for index in range(workers):
        yield open_reader(shipped, WorkerId("S", index), workers, 1, audit=True, skip=skip)


def read_all(reader: Reader, limit: int) -> list[dict[str, Any]]:
    """All that a reader gives, without the times; it is asked again when it has said so."""
    rows, now = [], NOW
    while not reader.exhausted:
        batch, again_at = reader.read(now, limit)
        if batch is not None:
            assert 1 <= batch.num_rows <= limit
            assert max(batch[DUE].to_pylist()) <= now
            rows += batch.select([name for name in batch.schema.names if name not in (DUE, "timestamp")]).to_pylist()
        assert batch is not None or again_at is not None
        assert again_at is None or again_at > now
        now = again_at or now
    return rows


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    """Each kind of source."""
    return str(request.param)


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_together_the_workers_give_each_row_once_and_the_same_each_time(
    kind: str, tmp_path: Path, workers: int
) -> None:
    """However many rows are asked for at a time, flat out or paced; identities are unique in the whole source."""
    parts = [
        [read_all(reader, limit) for reader in opened(plan_of(kind, tmp_path, workers, rate), workers)]
        for rate, limit in [(None, 1_000), (None, 1), (50.0, 3)]
    ]
    assert parts[0] == parts[1] == parts[2]
    rows = [row for part in parts[0] for row in part]
    assert sorted(row["value"] for row in rows) == list(range(ROWS))
    assert len({row[TRANSACTION] for row in rows}) == ROWS


@pytest.mark.parametrize("workers", [1, 2])
def test_at_every_position_what_is_left_is_exactly_the_rest(kind: str, tmp_path: Path, workers: int) -> None:
    """Rows and identities are those that an attempt without a break would have given, at the very end, too."""
    plan = plan_of(kind, tmp_path, workers, None)
    whole = [read_all(reader, 4) for reader in opened(plan, workers)]
    for skip in range(ROWS // workers + 1):
        assert [read_all(reader, 4) for reader in opened(plan, workers, skip)] == [part[skip:] for part in whole]


def test_an_end_is_an_end(kind: str, tmp_path: Path) -> None:
    """Whatever is asked then, and whatever the rate becomes."""
    [reader] = opened(plan_of(kind, tmp_path, 1, None), 1)
    assert len(read_all(reader, 1_000)) == ROWS
    reader.set_rate(10.0, NOW + SECOND)
    assert reader.read(NOW + 2 * SECOND, 10) == (None, None)
    assert reader.exhausted
    assert reader.position is None


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_the_rate_is_that_of_all_workers_together(kind: str, tmp_path: Path, workers: int) -> None:
    """Eight rows a second for a second are eight, and the first of each worker is due at once."""
    readers = list(opened(plan_of(kind, tmp_path, workers, 8.0), workers))
    first = [reader.read(NOW, 100)[0] for reader in readers]
    assert [batch.num_rows for batch in first if batch is not None] == [1] * workers
    second = [batch for reader in readers for batch in iter(lambda one=reader: one.read(NOW + SECOND, 100)[0], None)]
    assert sum(batch.num_rows for batch in second) == 8


def test_a_reader_that_has_nothing_due_answers_and_does_not_wait(kind: str, tmp_path: Path) -> None:
    """It says when to come back; a pause says nothing, and costs no row."""
    [reader] = opened(plan_of(kind, tmp_path, 1, 1.0), 1)
    reader.read(NOW, 100)
    assert reader.read(NOW + 1, 100) == (None, NOW + SECOND)
    reader.set_rate(0, NOW + 2)
    assert reader.read(NOW + 100 * SECOND, 100) == (None, None)
    assert not reader.exhausted
    reader.set_rate(float("inf"), NOW + 100 * SECOND)
    batch, _ = reader.read(NOW + 100 * SECOND, 2)
    assert batch is not None
    assert batch["value"].to_pylist() == [1, 2]
