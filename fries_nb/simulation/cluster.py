"""The runtime in one thread, with every interleaving drawn from a seed.

Its driver is the core that runs on Spark: whoever watches it sees each instruction, and may kill it in front of one.

>>> peer_of(2, incarnation=3), host_at(b"2.3")
(b'2.3', (2, 3))

Workers and controller are the ones that run on Spark. Each step draws one of the possible events: a frame, a grant, a
control message or an answer arrives, a reader reads, a worker processes a few tuples, a rehearsal finishes, a snapshot
is written, a clock ticks, a host says hello. So every order of events that a real network may cause can occur, and a
failure is replayed from its seed.

Hosts and the driver may be killed at any step (``faults``). The ``store`` survives; messages in flight arrive late, as
messages of an older incarnation, or never.

>>> import fries_nb as fn
>>> flow = fn.Dataflow("double")
>>> numbers = flow.source("numbers", fn.rate(None, count=4))
>>> numbers.map("FD", lambda row: row | {"version": 1}).sink("out", fn.memory())
Stream('out')
>>> rows = {"numbers": [{"value": v} for v in range(40)]}
>>> cluster = Cluster(flow.graph(workers=2), rows, seed=7, checkpoints=True, commit_interval_ns=5_000_000)
>>> change = cluster.request({"FD": lambda row: row | {"version": 2}}, "fries")
>>> cluster.until(lambda: bool(cluster.journal))  # decided, and on disk
>>> cluster.kill(0)
>>> cluster.run()
>>> cluster.outcomes[change].outcome, cluster.state, len(cluster.rows("out")), len(cluster.recoveries)
('done', 'finished', 40, 1)
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from fries_nb.controller import events
from fries_nb.controller.controller import Controller
from fries_nb.controller.known_changes import with_deferred
from fries_nb.dataflow.arguments import Limit
from fries_nb.dataflow.graph import Graph
from fries_nb.driver.committer import Committer, complete
from fries_nb.driver.driver_core import DriverCore, Told
from fries_nb.driver.tracing import Trace
from fries_nb.host.host_progress import PARTING_NS
from fries_nb.host.region_spec import RegionSpec
from fries_nb.operators.dead_letters import requeued_row
from fries_nb.operators.instance import Instance
from fries_nb.protocol.checkpoints import CommittedChange, Restoration
from fries_nb.protocol.messages import Chained, WorkerId
from fries_nb.protocol.partitioning import Binning
from fries_nb.protocol.trace import Record, flow_of
from fries_nb.simulation.faults import Deployment, DriverKilled, Fate, Faults
from fries_nb.simulation.hosts import Hosts
from fries_nb.simulation.network import SeededNetwork
from fries_nb.simulation.readers import Rows, Supply
from fries_nb.simulation.seeded_changes import SeededChanges, StepRequests
from fries_nb.simulation.store import ListPort, Store
from fries_nb.transport.control import Heard
from fries_nb.transport.envelopes import ControllerMessage, Hello, HostMessage, Said
from fries_nb.worker.worker import Worker


class ManualClock:
    """A clock in nanoseconds since the Unix epoch, advanced by the caller.

    >>> clock = ManualClock()
    >>> before = clock()
    >>> clock.advance(5)
    >>> clock() - before
    5
    """

    def __init__(self, start_ns: int = 1_700_000_000_000_000_000) -> None:
        self._now = start_ns

    def __call__(self) -> int:
        """The current time in nanoseconds since the Unix epoch."""
        return self._now

    def advance(self, nanoseconds: int) -> None:
        """Advance the time; a negative number has no effect."""
        self._now += max(0, nanoseconds)


class SeededDriver(DriverCore):
    """The core of a driver that is watched; see ``DriverCore``."""

    def __init__(
        self,
        *parts: Any,
        watch: Callable[[events.Instruction], None],
        posted: Callable[[], Iterable[events.Event]],
    ) -> None:
        # ``parts``: the arguments of ``DriverCore``
        super().__init__(*parts)
        self._watch = watch  # called before each instruction is carried out; what it raises is the driver's death
        self._posted = posted  # called after each instruction; returns the events that users have posted because of it

    def _carry_out(self, instruction: events.Instruction) -> Iterable[events.Event]:
        self._watch(instruction)
        return [*super()._carry_out(instruction), *self._posted()]


class SeededJob:
    """Starts the hosts of a seeded run; see ``HostJob``."""

    def __init__(
        self,
        start: Callable[[tuple[int, ...]], None],
        end: Callable[[tuple[int, ...]], None],
        again: Callable[[RegionSpec], None],
    ) -> None:
        # ``again``: starts the hosts of another incarnation
        # ``end``: called with hosts that end, and may not have come yet
        # ``start``: starts further hosts
        self._start, self.let_go, self.restart = start, end, again

    def grow(self, region: RegionSpec, hosts: tuple[int, ...]) -> None:
        """Start further hosts; see ``GrowingJob``."""
        self._start(hosts)

    def is_running(self) -> bool:
        """Whether the hosts of now are started, as they always are."""
        return True


def peer_of(host: int, incarnation: int) -> bytes:
    """The connection of a host."""
    return f"{host}.{incarnation}".encode()


def host_at(peer: bytes) -> tuple[int, int]:
    """The host behind a connection, and its incarnation."""
    host, incarnation = peer.decode().split(".")
    return int(host), int(incarnation)


TICK = 0.02
"""Probability of a tick at a step at which another event is possible."""
NEWS = 0.1
"""Probability at a step that a start or loss of a host is noticed, if there is any."""
MOST_STEPS = 100_000  # after so many a run is taken to have no end; drawn ones have some thousands
PAUSES_NS = (1_000, 50_000, 3_000_000)
"""Possible time from one step to the next in nanoseconds."""

FAULTLESS = Faults()


class Cluster:
    """A seeded run of a graph over rows given for each source. It is the environment of its driver.

    Args:
        inputs: the rows of each source.
        hosts: number of hosts among which the workers are distributed.
        seed: determines the interleaving.
        window: bytes of credit of a channel; small windows make data wait.
        chaining: whether operators are chained where possible.
        commit_interval_ns: interval of commit markers; ``None`` for one commit at the end.
        audit: whether a trace is kept.
        identities: whether rows carry identities; with a trace they do.
        checkpoints, faults: whether each commit is a checkpoint, to recover lost hosts from; the faults to inject.

    Attributes:
        outcomes: change id to outcome.
        guards: change id to how its guard ended.
        orphans: changes without an outcome whose driver died.
        state: ``running``, then the final state; ``error`` and ``details`` say why it failed.
        recoveries: the reason of each restart of the hosts.
        deferred: changes that a restart has deferred.
        ended: checkpoints that are complete or aborted, in order.
        paused, chained: paused operators; the answers to requests for chains, in order.
        driver, warnings: the core of the driver, and what it warns of.
        requeued: requests for rows of dead letters to their answers.
        asked: requests for checkpoints to the reason why they were aborted (empty: complete), ``None`` while open.
    """

    hosts_of: type[Hosts] = Hosts

    def __init__(
        self, graph: Graph, inputs: Mapping[str, Rows], *,
        hosts: int = 1, seed: int = 0, window: int = 2_000, chaining: bool = True, audit: bool = True,
        commit_interval_ns: int | None = None, checkpoints: bool = False, faults: Faults = FAULTLESS,
        identities: bool = False,
    ) -> None:  # fmt: skip
        self.graph = graph  # the dataflow; its functions are copied by pickling, as on Spark
        self.random = random.Random(seed)  # the source of all randomness
        self.clock = ManualClock()
        self.changes = SeededChanges(graph, chaining)
        self.outcomes, self.guards = self.changes.outcomes, self.changes.guards
        self.orphans, self.paused = self.changes.orphans, self.changes.paused
        self.state, self.error, self.details = "running", "", ""
        self.recoveries, self.deferred, self.ended = list[str](), set[str](), list[events.CheckpointEnded]()
        self.chained, self.warnings = list[Chained](), list[str]()
        self.asked: dict[str, str | None] = {}
        self.requeued: dict[str, events.RequeueEnded] = {}
        self._fate = Fate(faults, hosts, self.random)
        self.store = Store(self._fate.disk_is_full, self._fate.sink_fails)  # the storage that survives failures
        self._plan = Deployment(
            graph, inputs, hosts, window, chaining, audit, self.clock, self.clock(), self.random, self.store,
            self._fate, identities=audit or identities,
        )  # fmt: skip
        self._interval_ns, self._checkpoints = commit_interval_ns, checkpoints
        self._held = set[WorkerId]()
        self._draining = False
        self._doom: int | None = None
        self._news: list[events.Event | Heard] = []
        self._why = ""
        self._lead(1, None)
        self.hosts = self.hosts_of(self._plan, 1, Restoration(None))  # the current incarnation
        for host in range(hosts):
            self._say(self._hello(host, 1))

    def _hello(self, host: int, incarnation: int, address: str = "") -> Heard:
        message = Hello(address or f"host-{host}", 0, "", incarnation)
        return Heard(peer_of(host, incarnation), host, 0, message)

    def _lead(self, incarnation: int, restored: Restoration | None) -> None:
        """Start a driver, with its own controller."""
        self.controller = Controller(
            self.graph, self._plan.hosts, incarnation, self._interval_ns, splits=self._plan.splits(),
            checkpoints=self._checkpoints, restored=restored, run="r", chaining=self._plan.chaining,
        )  # fmt: skip
        self.controller.coordinators.append(StepRequests(self.controller.coordinators))
        region = self._plan.region(incarnation, restored or Restoration(None))
        committer = Committer(self.store, self.store.sinks, self.warnings.append)
        job = SeededJob(self._start_hosts, self._let_go, self._restart)
        self.driver = SeededDriver(
            self, self.controller, region, committer, self._told, job, Trace(),
            watch=self._watched, posted=self.changes.posted,
        )  # fmt: skip

    # ---- actions of the user

    def request(
        self, change: Mapping[str, Any], scheduler: str = "fries", *, pruning: bool = True, rehearse: bool = False,
        guard: Limit | None = None, force: bool = False, share: float = 1.0,
    ) -> str:  # fmt: skip
        """Request a change; returns its id, a key of ``outcomes`` once it has ended."""
        # ``guard`` is the duration of the change's guard, in seconds of the cluster's clock or in tuples. ``rehearse``
        # rehearses the new functions of the most upstream targets on recent tuples, as a run on Spark does; ``force``
        # makes the change even if these give reason to doubt it.
        name = self.changes.request(change, scheduler, pruning, rehearse, guard, force, share)
        self.post()
        return name

    def roll_back(self) -> str:
        """Request a rollback of the newest change in effect; returns its id."""
        name = self.changes.roll_back()
        self.post()
        return name

    @property
    def open(self) -> set[str]:
        """The changes without an outcome."""
        return self.changes.open

    def ramp(self, change: str, share: float) -> str:
        """Request a further step of a canary; returns its id."""
        name = self.changes.ramp(change, share)
        self.post()
        return name

    def checkpoint(self) -> str:
        """Request a checkpoint; returns the id of the request, a key of ``asked``."""
        request = f"c{len(self.asked) + 1}"
        self.asked[request] = None
        self._say(events.CheckpointRequested(request))
        return request

    def requeue(self, operator: str, letters: Iterable[Mapping[str, Any]]) -> str:
        """Give rows of dead letters back to an operator; returns the id of the request, a key of ``requeued``."""
        key = self.graph.operator(operator).key
        rows = tuple(requeued_row(letter, Binning(key) if key else None) for letter in letters)
        request = f"requeue-{self.random.getrandbits(64):x}"
        self._say(events.RequeueRequested(request, operator, rows))
        return request

    def stop(self, drain: bool = False) -> None:
        """Stop the run, at once or after it is drained."""
        self._draining |= drain
        self._say(events.DrainRequested() if drain else events.StopRequested())

    def hold(self, sources: Iterable[WorkerId]) -> None:
        """Keep these source workers from reading their last rows and from ending, until they are released."""
        self._held.update(sources)
        self.supply.held.update(self._held)

    def release(self) -> None:
        """Let all source workers read to their end."""
        self._held.clear()
        for source in sorted(self.supply.held):
            self.supply.held.discard(source)
            self.hosts.wake(source)

    # ---- state

    @property
    def supply(self) -> Supply:
        """The input that the sources have not read yet."""
        return self.hosts.supply

    @property
    def network(self) -> SeededNetwork:
        """The lanes between workers and controller."""
        return self.hosts.network

    @property
    def workers(self) -> dict[WorkerId, Worker]:
        """All workers, by their first operator."""
        return self.hosts.workers

    @property
    def ports(self) -> dict[WorkerId, ListPort]:
        """The ports of the current incarnation."""
        return self.hosts.ports

    @property
    def journal(self) -> list[CommittedChange]:
        """The decided changes in the store, in order."""
        return self.store.decided

    @property
    def epochs(self) -> list[dict[str, tuple[str, ...]]]:
        """The commits in order: parts by sink."""
        return [files for _, files in self.store.committed]

    def rows(self, sink: str) -> list[dict[str, Any]]:
        """Committed rows of a sink, hidden columns included, in the order of commits; or an operator's dead letters."""
        return [row for epoch in self.epochs for row in self.store.rows_of(sink, epoch.get(sink, ()))]

    def worker(self, operator: str, index: int = 0) -> Worker:
        """The worker that runs this operator at this index."""
        return self.hosts.worker_of(WorkerId(operator, index))

    def instances(self, operator: str) -> list[Instance]:
        """The operator's instances, one for each worker."""
        found = (instance for worker in self.workers.values() for instance in worker.instances)
        return [instance for instance in found if instance.worker.operator == operator]

    def records(self) -> list[Record]:
        """The trace so far, with records that workers have not reported yet; each worker's records are in order."""
        self.hosts.trace()
        return [flow_of(self.graph, finished=self.state == "finished"), *self.store.traced()]

    # ---- steps

    def run(self, steps: int = MOST_STEPS) -> None:
        """Take steps until the run has ended.

        Raises:
            AssertionError: no event is possible although the run has not ended, or it takes too many steps.
        """
        self.until(lambda: self.state != "running", steps)

    def until(self, reached: Callable[[], bool], steps: int = MOST_STEPS) -> None:
        """Take steps until a condition holds, or the run has ended; raises as ``run`` does."""
        for _ in range(steps):
            if reached() or self.state != "running":
                return
            if not self.step():
                raise AssertionError(f"the run is stuck: {self.describe()}")
        raise AssertionError(f"it has not come to it after {steps} steps: {self.describe()}")

    def steps(self, count: int) -> None:
        """Take at most ``count`` steps."""
        for _ in range(count):
            if self.state != "running" or not self.step():
                return

    def settle(self) -> None:
        """After the end: deliver all messages in flight."""
        self.hosts.chains.drop()
        while self._news or len(self.hosts.draws):
            self._happen()

    def step(self) -> bool:
        """Carry out one possible event; returns whether there was any."""
        self.clock.advance(PAUSES_NS[int(self.random.random() * len(PAUSES_NS))])
        dying = self._fate.next_kill(bool(self.controller.on_the_way)) if self._fate.kills else None
        if dying:
            self.kill(*dying)
        elif dying is not None:
            self._doom = self._fate.last_words()
        if not self._news and not len(self.hosts.draws):
            if self._doom is not None:
                self.kill_driver()
                return True
            self.clock.advance(PARTING_NS if self.hosts.progress.awaits_last_frames else self._interval_ns or 0)
            self._pass_time()
            return bool(self._news or len(self.hosts.draws)) or self.state != "running"
        if self.random.random() < TICK:
            self.tick()
        else:
            self._happen()
        return True

    def tick(self) -> None:
        """Advance the controller's clock and one worker's, which reports."""
        self._pass_time()
        self.hosts.tick()

    def _pass_time(self) -> None:
        self._say(None)
        for host, reason in self.hosts.progress.unfit():
            self._lose([host], reason)

    def _happen(self) -> None:
        if self._news and (not len(self.hosts.draws) or self.random.random() < NEWS):
            self._say(self._news.pop(self.random.randrange(len(self._news))))
        elif (arrived := self.hosts.happen()) is not None:
            host, message = arrived
            incarnation = self.hosts.incarnation
            if not isinstance(message, HostMessage):
                self.chained += [message] if isinstance(message, Chained) else []
                message = Said((message,))
            self._say(Heard(peer_of(host, incarnation), host, incarnation, message))

    # ---- faults

    def kill(self, *hosts: int) -> None:
        """Kill these hosts; the controller is notified some time later."""
        self._lose(hosts, "it was killed")

    def _lose(self, hosts: Iterable[int], reason: str) -> None:
        self.hosts.kill(hosts)
        self._news += [events.HostLost(host, reason, self.hosts.incarnation) for host in hosts]

    def kill_driver(self) -> None:
        """Kill the driver with all hosts; the run is resumed from the store."""
        self._doom = None
        self._plan = self._plan.reshaped()
        self.graph = self._plan.graph
        self.asked = {request: answer for request, answer in self.asked.items() if answer is not None}
        incarnation = self.controller.incarnation + 1
        restoration = with_deferred(self.graph, self.store.restoration())
        complete(restoration.checkpoint, self.store.sinks)
        self.store.begin(incarnation)
        self._lead(incarnation, restoration)
        self._start_again(incarnation, restoration, "the driver was killed")
        self.store.resume()
        self.changes.restart(restoration.decided, self.graph, self._plan.chaining)
        if self._draining:
            self._say(events.DrainRequested())

    def _start_again(self, incarnation: int, restoration: Restoration, reason: str) -> None:
        """Replace the hosts by new ones; messages of the old ones arrive late or never."""
        self.recoveries.append(reason)
        self.deferred.update(restoration.deferred)
        old, self._news = self.hosts, []
        late = [answer for answer in old.unsaid() if self.random.random() < 0.5]
        self.store.cut()
        self.hosts = self.hosts_of(self._plan, incarnation, restoration)
        held = {held.operator for held in self._held}
        self.supply.held.update(source for source in self.supply.sources if source.operator in held)
        # They pass by the driver, which would drop them, since the controller has to know them by itself as well.
        self._news = [events.Answered(answer, old.incarnation) for answer in late]
        self._news += [events.HostLost(0, "late", old.incarnation), self._hello(0, old.incarnation, "late")]
        self._news += [self._hello(host, incarnation) for host in range(self._plan.hosts)]

    # ---- events of the driver

    def _say(self, what: events.Event | Heard | None) -> None:
        """Pass the driver an event, or a message of a host; ``None`` lets it take the steps that are due."""
        try:
            if what is None:
                self.driver.step()
                self.driver.tidy()
            elif isinstance(what, Heard):
                self.driver.hear(what)
            else:
                self.driver.take(what)
        except DriverKilled:
            self.kill_driver()

    def post(self) -> None:
        """Pass the driver the requests that the queue of changes has started."""
        for request in self.changes.posted():
            self._say(request)

    def _watched(self, instruction: events.Instruction) -> None:
        """Kill a doomed driver in front of an instruction that it does not live to carry out."""
        if self._doom is not None and self.state == "running":
            if not self._doom:
                raise DriverKilled
            self._doom -= 1
        self._see(instruction)

    def _see(self, instruction: events.Instruction) -> None:
        """See an instruction before it is carried out."""

    # ---- the environment of the driver

    def now_ns(self) -> int:
        """The time; see ``DriverEnvironment``."""
        return self.clock()

    def send(self, peer: bytes, message: ControllerMessage) -> None:
        """Send a message to a host, unless it is of an earlier incarnation; see ``DriverEnvironment``."""
        host, incarnation = host_at(peer)
        if incarnation == self.hosts.incarnation:
            self.hosts.take(host, message)

    def begin(self, incarnation: int) -> None:
        """Messages carry the incarnation of their connection; see ``DriverEnvironment``."""

    def apart(self, call: Callable[[], list[events.Event]]) -> list[events.Event]:
        """Write a record; the driver is notified at once, or a little later; see ``DriverEnvironment``."""
        following = call()
        if self.random.random() < 0.5:
            return following
        self._news += following
        return []

    # ---- the hosts, as the driver has them started

    def _start_hosts(self, hosts: tuple[int, ...]) -> None:
        """Start further hosts, as runs do whose number of hosts changes."""

    def _let_go(self, hosts: tuple[int, ...]) -> None:
        """Expect the end of hosts."""

    def _restart(self, region: RegionSpec) -> None:
        self._plan = replace(self._plan, begun=region.begun)
        self._start_again(region.incarnation, region.restoration, self._why)

    def _told(self, event: Told) -> None:
        """What a driver tells its run."""
        match event:
            case events.Outcome():
                self.changes.take(events.Resolved(event))
            case events.GuardFired() | events.GuardEnded() | events.OperatorPaused():
                self.changes.take(event)
            case events.CheckpointEnded():
                self.ended.append(event)
                self.asked |= dict.fromkeys(event.requests, event.reason)
            case events.RequeueEnded():
                self.requeued[event.requeue] = event
            case events.Recover():
                self._why = event.reason
            case events.RunEnded():
                self.state, self.error, self.details = event.state, event.error, event.details

    def describe(self) -> str:
        """The state of workers and lanes, for the message of a failed run."""
        waiting = ", ".join(f"{kind.value} {place}: {count}" for (kind, place), count in self.network.waiting())
        going = ", ".join(str(id_) for id_, worker in self.workers.items() if not worker.ended)
        controller = f"{self.controller.state}, markers {self.controller.on_the_way}, {self.controller.changes}"
        return f"{controller}; not ended: {going or 'none'}; under way: {waiting or 'nothing'}; {self.paused}"
