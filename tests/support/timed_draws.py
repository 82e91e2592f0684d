"""Random dataflows whose rows have times, with changes, checkpoints and failures; determined by a seed."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from progress_laws import FrontierLaw, WatermarkLaw

import fries_nb as fn
from fries_nb.dataflow.graph import Graph, Operator
from fries_nb.testing.cluster import Cluster
from fries_nb.testing.faults import Faults
from fries_nb.topology.progress_locations import Watermarks

SCHEDULERS = ("fries", "epoch", "naive", "multiversion", "multiversion")
ROWS = (5, 30, 60)


def marked(version: int) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """A function that writes its version."""
    return lambda row: row | {"version": version}


class Counting:
    """Counts the rows of each key, and writes its version."""

    def __init__(self, version: int) -> None:
        self.version = version

    def initial_state(self) -> list[int]:
        """No rows."""
        return [0]

    def process(self, row: dict[str, Any], state: list[int]) -> dict[str, Any]:
        """One row of a row."""
        state[0] += 1
        return row | {"version": self.version}


def marking(version: int, operator: Operator) -> Any:
    """A function that writes its version, for an operator with a key or without."""
    return Counting(version) if operator.key else marked(version)


def some_twice(row: dict[str, Any]) -> list[dict[str, Any]]:
    """No row, or two, of a row."""
    return [row, row] if row["v"] % 3 else []


def draw_rows(chance: random.Random, first: int = 0) -> list[dict[str, Any]]:
    """Rows with a key, a number and a time, in order of time or not."""
    count, spread, ordered = chance.choice(ROWS), chance.choice((3, 20, 200)), chance.random() < 0.5
    times = [chance.randrange(spread) for _ in range(count)]
    times = sorted(times) if ordered else times
    return [{"k": chance.randrange(5), "v": first + n, "at": time} for n, time in enumerate(times)]


def draw_flow(chance: random.Random, waits: bool = True) -> tuple[Graph, dict[str, list[dict[str, Any]]]]:
    """A dataflow of maps, one of which multiplies, with one or two sources; and the rows of these.

    Args:
        chance: draws it.
        waits: whether sources may wait for the sinks.
    """
    flow, rows = fn.Dataflow("timed"), {"S": draw_rows(chance)}
    workers, keys = lambda: chance.choice((1, 2, 3)), lambda: chance.choice((None, "k"))
    ahead = chance.choice((None, None, 0, 3, 10)) if waits else None
    source = flow.source("S", fn.rate(None), time="at", workers=workers(), ahead=ahead)
    key = keys()
    first = source.map("A", Counting(0) if key else marked(0), key=key, workers=workers())
    if chance.random() < 0.4:
        rows["T"] = draw_rows(chance, first=1_000)
        other = flow.source("T", fn.rate(None), time="at", workers=workers(), ahead=ahead)
        first = first.union("U", other, workers=workers())
    many = first.flat_map("B", some_twice, workers=workers())
    key = keys()
    last = many.map("C", Counting(0) if key else marked(0), key=key, workers=workers())
    if chance.random() < 0.5:
        left, right = last.split("SP", lambda row: row["v"] % 2, workers=workers())
        left.sink("odd", fn.memory(), workers=workers())
        last = right
    last.sink("out", fn.memory(), workers=workers())
    return flow.graph(workers=2), rows


def draw_cluster(seed: int, notifications: Watermarks | None = None) -> tuple[Cluster, random.Random]:
    """A cluster of a random dataflow, and what draws the changes.

    Args:
        seed: determines both.
        notifications: how watermarks are made, if times travel in-band.
    """
    chance = random.Random(seed)
    graph, rows = draw_flow(chance, waits=notifications is None)
    faults = Faults(hazard=0.004, host_kills=2, driver_kills=1) if chance.random() < 0.4 else Faults()
    cluster = Cluster(
        graph, rows, seed=seed, hosts=chance.choice((1, 2, 3)), window=chance.choice((1, 200, 2_000)),
        audit=chance.random() < 0.5, chaining=chance.random() < 0.5, checkpoints=faults.hazard > 0,
        commit_interval_ns=chance.choice((None, 2_000_000)) if not faults.hazard else 2_000_000, faults=faults,
        notifications=notifications,
    )  # fmt: skip
    return cluster, chance


def play_timed(seed: int, notifications: Watermarks | None = None) -> FrontierLaw:
    """Play a seed to its end, with the law of frontiers checked on the way; returns the law."""
    cluster, chance = draw_cluster(seed, notifications)
    law = FrontierLaw(cluster) if notifications is None else WatermarkLaw(cluster)
    for version in range(1, chance.choice((0, 1, 3)) + 1):
        read = chance.random()
        law.run_until(lambda read=read: cluster.supply.read >= read * cluster.supply.total)
        if cluster.state == "running":
            target = cluster.graph.operator(chance.choice("AC"))
            cluster.request({target.name: marking(version, target)}, chance.choice(SCHEDULERS))
    law.run_until(lambda: False)
    assert cluster.state == "finished", f"seed {seed}: {cluster.state}, {cluster.error}"
    law.check_end()
    return law
