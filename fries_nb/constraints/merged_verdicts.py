"""The state of a latency constraint: the verdicts of the hosts that judge parts of it, put together.

A constraint is violated if a host says so of any of its sequences, met if all hosts have judged theirs and none is
violated. Means are weighted by rows. The latency of an edge is split into the time in output buffers and
the rest, which is transport and the queue of the receiver.

>>> import msgspec
>>> constraint = LatencyConstraint(("FC", "FM"), latency_ms=300)
>>> verdict = ConstraintVerdict(constraint.sequence, 300, 15, host=0, time_ns=0, status=ConstraintStatus.MET,
...                             reason="", mean_ms=120, worst_ms=150, rows=1,
...                             elements=(ElementLatency("FC -> FM", 100, 130, buffer_ms=90),))
>>> other = msgspec.structs.replace(verdict, host=1, mean_ms=200, worst_ms=310, rows=3,
...                                 status=ConstraintStatus.VIOLATED, reason="310 ms on one sequence")
>>> state = merged(constraint, [verdict, other])
>>> str(state.status), state.mean_ms, state.worst_ms, state.reason
('violated', 180.0, 310, '310 ms on one sequence')
>>> state.parts
(LatencyParts(element='FC -> FM', task_ms=0.0, buffer_ms=90.0, transport_ms=10.0, worst_ms=130),)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fries_nb.constraints.reactions import ConstraintStatus, ConstraintVerdict, ElementLatency
from fries_nb.dataflow.constraints import LatencyConstraint
from fries_nb.messages import WorkerId


@dataclass(frozen=True, slots=True)
class LatencyParts:
    """The mean latency of an element of a sequence by cause, in milliseconds.

    Attributes:
        element: the operator's name, or the edge as in ``FC -> FM``.
        task_ms: time in the operator; 0 for an edge.
        buffer_ms: time in output buffers; 0 for an operator.
        transport_ms: transport, and waiting in the receiver's queue; 0 for an operator.
        worst_ms: latency of the element on the slowest sequence of workers.
    """

    element: str
    task_ms: float
    buffer_ms: float
    transport_ms: float
    worst_ms: float

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

    @property
    def parts(self) -> tuple[LatencyParts, ...]:
        """The latency of each element by cause."""
        tasks = set(self.constraint.tasks)
        return tuple(_parts(one, one.element in tasks) for one in self.elements)

    def point(self, at_s: float) -> ConstraintPoint:
        """The state as a point of a plot at this time."""
        constraint = self.constraint
        return ConstraintPoint(
            at_s, constraint.sequence, constraint.latency_ms, self.status, self.mean_ms, self.worst_ms
        )


def merged(constraint: LatencyConstraint, verdicts: Sequence[ConstraintVerdict]) -> ConstraintState:
    """The state of a constraint.

    Args:
        constraint: the constraint.
        verdicts: the last verdict of each host that judges a part of it.
    """
    if not verdicts:
        return ConstraintState(constraint, ConstraintStatus.NOT_YET_JUDGED, "no host has reported measurements yet")
    by_status = {status: [one for one in verdicts if one.status == status] for status in ConstraintStatus}
    for status in (ConstraintStatus.VIOLATED, ConstraintStatus.NOT_YET_JUDGED, ConstraintStatus.MET):
        if by_status[status]:
            decisive = max(by_status[status], key=lambda one: one.worst_ms or 0.0)
            break
    measured = [one for one in verdicts if one.mean_ms is not None]
    slowest = max(measured, key=lambda one: one.worst_ms or 0.0, default=decisive)
    return ConstraintState(
        constraint,
        decisive.status,
        decisive.reason,
        _mean([(one.mean_ms, one.rows) for one in measured if one.mean_ms is not None]),
        slowest.worst_ms,
        slowest.worst,
        _elements(measured),
        decisive.exhausted,
        max(one.violated_windows for one in verdicts),
    )


def _mean(weighted: Sequence[tuple[float, float]]) -> float | None:
    rows = sum(weight for _, weight in weighted)
    if not weighted:
        return None
    if not rows:
        return weighted[0][0]
    return sum(value * weight for value, weight in weighted if weight) / rows  # infinity times 0 is no number


def _elements(verdicts: Sequence[ConstraintVerdict]) -> tuple[ElementLatency, ...]:
    names = dict.fromkeys(element.element for verdict in verdicts for element in verdict.elements)
    found = []
    for name in names:
        parts = [(one, verdict.rows) for verdict in verdicts for one in verdict.elements if one.element == name]
        mean = _mean([(one.mean_ms, rows) for one, rows in parts]) or 0.0
        buffered = _mean([(one.buffer_ms, rows) for one, rows in parts]) or 0.0
        found.append(ElementLatency(name, mean, max(one.worst_ms for one, _ in parts), buffered))
    return tuple(found)


def _parts(element: ElementLatency, is_task: bool) -> LatencyParts:
    if is_task:
        return LatencyParts(element.element, element.mean_ms, 0.0, 0.0, element.worst_ms)
    # The two are means of different samples, so that the part may exceed the whole.
    buffer_ms = min(element.buffer_ms, element.mean_ms)
    return LatencyParts(element.element, 0.0, buffer_ms, element.mean_ms - buffer_ms, element.worst_ms)
