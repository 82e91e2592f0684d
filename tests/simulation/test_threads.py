"""Workers of seeded hosts are run by virtual threads as ``worker.turns`` decides, while chains change and hosts die.

All laws of the interleavings hold, no worker is run by two threads, nothing stands still or waits for a long tuple of
another worker, and urgent events come first. Each broken rule of ownership or of wake-ups is caught by some seed.
"""

from __future__ import annotations

import copy
import random
from collections import Counter
from dataclasses import replace

import pytest
from interleaving_checks import try_seed
from soak import SOAK, caught

from fries_nb.dataflow.graph import Graph
from fries_nb.host.frame_router import FrameRouter
from fries_nb.host.host_chains import HostChains
from fries_nb.host.host_core import HostCore
from fries_nb.host.host_loop import HostLoop
from fries_nb.host.hosted_worker import HostedWorker
from fries_nb.protocol.frames import Bundle, deliveries
from fries_nb.protocol.messages import Fcm, Prepare
from fries_nb.simulation.scenarios import draw_focused
from fries_nb.simulation.threaded_hosts import ThreadedCluster
from fries_nb.transport.wire import Credit
from fries_nb.worker.chaining import Fused, SplitOff
from fries_nb.worker.events import Arrived, Directed, Granted
from fries_nb.worker.outbox import SendFrame
from fries_nb.worker.rota import Rota
from fries_nb.worker.turns import HANDOFF_NS, Turns

SLOW_NS = (7_000_000, 15_000_000, 30_000_000, 200_000_000)
"""Durations of the tuples of slow operators: shorter and longer than a turn that is handed off."""
LONGEST_WAIT_NS = 5 * HANDOFF_NS
"""Most time for which an event waits in the mailbox of a worker that no thread runs."""
MOST_TURNS = 10
"""Most turns of a loop that begin while an urgent event waits for a worker that no thread runs."""


def draw_dawdling(seed):
    """Changes, checkpoints and kills, in a flow one of whose operators is slow until it is changed."""
    plain = draw_focused(seed, chained=seed % 2 == 1)
    chance = random.Random(f"dawdling {seed}")
    slow = chance.choice(list(plain.flow.changeable))
    operators = tuple(_dawdling(one, chance) if one.name == slow else one for one in plain.graph.operators)
    settings = plain.cluster | {"hosts": chance.randint(1, 2), "chaining": False}
    return replace(plain, graph=Graph(plain.graph.name, operators, plain.graph.edges), cluster=settings)


def _dawdling(operator, chance):
    function = copy.copy(operator.function)
    function.takes_ns = chance.choice(SLOW_NS)
    return replace(operator, function=function)


class WatchedThreads(ThreadedCluster):
    """Chains are fused and split as well; workers that share a loop are watched.

    Attributes:
        waits: worker to the time for which it has had events, but no thread.
        urgent: worker to the turns that its loop had begun when it got an urgent event, and no thread.
    """

    rechains = 0.01

    def __init__(self, *arguments, **options):
        self.waits, self.urgent = {}, {}
        super().__init__(*arguments, **options)

    def step(self):
        passes = not self._news and not len(self.hosts.draws)  # time passes for the threads only if none can go on
        began_ns = self.clock()
        took = super().step()
        passed_ns = self.clock() - began_ns if passes else 0
        if self.hosts.started:
            for loop, member in self.hosts.members():
                if member.mailbox or member in self.waits:
                    self._watch(member, loop, passed_ns)
        return took

    def _watch(self, member, loop, passed_ns):
        left = [event for event in member.mailbox if not isinstance(event, Granted)]
        if not left or member.owner.is_held or member in loop.turns.apart:
            self.waits.pop(member, None)
            self.urgent.pop(member, None)
            return
        self.waits[member] = self.waits.get(member, 0) + passed_ns
        assert self.waits[member] <= LONGEST_WAIT_NS, f"{member.worker.wiring.id} is kept waiting with {left}"
        if any(map(_is_urgent, left)):
            turns = loop.begun - self.urgent.setdefault(member, loop.begun)
            assert turns <= MOST_TURNS, f"{turns} turns are begun before {member.worker.wiring.id} gets {left}"


def _is_urgent(event):
    return isinstance(event, Directed) and isinstance(event.control, Fcm | Prepare)


def try_threads(seed):
    """Play a scenario with threads, and check it."""
    return try_seed(seed, draw_dawdling, WatchedThreads)


# ---- the tests


RUNS, CHUNKS = 4, 4
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


def _lets_functions_wait(core, worker, control, direct=HostCore.direct):
    if isinstance(control, Fcm):
        loop, hosted = core.loop_of[worker]
        yield
        loop.post(hosted, Directed(worker, control))
    else:
        yield from direct(core, worker, control)


def _tells_nobody_of_a_trial(core, order):
    yield
    core.router.post(order.worker, core._rehearsals.prepare(order))


BROKEN = [
    (Turns, "claim", _claims_what_another_owns, FIRST),
    (Turns, "_claims_now", _claims_without_falling_asleep, FIRST),
    (Turns, "begin", _stays_awake, FIRST),
    (Turns, "switch_ended", _leaves_a_switched_worker_asleep, FIRST),
    (Turns, "is_stuck", _hands_nothing_off, (2, *FIRST)),
    (Rota, "ready", _serves_urgent_events_last, (34, *FIRST)),
    (Turns, "rejoin", _rejoins_asleep, FIRST),
    (Turns, "ended", _forgets_due_sources, range(4, 20)),
    (HostedWorker, "awaits_credit", property(lambda member: False), range(2, 20)),
    (HostedWorker, "awaits_credit", property(lambda member: member.is_blocked), (29,)),
    (HostedWorker, "_settle", _sees_no_credit_behind_its_frames, (22, *FIRST)),
    (FrameRouter, "receive", _returns_credit_to_the_wrong_channel, (10, *FIRST)),
    (FrameRouter, "_deliver", _delivers_a_bundle_to_its_first_receiver, FIRST),
    (FrameRouter, "send", _sends_to_the_first_host_only, FIRST),
    (HostChains, "_rerouted", _keeps_what_is_another_worker_s, (29, *FIRST)),
    (HostChains, "_assign", _forgets_the_loop_of_a_chain, FIRST),
    (HostChains, "_assign", _runs_by_name_what_was_before, (5, *FIRST)),
    (HostChains, "_release", _leaves_a_worker_stalled, FIRST),
    (HostChains, "_step", _takes_a_worker_that_runs, (7, *FIRST)),
    (HostLoop, "_keep", _ends_with_its_worker, FIRST),
    (HostCore, "direct", _lets_functions_wait, (12, *FIRST)),
    (HostCore, "_try", _tells_nobody_of_a_trial, (4, *FIRST)),
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
