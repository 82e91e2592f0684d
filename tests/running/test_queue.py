"""The change queue that people use, over real controllers and workers, in one thread: every interleaving from a seed.

What a user's thread does between two holds of the queue's lock (a function is pickled, a region is launched) is where
others may come in between: there, other users, the controller's outcomes and the workers' steps are drawn.
"""

from __future__ import annotations

import itertools
import random
from collections import Counter
from functools import partial

import cloudpickle
from soak import SOAK

from fries_nb.changes.change_queue import ChangeQueue
from fries_nb.changes.queue_entries import QueueShell
from fries_nb.controller import events
from fries_nb.dataflow.endpoints import memory, rate
from fries_nb.dataflow.graph import Edge, Graph, Kind, Operator
from fries_nb.dataflow.regions import regions
from fries_nb.dataflow.updates import Update
from fries_nb.errors import PlanError, RunError
from fries_nb.running.run_checkpoints import changed
from fries_nb.simulation import Cluster

SEEDS = 16 * SOAK
CHANGED = ("A", "B", "C")
OPEN = ("requested", "preparing", "committing")


class Token:
    """A function that is known again after it was shipped; one that is bad cannot be opened.

    One that ``fails`` does so on each tuple, as long as a guard lasts that can undo its change in place.
    """

    is_saved = None

    def __init__(self, name, bad=False, fails=False):
        self.name, self.bad, self.fails = name, bad, fails

    def open(self):
        if self.bad:
            raise OSError("no such model")

    def __call__(self, row):
        if self.fails and Token.is_saved(self.name):
            raise ValueError(self.name)
        return row


class Heard(Cluster):
    """A cluster that tells what the run hears of its controller."""

    def __init__(self, *args, hear, **kwargs):
        self.hear = hear
        super().__init__(*args, **kwargs)

    def _see(self, instruction):
        if isinstance(instruction, events.Resolved | events.GuardFired | events.GuardEnded):
            self.hear(instruction)
        super()._see(instruction)


def flow():
    """S > A > B > G > C > Out: two regions, since G sees all its input first."""
    kinds = {"S": Kind.SOURCE, "Out": Kind.SINK, "G": Kind.AGGREGATE}
    ends = {"S": rate(None, count=1), "Out": memory(), "G": None}
    names = ("S", "A", "B", "G", "C", "Out")
    operators = tuple(
        Operator(name, kind=kinds.get(name, Kind.MAP), blocking=name == "G", workers=1 + (name in "AC"),
                 function=ends[name] if name in ends else Token(f"first {name}"))
        for name in names
    )  # fmt: skip
    return Graph("queue", operators, tuple(Edge(*each) for each in itertools.pairwise(names)))


class Play(QueueShell):
    """A run's queue, what it is asked, and what carries out."""

    chaining, recovers = True, False

    def __init__(self, seed):
        Token.is_saved = self.is_saved
        self.chance = random.Random(seed)
        self.graph = flow()
        self.regions = regions(self.graph)
        self.now_s = 0.0
        self.ends = Counter()
        self.launched = []
        self.undelivered = []
        self.state = "running"
        self.queue = ChangeQueue(self.graph, self.regions, self, self, clock=self._clock)
        self.asked, self.met, self.versions = [], Counter(), itertools.count()
        self.layers = {name: [("", f"first {name}")] for name in CHANGED}
        self.undoes, self.tokens, self.paused = {}, {}, set()
        self.deep = self.begun = 0
        self.launch()

    def _clock(self):
        self.now_s += 1.0
        return self.now_s

    def requested(self, change):
        assert change.id not in self.ends

    def ended(self, change, outcome):
        self.ends[change.id] += not change.done
        assert not change.done or (change.result().outcome, outcome.outcome) == ("done", "rolled_back")
        self.met[outcome.outcome] += 1

    # ---- the runner

    def refuse_if_over(self, why):
        if self.state != "running":
            raise RunError(why)

    def ship(self, updates):
        self.refuse_if_over("over")
        self.meanwhile()
        return {name: cloudpickle.dumps(update) for name, update in updates.items()}

    def carry_out(self, region, request):
        assert region == len(self.launched) - 1
        self.begun += 1
        self.undoes[request.change] = request.undoes or None
        cluster = self.launched[region]
        others = {change for change, state in cluster.controller.changes.items() if state in OPEN}
        others -= {one.outcome.change for _, one in self.undelivered if isinstance(one, events.Resolved)}
        others = {change for change in others if not change.endswith(".back")}  # of a guard: beside all else
        assert not others or self.paused, f"{request.change} is begun beside {others}"
        self._watched(cluster, partial(cluster._say, request))

    def is_saved(self, token):
        """Whether a failure of this function is undone in front of the tuple."""
        guards = self.launched[-1].controller._life.guards
        return any(
            guards.of(change).in_place(guards.chain_of(name))
            for change in guards.all()
            for name, one in self.tokens[change].items()
            if one == token
        )

    def is_firing(self):
        """A guard rolls a change back, of which users hear at about that time."""
        guards = self.launched[-1].controller._life.guards
        return any(guards.of(change).fired for change in guards.all())

    # ---- regions

    def launch(self):
        """The next region starts with what was requested for it."""
        number = len(self.launched)
        applied = self.queue.starting(number)
        graph = changed(self.regions[number].graph, number, applied)
        for _ in range(number and self.chance.randrange(4)):
            self.chance.choice((self.request, self.roll_back))()
        rows = {name: [{"n": n} for n in range(12)] for name in graph.sources}
        hear = partial(self._hear, number)
        cluster = Heard(graph, rows, seed=self.chance.randrange(10**9), window=300, hear=hear)
        cluster.hold(cluster.supply.sources)
        self.launched.append(cluster)
        for request in applied:
            self.undoes[request.id] = request.undoes.id if request.undoes else None
            updates = {name: request.updates[name] for name in request.plans[number].targets}
            self.decided(request.id, {name: update.function.name for name, update in updates.items()})
        self.queue.started(number, applied)

    def _watched(self, cluster, do):
        """Do something to a cluster, and see what it decides and resolves by that."""
        journaled = len(cluster.journal)
        do()
        for entry in cluster.journal[journaled:]:
            functions = {name: cloudpickle.loads(payload).function.name for name, payload in entry.payloads.items()}
            self.undoes.setdefault(entry.change, entry.undoes)
            self.decided(entry.change, functions or dict.fromkeys(self.tokens.get(entry.undoes, ())))

    def _hear(self, number, instruction):
        self.undelivered.append((number, instruction))

    def decided(self, change, functions):
        """Which function each operator runs from now on: the one requested, or what there was before what is undone."""
        undone = self.undoes[change]
        self.tokens[change] = functions
        for name, token in functions.items():
            layers = self.layers[name]
            if undone is None:
                layers.append((change, token))
                continue
            assert undone in dict(layers), f"{change} undoes {undone} of {name}, which is not in effect: {layers}"
            layers[:] = [layer for layer in layers if layer[0] != undone]
            if token is None:
                self.met["fired"] += 1
                continue
            assert layers[-1][1] == token, f"{change} undoes {undone}: {name} runs {token}, expected {layers}"
            self.met["undone"] += 1

    # ---- what happens

    def step(self):
        """One thing that may happen next."""
        draw = self.chance.random()
        if self.undelivered and draw < 0.15:
            self.deliver()
        elif draw < 0.19:
            self.request()
        elif draw < (0.4 if self.is_firing() else 0.23):
            self.roll_back()
        elif draw < 0.42 and self.deep == 0:
            self.pause_once()
        else:
            self._watched(self.launched[-1], self.launched[-1].step)

    def meanwhile(self):
        """What others do while a thread is between two holds of the lock."""
        if self.deep:
            return
        self.deep += 1
        for _ in range(self.chance.choice((0, 0, 2, 10))):
            if self.launched[-1].state == "running":
                self.step()
        self.deep -= 1

    def deliver(self):
        number, one = self.undelivered.pop(0)
        match one:
            case events.Resolved(outcome):
                self.queue.resolved(number, outcome)
            case events.GuardFired():
                self.queue.guard_fired(number, one)
            case events.GuardEnded():
                self.queue.guard_ended(number, one)

    def request(self):
        names = self.chance.sample(CHANGED, self.chance.choice((1, 1, 2, 3)))
        version = next(self.versions)
        here = self.regions[len(self.launched) - 1].own  # a region that cannot open a function does not start
        bad = {name for name in names if name in here and self.chance.random() < 0.1}
        fails = self.chance.random() < 0.4
        functions = {name: Token(f"{name} {version}", name in bad, fails) for name in names}
        guard = 10.0**6 if fails else self.chance.choice((None, 10.0**6))
        merge = self.chance.random() < 0.4
        self.pause(names[0] if len(names) == 1 and self.chance.random() < 0.2 else "")
        updates = {name: Update(functions[name]) for name in names}
        self.ask(lambda: self.queue.request(updates, merge=merge, limit=guard, rehearse=False))

    def pause_once(self):
        """An operator is paused for a moment: what waits and changes just that goes ahead."""
        self.met["ahead"] += self.pause(self.chance.choice(CHANGED))
        self.pause("")

    def pause(self, operator):
        """This operator is paused, and no other; returns how many go ahead by that."""
        before, self.paused = self.paused, {operator} - {""}
        region, begun = len(self.launched) - 1, self.begun
        for name in sorted(before | self.paused):
            self.queue.pause(region, name, name == operator)
        return self.begun - begun

    def roll_back(self):
        self.ask(lambda: self.queue.roll_back())

    def ask(self, do):
        try:
            self.asked.append(do())
        except (PlanError, RunError) as refused:
            self.met[str(refused).split(" ")[0]] += 1
        self.pause("")

    def whole(self):
        """From the first region to the end of the run."""
        for number in range(len(self.regions)):
            for _ in range(self.chance.randint(0, 400)):
                self.step()
            cluster = self.launched[number]
            self.check(number)
            cluster.release()
            while cluster.state == "running":
                self.step()
            while self.undelivered:
                self.deliver()
            assert cluster.state == "finished", cluster.error
            self.queue.over(number, "the region had finished")
            if number + 1 < len(self.regions):
                self.launch()
        self.state = "finished"
        self.ask(lambda: self.queue.roll_back())
        return self

    def check(self, number):
        """When all is settled, the workers run what the decisions add up to."""
        cluster = self.launched[number]
        while self.undelivered or any(state in OPEN for state in cluster.controller.changes.values()):
            if self.undelivered:
                self.deliver()
            else:
                self._watched(cluster, cluster.step)
        for name in set(CHANGED) & set(self.regions[number].own):
            runs = {instance.function.name for instance in self.launched[number].instances(name)}
            assert runs == {self.layers[name][-1][1]}
            known = self.queue.running_functions()[name]
            named = self.tokens[known.version][name] if known.version else f"first {name}"
            assert runs == {named}, f"{name} runs {runs}, not {named} of {known}"
            assert named in known.function


def try_queue(seed):
    """Every change comes to one end, one is in flight at a time, and what runs is what the decisions add up to."""
    play = Play(seed).whole()
    assert play.ends == Counter(change.id for change in play.asked), f"seed {seed}"
    assert all(change.settled(0).outcome for change in play.asked), f"seed {seed}"
    return play


def test_the_queue_keeps_its_promises_in_every_interleaving():
    """Requests, merges, rollbacks, withdrawals, fixes, aborts, guards, ends of regions, in any order; all were met."""
    met = Counter()
    for seed in range(SEEDS):
        met += try_queue(seed).met
    assert {what for what in ("done", "aborted", "undone", "fired", "ahead") if met[what] < SEEDS} == set(), met
