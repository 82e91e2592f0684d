"""Workers of seeded hosts are run by virtual threads as ``worker.turns`` decides, while chains change and hosts die.

All laws of the interleavings hold, no worker is run by two threads, nothing stands still or waits for a long tuple of
another worker, and urgent events come first. Each broken rule of ownership or of wake-ups is caught by some seed.
"""

from __future__ import annotations

from collections import Counter

import pytest
from interleaving_checks import SOAK, caught
from threads_played import try_threads

from fries_nb.simulation.seeded_member import SeededMember
from fries_nb.worker.rota import Rota
from fries_nb.worker.turns import Turns

RUNS, CHUNKS = 12, 4
FIRST = range(20)


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_every_law_holds_whatever_thread_runs_a_worker(chunk):
    """The main property, with functions that take longer than a turn may."""
    seen = Counter()
    for seed in range(chunk * RUNS * SOAK, (chunk + 1) * RUNS * SOAK):
        hosts = try_threads(seed).cluster.hosts
        seen["turns"] += sum(loop.begun for loop in hosts.loops)
        seen["handoffs"] += sum(loop.handoffs for loop in hosts.loops)
        seen["inside"] += sum(what == "inside" for what, _ in hosts.noted)
        seen["urgent"] += sum(what == "urgent" for what, _ in hosts.noted)
    assert min(seen[what] for what in ("turns", "handoffs", "inside", "urgent"))


def _claims_what_another_owns(turns, member, claim=Turns.claim):
    claim(turns, member)
    return True


def _claims_without_falling_asleep(turns, member):
    return member.owner.acquire(blocking=False)


def _stays_awake(turns, begin=Turns.begin):
    member = begin(turns)
    if member is not None:
        member.awake = True
    return member


def _leaves_a_switched_worker_asleep(turns, member):
    member.owner.release()


def _rejoins_asleep(turns, member):
    turns._uses_processor.discard(member)
    member.awake = True
    del turns.apart[member]


def _hands_nothing_off(turns):
    return False


def _serves_urgent_events_last(rota, member, urgent=False, ahead=False, ready=Rota.ready):
    ready(rota, member, False, ahead)


def _forgets_due_sources(turns, member, generation, spent_ns, busy, ended=Turns.ended):
    after = ended(turns, member, generation, spent_ns, busy)
    turns._due_ns.pop(member, None)
    return after


BROKEN = [
    (Turns, "claim", _claims_what_another_owns, FIRST),
    (Turns, "_claims_now", _claims_without_falling_asleep, FIRST),
    (Turns, "begin", _stays_awake, FIRST),
    (Turns, "switch_ended", _leaves_a_switched_worker_asleep, range(87, 90)),
    (Turns, "is_stuck", _hands_nothing_off, FIRST),
    (Rota, "ready", _serves_urgent_events_last, range(49, 55)),
    (Turns, "rejoin", _rejoins_asleep, FIRST),
    (Turns, "ended", _forgets_due_sources, range(4, 20)),
    (SeededMember, "awaits_credit", property(lambda member: False), range(2, 20)),
    (SeededMember, "awaits_credit", property(lambda member: member.is_blocked), range(57, 60)),
]
"""Of a class, the name of what is broken, how, and the seeds one of which must catch it."""


@pytest.mark.parametrize(("kind", "name", "broken", "seeds"), BROKEN)
def test_a_broken_rule_is_caught(kind, name, broken, seeds, monkeypatch):
    """By a law, by a worker that two threads run, or since nothing goes on; the last one was a defect of real hosts."""
    monkeypatch.setattr(kind, name, broken)
    assert caught(seeds, try_threads) is not None
