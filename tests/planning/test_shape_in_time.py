"""What a dataflow with times may become while it runs: no frontier goes back, and what is open at a time stays."""

from __future__ import annotations

from typing import Any

import pytest
from timed_draws import Sum

import fries_nb as fn
from fries_nb.dataflow.graph import Graph, ends_of
from fries_nb.errors import PlanError
from fries_nb.planning.difference import Difference
from fries_nb.planning.shape import refuse_in_time, refuse_unsupported, shape_plan


def same(row: dict[str, Any]) -> dict[str, Any]:
    """The row."""
    return row


def declared(*edits: str) -> Graph:
    """A window and its sink, and a branch with a sink; with these edits."""
    flow = fn.Dataflow("timed")
    first = flow.source("S", fn.rate(None), time=None if "untimed" in edits else "at", workers=1).map("A", same)
    into = first.map("N", same) if "N" in edits else first
    if "other source" in edits:
        into = into.union("U", flow.source("T", fn.rate(None), time="at", workers=1))
    if "new ways" in edits:
        more = flow.source("T", fn.rate(None), time="at", workers=1)
        more.window("W3", Sum(0), fn.tumbling(5), key="k").sink("others", fn.memory())
        if "untimed" not in edits:
            first.union("V", more).sink("both", fn.memory())
        flow.source("Q", fn.rate(None), workers=1).sink("untimed", fn.memory())
    if "untimed" in edits:
        into.map("W", same).sink("out", fn.memory())
        return flow.graph(workers=1)
    if "no window" not in edits:
        window = into.window("W", Sum(0), fn.tumbling(5), key="k")
        out = window.map("N", same) if "N behind" in edits else window
        out.sink("out", fn.memory())
    branch = first.map("P", same)
    if "merged" in edits:
        branch = branch.union("V", window)
    if "no branch" not in edits:
        branch.sink("plain", fn.memory())
    if "second window" in edits:
        first.window("W2", Sum(0), fn.tumbling(5), key="k").sink("more", fn.memory())
    return flow.graph(workers=1)


@pytest.mark.parametrize("edit", ["N", "no branch", "N behind", "second window", "no window", "new ways"])
def test_operators_come_and_go(edit: str) -> None:
    """In front of a window as well, since the same rows come to it; and sources that lead to what is new, too."""
    refuse_in_time(declared(), declared(edit))
    refuse_in_time(declared(edit), declared())


def test_what_a_window_holds_is_dropped_by_name() -> None:
    """And it takes part in the change: it ends at the marker of the operator that sends to it no more."""
    found = Difference.of(declared("second window"), declared())
    with pytest.raises(PlanError, match=r"W2: its state is dropped; expected drop=\['W2'\], if that is meant"):
        refuse_unsupported(found)
    refuse_unsupported(found, ["W2"])
    lines = shape_plan(found.before, found.after).lines
    assert "W2 at the marker of Replicate(A): it is removed, with what it holds for a later time" in lines


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        ((), ("other source",), "source T leads to W, which may have passed the times of its rows"),
        (("untimed",), ("untimed", "new ways"), "source T has times; a run that began without goes on so"),
        (("untimed", "new ways"), ("untimed",), "source T is the last with times; a run with some goes on so"),
        ((), ("merged",), "plain gets no rows of W while it runs, whose times plain may have passed"),
    ],
)
def test_what_would_take_a_frontier_back_is_refused(
    before: tuple[str, ...], after: tuple[str, ...], words: str
) -> None:
    """In a sentence that names it."""
    with pytest.raises(PlanError, match=words):
        refuse_in_time(declared(*before), declared(*after))


def test_edges_that_there_have_been_count() -> None:
    """Hosts count on them still: a window would wait for itself, and a sink that returns has passed times of now."""
    was = ends_of(declared("N"))  # N in front of the window; it was removed
    refuse_in_time(declared(), declared("N behind"))
    with pytest.raises(PlanError, match="W works by time, and gets no rows of what it has sent to"):
        refuse_in_time(declared(), declared("N behind"), was)
    with pytest.raises(PlanError, match="plain gets no rows of W while it runs"):
        refuse_in_time(declared("no branch"), declared("merged"), ends_of(declared()))
    with pytest.raises(PlanError, match=r"source . leads to .*, which may have passed the times of its rows"):
        refuse_in_time(declared(), declared("new ways"), ends_of(declared("new ways")))


def test_dataflows_without_times_have_no_such_rules() -> None:
    """They have no frontiers."""
    refuse_in_time(declared("untimed"), declared("untimed", "N"))
