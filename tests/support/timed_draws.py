"""Random dataflows whose rows have times, with changes, checkpoints and failures; determined by a seed."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from progress_laws import FrontierLaw

import fries_nb as fn
from fries_nb.dataflow.graph import Graph
from fries_nb.dataflow.windowing import Windowing
from fries_nb.simulation.cluster import Cluster
from fries_nb.simulation.faults import Faults

SCHEDULERS = ("fries", "epoch", "naive", "multiversion", "multiversion")
ROWS = (5, 30, 60)


def marked(version: int) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """A function that writes its version."""
    return lambda row: row | {"version": version}


def some_twice(row: dict[str, Any]) -> list[dict[str, Any]]:
    """No row, or two, of a row."""
    return [row, row] if row["v"] % 3 else []


class Sum:
    """Sums the numbers of a key's rows in a window; a version of it is as good as another."""

    def __init__(self, version: int) -> None:
        self.version = version

    def initial_state(self) -> list[int]:
        """Sum and count."""
        return [0, 0]

    def process(self, row: dict[str, Any], state: list[int]) -> None:
        """Add a row."""
        state[0] += row["v"]
        state[1] += 1

    def close(self, key: int, time: int, state: list[int]) -> dict[str, Any]:
        """The result of a window."""
        return {"k": key, "at": time - 1, "sum": state[0], "count": state[1], "version": self.version}


class Remind:
    """Reminds of a key ten after each time at which it had rows; a version of it is as good as another."""

    def __init__(self, version: int) -> None:
        self.version = version

    def initial_state(self) -> dict[str, int]:
        """Nothing."""
        return {}

    def process(self, row: dict[str, Any], state: dict[str, int], at: Any) -> None:
        """Call for the reminder."""
        at.call(at.time + 10)

    def due(self, key: int, time: int, state: dict[str, int]) -> dict[str, Any]:
        """The reminder."""
        return {"k": key, "at": time}


def sums(rows: list[dict[str, Any]], windowing: Windowing) -> list[tuple[int, int, int, int]]:
    """Key, last time, sum and count of each window, by the definition."""
    size, every, found = int(windowing.size), int(windowing.every), dict[tuple[int, int], list[int]]()
    for row in rows:
        for end in range(size - size // every * every, 400, every):
            if end - size <= row["at"] < end:
                state = found.setdefault((row["k"], end - 1), [0, 0])
                state[0] += row["v"]
                state[1] += 1
    return sorted((*key, *state) for key, state in found.items())


def draw_rows(chance: random.Random, first: int = 0) -> list[dict[str, Any]]:
    """Rows with a key, a number and a time, in order of time or not."""
    count, spread, ordered = chance.choice(ROWS), chance.choice((3, 20, 200)), chance.random() < 0.5
    times = [chance.randrange(spread) for _ in range(count)]
    times = sorted(times) if ordered else times
    return [{"k": chance.randrange(5), "v": first + n, "at": time} for n, time in enumerate(times)]


@dataclass(frozen=True)
class DrawnTimes:
    """A dataflow, the rows of its sources, and what its window has to find."""

    graph: Graph
    rows: dict[str, list[dict[str, Any]]]
    windowing: Windowing

    @property
    def _timed(self) -> list[dict[str, Any]]:
        return [out for some in self.rows.values() for row in some for out in some_twice(row)]

    @property
    def expected(self) -> list[tuple[int, int, int, int]]:
        """The results of the window."""
        return sums(self._timed, self.windowing)

    @property
    def reminders(self) -> list[tuple[int, int]]:
        """The key and the time of each reminder."""
        return sorted({(row["k"], row["at"] + 10) for row in self._timed})


def draw_flow(chance: random.Random) -> DrawnTimes:
    """A dataflow of maps, one of which multiplies, and a window, with one or two sources; and the rows of these."""
    flow, rows = fn.Dataflow("timed"), {"S": draw_rows(chance)}
    workers, keys = lambda: chance.choice((1, 2, 3)), lambda: chance.choice((None, "k"))
    ahead = chance.choice((None, None, 0, 3, 10))
    source = flow.source("S", fn.rate(None), time="at", workers=workers(), ahead=ahead)
    first = source.map("A", marked(0), key=keys(), workers=workers())
    if chance.random() < 0.4:
        rows["T"] = draw_rows(chance, first=1_000)
        other = flow.source("T", fn.rate(None), time="at", workers=workers(), ahead=ahead)
        first = first.union("U", other, workers=workers())
    many = first.flat_map("B", some_twice, workers=workers())
    windowing = chance.choice((fn.tumbling(7), fn.tumbling(1), fn.sliding(10, every=5), fn.sliding(9, every=2)))
    timed = many.window("W", Sum(0), windowing, key="k", workers=workers())
    timed.map("M", marked(0), workers=workers()).sink("sums", fn.memory(), workers=workers())
    many.map("R", Remind(0), key="k", workers=workers()).sink("reminders", fn.memory(), workers=workers())
    last = many.map("C", marked(0), key=keys(), workers=workers())
    if chance.random() < 0.5:
        left, right = last.split("SP", lambda row: row["v"] % 2, workers=workers())
        left.sink("odd", fn.memory(), workers=workers())
        last = right
    last.sink("out", fn.memory(), workers=workers())
    return DrawnTimes(flow.graph(workers=2), rows, windowing)


def draw_cluster(seed: int, made: type[Cluster] = Cluster) -> tuple[DrawnTimes, Cluster, random.Random]:
    """A random dataflow, a cluster that runs it, and what draws the changes.

    Args:
        seed: determines them.
        made: the class of the cluster.
    """
    chance = random.Random(seed)
    drawn = draw_flow(chance)
    return drawn, running_cluster(drawn.graph, drawn.rows, seed, chance, made), chance


def running_cluster(
    graph: Graph, rows: Any, seed: int, chance: random.Random, made: type[Cluster] = Cluster, identities: bool = False
) -> Cluster:
    """A cluster that runs a dataflow over these rows, with a size and faults that are drawn."""
    faults = Faults(hazard=0.004, host_kills=2, driver_kills=1) if chance.random() < 0.4 else Faults()
    return made(
        graph, rows, seed=seed, hosts=chance.choice((1, 2, 3)), window=chance.choice((1, 200, 2_000)),
        audit=chance.random() < 0.5, chaining=chance.random() < 0.5, checkpoints=faults.hazard > 0,
        commit_interval_ns=chance.choice((300_000, 2_000_000) if faults.hazard else (None, 2_000_000)), faults=faults,
        identities=identities,
    )  # fmt: skip


def play_timed(seed: int, made: type[Cluster] = Cluster) -> FrontierLaw:
    """Play a seed to its end, check the law of frontiers on the way and the results of windows; returns the law."""
    drawn, cluster, chance = draw_cluster(seed, made)
    law = FrontierLaw(cluster)
    for version in range(1, chance.choice((0, 1, 3)) + 1):
        read = chance.random()
        law.run_until(lambda read=read: cluster.supply.read >= read * cluster.supply.total)
        if cluster.state == "running":
            names = chance.sample(("A", "C", "W", "M", "R"), chance.choice((1, 1, 2)))
            change = {name: {"W": Sum, "R": Remind}.get(name, marked)(version) for name in names}
            cluster.request(change, chance.choice(SCHEDULERS))
    law.run_until(lambda: False)
    assert cluster.state == "finished", f"seed {seed}: {cluster.state}, {cluster.error}"
    law.check_end()
    found = sorted((row["k"], row["at"], row["sum"], row["count"]) for row in cluster.rows("sums"))
    assert found == drawn.expected, f"seed {seed}: the windows have {found}, expected {drawn.expected}"
    reminders = sorted((row["k"], row["at"]) for row in cluster.rows("reminders"))
    assert reminders == drawn.reminders, f"seed {seed}: reminders {reminders}, expected {drawn.reminders}"
    return law
