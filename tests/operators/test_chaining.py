"""Chains of row functions and of vectorised ones: what comes out, what is refused, and by which name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st
from operator_setting import Count, batch, execution, instance, outcome
from worker_bench import operations

import fries_nb.dataflow.operators as operators
from fries_nb.dataflow.columns import DUE, TRANSACTION
from fries_nb.dataflow.graph import Emits, Kind
from fries_nb.errors import DeclarationError, OperatorError
from fries_nb.operators.executors import InterruptFlag
from fries_nb.operators.instance import Instance
from fries_nb.protocol.trace import RanMany


class Stateless:
    def process(self, row: dict[str, Any]) -> dict[str, Any]:
        return {"only": row["n"]}


def generates(row: dict[str, Any]) -> Any:
    """One object, changed and yielded again."""
    for copy in range(row["n"]):
        row["copy"] = copy
        yield row


def test_a_map_changes_replaces_or_drops() -> None:
    """A map changes replaces or drops."""
    data = batch(n=[1, 2, 3])
    assert outcome(execution(instance("M", Kind.MAP, lambda row: row | {"m": 0})), data)[0] == {"n": 1, "m": 0}
    assert outcome(execution(instance("M", Kind.MAP, Stateless())), data)[2] == {"only": 3}
    assert outcome(execution(instance("M", Kind.MAP, lambda row: row if row["n"] == 2 else None)), data) == [{"n": 2}]


@pytest.mark.parametrize("key", [("k",), ("k", "j")])
def test_keyed_state_is_kept_by_one_column_or_several(key: tuple[str, ...]) -> None:
    """Keyed state is kept by one column or several."""
    running = execution(instance("C", Kind.MAP, Count(), key=key))
    rows = outcome(running, batch(k=[1, 1, 2, 1], j=[1, 1, 1, 2]))
    assert [row["seen"] for row in rows] == ([1, 2, 1, 3] if len(key) == 1 else [1, 2, 1, 1])


@pytest.mark.parametrize("kind", [Kind.FLAT_MAP, Kind.MAP])
def test_a_generator_may_yield_one_object_again_and_again(kind: Kind) -> None:
    """A generator may yield one object again and again."""
    running = execution(instance("G", kind, generates, emits=Emits.ONE_TO_MANY))
    assert outcome(running, batch(n=[2, 0, 1])) == [
        {"n": 2, "copy": 0}, {"n": 2, "copy": 1}, {"n": 1, "copy": 0}
    ]  # fmt: skip


def test_filter_and_split_pass_the_row_on() -> None:
    """Filter and split pass the row on."""
    chain = execution(
        instance("F", Kind.FILTER, lambda row: row["n"] > 1),
        instance("S", Kind.SPLIT, lambda row: row["n"] % 2 == 0, branches=2),
        branches=2,
    )
    chain.load("L", batch(n=[1, 2, 3, 4]))
    chain.advance(100)
    assert [(b, out.column("n").to_pylist(), out.column(DUE).to_pylist()) for b, out in chain.results()] == [
        (0, [3], [2]), (1, [2, 4], [1, 3])
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        ([["ab", "c"], [], None], [{"n": 1, "x": "ab"}, {"n": 1, "x": "c"}]),
        ([[{"x": 5, "y": 6}], [{"x": 7, "y": 8}], []], [{"n": 1, "x": 5, "y": 6}, {"n": 2, "x": 7, "y": 8}]),
        ([[{"y": 6}], [], []], [{"n": 1, "y": 6}]),
        ([[1], [None], []], [{"n": 1, "x": 1}, {"n": 2, "x": None}]),
    ],
)
def test_unnest_makes_a_row_of_each_element(column: list[Any], expected: list[dict[str, Any]]) -> None:
    """Unnest makes a row of each element."""
    assert outcome(execution(instance("U", Kind.UNNEST, "x")), batch(n=[1, 2, 3], x=column)) == expected


def test_unnest_of_what_is_no_list_names_the_operator() -> None:
    """Unnest of what is no list names the operator."""
    with pytest.raises(OperatorError, match=r"U failed on a tuple: TypeError: .*not iterable"):
        outcome(execution(instance("U", Kind.UNNEST, "x")), batch(x=[1]))


def test_a_self_join_merges_left_then_right_and_renames_what_both_have() -> None:
    """A self join merges left then right and renames what both have."""
    running = execution(instance("J", Kind.SELF_JOIN, "_right", key=("id",)))
    assert outcome(running, batch(id=[1, 2], n=[10, 20], a=[5, 6]), "R") == []
    rows = outcome(running, batch(id=[2, 1], n=[1, 2], b=[7, 8]), "L")
    assert rows == [{"id": 2, "n": 1, "b": 7, "n_right": 20, "a": 6}, {"id": 1, "n": 2, "b": 8, "n_right": 10, "a": 5}]
    assert list(rows[0]) == ["id", "n", "b", "n_right", "a"]


def test_a_self_joins_columns_keep_their_names_when_both_sides_gain_one() -> None:
    """Right beside left from the first, also in pairs of which one has it; what has left by itself is not renamed."""
    running = execution(instance("J", Kind.SELF_JOIN, "_right", key=("id",)))
    outcome(running, batch(id=[1, 2], tax=[10, 20]), "R")
    assert outcome(running, batch(id=[1], tax=[3]), "L") == [{"id": 1, "tax": 3, "tax_right": 10}]
    assert outcome(running, batch(id=[2]), "L") == [{"id": 2, "tax_right": 20}]
    running = execution(instance("J", Kind.SELF_JOIN, "_right", key=("id",)))
    outcome(running, batch(id=[1, 2], tax=[10, 20]), "R")
    assert outcome(running, batch(id=[1]), "L") == [{"id": 1, "tax": 10}]
    with pytest.raises(OperatorError, match="J has passed on 'tax' of the right side as 'tax', which would be"):
        outcome(running, batch(id=[2], tax=[3]), "L")
    running = execution(instance("J", Kind.SELF_JOIN, "_right", key=("id",)))
    outcome(running, batch(id=[1], n=[1]), "R")
    with pytest.raises(OperatorError, match="J would overwrite the column 'n_right'; give the join another suffix"):
        outcome(running, batch(id=[1], n=[1], n_right=[2]), "L")


@given(st.lists(st.tuples(st.sampled_from("LR"), st.integers(0, 2)), max_size=40))
def test_a_self_join_pairs_equal_keys_in_order_of_arrival_however_often_they_occur(arrivals: list) -> None:
    """A self join pairs equal keys in order of arrival however often they occur."""
    running = execution(joiner := instance("J", Kind.SELF_JOIN, "_right", key=("id",)))
    pairs = []
    for number, (side, key) in enumerate(arrivals):
        pairs += [(row["id"], row["n"], row["n_right"]) for row in outcome(running, batch(id=[key], n=[number]), side)]
    left, right = (
        {key: [n for n, (s, k) in enumerate(arrivals) if (s, k) == (side, key)] for key in range(3)} for side in "LR"
    )
    expected = [(key, ours, theirs) for key in range(3) for ours, theirs in zip(left[key], right[key], strict=False)]
    assert sorted(pairs) == sorted(expected)
    waiting = sum(abs(len(left[key]) - len(right[key])) for key in range(3))
    assert sum(len(rows) for _, rows in joiner.state.live.values()) == waiting


def fails(row: dict[str, Any]) -> Any:
    """Fails one frame below."""
    return _deeper(row)


def _deeper(row: dict[str, Any]) -> Any:
    return row["absent"]


@pytest.mark.parametrize(
    "broken",
    [
        instance("M", Kind.MAP, fails),
        instance("M", Kind.FILTER, fails),
        instance("M", Kind.FLAT_MAP, fails),
        instance("M", Kind.SPLIT, fails),
        instance("M", Kind.MAP, operators.batched(lambda data: fails({}))),
    ],
)
def test_the_users_traceback_starts_at_the_users_frame_and_ends_there(broken: Instance) -> None:
    """The user's traceback starts at the user's frame and ends there."""
    with pytest.raises(OperatorError, match="M failed on a tuple: KeyError") as caught:
        outcome(execution(broken), batch(n=[1]))
    assert caught.value.operator == "M"
    lines = [line for line in caught.value.details.splitlines() if line.startswith("  File")]
    assert all("test_chaining.py" in line for line in lines)
    assert lines[-1].endswith("in _deeper")


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (instance("M", Kind.MAP, lambda row: [row]), "M returned list; a map returns one row"),
        (instance("M", Kind.FLAT_MAP, lambda row: [1]), "M yielded int; expected rows"),
        (instance("M", Kind.SPLIT, lambda row: 2, branches=2), "M routed a tuple to branch 2; it has branches 0 to 1"),
        (instance("M", Kind.MAP, lambda row: row | {"x": object()}), r"column 'x' cannot hold <obj.*> \(object\): no"),
        (
            instance("M", Kind.MAP, lambda row: row | {"x": [1, "a"][row["n"]]}),
            r"^M failed on a tuple: column 'x' cannot hold 'a' \(str\): it was int64 before, and a column keeps its",
        ),
        (instance("M", Kind.MAP, lambda row: row | {"x": 2**70}), "M failed on .* 'x' cannot hold 118059162071741130"),
        (instance("M", Kind.MAP, lambda row: row | {5: 1}), r"M failed on .* column 5 cannot hold 1 \(int\): .* text"),
    ],
)
def test_a_broken_declaration_names_the_operator(broken: Instance, message: str) -> None:
    """A broken declaration names the operator."""
    with pytest.raises(DeclarationError, match=message) as caught:
        outcome(execution(broken, branches=broken.operator.branches), batch(n=[0, 1]))
    assert caught.value.operator == "M"


def test_a_raised_attention_stops_between_two_tuples_of_the_first_operator() -> None:
    """A raised interrupt stops between two tuples of the first operator."""
    interrupt = InterruptFlag()

    def watch(row: dict[str, Any]) -> dict[str, Any]:
        if row["n"] == 2:
            interrupt.set()
        return row

    running = execution(
        instance("A", Kind.FLAT_MAP, lambda row: [row, row]), instance("B", Kind.MAP, watch), interrupt=interrupt
    )
    running.load("L", batch(n=[1, 2, 3]))
    assert running.advance(100) == 2
    assert [out.column("n").to_pylist() for _, out in running.results()] == [[1, 1, 2, 2]]
    assert running.remaining == 1


def test_a_switch_in_mid_frame_runs_the_rest_by_the_new_function() -> None:
    """A switch in mid frame runs the rest by the new function."""
    target = instance("M", Kind.MAP, lambda row: row | {"v": 1, "w": 1})
    running = execution(target)
    running.load("L", batch(n=[1, 2, 3, 4]))
    running.advance(2)
    before = running.results()
    target.function = lambda row: row | {"v": "two"}
    running.rebuild()
    running.advance(100)
    (after,) = running.results()
    assert before[0][1].select(["n", "v"]).to_pydict() == {"n": [1, 2], "v": [1, 1]}
    assert after[1].column("v").to_pylist() == ["two", "two"]
    assert after[1].column(DUE).to_pylist() == [2, 3]


@pytest.mark.parametrize("quota", [1, 3, 100])
def test_vectorised_chains_map_filter_and_multiply_with_hidden_columns_beside(quota: int) -> None:
    """Vectorised chains map filter and multiply with hidden columns beside."""

    def visible(data: pa.RecordBatch) -> pa.RecordBatch:
        assert data.schema.names == ["n"]
        return data.append_column("d", pc.multiply(data.column("n"), 2))

    def twice(data: pa.RecordBatch) -> Any:
        parents = np.repeat(np.arange(data.num_rows), 2)
        return data.take(pa.array(parents)), parents

    running = execution(
        instance("A", Kind.MAP, operators.batched(visible)),
        instance("B", Kind.FILTER, operators.batched(lambda data: pc.greater(data.column("n"), 1))),
        instance("C", Kind.FLAT_MAP, operators.batched(twice)),
    )
    data = batch(n=[1, 2, 3, 1])
    running.load("L", data)
    while running.remaining:
        assert running.advance(quota) <= quota
    whole = pa.Table.from_batches([out for _, out in running.results()]).to_pydict()
    assert whole == {"n": [2, 2, 3, 3], "d": [4, 4, 6, 6], DUE: [1, 1, 2, 2], TRANSACTION: [1, 1, 2, 2]}


@pytest.mark.parametrize(
    ("kind", "function"),
    [
        (Kind.MAP, lambda data: data.slice(1)),
        (Kind.MAP, lambda data: data.to_pydict()),
        (Kind.FILTER, lambda data: data),
        (Kind.FILTER, lambda data: [True]),
        (Kind.FILTER, lambda data: data.column("n")),
        (Kind.FLAT_MAP, lambda data: data),
        (Kind.FLAT_MAP, lambda data: (data, [0])),
        (Kind.FLAT_MAP, lambda data: (data, [0, 9])),
    ],
)
def test_a_vectorised_function_that_returns_something_else_is_named(kind: Kind, function: Callable[..., Any]) -> None:
    """A vectorised function that returns something else is named."""
    with pytest.raises(DeclarationError, match=r"V returned .* for a batch of 2 rows") as caught:
        outcome(execution(instance("V", kind, operators.batched(function))), batch(n=[1, 2]))
    assert caught.value.operator == "V"


def test_each_operator_of_a_chain_counts_and_records_what_it_took_in() -> None:
    """Each operator of a chain counts and records what it took in."""
    chain = [
        instance("A", Kind.FILTER, lambda row: row["n"] > 1, audit=True),
        instance("B", Kind.FLAT_MAP, lambda row: [row, row], audit=True),
        instance("C", Kind.MAP, lambda row: row, audit=True),
    ]
    outcome(execution(*chain), batch(n=[1, 2, 3]))
    assert [one.processed for one in chain] == [3, 2, 4]
    assert [operations(one.records()) for one in chain] == [
        [RanMany((0, 1, 2), "A")], [RanMany((1, 2), "B")], [RanMany((1, 1, 2, 2), "C")]
    ]  # fmt: skip


def test_what_is_read_and_a_recent_row_are_known() -> None:
    """What is read and a recent row are known."""
    running = execution(instance("A", Kind.MAP, lambda row: {"x": row["n"]}))
    assert running.samples(0) == []
    outcome(running, batch(m=[1, 2], n=[3, 4]))
    assert tuple(running.reads) == ("n",)
    assert [one.batch.to_pylist() for one in running.samples(0)] == [[{"m": 2, "n": 4}], [{"m": 1, "n": 3}]]
    running.rebuild()
    assert tuple(running.reads) == ()
