"""Operators whose functions are coroutines: every law holds however calls overlap, and each broken rule is caught.

Most functions of a drawn dataflow wait before and after their work. Which call goes on next is drawn, as are kills,
checkpoints, changes by every scheduler, dead letters, pauses and their fixes.
"""

from __future__ import annotations

from collections import Counter, deque

import pytest
from interleaving_checks import lacking, try_seed
from soak import SHOWN_BY, caught, first_tried

from fries_nb.operators.awaited import AwaitedExecutor
from fries_nb.simulation.cluster import Cluster
from fries_nb.simulation.scenarios import draw_awaiting
from fries_nb.simulation.threaded_hosts import ThreadedCluster
from fries_nb.worker.awaiting_worker import AwaitingWorker

BOUND = 60
"""Seeds within which each broken build must be caught."""


def _begins_none_behind_a_message(worker, limit, advance=AwaitingWorker._advance):
    """A law: while a fast control message waits for the calls in flight, no other begins."""
    waits, before = bool(worker._deferred), set(worker._calls._begun)
    advance(worker, limit)
    assert not waits or set(worker._calls._begun) <= before, "a call has begun behind the message that waits"


def try_awaiting(seed, cluster=Cluster):
    """What a seed has met, with all laws checked."""
    met = Counter()

    def direct(worker, to, control, directed=AwaitingWorker._direct):
        met["a marker has waited for calls"] += worker._waits_for_calls(control)
        directed(worker, to, control)

    def more(worker, taken=AwaitingWorker._take_more):
        took = taken(worker)
        met["calls of two frames were in flight"] += took and worker._calls.in_flight
        return took

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(AwaitingWorker, "_advance", _begins_none_behind_a_message)
        patch.setattr(AwaitingWorker, "_direct", direct)
        patch.setattr(AwaitingWorker, "_take_more", more)
        played = try_seed(seed, draw_awaiting, cluster)
    calls, done = played.cluster.hosts.calls.values(), [one.outcome for one in played.cluster.outcomes.values()]
    awaiting = [one.awaiting for one in played.scenario.graph.operators if one.awaiting is not None]
    met["calls have overlapped"] += any(one.most > 3 for one in calls)
    met["calls were cancelled"] += any(one.cancelled for one in calls)
    met["rows have left as calls ended"] += any(not one.ordered and one.concurrency > 1 for one in awaiting)
    met["changes were done"] += done.count("done")
    met["hosts were restarted"] += len(played.cluster.recoveries)
    met["dead letters"] += bool(played.scenario.letters)
    met["pauses"] += bool(played.scenario.stops)
    return met


WANTED = (
    *("a marker has waited for calls", "calls of two frames were in flight", "calls have overlapped"),
    *("calls were cancelled", "rows have left as calls ended", "changes were done", "hosts were restarted"),
    *("dead letters", "pauses"),
)


def test_every_promise_holds_however_calls_overlap():
    """Changes are transactions, nothing is lost or doubled, order and state are kept, and every run ends."""
    assert lacking(30, WANTED, try_awaiting, least=2, most=90) == {}


def test_so_it_is_with_the_threads_of_a_host():
    """Where the end of a call wakes the worker, whichever thread runs it."""
    wanted = ("a marker has waited for calls", "calls have overlapped", "changes were done")
    assert lacking(12, wanted, lambda seed: try_awaiting(seed, ThreadedCluster), most=40) == {}


# ---- broken rules


def _state_at_the_begin(executor, part, index, call=AwaitedExecutor._call):
    call(executor, part, index)
    begun = next(reversed(executor._begun))
    if begun.state is not None and begun.key is not None:
        executor._version(part, index).state.put(begun.key[0], begun.state)


def _next_call_of_a_key(executor, part, index, key=AwaitedExecutor._key):
    found = key(executor, part, index)
    return None if found is None else (*found, index)


def _over_is_gone(executor):
    return sum(len(part.waiting) for part in executor._parts)


def _leave_in_any_order(executor):
    return False


def _given_up_for_good(executor, rewind=AwaitedExecutor.rewind):
    waiting = [(part, deque(part.waiting)) for part in executor._parts]
    rewind(executor)
    for part, were in waiting:
        part.waiting = were


def _begins_behind_the_message(executor, quota, advance=AwaitedExecutor.advance):
    executor.begins = True
    return advance(executor, quota)


def _applied_with_calls_in_flight(worker, control):
    return False


def _sleeps_when_a_call_has_ended(executor):
    return bool(executor._begun)


@pytest.mark.parametrize(
    ("owner", "name", "broken", "seed"),
    [
        (AwaitedExecutor, "_call", _state_at_the_begin, 6),
        (AwaitedExecutor, "_key", _next_call_of_a_key, 0),
        (AwaitedExecutor, "remaining", property(_over_is_gone), 0),
        (AwaitedExecutor, "_in_turn", property(_leave_in_any_order), 4),
        (AwaitedExecutor, "rewind", _given_up_for_good, 6),
        (AwaitedExecutor, "advance", _begins_behind_the_message, 5),
        (AwaitedExecutor, "waits", property(_sleeps_when_a_call_has_ended), 3),
        (AwaitingWorker, "_waits_for_calls", _applied_with_calls_in_flight, 3),
    ],
)
def test_a_broken_rule_is_caught(owner, name, broken, seed, monkeypatch):
    """By some seed, by one of the laws, or as the run gets stuck."""
    monkeypatch.setattr(AwaitingWorker, "_advance", _begins_none_behind_a_message)
    monkeypatch.setattr(owner, name, broken)
    shown = caught(first_tried(seed, BOUND), lambda one: try_seed(one, draw_awaiting), (*SHOWN_BY, RuntimeError))
    assert shown is not None, f"{broken.__name__} goes unnoticed"
