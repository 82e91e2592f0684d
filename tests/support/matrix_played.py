"""Seeded runs of every kind of operator, with two actions at a time; see ``matrix_kinds`` for the dataflows.

An action is a generator: it asks for something, yields conditions to wait for, and returns why it did not do what was
asked, or nothing. Two begin at a time, the second one a few steps behind the first, while rows flow.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

from matrix_kinds import ARMED, KINDS, Mark, Row, Setting, is_letter, rows_of

import fries_nb as fn
from fries_nb.audit import judge
from fries_nb.dataflow.graph import Graph
from fries_nb.errors import FriesError
from fries_nb.host.region_spec import Options
from fries_nb.planning import cover
from fries_nb.protocol.checkpoints import in_effect
from fries_nb.protocol.messages import WorkerId
from fries_nb.protocol.partitioning import RoutingTable
from fries_nb.protocol.topology import workers_of
from fries_nb.running.rescales import shares
from fries_nb.simulation.faults import Faults
from fries_nb.simulation.hosts import Hosts
from fries_nb.simulation.rescaling_cluster import MOST_HOSTS, JoiningCluster, RescalingCluster

ROWS = 40
OPTIONS = Options(hosts=1, budget=1, audit=True, chaining=True, commit_interval_s=None, silence_s=1, port=0)
MOST_STEPS = 40_000
Waits = Callable[[], bool]


class PacedHosts(Hosts):
    """Hosts whose sources read as slowly as actions end.

    Attributes:
        share: the share of the rows that may be read quickly.
    """

    share = 0.0

    def _feed(self, source: WorkerId) -> None:
        is_ahead = self.supply.read > self.share * self.supply.total
        if self._random.random() < (0.02 if is_ahead else 0.4):
            super()._feed(source)


class MatrixCluster(JoiningCluster, RescalingCluster):
    """A cluster that is asked for whatever a run can be asked for, and by itself does nothing."""

    often = 0.0
    hosts_of = PacedHosts
    idle = 0

    def step(self) -> bool:
        """Carry out one event; if none is possible, let time pass, since a guard may wait for it."""
        if super().step():
            self.idle = 0
        else:
            self.clock.advance(5_000_000)
            self.idle += 1
        return self.idle < 100


@dataclass
class Action:
    """An action under way, or ended.

    Attributes:
        name: its name.
        acting: what it does.
        waits: what it waits for.
        reason: ``None`` while it is open; then empty, or why it was not done.
    """

    name: str
    acting: Any
    waits: Waits = field(default=lambda: True)
    reason: str | None = None

    def go_on(self) -> None:
        """Go on as far as possible."""
        while self.reason is None and self.waits():
            try:
                self.waits = next(self.acting)
            except StopIteration as end:
                self.reason = end.value or ""
            except FriesError as error:
                self.reason = str(error)


@dataclass
class Played:
    """A run of one kind.

    Attributes:
        kind: the name of the kind.
        letters, pauses: whether a function fails on some rows, which are set aside; whether one pauses.
        targets: change id to its targets and version.
        actions: the actions in the order in which they began.
        pairs: the pairs of names of actions that were open at the same time.
    """

    kind: str
    names: tuple[tuple[str, str], ...]
    chance: random.Random
    cluster: MatrixCluster = None  # type: ignore[assignment]
    inputs: dict[str, list[Row]] = field(default_factory=dict)
    targets: dict[str, tuple[frozenset[str], int]] = field(default_factory=dict)
    actions: list[Action] = field(default_factory=list)
    pairs: set[tuple[str, str]] = field(default_factory=set)
    rewiring: str = ""
    version: int = 0
    fixes: dict[str, str] = field(default_factory=dict)

    @property
    def all(self) -> set[str]:
        """The names of the actions."""
        return {name for pair in self.names for name in pair}

    @property
    def letters(self) -> bool:
        return "letters" in self.all

    @property
    def setting_aside(self) -> str:
        """The operator whose function fails on some rows, if one does: X, or P in front of it, if X runs no code."""
        return "X" if KINDS[self.kind].runs_code else "P"

    @property
    def pausing(self) -> str:
        """The operator that pauses on a row on which it fails: the same, unless it sets it aside."""
        if self.letters:
            return "P" if self.setting_aside == "X" else "Q"
        return self.setting_aside

    def graph(self) -> Graph:
        """Declare the dataflow."""
        kind, chance = KINDS[self.kind], self.chance
        policies: dict[str, Any] = {self.pausing: {"on_error": "pause"}}
        if self.letters:
            policies[self.setting_aside] = {"on_error": fn.memory()}
        flow = fn.Dataflow(self.kind.replace(" ", "_"))
        workers = lambda: chance.choice((1, 2, 2, 3))  # noqa: E731
        setting = Setting(policies.get("X", {}), self.letters and self.setting_aside == "X", workers)
        source = flow.source("S", fn.rate(None), time=kind.time, identity="id", workers=workers())
        before = source.map("P", self.made("P", 0), workers=workers(), **policies.get("P", {}))
        after = kind.declare(flow, before, setting).map("Q", Mark("Q"), workers=workers(), **policies.get("Q", {}))
        after.sink("out", fn.memory(), workers=workers())
        return flow.graph(workers=2)

    def made(self, name: str, version: int) -> Any:
        """The function of an operator, of a version."""
        letters = self.letters and name == self.setting_aside
        kind = KINDS[self.kind]
        return kind.make(version, letters) if name == "X" and kind.make else Mark(name, version, letters)

    @property
    def changeable(self) -> list[str]:
        """The operators that can be changed."""
        return ["P", "X", "Q"] if KINDS[self.kind].make else ["P", "Q"]

    # ---- actions

    def request(self, targets: Sequence[str], scheduler: str, guard: Any = None, pruning: bool = True) -> str:
        """Request a change; returns its id."""
        self.version += 1
        change = {name: self.made(name, self.version) for name in targets}
        id_ = self.cluster.request(change, scheduler, guard=guard, pruning=pruning)
        self.targets[id_] = frozenset(targets), self.version
        return id_

    def outcome(self, change: str) -> Any:
        """Wait for the outcome of a change; returns why it was not done."""
        cluster = self.cluster
        yield lambda: change in cluster.outcomes or change in cluster.orphans
        if change in cluster.orphans:
            return "the driver died"
        return cluster.outcomes[change].error

    def change(self, scheduler: str, pruning: bool = True, guard: Any = None) -> Any:
        """Change some operators."""
        names = self.changeable
        targets = self.chance.sample(names, self.chance.randint(1, len(names)))
        if scheduler == "naive" and not cover(self.cluster.graph, targets).naive_safe:
            targets = targets[:1]
        if scheduler == "naive" and not cover(self.cluster.graph, targets).naive_safe:
            scheduler = "fries"
        change = self.request(targets, scheduler, guard, pruning)
        return (yield from self.outcome(change))

    def cancelled(self) -> Any:
        """A change that is cancelled, at once or a little later."""
        change = self.request(["P", "Q"], self.chance.choice(SCHEDULERS))
        behind = [self.chance.choice((0, 5, 40))]
        yield lambda: _counted(behind) or change not in self.cluster.open
        for one in self.cluster.changes.queue.changes:
            if one.id == change:
                one.cancel()
        self.cluster.post()
        reason = yield from self.outcome(change)
        return "" if "cancelled" in reason else reason

    def guarded(self) -> Any:
        """A change under a guard that ends well."""
        yield lambda: not self.cluster.paused  # else it would be a fix, which is under no guard
        change = self.request(["P"], self.chance.choice(SCHEDULERS), guard=0.02)
        reason = yield from self.outcome(change)
        if reason:
            return reason
        recoveries = len(self.cluster.recoveries)
        yield lambda: change in self.cluster.guards or len(self.cluster.recoveries) > recoveries
        return ""

    def rolled_back(self) -> Any:
        """A change under a guard, whose new function fails on the next row."""
        target, scheduler = self.pausing, self.chance.choice(SCHEDULERS)
        version = self.version + 1
        ARMED.add((target, version))
        change = self.request([target], scheduler, guard=1_000.0)
        reason = yield from self.outcome(change)
        if reason:
            ARMED.discard((target, version))
            return reason
        cluster = self.cluster
        recoveries = len(cluster.recoveries)
        yield lambda: change in cluster.guards or len(cluster.recoveries) > recoveries or cluster.supply.dry
        ARMED.discard((target, version))
        ended = cluster.guards.get(change)
        if ended is None:  # it met no row, and would be under guard for long: another change ends that
            yield from self.outcome(self.request([target], "fries"))
        return "" if ended is not None and ended.rolled_back else f"not rolled back: {ended}"

    def undone(self) -> Any:
        """A rollback by hand."""
        reason = yield from self.change("fries")
        if reason:
            return reason
        change = self.cluster.roll_back()
        return (yield from self.outcome(change))

    def _alone(self, name: str) -> Any:
        yield lambda: not self.rewiring and self.cluster.hosts.started
        self.rewiring = name

    def bins(self) -> Any:
        """Move bins of a keyed operator."""
        yield from self._alone("bins")
        try:
            operator = self.chance.choice(KINDS[self.kind].keyed or ("Q",))
            routed = self.cluster.hosts.topology.routed(operator)
            table = RoutingTable.even(self.chance.randint(1, routed))
            some = self.chance.sample(range(len(table.owners)), 400)
            table = table.moved({one: (0, self.chance.randrange(routed)) for one in some})
            before = len(self.cluster.moved)
            recoveries = len(self.cluster.recoveries)
            self.cluster.move({operator: table}, self.chance.choice((0, 200, 350)))
            yield lambda: len(self.cluster.moved) > before or len(self.cluster.recoveries) > recoveries
            return self.cluster.moved[-1].reason if len(self.cluster.moved) > before else "the hosts were lost"
        finally:
            self.rewiring = ""

    def splits(self) -> Any:
        """Deal the splits of S to some of its workers."""
        yield from self._alone("splits")
        cluster = self.cluster
        try:
            before, recoveries = len(cluster.dealt), len(cluster.recoveries)
            cluster.deal("S", self.chance.randint(1, cluster.hosts.topology.routed("S")))
            yield lambda: len(cluster.dealt) > before or len(cluster.recoveries) > recoveries
            return cluster.dealt[-1].reason if len(cluster.dealt) > before else "the hosts were lost"
        finally:
            self.rewiring = ""

    def hosts(self, step: int) -> Any:
        """A host more, or less; a run is refused it before its controller is asked."""
        if KINDS[self.kind].has_loop:
            shares(self.cluster.graph, 1, OPTIONS)
        yield from self._alone("hosts")
        cluster = self.cluster
        try:
            hosts = min(MOST_HOSTS, max(1, len(self._members) + step))
            request = cluster.rescale(hosts, self.chance.choice((0, 100, 350)))
            yield lambda: any(end.request == request for end in cluster.rescaled)
            return next(end.error for end in cluster.rescaled if end.request == request)
        finally:
            self.rewiring = ""

    @property
    def _members(self) -> set[int]:
        return set(self.cluster.hosts.topology.placement.values())

    def checkpoint(self) -> Any:
        """A checkpoint."""
        request = self.cluster.checkpoint()
        yield lambda: self.cluster.asked.get(request, "the driver died") is not None
        return self.cluster.asked.get(request, "the driver died")

    def kill(self) -> Any:
        """Kill a host."""
        cluster = self.cluster
        yield lambda: cluster.hosts.started
        recoveries = len(cluster.recoveries)
        victim = self.chance.choice(cluster._fate.hosts)
        cluster.kill(victim)
        yield lambda: len(cluster.recoveries) > recoveries or victim not in self._members
        yield lambda: cluster.hosts.started
        return ""

    def resume(self) -> Any:
        """Kill the driver, and resume the run with other numbers of workers, and other chains."""
        yield lambda: self.cluster.hosts.started
        self.cluster.kill_driver()
        yield lambda: self.cluster.hosts.started
        return ""

    def pause(self) -> Any:
        """Pause an operator on a row, and fix it."""
        cluster, target = self.cluster, self.pausing
        yield lambda: not ARMED
        armed = {(target, version) for version in range(100)}
        ARMED.update(armed)
        yield lambda: target in cluster.paused or cluster.supply.dry
        ARMED.difference_update(armed)
        reason = "" if target in cluster.paused else "not paused"
        yield lambda: target not in cluster.paused
        return reason

    def mend(self) -> None:
        """Request a fix of each operator that is paused, unless one is requested, or every version is to fail."""
        for name in sorted(self.cluster.paused):
            is_armed = (name, self.version + 1) in ARMED
            if not is_armed and self.fixes.get(name, "") not in self.cluster.open:
                self.fixes[name] = self.request([name], self.chance.choice(SCHEDULERS))

    def dead_letters(self) -> Any:
        """Wait for a row that is set aside."""
        read = self.cluster.supply.read
        yield lambda: abs(self.cluster.supply.read - read) >= 12 or self.cluster.supply.dry
        return ""


SCHEDULERS = ("fries", "epoch", "multiversion", "minibatch", "restart")
REWIRING = frozenset({"bins", "splits", "host joins", "host leaves"})
"""The actions of which one waits for the other."""
ACTIONS: dict[str, Callable[[Played], Any]] = {
    **{name: lambda play, name=name: play.change(name) for name in (*SCHEDULERS, "naive")},
    "unpruned": lambda play: play.change("fries", pruning=False),
    "guard": Played.guarded,
    "guard that fires": Played.rolled_back,
    "rollback": Played.undone,
    "bins": Played.bins,
    "splits": Played.splits,
    "host joins": lambda play: play.hosts(+1),
    "host leaves": lambda play: play.hosts(-1),
    "checkpoint": Played.checkpoint,
    "kill": Played.kill,
    "resume": Played.resume,
    "pause": Played.pause,
    "letters": Played.dead_letters,
    "cancel": Played.cancelled,
}


def play(kind: str, pairs: Sequence[tuple[str, str]], seed: int) -> Played:
    """Run a kind with these pairs of actions, one pair after another."""
    ARMED.clear()
    PacedHosts.share = 0.0
    chance = random.Random(f"{kind} {seed}")
    played = Played(kind, tuple(pairs), chance)
    graph = played.graph()
    played.inputs = {name: rows_of(name, ROWS) for name in KINDS[kind].sources}
    cluster = played.cluster = MatrixCluster(
        graph, played.inputs, seed=seed, hosts=chance.randint(1, 3), window=chance.choice((1, 300, 2_000)),
        chaining=chance.random() < 0.6, checkpoints=True, faults=Faults(reshapes=True),
        commit_interval_ns=chance.choice((None, 2_000_000, 20_000_000)),
    )  # fmt: skip
    cluster.hold([worker for name in graph.sources for worker in workers_of(graph, name)])
    cluster.steps(chance.choice((0, 100, 200)))
    for number, pair in enumerate(pairs):
        PacedHosts.share = (number + 0.5) / len(pairs)
        _act(played, pair)
    cluster.release()
    PacedHosts.share = 1.0
    ARMED.clear()
    cluster.until(lambda: bool(played.mend()), MOST_STEPS)
    cluster.settle()
    return played


def _act(played: Played, pair: tuple[str, str]) -> None:
    """Begin two actions, one a few steps behind the other, and take steps until both have ended."""
    cluster, begun = played.cluster, list[Action]()

    def have_ended() -> bool:
        played.mend()
        for one in begun:
            one.go_on()
        return all(one.reason is not None for one in begun)

    for name in pair:
        if any(one.reason is None for one in begun):
            played.pairs.add(pair)
        begun.append(Action(name, ACTIONS[name](played)))
        played.actions.append(begun[-1])
        have_ended()
        for _ in range(played.chance.choice((1, 3, 10, 40))):
            if cluster.state == "running" and not have_ended():
                cluster.step()
    try:
        cluster.until(have_ended, MOST_STEPS)
    except AssertionError as error:
        open_ = [one.name for one in begun if one.reason is None]
        raise AssertionError(f"{open_} do not end: {error}") from error


def _counted(left: list[int]) -> bool:
    left[0] -= 1
    return left[0] < 0


# ---- laws


def finishes(played: Played) -> None:
    """The run comes to its end."""
    assert played.cluster.state == "finished", f"{played.cluster.error} {played.cluster.details}"


def accounts_for_every_row(played: Played) -> None:
    """What came out is what the sequential reference says, each row once; and what was set aside."""
    kind, cluster = KINDS[played.kind], played.cluster
    rows = [row for row in played.inputs["S"] if not (played.letters and is_letter(row))]
    wanted = Counter(kind.expected(rows, played.inputs.get("T", [])))
    found = Counter(map(kind.shown, cluster.rows("out")))
    assert found == wanted, f"lacks {wanted - found}, has too much {found - wanted}"
    if played.letters:
        aside = Counter(json.loads(row["tuple"])["id"] for row in cluster.rows(played.setting_aside))
        assert aside == Counter(row["id"] for row in played.inputs["S"] if is_letter(row)), f"set aside: {aside}"
    if played.kind == "sink":
        other = Counter(map(kind.shown, cluster.rows("X")))
        assert other == wanted, f"X lacks {wanted - other}, has too much {other - wanted}"


def ends_actions(played: Played) -> None:
    """Each action is done, or refused in words that say why."""
    for action in played.actions:
        kind = KINDS[played.kind]
        refused = kind.refuses.get(action.name, "")
        assert not refused or action.reason, f"{action.name} is done; expected {refused}"
        if action.reason:
            words = (refused or "none", *kind.may_refuse, *EXCUSES)
            assert any(one in action.reason for one in words), f"{action.name}: {action.reason}"


EXCUSES = (
    "the driver died", "was lost", "were lost", "ended", "finished", "starts the run again", "is paused on a tuple",
    "not paused", "not rolled back", "is being rolled back",
)  # fmt: skip


def shows_one_version(played: Played) -> None:
    """Rows show the operators of a change all as before it, or all as behind it."""
    kind = KINDS[played.kind]
    if {"rollback", "guard that fires"} & played.all or len(kind.sources) > 1 or kind.time:
        return  # versions come back; a row is of two transactions; time begins a new one
    order = [one.change for one in in_effect(played.cluster.journal)]
    rank = {played.targets[change][1]: place for place, change in enumerate(order, 1)} | {0: 0}
    for row in played.cluster.rows("out"):
        shown = {name: row[name] for name in ("P", "X", "Q") if name in row}
        for (one, its), (other, others) in combinations(shown.items(), 2):
            for place, change in enumerate(order, 1):
                if {one, other} <= played.targets[change][0]:
                    is_one = (rank[its] >= place) == (rank[others] >= place)
                    assert is_one, f"{row} shows {change} at one of {one} and {other}"


def passes_the_audit(played: Played) -> None:
    """No transaction has lost, doubled or mixed anything, says the trace."""
    if "the driver was killed" in played.cluster.recoveries:
        return  # the trace is that of two runs
    verdict = judge(played.cluster.records())
    wrong = verdict.lost, verdict.doubled, verdict.mixed, verdict.stale
    assert wrong == ((), (), (), ()), f"the audit says {wrong}"


def leaves_nothing(played: Played) -> None:
    """In the end nothing waits, and nothing is blocked."""
    assert not played.cluster.controller.on_the_way
    for id_, worker in played.cluster.workers.items():
        assert worker.ended, f"{id_} has not ended"
        assert not worker._inbox.tuples, f"{id_} has tuples left"
        assert not worker._alignment.blocked, f"{id_} still blocks channels"
        assert worker._transfer is None, f"a move at {id_} is not over"


LAWS = (finishes, accounts_for_every_row, ends_actions, shows_one_version, passes_the_audit, leaves_nothing)


def reached(played: Played) -> Iterator[str]:
    """The actions that were done, or refused for good."""
    kind = KINDS[played.kind]
    for action in played.actions:
        words = (*kind.may_refuse, *([kind.refuses[action.name]] if action.name in kind.refuses else []))
        if not action.reason or any(one in action.reason for one in words):
            yield action.name


def try_cell(kind: str, pairs: Sequence[tuple[str, str]], seed: int) -> Played:
    """Play some pairs of actions on a kind, and check all laws."""
    try:
        played = play(kind, pairs, seed)
        for law in LAWS:
            law(played)
    except (AssertionError, FriesError) as error:
        raise AssertionError(f"{error}\n(replay: try_cell({kind!r}, {list(pairs)}, {seed}))") from error
    return played
