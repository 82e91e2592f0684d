"""Operators whose functions are coroutines: every law holds however calls overlap, and each broken rule is caught.

Most functions of a drawn dataflow wait before and after their work. Which call goes on next is drawn, as are kills,
checkpoints, changes by every scheduler, dead letters, pauses and their fixes.
"""

from __future__ import annotations

import random
from collections import Counter, deque

import pytest
from interleaving_checks import lacking, try_seed
from soak import SHOWN_BY, caught, first_tried

import fries_nb as fn
from fries_nb.operators.awaited import AwaitedExecutor
from fries_nb.simulation.cluster import Cluster
from fries_nb.simulation.faults import Faults
from fries_nb.simulation.scenarios import draw_awaiting
from fries_nb.simulation.seeded_calls import Pause
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


class Asked:
    """Waits, and gives the row."""

    def __init__(self, version=0):
        self.version = version

    async def process(self, row):
        """Wait twice."""
        await Pause()
        await Pause()
        return row | {"version": self.version}


class Count:
    """Counts the rows of a window."""

    def process(self, row, state):
        """Count one."""
        state["n"] = state.get("n", 0) + 1

    def close(self, key, time, state):
        """The number."""
        return {"k": key, "time": time, "n": state["n"]}


def _windows_behind_calls(seed):
    """Rows pass an operator that awaits, and then windows, which close when no earlier row can come."""
    chance = random.Random(f"windows {seed}")
    flow = fn.Dataflow("windows")
    rows = flow.source("S", fn.rate(None, count=4), workers=chance.choice((1, 2)), time="t", late=5)
    awaited = rows.map(
        "A", Asked(), concurrency=chance.choice((1, 3, 8, 64)), ordered=chance.random() < 0.5,
        workers=chance.choice((1, 2)), on_change=chance.choice(("finish", "retry")),
    )  # fmt: skip
    awaited.window("W", Count(), fn.tumbling(10), key="k", late=fn.memory()).sink("out", fn.memory())
    given = [{"t": number // 2, "k": number % 3} for number in range(120)]
    cluster = Cluster(
        flow.graph(workers=2), {"S": given}, seed=seed, hosts=chance.choice((1, 2)),
        window=chance.choice((1, 300, 2_000)), checkpoints=True, commit_interval_ns=5_000_000,
        faults=Faults(hazard=0.003, host_kills=chance.choice((0, 0, 1, 2))),
    )  # fmt: skip
    cluster.steps(chance.randint(50, 1_500))
    if cluster.state == "running":
        cluster.request({"A": Asked(1)}, chance.choice(("fries", "epoch", "cut", "multiversion")))
    cluster.run()
    found = Counter()
    for row in cluster.rows("out"):
        found[row["k"], row["time"]] += row["n"]
    assert found == Counter((row["k"], (row["t"] // 10 + 1) * 10) for row in given), f"seed {seed}"
    return {"hosts were restarted": len(cluster.recoveries)}


def test_windows_behind_it_close_at_their_time():
    """The tokens of the frames in hand are held until their last row has left, and no longer."""
    assert lacking(15, ("hosts were restarted",), _windows_behind_calls, most=40) == {}


# ---- broken rules


def _tokens_early(worker, taken=AwaitingWorker._take_more):
    took = taken(worker)
    if took:
        worker._times.use_up(worker.outbox.changes)
    return took


def test_tokens_given_up_with_rows_in_flight_are_caught(monkeypatch):
    """A window then closes ahead of its last rows."""
    monkeypatch.setattr(AwaitingWorker, "_take_more", _tokens_early)
    assert caught(first_tried(3, 40), _windows_behind_calls, (*SHOWN_BY, RuntimeError)) is not None


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
