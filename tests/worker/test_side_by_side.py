"""The same recent tuples go through the present and the new functions; what becomes of them is told, and bounded."""

from __future__ import annotations

import math
import pickle
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from worker_bench import Bench, Sum, change, data

from fries_nb.dataflow.graph import Emits, Kind, Operator
from fries_nb.dataflow.operators import batched
from fries_nb.dataflow.updates import Update
from fries_nb.protocol.messages import Compared, Fcm, LookAtRows, Rehearse, Rehearsed, WorkerId
from fries_nb.worker import side_by_side
from fries_nb.worker.looks import rows_seen
from fries_nb.worker.side_by_side import ComparedTuple, Made


def doubled(row: dict[str, Any]) -> dict[str, Any]:
    """Twice the number."""
    return row | {"p": row["n"] * 2}


def found_by(bench: Bench, name: str, function: Any, rows: int = 4, asked: int = 4) -> list[ComparedTuple]:
    """What is told of a change of an operator, after so many rows."""
    bench.arrive(0, data(*range(rows)))
    bench.run()
    bench.prepare(name, "u1", function if isinstance(function, Update) else Update(function), examples=asked)
    [answer] = bench.answers(Compared)
    assert (answer.change, answer.error, answer.uncopied) == ("u1", "", 0)
    return [pickle.loads(one) for one in answer.pickled]


def made(found: list[ComparedTuple], name: str = "M") -> list[tuple[Any, Any, Any]]:
    """The number that came, and what an operator made of it before and after."""
    return [(one.came.get("n"), one.before, one.after) for one in found if one.operator == name]


def of(**values: Any) -> Made:
    """One row."""
    return Made((values,))


M = Operator("M", function=doubled)


def test_what_the_present_and_the_new_function_make_of_the_newest_rows() -> None:
    """In the order of the newest, with the worker that had them; a column is added, another one has another value."""
    found = found_by(Bench(M), "M", lambda row: row | {"p": row["n"] * 3, "why": "x"}, asked=2)
    assert made(found) == [
        (3, of(n=3, p=6), of(n=3, p=9, why="x")),
        (2, of(n=2, p=4), of(n=2, p=6, why="x")),
    ]
    assert {one.worker for one in found} == {0}


def test_rows_that_are_dropped_added_or_removed_from() -> None:
    """On one side only, or more than before; a column that is gone is not there."""
    changing = replace(M, emits=Emits.ONE_TO_MANY, kind=Kind.FLAT_MAP, function=lambda row: [doubled(row)])

    def other(row: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """As many rows as its number."""
        for place in range(row["n"]):
            yield {"place": place}

    found = found_by(Bench(changing), "M", other, rows=3)
    assert made(found) == [
        (2, of(n=2, p=4), Made(({"place": 0}, {"place": 1}))),
        (1, of(n=1, p=2), of(place=0)),
        (0, of(n=0, p=0), Made()),
    ]


def test_a_function_that_raises_on_one_row() -> None:
    """The refused change has examples: of all rows, and with the sentence for the one that fails."""

    def fails(row: dict[str, Any]) -> dict[str, Any]:
        """On the second row."""
        return row | {"p": 12 // (row["n"] - 1)}

    bench = Bench(M)
    found = found_by(bench, "M", fails, rows=3)
    assert bench.answers(Rehearsed)[0].error.startswith("new M failed in a rehearsal on a recent tuple: ")
    why = "M failed on a tuple: ZeroDivisionError: integer division or modulo by zero"
    assert made(found) == [
        (2, of(n=2, p=4), of(n=2, p=12)),
        (1, of(n=1, p=2), Made((), why, (("<dynamic-code>", fails.__code__.co_firstlineno + 2),))),
        (0, of(n=0, p=0), of(n=0, p=-12)),
    ]


def test_both_sides_begin_with_the_same_state() -> None:
    """That of one key, of which both have a copy; a tuple that fails takes both back to it."""

    class Tail(Sum):
        """Fails on one row, after it has changed the state."""

        def process(self, row: dict[str, Any], state: list[int]) -> dict[str, Any]:
            """The last two."""
            seen = super().process(row, state)
            if row["n"] == 2:
                raise ValueError("two")
            return seen | {"sum": state[-2:]}

    keyed = Operator("M", key=("k",), function=Sum())
    bench = Bench(Operator("U", function=lambda row: row | {"k": 1}), keyed)
    found = found_by(bench, "M", Tail(), rows=4, asked=8)
    sides = [(one.came["n"], one.before.rows[0]["sum"], one.after) for one in found]
    held = sides[0][1][:-1]  # inside a chain few rows are kept
    for number, before, after in sides:
        assert before[: len(held)] == held
        assert after.error.endswith("ValueError: two") if number == 2 else after.rows[0]["sum"] == before[-2:]
    assert sides


def test_each_operator_of_a_chain_that_changes_is_told_and_what_fails_below() -> None:
    """What the operator below makes of it, only if that fails."""
    below = Operator("B", function=lambda row: row | {"q": row["p"] + 1})
    assert {one.operator for one in found_by(Bench(M, below), "M", lambda row: row | {"p": 0})} == {"M"}
    found = found_by(Bench(M, below), "M", lambda row: row | {"p": "x"}, rows=1)
    assert [(one.operator, one.after.error[:9]) for one in found] == [("M", ""), ("B", "B failed ")]
    assert found[1].before == of(n=0, p=0, q=1)


def test_batched_functions_and_filters() -> None:
    """Of vectorised ones each row is compared by itself."""
    present = Operator("M", kind=Kind.FILTER, function=batched(lambda batch: pc.greater(batch["n"], 1)))
    found = found_by(Bench(present), "M", batched(lambda batch: pc.less(batch["n"], 3)))
    assert made(found) == [(3, of(n=3), Made()), (2, of(n=2), of(n=2)), (1, Made(), of(n=1)), (0, Made(), of(n=0))]


def test_nested_values_that_a_function_changes_in_place_are_not_shared() -> None:
    """A later step, or the other side, changes its own."""

    def grown(row: dict[str, Any]) -> dict[str, Any]:
        """In place."""
        row["items"].append(1)
        return row

    source = Operator("U", function=lambda row: row | {"items": [row["n"]], "x": math.nan})
    bench = Bench(source, M, Operator("B", function=grown))
    bench.arrive(0, data(5))
    bench.run()
    bench.prepare("M", "u1", Update(grown), examples=4)
    [answer] = bench.answers(Compared)
    [one] = [pickle.loads(one) for one in answer.pickled]
    assert (one.came["items"], one.before.rows[0]["items"], one.after.rows[0]["items"]) == ([5], [5], [5, 1])
    assert math.isnan(one.after.rows[0]["x"])


def test_more_rows_than_a_rehearsal_needs_but_no_more_than_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where they are in memory; what is too large together is counted."""
    assert len(found_by(Bench(M), "M", doubled, rows=100, asked=50)) == 50
    monkeypatch.setattr(side_by_side.told, "__defaults__", (600,))
    bench = Bench(M)
    bench.arrive(0, data(*range(20)))
    bench.run()
    bench.prepare("M", "u1", Update(doubled), examples=20)
    [answer] = bench.answers(Compared)
    assert sum(map(len, answer.pickled)) <= 600
    assert (len(answer.pickled) > 0, len(answer.pickled) + answer.cut) == (True, 20)


def test_what_the_present_function_was_is_known_when_its_worker_has_switched() -> None:
    """The change goes on with the first answer, before the tuples are compared."""
    bench = Bench(M)
    bench.arrive(0, data(1))
    bench.run()
    bench.prepare("M", "u1", Update(lambda row: row | {"p": -1}), examples=0)
    samples = {"M": bench.said[-2].answer.samples}
    _, compare = bench.rehearsals.rehearse(WorkerId("M", 0), Rehearse("u1", samples, examples=1), [bench.worker])
    bench.worker.instances[0].switch("u1")
    assert compare is not None
    answer = compare()
    assert made([pickle.loads(one) for one in answer.pickled]) == [(1, of(n=1, p=2), of(n=1, p=-1))]


def test_a_rehearsal_that_took_long_is_not_done_again_unless_asked() -> None:
    """As one that loads a model."""
    layout: Any = None
    order = Rehearse("u1", {}, examples=1)
    told = side_by_side.compared(order, WorkerId("M", 0), layout, 3_000_000_000, lambda: 0)
    assert told.error.startswith("its rehearsal took 3.0 s, and is not done again; ")


def test_what_cannot_be_pickled_is_counted() -> None:
    """It is left out, and the others are told."""
    given = [ComparedTuple("M", 0, {"n": value}, Made(), Made()) for value in (1, (one for one in ()))]
    answer = side_by_side.told(Rehearse("u1", {}), WorkerId("M", 0), given)
    assert (len(answer.pickled), answer.uncopied) == (1, 1)


def test_an_arrow_type_of_its_own_is_no_obstacle() -> None:
    """Timestamps and decimals are told as values."""
    batch = pa.RecordBatch.from_pydict({"at": pa.array([1], pa.timestamp("us", "UTC"))})
    assert side_by_side.shown_rows(batch)[0]["at"].year == 1970


def test_a_worker_keeps_what_its_function_gave_before_it_switched() -> None:
    """By reference, until it switches again; of the new one only new results are kept."""
    bench = Bench(M)
    bench.arrive(0, data(1, 2))
    bench.run()
    bench.prepare("M", "u1", Update(lambda row: row | {"p": -1}))
    bench.direct("M", Fcm(change(1, "M")))
    bench.run()

    def given(**asked: Any) -> list[int]:
        """The column of rows that M is said to have given."""
        answer = rows_seen(LookAtRows(1, 10, side="out", **asked), bench.worker, WorkerId("M", 0))
        assert (answer.error, answer.came) == ("", pickle.dumps([]))
        return [row["p"] for part in pickle.loads(answer.went) for row in part.to_pylist()]

    assert (given(), given(before="u1"), given(before="u2")) == ([], [4, 2], [])
    bench.arrive(0, data(3))
    bench.run()
    assert (given(), given(before="u1")) == ([-1], [4, 2])


def test_inside_of_a_chain_some_of_the_rows_are_kept() -> None:
    """As copies, which the next function has noted."""
    bench = Bench(M, Operator("B", function=lambda row: row))
    bench.arrive(0, data(1, 2))
    bench.run()
    bench.prepare("M", "u1", Update(lambda row: row | {"p": -1}))
    bench.direct("M", Fcm(change(1, "M")))
    bench.run()
    answer = rows_seen(LookAtRows(1, 10, side="out", before="u1"), bench.worker, WorkerId("M", 0))
    kept = pickle.loads(answer.went)
    assert kept
    assert all(row["p"] == 2 * row["n"] for row in kept)
