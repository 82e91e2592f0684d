"""What a function wrote and no column can hold is that operator's failure on that tuple, under its policy."""

from __future__ import annotations

import contextlib
import datetime
import json
import re
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from operator_setting import Count, batch, execution, guarded, instance, letters, outcome
from pause_setting import fix, numbers
from worker_bench import Bench, data

from fries_nb.dataflow import Kind, Operator, batched
from fries_nb.dataflow.columns import DUE, fixed
from fries_nb.errors import DeclarationError
from fries_nb.operators.column_types import ColumnTypes
from fries_nb.operators.rows import Columns, Reads, derived
from fries_nb.operators.steps import assemble
from fries_nb.protocol.messages import Failed, Paused, Resumed


class Unspeakable:
    """An object of the user's whose repr fails."""

    def __repr__(self) -> str:
        raise RuntimeError("no")


BAD = {
    "a set": ({1, "a"}, r"\(set\): "),
    "an object": (object(), r"<object object at .*> \(object\): no column type holds object"),
    "one without repr": (Unspeakable(), r"<its repr fails with RuntimeError> \(Unspeakable\)"),
    "a complex": (1j, r"cannot hold 1j \(complex\): no column type holds complex; convert it"),
    "too large": (-(2**70), r"cannot hold -1180591620717411303424 \(int\)"),
    "half a surrogate": ("\ud800", r"\(str\): surrogates not allowed"),
    "a mixed list": ([1, "a"], r"cannot hold \[1, 'a'\] \(list\): a list cannot hold integers beside text; convert"),
    "a struct's key": ({1: 2}, r"cannot hold \{1: 2\} \(dict\): Expected dict key"),
    "another type": ("n/a", r"cannot hold 'n/a' \(str\): it was int64 before, and a column keeps its type$"),
    "another struct": ({"a": "b"}, r"\(dict\): it was int64 before"),
    "very long": ({"x" * 1000}, r"cannot hold .{77}\.\.\. \(set\)|it was int64"),
    "several lines": ({"a\nb", 1}, r"^G failed on a tuple: column 'x' cannot hold [^\n]*$"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
@pytest.mark.parametrize("quota", [1, 100])
@pytest.mark.parametrize("whole", [True, False])
def test_a_value_that_no_column_holds_sets_its_tuple_aside(name: str, quota: int, whole: bool) -> None:
    """Wherever it is in a slice; the others leave, with their state."""
    value, said = BAD[name]

    class Marks(Count):
        def process(self, row: dict[str, Any], state: dict[str, int]) -> dict[str, Any]:
            out = super().process(row, state) | {"x": row["n"] if row["n"] >= 0 else value}
            return dict(out) if whole else out

    operator, port = guarded(Kind.MAP, Marks(), key=("k",))
    running = execution(operator)
    rows = []
    running.load("L", batch(k=[1, 1, 1, 1, 2], n=[5, -6, 7, -8, 9]))
    while running.remaining:
        running.advance(quota)
        rows += [row for _, produced in running.results() for row in produced.to_pylist()]
    assert [(row["n"], row["x"], row["seen"]) for row in rows] == [(5, 5, 1), (7, 7, 2), (9, 9, 1)]
    bad = letters(port)
    assert [json.loads(letter["tuple"]) for letter in bad] == [{"k": 1, "n": -6}, {"k": 1, "n": -8}]
    for letter in bad:
        assert letter["error"].startswith("G failed on a tuple: column 'x' cannot hold ")
        assert re.search(said, letter["error"]), letter["error"]


def test_of_several_rows_of_a_tuple_none_leaves() -> None:
    """If one cannot; a filter may write to its row, too."""
    operator, port = guarded(Kind.FLAT_MAP, lambda row: [row | {"x": 1}, row | {"x": 1 if row["n"] else 1j}])
    assert [row["n"] for row in outcome(execution(operator), batch(n=[1, 0, 2]))] == [1, 1, 2, 2]
    assert len(letters(port)) == 1
    operator, port = guarded(Kind.FILTER, lambda row: row.update(x=1j if row["n"] else 1) or True)
    assert outcome(execution(operator), batch(n=[1, 0])) == [{"n": 0, "x": 1}]
    assert "'x' cannot hold 1j" in letters(port)[0]["error"]


def test_a_column_keeps_its_type_from_frame_to_frame() -> None:
    """Nulls and whole numbers become what is asked; a new function may write another type, a new input too."""
    operator, port = guarded(Kind.MAP, lambda row: {"x": json.loads(row["v"])})
    running = execution(operator)
    for value in ("null", "1", "1.5", "2", '"n/a"', "[1]", "3", str(2**60), "4"):
        outcome(running, batch(v=[value]))
    assert [json.loads(letter["tuple"])["v"] for letter in letters(port)] == ['"n/a"', "[1]", str(2**60)]
    running.rebuild()
    assert outcome(running, batch(v=['"n/a"'])) == [{"x": "n/a"}]
    operator, port = guarded(Kind.MAP, lambda row: row | {"x": row["v"]})
    running = execution(operator)
    assert [outcome(running, batch(v=[value]))[0]["x"] for value in (None, 1, 2.5, "a", "b", None)] == [
        None, 1, 2.5, "a", "b", None
    ]  # fmt: skip
    assert letters(port) == []


def test_a_column_of_the_input_may_be_rewritten_in_another_type() -> None:
    """What came does not bind what leaves; but then that type stays."""
    operator, port = guarded(Kind.MAP, lambda row: {**row, "n": str(row["n"]) if row["n"] != 3 else 3})
    assert [row["n"] for row in outcome(execution(operator), batch(n=[1, 2, 3, 4]))] == ["1", "2", "4"]
    assert "cannot hold 3 (int): it was string before" in letters(port)[0]["error"]
    operator, port = guarded(Kind.MAP, lambda row: {**row, DUE: object()})
    assert outcome(execution(operator), batch(n=[1])) == [{"n": 1}]


def test_an_input_that_only_widens_changes_nothing() -> None:
    """Nulls, then numbers: text stays refused, and so is half a surrogate among text."""
    operator, port = guarded(Kind.MAP, lambda row: {"x": json.loads(row["v"])})
    running = execution(operator)
    for old, value in ((None, "1"), (1, '"n/a"'), (2.5, '"n/a"')):
        outcome(running, batch(v=[value], old=[old]))
    assert len(letters(port)) == 2
    operator, port = guarded(Kind.MAP, lambda row: {"x": json.loads(row["v"])})
    assert outcome(execution(operator), batch(v=['"a"', '"\\ud800"', '"ä"'])) == [{"x": "a"}, {"x": "ä"}]
    assert len(letters(port)) == 1


def test_numbers_that_the_input_or_decimals_make_room_for_pass() -> None:
    """Unsigned ones of 64 bits; whole ones among decimals."""
    operator, port = guarded(Kind.MAP, lambda row: {**row})
    large = pa.RecordBatch.from_pydict({"n": pa.array([1, 2**63 + 5], pa.uint64()), DUE: [0, 1]})
    assert outcome(execution(operator), large) == [{"n": 1}, {"n": 2**63 + 5}]
    operator, _ = guarded(Kind.MAP, lambda row: {"x": [0, 10, Decimal("1.5")][row["n"]]})
    assert [row["x"] for row in outcome(execution(operator), batch(n=[0, 1, 2]))] == [0, 10, Decimal("1.5")]
    assert letters(port) == []


def test_what_a_row_came_with_is_not_its_operators() -> None:
    """The one that wrote it fails, though it shows only behind the other; and the other goes on."""
    sets = instance("U", Kind.MAP, lambda row: row | {"x": 1j})
    operator, port = guarded(Kind.MAP, lambda row: row | {"y": 1})
    with pytest.raises(DeclarationError, match=r"^U failed on a tuple: column 'x' cannot hold 1j") as caught:
        outcome(execution(sets, operator), batch(n=[1]))
    assert caught.value.operator == "U"
    assert letters(port) == []
    drops = instance("D", Kind.MAP, lambda row: {"n": row["n"]})
    with pytest.raises(DeclarationError, match=r"^U failed on a tuple: column 'x' cannot hold 1j"):
        outcome(execution(sets, operator, drops), batch(n=[1]))  # as it would fail if D had a worker of its own
    large = instance("U", Kind.MAP, lambda row: row | {"x": 1})
    with pytest.raises(DeclarationError, match=r"^U or D failed on a tuple: column 'z' cannot hold -\d+ \(int\)"):
        outcome(execution(large, operator, instance("D", Kind.MAP, lambda row: {"z": -(2**70)})), batch(n=[1]))


def test_in_front_of_other_operators_it_is_set_aside_as_well() -> None:
    """They do not see it."""
    seen: list[Any] = []
    operator, port = guarded(Kind.MAP, lambda row: row | {"x": [1j, 5][row["n"]]})
    behind = instance("B", Kind.MAP, lambda row: seen.append(row["x"]) or {"n": row["n"]})
    assert outcome(execution(operator, behind), batch(n=[1, 0, 1])) == [{"n": 1}, {"n": 1}]
    assert (seen, len(letters(port))) == ([5, 5], 1)


def test_a_type_that_other_workers_have_written_is_kept_until_another_function_comes() -> None:
    """Though this one has never written it."""
    operator, port = guarded(Kind.MAP, lambda row: row | {"x": "text"})
    operator.agree(pa.schema({"x": pa.int64()}).serialize().to_pybytes())
    assert outcome(execution(operator), batch(n=[1])) == []
    [letter] = letters(port)
    assert "column 'x' cannot hold 'text' (str): it was int64 before" in letter["error"]
    operator.apply_change("u1", None)
    assert outcome(execution(operator), batch(n=[1])) == [{"n": 1, "x": "text"}]


TABLE = fixed(
    pa.schema([
        pa.field("n", pa.int64(), nullable=False), ("x", pa.float64()), ("small", pa.int16()), ("open", pa.null()),
    ])
)  # fmt: skip


@pytest.mark.parametrize("passed", [False, True], ids=["made", "passed on"])
@pytest.mark.parametrize("whole", [False, True], ids=["rows", "batch"])
@pytest.mark.parametrize(
    ("bad", "said"),
    [
        ({"x": 2**60}, "it is double in the table and a value does not fit: .*; a column keeps its type, so convert"),
        ({"n": 0.5}, "it is int64 in the table and now double; a column keeps its type, so convert it"),
        ({"n": None}, "it is NOT NULL in the table and a row has no value for it; give it one"),
        ({"open": datetime.timedelta(1)}, "it is duration.us., a type that no Delta table has; convert it"),
        ({"X": 1}, "it has column 'X', which the table has as 'x'; rename it"),
    ],
)
def test_what_a_table_does_not_take_fails_at_the_operator_that_was_told(
    bad: dict[str, Any], said: str, whole: bool, passed: bool
) -> None:
    """Its columns do not widen, whoever made the values; what they take leaves."""
    good = {"n": 1, "x": 7, "open": "any"}

    def step(row: dict[str, Any]) -> dict[str, Any]:
        return row if passed else dict(row)

    operator, port = guarded(Kind.MAP, batched(lambda rows: rows) if whole else step)
    operator.agree(TABLE.serialize().to_pybytes())
    running = execution(operator)
    came = [{name: value for name, value in {**good, **row}.items() if name.lower() not in row or name in row}
            for row in ({}, bad)]  # fmt: skip
    for row in came:
        made = outcome(running, batch(**{name: [value] for name, value in row.items()}))
        assert made == ([row] if row is came[0] else [])
    [letter] = letters(port)
    assert re.search(said, letter["error"])


def test_a_table_takes_narrower_numbers_and_rows_without_what_may_be_null() -> None:
    """As they come in the input's types: Python has one type of whole numbers only."""
    operator, port = guarded(Kind.MAP, lambda row: row)
    operator.agree(TABLE.serialize().to_pybytes())
    narrow = pa.RecordBatch.from_pydict({"n": [1], "small": pa.array([200], pa.uint8()), DUE: [0]})
    assert outcome(execution(operator), narrow) == [{"n": 1, "small": 200}]
    assert letters(port) == []


# ---- pause, and fail


def test_an_operator_that_pauses_stands_in_front_of_it() -> None:
    """With state as before; a fix gets past it."""

    class Sums:
        def __init__(self, bad: Any, version: int) -> None:
            self.bad, self.version = bad, version

        def initial_state(self) -> list[int]:
            return []

        def process(self, row: dict[str, Any], state: list[int]) -> dict[str, Any]:
            state.append(row["n"])
            return row | {"v": self.version, "count": self.bad if row["n"] == 2 else len(state)}

    bench = Bench(Operator("M", function=Sums("two", 1), on_error="pause"))
    bench.arrive(0, data(1, 2, 3))
    bench.run()
    assert numbers(bench) == [(1, 1, 1)]
    [paused] = bench.answers(Paused)
    assert paused.error.startswith("M failed on a tuple: column 'count' cannot hold 'two' (str): it was int64 before")
    assert json.loads(paused.row) == {"n": 2}
    fix(bench, 1, Sums(2, 2))
    assert numbers(bench) == [(1, 1, 1), (2, 2, 2), (3, 2, 3)]
    assert (len(bench.answers(Resumed)), bench.answers(Failed)) == (1, [])


def test_an_operator_that_fails_says_so_in_one_sentence() -> None:
    """Naming itself, the column and the value."""
    bench = Bench(Operator("M", function=lambda row: row | {"x": [1, "two"][row["n"]]}))
    bench.arrive(0, data(0, 1))
    bench.run()
    [failed] = bench.answers(Failed)
    assert failed.worker.operator == "M"
    assert failed.error == (
        "M failed on a tuple: column 'x' cannot hold 'two' (str): it was int64 before, and a column keeps its type"
    )


# ---- vectorised functions


@batched
def typed(rows: pa.RecordBatch) -> pa.RecordBatch:
    """A string where n is 0, a number elsewhere; of one row at a time, or all alike."""
    numbers = rows["n"].to_pylist()
    text = not any(numbers)
    return rows.append_column("x", pa.array([None if n < 0 else str(n) if text else n for n in numbers]))


@pytest.mark.parametrize("frames", [[[1, 0, 2]], [[1], [0], [2]], [[1, -1], [0, 0], [2]]])
def test_a_vectorised_function_that_changes_a_columns_type_sets_its_rows_aside(frames: list[list[int]]) -> None:
    """Within a slice that is tried row by row, and from slice to slice."""

    @batched
    def picky(rows: pa.RecordBatch) -> pa.RecordBatch:
        if rows.num_rows > 1 and 0 in rows["n"].to_pylist():
            raise ValueError("one by one, please")
        return typed(rows)

    operator, port = guarded(Kind.MAP, picky)
    running = execution(operator)
    rows = [row for frame in frames for row in outcome(running, batch(n=frame))]
    assert [row["x"] for row in rows] == [None if n < 0 else n for frame in frames for n in frame if n]
    for letter in letters(port):
        assert json.loads(letter["tuple"])["n"] == 0
        assert "column 'x' cannot hold string: it was int64 before, and a column keeps its type" in letter["error"]
    assert len(letters(port)) >= 1


# ---- all values


VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(-3, 3), st.integers(), st.floats(), st.text(max_size=2),
    st.binary(max_size=2), st.dates(), st.datetimes(), st.timedeltas(), st.just(object()), st.just(1j),
    st.just(datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)), st.just("\ud800"),
    st.frozensets(st.integers(0, 3), max_size=2), st.lists(st.sampled_from([0, 1, "a", "b"]), max_size=2),
    st.dictionaries(st.sampled_from(["a", "b"]), st.one_of(st.integers(0, 2), st.text(max_size=1)), max_size=2),
    st.sampled_from([Decimal("1.5"), Decimal("22.25")]),
)  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(st.lists(VALUES, max_size=8), st.booleans())
def test_what_is_let_through_makes_a_column(values: list[Any], whole: bool) -> None:
    """Any value that a function may return; those refused left out, the others are one batch."""
    columns = Columns(batch(n=list(range(len(values)))), Reads())
    written, rows = ColumnTypes("M"), []
    for came, value in zip(columns.rows(), values, strict=True):
        out = derived({"x": value}, came) if whole else came | {"x": value}
        with contextlib.suppress(DeclarationError):
            written.check(out, came)
            rows.append(out)
    if rows:
        assemble(rows, columns, {})
