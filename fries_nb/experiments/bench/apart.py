"""Rivals that run in interpreters of their own: starts them, waits for them and returns their rows per second."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fries_nb.experiments.bench.results import BenchError, require

RIVALS = "fries_nb.experiments.bench.rivals"


def plain_loop(source: Path, columns: str) -> float:
    """Rows per second of a plain Python loop doing W1.

    Args:
        source: a Parquet file of payments.
        columns: the loop's form, ``used`` or ``all``; see ``rivals/plain_loop.py``.
    """
    with tempfile.TemporaryDirectory(prefix="fries-rival-") as target:
        [said] = _run([["plain_loop", str(source), f"{target}/scored.parquet", "--columns", columns]])
    return float(said["rows_per_second"])


def bytewax(source: Path, rows: int, processes: int, columns: str) -> float:
    """Rows per second of bytewax doing W1, from the first batch read to the last file closed, over all processes.

    Args:
        source: a Parquet file of payments.
        rows: the number of its rows.
        processes: number of bytewax processes.
        columns: the dataflow's form, ``used`` or ``all``; see ``rivals/bytewax_w1.py``.

    Raises:
        BenchError: bytewax is not installed, or failed.
    """
    return _bytewax("bytewax_w1", source, rows, processes, "--columns", columns)


def bytewax_windows(source: Path, rows: int, processes: int, windows: str) -> float:
    """Rows per second of bytewax counting the payments of each terminal and minute; see ``bytewax``.

    Args:
        source: a Parquet file of payments.
        rows: the number of its rows.
        processes: number of bytewax processes.
        windows: the form, ``own`` or ``by-hand``; see ``rivals/bytewax_windows.py``.
    """
    return _bytewax("bytewax_windows", source, rows, processes, "--windows", windows)


def _bytewax(module: str, source: Path, rows: int, processes: int, *options: str) -> float:
    require("bytewax")
    addresses = ";".join(f"127.0.0.1:{port}" for port in _free_ports(processes))
    with tempfile.TemporaryDirectory(prefix="fries-rival-") as target:
        said = _run([[module, str(source), target, str(number), addresses, *options] for number in range(processes)])
    first = min(int(times["first_ns"]) for times in said)
    last = max(int(times["last_ns"]) for times in said)
    return rows / ((last - first) / 1e9)


@contextmanager
def spark_jobs() -> Iterator[Callable[[str, Path], float]]:
    """Starts a process with a plain Spark session of its own; ends it with the block.

    Yields:
        A function that takes a job's name (see ``rivals/spark_maps.py``) and a Parquet file, runs the job once and
        returns its duration in seconds.
    """
    with subprocess.Popen(
        [sys.executable, "-m", f"{RIVALS}.spark_maps"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    ) as process:  # fmt: skip

        def seconds(job: str, path: Path) -> float:
            if process.stdin is None or process.stdout is None:
                raise BenchError("Spark's rival process has no pipes")
            print(json.dumps({"job": job, "path": str(path.resolve())}), file=process.stdin, flush=True)
            answer = process.stdout.readline()
            if not answer:
                raise BenchError(f"Spark's rival process ended during job {job!r}")
            return float(json.loads(answer)["seconds"])

        yield seconds


def _run(commands: list[list[str]]) -> list[dict[str, Any]]:
    """Runs all commands concurrently; returns for each the JSON objects that it printed, merged."""
    started = [
        subprocess.Popen(
            [sys.executable, "-m", f"{RIVALS}.{module}", *arguments],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for module, *arguments in commands
    ]  # fmt: skip
    found = []
    for process in started:
        out, err = process.communicate()
        if process.returncode:
            raise BenchError(f"a rival ended with exit code {process.returncode}: {err.strip().splitlines()[-1:]}")
        lines = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
        found.append({key: value for line in lines for key, value in line.items()})
    return found


def _free_ports(count: int) -> list[int]:
    """Distinct TCP ports that are free at this moment."""
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [int(server.getsockname()[1]) for server in held]
    for server in held:
        server.close()
    return ports
