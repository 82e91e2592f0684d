"""Where a source begins: exactly the rows from a time, a row, or positions on; the rest is refused by name."""

from __future__ import annotations

import dataclasses
import datetime
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fries_nb as fn
from fries_nb.connectors.files import FilesSource
from fries_nb.connectors.own_connectors import OwnSourceCopy
from fries_nb.connectors.rate import RateSource
from fries_nb.connectors.replay import ReplaySource
from fries_nb.connectors.source import RuntimeSource, Split, restored_positions
from fries_nb.connectors.worker_reader import open_reader, planned
from fries_nb.dataflow.starts import AtRow, SourceStart, checked_starts
from fries_nb.dataflow.windowing import EventTime
from fries_nb.errors import DataflowError, SourceError
from fries_nb.protocol.checkpoints import Position
from fries_nb.protocol.messages import WorkerId
from fries_nb.spark.shipping import dumped

UTC = datetime.UTC
DAY = datetime.datetime(2026, 11, 1)


def started(start: Any) -> SourceStart:
    """What is given for one source."""
    return checked_starts({"S": start}, ["S"])["S"]


def rows_of(
    source: RuntimeSource, start: Any, workers: int = 1, column: str | None = None, restored: bool = False
) -> list[Any]:
    """The rows that all workers of a source read; of a run that is restored before it has begun."""
    timed = None if column is None else EventTime(column)
    plan = planned(source, workers, None, timed, "S")
    plan = plan if start is None else plan.beginning_at(started(start), "S")
    if restored:
        splits = msgspec.msgpack.decode(msgspec.msgpack.encode(plan.splits), type=tuple[Split, ...])
        plan = dataclasses.replace(plan, splits=splits)
    rows = []
    for index in range(workers):
        known = restored_positions(plan.splits, index, workers, {}, (), workers)
        reader = open_reader(plan, WorkerId("S", index), workers, 0, identities=False, positions=known)
        while not reader.exhausted:
            batch, _ = reader.read(time.time_ns(), 100)
            if batch is None:
                break
            rows += batch.to_pylist()
    return rows


def stored(path: Path, table: pa.Table, group: int = 7) -> ReplaySource:
    """A replay of a file."""
    pq.write_table(table, path / "rows.parquet", row_group_size=group)
    return ReplaySource(str(path / "rows.parquet"))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 30), min_size=1, max_size=60), st.integers(-1, 31), st.integers(1, 3), st.integers(1, 9))
def test_a_replay_begins_at_the_first_row_of_each_split_that_is_not_earlier(
    tmp_path_factory: pytest.TempPathFactory, times: list[int], since: int, workers: int, group: int
) -> None:
    """Also where times are not in order: a row in front of it is not read, one behind it is."""
    numbers = list(range(len(times)))
    source = stored(tmp_path_factory.mktemp("t"), pa.table({"at": times, "n": numbers}), group)
    plan = planned(source, workers, None, EventTime("at"), "S")
    expected = []
    for split in plan.splits:
        of_split = [split.place(row) for row in range(source.rows_of(split))]
        first = next((place for place, row in enumerate(of_split) if times[row] >= since), len(of_split))
        expected += of_split[first:]
    if not expected:
        with pytest.raises(SourceError, match=rf"^start= has {since} for source 'S', which has no row there"):
            rows_of(source, since, workers, "at")
        return
    assert sorted(row["n"] for row in rows_of(source, since, workers, "at", restored=True)) == sorted(expected)
    if times == sorted(times):
        assert {times[row] for row in expected} == {at for at in times if at >= since}


@pytest.mark.parametrize("zone", [None, "UTC", "Europe/Berlin"])
def test_times_without_an_offset_are_the_column_s_or_in_utc(tmp_path: Path, zone: str | None) -> None:
    """One with an offset is the same instant in any zone; to a column without zone it says nothing."""
    instants = [DAY.replace(tzinfo=UTC) + datetime.timedelta(hours=hour) for hour in range(50)]
    given = [one.replace(tzinfo=None) for one in instants] if zone is None else instants
    source = stored(tmp_path, pa.table({"at": pa.array(given, pa.timestamp("us", zone)), "n": range(50)}))
    for start in (DAY + datetime.timedelta(hours=24), "2026-11-02", "2026-11-02T00:00", pd.Timestamp("2026-11-02")):
        assert sorted(row["n"] for row in rows_of(source, start, column="at")) == list(range(24, 50))
    if zone is None:
        with pytest.raises(SourceError, match="without a time zone; expected a time without an offset"):
            rows_of(source, "2026-11-02T00:00+00:00", column="at")
    else:
        assert len(rows_of(source, "2026-11-02T02:00+02:00", column="at")) == 26
    with pytest.raises(SourceError, match=r"whose times are timestamp.*; expected a datetime"):
        rows_of(source, 7, column="at")


@pytest.mark.parametrize("place", [0, 1, 57, 99])
@pytest.mark.parametrize("workers", [1, 3])
def test_a_row_is_one_in_the_order_of_the_source(tmp_path: Path, place: int, workers: int) -> None:
    """Of a replay and of a rate."""
    replay = stored(tmp_path, pa.table({"n": range(100)}))
    assert sorted(row["n"] for row in rows_of(replay, place, workers, restored=True)) == list(range(place, 100))
    rate = rows_of(RateSource(count=100), place, workers)
    assert sorted(row["value"] for row in rate) == list(range(place, 100))


def test_positions_are_those_of_a_checkpoint(tmp_path: Path) -> None:
    """A number for each split, the frame of a checkpoint, or positions; another number of splits is of other rows."""
    source = stored(tmp_path, pa.table({"n": range(160)}))
    places: dict[int, Any] = dict.fromkeys(range(15), 3) | {15: None}
    frame = pd.DataFrame(
        [("S", split, row, None, row is None, 0) for split, row in places.items()] + [("T", 0, 1, None, False, 0)],
        columns=["source", "split", "row", "at", "ended", "worker"],
    )
    expected = [10 * split + row for split in range(15) for row in range(3, 10)]
    exact = {split: row and Position(row) for split, row in places.items()}
    for start in (places, frame, frame.convert_dtypes(), exact):
        assert sorted(row["n"] for row in rows_of(source, start)) == expected
    with pytest.raises(SourceError, match="positions of 16 splits for source 'S', which has 32; expected one of each"):
        rows_of(source, places, workers=2)
    with pytest.raises(SourceError, match="of which split 4 has 10 rows, and not 11"):
        rows_of(source, places | {4: 11})
    with pytest.raises(SourceError, match="which has no row there"):
        rows_of(source, dict.fromkeys(range(16)))
    with pytest.raises(DataflowError, match="start= has positions of S, T for source 'U'; expected those of 'U'"):
        checked_starts({"U": frame}, ["U"])
    known = frame.assign(next=[10 * split + 3 if split < 15 else None for split in range(16)] + [1])
    assert sorted(row["n"] for row in rows_of(source, known)) == expected
    words = "row 3 of split 4 was row 44 of the source, and is 43 now; expected .* time= or not as here"
    with pytest.raises(SourceError, match=words):
        rows_of(source, known.assign(next=known["next"].replace(43, 44)))


def test_files_that_were_changed_before_are_left_out(tmp_path: Path) -> None:
    """Of those that are there; whatever comes later is read."""
    for day in range(1, 5):
        file = tmp_path / f"{day}.json"
        file.write_text(f'{{"day": {day}}}\n')
        at = datetime.datetime(2026, 11, day, tzinfo=UTC).timestamp()
        os.utime(file, (at, at))
    source = FilesSource("S", str(tmp_path), "json", quiet_s=0)
    assert sorted(row["day"] for row in rows_of(source, None)) == [1, 2, 3, 4]
    assert sorted(row["day"] for row in rows_of(source, "2026-11-03", workers=2)) == [3, 4]
    assert rows_of(source, "2026-12-01") == []
    with pytest.raises(SourceError, match="a directory; expected the time since which files were changed"):
        rows_of(source, 7)
    with pytest.raises(SourceError, match=r"are not found by their numbers, as 7 for split 0; .* fn\.Position\("):
        rows_of(source, dict.fromkeys(range(16), 7))


class Letters:
    """A source of the user's: two splits of letters, of which a position has the index."""

    def splits(self, count: int) -> list[Split]:
        return [Split(0, "abcd"), Split(1, "efgh")]

    def open(self, split: Split, position: Position) -> Any:
        return _Letters(split.content, position)


class _Letters:
    def __init__(self, text: str, position: Position) -> None:
        self.text, self.position = text, position if position.row < len(text) else None

    def read(self, limit: int, now_ns: int) -> pa.RecordBatch:
        row = self.position.row
        self.position = Position(row + 1, row + 1) if row + 1 < len(self.text) else None
        return pa.RecordBatch.from_pylist([{"letter": self.text[row]}])


class Dated(Letters):
    """It finds a day, a letter each."""

    def __init__(self, found: Any = None) -> None:
        self.found = found

    def find(self, at: datetime.datetime) -> Mapping[int, Position | None]:
        assert at.tzinfo is UTC
        return {0: Position(at.day, at.day)} if self.found is None else self.found


def own(source: Any) -> OwnSourceCopy:
    """As the runtime has it."""
    return OwnSourceCopy("S", dumped(source))


def letters(rows: Sequence[Mapping[str, Any]]) -> str:
    """What was read, in order of the alphabet."""
    return "".join(sorted(row["letter"] for row in rows))


def test_a_source_of_the_user_s_finds_a_time() -> None:
    """By a method of its own, and takes positions that have all that it needs."""
    assert letters(rows_of(own(Dated()), "2026-11-02")) == "cdefgh"
    assert letters(rows_of(own(Letters()), {0: fn.Position(3, 3), 1: None})) == "d"
    assert started({0: fn.Position(3, [1])}).places == {0: AtRow(3, [1])}
    with pytest.raises(SourceError, match=r"2026-11-02 .* a Letters without find\(\); expected a source with find"):
        rows_of(own(Letters()), "2026-11-02")
    for wrong in ([0], {7: Position()}, {0: 3}):
        with pytest.raises(SourceError, match=r"whose find\(\) of Dated gave .*; expected a dict from the number"):
            rows_of(own(Dated(wrong)), "2026-11-02")
    with pytest.raises(SourceError, match=r"find\(\) of Dated raised AttributeError"):
        rows_of(own(Dated()), 7)


def test_a_topic_takes_a_time_as_its_own_start() -> None:
    """As ``kafka(..., start=)`` does, in UTC without an offset."""
    assert fn.kafka("a:1", "t").starting(DAY) == fn.kafka("a:1", "t", start=DAY)


@pytest.mark.parametrize(
    ("start", "said"),
    [
        ({"S": "noon"}, r"^start= has 'noon' for source 'S'; expected a datetime, a time as \"2026-11-01T00:00\""),
        ({"S": True}, "^start= has True for source 'S'; expected a datetime"),
        ({"S": {0: -1}}, "^start= has {0: -1} for source 'S'"),
        ({"S": {"0": 1}}, "^start= has {'0': 1} for source 'S'"),
        ({"S": {}}, "^start= has {} for source 'S'"),
        ({"s": 7}, "^start= is wrong: no source 's'; expected one of S; did you mean 'S'"),
        ("2026-11-01", "^start= is '2026-11-01'; expected source to place, as in start={'S': 0}"),
    ],
)
def test_a_mistake_is_one_sentence(start: Any, said: str) -> None:
    """It names what was given, and what is expected."""
    with pytest.raises(DataflowError, match=said):
        checked_starts(start, ["S"])


def test_what_a_source_cannot_find_is_refused(tmp_path: Path) -> None:
    """Rows without times have none; a rate has no past; a number that no row has."""
    replay = stored(tmp_path, pa.table({"n": range(10)}))
    with pytest.raises(SourceError, match=r"whose rows have no times; expected source.*time="):
        rows_of(replay, "2026-11-01")
    with pytest.raises(SourceError, match="which does not look for times; expected the position of each split"):
        rows_of(RateSource(count=9), "2026-11-01")
    for number in (-1, 10):
        with pytest.raises(SourceError, match=f"^start= has {number} for source 'S', wh"):
            rows_of(replay, number)
