"""Partitioned Delta tables: each part has rows of one partition, whose values the log has as every reader expects."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, QueryBuilder, write_deltalake

import fries_nb as fn
from fries_nb.connectors import parquet_sink
from fries_nb.connectors.parquet_sink import DeltaSink, PartitionedWriter, divided
from fries_nb.dataflow.columns import DUE
from fries_nb.errors import SinkError
from fries_nb.protocol.messages import WorkerId
from fries_nb.storage import flow_shape, manifest

BERLIN = datetime.timezone(datetime.timedelta(hours=2))
AT = datetime.datetime(2026, 1, 2, 3, 4, 5, 678)
VALUES: dict[str, list[Any]] = {
    "text": ["a", "a/b=c d%20", "é\n'\"", None],
    "integers": [1, -(2**63), None],
    "booleans": [True, False, None],
    "dates": [AT.date(), datetime.date(1, 1, 1), None],
    "times": [AT, AT.replace(microsecond=0), None],
    "zoned": [AT.replace(tzinfo=BERLIN), None],
}


def claimed(path: Path, *by: str, run: str = "r1") -> DeltaSink:
    """A sink on a table partitioned so."""
    sink = DeltaSink(str(path), by)
    sink.claim("fraud", run)
    return sink


def closed(sink: DeltaSink, rows: list[dict[str, Any]], index: int = 0) -> tuple[str, ...]:
    """Parts with these rows, of one batch."""
    writer = sink.open(WorkerId("out", index), 1)
    writer.write(pa.RecordBatch.from_pylist(rows))
    return writer.close_part()


def commit(sink: DeltaSink, number: int, parts: tuple[str, ...]) -> None:
    """As a driver does."""
    sink.prepare(parts)
    sink.commit(number, parts)


def rows_of(path: Path, **choice: Any) -> list[dict[str, Any]]:
    """What deltalake reads, in the order of n."""
    return sorted(DeltaTable(str(path)).to_pyarrow_table(**choice).to_pylist(), key=lambda row: row["n"])


@pytest.mark.parametrize("kind", VALUES)
def test_a_value_is_read_as_it_was_written(kind: str, tmp_path: Path) -> None:
    """By whoever reads the log, and by whoever reads the files; a partition is found by its value."""
    sink = claimed(tmp_path / "t", "p")
    rows = [{"n": n, "p": VALUES[kind][n % len(VALUES[kind])]} for n in range(7)]
    commit(sink, 1, closed(sink, rows[:4]))
    commit(sink, 2, closed(claimed(tmp_path / "t", "p"), rows[4:], index=1))
    assert rows_of(tmp_path / "t") == rows
    assert DeltaTable(str(tmp_path / "t")).metadata().partition_columns == ["p"]
    first = rows[0]["p"]
    assert rows_of(tmp_path / "t", filters=[("p", "=", first)]) == [row for row in rows if row["p"] == first]
    queried = QueryBuilder().register("t", DeltaTable(str(tmp_path / "t"))).execute("SELECT n, p FROM t ORDER BY n")
    assert pa.table(queried.read_all()).to_pylist() == rows
    read = [row for file in manifest.committed(str(tmp_path / "t")) for row in pq.read_table(file).to_pylist()]
    assert sorted(read, key=lambda row: row["n"]) == rows


def test_parts_have_the_columns_of_the_table(tmp_path: Path) -> None:
    """In its types, as the writer reports them, without those of the runtime."""
    write_deltalake(str(tmp_path / "t"), pa.table({"n": [0], "x": [0.5], "p": ["a"]}), partition_by=["p"])
    sink = claimed(tmp_path / "t", "p")
    writer = sink.open(WorkerId("out", 0), 1)
    writer.write(pa.record_batch({"x": [1, 2], "p": ["a", None], DUE: [5, 6], "n": [1, 2]}))
    writer.write(pa.record_batch({"p": [None], "n": [3]}))
    columns = pa.schema({"x": pa.float64(), "p": pa.string(), "n": pa.int64()})
    assert writer.columns == columns
    parts = writer.close_part()
    assert [pq.read_schema(part).remove_metadata() for part in parts] == [columns] * 2
    commit(sink, 1, parts)
    assert [(row["x"], row["p"]) for row in rows_of(tmp_path / "t")] == [
        (0.5, "a"), (1.0, "a"), (2.0, None), (None, None)
    ]  # fmt: skip


def test_rows_are_divided_by_all_columns_in_their_order() -> None:
    """Nulls and absent columns are a value of their own."""
    rows = [{"a": a, "b": b, "n": n} for n, (a, b) in enumerate([(1, "x"), (2, "x"), (1, None), (1, "x"), (None, "x")])]
    found = list(divided(pa.RecordBatch.from_pylist(rows), ["a", "b", "c"]))
    assert {values: part["n"].to_pylist() for values, part in found} == {
        (1, "x", None): [0, 3], (2, "x", None): [1], (1, None, None): [2], (None, "x", None): [4],
    }  # fmt: skip
    assert len(found) == 4


@pytest.mark.parametrize(("there", "given"), [((), ("p",)), (("p",), ()), (("p", "q"), ("q", "p"))])
def test_a_table_that_is_partitioned_otherwise_is_refused(
    there: tuple[str, ...], given: tuple[str, ...], tmp_path: Path
) -> None:
    """Before anything runs, with what is to be said instead; a resumed run is not of another table either."""
    write_deltalake(str(tmp_path / "t"), pa.table({"n": [1], "p": [1], "q": [1]}), partition_by=[*there])
    words = f"is {'partitioned by p' if there else 'not partitioned'}.*, and the sink is .*; expected partition_by="
    with pytest.raises(SinkError, match=words) as caught:
        claimed(tmp_path / "t", *given)
    assert str([*there]) in str(caught.value)
    claimed(tmp_path / "t", *there)
    flows = {by: fn.Dataflow("f") for by in (there, given)}
    for by, flow in flows.items():
        flow.source("S", fn.rate(1)).sink("out", fn.delta(tmp_path / "t", by))
    then = flow_shape.flow_of(flows[there].graph(), "r1")
    assert flow_shape.difference(then, flows[there].graph()) == ""
    assert "partitioned by" in flow_shape.difference(then, flows[given].graph())


def test_a_column_that_is_in_no_row_begins_no_table(tmp_path: Path) -> None:
    """Nothing is written, and with the right name the same directory becomes a table."""
    sink = claimed(tmp_path / "t", "dya")
    with pytest.raises(SinkError, match=r"partitioned by 'dya', and no row has .* n, day; did you mean 'day'\?"):
        commit(sink, 1, closed(sink, [{"n": 1, "day": "mon"}]))
    right = claimed(tmp_path / "t", "day", run="r2")
    assert not (tmp_path / "t" / "_delta_log").exists()
    commit(right, 1, closed(right, [{"n": 1, "day": "mon"}]))
    assert rows_of(tmp_path / "t") == [{"n": 1, "day": "mon"}]
    alone = claimed(tmp_path / "alone", "n")
    with pytest.raises(SinkError, match="needs a column beside n of its partitions"):
        commit(alone, 1, closed(alone, [{"n": 1}]))


@pytest.mark.parametrize(("value", "words"), [("", "a row has '' in the column 'p', by"), (0.5, "is double; exp")])
def test_a_value_that_no_partition_can_have_is_refused_at_the_sink(value: Any, words: str, tmp_path: Path) -> None:
    """Delta reads an empty text as null; the texts of fractions are read in several ways."""
    with pytest.raises(SinkError, match=words):
        closed(claimed(tmp_path / "t", "p"), [{"n": 1, "p": value}])


def test_a_commit_that_was_cut_short_makes_the_table_of_its_own_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever comes next completes it, with its partitions; another partitioning comes too late then."""
    sink = claimed(tmp_path / "t", "p")
    parts = closed(sink, [{"n": 1, "p": "x"}, {"n": 2, "p": "y"}])
    with monkeypatch.context() as patch:
        patch.setattr(manifest, "_publish", lambda path, run: None)
        commit(sink, 1, parts)
    with pytest.raises(SinkError, match=r"partitioned by p, and the sink is not partitioned; expected"):
        claimed(tmp_path / "t", run="r2")
    assert rows_of(tmp_path / "t") == [{"n": 1, "p": "x"}, {"n": 2, "p": "y"}]
    claimed(tmp_path / "t", "p").recover(1, parts)
    assert len(rows_of(tmp_path / "t")) == 2


def test_many_partitions_take_few_rows_in_memory_and_few_open_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows are written when there are many, and files closed when there are too many."""
    monkeypatch.setattr(parquet_sink, "HELD_ROWS", 8)
    monkeypatch.setattr(parquet_sink, "MOST_OPEN", 3)
    sink = claimed(tmp_path / "t", "p")
    writer, held, opened = sink.open(WorkerId("out", 0), 1), [], []
    assert isinstance(writer, PartitionedWriter)
    for n in range(60):
        writer.write(pa.record_batch({"n": [n], "p": [n // 20 + n % 3]}))
        held.append(writer._rows.count + sum(part._rows.count for part in writer._writers.values()))
        opened.append(len(writer._writers))
    assert (max(held), max(opened)) == (7, 3)
    commit(sink, 1, parts := writer.close_part())
    assert [row["n"] for row in rows_of(tmp_path / "t")] == list(range(60))
    assert len(parts) < 20, "a part has the rows of several batches"
    assert writer._writers == {}, "partitions that get no more rows take no memory"


@pytest.mark.parametrize("by", [["p", "p"], [""], [1], 5])
def test_partition_by_has_names(by: Any) -> None:
    """Different ones; a single one may stand alone."""
    with pytest.raises(SinkError, match=r"delta got partition_by=.*; expected names of different columns, as"):
        fn.delta("t", by)
    assert fn.delta("t", "day") == fn.delta("t", partition_by=["day"])
