"""Scenarios for runs that are rescaled, in which the order of the rows of a key is determined up to the last operator.

>>> scenario = draw_rescaled(4)
>>> [node.name for node in scenario.flow.nodes], sorted(scenario.flow.keyed)
(['S0', 'Mark1', 'Counter2', 'Mark3', 'Counter4', 'out'], ['Counter2', 'Counter4'])
"""

from __future__ import annotations

import random
from functools import partial

from fries_nb.dataflow.builder import DataflowBuilder
from fries_nb.dataflow.endpoints import memory, rate
from fries_nb.protocol.topology import workers_of
from fries_nb.simulation import stamp_functions as fns
from fries_nb.simulation.drawn_flows import DrawnFlow, Node
from fries_nb.simulation.faults import Faults
from fries_nb.simulation.scenarios import ALL_SCHEDULES, Scenario, Wish

CUSTOMERS = 12
"""Number of keys, of which each move of some hundred bins moves a few."""


def keyed_flow(chance: random.Random) -> DrawnFlow:
    """S0 -> Mark1 -> Counter2 -> Mark3 -> Counter4 -> out, the marks as many as those they are behind; some lack Mark1.

    So the rows of a split come to Counter2 from one worker at a time, which may be another one later.
    """
    flow = DrawnFlow(DataflowBuilder("keyed"))
    workers = chance.randint(1, 3)
    stream = flow.dataflow.source("S0", rate(None, count=1), workers, identity="id")
    flow.nodes.append(Node("S0", "source", ()))
    for name in ("Mark1", "Counter2", "Mark3", "Counter4")[chance.random() < 0.3 :]:
        make, keyed = (fns.Mark, None) if name.startswith("Mark") else (fns.Counter, "customer")
        build, before = partial(make, name, 0), (stream.operator, 0)
        workers = chance.randint(1, 3) if keyed else workers
        stream = stream.map(name, build(0), key=keyed, workers=workers)
        flow.nodes.append(Node(name, make.__name__.lower(), (before,)))
        flow.changeable[name] = build
        flow.tasting.append(name)
        if keyed:
            flow.keyed.add(name)
    stream.sink("out", memory(), workers=chance.choice((1, workers)))
    flow.nodes.append(Node("out", "sink", ((stream.operator, 0),)))
    return flow


def draw_rescaled(seed: int) -> Scenario:
    """A scenario with changes, checkpoints, full disks, and kills of hosts; sources end only after all changes."""
    chance = random.Random(f"rescaled {seed}")
    flow = keyed_flow(chance)
    graph = flow.dataflow.graph()
    checkpoints = chance.random() < 0.6
    settings = {
        "hosts": chance.randint(1, 3),
        "seed": seed,
        "window": chance.choice((1, 300, 1_500, 20_000)),
        "chaining": chance.random() < 0.6,
        "checkpoints": checkpoints,
        "commit_interval_ns": chance.choice((None, 2_000_000, 10_000_000, 60_000_000)),
        "faults": Faults(
            hazard=chance.choice((0.001, 0.003)),
            host_kills=chance.choice((0, 0, 1, 2)) if checkpoints else 0,
            full_disk=chance.choice((0.0, 0.0, 0.05)) if checkpoints else 0.0,
            slow=chance.random() < 0.2,
        ),
    }
    moments = sorted(chance.uniform(0.1, 0.9) for _ in range(chance.choice((0, 1, 2))))
    wishes = tuple(
        Wish(at, tuple(chance.sample(list(flow.changeable), chance.randint(1, 2))), scheduler, pruning, transforms=True)
        for at in moments
        for scheduler, pruning in [chance.choice(ALL_SCHEDULES[2:4] + ALL_SCHEDULES[5:])]
    )
    held = workers_of(graph, "S0") if chance.random() < 0.7 else ()
    inputs = flow.inputs(chance.randint(40, 100), CUSTOMERS)
    return Scenario(seed, flow, graph, inputs, settings, wishes, "end", 1.0, held)
