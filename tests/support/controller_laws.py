"""The laws of a run, checked against the truth while a crowd of workers plays it (see ``controller_crowd``).

The truth is kept apart from the controller: which changes each worker has switched to, which files each sink has
closed, and how both stood when it applied a checkpoint's marker. A recovery takes the truth back to the record that it
starts from, and puts on top what was decided.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

import msgspec
import pyarrow as pa

from fries_nb.controller.events import (
    CheckpointEnded,
    CommitFiles,
    GuardEnded,
    GuardFired,
    Instruction,
    Journal,
    KeepCheckpoint,
    Outcome,
    Recover,
    RefuseHost,
    Resolved,
    RunEnded,
)
from fries_nb.protocol.checkpoints import Checkpoint, CommittedChange
from fries_nb.protocol.messages import Marker, Reconfigure, WorkerId


@dataclass(frozen=True)
class Past:
    """What lies behind a worker: the changes that it has switched to, the files that it has closed."""

    changes: tuple[str, ...] = ()
    files: tuple[str, ...] = ()


class Laws:
    """The truth about one run, and what the controller has said so far."""

    def __init__(self, workers: Iterable[WorkerId], checkpoints: bool) -> None:
        self.workers = list(workers)
        self.checkpoints = checkpoints
        self.past: dict[WorkerId, Past] = {worker: Past() for worker in self.workers}
        self.cuts: dict[int, dict[WorkerId, Past]] = {}
        self.final: dict[WorkerId, Past] = {}
        self.incarnation = 1
        self.decided: list[CommittedChange] = []
        self.taken_back: set[str] = set()
        self.keeping: Checkpoint | None = None
        self.records: list[Checkpoint] = []
        self.committed: list[str] = []
        self.epochs: list[int] = []
        self.outcomes: list[Outcome] = []
        self.asked: dict[str, int] = {}
        self.answered: list[str] = []
        self.begun = 0
        self.unrehearsed: set[str] = set()
        self.guards: dict[str, GuardEnded | None] = {}
        self.fired: set[str] = set()
        self.told: dict[str, set[str]] = {}
        self.refused = ""
        self.over: RunEnded | None = None

    # ---- what workers do

    def switch(self, worker: WorkerId, change: str) -> None:
        """A worker has switched: once, in the order of the decisions."""
        order = [decided.change for decided in self.decided]
        before = self.past[worker].changes
        assert change in order, f"{worker} switches to {change}, which was not decided"
        assert all(order.index(earlier) < order.index(change) for earlier in before), f"{worker}: {before}, {change}"
        self.past[worker] = Past((*before, change), self.past[worker].files)

    def skip(self, worker: WorkerId, action: Reconfigure) -> None:
        """A worker was told of a change that is ordered ahead of one that it has applied."""
        past = list(self.past[worker].changes)
        past.insert(past.index(action.before), action.change)
        self.past[worker] = Past(tuple(past), self.past[worker].files)

    def close(self, worker: WorkerId, files: tuple[str, ...]) -> None:
        """A sink worker has closed files."""
        self.past[worker] = Past(self.past[worker].changes, self.past[worker].files + files)

    def cut(self, worker: WorkerId, epoch: int) -> None:
        """A worker has applied a checkpoint's marker."""
        self.cuts.setdefault(epoch, {})[worker] = self.past[worker]

    def end(self, worker: WorkerId) -> None:
        """A worker has ended."""
        self.final[worker] = self.past[worker]

    @property
    def closed(self) -> list[str]:
        """All files that count, so far."""
        return [file for past in self.past.values() for file in past.files]

    # ---- what the controller says

    def check(self, instruction: Instruction, tried: Collection[tuple[WorkerId, str]]) -> None:
        """Every law that can be seen in a single instruction; ``tried`` is what the controller knows to be prepared."""
        after_the_end = RefuseHost | Resolved | CheckpointEnded | CommitFiles
        assert self.over is None or isinstance(instruction, after_the_end), f"{instruction} after the end"
        match instruction:
            case Journal(decided):
                self.journal(decided, tried)
            case Resolved(outcome):
                self.resolve(outcome)
            case KeepCheckpoint(record):
                self.keep(record)
            case CommitFiles(epoch, files):
                self.commit(epoch, [file for group in files.values() for file in group])
            case CheckpointEnded(epoch, requests, reason):
                for request in requests:
                    assert request not in self.answered, f"{request} is answered again"
                    assert reason or (epoch == self.records[-1].epoch and epoch > self.asked[request])
                self.answered += requests
            case GuardFired(change):
                assert change not in self.fired, f"the guard of {change} fires again"
                assert self.decided[-1].undoes == change
                self.fired.add(change)
            case GuardEnded():
                self.end_guard(instruction)
            case Recover():
                self.recover(instruction)
            case RunEnded():
                self.over = instruction

    def journal(self, entry: CommittedChange, tried: Collection[tuple[WorkerId, str]]) -> None:
        """A decision, once, about what every target worker has tried, those that have ended as well.

        Or a rollback, by a guard that lasts; or one taken back, which is at no worker, before its change is said to
        have failed.
        """
        untried = [w for w in self.workers if w.operator in entry.payloads and (w, entry.change) not in tried]
        assert not untried, f"{entry.change} is decided, and was not tried at {untried}"
        assert entry.change not in self.unrehearsed, f"{entry.change} is decided, and its rehearsal is due, or failed"
        known = [earlier for earlier in self.decided if earlier.change == entry.change]
        late = bool(entry.undoes and self.keeping)  # the hosts may be given up already, while the record is written
        assert entry.incarnation - self.incarnation in (0, late)
        assert len(known) == (0 if entry.payloads or entry.undoes else 1)
        assert not entry.undoes or self.guards.get(entry.undoes, entry) is None, f"{entry}: its guard does not last"
        for operator in entry.payloads:
            self.told.pop(operator, None)
        if entry.payloads or entry.undoes:
            behind = [place for place, other in enumerate(self.decided) if other.change == entry.before]
            self.decided.insert(behind[0] if behind else len(self.decided), entry)
        else:
            self.take_back(known[0])

    def take_back(self, decided: CommittedChange) -> None:
        """It is at nobody: of an earlier incarnation, it was put on workers that had ended and are not restored."""
        for worker, past in self.past.items():
            here = decided.change in past.changes
            assert not here or decided.incarnation < self.incarnation, f"taken back, and applied at {worker}"
            self.past[worker] = Past(tuple(each for each in past.changes if each != decided.change), past.files)
        self.decided.remove(decided)
        self.taken_back.add(decided.change)

    def resolve(self, outcome: Outcome) -> None:
        """Once for every change; done: at every target worker; aborted: nowhere."""
        change = outcome.change
        assert change not in {seen.change for seen in self.outcomes}, f"{outcome} comes again"
        was_decided = change in {decided.change for decided in self.decided} | self.taken_back
        assert change not in self.taken_back or outcome.outcome == "failed"
        assert was_decided == (outcome.outcome != "aborted"), outcome
        if outcome.outcome == "done":
            for worker, seen in outcome.per_worker.items():
                assert seen.ended or change in self.past[worker].changes, f"{worker} is without {change}"
        assert outcome.outcome == "done" or outcome.error
        self.outcomes.append(outcome)

    def keep(self, record: Checkpoint) -> None:
        """It names every worker, and a consistent cut: all that was decided in front of it, and nothing else.

        It may have forgotten changes that later ones have replaced, and ``recover`` sees that none lacks them.
        """
        assert self.keeping is None, "two records at a time"
        assert record.incarnation == self.incarnation
        assert not self.records or record.epoch > self.records[-1].epoch
        assert {*record.snapshots, *record.ended} == set(map(str, self.workers))
        for worker in self.workers:
            if str(worker) in record.snapshots:
                targeted = self.targeting(worker.operator)
                due = [change for change in targeted if change in record.decided]
                cut = self.cuts[record.epoch][worker].changes
                numbers = {each.change: each.number for each in self.decided}
                kept = [change for change in cut if not record.has_forgotten(change, numbers[change])]
                assert kept == due, f"{worker} at {record}"
                assert [change for change in targeted if change in cut][-1:] == due[-1:], f"{worker} at {record}"
        named = sorted(file for group in record.sinks.values() for file in group)
        output = [file for past in self.at(record).values() for file in past.files]
        assert sorted([*self.committed, *named]) == sorted(output), "the record's output is not its cut"
        self.keeping = record

    def kept(self, reason: str) -> int:
        """The record that is being written is on disk or is not; its epoch."""
        assert self.keeping is not None
        epoch = self.keeping.epoch
        if not reason:
            self.records.append(self.keeping)
        self.keeping = None
        return epoch

    def commit(self, epoch: int, files: list[str]) -> None:
        """Each file once, each epoch once, and a checkpoint's only behind its record."""
        assert files, "an empty commit"
        assert not set(files) & set(self.committed), f"{files} committed again"
        assert not self.epochs or epoch > self.epochs[-1]
        if self.checkpoints or epoch in self.cuts:
            assert epoch in [record.epoch for record in self.records[-1:]], "committed before the record was kept"
        self.epochs.append(epoch)
        self.committed += files

    def recover(self, recover: Recover) -> None:
        """From the last record and all that was decided; what is output already stays so."""
        assert recover.incarnation == self.incarnation + 1
        assert self.keeping is None, "whether the record counts is not known"
        assert recover.restoration.checkpoint == (self.records[-1] if self.records else None)
        decided, record = recover.restoration.decided, recover.restoration.checkpoint
        known = {each.change for each in decided}
        there = [each for each in self.decided if each.change in known]
        assert list(map(without_payloads, decided)) == list(map(without_payloads, there))
        gone = [each for each in self.decided if each.change not in known]
        for each in gone:
            assert record is not None, f"{each.change} is forgotten, and nothing includes it"
            assert each.change in record.decided or record.has_forgotten(each.change, each.number)
        self.tell(columns_of(recover))
        self.incarnation = recover.incarnation
        cut = self.at(record)
        for worker in self.workers:
            name, past = worker.operator, cut[worker]
            if not record or str(worker) in record.snapshots:
                lacks = f"{worker} would run something else: {decided} lacks what it needs of {self.decided}"
                assert restored(decided, name, past.changes) == restored(self.decided, name, past.changes), lacks
            missing = [change for change in self.targeting(name) if change not in past.changes]
            self.past[worker] = Past((*past.changes, *missing), past.files)
        assert sorted(self.committed) == sorted(self.closed), "what is output is not what the workers start behind"

    def tell(self, told: dict[str, set[str]]) -> None:
        """One operator is told of the column that was refused, unless a change is rolled back; all else as before."""
        assert all(self.told[operator] <= told.get(operator, set()) for operator in self.told), (self.told, told)
        new = [column for operator in told for column in told[operator] - self.told.get(operator, set())]
        assert new in ([], [self.refused])
        assert new or not self.refused or any(each.undoes for each in self.decided), "nobody is told"
        self.told, self.refused = told, ""

    def targeting(self, operator: str) -> list[str]:
        """The changes decided, and the rollbacks, of this operator."""
        payloads = {each.change: each.payloads for each in self.decided}
        return [each.change for each in self.decided if operator in payloads.get(each.undoes, each.payloads)]

    def end_guard(self, ended: GuardEnded) -> None:
        """Once for each; where it has rolled back, every worker that had switched has switched back."""
        dropped = ended.change not in self.guards and not ended.rolled_back  # that of a fix
        assert dropped or self.guards.get(ended.change, ended) is None, f"{ended}: it does not last"
        self.guards[ended.change] = ended
        back = f"{ended.change}.back"
        assert ended.rolled_back == bool(ended.error)
        assert not ended.rolled_back or ended.change in self.fired
        if ended.rolled_back:
            assert back in [each.change for each in self.decided]
            for worker, past in self.past.items():
                here = ended.change in past.changes and worker not in self.final
                assert not here or back in past.changes, f"{worker} has {ended.change}, and was to have gone back"

    def at(self, record: Checkpoint | None) -> dict[WorkerId, Past]:
        """How all workers stood at a record."""
        if record is None:
            return {worker: Past() for worker in self.workers}
        cut = self.cuts.get(record.epoch, {})
        return {w: cut[w] if str(w) in record.snapshots else self.final[w] for w in self.workers}

    def at_the_end(self) -> None:
        """What must hold when nothing is left to come."""
        assert sorted(self.answered) == sorted(self.asked), "a request for a checkpoint was not answered"
        lasting = [each.change for each in self.decided if self.guards.get(each.change, each) is None]
        assert not lasting, "the end of their guards was not said"
        aborted = {outcome.change for outcome in self.outcomes if outcome.outcome == "aborted"}
        assert not aborted & {change for past in self.past.values() for change in past.changes}
        if self.over is not None and self.over.state == "finished":
            assert sorted(self.committed) == sorted(self.closed)

    def switches(self, worker: WorkerId, marker: Marker) -> str:
        """The change to which the marker switches the worker, or nothing."""
        action = marker.action
        if not isinstance(action, Reconfigure) or worker.operator not in action.targets:
            return ""
        return "" if action.before in self.past[worker].changes else action.change


def restored(decided: Iterable[CommittedChange], operator: str, applied: Collection[str]) -> tuple[str, list[str]]:
    """What a worker that starts from where it had applied these runs, and the changes whose state it puts on top."""
    runs, new = "", []
    ran: dict[str, str] = {}
    for entry in decided:
        if operator in entry.payloads:
            ran[entry.change], runs = runs, entry.change
        elif entry.undoes in ran:
            runs = ran[entry.undoes]
        else:
            continue
        new += [entry.change] if entry.change not in applied else []
    return runs, new


def columns_of(recover: Recover) -> dict[str, set[str]]:
    """The columns whose types each operator is told."""
    told = recover.restoration.columns
    return {operator: set(pa.ipc.read_schema(pa.py_buffer(schema)).names) for operator, schema in told.items()}


def without_payloads(change: CommittedChange) -> tuple[CommittedChange, frozenset[str]]:
    """A decision without its functions, of which some may be kept no more; and its targets, which stay known."""
    return msgspec.structs.replace(change, payloads={}, superseded=()), change.targets
