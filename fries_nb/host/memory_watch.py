"""Whether a host nears the end of its memory, which ends its process without a word; said before, with what takes most.

What counts is the container's limit (cgroup v2), if there is one, and otherwise what the machine has left for all.

>>> left = iter([HostMemory(900, 1_000), HostMemory(80, 1_000), HostMemory(70, 1_000), HostMemory(30, 1_000)])
>>> watch = MemoryWatch(lambda: next(left))
>>> [watch.look() for _ in range(4)]        # said when a tenth is left, and again at each half of that
[None, HostMemory(left=80, total=1000), None, HostMemory(left=30, total=1000)]
>>> low_words(1, HostMemory(80_000_000, 1_000_000_000), {"FM": 1_200_000, "W": 30, "out": 0})
"host 1 has 80 of 1,000 MB of memory left; states are kept of 1,200,000 keys of 'FM', 30 keys of 'W'; ..."
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

LOW = 0.1
"""Share of the memory that is left, below which a host says so."""
LEAST = LOW / 32
"""Share below which it does not say so again."""
_TOLD = 3
"""Number of operators that are named."""
_CONTAINER = Path("/sys/fs/cgroup")


class HostMemory(NamedTuple):
    """The memory of a host, in bytes: what is left, and all."""

    left: int
    total: int


def memory_now(container: Path = _CONTAINER, machine: Path = Path("/proc/meminfo")) -> HostMemory | None:
    """The memory of this container, or of the machine; ``None`` where the system does not tell.

    Of what a container has, files that the system only keeps in memory count as left.
    """
    try:
        fields = dict(line.split(":", 1) for line in machine.read_text().splitlines() if ":" in line)
        whole = HostMemory(*(int(fields[name].split()[0]) << 10 for name in ("MemAvailable", "MemTotal")))
    except (OSError, ValueError, KeyError, IndexError):
        return None
    try:
        limit = int((container / "memory.max").read_text())
        used = int((container / "memory.current").read_text())
        pages = dict(line.split() for line in (container / "memory.stat").read_text().splitlines())
        own = HostMemory(limit - used + int(pages["inactive_file"]), limit)
    except (OSError, ValueError, KeyError):  # no container, or one without a limit ("max")
        return whole
    return min(own, whole)


class MemoryWatch:
    """Looks at the memory of a host now and then.

    Args:
        now: returns what it has, or ``None`` if that is not known.
    """

    def __init__(self, now: Callable[[], HostMemory | None] = memory_now) -> None:
        self._now = now
        self._told_at = LOW

    def look(self) -> HostMemory | None:
        """What is left, if it is little and has not been said yet."""
        memory = self._now()
        if memory is None or memory.left >= self._told_at * memory.total or self._told_at < LEAST:
            return None
        while memory.left < self._told_at * memory.total and self._told_at >= LEAST:
            self._told_at /= 2
        return memory


def low_words(host: int, memory: HostMemory, keys: Mapping[str, int]) -> str:
    """The sentence for a host with little memory; ``keys`` has the number of keys of each operator there."""
    most = sorted((name for name in keys if keys[name]), key=lambda name: -keys[name])[:_TOLD]
    kept = ", ".join(f"{keys[name]:,} keys of {name!r}" for name in most)
    left = f"host {host} has {memory.left / 1e6:,.0f} of {memory.total / 1e6:,.0f} MB of memory left"
    advice = "run.state_sizes() measures states; state_bytes= of flow.run moves some to disk, more hosts take less each"
    return f"{left}; {f'states are kept of {kept}' if kept else 'no operator keeps states'}; {advice}"
