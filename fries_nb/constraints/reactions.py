"""What is done about a violated constraint: instructions to hosts and verdicts, and the last remedy, a change.

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

The last remedy of one latency constraint: a change to lighter functions, and the way back, without oscillation.

Verdicts go in, at most one decision comes out. The remedy is decided after two violated windows that buffers and
chains could not end. The original functions return when the lighter ones have kept the mean below half the limit for
four windows, *and* their own cost, as measured before, would leave room at the present rate. Since a load near the
threshold would still make it alternate, the least time between two flips doubles with each flip, up to 16 minutes. A
change of the same operators by the user, or an automatic change that fails, ends the automatism: only ``TELL`` is
decided from then on.

>>> remedy = Remedy(latency_ms=300, window_s=15, policy=OnViolation.APPLY)
>>> seen = {"exhausted": True, "mean_ms": 900.0, "old_cost_share": 3.0}
>>> remedy.observe(now_s=15, status=ConstraintStatus.VIOLATED, violated_windows=1, **seen)
>>> remedy.observe(now_s=30, status=ConstraintStatus.VIOLATED, violated_windows=2, **seen).value
'apply'
>>> remedy.settled(now_s=31), remedy.phase.value, remedy.dwell_s
(None, 'lighter', 60.0)
>>> calm = {"status": ConstraintStatus.MET, "exhausted": False, "violated_windows": 0, "mean_ms": 100.0}
>>> decisions = {t: remedy.observe(now_s=t, **calm, old_cost_share=0.9 if t < 150 else 0.6) for t in range(32, 151)}
>>> [(t, decision.value) for t, decision in decisions.items() if decision]
[(150, 'return')]
>>> remedy.settled(151, failure="change u2 was aborted: a host was lost"), remedy.phase.value, remedy.reason
(None, 'ended', 'change u2 was aborted: a host was lost')
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from enum import StrEnum

import msgspec
import numpy as np
import numpy.typing as npt

from fries_nb.constraints.sequences import Floats
from fries_nb.dataflow.constraints import OnViolation
from fries_nb.protocol.messages import ChannelId, WorkerId
from fries_nb.protocol.topology import Topology
from fries_nb.transitions import Moves, moved


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


VIOLATED_WINDOWS = 2
"""Number of whole windows of violation before the remedy."""
CALM_WINDOWS = 4
"""Number of windows for which the mean must have been low before the way back."""
CALM_SHARE = 0.5
"""Share of the limit below which a mean is low."""
COST_SHARE = 0.7
"""Share of a worker's time below which the original functions may return."""
SHORTEST_DWELL_S = 60.0
LONGEST_DWELL_S = 960.0


class RemedyPhase(StrEnum):
    """Phase of a remedy."""

    ORIGINAL = "original"
    """The original functions run."""
    PROPOSED = "proposed"
    """The change to the lighter ones awaits the user's consent."""
    APPLYING = "applying"
    LIGHTER = "lighter"
    """The lighter functions run."""
    RETURN_PROPOSED = "return proposed"
    RETURNING = "returning"
    ENDED = "ended"
    """No change is decided any more."""


class RemedyDecision(StrEnum):
    """What is to be done about a constraint."""

    TELL = "tell"
    """Report the violation; decided once a violation."""
    PROPOSE = "propose"
    """Propose the change to the lighter functions."""
    APPLY = "apply"
    PROPOSE_RETURN = "propose return"
    """Propose the change back."""
    RETURN = "return"
    WITHDRAW = "withdraw"
    """Withdraw the open proposal, since its reason has passed."""


_P = RemedyPhase
REMEDY_MOVES: Moves[RemedyPhase] = {
    _P.ORIGINAL: frozenset({_P.PROPOSED, _P.APPLYING, _P.ENDED}),
    _P.PROPOSED: frozenset({_P.APPLYING, _P.ORIGINAL, _P.ENDED}),
    _P.APPLYING: frozenset({_P.LIGHTER, _P.ENDED}),
    _P.LIGHTER: frozenset({_P.RETURN_PROPOSED, _P.RETURNING, _P.ENDED}),
    _P.RETURN_PROPOSED: frozenset({_P.RETURNING, _P.LIGHTER, _P.ENDED}),
    _P.RETURNING: frozenset({_P.ORIGINAL, _P.ENDED}),
    _P.ENDED: frozenset(),
}
_ACCEPTED = {_P.PROPOSED: _P.APPLYING, _P.RETURN_PROPOSED: _P.RETURNING}
_DONE = {_P.APPLYING: _P.LIGHTER, _P.RETURNING: _P.ORIGINAL}
_WITHDRAWN = {_P.PROPOSED: _P.ORIGINAL, _P.RETURN_PROPOSED: _P.LIGHTER}


class Remedy:
    """The remedy of one constraint."""

    def __init__(self, latency_ms: float, window_s: float, policy: OnViolation) -> None:
        self.phase = RemedyPhase.ORIGINAL  # the current phase
        self.reason = ""  # why the automatism has ended; empty before
        self._latency_ms = latency_ms  # the limit in milliseconds
        self._window_s = window_s  # the window in seconds
        self._policy = policy  # whether changes are made, proposed, or neither
        self._flips = 0
        self._flipped_s = 0.0
        self._calm_since_s: float | None = None
        self._is_told = False

    @property
    def dwell_s(self) -> float:
        """Shortest time from the last flip to the next one, in seconds; 0 before the first flip."""
        return min(SHORTEST_DWELL_S * 2 ** (self._flips - 1), LONGEST_DWELL_S) if self._flips else 0.0

    def observe(
        self,
        now_s: float,
        status: ConstraintStatus,
        exhausted: bool,
        violated_windows: int,
        mean_ms: float | None,
        old_cost_share: float,
    ) -> RemedyDecision | None:
        """What is to be done, ``None`` for nothing; a decision other than ``TELL`` also moves the machine."""
        self._note_calm(now_s, status, mean_ms)
        if status is ConstraintStatus.MET:
            self._is_told = False
        is_lasting = exhausted and self._is_lasting(now_s, status, violated_windows)
        if self._is_outdated(status):
            self._move(_WITHDRAWN[self.phase])
            return RemedyDecision.WITHDRAW
        if is_lasting and self.phase is RemedyPhase.ORIGINAL and self._may_flip(now_s):
            return self._remedy()
        if self.phase is RemedyPhase.LIGHTER and self._may_return(now_s, old_cost_share):
            return self._way_back()
        return self._tell() if is_lasting else None

    def accepted(self) -> None:
        """The user accepts the open proposal."""
        self._move(_ACCEPTED.get(self.phase, self.phase))

    def settled(self, now_s: float, failure: str = "") -> None:
        """The change that was decided or accepted has ended."""
        if self.phase is RemedyPhase.ENDED:
            return  # the change under way was begun before the end
        if failure:
            self._end(failure)
            return
        self._move(_DONE.get(self.phase, self.phase))
        self._flips += 1
        self._flipped_s = now_s
        self._calm_since_s = None

    def user_changed(self, what: str) -> None:
        """The user has requested a change of the same operators, which ends the automatism."""
        if self.phase is not RemedyPhase.ENDED:
            self._end(what)

    def _remedy(self) -> RemedyDecision | None:
        match self._policy:
            case OnViolation.APPLY:
                self._move(RemedyPhase.APPLYING)
                return RemedyDecision.APPLY
            case OnViolation.PROPOSE:
                self._move(RemedyPhase.PROPOSED)
                return RemedyDecision.PROPOSE
            case OnViolation.TELL:
                return self._tell()

    def _way_back(self) -> RemedyDecision:
        if self._policy is OnViolation.APPLY:
            self._move(RemedyPhase.RETURNING)
            return RemedyDecision.RETURN
        self._move(RemedyPhase.RETURN_PROPOSED)
        return RemedyDecision.PROPOSE_RETURN

    def _tell(self) -> RemedyDecision | None:
        """Report a violation once, unless a change that may end it is under way or proposed."""
        if self._is_told or self.phase in _DONE or self.phase in _ACCEPTED:
            return None
        self._is_told = True
        return RemedyDecision.TELL

    def _is_outdated(self, status: ConstraintStatus) -> bool:
        """Whether the reason of the open proposal has passed."""
        if self.phase is RemedyPhase.PROPOSED:
            return status is ConstraintStatus.MET
        return self.phase is RemedyPhase.RETURN_PROPOSED and status is ConstraintStatus.VIOLATED

    def _is_lasting(self, now_s: float, status: ConstraintStatus, violated_windows: int) -> bool:
        """Whether it has been violated for long enough, by the functions that run now."""
        running_s = now_s - self._flipped_s if self._flips else float("inf")
        windows = min(violated_windows, running_s / self._window_s)
        return status is ConstraintStatus.VIOLATED and windows >= VIOLATED_WINDOWS

    def _may_flip(self, now_s: float) -> bool:
        return not self._flips or now_s - self._flipped_s >= self.dwell_s

    def _may_return(self, now_s: float, old_cost_share: float) -> bool:
        is_calm = self._calm_since_s is not None and now_s - self._calm_since_s >= CALM_WINDOWS * self._window_s
        return is_calm and old_cost_share < COST_SHARE and self._may_flip(now_s)

    def _note_calm(self, now_s: float, status: ConstraintStatus, mean_ms: float | None) -> None:
        is_low = status is ConstraintStatus.MET and mean_ms is not None and mean_ms < CALM_SHARE * self._latency_ms
        if not is_low:
            self._calm_since_s = None
        elif self._calm_since_s is None:
            self._calm_since_s = now_s

    def _move(self, to: RemedyPhase) -> None:
        self.phase = moved(REMEDY_MOVES, self.phase, to, "the remedy")

    def _end(self, reason: str) -> None:
        self._move(RemedyPhase.ENDED)
        self.reason = reason
