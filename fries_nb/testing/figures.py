"""Fixed dataflows of the paper's figures, made of functions that append their version to every row."""

from __future__ import annotations

from collections.abc import Callable

from fries_nb.dataflow.builder import DataflowBuilder
from fries_nb.dataflow.endpoints import memory, rate
from fries_nb.dataflow.streams import Stream
from fries_nb.testing.stamp_functions import Many, Mark, Relabel, Router


def source(flow: DataflowBuilder, name: str = "S0") -> Stream:
    """The source of each dataflow."""
    return flow.source(name, rate(None, count=1), identity="id")


def mark(stream: Stream, name: str) -> Stream:
    """A map that stamps rows."""
    return stream.map(name, Mark(name))


def running_example(flow: DataflowBuilder) -> None:
    """FC -> FM -> MC (Fries, figure 1)."""
    mark(mark(mark(source(flow), "FC"), "FM"), "MC").sink("out", memory())


def figure_8(flow: DataflowBuilder) -> None:
    """FC -> J, one-to-many -> SP -> {FMX, FMY} -> U."""
    x, y = mark(source(flow), "FC").flat_map("J", Many("J")).split("SP", Router("SP"))
    mark(x, "FMX").union("U", mark(y, "FMY")).sink("out", memory())


def figure_9_ii(flow: DataflowBuilder) -> None:
    """RE -> C -> E; RE -> D -> F."""
    left, right = source(flow).replicate("RE")
    mark(mark(left, "C"), "E").sink("left", memory())
    mark(mark(right, "D"), "F").sink("right", memory())


def figure_9_iii(flow: DataflowBuilder) -> None:
    """RE -> {C, D} -> X; X processes both replicas of a tuple."""
    left, right = source(flow).replicate("RE")
    both = mark(left, "C").union("U", mark(right, "D"))
    mark(both, "X").sink("out", memory())


def figure_10(flow: DataflowBuilder) -> None:
    """RE -> {C, D} -> SJ -> E; the self-join emits one tuple for each transaction."""
    left, right = source(flow).replicate("RE")
    mark(mark(left, "C").self_join("SJ", mark(right, "D"), on="id"), "E").sink("out", memory())


def unnested(flow: DataflowBuilder) -> None:
    """F1 -> U2 (unnest) -> {FD1, FD2} -> F2 (workload W4)."""
    rows = mark(source(flow), "F1").unnest("U2", "items").map("L", Relabel("L"))
    one, two = rows.split("SP", Router("SP"))
    mark(mark(one, "FD1").union("FU", mark(two, "FD2")), "F2").sink("out", memory())


Figure = Callable[[DataflowBuilder], None]
