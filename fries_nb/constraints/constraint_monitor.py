"""The monitor of an allocation's runtime constraints: measurements go in, instructions and a verdict come out.

It is the manager of Nephele Streaming (sections 3.4 and 3.5), without a clock: the current time is an argument. The
remedies come in order: first the buffers of all channels on sequences above the limit shrink; if those of the worst
sequence cannot, its tasks are chained; if neither helps, the verdict says that the remedies are exhausted. While a
buffer that was shrunk has not been measured anew, a violation stands, since its end is not known.

A sample of 400 ms on the only channel, of which 390 ms are spent in the buffer:

>>> from fries_nb.dataflow.constraints import constraint_of, edge
>>> from fries_nb.dataflow.graph import Edge, Graph, Operator
>>> from fries_nb.protocol.messages import BufferMeasured, ChannelMeasured
>>> from fries_nb.planning.constraint_setup import constraint_setup
>>> graph = Graph("pair", (Operator("A"), Operator("B")), (Edge("A", "B"),))
>>> topology = Topology.dealt(graph, hosts=1, chaining=False)
>>> (allocation,) = constraint_setup(topology, [constraint_of(graph, [edge("A", "B")], latency_ms=300)])[0]
>>> monitor = ConstraintMonitor(topology, allocation)
>>> channel, second = topology.channel(WorkerId("A", 0), WorkerId("B", 0)), 1_000_000_000
>>> monitor.receive(Measurements(second, (
...     ChannelMeasured(channel, 400.0, 1), BufferMeasured(channel, 390.0, 80, 32_768, 0))))
>>> resize, verdict = monitor.judge(now_ns=second)
>>> resize.size, resize.version, verdict.status.value, verdict.worst_ms
(11933, 0, 'violated', 400.0)
>>> verdict.reason
'A[0] -> B[0] takes 400 ms, at most 300 ms: 400 ms of it at A -> B (buffers: 390 ms)'
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from math import inf

import numpy as np
from msgspec.structs import replace as replaced

from fries_nb.constraints.judgements import (
    below_tasks_because,
    clocks_because,
    met_because,
    settling_because,
    unmeasured_because,
    violated_because,
)
from fries_nb.constraints.measured_allocation import ChannelLayer, MeasuredAllocation
from fries_nb.constraints.reactions import (
    ChainOperators,
    ChainRules,
    ConstraintStatus,
    ConstraintVerdict,
    ElementLatency,
    Reaction,
    ResizeBuffer,
    longest_series,
    resized,
)
from fries_nb.constraints.sequences import (
    STALLED_MS,
    MeanLatency,
    SequenceLayers,
    WorstSequence,
    latency_through,
    mean_latency,
    without_edges,
    worst_sequence,
)
from fries_nb.planning.constraint_setup import Allocation
from fries_nb.protocol.messages import Measurements, WorkerId
from fries_nb.protocol.topology import Topology

INTERVAL_S = 1.0
"""Default interval of measurements in seconds."""
CLOCK_SHARE = 0.1
"""Share of the limit above which the summed error of clocks prevents a judgement."""


class ConstraintMonitor:
    """Judges the runtime constraints of one allocation.

    A new topology needs a new monitor.
    """

    def __init__(
        self, topology: Topology, allocation: Allocation, interval_s: float = INTERVAL_S, adapts: bool = True
    ) -> None:
        self._allocation = allocation
        # whether buffers and chains are adapted; otherwise a violation is exhausted from the beginning
        self._adapts = adapts
        self._constraint = allocation.constraint
        self._window_ns = round(allocation.constraint.window_s * 1e9)
        # ``interval_s``: interval of measurements in seconds
        self._measured = MeasuredAllocation(topology, allocation, round(interval_s * 1e9))
        self._rules = ChainRules(topology)
        self._asked_chains: dict[ChainOperators, int] = {}
        self._futile_chains: set[ChainOperators] = (
            set()
        )  # asked for a whole window ago, without an end of the violation
        self._violated_since: int | None = None

    def receive(self, measurements: Measurements) -> None:
        """Take measurements of a host."""
        self._measured.receive(measurements)

    def judge(self, now_ns: int) -> tuple[Reaction, ...]:
        """Judge the last window: instructions to change buffers and chains, and last the verdict."""
        self._measured.evict(now_ns)
        oldest = now_ns - self._window_ns
        self._futile_chains |= {chain for chain, asked in self._asked_chains.items() if asked <= oldest}
        self._asked_chains = {chain: asked for chain, asked in self._asked_chains.items() if asked > oldest}
        error = sum(layer.clock_error_ms() for layer in self._measured.channels)
        if error > CLOCK_SHARE * self._constraint.latency_ms:
            self._violated_since = None
            reason = clocks_because(error, self._constraint.latency_ms)
            return (replaced(self._blank(now_ns, ConstraintStatus.NOT_YET_JUDGED), reason=reason),)
        layers = self._measured.latencies(now_ns)
        worst = worst_sequence(layers)
        reactions: list[Reaction] = list(self._resizes(now_ns, layers)) if self._adapts else []
        is_over = worst is not None and worst.latency_ms > self._constraint.latency_ms
        if is_over or (self._violated_since is not None and self._settling(now_ns)):
            status = ConstraintStatus.VIOLATED
            self._violated_since = now_ns if self._violated_since is None else self._violated_since
            if worst is not None and is_over and self._adapts:
                reactions += self._chains(now_ns, worst)
        else:
            status = ConstraintStatus.NOT_YET_JUDGED if worst is None else ConstraintStatus.MET
            self._violated_since = None
            self._futile_chains.clear()
        return (*reactions, self._verdict(now_ns, status, layers, worst))

    def _resizes(self, now_ns: int, layers: SequenceLayers) -> Iterator[ResizeBuffer]:
        """New sizes of buffers on sequences that are judged, one at a time for each channel."""
        limit, window_s = self._constraint.latency_ms, self._constraint.window_s
        for place, through in enumerate(latency_through(layers).edges):
            layer = self._measured.channels[place]
            able = ~layer.asked(now_ns) & ~self._measured.inside_chains(place).ravel()
            sender_ms = self._measured.sender_latencies(place)
            sizes = resized(layer.sizes, layer.buffers.values, sender_ms, through.ravel(), limit, window_s)
            chosen = np.flatnonzero(able & (sizes != layer.sizes))
            layer.ask(now_ns, chosen, sizes[chosen] < layer.sizes[chosen])
            for position in chosen.tolist():
                channel, version = self._measured.channel(place, position), int(layer.versions[position])
                yield ResizeBuffer(channel, int(sizes[position]), version)

    def _chains(self, now_ns: int, worst: WorstSequence) -> Iterator[ChainOperators]:
        """The longest series of the worst sequence that can be chained, once its buffers cannot shrink further."""
        measured, path = self._measured, self._workers(worst)
        for place, layer in enumerate(measured.channels):
            if layer.settling(now_ns).reshape(layer.shape)[_on(layer, worst, place)]:
                return
        joinable = [self._rules.are_joinable(*pair) for pair in pairwise(path)]
        placed = list(zip(measured.tasks, worst.positions, strict=True))
        processor = [float(task.processor.values[position]) for task, position in placed]
        found = longest_series(path, joinable, [measured.chain_of(worker) for worker in path], processor)
        if found is not None and found not in self._asked_chains:
            self._asked_chains[found] = now_ns
            yield found

    @property
    def _awaits_chains(self) -> bool:
        """Whether a chain may still be made; a host may refuse it, for instance since an operator is slow."""
        return not self._futile_chains.issuperset(self._asked_chains)

    def _settling(self, now_ns: int) -> int:
        """Number of channels whose buffer was shrunk and whose latency has not been measured since."""
        return sum(int(layer.settling(now_ns).sum()) for layer in self._measured.channels)

    def _workers(self, worst: WorstSequence) -> tuple[WorkerId, ...]:
        return tuple(self._measured.worker(place, position) for place, position in enumerate(worst.positions))

    def _blank(self, now_ns: int, status: ConstraintStatus) -> ConstraintVerdict:
        limit_ms, window_s = self._constraint.latency_ms, self._constraint.window_s
        return ConstraintVerdict(
            self._constraint.sequence, limit_ms, window_s, self._allocation.host, now_ns, status, reason=""
        )

    def _verdict(
        self, now_ns: int, status: ConstraintStatus, layers: SequenceLayers, worst: WorstSequence | None
    ) -> ConstraintVerdict:
        anchor = self._constraint.path.index(self._allocation.anchor)
        mean = mean_latency(layers, self._measured.rows(), anchor)
        tasks = worst_sequence(without_edges(layers))
        since = self._violated_since
        verdict = replaced(
            self._blank(now_ns, status),
            tasks_ms=0.0 if tasks is None else shown_ms(tasks.latency_ms),
            violated_windows=0 if since is None else (now_ns - since) // self._window_ns,
            exhausted=since is not None and not self._awaits_chains and not self._settling(now_ns),
        )
        if worst is not None and mean is not None:
            verdict = replaced(
                verdict,
                mean_ms=shown_ms(mean.latency_ms),
                worst_ms=shown_ms(worst.latency_ms),
                worst=self._workers(worst),
                elements=tuple(self._elements(layers, worst, mean)),
                rows=mean.rows,
            )
        return replaced(verdict, reason=self._reason(now_ns, verdict, layers, tasks))

    def _reason(
        self, now_ns: int, verdict: ConstraintVerdict, layers: SequenceLayers, tasks: WorstSequence | None
    ) -> str:
        if verdict.status is ConstraintStatus.NOT_YET_JUDGED:
            return unmeasured_because(self._unmeasured(layers))
        if verdict.status is ConstraintStatus.MET:
            return met_because(verdict)
        first = self._measured.first_ns
        has_seen_a_window = first is not None and now_ns - first >= self._window_ns
        if tasks is not None and verdict.tasks_ms > verdict.limit_ms and has_seen_a_window:
            path = enumerate(self._constraint.path)
            values = [(name, shown_ms(layers.tasks[place][tasks.positions[place]])) for place, name in path]
            return below_tasks_because(verdict, [value for value in values if value[0] in self._constraint.tasks])
        if verdict.worst_ms is None or verdict.worst_ms <= verdict.limit_ms:
            return settling_because(self._settling(now_ns))
        return violated_because(verdict)

    def _elements(self, layers: SequenceLayers, worst: WorstSequence, mean: MeanLatency) -> Iterator[ElementLatency]:
        """The latency of each element of the sequence, in order."""
        for place, name in enumerate(self._constraint.path):
            if place:
                edge, layer = self._constraint.edges[place - 1], self._measured.channels[place - 1]
                worst_ms = layers.edges[place - 1][_on(layer, worst, place - 1)]
                waits = 0.0 if self._measured.inside_chains(place - 1).all() else layer.buffers.mean()
                smallest, largest = self._measured.buffer_bytes(place - 1)
                yield ElementLatency(
                    str(edge), shown_ms(mean.edges[place - 1]), shown_ms(worst_ms), waits, 0.0, smallest, largest
                )
            if name in self._constraint.tasks:
                worst_ms = layers.tasks[place][worst.positions[place]]
                row_ms = self._measured.tasks[place].row.mean()
                yield ElementLatency(name, shown_ms(mean.tasks[place]), shown_ms(worst_ms), row_ms=row_ms)

    def _unmeasured(self, layers: SequenceLayers) -> list[str]:
        """The elements of which no task or channel has a value."""
        named = [*zip(self._constraint.path, layers.tasks, strict=True)]
        named += [(str(edge), array) for edge, array in zip(self._constraint.edges, layers.edges, strict=True)]
        return [name for name, array in named if np.isnan(array).all()]


def shown_ms(latency_ms: float) -> float:
    """A latency for a verdict: infinite if the sequence is stalled."""
    return inf if latency_ms >= STALLED_MS else float(latency_ms)


def _on(layer: ChannelLayer, worst: WorstSequence, place: int) -> tuple[int, ...]:
    """Where a layer of channels has that of a sequence."""
    return worst.positions[place : place + len(layer.shape)]
