"""The loops of a run as users see them: how far their rows have gone round, what waits, and how they come to an end.

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

from fries_nb.controller.loop_attempts import Loop
from fries_nb.controller.states import LoopPhase
from fries_nb.messages import FeedbackCounts, Report, WorkerId

__all__ = ["FeedbackCounts", "LoopState", "WorkerId", "loop_states"]

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
    """A loop at one moment. Numbers of rows count since the hosts were started last, and are as last reported.

    Attributes:
        name: the loop.
        phase: ``running`` while rows may enter; then ``emptying``, ``asking`` while an attempt finds out whether it is
            empty, ``waiting`` for operators inside that were busy; finally ``ended``. ``not begun`` before the region
            of the loop begins.
        attempts: number of attempts begun; of the change, while one waits until the loop is empty.
        change: id of that change.
        round: the largest round that a row has begun; rows enter in round 0.
        frames: number of frames that have come back to the head.
        rows: number of rows that have come back to the head.
        waiting: number of these rows that wait there.
        spilled: number of their bytes that were moved to disk.
    """

    name: str
    phase: str = NOT_BEGUN
    attempts: int = 0
    change: str = ""
    round: int = 0
    frames: int = 0
    rows: int = 0
    waiting: int = 0
    spilled: int = 0

    @property
    def rounds(self) -> str:
        """The number of rounds in words."""
        return f"{self.round:,} round{'' if self.round == 1 else 's'}"


def loop_states(
    heads: Iterable[str], loops: Mapping[str, Loop], reports: Iterable[Report]
) -> tuple[LoopState, ...]:
    """The states of loops.

    Args:
        heads: the loops, in order.
        loops: head to its loop, as far as its region has begun, or to the attempts of a change that drains it.
        reports: the last report of each worker.
    """
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
        max((one.round for one in counts), default=0),
        sum(one.frames for one in counts),
        sum(one.rows for one in counts),
        sum(one.waiting for one in counts),
        sum(one.spilled for one in counts),
    )
