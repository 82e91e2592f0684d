"""Functions that work by time on real Spark: the cases of timestamp tokens, rows that come too late, keys that end."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from held_tokens import Hold
from patience import PATIENCE_S
from run_setting import until, wait_for_more

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


BURST, SILENT, PEOPLE = 60, 100, 200
"""Rows of a person in one visit, how long one lasts without a row, and persons: each comes back 12,000 later."""


class Visit(Stateful):
    """Counts the rows of a visit; at its end it gives the count."""

    def __init__(self, version: int) -> None:
        self.version = version

    def process(self, row: dict[str, Any], state: dict[str, Any]) -> None:
        """Count a row."""
        state["n"] = state.get("n", 0) + 1
        state["first"] = state.get("first", row["value"])

    def on_expire(self, key: int, state: dict[str, Any]) -> dict[str, Any]:
        """The visit."""
        return {"key": key, **state, "version": self.version}


def test_visits_end_once_through_a_change_a_rescale_and_the_loss_of_a_host(
    started: Callable[..., Run], tmp_path: Path
) -> None:
    """A person that comes back has a new state; states are those of visits that have not ended; and a dedup in time."""
    flow, count = fn.Dataflow("visits"), 30_000
    numbers = fn.rate(1_000, count=count, row=lambda value: {"key": value // BURST % PEOPLE})
    source = flow.source("S", numbers, time="value", workers=1, ahead=SILENT)
    source.map("V", Visit(1), key="key", workers=2, ttl=SILENT).sink("out", fn.memory())
    source.dedup("F", on="key", within=30, workers=2).sink("firsts", fn.memory())
    run = started(flow, checkpoint=tmp_path / "c", commit_interval_s=0.3)
    until(lambda: run.metrics().operators["out"].processed > 3, run)
    states = run.state("V")
    assert [*states] == ["key", "n", "first", "_end", "_bytes", "_bin", "_worker"]
    assert len(states) < 10  # of as many as have come
    assert (states["_end"] == states["first"] + states["n"] - 1 + SILENT).all()
    longer = fn.Update(Visit(2), ttl=2 * SILENT)
    assert run.reconfigure({"V": longer}).result(PATIENCE_S).outcome == "done"
    rescale = run.rescale(workers={"V": 3})
    assert rescale is not None
    assert rescale.result(timeout=PATIENCE_S).outcome == "done"
    wait_for_more(run, 5)
    until(lambda: bool(run.checkpoints), run)
    os.kill(run.host_processes[1], signal.SIGKILL)
    until(lambda: bool(run.recoveries) and run.recoveries[-1].seconds is not None, run)
    wait_for_more(run, 5)
    run.set_rate("S", 1_000_000)
    assert run.wait(PATIENCE_S) == "finished", run.error
    visits = Counter((first // BURST % PEOPLE, BURST, first) for first in range(0, count, BURST))
    assert found(run, "out", "key", "n", "first") == visits
    assert found(run, "out", "version").keys() == {(1,), (2,)}
    assert found(run, "firsts", "value") == Counter((value,) for value in range(count) if value % BURST in (0, 31))
    assert run.audit().serializable
