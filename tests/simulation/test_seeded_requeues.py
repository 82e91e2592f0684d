"""Rows of dead letters go back at any step of changes, moves, checkpoints, chains and kills, each exactly once."""

from __future__ import annotations

import json
from collections import Counter

import pytest
from interleaving_checks import lacking
from soak import caught

import fries_nb as fn
from fries_nb.audit import judge
from fries_nb.controller.membership import Workers
from fries_nb.errors import FriesError
from fries_nb.host.host_core import HostCore
from fries_nb.host.host_workers import Assembly
from fries_nb.operators import dead_letters
from fries_nb.protocol.messages import WorkerId
from fries_nb.protocol.partitioning import RoutingTable
from fries_nb.simulation.drawn_flows import source_rows
from fries_nb.simulation.faults import Faults
from fries_nb.simulation.seeded_calls import Pause
from fries_nb.simulation.threaded_hosts import JoiningThreads
from fries_nb.worker import alignment, chaining, worker
from fries_nb.worker.events import TellController
from fries_nb.worker.retries import Returning
from fries_nb.worker.worker import Worker

ROWS = 150


class Fails:
    """Counts the rows of a key; fails on some rows, on fewer in a later version."""

    def __init__(self, version=0):
        self.version = version

    def initial_state(self):
        """None yet."""
        return {"rows": 0}

    def process(self, row, state):
        """A row that fails leaves no trace in the state."""
        state["rows"] += 1
        if row["number"] % 5 == 3 and row["number"] // 5 % 3 >= self.version:
            raise ValueError(f"cannot take {row['number']}")
        return row | {"mended": self.version}


def failing(keyed=True, function=None, **options):
    """K fails on a fifth of the rows; behind is a map, and K itself may be chained behind another one."""
    flow = fn.Dataflow("requeued")
    letters = fn.memory()
    stream = flow.source("S", fn.rate(None, count=1), workers=2).map("M", lambda row: row | {"m": 1}, workers=2)
    if keyed:
        stream = stream.map("K", function or Fails(), key="customer", workers=2, on_error=letters, **options)
    else:
        stream = stream.map("K", lambda row: Fails().process(row, {"rows": 0}), workers=2, on_error=letters)
    stream.map("N", dict, workers=2).sink("out", fn.memory(), workers=2)
    return flow.graph()


class Requeueing(JoiningThreads):
    """Somebody requeues letters now and then, and mends the function."""

    rechains, often = 0.01, 0.002
    requeues, mends = 0.04, 0.002

    def __init__(self, *args, **settings):
        self.given: dict[str, int] = {}  # request to its number of rows
        self.version = 0
        super().__init__(*args, **settings)

    def open_letters(self):
        """The committed letters that no decision has given back, and no sink says are requeued."""
        rows = self.rows("K")
        closed = {row["letter"] for row in rows if row["requeued"]}
        closed |= {row.letter for one in self.journal for row in one.requeued}
        return [row for row in rows if not row["requeued"] and row["letter"] not in closed]

    def step(self):
        """Requeue first, now and then; and mend the function, too."""
        if self.state == "running" and self.random.random() < self.requeues and len(self.given) == len(self.requeued):
            letters = [one for one in self.open_letters() if self.random.random() < 0.7]
            self.given |= {self.requeue("K", letters): len(letters)} if letters else {}
        if self.state == "running" and not self.open and self.random.random() < self.mends:
            self.version += 1
            self.request({"K": self.mended(self.version)})
        return super().step()

    def mended(self, version):
        """K's function of this version."""
        return Fails(version)

    def kill_driver(self):
        """Whatever is not decided is forgotten."""
        self.given = {one: rows for one, rows in self.given.items() if one in self.requeued}
        super().kill_driver()


class InChains(Requeueing):
    """K has no key, so that it is chained with what is before it and behind."""

    rechains, often = 0.015, 0.0

    def mended(self, version):
        """Without a state."""
        return lambda row: Fails(version).process(row, {"rows": 0})


class Worse(Fails):
    """Fails on other rows, too, which its guard does not let pass."""

    def process(self, row, state):
        """As an earlier version, if that."""
        if row["number"] % 7 == 2:
            raise ValueError(f"cannot take {row['number']} any more")
        return super().process(row, state)


class Guarded(Requeueing):
    """Functions are replaced under guard, by worse ones, too, of which some meet rows that came back first."""

    rechains, often = 0.01, 0.0
    mends = 0.0

    def step(self):
        """Replace the function now and then, under guard."""
        if self.state == "running" and not self.open and self.random.random() < 0.004:
            self.version += self.random.random() < 0.3
            kind = self.random.choice((Fails, Worse))
            self.request({"K": kind(self.version)}, guard=0.2)
        return super().step()


class Awaits(Fails):
    """The same as a coroutine, which waits before and after."""

    async def process(self, row, state):
        """See ``Fails``."""
        await Pause()
        made = super().process(row, state)
        await Pause()
        return made


class Awaiting(Requeueing):
    """Calls are in flight when rows come back, keys move and hosts die."""

    def mended(self, version):
        """A coroutine, as it has been."""
        return Awaits(version)


class Mended(InChains):
    """Functions and chains change often."""

    rechains, mends, requeues = 0.03, 0.02, 0.01


def play(seed, kills=(0, 0), of=Requeueing):
    """Play a seed, and check where each row has ended; says what has happened."""
    faults = Faults(hazard=0.0008, host_kills=kills[0], driver_kills=kills[1])
    graph = failing(keyed=not issubclass(of, InChains))
    if issubclass(of, Awaiting):
        graph = failing(function=Awaits(), concurrency=8, ordered=seed % 2 == 1)
    cluster = of(
        graph, {"S": source_rows("S", ROWS, customers=20)}, hosts=2, seed=seed,
        commit_interval_ns=10_000_000, checkpoints=True, faults=faults,
    )  # fmt: skip
    cluster.hold([WorkerId("S", index) for index in range(2)])  # so that there are workers to requeue to
    cluster.steps(cluster.random.randint(4_000, 9_000))
    decided = {row.letter for one in cluster.journal for row in one.requeued}
    cluster.release()
    cluster.run()
    cluster.settle()
    assert cluster.state == "finished", cluster.error
    return check(cluster, decided)


def check(cluster, decided):
    """Each row has left K once, or has one open letter; each letter was requeued once; state and audit agree.

    What was decided while all workers were there has gone back.
    """
    out, told = cluster.rows("out"), cluster.rows("K")
    requeued = Counter(row["letter"] for row in told if row["requeued"])
    letters = {row["letter"]: row for row in told if not row["requeued"]}
    assert not requeued or max(requeued.values()) == 1
    assert decided <= requeued.keys() <= letters.keys()
    still = [json.loads(row["tuple"])["id"] for row in letters.values() if row["letter"] not in requeued]
    ended = Counter(row["id"] for row in out) + Counter(still)
    assert set(ended.values()) == {1}
    assert len(ended) == ROWS
    for row in letters.values():
        before = [one for one in letters.values() if one["tuple"] == row["tuple"] and one["tries"] < row["tries"]]
        assert len(before) == row["tries"] - 1
    states = [pair for one in cluster.instances("K") for kept in one.state.bins().values() for pair in kept.items()]
    if isinstance(cluster.instances("K")[0].function, Fails):
        assert len(states) == len(dict(states)), "two workers have the state of a key"
        assert sum(state["rows"] for _, state in states) == len(out)
    verdict = judge(cluster.records())
    assert verdict.serializable
    assert not [*verdict.lost, *verdict.doubled]
    return Counter(
        requeued=len(requeued), again=sum(row["tries"] > 1 for row in letters.values()), open=len(still),
        recovered=len(cluster.recoveries), undone=sum(end.rolled_back for end in cluster.guards.values()),
        left=sum(one.left for one in cluster.requeued.values()),
    )  # fmt: skip


@pytest.mark.parametrize("kills", [(0, 0), (2, 0), (1, 1)])
@pytest.mark.parametrize("of", [Requeueing, InChains, Guarded, Awaiting])
def test_each_row_of_a_dead_letter_ends_once(of, kills):
    """Scored, or dead: whatever moves or dies meanwhile."""
    wanted = ["requeued", *["again", "undone"] * (of is Guarded), *["recovered"] * any(kills)]
    assert lacking(3, wanted, lambda seed: play(seed, kills, of), least=2, most=16, shown=(4, 5)) == {}


# ---- mutants


class _Late(Returning):
    """Rows that came back let some of the inbox pass; a marker, too."""

    asked = 0

    @property
    def waits(self):
        """Only now and then."""
        self.asked += 1
        return self.asked % 4 == 0 and any(one.failing.returned for one in self._instances)

    @waits.setter
    def waits(self, waits):
        """It is asked of the operators."""


def _forgets(assembly, instance):
    """A restart forgets what was decided behind its checkpoint."""


def _by_the_first_table(requeues, operator):
    """Bins have moved since."""
    return RoutingTable.even(2)


def _whatever_waits(first, second, obstacle=chaining.obstacle):
    """Rows that came back stay with a worker that has gone."""
    waits, second._returning.waits = second._returning.waits, False
    try:
        return obstacle(first, second)
    finally:
        second._returning.waits = waits


def _posts_while_chains_change(core, order):
    """A function that was prepared comes behind the message that switches to it, from a worker that has gone."""
    result = core._rehearsals.prepare(order)
    core.router.post(order.worker, result)
    core._outside(TellController(result.answer))
    yield


def _doubles(instance, requeue, rows, return_rows=dead_letters.return_rows):
    """Each row comes twice, as after an answer that was sent again."""
    return_rows(instance, requeue, [*rows, *rows])


BROKEN = [
    (worker, "Returning", _Late, Requeueing, (2, 0), 10),
    (Assembly, "_return_rows", _forgets, InChains, (2, 0), 4),
    (Workers, "table", _by_the_first_table, Requeueing, (0, 0), 12),
    (chaining, "obstacle", _whatever_waits, InChains, (0, 0), 20),
    (Worker, "give_back", lambda worker: None, InChains, (0, 0), 11),
    (alignment, "return_rows", _doubles, InChains, (0, 0), 0),
    (HostCore, "_try", _posts_while_chains_change, Mended, (0, 0), 70),
]
"""Of a class or module, the name of what is broken, how, the runs one of which must show it, and the first to try."""


@pytest.mark.parametrize(("kind", "name", "broken", "of", "kills", "first"), BROKEN)
def test_a_broken_rule_is_found(monkeypatch, kind, name, broken, of, kills, first):
    """By a row that is lost or doubled, by a state in two places, or by a run that fails."""
    monkeypatch.setattr(kind, name, broken)
    seeds = (first, *range(60))
    assert caught(seeds, lambda seed: play(seed, kills, of), (AssertionError, FriesError, RuntimeError)) is not None
