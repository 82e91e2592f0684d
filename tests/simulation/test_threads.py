"""Workers of seeded hosts are run by virtual threads as ``worker.turns`` decides, while chains change and hosts die.

All laws of the interleavings hold, no worker is run by two threads, nothing stands still or waits for a long tuple of
another worker, and urgent events come first. Each broken rule of ownership or of wake-ups is caught by some seed.
"""

from __future__ import annotations

from collections import Counter

import pytest
from interleaving_checks import SOAK, caught
from threads_played import try_threads

from fries_nb.host.frame_router import FrameRouter
from fries_nb.host.host_chains import HostChains
from fries_nb.host.host_core import HostCore
from fries_nb.host.host_loop import HostLoop
from fries_nb.host.hosted_worker import HostedWorker
from fries_nb.protocol.frames import Bundle, deliveries
from fries_nb.protocol.messages import Fcm
from fries_nb.transport.wire import Credit
from fries_nb.worker.chaining import Fused, SplitOff
from fries_nb.worker.events import Arrived, Directed
from fries_nb.worker.outbox import SendFrame
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
        seen["handoffs"] += sum(loop.turns.generation for loop in hosts.loops)
        seen["inside"] += hosts.environment.inside
        seen["urgent"] += sum(worker.urgent for _, worker in hosts.members())
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


def _returns_credit_to_the_wrong_channel(router, channels, frame, receive=FrameRouter.receive):
    if isinstance(frame, Credit):
        frame = Credit(tuple(reversed(frame.sizes)))
    receive(router, channels, frame)


def _delivers_a_bundle_to_its_first_receiver(router, channels, frame):
    for channel, own in deliveries(channels, frame):
        router.post(channels[0].receiver, Arrived(channel, own))


def _sends_to_the_first_host_only(router, send, real=FrameRouter.send):
    remote = [channel for channel in send.channels if channel.receiver not in router._loop_of]
    kept = [channel for channel in send.channels if channel not in remote[1:]]
    real(router, SendFrame(tuple(kept), send.frame) if len(remote) > 1 and not isinstance(send.frame, Bundle) else send)


def _keeps_what_is_another_worker_s(chains, worker, event):
    return False


def _forgets_the_loop_of_a_chain(chains, worker, loop):
    for name in worker.worker.wiring.workers:
        chains._hosted[name] = worker


def _runs_by_name_what_was_before(chains, worker, loop):
    for name in worker.worker.wiring.workers:
        chains._loop_of[name] = loop, worker


def _leaves_sinks_behind(worker, other):
    """The writers of a worker that was fused stay with it."""


def _leaves_a_worker_stalled(chains, request):
    chains._stalled.pop(request, None)


def _takes_a_worker_that_runs(chains, request, step=HostChains._step):
    members = request.members(chains._running)
    yield
    made = request.step(members, chains.topology, chains._now_ns())
    hosted = [chains._hosted[worker.wiring.id] for worker in members]
    if isinstance(made, Fused):
        chains._fuse(*hosted)
    elif isinstance(made, SplitOff):
        chains._split(hosted[0], made.rest)
    return made


def _sees_no_credit_behind_its_frames(worker):
    worker._carry_out_all()


def _ends_with_its_worker(loop, worker):
    with loop._baton:
        loop.turns.runs_on(worker)
    yield


def _forgets_what_is_buffered(loop, workers):
    yield


def _lets_functions_wait(core, worker, control, direct=HostCore.direct):
    if isinstance(control, Fcm):
        loop, hosted = core.loop_of[worker]
        yield
        loop.post(hosted, Directed(worker, control))
    else:
        yield from direct(core, worker, control)


def _tells_nobody_of_a_trial(core, order):
    core.router.post(order.worker, core._rehearsals.prepare(order))


BROKEN = [
    (Turns, "claim", _claims_what_another_owns, FIRST),
    (Turns, "_claims_now", _claims_without_falling_asleep, FIRST),
    (Turns, "begin", _stays_awake, FIRST),
    (Turns, "switch_ended", _leaves_a_switched_worker_asleep, range(87, 90)),
    (Turns, "is_stuck", _hands_nothing_off, FIRST),
    (Rota, "ready", _serves_urgent_events_last, FIRST),
    (Turns, "rejoin", _rejoins_asleep, FIRST),
    (Turns, "ended", _forgets_due_sources, range(4, 20)),
    (HostedWorker, "awaits_credit", property(lambda member: False), range(2, 20)),
    (HostedWorker, "awaits_credit", property(lambda member: member.is_blocked), (29,)),
    (HostedWorker, "_settle", _sees_no_credit_behind_its_frames, (22, *FIRST)),
    (FrameRouter, "receive", _returns_credit_to_the_wrong_channel, (14, *FIRST)),
    (FrameRouter, "_deliver", _delivers_a_bundle_to_its_first_receiver, FIRST),
    (FrameRouter, "send", _sends_to_the_first_host_only, FIRST),
    (HostChains, "_rerouted", _keeps_what_is_another_worker_s, (5, *FIRST)),
    (HostChains, "_assign", _forgets_the_loop_of_a_chain, FIRST),
    (HostChains, "_assign", _runs_by_name_what_was_before, (1, *FIRST)),
    (HostChains, "_release", _leaves_a_worker_stalled, FIRST),
    (HostChains, "_step", _takes_a_worker_that_runs, FIRST),
    (HostLoop, "_keep", _ends_with_its_worker, FIRST),
    (HostLoop, "_flush", _forgets_what_is_buffered, (46, *FIRST)),
    (HostCore, "direct", _lets_functions_wait, (35, *FIRST)),
    (HostCore, "_try", _tells_nobody_of_a_trial, FIRST),
]
"""Of a class, the name of what is broken, how, and the seeds one of which must catch it."""


@pytest.mark.parametrize(("kind", "name", "broken", "seeds"), BROKEN)
def test_a_broken_rule_is_caught(kind, name, broken, seeds, monkeypatch):
    """By a law, by a worker that two threads run, or since nothing goes on; the last one was a defect of real hosts."""
    monkeypatch.setattr(kind, name, broken)
    assert caught(seeds, try_threads) is not None


def test_sinks_go_with_their_operators(monkeypatch):
    """Otherwise a fused worker has no writer for the dead letters of the second one."""
    monkeypatch.setattr(HostedWorker, "merge", _leaves_sinks_behind)
    with pytest.raises(KeyError, match="Many2"):
        try_threads(1)
