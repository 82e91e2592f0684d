"""The state from which a run recovers: the last checkpoint, and every decided change.

A recovered run continues as a new *incarnation*: hosts are started again, and their workers start from a
``Restoration``. Messages of older incarnations are ignored. A run that is recovered too often without a new checkpoint
in between fails, since it would make no progress.

>>> recovery = Recovery(incarnation=1)
>>> recovery.decide("u1", "fries", (("FM",),), {"FM": b"code"}).incarnation
1
>>> recovery.lose(tables={})
>>> recover = recovery.again("host 1 was lost", hosts=2)
>>> recover.incarnation, recover.restoration.checkpoint, [each.change for each in recover.restoration.decided]
(2, None, ['u1'])

Commits of sinks: which files become output, and when.

A commit marker, aligned like any other, makes every sink worker close its file and report its name. When all workers
have acknowledged the marker, these files form a consistent cut and are committed together; those of a checkpoint once
its record is kept. The files of an aborted commit are part of the next one; the end of the run commits the rest.

>>> epochs = CommitNumbers(interval_ns=10)
>>> epochs.start_clock(0)
>>> epochs.due(9), epochs.due(10), epochs.begin(10)
(False, True, 1)
>>> epochs.hand_in("scored", ("a",))
>>> epochs.hand_in("scored", ("b",), behind_cut=True)
>>> epochs.close(); epochs.reopen(); epochs.close()
{'scored': ('a',)}
{'scored': ('a', 'b')}

Commits and checkpoints: one attempt at a time, from its marker to its record.

    phase     marker starts   marker has retired    all have saved   record kept or not   aborted
    IDLE      MARKING         -                     KEEPING (last)   -                    -
    MARKING   -               SAVING, or IDLE (*)   -                -                    IDLE
    SAVING    -               -                     KEEPING          -                    IDLE
    KEEPING   -               -                     -                IDLE                 -

(*) A plain commit is complete when its marker has retired: its files become output. A checkpoint waits until the
snapshot of every worker that applied the marker is on disk. Then a record that names them is written, and once it is on
disk the files become output. So a run that starts from a record finds exactly the output of that record.

An attempt is aborted when a change is decided while its marker is in flight (it is repeated at once), when a snapshot
could not be written, and when hosts are lost. While a record is being written its validity is unknown, and a recovery
waits for the result. The last record of a run names no snapshots, since all workers have ended.

>>> from fries_nb.controller.coordinator import alone
>>> from fries_nb.dataflow.graph import Edge, Graph, Kind, Operator
>>> flow = Graph("pair", (Operator("src", kind=Kind.SOURCE), Operator("out", kind=Kind.SINK)), (Edge("src", "out"),))
>>> workers = Workers(flow)
>>> lane = MarkerCoordinator(workers)
>>> checkpoints = Checkpoints(workers, lane, CommitNumbers(None), Recovery(1), "a1", alone)
>>> checkpoints.request("r1")
>>> [str(tell.worker) for tell in checkpoints.begin(0, checkpoint=True)]
['src[0]']
>>> for worker in workers.live():
...     _ = lane.acknowledge(1, worker), checkpoints.acknowledged(Commit(1), worker, Done(1, worker), now_ns=1)
...     instructions = checkpoints.take(Saved(1, worker, name=f"1-1/{worker}"), now_ns=2)
>>> [keep] = instructions
>>> keep.record.snapshots
{'src[0]': '1-1/src[0]', 'out[0]': '1-1/out[0]'}
>>> checkpoints.kept(CheckpointKept(1))
[CheckpointEnded(epoch=1, requests=('r1',), reason='')]
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from msgspec.structs import replace

from fries_nb.controller.coordinator import Coordinator, MayBegin, Taken
from fries_nb.controller.events import (
    CheckpointEnded,
    CheckpointKept,
    CheckpointRequested,
    CommitFiles,
    Instruction,
    KeepCheckpoint,
    Recover,
)
from fries_nb.controller.intake import Intake
from fries_nb.controller.markers import MarkerCoordinator
from fries_nb.controller.membership import Workers
from fries_nb.controller.states import COMMIT_MOVES, CommitPhase
from fries_nb.errors import ProtocolError
from fries_nb.planning.schedulers import Send
from fries_nb.protocol.checkpoints import (
    Checkpoint,
    CommittedChange,
    ParkedOperator,
    Restoration,
    insert_decided,
    without_superseded,
)
from fries_nb.protocol.messages import Action, Commit, Done, RequeuedRow, Saved, WorkerId
from fries_nb.protocol.rollout import Reach, RolloutStep, is_brought_out
from fries_nb.transitions import moved

NONE_GIVEN: Mapping[str, bytes] = MappingProxyType({})
NOTHING_INHERITED: Mapping[str, str] = MappingProxyType({})
MOST_IN_A_ROW = 10
"""Maximum number of consecutive recoveries without a new checkpoint."""


class Recovery:
    """The incarnations of one run, and the state from which the next one starts.

    Args:
        incarnation: number of the first incarnation.
        restored: the state from which it starts; ``None`` if there is none.
        recovers: whether lost hosts are recovered from.
        optional: whether the run goes on without recovery once a checkpoint has failed.

    Attributes:
        incarnation: number of the current incarnation.
        checkpoint: the last checkpoint kept, of any incarnation.
        decided: the decided changes in order, including those of earlier runs in the same checkpoint directory; without
            functions that no worker will load again, and without changes that are forgotten.
        decisions: number of the last decision.
        columns: operator to the column types imposed on it, as a serialized Arrow schema; see ``schema_checks``.
        tables: keyed operator to its packed routing table in the next incarnation, if its bins are not dealt evenly.
        parked: removed operator to the state that it had, as long as a rollback may bring it back, or has and no
            checkpoint includes it yet.
        removed: the operators that the last change of the shape has removed.
        reach: how far rows had come before the last commit's marker; see ``rollout``.
        recovers, optional: see the arguments.
    """

    def __init__(
        self, incarnation: int, restored: Restoration | None = None, recovers: bool = True, optional: bool = False
    ) -> None:
        self.incarnation = incarnation
        self.checkpoint: Checkpoint | None = restored.checkpoint if restored else None
        self.decided: list[CommittedChange] = list(restored.decided) if restored else []
        self.columns: dict[str, bytes] = {}
        self.tables: dict[str, bytes] = {}
        self.parked: dict[str, ParkedOperator] = {}
        self.removed = frozenset[str]()
        self.reach = self.checkpoint.reach if self.checkpoint is not None else Reach()
        self._reshaped_at = 0  # number of the decision of the last change of the shape
        self.recovers = recovers
        self.decisions = max([0, *(each.number for each in self.decided)])
        if self.checkpoint is not None:
            self.decisions = max(self.decisions, self.checkpoint.decisions)
        self.optional = optional
        self._in_a_row = 0

    @property
    def beyond(self) -> int:
        """The highest position in the cuts of what time brings out, below which no more is to come; see ``rollout``."""
        cuts = [one.steps[-1].cut for one in self.decided if one.steps]
        return max((place for cut in cuts for origin, place in cut.items() if is_brought_out(origin)), default=-1)

    @property
    def hopeless(self) -> bool:
        """Whether the maximum number of recoveries without a new checkpoint is reached."""
        return self._in_a_row >= MOST_IN_A_ROW

    def decide(
        self,
        change: str,
        scheduler: str,
        components: tuple[tuple[str, ...], ...],
        payloads: Mapping[str, bytes],
        before: str = "",
        undoes: str = "",
        aside: bool = False,
        shape: bytes = b"",
        rerouted: Collection[str] = (),
        given: Mapping[str, bytes] = NONE_GIVEN,
        steps: tuple[RolloutStep, ...] = (),
        inherits: Mapping[str, str] = NOTHING_INHERITED,
    ) -> CommittedChange:
        """Record the decision on a change, which is carried out even if hosts are lost."""
        if not self.recovers:  # only checkpoints that are still to be taken can be restored
            self.decided = without_superseded(self.decided, {each.change for each in self.decided})
        self.decisions += 1
        decided = CommittedChange(
            change, scheduler, components, dict(payloads), self.incarnation, before, undoes, aside, (), self.decisions,
            shape, tuple(sorted(rerouted)), given=dict(given), steps=steps,
            inherits=dict(inherits),
        )
        insert_decided(self.decided, decided)
        for operator in payloads:
            self.columns.pop(operator, None)  # the new function may write other types
        return decided

    def decide_step(self, change: str, of: str, steps: tuple[RolloutStep, ...]) -> CommittedChange:
        """Record the decision on a further step of a change that is decided row by row; ``steps`` are all."""
        place, first = next((place, one) for place, one in enumerate(self.decided) if one.change == of)
        self.decided[place] = replace(first, steps=steps)
        self.decisions += 1
        return CommittedChange(
            change, first.scheduler, first.components, {}, self.incarnation, number=self.decisions, steps=steps,
            step_of=of,
        )  # fmt: skip

    def requeue(self, requeue: str, operator: str, rows: tuple[RequeuedRow, ...]) -> CommittedChange:
        """Record the decision to give rows of dead letters back to an operator; see ``decide``."""
        self.decisions += 1
        decided = CommittedChange(
            requeue, "requeue", ((operator,),), {}, self.incarnation, number=self.decisions, requeued=rows
        )
        self.decided.append(decided)
        return decided

    def take_back(self, change: str) -> CommittedChange:
        """Revoke a decided change that no worker has applied, so that none applies it after a restart."""
        [decided] = [each for each in self.decided if each.change == change]
        self.decided.remove(decided)
        self.decisions += 1
        return CommittedChange(
            change, decided.scheduler, decided.components, {}, self.incarnation, number=self.decisions
        )

    def keep(self, record: Checkpoint) -> None:
        """Record that a checkpoint is on disk."""
        self.checkpoint = record
        if record.decisions >= self._reshaped_at:  # it includes what has returned
            self.parked = {name: one for name, one in self.parked.items() if name in self.removed}
        self.decided = without_superseded(self.decided, frozenset(record.decided), record.reach)
        self._in_a_row = 0

    def lose(self, tables: Mapping[str, bytes]) -> None:
        """End the current incarnation; the next one routes rows by these packed tables."""
        self.incarnation += 1
        self.tables = dict(tables)

    def again(self, reason: str, hosts: int) -> Recover:
        """The instruction that starts the new incarnation, with so many hosts."""
        self._in_a_row += 1
        decided, columns = tuple(self.decided), dict(self.columns)
        self.parked = self._parked_then()
        checkpoint = self.checkpoint
        if checkpoint is not None and checkpoint.decisions < self._reshaped_at:
            checkpoint = checkpoint.with_parked(self.parked)
        restoration = Restoration(checkpoint, decided, columns, tables=self.tables).begun_anew()
        return Recover(self.incarnation, restoration, reason, hosts)


    def remove(self, removed: Collection[str], after: Collection[str]) -> None:
        """Record that a change of the shape is decided, which removes these operators and leaves those."""
        self.removed, self._reshaped_at = frozenset(removed), self.decisions
        self.parked = {name: one for name, one in self.parked.items() if name in after}

    def given_to(self, operator: str) -> bytes | None:
        """See ``Restoration.given_to``."""
        return Restoration(self.checkpoint, tuple(self.decided)).given_to(operator)

    def _parked_then(self) -> dict[str, ParkedOperator]:
        """The states of removed operators as they are when the run goes on from the checkpoint.

        What an operator did behind the checkpoint has not happened: these rows are processed again, without it. One
        that was added since has the states that it was given, so it has none here.
        """
        last = self.checkpoint
        if last is None:
            return {}
        if last.decisions >= self._reshaped_at:
            return self.parked
        parked = self.parked | {name: last.of(name) for name in self.removed & last.workers.keys()}
        return {name: one for name, one in parked.items() if self.given_to(name) is None}


class CommitNumbers:
    """Files that sink workers have reported and that are not committed yet. Commits are numbered 1, 2, 3, ...

    A file that is reported repeatedly counts once: a sink may report a file of a cancelled commit again in the next.

    Args:
        interval_ns: nanoseconds between two commits; ``None`` for none before the end.
        number: number of the last commit of an earlier incarnation or run.

    Attributes:
        number: number of the last commit that was begun; numbers are not reused.
    """

    def __init__(self, interval_ns: int | None, number: int = 0) -> None:
        self.number = number
        self._interval_ns = interval_ns
        self._due_ns: int | None = None
        self._waiting: list[tuple[str, str]] = []
        self._behind_cut: list[tuple[str, str]] = []
        self._closed: list[tuple[str, str]] = []
        self._known: set[tuple[str, str]] = set()

    def start_clock(self, now_ns: int) -> None:
        """Schedule the next commit one interval from now; never without an interval."""
        self._due_ns = None if self._interval_ns is None else now_ns + self._interval_ns

    def due(self, now_ns: int) -> bool:
        """Whether it is time for a commit marker."""
        return self._due_ns is not None and now_ns >= self._due_ns

    def begin(self, now_ns: int) -> int:
        """Begin a commit; returns its number."""
        self.start_clock(now_ns)
        self.number += 1
        return self.number

    def hand_in(self, sink: str, files: tuple[str, ...], behind_cut: bool = False) -> None:
        """Add the files of a sink worker to the next commit."""
        for file in files:
            if (sink, file) not in self._known:
                self._known.add((sink, file))
                (self._behind_cut if behind_cut else self._waiting).append((sink, file))

    def cancel(self, now_ns: int) -> None:
        """Cancel the commit: its files are part of the next one, which is due at once."""
        self._waiting, self._behind_cut = self._waiting + self._behind_cut, []
        if self._interval_ns is not None:
            self._due_ns = now_ns

    def close(self) -> dict[str, tuple[str, ...]]:
        """The files of the commit's cut, by sink; called when its marker is complete."""
        self._closed, self._waiting, self._behind_cut = self._waiting, self._behind_cut, []
        self._known = {*self._closed, *self._waiting}  # a worker reports a file again in its next report, or never
        by_sink: dict[str, tuple[str, ...]] = {}
        for sink, file in self._closed:
            by_sink[sink] = (*by_sink.get(sink, ()), file)
        return by_sink

    def reopen(self) -> None:
        """Return the files closed last to the next commit, since theirs was aborted, ahead of later files."""
        self._waiting, self._closed = self._closed + self._waiting, []

    def forget(self) -> None:
        """Discard files that were handed in and not committed, since the hosts are lost and write them again."""
        self._waiting, self._behind_cut, self._closed = [], [], []


@dataclass
class CommitAttempt:
    """A commit or a checkpoint under way.

    Attributes:
        epoch: number of the commit.
        checkpoint: whether it is a checkpoint, with snapshots and a record.
        decided: ids of the changes applied before its marker, without forgotten ones.
        decisions: number of the last decision before its marker.
        requests: ids of the checkpoint requests that it answers.
        owing: workers that have applied the marker and not yet saved their snapshot.
        snapshots: worker to the name of the file with its snapshot.
        needs: operator to the definitions that its state needs.
        earlier: file of ``snapshots`` to the earlier ones that it needs.
        ended: workers that had ended before the marker.
        tables: packed routing tables at its marker; see ``Checkpoint``.
        readers: source to the number of its workers that have splits, at its marker; see ``Checkpoint``.
        files: sink to the files that it commits.
        logged: the heads of loops that have logged frames of feedback channels.
        last: whether it is the final record, after the end of all workers.
        failure: why it must be aborted; ``None`` otherwise.
    """

    epoch: int
    checkpoint: bool
    decided: tuple[str, ...] = ()
    decisions: int = 0
    requests: tuple[str, ...] = ()
    owing: set[WorkerId] = field(default_factory=set)
    snapshots: dict[str, str] = field(default_factory=dict)
    needs: dict[str, set[tuple[str, str]]] = field(default_factory=dict)
    earlier: dict[str, tuple[str, ...]] = field(default_factory=dict)
    ended: list[WorkerId] = field(default_factory=list)
    tables: dict[str, bytes] = field(default_factory=dict)
    readers: dict[str, int] = field(default_factory=dict)
    files: dict[str, tuple[str, ...]] = field(default_factory=dict)
    logged: set[str] = field(default_factory=set)
    last: bool = False
    failure: str | None = None


class Checkpoints(Coordinator):
    """The attempt under way, and the requests for the next one.

    Args:
        workers, lane: the workers, and the markers in flight.
        epochs: commit numbers, and files that are not committed yet.
        recovery: receives each record that is kept.
        may_commit: whether others let a commit begin.

    Attributes:
        phase: see the table.
        intake: the numbers of source tuples read and committed.
        over: whether writing the final record has ended, with success or without (``why_not``).
        why_not: why the last attempt was aborted; ``None`` if it was not.
        failure: why a checkpoint on which output depends has failed, until something is committed; ``None`` otherwise.
    """

    takes = (Saved, CheckpointRequested)
    actions = (Commit,)

    def __init__(
        self,
        workers: Workers,
        lane: MarkerCoordinator,
        epochs: CommitNumbers,
        recovery: Recovery,
        run: str,
        may_commit: MayBegin,
    ) -> None:
        self.phase = CommitPhase.IDLE
        self.intake = Intake(workers, restored=recovery.checkpoint is not None)
        self.over = False
        self.why_not: str | None = None
        self.failure: str | None = None
        self._workers = workers
        self._lane = lane
        self._epochs = epochs
        self._recovery = recovery
        self._run = run
        self._may_commit = may_commit
        self._attempt = CommitAttempt(epochs.number, checkpoint=False)
        self._requests: list[str] = []
        self._spent: set[WorkerId] = set()
        self._started_ns = 0

    @property
    def committed_ns(self) -> int:
        """Time of the last commit's marker, or of the start of the hosts if that was later."""
        return max(self._started_ns, self.intake.since_ns)

    @property
    def owing(self) -> list[WorkerId]:
        """The workers whose snapshots the attempt under way waits for, sorted."""
        return sorted(self._attempt.owing)

    @property
    def keeping(self) -> bool:
        """Whether a record is being written; until the result arrives its validity is unknown."""
        return self.phase is CommitPhase.KEEPING

    @property
    def closing(self) -> bool:
        """Whether the final record is being written or kept; the loss of a host no longer matters."""
        return self._attempt.last and (self.keeping or self.over)

    @property
    def wanted(self) -> bool:
        """Whether a checkpoint was requested and has not begun."""
        return bool(self._requests)

    @property
    def may_begin(self) -> bool:
        """Whether a marker can start: no attempt, no marker in flight, and a source or a loop that has not ended."""
        free = self.phase is CommitPhase.IDLE and not self._lane.busy
        return free and bool(self._workers.live((*self._workers.settled.sources, *self._workers.settled.heads)))

    def working_on(self, epoch: int) -> bool:
        """Whether the attempt with this number is still under way."""
        return self.phase is not CommitPhase.IDLE and self._attempt.epoch == epoch

    def may_have(self, change: str) -> bool:
        """Whether the last checkpoint, or the one whose record is being written, includes this change."""
        kept = self._recovery.checkpoint
        return (kept is not None and change in kept.decided) or (self.keeping and change in self._record.decided)

    def had_ended(self, worker: WorkerId) -> bool:
        """Whether this worker was restored as ended, so that it has no state."""
        return worker in self._spent

    def started(self, now_ns: int) -> list[Instruction]:
        """Begin with the workers of another incarnation, restored from the last checkpoint."""
        self.intake.start(now_ns)
        self._started_ns = now_ns
        kept, counts = self._recovery.checkpoint, self._workers.routed
        known = self._workers.of(self._workers.graph.by_name)
        left = (worker for worker in known if kept and kept.had_ended(*worker, counts[worker.operator]))
        self._spent = {worker for worker in left if self._recovery.given_to(worker.operator) is None}
        return []

    def move(self, to: CommitPhase) -> None:
        """Go to another phase."""
        self.phase = moved(COMMIT_MOVES, self.phase, to, f"checkpoint {self._attempt.epoch}")

    def take(self, event: Taken, now_ns: int) -> list[Instruction]:
        """Process a request, or the answer of a worker that has saved its snapshot."""
        if isinstance(event, CheckpointRequested):
            self.request(event.request)
        elif isinstance(event, Saved):
            self.saved(event)
            return self.settle()
        return []

    def advance(self, now_ns: int, is_tick: bool) -> list[Instruction]:
        """Start a commit or checkpoint if one is requested, or due at a tick, and nothing prevents it."""
        is_due = is_tick and self._epochs.due(now_ns)
        if not (is_due or self.wanted) or not self._may_commit(now_ns):
            return []
        return self.begin(now_ns, self._recovery.recovers or self.wanted)

    def request(self, request: str) -> None:
        """Request a checkpoint; one whose marker is already in flight does not answer it."""
        if request in self._requests or (self.phase is not CommitPhase.IDLE and request in self._attempt.requests):
            raise ProtocolError(f"checkpoint request {request!r} was made before; every request needs its own id")
        self._requests.append(request)

    def close(self, why: str, now_ns: int, error: str = "", details: str = "") -> list[Instruction]:
        """Answer all open requests with a refusal, since the run has ended."""
        if self.phase in (CommitPhase.MARKING, CommitPhase.SAVING):
            self._take_back()
        asked, self._requests = tuple(self._requests), []
        return [CheckpointEnded(self._epochs.number, asked, error or why)] if asked else []

    def refuse(self, event: Taken, state: str, now_ns: int) -> list[Instruction]:
        """Answer a request that came after the end of the run."""
        self.take(event, now_ns)
        return self.close(f"the run is over ({state})", now_ns)

    def begin(self, now_ns: int, checkpoint: bool) -> list[Instruction]:
        """Send a commit marker from all sources through the whole graph."""
        self.move(CommitPhase.MARKING)
        self._attempt = self._new(self._epochs.begin(now_ns), checkpoint)
        self.intake.begin(now_ns)
        everywhere = frozenset(self._workers.settled.by_name)
        sends = [Send(source, everywhere) for source in self._workers.settled.sources]
        return [*self._lane.start(sends, Commit(self._attempt.epoch, checkpoint, self._recovery.beyond))]

    @property
    def epoch(self) -> int:
        """Number of the attempt under way, or of the last one."""
        return self._attempt.epoch

    def acknowledged(self, action: Action, worker: WorkerId, done: Done | None, now_ns: int) -> list[Instruction]:
        """Record that a worker has applied the marker (``done``), or has ended before it (``None``).

        A worker that the restored checkpoint records as finished counts as ended: it has neither positions nor state to
        save.
        """
        attempt = self._attempt
        if done is not None and not done.ended:
            self.intake.passed(done)
            attempt.logged.update([worker.operator] if done.observed else [])
        if done is None or self.had_ended(worker):
            attempt.ended.append(worker)
        elif attempt.checkpoint:
            attempt.owing.add(worker)
        if self._lane.commits:
            return []
        attempt.files = self._epochs.close()
        if attempt.checkpoint:
            self.move(CommitPhase.SAVING)
            return self.settle()  # snapshots may be on disk before the marker has passed the last worker
        self.move(CommitPhase.IDLE)
        return self._commit()

    def saved(self, answer: Saved) -> None:
        """Record that a worker's snapshot is on disk, or could not be written; ignored for earlier attempts."""
        if answer.epoch > self._epochs.number:
            raise ProtocolError(f"{answer.worker} saved for epoch {answer.epoch}, which has not begun")
        if self.phase not in (CommitPhase.MARKING, CommitPhase.SAVING) or answer.epoch != self._attempt.epoch:
            return
        if answer.worker in self._attempt.ended:
            return
        if answer.worker not in self._attempt.owing:
            raise ProtocolError(f"{answer.worker} saved for epoch {answer.epoch}, to which it owes no snapshot")
        self._attempt.owing.discard(answer.worker)
        self._attempt.snapshots[str(answer.worker)] = answer.name
        if answer.earlier:
            self._attempt.earlier[answer.name] = answer.earlier
        self._attempt.needs.setdefault(answer.worker.operator, set()).update(answer.needs)
        if answer.error:
            self._attempt.failure = f"the snapshot of {answer.worker} could not be written: {answer.error}"

    def settle(self) -> list[Instruction]:
        """Write the record once the marker has retired and all workers have saved, or abort."""
        if self.phase is not CommitPhase.SAVING:
            return []
        if self._attempt.failure:
            return self._abort(self._attempt.failure)
        return [] if self._attempt.owing else self._keep()

    def last(self, now_ns: int) -> list[Instruction]:
        """Commit the remaining files with a final record, after the end of all workers."""
        self._merge_into_last()
        self._attempt = self._new(self._epochs.begin(now_ns), checkpoint=True)
        self.intake.begin(now_ns)
        self._attempt.files = self._epochs.close()
        self._attempt.last = True
        return self._keep()

    def rest(self, now_ns: int) -> list[Instruction]:
        """Commit the remaining files without a record, after the end of all workers."""
        self._merge_into_last()
        self._attempt = CommitAttempt(self._epochs.begin(now_ns), checkpoint=False, files=self._epochs.close())
        self.intake.begin(now_ns)
        return self._commit()

    def kept(self, event: CheckpointKept) -> list[Instruction]:
        """Commit the files of a record that is on disk; if it could not be written, the next commit includes them."""
        if not self.keeping or event.epoch != self._attempt.epoch:
            raise ProtocolError(f"checkpoint {event.epoch} was kept, and {self.epoch} is {self.phase}")
        self.over = self._attempt.last
        if event.reason:
            return self._abort(f"the record could not be written: {event.reason}")
        self.move(CommitPhase.IDLE)
        if not self._attempt.last:  # after the final record the reason of an earlier abort is still reported
            self.why_not = None
        self._recovery.keep(self._record)
        return [*self._commit(), CheckpointEnded(self._attempt.epoch, self._attempt.requests)]

    def cancel(self, now_ns: int) -> list[Instruction]:
        """Abort the attempt whose marker is in flight, in favour of a change; it is repeated as soon as possible."""
        self._take_back()
        self.why_not = "another change came first"
        self._epochs.cancel(now_ns)
        return [*self._lane.cancel()]

    def lost(self, why: str, now_ns: int) -> list[Instruction]:
        """Abort the attempt, since the hosts are lost; files that no kept record includes are discarded."""
        if self.phase in (CommitPhase.MARKING, CommitPhase.SAVING):
            self._take_back()
        self._attempt.last = False  # all workers run again, also if the final record was refused
        self._epochs.forget()
        self.intake.lost()
        return []

    def _take_back(self) -> None:
        """Abort the attempt, and return its requests to the queue."""
        self.move(CommitPhase.IDLE)
        self._requests = [*self._attempt.requests, *self._requests]

    def _merge_into_last(self) -> None:
        """Merge an attempt that awaits snapshots into the final commit."""
        if self.phase is CommitPhase.SAVING:
            self._take_back()
            self.why_not = "the run ended first"
            self._epochs.reopen()

    def _new(self, epoch: int, checkpoint: bool) -> CommitAttempt:
        requests = tuple(self._requests) if checkpoint else ()
        if checkpoint:
            self._requests = []
        decided = tuple(decided.change for decided in self._recovery.decided)
        ended = [worker for worker in self._workers.of(self._workers.settled.by_name) if worker in self._workers.ended]
        tables = self._workers.uneven if checkpoint else {}
        readers = dict(self._workers.readers)
        last = self._recovery.decisions
        return CommitAttempt(epoch, checkpoint, decided, last, requests, ended=ended, tables=tables, readers=readers)

    def _keep(self) -> list[Instruction]:
        attempt, parked = self._attempt, self._recovery.parked.values()
        self.move(CommitPhase.KEEPING)
        self._record = Checkpoint(
            run=self._run,
            epoch=attempt.epoch,
            incarnation=self._recovery.incarnation,
            snapshots=attempt.snapshots,
            ended=tuple(map(str, attempt.ended)),
            sinks=attempt.files,
            decided=attempt.decided,
            workers=self._workers.settled.sizes,
            tables=attempt.tables,
            readers=attempt.readers,
            logged=tuple(sorted(attempt.logged)),
            decisions=attempt.decisions,
            needs={operator: tuple(sorted(names)) for operator, names in attempt.needs.items() if names},
            parked=tuple(sorted(file for one in parked for file in one.snapshots.values())),
            reach=self._recovery.reach,
            earlier=attempt.earlier | {name: names for one in parked for name, names in one.earlier.items()},
        )
        return [KeepCheckpoint(self._record)]

    def _commit(self) -> list[Instruction]:
        self.intake.commit()
        self.failure = None
        return [CommitFiles(self._attempt.epoch, self._attempt.files)] if self._attempt.files else []

    def _abort(self, reason: str) -> list[Instruction]:
        self.move(CommitPhase.IDLE)
        self.why_not = reason
        if self._recovery.optional:  # output goes on, so no later commit may be undone by going back
            self._recovery.recovers = False
        if self._recovery.recovers:  # otherwise it was requested, its requester is answered, and output goes on
            self.failure = reason
        self._epochs.reopen()
        return [CheckpointEnded(self._attempt.epoch, self._attempt.requests, reason)]
