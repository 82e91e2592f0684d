"""The events and instructions of the controller: frozen values, without behaviour.

Events of a host or a worker may carry the ``incarnation`` that they come from; those of an older one are ignored.
Without it (0) they come from the current one.

The caller carries the instructions of one event out in their order. That order is part of the meaning: a ``Journal`` is
on disk before anything after it is sent, and messages to one worker arrive in the order in which they are given.
Results of instructions (``Journaled``, ``CheckpointKept``) are events of their own, after all of them; see
``controller.EventQueue``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from fries_nb.checkpoints import Checkpoint, CommittedChange, Restoration
from fries_nb.controller.topology_events import ChangeTopology as ChangeTopology
from fries_nb.controller.topology_events import TopologyChanged as TopologyChanged
from fries_nb.controller.topology_events import TopologyRefused as TopologyRefused
from fries_nb.controller.topology_events import TopologyRequested as TopologyRequested
from fries_nb.messages import Answer, Control, Paused, WorkerId
from fries_nb.scheduling.stages import Plan

# ---- events


@dataclass(frozen=True, slots=True)
class HostJoined:
    """A host said hello and can be reached by its peers at ``address``."""

    host: int
    address: str
    incarnation: int


@dataclass(frozen=True, slots=True)
class HostLost:
    """The network or Spark reports that a host is gone; ``reason`` goes into the sentence that the user reads."""

    host: int
    reason: str
    incarnation: int = 0


@dataclass(frozen=True, slots=True)
class HostsUnfit:
    """Hosts cannot run where they are started, for a ``reason`` that no restart heals: a package is missing, say."""

    reason: str
    details: str = ""


@dataclass(frozen=True, slots=True)
class HostLeft:
    """A host said goodbye; before the run is over that is a loss."""

    host: int
    incarnation: int = 0


@dataclass(frozen=True, slots=True)
class Answered:
    """A worker said something."""

    answer: Answer
    incarnation: int = 0


@dataclass(frozen=True, slots=True)
class Guard:
    """A change is rolled back by itself if its new configuration fails within a time, or a number of tuples.

    Attributes:
        plan: of the rollback.
        back: no state is transformed, or it is known how to transform it back, so that workers can go back in place.
        seconds: how long it lasts from the last worker's switch on; ``None``: as long as ``tuples`` say.
        tuples: how many tuples each target operator has to process, all its workers together, as they report.
    """

    plan: Plan
    back: bool
    seconds: float | None = None
    tuples: int | None = None


@dataclass(frozen=True, slots=True)
class ChangeRequested:
    """The user asks for a change.

    Attributes:
        change: its id, new for every change of the run.
        plan: what a scheduler made of it.
        payloads: for each target the cloudpickled ``fries_nb.Update``.
        rehearse: the targets below no other one: on tuples that came to them lately the change is rehearsed.
        transforms: the targets whose state the change transforms.
        guard: what becomes of it if its new configuration fails; ``None``: the operators' own policies say.
        undoes: the change that it rolls back, or empty; if that one's guard fires first, it has no effect.
    """

    change: str
    plan: Plan
    payloads: Mapping[str, bytes]
    rehearse: frozenset[str] = frozenset()
    transforms: frozenset[str] = frozenset()
    guard: Guard | None = None
    undoes: str = ""


@dataclass(frozen=True, slots=True)
class Journaled:
    """The ``Journal`` entry of this change is on disk since ``at_ns``, by the controller's clock.

    The instructions behind the entry were carried out from then on, the first FCM among them.
    """

    change: str
    at_ns: int


@dataclass(frozen=True, slots=True)
class CheckpointRequested:
    """The user asks for a checkpoint now; ``request`` is an id under which the answer will come."""

    request: str


@dataclass(frozen=True, slots=True)
class CheckpointKept:
    """The record that ``KeepCheckpoint`` named is on disk, or is not, for a ``reason``."""

    epoch: int
    reason: str = ""


@dataclass(frozen=True, slots=True)
class RateRequested:
    """The source ``operator`` shall emit ``rate`` tuples per second in all; 0 pauses it."""

    operator: str
    rate: float


@dataclass(frozen=True, slots=True)
class DrainRequested:
    """End the sources, but for those ``spared``; the run finishes when the last tuple has left."""

    spared: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class ColumnRefused:
    """What this sink's workers have written cannot be committed together: they have this column in two types.

    ``columns`` are the target's, as a serialized Arrow schema; ``error`` says it in words.
    """

    sink: str
    column: str
    columns: bytes
    error: str


@dataclass(frozen=True, slots=True)
class StopRequested:
    """End the run now."""


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed."""


Event = (
    HostJoined
    | HostLost
    | HostsUnfit
    | HostLeft
    | Answered
    | ChangeRequested
    | TopologyRequested
    | Journaled
    | CheckpointRequested
    | CheckpointKept
    | RateRequested
    | DrainRequested
    | ColumnRefused
    | StopRequested
    | Tick
)

# ---- instructions


@dataclass(frozen=True, slots=True)
class Admit:
    """All hosts are there: start the dataflow on them. ``peers`` maps hosts to addresses."""

    peers: dict[int, str]


@dataclass(frozen=True, slots=True)
class RefuseHost:
    """Turn away the host that has just said hello."""

    host: int
    reason: str


@dataclass(frozen=True, slots=True)
class Tell:
    """Send this on the worker's control lane."""

    worker: WorkerId
    control: Control


@dataclass(frozen=True, slots=True)
class Journal:
    """A decision; on disk before the instructions after it are carried out."""

    decided: CommittedChange


@dataclass(frozen=True, slots=True)
class WorkerOutcome:
    """How a change went at one target worker.

    Attributes:
        delay_ms: from the request to this worker's ``Done``.
        old_tuples: tuples that it processed by the old function since the change was prepared.
        ended: it had ended before the change reached it, and never switched.
    """

    delay_ms: float
    old_tuples: int = 0
    ended: bool = False


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a change ended.

    Attributes:
        outcome: ``done``; ``aborted``, and nothing changed anywhere; ``failed`` after the decision; or ``rolled_back``
            by its guard after it was done.
        error: one sentence, empty when done; ``details`` is the traceback from the user's frame on, if there is one.
        prepare_ms: from the first ``Prepare`` sent to the last ``Prepared``, or to the abort; 0 if it was not begun.
        commit_ms: from the decision on disk, when the first FCM leaves, to the last target's ``Done``; 0 unless done.
        delay_ms: from the request, or from when tuples flow, to the last target's ``Done``; 0 unless done.
        waited_ms: from the request until tuples flowed, which is no part of ``delay_ms``.
        components: the operators of each component of the plan, in the order of declaration.
        per_worker: the target workers that have acknowledged.
        before: the change that was under way and is ordered behind this one, whose function its operator runs in the
            end: a fix of the version in which the failing tuple was; empty otherwise.
        rehearsal: on what the change was rehearsed and how far that reached, or why it was not, in words.
    """

    change: str
    scheduler: str
    outcome: Literal["done", "aborted", "failed", "rolled_back"]
    error: str = ""
    details: str = ""
    prepare_ms: float = 0.0
    commit_ms: float = 0.0
    delay_ms: float = 0.0
    waited_ms: float = 0.0
    components: tuple[tuple[str, ...], ...] = ()
    per_worker: dict[WorkerId, WorkerOutcome] = field(default_factory=dict)
    before: str = ""
    rehearsal: str = ""


@dataclass(frozen=True, slots=True)
class Resolved:
    """A change has ended; said once for every change."""

    outcome: Outcome


@dataclass(frozen=True, slots=True)
class GuardFired:
    """The guard of a change has decided to roll it back, since its new configuration failed; ``GuardEnded`` follows."""

    change: str
    error: str


@dataclass(frozen=True, slots=True)
class GuardEnded:
    """The guard of a change that was decided is over; said once for each.

    Attributes:
        change: its id.
        reason: why, in words.
        rolled_back: the new configuration failed (``error``, ``details``), and the old one runs again.
    """

    change: str
    reason: str
    rolled_back: bool = False
    error: str = ""
    details: str = ""


@dataclass(frozen=True, slots=True)
class CommitFiles:
    """Make these files part of the output, all or none; they are the epoch's, by sink."""

    epoch: int
    files: dict[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class KeepCheckpoint:
    """Write this record durably, whole or not at all, then say ``CheckpointKept``; before that nothing of it counts."""

    record: Checkpoint


@dataclass(frozen=True, slots=True)
class CheckpointEnded:
    """A checkpoint is complete, or was aborted for a ``reason``; ``requests`` are those that it answers."""

    epoch: int
    requests: tuple[str, ...] = ()
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Recover:
    """Send all hosts home and start as many again, as ``incarnation``; their workers start from ``restoration``.

    ``reason`` is why: a host was lost, or a change is carried out by a restart.
    """

    incarnation: int
    restoration: Restoration
    reason: str


@dataclass(frozen=True, slots=True)
class OperatorPaused:
    """Workers of this operator are paused on tuples that it fails on; empty ``paused``: they go on."""

    operator: str
    paused: tuple[Paused, ...] = ()


@dataclass(frozen=True, slots=True)
class DismissHosts:
    """Send all hosts home."""

    reason: str


@dataclass(frozen=True, slots=True)
class RunEnded:
    """The run is over; what follows answers what was still asked: ``RefuseHost``, ``Resolved``, ``CheckpointEnded``.

    ``CommitFiles`` may follow for a record that was being written at the end: on disk it has decided.
    """

    state: Literal["finished", "stopped", "failed"]
    error: str = ""
    details: str = ""


Instruction = (
    Admit
    | RefuseHost
    | Tell
    | ChangeTopology
    | TopologyChanged
    | TopologyRefused
    | Journal
    | Resolved
    | GuardFired
    | GuardEnded
    | CommitFiles
    | KeepCheckpoint
    | CheckpointEnded
    | Recover
    | OperatorPaused
    | DismissHosts
    | RunEnded
)
