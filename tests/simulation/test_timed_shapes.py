"""Dataflows with times change their shape: frontiers go on, and windows, reminders and totals are as without."""

from __future__ import annotations

import pytest
from interleaving_checks import caught, lacking
from soak import first_tried
from timed_shapes import play_shapes

from fries_nb.host.host_progress import ProgressLink
from fries_nb.progress.exchange import HostProgress
from fries_nb.progress.tracker import Tracker
from fries_nb.worker.input_times import TrackedTimes
from fries_nb.worker.outbox import Outbox

MOST_SEEDS = 60


def test_results_are_those_of_a_run_of_one_shape() -> None:
    """With kills, hosts that join and leave, and edits that are refused; no frontier passes a row or goes back."""
    wanted = ("done", "refused", "recovered", "rescaled done")
    assert lacking(16, wanted, play_shapes, most=60) == {}


def _without_listeners(view, graph, listeners, extend=HostProgress.extend):
    return extend(view, graph, ())


def _without_the_present(tracker, graph, listeners):
    """Only what the other graph has is left."""
    counts = [one for one in tracker.counts if one.location in graph.locations]
    tracker.__init__(graph, listeners, counts)
    return {listener: tracker.frontier(listener) for listener in tracker.listeners}


def _begins_with_its_own_graph(view, state, take_view=HostProgress.take_view):
    own = view._graph, view.listeners
    real, HostProgress.extend = HostProgress.extend, lambda view, graph, listeners: None
    try:
        return take_view(view, state)
    finally:
        HostProgress.extend = real
        assert own == (view._graph, view.listeners)


BROKEN = {
    "hosts keep the graph of before": (ProgressLink, "extend", lambda link, graph, added: None),
    "new operators do not listen": (HostProgress, "extend", _without_listeners),
    "hosts forget what is removed": (Tracker, "extend", _without_the_present),
    "workers do not count on new edges": (Outbox, "extend_progress", lambda outbox, graph: None),
    "workers do not know frames of new edges": (TrackedTimes, "extend", lambda times, graph: None),
    "new hosts begin with the last graph": (HostProgress, "take_view", _begins_with_its_own_graph),
}
SHOWN = {"new operators do not listen": 2, "new hosts begin with the last graph": 9}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_rule_is_caught(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Without it some frontier passes a row, or some run comes to no end."""
    monkeypatch.setattr(*BROKEN[name])
    assert caught(first_tried(SHOWN.get(name, 0), MOST_SEEDS), play_shapes, by=Exception) is not None
