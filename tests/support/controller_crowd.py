"""Workers that do what workers may do, in any order that FIFO lanes allow: a seeded crowd around a controller.

No data flows here. A marker has come to a worker when it was told by an FCM or some sender in scope has applied it;
the worker may apply it once every sender in scope has applied it or has ended. One that has ended passes it on behind
the end of its channels; one that is paused on a tuple applies nothing but a fix. Hosts are lost, and others come
in their place; disks fail; the user asks for changes and checkpoints. ``Laws`` knows the truth and checks it.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable

from controller_laws import Laws
from controller_setting import MS, random_flow

from fries_nb.controller.controller import Controller
from fries_nb.controller.events import (
    Admit,
    Answered,
    ChangeRequested,
    CheckpointKept,
    CheckpointRequested,
    DrainRequested,
    Event,
    Guard,
    HostJoined,
    HostLost,
    Instruction,
    KeepCheckpoint,
    OperatorPaused,
    Recover,
    Tell,
    Tick,
)
from fries_nb.controller.states import ChangeState
from fries_nb.dataflow.graph import Kind
from fries_nb.planning.schedulers import SCHEDULERS, schedule
from fries_nb.protocol.checkpoints import Checkpoint
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
