"""Changes inside nested loops on real Spark, with checkpoints, under load: hosts are killed at every step of them.

And a change that waits for a loop that never empties: it can be cancelled, and it may be given a time.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from loop_flows import circling, expected, named, nested, numbered
from patience import PATIENCE_S
from pyspark.sql import SparkSession
from recovery_setting import Trial, trial
from run_setting import ended_runs, until

import fries_nb as fn
from fries_nb.controller.events import Outcome, RateRequested
from fries_nb.controller.known_changes import DeferredChanges
from fries_nb.controller.loop_attempts import LoopDrain
from fries_nb.dataflow.graph import Graph
from fries_nb.errors import PlanError
from fries_nb.protocol.checkpoints import CommittedChange
from fries_nb.simulation.drawn_flows import Advance, CountRows

ROWS = 1_200
RATE = 75.0


def slow_nested() -> Graph:
    """Rows that come for longer than the test needs, through a loop with three others inside."""
    flow = fn.Dataflow("loops")
    nested(flow.source("S", fn.rate(RATE, count=ROWS, row=numbered))).sink("Z", fn.memory())
    graph: Graph = flow.graph(2)
    return graph


def with_logged_feedback(run: Trial) -> None:
    """Wait for a checkpoint of rows on their way back."""
    recovery = run.launched.driver.controller._life.recovery
    run.watch.until(lambda: recovery.checkpoint is not None and recovery.checkpoint.logged, "rows in a checkpoint")


def kill_at_first_step(run: Trial, monkeypatch: pytest.MonkeyPatch, drain: Any, host: int) -> Callable[[], bool]:
    """Kill a host when such a drain has begun; returns whether it was."""
    advance, kills = drain.advance, [host]

    def advance_and_kill(self: Any) -> Any:
        steps = advance(self)
        if steps and kills:
            run.kill(kills.pop())
        return steps

    monkeypatch.setattr(drain, "advance", advance_and_kill)
    return lambda: not kills


def test_hosts_are_killed_while_operators_inside_loops_are_changed(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the drain: aborted. Behind the decision, and again in the drain of the deferred change: done, wholly."""
    update = {"BN2": Advance("N2"), "KL": CountRows("KL")}
    with trial(slow_nested(), spark, str(tmp_path / "c")) as run:
        with_logged_feedback(run)
        killed = kill_at_first_step(run, monkeypatch, LoopDrain, host=1)
        outcome: Outcome = run.outcome(run.change(update))
        assert (killed(), outcome.outcome) == (True, "aborted")
        assert "before the change was decided; nothing changed" in outcome.error
        run.watch.until_said("recovered")

        with_logged_feedback(run)
        decide = run.launched.place.decide
        again = kill_at_first_step(run, monkeypatch, DeferredChanges, host=0)

        def decide_and_kill(decided: CommittedChange) -> None:
            decide(decided)
            run.kill(1)

        monkeypatch.setattr(run.launched.place, "decide", decide_and_kill)
        change = run.change(update)
        outcome = run.outcome(change)
        assert (outcome.outcome, outcome.error) == ("done", "")
        deferred = [one.restoration.deferred for one in run.watch.heard_of("recovering")]
        assert (again(), deferred) == (True, [(), (change,), (change,)])

        run.launched.driver.post(RateRequested("S", 1e6))
        assert run.end(drain=False) == ("finished", "")
        assert named(run.rows("Z")) == expected(run.graph, ROWS)["Z"]
        assert run.audit().serializable


@pytest.mark.filterwarnings("ignore::fries_nb.UncommittedWarning")  # unless it took long enough for a commit
def test_a_change_that_waits_for_a_loop_ends_in_time_or_when_it_is_cancelled(
    spark: SparkSession, tmp_path: Path
) -> None:
    """The loop never empties, and goes on as it was; a change without these waits on, and says so."""
    with ended_runs() as runs:
        run = circling(str(tmp_path / "never"), 20).run(spark, hosts=2, workers=2, identities=True)
        runs.append(run)
        until(lambda: run.wait_flowing(0) and run.metrics().operators["K"].processed > 1_000, run)
        function = run.graph.operator("K").function
        with pytest.raises(PlanError, match="timeout=0: expected seconds, more than 0"):
            run.reconfigure({"K": function}, timeout=0)
        result = run.reconfigure({"K": function}, "fries", timeout=0.2).result(60)
        assert (result.outcome, result.error) == ("aborted", "L did not empty within 0.2 s; nothing changed")
        change = run.reconfigure({"K": function}, "fries")
        until(lambda: [one.change for one in run.loops()] == [change.id], run)
        assert not change.done
        change.cancel()
        assert change.result(PATIENCE_S).error == "it was cancelled; nothing changed"
        met = run.metrics().operators["K"].processed
        until(lambda: run.metrics().operators["K"].processed > met, run)
        change = run.reconfigure({"K": function}, "auto")
        assert (change.plan.scheduler, change.result(PATIENCE_S).outcome) == ("cut", "done")
        result = run.reconfigure({"P": run.graph.operator("P").function}, "fries", timeout=0.2).result(PATIENCE_S)
        words = f"rows that are old for {change.id} were still there after 0.2 s; nothing changed"
        assert (result.outcome, result.error) == ("aborted", words)
        run.cancel()
