"""Operators as the tests of this room make them: an instance, a chain's executor, a batch, what comes out."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from fries_nb.dataflow import memory
from fries_nb.dataflow.columns import DUE, TRANSACTION
from fries_nb.dataflow.graph import Kind, Operator
from fries_nb.operators.executors import ChainExecutor, InterruptFlag, executor_of
from fries_nb.operators.instance import Instance
from fries_nb.protocol.messages import WorkerId


def instance(name: str, kind: Kind, function: Any, audit: bool = False, **more: Any) -> Instance:
    """An operator's instance, number 0."""
    return Instance(WorkerId(name, 0), Operator(name, kind=kind, function=function, **more), function, audit)


def execution(*instances: Instance, interrupt: InterruptFlag | None = None, branches: int = 1) -> ChainExecutor:
    """The execution of a chain; ``L`` is a self-join's left sender."""
    return executor_of(instances, interrupt or InterruptFlag(), branches, "L")


def batch(**columns: list[Any]) -> pa.RecordBatch:
    """A batch of these columns."""
    rows = len(next(iter(columns.values())))
    return pa.RecordBatch.from_pydict({**columns, DUE: list(range(rows)), TRANSACTION: list(range(rows))})


def outcome(running: ChainExecutor, data: pa.RecordBatch, sender: str = "L", quota: int = 100) -> list[dict[str, Any]]:
    """What comes out for one frame, hidden columns left out."""
    running.load(sender, data)
    while running.remaining:
        running.advance(quota)
    rows = [row for _, produced in running.results() for row in produced.to_pylist()]
    return [{name: value for name, value in row.items() if name not in (DUE, TRANSACTION)} for row in rows]


class Count:
    """Counts a key's tuples."""

    def initial_state(self) -> dict[str, int]:
        return {"seen": 0}

    def process(self, row: dict[str, Any], state: dict[str, int]) -> dict[str, Any]:
        state["seen"] += 1
        return row | {"seen": state["seen"]}


class Letters:
    """The dead letters of an operator, as far as they were looked at."""

    def __init__(self, of: Instance) -> None:
        self.of = of
        self.rows: list[dict[str, Any]] = []


def guarded(kind: Kind, function: Any, name: str = "G", **more: Any) -> tuple[Instance, Letters]:
    """An operator with dead letters, and where to find them."""
    guarding = instance(name, kind, function, on_error=memory(), **more)
    guarding.has_dead_letters = True
    return guarding, Letters(guarding)


def letters(kept: Letters) -> list[dict[str, Any]]:
    """All that have left the operator."""
    kept.rows += [row for letter in kept.of.take_letters() for row in letter.to_pylist()]
    return kept.rows
