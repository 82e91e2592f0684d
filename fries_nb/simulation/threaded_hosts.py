"""Hosts of a seeded run whose workers are run by virtual threads, as ``worker.turns`` decides.

Each host has a control thread, a thread that delivers frames and credit, a thread for each loop and each slow worker.

>>> from fries_nb.simulation.scenarios import draw_focused, play
>>> cluster = play(draw_focused(3), ThreadedCluster).cluster
>>> cluster.state, sum(loop.begun for loop in cluster.hosts.loops) > 10
('finished', True)
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Any

from fries_nb.protocol.checkpoints import Restoration
from fries_nb.protocol.messages import Answer, Chained, Control, Fcm, Prepare, Rehearse, SetChain, WorkerId
from fries_nb.simulation.deployment import Deployment
from fries_nb.simulation.hosts import Hosts
from fries_nb.simulation.network import LaneKind
from fries_nb.simulation.rechaining import RechainingCluster
from fries_nb.simulation.seeded_loop import SeededLoop, loops_of
from fries_nb.simulation.seeded_member import SeededMember
from fries_nb.simulation.virtual_threads import Steps, VirtualThreads, Wait
from fries_nb.worker import events as heard
from fries_nb.worker.chaining import ChainRequest, Fused, SplitOff
from fries_nb.worker.turns import HANDOFF_NS
from fries_nb.worker.worker import Worker

LOOKS = 0.1
"""Probability at a step that a host's control thread looks after its loops."""


class Errands:
    """What one thread has to do, in order."""

    def __init__(self) -> None:
        self.left: deque[Steps[None]] = deque()
        self.is_idle = True

    def thread(self) -> Steps[None]:
        """The body of the thread."""
        while True:
            self.is_idle = not self.left
            if self.is_idle:
                yield Wait(lambda: bool(self.left))
            self.is_idle = False
            yield from self.left.popleft()
            yield None


class ThreadedHosts(Hosts):
    """One incarnation of all hosts; see ``Hosts``.

    Attributes:
        threads: the threads of all hosts.
        loops: the loops of all hosts.
        noted: what happened in the loops, in order, with its worker.
        chance: the source of all randomness.
    """

    def __init__(self, plan: Deployment, incarnation: int, restoration: Restoration) -> None:
        super().__init__(plan, incarnation, restoration)
        self.threads = VirtualThreads(self.draws, plan.clock)
        self.loops: list[SeededLoop] = []
        self.noted: list[tuple[str, SeededMember]] = []
        self.chance = plan.random
        self._members: dict[Worker, SeededMember] = {}
        self._loop_of: dict[SeededMember, SeededLoop] = {}
        self._control = [Errands() for _ in range(plan.hosts)]
        self._delivery = [Errands() for _ in range(plan.hosts)]
        self._requests: list[ChainRequest] = []
        self._stalled: dict[ChainRequest, SeededMember] = {}

    # ---- state

    def members(self) -> list[SeededMember]:
        """The workers that run, of hosts that are alive."""
        return [member for member in self._members.values() if self._lives(member.worker.wiring.id)]

    def member_of(self, worker: WorkerId) -> SeededMember | None:
        """The worker that runs an operator."""
        found = self._of.get(worker)
        return None if found is None else self._members.get(found)

    def loop_of(self, member: SeededMember) -> SeededLoop:
        """The loop of a worker."""
        return self._loop_of[member]

    def has_gone(self, member: SeededMember) -> bool:
        """Whether another worker runs the operators of this one."""
        return self.workers.get(member.worker.wiring.id) is not member.worker

    def reads(self, worker: Worker) -> bool:
        """Whether a worker is a source's, and has not read its end."""
        return worker.wiring.chain[0].traits.is_source and self.supply.has_more(worker.wiring.id)

    def has_errands(self, host: int) -> bool:
        """Whether the control thread of a host, or the one that delivers, has something to do."""
        return any(one.left or not one.is_idle for one in (self._control[host], self._delivery[host]))

    # ---- threads

    def start(self) -> None:
        """Start the workers, since all hosts have joined."""
        super().start()
        self._members = {worker: SeededMember(worker, self, self._plan.clock) for worker in self._all}
        if not self.started:
            return
        for host in range(self._plan.hosts):
            here = [one for one in self.members() if self.host_of(one.worker.wiring.id) == host]
            for loop in loops_of(host, here, self.threads, self._plan.clock):
                self.loops.append(loop)
                self._loop_of.update(dict.fromkeys(loop.turns.members, loop))
                loop.start()
            if host not in self.dead:
                self.threads.start(host, self._control[host].thread())
                self.threads.start(host, self._delivery[host].thread())

    def happen(self) -> Answer | None:
        """Carry out one of the possible events; returns an answer to the controller, if any."""
        if self._random.random() < LOOKS:
            self.look_after()
        thing: Any = self.draws.draw()
        answer = None
        if thing[0] == "thread":
            self.threads.step(thing[1])
        elif thing[0] in ("work", "feed"):  # the threads see to it
            self.draws.discard(thing)
        else:
            self.draws.add(thing)
            answer = self._occur(thing)
        self.threads.look()
        return answer

    def _occur(self, thing: Any) -> Answer | None:
        kind, place = thing
        if kind == "try":
            self.trials.happen()
        elif kind == "save":
            self._save()
        else:
            return self._arrive(kind, place, self.network.take(thing))
        return None

    def look_after(self) -> None:
        """Look after the loops of all hosts, as their control threads do."""
        for loop in self.loops:
            if loop.host not in self.dead:
                loop.check()
        for host, control in enumerate(self._control):
            if any(self.host_of(one.worker) == host for one in self._requests) and not control.left:
                control.left.append(self._advance_chains(host))

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
        """Have the loops' threads end at the next tuple boundary, and give up the chains that are asked for."""
        for stalled in self._stalled.values():
            self.post(stalled, heard.Stalled(False))
        self._stalled.clear()
        self._requests.clear()
        for loop in self.loops:
            if loop.host not in self.dead:
                loop.turns.leave()
        self.threads.look()

    def finish(self) -> None:
        """Have each worker process the rest, since all threads of the loops have ended."""
        for member in self.members():
            assert member.owner.acquire(), f"{member.worker.wiring.id} is still owned"
            member.process()
            member.owner.release()

    # ---- what arrives

    def _arrive(self, kind: LaneKind, place: Any, what: Any) -> Answer | None:
        if kind is LaneKind.ANSWERS:
            answer: Answer = what
            return answer
        if not self.started:
            return None
        if kind is LaneKind.FRAMES:
            self._deliver(place.receiver, heard.Arrived(place, what))
        elif kind is LaneKind.GRANTS:
            self._deliver(place.sender, heard.Granted(place, what))
        elif kind is LaneKind.PROGRESS:
            self.progress.receive(place[1], what)
        else:
            host = self.host_of(what[0])
            self._control[host].left.append(self._hear(*what))
        return None

    def _deliver(self, to: WorkerId, event: heard.Event) -> None:
        if self._lives(to):
            self._delivery[self.host_of(to)].left.append(self._delivered(to, event))

    def _delivered(self, to: WorkerId, event: heard.Event) -> Steps[None]:
        member = self.member_of(to)
        if member is None:
            return
        loop = self.loop_of(member)
        yield None
        if isinstance(event, heard.Granted):
            loop.post_credit(member, event)
        else:
            loop.post(member, event)

    def _hear(self, worker: WorkerId, control: Control) -> Steps[None]:
        if isinstance(control, Rehearse):
            self.trials.add((worker, control))
        elif isinstance(control, SetChain):
            self._requests.append(ChainRequest(worker, control.operators, self._plan.clock()))
        elif (member := self.member_of(worker)) is not None:
            loop = self.loop_of(member)
            yield None
            if isinstance(control, Fcm):
                yield from loop.switch(member, heard.Directed(worker, control))
            else:
                loop.post(member, heard.Directed(worker, control), urgent=isinstance(control, Prepare))

    def give(self, id_: WorkerId, event: heard.Event) -> None:
        """Post an event to a worker, if it has started and is alive."""
        member = self.member_of(id_)
        if self.started and self._lives(id_) and member is not None:
            self.post(member, event)

    def post(self, member: SeededMember, event: heard.Event) -> None:
        """Post an event to a worker."""
        self.loop_of(member).post(member, event)

    def carry_out(self, worker: Worker) -> None:
        """Carry out a worker's instructions."""
        self._carry_out(worker)

    def tick(self) -> None:
        """Let one worker report."""
        if self.started and (members := self.members()):
            self.post(self._random.choice(members), heard.WorkerTick())

    def _wake_reader(self, worker: Worker) -> None:
        if (member := self._members.get(worker)) is not None:
            member.may_read()
            self.loop_of(member).turns.posted(member)

    def kill(self, hosts: Iterable[int]) -> None:
        """Kill hosts with their threads."""
        killed = tuple(hosts)
        super().kill(killed)
        for host in killed:
            self.threads.drop(host)

    # ---- chains

    def _advance_chains(self, host: int) -> Steps[None]:
        for request in [one for one in self._requests if self.host_of(one.worker) == host]:
            made: object = Fused
            while isinstance(made, Fused | SplitOff) or made is Fused:
                made = yield from self._step_chain(request)
            if isinstance(made, Chained):
                self._requests.remove(request)
                if (stalled := self._stalled.pop(request, None)) is not None:
                    self.post(stalled, heard.Stalled(False))
                self.answer(request.worker, made)
            elif request not in self._stalled and (first := self.member_of(request.worker)) is not None:
                self._stalled[request] = first
                self.post(first, heard.Stalled(True))

    def _step_chain(self, request: ChainRequest) -> Steps[Fused | SplitOff | Chained | None]:
        members = request.members(self.running)
        owned = [self._members[worker] for worker in members]
        held: list[SeededMember] = []
        try:
            while len(held) < len(owned) and self._loop_of[owned[len(held)]].turns.claim(owned[len(held)]):
                held.append(owned[len(held)])
                yield None
            if len(held) < len(owned):
                return request.overdue(members[0], f"{members[0].wiring.id} was busy", self._plan.clock())
            for one in (*owned, owned[0]):
                one.process()
                yield None
            for one in (*owned, owned[0]):  # what came meanwhile
                one.process()
            made = request.step(members, self.topology, self._plan.clock())
            if isinstance(made, Fused | SplitOff):
                self._rearranged(owned, made)
            return made
        finally:
            for one in held:
                one.owner.release()
            for one in owned:
                self.loop_of(one).turns.posted(one)

    def _rearranged(self, owned: list[SeededMember], made: Fused | SplitOff) -> None:
        loop = self.loop_of(owned[0])
        if isinstance(made, Fused):
            self.replace(made)
            loop.drop(owned[1])
        else:
            member = SeededMember(made.rest, self, self._plan.clock)
            self._members[made.rest], self._loop_of[member] = member, loop
            self.replace(made)
            loop.add(member)


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
