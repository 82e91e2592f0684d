"""What users of pandas and Arrow have becomes plain columns with the same values, or is refused by column."""

from __future__ import annotations

import datetime
import warnings
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from fries_nb.dataflow.endpoints import plain_table, replay
from fries_nb.errors import SourceError

NOON = datetime.datetime(2024, 1, 1, 12)
PLAIN: dict[str, tuple[pa.Array, list[Any]]] = {
    "dictionary": (pa.array(["a", None]).dictionary_encode(), ["a", None]),
    "dictionaries in a list": (pa.array([["a"]], pa.list_(pa.dictionary(pa.int8(), pa.string()))), [["a"]]),
    "dictionaries in a map": (
        pa.array([[("a", 5)]], pa.map_(pa.string(), pa.dictionary(pa.int32(), pa.int64()))), [[("a", 5)]],
    ),
    "runs": (pc.run_end_encode(pa.array(["a", "a"])), ["a", "a"]),
    "text view": (pa.array(["a"], pa.string_view()), ["a"]),
    "list view": (pa.array([[1, 2], []], pa.list_view(pa.int64())), [[1, 2], []]),
    "half": (pa.array([1.5], pa.float16()), [1.5]),
    "decimal32": (pa.array([Decimal("1.25")], pa.decimal32(5, 2)), [Decimal("1.25")]),
    "hundreds": (pa.array([Decimal(1500)], pa.decimal128(5, -2)), [Decimal(1500)]),
    "seconds": (pa.array([NOON], pa.timestamp("s")), [NOON]),
    "duration": (pa.array([datetime.timedelta(1)], pa.duration("s")), [datetime.timedelta(1)]),
    "nulls": (pa.nulls(2), [None, None]),
    "date64": (pa.array([NOON.date()], pa.date64()), [NOON.date()]),
}  # fmt: skip
MONTHS = pd.period_range("2024-01", periods=2, freq="M")
AWARE = pd.Timestamp("2024-01-01", tz="UTC")


def as_columns(table: Any) -> dict[str, list[Any]]:
    """The columns of a table that was given."""
    given = plain_table(table)
    assert given is not None
    return {name: given.column(name).to_pylist() for name in given.column_names}


@pytest.mark.parametrize("name", PLAIN)
def test_encodings_of_arrow_become_the_values_that_they_stand_for(name: str) -> None:
    """Also in several chunks, and in a record batch."""
    values, plain = PLAIN[name]
    assert as_columns(pa.table({"c": pa.chunked_array([values, values])})) == {"c": plain * 2}
    assert as_columns(pa.record_batch([values], names=["c"])) == {"c": plain}


@pytest.mark.parametrize(
    ("series", "plain"),
    [
        (pd.Categorical(["a", None]), ["a", None]),
        (pd.Categorical([3, 1]), [3, 1]),
        (pd.arrays.SparseArray([0, 1]), [0, 1]),
        (pd.array([1, None], dtype="Int64"), [1, None]),
        (pd.array([True, None], dtype="boolean"), [True, None]),
        (pd.array([1, None], dtype="int64[pyarrow]"), [1, None]),
        (pd.array([datetime.timedelta(1), None], dtype="duration[s][pyarrow]"), [datetime.timedelta(1), None]),
        (pd.to_timedelta([1, None], unit="s"), [datetime.timedelta(seconds=1), None]),
        (pd.date_range("2024-01-01", periods=1, tz="Europe/Berlin"), [AWARE - datetime.timedelta(hours=1)]),
        (pd.Series(["a", np.nan, None, pd.NaT, pd.NA], dtype=object), ["a", None, None, None, None]),
        (pd.Series([1, 2.5, Decimal("0.5")][:2], dtype=object), [1.0, 2.5]),
        (pd.Series([np.array([1, 2]), [3]], dtype=object), [[1, 2], [3]]),
    ],
)
def test_columns_of_pandas_keep_their_values(series: Any, plain: list[Any]) -> None:
    """What stands for no value is null."""
    assert as_columns(pd.DataFrame({"c": series})) == {"c": plain}


@pytest.mark.parametrize(
    ("series", "said"),
    [
        (MONTHS, r"holds period\[M\], .*; convert it with .dt.to_timestamp\(\) or .astype\(str\)"),
        (pd.Categorical(MONTHS), r"holds categories of period\[M\], "),
        (pd.interval_range(0, 2), r"holds interval\[int64, right\], which no column type of a stream holds; convert"),
        ([1j], r"\(complex128\) cannot be a column of a stream"),
        (pd.Series([1, "a"], dtype=object), r"has a number \(1\) beside text \('a'\); expected values of one type"),
        (pd.Series([1, True], dtype=object), r"has a number \(1\) beside a boolean \(True\)"),
        (pd.Series([AWARE, pd.Timestamp("2024-01-01")], dtype=object), "a time with an offset .* beside a time wi"),
        (pd.Series([NOON, NOON.date()], dtype=object), "has a time without an offset .* beside a date "),
        (pd.Series([2**70], dtype=object), "cannot be a column of a stream: .* too large"),
        (pd.Series([{1: 2}], dtype=object), "cannot be a column of a stream: .* key"),
        (pd.Series([object()], dtype=object), "cannot be a column of a stream"),
        (pd.array([2**60], dtype="timestamp[s][pyarrow]"), r"held as timestamp\[us\], and a value does not fit"),
    ],
)
def test_columns_of_pandas_without_a_plain_type_are_refused_by_name(series: Any, said: str) -> None:
    """In one line, when they are given."""
    with pytest.raises(SourceError, match=f"^column 'c' of the DataFrame.*{said}") as refused:
        replay(pd.DataFrame({"c": series}))
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    "kind", [pa.month_day_nano_interval(), pa.dense_union([pa.field("a", pa.int64())]), pa.json_()], ids=str
)
def test_columns_of_arrow_without_a_plain_type_are_refused_by_name(kind: pa.DataType) -> None:
    """Also within others."""
    for one in (kind, pa.struct([("x", kind)])):
        with pytest.raises(SourceError, match=r"column 'c' of the Table holds .*, which no column type of a stream"):
            replay(pa.table({"c": pa.nulls(1, one)}))


@pytest.mark.parametrize(
    ("frame", "said"),
    [
        (pd.DataFrame({("a", "b"): [1]}), r"has a column named \('a', 'b'\) \(tuple\); a column's name is text"),
        (pd.DataFrame({0: [1]}), r"has a column named 0 \(int\); a column's name is text"),
        (pd.DataFrame({None: [1]}), r"has a column named None \(NoneType\); a column's name is text"),
        (pd.DataFrame([[1, 2]], columns=["a", "a"]), "has several columns 'a'"),
        (pa.table([[1], [2]], names=["a", "a"]), "has several columns 'a'"),
        (pd.DataFrame({"a": [1]}, index=pd.Index([3], name="a")), "the index of the DataFrame cannot become columns"),
        (pd.DataFrame({"a": [1]}, index=pd.PeriodIndex(["2024-01"], freq="M", name="at")), "column 'at' .* period"),
    ],
)
def test_names_that_rows_cannot_have_are_refused(frame: Any, said: str) -> None:
    """A row is a dict, whose keys are text."""
    with pytest.raises(SourceError, match=said):
        replay(frame)


@pytest.mark.parametrize(
    "index",
    [
        pd.date_range("2024-01-01", periods=1),
        pd.Index(["x"]),
        pd.MultiIndex.from_tuples([(1, "x")]),
        pd.PeriodIndex(["2024-01"], freq="M"),
    ],
    ids=lambda index: type(index).__name__,
)
def test_an_index_without_a_name_is_told(index: Any) -> None:
    """It may be data; one that numbers the rows is none, also after a selection."""
    with pytest.warns(UserWarning, match="replay leaves out the index of the DataFrame .*rename_axis") as told:
        assert replay(pd.DataFrame({"v": [1]}, index=index)).data.column_names == ["v"]
    assert told[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        frame = pd.DataFrame({"v": [1, 2, 3]})
        assert as_columns(frame[frame.v != 2]) == {"v": [1, 3]}
        replay(pd.DataFrame({"v": []}, index=index[:0]))


def test_a_named_index_becomes_columns_behind_the_others() -> None:
    """Its levels, those without a name with pandas' own."""
    index = pd.MultiIndex.from_tuples([(1, 2)], names=["x", None])
    assert as_columns(pd.DataFrame({"a": [3]}, index=index)) == {"a": [3], "x": [1], "level_1": [2]}


def test_the_data_are_copied() -> None:
    """The user may edit the frame before the run."""
    frame = pd.DataFrame({"a": [1, 2]})
    table = replay(frame).data
    frame.loc[0, "a"] = 9
    assert table.column("a").to_pylist() == [1, 2]


def test_what_fails_to_become_arrow_is_told_in_one_line() -> None:
    """The interface is another library's."""

    class Strange:
        def __arrow_c_stream__(self, requested_schema: object = None) -> object:
            raise OverflowError("too\nlong")

    with pytest.raises(SourceError, match=r"replay cannot make a table of this Strange: too$"):
        replay(Strange())
