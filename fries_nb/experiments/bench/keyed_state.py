"""Much keyed state: its checkpoints, and how rows get on if a quarter of it fits into memory.

``checkpoint_state``: what rows feel of checkpoints, how much these write, and how soon a killed host is back. Keys of
1 KB get 2,000 rows a second; 200,000 of them at scale 1, which is 200 MB, and 1 GB at scale 5. All states are there
before anything is measured. Then checkpoints are taken with five seconds between them, after rows to

    all          every key, before the rate is resumed
    hundredth    every hundredth key, which is in nearly all bins, since keys are hashed
    in turn      one key after another

Latencies around a checkpoint are of all rows that were on their way between its request and its completion, and steady
ones of the others. Bytes are those of the files that are new in the checkpoint directory.

Hosts are killed just after a checkpoint. It is measured how long after that the first row comes out of the new hosts,
beyond the time that it takes with an empty state, which is Spark's; and when the first of them is committed.

All of it is compared with the last version that wrote the whole state at each checkpoint.

``beyond_memory``: as many keys, all of which have a state. Then rows have keys by Zipf's law (s = 1), as fast as they
are processed; so most of them find their state in memory, and many do not. It is compared with a run that has all
states there. Each side has hosts of its own, whose resident memory is told.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np

from fries_nb.experiments.bench.apart import state_jobs
from fries_nb.experiments.bench.ours import CREDIT_BYTES, HOSTS
from fries_nb.experiments.bench.pairs import BenchReport, Side, Target, figure, pairs

BEFORE = "7594aba8"
"""The last version in which each checkpoint writes all of the state."""
RATE = 2_000.0
"""Rows per second; ``rivals/state_job.py`` has it too."""
KEYS, SIZE, FEWEST = 200_000, 1_000, 1_024
SHARE = 4
"""Of so many bytes of states one may be in memory."""
WARM_S, SECONDS = 20.0, 15.0
ROUNDS = 3
"""Checkpoints of each kind in a run, and kills."""
ALL, HUNDREDTH, IN_TURN = KINDS = ("all", "hundredth", "in turn")

Answer = Callable[[Mapping[str, Any]], dict[str, Any]]


def checkpoint_state(scale: float, runs: int) -> BenchReport:
    """What checkpoints of a large state cost, against the version before; ``scale`` multiplies the number of keys."""
    keys = max(FEWEST, int(KEYS * scale))
    with state_jobs("") as now, state_jobs(BEFORE) as before:
        ours, theirs = Checkpointed(now, keys), Checkpointed(before, keys)
        sides = Side("now", ours.times_steady), Side(f"version {BEFORE}", theirs.times_steady)
        felt = pairs(*sides, runs, unit="times the steady p99, around checkpoints")
        back, back_before = (_back(answer, keys) for answer in (now, before))
    targets = (
        Target("p99 around checkpoints, of the steady one", felt.a_median, 2.0, False, "times"),
        Target("bytes for a hundredth of the keys, of all", ours.share_of_bytes, 0.05, False, "times"),
        Target("kill of a host to the first row, beyond that with an empty state", back.beyond_s, 2.0, False, "s"),
    )
    facts = {"keys": keys, "bytes a key": SIZE, "rows/s": RATE, "checkpoints of a kind, and kills": ROUNDS}
    for name, measured, recovered in (("now", ours, back), (f"version {BEFORE}", theirs, back_before)):
        figures = {**measured.facts(), **recovered.facts()}
        facts |= {f"{what}, {name}": value for what, value in figures.items()}
    return BenchReport("checkpoint-state", scale, (felt,), targets, facts, CREDIT_BYTES)


class Checkpointed:
    """Runs of one side, with the figures of all of them."""

    def __init__(self, answer: Answer, keys: int) -> None:
        self._answer = answer
        self._keys = keys
        self.runs: list[dict[str, Any]] = []

    def times_steady(self) -> float:
        """One more run; its p99 around checkpoints of all kinds, at most, as a multiple of the steady one."""
        job = {"job": "around", "keys": self._keys, "size": SIZE, "rounds": ROUNDS, "alls": ROUNDS - 1}
        found = self._answer(job)
        self.runs.append(found)
        return float(max(found[kind]["p99_ms"] for kind in KINDS) / found["steady"]["p99_ms"])

    @property
    def share_of_bytes(self) -> float:
        """Bytes of a checkpoint with a hundredth of the keys touched, of those with all keys touched."""
        return self._middle(HUNDREDTH, "bytes") / self._middle(ALL, "bytes")

    def _middle(self, kind: str, figure: str) -> float:
        """The median over all checkpoints, or runs."""
        found = [run[kind][figure] for run in self.runs]
        return float(np.median(np.array(found)))

    def facts(self) -> dict[str, Any]:
        """The medians of all figures, in the units that they name."""
        found = dict[str, Any]()
        for kind in ("steady", *KINDS):
            latencies = (self._middle(kind, name) for name in ("p50_ms", "p99_ms", "worst_ms"))
            found[f"{kind}: p50, p99, worst, ms"] = ", ".join(figure(latency) for latency in latencies)
        for kind in KINDS:
            found[f"{kind}: seconds of a checkpoint"] = self._middle(kind, "seconds")
            found[f"{kind}: MB of new files"] = self._middle(kind, "bytes") / 1e6
        found["state, MB"] = median(run["state_bytes"] for run in self.runs) / 1e6
        found["the largest host, MB"] = max(max(run["resident_kb"]) for run in self.runs) / 1e3
        return found


@dataclass(frozen=True)
class Recoveries:
    """What a killed host costs, with all keys and with an empty state; see ``rivals/state_job.py``."""

    full: Mapping[str, list[float]]
    empty: Mapping[str, list[float]]

    @property
    def beyond_s(self) -> float:
        """Seconds from the kill to the first row, beyond those with an empty state."""
        return median(self.full["row_s"]) - median(self.empty["row_s"])

    def facts(self) -> dict[str, Any]:
        """The medians of all figures, in seconds."""
        words = {
            "noticed_s": "noticed", "hello_s": "the last host's hello", "row_s": "the first row",
            "new_row_s": "the first row that had not been seen", "committed_s": "a commit",
            "settled_s": "rows that are not late",
        }  # fmt: skip
        sides = (("", self.full), (" with an empty state", self.empty))
        return {f"kill to {words[name]}{which}, s": median(found[name]) for which, found in sides for name in words}


def _back(answer: Answer, keys: int) -> Recoveries:
    """Kills with this number of keys, and with an empty state."""
    sides = ({"keys": keys, "size": SIZE}, {"keys": FEWEST, "size": 0})
    return Recoveries(*(answer({"job": "killed", "rounds": ROUNDS, **side}) for side in sides))


def beyond_memory(scale: float, runs: int) -> BenchReport:
    """Rows per second with a quarter of the states in memory, against all; ``scale`` multiplies the number of keys."""
    keys = max(FEWEST, int(KEYS * scale))
    limit = keys * SIZE // SHARE // HOSTS
    with state_jobs("") as few, state_jobs("") as all_:
        ours, theirs = FlatOut(few, keys, {"state_bytes": limit}), FlatOut(all_, keys, {})
        sides = Side("a quarter in memory", ours.rows_per_second), Side("all in memory", theirs.rows_per_second)
        measured = pairs(*sides, runs, unit="rows/s")
    facts: dict[str, Any] = {"keys": keys, "bytes a key": SIZE, "state_bytes of a host": limit}
    for side, measurement in zip(sides, (ours, theirs), strict=True):
        facts[f"the largest host, MB, {side.name}"] = measurement.largest_mb
    target = Target("rows/s, of those with all states in memory", measured.ratio_median, 0.4, True, "times")
    return BenchReport("beyond-memory", scale, (measured,), (target,), facts, CREDIT_BYTES)


class FlatOut:
    """Runs of one side."""

    def __init__(self, answer: Answer, keys: int, options: Mapping[str, Any]) -> None:
        self._answer = answer
        self._job = {"job": "flat out", "keys": keys, "size": SIZE, "warm_s": WARM_S, "seconds": SECONDS}
        self._job["options"] = dict(options)
        self.largest_mb = 0.0

    def rows_per_second(self) -> float:
        """One more run."""
        found = self._answer(self._job)
        self.largest_mb = max(self.largest_mb, max(found["resident_kb"]) / 1e3)
        return float(found["rows_per_second"])
