"""The states of a run and of what it is made of: each machine is a table of its legal moves, and ``moved`` obeys it.

``TABLES`` names them all. What leads from one state to the next is said where it happens: ``lifecycle`` moves the run,
``membership`` the hosts, ``transactions`` a change, ``commit_attempts`` a commit or checkpoint, the queue of changes
the regions.

>>> moved(CHANGE_MOVES, ChangeState.REQUESTED, ChangeState.PREPARING, "change 'u1'").value
'preparing'
>>> moved(CHANGE_MOVES, ChangeState.REQUESTED, ChangeState.DONE, "change 'u1'")
Traceback (most recent call last):
fries_nb.errors.ProtocolError: change 'u1' is requested and cannot be done; next is aborted, preparing
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, TypeVar

from fries_nb.errors import ProtocolError


class RunState(StrEnum):
    """State of a run."""

    JOINING = "joining"
    """Hosts are awaited for the first time."""
    RUNNING = "running"
    """Tuples flow."""
    DRAINING = "draining"
    """Sources read no more; the run finishes when the last tuple has left."""
    RECOVERING = "recovering"
    """Hosts were lost or sent home; others are awaited in their place."""
    FINISHED = "finished"
    STOPPED = "stopped"
    FAILED = "failed"

    @property
    def over(self) -> bool:
        """Nothing of the run is left to control."""
        return not RUN_MOVES[self]

    @property
    def flows(self) -> bool:
        """All hosts are there, and tuples flow."""
        return self in (RunState.RUNNING, RunState.DRAINING)


class HostState(StrEnum):
    """State of a host in one incarnation of the run."""

    AWAITED = "awaited"
    JOINED = "joined"
    LOST = "lost"


class ChangeState(StrEnum):
    """State of a change; once it is committing, the first fast control message may have switched a worker."""

    REQUESTED = "requested"
    PREPARING = "preparing"
    COMMITTING = "committing"
    DONE = "done"
    ABORTED = "aborted"
    FAILED = "failed"


class CommitPhase(StrEnum):
    """Phase of the commit or checkpoint that is being attempted."""

    IDLE = "idle"
    MARKING = "marking"
    SAVING = "saving"
    KEEPING = "keeping"


class TopologyPhase(StrEnum):
    """Phase of a change of the topology."""

    IDLE = "idle"
    AWAITED = "awaited"
    """It begins when nothing else is under way."""
    ADOPTING = "adopting"


class RegionPhase(StrEnum):
    """Phase of a region: regions run one after another."""

    AHEAD = "ahead"
    STARTING = "starting"
    """What was requested so far applies before its first tuple."""
    RUNNING = "running"
    OVER = "over"


S = TypeVar("S", bound=StrEnum)
Moves = Mapping[S, frozenset[S]]
"""The legal moves of a machine: from each state to those that may come next. A state without any is final."""

_ENDS = frozenset({RunState.STOPPED, RunState.FAILED})
RUN_MOVES: Moves[RunState] = {
    RunState.JOINING: _ENDS | {RunState.RUNNING, RunState.DRAINING, RunState.RECOVERING},
    RunState.RUNNING: _ENDS | {RunState.DRAINING, RunState.RECOVERING, RunState.FINISHED},
    RunState.DRAINING: _ENDS | {RunState.RECOVERING, RunState.FINISHED},
    RunState.RECOVERING: _ENDS | {RunState.RUNNING, RunState.DRAINING, RunState.RECOVERING},
    RunState.FINISHED: frozenset(),
    RunState.STOPPED: frozenset(),
    RunState.FAILED: frozenset(),
}
HOST_MOVES: Moves[HostState] = {
    HostState.AWAITED: frozenset({HostState.JOINED, HostState.LOST}),
    HostState.JOINED: frozenset({HostState.LOST}),
    HostState.LOST: frozenset({HostState.AWAITED}),  # by the next incarnation
}
CHANGE_MOVES: Moves[ChangeState] = {
    ChangeState.REQUESTED: frozenset({ChangeState.PREPARING, ChangeState.ABORTED}),
    ChangeState.PREPARING: frozenset({ChangeState.COMMITTING, ChangeState.ABORTED}),
    ChangeState.COMMITTING: frozenset({ChangeState.DONE, ChangeState.FAILED}),
    ChangeState.DONE: frozenset(),
    ChangeState.ABORTED: frozenset(),
    ChangeState.FAILED: frozenset(),
}
COMMIT_MOVES: Moves[CommitPhase] = {
    CommitPhase.IDLE: frozenset({CommitPhase.MARKING, CommitPhase.KEEPING}),
    CommitPhase.MARKING: frozenset({CommitPhase.SAVING, CommitPhase.IDLE}),
    CommitPhase.SAVING: frozenset({CommitPhase.KEEPING, CommitPhase.IDLE}),
    CommitPhase.KEEPING: frozenset({CommitPhase.IDLE}),
}
REGION_MOVES: Moves[RegionPhase] = {
    RegionPhase.AHEAD: frozenset({RegionPhase.STARTING, RegionPhase.OVER}),
    RegionPhase.STARTING: frozenset({RegionPhase.RUNNING, RegionPhase.OVER}),
    RegionPhase.RUNNING: frozenset({RegionPhase.OVER}),
    RegionPhase.OVER: frozenset(),
}
TOPOLOGY_MOVES: Moves[TopologyPhase] = {
    TopologyPhase.IDLE: frozenset({TopologyPhase.AWAITED}),
    TopologyPhase.AWAITED: frozenset({TopologyPhase.ADOPTING, TopologyPhase.IDLE}),
    TopologyPhase.ADOPTING: frozenset({TopologyPhase.IDLE}),
}
TABLES: Mapping[str, Mapping[Any, frozenset[Any]]] = {
    "a run": RUN_MOVES,
    "a host": HOST_MOVES,
    "a change": CHANGE_MOVES,
    "a checkpoint": COMMIT_MOVES,
    "a region": REGION_MOVES,
    "a change of topology": TOPOLOGY_MOVES,
}
"""Every machine's table; its first state is where it begins."""


def moved(moves: Moves[S], state: S, to: S, what: str) -> S:
    """The state after a legal move.

    Args:
        moves: the table.
        state: the present state.
        to: the next one.
        what: whose state that is, for the message.

    Raises:
        ProtocolError: the table has no such move.
    """
    if to not in moves[state]:
        legal = ", ".join(sorted(moves[state])) or "nothing, it is over"
        raise ProtocolError(f"{what} is {state} and cannot be {to}; next is {legal}")
    return to
