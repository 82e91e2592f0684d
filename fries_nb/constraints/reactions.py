"""The output of a constraint's monitor: instructions to hosts, and verdicts.

>>> from fries_nb.protocol.messages import WorkerId
>>> resize = ResizeBuffer(ChannelId(WorkerId("FC", 0), WorkerId("FM", 1)), size=11_932, version=0)
>>> msgspec.msgpack.decode(msgspec.msgpack.encode(resize), type=Reaction) == resize
True

The sizes of output buffers, from the time that rows wait in them (Nephele Streaming, section 3.5.1).

A buffer on a sequence above its limit shrinks by formula (2), size * r ** waiting time, if rows wait in it for longer
than a threshold and than in its sender's task. A buffer in which rows hardly wait, so that it costs throughput and
gains no latency, grows by formula (3), size * s. Between the two thresholds it stays as it is.

Corrections of the paper. The exponent is bounded: at a waiting time of a second, formula (2) falls to the floor in one
look, and formula (3) needs 53 looks back. Only while all sequences through a channel have a fifth of their limit to
spare does its buffer grow, or the two formulas would follow each other for ever. The waiting time is measured exactly
instead of as half the life of a buffer, which presumes that rows arrive evenly.

>>> sizes, waits, senders = np.array([32_768, 32_768, 1_000]), np.array([20.0, 900.0, 0.5]), np.zeros(3)
>>> resized(sizes, waits, senders, through=np.array([400.0, 400.0, 100.0]), limit_ms=300, window_s=15).tolist()
[21876, 11933, 1100]

The series of a sequence's tasks that could run as one chain (Nephele Streaming, section 3.5.2).

Tasks of a series run on one host, are connected by channels that are the only ones between their operators' workers,
and together use less than a share of a core. Operators that are chained already belong to a series as a whole or not at
all, since the processor time of operators outside the sequence is unknown.

>>> path = [WorkerId(name, 0) for name in ("A", "B", "C", "D")]
>>> chains = [("A", "B"), ("A", "B"), ("C",), ("D",)]
>>> longest_series(path, joinable=[True, True, True], chains=chains, processor=[0.2, 0.2, 0.3, 0.4])
ChainOperators(operators=('A', 'B', 'C'), index=0)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from enum import StrEnum

import msgspec
import numpy as np
import numpy.typing as npt

from fries_nb.constraints.sequences import Floats
from fries_nb.protocol.messages import ChannelId, WorkerId
from fries_nb.protocol.topology import Topology


class ResizeBuffer(msgspec.Struct, frozen=True, tag=True):
    """Change the size of an output buffer, unless its size has changed in the meantime (compare and set)."""

    channel: ChannelId
    size: int  # the new size in bytes
    # the version of the size on which the decision is based. The sender applies the change only if this is still the
    # version, and then raises it by one.
    version: int


class ChainOperators(msgspec.Struct, frozen=True, tag=True):
    """Fuse worker ``index`` of these adjacent operators into one chain, on the host that runs them all."""

    operators: tuple[str, ...]  # names of the operators in order; some of them may already be chained
    index: int  # index of the parallel instance


class ConstraintStatus(StrEnum):
    """Whether a constraint is kept."""

    MET = "met"
    VIOLATED = "violated"
    NOT_YET_JUDGED = "not yet judged"


class ElementLatency(msgspec.Struct, frozen=True, tag=True):
    """The latency of one element of a sequence, in milliseconds.

    Attributes:
        buffer_ms: mean waiting time in the output buffers of an edge, which ``mean_ms`` includes; 0 for an
            operator.
        row_ms: time of a worker for each row that an operator takes in, with all operators of its chain; 0 for an
            edge, or if it is unknown.
        smallest_bytes, largest_bytes: sizes of the smallest and the largest output buffer of an edge; 0 for an
            operator, and for an edge inside chains.
    """

    element: str  # the operator's name, or the edge as in ``FC -> FM``
    mean_ms: float  # mean over all rows
    worst_ms: float  # that on the worst sequence
    buffer_ms: float = 0.0
    row_ms: float = 0.0
    smallest_bytes: int = 0
    largest_bytes: int = 0


class ConstraintVerdict(msgspec.Struct, frozen=True, tag=True):
    """The judgement on the runtime constraints of one allocation."""

    sequence: str  # the sequence as text
    limit_ms: float  # the limit in milliseconds
    window_s: float  # the window in seconds
    host: int  # the host that judged
    time_ns: int  # time of the judgement
    status: ConstraintStatus  # whether the latency of every sequence that can be judged is within the limit
    reason: str  # why, in one sentence with the numbers
    mean_ms: float | None = None  # mean latency of a row over all sequences; ``None`` if unknown
    worst_ms: float | None = None  # mean latency of the worst sequence, infinite if it is stalled; ``None`` if unknown
    worst: tuple[WorkerId, ...] = ()  # the workers of the worst sequence
    elements: tuple[ElementLatency, ...] = ()  # the latency of each element
    rows: float = 0.0  # number of rows that ``mean_ms`` stands for, to weight it among hosts
    tasks_ms: float = 0.0  # largest sum of task latencies of a sequence, which no buffer and no chain lowers
    violated_windows: int = 0  # number of whole windows for which it has been violated without interruption
    exhausted: bool = False  # whether it is violated and neither buffers nor chains can lower the latency further


Reaction = ResizeBuffer | ChainOperators | ConstraintVerdict


Sizes = npt.NDArray[np.int64]

START_BYTES = 32 << 10
"""Size of a buffer at first."""
FLOOR_BYTES, CEILING_BYTES = 200, 64 << 10
"""Bounds of the size; half a window's bytes are another upper one."""
SHRINKING, LONGEST_MS = 0.98, 50.0
"""Base of formula (2), and the bound of its exponent in milliseconds."""
GROWTH = 1.1
"""Factor of formula (3)."""
THRESHOLD_MS = 5.0
"""Waiting time above which a buffer may shrink, and below which it may grow."""
SPARE = 0.8
"""Share of the limit up to which buffers may grow."""


def resized(sizes: Sizes, waits: Floats, sender_ms: Floats, through: Floats, limit_ms: float, window_s: float) -> Sizes:
    """The new sizes of buffers, equal to the present ones where nothing is to change."""
    bound = ceilings(sizes, waits, window_s)
    shrinks = (through > limit_ms) & (waits > np.maximum(THRESHOLD_MS, sender_ms))
    grows = (through <= SPARE * limit_ms) & np.isfinite(through) & (waits < THRESHOLD_MS)
    smaller = np.minimum(bound, sizes * SHRINKING ** np.minimum(np.nan_to_num(waits), LONGEST_MS))
    larger = np.maximum(sizes, np.minimum(bound, sizes * GROWTH))
    found = np.where(shrinks, np.maximum(FLOOR_BYTES, smaller), np.where(grows, larger, sizes))
    return found.astype(np.int64)


def ceilings(sizes: Sizes, waits: Floats, window_s: float) -> Floats:
    """The largest sensible size of each buffer: one that is full within half a window.

    The time to fill a buffer is estimated as twice the mean waiting time.

    Returns the sizes, at least ``FLOOR_BYTES`` and at most ``CEILING_BYTES``.
    """
    filling_ms = 2 * np.nan_to_num(waits)
    fitting = np.full(sizes.shape, float(CEILING_BYTES))
    np.divide(sizes * (window_s * 500.0), filling_ms, out=fitting, where=filling_ms > 0)
    bounded: Floats = np.clip(fitting, FLOOR_BYTES, CEILING_BYTES)
    return bounded


MOST_PROCESSOR = 0.9
"""Share of a core that the tasks of a chain use together at most."""


class ChainRules:
    """Which workers may be neighbours in a chain: those that a topology with chaining would chain, on one host."""

    def __init__(self, topology: Topology) -> None:
        self._topology = topology  # the workers and their hosts, with chaining or without
        self._groups = {name: chain for chain in replace(topology, chaining=True).chains for name in chain}

    def are_joinable(self, sender: WorkerId, receiver: WorkerId) -> bool:
        """Whether two workers that are neighbours on a sequence may be chained."""
        return (
            sender.index == receiver.index
            and receiver.operator in self._groups[sender.operator]
            and self._topology.host_of(sender) == self._topology.host_of(receiver)
        )


def longest_series(
    path: Sequence[WorkerId],
    joinable: Sequence[bool],
    chains: Sequence[tuple[str, ...]],
    processor: Sequence[float],
) -> ChainOperators | None:
    """The longest series that is not one chain yet, of equal ones the first; ``None`` if there is none."""
    for length in range(len(path), 1, -1):
        for start in range(len(path) - length + 1):
            end = start + length
            names = tuple(worker.operator for worker in path[start:end])
            inside = set(names).issuperset(name for chain in chains[start:end] for name in chain)
            is_chained = chains[start] == names
            # A sum with an unknown one is NaN, and not below the bound.
            is_light = sum(processor[start:end]) < MOST_PROCESSOR
            if all(joinable[start : end - 1]) and inside and is_light and not is_chained:
                return ChainOperators(names, path[start].index)
    return None
