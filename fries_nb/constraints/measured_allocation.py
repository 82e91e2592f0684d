"""All that is measured of an allocation: which measurement belongs to which task or channel, and the chains.

>>> from fries_nb.dataflow.constraints import constraint_of
>>> from fries_nb.dataflow.graph import Edge, Graph, Operator, Partitioning
>>> from fries_nb.protocol.messages import ChannelMeasured
>>> from fries_nb.planning.constraint_setup import constraint_setup
>>> graph = Graph("pair", (Operator("S"), Operator("A", workers=2), Operator("B", workers=2)),
...               (Edge("S", "A"), Edge("A", "B", Partitioning.HASH, ("k",))))
>>> topology = Topology.dealt(graph, hosts=2)
>>> setup = constraint_setup(topology, [constraint_of(graph, ["A", "B"], latency_ms=300)])
>>> measured = MeasuredAllocation(topology, setup[1][0], interval_ns=1_000_000_000)
>>> channel = topology.channel(WorkerId("A", 1), WorkerId("B", 0))
>>> measured.receive(Measurements(5, (ChannelMeasured(channel, 12.0, 1),)))
>>> measured.latencies(now_ns=5).edges[0].tolist()
[[12.0, nan]]

What is measured of the tasks of one operator, and of the channels of one edge, of an allocation.

Arrays have an entry for each task or channel. When the size of a channel's buffer changes, samples of the earlier size
no longer tell its latency, and are forgotten: those of the buffer up to the change, those of the channel up to the end
of the first whole interval after it. So the next look at a buffer comes after an interval, and not after a window.

>>> from fries_nb.protocol.messages import ChannelId, WorkerId
>>> channel = ChannelId(WorkerId("A", 0), WorkerId("B", 0))
>>> layer = ChannelLayer((1,), window_ns=1_000, interval_ns=100, crossing=np.zeros(1, dtype=np.bool_))
>>> layer.add_latencies(100, [0], [ChannelMeasured(channel, 300.0, 1)], clock_error_ms=0.0)
>>> layer.add_buffers(100, [0], [BufferMeasured(channel, 250.0, 40, 32_768, 0)])
>>> layer.latencies(100).tolist(), layer.buffers.values.tolist()
([300.0], [250.0])
>>> layer.add_buffers(200, [0], [BufferMeasured(channel, 90.0, 40, 11_933, 1)])
>>> layer.latencies(200).tolist(), layer.buffers.values.tolist()
([nan], [90.0])
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from fries_nb.constraints.reactions import Sizes
from fries_nb.constraints.sequences import (
    STALLED_MS,
    Flags,
    Floats,
    Positions,
    RunningMeans,
    SequenceLayers,
    WindowedSums,
    with_stalls,
)
from fries_nb.planning.constraint_setup import Allocation
from fries_nb.protocol.messages import (
    BufferMeasured,
    ChainMeasured,
    ChannelId,
    ChannelMeasured,
    Measurements,
    QueueMeasured,
    TaskMeasured,
    WorkerId,
)
from fries_nb.protocol.topology import Topology

Times = npt.NDArray[np.int64]
LONG_AGO = -(1 << 62)
"""A time before all others, in nanoseconds."""


class TaskLayer:
    """The tasks of one operator."""

    def __init__(self, size: int, window_ns: int) -> None:
        # ``window_ns``: window of the constraint in nanoseconds
        self.latency = RunningMeans(size, window_ns)  # latencies of the tasks
        self.processor = RunningMeans(size, window_ns)  # shares of a core that they used
        self.row = RunningMeans(size, window_ns)  # times for each row that they took in

    def add(self, time_ns: int, positions: Sequence[int], measured: Sequence[TaskMeasured]) -> None:
        """Add measurements of an interval."""
        self.latency.add(time_ns, positions, [one.latency_ms for one in measured], [one.samples for one in measured])
        # Every interval counts alike, whatever the number of rows: the processor is shared out over time.
        self.processor.add(time_ns, positions, [sample.processor for sample in measured], [1] * len(measured))
        self.row.add(time_ns, positions, [sample.row_ms for sample in measured], [sample.rows for sample in measured])

    def evict(self, now_ns: int) -> None:
        """Remove what the window has passed."""
        self.latency.evict(now_ns)
        self.processor.evict(now_ns)
        self.row.evict(now_ns)


class ChannelLayer:
    """The channels of one edge.

    Attributes:
        buffers: waiting times in output buffers, of the present size only; weights are rows.
        sizes, versions: the size of each buffer and its version, as last reported; versions are -1 before.
    """

    def __init__(self, shape: tuple[int, ...], window_ns: int, interval_ns: int, crossing: Flags) -> None:
        size = int(np.prod(shape))
        self.shape = shape  # number of channels of a one-to-one edge, else numbers of senders and receivers
        # ``window_ns``: window of the constraint in nanoseconds
        self.buffers = RunningMeans(size, window_ns)
        self.rows = WindowedSums(size, window_ns)  # rows that left the buffers within the window, whatever the size
        self.sizes: Sizes = np.zeros(size, dtype=np.int64)
        self.versions: npt.NDArray[np.int64] = np.full(size, -1, dtype=np.int64)
        self._latency = RunningMeans(size, window_ns)
        # ``interval_ns``: interval of measurements in nanoseconds
        self._window, self._interval = window_ns, interval_ns
        self._crossing = crossing  # whether each channel leads to another host, so that the error of clocks counts
        self._clock_errors: list[tuple[int, float]] = []
        self._queue_ms: Floats = np.zeros(size)
        self._queued_at: Times = np.full(size, LONG_AGO, dtype=np.int64)
        self._sampled_at: Times = np.full(size, LONG_AGO, dtype=np.int64)
        self._asked_at: Times = np.full(size, LONG_AGO, dtype=np.int64)
        self._asked_version: npt.NDArray[np.int64] = np.full(size, -1, dtype=np.int64)
        self._shrunk: Flags = np.zeros(size, dtype=np.bool_)

    def add_latencies(
        self, time_ns: int, positions: Sequence[int], measured: Sequence[ChannelMeasured], clock_error_ms: float
    ) -> None:
        """Add latencies of channels."""
        places = np.asarray(positions, dtype=np.intp)
        self._latency.add(time_ns, places, [one.latency_ms for one in measured], [one.samples for one in measured])
        self._sampled_at[places] = np.maximum(self._sampled_at[places], time_ns)
        if clock_error_ms > 0 and self._crossing[places].any():
            self._clock_errors.append((time_ns, clock_error_ms))

    def add_queues(self, time_ns: int, positions: Sequence[int], measured: Sequence[QueueMeasured]) -> None:
        """Add queues, whose waiting time is their length over the rate at which rows are taken (Little's law)."""
        for place, one in zip(positions, measured, strict=True):
            if one.rows > 0 and time_ns > self._queued_at[place]:
                self._queued_at[place] = time_ns
                self._queue_ms[place] = min(STALLED_MS, one.rows / one.rate * 1e3) if one.rate > 0 else STALLED_MS

    def add_buffers(self, time_ns: int, positions: Sequence[int], measured: Sequence[BufferMeasured]) -> None:
        """Add waiting times in buffers; where the size has changed, forget samples of the earlier one."""
        places = np.asarray(positions, dtype=np.intp)
        waits, rows, sizes, versions = (
            np.array([getattr(one, name) for one in measured]) for name in ("buffer_ms", "rows", "size", "version")
        )
        self.rows.add(time_ns, places, rows)
        present = versions >= self.versions[places]
        changed = places[(versions > self.versions[places]) & (self.versions[places] >= 0)]
        if changed.size:
            self.buffers.forget(changed, time_ns)
            self._latency.forget(changed, time_ns + self._interval)
        self.versions[places[present]], self.sizes[places[present]] = versions[present], sizes[present]
        self.buffers.add(time_ns, places[present], waits[present], rows[present])

    def ask(self, now_ns: int, positions: Positions, shrunk: Flags) -> None:
        """Remember that new sizes were asked for."""
        self._asked_at[positions] = now_ns
        self._asked_version[positions] = self.versions[positions]
        self._shrunk[positions] = shrunk

    def asked(self, now_ns: int) -> Flags:
        """The channels for which a new size was asked and has not been reported; at most for a window."""
        recent: Flags = self._asked_at > now_ns - self._window
        return recent & (self.versions <= self._asked_version)

    def settling(self, now_ns: int) -> Flags:
        """The channels whose buffer was shrunk and whose latency has not been measured since; at most for a window."""
        recent: Flags = self._asked_at > now_ns - self._window
        unknown: Flags = (self.versions <= self._asked_version) | (self._latency.weights == 0)
        return recent & self._shrunk & unknown

    def queued(self, now_ns: int) -> Flags:
        """The channels of which the newest measurement is a queue."""
        recent: Flags = self._queued_at > now_ns - self._window
        return recent & (self._queued_at > self._sampled_at)

    def latencies(self, now_ns: int) -> Floats:
        """Mean latencies, or waiting times of queues where they are newer and longer; NaN where neither is known."""
        means = self._latency.values
        return np.where(self.queued(now_ns), np.fmax(means, self._queue_ms), means)

    def clock_error_ms(self) -> float:
        """Largest error of clocks in the window."""
        return max((error for _, error in self._clock_errors), default=0.0)

    def evict(self, now_ns: int) -> None:
        """Remove what the window has passed."""
        for kept in (self.buffers, self.rows, self._latency):
            kept.evict(now_ns)
        self._clock_errors = [error for error in self._clock_errors if error[0] > now_ns - self._window]


Batch = tuple[list[int], list[Any]]
"""Positions, and a measurement for each."""


class MeasuredAllocation:
    """The measurements of an allocation's tasks and channels over the window."""

    def __init__(self, topology: Topology, allocation: Allocation, interval_ns: int) -> None:
        self._topology, self._allocation = topology, allocation
        path, layers = allocation.constraint.path, allocation.layers
        window_ns = round(allocation.constraint.window_s * 1e9)
        self._places = {name: place for place, name in enumerate(path)}
        self._positions = [{index: position for position, index in enumerate(layer)} for layer in layers]
        self._chains: dict[WorkerId, tuple[str, ...]] = {}
        self._static = {name: chain for chain in topology.chains for name in chain}
        hosts = [
            np.array([topology.host_of(WorkerId(name, index)) for index in layer])
            for name, layer in zip(path, layers, strict=True)
        ]
        self.tasks = [TaskLayer(len(layer), window_ns) for layer in layers]  # for each operator of the path, its tasks
        self.channels: list[ChannelLayer] = []  # for each edge of the path, its channels
        # ``interval_ns``: interval of measurements in nanoseconds
        for (senders, receivers), is_one_to_one in zip(pairwise(hosts), allocation.one_to_one, strict=True):
            crossing = senders != receivers if is_one_to_one else senders[:, None] != receivers[None, :]
            self.channels.append(ChannelLayer(crossing.shape, window_ns, interval_ns, crossing.ravel()))
        self.first_ns: int | None = None  # time of the first measurement; ``None`` before

    def receive(self, bundle: Measurements) -> None:
        """Add the measurements that belong to the allocation; others are ignored."""
        batches: dict[tuple[type, int], Batch] = defaultdict(lambda: ([], []))
        for measured in bundle.measured:
            if isinstance(measured, ChainMeasured):
                workers = (WorkerId(name, measured.index) for name in measured.operators)
                self._chains.update(dict.fromkeys(workers, measured.operators))
            elif (found := self._located(measured)) is not None:
                positions, items = batches[type(measured), found[0]]
                positions.append(found[1])
                items.append(measured)
        for (kind, place), (positions, items) in batches.items():
            self._add(kind, place, bundle, positions, items)
        if batches:
            self.first_ns = bundle.time_ns if self.first_ns is None else min(self.first_ns, bundle.time_ns)

    def evict(self, now_ns: int) -> None:
        """Remove what the window has passed."""
        for task in self.tasks:
            task.evict(now_ns)
        for channel in self.channels:
            channel.evict(now_ns)

    def latencies(self, now_ns: int) -> SequenceLayers:
        """The latency of each element: 0 for tasks that do not count and inside chains; NaN where unknown."""
        counted = self._allocation.constraint.tasks
        tasks = tuple(
            layer.latency.values if name in counted else np.zeros(layer.latency.weights.size)
            for name, layer in zip(self._allocation.constraint.path, self.tasks, strict=True)
        )
        edges, queued = [], []
        for place, layer in enumerate(self.channels):
            inside = self.inside_chains(place)
            edges.append(np.where(inside, 0.0, layer.latencies(now_ns).reshape(layer.shape)))
            queued.append(layer.queued(now_ns).reshape(layer.shape) & ~inside)
        return with_stalls(SequenceLayers(tasks, tuple(edges)), tuple(queued))

    def rows(self) -> SequenceLayers:
        """The number of rows in the window: measured ones of each task, and those that left each channel's buffer."""
        tasks = tuple(layer.latency.weights for layer in self.tasks)
        return SequenceLayers(tasks, tuple(layer.rows.values.reshape(layer.shape) for layer in self.channels))

    def inside_chains(self, place: int) -> Flags:
        """Whether the channels of an edge are inside a chain, so that rows pass them without waiting."""
        shape = self.channels[place].shape
        if len(shape) > 1:
            return np.zeros(shape, dtype=np.bool_)
        before, after = self._allocation.constraint.path[place : place + 2]
        indices = self._allocation.layers[place]
        return np.array([after in self.chain_of(WorkerId(before, index)) for index in indices])

    def buffer_bytes(self, place: int) -> tuple[int, int]:
        """The sizes of the smallest and the largest buffer of an edge that are known, outside of chains; 0 for none."""
        layer = self.channels[place]
        sizes = layer.sizes[(layer.versions >= 0) & ~self.inside_chains(place).ravel()]
        return (int(sizes.min()), int(sizes.max())) if sizes.size else (0, 0)

    def chain_of(self, worker: WorkerId) -> tuple[str, ...]:
        """The operators of the chain in which a worker runs."""
        return self._chains.get(worker, self._static[worker.operator])

    def worker(self, place: int, position: int) -> WorkerId:
        """The worker at a position of a layer."""
        return WorkerId(self._allocation.constraint.path[place], self._allocation.layers[place][position])

    def channel(self, place: int, position: int) -> ChannelId:
        """The channel at a position of an edge."""
        shape = self.channels[place].shape
        sender, receiver = divmod(position, shape[1]) if len(shape) > 1 else (position, position)
        return self._topology.channel(self.worker(place, sender), self.worker(place + 1, receiver))

    def sender_latencies(self, place: int) -> Floats:
        """The latency of each channel's sending task, also of one that does not count; 0 if it is unknown."""
        layer = self.channels[place]
        known = np.nan_to_num(self.tasks[place].latency.values)
        return known if len(layer.shape) == 1 else np.repeat(known, layer.shape[1])

    def _add(self, kind: type, place: int, bundle: Measurements, positions: list[int], items: list[Any]) -> None:
        if kind is TaskMeasured:
            self.tasks[place].add(bundle.time_ns, positions, items)
        elif kind is ChannelMeasured:
            self.channels[place].add_latencies(bundle.time_ns, positions, items, bundle.clock_error_ms)
        elif kind is QueueMeasured:
            self.channels[place].add_queues(bundle.time_ns, positions, items)
        else:
            self.channels[place].add_buffers(bundle.time_ns, positions, items)

    def _located(
        self, measured: ChannelMeasured | QueueMeasured | BufferMeasured | TaskMeasured
    ) -> tuple[int, int] | None:
        """Layer and position of a measured element; ``None`` if it belongs to none."""
        if isinstance(measured, TaskMeasured):
            place = self._places.get(measured.worker.operator, -1)
            position = self._positions[place].get(measured.worker.index) if place >= 0 else None
            return None if position is None else (place, position)
        sender, receiver = measured.channel.sender, measured.channel.receiver
        place = self._places.get(sender.operator, -1)
        if place < 0 or self._places.get(receiver.operator) != place + 1:
            return None
        first = self._positions[place].get(sender.index)
        last = self._positions[place + 1].get(receiver.index)
        if first is None or last is None:
            return None
        shape = self.channels[place].shape
        return place, first if len(shape) == 1 else first * shape[1] + last
