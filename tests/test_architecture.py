"""ARCHITECTURE.md lists the files that a tuple and a change really pass, and every file that it names exists."""

from __future__ import annotations

import re
from pathlib import Path

from roads import PACKAGE, road_of_a_change, road_of_a_tuple

from fries_nb.dataflow.builder import DataflowBuilder
from fries_nb.dataflow.endpoints import memory, rate
from fries_nb.dataflow.graph import Graph

PAGE = (Path(__file__).parent.parent / "ARCHITECTURE.md").read_text()
ROWS = {"S": [{"k": number, "x": number} for number in range(40)]}


def three_operators() -> Graph:
    """A source, a keyed map and a sink, two workers each."""
    flow = DataflowBuilder("road")
    flow.source("S", rate(10)).map("M", lambda row: {**row, "y": 1}, key="k").sink("Z", memory())
    return flow.graph(2)


def listed(title: str) -> set[str]:
    """The files in the table of a section."""
    section = PAGE.split(f"## {title}\n")[1].split("\n## ")[0]
    return set(re.findall(r"^\| `([\w/]+\.py)` \|", section, flags=re.MULTILINE))


def test_a_tuple_passes_the_files_that_are_listed() -> None:
    """No file of the core is handed a tuple that the page does not name, and none that it names is not."""
    road = road_of_a_tuple(three_operators(), ROWS)
    assert road == listed("The road of a tuple")
    assert len(road) <= 10


def test_a_change_passes_the_files_that_are_listed() -> None:
    """From its request at the controller to its outcome."""
    road = road_of_a_change(three_operators(), ROWS, {"M": lambda row: {**row, "y": 2}})
    assert road == listed("The road of a change")
    assert len(road) <= 20


def test_every_file_that_is_named_exists() -> None:
    """Also those outside the core."""
    named = set(re.findall(r"`([\w/]+\.py)`", PAGE))
    roots = (PACKAGE, PACKAGE.parent)
    assert [name for name in sorted(named) if not any((root / name).exists() for root in roots)] == []


def test_the_page_names_every_room() -> None:
    """A new room is given its place."""
    rooms = {path.parent.name for path in PACKAGE.glob("*/__init__.py")} - {"audit", "workloads", "experiments"}
    assert [room for room in sorted(rooms) if room not in PAGE] == []
