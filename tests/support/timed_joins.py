"""Random joins of two streams in time, what they have to find by their definition, and runs of them.

Where the bounds are changed while rows flow, it depends on the order of events under which a row came. Then each pair
is checked by what all bounds of the run say of it, and rows without partner by the pairs that were found.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from progress_laws import FrontierLaw
from timed_draws import marked, running_cluster
from timed_rescales import SAFE, WatchedCluster, WatchedHosts, released, rescaled_cluster

import fries_nb as fn
from fries_nb.audit import judge
from fries_nb.dataflow.graph import Graph
from fries_nb.dataflow.join_bounds import Bounds, Latest, Within
from fries_nb.dataflow.windowing import Windowing
from fries_nb.protocol.messages import WorkerId

Row = dict[str, Any]
DEATH = "the driver was killed"
Found = tuple[int | None, int | None, int | None]
"""Key, ``v`` of the left row and ``w`` of the right one."""


class Both:
    """Makes a row of a pair; a version of it is as good as another."""

    def __init__(self, version: int) -> None:
        self.version = version

    def __call__(self, left: Row | None, right: Row | None) -> Row:
        """Key, numbers and times."""
        key = left["k"] if left else right["k"]
        both = {**dict.fromkeys(("v", "lat", "w", "rat")), **(left or {}), **(right or {}), "k": key}
        return both | {"version": self.version}


class Count:
    """Counts the rows of a window."""

    def process(self, row: Row, state: Row) -> None:
        """Count a row."""
        state["n"] = state.get("n", 0) + 1

    def close(self, key: Any, time: int, state: Row) -> Row:
        """The count."""
        return {"k": key, "end": time, "n": state["n"]}


def spans(bounds: Bounds, t: int, is_left: bool) -> Iterator[tuple[int, int]]:
    """The spans of a row, by the definition."""
    if isinstance(bounds, Within):
        back, ahead = (bounds.before, bounds.after) if is_left else (bounds.after, bounds.before)
        yield t - int(back), t + int(ahead)
    elif isinstance(bounds, Latest):
        old = 10**6 if bounds.tolerance is None else int(bounds.tolerance)
        yield (t - old, t) if is_left else (t, t + old)
    else:
        size, every = int(bounds.size), int(bounds.every)
        for start in range(t - size + 1, t + 1):
            if start % every == 0:
                yield start, start + size - 1


def newest(left: Row, rights: list[Row]) -> Row | None:
    """The newest row of the right side that is not later; of equal times the one with the greatest ``w``."""
    earlier = [one for one in rights if one["k"] == left["k"] is not None and one["rat"] <= left["lat"]]
    return max(earlier, key=lambda one: (one["rat"], one["w"]), default=None)


def joined(bounds: Bounds, how: str, lefts: list[Row], rights: list[Row]) -> Iterator[tuple[Found, int]]:
    """What a join finds, each with its time."""
    met_left, met_right = set[tuple[int, int]](), set[tuple[int, int]]()
    for left in lefts:
        near = (newest(left, rights),) if isinstance(bounds, Latest) else rights
        for right in near:
            if right is None or right["k"] != left["k"] or left["k"] is None:
                continue
            for first, last in spans(bounds, left["lat"], is_left=True):
                if first <= right["rat"] <= last:
                    met_left.add((left["v"], last))
                    met_right.add((right["w"], _end_for(bounds, right, last)))
                    yield (left["k"], left["v"], right["w"]), max(left["lat"], right["rat"])
    for kept, rows, met, at, number in (
        ("left", lefts, met_left, "lat", "v"), ("right", rights, met_right, "rat", "w")
    ):  # fmt: skip
        for row in rows if how in (kept, "full") else ():
            for _, last in spans(bounds, row[at], is_left=kept == "left"):
                if (row[number], last) not in met:
                    yield (row["k"], row.get("v"), row.get("w")), last


def _end_for(bounds: Bounds, right: Row, last: int) -> int:
    """The end of the right row's span in which it has met a left row, whose span ends at ``last``."""
    ends = [end for _, end in spans(bounds, right["rat"], is_left=False)]
    return ends[0] if len(ends) == 1 else last


@dataclass
class DrawnJoin:
    """A dataflow with a join, the rows of its sources, and the bounds that it has had."""

    graph: Graph
    rows: dict[str, list[Row]]
    bounds: list[Bounds]
    how: str
    functions: bool
    met: Counter[str] = field(default_factory=Counter)

    @property
    def expected(self) -> list[tuple[Found, int]]:
        """What the join has to find, with times, if its bounds have stayed the same."""
        return list(joined(self.bounds[0], self.how, self.rows["L"], self.rows["R"]))

    def change(self, chance: random.Random, version: int) -> dict[str, Any]:
        """A change of the join, of its function or its bounds or both, and perhaps of another operator."""
        function = Both(version) if self.functions else None
        new, first = self.bounds[-1], self.bounds[0]
        is_sliding = isinstance(first, Windowing) and first.size != first.every
        if not is_sliding and not (self.functions and chance.random() < 0.4):
            new = draw_bounds(chance, type(first), mixed=True)
            self.bounds.append(new)
        return {"J": fn.Update(function, windows=new)} | ({"M": dict} if chance.random() < 0.4 else {})


def draw_bounds(chance: random.Random, kind: type[Any] | None = None, mixed: bool = False) -> Bounds:
    """Bounds of a join; of this type, if one is given. Those of a change are no sliding windows."""
    kind = kind or chance.choice((Within, Within, Latest, Windowing))
    if kind is Within:
        return fn.within(chance.choice((0, 3, 20)), chance.choice((0, 0, 2, 9)))
    if kind is Latest:
        return fn.latest(chance.choice((None, 0, 4, 30)))
    choices = [fn.tumbling(1), fn.tumbling(7), fn.tumbling(30)]
    return chance.choice(choices if mixed else [*choices, fn.sliding(10, every=5), fn.sliding(9, every=2)])


def draw_rows(chance: random.Random, number: str, at: str, few: bool) -> list[Row]:
    """Rows of one side, in order of time or not; some have a null in place of the key."""
    spread, ordered, keys = chance.choice((10, 60, 200)), chance.random() < 0.5, chance.choice((2, 6))
    times = [chance.randrange(spread) for _ in range(chance.choice((0, 5) if few else (30, 60)))]
    times = sorted(times) if ordered else times
    nulls = chance.choice((0.0, 0.1))
    return [{"k": None if chance.random() < nulls else chance.randrange(keys), number: n, at: t}
            for n, t in enumerate(times)]  # fmt: skip


def draw_join(chance: random.Random) -> DrawnJoin:
    """Two sources, perhaps a map in front, the join, and a window and a map behind it."""
    flow, workers = fn.Dataflow("joined"), lambda: chance.choice((1, 2, 3))
    rows = {"L": draw_rows(chance, "v", "lat", chance.random() < 0.1),
            "R": draw_rows(chance, "w", "rat", chance.random() < 0.2)}  # fmt: skip
    ahead = chance.choice((None, None, 0, 10))
    left = flow.source("L", fn.rate(None), time="lat", workers=workers(), ahead=ahead)
    right = flow.source("R", fn.rate(None), time="rat", workers=workers(), ahead=ahead)
    if chance.random() < 0.5:
        left = left.map("A", dict, key=chance.choice((None, "v")), workers=workers())
    bounds = draw_bounds(chance)
    functions = chance.random() < 0.5
    how = chance.choice(("inner", "left") if isinstance(bounds, Latest) else ("inner", "left", "right", "full"))
    more = {"how": how, "function": Both(0) if functions else None, "workers": workers()}
    if isinstance(bounds, Within):
        both = left.join_within("J", right, on="k", before=bounds.before, after=bounds.after, **more)
    elif isinstance(bounds, Latest):
        both = left.join_latest("J", right, on="k", tolerance=bounds.tolerance, **more)
    else:
        both = left.join_window("J", right, on="k", windows=bounds, **more)
    both.map("M", dict, workers=workers()).sink("pairs", fn.memory(), workers=workers())
    both.window("W", Count(), fn.tumbling(7), key="k", workers=workers()).sink("counts", fn.memory())
    return DrawnJoin(flow.graph(workers=2), rows, [bounds], how, functions)


def check_join(drawn: DrawnJoin, rows: list[Row], counts: list[Row]) -> None:
    """What has left the join is what its definition says, and the window behind it has each row at its time."""
    found = Counter((row["k"], row.get("v"), row.get("w")) for row in rows)
    assert all(isinstance(value, int) for key in found for value in key if value is not None), "a value of another type"
    if len(drawn.bounds) > 1:
        _check_between(drawn, found)
        return
    expected = Counter(what for what, _ in drawn.expected)
    assert found == expected, f"too many: {found - expected}, missing: {expected - found}"
    windows = Counter((key, t // 7 * 7 + 7) for (key, *_), t in drawn.expected)
    told = {(row["k"], row["end"]): row["n"] for row in counts}
    assert told == windows, f"windows have {told}, expected {dict(windows)}"


def _check_between(drawn: DrawnJoin, found: Counter[Found]) -> None:
    each = [Counter(what for what, _ in joined(one, "inner", drawn.rows["L"], drawn.rows["R"])) for one in drawn.bounds]
    pairs = Counter({what: count for what, count in found.items() if None not in what[1:]})
    for pair in set(pairs).union(*each):
        allowed = {one[pair] for one in each}
        assert min(allowed) <= pairs[pair] <= max(allowed), f"{pair}: {pairs[pair]} times, expected {allowed}"
    for side, kept, place in (("L", "left", 1), ("R", "right", 2)):
        met = {what[place] for what in pairs}
        number = "v" if place == 1 else "w"
        alone = Counter(what[place] for what in found if what[3 - place] is None for _ in range(found[what]))
        keeps = drawn.how in (kept, "full")
        wanted = Counter(row[number] for row in drawn.rows[side] if keeps and row[number] not in met)
        assert alone == wanted, f"rows of {side} without partner: {alone}, expected {wanted}"


def play_join(seed: int) -> Counter[str]:
    """Play a seed to its end with changes, checkpoints and kills; returns what has been met."""
    chance = random.Random(f"join {seed}")
    drawn = draw_join(chance)
    cluster = running_cluster(drawn.graph, drawn.rows, seed, chance)
    law = FrontierLaw(cluster)
    for version in range(1, chance.choice((0, 1, 3)) + 1):
        read = chance.random()
        law.run_until(lambda read=read: cluster.supply.read >= read * cluster.supply.total)
        if cluster.state == "running":
            cluster.request(drawn.change(chance, version), chance.choice(SAFE))
    law.run_until(lambda: False)
    return _ended(seed, drawn, cluster, law)


def play_rolled_back(seed: int) -> Counter[str]:
    """Changes of the join's function, of its bounds or of both, some of which are rolled back one after the other."""
    chance = random.Random(f"rolled back join {seed}")
    drawn = draw_join(chance)
    cluster = running_cluster(drawn.graph, drawn.rows, seed, chance)
    cluster.hold([WorkerId(side, at) for side in "LR" for at in range(drawn.graph.operator(side).workers)])
    law, met = FrontierLaw(cluster), Counter[str]()
    held: list[tuple[int, Bounds]] = [(0, drawn.bounds[0])]  # what has run: the version of the function, and bounds
    for version in range(1, 6):
        _go_on(law, chance.randrange(150))
        if cluster.state != "running" or not cluster.hosts.started:
            continue
        if len(held) > 1 and chance.random() < 0.5 and DEATH not in cluster.recoveries:
            change, would = cluster.roll_back(), held[:-1]
        else:
            update, would = _draw_update(chance, drawn, held, version)
            change = cluster.request({"J": update}, chance.choice(SAFE))
        law.run_until(lambda change=change: change not in cluster.open)
        outcome = cluster.outcomes.get(change)
        decided = outcome.outcome == "done" if outcome else any(one.change == change for one in cluster.journal)
        met["rolled back"] += decided and len(would) < len(held)
        met["both at once"] += decided and len(would) > len(held) and would[-1][1] != held[-1][1]
        held = would if decided else held
        if decided and cluster.state == "running" and cluster.hosts.started:
            for instance in cluster.instances("J"):
                assert instance.function.windowing == held[-1][1], f"{instance.worker} does not have {held[-1]}"
                assert not drawn.functions or instance.function.function.version == held[-1][0]
    cluster.release()
    law.run_until(lambda: False)
    return _ended(seed, drawn, cluster, law) + met


def _go_on(law: FrontierLaw, steps: int) -> None:
    """Take steps, as far as held sources let anything happen."""
    for _ in range(steps):
        if law.cluster.state != "running" or not law.cluster.step():
            return
        law.check()


def _draw_update(
    chance: random.Random, drawn: DrawnJoin, held: list[tuple[int, Bounds]], version: int
) -> tuple[fn.Update, list[tuple[int, Bounds]]]:
    """An update of the join, and what has run when it is made."""
    was, bounds = held[-1]
    is_sliding = isinstance(bounds, Windowing) and bounds.size != bounds.every
    if drawn.functions and (is_sliding or chance.random() < 0.6):
        return fn.Update(Both(version)), [*held, (version, bounds)]
    new = bounds if is_sliding else draw_bounds(chance, type(bounds), mixed=True)
    if new != bounds:
        drawn.bounds.append(new)
    function = Both(version) if drawn.functions else None
    return fn.Update(function, windows=new), [*held, (version if drawn.functions else was, new)]


def play_cut(seed: int) -> Counter[str]:
    """Changes in front of a join and behind it that are decided row by row; the join itself stays what it is."""
    chance = random.Random(f"cut join {seed}")
    drawn = draw_join(chance)
    cluster = running_cluster(drawn.graph, drawn.rows, seed, chance, identities=True)
    cluster.hold([WorkerId(side, at) for side in "LR" for at in range(drawn.graph.operator(side).workers)])
    law, names = FrontierLaw(cluster), [name for name in ("A", "M") if name in drawn.graph]
    versions = dict[str, int]()
    for version in range(1, 4):
        _go_on(law, chance.randrange(150))
        if cluster.state == "running" and cluster.hosts.started:
            targets = chance.sample(names, chance.randint(1, len(names)))
            change = cluster.request({name: marked(version) for name in targets}, "cut")
            versions[change] = version
    law.run_until(lambda: not cluster.open or bool(cluster.orphans))
    cluster.release()
    law.run_until(lambda: False)
    return _ended(seed, drawn, cluster, law, by_row=True) + Counter(
        {"cuts": len(versions) > 0, "both": len({row.get("version") for row in cluster.rows("pairs")}) > 1}
    )


def play_rescaled_join(seed: int, of: type[Any] = WatchedCluster, every: int = 40) -> Counter[str]:
    """The same on hosts that join and leave, while bins of the join move."""
    chance = random.Random(f"rescaled join {seed}")
    drawn = draw_join(chance)
    cluster = rescaled_cluster(chance, drawn.graph, drawn.rows, seed, of)
    law, adopted = FrontierLaw(cluster), chance.choice((2, 5, 8))
    if chance.random() < 0.5:
        cluster.steps(chance.randrange(600))
        if cluster.state == "running":
            cluster.request(drawn.change(chance, 1), chance.choice(SAFE))
    released(cluster, chance, law, adopted, every)
    return _ended(seed, drawn, cluster, law) + WatchedHosts.met


def _ended(seed: int, drawn: DrawnJoin, cluster: Any, law: FrontierLaw, by_row: bool = False) -> Counter[str]:
    assert (cluster.state, cluster.error) == ("finished", ""), f"seed {seed}: {cluster.error} {cluster.details}"
    law.check_end()
    check_join(drawn, cluster.rows("pairs"), cluster.rows("counts"))
    for instance in cluster.instances("J"):
        latest, kept = isinstance(drawn.bounds[0], Latest), instance.state.live.values()
        assert all(not held.left.rows and len(held.right.rows) <= latest for held in kept), "open rows are left"
    if cluster._plan.audit and any(drawn.rows.values()):
        verdict = judge(cluster.records())
        assert verdict.serializable or (len(cluster.outcomes) > 1 and not by_row), verdict.cycle
        assert (verdict.lost, verdict.doubled, verdict.mixed) == ((), (), ()), verdict
        assert not (by_row and verdict.stale), verdict
    done = Counter(outcome.outcome for outcome in cluster.outcomes.values())
    return done + Counter({"mixed": len(drawn.bounds) > 1, drawn.how: 1, type(drawn.bounds[0]).__name__: 1})
