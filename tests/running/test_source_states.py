"""How far sources are: by their rate, by what their readers know, and after their end."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import fries_nb as fn
from fries_nb.connectors.source import RuntimeReader, RuntimeSource, Split
from fries_nb.connectors.worker_reader import open_reader, planned
from fries_nb.protocol.checkpoints import Position, Reading
from fries_nb.protocol.messages import Report, WorkerId
from fries_nb.telemetry.run_states import Explanation, lag, source_states

MS = 1_000_000


class LogReader(RuntimeReader):
    """Has five rows, of which the first came two seconds ago."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.position: Position | None = Position()

    def read(self, limit: int, now_ns: int) -> pa.RecordBatch | None:
        """Nothing for the moment, as a peer that is slow."""
        return None

    @property
    def place(self) -> str:
        """As users say it."""
        return f"partition {self.number}, offset 0"

    def behind(self, now_ns: int) -> tuple[int | None, int | None]:
        """Partition 1 does not know since when."""
        return 5, None if self.number else 2_000 * MS


class Log(RuntimeSource):
    """Two partitions."""

    def splits(self, count: int) -> list[Split]:
        """They."""
        return [Split(0), Split(1)]

    def open(self, split: Split, position: Position) -> LogReader:
        """One."""
        return LogReader(split.number)


def reading(source: Any, rate: float | None, now_ns: int) -> Reading | None:
    """What the one worker of a source tells, a while after its first read."""
    reader = open_reader(planned(source, 1, rate), WorkerId("S", 0), 1, 0, identities=False)
    reader.read(0, 1)
    return reader.reading(now_ns)


def test_a_log_is_behind_by_what_it_has() -> None:
    """Over all partitions; the oldest row counts where it is known."""
    assert reading(Log(), None, 5 * MS) == Reading(
        ("partition 0, offset 0", "partition 1, offset 0"), behind=10, behind_ns=2_000 * MS
    )


@pytest.mark.parametrize(("at_ms", "behind"), [(5, 10), (30, 31)])
def test_of_both_the_larger_counts(at_ms: int, behind: int) -> None:
    """Rows that are due by the rate, or rows that are there."""
    found = reading(Log(), 1_000, at_ms * MS)
    assert found is not None
    assert found.behind == behind


def numbers(count: int | None = None) -> Any:
    """Two sources."""
    flow = fn.Dataflow("numbers")
    left, right = flow.source("left", fn.rate(10, count=count)), flow.source("right", fn.replay("/x.parquet"))
    left.union("both", right).sink("out", fn.memory())
    return flow.graph(workers=2)


def test_workers_are_added_up() -> None:
    """Rows of all workers, and the longest wait; a worker that has read everything says nothing."""
    reports = [
        Report(WorkerId("left", 0), 30, 0, reading=Reading(("row 3",), 7, 400 * MS)),
        Report(WorkerId("left", 1), 12, 0, reading=Reading(("row 4",), 5, 2_500 * MS)),
        Report(WorkerId("right", 0), 9, 0),
        Report(WorkerId("out", 0), 51, 0),
    ]
    left, right = source_states(numbers(), reports, over=False)
    assert (left.read, left.behind, left.behind_s, left.ended) == (42, 12, 2.5, False)
    assert left.places == {"left[0]": ("row 3",), "left[1]": ("row 4",)}
    assert (right.read, right.behind, right.ended, right.reads) == (9, None, True, "/x.parquet")
    assert lag(left, 1.0) == "left is 12 rows and 2.5 s behind"
    assert (lag(left, 3.0), lag(right, 0.0)) == ("", "")
    assert repr(Explanation([left, right])).splitlines() == [
        "left reads generated rows, 10 a second: 42 read, 12 behind for 2.5 s",
        "   left[0]: row 3",
        "   left[1]: row 4",
        "right reads /x.parquet: 9 read, at its end",
    ]


def test_a_run_that_is_over_or_has_not_begun() -> None:
    """Nothing is behind then, and a source of which nothing was heard has not ended."""
    assert [state.ended for state in source_states(numbers(5), [], over=True)] == [True, True]
    [left, _] = source_states(numbers(5), [], over=False)
    assert str(left) == "left reads 5 generated rows, 10 a second: 0 read"
