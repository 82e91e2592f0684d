"""The result of a benchmark, with its context (machine, versions, credit bytes), or the error if there is none."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from fries_nb.errors import FriesError
from fries_nb.experiments.bench.pairs import PairedResult, figure

DIRECTORY = Path("bench-results")
VERSIONS_OF = ("pyspark", "pyarrow", "pyzmq", "bytewax", "ipykernel", "ipywidgets")


class BenchError(FriesError):
    """A benchmark that cannot be run, or whose rival failed."""


@dataclass(frozen=True)
class Target:
    """A bound on a figure: at least, or at most, this value."""

    what: str
    got: float
    bound: float
    at_least: bool = True
    unit: str = ""

    @property
    def met(self) -> bool:
        """Whether the figure meets the bound."""
        return self.got >= self.bound if self.at_least else self.got <= self.bound

    def __str__(self) -> str:
        bound = f"{'at least' if self.at_least else 'at most'} {figure(self.bound)}"
        return f"{'met   ' if self.met else 'MISSED'} {self.what}: {figure(self.got)} {self.unit} ({bound})"


@dataclass(frozen=True)
class BenchReport:
    """The results of one benchmark. ``credit_bytes`` is the byte budget of a host; None if no channel was involved."""

    name: str
    scale: float
    pairs: tuple[PairedResult, ...] = ()
    targets: tuple[Target, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)
    credit_bytes: int | None = None

    def as_json(self) -> dict[str, Any]:
        """All fields as JSON values, with the machine and the versions."""
        return {
            "name": self.name,
            "scale": self.scale,
            "at": datetime.now(UTC).isoformat(timespec="seconds"),
            "machine": machine(),
            "versions": versions(),
            "credit_bytes": self.credit_bytes,
            "pairs": [result.as_json() for result in self.pairs],
            "targets": [
                {"what": t.what, "got": t.got, "bound": t.bound, "at_least": t.at_least, "unit": t.unit, "met": t.met}
                for t in self.targets
            ],
            "facts": dict(self.facts),
        }

    def __str__(self) -> str:
        credit = "none" if self.credit_bytes is None else f"{self.credit_bytes:,} a host"
        lines = [f"{self.name} (scale {self.scale:g}; credit bytes: {credit})"]
        lines += [f"  {result}" for result in self.pairs]
        lines += [f"  {name}: {figure(v) if isinstance(v, float) else v}" for name, v in self.facts.items()]
        lines += [f"  {target}" for target in self.targets]
        return "\n".join(lines)


def keep(report: BenchReport, directory: Path = DIRECTORY) -> Path:
    """Write the report as JSON to a new file in ``directory``, and return the file."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{report.name}-{datetime.now(UTC):%Y%m%dT%H%M%S}.json"
    path.write_text(json.dumps(report.as_json(), indent=1) + "\n")
    return path


def machine() -> str:
    """The machine in one line: processor, cores, memory, system, Python."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return (
        f"{_processor()}, {os.cpu_count()} cores, {memory:.0f} GiB, {platform.system()} {platform.release()}, "
        f"Python {platform.python_version()}"
    )


def versions() -> dict[str, str]:
    """The installed versions of the packages that influence the figures."""
    found = {}
    for name in VERSIONS_OF:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "not installed"
    return found


def require(*modules: str) -> None:
    """Check that these modules, of the extra ``bench``, are installed.

    >>> require("json")

    Raises:
        BenchError: one is not installed.
    """
    missing = [module for module in modules if find_spec(module) is None]
    if missing:
        are = "is" if len(missing) == 1 else "are"
        raise BenchError(
            f"{' and '.join(missing)} {are} not installed; expected the extra `bench`: pip install -e '.[bench]'"
        )


def _processor() -> str:
    information = Path("/proc/cpuinfo")
    lines = information.read_text().splitlines() if information.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()
