"""What sinks promise: a row that was handed over is in the output once its epoch is committed, and once only."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import fs
from pyspark.sql import SparkSession

import fries_nb as fn
from fries_nb.connectors.parquet_sink import DICTIONARY_BYTES, GROUP_ROWS, TEXT_DICTIONARY_BYTES, PartWriter
from fries_nb.dataflow.columns import DUE, TRANSACTION
from fries_nb.errors import SinkError
from fries_nb.protocol.messages import WorkerId
from fries_nb.spark.catalog import output
from fries_nb.spark.launch import _sinks
from fries_nb.storage import manifest
from fries_nb.storage.manifest import claim, commit, committed, recover, sweep


def sink(path: Path, index: int = 0, incarnation: int = 1, run: str = "r1") -> PartWriter:
    """A sink worker."""
    return PartWriter(str(path), WorkerId("scored", index), incarnation, run)


def rows(*numbers: int) -> pa.RecordBatch:
    """Rows with a number each."""
    return pa.record_batch({"n": pa.array(numbers, pa.int64())})


def read(path: Path) -> list[int]:
    """The numbers of all committed rows."""
    return sorted(itertools.chain(*(pq.read_table(file)["n"].to_pylist() for file in committed(str(path)))))


def part(path: Path, *numbers: int, incarnation: int = 1, run: str = "r1", index: int = 0) -> tuple[str, ...]:
    """A closed part with these numbers."""
    one = sink(path, index, incarnation, run)
    one.write(rows(*numbers))
    return one.close_part()


# ---- parts


def test_rows_are_gathered_into_few_groups_and_hidden_columns_stay_behind(tmp_path: Path) -> None:
    """One row at a time or ten thousand: the file is the same, with the user's columns only."""
    one = sink(tmp_path)
    for number in range(100):
        one.write(rows(number).append_column(DUE, pa.array([5])).append_column(TRANSACTION, pa.array([6])))
    (file,) = one.close_part()
    assert pq.read_schema(file).names == ["n"]
    assert pq.read_metadata(file).num_row_groups == 1
    assert pq.read_table(file)["n"].to_pylist() == list(range(100))


def test_rows_without_a_column_are_refused(tmp_path: Path) -> None:
    """By what makes them: a function that returns an empty row, which is told how to drop a tuple."""
    with pytest.raises(SinkError, match=r"got rows without a column; return None, not \{\}, to drop a tuple"):
        sink(tmp_path).write(rows(1).select([]).append_column(DUE, pa.array([5])))


def test_a_large_part_is_written_as_it_comes(tmp_path: Path) -> None:
    """A sink holds no more than a row group in memory."""
    one = sink(tmp_path)
    for _ in range(3):
        one.write(rows(*range(GROUP_ROWS)))
    (file,) = one.close_part()
    assert pq.read_metadata(file).num_row_groups == 3


NUMBERS = {count: pa.array([7 * (number % count) for number in range(GROUP_ROWS)]) for count in (5, 500, GROUP_ROWS)}
COLUMNS = {
    "few numbers": {"x": NUMBERS[5]},
    "some numbers": {"x": NUMBERS[500]},
    "numbers that differ": {"x": NUMBERS[GROUP_ROWS]},
    "some numbers beside few texts": {"x": NUMBERS[500], "text": NUMBERS[5].cast(pa.string())},
    "5,000 texts": {"text": pa.array([f"customer number {number % 5_000:04}" for number in range(GROUP_ROWS)])},
}


@pytest.mark.parametrize("name", COLUMNS)
def test_a_dictionary_is_given_up_where_it_does_not_pay(tmp_path: Path, name: str) -> None:
    """A part is hardly larger than what pyarrow writes by default, and a column's dictionary stays small."""
    one, batch = sink(tmp_path), pa.record_batch(COLUMNS[name])
    one.write(batch)
    (file,) = one.close_part()
    pq.write_table(pa.Table.from_batches([batch]), tmp_path / "default.parquet")
    assert Path(file).stat().st_size < 1.1 * (tmp_path / "default.parquet").stat().st_size
    column = pq.read_metadata(file).row_group(0).column(0)
    most = TEXT_DICTIONARY_BYTES if "text" in batch.schema.names else DICTIONARY_BYTES
    assert column.data_page_offset - column.dictionary_page_offset < 1.5 * most


def test_hidden_columns_are_kept_on_request(tmp_path: Path) -> None:
    """A memory sink can show when each row was due."""
    one = PartWriter(str(tmp_path), WorkerId("s", 0), 1, "r1", keep_hidden=True)
    one.write(rows(1).append_column(DUE, pa.array([5])))
    assert pq.read_table(one.close_part()[0]).to_pylist() == [{"n": 1, DUE: 5}]


def test_a_part_is_handed_out_once_and_an_empty_one_never(tmp_path: Path) -> None:
    """What was handed out is the controller's; what had no rows leaves no file."""
    one = sink(tmp_path)
    assert one.close_part() == ()
    one.write(rows())
    assert one.close_part() == ()
    one.write(rows(1))
    first = one.close_part()
    assert one.close_part() == ()
    one.write(rows(2))
    assert set(one.close_part()).isdisjoint(first)


def test_discard_deletes_what_was_not_handed_out(tmp_path: Path) -> None:
    """Parts that were handed out stay."""
    one = sink(tmp_path)
    one.write(rows(1))
    (kept,) = one.close_part()
    one.write(rows(2))
    one.write(pa.record_batch({"n": [2.5], "m": ["x"]}))  # closes the part before
    one.discard()
    assert [str(file) for file in tmp_path.rglob("*.parquet")] == [kept]


def test_timestamps_are_written_so_that_spark_reads_them(tmp_path: Path) -> None:
    """Spark has microseconds; nanoseconds that have no more than these are written so."""
    one = sink(tmp_path)
    one.write(pa.record_batch({"t": pa.array([1_000], pa.timestamp("ns"))}))
    assert pq.read_table(one.close_part()[0]).schema.field("t").type == pa.timestamp("us")


def test_a_place_that_cannot_be_written_is_an_error_of_the_sink(tmp_path: Path) -> None:
    """One line, with the worker and the place."""
    blocked = tmp_path / "file"
    blocked.write_text("")
    one = sink(blocked)
    one.write(rows(1))
    with pytest.raises(SinkError, match=r"scored\[0\] cannot write to .*file: "):
        one.close_part()


# ---- schemas that drift

_VALUES = st.one_of(st.none(), st.integers(-100, 100), st.floats(-100, 100).map(lambda value: round(value, 3)))


@given(st.lists(st.dictionaries(st.sampled_from("abc"), _VALUES, min_size=1), min_size=1, max_size=12))
def test_columns_may_come_go_and_widen(
    tmp_path_factory: pytest.TempPathFactory, given_rows: list[dict[str, object]]
) -> None:
    """Rows with any of the columns, with integers, floats and nulls: all are there, with the values they had."""
    one = sink(tmp_path_factory.mktemp("out"))
    for row in given_rows:
        one.write(pa.RecordBatch.from_pylist([row]))
    got = [row for file in one.close_part() for row in pq.read_table(file).to_pylist()]
    plain = [{name: value for name, value in row.items() if value is not None} for row in got]
    assert plain == [{name: value for name, value in row.items() if value is not None} for row in given_rows]


def test_a_batch_that_fits_the_part_begins_no_other(tmp_path: Path) -> None:
    """Only what widens the schema ends a part, so their number is bounded by the number of changes."""
    one = sink(tmp_path)
    for _ in range(50):
        one.write(pa.record_batch({"a": [1.5], "b": ["x"]}))
        one.write(pa.record_batch({"a": [2]}))
        one.write(pa.record_batch({"b": pa.nulls(1), "a": [1.5]}))
    assert len(one.close_part()) == 1


@pytest.mark.parametrize(
    ("first", "then", "message"),
    [
        ([1.5], ["x"], r"column 'a' was double and is now string; a column keeps its type"),
        ([True], [1], r"column 'a' was bool and is now int64"),
        ([1.5], [2**53 + 1], r"column 'a' is double and a value does not fit"),
    ],
)
def test_a_column_that_changes_its_kind_is_refused(
    tmp_path: Path, first: list[object], then: list[object], message: str
) -> None:
    """The error names the column and both types; what was written before can still be closed and committed."""
    one = sink(tmp_path)
    one.write(pa.record_batch({"a": first}))
    with pytest.raises(SinkError, match=message):
        one.write(pa.record_batch({"a": then}))
    (file,) = one.close_part()
    assert pq.read_table(file)["a"].to_pylist() == first


# ---- commits


def test_only_what_is_committed_is_visible(tmp_path: Path) -> None:
    """Parts wait out of sight; an epoch appears as a whole."""
    claim(str(tmp_path), "fraud")
    files = part(tmp_path, 1, 2) + part(tmp_path, 3, index=1)
    assert committed(str(tmp_path)) == []
    assert list(tmp_path.glob("*.parquet")) == []
    commit(str(tmp_path), 1, files)
    assert read(tmp_path) == [1, 2, 3]
    assert sorted(map(str, tmp_path.glob("*.parquet"))) == sorted(committed(str(tmp_path)))


def test_repeating_a_commit_is_harmless(tmp_path: Path) -> None:
    """The driver may not know whether its last commit went through."""
    first, second = part(tmp_path, 1), part(tmp_path, 2, index=1)
    commit(str(tmp_path), 1, first)
    commit(str(tmp_path), 2, second)
    commit(str(tmp_path), 1, first)
    commit(str(tmp_path), 2, second)
    recover(str(tmp_path))
    assert read(tmp_path) == [1, 2]


class _Stopped(Exception):
    """The driver dies here."""


class _Mortal:
    """The local file system, up to its ``steps``-th change; then the driver is dead."""

    def __init__(self, steps: int) -> None:
        self.real = fs.LocalFileSystem()
        self.steps = steps
        self.type_name = "local"

    def _step(self) -> None:
        if not self.steps:
            raise _Stopped
        self.steps -= 1

    def open_output_stream(self, place: str) -> object:
        self._step()
        return self.real.open_output_stream(place)

    def move(self, source: str, target: str) -> None:
        self._step()
        self.real.move(source, target)

    def __getattr__(self, name: str) -> object:
        return getattr(self.real, name)


def _commit_until(path: Path, files: tuple[str, ...], steps: int, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Commit epoch 2 on a driver that dies after so many changes to the file system; whether it survived."""
    mortal = _Mortal(steps)
    with monkeypatch.context() as patched:
        patched.setattr(manifest, "locate", lambda place: (mortal, str(place)))
        try:
            commit(str(path), 2, files)
        except _Stopped:
            return False
    return True


@pytest.mark.parametrize("next_step", ["recover", "repeat"])
def test_a_commit_that_stops_anywhere_is_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, next_step: str
) -> None:
    """Killed before any of its steps: after recovery all of the epoch is there, or nothing; repeating completes it."""
    survived, steps, seen = False, 0, []
    while not survived:
        path = tmp_path / str(steps)
        claim(str(path), "fraud")
        commit(str(path), 1, part(path, 0))
        files = part(path, 1, 2, index=1) + part(path, 3, index=2)
        survived = _commit_until(path, files, steps, monkeypatch)
        if next_step == "recover":
            claim(str(path), "fraud")
            seen.append(read(path))
            assert len(list(path.glob("*.parquet"))) == len(committed(str(path)))
        commit(str(path), 2, files)
        assert read(path) == [0, 1, 2, 3]
        steps += 1
    assert steps == 5  # the draft, its move, two parts, and the one that got through
    if next_step == "recover":
        assert seen == [[0], [0], [0, 1, 2, 3], [0, 1, 2, 3], [0, 1, 2, 3]]


def test_an_older_incarnation_commits_nothing(tmp_path: Path) -> None:
    """A host that outlived its attempt hands in a part too late: refused, and what is committed stays."""
    late = part(tmp_path, 99, incarnation=1)
    commit(str(tmp_path), 1, part(tmp_path, 1, incarnation=2))
    for files in (late, late + part(tmp_path, 2, incarnation=2, index=1)):
        with pytest.raises(SinkError, match=r"is of incarnation 1, and .* is at 2"):
            commit(str(tmp_path), 2, files)
    commit(str(tmp_path), 2, part(tmp_path, 3, incarnation=3))
    assert read(tmp_path) == [1, 3]


def test_an_epoch_is_committed_with_one_set_of_files(tmp_path: Path) -> None:
    """Other files under the same number mean that somebody is mistaken."""
    commit(str(tmp_path), 1, part(tmp_path, 1))
    with pytest.raises(SinkError, match=r"epoch 1 of run r1 is committed in .* with other files"):
        commit(str(tmp_path), 1, part(tmp_path, 2, index=1))


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (lambda path: ("elsewhere.parquet",), "'elsewhere.parquet' is not the name of a part file"),
        (lambda path: part(path, 1) + part(path, 2, run="r2"), "has parts of several runs"),
    ],
)
def test_a_commit_of_something_else_is_refused(
    tmp_path: Path, files: Callable[[Path], tuple[str, ...]], message: str
) -> None:
    """Only parts of one run are committed."""
    with pytest.raises(SinkError, match=message):
        commit(str(tmp_path), 1, files(tmp_path))
    assert committed(str(tmp_path)) == []


def test_a_committed_file_that_has_gone_is_named(tmp_path: Path) -> None:
    """Somebody deleted a part: better an error than fewer rows."""
    commit(str(tmp_path), 1, part(tmp_path, 1))
    (file,) = committed(str(tmp_path))
    Path(file).unlink()
    with pytest.raises(SinkError, match=r"the committed file part-r1-scored.* has gone"):
        recover(str(tmp_path))


# ---- targets


def test_a_target_that_holds_other_data_is_refused(tmp_path: Path) -> None:
    """Files of somebody, a single file, another flow's output: one sentence each, and nothing is touched."""
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    foreign.joinpath("a.csv").write_text("")
    with pytest.raises(SinkError, match="holds files that no flow wrote; use an empty directory or a new path"):
        claim(str(foreign), "fraud")
    assert [file.name for file in foreign.iterdir()] == ["a.csv"]
    with pytest.raises(SinkError, match="is a file; expected a directory"):
        claim(str(foreign / "a.csv"), "fraud")
    claim(str(tmp_path / "own"), "w1")
    with pytest.raises(SinkError, match="holds output of the flow 'w1', not of 'fraud'"):
        claim(str(tmp_path / "own"), "fraud")


def test_runs_of_one_flow_add_to_a_target(tmp_path: Path) -> None:
    """Each run counts its epochs from 1, and can be told from the others."""
    for run in ("r1", "r2"):
        claim(str(tmp_path), "fraud")
        commit(str(tmp_path), 1, part(tmp_path, 1, 2, run=run))
    assert read(tmp_path) == [1, 1, 2, 2]
    assert len(committed(str(tmp_path), "r2")) == 1


def test_sweeping_leaves_what_is_committed_and_what_is_anothers(tmp_path: Path) -> None:
    """A run that is over leaves nothing behind but its output."""
    commit(str(tmp_path), 1, part(tmp_path, 1))
    part(tmp_path, 2, index=1)
    other = part(tmp_path, 3, run="r2")
    sweep(str(tmp_path), "r1", 1)
    assert [str(file) for file in tmp_path.joinpath("_fries", "pending").iterdir()] == list(other)
    assert read(tmp_path) == [1]


def test_spark_reads_what_is_committed(spark: SparkSession, tmp_path: Path) -> None:
    """Parts of several schemas come back as one DataFrame; parts that wait are not in it; nor are other runs'."""
    one = sink(tmp_path)
    one.write(pa.record_batch({"n": [1], "a": pa.nulls(1), "b": pa.nulls(1)}))
    one.write(pa.record_batch({"n": [2.5], "a": ["x"], "b": [[True]]}))
    commit(str(tmp_path), 1, one.close_part())
    commit(str(tmp_path), 1, part(tmp_path, 7, run="r2"))
    part(tmp_path, 99, index=1)
    got = output(spark, str(tmp_path), "r1")
    assert got.columns == ["n", "a", "b"]
    assert sorted(map(tuple, got.collect()), key=str) == [(1.0, None, None), (2.5, "x", [True])]
    assert output(spark, str(tmp_path)).count() == 3
    assert spark.read.option("mergeSchema", "false").parquet(f"file://{tmp_path}").count() == 3


def test_the_output_of_nothing_is_an_empty_dataframe(spark: SparkSession, tmp_path: Path) -> None:
    """Before the first commit there is nothing to see, and no error."""
    assert output(spark, str(tmp_path / "nowhere")).count() == 0
    claim(str(tmp_path), "fraud")
    assert output(spark, str(tmp_path)).columns == []


def test_a_target_whose_name_reads_like_a_pattern_is_read_itself(spark: SparkSession, tmp_path: Path) -> None:
    """Spark takes brackets, braces and backslashes in a path for a pattern, and a star for other targets, too."""
    for number, name in enumerate(["out[1]", "out{a,b}", "back\\slash", "out*", "outer", "wh?t"]):
        target = tmp_path / name
        claim(str(target), "fraud")
        commit(str(target), 1, part(target, number))
        assert [row.n for row in output(spark, str(target)).collect()] == [number]
        empty = output(spark, str(target), "another run", pa.schema({"n": pa.int64()}))
        assert (empty.columns, empty.count()) == (["n"], 0)


def test_a_place_that_is_none_is_refused_in_a_sentence(tmp_path: Path) -> None:
    """Also where it is compared with other sinks' places: a URI of a file on some host, say."""
    flow = fn.Dataflow("elsewhere")
    flow.source("S", fn.rate(1)).sink("out", fn.parquet("file://somewhere/out"))
    with pytest.raises(SinkError, match="cannot open 'file://somewhere/out'"):
        _sinks(flow.graph(), None, str(tmp_path), "r1")


def test_workers_that_disagree_about_a_column_are_told_so(spark: SparkSession, tmp_path: Path) -> None:
    """Spark would turn numbers into strings without a word."""
    files = part(tmp_path, 1)
    other = sink(tmp_path, index=1)
    other.write(pa.record_batch({"n": ["x"]}))
    commit(str(tmp_path), 1, files + other.close_part())
    with pytest.raises(SinkError, match="column 'n' was"):
        output(spark, str(tmp_path))
