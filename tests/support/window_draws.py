"""Random runs with all kinds of windows, on hosts that come, go and die, with changes of functions and of windows."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable
from typing import Any, ClassVar

from progress_laws import FrontierLaw
from timed_draws import Sum, marked
from timed_rescales import SAFE, WatchedCluster, WatchedHosts

import fries_nb as fn
from fries_nb.audit import judge
from fries_nb.dataflow.windowing import CountWindowing, SessionWindowing, ends_of
from fries_nb.errors import FriesError
from fries_nb.protocol.messages import MovedBins, WorkerId
from fries_nb.simulation.faults import Faults

Row = dict[str, Any]
Extent = tuple[int, int, int]
"""First and last moment of the session of a row alone, and its number."""


class Extents:
    """Keeps what each row would be in alone, by the windows with which it came: so the sessions can be told from it."""

    def __init__(self, windows: SessionWindowing | None = None) -> None:
        self.windows = windows

    def initial_state(self) -> list[Extent]:
        """No rows."""
        return []

    def process(self, row: Row, state: list[Extent]) -> None:
        """Keep a row."""
        start, end = row["at"], row["at"] + 1
        if self.windows is not None:
            start, end = self.windows.extent(row["at"], int(self.windows.gap), int(self.windows.longest or 0))
        state.append((start, end - 1, row["v"]))

    def merge(self, state: list[Extent], other: list[Extent]) -> None:
        """Those of both."""
        state += other

    def close(self, key: int, time: int, state: list[Extent]) -> Row:
        """The rows, as text."""
        last = max(time - 1, *(end for _, end, _ in state))
        return {"k": key, "at": last, "end": time, "rows": ";".join("/".join(map(str, one)) for one in state)}


def extents_of(row: Row) -> list[Extent]:
    """What a result has kept."""
    return [tuple(map(int, one.split("/"))) for one in row["rows"].split(";")]  # type: ignore[misc]


def connected(extents: Iterable[Extent]) -> list[tuple[int, list[int]]]:
    """The end and the rows of each session: of each set of extents that touch."""
    found: list[tuple[int, list[int]]] = []
    for start, last, number in sorted(extents):
        if found and start <= found[-1][0]:
            found[-1] = max(found[-1][0], last), [*found[-1][1], number]
        else:
            found.append((last, [number]))
    return [(end, sorted(numbers)) for end, numbers in found]


class MetHosts(WatchedHosts):
    """Hosts that count the sessions that move."""

    met: ClassVar[Counter[str]] = Counter()

    def _arrive(self, kind: Any, place: Any, what: Any) -> Any:
        if isinstance(what, MovedBins):
            self.met["moved bins"] += 1
        return super()._arrive(kind, place, what)


class WindowCluster(WatchedCluster):
    """A cluster whose hosts join and leave."""

    hosts_of = MetHosts


class WindowPlay:
    """A run of a dataflow with sessions, shifted windows, windows by count and the best rows.

    Attributes:
        cluster: what runs it.
        met: what has happened.
    """

    def __init__(self, seed: int) -> None:
        self.chance = chance = random.Random(f"windows {seed}")
        self.met: Counter[str] = Counter()
        spread = chance.choice((60, 200))
        first = chance.choice((0, -100))
        times = sorted(first + chance.randrange(spread) for _ in range(100))
        if chance.random() < 0.5:
            width = chance.choice((5, 30, 100))
            times = [t for at in range(0, 100, width) for t in chance.sample(times[at : at + width], width)[:width]] \
                if 100 % width == 0 else chance.sample(times, 100)
        self.rows = [{"k": chance.randrange(8), "v": number, "at": t} for number, t in enumerate(times)]
        self.size, self.every = chance.choice(((7, 7), (10, 5), (9, 2)))
        self.offset = chance.randrange(1 - self.every, self.every)
        self.is_by_row, self.is_mixed = chance.random() < 0.3, False
        self.sessions, self.counts, self.best = [self._session()], [self._count()], [chance.choice((1, 3))]
        graph = self._declared()
        kills = chance.random() < 0.5
        faults = Faults(hazard=0.001, host_kills=2, driver_kills=1) if kills else Faults()
        self.cluster = WindowCluster(
            graph, {"S": self.rows}, seed=seed, hosts=chance.choice((1, 2)), window=chance.choice((1, 300, 2_000)),
            audit=chance.random() < 0.5, chaining=chance.random() < 0.5, checkpoints=kills,
            commit_interval_ns=chance.choice((300_000, 2_000_000) if kills else (None, 2_000_000)), faults=faults,
            identities=self.is_by_row,
        )  # fmt: skip

    def _session(self) -> SessionWindowing:
        gap = self.chance.choice((1, 3, 8))
        windows = fn.session(gap, self.chance.choice((None, None, 20)))
        assert isinstance(windows, SessionWindowing)
        return windows

    def _count(self) -> CountWindowing:
        rows = self.chance.choice((1, 4, 6))
        windows = fn.count(rows, self.chance.choice((None, max(1, rows // 2))))
        assert isinstance(windows, CountWindowing)
        return windows

    def _declared(self) -> Any:
        chance, flow = self.chance, fn.Dataflow("windows")
        workers = lambda: chance.choice((1, 2, 3))  # noqa: E731
        source = flow.source("S", fn.rate(None), time="at", workers=chance.choice((1, 1, 2)))
        first = source.map("A", marked(0), key=chance.choice((None, "k")), workers=workers())
        gaps, shifted = self.sessions[0], fn.sliding(self.size, self.every, offset=self.offset)
        first.window("W", Extents(gaps), gaps, key="k", workers=workers()).sink("sessions", fn.memory())
        first.window("O", Sum(0), shifted, key="k", workers=workers()).sink("shifted", fn.memory())
        first.window("C", Extents(), self.counts[0], key="k", workers=workers()).sink("counts", fn.memory())
        first = first.map("Q", lambda row: {**row, "t": row["at"], "at": row["at"] // 25 * 25 + 24}, workers=workers())
        best = first.top("T", self.best[0], "t", "k", fn.tumbling(25), rank="rank", end="end", workers=workers())
        best.sink("best", fn.memory())
        return flow.graph(workers=2)

    def whole(self) -> WindowPlay:
        """Play to the end."""
        chance, cluster = self.chance, self.cluster
        law = FrontierLaw(cluster)
        cluster.hold([WorkerId("S", index) for index in range(cluster.graph.operator("S").workers)])
        for share in sorted(chance.uniform(0, 0.9) for _ in range(chance.choice((0, 1, 2, 3)))):
            cluster.until(lambda share=share: cluster.supply.read >= share * cluster.supply.total)
            if cluster.state == "running":
                self._change()
        cluster.steps(chance.choice((0, 300)))
        cluster.often = min(cluster.often, 0.02)
        cluster.release()
        law.run_until(lambda: False, 40)
        assert (cluster.state, cluster.error) == ("finished", "")
        law.check_end()
        self.check()
        self.met["restarts"] += bool(cluster.recoveries)
        self.met["rescales"] += bool(cluster.adopted)
        return self

    def _change(self) -> None:
        """Another function, and in most cases other windows, of one or several operators."""
        chance, change = self.chance, dict[str, Any]()
        is_by_row = self.is_by_row and chance.random() < 0.6
        names = ("A", "C") if is_by_row else ("W", "O", "C", "T", "A")
        for name in chance.sample(names, chance.choice((1, 2, 3)) if len(names) > 2 else 1):
            version = len(self.cluster.outcomes) + 1
            if name == "W" and chance.random() < 0.3:
                self.is_mixed = True
                change[name] = fn.Update(Extents(), windows=chance.choice((fn.tumbling(9), fn.tumbling(6, offset=-2))))
            elif name == "W":
                self.sessions.append(self._session())
                change[name] = fn.Update(Extents(self.sessions[-1]), windows=self.sessions[-1])
            elif name == "C":
                self.counts.append(self._count())
                change[name] = fn.Update(Extents(), windows=self.counts[-1])
            elif name == "T":
                self.best.append(chance.choice((1, 2, 5)))
                change[name] = fn.top(self.best[-1], "t", rank="rank", end="end")
            else:
                change[name] = Sum(version) if name == "O" else marked(version)
        others = ("fries", "epoch") if self.is_by_row else SAFE
        self.cluster.request(change, "cut" if is_by_row else chance.choice(others))
        self.met["changes"] += 1
        self.met["changes by row"] += is_by_row

    def check(self) -> None:
        """All sinks have what plain Python makes of the rows."""
        self._check_sessions()
        self._check_shifted()
        self._check_counts()
        self._check_best()
        if self.cluster._plan.audit:
            verdict = judge(self.cluster.records())
            assert verdict.serializable or len(self.cluster.outcomes) > 1, verdict.cycle
            assert (verdict.lost, verdict.doubled, verdict.mixed) == ((), (), ()), verdict

    def _check_sessions(self) -> None:
        """Each row is in one session, and these are what the extents of their rows make."""
        found = self.cluster.rows("sessions")
        kept = [(row["k"], extent) for row in found for extent in extents_of(row)]
        assert sorted(n for _, (_, _, n) in kept) == list(range(100)), "a row is in no session, or in two"
        self.met["sessions and others"] += self.is_mixed
        for key in set() if self.is_mixed else {row["k"] for row in self.rows}:
            expected = connected(extent for one, extent in kept if one == key)
            results = sorted((row["end"], sorted(n for _, _, n in extents_of(row))) for row in found if row["k"] == key)
            assert results == expected, f"sessions of {key}: {results}, expected {expected}"
        self.met["sessions of several rows"] += any(len(extents_of(row)) > 2 for row in found)

    def _check_shifted(self) -> None:
        sums: dict[tuple[int, int], list[int]] = {}
        for row in self.rows:
            for end in ends_of(row["at"] - self.offset, self.size, self.every):
                sums.setdefault((row["k"], end + self.offset - 1), []).append(row["v"])
        expected = sorted((k, at, sum(of), len(of)) for (k, at), of in sums.items())
        found = sorted((row["k"], row["at"], row["sum"], row["count"]) for row in self.cluster.rows("shifted"))
        assert found == expected, f"shifted windows {found}, expected {expected}"

    def _check_counts(self) -> None:
        """Each window has a number of rows that was asked for, each once; what is left of a key filled none."""
        found, sizes = self.cluster.rows("counts"), {windows.rows for windows in self.counts}
        often: Counter[tuple[int, int]] = Counter()
        for row in found:
            numbers = [n for _, _, n in extents_of(row)]
            assert len(set(numbers)) == len(numbers) == row["end"]
            assert row["end"] in sizes
            often.update((row["k"], n) for n in numbers)
        most = max(-(-windows.rows // windows.every) for windows in self.counts)
        assert all(self.rows[n]["k"] == k and times <= most for (k, n), times in often.items())
        for key, total in Counter(row["k"] for row in self.rows).items():
            assert total - sum(one == key for one, _ in often) < max(sizes), f"rows of {key} are in no window"
        if len(self.counts) == 1 and self.counts[0].every == self.counts[0].rows:
            assert len(found) == sum(of // self.counts[0].rows for of in Counter(r["k"] for r in self.rows).values())
        self.met["windows by count"] += bool(found)

    def _check_best(self) -> None:
        """The best rows, as many as one of the functions had."""
        groups: dict[tuple[int, int], list[Row]] = {}
        for row in self.cluster.rows("best"):
            groups.setdefault((row["k"], row["end"]), []).append(row)
        assert groups.keys() == {(row["k"], row["at"] // 25 * 25 + 25) for row in self.rows}
        for (key, end), rows in groups.items():
            ranked = sorted(rows, key=lambda row: row["rank"])
            of = [row for row in self.rows if row["k"] == key and end - 25 <= row["at"] < end]
            expected = [row["v"] for row in sorted(of, key=lambda row: (-row["at"], row["k"], row["v"]))]
            assert [row["v"] for row in ranked] == expected[: len(ranked)]
            assert len(ranked) in {min(n, len(of)) for n in self.best}


def play_windows(seed: int) -> Counter[str]:
    """Play a seed to its end, with its laws; returns what it has met."""
    MetHosts.met.clear()
    play = WindowPlay(seed)
    try:
        return play.whole().met + MetHosts.met
    except (AssertionError, FriesError) as error:
        raise AssertionError(f"seed {seed}: {error}\n(replay: play_windows({seed}))") from error
