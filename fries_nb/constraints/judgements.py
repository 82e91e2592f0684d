"""The state of a latency constraint, and its latency by cause.

The latency of an edge is split into the time in output buffers and the rest, which is transport and the queue of the
receiver.

>>> from fries_nb.constraints.reactions import ConstraintStatus, ConstraintVerdict, ElementLatency
>>> constraint = LatencyConstraint(("FC", "FM"), latency_ms=300)
>>> elements = (ElementLatency("FC", 4, 6), ElementLatency("FC -> FM", 100, 130, buffer_ms=90))
>>> verdict = ConstraintVerdict(constraint.sequence, 300, 15, host=0, time_ns=0, status=ConstraintStatus.MET,
...                             reason="", mean_ms=104, worst_ms=136, rows=1, elements=elements)
>>> for parts in state_of(constraint, [verdict]).parts:
...     print(parts.element, parts.task_ms, parts.buffer_ms, parts.transport_ms)
FC 4.0 0.0 0.0
FC -> FM 0.0 90.0 10.0
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fries_nb.constraints.combined_verdict import combined_verdict
from fries_nb.constraints.reactions import ConstraintStatus, ConstraintVerdict, ElementLatency
from fries_nb.dataflow.constraints import LatencyConstraint
from fries_nb.messages import WorkerId
from fries_nb.topology.running_chains import ChainedOperators


@dataclass(frozen=True, slots=True)
class LatencyParts:
    """The mean latency of an element of a sequence by cause, in milliseconds.

    Attributes:
        element: the operator's name, or the edge as in ``FC -> FM``.
        task_ms: time in the operator; 0 for an edge.
        buffer_ms: time in output buffers; 0 for an operator.
        transport_ms: transport, and waiting in the receiver's queue; 0 for an operator.
        worst_ms: latency of the element on the slowest sequence of workers.
        smallest_bytes, largest_bytes: sizes of the smallest and the largest output buffer of an edge; 0 for an
            operator, and for an edge inside chains.
        chain: the chains to which it belongs, as text; empty without any.
    """

    element: str
    task_ms: float
    buffer_ms: float
    transport_ms: float
    worst_ms: float
    smallest_bytes: int = 0
    largest_bytes: int = 0
    chain: str = ""

    @property
    def mean_ms(self) -> float:
        """The mean latency of the element."""
        return self.task_ms + self.buffer_ms + self.transport_ms


@dataclass(frozen=True, slots=True)
class ConstraintPoint:
    """A judgement of a constraint, for plots.

    Attributes:
        at_s: time of the judgement, in seconds since the Unix epoch.
        sequence: the sequence as text.
        limit_ms: the limit in milliseconds.
        status: ``met``, ``violated`` or ``not yet judged``.
        mean_ms: mean latency of a row over the window, in milliseconds; ``None`` if unknown.
        worst_ms: mean latency of the slowest sequence of workers, infinite if it is stalled; ``None`` if unknown.
    """

    at_s: float
    sequence: str
    limit_ms: float
    status: ConstraintStatus
    mean_ms: float | None
    worst_ms: float | None


@dataclass(frozen=True, slots=True)
class BufferSize:
    """The sizes of an edge's output buffers from a time on, for plots.

    Attributes:
        at_s: time at which they were reported, in seconds since the Unix epoch.
        sequence: the sequence as text.
        edge: the edge as in ``FC -> FM``.
        smallest_bytes: size of the smallest buffer; 0 if all workers of the edge are chained.
        largest_bytes: size of the largest buffer; 0 if all workers of the edge are chained.
    """

    at_s: float
    sequence: str
    edge: str
    smallest_bytes: int
    largest_bytes: int


@dataclass(frozen=True)
class ConstraintState:
    """Whether a latency constraint is met, and the measurements.

    Attributes:
        constraint: the constraint.
        status: ``met``, ``violated`` or ``not yet judged``.
        reason: why, in one sentence.
        mean_ms: mean latency of a row over the window, in milliseconds; ``None`` if unknown.
        worst_ms: mean latency of the slowest sequence of workers; ``None`` if unknown.
        worst: the workers of that sequence.
        elements: the latency of each operator and edge.
        exhausted: whether it is violated and neither buffers nor chains can lower the latency.
        violated_windows: number of whole windows for which it has been violated without interruption.
        remedy: what its policy has done: whether lighter functions run or are proposed, or why it makes no further
            change; empty while the original functions run.
        chains: the chains in which operators of the sequence run now.
    """

    constraint: LatencyConstraint
    status: ConstraintStatus
    reason: str
    mean_ms: float | None = None
    worst_ms: float | None = None
    worst: tuple[WorkerId, ...] = ()
    elements: tuple[ElementLatency, ...] = ()
    exhausted: bool = False
    violated_windows: int = 0
    remedy: str = ""
    chains: tuple[ChainedOperators, ...] = ()

    @property
    def parts(self) -> tuple[LatencyParts, ...]:
        """The latency of each element by cause."""
        tasks, edges = set(self.constraint.tasks), {str(edge): edge for edge in self.constraint.edges}
        parts = []
        for one in self.elements:
            edge = edges.get(one.element)
            ends = {one.element} if edge is None else {edge.source, edge.to}
            chain = ", ".join(str(chain) for chain in self.chains if ends.issubset(chain.operators))
            parts.append(_parts(one, one.element in tasks, chain))
        return tuple(parts)

    def point(self, at_s: float) -> ConstraintPoint:
        """The state as a point of a plot at this time."""
        constraint = self.constraint
        return ConstraintPoint(
            at_s, constraint.sequence, constraint.latency_ms, self.status, self.mean_ms, self.worst_ms
        )


def state_of(constraint: LatencyConstraint, verdicts: Sequence[ConstraintVerdict]) -> ConstraintState:
    """The state of a constraint.

    Args:
        constraint: the constraint.
        verdicts: the last verdict of each host that judges a part of it.
    """
    if not verdicts:
        return ConstraintState(constraint, ConstraintStatus.NOT_YET_JUDGED, "no host has reported measurements yet")
    one = combined_verdict(verdicts)
    return ConstraintState(
        constraint, one.status, one.reason, one.mean_ms, one.worst_ms, one.worst, one.elements, one.exhausted,
        one.violated_windows,
    )  # fmt: skip


def _parts(element: ElementLatency, is_task: bool, chain: str) -> LatencyParts:
    if is_task:
        return LatencyParts(element.element, element.mean_ms, 0.0, 0.0, element.worst_ms, chain=chain)
    # The two are means of different samples, so that the part may exceed the whole.
    buffer_ms = min(element.buffer_ms, element.mean_ms)
    return LatencyParts(
        element.element, 0.0, buffer_ms, element.mean_ms - buffer_ms, element.worst_ms, element.smallest_bytes,
        element.largest_bytes, chain,
    )  # fmt: skip
