"""State that ends in seeded runs: out-of-order rows, changes of function and ttl, checkpoints, kills, moves of bins."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pytest
from interleaving_checks import lacking
from progress_laws import FrontierLaw
from soak import caught, first_tried
from timed_draws import SCHEDULERS, running_cluster
from timed_rescales import SAFE, WatchedHosts, released, rescaled_cluster

import fries_nb as fn
from fries_nb.dataflow.graph import Graph
from fries_nb.errors import PlanError
from fries_nb.operators.state import KeyedState
from fries_nb.progress.agenda import Agenda, EndAgenda
from fries_nb.simulation.cluster import Cluster

TTL = 6


def is_refused(row: dict[str, Any]) -> bool:
    """Whether all versions fail on a row, where dead letters are written."""
    return bool(row["v"] % 9 == 4)


class Gathering:
    """Gathers the rows of a key, and gives them when it ends; a version of it is as good as another.

    Attributes:
        version: its number; below 0 of one that fails on each row, after it has changed the state.
        refuses: whether it fails on some rows.
    """

    def __init__(self, version: int = 0, refuses: bool = False) -> None:
        self.version, self.refuses = version, refuses

    def process(self, row: dict[str, Any], state: dict[str, Any]) -> None:
        """Gather a row."""
        state.setdefault("rows", []).append((row["at"], row["v"]))
        if self.version < 0 or (self.refuses and is_refused(row)):
            raise ValueError(row["v"])

    def on_expire(self, key: int, state: dict[str, Any]) -> dict[str, Any]:
        """What was gathered."""
        return {"k": key, "rows": [list(one) for one in sorted(state["rows"])]}


@dataclass(frozen=True)
class DrawnEnds:
    """A dataflow whose keys end, the rows of its source, and how long a key lasts at least."""

    graph: Graph
    given: list[dict[str, Any]]
    ttls: list[int]
    refuses: bool

    def change(self, chance: random.Random, version: int) -> dict[str, Any]:
        """Another function, perhaps with another ttl or with what transforms the state."""
        ttl = chance.choice((None, None, 3, 9))
        self.ttls.append(TTL if ttl is None else ttl)
        way = chance.choice((None, lambda old: {"rows": [*old.get("rows", ())]}))
        return {"M": fn.Update(Gathering(version, self.refuses), way, way, ttl=ttl)}

    def check(self, cluster: Any) -> bool:
        """Each row is in one life of its key, lives lie apart, and nothing is left; whether some key had two."""
        assert cluster.state == "finished", f"{cluster.state}, {cluster.error}"
        has_two = False
        for key in {row["k"] for row in self.given}:
            lives = sorted([tuple(one) for one in row["rows"]] for row in cluster.rows("out") if row["k"] == key)
            taken = [row for row in self.given if row["k"] == key and not (self.refuses and is_refused(row))]
            rows = sorted((row["at"], row["v"]) for row in taken)
            assert sorted(one for life in lives for one in life) == rows, f"key {key} lived as {lives}"
            for life, after in pairwise(lives):
                assert after[0][0] > life[-1][0] + min(self.ttls), f"key {key} ended too early: {life}, {after}"
            has_two = has_two or len(lives) > 1
        assert not any(len(instance.state) for instance in cluster.instances("M"))
        return has_two


def draw_ends(chance: random.Random, keys: int, counts: tuple[int, ...]) -> DrawnEnds:
    """A map with a ttl, and rows of some keys, in order of time or nearly."""
    flow, size = fn.Dataflow("ends"), lambda: chance.choice((1, 2, 3))
    times, first = [], 0
    for _ in range(chance.choice(counts)):
        first += chance.choice((0, 0, 1, 2, 12))
        times.append(first)
    disorder, ahead = chance.choice((0, 3)), chance.choice((None, 0, 3))
    times = sorted(times, key=lambda at: at + chance.random() * disorder)
    given = [{"k": chance.randrange(keys), "v": number, "at": at} for number, at in enumerate(times)]
    source = flow.source("S", fn.rate(None), time="at", workers=size(), ahead=ahead)
    refuses = chance.random() < 0.3
    letters = fn.memory() if refuses else None
    passed = source.map("A", lambda row: row, workers=size())
    kept = passed.map("M", Gathering(0, refuses), "k", workers=size(), ttl=TTL, on_error=letters)
    kept.sink("out", fn.memory(), workers=size())
    return DrawnEnds(flow.graph(workers=2), given, [TTL], refuses)


def play(seed: int) -> bool:
    """Play a seed; see ``DrawnEnds.check``."""
    chance = random.Random(seed)
    drawn = draw_ends(chance, 3, (5, 30, 60))
    is_guarded = not drawn.refuses and chance.random() < 0.2
    if is_guarded:  # by a driver that does not die, which would end the guard
        window = chance.choice((1, 200, 2_000))
        cluster = Cluster(drawn.graph, {"S": drawn.given}, seed=seed, hosts=2, window=window, audit=seed % 2 == 0)
    else:
        cluster = running_cluster(drawn.graph, {"S": drawn.given}, seed, chance)
    law = FrontierLaw(cluster)
    for version in range(1, chance.choice((0, 1, 3)) + 1):
        read = chance.random()
        law.run_until(lambda read=read: cluster.supply.read >= read * cluster.supply.total)
        if cluster.state == "running" and is_guarded:
            cluster.request(drawn.change(chance, -version), chance.choice(SAFE), guard=1_000.0)
            break  # another change would end the guard
        if cluster.state == "running":
            cluster.request(drawn.change(chance, version), chance.choice(SCHEDULERS))
            if chance.random() < 0.3:
                law.run_until(lambda: not cluster.open)
                with suppress(PlanError):  # it was aborted
                    cluster.roll_back()
    law.run_until(lambda: False)
    has_two = drawn.check(cluster)
    law.check_end()
    return has_two


def play_rescaled(seed: int) -> Any:
    """The same on hosts that join and leave, while bins move; what was met."""
    WatchedHosts.met.clear()
    chance = random.Random(f"rescaled ends {seed}")
    drawn = draw_ends(chance, 12, (60, 120))
    cluster = rescaled_cluster(chance, drawn.graph, {"S": drawn.given}, seed)
    law, adopted = FrontierLaw(cluster), chance.choice((2, 5, 8))
    if chance.random() < 0.5:
        cluster.steps(chance.randrange(600))
        if cluster.state == "running":
            cluster.request(drawn.change(chance, 1), chance.choice(SAFE))
    released(cluster, chance, law, adopted)
    if drawn.check(cluster):
        WatchedHosts.met["two lives"] += 1
    return WatchedHosts.met


def test_each_row_is_in_one_life_of_its_key() -> None:
    """Whatever fails or changes, and keys do end on the way."""
    assert sum(play(seed) for seed in range(12)) > 0


def test_ends_move_with_their_bins() -> None:
    """At the time to which they have been put off; with checkpoints, kills and changes."""
    assert lacking(4, ["entries", "views", "two lives"], play_rescaled, most=20) == {}


def _not_put_off(agenda: EndAgenda, t: int, key: Any) -> None:
    if key not in agenda._at:
        Agenda.call(agenda, t, key)
        agenda._at[key] = (agenda.stamp[0], t)


def _saved_where_they_stand(agenda: EndAgenda) -> Any:
    return ((time, key) for key, time in agenda._at.items())


def _moved_where_they_stand(agenda: EndAgenda, bins: Any, count: int, found: Any) -> Any:
    yield from Agenda.sort_out(agenda, bins, count, found)
    for entries in found.values():
        for _, key in entries:
            agenda._ends.pop(key, None)


BROKEN: dict[str, tuple[Callable[[int], Any], Any]] = {
    "a row does not put off the end of its key": (play, (EndAgenda, "call", _not_put_off)),
    "no key is forgotten": (play, (KeyedState, "drop", lambda states, key: None)),
    "no end is called for": (play, (EndAgenda, "call", lambda agenda, time, key: None)),
    "a checkpoint has ends before they were put off": (play, (EndAgenda, "as_now", _saved_where_they_stand)),
    "bins move with ends before they were put off": (play_rescaled, (EndAgenda, "sort_out", _moved_where_they_stand)),
}
SHOWN = {
    "a checkpoint has ends before they were put off": 27, "bins move with ends before they were put off": 2,
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_rule_of_ends_is_caught(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Some seed breaks a promise without it."""
    played, rule = BROKEN[name]
    monkeypatch.setattr(*rule)
    assert caught(first_tried(SHOWN.get(name, 0), 100), played, by=Exception) is not None
