"""The events and instructions of the controller, as frozen values.

Events of a host or a worker may carry the ``incarnation`` of their sender; those of an older one are ignored, and 0
means the current one.

The caller carries out the instructions of one event in order: a ``Journal`` entry is on disk before anything after it
is sent, and messages to one worker arrive in the given order. Results of instructions (``Journaled``,
``CheckpointKept``) are separate events, after all of them; see ``controller.EventQueue``.

Hosts that join or leave while the run goes on: on ``RescaleRequested`` follow, by way of ``joining``,

    new hosts                 StartHosts
    changes of the topology   ChangeTopology; TopologyChanged, or TopologyRefused
    moves of splits           a marker and AdoptSplits for each source; SplitsMoved
    moves of bins             markers, some bins each; BinsMoved
    the end                   ReleaseHosts of hosts that leave, or did not join; RescaleEnded
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from fries_nb.dataflow.graph import Graph
from fries_nb.planning.schedulers import Plan
from fries_nb.protocol.checkpoints import Checkpoint, CommittedChange, ParkedOperator, Restoration
from fries_nb.protocol.messages import Answer, Control, Paused, RequeuedRow, WorkerId
from fries_nb.protocol.partitioning import RoutingTable
from fries_nb.protocol.topology import Topology

STEP_MS = 25
"""Milliseconds in which the state of a step is to be pickled and unpickled."""


@dataclass(frozen=True, slots=True)
class StepRequest:
    """A step of a rescale that one coordinator requests of another; an event only where one was added that takes it."""


@dataclass(frozen=True, slots=True)
class BinsRequested(StepRequest):
    """Move the bins of keyed operators until they are routed by these tables; ``BinsMoved`` is the answer.

    Attributes:
        targets: keyed operator to its routing table in the end.
        at_once: maximum number of bins that one step moves; 0 adapts it by ``STEP_MS``.
    """

    targets: Mapping[str, RoutingTable]
    at_once: int = 0


@dataclass(frozen=True, slots=True)
class BinsMoved:
    """The requested moves are over: all have been made, or, for a ``reason``, not all.

    Attributes:
        tables: keyed operator to its routing table now.
        reason: why bins were left where they are; empty if none were.
    """

    tables: Mapping[str, RoutingTable]
    reason: str = ""


@dataclass(frozen=True, slots=True)
class SplitsRequested(StepRequest):
    """Deal the splits of sources to their first workers; ``SplitsMoved`` is the answer.

    Attributes:
        targets: source to the number of these workers.
    """

    targets: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class SplitsMoved:
    """The requested moves of splits are over: all have been made, or, for a ``reason``, not all."""

    reason: str = ""


@dataclass(frozen=True, slots=True)
class RescaleRequested:
    """The user requests another number of hosts, or of workers; ``RescaleEnded`` answers with the id ``request``.

    Attributes:
        request: id of the request.
        hosts: number of hosts; ``None`` for those of now.
        shares: operator to the number of workers that each new host brings; operators without an entry stay.
        at_once: maximum number of bins that one step moves; 0 adapts it by ``STEP_MS``.
        workers: operator to its number of workers on these hosts; operators on its forward edges get as many.
    """

    request: str
    hosts: int | None
    shares: Mapping[str, int] = field(default_factory=dict)
    at_once: int = 0
    workers: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RescaleCancelled:
    """The user cancels a request, if rows are not routed to new workers yet and no state has moved."""

    request: str


@dataclass(frozen=True, slots=True)
class StartHosts:
    """Start new hosts with these indices, of the current incarnation; each one says hello."""

    hosts: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ReleaseHosts:
    """Let these hosts end, for a ``reason``; their messages are ignored from now on."""

    hosts: tuple[int, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class RescaleEnded:
    """A request for another number of hosts or workers has ended; issued once for each.

    Attributes:
        request: id of the request.
        outcome: ``done``; ``aborted``, without any effect; or ``failed`` with the run.
        hosts: the number of hosts now.
        error: the reason in one sentence; empty if done.
        delay_ms: milliseconds from the request, or from when tuples flow, to the end.
    """

    request: str
    outcome: Literal["done", "aborted", "failed"]
    hosts: int
    error: str = ""
    delay_ms: float = 0.0


@dataclass(frozen=True, slots=True)
class AddedOperators:
    """The operators that a change of the shape adds.

    Attributes:
        change: id of the change.
        additions: what hosts need for them; of no concern to the controller.
        parked: those of them that return, with their states.
        given: those of them that begin with states; see ``ShapeChange``.
        heirs: those of them that wait for the states of others.
    """

    change: str
    additions: Any
    parked: Mapping[str, ParkedOperator]
    given: Mapping[str, bytes]
    heirs: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class ChangeTopology:
    """Make the added workers, idle, and let every other worker adopt the topology on ``AdoptTopology``.

    Attributes:
        topology: the topology.
        issued: id of the last marker; added workers treat markers up to it as applied.
        lost: removed workers whose hosts are gone, so that the hosts of their receivers end their channels.
        decided: all changes in effect, in order, for added workers.
        added: the operators that the topology adds; ``None`` if it is of the same dataflow.
        awaited: the added workers that answer when they have been made.
    """

    topology: Topology
    issued: int
    lost: frozenset[WorkerId] = frozenset()
    decided: tuple[CommittedChange, ...] = ()
    added: AddedOperators | None = None
    awaited: frozenset[WorkerId] = frozenset()


@dataclass(frozen=True)
class ShapeChange:
    """What a change of the shape makes of the dataflow.

    Attributes:
        after: the dataflow after the change.
        additions: what hosts need for the operators that are added; of no concern to the controller.
        fingerprint: that of the dataflow after the change, for its decision.
        back: that of the dataflow before it, for the decision that its guard rolls it back.
        returns: whether it rolls the last change of the shape back, so that added operators have the states in which
            that has removed them.
        given: added operator to the states by key with which it begins, pickled; for its decision and for hosts.
        inherits: operator to the one with whose state at the marker it begins, if it is added, or goes on.
    """

    after: Graph
    additions: Any = None
    fingerprint: bytes = b""
    back: bytes = b""
    returns: bool = False
    given: Mapping[str, bytes] = field(default_factory=dict)
    inherits: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ShapeDecided:
    """The change of the shape of this epoch is decided: a restart begins with the dataflow after it."""

    epoch: int
    change: str


@dataclass(frozen=True, slots=True)
class ShapeUndone:
    """A guard's rollback of the last change of the shape: the restart begins with the dataflow before that one."""

    change: str


@dataclass(frozen=True, slots=True)
class TopologyChanged:
    """All workers have adopted the topology: start the added workers; those that left have ended."""

    topology: Topology


@dataclass(frozen=True, slots=True)
class TopologyRefused:
    """The run keeps its topology, for a ``reason``; ``epoch`` is that of the refused one."""

    epoch: int
    reason: str


# ---- events


@dataclass(frozen=True, slots=True)
class HostJoined:
    """A host has joined; its peers reach it at ``address``."""

    host: int
    address: str
    incarnation: int


@dataclass(frozen=True, slots=True)
class HostLost:
    """The network or Spark reports the loss of a host; ``reason`` is part of the message to the user."""

    host: int
    reason: str
    incarnation: int = 0


@dataclass(frozen=True, slots=True)
class HostsUnfit:
    """Hosts cannot run for a ``reason`` that a restart does not remove, such as a missing package."""

    reason: str
    details: str = ""


@dataclass(frozen=True, slots=True)
class HostLeft:
    """A host has left; before the end of the run this counts as a loss."""

    host: int
    incarnation: int = 0


@dataclass(frozen=True, slots=True)
class Answered:
    """A worker has sent a message."""

    answer: Answer
    incarnation: int = 0


@dataclass(frozen=True, slots=True)
class Guard:
    """Rolls a change back automatically if its new configuration fails within a time or a number of tuples.

    Attributes:
        plan: the plan of the rollback.
        back: whether workers can roll back in place: no state is transformed, or there is an inverse.
        seconds, tuples: its duration from the last worker's switch on, or in tuples that each target has processed.
        shape: of a change of the shape, what the rollback makes of the dataflow again, by a restart.
    """

    plan: Plan
    back: bool
    seconds: float | None = None
    tuples: int | None = None
    shape: ShapeChange | None = None


@dataclass(frozen=True, slots=True)
class ChangeRequested:
    """The user requests a change.

    Attributes:
        change: id of the change, unique in the run.
        plan: the scheduler's plan.
        payloads: target to its cloudpickled ``fries_nb.Update``.
        rehearse: the targets without another target upstream; the change is rehearsed on their recent tuples.
        transforms: the targets whose state the change transforms.
        guard: the conditions of an automatic rollback; ``None``: the operators' error policies apply.
        undoes: id of the change that it rolls back, or empty; aborted if that change's guard fires first.
        timeout_s: seconds within which loops must have emptied once their entries are closed; ``None``: no limit.
        force: whether to make it although its rehearsal gives reason to doubt it.
        shape: what it makes of the dataflow, if it changes the shape; then only those of its targets have a payload
            whose function changes.
        examples: number of recent tuples of which the rehearsal tells what becomes of them, with it and without.
        is_trial: whether it is only to be rehearsed: it ends as ``rehearsed`` where it would be decided.
        share: if it is decided row by row, the share of rows above its cut that are new.
        step_of: id of the earlier change, decided row by row, of which it is a further step; it has no payloads then.
    """

    change: str
    plan: Plan
    payloads: Mapping[str, bytes]
    rehearse: frozenset[str] = frozenset()
    transforms: frozenset[str] = frozenset()
    guard: Guard | None = None
    undoes: str = ""
    timeout_s: float | None = None
    force: bool = False
    shape: ShapeChange | None = None
    examples: int = 0
    is_trial: bool = False
    share: float = 1.0
    step_of: str = ""

    @property
    def rerouted(self) -> frozenset[str]:
        """The operators of which a change of the shape replaces the out-edges only."""
        shape = self.shape
        if shape is None:
            return frozenset()
        return frozenset(name for name in self.plan.targets if name in shape.after and name not in self.payloads)

    @property
    def inherits(self) -> Mapping[str, str]:
        """The operators that begin, or go on, with the states of others; see ``ShapeChange``."""
        return {} if self.shape is None else self.shape.inherits

    @property
    def switching(self) -> frozenset[str]:
        """The operators that switch: the targets; for a change of the shape, all that are told of it."""
        if self.shape is None:
            return self.plan.targets
        return frozenset(name for part in self.plan.covering.components for name in part.operators)


@dataclass(frozen=True, slots=True)
class ChangeCancelled:
    """The user cancels a change; a decided one goes on."""

    change: str


@dataclass(frozen=True, slots=True)
class Journaled:
    """The ``Journal`` entry of this change is on disk since ``at_ns``, before the instructions that follow it."""

    change: str
    at_ns: int


@dataclass(frozen=True, slots=True)
class CheckpointRequested:
    """The user requests a checkpoint; ``CheckpointEnded`` answers with the id ``request``."""

    request: str


@dataclass(frozen=True, slots=True)
class RequeueRequested:
    """Give rows of dead letters back to their operator; ``RequeueEnded`` is the answer.

    Attributes:
        requeue: id of the request, which no other one of the run has.
        operator: the operator.
        rows: the rows; their bins are by the key of the operator.
    """

    requeue: str
    operator: str
    rows: tuple[RequeuedRow, ...]


@dataclass(frozen=True, slots=True)
class CheckpointKept:
    """The record of ``KeepCheckpoint`` is on disk; with a ``reason``, it could not be written."""

    epoch: int
    reason: str = ""


@dataclass(frozen=True, slots=True)
class RateRequested:
    """Set the rate of the source ``operator`` in tuples per second over all of its workers.

    0 pauses it, infinity takes a limit away.
    """

    operator: str
    rate: float


@dataclass(frozen=True, slots=True)
class DrainRequested:
    """End all sources except those in ``spared``; the run finishes when all tuples are processed."""

    spared: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class ColumnRefused:
    """The files of a sink have a column in two types; ``columns`` is the target's serialized Arrow schema."""

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
    HostJoined | HostLost | HostsUnfit | HostLeft | Answered | ChangeRequested | ChangeCancelled | RescaleRequested
    | RescaleCancelled | Journaled | CheckpointRequested | RequeueRequested | CheckpointKept | RateRequested
    | DrainRequested
    | ColumnRefused | StopRequested | Tick | StepRequest
)  # fmt: skip

# ---- instructions


@dataclass(frozen=True, slots=True)
class Admit:
    """Start the dataflow, since all hosts have joined. ``peers`` maps hosts to addresses."""

    peers: dict[int, str]


@dataclass(frozen=True, slots=True)
class RefuseHost:
    """Refuse the host that has just tried to join."""

    host: int
    reason: str


@dataclass(frozen=True, slots=True)
class Tell:
    """Send a control message to a worker."""

    worker: WorkerId
    control: Control


@dataclass(frozen=True, slots=True)
class Journal:
    """Write a decision to disk before the next instruction is carried out."""

    decided: CommittedChange


@dataclass(frozen=True, slots=True)
class WorkerOutcome:
    """The outcome of a change at one target worker.

    Attributes:
        delay_ms: milliseconds from the request to this worker's ``Done``.
        old_tuples: number of tuples that it processed with the old function after the change was prepared.
        ended: whether it had ended before, and did not switch.
    """

    delay_ms: float
    old_tuples: int = 0
    ended: bool = False


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a change. Times are in milliseconds.

    Attributes:
        change: the id of the change, unique in its run.
        scheduler: the scheduler that carried it out.
        outcome: ``done``; ``aborted``: nothing was changed; ``failed``: the run failed after the decision;
            ``rolled_back``: the new configuration failed under guard, and the old one was restored. A trial of
            ``Run.examples``, which is no change of the run, is ``rehearsed`` if it would have been made.
        error: the reason in one sentence; empty if done.
        details: the traceback of the reason from the user's first frame on; empty if there is none.
        prepare_ms: time to ship the functions, ``open()`` them, try the state transformation and rehearse the change.
        commit_ms: time from the decision on disk (the first fast control message) to the switch of the last target
            worker; 0 unless done.
        delay_ms: time from the request to the switch of the last target worker; 0 unless done. For a change that was
            requested before tuples flowed, it is counted from the moment when they did.
        waited_ms: time from the request until tuples flowed; 0 if they did already.
        components: the operators of each component of the minimal covering sub-DAG.
        per_worker: for each target worker that has acknowledged its delay and the tuples that it still processed with
            the old function.
        before: for a fix of the old version, the change that is ordered after it; empty otherwise.
        rehearsal: on how many tuples the change was rehearsed and which operators they reached, or why it was not.
        needs_force: whether it was aborted because its rehearsal drops every tuple, or a new function is 100 times
            slower there; ``reconfigure(..., force=True)`` makes it all the same.
        plan_ms: time to make the plan and to pickle the functions, which the user's handle adds to the delay.
        guard: description of the failures that roll the change back; empty without a guard.
        has_examples: whether its rehearsal tells what became of recent tuples; see ``Change.examples``.
    """

    change: str
    scheduler: str
    outcome: Literal["done", "aborted", "failed", "rolled_back", "rehearsed"]
    error: str = ""
    details: str = ""
    prepare_ms: float = 0.0
    commit_ms: float = 0.0
    delay_ms: float = 0.0
    waited_ms: float = 0.0
    components: tuple[tuple[str, ...], ...] = ()
    per_worker: dict[WorkerId, WorkerOutcome] = field(default_factory=dict, repr=False)
    before: str = ""
    rehearsal: str = ""
    needs_force: bool = False
    plan_ms: float = 0.0
    guard: str = ""
    has_examples: bool = False

    @property
    def old_tuples(self) -> int:
        """Total number of tuples that the targets processed with the old functions after the change was prepared."""
        return sum(worker.old_tuples for worker in self.per_worker.values())


@dataclass(frozen=True, slots=True)
class Resolved:
    """A change has ended; issued once for every change."""

    outcome: Outcome


@dataclass(frozen=True, slots=True)
class GuardFired:
    """A change is being rolled back by its guard, since its new configuration failed; ``GuardEnded`` follows."""

    change: str
    error: str


@dataclass(frozen=True, slots=True)
class GuardEnded:
    """The guard of a decided change has ended; issued once for each guard.

    Attributes:
        change: id of the change.
        reason: why the guard has ended.
        rolled_back: whether the change was rolled back, and the old configuration runs again.
        error: the failure of the new configuration in one sentence, if it was rolled back.
        details: the traceback of the failure.
    """

    change: str
    reason: str
    rolled_back: bool = False
    error: str = ""
    details: str = ""


@dataclass(frozen=True, slots=True)
class CommitFiles:
    """Commit the files of this epoch atomically; ``files`` maps sinks to names of files."""

    epoch: int
    files: dict[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class KeepCheckpoint:
    """Write this record durably and atomically, then report ``CheckpointKept``; until then it has no effect."""

    record: Checkpoint


@dataclass(frozen=True, slots=True)
class CheckpointEnded:
    """A checkpoint is complete, or was aborted for a ``reason``; ``requests`` are the ids that it answers."""

    epoch: int
    requests: tuple[str, ...] = ()
    reason: str = ""


@dataclass(frozen=True, slots=True)
class RequeueEnded:
    """The workers of the operator have the rows of this request; or not, for an ``error``.

    ``left`` is the number of rows that no worker has got: theirs had ended.
    """

    requeue: str
    left: int = 0
    error: str = ""


@dataclass(frozen=True, slots=True)
class CommitsHeld:
    """Nothing was committed since ``since_ns``, for a ``reason``; without one, commits succeed again.

    ``failed``: the last attempt failed; otherwise it takes too long, or cannot begin.
    """

    reason: str = ""
    since_ns: int = 0
    failed: bool = False


@dataclass(frozen=True, slots=True)
class Recover:
    """Dismiss all hosts, for a ``reason``, and start ``hosts`` new ones from ``restoration``, as ``incarnation``.

    Their sources read at ``rates``, in tuples per second, from the first tuple on; others at the rate of their plan.
    """

    incarnation: int
    restoration: Restoration
    reason: str
    hosts: int
    rates: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class OperatorPaused:
    """Workers of this operator are paused on tuples on which it failed; if ``paused`` is empty, all have resumed."""

    operator: str
    paused: tuple[Paused, ...] = ()


@dataclass(frozen=True, slots=True)
class DismissHosts:
    """Dismiss all hosts, since the run has ended."""

    reason: str


@dataclass(frozen=True, slots=True)
class RunEnded:
    """The run has ended; later instructions only answer requests (``RefuseHost``, ``Resolved``, ``CheckpointEnded``).

    ``CommitFiles`` may follow for a record that was being written at the end.
    """

    state: Literal["finished", "stopped", "failed"]
    error: str = ""
    details: str = ""


Instruction = (
    Admit | RefuseHost | Tell | StartHosts | ReleaseHosts | ChangeTopology | TopologyChanged | TopologyRefused
    | ShapeDecided | ShapeUndone | BinsMoved | SplitsMoved | RescaleEnded | Journal | Resolved | GuardFired | GuardEnded
    | CommitFiles | KeepCheckpoint | CheckpointEnded | RequeueEnded | CommitsHeld | Recover | OperatorPaused
    | DismissHosts | RunEnded
)  # fmt: skip
