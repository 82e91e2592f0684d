"""Commits and checkpoints: one attempt at a time, from its marker to its record.

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

>>> from fries_nb.dataflow.graph import Edge, Graph, Kind, Operator
>>> flow = Graph("pair", (Operator("src", kind=Kind.SOURCE), Operator("out", kind=Kind.SINK)), (Edge("src", "out"),))
>>> workers = Workers(flow)
>>> lane = MarkerCoordinator(workers)
>>> checkpoints = Checkpoints(workers, lane, CommitNumbers(None), Recovery(1), "a1")
>>> checkpoints.request("r1")
>>> [str(tell.worker) for tell in checkpoints.begin(0, checkpoint=True)]
['src[0]']
>>> for worker in workers.live():
...     _ = lane.acknowledge(1, worker), checkpoints.acknowledged(worker, Done(1, worker))
...     checkpoints.saved(Saved(1, worker, name=f"1-1/{worker}"))
>>> [keep] = checkpoints.settle()
>>> keep.record.snapshots
{'src[0]': '1-1/src[0]', 'out[0]': '1-1/out[0]'}
>>> checkpoints.kept(CheckpointKept(1))
[CheckpointEnded(epoch=1, requests=('r1',), reason='')]
"""

from __future__ import annotations

from dataclasses import dataclass, field

from fries_nb.checkpoints import Checkpoint
from fries_nb.controller.commit_numbers import CommitNumbers
from fries_nb.controller.events import CheckpointEnded, CheckpointKept, CommitFiles, Instruction, KeepCheckpoint
from fries_nb.controller.intake import Intake
from fries_nb.controller.markers import MarkerCoordinator
from fries_nb.controller.membership import Workers
from fries_nb.controller.restore_point import Recovery
from fries_nb.controller.states import COMMIT_MOVES, CommitPhase
from fries_nb.errors import ProtocolError
from fries_nb.messages import Commit, Done, Saved, WorkerId
from fries_nb.scheduling.stages import Send
from fries_nb.transitions import moved


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
        ended: workers that had ended before the marker.
        tables: packed routing tables at its marker; see ``Checkpoint``.
        readers: source to the number of its workers that have splits, at its marker; see ``Checkpoint``.
        files: sink to the files that it commits.
        logged: the heads of loops that have logged frames of feedback channels.
        last: whether it is the final record, after the end of all workers.
        failure: why it must be aborted; empty otherwise.
    """

    epoch: int
    checkpoint: bool
    decided: tuple[str, ...] = ()
    decisions: int = 0
    requests: tuple[str, ...] = ()
    owing: set[WorkerId] = field(default_factory=set)
    snapshots: dict[str, str] = field(default_factory=dict)
    needs: dict[str, set[tuple[str, str]]] = field(default_factory=dict)
    ended: list[WorkerId] = field(default_factory=list)
    tables: dict[str, bytes] = field(default_factory=dict)
    readers: dict[str, int] = field(default_factory=dict)
    files: dict[str, tuple[str, ...]] = field(default_factory=dict)
    logged: set[str] = field(default_factory=set)
    last: bool = False
    failure: str = ""


class Checkpoints:
    """The attempt under way, and the requests for the next one.

    Args:
        workers: the workers of the run.
        lane: the markers in flight.
        epochs: commit numbers, and files that are not committed yet.
        recovery: receives each record that is kept.
        run: the run's id, for records.

    Attributes:
        phase: see the table.
        intake: the numbers of source tuples read and committed.
        over: whether writing the final record has ended, with success or without (``why_not``).
        why_not: why the last attempt was aborted; empty if it was not.
        failure: why a checkpoint on which output depends has failed, until something is committed; empty otherwise.
    """

    def __init__(
        self, workers: Workers, lane: MarkerCoordinator, epochs: CommitNumbers, recovery: Recovery, run: str
    ) -> None:
        self.phase = CommitPhase.IDLE
        self.intake = Intake(workers, restored=recovery.checkpoint is not None)
        self.over = False
        self.why_not = self.failure = ""
        self._workers = workers
        self._lane = lane
        self._epochs = epochs
        self._recovery = recovery
        self._run = run
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
        return free and bool(self._workers.live((*self._workers.graph.sources, *self._workers.graph.heads)))

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

    def start(self, now_ns: int) -> None:
        """Begin with the workers of another incarnation, restored from the last checkpoint."""
        self.intake.start(now_ns)
        self._started_ns = now_ns
        kept, counts = self._recovery.checkpoint, self._workers.routed
        known = self._workers.of(self._workers.graph.by_name)
        self._spent = {one for one in known if kept is not None and kept.had_ended(*one, counts[one.operator])}

    def move(self, to: CommitPhase) -> None:
        """Go to another phase.

        Raises:
            ProtocolError: the table has no such move.
        """
        self.phase = moved(COMMIT_MOVES, self.phase, to, f"checkpoint {self._attempt.epoch}")

    def request(self, request: str) -> None:
        """Request a checkpoint; one whose marker is already in flight does not answer it.

        Raises:
            ProtocolError: a request with this id is open.
        """
        if request in self._requests or (self.phase is not CommitPhase.IDLE and request in self._attempt.requests):
            raise ProtocolError(f"checkpoint request {request!r} was made before; every request needs its own id")
        self._requests.append(request)

    def refuse(self, reason: str) -> list[Instruction]:
        """Answer all open requests with a refusal, since the run has ended."""
        if self.phase in (CommitPhase.MARKING, CommitPhase.SAVING):
            self._take_back()
        asked, self._requests = tuple(self._requests), []
        return [CheckpointEnded(self._epochs.number, asked, reason)] if asked else []

    def begin(self, now_ns: int, checkpoint: bool) -> list[Instruction]:
        """Send a commit marker from all sources through the whole graph.

        Args:
            now_ns: the current time.
            checkpoint: whether to take a checkpoint.
        """
        self.move(CommitPhase.MARKING)
        self._attempt = self._new(self._epochs.begin(now_ns), checkpoint)
        self.intake.begin(now_ns)
        everywhere = frozenset(self._workers.graph.by_name)
        sends = [Send(source, everywhere) for source in self._workers.graph.sources]
        return [*self._lane.start(sends, Commit(self._attempt.epoch, checkpoint))]

    @property
    def epoch(self) -> int:
        """Number of the attempt under way, or of the last one."""
        return self._attempt.epoch

    def acknowledged(self, worker: WorkerId, done: Done | None) -> list[Instruction]:
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
            return []
        self.move(CommitPhase.IDLE)
        return self._commit()

    def saved(self, answer: Saved) -> None:
        """Record that a worker's snapshot is on disk, or could not be written; ignored for earlier attempts.

        Raises:
            ProtocolError: no such checkpoint was begun, or no snapshot of the worker is awaited.
        """
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
        self._attempt.needs.setdefault(answer.worker.operator, set()).update(answer.needs)
        if answer.error:
            self._attempt.failure = f"the snapshot of {answer.worker} could not be written: {answer.error}"

    def settle(self) -> list[Instruction]:
        """Write the record once all workers have saved, or abort; ``KeepCheckpoint`` must be the last instruction."""
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
        """Commit the files of a record that is on disk; if it could not be written, the next commit includes them.

        Raises:
            ProtocolError: no such record was being written.
        """
        if not self.keeping or event.epoch != self._attempt.epoch:
            raise ProtocolError(f"checkpoint {event.epoch} was kept, and {self.epoch} is {self.phase}")
        self.over = self._attempt.last
        if event.reason:
            return self._abort(f"the record could not be written: {event.reason}")
        self.move(CommitPhase.IDLE)
        if not self._attempt.last:  # after the final record the reason of an earlier abort is still reported
            self.why_not = ""
        self._recovery.keep(self._record)
        return [*self._commit(), CheckpointEnded(self._attempt.epoch, self._attempt.requests)]

    def cancel(self, now_ns: int) -> list[Instruction]:
        """Abort the attempt whose marker is in flight, in favour of a change; it is repeated as soon as possible."""
        self._take_back()
        self.why_not = "another change came first"
        self._epochs.cancel(now_ns)
        return [*self._lane.cancel()]

    def lost(self) -> None:
        """Abort the attempt, since the hosts are lost; files that no kept record includes are discarded."""
        if self.phase in (CommitPhase.MARKING, CommitPhase.SAVING):
            self._take_back()
        self._attempt.last = False  # all workers run again, also if the final record was refused
        self._epochs.forget()
        self.intake.lost()

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
        ended = [worker for worker in self._workers.of(self._workers.graph.by_name) if worker in self._workers.ended]
        tables = self._workers.uneven if checkpoint else {}
        readers = dict(self._workers.readers)
        last = self._recovery.decisions
        return CommitAttempt(epoch, checkpoint, decided, last, requests, ended=ended, tables=tables, readers=readers)

    def _keep(self) -> list[Instruction]:
        attempt = self._attempt
        self.move(CommitPhase.KEEPING)
        self._record = Checkpoint(
            run=self._run,
            epoch=attempt.epoch,
            incarnation=self._recovery.incarnation,
            snapshots=attempt.snapshots,
            ended=tuple(map(str, attempt.ended)),
            sinks=attempt.files,
            decided=attempt.decided,
            workers={operator.name: operator.workers for operator in self._workers.graph.operators},
            tables=attempt.tables,
            readers=attempt.readers,
            logged=tuple(sorted(attempt.logged)),
            decisions=attempt.decisions,
            needs={operator: tuple(sorted(names)) for operator, names in attempt.needs.items() if names},
        )
        return [KeepCheckpoint(self._record)]

    def _commit(self) -> list[Instruction]:
        self.intake.commit()
        self.failure = ""
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
