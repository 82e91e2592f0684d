"""The state machines of a run and its parts, each as a table of legal moves that ``transitions.moved`` enforces.

``TABLES`` lists all of them. The moves are made by ``lifecycle`` (the run), ``membership`` (hosts, and the topology),
``transactions`` (changes), ``commits`` (commits and checkpoints), ``loop_attempts`` (loops), ``joining`` (numbers of
hosts), ``moves`` (bins of keyed operators, and splits of sources), ``changes.change_queue`` (regions) and
``constraints.reactions`` (remedies of latency constraints).

>>> from fries_nb.transitions import moved
>>> moved(CHANGE_MOVES, ChangeState.REQUESTED, ChangeState.PREPARING, "change 'u1'").value
'preparing'
>>> moved(CHANGE_MOVES, ChangeState.REQUESTED, ChangeState.DONE, "change 'u1'")
Traceback (most recent call last):
fries_nb.errors.ProtocolError: change 'u1' is requested and cannot be done; next is aborted, preparing
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from fries_nb.constraints.reactions import REMEDY_MOVES
from fries_nb.transitions import Moves


class RunState(StrEnum):
    """State of a run."""

    JOINING = "joining"
    """The first hosts are awaited."""
    RUNNING = "running"
    """Tuples flow."""
    DRAINING = "draining"
    """Sources have been told to end; the run finishes when all tuples are processed."""
    RECOVERING = "recovering"
    """Hosts were lost or dismissed; their replacements are awaited."""
    FINISHED = "finished"
    STOPPED = "stopped"
    FAILED = "failed"

    @property
    def over(self) -> bool:
        """Whether the run has ended."""
        return not RUN_MOVES[self]

    @property
    def flows(self) -> bool:
        """Whether all hosts have joined, so that tuples flow."""
        return self in (RunState.RUNNING, RunState.DRAINING)


class HostState(StrEnum):
    """State of a host in one incarnation of the run."""

    AWAITED = "awaited"
    JOINED = "joined"
    LOST = "lost"


class ChangeState(StrEnum):
    """State of a change; from ``COMMITTING`` on, workers may have switched."""

    REQUESTED = "requested"
    PREPARING = "preparing"
    COMMITTING = "committing"
    DONE = "done"
    ABORTED = "aborted"
    FAILED = "failed"
    REHEARSED = "rehearsed"  # a trial that would have been decided


@dataclass(frozen=True)
class ChangeProgress:
    """How far a change is.

    Attributes:
        state: its state.
        workers: number of workers of its targets.
        prepared: number of these that have prepared it.
        rehearses: whether all have, and it is being rehearsed.
        switched: number of workers that have switched, or had ended before.
    """

    state: ChangeState
    workers: int
    prepared: int = 0
    rehearses: bool = False
    switched: int = 0

    @property
    def begun(self) -> bool:
        """Whether it is being prepared, or is decided."""
        return self.state is not ChangeState.REQUESTED


class CommitPhase(StrEnum):
    """Phase of the commit or checkpoint that is being attempted."""

    IDLE = "idle"
    MARKING = "marking"
    SAVING = "saving"
    KEEPING = "keeping"


class LoopPhase(StrEnum):
    """Phase of a loop in one incarnation of the run."""

    FED = "fed"
    """Rows may still enter it."""
    READY = "ready"
    """All forward input has been taken; an attempt begins when no marker is in flight."""
    ASKING = "asking"
    """The marker of an attempt is in flight."""
    WAITING = "waiting"
    """Nothing moved in the last attempt, and workers were busy; the next one begins when they have settled."""
    ENDING = "ending"
    """The last attempt found it empty, and its heads were told to end."""


class TopologyPhase(StrEnum):
    """Phase of a change of the topology."""

    IDLE = "idle"
    AWAITED = "awaited"
    """Requested; it begins when nothing else is under way."""
    ADOPTING = "adopting"


class ReshapingPhase(StrEnum):
    """Phase of a change of the shape."""

    IDLE = "idle"
    SEPARATING = "separating"
    WIRING = "wiring"
    WIRED = "wired"
    SWITCHING = "switching"
    CLEARING = "clearing"
    WITHDRAWING = "withdrawing"


class RescalePhase(StrEnum):
    """Phase of a request for another number of hosts."""

    IDLE = "idle"
    REQUESTED = "requested"
    """It begins when tuples flow."""
    STARTING = "starting"
    """Spark starts the new hosts; nothing has changed yet."""
    JOINING = "joining"
    """The others get channels to the idle workers of the new hosts, when nothing else is under way."""
    WIDENING = "widening"
    """The new hosts are members, and rows are being routed to their workers."""
    BALANCING = "balancing"
    """Bins of keyed operators are being moved to the new workers."""
    RETRACTING = "retracting"
    """A new host was lost: the channels to all of them are being removed."""
    CLEARING = "clearing"
    """Bins are being moved from the workers of hosts that are to leave to the others."""
    NARROWING = "narrowing"
    """No more rows are routed to the workers of hosts that are to leave."""
    LEAVING = "leaving"
    """Their channels are being removed."""


class BinPhase(StrEnum):
    """Phase of moves of bins, which are made in steps, between which other actions take place."""

    IDLE = "idle"
    WAITING = "waiting"
    """The next step begins when nothing else is in flight."""
    MOVING = "moving"
    """A step is in flight."""


class SplitPhase(StrEnum):
    """Phase of moves of splits, one source after another."""

    IDLE = "idle"
    WAITING = "waiting"
    """The next source's splits move when nothing else is in flight."""
    YIELDING = "yielding"
    """The workers of a source give splits up; from here on they are in no snapshot."""
    ADOPTING = "adopting"
    """The workers that are to read them open them."""


class RegionPhase(StrEnum):
    """Phase of a region: regions run one after another."""

    AHEAD = "ahead"
    STARTING = "starting"
    """Changes requested so far apply before its first tuple."""
    RUNNING = "running"
    OVER = "over"


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
    ChangeState.PREPARING: frozenset({ChangeState.COMMITTING, ChangeState.ABORTED, ChangeState.REHEARSED}),
    ChangeState.COMMITTING: frozenset({ChangeState.DONE, ChangeState.FAILED}),
    ChangeState.DONE: frozenset(),
    ChangeState.ABORTED: frozenset(),
    ChangeState.FAILED: frozenset(),
    ChangeState.REHEARSED: frozenset(),
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
LOOP_MOVES: Moves[LoopPhase] = {
    LoopPhase.FED: frozenset({LoopPhase.READY}),
    LoopPhase.READY: frozenset({LoopPhase.ASKING, LoopPhase.FED}),
    LoopPhase.ASKING: frozenset({LoopPhase.READY, LoopPhase.WAITING, LoopPhase.ENDING, LoopPhase.FED}),
    LoopPhase.WAITING: frozenset({LoopPhase.READY, LoopPhase.FED}),
    LoopPhase.ENDING: frozenset({LoopPhase.FED}),  # FED by the next incarnation
}
TOPOLOGY_MOVES: Moves[TopologyPhase] = {
    TopologyPhase.IDLE: frozenset({TopologyPhase.AWAITED}),
    TopologyPhase.AWAITED: frozenset({TopologyPhase.ADOPTING, TopologyPhase.IDLE}),
    TopologyPhase.ADOPTING: frozenset({TopologyPhase.IDLE}),
}
RESHAPING_MOVES: Moves[ReshapingPhase] = {
    ReshapingPhase.IDLE: frozenset({ReshapingPhase.SEPARATING}),
    ReshapingPhase.SEPARATING: frozenset({ReshapingPhase.WIRING, ReshapingPhase.IDLE}),
    ReshapingPhase.WIRING: frozenset({ReshapingPhase.WIRED, ReshapingPhase.WITHDRAWING, ReshapingPhase.IDLE}),
    ReshapingPhase.WIRED: frozenset({ReshapingPhase.SWITCHING, ReshapingPhase.WITHDRAWING, ReshapingPhase.IDLE}),
    ReshapingPhase.SWITCHING: frozenset({ReshapingPhase.CLEARING, ReshapingPhase.IDLE}),
    ReshapingPhase.CLEARING: frozenset({ReshapingPhase.IDLE}),
    ReshapingPhase.WITHDRAWING: frozenset({ReshapingPhase.IDLE}),
}
RESCALE_MOVES: Moves[RescalePhase] = {
    RescalePhase.IDLE: frozenset({RescalePhase.REQUESTED}),
    RescalePhase.REQUESTED: frozenset(
        {RescalePhase.IDLE, RescalePhase.STARTING, RescalePhase.JOINING, RescalePhase.CLEARING}
    ),
    RescalePhase.STARTING: frozenset({RescalePhase.IDLE, RescalePhase.JOINING}),
    RescalePhase.JOINING: frozenset({RescalePhase.IDLE, RescalePhase.WIDENING, RescalePhase.RETRACTING}),
    RescalePhase.WIDENING: frozenset({RescalePhase.IDLE, RescalePhase.BALANCING}),
    RescalePhase.BALANCING: frozenset({RescalePhase.IDLE}),
    RescalePhase.RETRACTING: frozenset({RescalePhase.IDLE}),
    RescalePhase.CLEARING: frozenset({RescalePhase.IDLE, RescalePhase.NARROWING}),
    RescalePhase.NARROWING: frozenset({RescalePhase.IDLE, RescalePhase.LEAVING}),
    RescalePhase.LEAVING: frozenset({RescalePhase.IDLE, RescalePhase.JOINING}),
}
BIN_MOVES: Moves[BinPhase] = {
    BinPhase.IDLE: frozenset({BinPhase.WAITING}),
    BinPhase.WAITING: frozenset({BinPhase.MOVING, BinPhase.IDLE}),
    BinPhase.MOVING: frozenset({BinPhase.WAITING, BinPhase.IDLE}),
}
SPLIT_MOVES: Moves[SplitPhase] = {
    SplitPhase.IDLE: frozenset({SplitPhase.WAITING}),
    SplitPhase.WAITING: frozenset({SplitPhase.YIELDING, SplitPhase.IDLE}),
    SplitPhase.YIELDING: frozenset({SplitPhase.ADOPTING, SplitPhase.IDLE}),
    SplitPhase.ADOPTING: frozenset({SplitPhase.WAITING, SplitPhase.IDLE}),
}
TABLES: Mapping[str, Mapping[Any, frozenset[Any]]] = {
    "a run": RUN_MOVES,
    "a host": HOST_MOVES,
    "a change": CHANGE_MOVES,
    "a checkpoint": COMMIT_MOVES,
    "a region": REGION_MOVES,
    "a loop": LOOP_MOVES,
    "a change of topology": TOPOLOGY_MOVES,
    "a change of the shape": RESHAPING_MOVES,
    "a rescale": RESCALE_MOVES,
    "moves of bins": BIN_MOVES,
    "moves of splits": SPLIT_MOVES,
    "a remedy": REMEDY_MOVES,
}
"""All tables, by what they describe; the first state of each is the initial one."""
