"""A row is a dict in every respect, and what nobody writes passes as the Arrow column that came in."""

from __future__ import annotations

import copy
import json
import pickle
from datetime import datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fries_nb.dataflow.columns import DUE, TRANSACTION
from fries_nb.operators.conversion import FEW, NOT_ARROW, to_arrow, to_python
from fries_nb.operators.rows import Columns, Reads, Row, derived
from fries_nb.operators.steps import assemble

START = {"a": 1, "b": "x", "c": 2.5}


def row_of(values: dict[str, Any], reads: Reads | None = None) -> Row:
    """The first row of a batch that holds just these values and a hidden column."""
    batch = pa.RecordBatch.from_pylist([{**values, DUE: 5}])
    return next(Columns(batch, reads or Reads()).rows())


NAMES = st.sampled_from(["a", "b", "c", "d", "e"])
OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("set"), NAMES, st.integers()),
        st.tuples(st.sampled_from(["get", "in", "pop", "del", "setdefault", "index", "or", "ior", "update"]), NAMES),
        st.tuples(st.sampled_from(["len", "list", "items", "clear", "copy", "popitem", "bool", "reversed", "eq"])),
    ),
    max_size=12,
)


def apply(target: dict[str, Any], step: tuple[Any, ...]) -> tuple[dict[str, Any], Any]:
    """One operation on a dict; the dict to go on with, and what it answered."""
    what, rest = step[0], step[1:]
    name = rest[0] if rest else ""
    try:
        if what == "set":
            target[name] = rest[1]
            return target, None
        if what == "del":
            del target[name]
            return target, None
        if what == "ior":
            target |= {name: "new", "z": 0}
            return target, None
        if what == "or":
            return target | {name: "or"}, dict(target)
        if what == "copy":
            return target.copy(), dict(target)
        answers = {
            "get": lambda: target.get(name, "none"),
            "in": lambda: name in target,
            "pop": lambda: target.pop(name, "none"),
            "setdefault": lambda: target.setdefault(name, "default"),
            "index": lambda: target[name],
            "update": lambda: target.update({name: 1}, y=2),
            "len": lambda: len(target),
            "list": lambda: list(target),
            "items": lambda: (list(target.items()), list(target.keys()), list(target.values())),
            "clear": target.clear,
            "popitem": target.popitem,
            "bool": lambda: bool(target),
            "reversed": lambda: list(reversed(target)),
            "eq": lambda: (target == {"a": 1}, target != {"a": 1}, target == 3, target == {"a": 1}),
        }
        return target, answers[what]()
    except KeyError:
        return target, KeyError


@given(OPERATIONS)
def test_a_row_behaves_as_a_dict_under_any_operations(steps: list[tuple[Any, ...]]) -> None:
    """A row behaves as a dict under any operations."""
    plain: dict[str, Any] = dict(START)
    row: dict[str, Any] = row_of(START)
    for step in steps:
        plain, expected = apply(plain, step)
        row, got = apply(row, step)
        assert got == expected, step
    assert row == plain
    assert plain == row
    assert list(row) == list(plain)
    assert repr(row) == repr(plain)


@pytest.mark.parametrize(
    "whole",
    [
        lambda row: {**row},
        dict,
        lambda row: json.loads(json.dumps(row)),
        lambda row: pickle.loads(pickle.dumps(row)),
        copy.copy,
        copy.deepcopy,
        lambda row: (lambda **named: named)(**row),
        lambda row: {} | row,
        lambda row: dict(row.items()),
        lambda row: eval(repr(row)),
        lambda row: {name: row[name] for name in row},
    ],
)
@pytest.mark.parametrize("prepare", ["untouched", "read", "written", "popped"])
def test_every_way_to_see_a_whole_row_sees_all_of_it(whole: Any, prepare: str) -> None:
    """Every way to see a whole row sees all of it."""
    row, plain = row_of(START), dict(START)
    for target in (row, plain):
        if prepare == "read":
            _ = target["b"]
        elif prepare == "written":
            target["b"] = "y"
            target["new"] = None
        elif prepare == "popped":
            target.pop("a")
    seen = whole(row)
    assert seen == plain
    assert type(seen) is dict
    assert list(seen) == list(plain)


def test_a_row_of_one_column_keeps_what_was_written_after_it_was_shown() -> None:
    """A row of one column keeps what was written after it was shown."""
    row = row_of({"a": 1})
    row["a"] = 5
    assert list(row) == ["a"]
    assert row | {"b": 2} == {"a": 5, "b": 2}


def test_a_row_or_another_leaves_both_as_they_were() -> None:
    """A row or another leaves both as they were."""
    left, right = row_of({"a": 1, "b": 2}), row_of({"b": 3, "c": 4})
    assert left | right == {"a": 1, "b": 3, "c": 4}
    assert left == {"a": 1, "b": 2}
    assert right == {"b": 3, "c": 4}
    with pytest.raises(TypeError):
        left | [("a", 1)]


def test_a_missing_column_is_named_beside_those_that_are_there() -> None:
    """A missing column is named beside those that are there."""
    with pytest.raises(KeyError, match="no column 'amont'; this row has amount, shop"):
        row_of({"amount": 1, "shop": "s"})["amont"]
    whole = row_of({"amount": 1, "shop": "s"})
    del whole["shop"]
    with pytest.raises(KeyError, match="no column 'shop'; this row has amount"):
        whole["shop"]


def test_hidden_columns_are_not_seen_and_cannot_be_overwritten() -> None:
    """Hidden columns are not seen and cannot be overwritten."""
    row = row_of({"a": 1})
    assert DUE not in row
    row[DUE] = 99
    assert assemble([row], row.columns, {}).to_pydict() == {"a": [1], DUE: [5]}


def test_only_columns_that_are_looked_at_are_converted_and_reported() -> None:
    """Only columns that are looked at are converted and reported."""
    batch = pa.RecordBatch.from_pydict({"a": [1, 2], "b": [3, 4], "c": [5, 6]})
    reads = Reads()
    columns = Columns(batch, reads)
    rows = [row | {"d": row["b"]} for row in columns.rows()]
    out = assemble(rows, columns, {})
    assert reads.names == ("b",)
    assert list(columns) == ["b"]
    assert out.column("a") is not None
    assert out.column("a").buffers()[1].address == batch.column("a").buffers()[1].address


def test_columns_leave_in_order_of_the_batch_then_of_first_writing_then_hidden() -> None:
    """Columns leave in order of the batch then of first writing then hidden."""
    batch = pa.RecordBatch.from_pydict({"b": [1, 2], "a": [3, 4], DUE: [7, 8], TRANSACTION: [0, 1]})
    columns = Columns(batch, Reads())
    rows = [row | {"z": 1, "y": 2, "a": 0} for row in columns.rows()]
    assert assemble(rows, columns, {}).schema.names == ["b", "a", "z", "y", DUE, TRANSACTION]
    assert columns.transactions() == [0, 1]


def test_a_column_that_only_some_rows_have_is_null_or_as_it_came_in_the_others() -> None:
    """A column that only some rows have is null or as it came in the others."""
    columns = Columns(pa.RecordBatch.from_pydict({"a": [1, 2, 3]}), Reads())
    rows = list(columns.rows())
    rows[1]["flag"] = True
    rows[2]["a"] = 9
    assert assemble(rows, columns, {}).to_pydict() == {"a": [1, 2, 9], "flag": [None, True, None]}


@given(st.lists(st.integers(0, 5), max_size=12, min_size=1))
def test_hidden_columns_follow_the_row_that_a_tuple_came_from(indices: list[int]) -> None:
    """Hidden columns follow the row that a tuple came from."""
    batch = pa.RecordBatch.from_pydict({"a": list(range(6)), DUE: list(range(100, 106))})
    columns = Columns(batch, Reads())
    rows = list(columns.rows())
    out = assemble([derived({"n": i}, rows[i]) if i % 2 else rows[i] | {"n": i} for i in indices], columns, {})
    assert out.column(DUE).to_pylist() == [100 + i for i in indices]
    assert out.column("n").to_pylist() == indices


def test_whole_rows_beside_lazy_ones_make_one_batch() -> None:
    """Whole rows beside lazy ones make one batch."""
    columns = Columns(pa.RecordBatch.from_pydict({"a": [1, 2], "b": [3, 4]}), Reads())
    first, second = columns.rows()
    del second["a"]
    assert assemble([first, second], columns, {}).to_pydict() == {"a": [1, None], "b": [3, 4]}


VALUES = st.one_of(
    st.lists(st.integers(-(2**63), 2**63 - 1) | st.none()),
    st.lists(st.floats(allow_nan=False) | st.none()),
    st.lists(st.text() | st.none()),
    st.lists(st.booleans() | st.none()),
    st.lists(st.lists(st.integers(0, 9)) | st.none()),
    st.lists(st.datetimes(datetime(1970, 1, 1), datetime(2100, 1, 1)) | st.none()),
    st.lists(st.binary() | st.none()),
)
KNOWN = st.sampled_from(
    [None, pa.null(), pa.int64(), pa.int8(), pa.float64(), pa.float32(), pa.string(), pa.bool_(), pa.list_(pa.int8()),
     pa.list_(pa.string()), pa.timestamp("ns"), pa.timestamp("s"), pa.date32(), pa.binary(), pa.decimal128(9, 2)]
)  # fmt: skip


@given(VALUES, KNOWN)
def test_no_value_changes_on_its_way_to_arrow_whatever_type_was_seen_before(values: Any, known: Any) -> None:
    """No value changes on its way to arrow whatever type was seen before."""
    back = to_arrow(values, known).to_pylist()
    assert [None if v is None else (type(v) if not isinstance(v, int | float) else None, v) for v in back] == [
        None if v is None else (type(v) if not isinstance(v, int | float) else None, v) for v in values
    ] or [getattr(v, "to_pydatetime", lambda v=v: v)() for v in back] == values


@pytest.mark.parametrize(
    ("values", "known", "kind"),
    [
        ([1.5], pa.int64(), pa.float64()),
        ([1.0], pa.int64(), pa.float64()),
        ([1], pa.float64(), pa.float64()),
        ([None], pa.float64(), pa.float64()),
        ([None], pa.timestamp("s"), pa.timestamp("s")),
        (["ab"], pa.list_(pa.string()), pa.string()),
        ([3], pa.timestamp("ns"), pa.int64()),
        ([3], pa.int8(), pa.int8()),
        ([300], pa.int8(), pa.int64()),
        ([True], pa.int64(), pa.bool_()),
        ([True], pa.float64(), pa.bool_()),
        ([np.bool_(True)], pa.float64(), pa.bool_()),
        ([b"bc"], pa.string(), pa.binary()),
        ([Decimal("1.5")], pa.int64(), pa.decimal128(2, 1)),
    ],
)
def test_a_columns_type_is_kept_where_nothing_is_lost(values: Any, known: Any, kind: Any) -> None:
    """A column's type is kept where nothing is lost."""
    assert to_arrow(values, known).type == kind


@given(st.lists(st.sampled_from([1.5, 2, True, "a", b"b", None]), min_size=1, max_size=6), st.integers(1, 6))
def test_however_a_column_is_cut_its_values_keep_their_types_or_are_refused(values: list[Any], size: int) -> None:
    """Text and bytes, numbers and truth values do not become one another, whichever came first."""
    known, back = None, list[Any]()
    for start in range(0, len(values), size):
        try:
            column = to_arrow(values[start : start + size], known)
        except NOT_ARROW:
            assert len({type(value) for value in values[start : start + size]} - {type(None)}) > 1
            return
        known = column.type
        back += column.to_pylist()
    assert [type(value) if type(value) is not int else float for value in values] == [
        type(value) if type(value) is not int else float for value in back
    ]


def test_a_field_that_a_struct_has_not_had_before_is_kept() -> None:
    """A cast to the struct seen so far would drop it without a word."""
    known = pa.struct([("a", pa.int64())])
    assert to_arrow([{"a": 1, "b": 2}], known).to_pylist() == [{"a": 1, "b": 2}]
    assert to_arrow([[{"a": 1, "b": 2}]], pa.list_(known)).to_pylist() == [[{"a": 1, "b": 2}]]


def test_a_row_inside_a_row_leaves_as_a_struct() -> None:
    """An earlier row kept in state is as good a value as any dict."""
    row = row_of({"a": 1})
    assert to_arrow([row, {"a": 2}], None).to_pylist() == [{"a": 1}, {"a": 2}]


@given(VALUES, st.integers(1, 2 * FEW))
def test_long_and_short_columns_come_to_python_alike(values: list[Any], times: int) -> None:
    """Long and short columns come to python alike."""
    column = pa.array(values * times)
    assert to_python(column) == column.to_pylist()
    assert list(map(type, to_python(column))) == list(map(type, column.to_pylist()))
