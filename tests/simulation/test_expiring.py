"""State that ends in seeded runs: out-of-order rows, changes of the function, checkpoints and kills."""

from __future__ import annotations

import random
from itertools import pairwise
from typing import Any

import pytest
from progress_laws import FrontierLaw
from soak import caught
from timed_draws import SCHEDULERS, running_cluster

import fries_nb as fn
from fries_nb.dataflow.expiring import Expiring
from fries_nb.operators.state import KeyedState
from fries_nb.progress.agenda import Agenda

TTL = 6


class Gathering:
    """Gathers the rows of a key, and gives them when it ends; a version of it is as good as another."""

    def __init__(self, version: int = 0) -> None:
        self.version = version

    def process(self, row: dict[str, Any], state: dict[str, Any]) -> None:
        """Gather a row."""
        state.setdefault("rows", []).append((row["at"], row["v"]))

    def on_expire(self, key: int, state: dict[str, Any]) -> dict[str, Any]:
        """What was gathered."""
        return {"k": key, "rows": [list(one) for one in sorted(state["rows"])]}


def play(seed: int) -> bool:
    """Play a seed and check that each row is in one life of its key, and lives lie apart; whether some key had two."""
    chance = random.Random(seed)
    flow, size = fn.Dataflow("ends"), lambda: chance.choice((1, 2, 3))
    times, first = [], 0
    for _ in range(chance.choice((5, 30, 60))):
        first += chance.choice((0, 0, 1, 2, 12))
        times.append(first)
    ahead = chance.choice((0, 3))
    times = sorted(times, key=lambda at: at + chance.random() * ahead)
    given = [{"k": chance.randrange(3), "v": number, "at": at} for number, at in enumerate(times)]
    source = flow.source("S", fn.rate(None), time="at", workers=size(), ahead=chance.choice((None, 0, 3)))
    kept = source.map("A", lambda row: row, workers=size()).map("M", fn.expiring(Gathering(), TTL), "k", workers=size())
    kept.sink("out", fn.memory(), workers=size())
    cluster = running_cluster(flow.graph(workers=2), {"S": given}, seed, chance)
    law = FrontierLaw(cluster)
    for version in range(1, chance.choice((0, 1, 3)) + 1):
        read = chance.random()
        law.run_until(lambda read=read: cluster.supply.read >= read * cluster.supply.total)
        if cluster.state == "running":
            cluster.request({"M": fn.expiring(Gathering(version), TTL)}, chance.choice(SCHEDULERS))
    law.run_until(lambda: False)
    assert cluster.state == "finished", f"seed {seed}: {cluster.state}, {cluster.error}"
    has_two = False
    for key in range(3):
        lives = sorted([tuple(one) for one in row["rows"]] for row in cluster.rows("out") if row["k"] == key)
        rows = sorted((row["at"], row["v"]) for row in given if row["k"] == key)
        assert sorted(one for life in lives for one in life) == rows, f"seed {seed}: key {key} lived as {lives}"
        for life, after in pairwise(lives):
            assert after[0][0] > life[-1][0] + TTL, f"seed {seed}: key {key} ended too early: {life}, {after}"
        has_two = has_two or len(lives) > 1
    return has_two


def test_each_row_is_in_one_life_of_its_key() -> None:
    """Whatever fails or changes, and keys do end on the way."""
    assert sum(play(seed) for seed in range(12)) > 0


BROKEN = {
    "a row does not renew its key": (Expiring, "is_over", lambda function, time, state: True),
    "no key is forgotten": (KeyedState, "drop", lambda states, key: None),
    "no end is called for": (Agenda, "call", lambda agenda, time, key: None),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_rule_of_ends_is_caught(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Some seed breaks a promise without it."""
    monkeypatch.setattr(*BROKEN[name])
    assert caught(range(60), play) is not None
