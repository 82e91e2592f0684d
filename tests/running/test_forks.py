"""The sinks of a fork: all that write are named, each once, and none where the origin writes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import fries_nb as fn
from fries_nb.errors import CheckpointError, DataflowError
from fries_nb.running.forks import outlets, with_sinks

ORIGIN = "/checkpoints/origin"


class Lines:
    """A sink of the user's."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __repr__(self) -> str:
        return f"Lines({self.path!r})"

    def claim(self, flow: str, run: str) -> None: ...
    def open(self, writer_id: str) -> Any: ...
    def prepare(self, parts: Any) -> None: ...
    def commit(self, number: int, parts: Any) -> None: ...


class Sum:
    """The sum of a window."""

    def process(self, row: dict[str, Any], state: dict[str, int]) -> None: ...
    def close(self, key: int, time: int, state: dict[str, int]) -> dict[str, Any]:
        return {"key": key}


def declared(late: Any, out: Any, dead: Any) -> fn.Dataflow:
    """A dataflow with a sink, a window with late rows, and dead letters."""
    flow = fn.Dataflow("sinks")
    rows = flow.source("S", fn.rate(10), time="value", late=1).map("FM", dict, on_error=dead)
    rows.window("W", Sum(), fn.tumbling(10), key="value", late=late).sink("out", out)
    return flow


def test_all_that_write_are_outlets() -> None:
    """Sinks, those of late rows, and dead letters."""
    graph = declared(fn.memory(), fn.parquet("/a"), fn.parquet("/b")).graph()
    assert outlets(graph) == {"FM": fn.parquet("/b"), "W.late": fn.memory(), "out": fn.parquet("/a")}
    own = {"FM": fn.memory(), "W.late": fn.parquet("/c"), "out": Lines("/a")}
    forked = with_sinks(graph, own, ORIGIN)
    assert outlets(forked) == own
    assert [one.name for one in forked.operators] == [one.name for one in graph.operators]
    assert forked.edges == graph.edges


GIVEN = {"FM": fn.memory(), "W.late": fn.memory(), "out": fn.memory()}
KAFKA = fn.kafka("one:1, two:2", "topic")


@pytest.mark.parametrize(
    ("out", "sinks", "said"),
    [
        (fn.memory(), None, r"^sinks=None; expected sinks=\{'FM': fn.memory\(\), 'W.late'"),
        (fn.memory(), {}, r"^sinks= lacks 'FM' \(its dead letters\), 'W.late', 'out'; .*: expected sinks=\{'FM'"),
        (fn.memory(), GIVEN | {"ou": fn.memory()}, r"^sinks= is wrong: no sink 'ou'; .*did you mean 'out'"),
        (fn.memory(), GIVEN | {"FM": "fail"}, r"^sinks= has 'FM': 'fail'; expected a sink"),
        (fn.memory(), GIVEN | {"FM": fn.parquet("/b/../b")}, "to which 'FM' of the origin writes; expected another"),
        (fn.memory(), GIVEN | {"out": fn.delta("/b")}, "to which 'FM' of the origin writes; expected another"),
        (fn.memory(), GIVEN | {"out": fn.parquet(f"{ORIGIN}/sinks/x")}, "in the directory of the origin, /checkpoints"),
        (fn.table("a.T"), GIVEN | {"out": fn.table("A.t")}, "to which 'out' of the origin writes"),
        (KAFKA, GIVEN | {"out": fn.kafka("two:2", "topic")}, "to which 'out' of the origin writes"),
        (Lines("/a"), GIVEN | {"out": Lines("/a")}, "to which 'out' of the origin writes"),
    ],
)
def test_a_mistake_is_one_sentence(out: Any, sinks: Any, said: str) -> None:
    """It names what is missing, unknown, or the origin's."""
    with pytest.raises(DataflowError, match=said):
        with_sinks(declared(fn.memory(), out, fn.parquet("/b")).graph(), sinks, ORIGIN)


def test_other_targets_are_accepted() -> None:
    """Another topic, or one of another cluster; rows in memory are of a run."""
    graph = declared(fn.memory(), KAFKA, fn.parquet("/b")).graph()
    for out in (fn.kafka("two:2", "other"), fn.kafka("three:3", "topic"), fn.table("t"), Lines("/a"), fn.memory()):
        assert outlets(with_sinks(graph, GIVEN | {"out": out}, ORIGIN))["out"] == out


def test_an_origin_that_is_none_is_refused_before_spark_starts(tmp_path: Path) -> None:
    """By its path, or what was given for it."""
    flow = declared(fn.memory(), fn.memory(), fn.memory())
    with pytest.raises(CheckpointError, match="holds no checkpoint"):
        flow.fork(tmp_path, GIVEN)
    with pytest.raises(CheckpointError, match="expected its path or URI, got 7"):
        flow.fork(7, GIVEN)  # type: ignore[arg-type]
