"""What is alive and what is not: Python code that holds the interpreter's lock is, a stopped process is not."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from run_setting import until

import fries_nb as fn
from fries_nb.run import Run

SILENCE_S = 1.5
HELD_S = 2.5 * SILENCE_S


def hold(seconds: float) -> None:
    """Keep all other Python threads of this process from running: one call into C, about so long or longer."""
    count = 1_000_000
    started = time.perf_counter()
    sum(range(count))
    sum(range(int(count * seconds / (time.perf_counter() - started))))


class Busy:
    """Holds the interpreter's lock in ``open()``, where ``note`` is not there yet, or at one value."""

    def __init__(self, version: int, note: str = "", value: int = -1) -> None:
        self.version = version
        self.note = note
        self.value = value

    def open(self) -> None:
        """Take long in one worker, hence in one host."""
        try:
            os.close(os.open(self.note, os.O_CREAT | os.O_EXCL)) if self.note else None
        except FileExistsError:
            return
        hold(HELD_S if self.note else 0)

    def process(self, row: dict[str, Any]) -> dict[str, Any]:
        """The row, and by which version."""
        if row["value"] == self.value:
            hold(HELD_S)
        return row | {"version": self.version}


def flow_of(function: Any) -> fn.Dataflow:
    """Numbers without end through one operator."""
    flow = fn.Dataflow("busy")
    flow.source("numbers", fn.rate(500)).map("A", function).sink("out", fn.memory())
    return flow


def processed(run: Run) -> int:
    """Tuples that have reached the sink, as last reported."""
    return run.metrics().operators["out"].processed


def pids_of(run: Run) -> list[int]:
    """The hosts' processes."""
    return [hello.pid for _, hello in sorted(run._runner.launched[0].driver.hosts.items())]


def test_who_holds_the_interpreters_lock_is_alive(spark: SparkSession, runs: list[Run], tmp_path: Path) -> None:
    """At start, on a tuple, in the ``open()`` of a change, and in the notebook: each takes longer, and nothing else."""
    flow = flow_of(Busy(1, str(tmp_path / "start"), value=200))
    run = flow.run(spark, heartbeat_timeout_s=SILENCE_S)
    runs.append(run)
    until(lambda: processed(run) > 600, run)
    change = run.reconfigure({"A": Busy(2, str(tmp_path / "change"))})
    assert change.result(timeout=900).outcome == "done"
    assert run._runner.launched[0].driver._stage.is_running()
    hold(HELD_S)
    before = processed(run)
    until(lambda: processed(run) > before + 500, run)
    run.stop()
    assert (run.state, run.error) == ("finished", "")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["change", "start"]


def test_a_host_that_is_stopped_is_lost(spark: SparkSession, runs: list[Run], tmp_path: Path) -> None:
    """Stopped it answers nobody: the network tells. The run goes on from its checkpoint with another process."""
    run = flow_of(Busy(1)).run(spark, heartbeat_timeout_s=SILENCE_S, checkpoint=tmp_path / "c", commit_interval_s=0.5)
    runs.append(run)
    until(lambda: processed(run) > 200, run)
    first = pids_of(run)
    os.kill(first[1], signal.SIGSTOP)
    until(lambda: len(pids_of(run)) == 2 and first[1] not in pids_of(run), run)
    assert "its connection has ended" in run.recoveries[0].reason or "Spark" in run.recoveries[0].reason
    until(lambda: processed(run) > 200, run)
    run.stop()
    assert (run.state, run.error) == ("finished", "")
