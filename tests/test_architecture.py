"""ARCHITECTURE.md lists the files that a tuple and a change really pass, and every file that it names exists.

The road of a tuple on Spark is followed in ``spark/test_road.py``.
"""

from __future__ import annotations

import re

from roads import PACKAGE, PAGE, listed, road_of_a_change, road_of_a_tuple

from fries_nb.dataflow.builder import DataflowBuilder
from fries_nb.dataflow.endpoints import memory, rate
from fries_nb.dataflow.graph import Graph

ROWS = {"S": [{"k": number, "x": number} for number in range(40)]}


def three_operators() -> Graph:
    """A source, a keyed map and a sink, two workers each."""
    flow = DataflowBuilder("road")
    flow.source("S", rate(10)).map("M", lambda row: {**row, "y": 1}, key="k").sink("Z", memory())
    return flow.graph(2)


HANDED_ON = {
    "notebook/magics.py": ".reconfigure(",
    "running/handle.py": "queue.request(",
    "running/region_runner.py": "driver.post(event)",
    "driver/driver.py": "core.take(",
    "transport/control.py": "def send(",
    "host/host.py": "isinstance(message, ToWorker)",
    "host/host_core.py": "Directed(worker, control)",
}
"""The files of the shell on Spark through which a change passes, with what hands it on."""


WITNESS = {"controller/event_log.py", "changes/change_examples.py"}
"""They keep what passes, in words and as values, and hand nothing on."""


def test_a_tuple_passes_the_files_that_are_listed() -> None:
    """No file of the core is handed a tuple that the page does not name, and none that it names is not."""
    road = road_of_a_tuple(three_operators(), ROWS)
    assert road == listed("The road of a tuple")
    assert len(road) <= 10


def test_a_change_passes_the_files_that_are_listed() -> None:
    """From its request to its outcome; those of the shell on Spark are known by the calls that hand it on."""
    road = road_of_a_change(three_operators(), ROWS, {"M": lambda row: {**row, "y": 2}}) - WITNESS
    assert road == listed("The road of a change")
    assert listed("The road of a change", shell=True) == HANDED_ON.keys()
    missing = [file for file, call in HANDED_ON.items() if call not in (PACKAGE / file).read_text()]
    assert missing == []
    assert len(road) <= 14


def test_every_file_that_is_named_exists() -> None:
    """Also those outside the core."""
    named = set(re.findall(r"`([\w/]+\.py)`", PAGE))
    roots = (PACKAGE, PACKAGE.parent)
    assert [name for name in sorted(named) if not any((root / name).exists() for root in roots)] == []


def test_the_page_names_every_room() -> None:
    """A new room is given its place."""
    rooms = {path.parent.name for path in PACKAGE.glob("*/__init__.py")} - {"audit", "workloads", "experiments"}
    assert [room for room in sorted(rooms) if room not in PAGE] == []
