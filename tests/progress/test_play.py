"""Tokens and counts over several hosts: no frontier is wrong in any interleaving, and each rule is needed."""

from __future__ import annotations

import pytest
from progress_mutants import MUTANTS
from progress_observer import below
from progress_played import Play
from soak import SOAK, caught, first_tried

from fries_nb.progress.progress_graph import CountChange, FlowEdge, GraphLocation, ProgressGraph
from fries_nb.progress.tracker import Tracker

SEEDS = 60 * SOAK
MOST_SEEDS = 400
"""Number of seeds within which every mutant is caught."""
SHOWN = {
    "meet": 12, "what moves stays counted where it was": 14, "frames before the view are dropped": 90,
    "a view is given before all have admitted the newcomer": 40, "a host that leaves keeps what waits to itself": 114,
    "a step is split": 3, "what moves is not counted on the way": 3, "empty first counts are not broadcast": 6,
    "frames in any order, and numbers are checked": 4, "+1 at send": 8, "feedback adds 0": 9,
    "dead ends are counted": 13,
}  # fmt: skip


def test_every_law_holds_in_every_play():
    """Safe and monotone after each event, exact when all has arrived, at zero in the end; and frontiers do advance."""
    plays = [Play(seed) for seed in range(SEEDS)]
    assert [(seed, broken) for seed, play in enumerate(plays) if (broken := play.run())] == []
    assert sum(play.announced for play in plays) > 10 * SEEDS


def try_play(seed: int) -> None:
    """No law is broken."""
    assert not Play(seed).run()


@pytest.mark.parametrize("name", MUTANTS)
def test_every_rule_is_needed(name, monkeypatch):
    """Without any one of the rules some play breaks a law."""
    for owner, attribute, instead in MUTANTS[name]:
        if isinstance(owner, str):
            monkeypatch.setattr(f"{owner}.{attribute}", instead)
        else:
            monkeypatch.setattr(owner, attribute, instead)
    assert caught(first_tried(SHOWN.get(name, 0), MOST_SEEDS), try_play, by=Exception) is not None


def nested_frontier():
    """What a token of a nested loop's body can result in at the inner head: by either feedback edge."""
    loops = {"S": (), "H": ("A",), "I": ("A", "B"), "X": ("A", "B"), "Y": ("A",)}
    edges = [FlowEdge(*pair.split()) for pair in ("S H", "H I", "I X", "X Y")]
    edges += [FlowEdge("X", "I", feedback=True), FlowEdge("Y", "H", feedback=True)]
    token = CountChange(GraphLocation("X"), (0, 7, 4, 9), 1)
    return Tracker(ProgressGraph(loops, tuple(edges)), ["I"], [token]).frontier("I").elements


def test_a_nested_loop_has_two_ways_round(monkeypatch):
    """Neither result precedes the other, so both bound the frontier; a single summary a location loses one."""
    assert nested_frontier() == ((0, 7, 4, 10), (0, 7, 5, 0))
    to = ProgressGraph.summaries_to
    first = lambda graph, operator: {place: found[:1] for place, found in to(graph, operator).items()}  # noqa: E731
    monkeypatch.setattr(ProgressGraph, "summaries_to", first)
    assert len(nested_frontier()) == 1


def test_the_observer_is_not_lenient():
    """A frontier that has passed a time is not below it, and an empty one is below nothing."""
    assert below([(0, 3)], (0, 3))
    assert not below([(0, 4), (1, 0)], (0, 3))
    assert not below([], (0, 3))
