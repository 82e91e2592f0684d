"""Windows as the tests of several rooms run them: an instance with an agenda, frames, firings."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa

from fries_nb.dataflow import Emits, Kind, Operator
from fries_nb.dataflow.columns import DUE, HIDDEN, TIME, TRANSACTION
from fries_nb.dataflow.join_bounds import Bounds, Latest, StreamJoin, Within
from fries_nb.dataflow.windowing import EACH_TIME, WindowFunction, Windowing
from fries_nb.operators.executors import ChainExecutor, InterruptFlag, executor_of
from fries_nb.operators.instance import Instance
from fries_nb.operators.timed_calls import FIRED, firing_batch
from fries_nb.progress.progress_graph import ChangeBatch
from fries_nb.progress.times import Antichain, Time
from fries_nb.protocol.messages import WorkerId

Row = dict[str, Any]
MANY = Emits.ONE_TO_MANY


class Sum:
    """The sum of ``n`` of a window, and the times that were summed."""

    def initial_state(self) -> Row:
        return {"total": 0, "rows": 0}

    def process(self, row: Row, state: Row) -> None:
        state["total"] += row["n"]
        state["rows"] += 1

    def close(self, key: Any, time: Any, state: Row) -> Row:
        return {"k": key, "end": time, **state}


class TimedRun:
    """One timed operator, with what a worker does for it: frames, the frontier, firings, and the counts."""

    def __init__(self, instance: Instance, *behind: Instance, branches: int = 2) -> None:
        self.instance, self.counts = instance, ChangeBatch()
        instance.track(self.counts, lambda: 0)
        self.chain = (instance, *behind)
        self.branches = branches
        self.executor = self.compiled()

    def compiled(self) -> ChainExecutor:
        """The chain's executor."""
        return executor_of(self.chain, InterruptFlag(), self.branches, "L")

    @property
    def agenda(self) -> Any:
        """The operator's agenda."""
        assert self.instance.agenda is not None
        return self.instance.agenda

    def frame(
        self, rows: Sequence[Row], times: Sequence[int], stamp: Time | None = None, kind: Any = None, sender: str = "S"
    ) -> list[Any]:
        """Process a frame; its stamp is the least time unless one is given. Returns (branch, row)."""
        self.agenda.begin(stamp or (0, min(times)))
        columns: dict[str, Any] = {name: [row[name] for row in rows] for name in rows[0]}
        hidden = {DUE: [0] * len(rows), TRANSACTION: list(range(len(rows))), TIME: pa.array(times, pa.int64())}
        if kind is not None:
            hidden[TIME] = hidden[TIME].cast(kind)
        return self._run(sender, pa.RecordBatch.from_pydict({**columns, **hidden}))

    def fire(self, *frontier: Time, limit: int = 2) -> list[Any]:
        """Advance the frontier, and process all that is due; returns (branch, row)."""
        self.agenda.advance(Antichain.of(frontier))
        found: list[Any] = []
        while self.agenda.is_ripe:
            firing = self.agenda.take(limit)
            if firing.keys:
                found += self._run(FIRED, firing_batch(self.instance, firing, due_ns=7))
            self.agenda.done(firing)
        return found

    def _run(self, sender: str, batch: pa.RecordBatch) -> list[Any]:
        self.executor.load(sender, batch)
        while self.executor.remaining:
            self.executor.advance(3)
        return [(branch, row) for branch, some in self.executor.results() for row in some.to_pylist()]


def window(windowing: Windowing, function: Any = None, lateness: float = 0, **more: Any) -> Instance:
    """A window's instance, keyed by ``k``."""
    early, audit = more.pop("early", False), more.pop("audit", False)
    used = WindowFunction(function or Sum(), windowing, lateness, early)
    operator = Operator("W", MANY, kind=Kind.WINDOW, function=used, key=("k",), branches=2, **more)
    return Instance(WorkerId("W", 0), operator, used, audit)


def reduce(function: Any = None, audit: bool = False, **more: Any) -> Instance:
    """A reduce's instance, keyed by ``k``."""
    used = WindowFunction(function or Sum(), EACH_TIME)
    operator = Operator("R", MANY, kind=Kind.REDUCE, function=used, key=("k",), branches=2, **more)
    return Instance(WorkerId("R", 0), operator, used, audit)


KINDS = {Within: Kind.JOIN_WITHIN, Latest: Kind.JOIN_LATEST, Windowing: Kind.JOIN_WINDOW}


def join_of(bounds: Bounds, how: str = "inner", function: Any = None, **more: Any) -> Instance:
    """The instance of a join of two streams, keyed by ``k``; its left side comes from ``L``."""
    known = {side: more.pop(side, None) for side in ("left", "right")}
    suffixes, audit = more.pop("suffixes", ("_x", "_y")), more.pop("audit", False)
    used = StreamJoin(function, bounds, early=True, how=how, suffixes=suffixes, **known)
    operator = Operator("J", MANY, kind=KINDS[type(bounds)], function=used, key=("k",), branches=2, **more)
    return Instance(WorkerId("J", 0), operator, used, audit)


def shown(results: Iterable[Any], branch: int = 0) -> list[Row]:
    """The rows of a branch, without hidden columns."""
    return [{name: value for name, value in row.items() if name not in HIDDEN} for at, row in results if at == branch]
