"""Random runs: the dataflow, the cluster, the changes and their times, and the end.

A scenario, and everything that happens in it, is determined by its seed.

>>> scenario = draw_scenario(11)
>>> played = play(scenario)
>>> played.cluster.state, len(played.cluster.outcomes) == len(scenario.wishes)
('finished', True)

Scenarios for runs that are rescaled, in which the order of the rows of a key is determined up to the last operator.

>>> scenario = draw_rescaled(4)
>>> [node.name for node in scenario.flow.nodes], sorted(scenario.flow.keyed)
(['S0', 'Mark1', 'Counter2', 'Mark3', 'Counter4', 'out'], ['Counter2', 'Counter4'])
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

from fries_nb.controller.states import ChangeState
from fries_nb.dataflow.arguments import Limit, tuples
from fries_nb.dataflow.awaiting import Awaiting
from fries_nb.dataflow.builder import DataflowBuilder
from fries_nb.dataflow.endpoints import memory, rate
from fries_nb.dataflow.graph import Graph, Operator
from fries_nb.dataflow.updates import Update
from fries_nb.errors import PlanError
from fries_nb.planning import cover
from fries_nb.protocol.messages import WorkerId
from fries_nb.protocol.topology import workers_of
from fries_nb.simulation import stamp_functions as fns
from fries_nb.simulation.cluster import Cluster
from fries_nb.simulation.drawn_flows import (
    DrawnFlow,
    Inputs,
    Node,
    Reference,
    chained_flow,
    copies,
    counting_flow,
    draw_flow,
    evaluate,
    repartitioned,
)
from fries_nb.simulation.faults import Faults
from fries_nb.simulation.stamp_functions import Convert, Counter, Poison, Revert, Spoil, Unloadable, Unopenable

SCHEDULES = (("fries", True), ("fries", True), ("fries", False), ("epoch", True), ("naive", True))
ALL_SCHEDULES = (
    *(("fries", True), ("fries", True), ("fries", False), ("epoch", True), ("naive", True)),
    *(("multiversion", True), ("multiversion", True), ("minibatch", True), ("restart", True)),
)
Poisoned = Mapping[str, frozenset[int]]

BROKEN = {"open": Unopenable, "unpickle": Unloadable, "poison": Poison}
"""Functions that cannot be prepared, and one that fails on the first row unless it is rehearsed."""

MOST_STEPS = 20_000
"""Upper bound on the steps of a run, which takes a few thousand."""


@dataclass(frozen=True)
class Wish:
    """A change to be requested once this share of the input has been read; beyond 1, some time after that.

    ``transforms`` says whether keyed targets get a state transformation, ``rehearse`` whether new functions are
    rehearsed. ``broken`` names a target with an invalid new function, and ``how`` its defect (see ``BROKEN``); both are
    empty if there is none. ``version`` is the change's number, from 1 on, once it is requested. ``guard`` is the
    duration of its guard. ``bad`` maps operators to the numbers of rows on which their new functions fail; the one in
    ``spoils`` makes the next operator fail on them. ``returns``: the state transformation has an inverse.
    ``share`` of the rows are new in a canary; ``is_step``: it is a further step of the last one, if that is open.
    """

    at: float
    targets: tuple[str, ...]
    scheduler: str
    pruning: bool
    transforms: bool
    rehearse: bool = False
    broken: str = ""
    how: str = ""
    version: int = 0
    guard: Limit | None = None
    bad: Poisoned = field(default_factory=dict)
    spoils: str = ""
    returns: bool = True
    share: float = 1.0
    is_step: bool = False


@dataclass(frozen=True)
class Scenario:
    """One random run, as far as it is determined beforehand.

    ``ending`` is ``end`` (the sources run dry), ``drain`` or ``stop``, requested when ``ending_at`` of the input has
    been read. ``wishes`` are in chronological order. The source workers in ``held`` do not end before all changes have.
    ``requests`` are the times at which a checkpoint is requested. Operators fail on the rows with the numbers in
    ``letters``, which they write to dead letters, or in ``stops``, on which they pause until they are fixed.
    """

    seed: int
    flow: DrawnFlow
    graph: Graph
    inputs: Inputs
    cluster: dict[str, Any]
    wishes: tuple[Wish, ...]
    ending: str
    ending_at: float
    held: tuple[WorkerId, ...] = ()
    requests: tuple[float, ...] = ()
    letters: Poisoned = field(default_factory=dict)
    stops: Poisoned = field(default_factory=dict)

    @cached_property
    def expected(self) -> Reference:
        """The reference's result for the whole run."""
        return evaluate(self.flow.nodes, self.inputs, copies(self.graph), self.letters)

    def __str__(self) -> str:
        wishes = [f"{wish.scheduler}{list(wish.targets)}@{wish.at:.2f}{wish.how}" for wish in self.wishes]
        edges = [f"{edge.source}-{edge.to} {edge.partitioning}" for edge in self.graph.edges]
        held = [str(source) for source in self.held]
        ending = f"{self.ending}@{self.ending_at:.2f}, held {held}"
        poison = f"letters {dict(self.letters)}, stops {dict(self.stops)}"
        return f"scenario {self.seed}: {self.cluster}, {wishes}, {ending}, {poison}, {edges}"


@dataclass
class Played:
    """A completed run; ``changes`` maps change ids to wishes."""

    scenario: Scenario
    cluster: Cluster
    changes: dict[str, Wish] = field(default_factory=dict)


def draw_scenario(seed: int, schedules: tuple[tuple[str, bool], ...] = SCHEDULES) -> Scenario:
    """The scenario of a seed. The naive scheduler is drawn only if the plan calls it safe."""
    chance = random.Random(seed)
    flow = draw_flow(chance)
    graph = repartitioned(flow.dataflow.graph(), chance)
    settings = {
        "hosts": chance.randint(1, 3),
        "seed": seed,
        "window": chance.choice((1, 300, 1_500, 20_000)),
        "chaining": chance.random() < 0.6,
        "commit_interval_ns": chance.choice((None, 5_000_000, 60_000_000)),
    }
    moments = sorted(chance.uniform(0.0, 1.25) for _ in range(chance.choice((1, 1, 2, 3)))) if flow.changeable else []
    wishes = tuple(_wish(chance, flow, graph, schedules, at) for at in moments)
    ending = chance.choice(("end", "end", "end", "drain", "stop"))
    sources = [worker for name in graph.sources for worker in workers_of(graph, name)]
    held = tuple(chance.sample(sources, chance.randint(1, len(sources)))) if chance.random() < 0.6 else ()
    inputs = flow.inputs(chance.randint(10, 40))
    return Scenario(seed, flow, graph, inputs, settings, wishes, ending, chance.uniform(0.1, 1.0), held)


def _wish(
    chance: random.Random, flow: DrawnFlow, graph: Graph, schedules: tuple[tuple[str, bool], ...], at: float
) -> Wish:
    names = list(flow.changeable)
    targets = tuple(chance.sample(names, min(len(names), chance.choice((1, 2, 2, 3)))))
    scheduler, pruning = chance.choice(schedules)
    if scheduler == "naive" and not cover(graph, targets).naive_safe:
        scheduler = "fries"
    how = chance.choice(list(BROKEN)) if chance.random() < 0.12 else ""
    broken = chance.choice(targets) if how else ""
    transforms, rehearse = chance.random() < 0.6, chance.random() < 0.5
    return Wish(at, targets, scheduler, pruning, transforms, rehearse, broken, how)


def draw_troubled(seed: int) -> Scenario:
    """A scenario with faults and any scheduler: kills, full disks, poison."""
    return _troubled(draw_scenario(seed, ALL_SCHEDULES), random.Random(f"trouble {seed}"))


def draw_by_row(seed: int) -> Scenario:
    """A scenario in which most changes are decided row by row, in quick succession, with or without faults."""
    chance = random.Random(f"by row {seed}")
    drawn = draw_scenario(seed) if chance.random() < 0.5 else draw_focused(seed, chance.random() < 0.5)
    if not chance.randint(0, 1):
        drawn = replace(drawn, cluster=drawn.cluster | {"faults": Faults(), "checkpoints": False})
    wishes = [wish for wish in drawn.wishes for _ in range(chance.randint(1, 2))]
    transforming = random.Random(f"state by row {seed}")
    by_row = (wish if chance.random() >= 0.8 else replace(wish, scheduler="cut", bad={}) for wish in wishes)
    drawn_again = tuple(
        replace(wish, transforms=transforming.random() < 0.5) if wish.scheduler == "cut" else wish for wish in by_row
    )
    return replace(drawn, wishes=drawn_again)


def draw_canaries(seed: int) -> Scenario:
    """A scenario of changes that are decided row by row, most of them canaries with further steps."""
    chance = random.Random(f"canary {seed}")
    drawn = draw_by_row(seed)
    if drawn.stops:  # a failure rolls a canary back, whatever has caused it
        return drawn
    return replace(drawn, wishes=_canaries(chance, drawn.wishes))


def draw_forms(seed: int) -> Scenario:
    """A scenario of canaries of few keys, whose states they transform, with faults."""
    chance = random.Random(f"forms {seed}")
    drawn = draw_focused(seed, chance.random() < 0.3)
    if drawn.stops:
        return drawn
    wishes = []
    for at in sorted(chance.uniform(0.05, 0.6) for _ in range(chance.choice((1, 2, 2)))):
        others = chance.sample(list(drawn.flow.changeable), chance.randint(0, 2))
        targets = tuple(dict.fromkeys((chance.choice(sorted(drawn.flow.keyed)), *others)))
        wishes.append(Wish(at, targets, "cut", True, transforms=chance.random() < 0.8))
    return replace(drawn, wishes=_canaries(chance, wishes))


def _canaries(chance: random.Random, drawn: Iterable[Wish]) -> tuple[Wish, ...]:
    """Changes, of which most that are decided row by row are canaries with further steps."""
    wishes: list[Wish] = []
    for wish in drawn:
        is_canary = wish.scheduler == "cut" and chance.random() < 0.7
        first = chance.choice((0.1, 0.4))
        wishes.append(replace(wish, share=first, how="", broken="") if is_canary else wish)
        at = wish.at
        for share in chance.choice(((0.7, 1.0), (1.0,), (0.0,), (0.7, 0.0), ())) if is_canary else ():
            at = min(1.0, at + chance.uniform(0.02, 0.3))
            wishes.append(Wish(at, wish.targets, "cut", True, transforms=False, share=share, is_step=True))
    return tuple(sorted(wishes, key=lambda wish: wish.at))


def draw_focused(seed: int, chained: bool = False) -> Scenario:
    """A scenario with faults and a small keyed dataflow, changed in mid-stream, in which rare events are frequent."""
    chance = random.Random(f"focus {seed}")
    flow = (chained_flow if chained else counting_flow)(chance)
    graph = flow.dataflow.graph()
    settings = {
        "hosts": chance.randint(1, 3),
        "seed": seed,
        "window": chance.choice((300, 1_500, 20_000)),
        "chaining": chance.random() < 0.6,
    }
    moments = sorted(chance.uniform(0.1, 0.8) for _ in range(chance.choice((1, 2))))
    wishes = _wishes(chance, flow, moments, 3)
    held = workers_of(graph, "S0") if chance.random() < 0.8 else ()
    plain = Scenario(seed, flow, graph, flow.inputs(chance.randint(40, 80)), settings, wishes, "end", 1.0, held)
    return _troubled(plain, chance)


def _wishes(chance: random.Random, flow: DrawnFlow, moments: Iterable[float], most: int) -> tuple[Wish, ...]:
    """A change of some operators at each of these moments, with transformed states, by a consistent scheduler."""
    wishes = []
    for at in moments:
        scheduler, pruning = chance.choice(ALL_SCHEDULES[2:4] + ALL_SCHEDULES[5:])
        targets = tuple(chance.sample(list(flow.changeable), chance.randint(1, most)))
        wishes.append(Wish(at, targets, scheduler, pruning, transforms=True))
    return tuple(wishes)


def draw_guarded(seed: int) -> Scenario:
    """A scenario of guarded changes, most of which fail on some tuples: soon, later, or downstream."""
    chance = random.Random(f"guard {seed}")
    kind = chance.choice(("counting", "chained", "any"))
    plain = draw_scenario(seed, ALL_SCHEDULES) if kind == "any" else draw_focused(seed, kind == "chained")
    checkpoints, count = chance.random() < 0.6, max(map(len, plain.inputs.values()))
    wishes = tuple(
        _guarded(chance, plain.flow, replace(wish, how="", broken="", rehearse=False), count) for wish in plain.wishes
    )
    kills = chance.choice((0, 0, 1, 2)) if checkpoints else 0
    settings = plain.cluster | {
        "faults": Faults(hazard=0.003, host_kills=kills, slow=chance.random() < 0.2),
        "checkpoints": checkpoints,
        "commit_interval_ns": chance.choice((None, 5_000_000, 60_000_000)),
    }
    graph = Graph(
        plain.graph.name,
        tuple(replace(one, on_error="fail", function=_sound(one.function)) for one in plain.graph.operators),
        plain.graph.edges,
    )
    return replace(plain, graph=graph, cluster=settings, wishes=wishes, ending="end", letters={}, stops={}, requests=())


def _guarded(chance: random.Random, flow: DrawnFlow, wish: Wish, count: int) -> Wish:
    limit = chance.choice((0.02, 0.3, 1_000.0, 1_000.0, tuples(3), tuples(1_000)))
    bad = {
        name: frozenset(chance.sample(range(count), 4))
        for name in wish.targets
        if name in flow.tasting and chance.random() < 0.6
    }
    marks = [name for name in bad if name == "Mark1" and flow.dataflow.name == "counting"]  # with a Counter below
    spoils = chance.choice(marks) if marks and chance.random() < 0.5 else ""
    return replace(wish, guard=limit, bad=bad, spoils=spoils, returns=chance.random() < 0.6)


def _sound(function: Any) -> Any:
    """The function without the rows that it fails on."""
    if not getattr(function, "poison", None):
        return function
    sound = copy.copy(function)
    sound.poison = frozenset()
    return sound


def draw_pausing(seed: int) -> Scenario:
    """A small dataflow with two operators that pause on some tuples and are meanwhile changed together."""
    chance = random.Random(f"standing {seed}")
    plain = draw_focused(seed)
    pausing = tuple(chance.sample(plain.flow.tasting, 2))
    count = max(map(len, plain.inputs.values()))
    stops = {name: frozenset(chance.sample(range(count), 4)) for name in pausing}
    wishes = tuple(
        Wish(at, targets, scheduler, pruning, transforms=chance.random() < 0.5)
        for at in sorted(chance.uniform(0.1, 0.8) for _ in range(chance.choice((1, 2))))
        for others in [[name for name in plain.flow.changeable if name != pausing[0]]]
        for targets in [(pausing[0], *chance.sample(others, chance.randint(1, 2)))]
        for scheduler, pruning in [chance.choice(SCHEDULES[:4] + ALL_SCHEDULES[5:8])]
    )
    declared = plain.flow.dataflow.graph().operators  # without the poison that ``plain`` has added
    operators = tuple(_poisoned(operator, {}, stops) for operator in declared)
    graph = Graph(plain.graph.name, operators, plain.graph.edges)
    settings = plain.cluster | {"faults": Faults(slow=chance.random() < 0.2), "checkpoints": chance.random() < 0.3}
    return replace(plain, graph=graph, cluster=settings, wishes=wishes, letters={}, stops=stops, requests=())


def draw_awaiting(seed: int) -> Scenario:
    """A scenario of any of these kinds in which most functions are coroutines, whose calls overlap."""
    chance = random.Random(f"awaiting {seed}")
    kinds = draw_troubled, draw_troubled, draw_focused, draw_focused, draw_by_row, draw_canaries, draw_pausing
    plain = chance.choice(kinds)(seed)
    if plain.stops and any(wish.scheduler == "cut" for wish in plain.wishes):
        # A fix of a new function that transforms states, while rows of a cut are open, is for rows that come in turn.
        plain = draw_pausing(seed)
    return _made_of_coroutines(plain, chance)


def draw_awaiting_guards(seed: int) -> Scenario:
    """A scenario of guarded changes in which most functions are coroutines."""
    return _made_of_coroutines(draw_guarded(seed), random.Random(f"awaiting guards {seed}"))


def _made_of_coroutines(plain: Scenario, chance: random.Random) -> Scenario:
    able = [one.name for one in plain.graph.operators if type(one.function) in fns.AWAITED]
    awaited = {name for name in able if chance.random() < 0.8}
    operators = tuple(_awaiting(one, chance) if one.name in awaited else one for one in plain.graph.operators)
    changeable = {
        name: partial(_made_to_await, build) if name in awaited else build
        for name, build in plain.flow.changeable.items()
    }
    sound = [replace(wish, how="", broken="") if wish.broken in awaited else wish for wish in plain.wishes]
    wishes = tuple(replace(wish, spoils="") if wish.spoils in awaited else wish for wish in sound)
    flow = replace(plain.flow, changeable=changeable)
    return replace(plain, flow=flow, graph=Graph(plain.graph.name, operators, plain.graph.edges), wishes=wishes)


def _awaiting(operator: Operator, chance: random.Random) -> Operator:
    # Fixes are asked for again until a row has passed, which one that cancels the call of that row would put off.
    retries = chance.random() < 0.4 and operator.on_error != "pause"
    ordered, concurrency = chance.random() < 0.5, chance.choice((1, 2, 3, 8, 64))
    awaiting = Awaiting(concurrency, None, ordered, "retry" if retries else "finish")
    return replace(operator, function=fns.as_coroutine(operator.function), awaiting=awaiting, chain=False)


def _made_to_await(build: Callable[[int], Any], version: int) -> Any:
    return fns.as_coroutine(build(version))


def _troubled(plain: Scenario, chance: random.Random) -> Scenario:
    faults = Faults(
        hazard=chance.choice((0.001, 0.003, 0.01)),
        host_kills=chance.choice((0, 1, 1, 2, 4)),
        driver_kills=chance.choice((0, 0, 1, 2)),
        full_disk=chance.choice((0.0, 0.0, 0.05)),
        slow=chance.random() < 0.2,
    )
    interval = chance.choice((None, 2_000_000, 5_000_000, 60_000_000))
    settings = plain.cluster | {"faults": faults, "checkpoints": True, "commit_interval_ns": interval}
    letters, stops = _poison(chance, plain)
    operators = tuple(_poisoned(operator, letters, stops) for operator in plain.graph.operators)
    graph = Graph(plain.graph.name, operators, plain.graph.edges)
    wishes = tuple(replace(wish, how="", broken="") if wish.broken in letters else wish for wish in plain.wishes)
    requests = tuple(sorted(chance.uniform(0.0, 1.1) for _ in range(chance.choice((0, 0, 1, 2)))))
    return replace(plain, graph=graph, cluster=settings, wishes=wishes, requests=requests, letters=letters, stops=stops)


def _poison(chance: random.Random, scenario: Scenario) -> tuple[Poisoned, Poisoned]:
    """Rows that become dead letters, and rows on which operators pause, by operator."""
    letters, stops = {}, {}
    count = max(map(len, scenario.inputs.values()))
    for name in scenario.flow.tasting:
        fate, numbers = chance.random(), frozenset(chance.sample(range(count), 3))
        alone = cover(scenario.graph, {name}).naive_safe
        if fate < 0.1:
            letters[name] = numbers
        elif fate < 0.2 and alone and not name.startswith("Slices"):
            stops[name] = numbers
    return letters, stops


def _poisoned(operator: Operator, letters: Poisoned, stops: Poisoned) -> Operator:
    numbers = letters.get(operator.name) or stops.get(operator.name)
    if not numbers:
        return operator
    function = copy.copy(operator.function)
    function.poison = numbers
    return replace(operator, function=function, on_error=memory() if operator.name in letters else "pause")


def play(scenario: Scenario, cluster: type[Cluster] = Cluster) -> Played:
    """Run a scenario to its end, with its changes, and with fixes for paused operators."""
    return _Play(scenario, cluster).whole()


class _Play:
    """One scenario on its cluster."""

    def __init__(self, scenario: Scenario, cluster: type[Cluster]) -> None:
        self._scenario = scenario
        self._cluster = cluster(scenario.graph, scenario.inputs, **scenario.cluster)
        self._played = Played(scenario, self._cluster)
        self._ended = scenario.ending == "end"
        self._mended: set[str] = set()
        self._closes = False  # whether open canaries are promoted, so that what waits for them goes on

    def whole(self) -> Played:
        """Play from the beginning to the end."""
        scenario, cluster = self._scenario, self._cluster
        cluster.hold(scenario.held)
        moments: list[tuple[float, Wish | None]] = [(wish.at, wish) for wish in scenario.wishes]
        moments += [(at, None) for at in scenario.requests]
        for at, wish in sorted(moments, key=lambda moment: moment[0]):
            if not self._ended and scenario.ending_at < at:
                self._end()
            self._read(at)
            if wish is None:
                cluster.checkpoint()
            else:
                self._ask(wish)
        if not self._ended:
            self._end()
        self._closes = True
        self._until(lambda: not cluster.open and None not in cluster.asked.values())
        cluster.release()
        self._until(lambda: False)
        cluster.settle()
        return self._played

    def _until(self, reached: Callable[[], bool]) -> None:
        def mended() -> bool:
            for operator in sorted(self._cluster.paused):
                self._mend(operator)
            if self._closes:
                self._step(Wish(1.0, (), "cut", True, transforms=False, is_step=True))
            return reached()

        self._cluster.until(mended, MOST_STEPS)

    def _end(self) -> None:
        self._ended = True
        self._read(self._scenario.ending_at)
        if self._cluster.state == "running":
            self._cluster.stop(drain=self._scenario.ending == "drain")

    def _read(self, share: float) -> None:
        cluster = self._cluster
        self._until(lambda: cluster.supply.dry or cluster.supply.read >= share * cluster.supply.total)
        cluster.steps(max(0, int((share - 1.0) * 3_000)))

    def _mend(self, operator: str) -> None:
        """Request a fix, unless one waits or is prepared; a committed one may wait behind the tuple."""
        states = self._cluster.controller.changes
        waiting = {
            self._played.changes[change].targets
            for change in self._cluster.open
            if states.get(change) is not ChangeState.COMMITTING
        }
        if (operator,) not in waiting:
            self._mended.add(operator)
            before = self._cluster.open
            scheduler, pruning = self._cluster.random.choice(ALL_SCHEDULES)
            self._ask(Wish(0.0, (operator,), scheduler, pruning, self._cluster.random.random() < 0.5))
            if not self._cluster.open - before:  # refused at once, since it had no state transformation
                self._ask(Wish(0.0, (operator,), scheduler, pruning, transforms=False))

    def _step(self, wish: Wish) -> None:
        """Request a further step of the last canary, if it is done and open."""
        made, number = self._played.changes, len(self._played.changes) + 1
        canary = next((change for change in reversed(made) if made[change].share < 1 and not made[change].is_step), "")
        outcome, queue = self._cluster.outcomes.get(canary), self._cluster.changes.queue
        if outcome is not None and outcome.outcome == "done" and 0 < queue.share(canary) < (wish.share or 1):
            made[f"u{number}"] = replace(wish, targets=made[canary].targets)
            self._cluster.ramp(canary, wish.share)

    def _ask(self, wish: Wish) -> None:
        if wish.is_step:
            self._step(wish)
            return
        scenario, version = self._scenario, len(self._played.changes) + 1
        change: dict[str, Any] = {}
        for name in wish.targets:
            function = scenario.flow.changeable[name](version)
            if name == wish.spoils:
                function = Spoil(function.name, function.salt, version)
            if name in wish.bad:
                function.poison = wish.bad[name]
            if name == wish.broken:
                function = BROKEN[wish.how](name, 0, version)
            elif name in scenario.letters:
                function.poison = scenario.letters[name]
            elif name in scenario.stops and name not in self._mended:
                function.poison = scenario.stops[name]
            in_turns = any(other.scheduler == "cut" for other in scenario.wishes)
            if isinstance(function, Counter):
                function.in_turns = in_turns
            if isinstance(function, Counter) and wish.transforms:
                function.form = version if wish.guard is None else None  # a rollback may return to any earlier form
                back = Revert(version) if in_turns else Convert(0)
                change[name] = Update(function, state=Convert(version), back=back if wish.returns else None)
            else:
                change[name] = Update(function)
        # Recorded beforehand, since the request may be answered at once, or kill the driver.
        self._played.changes[f"u{version}"] = replace(wish, version=version)
        how = {"rehearse": wish.rehearse, "guard": wish.guard, "share": wish.share}
        try:
            self._cluster.request(change, wish.scheduler, pruning=wish.pruning, **how)  # type: ignore[arg-type]
        except PlanError:
            if wish.share == 1:
                raise
            del self._played.changes[f"u{version}"]  # another canary is open


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
    wishes = _wishes(chance, flow, moments, 2)
    held = workers_of(graph, "S0") if chance.random() < 0.7 else ()
    inputs = flow.inputs(chance.randint(40, 100), CUSTOMERS)
    return Scenario(seed, flow, graph, inputs, settings, wishes, "end", 1.0, held)
