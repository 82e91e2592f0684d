"""A chain of operators without its worker: batches in, rows out."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from fries_nb.dataflow.columns import DUE
from fries_nb.dataflow.graph import Emits, Kind, Operator
from fries_nb.operators.executors import InterruptFlag, executor_of
from fries_nb.operators.instance import Instance
from fries_nb.protocol.messages import WorkerId

Row = dict[str, Any]


def instance(function: Any, kind: Kind = Kind.MAP, **more: Any) -> Instance:
    """An operator that runs this function."""
    name = f"{function.__name__ if hasattr(function, '__name__') else type(function).__name__}"
    emits = Emits.ONE_TO_MANY if kind is Kind.FLAT_MAP else Emits.ONE_TO_ONE
    operator = Operator(name, emits, kind=kind, function=function, **more)
    return Instance(WorkerId(name, 0), operator, function, audit=False)


def outcome(data: pa.RecordBatch, *chain: Instance, frame: int = 100, quota: int = 100) -> list[Row]:
    """What leaves a chain, without hidden columns: frames of so many tuples, slices of so many."""
    running = executor_of(chain, InterruptFlag(), 1, "")
    out: list[pa.RecordBatch] = []
    for start in range(0, data.num_rows, frame):
        running.load("S", data.slice(start, frame))
        while running.remaining:
            running.advance(quota)
            out += [batch for _, batch in running.results()]
    return [{name: value for name, value in row.items() if name != DUE} for batch in out for row in batch.to_pylist()]


def numbers(count: int, **columns: list[Any]) -> pa.RecordBatch:
    """A batch of numbers, and a hidden column."""
    return pa.RecordBatch.from_pydict({"n": list(range(count)), **columns, DUE: list(range(count))})
