"""The counts that a host reports say as much of frontiers as all counts."""

from __future__ import annotations

import random

import pytest

from fries_nb.progress.progress_graph import CountChange, FlowEdge, GraphLocation, ProgressGraph
from fries_nb.progress.tracker import Tracker

GRAPH = ProgressGraph(
    {"S": (), "A": (), "L": ("L",), "B": ("L",), "Out": ()},
    (
        FlowEdge("S", "A"), FlowEdge("A", "L"), FlowEdge("L", "B"), FlowEdge("B", "L", feedback=True),
        FlowEdge("B", "Out"),
    ),
)  # fmt: skip


def drawn(seed: int) -> list[CountChange]:
    """Counts at any locations, some of them below zero, many at one location."""
    chance = random.Random(seed)
    counts: dict[tuple[GraphLocation, tuple[int, ...]], int] = {}
    for _ in range(chance.choice((1, 5, 40))):
        location = chance.choice(GRAPH.locations)
        rounds = [chance.randrange(4) for _ in range(GRAPH.length_at(location) - 2)]
        time = (chance.randrange(2), chance.randrange(9), *rounds)
        counts[location, time] = chance.choice((-1, 1, 2, 3))
    return [CountChange(*stamp, count) for stamp, count in counts.items()]


@pytest.mark.parametrize("first", range(0, 300, 100))
def test_frontiers_are_the_same_and_have_a_holder(first: int) -> None:
    """At all operators, with versions, rounds, and counts below zero."""
    held = 0
    for seed in range(first, first + 100):
        whole = Tracker(GRAPH, GRAPH.loops, drawn(seed))
        least = Tracker(GRAPH, GRAPH.loops, whole.least_counts())
        for operator in GRAPH.loops:
            assert least.frontier(operator) == whole.frontier(operator), (seed, operator)
            assert set(least.holders(operator)) <= set(whole.holders(operator))
            assert bool(least.holders(operator)) is bool(whole.holders(operator))
            held += len(least.holders(operator))
    assert held > 300


def test_they_are_few() -> None:
    """However many calls an operator has asked for."""
    token = GraphLocation("A")
    tracker = Tracker(GRAPH, ["Out"], [CountChange(token, (0, t), 1) for t in range(5_000)])
    assert tracker.least_counts() == (CountChange(token, (0, 0), 1),)
