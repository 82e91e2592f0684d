"""Joins and dedups at work, and tuples that a function fails on: nothing of them stays, and they are told of."""

from __future__ import annotations

import base64
import datetime
import json
from collections import deque
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from operator_setting import Count, batch, execution, guarded, instance, letters, outcome

from fries_nb.dataflow import Edge, Graph, JoinTable, Kind, Operator, batched, memory
from fries_nb.dataflow.columns import DUE
from fries_nb.errors import DeclarationError, OperatorError
from fries_nb.operators.dead_letters import LETTER, returned_rows
from fries_nb.operators.instance import Instance
from fries_nb.protocol.messages import RequeuedRow
from fries_nb.protocol.topology import chains
from fries_nb.protocol.trace import Emitted

SHOPS = pa.table({"shop": [1, 2, 1], "city": ["Rome", "Oslo", "Bari"], "n": [10, 20, 30]})


def join(data: pa.Table = SHOPS, one_to_many: bool = True, **more: Any) -> Instance:
    """A join's instance with its table open."""
    table = JoinTable("J", data, {"k": "shop"}, one_to_many=one_to_many, **more)
    table.open()
    return instance("J", Kind.JOIN, table)


# ---- joins and dedups


def test_a_join_adds_columns_under_names_of_their_own() -> None:
    """In the order of stream and table; the key's columns are there once."""
    data = batch(k=[1, 2, 3, None], n=[7, 8, 9, 9])
    assert outcome(execution(join()), data) == [
        {"k": 1, "n": 7, "city": "Rome", "n_right": 10},
        {"k": 1, "n": 7, "city": "Bari", "n_right": 30},
        {"k": 2, "n": 8, "city": "Oslo", "n_right": 20},
    ]
    left = outcome(execution(join(how="left", suffix="_s")), data)[3:]
    assert left == [{"k": 3, "n": 9, "city": None, "n_s": None}, {"k": None, "n": 9, "city": None, "n_s": None}]


def test_a_join_does_not_overwrite_a_column() -> None:
    """Not even one that has the suffix already."""
    with pytest.raises(DeclarationError, match="J would overwrite the column 'n_right'; give the join another suffix"):
        outcome(execution(join()), batch(k=[1], n=[1], n_right=[1]))


def test_a_joins_column_keeps_its_name_when_the_stream_gains_one() -> None:
    """It has left as the table's, so rows that bring one of that name are refused; a suffix from the first on stays."""
    running = execution(join())
    assert outcome(running, batch(k=[2])) == [{"k": 2, "city": "Oslo", "n": 20}]
    assert outcome(running, batch(k=[2], more=[1])) == [{"k": 2, "more": 1, "city": "Oslo", "n": 20}]
    with pytest.raises(DeclarationError, match="J has passed on 'n' of the right side as 'n', which would be 'n_"):
        outcome(running, batch(k=[2], n=[1]))
    running = execution(join())
    assert outcome(running, batch(k=[2], n=[1])) == [{"k": 2, "n": 1, "city": "Oslo", "n_right": 20}]
    assert outcome(running, batch(k=[2])) == [{"k": 2, "city": "Oslo", "n_right": 20}]


def test_a_join_follows_what_a_chain_wrote_before_it() -> None:
    """Columns that a row was given, and rows that are all new."""
    written = execution(instance("M", Kind.MAP, lambda row: row | {"k": row["x"] + 1}), join())
    assert [row["city"] for row in outcome(written, batch(x=[0, 1]))] == ["Rome", "Bari", "Oslo"]
    whole = execution(instance("M", Kind.MAP, lambda row: {"k": 2, "city": "x"}), join())
    assert outcome(whole, batch(x=[0])) == [{"k": 2, "city": "x", "city_right": "Oslo", "n": 20}]


def test_a_joins_columns_keep_the_tables_types() -> None:
    """From the first batch on, though nothing was found in it."""
    days = pa.table({
        "shop": [5], "day": [datetime.date(2026, 1, 2)], "n": pa.array([1], pa.int32()), "k": pa.array([1], pa.int16()),
    })  # fmt: skip
    running = execution(join(days, how="left"))
    for keys in ([1], [5]):
        running.load("L", batch(k=keys))
        running.advance(10)
        [(_, produced)] = running.results()
        types = {field.name: str(field.type) for field in produced.schema if field.name in ("day", "n", "k_right")}
        assert types == {"day": "date32[day]", "n": "int32", "k_right": "int16"}


def test_a_key_of_another_kind_fails_the_tuple() -> None:
    """Named as the operator's failure."""
    with pytest.raises(OperatorError, match="J failed on a tuple: TypeError: the key 'a' is a string"):
        outcome(execution(join()), batch(k=["a"]))


def test_a_dedup_passes_the_first_row_of_each_key() -> None:
    """Over batches; a null is a key."""
    running = execution(instance("D", Kind.DEDUP, None, key=("k", "j")))
    data = batch(k=[1, 1, 1, None, None], j=[1, 2, 1, 1, 1], n=[1, 2, 3, 4, 5])
    assert [row["n"] for row in outcome(running, data)] == [1, 2, 4]
    assert outcome(running, data) == []
    with pytest.raises(OperatorError, match="D failed on a tuple: KeyError"):
        outcome(running, batch(n=[1]))


# ---- tuples that fail


class Poisoned(Count):
    """Counts, and fails on a tuple when it has half done it."""

    def process(self, row: dict[str, Any], state: dict[str, int]) -> dict[str, Any]:
        row["mark"] = "half"
        out = super().process(row, state)
        if row["n"] < 0:
            raise ValueError(f"cannot take {row['n']}")
        return out


def test_a_poison_tuple_leaves_no_trace_but_its_letter() -> None:
    """State is as if it had never come: the next tuple of its key is counted as if it had been the first."""
    operator, port = guarded(Kind.MAP, Poisoned(), key=("k",))
    rows = outcome(execution(operator), batch(k=[1, 1, 1, 2, 2], n=[5, -6, 7, -8, 9]))
    assert [(row["k"], row["n"], row["seen"]) for row in rows] == [(1, 5, 1), (1, 7, 2), (2, 9, 1)]
    first, second = letters(port)
    assert list(first) == LETTER.names
    assert json.loads(first.pop("tuple")) == {"k": 1, "n": -6}
    assert "cannot take -6" in first.pop("traceback")
    error = "G failed on a tuple: ValueError: cannot take -6"
    again = RequeuedRow(first.pop("letter"), 0, 1, base64.b64decode(first.pop("row")))
    assert [some.rows.to_pylist() for some in returned_rows([again])] == [[{"k": 1, "n": -6}]]
    told = {"operator": "G", "worker": 0, "error": error, "version": "", "tries": 1, "requeued": None}
    assert first == told
    assert json.loads(second["tuple"]) == {"k": 2, "n": -8}
    assert operator.processed == 5


def test_a_key_that_only_failed_has_no_state() -> None:
    """It counts as never seen; and a state that waits for its transformation is transformed once."""
    operator, port = guarded(Kind.MAP, Poisoned(), key=("k",))
    running = execution(operator)
    outcome(running, batch(k=[1, 2], n=[-1, 1]))
    assert operator.state.live == {2: {"seen": 1}}
    operator.state.transform(lambda state: {"seen": state["seen"] + 100})
    running.rebuild()
    assert [row["seen"] for row in outcome(running, batch(k=[2, 2, 1], n=[-1, 1, 1]))] == [102, 1]
    assert len(letters(port)) == 2


class Windowed:
    """State of a class and a function of the test's own, which pickle cannot name."""

    def initial_state(self) -> Any:
        class Own:
            def __init__(self) -> None:
                self.values: deque[int] = deque(maxlen=3)

        return Own()

    def process(self, row: dict[str, Any], state: Any) -> dict[str, Any]:
        state.values.append(row["n"])
        return row | {"sum": sum(state.values) if row["n"] else 1 // 0}


def test_state_that_pickle_cannot_name_is_restored_too() -> None:
    """A notebook's own classes."""
    operator, _ = guarded(Kind.MAP, Windowed(), key=("k",))
    rows = outcome(execution(operator), batch(k=[1, 1, 1, 1], n=[1, 0, 2, 3]))
    assert [row["sum"] for row in rows] == [1, 3, 6]


def changes_its_list(row: dict[str, Any]) -> Any:
    """Yields, changes a list in place, and fails at the third."""
    for number in range(row["n"]):
        row["xs"].append(number)
        yield row | {"number": 6 // (2 - number)}


def test_rows_that_were_made_before_the_failure_do_not_leave() -> None:
    """And the letter has the tuple as it came."""
    operator, port = guarded(Kind.FLAT_MAP, changes_its_list)
    behind = instance("B", Kind.MAP, lambda row: row | {"late": row["number"]})
    rows = outcome(execution(operator, behind), batch(n=[2, 3, 1], xs=[[], [9], []]))
    assert [row["late"] for row in rows] == [3, 6, 3]
    assert [json.loads(letter["tuple"]) for letter in letters(port)] == [{"n": 3, "xs": [9]}]


@pytest.mark.parametrize(
    ("kind", "function", "said"),
    [
        (Kind.MAP, lambda row: row if row["n"] else [1], "returned list"),
        (Kind.FILTER, lambda row: 1 // row["n"] == 1, "ZeroDivisionError"),
        (Kind.UNNEST, "xs", "TypeError"),
        (Kind.FLAT_MAP, lambda row: [row] if row["n"] else [1], "yielded int"),
    ],
)
def test_each_kind_sets_aside_what_it_fails_on(kind: Kind, function: Any, said: str) -> None:
    """The row with a zero; the others leave."""
    operator, port = guarded(kind, function)
    data = batch(n=[1, 0, 1], xs=[1, 1, 1]) if kind is Kind.UNNEST else batch(n=[1, 0, 1])
    rows = outcome(execution(operator), data)
    assert len(rows) == (0 if kind is Kind.UNNEST else 2)
    assert all(said in letter["error"] for letter in letters(port))
    assert [json.loads(letter["tuple"])["n"] for letter in letters(port)] == ([1, 0, 1] if kind is Kind.UNNEST else [0])


def test_a_split_and_a_join_set_aside_too() -> None:
    """A branch that is not there, a key of another kind."""
    split, bad = guarded(Kind.SPLIT, lambda row: row["n"], branches=2)
    running = execution(split, branches=2)
    running.load("L", batch(n=[0, 5, 1]))
    running.advance(10)
    assert [branch for branch, _ in running.results()] == [0, 1]
    assert ["branch 5" in letter["error"] for letter in letters(bad)] == [True]
    table = join().function
    joined, bad = guarded(Kind.JOIN, table)
    assert len(outcome(execution(joined), batch(k=["a", "b"]))) == 0
    assert len(letters(bad)) == 2


class Unspeakable(Exception):
    """Its message fails."""

    def __str__(self) -> str:
        return str(self.args[7])


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (Unspeakable(), "Unspeakable: (its message cannot be shown: its __str__ raises IndexError)"),
        (ValueError("x" * 10_001), f"ValueError: {'x' * 10_000}... (1 more characters)"),
        (SystemExit(3), "SystemExit: 3"),
    ],
    ids=lambda one: "" if isinstance(one, str) else type(one).__name__,
)
def test_whatever_a_function_raises_is_a_dead_letter(error: BaseException, said: str) -> None:
    """With its type, also if nothing else of it can be shown."""

    def function(row: dict[str, Any]) -> dict[str, Any]:
        if row["n"] == 1:
            raise error
        return row

    operator, port = guarded(Kind.MAP, function)
    assert outcome(execution(operator), batch(n=[0, 1, 2])) == [{"n": 0}, {"n": 2}]
    [letter] = letters(port)
    assert letter["error"] == f"G failed on a tuple: {said}"
    assert "in function" in letter["traceback"]


def test_an_error_behind_an_operator_is_not_its_own() -> None:
    """The next operator of a chain fails the run, though the one in front keeps dead letters."""
    operator, port = guarded(Kind.MAP, dict)
    with pytest.raises(OperatorError, match="B failed on a tuple"):
        outcome(execution(operator, instance("B", Kind.MAP, lambda row: row["gone"])), batch(n=[1]))
    assert letters(port) == []


def test_without_a_place_for_letters_a_failure_is_one() -> None:
    """As in a rehearsal, which then refuses the change."""
    operator = instance("G", Kind.MAP, Poisoned(), key=("k",), on_error=memory())
    with pytest.raises(OperatorError, match="cannot take -1"):
        outcome(execution(operator), batch(k=[1], n=[-1]))
    assert operator.state.live == {}


# ---- vectorised functions


@batched
def inverse(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Fails on a zero."""
    if pc.any(pc.equal(rows["n"], 0)).as_py():
        raise ZeroDivisionError("there is a zero")
    return rows.append_column("inverse", pc.divide(12, rows["n"]))


def test_a_slice_that_fails_is_tried_row_by_row() -> None:
    """The rows beside it leave in their order, with their hidden columns."""
    operator, port = guarded(Kind.MAP, inverse)
    running = execution(operator)
    running.load("L", batch(n=[1, 0, 3, 0, 4]))
    running.advance(100)
    [(_, produced)] = running.results()
    assert (produced["inverse"].to_pylist(), produced[DUE].to_pylist()) == ([12, 4, 3], [0, 2, 4])
    assert [json.loads(letter["tuple"]) for letter in letters(port)] == [{"n": 0}, {"n": 0}]
    assert outcome(execution(operator), batch(n=[0])) == []


@batched
def typed(rows: pa.RecordBatch) -> pa.RecordBatch:
    """A column of nulls for one row, of numbers for the other."""
    if rows.num_rows > 1:
        raise ValueError("one by one, please")
    return pa.RecordBatch.from_pydict({"x": [None if rows["n"][0].as_py() else 1.5]})


def test_rows_that_were_made_one_by_one_get_one_type() -> None:
    """Nulls take any."""
    operator, port = guarded(Kind.MAP, typed)
    assert outcome(execution(operator), batch(n=[1, 0])) == [{"x": None}, {"x": 1.5}]
    assert letters(port) == []


# ---- chains


def test_an_operator_that_pauses_is_alone_in_its_chain() -> None:
    """Joins and dedups are chained like row functions; dead letters change nothing."""
    operators = [
        Operator("S", kind=Kind.SOURCE), Operator("A", function=dict), Operator("P", function=dict, on_error="pause"),
        Operator("D", function=dict, on_error=memory()), Operator("J", kind=Kind.JOIN, function=join().function),
        Operator("K", kind=Kind.DEDUP), Operator("Z", kind=Kind.SINK),
    ]  # fmt: skip
    names = [operator.name for operator in operators]
    edges = tuple(Edge(*pair) for pair in pairwise(names))
    assert chains(Graph("g", tuple(operators), edges)) == (("S",), ("A",), ("P",), ("D", "J", "K"), ("Z",))


def test_a_blocking_operator_runs_nowhere_here() -> None:
    """It is for Spark SQL."""
    with pytest.raises(DeclarationError, match=r"A \(aggregate\) blocks; Spark SQL runs it"):
        execution(instance("A", Kind.AGGREGATE, None))


@pytest.mark.parametrize("branch", [0, 1])
def test_a_row_that_a_split_has_routed_and_that_makes_no_columns_is_recorded_as_dropped_once(branch: int) -> None:
    """What the split had recorded of it is taken back, for the branch that it was sent to and for the first one."""

    def route(row: dict[str, Any]) -> int:
        row["x"] = object() if row["n"] == 3 else 1
        return branch

    split, bad = guarded(Kind.SPLIT, route, branches=2, audit=True)
    running = execution(split, branches=2)
    running.load("L", batch(n=[1, 3]))
    running.advance(10)
    assert [len(rows) for _, rows in running.results()] == [1]
    assert len(letters(bad)) == 1
    [emitted] = [record for record in split.records() if isinstance(record, Emitted) and 1 in record.transactions]
    assert (emitted.transactions.count(1), emitted.extra, emitted.branch) == (1, -1, 0)
