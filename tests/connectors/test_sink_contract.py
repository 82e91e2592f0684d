"""What every sink promises, whatever keeps its rows: write, prepare (close what a commit takes), commit.

A new kind of sink is one entry of ``KINDS``. What belongs to files alone is in ``test_sinks``.
"""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fries_nb.connectors.file_sink import FileSink, as_it_comes
from fries_nb.errors import SinkError
from fries_nb.messages import WorkerId
from fries_nb.storage import delta, manifest
from fries_nb.storage.checkpoint_store import SINKS
from fries_nb.storage.delta_columns import TableColumns
from fries_nb.storage.targets import Targets

KINDS = ("parquet", "delta", "memory")
RUN = "r1"


@dataclass(frozen=True)
class Target:
    """A sink's target as the driver and its workers use it; made anew, it is that of another process."""

    path: str
    is_table: bool

    def claim(self) -> None:
        """Take it for the flow, as each start does."""
        manifest.claim(self.path, "flow", table=self.is_table)

    def worker(self, index: int = 0, incarnation: int = 1) -> FileSink:
        """A sink worker."""
        fit = TableColumns(self.path, delta.columns(self.path)).fit if self.is_table else as_it_comes
        return FileSink(self.path, WorkerId("scored", index), incarnation, RUN, fit=fit)

    def prepared(self, *rows: dict[str, Any], index: int = 0, incarnation: int = 1) -> tuple[str, ...]:
        """What a commit of these rows takes."""
        worker = self.worker(index, incarnation)
        for row in rows:
            worker.write(pa.RecordBatch.from_pylist([row]))
        return worker.close_part()

    def commit(self, number: int, prepared: tuple[str, ...]) -> None:
        """As the driver does: see that it can be committed, then commit."""
        Targets({"scored": self.path}, RUN).prepare("scored", prepared)
        manifest.commit(self.path, number, prepared)

    def repeat(self, number: int, prepared: tuple[str, ...]) -> None:
        """As a start does for what the last record names, whether it has been committed or not."""
        manifest.commit(self.path, number, prepared)

    def seen(self) -> list[dict[str, Any]]:
        """The rows that are output, without the columns that they lack."""
        rows = [row for file in manifest.committed(self.path, RUN) for row in pq.read_table(file).to_pylist()]
        return sorted(({name: value for name, value in row.items() if value is not None} for row in rows), key=str)


@pytest.fixture(params=KINDS)
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Target:
    """A target of each kind, claimed and empty."""
    path = tmp_path / SINKS / "scored" if request.param == "memory" else tmp_path / "out"
    one = Target(str(path), request.param == "delta")
    one.claim()
    return one


def test_what_is_prepared_and_not_committed_is_not_seen(target: Target) -> None:
    """Also behind another start, which completes what is committed and nothing else."""
    prepared = target.prepared({"n": 1}, {"n": 2})
    assert target.seen() == []
    target.claim()
    assert target.seen() == []
    target.commit(1, prepared)
    assert target.seen() == [{"n": 1}, {"n": 2}]


def test_a_commit_takes_what_was_written_since_the_last_one(target: Target) -> None:
    """Nothing written is nothing to commit; what was handed out is not handed out again."""
    worker = target.worker()
    assert worker.close_part() == ()
    worker.write(pa.RecordBatch.from_pylist([{"n": 1}]))
    first = worker.close_part()
    assert worker.close_part() == ()
    worker.write(pa.RecordBatch.from_pylist([{"n": 2}]))
    second = worker.close_part()
    target.commit(1, first)
    assert target.seen() == [{"n": 1}]
    target.commit(2, second)
    target.commit(3, ())
    assert target.seen() == [{"n": 1}, {"n": 2}]


def test_committing_twice_is_committing_once(target: Target) -> None:
    """A driver may not know whether its last commit went through, or the one before."""
    first, second = target.prepared({"n": 1}), target.prepared({"n": 2}, index=1)
    for number, prepared in [(1, first), (1, first), (2, second), (1, first), (2, second)]:
        target.commit(number, prepared)
        target.repeat(number, prepared)
    assert target.seen() == [{"n": 1}, {"n": 2}]


def test_a_number_is_committed_with_one_set_of_rows(target: Target) -> None:
    """Others under the same number are refused, and what is committed stays."""
    target.commit(1, target.prepared({"n": 1}))
    with pytest.raises(SinkError, match=r"is committed in .* with other files"):
        target.commit(1, target.prepared({"n": 2}, index=1))
    assert target.seen() == [{"n": 1}]


def test_an_older_incarnation_is_refused(target: Target) -> None:
    """By itself, and together with rows of the present one."""
    late = target.prepared({"n": 99}, incarnation=1)
    target.commit(1, target.prepared({"n": 1}, incarnation=2))
    for prepared in (late, late + target.prepared({"n": 2}, index=1, incarnation=2)):
        with pytest.raises(SinkError, match=r"is of incarnation 1, and .* is at 2"):
            target.commit(2, prepared)
    assert target.seen() == [{"n": 1}]


@pytest.mark.parametrize("goes_on", [True, False])
def test_killed_between_prepare_and_commit(target: Target, goes_on: bool) -> None:
    """What was recorded is committed by whoever comes next; else the rows come anew, and the old ones never."""
    prepared = target.prepared({"n": 1})
    shipped = pickle.loads(pickle.dumps(prepared))  # all that is left of the process
    target.claim()
    if goes_on:
        target.repeat(1, shipped)
    else:
        target.commit(1, target.prepared({"n": 1}, incarnation=2))
        with pytest.raises(SinkError, match="is of incarnation 1"):
            target.commit(2, shipped)
        manifest.sweep(target.path, RUN, 2)
        assert not list(Path(target.path).rglob("_fries/pending/*.parquet"))
    target.claim()
    assert target.seen() == [{"n": 1}]


def test_columns_may_be_added(target: Target) -> None:
    """Within one commit and from one to the next; rows of before keep what they had."""
    target.commit(1, target.prepared({"n": 1}, {"n": 2, "name": "x"}))
    target.commit(2, target.prepared({"n": 3, "name": "y", "score": 0.5}, index=1))
    target.commit(3, target.prepared({"n": 4}, index=2))
    assert target.seen() == [{"n": 1}, {"n": 2, "name": "x"}, {"n": 3, "name": "y", "score": 0.5}, {"n": 4}]


def test_a_column_that_changes_its_kind_is_refused(target: Target) -> None:
    """At the sink worker or in front of the commit; what is committed stays, and others can be committed."""
    target.commit(1, target.prepared({"n": 1}))
    with pytest.raises(SinkError, match="column 'n'"):
        target.commit(2, target.prepared({"n": "x"}, index=1))
    target.commit(2, target.prepared({"n": 2}, index=2))
    assert target.seen() == [{"n": 1}, {"n": 2}]
