"""When and where something ran."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version

from fries_nb.report.markup import counted


@dataclass(frozen=True)
class Place:
    """When and where something ran: ``hosts`` Spark tasks, with ``budget`` bytes of credit each."""

    began_s: float
    hosts: int
    budget: int

    def in_words(self) -> str:
        """One line with the versions of what it ran on."""
        software = f"Python {platform.python_version()}, PySpark {version('pyspark')}, fries_nb {version('fries_nb')}"
        machine = f"{platform.system()} {platform.machine()} with {counted(os.cpu_count() or 1, 'core')}"
        credit = f"{self.budget / (1 << 20):,.3g} MiB of credit a host"
        began = f"Begun {datetime.fromtimestamp(self.began_s, UTC):%Y-%m-%d %H:%M:%S} UTC"
        return f"{began} · {counted(self.hosts, 'host')}, {credit} · {software} · {machine}"
