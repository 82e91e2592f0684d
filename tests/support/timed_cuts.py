"""Runs in which what time brings out meets changes that are decided row by row, canaries, rescales and failures."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from typing import Any

import pyarrow as pa
from progress_laws import FrontierLaw
from timed_draws import Sum, sums
from timed_rescales import Total, WatchedCluster

import fries_nb as fn
from fries_nb.audit import judge
from fries_nb.dataflow.columns import COHORT, TRANSACTION
from fries_nb.dataflow.graph import Graph
from fries_nb.dataflow.windowing import Windowing
from fries_nb.errors import FriesError, PlanError
from fries_nb.protocol.checkpoints import in_effect
from fries_nb.protocol.messages import WorkerId
from fries_nb.protocol.partitioning import COHORTS, cohorts
from fries_nb.protocol.rollout import is_brought_out
from fries_nb.protocol.trace import ROW_BITS

MARKS = {"A": ("raw",), "M": ("out", "again"), "C": ("out",), "N": ("again",)}
"""What may change, each of which says by which version in a column of its own, and the sinks whose rows have it."""

DEATH = "the driver was killed"


def mark(name: str, version: int = 0) -> Any:
    """A function that says by which version."""
    return lambda row: row | {name: version}


def both(row: dict[str, Any]) -> list[dict[str, Any]]:
    """Two rows of one, for other workers."""
    return [row | {"twin": row["k"] + number} for number in (0, 1)]


class Again(Sum):
    """Passes on what it got: how many results of a key came at a time, and their sum."""

    def process(self, row: dict[str, Any], state: list[int]) -> None:
        """Add a result."""
        state[0] += row["sum"]
        state[1] += 1


def draw_flow(chance: random.Random) -> tuple[Graph, list[dict[str, Any]], Windowing]:
    """Windows and a reduce that meet in a map, rows of which are doubled; and windows of these."""
    flow, workers = fn.Dataflow("timed cuts"), lambda: chance.choice((1, 2, 3))
    spread = chance.choice((40, 120))
    times = sorted(chance.choices(range(spread), k=120))
    rows = [{"k": chance.randrange(12), "v": number, "at": at} for number, at in enumerate(times)]
    cohort = chance.choice((None, None, "k"))
    source = flow.source("S", fn.rate(None), time="at", workers=chance.choice((1, 2)), cohort=cohort)
    first = source.map("A", mark("A"), workers=workers())
    first.sink("raw", fn.memory())
    windowing = chance.choice((fn.tumbling(7), fn.tumbling(3), fn.sliding(10, every=5)))
    window = first.window("W", Sum(0), windowing, key="k", workers=workers())
    total = first.reduce("T", Total(), key="k", workers=workers())
    total = total.map("P", lambda row: row | {"count": 0, "version": 0})
    met = window.union("U", total, workers=workers()).map("M", mark("M"), workers=workers())
    twice = met.flat_map("B", both, workers=workers())
    twice.map("C", mark("C"), key=chance.choice((None, "twin")), workers=workers()).sink("out", fn.memory())
    again = met.window("V", Again(0), fn.tumbling(15), key="k", workers=workers())
    again.map("N", mark("N"), workers=workers()).sink("again", fn.memory())
    return flow.graph(workers=2), rows, windowing


class Play:
    """One seed, with its changes, from the beginning to the end.

    Attributes:
        versions: change to the number that its functions write.
    """

    def __init__(self, seed: int) -> None:
        self.chance = chance = random.Random(f"timed cut {seed}")
        graph, self.rows, self.windowing = draw_flow(chance)
        kills = self._kills = chance.random() < 0.6
        interval = chance.choice((300_000, 2_000_000, 8_000_000) if kills else (None, 2_000_000))
        self.cluster = WatchedCluster(
            graph, {"S": self.rows}, seed=seed, hosts=chance.choice((1, 2)), window=chance.choice((1, 300, 2_000)),
            audit=True, chaining=chance.random() < 0.5, checkpoints=kills, commit_interval_ns=interval,
        )  # fmt: skip
        self._commits = interval is not None
        self.cluster.often = chance.choice((0.0, 0.0, 0.01, 0.1))
        self.versions: dict[str, int] = {}
        self.is_by_row = chance.random() < 0.8
        self._canary, self._last_step, self._deaths = "", "", 0

    def whole(self) -> WatchedCluster:
        """Play, and check what came out."""
        chance, cluster = self.chance, self.cluster
        law = FrontierLaw(cluster)
        cluster.hold([WorkerId("S", index) for index in range(cluster.graph.operator("S").workers)])
        for share in sorted(chance.uniform(0, 0.85) for _ in range(chance.randint(2, 5))):
            cluster.until(lambda share=share: cluster.supply.read >= share * cluster.supply.total)
            if cluster.state == "running" and not self._is_lost():
                self._ask()
            if self._kills and chance.random() < 0.6:
                self._fail()
        cluster.until(lambda: self._is_lost() or (self._closed() and not cluster.open))
        if self._commits:  # whatever is silent since a restart, no change stays open behind a commit
            cluster.until(lambda: self._is_lost() or not any(map(is_brought_out, self._awaited())))
        cluster.often = min(cluster.often, 0.02)
        cluster.release()
        law.run_until(lambda: self._closed() and False, 40)
        assert (cluster.state, cluster.error) == ("finished", "")
        law.check_end()
        self._check_results()
        self._check_versions()
        verdict = judge(cluster.records())
        assert (verdict.lost, verdict.doubled, verdict.mixed, verdict.stale) == ((), (), (), ()), verdict
        assert verdict.serializable or not self.is_by_row, verdict.cycle
        return cluster

    def _ask(self) -> None:
        if self._canary and self.chance.random() < 0.5:
            self._step(self.chance.choice((0.7, 1.0, 0.0)))
            return
        names = self.chance.sample(list(MARKS), self.chance.choice((1, 2, 3)))
        scheduler = "cut" if self.is_by_row or self.chance.random() < 0.6 else self.chance.choice(("fries", "epoch"))
        share = 0.4 if scheduler == "cut" and not self._canary and self.chance.random() < 0.4 else 1.0
        version = len(self.versions) + 1
        try:
            change = self.cluster.request({name: mark(name, version) for name in names}, scheduler, share=share)
        except PlanError:
            assert share < 1  # another canary may be open
            return
        self.versions[change] = version
        if share < 1:
            self._canary, self._deaths = change, self.cluster.recoveries.count(DEATH)

    def _fail(self) -> None:
        """Let a host or the driver die, mostly soon behind a checkpoint, or when the last change is decided."""
        cluster, count, decided = self.cluster, len(self.cluster.ended), len(self.cluster.journal)
        most = itertools.count(2_000, -1)
        after = self.chance.choice((lambda: len(cluster.ended) > count, lambda: len(cluster.journal) > decided))
        cluster.until(lambda: next(most) <= 0 or after())
        cluster.steps(self.chance.choice((0, 20, 100, 300)))
        if cluster.state == "running" and self.chance.random() < 0.2:
            cluster.kill_driver()
        elif cluster.state == "running" and cluster.hosts.started:
            cluster.kill(min(itertools.chain(*cluster.hosts.topology.hosts_of_workers.values())))

    def _step(self, share: float) -> None:
        """A further step of the canary, if it is open and done."""
        cluster, canary = self.cluster, self._canary
        if cluster.state != "running" or cluster.open & {canary, self._last_step}:
            return
        now = cluster.changes.queue.share(canary) if canary in {one.change for one in cluster.journal} else 0
        if now in (0, 1):
            self._canary = ""
        elif not 0 < share <= now:
            self._last_step = cluster.ramp(canary, share)

    def _is_lost(self) -> bool:
        """Whether the driver has died with an open canary, which nobody can end."""
        cluster = self.cluster
        return bool(cluster.controller._changes.cuts.canary) and self._deaths < cluster.recoveries.count(DEATH)

    def _awaited(self) -> list[int]:
        """The origins of which old rows may come of open changes."""
        cuts = self.cluster.controller._changes.cuts
        places = (place for _, steps in cuts._open.values() for place in steps[-1].cut.items())
        return [origin for origin, position in places if not cuts._reach.has_passed(origin, position)]

    def _closed(self) -> bool:
        """Promote an open canary, so that what waits for it goes on."""
        if self._canary and self._canary not in self.cluster.open:
            self._step(1.0)
        return not self._canary

    def _check_results(self) -> None:
        """The windows are those of a run without changes."""
        windows = [(k, at, total) for k, at, total, _ in sums(self.rows, self.windowing)]
        totals: Counter[tuple[int, int]] = Counter()
        for row in self.rows:
            totals[row["k"], row["at"]] += row["v"]
        results = sorted([*windows, *((k, at, total) for (k, at), total in totals.items())])
        found = sorted((row["k"], row["at"], row["sum"]) for row in self.cluster.rows("out"))
        assert found == sorted(results * 2), f"results {found}, expected each of {results} twice"
        assert set(Counter(row[TRANSACTION] for row in self.cluster.rows("out")).values()) == {2}, "identities repeat"
        assert sum(row["count"] for row in self.cluster.rows("again")) == len(results)

    def _check_versions(self) -> None:
        """Each row follows the cuts in the journal, in whatever incarnation it was processed."""
        if not self.is_by_row:
            return
        decided = [one for one in in_effect(self.cluster.journal) if one.payloads]
        for name, sinks in MARKS.items():
            steps = [(self.versions[one.change], one.steps) for one in decided if name in one.targets]
            for sink in sinks[:1]:
                rows = self.cluster.rows(sink)
                identities = [row[TRANSACTION] for row in rows]
                assert all(is_brought_out(one >> ROW_BITS) == (sink != "raw") for one in identities)
                for row, cohort in zip(rows, _cohorts(rows), strict=True):
                    new = [version for version, of in steps if _is_new(of, row[TRANSACTION], cohort)]
                    expected = new[-1] if new else 0
                    assert row[name] == expected, f"{row} of {sink}: the journal says {expected}"


def _cohorts(rows: list[dict[str, Any]]) -> list[int]:
    if not rows:
        return []
    if COHORT in rows[0]:
        return [row[COHORT] for row in rows]
    batch = pa.RecordBatch.from_pydict({TRANSACTION: [row[TRANSACTION] for row in rows]})
    return list(map(int, cohorts(batch)))


def _is_new(steps: Any, identity: int, cohort: int) -> bool:
    above = [step for step in steps if identity & ((1 << ROW_BITS) - 1) > step.cut.get(identity >> ROW_BITS, -1)]
    return bool(above) and cohort < above[-1].share * COHORTS


def play_timed_cuts(seed: int) -> Play:
    """Play a seed to its end, with its laws."""
    play = Play(seed)
    try:
        play.whole()
    except (AssertionError, FriesError) as error:
        raise AssertionError(f"seed {seed}: {error}\n(replay: play_timed_cuts({seed}))") from error
    return play
