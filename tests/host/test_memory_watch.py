"""What a host knows of its memory: of its container or its machine, and when it says that little is left."""

from __future__ import annotations

from pathlib import Path

import pytest

from fries_nb.host.memory_watch import LOW, Memory, MemoryWatch, low_words, memory_now

MACHINE = "MemTotal:       1000 kB\nMemFree:         10 kB\nMemAvailable:    400 kB\n"


def told(path: Path, machine: str = MACHINE, **files: str) -> Memory | None:
    """What is known with these files."""
    (path / "meminfo").write_text(machine)
    for name, text in files.items():
        (path / name.replace("_", ".", 1)).write_text(text)
    return memory_now(path, path / "meminfo")


def test_a_container_counts_if_it_has_a_limit(tmp_path: Path) -> None:
    """Its files that could be dropped count as left; a container that has more than the machine is no limit."""
    machine = Memory(400 << 10, 1000 << 10)
    assert told(tmp_path) == machine
    files = {"memory_current": "90000", "memory_stat": "anon 5\ninactive_file 4000\n"}
    assert told(tmp_path, memory_max="max", **files) == machine
    assert told(tmp_path, memory_max="100000", **files) == Memory(14_000, 100_000)
    assert told(tmp_path, memory_max="99999999", **files) == machine


@pytest.mark.parametrize("machine", ["", "MemTotal: 7 kB\n", "MemTotal: ?\nMemAvailable: ?\n", "MemAvailable:\n"])
def test_a_system_that_tells_nothing_is_not_watched(machine: str, tmp_path: Path) -> None:
    """As on macOS."""
    assert told(tmp_path, machine) is None
    assert memory_now(tmp_path, tmp_path / "none") is None
    assert MemoryWatch(lambda: None).look() is None


def test_it_is_said_once_at_each_half_of_what_is_left() -> None:
    """And not for ever: a host that lives with little is not to print all day."""
    left = [1_000, 99, 98, 51, 49, 49, 20, 3, 1, 0, 0, 0]
    watch = MemoryWatch(iter([Memory(one, 1_000) for one in left]).__next__)
    assert [one.left for _ in left if (one := watch.look()) is not None] == [99, 49, 20, 3]
    assert LOW == 0.1


def test_operators_are_named_with_most_keys_first() -> None:
    """Three of them; without states as well it is said."""
    words = low_words(0, Memory(1, 10), {"A": 1, "B": 5, "C": 3, "D": 2})
    assert "5 keys of 'B', 3 keys of 'C', 2 keys of 'D';" in words
    assert "no operator keeps states" in low_words(0, Memory(1, 10), {"A": 0})
