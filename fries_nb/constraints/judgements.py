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

The reasons of verdicts, in one sentence with the numbers.

>>> from fries_nb.constraints.reactions import ConstraintStatus, ElementLatency
>>> verdict = ConstraintVerdict("FC -> FM", 300.0, 15.0, 0, 0, ConstraintStatus.VIOLATED, "", worst_ms=402.5,
...     worst=(WorkerId("FC", 0), WorkerId("FM", 1)),
...     elements=(ElementLatency("FC", 2.0, 2.5), ElementLatency("FC -> FM", 380.0, 400.0, buffer_ms=350.0)))
>>> violated_because(verdict)
'FC[0] -> FM[1] takes 402.5 ms, at most 300 ms: 400 ms of it at FC -> FM (buffers: 350 ms)'

The verdict on a constraint as a whole, from the verdicts of all hosts that judge a part of it.

>>> verdicts = [
...     ConstraintVerdict("FC -> FM", 300.0, 15.0, host, 0, status, why, mean_ms=mean, worst_ms=worst, rows=rows)
...     for host, status, why, mean, worst, rows in (
...         (0, ConstraintStatus.MET, "it takes 90 ms", 80.0, 90.0, 30.0),
...         (1, ConstraintStatus.VIOLATED, "it takes 400 ms", 380.0, 400.0, 10.0),
...         (2, ConstraintStatus.NOT_YET_JUDGED, "no sample yet of FC", None, None, 0.0))]
>>> whole = combined_verdict(verdicts)
>>> whole.status.value, whole.mean_ms, whole.worst_ms, whole.host
('violated', 155.0, 400.0, 1)
>>> whole.reason
'it takes 400 ms; not yet judged by host 2: no sample yet of FC'
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf

from msgspec.structs import replace

from fries_nb.constraints.reactions import ConstraintStatus, ConstraintVerdict, ElementLatency
from fries_nb.dataflow.constraints import LatencyConstraint
from fries_nb.protocol.messages import WorkerId
from fries_nb.protocol.running_chains import ChainedOperators
from fries_nb.words import duration


def milliseconds(value: float) -> str:
    """A time as text: ``402.5 ms``; ``no end`` if rows are stalled."""
    return duration(value / 1_000)


def path_of(workers: Sequence[WorkerId]) -> str:
    """The workers of a sequence as text."""
    return " -> ".join(map(str, workers))


def met_because(verdict: ConstraintVerdict) -> str:
    """Why a constraint is met."""
    takes = milliseconds(verdict.worst_ms or 0.0)
    return f"the worst sequence, {path_of(verdict.worst)}, takes {takes}, at most {milliseconds(verdict.limit_ms)}"


def violated_because(verdict: ConstraintVerdict) -> str:
    """Why a constraint is violated: the element with the largest share of the worst sequence."""
    latency = verdict.worst_ms or 0.0
    takes = f"{'has' if latency == inf else 'takes'} {milliseconds(latency)}"
    summary = f"{path_of(verdict.worst)} {takes}, at most {milliseconds(verdict.limit_ms)}"
    cause = max(verdict.elements, key=lambda one: one.worst_ms)
    if cause.worst_ms == inf:
        return f"{summary}: rows wait at {cause.element}, and none is taken"
    buffers = f" (buffers: {milliseconds(cause.buffer_ms)})" if cause.buffer_ms else ""
    return f"{summary}: {milliseconds(cause.worst_ms)} of it at {cause.element}{buffers}"


def settling_because(channels: int) -> str:
    """Why a violation still stands."""
    return f"it was violated, and the latency of {channels} channels with smaller buffers is not known yet"


def below_tasks_because(verdict: ConstraintVerdict, tasks: Sequence[tuple[str, float]]) -> str:
    """Why no buffer and no chain can keep a constraint: the tasks of a sequence alone take longer."""
    parts = " + ".join(f"{name} {milliseconds(latency)}" for name, latency in tasks)
    limit, total = milliseconds(verdict.limit_ms), milliseconds(verdict.tasks_ms)
    return f"the limit of {limit} is below the task latencies: {parts} = {total}"


def clocks_because(error_ms: float, limit_ms: float) -> str:
    """Why clocks prevent a judgement."""
    if error_ms == inf:
        return "its hosts are on several machines, and it is not known by how much their clocks differ"
    return (
        f"the clocks of the hosts differ by up to {milliseconds(error_ms)} along the sequence, "
        f"more than a tenth of the limit of {milliseconds(limit_ms)}"
    )


def unmeasured_because(elements: Sequence[str]) -> str:
    """Why nothing can be judged yet."""
    return f"no sample yet of {', '.join(elements)}" if elements else "no sequence has samples of all its elements yet"


@dataclass(frozen=True, slots=True)
class LatencyParts:
    """The mean latency of an element of a sequence by cause, in milliseconds.

    Attributes:
        smallest_bytes, largest_bytes: sizes of the smallest and the largest output buffer of an edge; 0 for an
            operator, and for an edge inside chains.
    """

    element: str  # the operator's name, or the edge as in ``FC -> FM``
    task_ms: float  # time in the operator; 0 for an edge
    buffer_ms: float  # time in output buffers; 0 for an operator
    transport_ms: float  # transport, and waiting in the receiver's queue; 0 for an operator
    worst_ms: float  # latency of the element on the slowest sequence of workers
    smallest_bytes: int = 0
    largest_bytes: int = 0
    chain: str = ""  # the chains to which it belongs, as text; empty without any

    @property
    def mean_ms(self) -> float:
        """The mean latency of the element."""
        return self.task_ms + self.buffer_ms + self.transport_ms


@dataclass(frozen=True, slots=True)
class ConstraintPoint:
    """A judgement of a constraint, for plots."""

    at_s: float  # time of the judgement, in seconds since the Unix epoch
    sequence: str  # the sequence as text
    limit_ms: float  # the limit in milliseconds
    status: ConstraintStatus  # ``met``, ``violated`` or ``not yet judged``
    mean_ms: float | None  # mean latency of a row over the window, in milliseconds; ``None`` if unknown
    # mean latency of the slowest sequence of workers, infinite if it is stalled; ``None`` if unknown
    worst_ms: float | None


@dataclass(frozen=True, slots=True)
class BufferSize:
    """The sizes of an edge's output buffers from a time on, for plots."""

    at_s: float  # time at which they were reported, in seconds since the Unix epoch
    sequence: str  # the sequence as text
    edge: str  # the edge as in ``FC -> FM``
    smallest_bytes: int  # size of the smallest buffer; 0 if all workers of the edge are chained
    largest_bytes: int  # size of the largest buffer; 0 if all workers of the edge are chained


@dataclass(frozen=True)
class ConstraintState:
    """Whether a latency constraint is met, and the measurements."""

    constraint: LatencyConstraint
    status: ConstraintStatus  # ``met``, ``violated`` or ``not yet judged``
    reason: str  # why, in one sentence
    mean_ms: float | None = None  # mean latency of a row over the window, in milliseconds; ``None`` if unknown
    worst_ms: float | None = None  # mean latency of the slowest sequence of workers; ``None`` if unknown
    worst: tuple[WorkerId, ...] = ()  # the workers of that sequence
    elements: tuple[ElementLatency, ...] = ()  # the latency of each operator and edge
    exhausted: bool = False  # whether it is violated and neither buffers nor chains can lower the latency
    violated_windows: int = 0  # number of whole windows for which it has been violated without interruption
    # what its policy has done: whether lighter functions run or are proposed, or why it makes no further change; empty
    # while the original functions run
    remedy: str = ""
    chains: tuple[ChainedOperators, ...] = ()  # the chains in which operators of the sequence run now

    @property
    def parts(self) -> tuple[LatencyParts, ...]:
        """The latency of each element by cause."""
        tasks, edges = set(self.constraint.tasks), {str(edge): edge for edge in self.constraint.edges}
        parts = []
        for element in self.elements:
            edge = edges.get(element.element)
            ends = {element.element} if edge is None else {edge.source, edge.to}
            chain = ", ".join(str(chain) for chain in self.chains if ends.issubset(chain.operators))
            parts.append(_parts(element, element.element in tasks, chain))
        return tuple(parts)

    def point(self, at_s: float) -> ConstraintPoint:
        """The state as a point of a plot at this time."""
        constraint = self.constraint
        return ConstraintPoint(
            at_s, constraint.sequence, constraint.latency_ms, self.status, self.mean_ms, self.worst_ms
        )


def state_of(constraint: LatencyConstraint, verdicts: Sequence[ConstraintVerdict]) -> ConstraintState:
    """The state of a constraint."""
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


def combined_verdict(verdicts: Sequence[ConstraintVerdict]) -> ConstraintVerdict:
    """The verdict on all runtime constraints of one constraint.

    It is violated if a host finds it so, and met if those hosts that can judge find it so; the reason names those that
    cannot, whose workers may just get no rows.

    Returns the verdict: worst sequence and reason of the host on which it is worst, means weighted by rows.
    """
    newest = max(verdict.time_ns for verdict in verdicts)
    judged = [verdict for verdict in verdicts if verdict.status is not ConstraintStatus.NOT_YET_JUDGED]
    if not judged:
        return replace(verdicts[0], time_ns=newest)
    violated = [verdict for verdict in judged if verdict.status is ConstraintStatus.VIOLATED]
    worst = max(violated or judged, key=lambda one: -1.0 if one.worst_ms is None else one.worst_ms)
    measured = [verdict for verdict in judged if verdict.mean_ms is not None]
    return replace(
        worst,
        time_ns=newest,
        reason="; ".join([worst.reason, *(_unjudged(verdict) for verdict in verdicts if verdict not in judged)]),
        mean_ms=_mean(measured, lambda one: one.mean_ms or 0.0) if measured else None,
        elements=tuple(_element(measured, place, element) for place, element in enumerate(worst.elements)),
        rows=sum(sample.rows for sample in measured),
        tasks_ms=max(verdict.tasks_ms for verdict in judged),
        violated_windows=max(verdict.violated_windows for verdict in judged),
        exhausted=bool(violated) and all(verdict.exhausted for verdict in violated),
    )


def _unjudged(verdict: ConstraintVerdict) -> str:
    return f"{ConstraintStatus.NOT_YET_JUDGED.value} by host {verdict.host}: {verdict.reason}"


def _element(measured: Sequence[ConstraintVerdict], place: int, worst: ElementLatency) -> ElementLatency:
    sizes = [sample.elements[place] for sample in measured if sample.elements[place].largest_bytes]
    return replace(
        worst,
        mean_ms=_mean(measured, lambda one: one.elements[place].mean_ms),
        buffer_ms=_mean(measured, lambda one: one.elements[place].buffer_ms),
        row_ms=_mean(measured, lambda one: one.elements[place].row_ms),
        smallest_bytes=min((size.smallest_bytes for size in sizes), default=0),
        largest_bytes=max((size.largest_bytes for size in sizes), default=0),
    )


def _mean(measured: Sequence[ConstraintVerdict], value: Callable[[ConstraintVerdict], float]) -> float:
    """The mean weighted by rows; if no host has counted any, all count alike."""
    rows = [sample.rows for sample in measured]
    weights = rows if any(rows) else [1.0] * len(measured)
    pairs = zip(measured, weights, strict=True)
    return sum(value(one) * weight for one, weight in pairs if weight) / sum(weights)
