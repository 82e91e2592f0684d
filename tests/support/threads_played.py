"""Seeded runs whose workers are run by virtual threads, some of them slow."""

from __future__ import annotations

import copy
import random
from dataclasses import replace

from interleaving_checks import LAWS

from fries_nb.dataflow.graph import Graph
from fries_nb.errors import FriesError
from fries_nb.testing.scenarios import draw_focused, play
from fries_nb.testing.threaded_hosts import ThreadedCluster

SLOW_NS = (7_000_000, 15_000_000, 30_000_000, 200_000_000)
"""Durations of the tuples of slow operators: shorter and longer than a turn that is handed off."""


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


class RechainedThreads(ThreadedCluster):
    """Chains are fused and split as well."""

    rechains = 0.01


def try_threads(seed):
    """Play a scenario with threads, and check it; a failure names the seed."""
    try:
        played = play(draw_dawdling(seed), RechainedThreads)
        for law in LAWS:
            law(played)
    except (AssertionError, FriesError) as error:
        raise AssertionError(f"seed {seed}: {error}\n(replay: try_threads({seed}))") from error
    return played
