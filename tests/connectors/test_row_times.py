"""Times of rows: the hidden column, and exact lower bounds of the times of what was not read yet."""

from __future__ import annotations

import random
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import source_contract
from hypothesis import given
from hypothesis import strategies as st
from source_contract import reader_of

import fries_nb as fn
from fries_nb.connectors import replay, row_groups, row_times
from fries_nb.connectors.replay import ReplaySource
from fries_nb.connectors.row_groups import Span, block_rows, deal
from fries_nb.connectors.source import Position, Split, split_count
from fries_nb.connectors.worker_reader import SourcePlan, WorkerReader, planned
from fries_nb.dataflow.columns import TIME, TRANSACTION
from fries_nb.dataflow.windowing import EventTime
from fries_nb.errors import SourceError
from fries_nb.protocol.trace import ROW_BITS
from fries_nb.spark import staging
from fries_nb.spark.staging import plan_source

NOW = source_contract.NOW
DAY = 86_400_000_000_000
AT = EventTime("at", ahead=2)

KINDS: dict[str, tuple[pa.DataType, int]] = {
    "int64": (pa.int64(), 1),
    "int8": (pa.int8(), 1),
    "uint32": (pa.uint32(), 1),
    "seconds": (pa.timestamp("s"), 10**9),
    "milliseconds": (pa.timestamp("ms", "Europe/Paris"), 10**6),
    "microseconds": (pa.timestamp("us", "UTC"), 10**3),
    "nanoseconds": (pa.timestamp("ns"), 1),
    "days": (pa.date32(), DAY),
    "days in milliseconds": (pa.date64(), DAY),
    "dictionary": (pa.dictionary(pa.int32(), pa.int64()), 1),
    "INT96": (pa.timestamp("us"), 10**3),
}
"""Kinds of columns, each with the number of ticks that one unit is."""


@dataclass
class TimedRows:
    """Files in a directory, and what they hold: row n of the source has ``value`` n and the time ``times[n]``."""

    path: Path
    kind: str
    times: list[int]

    def plan(self, workers: int) -> SourcePlan:
        """As the driver plans the replay."""
        return planned(ReplaySource(str(self.path)), workers, None, AT, "pay")


def column(kind: str, units: list[int]) -> pa.Array:
    """A column of times of some kind."""
    of, _ = KINDS[kind]
    if kind == "days":
        return pa.array(units, pa.int32()).cast(of)
    if kind == "days in milliseconds":
        return pa.array([unit * 86_400_000 for unit in units], pa.int64()).cast(of)
    if pa.types.is_dictionary(of):
        return pa.array(units, pa.int64()).dictionary_encode()
    return pa.array(units, pa.int64()).cast(of)


def write_rows(path: Path, kind: str, files: list[tuple[list[int], int, bool]]) -> TimedRows:
    """Write files of rows: the times of each, in units of the kind, the size of row groups, whether with statistics."""
    times: list[int] = []
    for number, (units, size, statistics) in enumerate(files):
        values = pa.array(range(len(times), len(times) + len(units)), pa.int64())
        rows = pa.table({"value": values, "at": column(kind, units)})
        pq.write_table(
            rows, path / f"{number}.parquet", row_group_size=size, write_statistics=statistics,
            use_deprecated_int96_timestamps=kind == "INT96",
        )  # fmt: skip
        times += [unit * KINDS[kind][1] for unit in units]
    return TimedRows(path, kind, times)


def drawn(chance: random.Random, path: Path) -> TimedRows:
    """Some files: in order of time, nearly so, or not at all; row groups of all sizes, with statistics or without."""
    kind = chance.choice(list(KINDS))
    files, now = [], 20
    for _ in range(chance.randint(1, 3)):
        jitter = chance.choice([0, 3, 20])
        units = []
        for _ in range(chance.choice([1, 5, 30, 60])):
            now += chance.choice([0, 0, 1])
            units.append(max(0, now + chance.randint(-jitter, jitter)))
        files.append((units, chance.choice([1, 3, 8, 100]), chance.random() < 0.8))
    return write_rows(path, kind, files)


def rows_of(splits: Sequence[Split], total: int) -> dict[int, list[int]]:
    """For each split its rows of the source, by the definition of its order."""
    firsts = [split.first for split in sorted(splits, key=lambda split: split.number)] + [total]
    ends = firsts[1:] if splits[0].step == 1 else [total] * len(splits)
    return {
        split.number: [place for row in range(total) if (place := split.place(row)) < ends[split.number]]
        for split in splits
    }


class Play:
    """Workers read a replay, and are checked after each batch.

    Attributes:
        read: the values of all rows read so far.
    """

    def __init__(self, rows: TimedRows, plan: SourcePlan) -> None:
        self.rows, self.plan = rows, plan
        self.positions: dict[int, Position | None] = {}
        self.read: list[int] = []
        self._rows_of = rows_of(plan.splits, len(rows.times))

    def begin(self, workers: int) -> list[WorkerReader]:
        """Workers that share the splits, at the positions that were reached."""
        source, _ = source_contract.shipped(self.plan.source, self.plan.splits)
        there = SourcePlan(source, self.plan.splits, None, self.plan.time)
        readers = [source_contract.reader_on(there, index, workers, self.positions) for index in range(workers)]
        for reader in readers:
            self.check_bounds(reader)
        bounds = {split: bound for reader in readers for split, bound in reader.bounds.items()}
        assert sum(len(reader.bounds) for reader in readers) == len(bounds), "a split has one worker"
        assert bounds.keys() == {split for split in self._rows_of if self.left(split)}
        return readers

    def left(self, split: int) -> list[int]:
        """The rows of a split that were not read."""
        position = self.positions.get(split, Position())
        return [] if position is None else self._rows_of[split][position.row :]

    def step(self, reader: WorkerReader, limit: int) -> None:
        """Read, and check what comes."""
        before = reader.bounds
        batch, _ = reader.read(NOW, limit)
        assert batch is not None, "a replay has rows until its end"
        self.positions.update(reader.moved)
        values = batch["value"].to_pylist()
        self.read += values
        times = batch[TIME].cast(pa.int64()).to_pylist()
        assert times == [self.rows.times[value] for value in values]
        for value, identity in zip(values, batch[TRANSACTION].to_pylist(), strict=True):
            split, row = divmod(identity, 1 << ROW_BITS)
            assert self._rows_of[split - 1024][row] == value, "a row keeps its identity"
            assert before[split - 1024] <= self.rows.times[value], "no row is late"
        self.check_bounds(reader)
        assert all(before[split] <= bound for split, bound in reader.bounds.items()), "bounds do not decrease"

    def check_bounds(self, reader: WorkerReader) -> None:
        """Each bound is the least time of the rows that are left, and an ended split has none."""
        for split, bound in reader.bounds.items():
            assert bound == min(self.rows.times[value] for value in self.left(split))
        for split, position in reader.moved.items():
            assert (split in reader.bounds) == (position is not None)
        assert reader.exhausted == (not reader.bounds)
        assert reader.next_time == min(reader.bounds.values(), default=None)
        if not reader.exhausted:
            assert reader.ahead_ticks == (2 * 10**9 if is_timestamp(self.rows.kind) else 2)


def is_timestamp(kind: str) -> bool:
    """Whether times of a kind are nanoseconds."""
    return not pa.types.is_integer(KINDS[kind][0]) and kind != "dictionary"


def play(chance: random.Random) -> None:
    """Files, workers and an order in which they read, handing over to others; in the end all rows were read once."""
    with tempfile.TemporaryDirectory() as path:
        rows = drawn(chance, Path(path))
        game = Play(rows, rows.plan(chance.randint(1, 3)))
        for incarnation in range(3):
            readers = game.begin(chance.randint(1, 4))
            for reader in turns(chance, readers, 10**6 if incarnation == 2 else chance.randint(0, 40)):
                game.step(reader, chance.choice([1, 2, 5, 1_000]))
        assert sorted(game.read) == list(range(len(rows.times)))


def turns(chance: random.Random, readers: list[WorkerReader], most: int) -> Iterator[Any]:
    """Readers that have rows, in any order, until all have ended."""
    for _ in range(most):
        waiting = [reader for reader in readers if not reader.exhausted]
        if not waiting:
            return
        yield chance.choice(waiting)


# ---- the tests


@pytest.fixture(autouse=True, scope="module")
def small_batches() -> Iterator[None]:
    """So small that files of a few rows have several, and that workers fall behind."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(row_groups, "BATCH_ROWS", 7)
        patch.setattr(row_groups, "RECENT_BATCHES", 2)
        yield


@given(st.randoms(use_true_random=False))
def test_bounds_of_a_replay_are_exact_and_each_row_is_read_once(chance: random.Random) -> None:
    """For any files, workers and order of reading, and after others have taken over."""
    play(chance)


@pytest.mark.parametrize("kind", KINDS)
def test_a_column_of_any_kind_becomes_ticks(kind: str, tmp_path: Path) -> None:
    """Integers as they are, all else in nanoseconds; time zones are kept."""
    rows = write_rows(tmp_path, kind, [([5, 3, 4], 2, True)])
    game = Play(rows, rows.plan(1))
    [reader] = game.begin(1)
    assert reader.next_time == min(rows.times)
    batch, _ = reader.read(NOW, 10)
    assert batch is not None
    of = KINDS[kind][0]
    zone = "UTC" if kind == "INT96" else of.tz if pa.types.is_timestamp(of) else None
    assert batch.schema.field(TIME).type in (pa.int64(), pa.timestamp("ns", zone))


@given(st.lists(st.integers(0, 50), max_size=6), st.integers(1, 40), st.integers(1, 9))
def test_blocks_are_dealt_in_turn_and_have_each_row_once(sizes: list[int], parts: int, block: int) -> None:
    """Whatever the row groups: span by span, the parts in turn give the rows in order."""
    groups = [Span("a", number, 0, rows) for number, rows in enumerate(sizes)]
    dealt = deal(groups, parts, block)
    rows = {(span.row_group, span.start + row) for part in dealt for span in part for row in range(span.rows)}
    assert rows == {(number, row) for number, rows in enumerate(sizes) for row in range(rows)}
    lengths = [sum(span.rows for span in part) for part in dealt]
    assert sum(lengths) == sum(sizes)
    assert max(lengths) - min(lengths) <= block
    begins = np.cumsum([0, *sizes])
    for number, part in enumerate(dealt):
        places = [begins[span.row_group] + span.start + row for span in part for row in range(span.rows)]
        assert all(place // block % parts == number for place in places)
        assert places == sorted(places)
        assert all(span.cut == (span.rows < sizes[span.row_group]) for span in part)


@given(st.lists(st.integers(0, 200_000), max_size=8), st.integers(1, 1024))
def test_a_block_is_fair_and_there_are_not_too_many(sizes: list[int], parts: int) -> None:
    """At least one row; no more than 512 blocks a part, and none larger than twice a fair share."""
    groups = [Span("a", number, 0, rows) for number, rows in enumerate(sizes)]
    block, total = block_rows(groups, parts), sum(sizes)
    assert block >= 1
    assert -(-total // block) <= parts * row_groups.BLOCKS_PER_SPLIT
    assert block <= max(1, 2 * total // parts)


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_all_workers_read_about_the_same_part_at_a_time(workers: int, tmp_path: Path) -> None:
    """When they have read equally much, their next rows are within a block for each of them."""
    rows = write_rows(tmp_path, "int64", [(list(range(2_000)), 100, True)])
    game = Play(rows, rows.plan(2))
    block = game.plan.splits[0].block
    readers = game.begin(workers)
    assert block > 1
    while not any(reader.exhausted for reader in readers):
        following = [time for reader in readers if (time := reader.next_time) is not None]
        assert max(following) - min(following) <= block * workers
        for reader in readers:
            game.step(reader, 1)


def decoded(monkeypatch: pytest.MonkeyPatch) -> Counter[tuple[int, int]]:
    """Counts how often each batch of a row group is decoded from now on."""
    count: Counter[tuple[int, int]] = Counter()
    original = row_groups.decoded

    def counting(file: pq.ParquetFile, group: int) -> Iterator[pa.RecordBatch]:
        for number, batch in enumerate(original(file, group)):
            count[group, number] += 1
            yield batch

    monkeypatch.setattr(row_groups, "decoded", counting)
    return count


@pytest.mark.parametrize("size", [70, 500, 2_000])
def test_workers_of_one_host_that_keep_up_decode_each_row_once(
    size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They share what one of them has decoded, the end of a row group as well."""
    monkeypatch.setattr(row_groups, "RECENT_BATCHES", 40)
    rows = write_rows(tmp_path, "int64", [(list(range(2_000)), size, True)])
    game = Play(rows, rows.plan(2))
    readers, count = game.begin(3), decoded(monkeypatch)
    while any(not reader.exhausted for reader in readers):
        for reader in readers:
            if not reader.exhausted:
                game.step(reader, 30)
    assert set(count.values()) == {1}
    assert len(game.read) == 2_000


def test_a_worker_that_falls_behind_decodes_for_itself_and_only_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One after another they decode the file once each."""
    rows = write_rows(tmp_path, "int64", [(list(range(1_000)), 250, True)])
    game = Play(rows, rows.plan(2))
    readers, count = game.begin(3), decoded(monkeypatch)
    for reader in readers:
        while not reader.exhausted:
            game.step(reader, 1_000)
    assert max(count.values()) <= 3
    assert len(game.read) == 1_000


def test_row_groups_of_one_small_size_are_not_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is decoded by one worker, even if each worker has a host of its own."""
    monkeypatch.setattr(row_groups, "BLOCK_ROWS", 20)
    rows = write_rows(tmp_path, "int64", [(list(range(1_010)), 50, True)])
    plan, count = rows.plan(1), decoded(monkeypatch)
    assert {split.block for split in plan.splits} == {50}
    for index in range(2):
        reader = reader_of(plan, index, 2)
        while not reader.exhausted:
            reader.read(NOW, 1_000)
    assert set(count.values()) == {1}


def test_times_of_a_file_in_order_are_decoded_one_row_group_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Statistics say enough of all later ones."""
    monkeypatch.setattr(row_groups, "BLOCK_ROWS", 5)
    rows = write_rows(tmp_path, "int64", [(list(range(600)), 100, True)])
    game, seen, original = Play(rows, rows.plan(1)), [], row_groups.column_of

    def seeing(file: pq.ParquetFile, group: int, column: str) -> pa.RecordBatch:
        seen.append(group)
        return original(file, group, column)

    monkeypatch.setattr(row_groups, "column_of", seeing)
    [reader] = game.begin(1)
    assert seen == [0]
    while not reader.exhausted:
        game.step(reader, 1_000)
        assert seen[-1] <= max(game.read) // 100 + 1
    assert seen == list(range(6))


def plan_of(path: Path, columns: dict[str, Any], time: str = "at", **how: Any) -> SourcePlan:
    """The plan of a replay of these columns."""
    pq.write_table(pa.table(columns), path / "a.parquet", **how)
    return planned(ReplaySource(str(path)), 1, None, EventTime(time), "pay")


@pytest.mark.parametrize(
    ("column", "said"),
    [
        (pa.array([1.5]), r"a column of double; expected timestamps, dates or integers"),
        (pa.array(["x"]), r"a column of string; expected timestamps, dates or integers"),
        (pa.array([True]), r"a column of bool; expected"),
        (pa.array([1], pa.time64("us")), r"a column of time64\[us\]; expected"),
        (pa.array([1, None, 3]), r"which is null in row 1 of row group 0 of .*a\.parquet; expected"),
        (pa.array([None, 1], pa.timestamp("us")), r"which is null in row 0 of row group 0"),
        (pa.array([2**63], pa.uint64()), r"a time of which is out of range \(.* 9223372036854775808 .* integers below"),
        (pa.array([2**62], pa.timestamp("us")), r"a time of which is out of range \(.*427387904\).* 1678 to 2261"),
        (pa.array([2**30], pa.int32()).cast(pa.date32()), r"a time of which is out of range \(.*1073741824\)"),
    ],
)
@pytest.mark.parametrize("statistics", [True, False])
def test_a_column_without_times_is_refused_when_the_replay_is_planned(
    column: pa.Array, said: str, statistics: bool, tmp_path: Path
) -> None:
    """In one line: the source, the column, what it is and what is expected; with or without statistics."""
    with pytest.raises(SourceError, match=f"source 'pay' has time='at', {said}") as refused:
        plan_of(tmp_path, {"at": column}, write_statistics=statistics)
    assert "\n" not in str(refused.value)


def test_a_column_that_is_missing_is_refused_with_the_likely_one(tmp_path: Path) -> None:
    """The names of the others are listed."""
    with pytest.raises(SourceError, match=r"'pay' has time='TX_TIME', but .* TX_DATE, n; did you mean 'TX_DATE'\?"):
        plan_of(tmp_path, {"TX_DATE": [1], "n": [1]}, "TX_TIME")


def test_statistics_that_lie_are_found_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bounds that were wrong would make windows that are wrong."""
    monkeypatch.setattr(row_groups, "_least_time", lambda group, schema, column: 3)
    with pytest.raises(SourceError, match=r"statistics of row group 0 .* say that no at is less than 3, but one is 2"):
        reader_of(plan_of(tmp_path, {"at": [2, 5]}), 0, 1)


def test_splits_of_a_run_that_began_without_times_are_read_with_them(tmp_path: Path) -> None:
    """Contiguous ones, whose row groups have no least times in the plan."""
    rows = write_rows(tmp_path, "int64", [([9, 8, 1, 7, 2, 6, 5, 0] * 9, 5, True)])
    without = planned(ReplaySource(str(tmp_path)), 2, None)
    game = Play(rows, SourcePlan(without.source, without.splits, None, EventTime("at", ahead=2)))
    readers = game.begin(2)
    for reader in readers:
        while not reader.exhausted:
            game.step(reader, 3)
    assert sorted(game.read) == list(range(72))


def test_times_that_no_operator_reads_are_not_decoded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The plan has lower bounds, which never decrease."""
    times = [random.Random(5).randint(0, 99) for _ in range(300)]
    write_rows(tmp_path, "int64", [(times, 20, True)])
    plan = planned(ReplaySource(str(tmp_path)), 2, None, EventTime("at", carried=False), "pay")
    monkeypatch.setattr(row_groups, "column_of", None)
    for index in range(2):
        outlined = reader_of(plan, index, 2)
        bounds: list[int] = []
        while not outlined.exhausted:
            least = outlined.next_time
            assert least is not None
            batch, _ = outlined.read(NOW, 7)
            assert batch is not None
            bounds += [least] * batch.num_rows
            assert min(batch["at"].to_pylist()) >= least
        assert bounds == sorted(bounds)
        assert bounds[-1] > 0


def test_an_empty_replay_has_no_bounds(tmp_path: Path) -> None:
    """As after an earlier region that gave no rows; fewer rows than workers are no problem either."""
    pq.write_table(pa.table({"at": pa.array([], pa.int64())}), tmp_path / "a.parquet")
    plan = planned(ReplaySource(str(tmp_path), may_be_empty=True), 2, None, EventTime("at", ahead=1), "pay")
    for index in range(2):
        reader = reader_of(plan, index, 2)
        assert (reader.exhausted, reader.bounds, reader.next_time, reader.ahead_ticks) == (True, {}, None, None)
    assert len(plan.splits) == split_count(2)


def test_a_staged_table_has_row_groups_that_are_dealt_whole(tmp_path: Path) -> None:
    """So that two hosts do not decode the same one; a resumed run reads the splits that were kept."""
    table = pa.table({"at": pa.array(range(600_000), pa.timestamp("s"))})
    time = EventTime("at", ahead=1)
    plan = plan_source(fn.replay(table), None, str(tmp_path), "pay", 1, time=time)  # type: ignore[arg-type]
    assert {split.block for split in plan.splits} == {staging.ROW_GROUP}
    again = plan_source(fn.replay(table), None, "", "pay", 1, plan.splits, time)  # type: ignore[arg-type]
    assert reader_of(again, 0, 1).bounds == reader_of(plan, 0, 1).bounds
    with pytest.raises(SourceError, match="source 'pay' has time='att', but no such column; expected one of at; did"):
        plan_source(fn.replay(table), None, str(tmp_path), "pay", 1, time=EventTime("att"))  # type: ignore[arg-type]


def test_workers_in_threads_of_their_own_share_what_they_decode(tmp_path: Path) -> None:
    """Each gets its rows, whoever decodes them."""
    rows = write_rows(tmp_path, "int64", [(list(range(3_000)), 400, True)])
    game = Play(rows, rows.plan(2))
    readers = game.begin(4)

    def read(reader: WorkerReader) -> list[int]:
        found = []
        while not reader.exhausted:
            batch, _ = reader.read(NOW, 11)
            assert batch is not None
            found += batch["value"].to_pylist()
        return found

    with ThreadPoolExecutor(4) as pool:
        assert sorted(chain.from_iterable(pool.map(read, readers))) == list(range(3_000))


def wrong(place: Any, name: str, replacement: Any) -> Callable[[pytest.MonkeyPatch], None]:
    """A defect: something replaced."""
    return lambda patch: patch.setattr(place, name, replacement)


def of_another(group: Any, schema: Any, column: str, of: Any = row_groups._least_time) -> Any:
    """More than the least time."""
    least = of(group, schema, column)
    return None if least is None else least + 2


def largest(self: Any, at: int, times: Any, enter: Any = replay._Rest.enter) -> None:
    """Maxima for minima."""
    enter(self, at, times)
    self.minima = np.maximum.accumulate(times[::-1])[::-1]


def forgetful(self: Any, row: int) -> int:
    """Only the current row group."""
    return int(self.minima[row - self.parts[self.at].first])


def not_looked(self: Any, split: int, row: int, least: Any = replay.ReplayForesight.least) -> int:
    """Later row groups are not looked into."""
    self._ahead.clear()
    return least(self, split, row)  # type: ignore[no-any-return]


def stale(self: Any, at: int, times: Any, enter: Any = replay._Rest.enter) -> None:
    """A row group that was entered still counts as a later one."""
    exact, later = self.exact, self.later
    enter(self, at, times)
    self.exact, self.later = exact, later


def one_behind(self: Any, split: int, row: int, least: Any = replay.ReplayForesight.least) -> int:
    """The row read last counts as not read."""
    return least(self, split, max(0, row - 1))  # type: ignore[no-any-return]


def by_group(self: Any, rest: Any, row: int) -> None:
    """The times of the row group instead of those of the split in it."""
    while row >= rest.parts[rest.at].first + rest.parts[rest.at].rows:
        rest.at += 1
    part = rest.parts[rest.at]
    rest.enter(rest.at, self._look_into(part.group)[: part.rows])


def not_advanced(self: Any, moved: Any, times: Any) -> None:
    """Bounds of ended splits go, all others stay."""
    self.by_split = row_times.without_ended(self.by_split, moved)


def latest_batch(self: Any, *row: Any, batch: Any = row_groups.SharedRowGroups.batch) -> Any:
    """The latest batch for any other."""
    return self._batches[-1][1:] if self._batches else batch(self, *row)


DEFECTS: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "maximum for minimum": wrong(replay._Rest, "enter", largest),
    "later row groups forgotten": wrong(replay._Rest, "least", forgetful),
    "later row groups not looked into": wrong(replay.ReplayForesight, "least", not_looked),
    "an entered row group counts as later": wrong(replay._Rest, "enter", stale),
    "the row read last counts": wrong(replay.ReplayForesight, "least", one_behind),
    "statistics of another row group": wrong(row_groups, "_least_time", of_another),
    "times of other splits": wrong(replay.ReplayForesight, "_enter", by_group),
    "bounds not advanced": wrong(row_times.ForeseenBounds, "advance", not_advanced),
    "ended splits kept": wrong(row_times, "without_ended", lambda bounds, moved: dict(bounds)),
    "rows of another batch": wrong(row_groups.SharedRowGroups, "batch", latest_batch),
    "blocks dealt unequally": wrong(replay, "deal", lambda groups, parts, block: deal(groups, parts, block + 1)),
}


@pytest.mark.parametrize("defect", DEFECTS)
def test_a_defect_is_found(defect: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a few random plays."""

    def check() -> None:
        for seed in range(60):
            play(random.Random(seed))

    DEFECTS[defect](monkeypatch)
    with pytest.raises((AssertionError, SourceError, IndexError, StopIteration, ValueError)):
        check()


def test_the_plays_have_all_kinds_of_files(tmp_path: Path) -> None:
    """Those in order of time and others, of one row and of many."""
    sorts = set()
    for seed in range(60):
        (tmp_path / str(seed)).mkdir()
        times = drawn(random.Random(seed), tmp_path / str(seed)).times
        sorts.add((times == sorted(times), len(times) == 1))
    assert {(True, False), (False, False), (True, True)} <= sorts
