"""Functions that work by time on real Spark: the worked cases of timestamp tokens, and rows that come too late."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import pyarrow as pa
import pytest
from held_tokens import Hold
from patience import PATIENCE_S
from run_setting import until

import fries_nb as fn
from fries_nb.run import Run

ROWS, KEYS, ROWS_PER_TIME = 4_000, 5, 20


class Stateful:
    """Starts with an empty state."""

    def initial_state(self) -> dict[str, Any]:
        """Nothing."""
        return {}


class Count(Stateful):
    """Counts the rows of a key and time: a number with each row, and the count when it is complete."""

    def process(self, row: dict[str, Any], state: dict[str, Any]) -> dict[str, Any]:
        """Count a row."""
        state["n"] = state.get("n", 0) + 1
        return {"key": row["key"], "at": row["at"], "so_far": state["n"], "count": 0}

    def close(self, key: int, time: int, state: dict[str, Any]) -> dict[str, Any]:
        """The count."""
        return {"key": key, "at": time - 1, "so_far": 0, "count": state["n"]}


class Remind(Stateful):
    """Asks to be called ten later, and then says by which version of the function it was."""

    def __init__(self, version: int) -> None:
        self.version = version

    def process(self, row: dict[str, Any], state: dict[str, Any], at: Any) -> None:
        """One call for each time."""
        at.call(row["at"] + 10)

    def due(self, key: int, time: int, state: dict[str, Any]) -> dict[str, Any]:
        """The call."""
        return {"key": key, "at": time - 10, "version": self.version}


@pytest.fixture
def started(started: Callable[..., Run]) -> Callable[..., Run]:
    """Starts flows on two hosts."""
    return partial(started, hosts=2, workers=2, audit=True)


def found(run: Run, sink: str, *columns: str) -> Counter[tuple[Any, ...]]:
    """The rows of a sink."""
    return Counter(tuple(row[column] for column in columns) for row in run.output(sink).collect())


def test_counts_calls_and_tokens_wait_for_the_frontier_through_a_change(started: Callable[..., Run]) -> None:
    """Maps and filters are oblivious of time; what is pending at the change is done by the new function."""
    numbers = range(ROWS)
    table = pa.table({"key": [n % KEYS for n in numbers], "at": [n // ROWS_PER_TIME for n in numbers], "n": numbers})
    flow = fn.Dataflow("timed")
    source = flow.source("S", fn.replay(table, rate=100), time="at", workers=2)
    kept = source.map("M", dict, key="key").filter("F", lambda row: row["n"] % 7 != 0)
    kept.window("C", Count(), fn.tumbling(1), key="key", early=True).sink("counts", fn.memory())
    kept.map("R", Remind(1), key="key").sink("calls", fn.memory())
    kept.map("H", Hold(), key="key").sink("held", fn.memory())
    run = started(flow)
    until(lambda: run.metrics().operators["calls"].processed > 0, run)  # a call by the old version
    run.set_rate("S", 1)  # so some are left for the new one, however long the change takes
    assert run.reconfigure({"R": Remind(2)}).result(PATIENCE_S).outcome == "done"
    run.set_rate("S", 1_000_000)
    assert run.wait(PATIENCE_S) == "finished", run.error
    rows = [n for n in numbers if n % 7]
    count = Counter((n % KEYS, n // ROWS_PER_TIME) for n in rows)
    early = [(*of, number + 1, 0) for of, all_of_it in count.items() for number in range(all_of_it)]
    complete = [(*of, 0, all_of_it) for of, all_of_it in count.items()]
    assert found(run, "counts", "key", "at", "so_far", "count") == Counter(early + complete)
    assert found(run, "calls", "key", "at") == Counter(count.keys())
    by_version = found(run, "calls", "version")
    assert by_version.keys() == {(1,), (2,)}
    held = Counter[int]()
    for at, number in found(run, "held", "at", "count").elements():
        held[at] += number
    assert held == Counter(n // ROWS_PER_TIME for n in rows)
    assert run.audit().serializable


def test_each_row_of_a_live_source_is_in_a_window_or_too_late(started: Callable[..., Run]) -> None:
    """None is dropped silently, and one that may still come is in its window."""

    def row(value: int) -> dict[str, int]:
        return {"key": value % KEYS, "at": value - (200 if value % 50 == 49 else value % 3)}

    flow = fn.Dataflow("late")
    source = flow.source("S", fn.rate(2_000, count=ROWS, row=row), time="at", late=20, workers=2)
    source.window("W", Late(), fn.tumbling(100), key="key", late=fn.memory()).sink("out", fn.memory())
    run = started(flow)
    assert run.wait(PATIENCE_S) == "finished", run.error
    windowed = sum(row["count"] for row in run.output("out").collect())
    late = run.output("W.late").collect()
    assert windowed + len(late) == ROWS
    assert late
    assert {one["value"] % 50 for one in late} == {49}
    assert run.audit().serializable


class Late(Stateful):
    """Counts the rows of a key in a window."""

    def process(self, row: dict[str, Any], state: dict[str, Any]) -> None:
        """Count a row."""
        state["n"] = state.get("n", 0) + 1

    def close(self, key: int, time: int, state: dict[str, Any]) -> dict[str, Any]:
        """The count."""
        return {"key": key, "end": time, "count": state["n"]}
