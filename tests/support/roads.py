"""The files through which a tuple, or a change, is handed on: seen from the calls of a seeded run, not from a list."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pyarrow as pa

import fries_nb
from fries_nb.controller import events
from fries_nb.dataflow.graph import Graph
from fries_nb.operators.dry_run import DryRun, DryRunResult
from fries_nb.operators.instance import Ready
from fries_nb.operators.rows import Row
from fries_nb.planning.schedulers import Plan
from fries_nb.protocol.messages import Done, Fcm, Marker, Prepare, Prepared, Reconfigure
from fries_nb.simulation.cluster import Cluster

PACKAGE = Path(fries_nb.__file__).parent
PAGE = (PACKAGE.parent / "ARCHITECTURE.md").read_text()
TUPLES = (pa.RecordBatch, Row)
CHANGES = (
    Plan, events.ChangeRequested, events.Outcome, Prepare, Prepared, Reconfigure, Fcm, Marker, Done, DryRun,
    DryRunResult, Ready,
)  # fmt: skip
WRAPPED = ("frame", "batch", "answer", "control", "marker", "action", "order", "outcome")
"""Attributes in which an event or an instruction carries what it is about."""


def listed(title: str, shell: bool = False) -> set[str]:
    """The files in the table of a section: the shared ones, or those in brackets, of the shell on Spark."""
    section = PAGE.split(f"## {title}\n")[1].split("\n## ")[0]
    name = r"\(`([\w/]+\.py)`\)" if shell else r"`([\w/]+\.py)`"
    return set(re.findall(rf"^\| {name} \|", section, flags=re.MULTILINE))


def carries(value: Any, kinds: tuple[type, ...], depth: int = 3) -> bool:
    """Whether a value is of one of these kinds, a list of them, or an event or instruction with one."""
    if isinstance(value, kinds):
        return True
    if type(value) is list:
        return bool(value) and carries(value[0], kinds, depth)
    if not type(value).__module__.startswith("fries_nb."):
        return False
    inner = (getattr(value, name, None) for name in WRAPPED)
    return depth > 0 and any(carries(one, kinds, depth - 1) for one in inner if one is not None)


class FilesPassed:
    """Collects the files, relative to the package, of all functions that are handed something of these kinds.

    Used as Python's profiling function. The shell of the seeded run is left out: on Spark others take its place.
    """

    def __init__(self, kinds: tuple[type, ...]) -> None:
        self.kinds = kinds
        self.found: set[str] = set()
        self._files: dict[str, str] = {}

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event != "call" or code.co_name.startswith("<"):
            return
        file = self._files.get(code.co_filename)
        if file is None:  # a path is looked at once, since hosts make many calls
            file = self._files[code.co_filename] = self._file_of(Path(code.co_filename))
        if file and file not in self.found:
            names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
            if any(carries(frame.f_locals.get(name), self.kinds) for name in names if name != "self"):
                self.found.add(file)

    def _file_of(self, path: Path) -> str:
        """A file of the package, relative to it; empty for other files."""
        if PACKAGE not in path.parents:
            return ""
        file = path.relative_to(PACKAGE)
        return "" if file.parts[0] == "simulation" else file.as_posix()


@contextmanager
def followed(kinds: tuple[type, ...]) -> Iterator[set[str]]:
    """The files that something of these kinds passes in this thread; see ``FilesPassed``."""
    before, files = sys.getprofile(), FilesPassed(kinds)
    sys.setprofile(files)
    try:
        yield files.found
    finally:
        sys.setprofile(before)


def road_of_a_tuple(graph: Graph, rows: Mapping[str, list[dict[str, Any]]]) -> set[str]:
    """Where the tuples of a run go, from its sources to its sinks."""
    cluster = Cluster(graph, rows, seed=1, hosts=2, audit=False, identities=True)
    with followed(TUPLES) as found:
        cluster.run()
    return found


def road_of_a_change(
    graph: Graph, rows: Mapping[str, list[dict[str, Any]]], change: Mapping[str, Callable[..., Any]]
) -> set[str]:
    """Where a change goes, from its request to its outcome, while tuples flow."""
    cluster = Cluster(graph, rows, seed=1, hosts=2, audit=False)
    cluster.steps(30)
    with followed(CHANGES) as found:
        name = cluster.request(change)
        cluster.until(lambda: name in cluster.outcomes)
    assert cluster.outcomes[name].outcome == "done"
    return found
