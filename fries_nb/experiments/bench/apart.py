"""Rivals that run in interpreters of their own: starts them, waits for them and returns their rows per second."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import fries_nb
from fries_nb.experiments.bench.pairs import BenchError, require

RIVALS = "fries_nb.experiments.rivals"
_PATIENCE_S, _LOOK_S = 120.0, 0.05


def plain_loop(source: Path, columns: str) -> float:
    """Rows per second of a plain Python loop doing W1."""
    return _loop("rows", source, "--columns", columns)


def arrow_loop(source: Path, *options: str) -> float:
    """Rows per second of a single-threaded loop over Arrow batches."""
    return _loop("batches", source, *options)


def _loop(loop: str, source: Path, *options: str) -> float:
    with tempfile.TemporaryDirectory(prefix="fries-rival-") as target:
        [measured] = _run([["plain_loops", loop, str(source), f"{target}/out.parquet", *options]])
    return float(measured["rows_per_second"])


def bytewax(source: Path, rows: int, processes: int, columns: str) -> float:
    """Rows per second of bytewax doing W1, from the first batch read to the last file closed, over all processes."""
    return _bytewax("w1", source, rows, processes, columns)


def kafka_loop(servers: str, topic: str) -> float:
    """Rows per second of a bare consumer loop doing W1; see ``rivals/plain_loops.py``."""
    [measured] = _run([["plain_loops", "messages", servers, topic]])
    return float(measured["rows_per_second"])


@contextmanager
def mock_cluster(topics: Mapping[str, int]) -> Iterator[str]:
    """Starts a mock cluster in a process of its own, see ``rivals/mock_cluster.py``; ends it with the block."""
    require("confluent_kafka")
    command = [sys.executable, "-m", f"{RIVALS}.mock_cluster", "1"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            servers: str = json.loads(process.stdout.readline())
            for topic, partitions in topics.items():
                process.stdin.write(json.dumps(["create", topic, partitions]) + "\n")
                process.stdin.flush()
                process.stdout.readline()
            yield servers
        finally:
            process.kill()


def bytewax_windows(source: Path, rows: int, processes: int, windows: str) -> float:
    """Rows per second of bytewax counting the payments of each terminal and minute; see ``bytewax``."""
    return _bytewax("windows", source, rows, processes, windows)


def bytewax_resumed(rate: float, accounts: int, state_bytes: int, seconds: float) -> tuple[list[list[int]], int]:
    """The rows of bytewax that is stopped and resumed with two processes; see ``rivals/bytewax_jobs.py``."""
    # A row is ``[value, number in its account, time in nanoseconds]``; behind the rows is the time of the request.
    require("bytewax")
    numbers = [str(rate), str(accounts), str(state_bytes)]
    with tempfile.TemporaryDirectory(prefix="fries-rival-") as directory:
        recovery = Path(directory, "recovery")
        recovery.mkdir()
        subprocess.run([sys.executable, "-m", "bytewax.recovery", str(recovery), "2"], check=True, capture_output=True)

        def during(run: str, processes: int) -> tuple[list[list[int]], int]:
            addresses = ";".join(f"127.0.0.1:{port}" for port in _free_ports(processes))
            outs = [Path(directory, f"{run}-{number}.out") for number in range(processes)]
            jobs = [["accounts", str(number), addresses, directory, run, *numbers] for number in range(processes)]
            with _writing("bytewax_jobs", jobs, outs):
                _until_written(outs)
                time.sleep(seconds)
                requested_ns = time.time_ns()
                Path(directory, f"stop-{run}").touch()
            lines = [line for out in outs for line in out.read_text().splitlines() if line.startswith("[")]
            return [json.loads(line) for line in lines], requested_ns

        (before, requested_ns), (after, _) = during("before", 1), during("after", 2)
        return before + after, requested_ns


@contextmanager
def _writing(module: str, places: list[list[str]], outs: list[Path]) -> Iterator[None]:
    """Runs a rival for each list of arguments, with its output in a file; waits for all at the end of the block."""
    started = []
    for arguments, out in zip(places, outs, strict=True):
        with out.open("w") as file:
            command = [sys.executable, "-m", f"{RIVALS}.{module}", *arguments]
            started.append(subprocess.Popen(command, stdout=file, stderr=subprocess.DEVNULL))
    try:
        yield
        if codes := [code for process in started if (code := process.wait(_PATIENCE_S))]:
            raise BenchError(f"a rival ended with exit code {codes[0]}")
    finally:
        for process in started:
            process.kill()
            process.wait()


def _until_written(outs: list[Path]) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while not any(out.stat().st_size for out in outs):
        if time.monotonic() > deadline:
            raise BenchError(f"a rival has written nothing within {_PATIENCE_S:g} s")
        time.sleep(_LOOK_S)


def _bytewax(job: str, source: Path, rows: int, processes: int, form: str) -> float:
    with tempfile.TemporaryDirectory(prefix="fries-rival-") as target:
        return rows / _bytewax_seconds("bytewax_jobs", job, processes, str(source), target, "--form", form)


def bytewax_query(query: str, events: Path, target: Path, processes: int) -> float:
    """Seconds of bytewax doing a query of Nexmark, from the first batch read to the last file closed."""
    return _bytewax_seconds("bytewax_nexmark", query, processes, str(events), str(target))


def _bytewax_seconds(module: str, job: str, processes: int, *places: str) -> float:
    require("bytewax")
    addresses = ";".join(f"127.0.0.1:{port}" for port in _free_ports(processes))
    measured = _run([[module, job, str(number), addresses, *places] for number in range(processes)])
    first = min(int(times["first_ns"]) for times in measured)
    last = max(int(times["last_ns"]) for times in measured)
    return (last - first) / 1e9


@contextmanager
def spark_jobs() -> Iterator[Callable[[str, Path], float]]:
    """Starts a process with a plain Spark session of its own; ends it with the block.

    Yields:
        A function that takes a job's name (see ``rivals/spark_jobs.py``) and a Parquet file, runs the job once and
        returns its duration in seconds.
    """
    with _serving(["-m", f"{RIVALS}.spark_jobs"], None) as seconds:
        yield seconds


@contextmanager
def streamed_queries() -> Iterator[Callable[[str, Path], float]]:
    """The same with a query of Nexmark in Structured Streaming, and the directory of its events."""
    with _serving(["-m", f"{RIVALS}.streaming_nexmark"], None) as seconds:
        yield seconds


@contextmanager
def keyed_jobs(commit: str) -> Iterator[Callable[[str, Path], float]]:
    """Starts a process that runs W1 with the version of this package at a commit; ends it with the block."""
    # What it yields takes a number of hosts and a Parquet file, runs W1 once and returns its duration in seconds.
    with _version(commit, "keyed_job") as answer:
        yield lambda job, path: float(answer({"job": job, "path": str(path.resolve())})["seconds"])


@contextmanager
def state_jobs(commit: str) -> Iterator[Callable[[Mapping[str, Any]], dict[str, Any]]]:
    """Starts a process that measures keyed state with the version at a commit; see ``rivals/state_job.py``."""
    with _version(commit, "state_job") as answer:
        yield answer


@contextmanager
def _version(commit: str, program: str) -> Iterator[Callable[[Mapping[str, Any]], dict[str, Any]]]:
    """Starts a program of this version that imports the package as it is at a commit, or this one if there is none."""
    here = Path(fries_nb.__file__).parent.parent
    with tempfile.TemporaryDirectory(prefix="fries-rival-") as place:
        if commit:
            archive = subprocess.run(["git", "-C", str(here), "archive", commit, "fries_nb"], capture_output=True)
            if archive.returncode:
                reason = archive.stderr.decode().strip()
                raise BenchError(f"no version {commit} of fries_nb ({reason}); expected a clone of its repository")
            subprocess.run(["tar", "x", "-C", place], input=archive.stdout, check=True)
        file = Path(__file__).parent.parent / "rivals" / f"{program}.py"
        with _answering([str(file)], Path(place) if commit else here) as answer:
            yield answer


@contextmanager
def _serving(arguments: list[str], package: Path | None) -> Iterator[Callable[[str, Path], float]]:
    """Starts a program that answers each job with its duration in seconds."""
    with _answering(arguments, package) as answer:
        yield lambda job, path: float(answer({"job": job, "path": str(path.resolve())})["seconds"])


@contextmanager
def _answering(arguments: list[str], package: Path | None) -> Iterator[Callable[[Mapping[str, Any]], dict[str, Any]]]:
    """Starts a program that answers each line, a JSON object, with another one."""
    # ``package`` is where it imports us from; it runs there, since Spark's Python workers look in its directory first.
    environment = {**os.environ, "PYTHONPATH": str(package)} if package is not None else None
    with subprocess.Popen(
        [sys.executable, *arguments], env=environment, cwd=package,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    ) as process:  # fmt: skip

        def answer(job: Mapping[str, Any]) -> dict[str, Any]:
            if process.stdin is None or process.stdout is None:
                raise BenchError("the process of a rival has no pipes")
            print(json.dumps(job), file=process.stdin, flush=True)
            line = process.stdout.readline()
            if not line:
                raise BenchError(f"the process of a rival ended during job {job['job']!r}")
            found: dict[str, Any] = json.loads(line)
            return found

        yield answer


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
