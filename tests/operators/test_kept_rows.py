"""Rows that a function keeps, in its state or elsewhere: they are its own, and what has left is not changed by them."""

from __future__ import annotations

import sys
from typing import Any

import cloudpickle
import pytest
from chain_setting import Row, instance, numbers, outcome
from worker_bench import Bench, data

from fries_nb.dataflow.graph import Kind, Operator
from fries_nb.dataflow.updates import Update
from fries_nb.operators.dry_run import DryRun
from fries_nb.protocol.messages import Prepare, Rehearse, WorkerId


class RunningCount:
    """Keeps a row in its state, counts in it, and gives it back each time."""

    def process(self, row: Row, state: Row) -> Row:
        kept: Row = state.setdefault("row", row | {"count": 0})
        kept["count"] += 1
        return kept


class Previous:
    """Writes to the row before, which has left, and keeps this one."""

    def process(self, row: Row, state: Row) -> Row:
        if "row" in state:
            state["row"]["next"] = row["n"]
        state["row"] = row
        return row


class PreviousSeen(Previous):
    """As a filter: the predicate keeps the row that it lets pass."""

    def process(self, row: Row, state: Row) -> Any:
        return super().process(row, state) is row


@pytest.mark.parametrize("quota", [1, 4])
def test_a_row_kept_in_state_leaves_as_it_was(quota: int) -> None:
    """What is written to it with later tuples of the slice has not left with it, nor become a column of them."""
    data = numbers(4, k=[0] * 4)
    assert [row["count"] for row in outcome(data, instance(RunningCount(), key=("k",)), quota=quota)] == [1, 2, 3, 4]
    for previous in (instance(Previous(), key=("k",)), instance(PreviousSeen(), Kind.FILTER, key=("k",))):
        assert outcome(data, previous, quota=quota) == [{"n": number, "k": 0} for number in range(4)]


def test_what_the_next_operator_writes_does_not_reach_a_row_kept_in_state() -> None:
    """In a chain as between hosts."""
    befores: list[Any] = []

    class Keep:
        def process(self, row: Row, state: Row) -> Row:
            befores.append(state["row"]["p"] if "row" in state else None)
            state["row"] = row | {"p": 1}
            return state["row"]  # type: ignore[no-any-return]

    def scaled(row: Row) -> Row:
        row["p"] *= 100
        return row

    rows = outcome(numbers(3, k=[0] * 3), instance(Keep(), key=("k",)), instance(scaled))
    assert [row["p"] for row in rows] == [100, 100, 100]
    assert befores == [None, 1, 1]


@pytest.mark.parametrize("kind", [Kind.MAP, Kind.FLAT_MAP, Kind.FILTER, Kind.SPLIT])
def test_a_row_kept_in_state_keeps_no_batch_alive(kind: Kind) -> None:
    """It is a dict of its own, whatever its function returns."""
    kept: list[Any] = []

    def keep(row: Row) -> Any:
        kept.append(row)
        return {Kind.MAP: None, Kind.FLAT_MAP: [row], Kind.FILTER: True, Kind.SPLIT: 0}[kind]

    data = numbers(4, tags=[[1], [2], [3], [4]])
    outcome(data, instance(keep, kind))
    assert kept == [{"n": number, "tags": [number + 1]} for number in range(4)]
    assert all(row.columns.batch.num_rows == 0 for row in kept)


def looks_at_its_callers(row: Row) -> Row:
    """As a debugger does, or a print: its callers' local variables are noted, the row among them."""
    frame = sys._getframe()
    while frame.f_back is not None:
        frame = frame.f_back
        assert frame.f_locals is not None
    return row | {"seen": row["n"]}


def test_a_row_that_a_debugger_has_looked_at_leaves_like_any_other() -> None:
    """To count references is to see more than the function's own."""
    rows = outcome(numbers(3), instance(looks_at_its_callers), instance(lambda row: row))
    assert rows == [{"n": number, "seen": number} for number in range(3)]


def test_a_function_that_keeps_rows_is_rehearsed_like_others() -> None:
    """With all columns of what it makes."""

    class Keep:
        def open(self) -> None:
            self.kept: list[Row] = []

        def process(self, row: Row) -> Row:
            self.kept.append(row)
            return row | {"before": len(self.kept)}

    bench = Bench(Operator("M", function=lambda row: row), Operator("N", function=lambda row: row | {"x": row["n"]}))
    bench.arrive(0, data(1, 2))
    bench.run()
    bench.direct("M", Prepare("u1", cloudpickle.dumps(Update(Keep())), rehearse=True))
    [dry_run] = [one for one in bench.take() if isinstance(one, DryRun)]
    prepared = bench.rehearsals.prepare(dry_run)
    bench.worker.handle(prepared)
    samples = {"M": prepared.answer.samples}
    answer, _ = bench.rehearsals.rehearse(WorkerId("M", 0), Rehearse("u1", samples), [bench.worker])
    assert (answer.error, answer.tuples) == ("", 2)
    assert answer.writes["N"] == {"n": "int64", "before": "int64", "x": "int64"}
