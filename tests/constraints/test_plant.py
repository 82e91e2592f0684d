"""The control loop on a simulated plant: it converges, stays, and grows again; loops with one rule broken do not."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from math import ceil, inf

import pytest

from fries_nb.constraints import reactions
from fries_nb.constraints.constraint_monitor import ConstraintMonitor
from fries_nb.constraints.measured_allocation import ChannelLayer
from fries_nb.constraints.reactions import (
    FLOOR_BYTES,
    START_BYTES,
    ChainOperators,
    ConstraintStatus,
    ConstraintVerdict,
    Reaction,
    ResizeBuffer,
)
from fries_nb.constraints.sequences import RunningMeans
from fries_nb.dataflow import Edge, Graph, Kind, LatencyConstraint, Operator, Partitioning, constraint_of
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


# ---- the tests


LIMIT_MS = 300.0
NAMES = ("Partitioner", "Decoder", "Merger", "Encoder", "Sink")
TASK_MS = {"Decoder": 20.0, "Merger": 5.0, "Encoder": 30.0}


def plant(limit_ms: float = LIMIT_MS, task_ms: dict[str, float] = TASK_MS, **given) -> Plant:
    """The pipeline of figure 5, shortened: a hash edge, two forward ones, a hash edge; tasks take 55 ms together."""
    kinds = (Kind.SOURCE, Kind.MAP, Kind.MAP, Kind.MAP, Kind.SINK)
    operators = tuple(Operator(name, workers=2, kind=kind) for name, kind in zip(NAMES, kinds, strict=True))
    partitioning = (Partitioning.HASH, Partitioning.FORWARD, Partitioning.FORWARD, Partitioning.HASH)
    edges = tuple(Edge(a, b, kind) for a, b, kind in zip(NAMES, NAMES[1:], partitioning, strict=False))
    graph = Graph("video", operators, edges)
    topology = Topology.dealt(graph, hosts=2, chaining=False)
    return Plant(topology, [constraint_of(graph, NAMES, limit_ms)], task_ms=task_ms, **given)


def is_met(run: Plant) -> bool:
    """Whether the plant's true latency keeps all limits."""
    return all(run.worst_ms(constraint) <= constraint.latency_ms for constraint in run.constraints)


def broken_laws(skew: dict[int, int] | None = None) -> set[str]:
    """Some time under load, with forty times the rows, and as at first: the laws of the loop that do not hold."""
    run = plant(skew=skew or {})
    broken = set()
    run.run(60)
    if not is_met(run):
        broken.add("converges within a minute")
    if min(run.sizes()) < 2 * FLOOR_BYTES:
        broken.add("stays off the floor")
    run.run(20)
    if any(run.resizes[second] for second in range(40, run.seconds + 1)):
        broken.add("settles")
    run.rows, before = run.rows * 40, run.frames()
    run.run(90)
    if run.frames() / 40 > before / 2:
        broken.add("grows again")
    if not is_met(run):
        broken.add("is met under load")
    run.rows /= 40
    run.run(60)
    if not is_met(run):
        broken.add("converges again")
    return broken


def tight_laws() -> set[str]:
    """Quick tasks, a low limit, and waiting times below the threshold: growing must stop by the limit alone."""
    run = plant(limit_ms=26.0, task_ms={"Decoder": 2.0, "Merger": 1.0, "Encoder": 2.0}, rows=40_000.0)
    run.run(60)
    broken = set() if is_met(run) else {"converges within a minute"}
    run.run(60)
    return broken if is_met(run) else {*broken, "stays met"}


@pytest.mark.parametrize("skew", [{}, {1: 400_000_000}], ids=["in step", "0.4 s apart"])
def test_the_loop_converges_stays_and_grows_again(skew):
    """Whether hosts report at the same time or not."""
    assert broken_laws(skew) == set()


def test_buffers_do_not_grow_into_the_limit():
    """It stays kept for as long as nothing changes."""
    assert tight_laws() == set()


def version_ignored(patch):
    """Samples of the earlier size stay in the window."""
    patch.setattr(RunningMeans, "forget", lambda means, positions, before_ns: None)


def only_buffers_forgotten(patch):
    """A channel's own samples of the earlier size stay."""

    def add_buffers(layer, time_ns, positions, measured, add=ChannelLayer.add_buffers):
        forget, layer._latency.forget = layer._latency.forget, lambda positions, before_ns: None
        add(layer, time_ns, positions, measured)
        layer._latency.forget = forget

    patch.setattr(ChannelLayer, "add_buffers", add_buffers)


def exponent_unbounded(patch):
    """Formula (2) as printed."""
    patch.setattr(reactions, "LONGEST_MS", inf)


def never_grown(patch):
    """Formula (3) is missing."""
    patch.setattr(reactions, "GROWTH", 1.0)


def grown_up_to_the_limit(patch):
    """Nothing is spared."""
    patch.setattr(reactions, "SPARE", 1.0)


@pytest.mark.parametrize(
    ("mutant", "laws", "law"),
    [
        (version_ignored, broken_laws, "stays off the floor"),
        (only_buffers_forgotten, broken_laws, "stays off the floor"),
        (exponent_unbounded, broken_laws, "stays off the floor"),
        (never_grown, broken_laws, "grows again"),
        (grown_up_to_the_limit, tight_laws, "stays met"),
    ],
)
def test_a_broken_loop_is_caught(monkeypatch, mutant, laws, law):
    """Each by the law that it breaks."""
    mutant(monkeypatch)
    assert law in laws()


def test_one_look_is_one_step():
    """The first reaction to waits of a second and more is bounded, and the next one takes a whole interval."""
    run = plant()
    run.step()
    first = [one for one in run.log if isinstance(one, ResizeBuffer)]
    assert {one.size for one in first} == {int(START_BYTES * 0.98**50)}
    assert {one.version for one in first} == {0}
    assert len(first) == len(run.buffers)
    run.step()
    assert len([one for one in run.log if isinstance(one, ResizeBuffer)]) == len(first), (
        "looked at in the same interval"
    )
    run.step()
    again = [one for one in run.log if isinstance(one, ResizeBuffer)][len(first) :]
    assert {one.version for one in again} == {1}
    assert run.seconds == 3


def test_a_violation_stands_until_what_was_shrunk_is_measured():
    """No verdict flickers while buffers settle; from the first violation to the end there is one change of status."""
    run = plant()
    statuses = [run.step()[0].status for _ in range(60)]
    assert statuses[0] is ConstraintStatus.VIOLATED
    assert statuses[-1] is ConstraintStatus.MET
    assert sum(one is not two for one, two in itertools.pairwise(statuses)) == 1


def test_when_buffers_cannot_shrink_tasks_are_chained():
    """Transport alone breaks the limit: after the buffers the forward series becomes a chain, at both indices."""
    run = plant(limit_ms=58.5, rows=10.0, row_bytes=256)
    run.run(60)
    chained = [one for one in run.log if isinstance(one, ChainOperators)]
    assert {one.operators for one in chained} == {("Decoder", "Merger", "Encoder")}
    assert {one.index for one in chained} == {0, 1}
    first = next(number for number, one in enumerate(run.log) if isinstance(one, ChainOperators))
    assert any(isinstance(one, ResizeBuffer) for one in run.log[:first])
    assert is_met(run)
    assert run.step()[0].status is ConstraintStatus.MET


def test_a_plant_without_chains_is_exhausted():
    """Tasks of which any two need more than a core: the verdict says that nothing is left."""
    run = plant(limit_ms=75.0, task_ms=dict.fromkeys(TASK_MS, 24.0), rows=20.0, row_bytes=256)
    verdicts = run.run(60)
    assert not any(isinstance(one, ChainOperators) for one in run.log)
    assert all(one.exhausted and one.violated_windows >= 2 for one in verdicts)


def test_a_stalled_worker_violates_its_sequences_for_as_long_as_it_stalls():
    """It has no samples any more, nor has what follows it."""
    run = plant(rows=4_000.0)
    run.run(30)
    run.stalled = {WorkerId("Merger", 0)}
    for _ in range(40):
        verdicts = {one.host: one for one in run.step()}
        assert verdicts[0].status is ConstraintStatus.VIOLATED
        assert verdicts[0].worst_ms == inf
        assert "rows wait at Decoder -> Merger, and none is taken" in verdicts[0].reason
    assert verdicts[0].violated_windows == 2
    run.stalled = set()
    assert run.run(20)[0].status is ConstraintStatus.MET


def test_equal_measurements_lead_to_equal_reactions():
    """The loop holds no chance, no clock, and no order of hashes."""
    logs = []
    for _ in range(2):
        run = plant()
        run.run(20)
        logs.append(run.log)
    assert logs[0] == logs[1]


def test_monitors_ignore_what_is_not_theirs():
    """Measurements of every element, sent to every monitor, change nothing."""
    one, other = plant(), plant()
    one.run(20)
    for subscription, _ in other.subscribed:
        object.__setattr__(subscription, "needs", lambda measured: True)
    other.run(20)
    assert [reaction for reaction in other.log if isinstance(reaction, ResizeBuffer)] == [
        reaction for reaction in one.log if isinstance(reaction, ResizeBuffer)
    ]
    assert isinstance(one.monitors[0][1], ConstraintMonitor)
