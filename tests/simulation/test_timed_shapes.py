"""Dataflows with times change their shape: frontiers go on, and windows, reminders and totals are as without."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest
from interleaving_checks import lacking
from soak import caught, first_tried
from timed_shapes import play_shapes

from fries_nb.errors import SourceError
from fries_nb.host.host_progress import ProgressLink
from fries_nb.host.host_workers import Assembly
from fries_nb.operators.instance import Instance
from fries_nb.progress.exchange import HostProgress
from fries_nb.progress.tracker import Tracker
from fries_nb.protocol.checkpoints import Configuration
from fries_nb.protocol.messages import WorkerId
from fries_nb.simulation.readers import Supply
from fries_nb.worker.input_times import TrackedTimes
from fries_nb.worker.outbox import Outbox
from fries_nb.worker.worker import Worker

MOST_SEEDS = 60


def test_results_are_those_of_a_run_of_one_shape() -> None:
    """With kills, hosts that join and leave, and edits that are refused; no frontier passes a row or goes back."""
    wanted = ("done", "refused", "recovered", "rescaled done", *(f"removed {name}" for name in "WRTH"))
    wanted += ("added S2", "added S3", "back done", "back aborted")
    assert lacking(6, wanted, play_shapes, most=60, shown=(13, 8)) == {}


def _without_listeners(view, graph, listeners, *starters, extend=HostProgress.extend):
    return extend(view, graph, (), *starters)


def _without_the_present(tracker, graph, listeners, counts=()):
    """Only what the other graph has is left."""
    counts = [*counts, *(one for one in tracker.counts if one.location in graph.locations)]
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


def _waits_for_time(worker, change, start, leaves, reshape=Worker._reshape):
    reshape(worker, change, start, leaves)
    worker._leaves = False


def _passes_all_time(worker):
    if (agenda := worker.instances[0].agenda) is not None:
        agenda.advance(worker._times.frontier(agenda.operator))
        worker._finish_if_complete()


def _keeps_what_it_held(instance):
    """It is parked with it, and frontiers below go on waiting."""


def _starts_untold(view, graph, listeners, starters, extend=HostProgress.extend):
    return extend(view, graph, listeners)


def _starts_twice(view, graph, listeners, starters, extend=HostProgress.extend):
    return extend(view, graph, listeners, {name: 2 * count for name, count in starters.items()})


def _returns_with_all(assembly, wiring, added, version, parked):
    running = {operator.name: Configuration(version=version) for operator in wiring.chain}
    worker = replace(assembly, earlier=added.earlier).newcomer(wiring, running, (), added.issued, parked)
    for instance in worker.instances:
        instance.reroute(added.change)
    worker.hold_back()
    worker.hold_reading()
    return worker


def _is_made_in_vain(link, workers):
    """The tokens of sources that were not made stay."""


BROKEN = {
    "hosts keep the graph of before": (ProgressLink, "extend", lambda link, graph, added: None),
    "new operators do not listen": (HostProgress, "extend", _without_listeners),
    "hosts forget what is removed": (Tracker, "extend", _without_the_present),
    "workers do not count on new edges": (Outbox, "extend_progress", lambda outbox, graph: None),
    "workers do not know frames of new edges": (TrackedTimes, "extend", lambda times, graph: None),
    "new hosts begin with the last graph": (HostProgress, "take_view", _begins_with_its_own_graph),
    "what is removed waits for its times": (Worker, "_reshape", _waits_for_time),
    "what is removed fires on": (Worker, "_pass_time", _passes_all_time),
    "what is removed keeps its tokens": (Instance, "drop_times", _keeps_what_it_held),
    "what returns has what it held": (Assembly, "added", _returns_with_all),
    "an added source is not counted at first": (HostProgress, "extend", _starts_untold),
    "an added source is counted twice": (HostProgress, "extend", _starts_twice),
}
SHOWN = {
    "new operators do not listen": 2, "hosts forget what is removed": 7, "what is removed fires on": 4,
    "what returns has what it held": 2, "new hosts begin with the last graph": 9,
}  # fmt: skip
ONLY = {"removed": ("no windows",), "returns": ("no tokens",), "source": ("source",)}
"""Word of a mutant's name to the edits that show it; others are shown by any."""


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_rule_is_caught(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Without it some frontier passes a row, or some run comes to no end."""
    only = next((edits for word, edits in ONLY.items() if f"{word} " in name), ())
    monkeypatch.setattr(*BROKEN[name])
    played = partial(play_shapes, only=only)
    assert caught(first_tried(SHOWN.get(name, 0), MOST_SEEDS), played, by=Exception) is not None


def test_a_source_that_cannot_be_read_holds_nothing_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """All hosts have counted its first token by then; if that stays, the run ends with it, or does not end."""

    def add(supply, instance, *given, add=Supply.add):
        if instance.worker == WorkerId("S2", 0):
            raise SourceError("no such file")
        add(supply, instance, *given)

    monkeypatch.setattr(Supply, "add", add)
    assert play_shapes(3, ("source",))["aborted: no such file; nothing changed"] == 1
    monkeypatch.setattr(ProgressLink, "start_nothing", _is_made_in_vain)
    with pytest.raises(AssertionError):
        play_shapes(3, ("source",))
