"""The files through which a tuple, or a change, is handed on: seen from the calls of a seeded run, not from a list."""

from __future__ import annotations

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
from fries_nb.messages import Done, Fcm, Marker, Prepare, Prepared, Reconfigure
from fries_nb.operators.dry_run import DryRun, DryRunResult
from fries_nb.operators.instance import Ready
from fries_nb.operators.rows import Row
from fries_nb.scheduling.stages import Plan
from fries_nb.testing.cluster import Cluster

PACKAGE = Path(fries_nb.__file__).parent
TUPLES = (pa.RecordBatch, Row)
CHANGES = (
    Plan, events.ChangeRequested, events.Outcome, Prepare, Prepared, Reconfigure, Fcm, Marker, Done, DryRun,
    DryRunResult, Ready,
)  # fmt: skip
WRAPPED = ("frame", "batch", "answer", "control", "marker", "action", "order", "outcome")
"""Attributes in which an event or an instruction carries what it is about."""


def carries(value: Any, kinds: tuple[type, ...], depth: int = 3) -> bool:
    """Whether a value is of one of these kinds, or an event or instruction that carries one."""
    if isinstance(value, kinds):
        return True
    inner = (getattr(value, name, None) for name in WRAPPED)
    return depth > 0 and any(carries(one, kinds, depth - 1) for one in inner if one is not None)


@contextmanager
def followed(kinds: tuple[type, ...]) -> Iterator[set[str]]:
    """Collect the files, relative to the package, of all functions that are handed something of these kinds.

    The shell of the seeded run is left out: on Spark others take its place.
    """
    found: set[str] = set()

    def called(frame: FrameType, event: str, _: Any) -> None:
        path = Path(frame.f_code.co_filename)
        if event != "call" or PACKAGE not in path.parents or frame.f_code.co_name.startswith("<"):
            return
        room = path.relative_to(PACKAGE)
        code = frame.f_code
        names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        given = (frame.f_locals.get(name) for name in names if name != "self")
        if room.parts[0] != "testing" and any(carries(one, kinds) for one in given):
            found.add(room.as_posix())

    before = sys.getprofile()
    sys.setprofile(called)
    try:
        yield found
    finally:
        sys.setprofile(before)


def road_of_a_tuple(graph: Graph, rows: Mapping[str, list[dict[str, Any]]]) -> set[str]:
    """Where the tuples of a run go, from its sources to its sinks."""
    cluster = Cluster(graph, rows, seed=1, hosts=2, audit=False)
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
