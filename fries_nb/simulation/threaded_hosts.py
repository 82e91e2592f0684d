"""Hosts of a seeded run as they run on Spark (``host.host_core``), by virtual threads.

Each host has its loops, a thread that tries new functions, a control thread, and one that delivers what others send.
Whatever another thread may do between two steps of one of them, it does for some seed.

>>> from fries_nb.simulation.scenarios import draw_focused, play
>>> cluster = play(draw_focused(3), ThreadedCluster).cluster
>>> cluster.state, sum(loop.begun for loop in cluster.hosts.loops) > 10
('finished', True)
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from fries_nb.connectors.sink import OpenSinks
from fries_nb.host.environment import Steps
from fries_nb.host.host_core import HostCore
from fries_nb.host.host_loop import HostLoop
from fries_nb.host.hosted_worker import HostedWorker
from fries_nb.protocol.checkpoints import Restoration
from fries_nb.protocol.messages import Answer, ChannelId, Control, Fcm, Prepare, SetRate, WorkerId
from fries_nb.simulation.faults import Deployment
from fries_nb.simulation.hosts import Hosts, Said
from fries_nb.simulation.network import LaneKind
from fries_nb.simulation.readers import SuppliedReader
from fries_nb.simulation.rescaling_cluster import RechainingCluster
from fries_nb.simulation.virtual_threads import OwnerMark, Wait
from fries_nb.worker import events as heard
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
                yield Wait(lambda: bool(self.left))
            yield from self.left.popleft()
            yield


class ObservedWorker(HostedWorker):
    """A worker of a seeded host: no two threads run it, and none that does not own it.

    Attributes:
        inside: whether a thread runs it.
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
        self.inside = True
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

    def post(self, event: heard.Event) -> None:
        """Post an event; see ``HostedWorker``."""
        self.urgent += isinstance(event, heard.Directed) and isinstance(event.control, Fcm | Prepare)
        super().post(event)


class SeededLink:
    """The link of a seeded host to the others: a lane to each of them."""

    def __init__(self, hosts: ThreadedHosts, host: int) -> None:
        self._hosts = hosts
        self._host = host

    def post(self, host: int, frame: Any, channels: Iterable[ChannelId]) -> None:
        """Send a frame; see ``HostLink``."""
        self._hosts.network.put((LaneKind.LINK, (self._host, host)), (tuple(channels), frame))


class ThreadedHosts(Hosts):
    """One incarnation of all hosts; see ``Hosts``.

    Attributes:
        cores: index of each host to its core.
    """

    def __init__(self, plan: Deployment, incarnation: int, restoration: Restoration) -> None:
        super().__init__(plan, incarnation, restoration)
        self.cores = {
            host: HostCore(
                self.environment, host, self.topology, SeededLink(self, host), partial(self._outside, host),
                partial(self._chained, host),
            )
            for host in range(plan.hosts)
        }  # fmt: skip
        self._control = [Errands() for _ in range(plan.hosts)]
        self._delivery = [Errands() for _ in range(plan.hosts)]

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

    def _know(self) -> None:
        """Know which workers run which operators, as chains may have changed."""
        hosted = {name: one.worker for core in self.cores.values() for name, one in core.hosted.items()}
        self._of = hosted
        self.workers = {worker.wiring.id: worker for worker in hosted.values()}

    # ---- threads

    def start(self) -> None:
        """Start the workers, since all hosts have joined."""
        super().start()
        for worker in self._all:
            id_ = worker.wiring.id
            if self.started and self._lives(id_):
                self._host(self.cores[self.host_of(id_)], worker, self._sinks[id_])
        for host, core in self.cores.items():
            if self.started and host not in self.dead:
                core.deal(tickets=1)
                core.start()
                self.threads.start(host, self._control[host].thread())
                self.threads.start(host, self._delivery[host].thread())

    def _host(self, core: HostCore, worker: Worker, sinks: OpenSinks) -> None:
        is_source = worker.wiring.chain[0].traits.is_source and self.supply.has_more(worker.wiring.id)
        reader = SuppliedReader(self.supply, worker.wiring.id, self._random) if is_source else None
        hosted = ObservedWorker(worker, self.environment, core.carry_out, sinks, reader)
        core.admit(self.topology, dict.fromkeys((one.worker for one in worker.instances), hosted))

    def happen(self) -> Said | None:
        """Carry out one of the possible events; returns what a host says to the driver, if any."""
        if self._random.random() < LOOKS:
            self.look_after()
        thing: Any = self.draws.draw()
        answer = None
        if thing[0] == "thread":
            self.threads.step(thing[1])
            self._know()
        elif thing[0] in ("work", "feed"):  # the threads see to it
            self.draws.discard(thing)
        elif thing[0] == "save":
            self._save()
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
                self._delivery[place[1]].left.append(self._delivered(self.cores[place[1]], *what))
        elif kind is LaneKind.PROGRESS:
            self.progress.receive(place[1], what)
        else:
            host = self.host_of(what[0])
            if host not in self.dead:
                self._control[host].left.append(self._directed(self.cores[host], *what))
        return None

    def _delivered(self, core: HostCore, channels: tuple[ChannelId, ...], frame: Any) -> Steps[None]:
        yield
        core.router.receive(channels, frame)

    def _directed(self, core: HostCore, worker: WorkerId, control: Control) -> Steps[None]:
        if core.is_started:
            yield from core.direct(worker, control)

    def give(self, id_: WorkerId, event: heard.Event) -> None:
        """Post an event to a worker, if it has started and is alive."""
        core = self.cores[self.host_of(id_)]
        if core.is_started and self._lives(id_):
            core.router.post(id_, event)

    def tick(self) -> None:
        """Let one worker report."""
        if self.started and (members := self.members()):
            loop, worker = self._random.choice(members)
            loop.report(worker)

    def wake(self, source: WorkerId) -> None:
        """Let a source worker continue to read."""
        self.give(source, heard.Directed(source, SetRate(1.0)))

    def _wake_reader(self, worker: Worker) -> None:
        """Its host's loop sees to it."""

    def kill(self, hosts: Iterable[int]) -> None:
        """Kill hosts with their threads."""
        killed = tuple(hosts)
        super().kill(killed)
        for host in killed:
            self.threads.drop(host)

    # ---- instructions

    def _outside(self, host: int, instruction: heard.Instruction) -> None:
        """Carry out what concerns neither other workers nor trials, unless its host was killed meanwhile."""
        if host not in self.dead:
            self._follow(host, instruction)

    def _chained(self, host: int, answer: Answer) -> None:
        self._outside(host, heard.TellController(answer))


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
