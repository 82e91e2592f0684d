"""The state of a run's latency constraints: verdicts of the hosts that judge parts of them, put together.

>>> from msgspec.structs import replace
>>> constraint = LatencyConstraint(("FC", "FM"), latency_ms=300)
>>> verdict = ConstraintVerdict(constraint.sequence, 300, 15, host=0, time_ns=0, status=ConstraintStatus.MET,
...                             reason="", mean_ms=120, worst_ms=150, rows=1)
>>> other = replace(verdict, host=1, mean_ms=200, worst_ms=310, rows=3,
...                 status=ConstraintStatus.VIOLATED, reason="310 ms on one sequence")
>>> states = ConstraintStates([constraint])
>>> states.judge([verdict, other])
>>> [state] = states.states()
>>> str(state.status), state.mean_ms, state.worst_ms, state.reason
('violated', 180.0, 310, '310 ms on one sequence')
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from fries_nb.constraints.combined_verdict import combined_verdict
from fries_nb.constraints.reactions import ConstraintStatus, ConstraintVerdict, ElementLatency
from fries_nb.dataflow.constraints import LatencyConstraint, check_agreement
from fries_nb.messages import WorkerId
from fries_nb.running.locks import locked

KEPT = 2_000
"""Maximum number of verdicts that are kept for plots."""


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


class ConstraintStates:
    """The constraints of a run and the verdicts on them; each method is atomic.

    Args:
        constraints: the constraints with which it starts.

    Attributes:
        lock: held by each method.
    """

    def __init__(self, constraints: Iterable[LatencyConstraint] = ()) -> None:
        self.lock = threading.RLock()
        self._constraints = tuple(constraints)
        self._verdicts: dict[tuple[str, int], ConstraintVerdict] = {}
        self._history: deque[ConstraintVerdict] = deque(maxlen=KEPT)

    @locked
    def add(self, constraint: LatencyConstraint) -> tuple[LatencyConstraint, ...]:
        """Add a constraint; returns all of them.

        Raises:
            DataflowError: it contradicts another one.
        """
        self._constraints = check_agreement((*self._constraints, constraint))
        return self._constraints

    @locked
    def judge(self, verdicts: Iterable[ConstraintVerdict]) -> None:
        """Record verdicts; the last one of each host counts."""
        for verdict in verdicts:
            self._verdicts[verdict.sequence, verdict.host] = verdict
            self._history.append(verdict)

    @locked
    def forget(self) -> None:
        """Discard the verdicts, since the hosts start again."""
        self._verdicts.clear()

    @locked
    def states(self) -> tuple[ConstraintState, ...]:
        """The state of each constraint, in order of declaration."""
        return tuple(
            state_of(one, [verdict for (sequence, _), verdict in self._verdicts.items() if sequence == one.sequence])
            for one in self._constraints
        )

    @locked
    def history(self) -> tuple[ConstraintVerdict, ...]:
        """The last verdicts of all hosts, oldest first."""
        return tuple(self._history)
