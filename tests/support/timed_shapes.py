"""Runs whose rows have times, and whose shape changes while they run, at random; determined by a seed."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from functools import partial
from typing import Any

import networkx as nx
from progress_laws import FrontierLaw
from shapes_played import is_over
from timed_draws import DrawnTimes, Remind, Sum, marked, sums
from timed_rescales import Total, check_results

import fries_nb as fn
from fries_nb.dataflow.graph import Graph, union_of
from fries_nb.errors import FriesError, PlanError
from fries_nb.planning.difference import Difference
from fries_nb.planning.shape import refuse_unsupported
from fries_nb.protocol.messages import WorkerId
from fries_nb.simulation.faults import Faults
from fries_nb.simulation.reshaping_cluster import ReshapingCluster

EDITS = ("in front", "all in front", "behind", "branch", "window", "merged")


def same(row: dict[str, Any]) -> dict[str, Any]:
    """The row."""
    return row


class TimedProgram:
    """A timed dataflow with the same functions in every shape; what every one of them has gives the same results.

    Attributes:
        rows: the rows of its source.
    """

    def __init__(self, chance: random.Random) -> None:
        spread = chance.choice((40, 120))
        times = sorted(chance.randrange(spread) for _ in range(chance.choice((40, 80))))
        if chance.random() < 0.3:
            chance.shuffle(times)
        self.rows = [{"k": chance.randrange(8), "v": number, "at": time} for number, time in enumerate(times)]
        self.windowing = chance.choice((fn.tumbling(7), fn.tumbling(30), fn.sliding(10, every=5)))
        self._functions: dict[str, Any] = {
            "A": marked(0), "W": Sum(0), "M": marked(0), "R": Remind(0), "T": Total(), "W2": Sum(0),
            "N": partial(same), "O": partial(same), "G": partial(same), "P": partial(same), "Q": partial(same),
        }  # fmt: skip
        self._workers = {name: chance.choice((1, 2, 3)) for name in (*self._functions, *"abcde")}
        self._declared: dict[str, Any] = {}  # what is another object counts as changed

    def graph(self, edits: frozenset[str]) -> Graph:
        """The dataflow with these edits."""
        flow, done, workers = fn.Dataflow("timed"), self._functions, self._workers
        source = flow.source("S", fn.rate(None), time="at", workers=1)
        first = source.map("A", done["A"], workers=workers["A"])
        if "all in front" in edits:
            first = first.map("O", done["O"], workers=workers["O"])
        into = first.map("N", done["N"], workers=workers["N"]) if "in front" in edits else first
        window = into.window("W", done["W"], self.windowing, key="k", workers=workers["W"])
        out = window.map("M", done["M"], workers=workers["M"])
        if "behind" in edits:
            out = out.map("G", done["G"], workers=workers["G"])
        out.sink("sums", fn.memory(), workers=workers["a"])
        first.map("R", done["R"], key="k", workers=workers["R"]).sink("reminders", fn.memory(), workers=1)
        first.reduce("T", done["T"], key="k", workers=workers["T"]).sink("totals", fn.memory(), workers=1)
        plain = [first.map("P", done["P"], workers=workers["P"])] if "branch" in edits else []
        if "merged" in edits:
            plain.append(window.map("Q", done["Q"], workers=workers["Q"]))
        for stream, sink in zip(plain, ("plain", "again"), strict=False):
            stream.sink(sink, fn.memory(), workers=workers["b"])
        if "window" in edits:
            second = first.window("W2", done["W2"], self.windowing, key="k", workers=workers["W2"])
            second.sink("more", fn.memory(), workers=workers["c"])
        made = flow.graph(workers=2)
        same_ones = (replace(one, function=self._declared.setdefault(one.name, one.function)) for one in made.operators)
        return replace(made, operators=tuple(same_ones))


class ShapeLaw(FrontierLaw):
    """The same while the shape changes: what was removed has rows for some time."""

    def __init__(self, cluster: ReshapingCluster) -> None:
        super().__init__(cluster)
        self.known = nx.DiGraph(cluster.graph.digraph)  # all edges that there have been

    def knows(self, graph: Graph) -> None:
        """The dataflow may have these edges, too, from now on."""
        self.known.add_edges_from((edge.source, edge.to) for edge in graph.edges)
        self._below = {name: nx.descendants(self.known, name) for name in self.known}


def play_shapes(seed: int) -> Any:
    """Play a seed to its end; no frontier passes a row, and what no edit touches has its results."""
    try:
        return _played(seed)
    except (AssertionError, FriesError) as error:
        raise AssertionError(f"seed {seed}: {error}\n(replay: play_shapes({seed}))") from error


def _played(seed: int) -> Counter[str]:
    chance = random.Random(f"reshaped in time {seed}")
    program = TimedProgram(chance)
    kills = chance.random() < 0.3
    faults = Faults(hazard=0.0005, host_kills=2, driver_kills=1) if kills else Faults()
    begun = frozenset(chance.sample(EDITS, chance.choice((0, 1, 2))))
    cluster = ReshapingCluster(
        program.graph(begun), {"S": program.rows}, seed=seed, hosts=chance.choice((1, 2)),
        window=chance.choice((1, 300, 2_000)), audit=chance.random() < 0.5, chaining=chance.random() < 0.5,
        checkpoints=kills, commit_interval_ns=chance.choice((300_000, 2_000_000) if kills else (None, 2_000_000)),
        faults=faults,
    )  # fmt: skip
    cluster.hold([WorkerId("S", 0)])
    law, met, edits = ShapeLaw(cluster), Counter[str](), begun
    for _ in range(chance.choice((1, 2, 3))):
        for step in range(chance.choice((20, 300, 900))):
            if not cluster.step():  # all that its source has let go is processed
                break
            if step % 40 == 0:
                law.check()
        if cluster.state != "running":
            break
        edits = edits ^ frozenset(chance.sample(EDITS, chance.choice((1, 1, 2))))
        made = _change(cluster, law, program.graph(edits))
        met[made] += 1
        met.update(f"{one.outcome}: {one.error[:90]}" for one in cluster.outcomes.values() if one.error)
        if made != "done":
            break
    if cluster.state == "running" and not kills and chance.random() < 0.4:
        cluster.rescale(chance.randint(1, 3))
        law.run_until(lambda: len(cluster.rescaled) == 1, 40)
        met.update(f"rescaled {end.outcome}" for end in cluster.rescaled)
    met["recovered"] = bool(cluster.recoveries)
    cluster.release()
    law.run_until(lambda: False, 40)
    assert (cluster.state, cluster.error) == ("finished", ""), (cluster.error, cluster.details)
    law.check_end()
    _check(program, cluster)
    return met


def _change(cluster: ReshapingCluster, law: ShapeLaw, after: Graph) -> str:
    """Make the run another dataflow; says how it has ended."""
    before = cluster.graph
    found = Difference.of(before, after)
    try:
        refuse_unsupported(found, found.lost, past=law.known.edges)
        change = cluster.reshape(after)
    except PlanError:
        return "refused"
    law.knows(union_of(before, after))
    law.run_until(partial(is_over, cluster, change), 20)
    return cluster.outcomes[change].outcome if change in cluster.outcomes else "died"


def _check(program: TimedProgram, cluster: ReshapingCluster) -> None:
    rows = program.rows
    windows = sums(rows, program.windowing)
    found = sorted((row["k"], row["at"], row["sum"], row["count"]) for row in cluster.rows("sums"))
    assert found == windows, f"windows {found}, expected {windows}"
    found = sorted((row["k"], row["at"]) for row in cluster.rows("reminders"))
    assert found == sorted({(row["k"], row["at"] + 10) for row in rows}), f"reminders {found}"
    totals: Counter[tuple[int, int]] = Counter()
    for row in rows:
        totals[row["k"], row["at"]] += row["v"]
    found = sorted((row["k"], row["at"], row["sum"]) for row in cluster.rows("totals"))
    assert found == sorted((*place, total) for place, total in totals.items()), f"totals {found}"
    given = Counter(row["v"] for row in rows)
    plain = Counter(row["v"] for row in cluster.rows("plain") if "v" in row) if "plain" in cluster.store.sinks else {}
    assert Counter(plain) <= given, "a row of the branch came twice"
    most = {(k, at): count for k, at, _, count in windows}
    for row in cluster.rows("more") if "more" in cluster.store.sinks else ():
        assert row["count"] <= most[row["k"], row["at"]], f"a window of the branch has too much: {row}"


__all__ = ["DrawnTimes", "check_results", "play_shapes"]
