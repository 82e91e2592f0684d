"""Keyed state, its checkpoints and its recovery, by whichever version of fries_nb is imported.

A program that starts from its file, so that an older version can be measured by it; only what both versions have is
used. The embedded Spark of the process serves all its jobs.

    Src -> Pick -> Book -> Seen -> out      Book is keyed; Seen notes each row in a file, with both times

Pick, which a change replaces, gives a row its key: the keys in turn, or every hundredth of them. Keys are hashed into
bins, so a hundredth of the keys is in nearly all bins. Each key keeps random bytes, which no compression makes smaller.

>>> len(KeptBytes(1_000).initial_state()["kept"]), KeyOf(200, SHARE)({"value": 3}), KeyOf(200, 1)({"value": 203})
(1000, {'value': 3, 'key': 100}, {'value': 203, 'key': 3})
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import fries_nb as fn
from fries_nb.experiments.bench.ours import HOSTS, spark_session
from fries_nb.experiments.measuring import changed, pause, running, until

Row = dict[str, Any]
Notes = npt.NDArray[np.int64]
Times = npt.NDArray[np.float64]
STEADY = "steady"
RATE, FILLING_RATE = 2_000.0, 40_000.0
"""Rows per second, of which one in a hundred keys is touched; and those that touch every key once."""
SHARE = 100
SETTLED_S, SETTLED_MS, BETWEEN_S, PATIENCE_S = 1.0, 100.0, 5.0, 1_200.0
_RECENT, _DRAWN = 100_000, 1_000_000
_often = partial(until, patience_s=PATIENCE_S, look_s=0.01)
_COLUMNS = 4  # of a note: the number of a row, when it was due and seen, in nanoseconds since 1970, and the process


@dataclass(frozen=True)
class KeyOf:
    """The key of a row: one of those that are multiples of ``step``."""

    keys: int
    step: int

    def __call__(self, row: Row) -> Row:
        """The row with its key."""
        return {**row, "key": row["value"] * self.step % self.keys}


@dataclass(frozen=True)
class KeptBytes:
    """Counts the rows of a key, and keeps ``size`` bytes for it."""

    size: int

    def initial_state(self) -> Row:
        """No row yet."""
        return {"count": 0, "kept": random.randbytes(self.size)}

    def process(self, row: Row, state: Row) -> Row:
        """The row with its number in its key."""
        state["count"] += 1
        return {**row, "nth": state["count"]}


@dataclass
class SeenNotes:
    """Notes when a row comes, in a file of all workers."""

    file: str

    def open(self) -> None:
        """Open the file."""
        self._notes = os.open(self.file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def process(self, row: Row) -> Row:
        """The row."""
        note = row["value"], row["timestamp"], time.time_ns(), os.getpid()
        os.write(self._notes, np.array(note, np.int64).tobytes())
        return row


def state_flow(keys: int, size: int, file: str = "") -> fn.Dataflow:
    """The dataflow of the module, with so many keys of so many bytes; without a file as fast as it is processed."""
    flow = fn.Dataflow("states")
    source = fn.rate(FILLING_RATE if file else None)
    workers = 1 if file else None  # one, so that keys come in turn
    rows = flow.source("Src", source, workers=workers).map("Pick", KeyOf(keys, 1), workers=workers)
    rows = rows.map("Book", KeptBytes(size), key="key")
    (rows.map("Seen", SeenNotes(file)) if file else rows.filter("Seen", is_rare)).sink("out", fn.memory())
    return flow


def is_rare(row: Row) -> bool:
    """One row in a million."""
    return bool(row["value"] % 1_000_000 == 0)


def notes_of(file: str, last: int | None = None) -> Notes:
    """The notes in a file, in the order in which rows were seen: all, or about so many of the last ones."""
    whole = os.path.getsize(file) // (8 * _COLUMNS) if os.path.exists(file) else 0
    count = whole if last is None else min(last, whole)
    if not count:
        return np.empty((0, _COLUMNS), np.int64)
    return np.fromfile(file, np.int64, count * _COLUMNS, offset=(whole - count) * 8 * _COLUMNS).reshape(-1, _COLUMNS)


@dataclass(frozen=True)
class TimedSpan:
    """A span of a run, in seconds since 1970; of a checkpoint, the bytes of its new files, and all that hosts wrote."""

    kind: str
    began_s: float
    over_s: float
    bytes: int = 0
    written: int = 0

    def has(self, due_s: Times, seen_s: Times) -> npt.NDArray[np.bool_]:
        """Which rows belong to it: of a checkpoint all that were on their way meanwhile, of a steady one the others."""
        if self.kind == STEADY:
            return (due_s >= self.began_s) & (seen_s < self.over_s)
        return (seen_s >= self.began_s) & (due_s < self.over_s)


@dataclass
class Filled:
    """A run whose keys all have a state."""

    run: fn.Run
    keys: int
    notes: str
    place: str  # the checkpoint directory
    spans: list[TimedSpan] = field(default_factory=list)
    files: dict[str, tuple[int, int]] = field(default_factory=dict)

    def touch_all(self) -> None:
        """A row to every key, then to every hundredth at the rate, and wait until rows are not late."""
        self.pick(1)
        begun = self._picked() if self.spans else 0  # it is filled from the start on
        self.run.set_rate("Src", FILLING_RATE)
        until(self.run, lambda: self._picked() >= begun + self.keys, "every key", PATIENCE_S, look_s=0.1)
        self.run.set_rate("Src", RATE)
        self.pick(SHARE)
        self.settle()

    def pick(self, step: int) -> None:
        """From now on rows go to these keys."""
        changed(self.run, {"Pick": KeyOf(self.keys, step)}, "fries", rehearse=False)

    def settle(self) -> None:
        """Wait until rows are not late."""
        until(self.run, self._is_settled, "rows that are not late", PATIENCE_S, look_s=0.2)

    def _picked(self) -> int:
        return int(self.run.metrics().operators["Pick"].processed)

    def _is_settled(self) -> bool:
        found = notes_of(self.notes, _RECENT)
        found = found[found[:, 2] > time.time_ns() - SETTLED_S * 1e9]
        late = found[:, 2] - found[:, 1] > SETTLED_MS * 1e6
        return len(found) > 0 and float(late.mean()) < 0.05

    def steady(self, seconds: float = BETWEEN_S) -> None:
        """A span without a checkpoint."""
        began_s = time.time()
        pause(seconds)
        self.spans.append(TimedSpan(STEADY, began_s, time.time()))

    def checkpoint(self, kind: str) -> None:
        """A checkpoint, as a span of this kind."""
        wrote, before_s = self._wrote(), time.time()
        self.run.checkpoint(timeout=PATIENCE_S)
        over_s = time.time()
        files = sizes_below(Path(self.place))
        new = sum(size for name, (at, size) in files.items() if self.files.get(name) != (at, size))
        self.files = files
        self.spans.append(TimedSpan(kind, before_s, over_s, new, self._wrote() - wrote))

    def _wrote(self) -> int:
        """Bytes that the hosts have caused to be written to disk."""
        return sum(_number(f"/proc/{process}/io", "write_bytes") for process in self.run.host_processes.values())

    def figures(self) -> dict[str, Any]:
        """For each kind of span: latencies of its rows in milliseconds, durations, bytes."""
        notes, found = notes_of(self.notes), dict[str, Any]()
        due_s, seen_s = notes[:, 1] / 1e9, notes[:, 2] / 1e9
        for kind in dict.fromkeys(span.kind for span in self.spans):
            spans = [span for span in self.spans if span.kind == kind]
            each = [1000 * (seen_s - due_s)[span.has(due_s, seen_s)] for span in spans]
            found[kind] = {
                **_latencies(np.concatenate(each)),
                "p99_each": [_latencies(one)["p99_ms"] for one in each],
                "seconds": [span.over_s - span.began_s for span in spans],
                "bytes": [span.bytes for span in spans],
                "written": [span.written for span in spans],
            }
        return found


def _latencies(found: Times) -> dict[str, float]:
    if not found.size:
        return {"p50_ms": 0.0, "p99_ms": 0.0, "worst_ms": 0.0, "rows": 0}
    p50, p99 = np.percentile(found, [50, 99])
    return {"p50_ms": float(p50), "p99_ms": float(p99), "worst_ms": float(found.max()), "rows": int(found.size)}


def _number(file: str, name: str) -> int:
    lines = Path(file).read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))


def sizes_below(place: Path) -> dict[str, tuple[int, int]]:
    """Name to time of writing and bytes of each file of a checkpoint directory that holds states, or lists them."""
    found = dict[str, tuple[int, int]]()
    for directory, _, names in os.walk(place):
        for name in names:
            path = Path(directory, name)
            if path.relative_to(place).parts[0] in ("sinks", "staged"):
                continue
            try:
                stat = path.stat()
            except FileNotFoundError:
                continue  # of a checkpoint that was dropped meanwhile
            found[str(path)] = stat.st_mtime_ns, stat.st_size
    return found


@contextmanager
def filled(spark: Any, job: dict[str, Any], hosts: int = HOSTS) -> Iterator[Filled]:
    """A run of the flow, as the job says, with a state for every key."""
    options = job.get("options", {})
    with tempfile.TemporaryDirectory(prefix="fries-bench-", dir=job.get("dir")) as place:
        notes, checkpoints = f"{place}/notes", f"{place}/checkpoints"
        flow = state_flow(job["keys"], job["size"], notes)
        with running(flow, spark, hosts=hosts, workers=hosts, checkpoint=checkpoints, commit_interval_s=None,
                     chaining=True, **options) as run:  # fmt: skip
            found = Filled(run, job["keys"], notes, checkpoints)
            found.touch_all()
            yield found


def around(spark: Any, job: dict[str, Any]) -> dict[str, Any]:
    """Latency, bytes and durations of checkpoints with all keys touched, a hundredth of them, and keys in turn."""
    began_s = time.time()
    with filled(spark, job, job.get("hosts", HOSTS)) as found:
        filled_s = time.time() - began_s
        found.steady()
        found.checkpoint("all")
        for _ in range(job["rounds"]):
            found.steady()
            found.checkpoint("hundredth")
        found.pick(1)
        for _ in range(job["rounds"]):
            found.steady()
            found.checkpoint("in turn")
        for _ in range(job.get("alls", 2)):
            found.touch_all()
            found.steady()
            found.checkpoint("all")
        found.steady()
        held = int(found.run.state_sizes()["bytes"].sum())
        resident = [_number(f"/proc/{one}/status", "VmHWM") for one in found.run.host_processes.values()]
        return {**found.figures(), "state_bytes": held, "resident_kb": resident, "filled_s": filled_s}


def killed(spark: Any, job: dict[str, Any]) -> dict[str, Any]:
    """Kill a host again and again; see ``_recovered``."""
    found = list[dict[str, float]]()
    with filled(spark, job, job.get("hosts", HOSTS)) as held:
        for number in range(job["rounds"]):
            held.steady()
            held.checkpoint("before")  # rows behind it come again at their rate, before new ones
            found.append(_recovered(held, number % HOSTS))
    return {name: [one[name] for one in found] for name in found[0]}


def _recovered(held: Filled, host: int) -> dict[str, float]:
    """Seconds from a kill of a host to what follows, and bytes of the next checkpoint; late rows come faster."""
    run, before, old = held.run, len(held.run.recoveries), set(held.run.host_processes.values())
    os.kill(run.host_processes[host], signal.SIGKILL)
    killed_s = time.time()
    _often(run, lambda: len(run.recoveries) > before and run.recoveries[-1].seconds is not None, "the hosts")
    run.set_rate("Src", FILLING_RATE)
    recovered = run.recoveries[-1]
    back_s = recovered.at_s + (recovered.seconds or 0.0)
    seen = notes_of(held.notes)
    last = int(seen[seen[:, 2] <= back_s * 1e9, 0].max())

    def first_s(after: int) -> float:
        found = notes_of(held.notes, _RECENT)
        found = found[(found[:, 0] > after) & ~np.isin(found[:, 3], list(old))]
        return float(found[found[:, 2] > killed_s * 1e9, 2].min(initial=2**62)) / 1e9

    _often(run, lambda: first_s(last) < killed_s + PATIENCE_S, "a row that had not been seen")
    run.set_rate("Src", RATE)
    moments_s = {"noticed_s": recovered.at_s, "hello_s": back_s, "row_s": first_s(-1), "new_row_s": first_s(last)}
    held.checkpoint("after")
    moments_s["committed_s"] = time.time()
    held.settle()
    moments_s["settled_s"] = time.time()
    return {"bytes": held.spans[-1].bytes, **{name: at_s - killed_s for name, at_s in moments_s.items()}}


@dataclass
class ZipfKey:
    """The key of a row, drawn by Zipf's law (s = 1) from so many; the same in each run."""

    keys: int

    def open(self) -> None:
        """Draw a million keys, which come again in turn."""
        random_keys = np.random.default_rng(42)
        reached = np.cumsum(1 / np.arange(1, self.keys + 1))
        ranks = np.searchsorted(reached, random_keys.random(_DRAWN) * reached[-1])
        self._drawn = random_keys.permutation(self.keys)[np.minimum(ranks, self.keys - 1)].tolist()

    def process(self, row: Row) -> Row:
        """The row with its key."""
        return {**row, "key": self._drawn[row["value"] % _DRAWN]}


def flat_out(spark: Any, job: dict[str, Any]) -> dict[str, Any]:
    """Rows per second with keys by Zipf's law, as fast as they are processed, once all keys have a state."""
    flow, options = state_flow(job["keys"], job["size"]), job.get("options", {})
    with running(flow, spark, chaining=True, commit_interval_s=None, **options) as run:

        def booked(column: str = "processed") -> int:
            return int(getattr(run.metrics().operators["Book"], column))

        until(run, lambda: booked() >= job["keys"], "every key", PATIENCE_S)
        changed(run, {"Pick": ZipfKey(job["keys"])}, "fries", rehearse=False)
        pause(job["warm_s"])
        began_s, began = time.monotonic(), booked()
        pause(job["seconds"])
        rows_per_second = (booked() - began) / (time.monotonic() - began_s)
        resident = [_number(f"/proc/{one}/status", "VmHWM") for one in run.host_processes.values()]
        return {"rows_per_second": rows_per_second, "resident_kb": resident, "keys": booked("keys")}


Job = Callable[[Any, dict[str, Any]], dict[str, Any]]
JOBS: dict[str, Job] = {"around": around, "killed": killed, "flat out": flat_out}


def main() -> None:
    """Serves: for each line ``{"job", ...}`` on standard input, runs the job and prints its figures on a line."""
    with spark_session(HOSTS) as spark:
        for line in sys.stdin:
            asked = json.loads(line)
            print(json.dumps(JOBS[asked["job"]](spark, asked)), flush=True)


if __name__ == "__main__":
    main()
