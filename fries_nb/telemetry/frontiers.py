"""Frontiers of all operators, computed from one host's view of the outstanding pointstamps.

A host's view is safe for every operator, since it consists of whole steps: nothing can arrive before a frontier that is
computed from it. So the frontiers of operators that do not listen are computed on request, and cost nothing while the
dataflow runs. Times are converted here to those that users see: in the core they are integers.

Nothing can arrive at a source, so its own frontier is empty. What it has still to read holds back the frontiers of the
operators below it.

>>> from fries_nb.dataflow.windowing import EventTime
>>> from fries_nb.dataflow.graph import Edge, Graph, Kind, Operator
>>> from fries_nb.progress.progress_graph import GraphLocation
>>> source = Operator("Src", kind=Kind.SOURCE, time=EventTime("at"))
>>> operators = (source, Operator("FM"), Operator("Out", kind=Kind.SINK))
>>> graph = Graph("one", operators, (Edge("Src", "FM"), Edge("FM", "Out")))
>>> counts = (CountChange(GraphLocation("Src"), (0, 40), 1), CountChange(GraphLocation("Src", "FM"), (0, 30), 2))
>>> frontiers = Frontiers(graph, counts)
>>> frontiers.reached()
{'Src': None, 'FM': 30, 'Out': 30}
>>> frontiers.holding("Out")
(TimeHolder(operator='Src', time=30, count=2, to='FM', rounds=()),)
>>> print(*frontiers.holding("Out"))
Src → FM: 2 frames, from 30 on
>>> minutes = Frontiers(graph, [CountChange(GraphLocation("Src"), (0, 60 * 10**9), 1)], values_named("timestamp[us]"))
>>> [operator] = [one for one in minutes.operators() if one.operator == "Out"]
>>> print(operator.time, "|", *operator.holders)
1970-01-01 00:01:00 | Src: 1 token, from 1970-01-01 00:01:00 on

The loops of a run as users see them: how far their rows have gone round, what waits, and how they come to an end.

>>> from fries_nb.protocol.messages import WorkerId
>>> head, loop = WorkerId("L", 0), Loop("L", (), LoopPhase.ASKING, attempts=3)
>>> report = Report(head, 9, 0, feedback=FeedbackCounts(round=7, frames=2, rows=40, waiting=5))
>>> [state] = loop_states(["L"], {"L": loop}, [report])
>>> state.phase, state.attempts, state.round, state.rows, state.waiting
('asking', 3, 7, 40, 5)
>>> state.rounds
'7 rounds'
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from fries_nb.controller.loop_attempts import Loop
from fries_nb.controller.states import LoopPhase
from fries_nb.dataflow.graph import Graph
from fries_nb.operators.timed_calls import TimeValues, values_named
from fries_nb.progress.progress_graph import CountChange, moving
from fries_nb.progress.times import EARLIEST, moment, rounds
from fries_nb.progress.tracker import Tracker
from fries_nb.protocol.messages import FeedbackCounts, Report
from fries_nb.protocol.progress_locations import progress_graph

INTEGERS = values_named("int64")


@dataclass(frozen=True)
class TimeHolder:
    """What keeps an operator's frontier from advancing."""

    operator: str  # the operator that has tokens; for frames on their way, the one that has sent them
    # the time of the tokens, from which on rows may be produced with them; the least time that rows of the frames may
    # have
    time: Any
    count: int  # number of tokens or frames
    to: str = ""  # the receiver of the frames; empty for tokens
    rounds: tuple[int, ...] = ()  # the rounds of the loops around it, outermost first

    @property
    def what(self) -> str:
        """What holds back, without its time."""
        place, unit = (f"{self.operator} → {self.to}", "frame") if self.to else (self.operator, "token")
        inside = "".join(f", round {number}" for number in self.rounds)
        return f"{place}: {self.count:,} {unit}{'' if self.count == 1 else 's'}{inside}"

    def __str__(self) -> str:
        return f"{self.what}, from {time_text(self.time)} on"


@dataclass(frozen=True)
class OperatorFrontier:
    """The frontier of an operator."""

    operator: str
    time: Any  # the least time that can still arrive at its input; ``None`` if nothing can
    holders: tuple[TimeHolder, ...] = ()  # what keeps the frontier from advancing, the earliest first


class Frontiers:
    """The frontiers of all operators of a region at one moment."""

    def __init__(self, graph: Graph, counts: Iterable[CountChange], values: TimeValues = INTEGERS) -> None:
        self._graph = graph
        self._values = values
        # ``counts``: the outstanding pointstamps; those of ``Tracker.least_counts`` suffice. While the shape changes,
        # hosts count in operators that this dataflow has not any more, or not yet.
        tracked = progress_graph(graph)
        here = {*tracked.locations, *map(moving, tracked.loops)}
        self._tracker = Tracker(tracked, graph.by_name, (one for one in counts if one.location in here))

    def reached(self) -> dict[str, Any]:
        """Operator to the least time that can still arrive at its input; ``None`` if nothing can."""
        return {name: self._reached(name) for name in self._graph}

    def holding(self, operator: str) -> tuple[TimeHolder, ...]:
        """What keeps an operator's frontier from advancing, the earliest first; nothing if it is in another region."""
        holders = self._tracker.holders(operator) if operator in self._graph else ()
        return tuple(
            TimeHolder(one.operator, self._values.shown(moment(one.time)), one.count, one.to, rounds(one.time))
            for one in holders
        )

    def operators(self) -> tuple[OperatorFrontier, ...]:
        """The frontiers of all operators at which rows can arrive, in the order of the dataflow."""
        names = [name for name in self._graph.order if not self._graph.by_name[name].traits.is_source]
        return tuple(OperatorFrontier(name, self._reached(name), self.holding(name)) for name in names)

    def _reached(self, name: str) -> Any:
        least = min(map(moment, self._tracker.frontier(name)), default=None)
        return None if least is None else self._values.shown(least)


def time_text(time: Any) -> str:
    """A time as text; times of which nothing is known, since a source has not read a row, are ``the beginning``.

    >>> time_text(7), time_text(datetime(2018, 4, 1, 5, 27, 15)), time_text(EARLIEST)
    ('7', '2018-04-01 05:27:15', 'the beginning')
    >>> time_text(datetime(2018, 4, 1, 5, 59, 59, 999_999))
    '2018-04-01 05:59:59.999'
    """
    if time == EARLIEST or (isinstance(time, datetime) and time.year < _FIRST_YEAR):
        return "the beginning"
    if isinstance(time, datetime):
        return time.isoformat(" ", "milliseconds" if time.microsecond else "seconds")
    return str(time)


_FIRST_YEAR = 1678
"""Times in nanoseconds start in 1677; the first one stands for any time."""


NOT_BEGUN = "not begun"
"""The phase of a loop in a region that has not begun."""
PHASES = {
    LoopPhase.FED: "running",
    LoopPhase.READY: "emptying",
    LoopPhase.ASKING: "asking",
    LoopPhase.WAITING: "waiting",
    LoopPhase.ENDING: "ended",
}
"""The phases in the words of users."""


@dataclass(frozen=True)
class LoopState:
    """A loop at one moment. Numbers of rows count since the hosts were started last, and are as last reported."""

    name: str  # the loop
    # ``running`` while rows may enter; then ``emptying``, ``asking`` while an attempt finds out whether it is empty,
    # ``waiting`` for operators inside that were busy; finally ``ended``. ``not begun`` before the region of the loop
    # begins.
    phase: str = NOT_BEGUN
    attempts: int = 0  # number of attempts begun; of the change, while one waits until the loop is empty
    change: str = ""  # id of that change
    round: int = 0  # the largest round that a row has begun; rows enter in round 0
    frames: int = 0  # number of frames that have come back to the head
    rows: int = 0  # number of rows that have come back to the head
    waiting: int = 0  # number of these rows that wait there
    spilled: int = 0  # number of their bytes that were moved to disk

    @property
    def rounds(self) -> str:
        """The number of rounds in words."""
        return f"{self.round:,} round{'' if self.round == 1 else 's'}"


def loop_states(
    heads: Iterable[str], loops: Mapping[str, Loop], reports: Iterable[Report]
) -> tuple[LoopState, ...]:
    """The states of loops."""
    counted: dict[str, list[FeedbackCounts]] = {}
    for report in reports:
        if report.feedback is not None:
            counted.setdefault(report.worker.operator, []).append(report.feedback)
    return tuple(_state(head, loops.get(head), counted.get(head, [])) for head in heads)


def _state(head: str, loop: Loop | None, counts: list[FeedbackCounts]) -> LoopState:
    change = "" if loop is None or loop.name == head else loop.name
    is_fed = loop is not None and loop.phase is LoopPhase.FED
    phase = NOT_BEGUN if loop is None else PHASES[LoopPhase.READY if change and is_fed else loop.phase]
    return LoopState(
        head,
        phase,
        0 if loop is None else loop.attempts,
        change,
        max((count.round for count in counts), default=0),
        sum(count.frames for count in counts),
        sum(count.rows for count in counts),
        sum(count.waiting for count in counts),
        sum(count.spilled for count in counts),
    )
