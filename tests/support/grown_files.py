"""Seeded runs of sources whose columns grow: files that come behind those from which the run has learned its columns.

Files are read by the readers of a run on Spark, each split on its own, so that several splits learn a column in
another order, or in another type of its family.
"""

from __future__ import annotations

import random
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from file_setting import write_rows
from timed_draws import SCHEDULERS, running_cluster

import fries_nb as fn
from fries_nb.audit import judge
from fries_nb.connectors.files import FilesSource
from fries_nb.connectors.source import Split
from fries_nb.dataflow.columns import HIDDEN
from fries_nb.simulation.cluster import Cluster
from fries_nb.simulation.readers import CountedSource

Row = dict[str, Any]
SAFE = tuple(scheduler for scheduler in SCHEDULERS if scheduler != "naive")
GROWN = ("tax", "fee", "note", "of")
"""Columns that come."""


class GrownFiles(FilesSource, CountedSource):
    """A directory of files, of which only the first was there when the run began."""

    def __init__(self, place: Path, format: str, files: Sequence[Sequence[Row]]) -> None:
        place.mkdir()
        super().__init__("S", str(place), format, until="_END", quiet_s=0)
        self._count = sum(map(len, files))
        write_rows(place / f"00.{format}", files[0])
        [first] = FilesSource("S", str(place), format).splits(1)
        self._known = first.content[1]
        for number, rows in enumerate(files[1:], 1):
            write_rows(place / f"{number:02}.{format}", rows)
        (place / "_END").touch()

    def __len__(self) -> int:
        return self._count

    def splits(self, count: int) -> list[Split]:
        """Those of the plan, whatever has come since; few, so that one has several files."""
        count = min(count, 3)
        return [Split(number, (count, self._known)) for number in range(count)]


def draw_files(chance: random.Random, format: str) -> list[list[Row]]:
    """Files that gain columns, and lose some again; numbers may be integers in some files, and floats in others."""
    mixes = format == "json" and chance.random() < 0.5
    values = {
        "tax": lambda n: n if mixes and chance.random() < 0.5 else n / 2, "fee": lambda n: n * 3,
        "note": lambda n: f"note {n}", "of": lambda n: {"a": n},
    }  # fmt: skip
    files, grown, v = list[list[Row]](), list[str](), 0
    for number in range(chance.choice((4, 8, 16))):
        grown += [name for name in GROWN if number and name not in grown and chance.random() < 0.3]
        names = chance.sample(grown, chance.randint(0, len(grown))) if chance.random() < 0.3 else list(grown)
        chance.shuffle(names)
        rows = [{"v": v + n, "k": (v + n) % 5} for n in range(chance.choice((1, 3, 8)))]
        for row in rows:
            row |= {name: values[name](row["v"]) for name in names}
        if mixes and "tax" in names and chance.random() < 0.5:
            rows = [row | {"tax": row["v"]} for row in rows]
        v += len(rows)
        files.append(rows)
    return files


class Count:
    """Numbers the rows of a key; a version of it is as good as another."""

    def __init__(self, version: int) -> None:
        self.version = version

    def process(self, row: Row, state: Row) -> Row:
        """The row with its number, and the sum of what has come of a column."""
        state["seen"] = state.get("seen", 0) + 1
        return {**row, "seen": state["seen"], "counted_by": self.version}


def doubled(version: int) -> Any:
    """Twice a column, where it is; of whole batches. A version of it is as good as another."""

    @fn.batched
    def call(rows: pa.RecordBatch) -> pa.RecordBatch:
        if "tax" not in rows.schema.names:
            return rows
        return rows.append_column("twice", pc.multiply(rows["tax"].cast(pa.float64()), 2.0))

    return call


class Passed:
    """All that a row has; a version of it is as good as another."""

    def __init__(self, version: int) -> None:
        self.version = version

    def __call__(self, row: Row) -> Row:
        """The row, and what is made of a column."""
        return {**row, "half": None if row.get("fee") is None else row["fee"] / 2}


KINDS = {"A": Passed, "B": doubled, "C": Count}


def draw_flow(chance: random.Random, source: Any) -> fn.Dataflow:
    """The source, and functions of rows, of batches and of keys in some order, with a sink."""
    flow, workers = fn.Dataflow("grown"), lambda: chance.choice((1, 2, 3))
    stream = flow.source("S", source, workers=workers())
    for name in chance.sample(sorted(KINDS), 3):
        key = {"C": "k", "A": chance.choice((None, "k"))}.get(name)
        stream = stream.map(name, KINDS[name](0), key=key, workers=workers())
    stream.sink("out", fn.memory(), workers=workers())
    return flow


def expected(files: Sequence[Sequence[Row]]) -> list[Row]:
    """What the sink has by the definition, without numbers of rows."""
    rows = [dict(row) for file in files for row in file]
    for row in rows:
        if row.get("tax") is not None:
            row["twice"] = 2 * row["tax"]
        if row.get("fee") is not None:
            row["half"] = row["fee"] / 2
    return sorted(rows, key=lambda row: row["v"])


def check_grown(files: Sequence[Sequence[Row]], rows: Sequence[Row]) -> None:
    """Each row is at the sink once, with all that it had; what it had not is missing; keys are counted once."""
    present = [{name: value for name, value in row.items() if value is not None and name not in HIDDEN} for row in rows]
    found = sorted(present, key=lambda row: row["v"])
    numbers = Counter((row["k"], row.pop("seen")) for row in found if row.pop("counted_by") >= 0)
    wanted = expected(files)
    differ = [pair for pair in zip(found, wanted, strict=False) if pair[0] != pair[1]]
    assert not differ, f"found and expected: {differ[:3]}"
    assert len(found) == len(wanted)
    assert numbers == Counter((key, n + 1) for key in range(5) for n in range(sum(row["k"] == key for row in found)))


def play_grown(seed: int, made: type[Cluster] = Cluster) -> Counter[str]:
    """Play a seed to its end with changes, checkpoints and kills; returns what has been met."""
    chance = random.Random(f"grown {seed}")
    format = chance.choice(("json", "json", "parquet", "csv"))
    files = draw_files(chance, format)
    if format == "csv":
        files = [[{name: value for name, value in row.items() if name != "of"} for row in file] for file in files]
    with tempfile.TemporaryDirectory() as place:
        source = GrownFiles(Path(place) / "in", format, files)
        graph = draw_flow(chance, fn.files(place, format)).graph(workers=2)
        cluster = running_cluster(graph, {"S": source}, seed, chance, made)
        for version in range(1, chance.choice((0, 1, 3)) + 1):
            read = chance.random() * len(source)
            cluster.until(lambda read=read: cluster.state != "running" or cluster.supply.read >= read)
            if cluster.state == "running":
                names = chance.sample(sorted(KINDS), chance.choice((1, 1, 2)))
                cluster.request({name: KINDS[name](version) for name in names}, chance.choice(SAFE))
        cluster.run()
        assert (cluster.state, cluster.error) == ("finished", ""), f"seed {seed}: {cluster.error} {cluster.details}"
        check_grown(files, cluster.rows("out"))
        if cluster._plan.audit:
            verdict = judge(cluster.records())
            assert verdict.serializable or len(cluster.outcomes) > 1, verdict.cycle
        done = Counter(outcome.outcome for outcome in cluster.outcomes.values())
        return done + Counter({"recovered": len(cluster.recoveries), format: 1})


# ---- joins


def draw_side(chance: random.Random, number: str, at: str, grown: Sequence[str]) -> list[list[Row]]:
    """Files of one side of a join, in order of time, that gain these columns."""
    files, has, n, t = list[list[Row]](), list[str](), 0, 0
    for place in range(chance.choice((2, 4, 8))):
        has += [name for name in grown if place and name not in has and chance.random() < 0.5]
        rows = list[Row]()
        for _ in range(chance.choice((1, 3, 6))):
            t += chance.choice((0, 1, 4))
            rows.append({"k": chance.randrange(3), number: n, at: t} | {name: f"{name} {number}{n}" for name in has})
            n += 1
        files.append(rows)
    return files


def pairs(lefts: Sequence[Row], rights: Sequence[Row], before: int, after: int, how: str) -> list[Row]:
    """What the join finds, with the columns of both; ``note`` of both sides has suffixes if both have it."""
    both = all(any("note" in row for row in side) for side in (lefts, rights))
    met, found = set[int](), list[Row]()

    def named(row: Row, suffix: str) -> Row:
        return {name + suffix if both and name == "note" else name: value for name, value in row.items()}

    for left in lefts:
        for right in rights:
            if left["k"] == right["k"] and left["lat"] - before <= right["rat"] <= left["lat"] + after:
                met.add(left["v"])
                found.append({**named(right, "_y"), **named(left, "_x")})
        if how == "left" and left["v"] not in met:
            found.append(named(left, "_x"))
    return found


def in_order(rows: Sequence[Row]) -> list[tuple[Any, ...]]:
    """The rows without what is missing, sorted."""
    present = [[(name, value) for name, value in row.items() if name not in HIDDEN] for row in rows]
    return sorted(tuple(sorted(one for one in row if one[1] is not None)) for row in present)


def play_grown_join(seed: int, made: type[Cluster] = Cluster) -> Counter[str]:
    """Play a seed to its end: pairs are those of the definition, or a name that would change is refused."""
    chance = random.Random(f"grown join {seed}")
    format, clashes = chance.choice(("json", "parquet")), chance.random() < 0.3
    columns = {"L": ["tax", "more"] + ["note"] * clashes, "R": ["fee"] + ["note"] * clashes}
    files = {"L": draw_side(chance, "v", "lat", columns["L"]), "R": draw_side(chance, "w", "rat", columns["R"])}
    before, after, how = chance.choice((0, 3, 10)), chance.choice((0, 2)), chance.choice(("inner", "left"))
    with tempfile.TemporaryDirectory() as place:
        sources = {side: GrownFiles(Path(place) / side, format, files[side]) for side in files}
        flow, workers = fn.Dataflow("grown"), lambda: chance.choice((1, 2, 3))
        left, right = (
            flow.source(side, fn.files(place, format), time=at, late=1_000, workers=workers())
            for side, at in (("L", "lat"), ("R", "rat"))
        )
        if chance.random() < 0.5:
            left = left.map("A", dict, workers=workers())
        both = left.join_within(
            "J", right, on="k", before=before, after=after, how=how, late=fn.memory(), workers=workers()
        )
        both.map("M", dict, workers=workers()).sink("out", fn.memory(), workers=workers())
        cluster = running_cluster(flow.graph(workers=2), sources, seed, chance, made)
        cluster.run()
    lefts, rights = ([row for rows in files[side] for row in rows] for side in "LR")
    if cluster.state == "failed":
        assert clashes, f"seed {seed}: {cluster.error} {cluster.details}"
        assert "'note'" in cluster.error, f"seed {seed}: {cluster.error}"
        names = {name for row in cluster.rows("out") for name, value in row.items() if value is not None}
        assert "note" not in names or names.isdisjoint(("note_x", "note_y")), f"seed {seed}: both {names}"
        return Counter(refused=1)
    assert (cluster.state, cluster.error) == ("finished", ""), f"seed {seed}: {cluster.error} {cluster.details}"
    found, wanted = in_order(cluster.rows("out")), in_order(pairs(lefts, rights, before, after, how))
    assert found == wanted, f"seed {seed}: {set(found) - set(wanted)} in place of {set(wanted) - set(found)}"
    return Counter({"recovered": len(cluster.recoveries), how: 1, "clash": clashes, "pairs": len(wanted)})
