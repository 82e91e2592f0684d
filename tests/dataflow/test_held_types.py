"""Every family of column types keeps its values in each sink, or is refused by name."""

from __future__ import annotations

import datetime
import uuid
from decimal import Decimal
from pathlib import Path
from typing import Any

import pandas
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from fries_nb.connectors.parquet_sink import PartWriter
from fries_nb.dataflow.columns import TABLE, HeldBy, NotHeldError, converted, held, held_columns
from fries_nb.errors import SinkError
from fries_nb.protocol.messages import WorkerId
from fries_nb.storage.delta import TableColumns

HOUR = datetime.timedelta(hours=1)
NOON = datetime.datetime(2024, 1, 1, 12)
VALUES: dict[str, tuple[pa.Array, Any]] = {
    "null": (pa.nulls(1), None),
    "bool": (pa.array([True]), True),
    "int8": (pa.array([-1], pa.int8()), -1),
    "uint64": (pa.array([2**64 - 1], pa.uint64()), 2**64 - 1),
    "float16": (pa.array([1.5], pa.float16()), 1.5),
    "text": (pa.array(["é"]), "é"),
    "large text": (pa.array(["é"], pa.large_string()), "é"),
    "text view": (pa.array(["é"], pa.string_view()), "é"),
    "bytes view": (pa.array([b"\0"], pa.binary_view()), b"\0"),
    "fixed bytes": (pa.array([b"ab"], pa.binary(2)), b"ab"),
    "date64": (pa.array([NOON.date()], pa.date64()), NOON.date()),
    "seconds": (pa.array([NOON], pa.timestamp("s")), NOON),
    "nanoseconds": (pa.array([NOON], pa.timestamp("ns")), NOON),
    "decimal32": (pa.array([Decimal("1.25")], pa.decimal32(5, 2)), Decimal("1.25")),
    "decimal64": (pa.array([Decimal("1.25")], pa.decimal64(9, 2)), Decimal("1.25")),
    "decimal256": (pa.array([Decimal("1.25")], pa.decimal256(38, 2)), Decimal("1.25")),
    "hundreds": (pa.array([Decimal(1500)], pa.decimal128(5, -2)), Decimal(1500)),
    "dictionary": (pa.array(["a"]).dictionary_encode(), "a"),
    "runs": (pc.run_end_encode(pa.array(["a"])), "a"),
    "list": (pa.array([[1]], pa.large_list(pa.int64())), [1]),
    "list view": (pa.array([[1, 2]], pa.list_view(pa.int64())), [1, 2]),
    "views in a struct": (
        pa.array([{"a": [1]}], pa.struct([("a", pa.list_view(pa.int8()))])), {"a": [1]},
    ),
    "dictionary in a list": (pa.array([["a"]], pa.list_(pa.dictionary(pa.int8(), pa.string()))), ["a"]),
    "fixed list": (pa.array([[1, 2]], pa.list_(pa.int16(), 2)), [1, 2]),
    "map": (pa.array([[("a", 2)]], pa.map_(pa.string(), pa.uint32())), [("a", 2)]),
}  # fmt: skip
DURATIONS: dict[str, tuple[pa.Array, Any]] = {
    "duration": (pa.array([HOUR], pa.duration("s")), HOUR),
    "nanosecond durations": (pa.array([HOUR], pa.duration("ns")), HOUR),
    "durations in a list": (pa.array([[HOUR]], pa.list_(pa.duration("ms"))), [HOUR]),
    "durations in a map": (pa.array([[("a", HOUR)]], pa.map_(pa.string(), pa.duration("s"))), [("a", HOUR)]),
    "durations in a struct": (pa.array([{"a": HOUR}], pa.struct([("a", pa.duration("s"))])), {"a": HOUR}),
}
REFUSED = {
    "time of day": pa.time64("us"),
    "UUID": pa.uuid(),
    "UUIDs in a list": pa.list_(pa.uuid()),
    "interval": pa.month_day_nano_interval(),
    "union": pa.dense_union([pa.field("a", pa.int64()), pa.field("b", pa.string())]),
    "period": pa.array(pandas.period_range("2024-01", periods=1, freq="M")).type,
    "periods in a struct": pa.struct([("a", pa.array(pandas.period_range("2024", periods=1, freq="Y")).type)]),
    "interval of pandas": pa.array(pandas.interval_range(0, 1)).type,
    "json": pa.json_(),
    "39 digits": pa.decimal256(39, 2),
    "no fields": pa.struct([]),
    "fields alike": pa.struct([("a", pa.int64()), ("A", pa.int64())]),
}


def writer(tmp_path: Path) -> PartWriter:
    """A writer of part files."""
    return PartWriter(str(tmp_path / "out"), WorkerId("out", 0), 1, "run")


@pytest.mark.parametrize("name", [*VALUES, *DURATIONS])
def test_files_keep_the_values_of_each_family(tmp_path: Path, name: str) -> None:
    """In a type that Spark reads, which needs no further change."""
    values, value = {**VALUES, **DURATIONS}[name]
    sink = writer(tmp_path)
    sink.write(pa.record_batch([values], names=["c"]))
    kind = sink.columns.field("c").type
    assert held(kind, HeldBy.FILES) == kind
    assert converted(values, kind).to_pylist() == [value]
    [part] = sink.close_part()
    assert pq.read_table(part).column("c").to_pylist() == [value]


@pytest.mark.parametrize("name", VALUES)
def test_a_delta_table_keeps_the_values_of_each_family(name: str) -> None:
    """Signed integers hold unsigned ones."""
    values, value = VALUES[name]
    [column] = TableColumns("the table", pa.schema([])).fit(pa.record_batch([values], names=["c"])).columns
    assert held(column.type, HeldBy.DELTA) == column.type
    assert column.to_pylist() == [value]


@pytest.mark.parametrize("name", [*VALUES, *DURATIONS])
def test_messages_keep_the_values_of_each_family(name: str) -> None:
    """As Python has them."""
    values, value = {**VALUES, **DURATIONS}[name]
    assert converted(values, held(values.type, HeldBy.MESSAGES)).to_pylist() == [value]


@pytest.mark.parametrize("by", [HeldBy.FILES, HeldBy.DELTA])
@pytest.mark.parametrize("name", REFUSED)
def test_what_a_sink_cannot_hold_is_refused_by_name(name: str, by: HeldBy) -> None:
    """With what to do."""
    with pytest.raises(NotHeldError, match=f"'c' as .*, {by.value}; (convert|expected|round)"):
        held_columns(pa.schema([("n", pa.int64()), ("c", REFUSED[name])]), by)


def test_nothing_is_written_of_rows_that_are_refused(tmp_path: Path) -> None:
    """Nor does the part of the rows before them end."""
    sink = writer(tmp_path)
    sink.write(pa.record_batch({"n": [1]}))
    for bad in (pa.time64("us"), pa.month_day_nano_interval()):
        with pytest.raises(SinkError, match=r"out\[0\] got 'c' as .*; convert it to text.* in an operator"):
            sink.write(pa.record_batch([pa.array([1]), pa.nulls(1, bad)], names=["n", "c"]))
    assert sink.columns.names == ["n"]
    assert len(sink.close_part()) == 1


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (pa.array([1_001], pa.timestamp("ns")), "got values of 'c' with nanoseconds, which would be cut; round them"),
        (pa.array([1_001], pa.duration("ns")), "got values of 'c' with nanoseconds, which would be cut; round them"),
        (pa.array([[1_001]], pa.list_(pa.timestamp("ns"))), "with nanoseconds, which would be cut"),
        (pa.array([2**60], pa.timestamp("s")), r"'c' as timestamp\[s\], held as timestamp\[us\], and a value does not"),
        (pa.array([2**60], pa.duration("s")), r"'c' as duration\[s\], held as duration\[us\], and a value does not"),
    ],
)
def test_a_value_that_does_not_fit_is_refused_by_column(tmp_path: Path, values: pa.Array, said: str) -> None:
    """No sink cuts it."""
    with pytest.raises(SinkError, match=said):
        writer(tmp_path).write(pa.record_batch([values], names=["c"]))


def test_units_of_one_column_may_differ_from_batch_to_batch(tmp_path: Path) -> None:
    """A column that an operator made in seconds, and another in microseconds, is one column."""
    sink = writer(tmp_path)
    for unit in ("s", "us", "ns"):
        sink.write(pa.record_batch([pa.array([HOUR], pa.duration(unit))], names=["c"]))
    [part] = sink.close_part()
    assert pq.read_table(part).column("c").cast(pa.int64()).to_pylist() == [3_600_000_000] * 3


def test_all_types_of_arrow_are_in_the_table() -> None:
    """The last family includes what no other does; each of the others is met by a value here."""
    met = set[int]()
    every = [values.type for values, _ in {**VALUES, **DURATIONS}.values()]
    for kind in [*every, *REFUSED.values(), pa.float64(), pa.date32()]:
        met.add(next(index for index, family in enumerate(TABLE) if family.includes(kind)))
    assert met == set(range(len(TABLE)))


def test_json_has_uuids_and_times_of_day() -> None:
    """As text; what Python has no value for is refused."""
    kinds = pa.schema([("u", pa.uuid()), ("t", pa.time64("us"))])
    assert held_columns(kinds, HeldBy.MESSAGES) is kinds
    assert pa.array([uuid.UUID(int=1).bytes], pa.uuid()).to_pylist() == [uuid.UUID(int=1)]
    with pytest.raises(NotHeldError, match="'m' as month_day_nano_interval, a type that JSON has no form for"):
        held_columns(pa.schema([("m", pa.month_day_nano_interval())]), HeldBy.MESSAGES)
