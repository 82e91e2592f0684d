"""Hosts join a dataflow that runs on real Spark, and leave it: nothing is lost, whoever dies when."""

from __future__ import annotations

import os
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from patience import PATIENCE_S
from pyspark.sql import SparkSession
from recovery_setting import Trial, trial
from run_setting import wait_for_more

import fries_nb as fn
from fries_nb.controller import events
from fries_nb.dataflow.graph import Graph
from fries_nb.errors import PlanError, RunError, SessionError

SHARES = {"A": 2, "out": 2}
COUNT = 15_000


class Tag:
    """Says by which process a row was tagged, and by which version."""

    def __init__(self, version: int = 1) -> None:
        self.version = version

    def process(self, row: dict[str, Any]) -> dict[str, Any]:
        """The row, tagged."""
        return {**row, "pid": os.getpid(), "version": self.version}


def dealing(count: int | None = COUNT, rate: float | None = 600) -> Graph:
    """A source with one worker deals its rows in turn to two workers, each with a sink of its own."""
    flow = fn.Dataflow("dealing")
    flow.source("numbers", fn.rate(rate, count=count)).map("A", Tag()).sink("out", fn.memory())
    graph: Graph = flow.graph(2)
    return graph


def rescale(run: Trial, hosts: int) -> events.RescaleEnded:
    """Ask for so many hosts, and wait for the end of the request."""
    number = len(run.watch.heard_of("rescaled")) + 1
    run.launched.driver.post(events.RescaleRequested(f"r{number}", hosts, SHARES))
    ended: events.RescaleEnded = run.watch.until_said("rescaled", number)
    return ended


def wait_for(run: Trial, worker: str, tuples: int) -> None:
    """Until one worker has reported so many tuples."""
    run.watch.until(lambda: run.watch.processed.get(worker, 0) >= tuples, f"{tuples} tuples at {worker}")


class Spending:
    """Counts the payments of a customer, and says by which process."""

    def initial_state(self) -> dict[str, int]:
        """No payment yet."""
        return {"count": 0}

    def process(self, row: dict[str, Any], state: dict[str, int]) -> dict[str, Any]:
        """The row, with its number among those of its customer."""
        state["count"] += 1
        return {**row, "nth": state["count"], "pid": os.getpid()}


def test_customers_move_to_new_hosts_and_back(spark: SparkSession, tmp_path: Path) -> None:
    """From one host to three and back to one, with a change in between; every payment is counted once, in order."""
    flow = fn.Dataflow("spending")
    payments = flow.source("payments", fn.rate(1_500, row=lambda value: {"value": value, "customer": value % 997}))
    payments.map("count", Spending(), key="customer").map("tag", Tag()).sink("counted", fn.memory())
    run = flow.run(spark, hosts=1, workers=1, audit=True, checkpoint=str(tmp_path / "c"))
    try:
        wait_for_more(run, 1_500, "counted")
        assert run.rescale(3).result(timeout=PATIENCE_S).outcome == "done"
        assert {owner: len(bins) for owner, bins in run.topology().bins("count").items()} == {0: 342, 1: 341, 2: 341}
        assert run.reconfigure({"count": Spending()}).result(timeout=PATIENCE_S).outcome == "done"
        wait_for_more(run, 1_500, "counted")
        assert run.rescale(1, 1024).result(timeout=PATIENCE_S).outcome == "done"
        assert run.topology().hosts == (0,)
        wait_for_more(run, 1_500, "counted")
        run.stop()
    finally:
        run.cancel()
    rows = sorted((row["value"], row["nth"]) for row in run.output().select("value", "nth").collect())
    assert rows == [(value, value // 997 + 1) for value in range(len(rows))]
    assert run.output().select("pid").distinct().count() == 3
    assert run.audit().serializable


def check(run: Trial, count: int = COUNT) -> list[dict[str, Any]]:
    """Each row has come out once; returns them."""
    rows = run.rows()
    assert sorted(row["value"] for row in rows) == list(range(count))
    return rows


def test_a_new_host_that_is_killed_early_leaves_the_others_undisturbed(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the others have heard of it; without a checkpoint. Seeds try it at every later step."""
    with trial(dealing(), spark, hosts=1) as run:
        run.wait_for("A", 100)
        topology = run.launched.driver.core.topology
        change = topology._change

        def kill_first(order: Any) -> None:
            if 1 in run.pids:
                run.kill(1)
            change(order)

        monkeypatch.setattr(topology, "_change", kill_first)
        ended = rescale(run, 2)
        assert (ended.outcome, ended.hosts) == ("aborted", 1)
        assert "host 1 was lost" in ended.error
        monkeypatch.setattr(topology, "_change", change)
        assert rescale(run, 2).outcome == "done"
        run.hurry()
        assert run.end(drain=False) == ("finished", "")
        pids = {row["pid"] for row in check(run)}
        assert len(pids) == 2


def test_payments_are_rescaled_by_the_run(spark: SparkSession) -> None:
    """A third worker gets every third payment: of rows 0, 1, 2, ... the one dealt third goes to worker 2."""
    flow = fn.Dataflow("payments")
    payments = flow.source("payments", fn.rate(1_000, row=lambda value: {"amount": value % 100}))
    payments.map("FD", Tag()).sink("scored", fn.memory())
    run = flow.run(spark, hosts=2, workers=2, audit=True)
    try:
        ended = run.rescale(hosts=3).result(timeout=PATIENCE_S)
        assert (ended.outcome, ended.hosts, ended.error) == ("done", 3, "")
        joined = run.host_processes[2]
        wait_for_more(run, 1_000, "scored")
        with pytest.raises(SessionError, match=r"7 more hosts need 9 free slots and Spark \(local\[\d+\]\) has \d+ of"):
            run.rescale(10)
        with pytest.raises(PlanError, match="hosts=0; expected a whole number from 1 up"):
            run.rescale(0)
        fewer, more = run.rescale(1), run.rescale(3)  # requests are carried out in order
        assert (fewer.result(timeout=PATIENCE_S).outcome, more.result(timeout=PATIENCE_S).outcome) == ("done", "done")
        wait_for_more(run, 600, "scored")
        run.stop()
    finally:
        run.cancel()
    rows = [row.asDict() for row in run.output().collect()]
    assert sorted(row["value"] for row in rows) == list(range(len(rows)))
    thirds = [row["value"] for row in sorted(rows, key=lambda row: row["value"]) if row["pid"] == joined]
    assert len(thirds) > 500
    assert Counter(b - a for a, b in pairwise(thirds)).most_common(1)[0][0] == 3
    assert run.audit().serializable
    with pytest.raises(RunError, match="has finished; a rescale needs a running dataflow"):
        run.rescale(3)
