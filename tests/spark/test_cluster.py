"""Executors that are other processes with other packages than the driver: what they lack is said once, and brought."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

from cluster_setting import BARE, PACKAGE, driven, environment, standalone
from patience import PATIENCE_S
from pyspark.sql import SparkSession
from run_setting import ended_runs
from soak import SOAK

import fries_nb as fn
from fries_nb.spark.shipping import pack
from fries_nb.spark.stage import failure_of

LACKING = """
import sys
import time
from pyspark.sql import SparkSession
import fries_nb as fn

master, bare, place = sys.argv[1:]
java = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
builder = SparkSession.builder.master(master).config("spark.ui.enabled", "false")
builder = builder.config("spark.driver.host", "127.0.0.1").config("spark.executor.memory", "512m")
builder = builder.config("spark.driver.extraJavaOptions", java).config("spark.executor.extraJavaOptions", java)
spark = builder.config("spark.executorEnv.PYTHONPATH", bare).getOrCreate()
spark.sparkContext.setLogLevel("OFF")

class Seen:
    def process(self, row, state):
        state["seen"] = state.get("seen", 0) + 1
        return {**row, "seen": state["seen"]}

def run(place, hosts, rate, count):
    flow = fn.Dataflow("cluster")
    rows = flow.source("S", fn.rate(rate, count=count, row=lambda value: {"value": value, "key": value % 99}))
    rows.map("A", Seen(), key="key").sink("out", fn.memory())
    return flow.run(spark, hosts=hosts, workers=hosts, checkpoint=place, audit=True)

def wait_for(run, rows):
    until = run.metrics().operators["out"].processed + rows
    while run.metrics().operators["out"].processed < until and run.state == "running":
        time.sleep(0.05)

first = run(place + "/first", 2, None, 500)
print(first.wait(900), len(first.recoveries), first.error, first.details.splitlines()[-1:])
fn.ship(spark)
second = run(place + "/second", 1, 1000, None)
wait_for(second, 200)
print(second.rescale(2).result(300).outcome, end=" ")
wait_for(second, 500)
print(second.rescale(1).result(300).outcome, end=" ")
second.stop()
rows = second.output().collect()
exact = sorted((row["value"], row["seen"]) for row in rows) == [(n, n // 99 + 1) for n in range(len(rows))]
print(second.state, len(second.recoveries), second.error, exact, second.audit().serializable)
spark.stop()
"""


def check_lacking(master: str, path: Path, kept: dict[str, str]) -> None:
    """A run that keeps checkpoints fails at once, with what is missing where; once it was shipped, one is rescaled."""
    (path / "bare").mkdir()
    (path / "bare" / "sitecustomize.py").write_text(BARE)
    said = driven(LACKING, master, str(path / "bare"), str(path), path=path, environment=kept)
    refused, ran = said.splitlines()
    assert refused.startswith("failed 0 No module named 'fries_nb' in the Python of executor "), said
    assert "; fn.ship(spark) brings fries_nb to them" in refused
    assert """["ModuleNotFoundError: No module named 'fries_nb'"]""" in refused
    assert ran.split() == ["done", "done", "finished", "0", "True", "True"], said


def test_what_executors_lack_is_said_once_and_shipped(tmp_path: Path) -> None:
    """On ``local-cluster``, whose executors are processes of their own."""
    check_lacking("local-cluster[2,2,1024]", tmp_path, environment(tmp_path))


if SOAK > 1:  # masters and workers are Java processes, too

    def test_what_executors_of_a_standalone_master_lack(tmp_path: Path) -> None:
        """Likewise, with a master and two workers on loopback."""
        kept = environment(tmp_path)
        with standalone(tmp_path, kept) as master:
            check_lacking(master, tmp_path, kept)


def test_the_shipped_package_holds_all_that_hosts_import(tmp_path: Path) -> None:
    """Also the packages without an ``__init__``: a zip names them by entries of their own."""
    pack(tmp_path / "fries_nb.zip")
    (tmp_path / "sitecustomize.py").write_text(BARE)
    code = "import fries_nb.spark.stage as stage; print(stage.__file__)"
    found = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env={"PYTHONPATH": f"{tmp_path}:{tmp_path / 'fries_nb.zip'}"},
        capture_output=True, text=True, timeout=PATIENCE_S, check=True,
    )  # fmt: skip
    assert found.stdout.strip() == str(tmp_path / "fries_nb.zip" / "fries_nb" / "spark" / "stage.py")
    assert str(PACKAGE) not in found.stdout


class Quits:
    """Its ``open()`` ends Python."""

    def open(self) -> None:
        """As a script does that finds no model."""
        sys.exit("no model")

    def process(self, row: dict[str, Any]) -> dict[str, Any]:
        """Never comes to it."""
        return row


def test_an_exit_in_open_is_the_operators_failure(spark: SparkSession) -> None:
    """At the start, too, where it would end the host without a word."""
    flow = fn.Dataflow("quits")
    flow.source("S", fn.rate(100)).map("A", Quits()).sink("out", fn.memory())
    with ended_runs() as runs:
        runs.append(flow.run(spark, hosts=1, workers=1))
        assert runs[0].wait(PATIENCE_S) == "failed"
        assert runs[0].error == "A failed in open(): SystemExit: no model"
        assert 'sys.exit("no model")' in runs[0].details


def test_a_lost_executor_is_no_lasting_failure() -> None:
    """The line behind what all failures of barrier tasks share says why, and where it was."""
    failure = failure_of(
        "Job aborted due to stage failure: Could not recover from a failed barrier ResultStage. Most recent failure "
        "reason: Stage failed because barrier task ResultTask(4, 1) finished unsuccessfully.\n"
        "ExecutorLostFailure (executor 0 exited caused by one of the running tasks) Reason: worker lost\n\tat x",
        lambda stage, task: f"executor {stage}{task} (here)",
    )
    assert (failure.host, failure.lasting) == (1, False)
    assert failure.reason.startswith("ExecutorLostFailure (executor 0 exited")
    assert failure.reason.endswith("worker lost (executor 41 (here))")


def test_a_python_of_another_version_is_a_lasting_failure() -> None:
    """What PySpark raises for it goes on for lines; the first of them says it."""
    failure = failure_of(
        "Job aborted due to stage failure: Could not recover from a failed barrier ResultStage. Most recent failure "
        "reason: Stage failed because barrier task ResultTask(0, 0) finished unsuccessfully.\n"
        "org.apache.spark.api.python.PythonException: Traceback (most recent call last):\n"
        '  File "pyspark/worker.py", line 1, in main\n'
        "    check_python_version(infile)\n"
        "pyspark.errors.exceptions.base.PySparkRuntimeError: [PYTHON_VERSION_MISMATCH] Python in worker has different "
        "version: 3.12 than that in driver: 3.11.\n"
        "Please check environment variables PYSPARK_PYTHON and PYSPARK_DRIVER_PYTHON are correctly set.\n\n\tat x"
    )
    assert failure.lasting
    assert "worker has different version: 3.12 than that in driver: 3.11 in the executors' Python" in failure.reason
    assert failure.reason.endswith("; set PYSPARK_PYTHON to a Python like the driver's on all of them")
    assert failure.details.endswith("correctly set.")
