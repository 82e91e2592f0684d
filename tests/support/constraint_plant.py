"""A simulated plant on a manual clock: senders fill buffers with rows of one size, tasks take a fixed time.

Rows arrive evenly on each channel. A buffer is sent when it is full, so that with k rows in it a row waits (k - 1) / 2
intervals between rows. In the second in which a size changes, the receiver still measures rows of the earlier size.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from math import ceil

from fries_nb.constraints.constraint_monitor import ConstraintMonitor
from fries_nb.constraints.reactions import START_BYTES, ChainOperators, ConstraintVerdict, Reaction, ResizeBuffer
from fries_nb.dataflow import LatencyConstraint
from fries_nb.planning.constraint_setup import Allocation, Subscription, constraint_setup, subscriptions
from fries_nb.protocol.messages import (
    BufferMeasured,
    ChainMeasured,
    ChannelId,
    ChannelMeasured,
    Measured,
    Measurements,
    QueueMeasured,
    TaskMeasured,
    WorkerId,
)
from fries_nb.protocol.topology import Topology
from fries_nb.simulation.cluster import ManualClock

SECOND = 1_000_000_000
TRANSPORT_MS = 1.0
FRAME_MS = 0.3
"""What a frame costs its receiver, whatever is in it."""

Setup = Callable[[Topology, list[LatencyConstraint]], dict[int, tuple[Allocation, ...]]]


@dataclass
class Buffer:
    """An output buffer: its size and version, and the latency that the receiver still measures from before a change."""

    size: int = START_BYTES
    version: int = 0
    earlier_ms: float | None = None


@dataclass
class Plant:
    """Runs the monitors of one set of constraints against simulated channels.

    Attributes:
        topology, constraints: what is constrained.
        rows: rows a second that each channel of an edge carries, by its sender and receiver.
        row_bytes: size of a row.
        task_ms: latency of each operator's tasks.
        stalled: workers that take no row.
        skew: offset of each host's intervals in nanoseconds.
    """

    topology: Topology
    constraints: list[LatencyConstraint]
    rows: float = 100.0
    row_bytes: int = 128
    task_ms: dict[str, float] = field(default_factory=dict)
    stalled: set[WorkerId] = field(default_factory=set)
    skew: dict[int, int] = field(default_factory=dict)
    setup: Setup = constraint_setup
    clock: ManualClock = field(default_factory=ManualClock)
    log: list[Reaction] = field(default_factory=list)
    resizes: Counter[int] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.buffers = {channel: Buffer() for channel in self.topology.channels()}
        self.chains: dict[WorkerId, tuple[str, ...]] = {}
        allocations = self.setup(self.topology, self.constraints)
        self.hosts = sorted(set(self.topology.placement.values()))
        self.monitors = [
            (allocation, ConstraintMonitor(self.topology, allocation))
            for host in allocations.values()
            for allocation in host
        ]
        numbers = {id(allocation): number for number, (allocation, _) in enumerate(self.monitors)}
        self.subscribed: list[tuple[Subscription, int]] = [
            (one, numbers[id(one.allocation)])
            for host in self.hosts
            for one in subscriptions(self.topology, allocations, host)
        ]
        self.seconds = 0

    # ---- what is true

    def wait_ms(self, channel: ChannelId) -> float:
        """Mean time for which rows wait in a channel's buffer."""
        held = max(1, ceil(self.buffers[channel].size / self.row_bytes))
        return (held - 1) / 2 / self.rows * 1e3

    def latency_ms(self, channel: ChannelId) -> float:
        """Latency of a channel; 0 inside a chain."""
        return 0.0 if self.is_inside_chain(channel) else self.wait_ms(channel) + TRANSPORT_MS

    def is_inside_chain(self, channel: ChannelId) -> bool:
        """Whether sender and receiver are one chain."""
        return channel.receiver.operator in self.chains.get(channel.sender, ())

    def worst_ms(self, constraint: LatencyConstraint) -> float:
        """Latency of the slowest sequence; all channels of an edge lead everywhere, or to the same index."""
        worst: dict[WorkerId, float] = {}
        for worker in self.topology.workers:
            if worker.operator == constraint.path[0]:
                worst[worker] = self._counted(constraint, worker)
        for edge in constraint.edges:
            pairs = [
                one for one in self.buffers if (one.sender.operator, one.receiver.operator) == (edge.source, edge.to)
            ]
            following: dict[WorkerId, float] = {}
            for channel in pairs:
                latency = worst[channel.sender] + self.latency_ms(channel) + self._counted(constraint, channel.receiver)
                following[channel.receiver] = max(latency, following.get(channel.receiver, 0.0))
            worst = following
        return max(worst.values())

    def frames(self) -> float:
        """Frames a second on all channels, which is what small buffers cost."""
        return sum(self.rows / max(1, ceil(buffer.size / self.row_bytes)) for buffer in self.buffers.values())

    def sizes(self) -> list[int]:
        """Sizes of all buffers."""
        return [buffer.size for buffer in self.buffers.values()]

    # ---- what happens

    def run(self, seconds: int) -> list[ConstraintVerdict]:
        """Let time pass; returns the last verdicts."""
        verdicts: list[ConstraintVerdict] = []
        for _ in range(seconds):
            verdicts = self.step()
        return verdicts

    def step(self) -> list[ConstraintVerdict]:
        """One interval: hosts report, monitors judge, senders apply what they are told."""
        self.clock.advance(SECOND)
        self.seconds += 1
        for host in self.hosts:
            measured = tuple(self._measured_on(host))
            at = self.clock() - self.skew.get(host, 0)
            for subscription, number in self.subscribed:
                if subscription.reporter == host:
                    wanted = tuple(filter(subscription.needs, measured))
                    if wanted:
                        self.monitors[number][1].receive(Measurements(at, wanted))
        for buffer in self.buffers.values():
            buffer.earlier_ms = None
        verdicts = []
        for _, monitor in self.monitors:
            for reaction in monitor.judge(self.clock()):
                self.log.append(reaction)
                if isinstance(reaction, ConstraintVerdict):
                    verdicts.append(reaction)
                else:
                    self._apply(reaction)
        return verdicts

    def _apply(self, instruction: ResizeBuffer | ChainOperators) -> None:
        if isinstance(instruction, ChainOperators):
            for name in instruction.operators:
                self.chains[WorkerId(name, instruction.index)] = instruction.operators
            return
        buffer = self.buffers[instruction.channel]
        if buffer.version == instruction.version:
            buffer.earlier_ms = self.latency_ms(instruction.channel)
            buffer.size, buffer.version = instruction.size, buffer.version + 1
            self.resizes[self.seconds] += 1

    def _measured_on(self, host: int) -> list[Measured]:
        found: list[Measured] = []
        for worker in self.topology.workers:
            if self.topology.host_of(worker) == host and worker not in self.stalled:
                latency = self.task_ms.get(worker.operator, 0.0)
                found.append(TaskMeasured(worker, latency, 1, self.rows * latency / 1e3))
                if worker in self.chains:
                    found.append(ChainMeasured(self.chains[worker], worker.index))
        for channel, buffer in self.buffers.items():
            if self.is_inside_chain(channel):
                continue
            if self.topology.host_of(channel.receiver) == host:
                if channel.receiver in self.stalled:
                    found.append(QueueMeasured(channel, int(self.rows) * self.seconds, 0.0))
                elif channel.sender not in self.stalled:
                    latency = self.latency_ms(channel) if buffer.earlier_ms is None else buffer.earlier_ms
                    found.append(ChannelMeasured(channel, latency, 1))
            if self.topology.host_of(channel.sender) == host and channel.sender not in self.stalled:
                rows, wait = int(self.rows), self.wait_ms(channel)
                found.append(BufferMeasured(channel, wait, rows, buffer.size, buffer.version))
        return found

    def _counted(self, constraint: LatencyConstraint, worker: WorkerId) -> float:
        return self.task_ms.get(worker.operator, 0.0) if worker.operator in constraint.tasks else 0.0
