"""The memory of this machine or container, and the heap size of an embedded Spark.

>>> heap_mib(2 << 30), heap_mib(8 << 30), heap_mib(64 << 30)
(512, 1024, 2048)
>>> shortage(MachineMemory(2 << 30, 1 << 30), hosts=2)
''
>>> shortage(MachineMemory(2 << 30, 300 << 20), hosts=2)
'Spark and 2 hosts take about 1.0 GiB, and 0.3 of 2.0 GiB of memory are free here: the system may end this process or
Spark; shut down the kernels of other notebooks first, or take fewer hosts'
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

_GIB = 1 << 30
_LEAST_HEAP, _MOST_HEAP = 512, 2048  # MiB; Spark refuses to start with less than 450
_BESIDE_HEAP = 130 << 20  # Java's memory besides the heap, with our settings: classes, compiled code, threads
_HOST = 172 << 20  # memory of an idle host, as measured by `python -m fries_nb bench rest`
# Files of a container's control group, version 2, then 1: the limit, the used bytes, and the field of ``memory.stat``
# with the part of them that is released on demand.
_GROUPS = (
    ("memory.max", "memory.current", "inactive_file "),
    ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes", "total_inactive_file "),
)


@dataclass(frozen=True)
class MachineMemory:
    """Memory of the container or machine in bytes: the total, and the free part."""

    limit: int
    free: int


def memory(groups: Path = Path("/sys/fs/cgroup"), machine: Path = Path("/proc/meminfo")) -> MachineMemory | None:
    """The container's memory if it has a limit, else the machine's; ``None`` if the system does not report it."""
    if not machine.exists():
        return None
    facts = dict(line.split(":", 1) for line in machine.read_text().splitlines() if ":" in line)
    whole = MachineMemory(*(int(facts[name].split()[0]) << 10 for name in ("MemTotal", "MemAvailable")))
    for limit_file, used_file, given_back in _GROUPS:
        limit = _number(groups / limit_file)
        if 0 < limit < whole.limit:
            statistics = (groups / used_file).with_name("memory.stat")
            lines = statistics.read_text().splitlines() if statistics.exists() else []
            cached = sum(int(line.split()[1]) for line in lines if line.startswith(given_back))
            return MachineMemory(limit, min(limit - _number(groups / used_file) + cached, whole.free))
    return whole


def heap_mib(limit: int) -> int:
    """The heap size in MiB for the Java of an embedded Spark: an eighth of this many bytes, within bounds."""
    return min(max(limit // 8 >> 20, _LEAST_HEAP), _MOST_HEAP)


def shortage(found: MachineMemory, hosts: int) -> str:
    """A sentence with the numbers if there is too little free memory for a Spark with this many hosts; else empty."""
    needed = (_LEAST_HEAP << 20) + _BESIDE_HEAP + hosts * _HOST
    if found.free >= needed:
        return ""
    return (
        f"Spark and {hosts} hosts take about {needed / _GIB:.1f} GiB, and {found.free / _GIB:.1f} of "
        f"{found.limit / _GIB:.1f} GiB of memory are free here: the system may end this process or Spark; "
        "shut down the kernels of other notebooks first, or take fewer hosts"
    )


def _number(file: Path) -> int:
    """The number in a file; 0 if there is none (``max``)."""
    text = file.read_text().strip() if file.exists() and os.access(file, os.R_OK) else ""
    return int(text) if text.isdigit() else 0
