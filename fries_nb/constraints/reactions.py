"""The output of a constraint's monitor: instructions to hosts, and verdicts.

>>> from fries_nb.messages import WorkerId
>>> resize = ResizeBuffer(ChannelId(WorkerId("FC", 0), WorkerId("FM", 1)), size=11_932, version=0)
>>> msgspec.msgpack.decode(msgspec.msgpack.encode(resize), type=Reaction) == resize
True
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from fries_nb.messages import ChannelId, WorkerId


class ResizeBuffer(msgspec.Struct, frozen=True, tag=True):
    """Change the size of an output buffer, unless its size has changed in the meantime (compare and set).

    Attributes:
        channel: the channel.
        size: the new size in bytes.
        version: the version of the size on which the decision is based. The sender applies the change only if this is
            still the version, and then raises it by one.
    """

    channel: ChannelId
    size: int
    version: int


class ChainOperators(msgspec.Struct, frozen=True, tag=True):
    """Fuse worker ``index`` of these adjacent operators into one chain, on the host that runs them all.

    Attributes:
        operators: names of the operators in order; some of them may already be chained.
        index: index of the parallel instance.
    """

    operators: tuple[str, ...]
    index: int


class ConstraintStatus(StrEnum):
    """Whether a constraint is kept."""

    MET = "met"
    VIOLATED = "violated"
    NOT_YET_JUDGED = "not yet judged"


class ElementLatency(msgspec.Struct, frozen=True, tag=True):
    """The latency of one element of a sequence, in milliseconds.

    Attributes:
        element: the operator's name, or the edge as in ``FC -> FM``.
        mean_ms: mean over all rows.
        worst_ms: that on the worst sequence.
        buffer_ms: mean waiting time in the output buffers of an edge, which ``mean_ms`` includes; 0 for an operator.
        row_ms: time of a worker for each row that an operator takes in, with all operators of its chain; 0 for an edge,
            or if it is unknown.
        smallest_bytes, largest_bytes: sizes of the smallest and the largest output buffer of an edge; 0 for an
            operator, and for an edge inside chains.
    """

    element: str
    mean_ms: float
    worst_ms: float
    buffer_ms: float = 0.0
    row_ms: float = 0.0
    smallest_bytes: int = 0
    largest_bytes: int = 0


class ConstraintVerdict(msgspec.Struct, frozen=True, tag=True):
    """The judgement on the runtime constraints of one allocation.

    Attributes:
        sequence: the sequence as text.
        limit_ms: the limit in milliseconds.
        window_s: the window in seconds.
        host: the host that judged.
        time_ns: time of the judgement.
        status: whether the latency of every sequence that can be judged is within the limit.
        reason: why, in one sentence with the numbers.
        mean_ms: mean latency of a row over all sequences; ``None`` if unknown.
        worst_ms: mean latency of the worst sequence, infinite if it is stalled; ``None`` if unknown.
        worst: the workers of the worst sequence.
        elements: the latency of each element.
        rows: number of rows that ``mean_ms`` stands for, to weight it among hosts.
        tasks_ms: largest sum of task latencies of a sequence, which no buffer and no chain lowers.
        violated_windows: number of whole windows for which it has been violated without interruption.
        exhausted: whether it is violated and neither buffers nor chains can lower the latency further.
    """

    sequence: str
    limit_ms: float
    window_s: float
    host: int
    time_ns: int
    status: ConstraintStatus
    reason: str
    mean_ms: float | None = None
    worst_ms: float | None = None
    worst: tuple[WorkerId, ...] = ()
    elements: tuple[ElementLatency, ...] = ()
    rows: float = 0.0
    tasks_ms: float = 0.0
    violated_windows: int = 0
    exhausted: bool = False


Reaction = ResizeBuffer | ChainOperators | ConstraintVerdict
