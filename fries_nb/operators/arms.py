"""What both versions of an operator have done in a canary: counts, and a sample of the rows that each has made.

The *old arm* is what the versions before the canary process, the *new arm* what its own does. Each target counts both
from the first step on; of what leaves a chain, the last target in it keeps samples.

The sample of an arm are the rows whose identities have the lowest hashes: of all that passed since the canary began,
each source tuple is as likely as any other to be among them. So the samples of several workers can be merged by their
hashes; and the hash is another one than that of cohorts.

>>> from fries_nb.dataflow.columns import TRANSACTION
>>> rows = pa.RecordBatch.from_pydict({TRANSACTION: range(10_000), DUE: [0] * 10_000, "n": range(10_000)})
>>> sample = Sample(most=100)
>>> for start in range(0, 10_000, 500):
...     sample.add(rows.slice(start, 500), np.full(500, 2.0))
>>> taken = sample.take()
>>> len(taken.hashes), sum(part.num_rows for part in taken.rows), max(taken.hashes) < taken.below
(100, 100, True)
>>> taken.rows[0].schema.names, taken.latencies_ms[0]
(['n'], 2.0)
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from itertools import groupby

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from fries_nb.dataflow.columns import DUE, HIDDEN
from fries_nb.protocol.partitioning import sample_order
from fries_nb.protocol.rollout import RolloutStep, are_new

SAMPLED = 1_000
"""Number of rows in the sample of an arm at a worker."""
SAMPLED_BYTES = 2 << 20
"""Bytes beyond which a sample goes on with half as many rows."""
TIMED = 16
"""One of so many rows is timed."""
CONSIDERED, CONSIDERED_BATCHES = 512, 64
"""Number of rows, or of batches, that are considered together."""
TIMES_KEPT = 256
"""Number of times that are kept; their median counts, since a thread that waits its turn adds much to a few."""
_ALL = 1 << 64

Hashes = npt.NDArray[np.uint64]
Latencies = npt.NDArray[np.float64]
SamplePart = tuple[Hashes, Latencies, pa.RecordBatch]
"""Rows with their hashes and latencies."""


@dataclass(frozen=True)
class Sampled:
    """The sample of one arm at one worker.

    Attributes:
        rows: the rows, without hidden columns.
        hashes: the hash of each.
        latencies_ms: from when each was due until it left its chain.
        below: above all of these hashes; no row that passed with a lower one is missing.
    """

    rows: tuple[pa.RecordBatch, ...] = ()
    hashes: tuple[int, ...] = ()
    latencies_ms: tuple[float, ...] = ()
    below: int = _ALL


class Sample:
    """The rows that have the lowest hashes so far.

    Args:
        most: number of rows.
    """

    def __init__(self, most: int = SAMPLED) -> None:
        self._most, self._below = most, _ALL
        self._rows = self._bytes = 0
        self._parts: list[SamplePart] = []

    def add(self, batch: pa.RecordBatch, latencies_ms: Latencies) -> None:
        """Consider rows that have left the chain."""
        hashes = sample_order(batch)
        chosen = np.flatnonzero(hashes < np.uint64(self._below)) if self._below < _ALL else np.arange(len(hashes))
        if not len(chosen):
            return
        rows = batch.take(pa.array(chosen))  # a copy: slices would keep the batches that they are of
        self._parts.append((hashes[chosen], latencies_ms[chosen], rows))
        self._rows, self._bytes = self._rows + len(chosen), self._bytes + rows.nbytes
        while self._bytes > SAMPLED_BYTES and self._most > 1:
            self._most //= 2
            self._cut()
        if self._rows > 2 * self._most:
            self._cut()

    def _cut(self) -> None:
        """Keep so many of the lowest; what derives from one source tuple is kept, or goes, together."""
        hashes = np.concatenate([found for found, *_ in self._parts]) if self._parts else np.empty(0, np.uint64)
        if len(hashes) <= self._most:
            return
        self._below = int(np.partition(hashes, self._most)[self._most])
        kept = [(found < np.uint64(self._below), found, latencies, rows) for found, latencies, rows in self._parts]
        self._parts = [(found[low], latencies[low], rows.filter(pa.array(low)))
                       for low, found, latencies, rows in kept if low.any()]  # fmt: skip
        self._rows = sum(len(found) for found, *_ in self._parts)
        self._bytes = sum(rows.nbytes for *_, rows in self._parts)

    def take(self) -> Sampled:
        """What it has, which stays."""
        self._cut()
        hashes = [hashed for found, *_ in self._parts for hashed in found.tolist()]
        latencies = [ms for _, found, _ in self._parts for ms in found.tolist()]
        rows = [part.drop_columns([name for name in HIDDEN if name in part.schema.names]) for *_, part in self._parts]
        return Sampled(tuple(rows), tuple(hashes), tuple(latencies), self._below)


@dataclass(slots=True)
class Arm:
    """What one version, or all before it, have done at a target's worker.

    Attributes:
        taken: number of rows that came to it.
        failed: number of them that became dead letters.
        timed_ns: nanoseconds that the last ones which were timed have taken, each until it had left the chain.
        made: a sample of the rows that left the chain.
    """

    taken: int = 0
    failed: int = 0
    timed_ns: deque[int] = field(default_factory=lambda: deque(maxlen=TIMES_KEPT))
    made: Sample = field(default_factory=Sample)


class Arms:
    """Both arms of a canary at a target's worker.

    Attributes:
        change: the canary.
        old, new: the arms.
    """

    def __init__(self, change: str) -> None:
        self.change = change
        self.old, self.new = Arm(), Arm()
        self._steps: tuple[RolloutStep, ...] = ()
        self._made: list[tuple[pa.RecordBatch, int]] = []  # not considered yet, with the time at which each has left
        self._rows = self._bytes = 0

    def each(self, earlier: int) -> list[Arm]:
        """The arm of each version, of so many earlier ones and the canary's."""
        return [*([self.old] * earlier), self.new]

    def failed(self, identity: str) -> None:
        """The version that a change had installed has failed on a row."""
        (self.new if identity == self.change else self.old).failed += 1

    def made(self, batch: pa.RecordBatch, steps: tuple[RolloutStep, ...], now_ns: int) -> None:
        """Consider rows that leave the chain now, for a canary with these steps, many at a time: each batch costs."""
        if steps is not self._steps:
            self.consider()
            self._steps = steps
        self._made.append((batch, now_ns))
        self._rows, self._bytes = self._rows + batch.num_rows, self._bytes + batch.nbytes
        is_much = self._rows >= CONSIDERED or self._bytes >= SAMPLED_BYTES
        if is_much or len(self._made) >= CONSIDERED_BATCHES:
            self.consider()

    def consider(self) -> None:
        """Consider the rows that have left the chain, for the samples."""
        for _, some in groupby(self._made, key=lambda one: one[0].schema):
            batches, times = zip(*some, strict=True)
            self._divide(pa.Table.from_batches(batches).combine_chunks().to_batches()[0],
                         np.repeat(times, [batch.num_rows for batch in batches]))  # fmt: skip
        self._made, self._rows, self._bytes = [], 0, 0

    def _divide(self, batch: pa.RecordBatch, left_ns: npt.NDArray[np.int64]) -> None:
        is_new = are_new(self._steps, batch)
        latencies_ms = (left_ns - batch.column(DUE).to_numpy()) / 1e6
        for arm, mine in ((self.old, ~is_new), (self.new, is_new)):
            if mine.any():
                arm.made.add(batch.filter(pa.array(mine)), latencies_ms[mine])
