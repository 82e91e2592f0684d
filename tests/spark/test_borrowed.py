"""A session that the user made by hand, in a process of its own: nothing of it is as ours would be."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from borrowed_setting import environment
from patience import PATIENCE_S

SCRIPT = """
from pyspark.sql import SparkSession
import fries_nb as fn

spark = SparkSession.builder.master("local[4]").config("spark.ui.enabled", "false").getOrCreate()
flow = fn.Dataflow("borrowed")
flow.source("numbers", fn.rate(None, count=500)).map("A", lambda row: row, key="value").sink("out", fn.memory())
run = flow.run(spark, hosts=2)
print(run.wait(900), run.error, run.output().count())
"""


def test_a_local_session_made_by_hand_runs_a_flow(tmp_path: Path) -> None:
    """Its address is the machine's and not 127.0.0.1, and its Python would be whatever python3 the path has."""
    script = tmp_path / "borrowed.py"
    script.write_text(SCRIPT)
    said = subprocess.run(
        [sys.executable, str(script)],
        env=environment(), capture_output=True, text=True, timeout=PATIENCE_S, check=False,
    )  # fmt: skip
    assert said.stdout.split() == ["finished", "500"], said.stdout + said.stderr
