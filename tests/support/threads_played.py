"""Seeded runs whose workers are run by virtual threads, some of them slow."""

from __future__ import annotations

import copy
import random
from dataclasses import replace

from interleaving_checks import try_seed

from fries_nb.dataflow.graph import Graph
from fries_nb.protocol.messages import Fcm, Prepare
from fries_nb.simulation.scenarios import draw_focused
from fries_nb.simulation.threaded_hosts import ThreadedCluster
from fries_nb.worker.events import Directed, Granted
from fries_nb.worker.turns import HANDOFF_NS

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
