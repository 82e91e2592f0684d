"""Runs whose rows have times, on hosts that join, get bins, give them up and leave, at random."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from held_tokens import Hold
from progress_laws import FrontierLaw
from timed_draws import SCHEDULERS, DrawnTimes, Remind, Sum, marked, sums

import fries_nb as fn
from fries_nb.audit import judge
from fries_nb.dataflow.graph import Graph
from fries_nb.errors import FriesError
from fries_nb.progress.exchange import ProgressFrame, ProgressState
from fries_nb.protocol.messages import MovedBins, WorkerId
from fries_nb.simulation.faults import Faults
from fries_nb.simulation.hosts import Hosts
from fries_nb.simulation.network import LaneKind
from fries_nb.simulation.rescaling_cluster import JoiningCluster
from fries_nb.simulation.threaded_hosts import JoiningThreads

SAFE = tuple(scheduler for scheduler in SCHEDULERS if scheduler != "naive")


class WatchedHosts(Hosts):
    """Hosts that count what moves, and who comes and goes.

    Attributes:
        met: what has happened, by name.
    """

    met: ClassVar[Counter[str]] = Counter()

    def _feed(self, source: WorkerId) -> None:
        if self._random.random() < 0.15:  # sources are slow, so that rows flow all the time
            super()._feed(source)

    def _arrive(self, kind: LaneKind, place: Any, what: Any) -> Any:
        if isinstance(what, MovedBins) and what.times is not None:
            self.met["entries"] += len(what.times.agenda)
            self.met["tokens"] += sum(len(saved.times) for saved in what.times.tokens.values())
        self.met["views"] += isinstance(what, ProgressState)
        self.met["last frames"] += isinstance(what, ProgressFrame) and what.is_last
        return super()._arrive(kind, place, what)


class WatchedCluster(JoiningCluster):
    """A cluster whose hosts join and leave often, mostly with few steps, so that a run has several rescales."""

    often = 0.1
    at_once = (0, 300, 1024, 1024, 1024)
    hosts_of = WatchedHosts


class Total:
    """The sum of the rows of a key and a time."""

    def __init__(self, version: int = 0) -> None:
        self.version = version

    def initial_state(self) -> list[int]:
        """Nothing yet."""
        return [0]

    def process(self, row: dict[str, Any], state: list[int]) -> None:
        """Add a row."""
        state[0] += row["v"]

    def close(self, key: int, time: int, state: list[int]) -> dict[str, Any]:
        """The sum."""
        return {"k": key, "at": time, "sum": state[0]}


def timed_flow(chance: random.Random) -> DrawnTimes:
    """Windows, a reduce, reminders and tokens, each by key, behind a keyed map; and some behind another."""
    flow, workers = fn.Dataflow("timed"), lambda: chance.choice((1, 2, 3))
    spread = chance.choice((40, 120))
    times = sorted(chance.randrange(spread) for _ in range(100))
    if chance.random() < 0.3:
        chance.shuffle(times)
    rows = [{"k": chance.randrange(12), "v": number, "at": time} for number, time in enumerate(times)]
    source = flow.source("S", fn.rate(None), time="at", workers=chance.choice((1, 1, 2)))
    first = source.map("A", marked(0), key=chance.choice((None, "k")), workers=workers())
    windowing = chance.choice((fn.tumbling(7), fn.tumbling(30), fn.sliding(10, every=5), fn.sliding(9, every=2)))
    window = first.window("W", Sum(0), windowing, key="k", workers=workers())
    window.map("M", marked(0), workers=workers()).sink("sums", fn.memory(), workers=workers())
    first.map("R", Remind(0), key="k", workers=workers()).sink("reminders", fn.memory(), workers=workers())
    first.map("H", Hold(), key="k", workers=workers()).sink("held", fn.memory(), workers=workers())
    first.reduce("T", Total(), key="k", workers=workers()).sink("totals", fn.memory(), workers=workers())
    return DrawnTimes(flow.graph(workers=2), {"S": rows}, windowing)


class TimedThreads(JoiningThreads):
    """The same with all of a host of Spark; what moves is not counted."""

    often = 0.1
    at_once = WatchedCluster.at_once


def draw_rescaled(
    seed: int, haste: float = 0.0, of: type[JoiningCluster] = WatchedCluster
) -> tuple[DrawnTimes, Any, random.Random]:
    """A dataflow, a cluster that runs it, whose sources are held until the rescales are over, and the chance.

    With haste, hosts that leave die with this probability before they have said what is left; see ``Faults``.
    """
    chance = random.Random(f"rescaled in time {seed}")
    drawn = timed_flow(chance)
    return drawn, rescaled_cluster(chance, drawn.graph, drawn.rows, seed, of, haste), chance


def rescaled_cluster(
    chance: random.Random, graph: Graph, rows: Mapping[str, Any], seed: int, of: type[Any] = WatchedCluster,
    haste: float = 0.0,
) -> Any:  # fmt: skip
    """A cluster of one host or two with some faults, whose sources are held until ``released``."""
    kills = chance.random() < 0.3 or haste > 0
    faults = Faults(hazard=0.001, host_kills=2, driver_kills=1, haste=haste) if kills else Faults()
    cluster = of(
        graph, rows, seed=seed, hosts=chance.choice((1, 2)), window=chance.choice((1, 300, 2_000)),
        audit=chance.random() < 0.5, chaining=chance.random() < 0.5, checkpoints=kills,
        commit_interval_ns=chance.choice((300_000, 2_000_000) if kills else (None, 2_000_000)), faults=faults,
    )  # fmt: skip
    cluster.hold([WorkerId(name, at) for name in graph.sources for at in range(graph.operator(name).workers or 1)])
    return cluster


def released(cluster: Any, chance: random.Random, law: FrontierLaw, adopted: int, every: int = 40) -> None:
    """Run until so many topologies are adopted, then let sources read to their end; the law is checked on the way."""
    most = _countdown(5_000)
    while len(cluster.adopted) < adopted and not most() and cluster.state == "running":
        cluster.step()  # where nothing can happen, a step of a rescale is requested sooner or later
        if chance.random() < 1 / every:
            law.check()
    cluster.often = 0.02
    cluster.release()
    law.run_until(lambda: False, every)
    assert (cluster.state, cluster.error) == ("finished", ""), f"{cluster.error} {cluster.details}"
    law.check_end()


def play_rescaled(seed: int, haste: float = 0.0, of: type[JoiningCluster] = WatchedCluster) -> Any:
    """Play a seed to its end; no frontier passes a row, and all results are those of a run that is not rescaled."""
    try:
        return _played(seed, haste, of)
    except (AssertionError, FriesError) as error:
        how = f"play_rescaled({seed}, {haste}, {of.__name__})"
        raise AssertionError(f"seed {seed}: {error}\n(replay: {how})") from error


def _played(seed: int, haste: float, of: type[JoiningCluster], every: int = 40) -> Any:
    drawn, cluster, chance = draw_rescaled(seed, haste, of)
    law = FrontierLaw(cluster)
    adopted = chance.choice((2, 5, 8))
    for version in range(1, chance.choice((1, 2, 3))):
        steps = chance.randrange(600)
        cluster.steps(steps)
        if cluster.state == "running":
            names = chance.sample(("A", "W", "M", "R"), chance.choice((1, 2)))
            change = {name: {"W": Sum, "R": Remind}.get(name, marked)(version) for name in names}
            cluster.request(change, chance.choice(SAFE))
    released(cluster, chance, law, adopted, every)
    check_results(drawn, cluster)
    return cluster


def _countdown(steps: int) -> Callable[[], bool]:
    left = itertools.count(steps, -1)
    return lambda: next(left) <= 0


def check_results(drawn: DrawnTimes, cluster: Any) -> None:
    """What every sink has is what plain Python makes of the rows."""
    rows = drawn.rows["S"]
    windows = sums(rows, drawn.windowing)
    found = sorted((row["k"], row["at"], row["sum"], row["count"]) for row in cluster.rows("sums"))
    assert found == windows, f"windows {found}, expected {windows}"
    found = sorted((row["k"], row["at"]) for row in cluster.rows("reminders"))
    assert found == sorted({(row["k"], row["at"] + 10) for row in rows}), f"reminders {found}"
    found = sorted((row["at"], row["count"]) for row in cluster.rows("held"))
    expected = Counter((row["k"], row["at"]) for row in rows)
    assert found == sorted((at, count) for (_, at), count in expected.items()), f"held {found}"
    totals: Counter[tuple[int, int]] = Counter()
    for row in rows:
        totals[row["k"], row["at"]] += row["v"]
    found = sorted((row["k"], row["at"], row["sum"]) for row in cluster.rows("totals"))
    assert found == sorted((*place, total) for place, total in totals.items()), f"totals {found}"
    if cluster._plan.audit:
        verdict = judge(cluster.records())
        assert verdict.serializable or len(cluster.outcomes) > 1, verdict.cycle  # see never_mixes
        assert (verdict.lost, verdict.doubled, verdict.mixed) == ((), (), ()), verdict
