"""The state of a run's latency constraints: verdicts of the hosts that judge parts of them, put together.

>>> from msgspec.structs import replace as changed
>>> from fries_nb.constraints.reactions import ConstraintStatus
>>> constraint = LatencyConstraint(("FC", "FM"), latency_ms=300)
>>> verdict = ConstraintVerdict(constraint.sequence, 300, 15, host=0, time_ns=0, status=ConstraintStatus.MET,
...                             reason="", mean_ms=120, worst_ms=150, rows=1)
>>> other = changed(verdict, host=1, mean_ms=200, worst_ms=310, rows=3,
...                 status=ConstraintStatus.VIOLATED, reason="310 ms on one sequence")
>>> states = ConstraintStates([constraint])
>>> states.judge([verdict, other])
>>> [state] = states.states()
>>> str(state.status), state.mean_ms, state.worst_ms, state.reason
('violated', 180.0, 310, '310 ms on one sequence')
>>> [point.mean_ms for point in states.points()]
[180.0]
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable
from dataclasses import replace

from fries_nb.constraints.judgements import BufferSize, ConstraintPoint, ConstraintState, state_of
from fries_nb.constraints.reactions import ConstraintVerdict
from fries_nb.dataflow.constraints import LatencyConstraint, check_agreement
from fries_nb.locks import locked

KEPT = 2_000
"""Maximum number of verdicts that are kept."""
POINTS_KEPT = 8_000
"""Maximum number of points that are kept for plots."""
_BETWEEN_S = 0.5
"""Verdicts of several hosts within this time become one point."""


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
        self._points: deque[ConstraintPoint] = deque(maxlen=POINTS_KEPT)
        self._sizes: deque[BufferSize] = deque(maxlen=POINTS_KEPT)
        self._newest_sizes: dict[tuple[str, str], BufferSize] = {}

    @locked
    def add(self, constraint: LatencyConstraint) -> tuple[LatencyConstraint, ...]:
        """Add a constraint; returns all of them."""
        self._constraints = check_agreement((*self._constraints, constraint))
        return self._constraints

    @locked
    def judge(self, verdicts: Iterable[ConstraintVerdict]) -> None:
        """Record verdicts; the last one of each host counts."""
        for verdict in verdicts:
            self._verdicts[verdict.sequence, verdict.host] = verdict
            self._history.append(verdict)
            for constraint in self._constraints:
                if constraint.sequence == verdict.sequence:
                    state = self._merged(constraint)
                    self._plot(state.point(verdict.time_ns / 1e9))
                    self._keep_sizes(state, verdict.time_ns / 1e9)

    @locked
    def forget(self) -> None:
        """Discard the verdicts, since the hosts start again."""
        self._verdicts.clear()

    @locked
    def states(self) -> tuple[ConstraintState, ...]:
        """The state of each constraint, in order of declaration."""
        return tuple(map(self._merged, self._constraints))

    @locked
    def history(self) -> tuple[ConstraintVerdict, ...]:
        """The last verdicts of all hosts, oldest first."""
        return tuple(self._history)

    @locked
    def points(self) -> tuple[ConstraintPoint, ...]:
        """The states over time, about one point a second of each constraint, oldest first."""
        return tuple(self._points)

    @locked
    def sizes(self) -> tuple[BufferSize, ...]:
        """The sizes of output buffers over time, oldest first; one of an edge only if they have changed."""
        return tuple(self._sizes)

    def _keep_sizes(self, state: ConstraintState, at_s: float) -> None:
        """Append the sizes that differ from the last ones; before an edge is measured, it has none."""
        sequence, tasks = state.constraint.sequence, set(state.constraint.tasks)
        for element in state.elements:
            last = self._newest_sizes.get((sequence, element.element))
            size = BufferSize(at_s, sequence, element.element, element.smallest_bytes, element.largest_bytes)
            before = last or replace(size, smallest_bytes=0, largest_bytes=0)
            if element.element not in tasks and size != replace(before, at_s=at_s):
                self._newest_sizes[sequence, element.element] = size
                self._sizes.append(size)

    def _merged(self, constraint: LatencyConstraint) -> ConstraintState:
        sequence = constraint.sequence
        return state_of(constraint, [one for (named, _), one in self._verdicts.items() if named == sequence])

    def _plot(self, point: ConstraintPoint) -> None:
        """Append a point; it replaces the last one of its constraint if that is about as old."""
        for place in range(len(self._points) - 1, -1, -1):
            last = self._points[place]
            if point.at_s - last.at_s >= _BETWEEN_S:
                break
            if last.sequence == point.sequence:
                self._points[place] = replace(point, at_s=last.at_s)
                return
        self._points.append(point)
