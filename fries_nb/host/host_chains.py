"""The chains of a host's workers, rearranged while they run (see ``worker.chaining``).

The control thread rearranges them, while it holds the ``owner`` locks of the workers concerned. It never waits for a
lock, since a user's function may hold it: it tries again at its next poll, and stalls the first worker meanwhile, which
lets the second one process what is between them.

Other threads may find out late which worker runs an operator, so a worker whose chain has changed passes on events that
are not for its own operators. Control messages are posted by the control thread, and so keep their order.
"""

from __future__ import annotations

from collections.abc import Callable

from fries_nb.host.environment import Environment, Steps
from fries_nb.host.host_loop import HostLoop
from fries_nb.host.hosted_worker import HostedWorker
from fries_nb.operators.dry_run import DryRunResult
from fries_nb.protocol.messages import Chained, SetChain, WorkerId
from fries_nb.protocol.topology import Topology
from fries_nb.worker.chaining import ChainRequest, Fused, SplitOff
from fries_nb.worker.events import Arrived, Directed, Event, Expected, Granted, Stalled
from fries_nb.worker.turns import Lock
from fries_nb.worker.worker import Worker


class HostChains:
    """The requested chains of one host, and the ones that were made.

    Args:
        environment: the host's locks and clocks.
        topology: the topology, with the functions of the operators.
        hosted: operator's worker to the worker that runs it; updated.
        loop_of: the same, with the loop of that worker; updated.
        tell: sends an answer to the controller.

    Attributes:
        topology: the current topology.
        kept: held by a thread for as long as chains must stay as they are.
    """

    def __init__(
        self,
        environment: Environment,
        topology: Topology,
        hosted: dict[WorkerId, HostedWorker],
        loop_of: dict[WorkerId, tuple[HostLoop, HostedWorker]],
        tell: Callable[[Chained], None],
    ) -> None:
        self.kept = environment.lock()
        self._now_ns = environment.now_ns
        self.topology = topology
        self._hosted = hosted
        self._loop_of = loop_of
        self._tell = tell
        self._requests: list[ChainRequest] = []
        self._stalled: dict[ChainRequest, HostedWorker] = {}
        self._fused: dict[HostedWorker, tuple[str, ...]] = {}  # and the operators that were the first worker's

    @property
    def is_waiting(self) -> bool:
        """Whether ``advance`` is to be called soon."""
        return bool(self._requests)

    def request(self, worker: WorkerId, control: SetChain) -> None:
        """Begin to make a chain; refused if this host does not run the worker."""
        if worker not in self._hosted:
            self._tell(_not_here(worker))
            return
        for earlier in [one for one in self._requests if one.concerns(worker.index, control.operators)]:
            self._requests.remove(earlier)
            self._release(earlier)
            self._tell(Chained(earlier.worker, (), f"another chain was requested from {worker} on"))
        present = tuple(operator.name for operator in self._hosted[worker].worker.wiring.chain)
        if present == control.operators:  # there is nothing to rearrange, so it need not be owned
            self._tell(Chained(worker, present))
            return
        self._requests.append(ChainRequest(worker, control.operators, self._now_ns()))

    def advance(self) -> Steps[None]:
        """Take all steps that are possible now; called by the control thread, after each of its polls."""
        for worker, operators in list(self._fused.items()):
            if worker.worker.slowness.is_slow:  # the others need not have a thread with it
                self.request(worker.worker.wiring.id, SetChain(operators))
                del self._fused[worker]
        for request in self._requests.copy():
            while isinstance(made := (yield from self._step(request)), Fused | SplitOff):
                pass
            if made is not None:
                self._requests.remove(request)
                self._release(request)
                self._tell(made)
            elif request not in self._stalled:
                self._stall(request)

    def _step(self, request: ChainRequest) -> Steps[Fused | SplitOff | Chained | None]:
        """Take the next step of a request, if no other thread owns its workers; they are woken behind it.

        A loop that finds a worker owned leaves it to its owner.
        """
        members = request.members(self._running)
        if not members:  # it has left since
            return _not_here(request.worker)
        hosted = [self._hosted[worker.wiring.id] for worker in members]
        held: list[Lock] = []
        try:
            for lock in (self.kept, *(worker.owner for worker in hosted)):
                if not lock.acquire(blocking=False):
                    return request.overdue(members[0], f"{members[0].wiring.id} was busy", self._now_ns())
                held.append(lock)
                yield
            for one in (*hosted, hosted[0]):  # the first one sends, the second one returns credit
                one.process()
            made = request.step(members, self.topology, self._now_ns())
            if isinstance(made, Fused):
                self._fuse(*hosted)
            elif isinstance(made, SplitOff):
                self._split(hosted[0], made.rest)
            return made
        finally:
            for lock in held:
                lock.release()
            for worker in hosted:
                loop, _ = self._loop_of[worker.worker.wiring.id]
                loop.wake(worker)

    def _running(self, worker: WorkerId) -> Worker | None:
        hosted = self._hosted.get(worker)
        return None if hosted is None else hosted.worker

    def _stall(self, request: ChainRequest) -> None:
        loop, self._stalled[request] = self._loop_of[request.worker]
        loop.post(self._stalled[request], Stalled(True))

    def _release(self, request: ChainRequest) -> None:
        if (worker := self._stalled.pop(request, None)) is not None:
            loop, _ = self._loop_of[worker.worker.wiring.id]
            loop.post(worker, Stalled(False))

    # ---- made under the owners' locks

    def _fuse(self, first: HostedWorker, second: HostedWorker) -> None:
        names = tuple(id_.operator for id_ in first.worker.wiring.workers if self._hosted[id_] is first)
        self._fused.setdefault(first, names)
        self._fused.pop(second, None)
        first.merge(second)
        loop, _ = self._loop_of[first.worker.wiring.id]
        self._assign(first, loop)
        loop.drop(second)
        first.rerouted = second.rerouted = self._rerouted

    def _split(self, first: HostedWorker, rest: Worker) -> None:
        self._fused.pop(first, None)
        loop, _ = self._loop_of[first.worker.wiring.id]
        made = first.split_off(rest)
        self._assign(made, loop)
        loop.add(made)
        first.rerouted = made.rerouted = self._rerouted

    def _assign(self, worker: HostedWorker, loop: HostLoop) -> None:
        for id_ in worker.worker.wiring.workers:
            self._hosted[id_] = worker
            self._loop_of[id_] = (loop, worker)

    def _rerouted(self, worker: HostedWorker, event: Event) -> bool:
        """Pass on an event of an operator that another worker runs; one without operator is dropped in its place."""
        match event:
            case Arrived(channel=channel):
                to = channel.receiver
            case Granted(channel=channel):
                to = channel.sender
            case Directed() | Expected():
                to = event.worker
            case DryRunResult():
                to = event.answer.worker
            case _:
                return self._loop_of[worker.worker.wiring.id][1] is not worker  # also of one that was removed
        loop, owner = self._loop_of[to]
        if owner is worker:
            return False
        loop.post(owner, event)
        return True


def _not_here(worker: WorkerId) -> Chained:
    expected = "expected a worker of the host to which the request is sent"
    return Chained(worker, (), f"this host does not run {worker}; {expected}")
