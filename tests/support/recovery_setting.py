"""A run without ``fries_nb.run``, for tests that kill hosts: launched with a checkpoint place; what its driver says.

Nothing here sleeps for a fixed time: every wait ends when the driver has said what is waited for, or fails the test.
"""

from __future__ import annotations

import os
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from msgspec.structs import replace
from patience import PATIENCE_S
from pyspark.sql import SparkSession

import fries_nb as fn
from fries_nb.audit import Verdict, judge
from fries_nb.controller import events
from fries_nb.dataflow.graph import Graph
from fries_nb.dataflow.updates import as_updates
from fries_nb.driver.driver_core import Closed, HostsRestarted, Told, Used
from fries_nb.host.region_spec import Options
from fries_nb.planning.schedulers import schedule
from fries_nb.protocol.messages import Report
from fries_nb.protocol.trace import flow_of
from fries_nb.spark.catalog import output
from fries_nb.spark.launch import Launched, launch
from fries_nb.spark.staging import remove_scratch
from fries_nb.transport.envelopes import Printed, unpack

KEYS = 20
MOST_TOLD = 300
"""Characters of what was said last, where a wait was in vain: changes come with their functions."""


class Count:
    """Numbers the rows of each key, and says by which version."""

    def __init__(self, version: int = 1) -> None:
        self.version = version

    def initial_state(self) -> dict[str, int]:
        """A key that was never seen."""
        return {"seen": 0}

    def process(self, row: dict[str, Any], state: dict[str, int]) -> dict[str, Any]:
        """The row with its number."""
        state["seen"] += 1
        return {**row, "seen": state["seen"], "counted_by": self.version}


class Mark:
    """Says by which version."""

    def __init__(self, version: int = 1) -> None:
        self.version = version

    def process(self, row: dict[str, Any]) -> dict[str, Any]:
        """The row, marked."""
        return {**row, "marked_by": self.version}


def counting(count: int | None, rate: float | None = 4_000, workers: int = 2) -> Graph:
    """Rows of twenty keys: marked by A, numbered within each key by C, let through by B."""
    flow = fn.Dataflow("counting")
    rows = flow.source("numbers", fn.rate(rate, count=count, row=lambda value: {"key": value % KEYS}))
    counted = rows.map("A", Mark()).map("C", Count(), key="key")
    counted.map("B", lambda row: {**row, "b": 1}).sink("out", fn.memory())
    graph: Graph = flow.graph(workers)
    return graph


def check_counted(rows: list[dict[str, Any]], count: int) -> None:
    """Each value once, and the rows of each key numbered 1, 2, 3, ...: no state was lost, none counted twice.

    And each row by the old functions wholly, or by the new ones wholly.
    """
    assert sorted(row["value"] for row in rows) == list(range(count))
    numbered = Counter((row["key"], row["seen"]) for row in rows)
    assert numbered == Counter((key, n + 1) for key in range(KEYS) for n in range(len(range(key, count, KEYS))))
    assert {(row["marked_by"], row["counted_by"]) for row in rows} <= {(1, 1), (2, 2)}


class Watch:
    """What the driver of a run says, in order, as ``(word, what)`` pairs."""

    def __init__(self) -> None:
        self.said: list[tuple[str, Any]] = []
        self.processed: dict[str, int] = {}
        self._changed = threading.Condition()

    def _note(self, word: str, what: Any) -> None:
        with self._changed:
            self.said.append((word, what))
            self._changed.notify_all()

    def __call__(self, event: Told) -> None:
        """Called by the driver."""
        match event:
            case events.Outcome():
                self._note("resolved", event)
            case events.RunEnded():
                self._note("over", (event.state, event.error, event.details))
            case Closed():
                self._note("closed", None)
            case events.Answered():
                self.answered(event)
            case Printed():
                self._note("printed", event.lines)
            case events.CheckpointEnded():
                self._note("checkpoint", event)
            case events.Recover():
                self.processed.clear()
                self._note("recovering", event)
            case HostsRestarted():
                self._note("recovered", None)
            case Used():
                self._note("used", (event.host, event.usage))
            case events.RescaleEnded():
                self._note("rescaled", event)
            case events.OperatorPaused():
                self._note("paused", event)

    def answered(self, event: events.Answered) -> None:
        if isinstance(event.answer, Report):
            self.processed[str(event.answer.worker)] = event.answer.processed
            self._note("report", event.answer)

    def heard_of(self, word: str) -> list[Any]:
        """All that was said under this word."""
        return [what for name, what in list(self.said) if name == word]

    def until(self, met: Callable[[], Any], what: str) -> Any:
        """Wait until something said has made this true; returns what it gave."""
        with self._changed:
            if not self._changed.wait_for(lambda: met() or self.heard_of("closed"), PATIENCE_S) or not met():
                over = self.heard_of("over")
                last = [f"{word} {str(told)[:MOST_TOLD]}" for word, told in self.said[-5:]]
                raise AssertionError(f"waited in vain for {what}; over: {over}; last: {last}")
            return met()

    def until_said(self, word: str, times: int = 1) -> Any:
        """Wait until this was said so often; returns the last of them."""
        return self.until(lambda: len(self.heard_of(word)) >= times and self.heard_of(word), f"{times} {word}")[-1]


class Trial:
    """A run under way."""

    def __init__(self, graph: Graph, watch: Watch, launched: Launched, spark: SparkSession) -> None:
        self.graph = graph
        self.watch = watch
        self.launched = launched
        self._spark = spark
        self._changes: dict[str, tuple[str, ...]] = {}

    @property
    def pids(self) -> dict[int, int]:
        """Host to process."""
        return {host: hello.pid for host, hello in dict(self.launched.driver.hosts).items()}

    def kill(self, *hosts: int) -> None:
        """End these hosts as a machine does that loses its power; returns at once."""
        pids = self.pids
        for host in hosts:
            os.kill(pids[host], signal.SIGKILL)

    def wait_for(self, operator: str, tuples: int) -> None:
        """Until an operator's workers have together reported so many tuples since the start or the last recovery."""
        self.watch.until(
            lambda: sum(n for name, n in self.watch.processed.items() if name.startswith(f"{operator}[")) >= tuples,
            f"{tuples} tuples at {operator}",
        )

    def change(self, updates: dict[str, Any], scheduler: str = "fries") -> str:
        """Ask for a change; returns its id."""
        name = f"u{len(self._changes) + 1}"
        plan = schedule(scheduler, self.graph, updates)
        ship, operators = self.launched.payload, self.graph.by_name
        payloads = {one: ship(operators[one], update) for one, update in as_updates(updates).items()}
        self._changes[name] = tuple(plan.targets)
        self.launched.driver.post(events.ChangeRequested(name, plan, payloads))
        return name

    def outcome(self, change: str) -> events.Outcome:
        """Wait for the end of a change."""
        found = self.watch.until(
            lambda: [one for one in self.watch.heard_of("resolved") if one.change == change], f"the end of {change}"
        )
        outcome: events.Outcome = found[0]
        return outcome

    def hurry(self) -> None:
        """Let the source read the rest at once: until then a slow machine has its time, and is not overloaded."""
        self.launched.driver.post(events.RateRequested("numbers", 100_000))

    def end(self, drain: bool = True) -> tuple[str, str]:
        """Drain and wait for the end; returns state and error."""
        if drain:
            self.launched.driver.post(events.DrainRequested())
        self.watch.until_said("closed")
        state, error, _ = self.watch.heard_of("over")[-1]
        return state, error

    def rows(self, sink: str = "out") -> list[dict[str, Any]]:
        """What is committed."""
        frame = output(self._spark, self.launched.sinks[sink], self.launched.run)
        return [row.asDict() for row in frame.collect()]

    def audit(self) -> Verdict:
        """The judge's word on the whole trace."""
        updates = [
            (change, target)
            for change, targets in self._changes.items()
            for target in targets
            if any(one.change == change and one.outcome != "aborted" for one in self.watch.heard_of("resolved"))
        ]
        flow = flow_of(
            self.graph, self.launched.resumed, self.launched.driver.has_finished, self.launched.before
        )
        flow = replace(flow, workers=flow.workers | self.launched.driver.workers)
        return judge([flow, *map(unpack, self.launched.driver.records)], updates)


@contextmanager
def trial(
    graph: Graph,
    spark: SparkSession,
    checkpoint: str = "",
    interval_s: float | None = 0.3,
    hosts: int = 2,
    resumed: bool = False,
    watch: Watch | None = None,
) -> Iterator[Trial]:
    """Launch it; whatever happens, nothing of it is left afterwards."""
    watch = watch or Watch()
    options = Options(hosts, 1 << 20, True, True, interval_s, 10.0, 0)
    launched = launch(graph, spark, options, watch, checkpoint, resumed)
    try:
        yield Trial(graph, watch, launched, spark)
    finally:
        launched.driver.post(events.StopRequested())
        launched.driver.join()
        remove_scratch(launched.scratch)
