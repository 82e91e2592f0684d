"""Where a run stands.

    JOINING      hosts are awaited for the first time
    RUNNING      tuples flow
    DRAINING     sources read no more; the run finishes when the last tuple has left
    RECOVERING   hosts were lost or sent home; others are awaited in their place
    FINISHED, STOPPED, FAILED: over
"""

from __future__ import annotations

from enum import StrEnum

from fries_nb.errors import ProtocolError


class RunState(StrEnum):
    """Where a run stands."""

    JOINING = "joining"
    RUNNING = "running"
    DRAINING = "draining"
    RECOVERING = "recovering"
    FINISHED = "finished"
    STOPPED = "stopped"
    FAILED = "failed"

    @property
    def over(self) -> bool:
        """Nothing of the run is left to control."""
        return not MOVES[self]

    @property
    def flows(self) -> bool:
        """All hosts are there, and tuples flow."""
        return self in (RunState.RUNNING, RunState.DRAINING)


_ENDS = frozenset({RunState.STOPPED, RunState.FAILED})
MOVES: dict[RunState, frozenset[RunState]] = {
    RunState.JOINING: _ENDS | {RunState.RUNNING, RunState.DRAINING, RunState.RECOVERING},
    RunState.RUNNING: _ENDS | {RunState.DRAINING, RunState.RECOVERING, RunState.FINISHED},
    RunState.DRAINING: _ENDS | {RunState.RECOVERING, RunState.FINISHED},
    RunState.RECOVERING: _ENDS | {RunState.RUNNING, RunState.DRAINING, RunState.RECOVERING},
    RunState.FINISHED: frozenset(),
    RunState.STOPPED: frozenset(),
    RunState.FAILED: frozenset(),
}
"""The legal moves; every other one raises."""


def moved(state: RunState, to: RunState) -> RunState:
    """The state after a legal move.

    Raises:
        ProtocolError: the table has no such move.
    """
    if to not in MOVES[state]:
        legal = ", ".join(sorted(MOVES[state])) or "nothing, it is over"
        raise ProtocolError(f"a run that is {state} cannot be {to}; next is {legal}")
    return to
