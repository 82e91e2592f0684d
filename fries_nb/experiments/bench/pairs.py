"""Paired measurements: A B A B ..., so that other load on the machine affects both sides alike.

The result is the ratio of each pair. The median of ratios is more stable than a ratio of medians when the machine
drifts, and the minimum and maximum show how far to trust it.

>>> figures = iter([10.0, 5.0, 12.0, 4.0, 11.0, 5.0])
>>> result = pairs(Side("ours", lambda: next(figures)), Side("theirs", lambda: next(figures)), 3, unit="rows/s")
>>> result.ratio_median, result.ratio_min, result.ratio_max
(2.2, 2.0, 3.0)
>>> print(result)
ours 11 rows/s, theirs 5 rows/s: ratio 2.20 (2.00 to 3.00, 3 pairs)

The result of a benchmark, with its context (machine, versions, credit bytes), or the error if there is none.
"""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

from fries_nb.errors import FriesError


@dataclass(frozen=True)
class Side:
    """One of two sides that are compared: ``measure`` runs it once and returns its figure."""

    name: str
    measure: Callable[[], float]


@dataclass(frozen=True)
class PairedResult:
    """The figures of both sides in the order of measurement, in ``unit``."""

    a: str
    b: str
    unit: str
    a_figures: tuple[float, ...]
    b_figures: tuple[float, ...]

    @property
    def ratios(self) -> tuple[float, ...]:
        """``a`` over ``b`` for each pair."""
        if 0 in self.b_figures:
            raise ValueError(f"{self.b}: got 0 {self.unit}, expected more; measure for longer (a larger scale)")
        return tuple(ours / theirs for ours, theirs in zip(self.a_figures, self.b_figures, strict=True))

    @property
    def a_median(self) -> float:
        """The median figure of ``a``."""
        return median(self.a_figures)

    @property
    def b_median(self) -> float:
        """The median figure of ``b``."""
        return median(self.b_figures)

    @property
    def ratio_median(self) -> float:
        """The median of the ratios."""
        return median(self.ratios)

    @property
    def ratio_min(self) -> float:
        """The least ratio of a pair."""
        return min(self.ratios)

    @property
    def ratio_max(self) -> float:
        """The greatest ratio of a pair."""
        return max(self.ratios)

    def as_json(self) -> dict[str, Any]:
        """All fields and statistics as JSON values."""
        return {
            "a": {"name": self.a, "figures": self.a_figures, "median": self.a_median},
            "b": {"name": self.b, "figures": self.b_figures, "median": self.b_median},
            "unit": self.unit,
            "ratio": {"median": self.ratio_median, "min": self.ratio_min, "max": self.ratio_max},
        }

    def __str__(self) -> str:
        return (
            f"{self.a} {figure(self.a_median)} {self.unit}, {self.b} {figure(self.b_median)} {self.unit}: "
            f"ratio {self.ratio_median:.2f} ({self.ratio_min:.2f} to {self.ratio_max:.2f}, {len(self.ratios)} pairs)"
        )


def pairs(a: Side, b: Side, n: int, unit: str) -> PairedResult:
    """The figures of both sides, measured in turn, with ratios ``a`` over ``b``."""
    if n < 1:
        raise ValueError(f"pairs: got n={n}, expected at least one pair")
    figures = [(a.measure(), b.measure()) for _ in range(n)]
    ours, theirs = zip(*figures, strict=True)
    return PairedResult(a.name, b.name, unit, tuple(ours), tuple(theirs))


def figure(value: float) -> str:
    """A figure as text: three significant digits, or thousands separators if it is large.

    >>> figure(1234567.8), figure(3.14159), figure(0.00123)
    ('1,234,568', '3.14', '0.00123')
    """
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


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
