"""The states of the constraints and of the sources of a run, as users see them.

The state of a run's latency constraints: verdicts of the hosts that judge parts of them, put together.

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

What the sources of a run read, where they are, and how far they are behind: ``run.explain()``.

>>> from fries_nb.dataflow.builder import DataflowBuilder
>>> from fries_nb.dataflow.endpoints import memory, rate
>>> flow = DataflowBuilder("numbers")
>>> out = flow.source("S", rate(1_000)).sink("out", memory())
>>> reading = Reading(("row 7", "row 23"), behind=1_204, behind_ns=2_500_000_000)
>>> report = Report(WorkerId("S", 0), processed=30, queued=0, reading=reading)
>>> Explanation(source_states(flow.graph(workers=1), [report], over=False))
S reads generated rows, 1,000 a second: 30 read, 1,204 behind for 2.5 s
   S[0]: row 7; row 23
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from fries_nb.constraints.judgements import BufferSize, ConstraintPoint, ConstraintState, state_of
from fries_nb.constraints.reactions import ConstraintVerdict
from fries_nb.dataflow.constraints import LatencyConstraint, check_agreement
from fries_nb.dataflow.endpoints import rate_of
from fries_nb.dataflow.graph import Graph
from fries_nb.locks import locked
from fries_nb.protocol.checkpoints import Reading
from fries_nb.protocol.messages import Report, WorkerId
from fries_nb.telemetry.metrics import Growth
from fries_nb.words import counted, duration

KEPT = 2_000
"""Maximum number of verdicts that are kept."""
POINTS_KEPT = 8_000
"""Maximum number of points that are kept for plots."""
_BETWEEN_S = 0.5
"""Verdicts of several hosts within this time become one point."""


class ConstraintStates:
    """The constraints of a run and the verdicts on them; each method is atomic."""

    def __init__(self, constraints: Iterable[LatencyConstraint] = ()) -> None:
        self.lock = threading.RLock()  # held by each method
        # the constraints with which it starts
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
    def become(self, constraints: Iterable[LatencyConstraint]) -> None:
        """Go on with these constraints, and no others."""
        self._constraints = tuple(constraints)

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
        return state_of(constraint, [verdict for (named, _), verdict in self._verdicts.items() if named == sequence])

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


@dataclass(frozen=True)
class SourceState:
    """How far a source is."""

    source: str  # name of the source
    reads: str  # what it reads, as declared
    read: int  # number of rows that were read since the start or the last recovery
    places: dict[str, tuple[str, ...]]  # worker to where the next rows of its splits are
    behind: int | None  # number of rows that are due, or known to be there, and have not been read; ``None`` if unknown
    behind_s: float | None  # seconds for which the oldest of them has waited; ``None`` if unknown
    ended: bool  # whether all of it has been read, or the run is over
    skipped: int = 0  # number of lines that were left out, since they are no rows
    last_skipped: str = ""  # the last of them, and why it is none
    # rows per second at which it is to read, as set or else as declared: 0 if it is paused, ``None`` without a rate
    rate: float | None = None

    def __str__(self) -> str:
        facts = [f"{self.read:,} read"]
        if self.ended:
            facts.append("at its end")
        elif self.behind is not None:
            facts.append(f"{self.behind:,} behind{self._since}" if self.behind else "not behind")
        if self.rate == 0 and not self.ended:
            facts.append("paused")
        if self.skipped:
            facts.append(f"{counted(self.skipped, 'line')} skipped (the last: {self.last_skipped})")
        lines = [f"{self.source} reads {self.reads}: {', '.join(facts)}"]
        lines += [f"   {worker}: {'; '.join(places) or 'nothing yet'}" for worker, places in self.places.items()]
        return "\n".join(lines)

    @property
    def _since(self) -> str:
        return f" for {duration(self.behind_s)}" if self.behind_s is not None else ""


class Explanation:
    """The sources of a run at a moment, states that grow, and what is wrong with it; printed as text."""

    def __init__(self, sources: Iterable[SourceState], error: str = "", growing: Iterable[Growth] = ()) -> None:
        self.sources = tuple(sources)  # the state of each source, in the order of their declaration
        self.growing = tuple(growing)  # the operators whose state grows without a bound in sight
        self.error = error  # what is wrong, as in ``Run.error``; empty if nothing is

    def __repr__(self) -> str:
        return "\n".join([*map(str, self.sources), *map(str, self.growing), *filter(None, [self.error])])


def source_states(
    graph: Graph, reports: Iterable[Report], over: bool, rates: Mapping[str, float] | None = None
) -> tuple[SourceState, ...]:
    """The states of a dataflow's sources, some of which were set to other ``rates`` than declared."""
    found: dict[str, list[Report]] = {name: [] for name in graph.sources}
    for report in reports:
        if report.worker.operator in found:
            found[report.worker.operator].append(report)
    by_worker = {name: sorted(some, key=lambda one: one.worker) for name, some in found.items()}
    found_rates = {name: rate_of(graph.operator(name).function) for name in graph.sources} | dict(rates or {})
    return tuple(
        replace(_state(graph, name, known, over), rate=found_rates[name]) for name, known in by_worker.items()
    )


def lag(state: SourceState, least_s: float) -> str:
    """How far a source is behind, if that is ``least_s`` seconds or more; else empty.

    >>> lag(SourceState("S", "a log", 9, {}, behind=3, behind_s=2.0, ended=False), 1.0)
    'S is 3 rows and 2 s behind'
    """
    if state.ended or state.behind is None or state.behind_s is None or state.behind_s < least_s:
        return ""
    return f"{state.source} is {counted(state.behind, 'row')} and {duration(state.behind_s)} behind"


def _state(graph: Graph, source: str, reports: list[Report], over: bool) -> SourceState:
    readings: dict[WorkerId, Reading] = {one.worker: one.reading for one in reports if one.reading is not None}
    reading = {worker: reading for worker, reading in readings.items() if not reading.ended}
    rows = [reading.behind for reading in readings.values() if reading.behind is not None]
    waited = [reading.behind_ns for reading in readings.values() if reading.behind_ns is not None]
    return SourceState(
        source,
        _described(graph.operator(source).function),
        sum(report.processed for report in reports),
        {str(worker): one.places for worker, one in reading.items()},
        sum(rows) if rows else None,
        max(waited) / 1e9 if waited else None,
        over or bool(reports and not reading),
        sum(reading.skipped for reading in readings.values()),
        next((reading.last_skipped for reading in readings.values() if reading.last_skipped), ""),
    )


def _described(what: object) -> str:
    """A source as text: what it says of itself, or else the name of its class."""
    return str(what) if type(what).__str__ is not object.__str__ else type(what).__name__
