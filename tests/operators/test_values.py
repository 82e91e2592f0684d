"""Outputs are values when a function returns, whatever it, or the next operator of the chain, does with them later."""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from chain_setting import instance, numbers, outcome
from hypothesis import given
from hypothesis import strategies as st

from fries_nb.dataflow.graph import Kind
from fries_nb.dataflow.operators import batched
from fries_nb.errors import DeclarationError, OperatorError
from fries_nb.operators.executors import InterruptFlag, executor_of

Row = dict[str, Any]


# ---- each kind of function, each kind of reference


class LastThree:
    """The issue's own: the row refers to the list in the state."""

    def process(self, row: Row, state: Row) -> Row:
        last = state.setdefault("last", [])
        last.append(row["n"])
        del last[:-3]
        return row | {"last": last}


def last_three(rows: list[int]) -> list[list[int]]:
    """What it should have put out."""
    return [rows[max(0, at - 2) : at + 1] for at in range(len(rows))]


@pytest.mark.parametrize("quota", [1, 7, 100])
def test_a_row_that_refers_to_keyed_state_leaves_as_it_was(quota: int) -> None:
    """However many tuples a slice has."""
    rows = outcome(numbers(20, k=[0] * 20), instance(LastThree(), key=("k",)), quota=quota)
    assert [row["last"] for row in rows] == last_three(list(range(20)))


def keeping(make: Callable[[], Any], change: Callable[[Any, int], Any]) -> Callable[[Row], Row]:
    """A closure that puts the one thing it keeps into every row, and changes it with every tuple."""
    kept = make()

    def keeper(row: Row) -> Row:
        change(kept, row["n"])
        return row | {"kept": kept}

    return keeper


def _filled(array: np.ndarray[Any, Any], number: int) -> None:
    array[:] = number


@pytest.mark.parametrize(
    ("make", "change", "expected"),
    [
        (list, list.append, [[0], [0, 1], [0, 1, 2]]),
        (set, set.add, [[0], [0, 1], [0, 1, 2]]),
        (lambda: {"seen": 0}, lambda kept, n: kept.update(seen=n), [{"seen": 0}, {"seen": 1}, {"seen": 2}]),
        (lambda: {"of": {"a": [0]}}, lambda kept, n: kept["of"]["a"].append(n), [
            {"of": {"a": [0, 0]}}, {"of": {"a": [0, 0, 1]}}, {"of": {"a": [0, 0, 1, 2]}}]),
        (lambda: ([0], 5), lambda kept, n: kept[0].append(n), None),
        (lambda: np.zeros(2), _filled, [[0.0, 0.0], [1.0, 1.0], [2.0, 2.0]]),
        (lambda: bytearray(1), lambda kept, n: kept.__setitem__(0, n), [b"\x00", b"\x01", b"\x02"]),
        (lambda: [np.zeros(1)], lambda kept, n: _filled(kept[0], n), [[[0.0]], [[1.0]], [[2.0]]]),
    ],
)  # fmt: skip
@pytest.mark.parametrize("kind", [Kind.MAP, Kind.FLAT_MAP])
def test_what_a_closure_keeps_is_copied_into_each_row(
    make: Callable[[], Any], change: Callable[[Any, int], Any], expected: list[Any] | None, kind: Kind
) -> None:
    """Lists, dicts, nested ones, arrays and buffers."""
    keep = keeping(make, change)

    def keeper(row: Row) -> Any:
        yield keep(row)

    function: Any = keep if kind is Kind.MAP else keeper
    if expected is None:  # a tuple of a list and a number makes no column
        with pytest.raises(OperatorError, match="column 'kept'"):
            outcome(numbers(3), instance(function, kind))
        return
    assert [row["kept"] for row in outcome(numbers(3), instance(function, kind))] == expected


def test_what_no_column_holds_is_named_with_its_operator() -> None:
    """A list of something that no column holds."""

    def keeper(row: Row) -> Row:
        return row | {"of": [iter(()), (one for one in ())]}

    with pytest.raises(DeclarationError, match=r"^keeper failed on a tuple: column 'of' .* type holds tuple_iterator"):
        outcome(numbers(1), instance(keeper))


def test_a_generator_goes_on_with_what_it_has_yielded() -> None:
    """Each row as it was when it was yielded."""

    def growing(row: Row) -> Any:
        seen: list[int] = []
        for number in range(row["n"]):
            seen.append(number)
            row["seen"] = seen
            yield row

    rows = outcome(numbers(4), instance(growing, Kind.FLAT_MAP))
    assert [row["seen"] for row in rows] == [[0], [0], [0, 1], [0], [0, 1], [0, 1, 2]]


def test_a_guarded_operator_goes_on_with_what_it_has_yielded() -> None:
    """Its rows wait until it has returned."""

    def growing(row: Row) -> Any:
        seen: list[int] = []
        for number in range(row["n"]):
            seen.append(number)
            yield {"n": row["n"], "seen": seen}

    rows = outcome(numbers(3), instance(growing, Kind.FLAT_MAP, on_error="pause"))
    assert [row["seen"] for row in rows] == [[0], [0], [0, 1]]


# ---- columns that settle


def test_a_column_that_appears_late_is_copied_though_the_others_have_settled() -> None:
    """A list in some rows, long after the numbers: in the slice in which it comes, too."""
    kept: list[int] = []

    def late(row: Row) -> Row:
        out = row | {"double": 2 * row["n"]}
        if row["n"] > 40 and row["n"] % 3 == 0:
            kept.append(row["n"])
            out["kept"] = kept
        return out

    rows = outcome(numbers(60), instance(late), frame=30, quota=8)
    found = [row["kept"] for row in rows if row.get("kept")]
    assert found == [[42, 45, 48, 51, 54, 57][:many] for many in range(1, 7)]


def test_a_settled_column_takes_no_lists() -> None:
    """What had been copied before would not have been any more; so it is refused, by name."""
    kept: list[int] = []

    def changes_its_mind(row: Row) -> Row:
        kept.append(row["n"])
        return row | {"x": row["n"] if row["n"] < 20 else kept}

    with pytest.raises(OperatorError, match=r"changes_its_mind wrote list<.*> values to the column 'x'"):
        outcome(numbers(40), instance(changes_its_mind), quota=10)


def test_text_that_has_settled_takes_no_buffer() -> None:
    """Arrow would take a bytearray for text."""
    kept = bytearray(b"x")

    def changes_its_mind(row: Row) -> Row:
        kept[0] = 65 + row["n"]
        return row | {"x": "x" if row["n"] < 20 else kept}

    with pytest.raises(OperatorError, match="wrote binary values to the column 'x', which took others"):
        outcome(numbers(40), instance(changes_its_mind), quota=10)


def test_a_whole_row_behind_settled_columns_is_looked_at() -> None:
    """A plain dict with a list, among rows that only wrote numbers."""
    kept: list[int] = []

    def mixed(row: Row) -> Row:
        if row["n"] % 5:
            return row | {"x": 1.0}
        kept.append(row["n"])
        return {"n": row["n"], "x": 1.0, "kept": kept}

    rows = outcome(numbers(40), instance(mixed), quota=10)
    assert [len(row["kept"]) for row in rows if row.get("kept")] == list(range(1, 9))


# ---- between two operators


def test_the_next_operator_may_change_and_keep_what_it_gets() -> None:
    """The one in front does not notice, and what was kept does not change."""
    mine: list[int] = []
    kept: list[Any] = []

    def first(row: Row) -> Row:
        mine.append(row["n"])
        return row | {"all": mine}

    def second(row: Row) -> Row:
        row["all"].append(-1)
        kept.append(row["all"])
        return row

    rows = outcome(numbers(3), instance(first), instance(second))
    assert mine == [0, 1, 2]
    assert [row["all"] for row in rows] == kept == [[0, -1], [0, 1, -1], [0, 1, 2, -1]]


def test_a_list_that_came_is_the_rows_own() -> None:
    """Changed in place it leaves changed; looked at only, it is the column that came."""
    tags = [["a"], ["b"], None]

    def first(row: Row) -> Row:
        if row["n"] == 0:
            row["tags"].append("first")
        return row

    def second(row: Row) -> Row:
        return row | {"count": len(row["tags"] or ())}

    rows = outcome(numbers(3, tags=tags), instance(first), instance(second))
    assert [(row["tags"], row["count"]) for row in rows] == [(["a", "first"], 2), (["b"], 1), (None, 0)]
    data = numbers(3, tags=tags)
    running = executor_of([instance(second)], InterruptFlag(), 1, "")
    running.load("S", data)
    running.advance(100)
    [(_, out)] = running.results()
    assert out.column("tags").buffers()[1].address == data.column("tags").buffers()[1].address


# ---- vectorised functions


def test_a_buffer_that_a_batched_function_uses_again_is_copied() -> None:
    """At each slice it fills the same array."""
    buffer = np.zeros(100)

    @batched
    def scores(rows: pa.RecordBatch) -> pa.RecordBatch:
        view = buffer[: rows.num_rows]
        view[:] = rows["n"].to_numpy() * 0.5
        return rows.append_column("score", pa.array(view))

    rows = outcome(numbers(10), instance(scores), quota=3)
    assert [row["score"] for row in rows] == [0.5 * number for number in range(10)]


def test_children_of_a_batched_flat_map_are_copied_and_parents_columns_are_not() -> None:
    """What passes unchanged stays the buffer that came."""
    buffer = np.zeros(100)

    @batched
    def twice(rows: pa.RecordBatch) -> Any:
        parents = np.repeat(np.arange(rows.num_rows), 2)
        view = buffer[: len(parents)]
        view[:] = rows["n"].to_numpy()[parents]
        return pa.RecordBatch.from_pydict({"m": pa.array(view)}), parents

    rows = outcome(numbers(4), instance(twice, Kind.FLAT_MAP), quota=1)
    assert [row["m"] for row in rows] == [0, 0, 1, 1, 2, 2, 3, 3]

    @batched
    def same(rows: pa.RecordBatch) -> pa.RecordBatch:
        return rows

    data = numbers(4)
    running = executor_of([instance(same)], InterruptFlag(), 1, "")
    running.load("S", data)
    running.advance(100)
    [(_, out)] = running.results()
    assert out.column("n").buffers()[1].address == data.column("n").buffers()[1].address


# ---- the law: a chain is its operators, one after the other, with a deep copy in between


class Random:
    """A function drawn by hypothesis: what it keeps, how it changes that, and what it returns."""

    def __init__(self, steps: tuple[str, ...], many: bool) -> None:
        self.steps, self.many = steps, many
        self.kept: list[Any] = []
        self.table: dict[str, list[int]] = {"x": []}
        self.window: deque[int] = deque(maxlen=2)
        self.row: Row | None = None

    def __call__(self, row: Row) -> Any:
        for step in self.steps:
            row = self._after(step, row)
        return [row, row] if self.many else row

    def _after(self, step: str, row: Row) -> Row:
        number = row["n"]
        if step == "state":
            self.kept.append(number)
            return row | {"a": self.kept[-3:], "b": self.kept}
        if step == "nested":
            self.table["x"].append(number)
            return {**row, "c": self.table}
        if step == "in place" and isinstance(row.get("tags"), list):
            row["tags"].append(number)
        if step == "keeps a list" and isinstance(row.get("tags"), list):
            self.kept = row["tags"]
        if step == "changes what it kept" and self.kept:
            self.kept[0] = number
        if step == "scalar":
            row["s"] = number * 0.5
        if step == "window":
            self.window.append(number)
            row["w"] = list(self.window)
        if step == "late" and number > 5:
            row["late"] = self.table["x"]
        if step == "writes to the row it kept, and keeps this one":
            if self.row is not None:
                self.row["s"] = number * 2.0
            self.row = row
        if step == "gives the row it kept" and self.row is not None:
            return self.row
        return row


STEPS = [
    "state", "nested", "in place", "keeps a list", "changes what it kept", "scalar", "window", "late",
    "writes to the row it kept, and keeps this one", "gives the row it kept",
]  # fmt: skip
FUNCTIONS = st.lists(
    st.tuples(st.lists(st.sampled_from(STEPS), max_size=3).map(tuple), st.booleans()), min_size=1, max_size=3
)


def reference(rows: list[Row], functions: list[Random]) -> list[Row]:
    """Tuple by tuple, each output copied deeply before anybody else may touch it."""
    out: list[Row] = []
    for came in rows:
        level = [copy.deepcopy(came)]
        for function in functions:
            produced: list[Row] = []
            for row in level:
                made = function(copy.deepcopy(row))
                produced += [copy.deepcopy(one) for one in (made if function.many else [made])]
            level = produced
        out += level
    return out


@given(FUNCTIONS, st.integers(1, 5), st.integers(1, 12))
def test_a_chain_is_its_operators_with_a_deep_copy_in_between(
    drawn: list[tuple[tuple[str, ...], bool]], quota: int, frame: int
) -> None:
    """Whatever functions keep and change, in whatever slices and frames."""
    data = numbers(10, tags=[[number] if number % 4 else None for number in range(10)])
    kinds = [Kind.FLAT_MAP if many else Kind.MAP for _, many in drawn]
    chain = [instance(Random(*one), kind) for one, kind in zip(drawn, kinds, strict=True)]
    came = [{"n": row["n"], "tags": row["tags"]} for row in data.to_pylist()]
    expected = reference(came, [Random(*one) for one in drawn])
    got = outcome(data, *chain, frame=frame, quota=quota)
    assert [_filled_up(row) for row in got] == [_filled_up(row) for row in expected]


def _filled_up(row: Row) -> Row:
    """A column that a row does not have is null in it, if others of its batch have it."""
    return {name: row.get(name) for name in ("n", "tags", "a", "b", "c", "s", "w", "late")}
