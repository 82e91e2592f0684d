"""The core of a host: its workers, the loops that run them, their chains, and the way of frames between them.

    from the driver     direct        a control message reaches its worker; a new function is prepared apart
    from other hosts    router        a frame reaches its receiver's mailbox
    from a worker       carry_out     a frame is sent, credit returned, a function tried; all else goes outside
    now and then        look_after    a turn that is inside one tuple for long is handed off
                        chains        requested chains take a step

It has neither sockets, threads nor clocks of its own: a host process gives it real ones, and a seeded run virtual ones,
whose interleavings are drawn (see ``environment``).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from functools import partial

from fries_nb.dataflow.traits import Execution
from fries_nb.host.environment import Body, Environment, Steps
from fries_nb.host.frame_router import FrameRouter, HostLink
from fries_nb.host.host_chains import HostChains
from fries_nb.host.host_loop import HostLoop
from fries_nb.host.hosted_worker import HostedWorker
from fries_nb.operators.dry_run import DryRun
from fries_nb.protocol.messages import (
    AdoptTopology,
    Chained,
    Compared,
    Control,
    Fcm,
    Prepare,
    Rehearse,
    SetChain,
    WorkerId,
)
from fries_nb.protocol.progress_locations import progress_of
from fries_nb.protocol.topology import Topology, wire
from fries_nb.worker.events import Connected, Directed, Expected, Grant, Instruction, Rewired, Ship, TellController
from fries_nb.worker.outbox import SendFrame
from fries_nb.worker.rehearsal import Rehearsals
from fries_nb.worker.turns import Fifo

APART = {Execution.READ: "fries-read", Execution.WRITE: "fries-write"}
"""Reading and writing files take long now and then, and release the interpreter lock meanwhile: a loop for each."""
COMPARED_NS = 100_000_000
"""Nanoseconds after a rehearsal at which its tuples are compared: mostly the change is made by then, not delayed."""
PREPARER = "fries-prepare"
"""Name of the thread that tries new functions, so that loading a model delays neither tuples nor control."""


class HostCore:
    """The workers of one host, and what runs them.

    Args:
        environment: clocks, locks and threads.
        host: index of the host.
        topology: the topology.
        link: sends frames to other hosts, and wakes the control thread.
        outside: carries out the instructions of workers that concern neither other workers nor trials; any thread.
        chained: called when a requested chain was made, or refused.

    Attributes:
        topology: the current topology, with the host's own copies of functions.
        hosted: operator's worker to the worker of this host that runs it.
        loops: the loops, once the workers are dealt to them.
        loop_of: operator's worker to the worker that runs it, with its loop; events can be posted to these.
        router: delivers frames.
        chains: the requested chains.
        is_started: whether the workers run.
    """

    def __init__(
        self,
        environment: Environment,
        host: int,
        topology: Topology,
        link: HostLink,
        outside: Callable[[Instruction], None],
        chained: Callable[[Chained], None],
    ) -> None:
        self.topology = topology
        self.hosted: dict[WorkerId, HostedWorker] = {}
        self.loops: tuple[HostLoop, ...] = ()
        self.loop_of: dict[WorkerId, tuple[HostLoop, HostedWorker]] = environment.shared()
        self.router = FrameRouter(link, topology.placement, self.loop_of)
        self.chains = HostChains(environment, topology, self.hosted, self.loop_of, chained)
        self.is_started = False
        self._environment = environment
        self._host = host
        self._link = link
        self._outside = outside
        self._trials: Fifo[DryRun | tuple[WorkerId, Rehearse] | Callable[[], Callable[[], None]] | None] = (
            environment.queue()
        )
        self._done: deque[Callable[[], None]] = deque()
        self._rehearsals = Rehearsals(environment.now_ns)
        self._preparer: Body | None = None
        self._tickets = 1
        self._leaves = False

    @property
    def workers(self) -> tuple[HostedWorker, ...]:
        """The workers, each once."""
        return tuple(dict.fromkeys(self.hosted.values()))

    def adopt(self, topology: Topology) -> None:
        """Know the next topology: its routes, and the wiring of workers that are told to adopt it."""
        self.topology = self.chains.topology = topology
        for worker, host in topology.placement.items():
            if host != self._host:  # it was removed here, and has come back there
                self.loop_of.pop(worker, None)
        self.router.place(topology.placement, topology.added)

    # ---- start and end

    def admit(self, topology: Topology, workers: Mapping[WorkerId, HostedWorker]) -> None:
        """Take the workers of this host, made for this topology."""
        self.hosted.update(workers)
        self.adopt(topology)

    def deal(self, tickets: int) -> None:
        """Deal the workers to loops; events can be posted to them from now on.

        Args:
            tickets: number of slow workers of a loop that may use the processor at the same time.
        """
        self._tickets = tickets
        named: dict[str, list[HostedWorker]] = {}
        for worker in self.workers:
            named.setdefault(APART.get(worker.execution, "fries-loop"), []).append(worker)
        self.loops = tuple(
            HostLoop(self._environment, self._host, name, workers, tickets) for name, workers in named.items()
        )
        loops = {worker: loop for loop in self.loops for worker in loop.workers}
        for name, worker in self.hosted.items():
            self.loop_of[name] = loops[worker], worker
            worker.await_calls(partial(loops[worker].wake, worker))

    def enlist(self, workers: Mapping[WorkerId, HostedWorker]) -> None:
        """Run further workers beside those that run; called by the control thread."""
        self.hosted.update(workers)
        for worker in dict.fromkeys(workers.values()):
            name = APART.get(worker.execution, "fries-loop")
            loop = next((loop for loop in self.loops if loop.name == name), None)
            is_new = loop is None
            if loop is None:
                loop = HostLoop(self._environment, self._host, name, [worker], self._tickets)
                self.loops = (*self.loops, loop)
            for one in worker.worker.instances:
                self.loop_of[one.worker] = loop, worker
            worker.await_calls(partial(loop.wake, worker))
            if is_new:
                loop.start()
            else:
                loop.add(worker)

    def retire(self) -> None:
        """Forget the workers that the topology does not have any more, which have ended; called by the control thread.

        Their mailboxes stay, for the last credit.
        """
        gone = [name for name in self.hosted if name not in self.topology.placement]
        for name in gone:
            worker = self.hosted.pop(name)
            loop, _ = self.loop_of[name]
            loop.drop(worker)

    def connect(self) -> None:
        """All workers of all hosts have adopted the topology: credit that was held back may be granted."""
        for loop, worker in dict.fromkeys(self.loop_of.values()):
            loop.post(worker, Connected())

    def start(self) -> None:
        """Run the workers, which were dealt."""
        self.is_started = True
        self._preparer = self._environment.start(self._host, PREPARER, self._prepare(), self._failed)
        for loop in self.loops:
            loop.start()

    def leave(self) -> None:
        """Have all threads end at the next tuple boundary."""
        self._leaves = True
        self._trials.put(None)
        for loop in self.loops:
            loop.leave()

    def join(self, deadline_ns: int) -> list[str]:
        """Wait for all threads until a time, by the environment's ``now_ns``; returns the names of what is stuck."""
        stuck = [name for loop in self.loops for name in loop.join(deadline_ns)]
        if self._preparer is not None:
            self._preparer.join(max(0.0, (deadline_ns - self._environment.now_ns()) / 1e9))
            stuck += [PREPARER] if self._preparer.is_alive() else []
        return stuck

    def _failed(self, error: Exception) -> None:
        self.workers[0].fail(error)

    # ---- from the driver; called by the control thread

    def direct(self, worker: WorkerId, control: Control) -> Steps[None]:
        """Deliver a control message; a ``Prepare`` is processed even while its worker is busy with a slow tuple."""
        if isinstance(control, Rehearse):
            self._trials.put((worker, control))
            return
        if isinstance(control, SetChain):
            self.chains.request(worker, control)
            return
        loop, hosted = self.loop_of[worker]
        yield
        if isinstance(control, AdoptTopology):
            chain = tuple(operator.name for operator in hosted.worker.wiring.chain)
            wiring, afterwards = wire(self.topology, chain, worker.index), self.topology.afterwards()
            stays = afterwards is not None and all(name in afterwards.graph for name in chain)
            after = wire(afterwards, chain, worker.index) if afterwards is not None and stays else None
            is_removed = afterwards is not None and worker.operator not in afterwards.graph
            progress = progress_of(self.topology.graph) if afterwards is not None else None
            loop.post(hosted, Rewired(control.epoch, wiring, worker, after, is_removed, progress))
        elif isinstance(control, Fcm):
            yield from loop.switch(hosted, Directed(worker, control))
        elif isinstance(control, Prepare):
            trial = hosted.worker.preparation.trial(worker, control)
            if trial is None:
                loop.post(hosted, Directed(worker, control), urgent=True)
            else:
                if control.payload:
                    loop.post(hosted, Expected(worker, control))
                self._trials.put(trial)
        else:
            loop.post(hosted, Directed(worker, control))

    def apart(self, call: Callable[[], Callable[[], None]]) -> None:
        """Call this in the thread that tries new functions, since it may take long; and what it returns here, later."""
        self._trials.put(call)

    def look_after(self) -> None:
        """Go on with what was done apart; hand a turn off that is inside one tuple for long, so that no other waits."""
        while self._done:
            self._done.popleft()()
        for loop in self.loops:
            loop.check()

    @property
    def is_busy(self) -> bool:
        """Whether it is to be looked after soon: a chain is requested, or a loop is in a turn."""
        return self.chains.is_waiting or any(loop.is_busy for loop in self.loops)

    # ---- instructions, carried out in the workers' threads

    def carry_out(self, instruction: Instruction) -> None:
        """Carry out an instruction of a worker."""
        if isinstance(instruction, SendFrame):
            self.router.send(instruction)
        elif isinstance(instruction, Grant):
            self.router.grant(instruction.sizes)
        elif isinstance(instruction, Ship):
            self.router.ship(instruction.bins)
        elif isinstance(instruction, DryRun):
            self._trials.put(instruction)
        else:
            self._outside(instruction)

    def _prepare(self) -> Steps[None]:
        """Dry-run new functions, rehearse changes, and compare recent tuples when that keeps no change waiting."""
        later: deque[tuple[int, Callable[[], Compared]]] = deque()
        while not self._leaves:
            order = yield from self._environment.received(self._trials, later[0][0] if later else None)
            yield
            if isinstance(order, DryRun):
                yield from self._try(order)
            elif callable(order):
                self._done.append(order())
                self._link.wake()
            elif order is not None:
                compare = yield from self._rehearse(*order)
                if compare is not None:
                    wait_ns = 0 if order[1].only else COMPARED_NS
                    later.append((self._environment.wall_ns() + wait_ns, compare))
                del compare
            elif later and not self._leaves:
                yield from self._compare(later.popleft()[1])
            del order  # releases the function before the wait for the next change

    def _rehearse(self, worker: WorkerId, order: Rehearse) -> Steps[Callable[[], Compared] | None]:
        yield from self._environment.acquired(self.chains.kept)
        try:
            answer, compare = self._rehearsals.rehearse(worker, order, [hosted.worker for hosted in self.workers])
            self._outside(TellController(answer))
        finally:
            self.chains.kept.release()
        return compare

    def _compare(self, compare: Callable[[], Compared]) -> Steps[None]:
        yield from self._environment.acquired(self.chains.kept)
        try:
            self._outside(TellController(compare()))
        finally:
            self.chains.kept.release()

    def _try(self, order: DryRun) -> Steps[None]:
        """Dry-run a function. The answer is sent without waiting for the worker's next tuple.

        The FCM that follows the answer goes to whichever worker runs the operator by then. So no chain may change
        between the look for that worker and the post, or the function could come behind it, from another one.
        """
        result = self._rehearsals.prepare(order)
        yield from self._environment.acquired(self.chains.kept)
        yield
        try:
            self.router.post(order.worker, result)
        finally:
            self.chains.kept.release()
        self._outside(TellController(result.answer))
