"""A session that the user made by hand, in a process of its own: nothing of it is as ours would be."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from cluster_setting import SUPPORT
from patience import PATIENCE_S

from fries_nb.spark.session import archive_path, java_home

QUICK = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", f"-XX:SharedArchiveFile={archive_path()}", "-Xlog:disable")


def environment() -> dict[str, str]:
    """Of a process that knows nothing of ours; its Java starts in half the time, which no session can see."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith("PYSPARK")}
    return plain | {"JAVA_HOME": str(java_home(os.environ)), "SPARK_SUBMIT_OPTS": " ".join(QUICK)}


# ---- the tests


SCRIPT = """
import sys
from pyspark.sql import SparkSession
import fries_nb as fn
from recovery_setting import check_counted, counting, trial

builder = SparkSession.builder.master("local[4]").config("spark.ui.enabled", "false")
spark = builder.config("spark.stage.maxConsecutiveAttempts", "2").getOrCreate()
flow = fn.Dataflow("borrowed")
flow.source("numbers", fn.rate(None, count=500)).map("A", lambda row: row, key="value").sink("out", fn.memory())
run = flow.run(spark, hosts=2)
print(run.wait(900), run.error, run.output().count())
with trial(counting(12_000), spark, sys.argv[1]) as run:
    run.watch.until_said("report")
    for number in range(1, 3):
        if number % 2:
            run.wait_for("out", 500)
        run.kill(number % 2)
        run.watch.until_said("recovered", number)
    print(*run.end(drain=False), flush=True)
    check_counted(run.rows(), 12_000)
    print(run.audit().serializable, len(run.watch.heard_of("recovering")))
"""


def test_a_local_session_of_two_attempts_made_by_hand_runs_a_flow_and_survives_two_kills(tmp_path: Path) -> None:
    """Its address is the machine's and not 127.0.0.1, and its Python would be whatever python3 the path has.

    Each attempt is a job of its own, so what Spark puts up with does not matter; no row is lost or twice.
    """
    said = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path / "c")],
        cwd=SUPPORT, env=environment(), capture_output=True, text=True, timeout=2 * PATIENCE_S, check=False,
    )  # fmt: skip
    assert said.stdout.split() == ["finished", "500", "finished", "True", "2"], said.stdout + said.stderr[-3000:]
