"""Workers that do what workers may do, in any order that FIFO lanes allow: a seeded crowd around a controller.

No data flows here. A marker has come to a worker when it was told by an FCM or some sender in scope has applied it;
the worker may apply it once every sender in scope has applied it or has ended. One that has ended passes it on behind
the end of its channels. The crowd knows the truth about every
marker and file, and checks what the controller says against it.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable

from controller_setting import MS

from fries_nb.controller.controller import Controller
from fries_nb.controller.events import (
    Answered,
    ChangeRequested,
    CommitFiles,
    DrainRequested,
    Event,
    HostJoined,
    Instruction,
    Journal,
    Outcome,
    Resolved,
    RunEnded,
    Tell,
    Tick,
)
from fries_nb.dataflow.graph import Edge, Emits, Graph, Kind, Operator, Partitioning
from fries_nb.messages import (
    Abort,
    Answer,
    Cancel,
    Commit,
    Control,
    Done,
    Drain,
    Ended,
    Fcm,
    Marker,
    Prepare,
    Prepared,
    Reconfigure,
    WorkerId,
)
from fries_nb.planning.expansion import channels_of, workers_of
from fries_nb.scheduling import schedule

HOSTS = 2
CHANGES = 4


def random_flow(rng: random.Random) -> Graph:
    """A graph of up to nine operators with up to two workers each; those without consumers are sinks."""
    sources, others = rng.randint(1, 2), rng.randint(2, 7)
    names = [f"n{number}" for number in range(sources + others)]
    pairs = {(rng.choice(names[:at]), names[at]) for at in range(sources, len(names)) for _ in range(rng.randint(1, 2))}
    pairs |= {(name, names[-1]) for name in names[:sources]}
    fed, feeding = {to for _, to in pairs}, {source for source, _ in pairs}
    kinds = {n: Kind.SOURCE if n not in fed else Kind.MAP if n in feeding else Kind.SINK for n in names}
    workers = rng.randint(1, 2)
    return Graph(
        "random",
        tuple(Operator(n, rng.choice(list(Emits)), workers=workers, kind=kinds[n]) for n in names),
        tuple(Edge(*pair, rng.choice([Partitioning.HASH, Partitioning.FORWARD])) for pair in sorted(pairs)),
    )


class Crowd:
    """All workers of a random flow and the controller, with the lanes between them."""

    def __init__(self, seed: int, endless: bool = False) -> None:
        self.rng = random.Random(seed)
        self.graph = random_flow(self.rng)
        self.controller = Controller(self.graph, HOSTS, 1, self.rng.choice([None, 20 * MS]), 10**18)
        self.now_ns = 0
        self.haste = self.rng.choice([0.01, 0.1, 0.3])
        self.workers = [worker for name in self.graph.by_name for worker in workers_of(self.graph, name)]
        channels = [channel for edge in self.graph.edges for channel in channels_of(self.graph, edge)]
        self.senders = {w: [c.sender for c in channels if c.receiver == w] for w in self.workers}
        sources = [worker for name in self.graph.sources for worker in workers_of(self.graph, name)]
        self.endless = set(self.rng.sample(sources, 1)) if endless else set()
        self.control: dict[WorkerId, deque[Control]] = {worker: deque() for worker in self.workers}
        self.answers: dict[WorkerId, deque[Answer]] = {worker: deque() for worker in self.workers}
        self.told: dict[WorkerId, set[Marker]] = {worker: set() for worker in self.workers}
        self.prepared: set[tuple[WorkerId, str]] = set()
        self.passed: dict[WorkerId, set[int]] = {worker: set() for worker in self.workers}
        self.applied: dict[WorkerId, set[int]] = {worker: set() for worker in self.workers}
        self.ended: set[WorkerId] = set()
        self.markers: dict[int, set[Marker]] = {}
        self.cancelled: set[int] = set()
        self.closed: list[str] = []
        self.committed: list[str] = []
        self.decided: set[str] = set()
        self.outcomes: list[Outcome] = []
        self.requested = 0
        self.over: RunEnded | None = None
        for host in range(HOSTS):
            self.hear(HostJoined(host, "", 1))

    # ---- what may happen

    def step(self) -> None:
        """Some time passes, and one of the events that are possible happens."""
        self.now_ns += self.rng.randrange(2 * MS)
        choices: list[Callable[[], None]] = [lambda: self.hear(Tick())]
        choices += [lambda w=w: self.obey(w, self.control[w].popleft()) for w in self.workers if self.control[w]]
        choices += [lambda w=w: self.hear(Answered(self.answers[w].popleft())) for w in self.workers if self.answers[w]]
        choices += [lambda w=w, m=m: self.apply(w, m) for w, m in self.ready()]
        if self.rng.random() < self.haste or len(choices) == 1:
            choices += [lambda w=w: self.end(w) for w in self.workers if self.may_end(w)]
        if self.requested < CHANGES:
            choices.append(self.request)
        self.rng.choice(choices)()

    def run(self, until: Callable[[], bool]) -> None:
        """Step by step until something has come about, which must not take long."""
        for _ in range(5_000):
            if until():
                return
            self.step()
        raise AssertionError(f"no end: marker {self.controller.on_the_way}, changes {self.controller.changes}")

    def at_rest(self) -> bool:
        """All changes are resolved and the lane is free."""
        return self.requested == len(self.outcomes) == CHANGES and not self.controller.on_the_way

    def drain(self) -> None:
        """Ask the endless sources to end."""
        self.hear(DrainRequested())

    def request(self) -> None:
        """A change of one to three operators by any scheduler."""
        maps = [name for name, operator in self.graph.by_name.items() if operator.kind is not Kind.SOURCE]
        targets = frozenset(self.rng.sample(maps, min(len(maps), self.rng.randint(1, 3))))
        plan = schedule(self.rng.choice(["fries", "epoch", "naive"]), self.graph, targets)
        self.requested += 1
        self.hear(ChangeRequested(f"u{self.requested}", plan, dict.fromkeys(targets, b"")))

    def ready(self) -> list[tuple[WorkerId, Marker]]:
        """Markers that may be applied now, and where."""
        found = []
        for marker in (marker for issued in self.markers.values() for marker in issued):
            for worker in self.workers:
                if worker.operator not in marker.scope or marker.id in self.passed[worker]:
                    continue
                inside = [sender for sender in self.senders[worker] if sender.operator in marker.scope]
                come = marker in self.told[worker] or any(marker.id in self.applied[sender] for sender in inside)
                if come and all(marker.id in self.applied[sender] or sender in self.ended for sender in inside):
                    found.append((worker, marker))
        return found

    def may_end(self, worker: WorkerId) -> bool:
        """Sources end when they like, unless they are endless; the others after all their senders."""
        return worker not in self.ended | self.endless and self.ended.issuperset(self.senders[worker])

    # ---- what a worker does

    def obey(self, worker: WorkerId, control: Control) -> None:
        """Take in what the controller told."""
        match control:
            case Prepare() if worker in self.ended and self.rng.random() < 0.5:
                pass  # it may answer, and need not
            case Prepare(change=change):
                bad = worker not in self.ended and self.rng.random() < 0.1
                self.prepared.add((worker, change))
                self.answers[worker].append(Prepared(change, worker, error="no" if bad else ""))
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
        if worker in self.ended:
            self.answers[worker].append(Done(marker.id, worker, ended=True))
            return
        switched = isinstance(marker.action, Reconfigure) and worker.operator in marker.action.targets
        if isinstance(marker.action, Reconfigure) and switched:
            assert (worker, marker.action.change) in self.prepared, f"{worker} switches to what it has not prepared"
        files = self.close(worker) if isinstance(marker.action, Commit) else ()
        self.answers[worker].append(Done(marker.id, worker, switched=switched, files=files))

    def end(self, worker: WorkerId) -> None:
        """Process the last tuple."""
        self.ended.add(worker)
        self.answers[worker].append(Ended(worker, files=self.close(worker)))

    def close(self, worker: WorkerId) -> tuple[str, ...]:
        """Close a sink's file, if it has one open."""
        if self.graph.operator(worker.operator).kind is not Kind.SINK or self.rng.random() < 0.3:
            return ()
        self.closed.append(f"{worker}-{len(self.closed)}")
        return (self.closed[-1],)

    # ---- what the controller says

    def hear(self, event: Event) -> None:
        """Hand an event to the controller and check what it says."""
        for instruction in self.controller.handle(event, self.now_ns):
            self.check(instruction)

    def check(self, instruction: Instruction) -> None:
        """Every law that can be seen in a single instruction; then carry it out."""
        assert self.over is None or isinstance(instruction, Resolved), f"{instruction} after the end"
        match instruction:
            case Tell(worker, control):
                if isinstance(control, Fcm):
                    self.check_marker(control.marker)
                if isinstance(control, Cancel):
                    self.cancelled.add(control.marker)
                self.control[worker].append(control)
            case Journal(decided):
                self.decided.add(decided.change)
            case Resolved(outcome):
                assert outcome.change not in {seen.change for seen in self.outcomes}, f"{outcome} comes again"
                assert outcome.outcome == "aborted" or outcome.change in self.decided
                self.outcomes.append(outcome)
            case CommitFiles(files=files):
                named = [file for group in files.values() for file in group]
                assert named, "an empty commit"
                assert not set(named) & set(self.committed), f"{named} committed again"
                self.committed += named
            case RunEnded():
                self.over = instruction

    def check_marker(self, marker: Marker) -> None:
        """A new id sets out only when every earlier marker is cancelled, or applied wherever it could be."""
        if isinstance(marker.action, Reconfigure):
            assert marker.action.change in self.decided, "an FCM before the decision was journaled"
        if marker.id not in self.markers:
            assert marker.id == len(self.markers) + 1
            for earlier in (earlier for issued in self.markers.values() for earlier in issued):
                beside = earlier.action == marker.action and not earlier.scope & marker.scope
                if beside or earlier.id in self.cancelled:
                    continue
                for worker in self.workers:
                    through = worker in self.ended or earlier.id in self.applied[worker]
                    assert through or worker.operator not in earlier.scope, f"{marker} crosses {earlier} at {worker}"
        self.markers.setdefault(marker.id, set()).add(marker)
