"""Random runs: which dataflow, on what cluster, which changes at which moments, and how it ends.

A scenario follows from its seed, and so does everything that happens in it.

>>> scenario = draw_scenario(11)
>>> played = play(scenario)
>>> played.cluster.state, len(played.cluster.outcomes) == len(scenario.wishes)
('finished', True)
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from fries_nb.dataflow.graph import Graph
from fries_nb.dataflow.updates import Update
from fries_nb.messages import WorkerId
from fries_nb.planning import cover
from fries_nb.planning.expansion import workers_of
from fries_nb.testing.cluster import Cluster
from fries_nb.testing.flows import Flow, Inputs, copies, draw_flow, redealt
from fries_nb.testing.functions import Convert, Counter, Poison, Unloadable, Unopenable
from fries_nb.testing.reference import Reference, evaluate

SCHEDULES = (("fries", True), ("fries", True), ("fries", False), ("epoch", True), ("naive", True))


BROKEN = {"open": Unopenable, "unpickle": Unloadable, "poison": Poison}
"""Functions that cannot be prepared, and one that fails on the first row unless it is rehearsed."""


@dataclass(frozen=True)
class Wish:
    """A change to be requested once this share of the input has been read; beyond 1, some time after that.

    ``transforms`` says whether keyed targets get a state transformation, ``rehearse`` whether new functions are tried
    on a recent row. ``broken`` names a target whose new function is bad, and ``how`` what is bad about it (see
    ``BROKEN``); both are empty if none is.
    """

    at: float
    version: int
    targets: tuple[str, ...]
    scheduler: str
    pruning: bool
    transforms: bool
    rehearse: bool = False
    broken: str = ""
    how: str = ""


@dataclass(frozen=True)
class Scenario:
    """One random run, as far as it is decided beforehand.

    ``ending`` is ``end`` (the sources run dry), ``drain`` or ``stop``, asked for when ``ending_at`` of the input has
    been read. ``wishes`` are in order of their moments, and numbered from 1 as versions are. The source workers in
    ``held`` do not end before all changes have.
    """

    seed: int
    flow: Flow
    graph: Graph
    inputs: Inputs
    cluster: dict[str, Any]
    wishes: tuple[Wish, ...]
    ending: str
    ending_at: float
    held: tuple[WorkerId, ...] = ()

    @cached_property
    def expected(self) -> Reference:
        """What the reference says of a whole run."""
        return evaluate(self.flow.nodes, self.inputs, copies(self.graph))

    def __str__(self) -> str:
        wishes = [f"{wish.scheduler}{list(wish.targets)}@{wish.at:.2f}{wish.how}" for wish in self.wishes]
        edges = [f"{edge.source}-{edge.to} {edge.partitioning}" for edge in self.graph.edges]
        held = [str(source) for source in self.held]
        ending = f"{self.ending}@{self.ending_at:.2f}, held {held}"
        return f"scenario {self.seed}: {self.cluster}, {wishes}, {ending}, {edges}"


@dataclass
class Played:
    """A run that was played to its end; ``changes`` maps change ids to what was wished."""

    scenario: Scenario
    cluster: Cluster
    changes: dict[str, Wish] = field(default_factory=dict)


def draw_scenario(seed: int, schedules: tuple[tuple[str, bool], ...] = SCHEDULES) -> Scenario:
    """The scenario of this seed. ``naive`` is drawn only where the plan calls it safe."""
    chance = random.Random(seed)
    flow = draw_flow(chance)
    graph = redealt(flow.dataflow.graph(), chance)
    settings = {
        "hosts": chance.randint(1, 3),
        "seed": seed,
        "window": chance.choice((1, 300, 1_500, 20_000)),
        "chaining": chance.random() < 0.6,
        "commit_interval_ns": chance.choice((None, 5_000_000, 60_000_000)),
    }
    moments = sorted(chance.uniform(0.0, 1.25) for _ in range(chance.choice((1, 1, 2, 3)))) if flow.changeable else []
    wishes = tuple(_wish(chance, flow, graph, schedules, at, number) for number, at in enumerate(moments, start=1))
    ending = chance.choice(("end", "end", "end", "drain", "stop"))
    sources = [worker for name in graph.sources for worker in workers_of(graph, name)]
    held = tuple(chance.sample(sources, chance.randint(1, len(sources)))) if chance.random() < 0.6 else ()
    inputs = flow.inputs(chance.randint(10, 40))
    return Scenario(seed, flow, graph, inputs, settings, wishes, ending, chance.uniform(0.1, 1.0), held)


def _wish(
    chance: random.Random, flow: Flow, graph: Graph, schedules: tuple[tuple[str, bool], ...], at: float, version: int
) -> Wish:
    names = list(flow.changeable)
    targets = tuple(chance.sample(names, min(len(names), chance.choice((1, 2, 2, 3)))))
    scheduler, pruning = chance.choice(schedules)
    if scheduler == "naive" and not cover(graph, targets).naive_safe:
        scheduler = "fries"
    how = chance.choice(list(BROKEN)) if chance.random() < 0.12 else ""
    broken = chance.choice(targets) if how else ""
    transforms, rehearse = chance.random() < 0.6, chance.random() < 0.5
    return Wish(at, version, targets, scheduler, pruning, transforms, rehearse, broken, how)


def play(scenario: Scenario) -> Played:
    """Run it to the end, with the changes asked for at their moments."""
    cluster = Cluster(scenario.graph, scenario.inputs, **scenario.cluster)
    cluster.hold(scenario.held)
    played, ended = Played(scenario, cluster), scenario.ending == "end"
    for wish in scenario.wishes:
        if not ended and scenario.ending_at < wish.at:
            ended = True
            _end(scenario, cluster)
        _read(cluster, wish.at)
        played.changes[_ask(played, wish)] = wish
    if not ended:
        _end(scenario, cluster)
    cluster.until(lambda: len(cluster.outcomes) == len(scenario.wishes))
    cluster.release()
    cluster.run()
    cluster.settle()
    return played


def _end(scenario: Scenario, cluster: Cluster) -> None:
    _read(cluster, scenario.ending_at)
    if cluster.state == "running":
        cluster.stop(drain=scenario.ending == "drain")


def _read(cluster: Cluster, share: float) -> None:
    supply = cluster.supply
    cluster.until(lambda: supply.dry or supply.read >= share * supply.total)
    cluster.steps(max(0, int((share - 1.0) * 3_000)))


def _ask(played: Played, wish: Wish) -> str:
    flow = played.scenario.flow
    change: dict[str, Any] = {}
    for name in wish.targets:
        function = flow.changeable[name](wish.version)
        if name == wish.broken:
            function = BROKEN[wish.how](name, 0, wish.version)
        if isinstance(function, Counter) and wish.transforms:
            function.form = wish.version
            change[name] = Update(function, state=Convert(wish.version))
        else:
            change[name] = Update(function)
    return played.cluster.request(change, wish.scheduler, pruning=wish.pruning, rehearse=wish.rehearse)
