"""Rows that a function keeps beyond their turn, in state, and lets out later."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from fries_nb.dataflow.columns import DUE, TRANSACTION
from fries_nb.dataflow.graph import Kind, Operator
from fries_nb.operators.executors import ChainExecutor, InterruptFlag, executor_of
from fries_nb.operators.instance import Instance
from fries_nb.protocol.messages import WorkerId


class Lag:
    """Lets out the row before."""

    def process(self, row: dict[str, Any], state: dict[str, Any]) -> Any:
        before, state["row"] = state.get("row"), row
        return before


class Three:
    """Lets out rows by threes."""

    def process(self, row: dict[str, Any], state: dict[str, Any]) -> Any:
        kept = state.setdefault("rows", [])
        kept.append(row)
        if len(kept) == 3:
            yield from list(kept)
            kept.clear()


def running(kind: Kind, function: Any) -> ChainExecutor:
    """A chain of one operator."""
    worker = Instance(WorkerId("M", 0), Operator("M", kind=kind, function=function, key=("k",)), function, audit=False)
    return executor_of([worker], InterruptFlag(), 1, "")


def frames(execution: ChainExecutor, *frames: list[int]) -> list[dict[str, Any]]:
    """What comes out for frames of these values, hidden columns and all."""
    rows: list[dict[str, Any]] = []
    for values in frames:
        columns = {"k": [0] * len(values), "n": values, DUE: values, TRANSACTION: values}
        execution.load("S", pa.RecordBatch.from_pydict(columns))
        while execution.remaining:
            execution.advance(100)
        rows += [row for _, batch in execution.results() for row in batch.to_pylist()]
    return rows


def test_a_row_of_an_earlier_frame_leaves_with_its_own_values_on_behalf_of_the_tuple_in_hand() -> None:
    """Its values are those it had; the transaction is the one that let it out."""
    rows = frames(running(Kind.MAP, Lag()), [1, 2, 3], [4])
    assert [(row["n"], row[TRANSACTION]) for row in rows] == [(1, 2), (2, 3), (3, 4)]


def test_rows_kept_over_frames_leave_together() -> None:
    """A buffer of three over frames of two."""
    rows = frames(running(Kind.FLAT_MAP, Three()), [1, 2], [3, 4], [5, 6])
    assert [(row["n"], row[TRANSACTION]) for row in rows] == [(1, 3), (2, 3), (3, 3), (4, 6), (5, 6), (6, 6)]
