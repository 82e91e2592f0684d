"""Reduces inside loops: one result for each key, time and round, and an end that waits for all of them."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import pytest
from loops_played import follows_the_journal
from soak import SOAK, caught

import fries_nb as fn
from fries_nb.operators.instance import Instance
from fries_nb.simulation.cluster import Cluster
from fries_nb.simulation.faults import Faults

ENOUGH = 50


class Sum:
    """Sums a key's numbers of one time and round; a version of it is as good as another."""

    def __init__(self, version: int = 0) -> None:
        self.version = version

    def initial_state(self) -> dict[str, int]:
        """Nothing yet."""
        return {"n": 0}

    def process(self, row: dict[str, Any], state: dict[str, int]) -> None:
        """Add a row."""
        state["n"] += row["n"]

    def close(self, key: int, time: int, state: dict[str, int]) -> dict[str, Any]:
        """The sum."""
        return {"k": key, "n": state["n"], "t": time}


def double(row: dict[str, Any]) -> dict[str, Any]:
    """Twice the number."""
    return row | {"n": 2 * row["n"]}


def drawn(seed: int) -> tuple[Cluster, list[tuple[int, int, int]]]:
    """A loop that doubles the sum of each key and time until it is enough; and what has to come out."""
    chance = random.Random(seed)
    workers = lambda: chance.choice((1, 2, 3))  # noqa: E731
    flow = fn.Dataflow("sums")
    rows = flow.source("S", fn.rate(None), time="at", workers=workers())

    def body(inside: fn.Stream) -> tuple[fn.Stream, fn.Stream]:
        sums = inside.reduce("R", Sum(), key="k", workers=workers())
        again, enough = sums.map("D", double, workers=workers()).split("SP", lambda row: row["n"] >= ENOUGH)
        return again, enough

    rows.iterate("L", body, workers=workers()).sink("out", fn.memory())
    count = chance.choice((6, 40))
    given = [{"k": number % 3, "n": 1, "at": chance.randrange(4)} for number in range(count)]
    faults = Faults(hazard=0.003, host_kills=2) if chance.random() < 0.5 else Faults()
    cluster = Cluster(
        flow.graph(2), {"S": given}, seed=seed, hosts=chance.choice((1, 2)), window=chance.choice((1, 300, 2_000)),
        checkpoints=faults.hazard > 0, commit_interval_ns=chance.choice((400_000, 3_000_000)), faults=faults,
    )  # fmt: skip
    return cluster, sorted(_result(given, key, time) for key, time in {(row["k"], row["at"]) for row in given})


def _result(given: list[dict[str, int]], key: int, time: int) -> tuple[int, int, int]:
    total = 2 * sum(row["n"] for row in given if (row["k"], row["at"]) == (key, time))
    while total < ENOUGH:
        total *= 2
    return key, time, total


def play(seed: int) -> Cluster:
    """A finished run with the right results, in which nothing is outstanding."""
    cluster, expected = drawn(seed)
    if seed % 3 < 2:
        cluster.until(lambda: cluster.supply.read >= cluster.supply.total // 2)
        if cluster.state == "running":
            cluster.request(*(({"R": Sum(1)}, "fries"), ({"D": double}, "cut"))[seed % 3])
    cluster.run(200_000)
    follows_the_journal(SimpleNamespace(cluster=cluster))
    assert (cluster.state, cluster.error) == ("finished", "")
    found = sorted((row["k"], row["t"], row["n"]) for row in cluster.rows("out"))
    assert found == expected, f"seed {seed}: {found}, expected {expected}"
    cluster.settle()
    for host, progress in cluster.hosts.progress.hosts.items():
        assert host in cluster.hosts.dead or not progress.state().counts
    return cluster


def test_results_of_each_round_wait_for_all_of_its_rows() -> None:
    """Whatever the order, with kills, with a change of the reduce in the loop, and one behind it by the cut."""
    played = [play(seed) for seed in range(15 * SOAK)]
    assert any(cluster.recoveries for cluster in played)
    assert {one.scheduler for cluster in played for one in cluster.outcomes.values() if one.outcome == "done"} == {
        "cut", "fries"
    }  # fmt: skip


def test_a_loop_that_ends_before_its_results_are_due_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """If what is held for a later time did not count in an attempt, the loop would be ended with results in it."""
    monkeypatch.setattr(Instance, "holds_time", False)
    assert caught((18, 22), play) is not None
