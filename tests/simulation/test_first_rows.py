"""The first row of each key within a time, in seeded runs: rows out of order, kills, moves of bins."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from interleaving_checks import lacking
from progress_laws import FrontierLaw
from soak import caught
from timed_draws import running_cluster
from timed_rescales import WatchedHosts, released, rescaled_cluster

import fries_nb as fn
from fries_nb.audit import judge
from fries_nb.dataflow.graph import Graph
from fries_nb.operators.first_rows import PassedTimes
from fries_nb.operators.state import KeyedState

WITHIN = 5
Row = dict[str, Any]


def firsts(rows: list[Row]) -> list[int]:
    """The numbers of the rows that pass, by the definition, if they come in this order."""
    passed: list[Row] = []
    for row in rows:
        if not any(one["k"] == row["k"] and abs(one["at"] - row["at"]) <= WITHIN for one in passed):
            passed.append(row)
    return [row["v"] for row in passed]


@dataclass(frozen=True)
class DrawnFirsts:
    """A dataflow with a dedup, the rows of its source, and whether these come to it as they are there."""

    graph: Graph
    given: list[Row]
    is_one_way: bool

    def check(self, cluster: Any) -> Counter[str]:
        """Those that pass are apart, others are near one of them; by one way, they are the defined ones."""
        assert cluster.state == "finished", f"{cluster.state}, {cluster.error}"
        passed = sorted(row["v"] for row in cluster.rows("out"))
        if self.is_one_way:
            assert passed == sorted(firsts(self.given)), f"passed {passed}, expected {firsts(self.given)}"
        rows = {row["v"]: row for row in self.given}
        for number in passed:
            near = [other for other in passed if self._is_near(rows[number], rows[other])]
            assert near == [number], f"{near} pass, which are near each other"
        for number in rows.keys() - set(passed):
            assert any(self._is_near(rows[number], rows[other]) for other in passed), f"{number} is missing"
        assert not any(len(instance.state) for instance in cluster.instances("D")), "what has passed is kept"
        if cluster._plan.audit:
            verdict = judge(cluster.records())
            assert (verdict.lost, verdict.doubled) == ((), ()), verdict
        return Counter({"duplicates": len(rows) > len(passed), "one way": self.is_one_way})

    @staticmethod
    def _is_near(row: Row, other: Row) -> bool:
        return row["k"] == other["k"] and abs(row["at"] - other["at"]) <= WITHIN


def draw_firsts(chance: random.Random, keys: int, counts: tuple[int, ...]) -> DrawnFirsts:
    """A dedup behind a map, and rows of some keys, of which one is null, in order of time or not."""
    is_one_way = chance.random() < 0.5
    flow, size = fn.Dataflow("firsts"), lambda: 1 if is_one_way else chance.choice((1, 2, 3))
    times, first = [], 0
    for _ in range(chance.choice(counts)):
        first += chance.choice((0, 0, 1, 1, 2, 9))
        times.append(first)
    disorder = chance.choice((0, 4, 30))
    times = sorted(times, key=lambda at: at + chance.random() * disorder)
    given = [{"k": chance.randrange(keys) or None, "v": number, "at": at} for number, at in enumerate(times)]
    ahead = chance.choice((None, 0, 3))
    source = flow.source("S", fn.rate(None), time="at", workers=size(), ahead=ahead)
    kept = source.map("A", lambda row: row, workers=size())
    kept = kept.dedup("D", on="k", within=WITHIN, workers=chance.choice((1, 2, 3)))
    kept.map("M", dict, workers=size()).sink("out", fn.memory())
    return DrawnFirsts(flow.graph(workers=2), given, is_one_way)


def play(seed: int) -> Counter[str]:
    """Play a seed; see ``DrawnFirsts.check``."""
    chance = random.Random(seed)
    drawn = draw_firsts(chance, 4, (5, 30, 60))
    cluster = running_cluster(drawn.graph, {"S": drawn.given}, seed, chance)
    law = FrontierLaw(cluster)
    law.run_until(lambda: cluster.supply.read >= cluster.supply.total / 2)
    if cluster.state == "running":
        cluster.request({"A": lambda row: {**row}}, chance.choice(("fries", "epoch", "multiversion")))
    law.run_until(lambda: False)
    law.check_end()
    return drawn.check(cluster)


def play_rescaled(seed: int) -> Counter[str]:
    """The same on hosts that join and leave, while bins move; what was met."""
    WatchedHosts.met.clear()
    chance = random.Random(f"rescaled firsts {seed}")
    drawn = draw_firsts(chance, 12, (60, 120))
    cluster = rescaled_cluster(chance, drawn.graph, {"S": drawn.given}, seed)
    released(cluster, chance, FrontierLaw(cluster), chance.choice((2, 5, 8)))
    widened = DrawnFirsts(drawn.graph, drawn.given, is_one_way=False)  # there are more maps by now
    return widened.check(cluster) + WatchedHosts.met


def test_those_that_pass_are_the_defined_ones() -> None:
    """By one way those of a plain loop; by several they are apart, and others near one of them."""
    assert lacking(12, ["duplicates", "one way"], play, most=60) == {}


def test_what_has_passed_moves_with_its_bin() -> None:
    """With checkpoints and kills."""
    assert lacking(3, ["duplicates", "entries", "views"], play_rescaled, most=20) == {}


def _any_duplicate_renews(passed: PassedTimes, t: int, within: int) -> bool:
    is_near = any(first - within <= t <= last for first, last in passed.items())
    if is_near:
        passed[t] = t + within
    return is_near


def _forgotten_at_once(states: KeyedState, key: Any, state: Any, put: Any = KeyedState.put) -> None:
    put(states, key, PassedTimes(list(state.items())[-1:]) if isinstance(state, PassedTimes) else state)


BROKEN: dict[str, tuple[Callable[[int], Any], Any]] = {
    "a row that does not pass renews its key": (play, (PassedTimes, "has", _any_duplicate_renews)),
    "only the last that has passed counts": (play, (KeyedState, "put", _forgotten_at_once)),
    "a row counts for later ones only": (
        play, (PassedTimes, "has", lambda passed, t, within: any(0 <= t - one <= within for one in passed))
    ),
    "what has passed counts for good": (play, (KeyedState, "drop", lambda states, key: None)),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_rule_of_firsts_is_caught(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Some seed breaks a promise without it."""
    played, rule = BROKEN[name]
    monkeypatch.setattr(*rule)
    assert caught(range(60), played, by=Exception) is not None
