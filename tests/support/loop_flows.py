"""Loops declared with the public API, for tests on real Spark; what comes out of them in plain Python.

The functions are those of ``fries_nb.simulation.drawn_flows``: how many rounds a row makes depends on its values alone.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import fries_nb as fn
from fries_nb.dataflow.graph import Graph, Partitioning
from fries_nb.dataflow.streams import Stream
from fries_nb.simulation.drawn_flows import Advance, Amplify, CountRows, Enter, LoopFlow, Route, name_of, reference

Row = dict[str, Any]
KEYS = 7


def numbered(value: int) -> Row:
    """The columns of a source row."""
    return {"id": value, "path": str(value), "k": value % KEYS}


def looped(rows: Stream, name: str, most: int, inner: Callable[[Stream], Stream] | None = None, **head: Any) -> Stream:
    """Declare a loop in which each row makes its rounds, some become two, and keyed state counts them.

    Args:
        rows: the rows that enter.
        name: name of the head; the operators of the body end with it.
        most: maximum number of further rounds.
        inner: declares inner loops.
        **head: options of ``iterate``.
    """

    def body(again: Stream) -> tuple[Stream, ...]:
        again = again.map(f"B{name}", Advance(name)).flat_map(f"A{name}", Amplify(name))
        again = inner(again) if inner is not None else again
        return again.map(f"K{name}", CountRows(name), key="k").split(f"R{name}", Route(name, most))

    return rows.map(f"E{name}", Enter(name)).iterate(name, body, **head)  # type: ignore[arg-type]


def nested(rows: Stream) -> Stream:
    """A loop, in it two in sequence, in the first of them another one."""
    deep = lambda inside: looped(inside, "N2", 1)  # noqa: E731
    return looped(rows, "L", 2, lambda inside: looped(looped(inside, "N1", 1, deep), "N3", 2))


def loop_dataflow(shape: Callable[[Stream], Stream], count: int) -> fn.Dataflow:
    """``count`` rows through loops of this shape, as fast as they can."""
    flow = fn.Dataflow("loops")
    shape(flow.source("S", fn.rate(None, count=count, row=numbered))).sink("Z", fn.memory())
    return flow


def with_hashed_feedback(graph: Graph) -> Graph:
    """The same graph, whose feedback edges partition rows by key among the workers of the head."""
    edges = (
        replace(edge, partitioning=Partitioning.HASH, key=("k",)) if edge.feedback else edge for edge in graph.edges
    )
    return Graph(graph.name, graph.operators, tuple(edges))


def expected(graph: Graph, count: int) -> dict[str, Counter[str]]:
    """The rows that every operator takes, computed in plain Python."""
    flow = LoopFlow(list(graph.operators), list(graph.edges))
    return reference(flow, {"S": [{"value": value} | numbered(value) for value in range(count)]})


def named(rows: Iterable[Row]) -> Counter[str]:
    """Rows of the output as ``expected`` names them: without the columns that a row of another loop has."""
    return Counter(
        name_of({name: value for name, value in row.items() if name != "timestamp" and value is not None})
        for row in rows
    )


# ---- rows that go round until they are let out


@dataclass
class Pad:
    """Makes ``times`` rows of one, of ``size`` bytes and more."""

    times: int
    size: int

    def __call__(self, row: Row) -> list[Row]:
        """The rows, numbered."""
        numbers = range(row["value"] * self.times, (row["value"] + 1) * self.times)
        return [{"id": number, "k": number % KEYS, "met": 0, "pad": f"{number:{self.size}}"} for number in numbers]


class Meet:
    """Counts how often rows of a key have passed: in the row for itself, and in the state for all."""

    def initial_state(self) -> dict[str, int]:
        """Of a key without rows."""
        return {"met": 0}

    def process(self, row: Row, state: dict[str, int]) -> Row:
        """The row, with both counts."""
        state["met"] += 1
        return row | {"met": row["met"] + 1, "all": state["met"]}


@dataclass
class Until:
    """Sends rows back until a file exists, and then out."""

    path: str

    def __call__(self, row: Row) -> bool:
        """Whether it exists."""
        return os.path.exists(self.path)


def circling(
    go: str, count: int | None, times: int = 100, size: int = 0, first: Any = None, rate: float | None = None
) -> fn.Dataflow:
    """Rows that go round until the file ``go`` exists; without it, forever.

    Args:
        go: path of the file.
        count: number of source rows; ``None`` for an endless source.
        times: number of rows that each becomes in front of the loop.
        size: least number of bytes of a row.
        first: function of the operator in front of the loop; none by default.
        rate: source rows per second; ``None`` for as fast as they are taken.
    """
    flow = fn.Dataflow("circling")
    rows = flow.source("S", fn.rate(rate, count=count)).flat_map("P", Pad(times, size))
    rows = rows if first is None else rows.map("F", first)
    rows.iterate("L", lambda again: again.map("K", Meet(), key="k").split("R", Until(go))).sink(  # type: ignore[arg-type, return-value]
        "Z", fn.memory()
    )
    return flow


def check_circled(rows: list[Row], count: int) -> None:
    """Each row came out once; the passes that the rows of a key counted are those that its state counted."""
    assert sorted(row["id"] for row in rows) == list(range(count))
    passes, most = Counter[int](), Counter[int]()
    for row in rows:
        passes[row["k"]] += row["met"]
        most[row["k"]] = max(most[row["k"]], row["all"])
    assert passes == most
