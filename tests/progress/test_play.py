"""Tokens and counts over several hosts: no frontier is wrong in any interleaving, and each rule is needed."""

from __future__ import annotations

import pytest
from progress_played import Play, PlayedWorker, below
from soak import SOAK

from fries_nb.progress import exchange, progress_graph, worker_counts
from fries_nb.progress.change_batch import CountChange, GraphLocation
from fries_nb.progress.exchange import HostProgress
from fries_nb.progress.path_summary import identity
from fries_nb.progress.progress_graph import FlowEdge, ProgressGraph
from fries_nb.progress.tracker import Tracker
from fries_nb.progress.worker_counts import WorkerCounts

SEEDS = 300 * SOAK
MOST_SEEDS = 400
"""Number of seeds within which every mutant is caught."""


def test_every_law_holds_in_every_play():
    """Safe and monotone after each event, exact when all has arrived, at zero in the end; and frontiers do advance."""
    plays = [Play(seed) for seed in range(SEEDS)]
    assert [(seed, broken) for seed, play in enumerate(plays) if (broken := play.run())] == []
    assert sum(play.announced for play in plays) > 10 * SEEDS


def caught(seed: int) -> bool:
    """Whether a law is broken, or an error says so."""
    try:
        return bool(Play(seed).run())
    except Exception:  # noqa: BLE001 - the mutant is seen, however it shows itself
        return True


def _split(progress, changes, record=HostProgress.record):
    """What is used up is said first, what was made of it with the next step."""
    kept = progress.__dict__.setdefault("kept", [])
    ready, kept[:] = [*kept, *(one for one in changes if one.delta < 0)], [one for one in changes if one.delta > 0]
    return record(progress, ready)


def _used_up_at_load(worker, load=PlayedWorker.load):
    """An input frame no longer counts once it is taken."""
    load(worker)
    worker.counts.used_up(worker.in_hand[0].location, worker.in_hand[1])


def _buffer_uncounted(counts, channel, edge, stamp):
    """What waits in an output buffer is not counted yet."""
    counts._buffers[channel] = (edge, stamp)


def _count_at_send(counts, channel, rest=False):
    """A frame counts from when it is sent."""
    edge, stamp = counts._buffers.pop(channel)
    counts.changes.update(edge, stamp, +1)
    return stamp


def _meet(stamp, time):
    """Frames of incomparable times are merged at their componentwise minimum."""
    return tuple(map(min, stamp, time))


def _keep_waiting(progress, frame, receive=HostProgress.receive):
    """What waits is not examined again when the view changes."""
    progress._released = lambda *of: None
    receive(progress, frame)
    del progress._released


def _take_decrements(waiting):
    """Only what is taken away is broadcast; the rest waits for its own turn."""
    changes = [one for one in waiting._batch if one.delta < 0]
    waiting.extend([CountChange(one.location, one.time, -one.delta) for one in changes])
    return tuple(changes)


def _once(progress, counts, begin=HostProgress.begin):
    """Splits of a host share a token."""
    return begin(progress, set(counts))


def _nothing_to_say(progress, counts, begin=HostProgress.begin):
    """A host without first counts says nothing."""
    frame = begin(progress, counts)
    return frame if frame.changes else None


def _begun(progress):
    """A host is open as soon as it has begun itself."""
    return progress.host not in progress.missing


MUTANTS = {
    "a step is split": [(HostProgress, "record", _split)],
    "-1 at load": [(PlayedWorker, "load", _used_up_at_load), (PlayedWorker, "use_up", lambda *of: None)],
    "+1 at send": [(WorkerCounts, "_count", _buffer_uncounted), (WorkerCounts, "cut", _count_at_send)],
    "maximum for minimum": [(worker_counts, "earlier", max)],
    "feedback adds 0": [
        (progress_graph, "feeding_back", identity),
        (progress_graph.ProgressGraph, "_refuse_standstill", lambda graph: None),
    ],
    "meet": [
        (worker_counts, "earlier", _meet),
        (worker_counts, "share_frame", lambda *times: True),
    ],
    "a waiting batch is not examined again": [(HostProgress, "receive", _keep_waiting)],
    "part of what waits is broadcast": [(exchange._Waiting, "take", _take_decrements)],
    "splits share a token": [(HostProgress, "begin", _once)],
    "open when begun": [(HostProgress, "is_open", property(_begun))],
    "open from the start": [(HostProgress, "is_open", True)],
    "empty first counts are not broadcast": [(HostProgress, "begin", _nothing_to_say)],
    "dead ends are counted": [(progress_graph.ProgressGraph, "leads_on", lambda *of: True)],
}


@pytest.mark.parametrize("name", MUTANTS)
def test_every_rule_is_needed(name, monkeypatch):
    """Without any one of the rules some play breaks a law."""
    for owner, attribute, instead in MUTANTS[name]:
        if isinstance(owner, str):
            monkeypatch.setattr(f"{owner}.{attribute}", instead)
        else:
            monkeypatch.setattr(owner, attribute, instead)
    assert any(caught(seed) for seed in range(MOST_SEEDS))


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
