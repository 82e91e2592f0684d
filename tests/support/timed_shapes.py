"""Runs whose rows have times, and whose shape changes while they run, at random; determined by a seed."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from functools import partial
from typing import Any

import networkx as nx
from held_tokens import Hold
from progress_laws import FrontierLaw
from shapes_played import is_over
from timed_draws import DrawnTimes, Remind, Sum, marked, sums
from timed_rescales import Total, check_results

import fries_nb as fn
from fries_nb.audit import judge
from fries_nb.dataflow.graph import Graph, union_of
from fries_nb.errors import FriesError, PlanError
from fries_nb.planning.difference import Difference
from fries_nb.planning.shape import refuse_in_time, refuse_unsupported
from fries_nb.protocol.messages import WorkerId
from fries_nb.simulation.faults import Faults
from fries_nb.simulation.reshaping_cluster import ReshapingCluster

REMOVALS = ("no windows", "no reminders", "no totals", "no tokens")
"""They are not taken back, so whatever these operators emit is made of all rows."""
EDITS = ("in front", "all in front", "behind", "branch", "window", "merged", "source", "joined", "untimed", *REMOVALS)
MILLION = 10**6


def same(row: dict[str, Any]) -> dict[str, Any]:
    """The row."""
    return row


class TimedProgram:
    """A timed dataflow with the same functions in every shape; what every one of them has gives the same results.

    Attributes:
        rows: the rows of its source.
        others: those of sources that are added; their numbers are whole millions.
    """

    def __init__(self, chance: random.Random) -> None:
        spread = chance.choice((40, 120))
        self.rows, self.others = (self._drawn(chance, spread, unit) for unit in (1, MILLION))
        self.windowing = chance.choice((fn.tumbling(7), fn.tumbling(30), fn.sliding(10, every=5)))
        self._functions: dict[str, Any] = {
            "A": marked(0), "W": Sum(0), "M": marked(0), "R": Remind(0), "T": Total(), "W2": Sum(0), "H": Hold(),
            "W3": Sum(0), "T3": Total(), **{name: partial(same) for name in "NOGPQE"},
        }  # fmt: skip
        self._workers = {name: chance.choice((1, 2, 3)) for name in (*self._functions, *"abcde", "S2", "S3")}
        self._declared: dict[str, Any] = {}  # what is another object counts as changed

    def _drawn(self, chance: random.Random, spread: int, unit: int) -> list[dict[str, Any]]:
        times = sorted(chance.randrange(spread) for _ in range(chance.choice((40, 80))))
        if chance.random() < 0.3:
            chance.shuffle(times)
        return [{"k": chance.randrange(8), "v": number * unit, "at": time} for number, time in enumerate(times)]

    def graph(self, edits: frozenset[str]) -> Graph:
        """The dataflow with these edits."""
        flow, done, workers = fn.Dataflow("timed"), self._functions, self._workers
        first = flow.source("S", fn.rate(None), time="at", workers=1).map("A", done["A"], workers=workers["A"])
        if "all in front" in edits:
            first = first.map("O", done["O"], workers=workers["O"])
        plain = [first.map("P", done["P"], workers=workers["P"])] if "branch" in edits else []
        if "no windows" not in edits:
            into = first.map("N", done["N"], workers=workers["N"]) if "in front" in edits else first
            window = into.window("W", done["W"], self.windowing, key="k", workers=workers["W"])
            out = window.map("M", done["M"], workers=workers["M"])
            if "behind" in edits:
                out = out.map("G", done["G"], workers=workers["G"])
            out.sink("sums", fn.memory(), workers=workers["a"])
            if "merged" in edits:
                plain.append(window.map("Q", done["Q"], workers=workers["Q"]))
        for name, sink in {"R": "reminders", "T": "totals", "H": "held"}.items():
            if {"R": "no reminders", "T": "no totals", "H": "no tokens"}[name] not in edits:
                how = first.reduce if name == "T" else first.map
                how(name, done[name], key="k", workers=workers[name]).sink(sink, fn.memory(), workers=1)
        first.sink("rest", fn.memory(), workers=1)
        for stream, sink in zip(plain, ("plain", "again"), strict=False):
            stream.sink(sink, fn.memory(), workers=workers["b"])
        if "window" in edits:
            second = first.window("W2", done["W2"], self.windowing, key="k", workers=workers["W2"])
            second.sink("more", fn.memory(), workers=workers["c"])
        self._add_sources(flow, first, edits)
        made = flow.graph(workers=2)
        same_ones = (replace(one, function=self._declared.setdefault(one.name, one.function)) for one in made.operators)
        return replace(made, operators=tuple(same_ones))

    def _add_sources(self, flow: Any, first: Any, edits: frozenset[str]) -> None:
        done, workers = self._functions, self._workers
        if {"source", "joined"} & edits:
            other = flow.source("S2", fn.rate(None), time="at", workers=workers["S2"])
            third = other.window("W3", done["W3"], self.windowing, key="k", workers=workers["W3"])
            third.sink("others", fn.memory(), workers=workers["d"])
            if "joined" in edits:
                both = first.union("V", other, workers=workers["e"])
                both.reduce("T3", done["T3"], key="k", workers=workers["T3"]).sink("both", fn.memory(), workers=1)
        if "untimed" in edits:
            plain = flow.source("S3", fn.rate(None), workers=workers["S3"]).map("E", done["E"], workers=workers["E"])
            plain.sink("untimed", fn.memory(), workers=1)


class ShapeLaw(FrontierLaw):
    """The same while the shape changes: what was removed has rows for some time."""

    def __init__(self, cluster: ReshapingCluster) -> None:
        super().__init__(cluster)
        self.known = nx.DiGraph(cluster.graph.digraph)  # all edges that there have been

    def knows(self, graph: Graph) -> None:
        """The dataflow may have these edges, too, from now on."""
        self.known.add_edges_from((edge.source, edge.to) for edge in graph.edges)
        self._below = {name: nx.descendants(self.known, name) for name in self.known}


def play_shapes(seed: int, only: tuple[str, ...] = ()) -> Any:
    """Play a seed to its end, with these edits or drawn ones; no frontier passes a row, and all results are whole."""
    try:
        return _played(seed, only)
    except (AssertionError, FriesError) as error:
        raise AssertionError(f"seed {seed}: {error}\n(replay: play_shapes({seed}, {only}))") from error


def _played(seed: int, only: tuple[str, ...]) -> Counter[str]:
    chance = random.Random(f"reshaped in time {seed}")
    program = TimedProgram(chance)
    kills = chance.random() < 0.3
    faults = Faults(hazard=0.0005, host_kills=2, driver_kills=1) if kills else Faults()
    begun = frozenset(chance.sample(EDITS[:6], chance.choice((0, 1, 2))))
    cluster = ReshapingCluster(
        program.graph(begun), {"S": program.rows, "S2": program.others, "S3": program.others}, seed=seed,
        hosts=chance.choice((1, 2)), window=chance.choice((1, 300, 2_000)), audit=chance.random() < 0.5,
        chaining=chance.random() < 0.5, checkpoints=kills,
        commit_interval_ns=chance.choice((300_000, 2_000_000) if kills else (None, 2_000_000)), faults=faults,
    )  # fmt: skip
    cluster.hold([WorkerId("S", 0)])
    law, met, edits = ShapeLaw(cluster), Counter[str](), begun
    for edit in only or (None,) * chance.choice((1, 2, 3)):
        for step in range(chance.choice((20, 300, 900))):
            if not cluster.step():  # all that its source has let go is processed
                break
            if step % 40 == 0:
                law.check()
        if cluster.state != "running":
            break
        before, left = cluster.graph, [one for one in EDITS if one not in REMOVALS or one not in edits]
        edits = edits ^ frozenset([edit] if edit else chance.sample(left, chance.choice((1, 1, 2))))
        made = _change(cluster, law, program.graph(edits))
        met[made] += 1
        met.update(f"{one.outcome}: {one.error[:90]}" for one in cluster.outcomes.values() if one.error)
        if made == "done" and cluster.state == "running" and chance.random() < 0.2:
            made = _change(cluster, law, before, returns=True)
            met[f"back {made}"] += 1
        met.update(_kinds(before, cluster.graph))
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


def _kinds(before: Graph, after: Graph) -> list[str]:
    """Which changes that concern times were made."""
    gone, come = ({one.name for one in before.operators} - set(after.by_name) for before, after in _both(before, after))
    return [f"removed {name}" for name in gone & set("WRTH")] + [f"added {name}" for name in come & {"S2", "S3"}]


def _both(before: Graph, after: Graph) -> tuple[tuple[Graph, Graph], tuple[Graph, Graph]]:
    return (before, after), (after, before)


def _change(cluster: ReshapingCluster, law: ShapeLaw, after: Graph, returns: bool = False) -> str:
    """Make the run another dataflow; says how it has ended."""
    before = cluster.graph
    found = Difference.of(before, after)
    try:
        if returns:
            refuse_in_time(before, after, law.known.edges)
        else:
            refuse_unsupported(found, found.lost, past=law.known.edges)
        change = cluster.reshape(after, returns=returns)
    except PlanError:
        return "refused"
    law.knows(union_of(before, after))
    law.run_until(partial(is_over, cluster, change), 20)
    return cluster.outcomes[change].outcome if change in cluster.outcomes else "died"


def _check(program: TimedProgram, cluster: ReshapingCluster) -> None:
    rows, others = program.rows, program.others
    times = Counter((row["k"], row["at"]) for row in rows)
    windows, wanted = sums(rows, program.windowing), ("k", "at", "sum", "count")
    every: dict[str, tuple[tuple[str, ...], list[Any]]] = {
        "sums": (wanted, windows),
        "reminders": (("k", "at"), [(k, at + 10) for k, at in times]),
        "totals": (("k", "at", "sum"), [(*place, sum(_values(rows, place))) for place in times]),
        "held": (("at", "count"), [(at, count) for (_, at), count in times.items()]),
        "others": (wanted, sums(others, program.windowing)),
        "untimed": (("v",), [(row["v"],) for row in others]),
    }
    for sink, (columns, expected) in every.items():
        found = Counter(tuple(row[name] for name in columns) for row in _rows(cluster, sink))
        assert found <= Counter(expected), f"{sink} has too much: {found - Counter(expected)}"
        if sink in cluster.graph:  # otherwise it was removed, and lacks what came later
            assert found == Counter(expected), f"{sink} lacks {Counter(expected) - found}"
    given = Counter(row["v"] for row in rows)
    plain = Counter(row["v"] for row in _rows(cluster, "plain") if "v" in row)
    assert plain <= given, "a row of the branch came twice"
    most = {(k, at): count for k, at, _, count in windows}
    for row in _rows(cluster, "more"):
        assert row["count"] <= most[row["k"], row["at"]], f"a window of the branch has too much: {row}"
    for row in _rows(cluster, "both"):
        most_of = sum(_values(others, (row["k"], row["at"])))
        assert row["sum"] // MILLION * MILLION <= most_of, f"a sum of both sources has too much: {row}"
    if cluster._plan.audit:
        verdict = judge(cluster.records())
        assert verdict.serializable, verdict
        assert (verdict.lost, verdict.doubled, verdict.mixed) == ((), (), ()), verdict


def _values(rows: list[dict[str, Any]], place: tuple[int, int]) -> list[int]:
    return [row["v"] for row in rows if (row["k"], row["at"]) == place]


def _rows(cluster: ReshapingCluster, sink: str) -> list[dict[str, Any]]:
    return list(cluster.rows(sink)) if sink in cluster.store.sinks else []


__all__ = ["DrawnTimes", "check_results", "play_shapes"]
