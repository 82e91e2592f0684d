"""The latencies of sequences: running means of their elements, and the worst and the mean of all of them.

Each sample counts with its weight, the number of rows that it stands for, until the window has passed it. Samples of an
element that have become invalid, since the size of its buffer has changed, are forgotten at once. Sums are kept in
whole units (microseconds times rows), so that adding and removing samples for days leaves no rounding error.

>>> means = RunningMeans(size=2, window_ns=10)
>>> means.add(1, [0], [10.0], [3])
>>> means.add(5, [0, 1], [50.0, 7.0], [1, 1])
>>> means.values.tolist()
[20.0, 7.0]
>>> means.evict(now_ns=12)
>>> means.values.tolist()
[50.0, 7.0]
>>> means.forget([0], before_ns=6)
>>> means.values.tolist()
[nan, 7.0]

The worst and the mean latency of all sequences through layers of tasks and channels, without listing any sequence.

A layer of tasks is an array with a latency for each worker. Between two layers lies an array of channel latencies: one
for each worker if worker i sends to worker i only, else a matrix of senders and receivers. The worst sequence is found
by products of (max, +) algebra over the layers, in time that grows with the number of channels. NaN is an element
without a value; no sequence through it is judged.

Two workers that send to both of two others; the sequence of workers 1 and 0 is the worst:

>>> layers = SequenceLayers((np.array([1.0, 2.0]), np.array([5.0, 0.0])), (np.array([[1.0, 3.0], [4.0, 8.0]]),))
>>> worst_sequence(layers)
WorstSequence(latency_ms=11.0, positions=(1, 0))
>>> latency_through(layers).edges[0].tolist()
[[7.0, 4.0], [11.0, 10.0]]

All rows take the channel from worker 0 to worker 1, so that the mean is its sequence's:

>>> rows = SequenceLayers((np.ones(2), np.ones(2)), (np.array([[0.0, 9.0], [0.0, 0.0]]),))
>>> mean_latency(layers, rows, anchor=0)
MeanLatency(latency_ms=4.0, tasks=(1.0, 0.0), edges=(3.0,), rows=9.0)
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Positions = npt.NDArray[np.intp]

UNITS = 1_000.0
"""Units of a sum of milliseconds: microseconds."""


@dataclass(frozen=True, slots=True)
class _Entry:
    time_ns: int
    positions: Positions
    amounts: Floats


class WindowedSums:
    """The sum of amounts of each of ``size`` elements over a window."""

    def __init__(self, size: int, window_ns: int) -> None:
        self.values: Floats = np.zeros(size)
        # ``window_ns``: length of the window in nanoseconds
        self._window = window_ns
        self._entries: list[_Entry] = []
        self._valid_from: npt.NDArray[np.int64] = np.zeros(size, dtype=np.int64)

    def add(self, time_ns: int, positions: npt.ArrayLike, amounts: npt.ArrayLike) -> None:
        """Add amounts, except those of a time before which the element's amounts were forgotten."""
        entry = _Entry(time_ns, np.asarray(positions, dtype=np.intp), np.asarray(amounts, dtype=np.float64))
        self._entries.append(entry)
        self._apply(entry, 1.0)

    def forget(self, positions: npt.ArrayLike, before_ns: int) -> None:
        """Remove the amounts of these elements that are of an earlier time, and ignore those that arrive later."""
        chosen = np.zeros(self.values.size, dtype=np.bool_)
        chosen[np.asarray(positions, dtype=np.intp)] = True
        self._valid_from[chosen] = np.maximum(self._valid_from[chosen], before_ns)
        self.values[chosen] = 0.0
        for entry in self._entries:
            if entry.time_ns >= before_ns:
                again = chosen[entry.positions]
                self._apply(_Entry(entry.time_ns, entry.positions[again], entry.amounts[again]), 1.0)

    def evict(self, now_ns: int) -> None:
        """Remove the amounts that are not younger than a window."""
        kept = []
        for entry in self._entries:
            if entry.time_ns > now_ns - self._window:
                kept.append(entry)
            else:
                self._apply(entry, -1.0)
        self._entries = kept

    def _apply(self, entry: _Entry, sign: float) -> None:
        valid = entry.time_ns >= self._valid_from[entry.positions]
        np.add.at(self.values, entry.positions[valid], sign * entry.amounts[valid])


class RunningMeans:
    """The weighted mean of the samples of each of ``size`` elements over a window."""

    def __init__(self, size: int, window_ns: int) -> None:
        # ``window_ns``: length of the window in nanoseconds
        self._totals = WindowedSums(size, window_ns)
        self._weights = WindowedSums(size, window_ns)

    @property
    def values(self) -> Floats:
        """The mean of each element; NaN without a sample."""
        known = self._weights.values > 0
        means = np.full(known.size, np.nan)
        np.divide(self._totals.values, self._weights.values * UNITS, out=means, where=known)
        return means

    def mean(self) -> float:
        """The mean over all samples of all elements; 0 without a sample."""
        weights = float(self._weights.values.sum())
        return float(self._totals.values.sum()) / (weights * UNITS) if weights > 0 else 0.0

    @property
    def weights(self) -> Floats:
        """The sum of the weights of each element's samples."""
        return self._weights.values

    def add(self, time_ns: int, positions: npt.ArrayLike, values: npt.ArrayLike, weights: npt.ArrayLike) -> None:
        """Add samples, except those of a time before which the element's samples were forgotten."""
        weighing = np.asarray(weights, dtype=np.float64)
        self._totals.add(time_ns, positions, np.rint(np.asarray(values, dtype=np.float64) * UNITS * weighing))
        self._weights.add(time_ns, positions, weighing)

    def forget(self, positions: npt.ArrayLike, before_ns: int) -> None:
        """Remove the samples of these elements that are of an earlier time, and ignore those that arrive later."""
        self._totals.forget(positions, before_ns)
        self._weights.forget(positions, before_ns)

    def evict(self, now_ns: int) -> None:
        """Remove the samples that are not younger than a window."""
        self._totals.evict(now_ns)
        self._weights.evict(now_ns)


Flags = npt.NDArray[np.bool_]

STALLED_MS = 1e12
"""Latency of a channel from which no row is taken. It is finite, since sums with missing elements are not defined."""


@dataclass(frozen=True, slots=True)
class SequenceLayers:
    """A value for each element of all sequences."""

    tasks: tuple[Floats, ...]  # for each operator of the path, the values of its workers
    # for each edge of the path, the values of its channels; one-dimensional if it is one to one
    edges: tuple[Floats, ...]


@dataclass(frozen=True, slots=True)
class WorstSequence:
    """The sequence with the largest latency."""

    latency_ms: float  # its latency
    positions: tuple[int, ...]  # position of its worker in each layer


@dataclass(frozen=True, slots=True)
class MeanLatency:
    """The mean over all rows, each on its own sequence."""

    latency_ms: float  # the mean latency of a sequence; infinite if rows were sent on a stalled channel
    tasks: tuple[float, ...]  # mean latency of a task in each layer
    edges: tuple[float, ...]  # mean latency of a channel in each layer
    rows: float  # number of rows at the anchor


def worst_sequence(layers: SequenceLayers) -> WorstSequence | None:
    """The sequence with the largest latency; ``None`` if each has an element without a value."""
    # Of several, it is the first in lexical order from the end.
    known = _with_unreachable(layers)
    ahead = _forward(known)
    place = int(np.argmax(ahead[-1]))
    latency = float(ahead[-1][place])
    if latency == -np.inf:
        return None
    positions = [place]
    for best, edge in zip(reversed(ahead[:-1]), reversed(known.edges), strict=True):
        if edge.ndim == 2:
            place = int(np.argmax(best + edge[:, place]))
        positions.append(place)
    return WorstSequence(latency, tuple(reversed(positions)))


def latency_through(layers: SequenceLayers) -> SequenceLayers:
    """For each element the largest latency of a sequence through it; minus infinity if none can be judged."""
    known = _with_unreachable(layers)
    ahead, behind = _forward(known), _backward(known)
    edges = tuple(
        before + edge + after if edge.ndim == 1 else before[:, None] + edge + after[None, :]
        for before, edge, after in zip(ahead[:-1], known.edges, behind[1:], strict=True)
    )
    reached = (np.isfinite(first) & np.isfinite(last) for first, last in zip(ahead, behind, strict=True))
    # Each half includes the task itself, which is subtracted once; where one half is unreachable nothing is.
    tasks = tuple(
        np.where(both, first + last - np.where(both, task, 0.0), -np.inf)
        for first, last, task, both in zip(ahead, behind, known.tasks, reached, strict=True)
    )
    return SequenceLayers(tasks, edges)


def mean_latency(layers: SequenceLayers, rows: SequenceLayers, anchor: int) -> MeanLatency | None:
    """The mean latency of a row that passes these sequences; ``None`` if no sequence can be judged."""
    # A row takes each of the channels of a worker with the share of rows that this channel carries, both ways from the
    # anchor. Elements on no sequence that can be judged are left out. Where rows of all channels of a worker are
    # unknown or zero, they count alike.
    through = latency_through(layers)
    judged = np.isfinite(through.tasks[anchor])
    if not judged.any():
        return None
    present = _at_anchor(rows, anchor, judged)
    total = float(present.sum())
    shares: list[Floats] = [np.zeros(0)] * len(layers.tasks)
    channels: list[Floats] = [np.zeros(0)] * len(layers.edges)
    shares[anchor] = present / total if total else judged / judged.sum()
    for place in range(anchor, len(channels)):
        channels[place] = _distributed(shares[place], rows.edges[place], np.isfinite(through.edges[place]))
        shares[place + 1] = channels[place] if channels[place].ndim == 1 else channels[place].sum(axis=0)
    for place in range(anchor - 1, -1, -1):
        channels[place] = _distributed(shares[place + 1], rows.edges[place].T, np.isfinite(through.edges[place].T)).T
        shares[place] = channels[place] if channels[place].ndim == 1 else channels[place].sum(axis=1)
    tasks = tuple(_weighted(share, task) for share, task in zip(shares, layers.tasks, strict=True))
    edges = tuple(_weighted(share, edge) for share, edge in zip(channels, layers.edges, strict=True))
    return MeanLatency(sum(tasks) + sum(edges), tasks, edges, total)


def with_stalls(layers: SequenceLayers, queued: tuple[Flags, ...]) -> SequenceLayers:
    """The layers in which elements around a queue count as at least 0 if they have no value.

    Behind and in front of a stalled worker no row moves, so its neighbours have no samples either. What is known of
    such a sequence is a lower bound of its latency, and enough to find it violated.

    Returns the layers; the same if there is no queue.
    """
    if not any(edge.any() for edge in queued):
        return layers
    below: list[Flags] = [np.zeros(layers.tasks[0].size, dtype=np.bool_)]
    for edge in queued:
        below.append(below[-1] | edge if edge.ndim == 1 else np.logical_or.reduce(below[-1][:, None] | edge, axis=0))
    above: list[Flags] = [np.zeros(layers.tasks[-1].size, dtype=np.bool_)]
    for edge in reversed(queued):
        above.append(above[-1] | edge if edge.ndim == 1 else np.logical_or.reduce(above[-1][None, :] | edge, axis=1))
    above.reverse()
    tasks = tuple(_filled(task, first | last) for task, first, last in zip(layers.tasks, below, above, strict=True))
    edges = tuple(
        _filled(edge, first | last if edge.ndim == 1 else first[:, None] | last[None, :])
        for edge, first, last in zip(layers.edges, below[:-1], above[1:], strict=True)
    )
    return SequenceLayers(tasks, edges)


def without_edges(layers: SequenceLayers) -> SequenceLayers:
    """The layers in which channels with a value count as 0, so that a sequence's latency is that of its tasks."""
    return replace(layers, edges=tuple(np.where(np.isnan(edge), np.nan, 0.0) for edge in layers.edges))


def _with_unreachable(layers: SequenceLayers) -> SequenceLayers:
    tasks, edges = (
        tuple(np.where(np.isnan(array), -np.inf, array) for array in arrays) for arrays in (layers.tasks, layers.edges)
    )
    return SequenceLayers(tasks, edges)


def _forward(known: SequenceLayers) -> list[Floats]:
    """For each task the largest latency of a sequence's part up to and including it."""
    best = [known.tasks[0]]
    for edge, task in zip(known.edges, known.tasks[1:], strict=True):
        before = best[-1]
        best.append(task + (before + edge if edge.ndim == 1 else (before[:, None] + edge).max(axis=0)))
    return best


def _backward(known: SequenceLayers) -> list[Floats]:
    """For each task the largest latency of a sequence's part from it on."""
    best = [known.tasks[-1]]
    for edge, task in zip(reversed(known.edges), reversed(known.tasks[:-1]), strict=True):
        after = best[-1]
        best.append(task + (after + edge if edge.ndim == 1 else (edge + after[None, :]).max(axis=1)))
    return best[::-1]


def _distributed(present: Floats, rows: Floats, judged: Flags) -> Floats:
    """The share of rows on each channel, given that of each worker (the first axis) from which they are followed."""
    if rows.ndim == 1:
        return present
    counted = np.where(judged, rows, 0.0)
    totals = counted.sum(axis=1, keepdims=True)
    alike = judged / np.maximum(judged.sum(axis=1, keepdims=True), 1)
    shares: Floats = np.divide(counted, totals, out=alike, where=totals > 0)
    return present[:, None] * shares


def _at_anchor(rows: SequenceLayers, anchor: int, judged: Flags) -> Floats:
    """Rows at each worker of the anchor: those on its channels of the path if they are known, else at the task."""
    found = rows.tasks[anchor]
    sides = [(anchor, 1)] if anchor < len(rows.edges) else []
    sides += [(anchor - 1, 0)] if anchor else []
    for place, axis in reversed(sides):
        edge = rows.edges[place]
        there = edge if edge.ndim == 1 else edge.sum(axis=axis)
        found = there if there.any() else found
    return np.where(judged, found, 0.0)


def _weighted(shares: Floats, values: Floats) -> float:
    """The mean of values; infinite if rows were sent on a stalled channel, however few."""
    carries = shares > 0
    latencies = np.where(values >= STALLED_MS, np.inf, values)
    return float((shares[carries] * latencies[carries]).sum())


def _filled(values: Floats, near: Flags) -> Floats:
    return np.where(near & np.isnan(values), 0.0, values)
