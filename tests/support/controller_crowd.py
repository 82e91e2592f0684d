"""Workers that do what workers may do, in any order that FIFO lanes allow: a seeded crowd around a controller.

No data flows here. A marker has come to a worker when it was told by an FCM or some sender in scope has applied it;
the worker may apply it once every sender in scope has applied it or has ended. One that has ended passes it on behind
the end of its channels; one that is paused on a tuple applies nothing but a fix. Hosts are lost, and others come
in their place; disks fail; the user asks for changes and checkpoints. ``Laws`` knows the truth and checks it.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

import msgspec
import pyarrow as pa
from controller_setting import MS, random_flow

from fries_nb.controller.controller import Controller
from fries_nb.controller.events import (
    Admit,
    Answered,
    ChangeRequested,
    CheckpointEnded,
    CheckpointKept,
    CheckpointRequested,
    CommitFiles,
    DrainRequested,
    Event,
    Guard,
    GuardEnded,
    GuardFired,
    HostJoined,
    HostLost,
    Instruction,
    Journal,
    KeepCheckpoint,
    OperatorPaused,
    Outcome,
    Recover,
    RefuseHost,
    Resolved,
    RunEnded,
    Tell,
    Tick,
)
from fries_nb.controller.states import ChangeState
from fries_nb.dataflow.graph import Kind
from fries_nb.planning.schedulers import SCHEDULERS, schedule
from fries_nb.protocol.checkpoints import Checkpoint, CommittedChange
from fries_nb.protocol.messages import (
    Abort,
    Answer,
    Cancel,
    Commit,
    Control,
    Done,
    Drain,
    Ended,
    Fcm,
    Hold,
    Marker,
    Paused,
    Prepare,
    Prepared,
    Reconfigure,
    Rehearse,
    Rehearsed,
    Release,
    Resumed,
    Saved,
    WorkerId,
)
from fries_nb.protocol.topology import channels_of, workers_of


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


HOSTS = 2
CHANGES = 4
REQUESTS = 2


class Crowd:
    """All workers of a random flow and the controller, with the lanes between them.

    Args:
        seed: of everything that happens.
        endless: one source does not end by itself.
        checkpoints: the run has a checkpoint place.
        losses: so many times hosts may be lost.
        poison: so many times a worker may pause on a tuple.
    """

    def __init__(
        self, seed: int, endless: bool = False, checkpoints: bool = False, losses: int = 0, poison: int = 0
    ) -> None:
        self.rng = random.Random(seed)
        self.graph = random_flow(self.rng)
        interval = self.rng.choice([None, 20 * MS])
        self.controller = Controller(self.graph, HOSTS, 1, interval, checkpoints=checkpoints, run="r", chaining=False)
        self.now_ns = 0
        self.haste = self.rng.choice([0.01, 0.1, 0.3])
        self.losses, self.poison = losses, poison
        self.workers = [worker for name in self.graph.by_name for worker in workers_of(self.graph, name)]
        channels = [channel for edge in self.graph.edges for channel in channels_of(self.graph, edge)]
        self.senders = {w: [c.sender for c in channels if c.receiver == w] for w in self.workers}
        self.sources = [worker for name in self.graph.sources for worker in workers_of(self.graph, name)]
        self.endless = set(self.rng.sample(self.sources, 1)) if endless else set()
        self.laws = Laws(self.workers, checkpoints)
        self.plans: dict[str, str] = {}
        self.targets: dict[str, frozenset[str]] = {}
        self.requested = self.files = 0
        self.paused: frozenset[str] = frozenset()
        self.stale: list[tuple[Answer, int]] = []
        self.be_born(None)
        for host in range(HOSTS):
            self.join(host)

    def be_born(self, record: Checkpoint | None) -> None:
        """New workers, which know nothing but what the record says; those that had ended will end again at once."""
        self.joined: set[int] = set()
        self.admitted = False
        self.spent = {worker for worker in self.workers if record and str(worker) in record.ended}
        self.control: dict[WorkerId, deque[Control]] = {worker: deque() for worker in self.workers}
        self.answers: dict[WorkerId, deque[Answer]] = {worker: deque() for worker in self.workers}
        self.saves: list[Saved] = []
        self.told: dict[WorkerId, set[Marker]] = {worker: set() for worker in self.workers}
        self.prepared, self.tried = set[tuple[WorkerId, str]](), set[tuple[WorkerId, str]]()
        self.passed: dict[WorkerId, set[int]] = {worker: set() for worker in self.workers}
        self.applied: dict[WorkerId, set[int]] = {worker: set() for worker in self.workers}
        self.ended, self.held, self.stuck = set[WorkerId](), set[WorkerId](), set[WorkerId]()
        self.markers, self.cancelled, self.aside = dict[int, Marker](), set[int](), set[int]()

    # ---- what may happen

    def step(self) -> None:
        """Some time passes, and one of the events that are possible happens."""
        self.now_ns += self.rng.randrange(2 * MS)
        choices: list[Callable[[], None]] = [lambda: self.hear(Tick())]
        if self.admitted:
            choices += [lambda w=w: self.obey(w, self.control[w].popleft()) for w in self.workers if self.control[w]]
            choices += [lambda w=w: self.say(w) for w in self.workers if self.answers[w]]
            choices += [lambda w=w, m=m: self.apply(w, m) for w, m in self.ready()]
            choices += [lambda s=s: self.save(s) for s in self.saves]
            if self.rng.random() < self.haste or len(choices) == 1:
                choices += [lambda w=w: self.end(w) for w in self.workers if self.may_end(w)]
        away = set(range(HOSTS)) - self.joined
        choices += [self.keep] if self.laws.keeping else [lambda h=h: self.join(h) for h in sorted(away)]
        choices += [self.request] if self.requested < CHANGES else []
        choices += [self.mend] if self.paused else []
        choices += [self.misfortune] if self.rng.random() < 0.05 else []
        self.rng.choice(choices)()

    def run(self, until: Callable[[], bool]) -> None:
        """Step by step until something has come about, which must not take long."""
        for _ in range(8_000):
            if until():
                return
            self.step()
        raise AssertionError(f"no end: marker {self.controller.on_the_way}, changes {self.controller.changes}")

    def at_rest(self) -> bool:
        """All changes are resolved, the lane is free, nobody is paused or held, or keeps what was prepared."""
        quiet = not self.controller.on_the_way and not self.paused and not self.stuck and not self.held
        resolved = CHANGES <= self.requested == len(self.laws.outcomes)
        return quiet and resolved and not self.prepared and self.controller.state.flows

    def drain(self) -> None:
        """Ask the endless sources to end."""
        self.poison = 0
        self.hear(DrainRequested())

    def request(self) -> None:
        """A change of one to three operators by any scheduler."""
        maps = [name for name, operator in self.graph.by_name.items() if operator.kind is not Kind.SOURCE]
        self.ask(frozenset(self.rng.sample(maps, min(len(maps), self.rng.randint(1, 3)))))

    def mend(self) -> None:
        """A change of an operator that is paused and for which none waits or is prepared, by any scheduler."""
        states = self.controller.changes
        waiting = (ChangeState.REQUESTED, ChangeState.PREPARING)
        tended = [targets for change, targets in self.targets.items() if states.get(change) in waiting]
        untended = [operator for operator in sorted(self.paused) if frozenset({operator}) not in tended]
        if untended:
            self.ask(frozenset({self.rng.choice(untended)}))

    def ask(self, targets: frozenset[str]) -> None:
        """Ask for a change of these."""
        plan = schedule(self.rng.choice(list(SCHEDULERS)), self.graph, targets)
        self.requested += 1
        self.plans[f"u{self.requested}"] = plan.scheduler
        self.targets[f"u{self.requested}"] = targets
        change, rehearsed = f"u{self.requested}", frozenset(self.rng.sample(sorted(targets), 1))
        guard = self.guard(change, targets)
        self.hear(ChangeRequested(change, plan, dict.fromkeys(targets, b""), rehearsed, guard=guard))

    def guard(self, change: str, targets: frozenset[str]) -> Guard | None:
        """What becomes of the change if it fails soon: no guard here."""
        return None

    def misfortune(self) -> None:
        """A host is lost, a worker meets a tuple that it cannot digest, an older incarnation speaks; or a request."""
        living = [worker for worker in self.workers if worker not in self.ended | self.stuck | self.spent]
        maps = [worker for worker in living if self.graph.operator(worker.operator).kind is Kind.MAP]
        choices: list[Callable[[], None]] = []
        if self.losses:
            choices.append(self.lose)
        if self.poison and maps and self.admitted and not self.held:
            choices.append(lambda: self.pause(self.rng.choice(maps)))
        if self.stale:
            choices.append(self.haunt)
        if len(self.laws.asked) < REQUESTS:
            choices.append(self.ask_checkpoint)
        if choices:
            self.rng.choice(choices)()

    def ask_checkpoint(self) -> None:
        """The user wants a checkpoint."""
        request = f"r{len(self.laws.asked)}"
        self.laws.asked[request] = self.laws.begun
        self.hear(CheckpointRequested(request))

    def lose(self) -> None:
        """A host is lost, with all that its workers were about to say."""
        self.losses -= 1
        self.stale += [(answer, self.laws.incarnation) for waiting in self.answers.values() for answer in waiting]
        self.hear(HostLost(self.rng.randrange(HOSTS), "gone", self.laws.incarnation))

    def haunt(self) -> None:
        """Something that an older incarnation still had to say."""
        answer, incarnation = self.stale.pop(self.rng.randrange(len(self.stale)))
        if incarnation < self.laws.incarnation:
            word = self.rng.choice([Answered(answer, incarnation), HostLost(0, "late", incarnation)])
            self.hear(self.rng.choice([word, HostJoined(0, "", incarnation)]))

    def join(self, host: int) -> None:
        """A host says hello."""
        self.joined.add(host)
        self.hear(HostJoined(host, "", self.laws.incarnation))

    def keep(self) -> None:
        """The record is written, or is not."""
        reason = "disk full" if self.rng.random() < 0.1 and not self.ended.issuperset(self.workers) else ""
        self.hear(CheckpointKept(self.laws.kept(reason), reason))

    def ready(self) -> list[tuple[WorkerId, Marker]]:
        """Markers that may be applied now, and where."""
        found = []
        for marker in self.markers.values():
            for worker in self.workers:
                if worker.operator not in marker.scope or marker.id in self.passed[worker]:
                    continue
                if worker in self.stuck and marker not in self.told[worker]:
                    continue
                inside = [sender for sender in self.senders[worker] if sender.operator in marker.scope]
                behind = [sender for sender in inside if marker.id not in self.applied[sender]]
                if (marker in self.told[worker] or len(behind) < len(inside)) and self.ended.issuperset(behind):
                    found.append((worker, marker))
        return found

    def may_end(self, worker: WorkerId) -> bool:
        """Sources end when they like, unless they are endless; the others after all their senders."""
        lasting = self.ended | (self.endless - self.spent) | self.held | self.stuck
        return worker not in lasting and self.ended.issuperset(self.senders[worker])

    # ---- what a worker does

    def say(self, worker: WorkerId) -> None:
        """The oldest of its answers comes to the controller."""
        answer = self.answers[worker].popleft()
        if isinstance(answer, Prepared) and not answer.error:
            self.tried.add((worker, answer.change))
            self.laws.unrehearsed |= {answer.change} if answer.samples else set()
        if isinstance(answer, Rehearsed) and not answer.error:
            self.laws.unrehearsed.discard(answer.change)
        self.hear(Answered(answer, self.rng.choice([0, self.laws.incarnation])))

    def save(self, saved: Saved) -> None:
        """A snapshot is on disk."""
        self.saves.remove(saved)
        self.answers[saved.worker].append(saved)

    def pause(self, worker: WorkerId) -> None:
        """A worker is paused on a tuple."""
        self.poison -= 1
        self.stuck.add(worker)
        self.answers[worker].append(Paused(worker, "boom"))

    def obey(self, worker: WorkerId, control: Control) -> None:
        """Take in what the controller told."""
        match control:
            case Prepare(change=change):
                bad = self.rng.random() < 0.1
                if not bad:
                    self.prepared.add((worker, change))
                recent = (b"row",) if control.rehearse and not bad and self.rng.random() < 0.7 else ()
                self.answers[worker].append(Prepared(change, worker, error="no" if bad else "", samples=recent))
            case Rehearse(change=change, samples=samples):
                assert samples, f"{change} is rehearsed on nothing"
                bad = self.rng.random() < 0.1
                self.answers[worker].append(Rehearsed(change, worker, error="no" if bad else "", tuples=1))
            case Abort(change=change):
                self.prepared.discard((worker, change))
            case Fcm(marker=marker):
                self.told[worker].add(marker)
            case Cancel(marker=number):
                self.passed[worker].add(number)
            case Drain():
                self.endless.discard(worker)

    def apply(self, worker: WorkerId, marker: Marker) -> None:
        """Apply a marker whose time has come."""
        self.passed[worker].add(marker.id)
        self.applied[worker].add(marker.id)
        change = self.laws.switches(worker, marker)
        if worker in self.ended:
            if isinstance(marker.action, Reconfigure):
                self.prepared.discard((worker, marker.action.change))
            self.answers[worker].append(Done(marker.id, worker, ended=True))
            return
        if change:
            self.switch(worker, change, marker.action.before)
            waits = self.plans[change] == "minibatch" and marker.id not in self.aside
            assert not waits or self.held | self.ended >= set(self.sources), f"{worker} switches within a batch"
            self.laws.switch(worker, change)
        elif isinstance(marker.action, Reconfigure) and marker.action.before in self.laws.past[worker].changes:
            self.prepared.discard((worker, marker.action.change))
            self.laws.skip(worker, marker.action)
        if worker in self.sources and isinstance(marker.action, Hold | Release):
            (self.held.add if isinstance(marker.action, Hold) else self.held.discard)(worker)
        files = self.close(worker) if isinstance(marker.action, Commit) else ()
        self.answers[worker].append(Done(marker.id, worker, switched=bool(change), files=files))
        if isinstance(marker.action, Commit) and marker.action.checkpoint:
            self.laws.cut(worker, marker.action.epoch)
            error = "disk full" if self.rng.random() < 0.03 else ""
            self.saves.append(Saved(marker.action.epoch, worker, f"{marker.action.epoch}/{worker}", error=error))
        if change and worker in self.stuck:
            self.retry(worker)

    def switch(self, worker: WorkerId, change: str, before: str) -> None:
        """Run what was prepared."""
        assert (worker, change) in self.prepared, f"{worker} switches to what it has not prepared"
        self.prepared.discard((worker, change))

    def retry(self, worker: WorkerId) -> None:
        """The tuple on which it is paused is tried again."""
        again = self.rng.random() < 0.3
        self.answers[worker].append(Paused(worker, "boom again") if again else Resumed(worker))
        self.stuck -= set() if again else {worker}

    def end(self, worker: WorkerId) -> None:
        """Process the last tuple."""
        self.ended.add(worker)
        self.answers[worker].append(Ended(worker, files=self.close(worker)))
        self.laws.end(worker)

    def close(self, worker: WorkerId) -> tuple[str, ...]:
        """Close a sink's file, if it has one open."""
        is_sink = self.graph.operator(worker.operator).kind is Kind.SINK
        if not is_sink or worker in self.spent or self.rng.random() < 0.3:
            return ()
        self.files += 1
        self.laws.close(worker, (f"{worker}-{self.files}",))
        return (f"{worker}-{self.files}",)

    # ---- what the controller says

    def hear(self, event: Event) -> None:
        """Hand an event to the controller and check what it says."""
        instructions = self.controller.handle(event, self.now_ns)
        assert not any(isinstance(instruction, KeepCheckpoint) for instruction in instructions[:-1])
        for instruction in instructions:
            self.laws.check(instruction, self.tried)
            self.carry_out(instruction)

    def carry_out(self, instruction: Instruction) -> None:
        """What an instruction means to the crowd."""
        match instruction:
            case Tell(worker, control):
                assert self.admitted, f"{instruction} to nobody"
                if isinstance(control, Fcm):
                    self.check_marker(control.marker)
                if isinstance(control, Cancel):
                    self.cancelled.add(control.marker)
                self.control[worker].append(control)
            case OperatorPaused(operator, paused):
                self.paused = self.paused | {operator} if paused else self.paused - {operator}
            case Recover():
                self.be_born(instruction.restoration.checkpoint)
            case Admit():
                assert self.joined == set(range(HOSTS))
                self.admitted = True

    def check_marker(self, marker: Marker) -> None:
        """A new id sets out only when every earlier marker is cancelled, or applied wherever it could be."""
        if isinstance(marker.action, Reconfigure):
            assert marker.action.change in {each.change for each in self.laws.decided}, "an FCM before the journal"
        if isinstance(marker.action, Commit):
            self.laws.begun = max(self.laws.begun, marker.action.epoch)
        if marker.id not in self.markers and len(marker.scope) == 1 and marker.scope <= self.paused:
            self.aside.add(marker.id)
        if marker.id not in self.markers.keys() | self.aside:
            for earlier in self.markers.values():
                beside = earlier.action == marker.action and not earlier.scope & marker.scope
                if beside or earlier.id in self.cancelled:
                    continue
                for worker in self.workers:
                    through = worker in self.ended or earlier.id in self.applied[worker]
                    assert through or worker.operator not in earlier.scope, f"{marker} crosses {earlier} at {worker}"
        assert self.markers.get(marker.id, marker) == marker
        self.markers[marker.id] = marker
