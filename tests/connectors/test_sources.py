"""What readers promise: every row once, in order, when it is due and with the time when it was due."""

from __future__ import annotations

import datetime
import itertools
import math
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from source_setting import rate_reader, span_reader

from fries_nb.connectors.row_groups import Span, plan_replay
from fries_nb.connectors.row_times import RateSchedule
from fries_nb.connectors.source import Position
from fries_nb.connectors.worker_reader import WorkerReader, open_reader
from fries_nb.dataflow import JoinTable
from fries_nb.dataflow.columns import DUE, TRANSACTION
from fries_nb.dataflow.endpoints import replay
from fries_nb.errors import SourceError
from fries_nb.protocol.messages import WorkerId
from fries_nb.protocol.trace import ROW_BITS
from fries_nb.spark.staging import make_scratch, plan_source, remove_scratch, stage_table

NOW = 1_700_000_000_000_000_000
RATES = st.floats(0.1, 5e6)


def drain(reader: WorkerReader, limit: int = 1_000) -> pa.Table:
    """All that a reader gives, read as its own answers say."""
    batches, now = [], NOW
    while not reader.exhausted:
        batch, again_at = reader.read(now, limit)
        if batch is not None:
            assert 1 <= batch.num_rows <= limit
            assert max(batch.column(DUE).to_pylist()) <= now
            batches.append(batch)
        now = again_at or now
    assert reader.read(now, limit) == (None, None)
    return pa.Table.from_batches(batches)


@given(RATES, st.lists(st.integers(0, 10**7), min_size=1, max_size=20), st.integers(1, 50))
def test_a_tuple_is_due_at_its_number_over_the_rate(rate: float, waits: list[int], limit: int) -> None:
    """Whenever the reader comes, tuple i was due at start + i / rate; none is early, none is left out."""
    pace = RateSchedule(rate, NOW)
    taken: list[int] = []
    for now in itertools.accumulate(waits, initial=NOW):
        taken += pace.take(now, limit).tolist()
        assert all(due <= now for due in taken)
    assert taken == [NOW + math.ceil(number * 1e9 / rate) for number in range(len(taken))]


@given(RATES, st.integers(0, 10**9))
def test_coming_back_when_told_finds_the_next_tuple_and_not_before(rate: float, after: int) -> None:
    """``next_due`` is exact: one nanosecond earlier there is nothing, at that time there is one tuple."""
    pace = RateSchedule(rate, NOW)
    while pace.take(NOW + after, 100_000).size == 100_000:
        pass
    due = pace.next_due(NOW + after)
    assert due is not None
    assert due > NOW + after
    assert pace.take(due - 1, 10).size == 0
    assert pace.take(due, 10).tolist() == [due]


@given(st.lists(st.tuples(RATES, st.integers(1, 10**7)), min_size=1, max_size=30))
def test_changes_of_rate_lose_no_fraction_of_a_tuple(changes: list[tuple[float, int]]) -> None:
    """However often the rate changes, the tuples that came are those that the rates, each for its time, ask for."""
    now, expected = NOW, 1.0  # the first is due at once
    pace = RateSchedule(changes[0][0], now)
    taken = 0
    for rate, wait in changes:
        pace.set_rate(rate, now)
        now += wait
        expected += wait * rate / 1e9
        taken += pace.take(now, 10**9).size
    slack = 1e-3 + sum(rate for rate, _ in changes) * 2e-9 * len(changes)  # a due time is a whole nanosecond
    assert expected - 1 - slack <= taken <= expected + slack


def test_tuples_that_wait_keep_their_times_when_the_rate_changes() -> None:
    """A backlog was due when it was due, at whatever rate the source goes on, and comes first."""
    pace = RateSchedule(1_000, NOW)
    pace.set_rate(100, NOW + 2_500_000)
    assert (pace.take(NOW + 20_000_000, 10) - NOW).tolist() == [0, 1_000_000, 2_000_000, 7_500_000, 17_500_000]


def test_a_pause_makes_nothing_due_and_flat_out_all() -> None:
    """Rate 0 stops the source without a time to come back at; infinity gives as much as is asked for."""
    reader = rate_reader(0, 1, 1_000)
    reader.read(NOW, 10)
    reader.set_rate(0, NOW + 500_000)
    assert reader.read(NOW + 10**12, 10) == (None, None)
    reader.set_rate(math.inf, NOW + 10**12)
    batch, again_at = reader.read(NOW + 10**12, 10)
    assert batch is not None
    assert batch.column(DUE).to_pylist() == [NOW + 10**12] * 10
    assert again_at is None
    reader.set_rate(1_000, NOW + 10**12)
    assert reader.read(NOW + 10**12, 10)[1] == NOW + 10**12 + 1_000_000


@pytest.mark.parametrize("rate", [-1, math.nan, "10", True, None])
def test_a_rate_that_is_none_is_refused(rate: object) -> None:
    """Bad input, at the start and on the way."""
    with pytest.raises(SourceError, match=r"expected tuples a second: a number from 0 \(pause\) up"):
        rate_reader(0, 1, rate)  # type: ignore[arg-type]
    reader = rate_reader(0, 1, 1_000)
    reader.read(NOW, 1)
    with pytest.raises(SourceError, match="rate="):
        reader.set_rate(rate, NOW)  # type: ignore[arg-type]


@given(st.integers(1, 5), st.integers(0, 40))
def test_the_workers_of_a_rate_source_share_its_values(workers: int, count: int) -> None:
    """Together they give 0 to count - 1, each value once, and each worker's values in order."""
    values = []
    for worker in range(workers):
        reader = rate_reader(worker, workers, 1_000, count)
        if not reader.exhausted:
            table = drain(reader, limit=3)
            values.append(table["value"].to_pylist())
            assert table["timestamp"].to_pylist() == table[DUE].to_pylist()
    assert sorted(itertools.chain(*values)) == list(range(count))
    assert all(part == sorted(part) for part in values)


def test_a_rate_source_adds_the_columns_of_its_row_function() -> None:
    """``row(value)`` gives further columns."""
    table = drain(rate_reader(1, 2, math.inf, 6, row=lambda value: {"square": value * value}))
    assert table["square"].to_pylist() == [1, 9, 25]


@given(
    st.lists(st.tuples(st.integers(1, 40), st.integers(1, 40)), min_size=1, max_size=3),
    st.integers(1, 6),
    st.integers(1, 50),
)
def test_a_replay_gives_every_row_once_and_in_order(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[tuple[int, int]], workers: int, limit: int
) -> None:
    """For any files, row groups and workers: the parts, one after another, are the data, and equally long."""
    path = tmp_path_factory.mktemp("data")
    first = 0
    for number, (rows, group) in enumerate(sizes):
        table = pa.table({"n": range(first, first + rows)})
        pq.write_table(table, path / f"{number}.parquet", row_group_size=group)
        first += rows
    parts = []
    for number, spans in enumerate(plan_replay(str(path), workers)):
        if spans:
            table = drain(span_reader(spans, math.inf, number), limit)
            assert table[TRANSACTION].to_pylist() == [number << ROW_BITS | row for row in range(table.num_rows)]
            parts.append(table["n"].to_pylist())
        else:
            parts.append([])
    assert list(itertools.chain(*parts)) == list(range(first))
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


@given(st.integers(1, 3), st.integers(0, 40), st.integers(0, 15))
def test_a_rate_source_goes_on_behind_what_was_read(workers: int, count: int, skip: int) -> None:
    """Values and identities are those that an attempt without a break would have given."""
    for worker in range(workers):
        whole = drained(rate_reader(worker, workers, math.inf, count, number=3))
        read = rate_reader(worker, workers, math.inf, count, number=3)
        positions: dict[int, Position | None] = {}
        for _ in range(min(skip, len(whole))):
            read.read(NOW, 1)
            positions.update(read.moved)
        assert drained(rate_reader(worker, workers, math.inf, count, number=3, positions=positions)) == whole[skip:]


@pytest.mark.parametrize("skip", [0, 1, 6, 7, 8, 13, 20])
def test_a_replay_goes_on_behind_what_was_read(tmp_path: Path, skip: int) -> None:
    """Within a row group, at its end, at the very end: rows, identities and the position are the same."""
    pq.write_table(pa.table({"value": list(range(20))}), tmp_path / "rows.parquet", row_group_size=7)
    spans = plan_replay(str(tmp_path), 1)[0]
    read, rest = span_reader(spans, math.inf, number=2), span_reader(spans, math.inf, number=2, skip=skip)
    for row in range(1, skip + 1):
        read.read(NOW, 1)
        assert read.moved == {2: Position(row) if row < 20 else None}
    assert drained(rest) == drained(read) == drained(span_reader(spans, math.inf, number=2))[skip:]


def drained(reader: WorkerReader) -> list[tuple[int, int]]:
    """Value and identity of all that is left."""
    if reader.exhausted:
        return []
    table = drain(reader, limit=4)
    return list(zip(table["value"].to_pylist(), table[TRANSACTION].to_pylist(), strict=True))


def test_a_position_numbers_the_row_that_comes_next(tmp_path: Path) -> None:
    """What a checkpoint keeps of a split."""
    file = str(tmp_path / "a.parquet")
    pq.write_table(pa.table({"n": range(10)}), file, row_group_size=4)
    reader = span_reader(plan_replay(file, 2)[1], math.inf)
    reader.read(NOW, 2)
    assert reader.moved == {0: Position(2)}
    reader.read(NOW, 100)
    assert reader.moved == {0: Position(3)}
    reader.read(NOW, 100)
    assert reader.moved == {0: None}


def test_a_paced_replay_stamps_rows_with_the_times_they_were_due(tmp_path: Path) -> None:
    """A reader that comes late gets what was due, with the times of old: latency counts from there."""
    file = str(tmp_path / "a.parquet")
    pq.write_table(pa.table({"n": range(10)}), file)
    reader = span_reader(plan_replay(file, 1)[0], 1_000)
    assert reader.read(NOW, 100)[1] == NOW + 1_000_000
    batch, again_at = reader.read(NOW + 3_200_000, 100)
    assert batch is not None
    assert batch.schema.names == ["n", DUE]
    assert batch.column("n").to_pylist() == [1, 2, 3]
    assert batch.column(DUE).to_pylist() == [NOW + 1_000_000, NOW + 2_000_000, NOW + 3_000_000]
    assert again_at == NOW + 4_000_000


def test_dictionaries_become_plain_and_nothing_else_changes(tmp_path: Path) -> None:
    """Operators see what a dictionary stands for; timestamps, lists and structs stay as they are."""
    table = pa.table(
        {
            "d": pa.array(["a", "b", "a"]).dictionary_encode(),
            "t": pa.array([1, 2, 3], pa.timestamp("ns")),
            "l": [[1], [], None],
            "s": [{"x": 1}, None, {"x": 3}],
        }
    )
    pq.write_table(table, tmp_path / "a.parquet")
    got = drain(span_reader(plan_replay(str(tmp_path), 1)[0], math.inf)).drop_columns([DUE])
    assert got.schema.types == [pa.string(), *table.schema.types[1:]]
    assert got.to_pylist() == table.to_pylist()


def test_a_uri_is_as_good_as_a_path(tmp_path: Path) -> None:
    """Hosts get places that say which file system they are on."""
    pq.write_table(pa.table({"n": [1, 2]}), tmp_path / "a.parquet")
    spans = plan_replay(tmp_path.as_uri(), 1)[0]
    assert drain(span_reader(spans, math.inf))["n"].to_pylist() == [1, 2]


def _bad(path: Path, kind: str) -> str:
    rows = pa.table({"n": [1]})
    if kind == "text":
        path.joinpath("a.parquet").write_text("hello")
    elif kind == "no rows":
        pq.write_table(rows.slice(0, 0), path / "a.parquet")
    elif kind == "two schemas":
        pq.write_table(rows, path / "a.parquet")
        pq.write_table(pa.table({"n": ["x"]}), path / "b.parquet")
    elif kind == "partitioned":
        path.joinpath("day=1").mkdir()
        pq.write_table(rows, path / "day=1" / "a.parquet")
    elif kind == "reserved":
        pq.write_table(rows.append_column(DUE, [[1]]), path / "a.parquet")
    return str(path / "nowhere" if kind == "no path" else path)


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("no path", r"there is no .*nowhere; expected a Parquet file or a directory of them"),
        ("no files", r"holds no Parquet files; a replay needs at least one, which may have no rows"),
        ("text", r"a\.parquet is not a readable Parquet file"),
        ("two schemas", r"b\.parquet has other columns than .*a\.parquet"),
        ("partitioned", r"is partitioned \(day=1\); replay the DataFrame"),
        ("reserved", r"has a column _fries_due, a name that fries_nb keeps for itself"),
    ],
)
def test_a_path_that_cannot_be_replayed_is_refused(tmp_path: Path, kind: str, message: str) -> None:
    """Bad input: one line that says what was got and what is needed."""
    with pytest.raises(SourceError, match=message) as refused:
        plan_replay(_bad(tmp_path, kind), 1)
    assert "\n" not in str(refused.value)


def test_a_file_that_goes_away_while_it_is_read_is_an_error_of_the_source(tmp_path: Path) -> None:
    """The reader names the file and the row group."""
    file = tmp_path / "a.parquet"
    pq.write_table(pa.table({"n": [1]}), file)
    reader = span_reader(plan_replay(str(file), 1)[0], math.inf)
    file.unlink()
    with pytest.raises(SourceError, match=r"cannot read row group 0 of .*a\.parquet"):
        reader.read(NOW, 1)


@pytest.mark.parametrize("skip", [0, 5])
def test_a_file_that_was_replaced_meanwhile_is_not_read_on(tmp_path: Path, skip: int) -> None:
    """Though it has the same columns and more rows; a copy of the file that was planned is as good as that."""
    file = tmp_path / "numbers.parquet"
    pq.write_table(pa.table({"n": range(10)}), file)
    [spans] = plan_replay(str(file), 1)
    file.with_suffix(".copy").write_bytes(file.read_bytes())
    pq.write_table(pa.table({"n": range(100, 120)}), file)
    reader = span_reader(spans, math.inf, skip=skip)
    with pytest.raises(SourceError, match=r"numbers.parquet has been replaced since .*got .*, expected .* bytes"):
        drain(reader)
    file.with_suffix(".copy").replace(file)
    assert drain(span_reader(spans, math.inf, skip=skip))["n"].to_pylist() == list(range(skip, 10))


def test_a_plan_of_before_fingerprints_is_read_as_it_is(tmp_path: Path) -> None:
    """Such as a checkpoint may hold."""
    pq.write_table(pa.table({"n": range(10)}), tmp_path / "numbers.parquet")
    [spans] = plan_replay(str(tmp_path), 1)
    older = [Span(span.file, span.row_group, span.start, span.rows) for span in spans]
    assert drain(span_reader(older, math.inf))["n"].to_pylist() == list(range(10))


@pytest.mark.parametrize("partitions", [[], ["n"]])
def test_a_delta_table_is_no_directory_of_parquet_files(tmp_path: Path, partitions: list[str]) -> None:
    """Its files hold what was deleted, too; what it holds now is replayed as an Arrow table."""
    write_deltalake(str(tmp_path), pa.table({"n": [1, 2, 3], "m": [1, 2, 3]}), partition_by=partitions)
    DeltaTable(str(tmp_path)).delete("n > 1")
    with pytest.raises(SourceError, match=r"is a Delta table, .* What the table holds now is fn\.replay\(deltalake"):
        plan_replay(str(tmp_path), 1)
    with pytest.raises(SourceError, match=r"is a Delta table, .* which a join takes as well"):
        stage_table(JoinTable("J", str(tmp_path), {"n": "n"}, "inner", False, ""), None, "")  # type: ignore[arg-type]


def test_a_dataframe_is_written_once_and_read_with_its_types(spark: SparkSession) -> None:
    """Any query feeds a flow; a timestamp means the same instant to the operator as it did to Spark."""
    frame = spark.sql("SELECT id, 'x' AS name, TIMESTAMP '2018-04-01 10:00:00 UTC' AS at FROM range(0, 10, 1, 3)")
    scratch = make_scratch(spark, "r1", {})
    try:
        plan = plan_source(replay(frame), spark, scratch, "payments", workers=2)
        tables = [drain(open_reader(plan, WorkerId("payments", index), 2, 0, identities=False)) for index in range(2)]
    finally:
        remove_scratch(scratch)
    assert not Path(scratch).exists()
    rows = pa.concat_tables(tables)
    assert rows["id"].to_pylist() == list(range(10))
    at = datetime.datetime(2018, 4, 1, 10, tzinfo=datetime.UTC)
    assert set(rows["at"].to_pylist()) == {at}


def test_an_arrow_table_is_replayed_too(spark: SparkSession, tmp_path: Path) -> None:
    """``replay`` takes a path, a table or a DataFrame."""
    plan = plan_source(replay(pa.table({"n": [3, 1, 2]})), spark, str(tmp_path), "numbers", workers=1)
    assert drain(open_reader(plan, WorkerId("numbers", 0), 1, 0, identities=False))["n"].to_pylist() == [3, 1, 2]


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("SELECT CAST(raise_error('no such thing') AS INT) AS x", r"Spark cannot write the DataFrame of 'payments'.*"),
        ("SELECT parse_json('1') AS v", r"the DataFrame of 'payments': column 'v' is a VARIANT, .* to_json\(v\) in"),
        ("SELECT array(named_struct('a', parse_json('1'))) AS v", "column 'v' is a VARIANT"),
        ("SELECT INTERVAL '1' DAY AS i", "column 'i' is an INTERVAL, which a stream cannot hold; convert it"),
        ("SELECT INTERVAL '1' YEAR AS i", "column 'i' is an INTERVAL, which a stream cannot hold; convert it"),
        ("SELECT map('a', NULL) AS n", r"column 'n' is of type VOID, .* CAST\(n AS STRING\)"),
    ],
)
def test_a_query_that_fails_or_has_columns_of_spark_alone_is_an_error_of_the_source(
    spark: SparkSession, tmp_path: Path, query: str, message: str
) -> None:
    """Bad input: the source's name and the reason, in one line."""
    with pytest.raises(SourceError, match=message) as refused:
        plan_source(replay(spark.sql(query)), spark, str(tmp_path / "a b"), "payments", workers=1)
    assert "\n" not in str(refused.value)


def test_a_query_without_rows_is_an_empty_stream(spark: SparkSession, tmp_path: Path) -> None:
    """As a table without rows."""
    for number, data in enumerate([spark.sql("SELECT 1 AS x WHERE false"), pa.table({"x": pa.array([], pa.int64())})]):
        plan = plan_source(replay(data), spark, str(tmp_path / str(number)), "payments", workers=1)
        assert open_reader(plan, WorkerId("payments", 0), 1, 0, identities=False).exhausted


def test_times_of_spark_are_instants_at_any_depth(spark: SparkSession, tmp_path: Path) -> None:
    """Spark writes them as INT96, which says nothing of time zones; those without one stay so."""
    query = """
        SELECT t AS top, array(t) AS a, named_struct('n', 1, 't', t) AS s, map('k', t) AS m, n AS local,
            CAST('x' AS CHAR(3)) AS c
        FROM (SELECT TIMESTAMP '2024-01-01 12:00:00Z' AS t, TIMESTAMP_NTZ '2024-01-01 12:00:00' AS n)
    """
    plan = plan_source(replay(spark.sql(query)), spark, str(tmp_path), "payments", workers=1)
    [row] = drain(open_reader(plan, WorkerId("payments", 0), 1, 0, identities=False)).to_pylist()
    noon = datetime.datetime(2024, 1, 1, 12, tzinfo=datetime.UTC)
    assert [row["top"], row["a"], row["s"], row["m"]] == [noon, [noon], {"n": 1, "t": noon}, [("k", noon)]]
    assert row["local"] == datetime.datetime(2024, 1, 1, 12)


def test_scratch_space_is_where_all_hosts_reach_it(spark: SparkSession, tmp_path: Path) -> None:
    """FRIES_SCRATCH names a shared directory; each run has its own below it."""
    scratch = make_scratch(spark, "r1", {"FRIES_SCRATCH": str(tmp_path)})
    assert scratch == f"{tmp_path}/fries-r1"
    assert Path(scratch).is_dir()
    remove_scratch(scratch)
    remove_scratch(scratch)
    assert not Path(scratch).exists()
