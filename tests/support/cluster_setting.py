"""Clusters of Spark on this machine: ``local-cluster``, and a standalone master with its workers as processes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark
from patience import PATIENCE_S

import fries_nb as fn
from fries_nb.spark.session import java_home

PACKAGE = str(Path(fn.__file__).parent.parent)
SUPPORT = Path(__file__).parent

BARE = """import sys
sys.meta_path[:] = [one for one in sys.meta_path if "fries_nb" not in getattr(one, "__module__", "")]
"""
"""As ``sitecustomize``: of what is installed, fries_nb is hidden, as it is from executors that have all but that."""


def spark_home(path: Path) -> Path:
    """Where a cluster on this machine finds Spark, and leaves its executors' directories: not beside the package."""
    path.mkdir()
    for name in ("bin", "jars", "sbin", "python"):
        (path / name).symlink_to(Path(pyspark.__file__).parent / name)
    return path


def environment(path: Path) -> dict[str, str]:
    """The environment of a driver of such a cluster, which keeps its files below this path."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYSPARK")}
    return kept | {
        "JAVA_HOME": str(java_home(os.environ)),
        "SPARK_HOME": str(spark_home(path / "spark")),
        "PYSPARK_PYTHON": sys.executable,
        "FRIES_SCRATCH": str(path),
    }


def driven(script: str, *arguments: str, path: Path, environment: dict[str, str]) -> str:
    """What a driver with this script prints."""
    said = subprocess.run(
        [sys.executable, "-c", script, *arguments],
        cwd=path, env=environment | {"PYTHONPATH": PACKAGE}, capture_output=True, text=True, timeout=1800, check=False,
    )  # fmt: skip
    assert said.returncode == 0, said.stdout + said.stderr[-3000:]
    return said.stdout


@contextmanager
def standalone(path: Path, environment: dict[str, str], workers: int = 2) -> Iterator[str]:
    """A standalone master on loopback, with its workers, each of four cores; yields its URL."""
    bare = {name: value for name, value in environment.items() if name != "PYTHONPATH"}
    daemon = str(Path(environment["SPARK_HOME"]) / "bin" / "spark-class")
    started: list[subprocess.Popen[str]] = []

    def start(kind: str, *arguments: str) -> str:
        """Start a daemon; the URL of the master that it tells of."""
        process = subprocess.Popen(
            [daemon, f"org.apache.spark.deploy.{kind}", "--host", "127.0.0.1", "--webui-port", "0", *arguments],
            cwd=path, env=bare | {"SPARK_DAEMON_MEMORY": "256m"}, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        started.append(process)
        assert process.stderr is not None
        timer = threading.Timer(PATIENCE_S, process.kill)
        timer.start()
        for line in process.stderr:
            if found := re.search(r"(?:Starting Spark master at|registered with master) (spark://[\w.:]+)", line):
                timer.cancel()
                threading.Thread(target=process.stderr.read, daemon=True).start()  # so that it never blocks
                return found[1]
        raise AssertionError(f"{kind} did not start")

    try:
        master = start("master.Master", "--port", "0")
        for number in range(workers):
            start("worker.Worker", "--cores", "4", "--memory", "1g", "--work-dir", str(path / f"w{number}"), master)
        yield master
    finally:
        for process in reversed(started):
            process.kill()
            process.wait()
