"""Hosts of a seeded run as they run on Spark (``host.host_core``), by virtual threads.

Each host has its loops, a thread that tries new functions, a control thread, and one that delivers what others send.
Whatever another thread may do between two steps of one of them, it does for some seed.

>>> from fries_nb.simulation.scenarios import draw_focused, play
>>> cluster = play(draw_focused(3), ThreadedCluster).cluster
>>> cluster.state, sum(loop.begun for loop in cluster.hosts.loops) > 10
('finished', True)
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

from msgspec import structs

from fries_nb.connectors.sink import OpenSinks
from fries_nb.errors import LinkError
from fries_nb.host.environment import Steps
from fries_nb.host.host_core import HostCore
from fries_nb.host.host_loop import HostLoop
from fries_nb.host.host_topology import HostTopology
from fries_nb.host.host_workers import HostWorkers, make_added, redistribution_of
from fries_nb.host.hosted_worker import HostedWorker
from fries_nb.host.region_spec import Additions
from fries_nb.protocol.checkpoints import Restoration
from fries_nb.protocol.messages import Answer, ChannelId, Control, Fcm, MovedBins, Prepare, SetRate, WorkerId
from fries_nb.protocol.progress_locations import progress_of
from fries_nb.protocol.topology import Topology, Wiring
from fries_nb.simulation.faults import Deployment
from fries_nb.simulation.hosts import Hosts, Said
from fries_nb.simulation.network import LaneKind
from fries_nb.simulation.readers import SuppliedReader, plans_of
from fries_nb.simulation.rescaling_cluster import JoiningCluster, RechainingCluster
from fries_nb.simulation.virtual_threads import OwnerMark, VirtualThread, Wait
from fries_nb.transport.envelopes import (
    AddWorkers,
    Begin,
    ControllerMessage,
    Extend,
    Go,
    HostMessage,
    HostsLeft,
    Leave,
    TakePart,
)
from fries_nb.transport.envelopes import Said as Answers
from fries_nb.worker import events
from fries_nb.worker.turns import HANDOFF_NS
from fries_nb.worker.worker import Worker

LOOKS = 0.1
"""Probability at a step that a host's control thread looks after its loops."""


class Errands:
    """What one thread has to do, in order."""

    def __init__(self) -> None:
        self.left: deque[Steps[None]] = deque()

    def thread(self) -> Steps[None]:
        """The body of the thread."""
        while True:
            if not self.left:
                yield Wait(self.left.__len__)
            yield from self.left.popleft()
            yield


class ObservedWorker(HostedWorker):
    """A worker of a seeded host: no two threads run it, and none that does not own it.

    Attributes:
        urgent: number of fast control messages and new functions that it was told of.
    """

    inside = False
    urgent = 0

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Note that the current thread, which must be the owner, runs the worker."""
        assert isinstance(self.owner, OwnerMark), "the locks of a seeded run are its own"
        assert self.owner.is_held, f"{self.name} is run by a thread that does not own it"
        assert self.owner.is_mine, f"{self.name} is owned by another thread"
        assert not self.inside, f"two threads run {self.name}"
        self.inside = True  # whether a thread runs it
        try:
            yield
        finally:
            self.inside = False

    def process(self) -> None:
        """Process the mailbox; see ``HostedWorker``."""
        with self.entered():
            super().process()

    def flush(self) -> int:
        """Send what is buffered; see ``HostedWorker``."""
        with self.entered():
            return super().flush()

    def turn(self) -> Steps[bool]:
        """Process the mailbox and some tuples; see ``HostedWorker``."""
        with self.entered():
            return (yield from super().turn())

    def fail(self, error: BaseException) -> None:
        """An internal error is one of the run; see ``HostedWorker``."""
        raise error

    def post(self, event: events.Event) -> None:
        """Post an event; see ``HostedWorker``."""
        self.urgent += isinstance(event, events.Directed) and isinstance(event.control, Fcm | Prepare)
        super().post(event)


class SeededLinks:
    """The links of a seeded host: a lane to each other host, and what it says to the driver.

    As those of Spark, they keep a frame of a later topology than the host knows until it knows that one.
    """

    def __init__(self, hosts: ThreadedHosts, host: int, peers: Iterable[int]) -> None:
        self._hosts = hosts
        self._host = host  # index of the host
        # the hosts to which it has links from the start; a host that joins has none
        self._peers = set(peers)
        self._parted: set[int] = set()
        self._epoch = 0 if self._peers else -1
        self._early: list[tuple[int, tuple[ChannelId, ...], Any]] = []

    def post(self, host: int, frame: Any, channels: Iterable[ChannelId]) -> None:
        """Send a frame; see ``HostLink``."""
        if host in self._parted:
            return
        if host not in self._peers:
            raise LinkError(f"no link from host {self._host} to host {host}; expected one of {sorted(self._peers)}")
        self._hosts.network.put((LaneKind.LINK, (self._host, host)), (self._epoch, tuple(channels), frame))

    def wake(self) -> None:
        """The control thread has something to look after; see ``HostLink``."""
        self._hosts.attend(self._host)

    def arrive(self, epoch: int, channels: tuple[ChannelId, ...], frame: Any) -> None:
        """A frame has come from another host."""
        if epoch > self._epoch:
            self._early.append((epoch, channels, frame))
        else:
            self._hosts.deliver(self._host, channels, frame)

    def join(self, incarnation: int, peers: Iterable[int], channels: Sequence[ChannelId]) -> None:
        """Join the others in their first topology; see ``TopologyLinks``."""
        self._epoch, self._peers = 0, set(peers)
        self._take_early()

    def extend(self, channels: Sequence[ChannelId], peers: Iterable[int] = ()) -> None:
        """Begin the next topology; see ``TopologyLinks``."""
        self._epoch += 1
        self._peers.update(peers)
        self._take_early()

    def part(self, hosts: Iterable[int]) -> None:
        """Close links; see ``TopologyLinks``."""
        self._parted.update(hosts)
        self._peers.difference_update(self._parted)

    def say(self, message: HostMessage) -> None:
        """Say something to the driver; see ``TopologyLinks``."""
        for answer in message.answers if isinstance(message, Answers) else (message,):
            self._hosts.say(self._host, answer)

    def _take_early(self) -> None:
        early, self._early = self._early, []
        for frame in early:
            self.arrive(*frame)


class ThreadedHosts(Hosts):
    """One incarnation of all hosts; see ``Hosts``."""

    def __init__(self, plan: Deployment, incarnation: int, restoration: Restoration) -> None:
        self._is_known = True  # whether no thread has taken a step since the workers were asked for
        super().__init__(plan, incarnation, restoration)
        self.cores: dict[int, HostCore] = {}  # index of each host to its core
        self._first = self.topology
        self._built: dict[int, HostWorkers] = {}
        self._removed: set[WorkerId] = set()
        self._standing: set[VirtualThread] = set()  # control and delivery, which never end by themselves
        self._links: dict[int, SeededLinks] = {}
        self._topologies: dict[int, HostTopology] = {}
        self._control, self._delivery = defaultdict[int, Errands](Errands), defaultdict[int, Errands](Errands)
        for host in range(plan.hosts):
            self._add_host(host, range(plan.hosts))

    def _add_host(self, host: int, peers: Iterable[int]) -> None:
        """Begin with a host that has no workers yet."""
        links = self._links[host] = SeededLinks(self, host, peers)
        core = self.cores[host] = HostCore(
            self.environment, host, self._first, links, partial(self._outside, host), partial(self._chained, host)
        )
        built = self._built[host] = HostWorkers(self._first)
        add, make = partial(self._add_workers, built, core), partial(self._make_added, built, core)
        progress = self.progress.link(host)
        self._topologies[host] = HostTopology(self.incarnation, built, links, core, progress, add, make)

    # ---- state

    @property
    def loops(self) -> list[HostLoop]:
        """The loops of all hosts."""
        return [loop for core in self.cores.values() for loop in core.loops]

    def members(self) -> list[tuple[HostLoop, ObservedWorker]]:
        """The workers that run, of hosts that are alive, with their loops."""
        alive = [core for host, core in self.cores.items() if host not in self.dead]
        found = dict.fromkeys(pair for core in alive for pair in core.loop_of.values())
        return [(loop, worker) for loop, worker in found if isinstance(worker, ObservedWorker)]

    @property
    def workers(self) -> dict[WorkerId, Worker]:
        """All workers, by their first operator."""
        self._know()
        return self._by_first

    @workers.setter
    def workers(self, workers: dict[WorkerId, Worker]) -> None:
        self._by_first = workers

    @property
    def _of(self) -> dict[WorkerId, Worker]:
        self._know()
        return self._by_operator

    @_of.setter
    def _of(self, workers: dict[WorkerId, Worker]) -> None:
        self._by_operator = workers

    def _know(self) -> None:
        """Know which workers run which operators, as the last step of a thread may have changed chains.

        Few events ask for them, so they are not looked for after each step.
        """
        if not self._is_known:
            self._is_known = True
            hosted = ((name, worker.worker) for core in self.cores.values() for name, worker in core.hosted.items())
            self._of = {name: worker for name, worker in hosted if name not in self._removed}
            self.workers = {worker.wiring.id: worker for worker in self._by_operator.values()}

    # ---- threads

    def start(self) -> None:
        """Start the workers, since all hosts have joined."""
        super().start()
        for worker in self._all:
            id_ = worker.wiring.id
            if self.started and self._lives(id_):
                host = self.host_of(id_)
                self._built[host].workers.update(self._hosted(self.cores[host], worker, self._sinks[id_]))
        for host, built in self._built.items():
            self.cores[host].admit(self.topology, built.workers)
        for host, core in self.cores.items():
            if self.started and host not in self.dead:
                core.deal(tickets=1)
                core.start()
                self._start_control(host)

    def _start_control(self, host: int) -> None:
        for errands in (self._control[host], self._delivery[host]):
            self._standing.add(self.threads.start(host, errands.thread()))

    def _hosted(self, core: HostCore, worker: Worker, sinks: OpenSinks) -> dict[WorkerId, HostedWorker]:
        is_source = worker.wiring.chain[0].traits.is_source and self.supply.has_more(worker.wiring.id)
        reader = SuppliedReader(self.supply, worker.wiring.id, self._random) if is_source else None
        hosted = ObservedWorker(worker, self.environment, core.carry_out, sinks, reader)
        return dict.fromkeys((instance.worker for instance in worker.instances), hosted)

    # ---- hosts that come and go

    def extend(self, topology: Topology, issued: int) -> None:
        """Hosts of the next topology begin, and wait for what the driver tells them."""
        self.topology = topology
        self._placement.update(topology.placement)
        self.progress.extend(topology)
        for host in sorted(set(topology.placement.values()) - self.cores.keys() - self.dead):
            self._add_host(host, ())
            self._start_control(host)

    def _add_workers(
        self, built: HostWorkers, core: HostCore, topology: Topology, order: AddWorkers
    ) -> HostWorkers:
        """Make further workers of operators."""
        assembly = replace(self._assembly, earlier=self._plan.store.earlier(topology.workers))
        [host] = [host for host, peer in self.cores.items() if peer is core]

        def make(own: Topology, wiring: Wiring) -> HostedWorker:
            worker = assembly.newcomer(wiring, order.configurations, order.decided, order.issued)
            worker.hold_back()
            self.supply.join(wiring.id)
            self._of.update((instance.worker, worker) for instance in worker.instances)
            [hosted] = {*self._hosted(core, worker, self._opened(worker)).values()}
            return hosted

        return make_added(built, host, topology, {}, make)

    def _make_added(
        self, built: HostWorkers, core: HostCore, topology: Topology, additions: Additions, added: Begin
    ) -> HostWorkers:
        """Make the workers of operators that a change of the shape adds."""
        [host] = [host for host, one in self.cores.items() if one is core]
        letters = {*self._assembly.letters}
        payloads = {**self._assembly.payloads, **additions.functions}
        progress = progress_of(topology.graph)
        self._assembly = replace(self._assembly, payloads=payloads, letters=letters, progress=progress)
        version = max((hosted.worker.version for hosted in core.workers), default=0)
        begin = structs.replace(added, earlier=self._plan.store.earlier(topology.workers))
        parked = redistribution_of(begin, topology.graph)
        known = [worker for worker in topology.workers if not parked.is_added(worker.operator)]
        states = self._plan.restored(known, parked)
        held = {one: found for one, found in states.snapshots.items() if found is not None}

        def make(own: Topology, wiring: Wiring) -> HostedWorker:
            worker = self._assembly.added(wiring, begin, version, held)
            self._of.update((instance.worker, worker) for instance in worker.instances)
            if wiring.chain[0].traits.is_source:
                count = {wiring.id.operator: wiring.chain[0].workers}
                [plan] = plans_of(own.graph, self._plan.inputs, count).values()
                self.supply.add(worker.instances[0], plan, parked)
            [hosted] = {*self._hosted(core, worker, self._opened(worker)).values()}
            return hosted

        return make_added(built, host, topology, additions.functions, make)

    def settle(self, topology: Topology) -> None:
        """All workers have adopted the topology; hosts learn it from the driver."""
        self.progress.settle(topology, ())
        removed = self._of.keys() - set(topology.workers)
        self._plan.store.leave(sorted(removed))
        self._removed = (self._removed | removed) - set(topology.workers)
        self._is_known = False

    def _concerns(self, message: Extend | Go | HostsLeft) -> bool:
        return True

    def _hear(self, host: int, order: ControllerMessage) -> None:
        """A message of the driver has arrived at a host, whose control thread sees to it, as that of Spark does."""
        self._control[host].left.append(self._heard(host, order))

    def _heard(self, host: int, order: ControllerMessage) -> Steps[None]:
        yield
        topology, core = self._topologies[host], self.cores[host]
        match order:
            case Extend():
                topology.extend(order)
            case AddWorkers():
                topology.add_workers(order)
            case TakePart():
                topology.take_part(order)
                core.deal(tickets=1)
                self.progress.joined(host)
            case Go():
                topology.settle()
                if core.loops and not core.is_started:
                    core.start()
            case HostsLeft():
                topology.part(order.hosts)
            case Leave():
                yield from self._left(host, core, order)
            case _:
                super()._hear(host, order)
        if host in self.progress.hosts:
            self.progress.carry_on(host)

    def _left(self, host: int, core: HostCore, order: Leave) -> Steps[None]:
        """End the threads of a host that leaves, and say what is left."""
        core.leave()
        yield Wait(lambda: not any(thread.host == host for thread in self.threads.alive - self._standing))
        for hosted in core.workers:
            self._finish(hosted)
        self.progress.leave(host, order.leaving)
        self.kill([host])

    def say(self, host: int, message: Answer | HostMessage) -> None:
        """A host says something to the driver."""
        self._say(host, message)

    def happen(self) -> Said | None:
        """Carry out one of the possible events; returns what a host says to the driver, if any."""
        if self._random.random() < LOOKS:
            self.look_after()
        thing: Any = self.draws.draw()
        answer = None
        if thing[0] == "thread":
            self.threads.step(thing[1])
            self._is_known = False
        elif thing[0] in ("work", "feed"):  # the threads see to it
            self.draws.discard(thing)
        elif thing[0] == "save":
            self._save()
        elif thing[0] == "call":
            self.calls[thing[1]].go_on()
        else:
            kind, place = thing
            answer = self._arrive(kind, place, self.network.take(thing))
        self.threads.look()
        return answer

    def look_after(self) -> None:
        """Look after the loops of all hosts, as their control threads do."""
        for host, core in self.cores.items():
            if self.started and host not in self.dead:
                core.look_after()
                if core.chains.is_waiting and not self._control[host].left:
                    self._control[host].left.append(core.chains.advance())

    def attend(self, host: int) -> None:
        """Let the control thread of a host look after what was done apart."""
        self._control[host].left.append(self._looked_after(host))

    def _looked_after(self, host: int) -> Steps[None]:
        yield
        self.cores[host].look_after()

    def pass_time(self) -> bool:
        """Let time pass until a thread can go on, since nothing else can happen; returns whether one can."""
        clock = self._plan.clock
        for _ in range(2):
            self.look_after()
            self.threads.look()
            if len(self.draws):
                return True
        due_ns = self.threads.next_due_ns()
        if due_ns is None:
            return False
        self._plan.clock.advance(min(due_ns - clock(), HANDOFF_NS))  # type: ignore[attr-defined]
        self.threads.look()
        return True

    def leave(self) -> None:
        """Have all threads end at the next tuple boundary."""
        for host, core in self.cores.items():
            if core.is_started and host not in self.dead:
                core.leave()
        self.threads.look()

    def finish(self) -> None:
        """Have each worker report the rest, since all threads of the loops have ended."""
        for _, worker in self.members():
            self._finish(worker)

    def _finish(self, worker: HostedWorker) -> None:
        assert worker.owner.acquire(), f"{worker.name} is still owned"
        worker.finish()
        worker.owner.release()

    # ---- what arrives

    def _arrive(self, kind: LaneKind, place: Any, what: Any) -> Said | None:
        if kind is LaneKind.ANSWERS:
            return place, what
        if not self.started:
            return None
        if kind is LaneKind.LINK:
            if place[1] not in self.dead:
                self._links[place[1]].arrive(*what)
        elif kind is LaneKind.PROGRESS:
            self.progress.receive(place[1], what)
        elif place not in self.dead:
            if isinstance(what[0], int):
                self._hear(*what)
            else:
                self._control[place].left.append(self._directed(self.cores[place], *what))
        return None

    def deliver(self, host: int, channels: tuple[ChannelId, ...], frame: Any) -> None:
        """A frame is to be delivered at a host, by a thread of its own."""
        self._delivery[host].left.append(self._delivered(self.cores[host], channels, frame))

    def _delivered(self, core: HostCore, channels: tuple[ChannelId, ...], frame: Any) -> Steps[None]:
        yield
        if isinstance(frame, MovedBins):
            core.router.ship(frame)
        else:
            core.router.receive(channels, frame)

    def _directed(self, core: HostCore, worker: WorkerId, control: Control) -> Steps[None]:
        if core.is_started:
            yield from core.direct(worker, control)

    def give(self, id_: WorkerId, event: events.Event) -> None:
        """Post an event to a worker, if it has started and is alive."""
        core = self.cores[self.host_of(id_)]
        if id_ in core.loop_of and self._lives(id_):
            core.router.post(id_, event)

    def tick(self) -> None:
        """Let one worker report."""
        if self.started and (members := self.members()):
            loop, worker = self._random.choice(members)
            loop.report(worker)

    def wake(self, source: WorkerId) -> None:
        """Let a source worker continue to read."""
        self.give(source, events.Directed(source, SetRate(1.0)))

    def _wake_reader(self, worker: Worker) -> None:
        """Its host's loop sees to it."""

    def kill(self, hosts: Iterable[int]) -> None:
        """Kill hosts with their threads."""
        killed = tuple(hosts)
        super().kill(killed)
        for host in killed:
            self.threads.drop(host)

    # ---- instructions

    def _outside(self, host: int, instruction: events.Instruction) -> None:
        """Carry out what concerns neither other workers nor trials, unless its host was killed meanwhile."""
        if host not in self.dead:
            self._follow(host, instruction)

    def _chained(self, host: int, answer: Answer) -> None:
        self._outside(host, events.TellController(answer))


class ThreadedCluster(RechainingCluster):
    """A cluster whose workers are run by virtual threads; the arguments are those of ``Cluster``."""

    hosts: ThreadedHosts
    rechains = 0.0
    hosts_of = ThreadedHosts

    def step(self) -> bool:
        """Carry out one event; if none is possible, let time pass first."""
        if not self._news and not len(self.hosts.draws) and self.hosts.pass_time():
            return True
        return super().step()

    def settle(self) -> None:
        """After the end: deliver all messages in flight, and end all threads."""
        super().settle()
        self.hosts.leave()
        while len(self.hosts.draws) or self.hosts.pass_time():
            if len(self.hosts.draws):
                self._happen()
        self.hosts.finish()
        super().settle()


class JoiningThreads(ThreadedCluster, JoiningCluster):
    """A cluster whose hosts join and leave, each with the core and the topology of a host of Spark.

    >>> from fries_nb.simulation.scenarios import draw_rescaled
    >>> from fries_nb.simulation.scenarios import play
    >>> cluster = play(draw_rescaled(5), JoiningThreads).cluster
    >>> cluster.state, len(cluster.hosts.cores) > 1
    ('finished', True)
    """
