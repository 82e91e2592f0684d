"""A monitor on a manual clock that is given measurements by hand."""

from __future__ import annotations

from fries_nb.constraints.constraint_monitor import ConstraintMonitor
from fries_nb.constraints.reactions import ConstraintVerdict, Reaction
from fries_nb.dataflow import Edge, Graph, Operator, Partitioning, constraint_of
from fries_nb.planning.constraint_setup import constraint_setup
from fries_nb.protocol.messages import (
    BufferMeasured,
    ChannelId,
    ChannelMeasured,
    Measured,
    Measurements,
    TaskMeasured,
    WorkerId,
)
from fries_nb.protocol.topology import Topology

SECOND = 1_000_000_000
START = 1_700_000_000 * SECOND


class Watch:
    """A monitor of A -> B -> C with a second's clock: source S, forward A -> B, hash B -> C, sink Z."""

    def __init__(
        self,
        sequence=("A", "B", "C"),
        limit_ms: float = 300.0,
        workers: int = 1,
        hosts: int = 1,
        chaining: bool = False,
        adapts: bool = True,
        **given,
    ) -> None:
        names = ("S", "A", "B", "C", "Z")
        operators = tuple(Operator(name, workers=workers) for name in names)
        edges = (
            Edge("S", "A", Partitioning.HASH), Edge("A", "B"), Edge("B", "C", Partitioning.HASH), Edge("C", "Z"),
        )  # fmt: skip
        graph = Graph("flow", operators, edges)
        self.topology = Topology.dealt(graph, hosts, chaining)
        setup = constraint_setup(self.topology, [constraint_of(graph, list(sequence), limit_ms, **given)])
        self.monitor = ConstraintMonitor(self.topology, setup[0][0], adapts=adapts)
        self.now = START

    def __call__(self, *measured: Measured, seconds: float = 1.0, clock_error_ms: float = 0.0) -> ConstraintVerdict:
        """Some time later these measurements arrive; returns the verdict, and keeps the instructions."""
        self.now += round(seconds * SECOND)
        if measured:
            self.monitor.receive(Measurements(self.now, measured, clock_error_ms))
        *self.instructions, verdict = self.monitor.judge(self.now)
        assert isinstance(verdict, ConstraintVerdict)
        return verdict

    instructions: list[Reaction]


def task(name: str, latency: float, index: int = 0, processor: float = 0.1, samples: int = 1) -> TaskMeasured:
    """A task's latency."""
    return TaskMeasured(WorkerId(name, index), latency, samples, processor)


def channel(ends: str, sender: int = 0, receiver: int = 0) -> ChannelId:
    """The channel between two operators, by their letters."""
    return ChannelId(WorkerId(ends[0], sender), WorkerId(ends[1], receiver))


def sample(ends: str, latency: float, *indices: int, samples: int = 1) -> ChannelMeasured:
    """A channel's latency."""
    return ChannelMeasured(channel(ends, *indices), latency, samples)


def buffer(
    ends: str, wait: float, size: int = 32_768, version: int = 0, rows: int = 10, **ends_at: int
) -> BufferMeasured:
    """A buffer's waiting time."""
    return BufferMeasured(channel(ends, **ends_at), wait, rows, size, version)


TASKS = (task("A", 10.0), task("B", 20.0), task("C", 30.0))


def replace_index(measured: TaskMeasured, index: int) -> TaskMeasured:
    """The same of another worker."""
    return TaskMeasured(WorkerId(measured.worker.operator, index), measured.latency_ms, 1, measured.processor)


def replace_processor(measured: TaskMeasured, processor: float) -> TaskMeasured:
    """The same with another share of a core."""
    return TaskMeasured(measured.worker, measured.latency_ms, 1, processor)
