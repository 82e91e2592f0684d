"""Joins of two streams: names and types of columns, nulls, what is the latest, functions, and what is refused."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from window_setting import TimedRun, join_of, shown

from fries_nb.dataflow import memory
from fries_nb.dataflow.columns import HIDDEN, TIME
from fries_nb.dataflow.join_bounds import Latest, Within
from fries_nb.dataflow.windowing import sliding, tumbling
from fries_nb.errors import OperatorError
from fries_nb.operators.timed_calls import FIRED, firing_batch
from fries_nb.protocol.checkpoints import Snapshot
from fries_nb.worker.saving import saved
from fries_nb.worker.snapshot import restore

Row = dict[str, Any]


class JoinRun(TimedRun):
    """One join, with frames of each side."""

    def left(self, *rows: Row, at: list[int] | None = None, **more: Any) -> list[Row]:
        """Rows of the left side, at the times of their column ``a`` if none are given."""
        return shown(self.frame(rows, at or [row["a"] for row in rows], sender="L", **more))

    def right(self, *rows: Row, at: list[int] | None = None, **more: Any) -> list[Row]:
        """Rows of the right side, at those of ``b``."""
        return shown(self.frame(rows, at or [row["b"] for row in rows], sender="R", **more))

    def ended(self, t: int | None = None) -> list[Row]:
        """What leaves when no row before this time can come any more, or none at all."""
        return shown(self.fire() if t is None else self.fire((0, t)))

    @property
    def open(self) -> int:
        """The number of rows that are kept."""
        return sum(len(one.left.rows) + len(one.right.rows) for one in self.instance.state.live.values())


def test_a_pair_leaves_with_its_second_row() -> None:
    """Both bounds are included; a row is gone when no partner can come any more."""
    run = JoinRun(join_of(Within(before=10, after=5)))
    assert run.left({"k": 1, "a": 100}, {"k": 2, "a": 100}) == []
    pairs = run.right(*({"k": 1, "b": b} for b in (89, 90, 100, 105, 106)))
    assert pairs == [{"k": 1, "a": 100, "b": b} for b in (90, 100, 105)]
    assert run.open == 7
    assert run.ended(100) == []
    assert run.open == 6  # those that left rows from 95 to 99 would be partners of
    assert run.ended(106) == []
    assert run.open == 3
    assert run.left({"k": 1, "a": 116}) == [{"k": 1, "a": 116, "b": 106}]
    run.ended()
    assert (run.open, len(run.agenda), len(run.counts)) == (0, 0, 0)


def test_a_pair_has_the_later_time_and_one_alone_its_last_moment() -> None:
    """Whichever row came second."""
    run = JoinRun(join_of(Within(before=10, after=5), how="full"))
    run.left({"k": 1, "a": 100}, {"k": 2, "a": 100})
    times = [row[TIME] for _, row in run.frame([{"k": 1, "b": 95}, {"k": 3, "b": 96}, {"k": 1, "b": 103}],
                                               [95, 96, 103], sender="R")]  # fmt: skip
    assert times == [100, 103]
    assert sorted((row["k"], row[TIME]) for _, row in run.fire()) == [(2, 105), (3, 106)]


def test_the_latest_row_is_found_when_no_other_can_come() -> None:
    """Of equal times the greatest by its columns in the order of their names; null is least, and no number is more."""
    run = JoinRun(join_of(Latest(20), how="left"))
    nan = float("nan")
    run.right({"k": 1, "b": 10, "x": 5.0, "y": "p"}, {"k": 1, "b": 10, "x": nan, "y": "a"},
              {"k": 1, "b": 10, "x": 7.0, "y": "z"}, {"k": 1, "b": 10, "x": None, "y": "zz"})  # fmt: skip
    run.right({"k": 2, "b": 10, "x": 5.0, "y": "p"}, {"k": 2, "b": 10, "x": 5.0, "y": "q"},
              {"k": 2, "b": 10, "x": 5.0, "y": None})  # fmt: skip
    assert run.left(*({"k": k, "a": a} for k in (1, 2) for a in (9, 10, 30, 31))) == []
    assert run.open == 10  # of the rows of one time one is kept
    found = [(row["k"], row["a"], row["y"]) for row in run.ended()]
    assert sorted(found, key=str) == [
        (1, 10, "a"), (1, 30, "a"), (1, 31, None), (1, 9, None),
        (2, 10, "q"), (2, 30, "q"), (2, 31, None), (2, 9, None),
    ]  # fmt: skip


def test_one_row_of_a_key_is_kept_for_what_may_come() -> None:
    """Those that it has replaced are dropped when no row before it can come; with a tolerance in the end all are."""
    for tolerance, left in ((None, 1), (30, 0)):
        run = JoinRun(join_of(Latest(tolerance)))
        run.right(*({"k": 1, "b": b} for b in range(10, 60, 10)))
        assert (run.open, run.ended(30), run.open, run.ended(31), run.open) == (5, [], 4, [], 3)
        assert (run.ended(51), run.open) == ([], 1)
        assert run.left({"k": 1, "a": 70}) == []
        assert run.ended(71) == [{"k": 1, "a": 70, "b": 50}]
        assert (run.ended(), run.open) == ([], left)


def test_rows_in_one_window_are_joined() -> None:
    """Once for each window that both are in, and alone for each in which there is none."""
    run = JoinRun(join_of(sliding(20, every=10), how="left"))
    run.left({"k": 1, "a": 15})
    assert run.right({"k": 1, "b": 5}, {"k": 1, "b": 12}) == [{"k": 1, "a": 15, "b": b} for b in (5, 12, 12)]
    run.left({"k": 1, "a": 35})
    assert run.ended() == [{"k": 1, "a": 35, "b": None}] * 2
    run = JoinRun(join_of(tumbling(10)))
    run.left({"k": 1, "a": -1})
    assert run.right({"k": 1, "b": -10}, {"k": 1, "b": 0}) == [{"k": 1, "a": -1, "b": -10}]


def test_nulls_of_a_missing_row_have_the_columns_types() -> None:
    """As soon as they are known; whole numbers, times and structs stay what they are."""
    run = JoinRun(join_of(Within(), how="full"))
    when = datetime(2026, 1, 1, tzinfo=UTC)
    run.right({"k": 1, "b": 3, "n": 2**60 + 1, "d": Decimal("1.50"), "when": when, "tags": [1, 2], "p": {"q": True}})
    run.left({"k": 2, "a": 3, "flag": True})
    run.executor.load(FIRED, _due(run))
    while run.executor.remaining:
        run.executor.advance(1)
    ((_, batch),) = run.executor.results()
    types = {field.name: str(field.type) for field in batch.schema if field.name not in HIDDEN}
    assert types == {
        "k": "int64", "a": "int64", "flag": "bool", "b": "int64", "n": "int64", "d": "decimal128(3, 2)",
        "when": "timestamp[us, tz=UTC]", "tags": "list<item: int64>", "p": "struct<q: bool>",
    }  # fmt: skip
    assert sorted(batch.column("n").to_pylist(), key=str) == [2**60 + 1, None]


def _due(run: JoinRun) -> pa.RecordBatch:
    from fries_nb.progress.times import Antichain

    run.agenda.advance(Antichain())
    return firing_batch(run.instance, run.agenda.take(10), due_ns=0)


def test_columns_of_both_sides_are_named_as_pandas_names_them() -> None:
    """The key once; suffixes where both have a column, which has to be known before a row leaves alone."""
    import pandas as pd

    known = {"left": pa.schema([("k", pa.int64()), ("a", pa.int64()), ("n", pa.int64())]),
             "right": pa.schema([("n", pa.int64()), ("b", pa.int64()), ("k", pa.int64())])}  # fmt: skip
    run = JoinRun(join_of(Within(), how="full", suffixes=("", "_r"), **known))
    run.left({"k": 1, "a": 1, "n": 10}, {"k": 2, "a": 1, "n": 11})
    rows = [*run.right({"n": 12, "b": 1, "k": 1}, {"n": 13, "b": 1, "k": 3}), *run.ended()]
    left, right = (pd.DataFrame(some, dtype="Int64") for some in (
        [{"k": 1, "a": 1, "n": 10}, {"k": 2, "a": 1, "n": 11}], [{"n": 12, "b": 1, "k": 1}, {"n": 13, "b": 1, "k": 3}]
    ))  # fmt: skip
    merged = left.merge(right, on="k", how="outer", suffixes=("", "_r")).astype(object)
    expected = merged.where(merged.notna(), None).to_dict("records")
    assert [*rows[0]] == [*expected[0]]
    assert sorted(rows, key=str) == sorted(expected, key=str)


def test_a_row_alone_has_the_other_columns_as_far_as_they_are_known() -> None:
    """Without a row of the other side, and a table above it, nobody can tell them."""
    run = JoinRun(join_of(Within(), how="left"))
    run.left({"k": 1, "a": 1})
    assert run.ended(2) == [{"k": 1, "a": 1}]
    run.right({"k": 7, "b": 2, "n": 0})
    run.left({"k": 1, "a": 2})
    assert run.ended() == [{"k": 1, "a": 2, "b": None, "n": None}]
    told = pa.schema([("k", pa.int64()), ("b", pa.int64()), ("n", pa.null())])
    run = JoinRun(join_of(Within(), how="left", right=told))
    run.left({"k": 1, "a": 1})
    assert run.ended() == [{"k": 1, "a": 1, "b": None, "n": None}]


@pytest.mark.parametrize(
    ("how", "left", "right", "words"),
    [
        ("inner", {"k": 1}, {"k": "1"}, "join 'J': column 'k' is int64 on the left side and string on the right; exp"),
        ("inner", {"k": 1}, {"k": 1.0}, "int64 on the left side and double on the right"),
        ("inner", {"k": b"1"}, {"k": "1"}, "binary on the left side and string on the right"),
        ("inner", {"k": datetime(2026, 1, 1)}, {"k": datetime(2026, 1, 1, tzinfo=UTC)}, "timestamp.us. on the left"),
        ("left", {"k": 1, "n": 1}, {"k": 1, "n": 2}, "with how='left' has the column 'n' on both sides, and a row"),
        ("full", {"k": 1, "n": 1}, {"k": 1, "n": 2}, "before the columns of the left and the right side are"),
        ("inner", {"k": 1, "n": 1, "n_y": 1}, {"k": 1, "n": 2}, "would have two columns 'n_y' with suffixes="),
    ],
)
def test_sides_that_do_not_go_together_are_refused(how: str, left: Row, right: Row, words: str) -> None:
    """With the first batch that shows it, whichever side comes first."""
    for sides in (("L", "R"), ("R", "L")):
        run = JoinRun(join_of(Within(), how=how))
        frames = {"L": left, "R": right}
        run.frame([frames[sides[0]]], [1], sender=sides[0])
        with pytest.raises(OperatorError, match=words):
            run.frame([frames[sides[1]]], [1], sender=sides[1])


@pytest.mark.parametrize("kinds", [(pa.int32(), pa.uint8()), (pa.string(), pa.dictionary(pa.int8(), pa.string()))])
def test_keys_of_one_family_are_equal(kinds: Any) -> None:
    """Widths of whole numbers, and ways to keep texts, are no other types."""
    run = JoinRun(join_of(Within(), how="full"))
    values = [1, 2] if pa.types.is_integer(kinds[0]) else ["a", "b"]
    for sender, kind, value in (("L", kinds[0], values[:1]), ("R", kinds[1], values)):
        keys = pa.array(value).cast(kind)
        rows = [{"k": key, sender.lower(): 1} for key in keys]
        found = run.frame(rows, [1] * len(rows), sender=sender)
    assert [(row["l"], row["r"]) for row in shown(found)] == [(1, 1)]
    assert len(run.ended()) == 1


class Together:
    """Puts a pair together, and says so of one that is alone; fails on zero."""

    def __call__(self, left: Row | None, right: Row | None) -> Any:
        """Rows."""
        if left is None or right is None:
            return {"alone": (left or right or {})["k"]}
        right["tags"].append(0)  # its own
        return [] if left["a"] == 7 else [{"sum": left["a"] // left["a"] + right["b"], "tags": right["tags"]}]


def test_a_function_makes_the_rows() -> None:
    """None, one or several; what it changes is its own, and so is what it is given."""
    run = JoinRun(join_of(Within(10, 10), how="full", function=Together()))
    run.right({"k": 1, "b": 5, "tags": [1]})
    for _ in range(2):
        assert run.left({"k": 1, "a": 5}, {"k": 1, "a": 7}, {"k": 2, "a": 7}) == [{"sum": 6, "tags": [1, 0]}]
    assert run.ended() == [{"alone": 2}] * 2
    for function, words in (
        (lambda left, right: 5, "J made 5 .int.; expected a row .a dict., rows, or None"),
        (lambda left, right: [5], "J made a int; expected rows"),
        (lambda left, right: left["q"], "J failed on a tuple: KeyError: 'q'"),
    ):
        run = JoinRun(join_of(Within(10, 10), function=function))
        run.right({"k": 1, "b": 5})
        with pytest.raises(OperatorError, match=words):
            run.left({"k": 1, "a": 5})


def test_what_is_merged_does_not_share_lists_with_what_waits() -> None:
    """A map behind may change them."""
    run = JoinRun(join_of(Within(10, 10)))
    run.right({"k": 1, "b": 5, "tags": [1]})
    held = run.instance.state.get(1).right.rows[0]
    made = held.as_dict()
    made["tags"].append(2)
    assert run.left({"k": 1, "a": 5}) == [{"k": 1, "a": 5, "b": 5, "tags": [1]}]


def test_late_rows_leave_as_they_came() -> None:
    """Those of both sides; without a place for them they end the run."""
    run = JoinRun(join_of(Within(100, 100)))
    run.left({"k": 1, "a": 50})
    found = run.frame([{"k": 1, "b": 50, "n": 2}, {"k": 1, "b": 70, "n": 3}], [50, 70], stamp=(0, 60), sender="R")
    assert [(branch, row["n"]) for branch, row in found if branch == 1] == [(1, 2)]
    assert shown(found) == [{"k": 1, "a": 50, "b": 70, "n": 3}]
    run = JoinRun(join_of(Within(100, 100)), branches=1)
    with pytest.raises(OperatorError, match="J failed on a tuple: its time is earlier than all rows that can still be"):
        run.right({"k": 1, "b": 50}, stamp=(0, 60))


def test_rows_of_one_time_without_an_order_are_refused() -> None:
    """Rather than that one of them is the latest by chance."""
    run = JoinRun(join_of(Latest()))
    run.right({"k": 1, "b": 1, "x": {"p": 1}}, {"k": 1, "b": 1, "x": {"p": 2}})  # structs have one
    (row,) = run.instance.state.get(1).right.rows
    row.values = (1, 1, {1, 2})
    with pytest.raises(OperatorError, match="J got two rows of the right side with one key and time, which differ in"):
        run.right({"k": 1, "b": 1, "x": {"p": 2}})


class Picky:
    """Fails where the numbers of both rows are equal, and on a row of the left side that is alone."""

    def __call__(self, left: Row | None, right: Row | None) -> Row:
        """A row of both."""
        if right is None or (left is not None and left["n"] == right["m"]):
            raise ValueError("nothing fits")
        return {"n": left and left["n"], "m": right["m"]}


def test_a_row_that_fails_is_set_aside_whole() -> None:
    """It makes no pair, also none of those before the failure, and waits for none; nor does one that leaves alone."""
    made = join_of(Within(10, 10), how="full", function=Picky(), on_error=memory())
    made.has_dead_letters = True
    run = JoinRun(made)
    run.right(*({"k": 1, "b": b, "m": b} for b in (5, 6, 7)))
    assert run.left({"k": 1, "a": 5, "n": 6}) == []
    assert (run.open, [letter.num_rows for letter in run.instance.take_letters()]) == (3, [1])
    assert not any(row.matched for row in run.instance.state.get(1).right.rows)
    run.left({"k": 2, "a": 5, "n": 6})
    assert sorted(row["m"] for row in run.ended()) == [5, 6, 7]
    (letter,) = (row for batch in run.instance.take_letters() for row in batch.to_pylist())
    assert letter["error"] == "J failed on a tuple: ValueError: nothing fits"
    assert letter["tuple"] == '{"k": 2, "time": 15}'
    assert (run.open, len(run.agenda), len(run.counts)) == (0, 0, 0)


def test_a_column_keeps_its_name_when_a_side_gains_one() -> None:
    """One side's alone, or both with a suffix from the first on; what would be called otherwise now is refused."""
    run = JoinRun(join_of(Within(10, 10), suffixes=("", "_r")))
    run.left({"k": 1, "a": 5}, {"k": 2, "a": 5})
    assert run.right({"k": 1, "b": 5}) == [{"k": 1, "a": 5, "b": 5}]
    run.left({"k": 1, "a": 6, "n": 7})
    assert run.right({"k": 1, "b": 6, "n": 8}) == [
        {"k": 1, "a": 5, "b": 6, "n": None, "n_r": 8}, {"k": 1, "a": 6, "b": 6, "n": 7, "n_r": 8},
    ]  # fmt: skip
    run = JoinRun(join_of(Within(10, 10)))
    run.left({"k": 1, "a": 5})
    assert run.right({"k": 1, "b": 5, "n": 8}) == [{"k": 1, "a": 5, "b": 5, "n": 8}]
    with pytest.raises(OperatorError, match=r"J has passed on 'n' of the right side as 'n', which would be 'n_y' from"):
        run.left({"k": 1, "a": 6, "n": 7})


def restored(run: JoinRun) -> JoinRun:
    """A worker that goes on from a snapshot of another one."""
    again, snapshot = join_of(Within(10, 10)), msgspec.msgpack.encode(saved(run.instance))
    restore(again, msgspec.msgpack.decode(snapshot, type=Snapshot), ())
    return JoinRun(again)


def test_what_columns_are_called_is_part_of_a_snapshot() -> None:
    """A worker that goes on from it refuses what the one before would have refused, and knows what has come to that."""
    run = JoinRun(join_of(Within(10, 10)))
    run.left({"k": 1, "a": 5})
    run.right({"k": 1, "b": 5, "n": 8})
    run = restored(run)
    assert run.right({"k": 1, "b": 7, "n": 9}) == [{"k": 1, "a": 5, "b": 7, "n": 9}]
    with pytest.raises(OperatorError, match=r"J has passed on 'n' of the right side as 'n'"):
        run.left({"k": 1, "a": 6, "n": 7})
    run = JoinRun(join_of(Within(10, 10)))
    run.right({"k": 1, "b": 5, "n": 8})
    assert restored(run).left({"k": 1, "a": 6, "n": 7}) == [{"k": 1, "a": 6, "n_x": 7, "b": 5, "n_y": 8}]
